//! Divides the rows of a product into blocks of similar heights. Blocks may also be required not to cross lines: ranges
//! of a fixed number of rows.

use crate::gemm::matrix::Stretch;

/// A block of `count` rows from `first` on: number `part` of `parts` blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowBlock {
    pub part: usize,
    pub parts: usize,
    pub first: usize,
    pub count: usize,
}

impl RowBlock {
    /// Returns the range of rows.
    pub fn stretch(self) -> Stretch {
        Stretch::new(self.first, self.count)
    }
}

/// A division of rows into blocks of a maximal height. Its integer divisions are done up front, because a block takes
/// only some hundred cycles.
#[derive(Clone, Copy)]
pub struct RowCut {
    /// The rows before the first complete line, the rows of a line, and the rows after the last complete line.
    stretches: [RowStretch; 3],
    /// The number of blocks of all complete lines.
    whole: usize,
}

/// Evenly divided rows: `blocks` blocks of `even` rows. The first `longer` blocks have one more row.
#[derive(Clone, Copy)]
struct RowStretch {
    rows: usize,
    blocks: usize,
    even: usize,
    longer: usize,
}

impl RowStretch {
    fn new(rows: usize, most: usize) -> RowStretch {
        let blocks = rows.div_ceil(most);
        let parts = blocks.max(1);
        RowStretch { rows, blocks, even: rows / parts, longer: rows % parts }
    }
}

impl RowCut {
    /// Divides `m` rows evenly into blocks of at most `most` rows.
    pub fn even(m: usize, most: usize) -> RowCut {
        RowCut::lines(m, most, m.max(1), 0)
    }

    /// Divides `m` rows into blocks that have at most `most` rows and do not cross lines. A line has `line` rows, and
    /// the first line lacks its first `skip` rows.
    pub fn lines(m: usize, most: usize, line: usize, skip: usize) -> RowCut {
        let before = if skip == 0 { 0 } else { (line - skip).min(m) };
        let lines = (m - before) / line;
        let stretches = [before, line, m - before - lines * line].map(|rows| RowStretch::new(rows, most));
        RowCut { stretches, whole: lines * stretches[1].blocks }
    }

    /// Returns the number of blocks.
    pub fn parts(&self) -> usize {
        let [before, _, after] = &self.stretches;
        before.blocks + self.whole + after.blocks
    }

    /// Returns block number `part`. The heights of a line's blocks differ by one row at most.
    pub fn block(&self, part: usize) -> RowBlock {
        let [before, line, after] = &self.stretches;
        let (first, within, of) = match part.checked_sub(before.blocks) {
            None => (0, part, before),
            Some(n) if n < self.whole => (before.rows + n / line.blocks * line.rows, n % line.blocks, line),
            Some(n) => (before.rows + self.whole / line.blocks.max(1) * line.rows, n - self.whole, after),
        };
        let first = first + within * of.even + within.min(of.longer);
        RowBlock { part, parts: self.parts(), first, count: of.even + usize::from(within < of.longer) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other_and_end_with_lines() {
        for (m, most, line, skip) in [
            (1, 14, 1, 0),
            (56, 14, 56, 0),
            (100, 14, 28, 5),
            (7, 6, 100, 40),
            (30, 8, 9, 8),
            (0, 6, 5, 0),
            (64, 5, 3, 1),
        ] {
            let cut = RowCut::lines(m, most, line, skip);
            let mut next = 0;
            for part in 0..cut.parts() {
                let block = cut.block(part);
                assert_eq!(block.first, next, "{m} {most} {line} {skip}: {block:?}");
                assert!((1..=most).contains(&block.count), "{block:?}");
                let lines = [block.first, block.first + block.count - 1].map(|row| (row + skip) / line);
                assert_eq!(lines[0], lines[1], "{block:?} of lines of {line} without {skip}");
                next += block.count;
            }
            assert_eq!(next, m);
        }
        let even: Vec<usize> = (0..3).map(|part| RowCut::even(32, 14).block(part).count).collect();
        assert_eq!(even, [11, 11, 10]);
    }
}
