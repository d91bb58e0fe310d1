//! Memory that is asked for before it is needed: a few lines at a time while a tile is computed, no more than a core can wait for.

use crate::simd::stream::{LINE, prefetch};

/// The most streams that are asked for; what more a tile reads, it waits for.
const MOST: usize = 8;

/// What the next tile reads.
pub struct Ahead {
    streams: [Stream; MOST],
    count: usize,
}

/// A stretch of memory.
#[derive(Clone, Copy)]
struct Stream {
    /// What was not asked for yet.
    at: *const u8,
    /// Lines of it.
    left: usize,
    /// Lines to ask for at a time.
    each: usize,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead { streams: [Stream { at: std::ptr::null(), left: 0, each: 0 }; MOST], count: 0 }
    }
}

impl Ahead {
    /// Adds a stretch that need not be valid, to be asked for in so many turns.
    pub fn add(&mut self, at: *const u8, bytes: usize, turns: usize) {
        if let Some(stream) = self.streams.get_mut(self.count) {
            // It need not begin with a line.
            let lines = bytes / LINE + 1;
            *stream = Stream { at, left: lines, each: lines.div_ceil(turns.max(1)) };
            self.count += 1;
        }
    }

    /// Whether anything was added.
    #[inline]
    pub fn waits(&self) -> bool {
        self.count > 0
    }

    /// Asks for the lines of a turn.
    #[inline]
    pub fn ask(&mut self) {
        for stream in &mut self.streams[..self.count] {
            let lines = stream.each.min(stream.left);
            (0..lines).for_each(|n| prefetch(stream.at.wrapping_add(n * LINE)));
            stream.at = stream.at.wrapping_add(lines * LINE);
            stream.left -= lines;
        }
    }
}
