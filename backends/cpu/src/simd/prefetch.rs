//! Software prefetch: a few lines at a time during computations, at most as many as a core has line-fill buffers.

use std::cell::Cell;

use super::stream::{LINE, prefetch};

/// The maximal number of prefetched streams; others miss the cache when they are read.
const MOST: usize = 8;

/// Streams of memory to prefetch.
///
/// They take turns, so that each advances as slowly as it is read. The hardware prefetcher then follows each stream
/// too, with more outstanding lines than software prefetches may have.
#[derive(Default)]
pub struct Prefetch {
    streams: [PrefetchStream; MOST],
    count: usize,
    /// The number of remaining rounds.
    left: Cell<usize>,
    /// The number of rounds per call.
    each: usize,
}

/// A stretch of memory.
struct PrefetchStream {
    /// The next address.
    at: Cell<*const u8>,
    /// The distance of two addresses: a line, or less in a range that is shorter than others.
    step: usize,
}

impl Default for PrefetchStream {
    fn default() -> PrefetchStream {
        PrefetchStream { at: Cell::new(std::ptr::null()), step: 0 }
    }
}

impl Prefetch {
    /// Returns a prefetch without streams, for `turns` rounds, `each` at a time.
    pub fn new(turns: usize, each: usize) -> Prefetch {
        Prefetch { left: Cell::new(turns), each, ..Prefetch::default() }
    }

    /// Adds a range, which need not be valid. At most one line per round is prefetched.
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
