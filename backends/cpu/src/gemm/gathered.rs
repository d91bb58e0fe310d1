//! Left operands of products that are read through an index map: windows of a padded image, heads to be merged, rows at a stride.
//!
//! Neighbouring rows of which all terms are in the buffer are read in place, a segment of contiguous terms after the other. Of others,
//! only the block that a product is at is copied to scratch: in lines, as long as memory is contiguous, and with the fill value where a
//! guard fails. Guards are resolved once for a row, not for an element; rows next to each other
//! for which they say the same are copied together, a line of each at a time.

use std::ops::Range;

use eutectic_backend::{
    Guard, Instr,
    axes::{Nest, normalise},
    grouped::{COLUMNS, Grouped, ROWS},
};
use eutectic_ir::{DType, index::Index};

use super::{
    matrix::Stretch,
    micro::{pack::Lines, table::Micro},
    product::ProductElement,
};
use crate::tile::{MAX_RANK, Word, number};

/// The most lines of a row that products read in place.
const SEGMENTS: usize = 1 << 12;
/// Terms of a line from which on copying it takes little beside the products, and the fewest rows of a block that are worth its beginning anew.
const LONG_LINE: usize = 8;
const FEW_ROWS: usize = 4;
/// Rows of a block from which on more of them do not gain: multiply-adds take longer than reading the right operand's part.
const HIGH: usize = 7;
/// The most rows of a patch, elements of one, and terms of a unit: both stay in the first-level cache beside each other.
const PATCH_ROWS: usize = 16;
const PATCH: usize = 4096;
const UNIT: usize = 768;

/// The operand: a row for each point of `rows`, and in it a term for each point of `outer` and of the line.
pub struct Gathered {
    /// The buffer.
    pub slot: usize,
    count: usize,
    base: i64,
    rows: Vec<GatheredAxis>,
    outer: Vec<GatheredAxis>,
    /// Elements of a line, and from one to the next in the buffer.
    line: usize,
    step: i64,
    /// Where lines begin, from the first one on, and how far terms reach from there: the least offset, and the largest.
    starts: Vec<isize>,
    reach: (i64, i64),
    guards: Vec<GatheredBound>,
    /// An element, in its first bytes.
    fill: Word,
    sliding: Option<Sliding>,
}

/// How neighbouring rows share elements, as windows that slide along lines of an image: what a block of them reads in a line is one
/// stretch of memory, of which the channels of a group are only a part at each position. With what is missing at its ends filled in, it is
/// a patch, in which the rows are read where they overlap. It holds no element that these do not read.
struct Sliding {
    /// The axis of the terms along which windows slide, if it is not a part of their lines.
    axis: Option<usize>,
    /// Positions of a window, and elements of one: of an axis the lines at its steps, else the elements of a line.
    taps: usize,
    width: usize,
    /// Elements from a position to the next: in the buffer, and in patches.
    apart: i64,
    pitch: i64,
    /// Positions from a row to the next.
    steps: i64,
    /// Lines and terms that are read in one stretch, and elements from the patch of a unit to that of the next.
    lines: usize,
    unit: usize,
    span: usize,
    /// Where lines begin in patches, from the first one on.
    starts: Vec<isize>,
}

