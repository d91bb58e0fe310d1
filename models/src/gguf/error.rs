//! Errors of the GGUF reader.

use std::path::PathBuf;

use super::format;

/// The reason why a GGUF file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file cannot be opened or mapped.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is damaged or not a GGUF file.
    #[error("cannot read {} as GGUF: at byte {at}, {problem}; {remedy}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The offset of the defect in the file, in bytes.
        at: usize,
        /// The defect.
        problem: String,
        /// The remedy for the user.
        remedy: &'static str,
    },
    /// Some tensors have formats that cannot be decoded.
    #[error("cannot read {} because the formats {} are not supported; quantize the model to one of {}", .path.display(), .formats.join(", "), format::names())]
    Formats {
        /// The file.
        path: PathBuf,
        /// One entry for each such format: its name, the number of its tensors, and the first of them.
        formats: Vec<String>,
    },
    /// The files of a split model do not belong together.
    #[error("cannot read the split model {}: {problem}; {remedy}", .path.display())]
    Split {
        /// The file that was asked for.
        path: PathBuf,
        /// The defect.
        problem: String,
        /// The remedy for the user.
        remedy: &'static str,
    },
}
