//! The folder of a model, and the files of external data in it: each is mapped once, however many tensors lie in it.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use memmap2::Mmap;
use prost::bytes::Bytes;

/// A folder whose files are mapped when they are first asked for. Clones share the maps.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// By the path within the folder. A file of hundreds of tensors would otherwise take its size of address space for each.
    maps: Arc<Mutex<BTreeMap<PathBuf, Bytes>>>,
}

impl Folder {
    /// The folder that a model file is in.
    pub(super) fn of(model: &Path) -> Folder {
        let path = match model.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Folder { path: path.into(), maps: Arc::default() }
    }

    /// The bytes of a file, given relative to the folder.
    ///
    /// # Errors
    /// When it cannot be mapped, is not a regular file, or lies outside the folder.
    pub(super) fn map(&self, file: &Path) -> Result<Bytes, String> {
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(map) = maps.get(file) {
            return Ok(map.clone());
        }
        let map = self.open(file)?;
        maps.insert(file.into(), map.clone());
        Ok(map)
    }

    fn open(&self, file: &Path) -> Result<Bytes, String> {
        let io = |e: std::io::Error| e.to_string();
        let path = self.path.join(file).canonicalize().map_err(io)?;
        // A link can lead anywhere.
        if !path.starts_with(self.path.canonicalize().map_err(io)?) {
            return Err("it is a link out of the model's folder".into());
        }
        // Opening a pipe would wait for whoever writes to it.
        let metadata = path.metadata().map_err(io)?;
        if !metadata.is_file() {
            return Err("it is not a regular file".into());
        }
        // An empty file cannot be mapped.
        if metadata.len() == 0 {
            return Ok(Bytes::new());
        }
        let file = File::open(&path).map_err(io)?;
        // SAFETY: the map is only read. That nobody truncates the file meanwhile cannot be enforced; see `Model`.
        Ok(Bytes::from_owner(unsafe { Mmap::map(&file) }.map_err(io)?))
    }
}
