//! Memory that is asked for before it is needed: a few lines at a time while a tile is computed, no more than a core can wait for.

use crate::simd::stream::{LINE, prefetch};

/// The most streams that are asked for; what more a tile reads, it waits for.
const MOST: usize = 8;

/// What the next tile reads.
pub struct Ahead {
    streams: [Stream; MOST],
    /// The streams that were not asked for yet.
    left: std::ops::Range<usize>,
    /// Lines to ask for at a time.
    each: usize,
}

/// A stretch of memory.
#[derive(Clone, Copy)]
struct Stream {
    /// What was not asked for yet.
    at: *const u8,
    /// Lines of it.
    left: usize,
}

impl Ahead {
    /// Nothing yet; so many lines are asked for at a time.
    pub fn new(each: usize) -> Ahead {
        Ahead { streams: [Stream { at: std::ptr::null(), left: 0 }; MOST], left: 0..0, each }
    }

    /// Adds a stretch that need not be valid.
    pub fn add(&mut self, at: *const u8, bytes: usize) {
        if let Some(stream) = self.streams.get_mut(self.left.end) {
            // It need not begin with a line.
            *stream = Stream { at, left: bytes / LINE + 1 };
            self.left.end += 1;
        }
    }

    /// Whether there is more to ask for.
    #[inline]
    pub fn waits(&self) -> bool {
        !self.left.is_empty()
    }

    /// Asks for some lines.
    #[inline]
    pub fn ask(&mut self) {
        let mut each = self.each;
        while let (true, Some(stream)) = (each > 0, self.streams[self.left.clone()].first_mut()) {
            let lines = each.min(stream.left);
            (0..lines).for_each(|n| prefetch(stream.at.wrapping_add(n * LINE)));
            stream.at = stream.at.wrapping_add(lines * LINE);
            stream.left -= lines;
            each -= lines;
            if stream.left == 0 {
                self.left.start += 1;
            }
        }
    }
}
