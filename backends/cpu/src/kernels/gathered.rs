//! Left operands of products that are read through an index map: windows of a padded image, heads to be merged, rows at a stride.
//!
//! Nothing is stored but the part that a product is at: its rows are copied in lines, as long as memory is contiguous, and
//! where a guard fails there is the fill value. Guards are resolved once for a row, not for an element.

use eutectic_backend::{Guard, Instr};
use eutectic_ir::{DType, index::Index};

use super::{Slots, gemm::Product};
use crate::{
    axes::{Nest, normalise},
    tile::{MAX_RANK, number},
};

/// The operand: a row for each point of `rows`, and in it a term for each point of `outer` and of the line.
pub struct Gathered {
    /// The buffer.
    pub slot: usize,
    count: usize,
    base: i64,
    rows: Vec<Axis>,
    outer: Vec<Axis>,
    /// Elements of a line, and from one to the next in the buffer.
    line: usize,
    step: i64,
    guards: Vec<Bound>,
    /// An element, in its first bytes.
    fill: [u8; 8],
}

#[derive(Clone, Copy)]
struct Axis {
    extent: usize,
    stride: i64,
}

/// What a guard says, given a row: constant + Σ strides·row + factor·(coordinate along an axis of the terms) lies in `from..to`.
struct Bound {
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

/// Where a row lies: its first element, and which of its terms are there.
struct Row {
    at: i64,
    outer: [(i64, i64); MAX_RANK],
    line: (usize, usize),
}

impl Gathered {
    /// Compiles an operand over `[b.. m k]` that is a load of elements of type `acc`, under guards or none, where the rows' and the
    /// terms' coordinates go their own ways; else `None`.
    pub fn compile(nest: &Nest, acc: DType, slots: &Slots) -> Option<Gathered> {
        if nest.domain.contains(&0) {
            return None;
        }
        let (nest, terms) = normalise(nest, 1);
        let rank = nest.domain.len();
        if rank > MAX_RANK {
            return None;
        }
        let (load, guards, fill) = guarded(&nest)?;
        let Instr::Load(load) = load else { return None };
        let &(dtype, count) = slots.types.get(load.slot)?;
        if dtype != acc || load.dtype != acc || !load.guards.iter().all(|g| guards.contains(g)) {
            return None;
        }
        let strides = load.at.affine(rank)?;
        let axes: Vec<Axis> =
            nest.domain.iter().zip(strides).map(|(&extent, stride)| Axis { extent, stride }).collect();
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
            Some(Bound { constant: index.constant, strides, along, from: range.start, to: range.end })
        };
        Some(Gathered {
            slot: load.slot,
            count,
            base: load.at.constant,
            rows: rows.to_vec(),
            outer: terms[..start].to_vec(),
            line,
            step,
            guards: bounds.iter().map(bound).collect::<Option<_>>()?,
            fill: number(fill.unwrap_or(0.0), acc),
        })
    }

    /// Copies terms `from..from + k` of `count` rows from row `first` on, counted over all matrices: each row `pitch` elements after
    /// the one before.
    ///
    /// # Safety
    /// `buffer` must be the slot's, of the size that the kernel states, and there must be room for the rows.
    pub unsafe fn copy<T: Product>(
        &self,
        buffer: *const T,
        (first, count): (usize, usize),
        (from, k): (usize, usize),
        to: *mut T,
        pitch: usize,
    ) {
        // SAFETY: the bytes were made for this type.
        let fill = unsafe { self.fill.as_ptr().cast::<T>().read_unaligned() };
        let mut point = [0; MAX_RANK];
        let mut left = first;
        for (d, axis) in self.rows.iter().enumerate().rev() {
            point[d] = left % axis.extent;
            left /= axis.extent;
        }
        for r in 0..count {
            // SAFETY: rows are `pitch` apart.
            let target = unsafe { std::slice::from_raw_parts_mut(to.add(r * pitch), k) };
            match self.row(&point) {
                // SAFETY: passed on from the caller.
                Some(row) => unsafe { self.terms(buffer, &row, from, target, fill) },
                None => target.fill(fill),
            }
            for (d, axis) in self.rows.iter().enumerate().rev() {
                point[d] += 1;
                if point[d] < axis.extent {
                    break;
                }
                point[d] = 0;
            }
        }
    }

    /// Where a row lies; `None` where nothing of it is there.
    fn row(&self, point: &[usize; MAX_RANK]) -> Option<Row> {
        let at = self.rows.iter().zip(point).fold(self.base, |sum, (axis, &i)| sum + axis.stride * i as i64);
        let mut row = Row { at, outer: [(0, i64::MAX); MAX_RANK], line: (0, self.line) };
        for guard in &self.guards {
            let value = guard.strides.iter().zip(point).fold(guard.constant, |sum, (s, &i)| sum + s * i as i64);
            let within = |factor: i64| {
                let least = (guard.from - value + factor - 1).div_euclid(factor).max(0);
                (least, (guard.to - value + factor - 1).div_euclid(factor))
            };
            match guard.along {
                Along::None if (guard.from..guard.to).contains(&value) => {}
                Along::None => return None,
                Along::Outer(axis, factor) => {
                    let (least, end) = within(factor);
                    row.outer[axis] = (row.outer[axis].0.max(least), row.outer[axis].1.min(end));
                }
                Along::Line(factor, unit) => {
                    let (least, end) = within(factor);
                    let elements = |steps: i64| (steps.max(0) as usize).saturating_mul(unit).min(self.line);
                    row.line = (row.line.0.max(elements(least)), row.line.1.min(elements(end)));
                }
            }
        }
        (row.line.0 < row.line.1).then_some(row)
    }

    /// The terms of a row from one on.
    unsafe fn terms<T: Product>(&self, buffer: *const T, row: &Row, from: usize, target: &mut [T], fill: T) {
        let mut line = from / self.line;
        let mut skip = from % self.line;
        let mut rest = target;
        while !rest.is_empty() {
            let len = (self.line - skip).min(rest.len());
            let (part, behind) = rest.split_at_mut(len);
            let (mut at, mut there, mut left) = (row.at, true, line);
            for (axis, (least, end)) in self.outer.iter().zip(row.outer).rev() {
                let i = (left % axis.extent) as i64;
                left /= axis.extent;
                there &= (least..end).contains(&i);
                at += axis.stride * i;
            }
            let (start, end) = (row.line.0.clamp(skip, skip + len), row.line.1.clamp(skip, skip + len));
            at += self.step * start as i64;
            let last = at + self.step * (end as i64 - start as i64 - 1);
            let inside = |at: i64| (0..self.count as i64).contains(&at);
            if there && start < end && inside(at) && inside(last) {
                part[..start - skip].fill(fill);
                part[end - skip..].fill(fill);
                let part = &mut part[start - skip..end - skip];
                // SAFETY: from the first element to the last, which were checked to lie in the buffer.
                unsafe {
                    if self.step == 1 {
                        part.copy_from_slice(std::slice::from_raw_parts(buffer.add(at as usize), end - start));
                    } else {
                        let from = |j: usize| buffer.offset((at + self.step * j as i64) as isize).read();
                        part.iter_mut().enumerate().for_each(|(j, x)| *x = from(j));
                    }
                }
            } else {
                part.fill(fill);
            }
            rest = behind;
            (line, skip) = (line + 1, 0);
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
