//! Runs the command and checks its output.

#![allow(dead_code, reason = "each test file uses its part")]

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use eutectic::{Listed, Setup, engine::backend::file_name};

/// The result of a run of the command.
pub struct Run {
    /// The exit code, or `None` if a signal ended the run.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Returns the home folder of a user without measured costs. Its file of costs for this device is empty, so that the
/// command uses the backend's costs and does not calibrate them.
pub fn home() -> &'static Path {
    static HOME: OnceLock<PathBuf> = OnceLock::new();
    HOME.get_or_init(|| {
        let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("home");
        let folder = home.join(".config/eutectic/costs");
        let cpu = Listed::named("cpu").and_then(|cpu| cpu.open(&Setup::default())).expect("the processor is there");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(file_name("cpu", &cpu.device())), "").expect("it is written");
        home
    })
}

/// Returns the command for the user of [`home`].
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_eutectic"));
    command.env("HOME", home());
    command
}

/// Runs `eutectic` with these arguments.
pub fn eutectic<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Run {
    Run::of(command().args(args))
}

impl Run {
    /// Runs a command and returns its result.
    pub fn of(command: &mut Command) -> Run {
        let output = command.output().expect("it starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints UTF-8");
        Run { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Returns the output of a successful run.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    /// Asserts that the run ended with exit code 2 and without a panic, and that its error contains all given texts.
    #[track_caller]
    pub fn refused(self, says: &[&str]) {
        assert_eq!(self.code, Some(2), "stdout: {}\nstderr: {}", self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        for part in says {
            assert!(self.err.contains(part), "{part:?} is not in: {}", self.err);
        }
    }
}

/// A temporary directory.
pub struct Dir(tempfile::TempDir);

impl Dir {
    /// Creates an empty directory.
    pub fn new() -> Dir {
        Dir(tempfile::tempdir().expect("a directory"))
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().expect("it has a parent")).expect("a directory");
        fs::write(&path, content).expect("it is written");
        path
    }

    /// Returns the path of a file in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
