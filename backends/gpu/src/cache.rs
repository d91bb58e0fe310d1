//! Caches compiled kernels on disk, by a hash of their source. A damaged or foreign file counts as absent. If a file
//! cannot be written, the only effect is that the next start compiles again.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

/// A folder of files. Each file begins with a checksum of its remaining bytes.
#[derive(Clone, Debug)]
pub struct Cache(PathBuf);

fn hashed(what: impl Hash + Copy) -> [u8; 16] {
    let mut all = [0; 16];
    for (n, half) in all.chunks_mut(8).enumerate() {
        let mut hasher = DefaultHasher::new();
        (n, what).hash(&mut hasher);
        half.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    all
}

impl Cache {
    /// Returns the cache in a folder. The first write creates the folder.
    pub fn new(folder: &Path) -> Cache {
        Cache(folder.to_path_buf())
    }

    /// Returns the file name for the result of compiling texts.
    pub fn name(texts: &[&str], extension: &str) -> String {
        let hash: String = hashed(texts).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{hash}.{extension}")
    }

    /// Returns the content stored under a name.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        let file = fs::read(self.0.join(name)).ok()?;
        let (sum, content) = file.split_first_chunk::<16>()?;
        (*sum == hashed(content)).then(|| content.to_vec())
    }

    /// Stores bytes under a name. Concurrent readers see the old content or the new one, never a mixture.
    pub fn write(&self, name: &str, content: &[u8]) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let own = self.0.join(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let file = [&hashed(content)[..], content].concat();
        let kept = fs::create_dir_all(&self.0)
            .and_then(|()| fs::write(&own, file))
            .and_then(|()| fs::rename(&own, self.0.join(name)));
        if kept.is_err() {
            let _ = fs::remove_file(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_kept_whole_is_read() {
        let folder = std::env::temp_dir().join(format!("eutectic-cache-{}", std::process::id()));
        let cache = Cache::new(&folder.join("not there yet"));
        let name = Cache::name(&["a text", "a version"], "bin");
        assert_ne!(name, Cache::name(&["a text", "another version"], "bin"));
        assert_eq!(cache.read(&name), None);
        for content in [&b"compiled"[..], b"", b"compiled anew"] {
            cache.write(&name, content);
            assert_eq!(cache.read(&name).as_deref(), Some(content));
        }
        let path = cache.0.join(&name);
        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        for wrong in [&whole[..whole.len() - 1], &whole[..7], b"", b"what somebody else has left there", &flipped] {
            fs::write(&path, wrong).unwrap();
            assert_eq!(cache.read(&name), None);
        }
        fs::remove_dir_all(folder).unwrap();
        // A folder that cannot be created has no effect.
        Cache::new(Path::new("/proc/nowhere")).write(&name, b"compiled");
    }
}
