//! How the rows of a product are cut into blocks: evenly, or at the ends of lines as well.

use crate::gemm::matrix::Stretch;

/// A block of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowBlock {
    pub part: usize,
    pub parts: usize,
    pub first: usize,
    pub count: usize,
}

impl RowBlock {
    /// The rows.
    pub fn stretch(self) -> Stretch {
        Stretch::new(self.first, self.count)
    }
}

/// Rows in blocks of at most so many.
#[derive(Clone, Copy)]
pub struct RowCut {
    /// Rows before the first whole line, in all whole lines, and after them.
    rows: [usize; 3],
    /// Rows of a line.
    line: usize,
    most: usize,
}

impl RowCut {
    /// `m` rows, evenly.
    pub fn even(m: usize, most: usize) -> RowCut {
        RowCut::lines(m, most, m.max(1), 0)
    }

    /// `m` rows, none of whose blocks goes on beyond a line: of `line` rows each, of the first of which `skip` were left out.
    pub fn lines(m: usize, most: usize, line: usize, skip: usize) -> RowCut {
        let before = if skip == 0 { 0 } else { (line - skip).min(m) };
        let after = (m - before) % line;
        RowCut { rows: [before, m - before - after, after], line, most }
    }

    /// How many blocks there are.
    pub fn parts(&self) -> usize {
        let [before, whole, after] = self.rows;
        before.div_ceil(self.most) + whole / self.line * self.line.div_ceil(self.most) + after.div_ceil(self.most)
    }

    /// Block number `part`; those of a line are even.
    pub fn block(&self, part: usize) -> RowBlock {
        let [before, whole, after] = self.rows;
        let each = self.line.div_ceil(self.most);
        let (first, within, rows) = match part.checked_sub(before.div_ceil(self.most)) {
            None => (0, part, before),
            Some(n) if n < whole / self.line * each => (before + n / each * self.line, n % each, self.line),
            Some(n) => (before + whole, n - whole / self.line * each, after),
        };
        let parts = rows.div_ceil(self.most).max(1);
        let (even, rest) = (rows / parts, rows % parts);
        let first = first + within * even + within.min(rest);
        RowBlock { part, parts: self.parts(), first, count: even + usize::from(within < rest) }
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
