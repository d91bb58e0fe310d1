//! Aligned blocks of memory.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// Alignment of arenas and scratch memory: a cache line, and the widest vector.
pub const ALIGN: usize = 64;

/// Zeroed memory, aligned to [`ALIGN`].
#[derive(Debug)]
pub struct Block {
    at: *mut u8,
    layout: Layout,
}

// SAFETY: a block owns its memory; who writes where is decided by those who hold the pointer.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// A block of at least `bytes` bytes.
    ///
    /// # Panics
    /// If the size overflows.
    pub fn new(bytes: usize) -> Block {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).expect("a size that memory can have");
        // SAFETY: the size is not zero.
        let at = unsafe { alloc_zeroed(layout) };
        if at.is_null() {
            handle_alloc_error(layout);
        }
        Block { at, layout }
    }

    /// Its first byte.
    pub fn at(&self) -> *mut u8 {
        self.at
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.layout.size()
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

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.at, self.layout) };
    }
}
