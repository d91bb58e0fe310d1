//! Memory that is asked for before it is needed: a few lines at a time while a tile is computed, no more than a core can wait for.

use crate::simd::stream::{LINE, prefetch};

/// The most streams that are asked for; what more a tile reads, it waits for.
const MOST: usize = 8;

/// What the next tile reads.
///
/// Streams take turns: so every one of them moves on as slowly as it is read, and the processor, which fetches ahead along streams by
/// itself and can wait for more lines than a program can ask for, has them near by the time.
pub struct Ahead {
    streams: [Stream; MOST],
    count: usize,
    /// How often streams have their turns yet.
    left: usize,
    /// How often at a time.
    each: usize,
}

/// A stretch of memory.
#[derive(Clone, Copy)]
struct Stream {
    /// What comes next.
    at: *const u8,
    /// How far that moves in a turn: a line, or less in a stretch that is shorter than others.
    step: usize,
}

impl Ahead {
    /// Nothing yet. There will be so many turns, `each` at a time.
    pub fn new(turns: usize, each: usize) -> Ahead {
        Ahead { streams: [Stream { at: std::ptr::null(), step: 0 }; MOST], count: 0, left: turns, each }
    }

    /// Adds a stretch that need not be valid, of which `turns` lines are to be asked for at most.
    pub fn add(&mut self, at: *const u8, bytes: usize) {
        if let Some(stream) = self.streams.get_mut(self.count) {
            *stream = Stream { at, step: bytes.div_ceil(self.left.max(1)).min(LINE) };
            self.count += 1;
        }
    }

    /// Asks for some lines.
    #[inline]
    pub fn ask(&mut self) {
        let turns = self.each.min(self.left);
        self.left -= turns;
        for stream in &mut self.streams[..self.count] {
            (0..turns).for_each(|turn| prefetch(stream.at.wrapping_add(turn * stream.step)));
            stream.at = stream.at.wrapping_add(turns * stream.step);
        }
    }
}
