//! Reads whole files. The path `-` stands for stdin.

use std::{
    fs::File,
    io::{self, Read, stdin},
    path::Path,
};

use crate::{
    fault::{Fault, input},
    output::is_standard,
};

/// The largest number of bytes that are read from a pipe or a device, because these may be endless.
const STREAM_MOST: u64 = 1 << 30;

/// Rejects arguments of which several name stdin.
///
/// # Errors
/// If stdin would be read twice.
pub fn read_stdin_once<'p>(named: impl IntoIterator<Item = (String, &'p Path)>) -> Result<(), Fault> {
    let by: Vec<String> = named.into_iter().filter(|(_, path)| is_standard(path)).map(|(name, _)| name).collect();
    if by.len() < 2 {
        return Ok(());
    }
    let problem = format!("cannot read stdin more than once, but it is named by {}", by.join(" and by "));
    Err(input(problem, "use - for one of them, and files for the others"))
}

/// Reads a file.
///
/// # Errors
/// If the file cannot be read, or if it is not a regular file and longer than 1 GiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    if is_standard(path) {
        return read_stream(stdin().lock(), STREAM_MOST);
    }
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return read_stream(file, STREAM_MOST);
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(metadata.len()).unwrap_or(usize::MAX))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file of text.
///
/// # Errors
/// In the cases of [`read`], and if the file is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

fn read_stream(stream: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let problem = format!("it has more than {most} bytes, which only a regular file may have");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_without_an_end_is_refused() {
        let problem = read_stream(io::repeat(0), 1000).unwrap_err();
        assert!(problem.to_string().contains("longer than 1000 bytes"), "{problem}");
        assert_eq!(read_stream(&[1, 2, 3][..], 3).unwrap(), [1, 2, 3]);
    }
}
