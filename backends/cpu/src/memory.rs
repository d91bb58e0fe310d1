//! Aligned blocks of memory.

use std::alloc::{Layout, handle_alloc_error};

use memmap2::MmapMut;

/// Alignment of arenas and scratch memory: a cache line, and the widest vector.
pub const ALIGN: usize = 64;

/// Zeroed memory, aligned to [`ALIGN`].
///
/// In pages as large as the system has: kernels walk through rows that lie apart, and through constants that nothing else touches,
/// where looking up small pages takes longer than reading what is on them.
#[derive(Debug)]
pub struct Block {
    at: *mut u8,
    map: MmapMut,
}

// SAFETY: a block owns its memory; who writes where is decided by those who hold the pointer.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// A block of `bytes` bytes.
    ///
    /// # Panics
    /// If the size overflows.
    pub fn new(bytes: usize) -> Block {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).expect("a size that memory can have");
        let Ok(mut map) = MmapMut::map_anon(layout.size()) else { handle_alloc_error(layout) };
        // A wish: where it is not granted, pages are small.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Block { at: map.as_mut_ptr(), map }
    }

    /// Its first byte.
    pub fn at(&self) -> *mut u8 {
        self.at
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.map.len()
    }

    /// Copies bytes to its start.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn fill(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.bytes(), "the block was made for these bytes");
        // SAFETY: just checked.
        unsafe { self.at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}
