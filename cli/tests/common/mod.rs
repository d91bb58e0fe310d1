//! Runs the command and looks at what it says.

#![allow(dead_code, reason = "each test file uses its part")]

use std::{ffi::OsStr, path::PathBuf, process::Command};

/// What a run gave.
pub struct Run {
    /// The exit code; `None` where a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Runs `eutectic` with these arguments.
pub fn eutectic<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Run {
    Run::of(Command::new(env!("CARGO_BIN_EXE_eutectic")).args(args))
}

impl Run {
    /// What a command gives.
    pub fn of(command: &mut Command) -> Run {
        let output = command.output().expect("it starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints UTF-8");
        Run { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The output of a run that went well.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    /// Asserts that the run ended with exit code 2 and an error, not a panic, that says all of these.
    #[track_caller]
    pub fn refused(self, says: &[&str]) {
        assert_eq!(self.code, Some(2), "stdout: {}\nstderr: {}", self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        for part in says {
            assert!(self.err.contains(part), "{part:?} is not in: {}", self.err);
        }
    }
}

/// A directory with files in it.
pub struct Dir(tempfile::TempDir);

impl Dir {
    /// An empty one.
    pub fn new() -> Dir {
        Dir(tempfile::tempdir().expect("a directory"))
    }

    /// Writes a file and gives its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it has a parent")).expect("a directory");
        std::fs::write(&path, content).expect("it is written");
        path
    }

    /// The path of a name in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
