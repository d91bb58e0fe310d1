//! The queries whose results are stored: where a kernel stores a part of its result, the others are left out.

use std::ops::Range;

use super::STRIP;
use crate::tile::{
    Tile,
    region::Region,
    span::{Span, parts},
};

/// Runs of queries of a block, in its numbers, ascending and apart.
pub struct Runs(Vec<Range<usize>>);

impl Runs {
    /// All of a block.
    pub fn whole(queries: usize) -> Runs {
        Runs(vec![0..queries])
    }

    /// Those of a block, in the numbers of `queries`, for which some column of `tile` lies in a region.
    pub fn within(region: &Region, block: Range<usize>, queries: &Span, tile: Tile) -> Runs {
        let mut runs: Vec<Range<usize>> = Vec::new();
        let inner = queries.inner();
        // Of a line along the innermost axis, one run is in the region.
        for line in queries.lines(block.clone()) {
            queries.boxes(line, tile, &mut |some, line| {
                let Some(part) = region.part(&line) else { return };
                let first = some.start - block.start + part.start[inner] - line.start[inner];
                match runs.last_mut().filter(|last| last.end == first) {
                    Some(last) => last.end = first + part.len[inner],
                    None => runs.push(first..first + part.len[inner]),
                }
            });
        }
        Runs(runs)
    }

    /// How many queries these are.
    pub fn len(&self) -> usize {
        self.0.iter().map(ExactSizeIterator::len).sum()
    }

    /// The runs, each with the number of its first query among all of them.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Range<usize>)> {
        self.0.iter().scan(0, |next, run| Some((std::mem::replace(next, *next + run.len()), run)))
    }

    /// If these are neighbours, they lie in memory as in the block.
    pub fn as_one(&self) -> Option<Range<usize>> {
        match self.0.as_slice() {
            [one] => Some(one.clone()),
            _ => None,
        }
    }

    /// The parts of runs that a strip has, which says it in numbers among all of them: where each begins in the strip, and the queries.
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
