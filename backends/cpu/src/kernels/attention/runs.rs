//! Runs (ranges) of queries or keys. A kernel that stores a region of the result computes the runs of queries in it,
//! and skips the others.
//!
//! If the queries or keys have several axes, a box of them has one run per line along the innermost axis.

use std::ops::Range;

use crate::tile::{
    Tile,
    region::Region,
    span::{Span, parts},
};

/// The maximal number of queries per block, in complete strips. The queries, their output and a block of keys and
/// values then fit into the second-level cache.
const QUERIES: usize = 480;
/// The maximal number of queries per block if there would be fewer than [`BLOCKS`] larger blocks, which could leave
/// threads without one.
const FEW_QUERIES: usize = 256;
/// The number of blocks that is enough for all threads.
const BLOCKS: usize = 64;
/// The number of queries in a strip. The keys and values of a block are packed if several strips read them.
pub const STRIP: usize = 24;
/// A set of strips, with a bit for each strip of a block.
pub type StripSet = u32;
const _: () = assert!(QUERIES.div_ceil(STRIP) <= StripSet::BITS as usize);

/// Returns the number of queries per block. Large blocks are better, because each block packs keys and values again.
pub fn query_block(points: usize, queries: usize) -> usize {
    let enough = points.saturating_mul(queries.div_ceil(QUERIES)) >= BLOCKS;
    queries.clamp(1, if enough { QUERIES } else { FEW_QUERIES })
}

/// Disjoint runs of rows of a block, ascending, with numbers relative to the block. The array has a fixed size, so that
/// tasks create runs without allocation.
pub struct Runs {
    all: [[u16; 2]; QUERIES],
    count: usize,
}

impl Runs {
    /// Returns one run with all rows of a block.
    pub fn whole(rows: usize) -> Runs {
        let mut runs = Runs { all: [[0; 2]; QUERIES], count: 0 };
        runs.push(0..rows);
        runs
    }

    /// Appends a run, which may not begin before the end of the last one. Adjacent runs are merged.
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

    /// Returns whether the runs of blocks of `block` rows always fit into the array.
    pub fn fit(rows: &Span, block: usize) -> bool {
        block <= usize::from(u16::MAX) && block / rows.line().max(1) + 2 <= QUERIES
    }

    /// Returns the runs of those rows of a block that have some column of `tile` in a region. Numbers are relative to
    /// the block.
    pub fn within(region: &Region, block: Range<usize>, rows: &Span, tile: Tile) -> Runs {
        let mut runs = Runs { all: [[0; 2]; QUERIES], count: 0 };
        let inner = rows.inner();
        // Each line along the innermost axis has at most one run in the region.
        for line in rows.lines(block.clone()) {
            rows.boxes(line, tile, &mut |some, line| {
                let Some(part) = region.part(&line) else { return };
                let first = some.start - block.start + part.start[inner] - line.start[inner];
                runs.push(first..first + part.len[inner]);
            });
        }
        runs
    }

    /// Returns the number of rows in all runs.
    pub fn len(&self) -> usize {
        self.ranges().map(|run| run.len()).sum()
    }

    /// Returns the ranges of rows of all runs.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<usize>> {
        self.all[..self.count].iter().map(|&[start, end]| usize::from(start)..usize::from(end))
    }

    /// Returns the runs, each with the number of rows in the runs before it.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        self.ranges().scan(0, |next, run| Some((std::mem::replace(next, *next + run.len()), run)))
    }

    /// Returns the only run; `None` if there are several runs, or none.
    pub fn as_one(&self) -> Option<Range<usize>> {
        self.ranges().next().filter(|_| self.count == 1)
    }

    /// Returns the first row of the block that is in no run, or the block's end.
    pub fn first_outside(&self) -> usize {
        self.ranges().next().filter(|run| run.start == 0).map_or(0, |run| run.end)
    }

    /// Returns the parts of runs that belong to a strip. A strip numbers the rows of all runs consecutively. Each part
    /// has its first row within the strip, and its range of rows in the block.
    pub fn of(&self, strip: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        self.iter().filter_map(move |(first, run)| {
            let [from, to] = [strip.start.max(first), strip.end.min(first + run.len())];
            (from < to).then(|| (from - strip.start, run.start + from - first..run.start + to - first))
        })
    }

    /// Returns the numbers of the strips of the complete block that contain the queries of `strip`, a range among the
    /// queries of all runs.
    pub fn strips(&self, strip: Range<usize>) -> impl Iterator<Item = usize> {
        self.of(strip).flat_map(|(_, queries)| queries.start / STRIP..=(queries.end - 1) / STRIP)
    }
}

/// Divides a block of queries into strips.
pub fn strips_of(block: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    parts(block, STRIP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_numbered_one_after_the_other_and_cut_by_strips() {
        let mut runs = Runs { all: [[0; 2]; QUERIES], count: 0 };
        for run in [2..5, 5..6, 30..53, 60..60 + STRIP] {
            runs.push(run);
        }
        assert_eq!(runs.ranges().collect::<Vec<_>>(), [2..6, 30..53, 60..60 + STRIP], "neighbours are one run");
        let rows: Vec<_> = runs.ranges().flatten().collect();
        assert_eq!((runs.len(), runs.first_outside(), runs.as_one()), (rows.len(), 0, None));
        for strip in strips_of(0..runs.len()) {
            let of_strip: Vec<_> = runs.of(strip.clone()).collect();
            let same: Vec<_> = of_strip.iter().flat_map(|(_, run)| run.clone()).collect();
            assert_eq!(same, rows[strip.clone()], "the rows of strip {strip:?}");
            for (at, run) in of_strip {
                assert_eq!(rows[strip.start + at], run.start, "where the run begins in strip {strip:?}");
            }
            // The strips of the complete block that contain these rows.
            let mut whole: Vec<_> = rows[strip.clone()].iter().map(|row| row / STRIP).collect();
            whole.dedup();
            let mut said: Vec<_> = runs.strips(strip).collect();
            said.dedup();
            assert_eq!(said, whole);
        }
        assert_eq!(Runs::whole(7).as_one(), Some(0..7));
        assert_eq!(Runs::whole(7).first_outside(), 7);
    }

    #[test]
    fn blocks_are_long_where_enough_of_them_remain() {
        assert_eq!(query_block(12, 4096), QUERIES);
        assert_eq!(query_block(1, 4096), FEW_QUERIES);
        assert_eq!([query_block(300, 196), query_block(1, 0), query_block(usize::MAX, usize::MAX)], [196, 1, QUERIES]);
    }
}
