//! Why GGUF files cannot be read.

use std::path::PathBuf;

use super::format;

/// Why a GGUF file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file cannot be opened or mapped.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is damaged, or of another format.
    #[error("cannot read {} as GGUF: at byte {at}, {problem}; {remedy}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The place in the file.
        at: usize,
        /// The contradiction there.
        problem: String,
        /// A way out.
        remedy: &'static str,
    },
    /// Tensors are stored in formats that have no decoder here.
    #[error("cannot read {}: no decoder for the formats {}; quantize the model to one of {}", .path.display(), .formats.join(", "), format::names())]
    Formats {
        /// The file.
        path: PathBuf,
        /// Each format, with the number of its tensors and the first of them.
        formats: Vec<String>,
    },
    /// The files of a split model do not belong together.
    #[error("cannot read the split model {}: {problem}; {remedy}", .path.display())]
    Split {
        /// The file that was asked for.
        path: PathBuf,
        /// The contradiction.
        problem: String,
        /// A way out.
        remedy: &'static str,
    },
}
