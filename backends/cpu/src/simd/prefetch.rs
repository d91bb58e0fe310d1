//! Software prefetch: a few lines at a time while something else is computed, no more than a core has line-fill buffers for.

use std::cell::Cell;

use super::stream::{LINE, prefetch};

/// The most streams that are prefetched; others miss the cache when they are read.
const MOST: usize = 8;

/// Streams of memory to prefetch.
///
/// They take turns, so that each moves on as slowly as it is read. The hardware prefetcher then follows each stream too, with more lines
/// outstanding than software prefetches may have.
#[derive(Default)]
pub struct Prefetch {
    streams: [PrefetchStream; MOST],
    count: usize,
    /// How often streams have their turns yet.
    left: Cell<usize>,
    /// How often at a time.
    each: usize,
}

/// A stretch of memory.
struct PrefetchStream {
    /// What comes next.
    at: Cell<*const u8>,
    /// How far that moves in a turn: a line, or less in a stretch that is shorter than others.
    step: usize,
}

impl Default for PrefetchStream {
    fn default() -> PrefetchStream {
        PrefetchStream { at: Cell::new(std::ptr::null()), step: 0 }
    }
}

impl Prefetch {
    /// Nothing yet. There will be so many turns, `each` at a time.
    pub fn new(turns: usize, each: usize) -> Prefetch {
        Prefetch { left: Cell::new(turns), each, ..Prefetch::default() }
    }

    /// Adds a stretch that need not be valid, of which at most as many lines are prefetched as there are turns.
    pub fn add(&mut self, at: *const u8, bytes: usize) {
        if let Some(stream) = self.streams.get_mut(self.count) {
            *stream = PrefetchStream { at: Cell::new(at), step: bytes.div_ceil(self.left.get().max(1)).min(LINE) };
            self.count += 1;
        }
    }

    /// Prefetches some lines.
    #[inline(always)]
    pub fn issue(&self) {
        let turns = self.each.min(self.left.get());
        self.left.set(self.left.get() - turns);
        for _ in 0..turns {
            for stream in &self.streams[..self.count] {
                prefetch(stream.at.get());
                stream.at.set(stream.at.get().wrapping_add(stream.step));
            }
        }
    }
}