impl Sliding {
    /// None where windows do not overlap enough, or are too large for the first-level cache.
    fn new(of: &Gathered) -> Option<Sliding> {
        let inner = of.rows.len().checked_sub(1)?;
        let GatheredAxis { extent, stride } = of.rows[inner];
        if of.step != 1 || stride <= 0 || of.starts.is_empty() {
            return None;
        }
        let slides = |axis: &GatheredAxis| axis.extent > 1 && axis.stride > 0 && stride % axis.stride == 0;
        let axis = of.outer.len().checked_sub(1).filter(|&last| slides(&of.outer[last]));
        let (lines, taps, width, apart) = axis.map_or((1, of.line, 1, 1), |axis| {
            (of.outer[axis].extent, of.outer[axis].extent, of.line, of.outer[axis].stride)
        });
        // What is there of the windows of a block is one stretch, if guards move with them, or are the same for all.
        let moves_along = |guard: &GatheredBound| match guard.along {
            Along::Line(factor, unit) => axis.is_none() && guard.strides[inner] * unit as i64 == factor * stride,
            Along::Outer(on, factor) if Some(on) == axis => guard.strides[inner] * apart == factor * stride,
            Along::Outer(..) | Along::None => guard.strides[inner] == 0,
        };
        let (unit, pitch, steps) = (lines * of.line, apart.min(width as i64), stride / apart);
        let rows = extent.min(PATCH_ROWS);
        let positions = (rows as i64 - 1) * steps + taps as i64;
        let span = usize::try_from((positions - 1) * pitch).ok()? + width;
        if unit > UNIT || span > PATCH || 4 * span > 3 * rows * unit || !of.guards.iter().all(moves_along) {
            return None;
        }
        let in_unit = |n: usize| (n / lines * span) as isize + (n % lines) as isize * pitch as isize;
        let starts = (0..of.starts.len()).map(in_unit).collect();
        Some(Sliding { axis, taps, width, apart, pitch, steps, lines, unit, span, starts })
    }
}

#[derive(Clone, Copy)]
struct GatheredAxis {
    extent: usize,
    stride: i64,
}

/// Rows that can be read in place, because all of their terms are there: segments of terms that lie in all rows alike.
pub struct Alike<'a> {
    /// The first element of the first row's terms, had they begun at the first line.
    pub at: isize,
    /// From a row to the next.
    pub stride: isize,
    /// From a term of a segment to the next.
    pub step: isize,
    /// Where segments begin.
    pub starts: &'a [isize],
}

/// What a guard says, given a row: constant + Σ strides·row + factor·(coordinate along an axis of the terms) lies in `from..to`.
struct GatheredBound {
    constant: i64,
    strides: Vec<i64>,
    along: Along,
    from: i64,
    to: i64,
}

/// The axis of the terms on which a guard depends, and its factor.
enum Along {
    None,
    Outer(usize, i64),
    /// A part of the line: so many elements for each step.
    Line(i64, usize),
}

/// Coordinates from one to before another.
#[derive(Clone, Copy, PartialEq)]
struct Between<T> {
    from: T,
    to: T,
}

impl<T: Ord> Between<T> {
    fn and(self, other: Between<T>) -> Between<T> {
        Between { from: self.from.max(other.from), to: self.to.min(other.to) }
    }
}

/// Where a row lies: its first element, and which of its terms are there.
#[derive(Clone, Copy, PartialEq)]
struct GatheredRow {
    at: i64,
    outer: [Between<i64>; MAX_RANK],
    line: Between<usize>,
}

