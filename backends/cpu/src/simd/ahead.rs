//! Memory that is asked for before it is needed: a few lines at a time while something else is computed, no more than a core can wait
//! for.

use std::cell::Cell;

use super::stream::{LINE, prefetch};

/// The most streams that are asked for; what more there is, is waited for.
const MOST: usize = 8;

/// Streams of memory to ask for.
///
/// They take turns: so every one of them moves on as slowly as it is read, and the processor, which fetches ahead along streams by
/// itself and can wait for more lines than a program can ask for, has them near by the time.
#[derive(Default)]
pub struct Ahead {
    streams: [Stream; MOST],
    count: usize,
    /// How often streams have their turns yet.
    left: Cell<usize>,
    /// How often at a time.
    each: usize,
}

/// A stretch of memory.
struct Stream {
    /// What comes next.
    at: Cell<*const u8>,
    /// How far that moves in a turn: a line, or less in a stretch that is shorter than others.
    step: usize,
}

impl Default for Stream {
    fn default() -> Stream {
        Stream { at: Cell::new(std::ptr::null()), step: 0 }
    }
}

impl Ahead {
    /// Nothing yet. There will be so many turns, `each` at a time.
    pub fn new(turns: usize, each: usize) -> Ahead {
        Ahead { left: Cell::new(turns), each, ..Ahead::default() }
    }

    /// Adds a stretch that need not be valid, of which as many lines are to be asked for as there are turns, at most.
    pub fn add(&mut self, at: *const u8, bytes: usize) {
        if let Some(stream) = self.streams.get_mut(self.count) {
            *stream = Stream { at: Cell::new(at), step: bytes.div_ceil(self.left.get().max(1)).min(LINE) };
            self.count += 1;
        }
    }

    /// Asks for some lines.
    #[inline(always)]
    pub fn ask(&self) {
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
