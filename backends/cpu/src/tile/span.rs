//! Spans: several neighbouring axes of a domain that are treated as one axis. A range of the span's points, in
//! row-major order, is a sequence of boxes of the domain.

use std::ops::Range;

use super::domain::{AxisMask, MAX_RANK, Tile};

/// Neighbouring axes of a domain that are treated as one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The first axis of the span.
    first: usize,
    extents: Vec<usize>,
}

impl Span {
    /// Returns the span of `axes` axes of a domain from `first` on. There must be at least one.
    pub fn new(domain: &[usize], first: usize, axes: usize) -> Span {
        Span { first, extents: domain[first..first + axes].to_vec() }
    }

    /// Returns whether the span is a single axis.
    pub fn is_axis(&self) -> bool {
        self.extents.len() == 1
    }

    /// Returns the innermost axis of the span.
    pub fn inner(&self) -> usize {
        self.first + self.extents.len() - 1
    }

    /// Returns the extent of the span's innermost axis.
    pub fn line(&self) -> usize {
        self.extents[self.extents.len() - 1]
    }

    /// Returns the number of points of the span.
    pub fn points(&self) -> usize {
        self.extents.iter().product()
    }

    /// Returns the number of points of all axes of the span but the outermost. A range that begins and ends at
    /// multiples of this number is one box.
    pub fn whole(&self) -> usize {
        self.extents[1..].iter().product()
    }

    /// Returns the axes of the span as a mask.
    pub fn mask(&self) -> AxisMask {
        (self.first..=self.inner()).fold(0, |mask, d| mask | 1 << d)
    }

    /// Divides a range of the span's points into boxes, and calls `each` for each box in order. Its arguments are the
    /// part of the range, and `tile` with the start and extents of the box along the span's axes.
    pub fn boxes(&self, range: Range<usize>, tile: Tile, each: &mut dyn FnMut(Range<usize>, Tile)) {
        let mut at = range.start;
        while at < range.end {
            let (mut tile, mut left, mut taken) = (tile, at, 0);
            let mut inside: usize = self.extents.iter().product();
            for (d, &extent) in (self.first..).zip(&self.extents) {
                inside /= extent;
                (tile.start[d], left) = (left / inside, left % inside);
                tile.len[d] = match taken {
                    // At the start of the inner axes, a box takes as many points of this axis as fit into the range.
                    0 if left == 0 && range.end - at >= inside => {
                        let count = ((range.end - at) / inside).min(extent - tile.start[d]);
                        taken = count * inside;
                        count
                    }
                    0 => 1,
                    _ => extent,
                };
            }
            each(at..at + taken, tile);
            at += taken;
        }
    }

    /// Returns the parts of a range of points, divided at each new start of the innermost axis.
    pub fn lines(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let inner = self.line().max(1);
        let lines = range.start / inner..range.end.div_ceil(inner);
        lines.map(move |n| range.start.max(n * inner)..range.end.min((n + 1) * inner))
    }

    /// Returns the distinct extents of the boxes into which [`Span::boxes`] divides these ranges.
    pub fn lens(&self, ranges: impl Iterator<Item = Range<usize>>) -> Vec<[usize; MAX_RANK]> {
        let mut lens: Vec<[usize; MAX_RANK]> = Vec::new();
        let tile = Tile { start: [0; MAX_RANK], len: [1; MAX_RANK] };
        for range in ranges {
            self.boxes(range, tile, &mut |_, tile| {
                if !lens.contains(&tile.len) {
                    lens.push(tile.len);
                }
            });
        }
        lens
    }

    /// Sets `bounds` of the span's axes to the smallest box that contains a range. The range must not be empty.
    pub fn hull(&self, range: &Range<usize>, bounds: &mut [Range<usize>]) {
        let (mut inside, mut alike): (usize, bool) = (self.extents.iter().product(), true);
        let (mut from, mut last) = (range.start, range.end - 1);
        for (d, &extent) in (self.first..).zip(&self.extents) {
            inside /= extent;
            bounds[d] = if alike { from / inside..last / inside + 1 } else { 0..extent };
            alike &= from / inside == last / inside;
            (from, last) = (from % inside, last % inside);
        }
    }
}

/// Returns the parts of a range, each of length `len`. The last one may be shorter.
pub fn parts(range: Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(len.max(1)).map(move |first| first..range.end.min(first + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_make_up_the_range_and_the_hull_holds_them() {
        let domain = [9, 3, 4, 5];
        let span = Span::new(&domain, 1, 3);
        let tile = Tile { start: [0; MAX_RANK], len: [1; MAX_RANK] };
        // Under Miri, which is slow, only some of the ranges are tested.
        let step = if cfg!(miri) { 7 } else { 1 };
        for (from, to) in (0..60).step_by(step).flat_map(|from| (from + 1..=60).step_by(step).map(move |to| (from, to)))
        {
            let mut bounds = [const { 0..1 }; 4];
            span.hull(&(from..to), &mut bounds);
            let (mut points, mut count) = (Vec::new(), 0);
            span.boxes(from..to, tile, &mut |range, tile| {
                assert_eq!(range.len(), tile.count(span.mask()));
                count += 1;
                for n in 0..range.len() {
                    let inner = [n / tile.len[3] / tile.len[2], n / tile.len[3] % tile.len[2], n % tile.len[3]];
                    let at: Vec<_> = (1..4).map(|d| tile.start[d] + inner[d - 1]).collect();
                    assert!((1..4).all(|d| bounds[d].contains(&at[d - 1])));
                    points.push((at[0] * 4 + at[1]) * 5 + at[2]);
                }
            });
            assert_eq!(points, (from..to).collect::<Vec<_>>());
            assert!(count <= 5, "{from}..{to} in {count}");
        }
    }
}
