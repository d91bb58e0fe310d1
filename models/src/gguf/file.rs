//! A GGUF file, with the other files of a split model.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{error::GgufError, metadata::Value, part::Part, split, tensor::TensorInfo};

/// A GGUF file, or all files of a split one. The files stay mapped as long as this or one of its tensors lives; they must not be truncated
/// meanwhile (as with every memory map, reading would then end the process).
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl Gguf {
    /// Says whether a path names a GGUF file.
    pub fn is_named(path: &Path) -> bool {
        path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
    }

    /// Maps a file of version 2 or 3, and reads its metadata and the list of its tensors. Of a split model, any of its files will do; the
    /// others are looked for in the same folder.
    ///
    /// # Errors
    /// When a file cannot be opened, is damaged, or has tensors in formats without a decoder.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf, GgufError> {
        let path = path.as_ref().to_path_buf();
        let part = Part::open(&path)?;
        let Part { metadata, tensors } = split::whole(&path, part)?;
        Ok(Gguf { path, metadata, tensors })
    }

    /// Returns the path of the file.
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

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// Returns the text of a key.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.text()
    }
}
