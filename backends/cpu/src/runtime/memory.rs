//! Aligned blocks of memory.

use std::alloc::{Layout, handle_alloc_error};

use eutectic_backend::BackendError;
use memmap2::MmapMut;

/// Alignment of arenas and scratch memory: a cache line, and the widest vector.
pub const ALIGN: usize = 64;
/// Bytes of a large page.
const PAGE: usize = 2 << 20;
/// Large blocks start at one of this number of offsets in a page, which are [`PLACE_STRIDE`] bytes apart. If all
/// started at one offset, equal indices of several blocks would compete for the same cache sets and memory banks.
const PLACES: usize = 16;
const PLACE_STRIDE: usize = 4096 + 256;

/// Zeroed memory, aligned to [`ALIGN`].
///
/// It uses the largest pages of the system. Kernels access strided rows and cold constants, for which TLB misses on
/// small pages take longer than the reads.
#[derive(Debug)]
pub struct Pages {
    at: *mut u8,
    bytes: usize,
    /// Keeps the memory.
    _map: MmapMut,
}

// SAFETY: a block owns its memory; the holders of the pointer coordinate writes.
unsafe impl Send for Pages {}
// SAFETY: as above.
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
        Pages::mapped(bytes).ok_or_else(|| BackendError::Memory(format!("no {bytes} bytes of memory are left")))
    }

    fn mapped(bytes: usize) -> Option<Pages> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).ok()?;
        let large = layout.size() >= PAGE;
        // Whole pages, so that the system starts the map at a page.
        let size = if large { (layout.size() + PLACES * PLACE_STRIDE).next_multiple_of(PAGE) } else { layout.size() };
        let mut map = MmapMut::map_anon(size).ok()?;
        // A wish: where it is not granted, pages are small.
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

    /// Returns its first byte.
    pub fn at(&self) -> *mut u8 {
        self.at
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
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

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the block has this many bytes, all initialised.
        unsafe { std::slice::from_raw_parts(self.at, self.bytes) }
    }
}

impl AsMut<[u8]> for Pages {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above. All pointers into the block derive from the one that is handed out: a separate slice of the
        // map would invalidate the pointers that kernels hold.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_zeroed_and_of_their_size() {
        // Miri takes minutes for a page.
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