impl Gathered {
    /// Compiles an operand over `[b.. m.. k..]` that is a load of elements of type `acc`, under guards or none, where the rows' and the
    /// terms' coordinates go their own ways; else `None`.
    pub fn compile(lhs: &Grouped, acc: DType, slots: &[(DType, usize)]) -> Option<Gathered> {
        if lhs.nest.domain.contains(&0) {
            return None;
        }
        // What the other operand and the result read as several axes may be one here.
        let (mut nest, mut groups) = ([lhs.nest.clone()], [lhs.groups[0] + lhs.groups[ROWS], lhs.groups[COLUMNS]]);
        normalise(&mut nest, &[&[0, 1]], &mut groups);
        let ([nest], [_, terms]) = (nest, groups);
        let rank = nest.domain.len();
        if rank > MAX_RANK {
            return None;
        }
        let (load, guards, fill) = guarded(&nest)?;
        let Instr::Load(load) = load else { return None };
        let &(dtype, count) = slots.get(load.slot)?;
        if dtype != acc || load.dtype != acc || !load.guards.iter().all(|g| guards.contains(g)) {
            return None;
        }
        let strides = load.at.affine(rank)?;
        let axes: Vec<GatheredAxis> =
            nest.domain.iter().zip(strides).map(|(&extent, stride)| GatheredAxis { extent, stride }).collect();
        let (rows, terms) = axes.split_at(rank - terms);
        let first = rows.len();
        let bounds: Vec<(Vec<i64>, &Guard)> =
            guards.iter().map(|g| Some((g.0.affine(rank)?, g))).collect::<Option<_>>()?;
        let guarded = |axis: usize| bounds.iter().any(|(strides, _)| strides[first + axis] != 0);
        // The line: the last axis, and those before it that continue it in memory, up to one on which a guard depends.
        let mut start = terms.len().saturating_sub(1);
        let mut line = terms.last().map_or(1, |t| t.extent);
        let step = terms.last().map_or(1, |t| t.stride);
        while start > 0 && !guarded(start) && terms[start - 1].stride == step * line as i64 {
            start -= 1;
            line *= terms[start].extent;
        }
        let unit = terms.get(start).map_or(1, |t| line / t.extent);
        let along = |starts: Vec<isize>, axis: &GatheredAxis| {
            let steps = |at: isize| (0..axis.extent as isize).map(move |i| at + i * axis.stride as isize);
            starts.into_iter().flat_map(steps).collect()
        };
        let segments: usize = terms[..start].iter().map(|axis| axis.extent).product();
        let starts = if segments <= SEGMENTS { terms[..start].iter().fold(vec![0], along) } else { Vec::new() };
        let end = step * (line as i64 - 1);
        let least = starts.iter().min().map_or(0, |&at| at as i64) + end.min(0);
        let most = starts.iter().max().map_or(0, |&at| at as i64) + end.max(0);
        let bound = |(strides, (index, range)): &(Vec<i64>, &Guard)| {
            let mut on = (0..terms.len()).filter(|&t| strides[first + t] != 0);
            let along = match (on.next(), on.next()) {
                (None, _) => Along::None,
                (Some(axis), None) if strides[first + axis] > 0 => match strides[first + axis] {
                    factor if axis < start => Along::Outer(axis, factor),
                    factor if axis == start => Along::Line(factor, unit),
                    _ => return None,
                },
                _ => return None,
            };
            let strides = strides[..first].to_vec();
            Some(GatheredBound { constant: index.constant, strides, along, from: range.start, to: range.end })
        };
        let mut gathered = Gathered {
            slot: load.slot,
            count,
            base: load.at.constant,
            rows: rows.to_vec(),
            outer: terms[..start].to_vec(),
            line,
            step,
            starts,
            reach: (least, most),
            guards: bounds.iter().map(bound).collect::<Option<_>>()?,
            fill: number(fill.unwrap_or(0.0), acc),
            sliding: None,
        };
        gathered.sliding = Sliding::new(&gathered);
        Some(gathered)
    }

