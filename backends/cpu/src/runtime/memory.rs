//! Aligned blocks of zeroed memory.

use std::alloc::{Layout, handle_alloc_error};

use eutectic_backend::BackendError;
use memmap2::MmapMut;

/// The alignment of blocks in bytes: a cache line, which is also the widest vector.
pub const ALIGN: usize = 64;
/// Bytes of a large page.
const PAGE: usize = 2 << 20;
/// The number of offsets in a page at which large blocks start. If all started at one offset, elements of several
/// blocks at one index would compete for the same cache sets and memory banks.
const PLACES: usize = 16;
/// The distance in bytes between the offsets at which large blocks start.
const PLACE_STRIDE: usize = 4096 + 256;

/// A block of zeroed memory, aligned to [`ALIGN`].
///
/// A block asks the system for large pages. When kernels access strided rows and constants that are not in caches, TLB
/// misses on small pages would take longer than the reads.
#[derive(Debug)]
pub struct Pages {
    at: *mut u8,
    bytes: usize,
    /// The owner of the memory.
    _map: MmapMut,
}

// SAFETY: a block owns its memory; the holders of the pointer coordinate writes.
unsafe impl Send for Pages {}
// SAFETY: a block owns its memory; the holders of the pointer coordinate writes.
unsafe impl Sync for Pages {}

impl Pages {
    /// Returns a block of `bytes` bytes. If there is too little memory, the process ends.
    ///
    /// # Panics
    /// If the size overflows.
    pub fn new(bytes: usize) -> Pages {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).expect("the size does not overflow");
        Pages::try_new(bytes).unwrap_or_else(|_| handle_alloc_error(layout))
    }

    /// Returns a block of `bytes` bytes.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn try_new(bytes: usize) -> Result<Pages, BackendError> {
        Pages::mapped(bytes).ok_or_else(|| {
            BackendError::Memory(format!("cannot allocate {bytes} bytes because too little memory is left"))
        })
    }

    fn mapped(bytes: usize) -> Option<Pages> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).ok()?;
        let large = layout.size() >= PAGE;
        // The size is a multiple of large pages, so that the system aligns the mapping to a large page.
        let size = if large { (layout.size() + PLACES * PLACE_STRIDE).next_multiple_of(PAGE) } else { layout.size() };
        let mut map = MmapMut::map_anon(size).ok()?;
        // The system may ignore this advice, and then uses small pages.
        #[cfg(all(target_os = "linux", not(miri)))]
        let _ = map.advise(memmap2::Advice::HugePage);
        let page = map.as_ptr().addr() / PAGE;
        let start = if large { (page ^ page >> 3 ^ page >> 6) % PLACES * PLACE_STRIDE } else { 0 };
        Some(Pages { at: map[start..].as_mut_ptr(), bytes, _map: map })
    }

    /// Returns a block that begins with these bytes.
    pub fn of(bytes: &[u8]) -> Pages {
        let mut block = Pages::new(bytes.len());
        block.fill(bytes);
        block
    }

    /// Returns the address of the first byte.
    pub fn at(&self) -> *mut u8 {
        self.at
    }

    /// Returns the size of the block in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies bytes to the start of the block.
    ///
    /// # Panics
    /// If the block has fewer bytes.
    pub fn fill(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.bytes(), "the bytes fit into the block");
        // SAFETY: the assertion checks that the block has room for the bytes.
        unsafe { self.at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the block has this many bytes, all initialised.
        unsafe { std::slice::from_raw_parts(self.at, self.bytes) }
    }
}

impl AsMut<[u8]> for Pages {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the block has this many bytes, all initialised. The slice derives from `at`, like all pointers that
        // kernels hold. A slice of `_map` would invalidate them.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_zeroed_and_of_their_size() {
        // Miri takes minutes to check a large page.
        let large = if cfg!(miri) { &[][..] } else { &[PAGE - 1, PAGE, 3 * PAGE + 5] };
        for &bytes in [0, 1, 63, 4096].iter().chain(large) {
            let mut block = Pages::new(bytes);
            assert!(block.at().addr().is_multiple_of(ALIGN), "{bytes} bytes");
            assert_eq!((block.bytes(), block.as_ref().len(), block.as_mut().len()), (bytes, bytes, bytes));
            assert!(block.as_ref().iter().all(|&b| b == 0), "{bytes} bytes");
            assert_eq!(block.as_ref().as_ptr(), block.at().cast_const());
            let numbers: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
            assert_eq!(Pages::of(&numbers).as_ref(), numbers, "{bytes} bytes");
        }
    }
}
