//! Runs of queries, of which a kernel that stores a part of its result leaves out the others, and of keys.
//!
//! Rows of several axes that lie in a box are a run of each line along the innermost axis.

use std::ops::Range;

use crate::tile::{
    Tile,
    region::Region,
    span::{Span, parts},
};

/// Queries in a block.
pub const QUERIES: usize = 256;
/// Queries in a strip; more have keys and values packed.
pub const STRIP: usize = 24;

/// Runs of rows of a block, in its numbers, ascending and apart. Tasks make them, and allocate nothing.
pub struct Runs {
    all: [[u16; 2]; QUERIES],
    count: usize,
}

impl Runs {
    /// All of a block.
    pub fn whole(rows: usize) -> Runs {
        let mut runs = Runs { all: [[0; 2]; QUERIES], count: 0 };
        runs.push(0..rows);
        runs
    }

    /// Appends a run that begins where the last one ends, or behind that.
    fn push(&mut self, run: Range<usize>) {
        let [start, end] = [run.start, run.end].map(|row| row as u16);
        match self.count.checked_sub(1).map(|last| &mut self.all[last]).filter(|last| last[1] == start) {
            Some(last) => last[1] = end,
            None => {
                self.all[self.count] = [start, end];
                self.count += 1;
            }
        }
    }

    /// Whether there are never too many of them in blocks of so many rows.
    pub fn fit(rows: &Span, block: usize) -> bool {
        block <= usize::from(u16::MAX) && block / rows.line().max(1) + 2 <= QUERIES
    }

    /// Those of a block, in the numbers of `rows`, for which some column of `tile` lies in a region.
    pub fn within(region: &Region, block: Range<usize>, rows: &Span, tile: Tile) -> Runs {
        let mut runs = Runs { all: [[0; 2]; QUERIES], count: 0 };
        let inner = rows.inner();
        // Of a line along the innermost axis, one run is in the region.
        for line in rows.lines(block.clone()) {
            rows.boxes(line, tile, &mut |some, line| {
                let Some(part) = region.part(&line) else { return };
                let first = some.start - block.start + part.start[inner] - line.start[inner];
                runs.push(first..first + part.len[inner]);
            });
        }
        runs
    }

    /// How many rows these are.
    pub fn len(&self) -> usize {
        self.ranges().map(|run| run.len()).sum()
    }

    /// The runs.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<usize>> {
        self.all[..self.count].iter().map(|&[start, end]| usize::from(start)..usize::from(end))
    }

    /// The runs, each with the number of its first row among all of them.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        self.ranges().scan(0, |next, run| Some((std::mem::replace(next, *next + run.len()), run)))
    }

    /// If these are neighbours, they lie in memory as in the block.
    pub fn as_one(&self) -> Option<Range<usize>> {
        self.ranges().next().filter(|_| self.count == 1)
    }

    /// The first row of the block that is in none of them, where there is one.
    pub fn first_outside(&self) -> usize {
        self.ranges().next().filter(|run| run.start == 0).map_or(0, |run| run.end)
    }

    /// The parts of runs that a strip has, which says it in numbers among all of them: where each begins in the strip, and the rows.
    pub fn of(&self, strip: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        self.iter().filter_map(move |(first, run)| {
            let [from, to] = [strip.start.max(first), strip.end.min(first + run.len())];
            (from < to).then(|| (from - strip.start, run.start + from - first..run.start + to - first))
        })
    }

    /// The strips of a block with all of its queries that hold some strip's queries.
    pub fn strips(&self, strip: Range<usize>) -> impl Iterator<Item = usize> {
        self.of(strip).flat_map(|(_, queries)| queries.start / STRIP..=(queries.end - 1) / STRIP)
    }
}

/// A block of queries in strips.
pub fn strips_of(block: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    parts(block, STRIP)
}
