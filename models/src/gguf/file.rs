//! A GGUF model: one file, or all files of a split model.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{error::GgufError, metadata::Value, part::Part, split, tensor::TensorInfo};

/// A GGUF file, or all files of a split model. The files stay mapped as long as this value or one of its tensors
/// exists. They must not be truncated during that time: a read beyond the end of a mapped file raises SIGBUS, which
/// ends the process.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl Gguf {
    /// Returns whether a path ends in `.gguf`.
    pub fn is_named(path: &Path) -> bool {
        path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
    }

    /// Maps a file of GGUF version 2 or 3, and reads its metadata and its list of tensors. For a split model, `path`
    /// may be any of its files; the others must be in the same folder.
    ///
    /// # Errors
    /// If a file cannot be opened, is damaged, or has tensors in formats that cannot be decoded.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf, GgufError> {
        let path = path.as_ref().to_path_buf();
        let part = Part::open(&path)?;
        let Part { metadata, tensors } = split::whole(&path, part)?;
        Ok(Gguf { path, metadata, tensors })
    }

    /// Returns the path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the metadata by key.
    pub fn metadata(&self) -> &BTreeMap<String, Value> {
        &self.metadata
    }

    /// Returns the tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// Returns the metadata value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// Returns the metadata value of a key if it is a string.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.text()
    }
}
