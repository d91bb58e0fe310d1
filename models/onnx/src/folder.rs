//! The folder of a model. It maps the files of external data, each of them once even if it contains many tensors.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use memmap2::Mmap;
use prost::bytes::Bytes;

/// A folder whose files are mapped when they are first read. Clones share the maps.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// The maps by path within the folder. One map for each tensor would use the address space of the whole file each
    /// time.
    maps: Arc<Mutex<BTreeMap<PathBuf, Bytes>>>,
}

impl Folder {
    /// Returns the folder that contains a model file.
    pub(super) fn of(model: &Path) -> Folder {
        let path = match model.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Folder { path: path.into(), maps: Arc::default() }
    }

    /// Returns the bytes of a file, whose path is relative to the folder.
    ///
    /// # Errors
    /// If the file cannot be mapped, is not a regular file, or is outside the folder.
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
        // A symbolic link can point outside the folder.
        if !path.starts_with(self.path.canonicalize().map_err(io)?) {
            return Err("it is a symbolic link to a file outside of the model's folder".into());
        }
        // Opening a named pipe would block until some process writes to it.
        let metadata = path.metadata().map_err(io)?;
        if !metadata.is_file() {
            return Err("it is not a regular file".into());
        }
        // An empty file cannot be mapped.
        if metadata.len() == 0 {
            return Ok(Bytes::new());
        }
        let file = File::open(&path).map_err(io)?;
        // SAFETY: this process only reads the map. It cannot prevent other processes from truncating the file, so the
        // documentation of `Model` forbids that.
        Ok(Bytes::from_owner(unsafe { Mmap::map(&file) }.map_err(io)?))
    }
}
