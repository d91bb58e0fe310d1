//! Software prefetch during computations. It requests a few cache lines at a time, at most as many as a core has
//! line-fill buffers.

use std::cell::Cell;

use super::stream::{LINE, prefetch};

/// The maximal number of prefetched streams. Further streams are not prefetched.
const MOST: usize = 8;

/// The streams of memory to prefetch.
///
/// A round prefetches one line of each stream, so that each stream advances at the pace at which it is read. The
/// hardware prefetcher then follows each stream too. It can have more outstanding lines than software prefetches.
#[derive(Default)]
pub struct Prefetch {
    streams: [PrefetchStream; MOST],
    count: usize,
    /// The number of remaining rounds.
    left: Cell<usize>,
    /// The number of rounds per call of [`Prefetch::issue`].
    each: usize,
}

/// A range of memory to prefetch.
struct PrefetchStream {
    /// The next address.
    at: Cell<*const u8>,
    /// The distance of consecutive addresses in bytes: a cache line, or less if the range has fewer lines than there
    /// are rounds.
    step: usize,
}

impl Default for PrefetchStream {
    fn default() -> PrefetchStream {
        PrefetchStream { at: Cell::new(std::ptr::null()), step: 0 }
    }
}

impl Prefetch {
    /// Returns a prefetch without streams, for `turns` rounds in total and `each` rounds per call of
    /// [`Prefetch::issue`].
    pub fn new(turns: usize, each: usize) -> Prefetch {
        Prefetch { left: Cell::new(turns), each, ..Prefetch::default() }
    }

    /// Adds a range of memory. It need not be valid. Each round prefetches at most one line of it, so the end of a long
    /// range is not prefetched.
    pub fn add(&mut self, at: *const u8, bytes: usize) {
        if let Some(stream) = self.streams.get_mut(self.count) {
            *stream = PrefetchStream { at: Cell::new(at), step: bytes.div_ceil(self.left.get().max(1)).min(LINE) };
            self.count += 1;
        }
    }

    /// Executes the next rounds: prefetches a line of each stream per round.
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