    /// Where some terms of some rows lie, if all are there, rows are evenly apart, and the terms
    /// are whole lines.
    pub fn alike(&self, rows: Stretch, terms: Stretch) -> Option<Alike<'_>> {
        let (Stretch { first, count }, Stretch { first: from, count: k }) = (rows, terms);
        let inner = self.rows.last()?;
        let here = first % inner.extent + count <= inner.extent;
        if !here || !from.is_multiple_of(self.line) || !k.is_multiple_of(self.line) {
            return None;
        }
        // What holds for the first and the last one holds in between.
        let point = self.point(first);
        let beyond = count as i64 - 1;
        let there = self.guards.iter().all(|guard| self.is_whole(guard, &point, beyond));
        let at = self.rows.iter().zip(&point).fold(self.base, |sum, (axis, &i)| sum + axis.stride * i as i64);
        let last = at + inner.stride * beyond;
        let inside = there && at.min(last) + self.reach.0 >= 0 && at.max(last) + self.reach.1 < self.count as i64;
        let starts = self.starts.get(from / self.line..(from + k) / self.line).filter(|starts| !starts.is_empty())?;
        let [at, stride, step] = [at, inner.stride, self.step].map(|n| n as isize);
        inside.then_some(Alike { at, stride, step, starts })
    }

    /// Whether a guard holds for all terms of a row and of the one so far beyond it.
    fn is_whole(&self, guard: &GatheredBound, point: &[usize; MAX_RANK], beyond: i64) -> bool {
        let value = guard.strides.iter().zip(point).fold(guard.constant, |sum, (s, &i)| sum + s * i as i64);
        let moved = beyond * guard.strides.last().copied().unwrap_or(0);
        let reach = match guard.along {
            Along::None => 0,
            Along::Outer(axis, factor) => factor * (self.outer[axis].extent as i64 - 1),
            Along::Line(factor, unit) => factor * ((self.line - 1) / unit) as i64,
        };
        guard.from <= value + moved.min(0) && value + moved.max(0) + reach < guard.to
    }

    /// Rows that can be read in place one after the other, where copying terms takes long: they lie in short lines, or apart; or where
    /// they overlap, and blocks of at most so many rows are about as high if none goes on beyond a line.
    pub fn lines_of_rows(&self, most: usize) -> Option<usize> {
        let line = self.rows.last()?.extent;
        let slow = self.line < LONG_LINE || self.step != 1;
        let blocks = line.div_ceil(most.max(1));
        let high = || line >= HIGH * blocks || 4 * line >= 3 * most * blocks;
        let gains = slow || self.sliding.is_some() && high();
        (gains && !self.starts.is_empty() && line >= FEW_ROWS).then_some(line)
    }

    /// Terms of which as many should be cut off as a multiple of these: a line of such an operand is read in place as a whole.
    pub fn segment(&self, most: usize) -> usize {
        self.lines_of_rows(most).map_or(1, |_| self.line)
    }

    /// Terms that blocks of rows should read as a whole.
    pub fn unit(&self, most: usize) -> usize {
        self.sliding.as_ref().filter(|_| self.lines_of_rows(most).is_some()).map_or(1, |sliding| sliding.unit)
    }

    /// As [`Gathered::alike`], of rows some of whose terms are missing: what they read is copied, once where they overlap.
    ///
    /// # Safety
    /// As [`Gathered::copy`]; there must be room for as many elements as the rows have terms.
    pub unsafe fn patch<T: ProductElement>(
        &self,
        micro: &Micro<T>,
        buffer: *const T,
        rows: Stretch,
        terms: Stretch,
        to: *mut T,
    ) -> Option<Alike<'_>> {
        let sliding = self.sliding.as_ref()?;
        let &Sliding { axis, taps, width, apart, pitch, steps, lines, unit, span, ref starts } = sliding;
        let (inner, first, units) = (self.rows.last()?, terms.first / unit, terms.count / unit);
        let here = rows.count <= PATCH_ROWS && rows.first % inner.extent + rows.count <= inner.extent;
        let whole = terms.first.is_multiple_of(unit) && terms.count.is_multiple_of(unit) && units > 0;
        if !here || !whole || units * span > rows.count * terms.count {
            return None;
        }
        let before = steps * (rows.count as i64 - 1);
        let one = self.row(&self.point(rows.first))?;
        let last = self.row(&self.point(rows.first + rows.count - 1))?;
        // Where the first row has its first position, and the last row ends with its last one.
        let (start, end) = match axis {
            Some(axis) => (one.outer[axis].from, before + last.outer[axis].to.min(taps as i64)),
            None => (one.line.from as i64, before + last.line.to as i64),
        };
        let positions = before + taps as i64;
        let (start, end) = (start.clamp(0, positions), end.clamp(0, positions));
        let elements = |positions: i64, apart: i64| (positions - 1) * apart + width as i64;
        // SAFETY: the bytes were made for this type.
        let fill = unsafe { self.fill.at().cast::<T>().read() };
        for n in 0..units {
            let number = (first + n) * lines;
            let mut left = number;
            let mut there = start < end;
            for (d, axis_of_terms) in self.outer.iter().enumerate().rev() {
                let i = (left % axis_of_terms.extent) as i64;
                left /= axis_of_terms.extent;
                there &= Some(d) == axis || (one.outer[d].from..one.outer[d].to).contains(&i);
            }
            let from = one.at + self.starts[number] as i64 + start * apart;
            there &= from >= 0 && from + elements(end - start, apart) <= self.count as i64;
            let all = elements(positions, pitch) as usize;
            let (first, len) = match there {
                true => ((start * pitch) as usize, elements(end - start, pitch) as usize),
                false => (all, 0),
            };
            let to = to.wrapping_add(n * span);
            let (count, line) = if pitch == apart { (1, len) } else { ((end - start) as usize, width) };
            // SAFETY: the caller promises room; what is copied was checked to lie in the buffer.
            unsafe {
                (0..first).for_each(|at| to.add(at).write(fill));
                if there {
                    let (from, to) = (buffer.offset(from as isize), to.add(first));
                    let (apart, pitch) = (apart as isize, pitch as usize);
                    (micro.lines)(&Lines { count, len: line, from, apart, to, pitch });
                }
                (first + len..all).for_each(|at| to.add(at).write(fill));
            }
        }
        let starts = &starts[first * lines..(first + units) * lines];
        Some(Alike { at: -((first * span) as isize), stride: (steps * pitch) as isize, step: 1, starts })
    }

    /// How many points some axes have.
    fn points(&self, axes: &[GatheredAxis]) -> usize {
        axes.iter().map(|axis| axis.extent).product()
    }

    /// The point of a row, counted over all matrices.
    fn point(&self, row: usize) -> [usize; MAX_RANK] {
        let (mut point, mut left) = ([0; MAX_RANK], row);
        for (d, axis) in self.rows.iter().enumerate().rev() {
            point[d] = left % axis.extent;
            left /= axis.extent;
        }
        point
    }

    /// Copies some terms of some rows, counted over all matrices: each row `pitch` elements after the one before.
    ///
    /// # Safety
    /// `buffer` must be the slot's, of the size that the kernel states, and there must be room for the rows.
    pub unsafe fn copy<T: ProductElement>(
        &self,
        micro: &Micro<T>,
        buffer: *const T,
        rows: Stretch,
        terms: Stretch,
        to: *mut T,
        pitch: usize,
    ) {
        debug_assert!(rows.first + rows.count <= self.points(&self.rows), "rows beyond the operand");
        debug_assert!(terms.first + terms.count <= self.points(&self.outer) * self.line, "terms beyond the operand");
        // SAFETY: the bytes were made for this type.
        let fill = unsafe { self.fill.at().cast::<T>().read() };
        let mut point = self.point(rows.first);
        let stride = self.rows.last().map_or(0, |axis| axis.stride);
        let (mut done, mut row) = (0, self.row(&point));
        while done < rows.count {
            let (mut alike, mut next) = (1, None);
            while done + alike < rows.count {
                self.advance(&mut point);
                next = self.row(&point);
                if next != row.map(|row| GatheredRow { at: row.at + stride * alike as i64, ..row }) {
                    break;
                }
                alike += 1;
            }
            let target = Target { to: to.wrapping_add(done * pitch), pitch, rows: alike, stride };
            // SAFETY: rows are `pitch` apart; the rest is passed on from the caller.
            unsafe {
                match row {
                    Some(row) => self.terms(micro, buffer, &row, terms, &target, fill),
                    None => target.fill(0..terms.count, fill),
                }
            }
            (done, row) = (done + alike, next);
        }
    }

    /// Moves to the next row.
    fn advance(&self, point: &mut [usize; MAX_RANK]) {
        for (d, axis) in self.rows.iter().enumerate().rev() {
            point[d] += 1;
            if point[d] < axis.extent {
                return;
            }
            point[d] = 0;
        }
    }

    /// Where a row lies; `None` where nothing of it is there.
    fn row(&self, point: &[usize; MAX_RANK]) -> Option<GatheredRow> {
        let at = self.rows.iter().zip(point).fold(self.base, |sum, (axis, &i)| sum + axis.stride * i as i64);
        let mut row = GatheredRow {
            at,
            outer: [Between { from: 0, to: i64::MAX }; MAX_RANK],
            line: Between { from: 0, to: self.line },
        };
        for guard in &self.guards {
            let value = guard.strides.iter().zip(point).fold(guard.constant, |sum, (s, &i)| sum + s * i as i64);
            // Divisions take long, and most windows are dense.
            let up = |n: i64, factor: i64| if factor == 1 { n } else { (n + factor - 1).div_euclid(factor) };
            let within = |factor: i64| {
                let [from, to] = [guard.from, guard.to].map(|end| up(end - value, factor));
                Between { from: from.max(0), to }
            };
            match guard.along {
                Along::None if (guard.from..guard.to).contains(&value) => {}
                Along::None => return None,
                Along::Outer(axis, factor) => {
                    row.outer[axis] = row.outer[axis].and(within(factor));
                }
                Along::Line(factor, unit) => {
                    let steps = within(factor);
                    let elements = |steps: i64| (steps.max(0) as usize).saturating_mul(unit).min(self.line);
                    row.line = row.line.and(Between { from: elements(steps.from), to: elements(steps.to) });
                }
            }
        }
        (row.line.from < row.line.to).then_some(row)
    }

    /// Some terms of rows that are alike, of which the first one is given.
    ///
    /// # Safety
    /// As [`Gathered::copy`].
    unsafe fn terms<T: ProductElement>(
        &self,
        micro: &Micro<T>,
        buffer: *const T,
        row: &GatheredRow,
        Stretch { first: from, count: k }: Stretch,
        target: &Target<T>,
        fill: T,
    ) {
        let mut skip = from % self.line;
        let mut outer = [0; MAX_RANK];
        let mut left = from / self.line;
        for (axis, i) in self.outer.iter().zip(&mut outer).rev() {
            *i = left % axis.extent;
            left /= axis.extent;
        }
        let mut done = 0;
        while done < k {
            let len = (self.line - skip).min(k - done);
            let (start, end) = (row.line.from.clamp(skip, skip + len), row.line.to.clamp(skip, skip + len));
            let (mut at, mut there) = (row.at + self.step * start as i64, start < end);
            for ((axis, &i), inside) in self.outer.iter().zip(&outer).zip(row.outer) {
                there &= (inside.from..inside.to).contains(&(i as i64));
                at += axis.stride * i as i64;
            }
            let reach = [self.step * (end as i64 - start as i64 - 1), target.stride * (target.rows as i64 - 1)];
            let least: i64 = reach.iter().map(|r| r.min(&0)).sum();
            let most: i64 = reach.iter().map(|r| r.max(&0)).sum();
            // SAFETY: from the first element of all lines to the last, which are checked to lie in the buffer; the caller promises
            // room for the terms.
            unsafe {
                if there && at + least >= 0 && at + most < self.count as i64 {
                    target.fill(done..done + start - skip, fill);
                    target.fill(done + end - skip..done + len, fill);
                    let (from, first) = (buffer.add(at as usize), done + start - skip);
                    self.lines(micro, from, end - start, first, target);
                } else {
                    target.fill(done..done + len, fill);
                }
            }
            (done, skip) = (done + len, 0);
            for (axis, i) in self.outer.iter().zip(&mut outer).rev() {
                *i += 1;
                if *i < axis.extent {
                    break;
                }
                *i = 0;
            }
        }
    }

    /// A line of `len` elements for each row, to its term `first` and those that follow.
    ///
    /// # Safety
    /// All lines must lie in the buffer, and the target must have room for these terms.
    unsafe fn lines<T: ProductElement>(
        &self,
        micro: &Micro<T>,
        from: *const T,
        len: usize,
        first: usize,
        target: &Target<T>,
    ) {
        let (to, step, stride) = (target.to.wrapping_add(first), self.step as isize, target.stride as isize);
        // SAFETY: passed on from the caller.
        unsafe {
            if step == 1 {
                let call = Lines { count: target.rows, len, from, apart: stride, to, pitch: target.pitch };
                return (micro.lines)(&call);
            }
            let copy = |r: usize, j: usize| {
                to.add(r * target.pitch + j).write(from.offset(stride * r as isize + step * j as isize).read());
            };
            // Along what is nearer in memory.
            if step.abs() > stride.abs() {
                (0..len).for_each(|j| (0..target.rows).for_each(|r| copy(r, j)));
            } else {
                (0..target.rows).for_each(|r| (0..len).for_each(|j| copy(r, j)));
            }
        }
    }
}

