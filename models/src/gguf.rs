//! GGUF files (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>): metadata and tensors, mapped into memory.
//!
//! Tensors in formats of blocks are decoded to `f32` when they are asked for, to the bits that ggml gives. Programs have no operand that
//! stays packed yet, so a loaded model takes four bytes for each weight.

pub mod format;
mod header;
mod metadata;
mod split;

use std::{
    collections::BTreeMap,
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use eutectic_ir::{DType, Tensor};
use memmap2::Mmap;

pub use self::metadata::{Array, Value};
use self::{format::Format, header::Problem};
use crate::weights::Mapped;

/// A GGUF file, or all files of a split one. The files stay mapped as long as this or one of its tensors lives; they must not be truncated
/// meanwhile (as with every memory map, reading would then end the process).
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
}

/// A tensor of a file.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// How its elements are stored.
    pub format: &'static Format,
    /// Its extents, the slowest axis first. (In the file, the fastest one comes first.)
    pub dims: Vec<usize>,
    map: Arc<Mmap>,
    range: Range<usize>,
}

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

impl TensorInfo {
    /// The elements as `f32`, to the bits that ggml decodes them to.
    pub fn decode(&self) -> Tensor {
        let bytes = &self.map[self.range.clone()];
        // ggml's formats are little-endian, as tensors are.
        if self.format.name == "F32" && (bytes.as_ptr() as usize).is_multiple_of(4) {
            let mapped = Mapped { map: self.map.clone(), range: self.range.clone() };
            return Tensor::new(DType::F32, &self.dims, mapped).expect("sizes were checked when the file was opened");
        }
        let mut values = vec![0.0; self.dims.iter().product()];
        self.format.decode(bytes, &mut values);
        Tensor::from_f32(&self.dims, &values).expect("a value for each element")
    }

    /// The bytes that it takes in the file.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }
}

/// What one file holds.
struct Part {
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl Part {
    fn open(path: &Path) -> Result<Part, GgufError> {
        let io = |source| GgufError::Io { path: path.into(), source };
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.is_dir() {
            return Err(io(std::io::ErrorKind::IsADirectory.into()));
        }
        // SAFETY: the map is only read. That nobody truncates the file meanwhile cannot be enforced; see the docs of `Gguf`.
        let map = Arc::new(unsafe { Mmap::map(&file) }.map_err(io)?);
        let read = header::read(&map);
        let header = read.map_err(|Problem { at, problem, remedy }| GgufError::Format {
            path: path.into(),
            at,
            problem,
            remedy,
        })?;
        let mut unknown: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        for stored in &header.tensors {
            if format::named(stored.format).is_none_or(|format| format.decoder.is_none()) {
                unknown.entry(stored.format).or_default().push(&stored.name);
            }
        }
        if !unknown.is_empty() {
            let line = |(id, names): (u32, Vec<&str>)| {
                let name = format::named(id).map_or(format!("number {id}"), |format| format.name.into());
                format!("{name} ({} tensors, first `{}`)", names.len(), names[0])
            };
            return Err(GgufError::Formats { path: path.into(), formats: unknown.into_iter().map(line).collect() });
        }
        let tensor = |stored: header::Stored| {
            let format = format::named(stored.format).expect("unknown ones were refused above");
            (stored.name, TensorInfo { format, dims: stored.dims, map: map.clone(), range: stored.range })
        };
        Ok(Part { metadata: header.metadata, tensors: header.tensors.into_iter().map(tensor).collect() })
    }
}

impl Gguf {
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

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The metadata by key.
    pub fn metadata(&self) -> &BTreeMap<String, Value> {
        &self.metadata
    }

    /// The tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// The text of a key.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.text()
    }
}

#[cfg(test)]
mod tests;
