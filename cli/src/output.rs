//! Writes files under a temporary name in the same folder, and renames them when they are complete. The path `-` stands
//! for stdout, which then receives nothing else.

use std::{
    fs::{self, File},
    io::{self, Stdout, Write, stdout},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::{
    fault::{Fault, input},
    table::plain,
};

/// A file that is being written.
pub struct OutputFile {
    to: OutputTarget,
}

enum OutputTarget {
    /// A temporary file, and the path that it will get.
    Beside(NamedTempFile, PathBuf),
    /// A device or a pipe. A file cannot replace it, so it is written directly.
    Device(File),
    /// Stdout, for the path `-`.
    Standard(Stdout),
}

/// Returns whether a path is `-`, which stands for stdin or stdout.
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Prints a warning on stderr.
pub fn warn(text: &str) {
    anstream::eprintln!("warning: {}", plain(text));
}

/// Prints a note on stderr about an event that requires no action of the user.
pub fn note(text: &str) {
    anstream::eprintln!("note: {}", plain(text));
}

/// Rejects outputs of which several go to stdout.
///
/// # Errors
/// If more than one output goes to stdout.
pub fn one_on_stdout(given: impl IntoIterator<Item = (String, bool)>) -> Result<(), Fault> {
    let given: Vec<String> = given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect();
    if given.len() < 2 {
        return Ok(());
    }
    Err(input(
        format!("cannot write the outputs of {} to stdout at once", given.join(" and ")),
        "leave out all but one",
    ))
}

impl OutputFile {
    /// Starts to write a file. An existing file stays unchanged until [`OutputFile::done`].
    ///
    /// # Errors
    /// If its folder cannot be written, or the path is a folder.
    pub fn new(path: &Path) -> io::Result<OutputFile> {
        if is_standard(path) {
            return Ok(OutputFile { to: OutputTarget::Standard(stdout()) });
        }
        let there = fs::metadata(path).ok();
        if there.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            return Ok(OutputFile { to: OutputTarget::Device(File::options().write(true).open(path)?) });
        }
        // The target of a symbolic link is replaced, rather than the link.
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        // The file gets the permissions of an ordinary new file, because those of a temporary file are private.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        // The error of `tempfile` would name the temporary file, which is unknown to the user.
        let file = builder.tempfile_in(folder).map_err(|e| {
            io::Error::new(e.kind(), format!("cannot write files in {}: {}", folder.display(), e.kind()))
        })?;
        Ok(OutputFile { to: OutputTarget::Beside(file, place) })
    }

    /// Completes the file and moves it to its destination.
    ///
    /// # Errors
    /// If the file cannot be moved to its destination.
    pub fn done(self) -> io::Result<()> {
        match self.to {
            OutputTarget::Beside(file, place) => file.persist(place).map(drop).map_err(|e| e.error),
            OutputTarget::Device(mut file) => file.flush(),
            OutputTarget::Standard(mut out) => out.flush(),
        }
    }
}

/// Writes a file that consists of parts, completely or not at all.
///
/// # Errors
/// If the file cannot be written. An existing file then stays unchanged. A closed pipe is not an error.
pub fn write(path: &Path, parts: &[&[u8]]) -> Result<(), Fault> {
    let written = OutputFile::new(path).and_then(|mut output| {
        parts.iter().try_for_each(|part| output.write_all(part))?;
        output.done()
    });
    written.map_err(|error| unwritable(path, error))
}

/// Returns the error for a path that cannot be written. A closed pipe is not an error.
pub fn unwritable(path: &Path, error: io::Error) -> Fault {
    if is_standard(path) || error.kind() == io::ErrorKind::BrokenPipe {
        return error.into();
    }
    input(format!("cannot write {}: {error}", path.display()), "name a file in a folder that can be written to")
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.to {
            OutputTarget::Beside(file, _) => file.write(bytes),
            OutputTarget::Device(file) => file.write(bytes),
            OutputTarget::Standard(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            OutputTarget::Beside(file, _) => file.flush(),
            OutputTarget::Device(file) => file.flush(),
            OutputTarget::Standard(out) => out.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_until_the_new_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("costs.toml");
        fs::write(&path, "old").unwrap();
        let mut output = OutputFile::new(&path).unwrap();
        output.write_all(b"ne").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        drop(output);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        write(&path, &[b"new".as_slice()]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(write(folder.path(), &[b"x".as_slice()]).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn devices_and_links_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write(&link, &[b"new".as_slice()]).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && fs::read(&path).unwrap() == b"new");
        write(Path::new("/dev/null"), &[b"new".as_slice()]).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
