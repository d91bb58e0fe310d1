//! A single GGUF file, mapped into memory.

use std::{collections::BTreeMap, fs::File, path::Path, sync::Arc};

use memmap2::Mmap;

use super::{
    error::GgufError,
    format,
    header::{self, Problem},
    metadata::Value,
    tensor::TensorInfo,
};

/// The metadata and the tensors of one file.
pub(super) struct Part {
    pub metadata: BTreeMap<String, Value>,
    pub tensors: BTreeMap<String, TensorInfo>,
}

impl Part {
    pub fn open(path: &Path) -> Result<Part, GgufError> {
        let io = |source| GgufError::Io { path: path.into(), source };
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.is_dir() {
            return Err(io(std::io::ErrorKind::IsADirectory.into()));
        }
        // SAFETY: this process only reads the map. It cannot prevent other processes from truncating the file, so the
        // documentation of `Gguf` forbids that.
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
            if format::named(stored.format).is_none_or(|format| !format.is_decoded()) {
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
            let format = format::named(stored.format).expect("tensors of unknown formats were refused above");
            (stored.name, TensorInfo { format, dims: stored.dims, map: map.clone(), range: stored.range })
        };
        Ok(Part { metadata: header.metadata, tensors: header.tensors.into_iter().map(tensor).collect() })
    }
}