/// Where rows that are alike go.
struct Target<T> {
    to: *mut T,
    /// From a row to the next.
    pitch: usize,
    rows: usize,
    /// From what a row is copied from to that of the next.
    stride: i64,
}

impl<T: Copy> Target<T> {
    /// The same number for some terms of all rows.
    ///
    /// # Safety
    /// The target must have room for these terms of all rows.
    unsafe fn fill(&self, terms: Range<usize>, with: T) {
        for r in 0..self.rows {
            // SAFETY: the caller promises room for the terms.
            terms.clone().for_each(|l| unsafe { self.to.add(r * self.pitch + l).write(with) });
        }
    }
}

/// The instruction that an operand loads where all of the guards hold, and what is there elsewhere; `None` if it is more than that.
fn guarded(nest: &Nest) -> Option<(&Instr, Vec<Guard>, Option<f64>)> {
    let (mut guards, mut fill) = (Vec::new(), None);
    let mut instr = &nest.instrs[*nest.results.first()?];
    while let Instr::Select { pieces, fill: other, .. } = instr {
        let [(of_piece, value)] = pieces.as_slice() else { return None };
        if fill.replace(other.get()).is_some_and(|fill| fill.to_bits() != other.get().to_bits()) {
            return None;
        }
        guards.extend(of_piece.iter().cloned());
        instr = &nest.instrs[*value];
    }
    let plain = |index: &Index| index.values().is_empty();
    (guards.iter().all(|g| plain(&g.0)) && instr.maps().into_iter().all(plain)).then_some((instr, guards, fill))
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{Body, Load};

    use super::*;

    /// Windows of three by three of a padded image of `groups`, whose channels are last.
    fn windows(groups: usize, size: usize, channels: usize) -> Gathered {
        let at = |axes: &[(usize, usize)], constant: i64| {
            axes.iter().fold(Index::constant(constant), |sum, &(d, n)| sum.plus(&Index::coord(d).times(n as i64)))
        };
        let (all, line) = (groups * channels, size * groups * channels);
        let inside = 1..size as i64 + 1;
        let guards = vec![(at(&[(1, 1), (3, 1)], 0), inside.clone()), (at(&[(2, 1), (4, 1)], 0), inside)];
        let image = at(&[(0, channels), (1, line), (2, all), (3, line), (4, all), (5, 1)], -((line + all) as i64));
        let dtype = DType::F32;
        let load = Instr::Load(Load { slot: 0, at: image, guards: guards.clone(), dtype });
        let body = Body {
            domain: vec![groups, size, size, 3, 3, channels],
            instrs: vec![load, Instr::Select { pieces: vec![(guards, 0)], fill: 0.0.into(), dtype }],
            results: vec![1],
            ..Body::default()
        };
        Gathered::compile(&Grouped::operand(&body, [1, 2, 3]), dtype, &[(dtype, size * line)])
            .expect("windows are read by strides")
    }

    #[test]
    fn patches_hold_the_channels_of_their_group_alone() {
        for (groups, size, channels) in [(1, 16, 32), (2, 32, 32), (4, 16, 32), (6, 8, 32), (16, 14, 16)] {
            let windows = windows(groups, size, channels);
            let lines = windows.lines_of_rows(14);
            assert_eq!(lines, Some(size), "lines of {size} in {groups} groups are blocks of rows");
            assert_eq!(windows.unit(14), 3 * channels, "a line of the image is a stretch, in {groups} groups");
            let span = windows.sliding.as_ref().map(|sliding| sliding.span);
            assert_eq!(span, Some((size.min(PATCH_ROWS) + 2) * channels), "{groups} groups of {channels}");
        }
    }

    #[test]
    fn rows_lie_as_a_whole_where_no_guard_cuts_them() {
        let windows = windows(2, 9, 8);
        for (first, count) in (0..2 * 81).flat_map(|first| (1..=9 - first % 9).map(move |count| (first, count))) {
            let (y, x) = (first / 9 % 9, first % 9);
            let inside = (1..8).contains(&y) && x >= 1 && x + count <= 8;
            let there = windows.alike(Stretch::new(first, count), Stretch::new(0, 72));
            assert_eq!(there.is_some(), inside, "{count} rows from ({y}, {x}) on");
            let row = (y * 9 + x) * 16 + first / 81 * 8;
            assert!(there.is_none_or(|a| a.at == row as isize - 160 && a.stride == 16), "where they lie");
        }
    }
}
