//! The batch-vectorised form of contractions: the lanes of a vector are sums along an axis of the result. It suits
//! matrices of few columns or rows, if some axis of the result is also an axis of an operand. For a depthwise
//! convolution this axis is the channels, or the positions along a line of the image.

use eutectic_backend::{Contraction, Instr, Kernel, axes::Nest, windows::Window};
use eutectic_ir::DType;

use crate::tile::MAX_RANK;

/// The number of columns or rows from which on matrix products fill vectors.
const MATRIX_WIDTH: usize = 16;
/// The assumed number of lanes of a vector. It is the same on every machine, so that all machines choose the same form.
pub const VECTOR: usize = 16;

/// A contraction whose vectors of sums are along one axis of the result: the axis of the lanes.
#[derive(Clone, Debug)]
pub struct LaneForm {
    /// The order of the result's axes in this form: axis `n` is axis `order[n]` of the kernel. The axis of the lanes
    /// comes last.
    pub order: Vec<usize>,
    /// The extents of the result's axes, in this order.
    pub domain: Vec<usize>,
    /// The extents of the axes that are summed over.
    pub terms: Vec<usize>,
    /// The moving operand, which has an element per lane, and the fixed operand.
    pub sides: [Side; 2],
}

/// An operand over its own axes: without axes that it does not depend on, and with windows replaced by the elements
/// that they cover.
#[derive(Clone, Debug)]
pub struct Side {
    /// The body.
    pub nest: Nest,
    /// The meaning of each of the operand's axes. The axis of the lanes comes last.
    pub axes: Vec<SideAxis>,
    /// The stride of the lanes on the last axis. If it exceeds one element, lines are de-interleaved by phase, so that
    /// lanes are contiguous.
    pub phases: usize,
}

/// The meaning of an operand's axis. Its coordinate is the coordinate along an axis of the result times a factor, plus
/// the coordinate along a summed axis times a factor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideAxis {
    /// An axis of the result, and the factor of its coordinate.
    pub point: Option<(usize, usize)>,
    /// An axis that is summed over, and the factor of its coordinate.
    pub term: Option<(usize, usize)>,
}

impl LaneForm {
    /// Returns the forms of a kernel of fixed extents, one for each axis of the result that lanes can go along.
    pub fn all(kernel: &Kernel) -> Vec<LaneForm> {
        let Some(Contraction { lhs, rhs, axes }) = kernel.contraction() else { return Vec::new() };
        let domain = &kernel.body.domain;
        let fits = domain.len() <= MAX_RANK && !domain.contains(&0) && !lhs.domain.contains(&0);
        if !fits || !LaneForm::is_possible(kernel) {
            return Vec::new();
        }
        let (rows, columns) = (axes.batch..axes.batch + axes.rows, axes.batch + axes.rows..domain.len());
        let terms = &lhs.domain[axes.batch + axes.rows..];
        // Each axis of an operand is an axis of the result, or one that is summed over.
        let result = |d: usize| SideAxis { point: Some((d, 1)), term: None };
        let summed = |k: usize| SideAxis { point: None, term: Some((k, 1)) };
        let batch = || (0..axes.batch).map(result);
        let of_lhs: Vec<_> = batch().chain(rows.map(result)).chain((0..axes.depth).map(summed)).collect();
        let of_rhs: Vec<_> = batch().chain((0..axes.depth).map(summed)).chain(columns.map(result)).collect();
        let sides = [Side::new(Nest::of(lhs.clone()), of_lhs), Side::new(Nest::of(rhs.clone()), of_rhs)];
        let lanes = (0..domain.len()).filter(|&d| domain[d] > 1);
        lanes.filter_map(|lane| LaneForm::new(domain, terms, &sides, lane)).collect()
    }

    /// Returns the form of a kernel of fixed extents whose lanes go along an axis of the result, if there is one.
    pub fn along(kernel: &Kernel, axis: usize) -> Option<LaneForm> {
        LaneForm::all(kernel).into_iter().find(|form| form.axis() == axis)
    }

    /// Returns whether a kernel may have this form. Matrices that fill vectors by themselves are faster as matrix
    /// products.
    pub fn is_possible(kernel: &Kernel) -> bool {
        let Some(Contraction { axes, .. }) = kernel.contraction() else { return false };
        let (rows, columns) = kernel.body.domain[axes.batch..].split_at(axes.rows);
        let few = rows.iter().product::<usize>().min(columns.iter().product());
        few < MATRIX_WIDTH && kernel.accumulator().is_some_and(DType::is_float) && !kernel.varies()
    }

    /// Returns the axis of the kernel's result that lanes go along.
    pub fn axis(&self) -> usize {
        self.order.last().copied().unwrap_or(0)
    }

    /// Returns the form whose lanes are along an axis. Returns `None` if no operand depends on that axis, or the stride
    /// of lanes in an operand exceeds two elements.
    fn new(domain: &[usize], terms: &[usize], sides: &[Side; 2], lane: usize) -> Option<LaneForm> {
        let order: Vec<usize> = (0..domain.len()).filter(|&d| d != lane).chain([lane]).collect();
        let domain: Vec<usize> = order.iter().map(|&d| domain[d]).collect();
        let mut sides = sides.clone().map(|side| side.with_lanes(lane));
        let [a, b] = [0, 1].map(|n: usize| sides[n].as_ref().map(|side| side.has_lanes(lane)));
        match (a?, b?) {
            (false, false) => return None,
            (false, true) => sides.swap(0, 1),
            (true, _) => {}
        }
        let [mut moving, mut fixed] = sides.map(|side| side.expect("no operand has too large a stride of lanes"));
        let renumber = |side: &mut Side| {
            for axis in &mut side.axes {
                if let Some((d, _)) = &mut axis.point {
                    *d = order.iter().position(|of| of == d).unwrap_or(0);
                }
            }
        };
        renumber(&mut moving);
        renumber(&mut fixed);
        Some(LaneForm { order, domain, terms: terms.to_vec(), sides: [moving, fixed] })
    }
}

/// Returns the number of independent vectors of sums for `lanes` lanes and `points` points: see [`crate::simd::lanes`].
pub fn in_flight(lanes: usize, points: usize) -> f64 {
    let vectors = lanes.div_ceil(VECTOR);
    (if points == 1 { vectors.min(8) } else { points.min(6) * vectors.min(2) }) as f64
}

impl Side {
    fn new(nest: Nest, axes: Vec<SideAxis>) -> Side {
        let mut side = Side { nest, axes, phases: 1 };
        for axis in (0..side.axes.len()).rev().filter(|&axis| !side.nest.depends_on(axis)).collect::<Vec<_>>() {
            side.nest = side.nest.without(axis);
            side.axes.remove(axis);
        }
        while let Some(window) = side.window() {
            side.nest = side.nest.united(&window);
            let term = side.axes[window.tap].term.map(|(k, _)| (k, window.dilation));
            let point = side.axes[window.position].point.map(|(d, _)| (d, window.stride));
            side.axes[window.position] = SideAxis { point, term };
            side.axes.remove(window.tap);
        }
        side
    }

    /// Returns an axis of the result and a summed axis that form overlapping windows: the body uses only the sum of
    /// their coordinates. Uniting other pairs, such as the rows and terms of a dense matrix, would not save elements.
    fn window(&self) -> Option<Window> {
        let alone = |axis: &usize, of_point: bool| {
            let SideAxis { point, term } = self.axes[*axis];
            point.is_some() == of_point && term.is_some() != of_point
        };
        let extents = &self.nest.domain;
        let shares = |w: &Window| {
            let (positions, taps) = (extents[w.position], extents[w.tap]);
            w.reach(positions, taps) < positions * taps
        };
        let taps = || (0..self.axes.len()).filter(|axis| alone(axis, false));
        let of = |position: usize| taps().find_map(|tap| self.nest.window(position, tap).filter(shares));
        (0..self.axes.len()).filter(|axis| alone(axis, true)).find_map(of)
    }

    /// Moves the axis of the lanes to the end. Returns `None` if the stride along it exceeds two elements.
    fn with_lanes(mut self, lane: usize) -> Option<Side> {
        let of_lanes = |axis: &SideAxis| axis.point.is_some_and(|(d, _)| d == lane);
        let Some(at) = self.axes.iter().position(of_lanes) else { return Some(self) };
        self.phases = self.axes[at].point.map_or(1, |(_, step)| step);
        if self.phases > 2 {
            return None;
        }
        let order: Vec<usize> = (0..self.axes.len()).filter(|&axis| axis != at).chain([at]).collect();
        self.nest = self.nest.permuted(&order);
        self.axes = order.iter().map(|&axis| self.axes[axis]).collect();
        Some(self)
    }

    fn has_lanes(&self, lane: usize) -> bool {
        self.axes.last().and_then(|axis| axis.point).is_some_and(|(d, _)| d == lane)
    }

    /// Returns whether the operand depends on an axis of the result.
    pub fn depends_on(&self, point: usize) -> bool {
        self.axes.iter().any(|axis| axis.point.is_some_and(|(d, _)| d == point))
    }

    /// Returns the number of elements of the matrix that is multiplied with one matrix of the other operand. Returns 0
    /// for an operand with windows.
    pub fn matrix(&self, other: &Side) -> f64 {
        if self.axes.iter().any(|axis| axis.point.is_some() && axis.term.is_some()) {
            return 0.0;
        }
        let of_matrix = |axis: &SideAxis| axis.point.is_none_or(|(d, _)| !other.depends_on(d));
        self.axes.iter().zip(&self.nest.domain).filter(|(axis, _)| of_matrix(axis)).map(|(_, &n)| n as f64).product()
    }

    /// Returns whether the operand is read in place, with contiguous elements along its last axis.
    pub fn in_place(&self) -> bool {
        let [Instr::Load(load)] = self.nest.instrs.as_slice() else { return false };
        let strides = load.at.affine(self.nest.domain.len());
        load.guards.is_empty() && load.dtype.size() >= 4 && strides.is_some_and(|s| s.last().is_none_or(|&s| s == 1))
    }

    /// Returns the number of elements that a line of `len` elements takes after de-interleaving.
    pub fn split(&self, len: usize) -> usize {
        len.next_multiple_of(self.phases)
    }

    /// Writes the offset of each term from the first one to `to`. `strides` are those of the operand's axes, and
    /// `plane` is the distance in elements between the starts of two consecutive phases of the lanes.
    pub fn terms(&self, strides: impl Iterator<Item = isize>, plane: isize, terms: &[usize], to: &mut [isize]) {
        let mut steps = [0; MAX_RANK];
        let phased = (self.phases > 1).then(|| self.axes.len() - 1);
        for (n, (axis, stride)) in self.axes.iter().zip(strides).enumerate() {
            if let Some((k, step)) = axis.term.filter(|_| phased != Some(n)) {
                steps[k] += stride * step as isize;
            }
        }
        let Some(last) = terms.len().checked_sub(1).filter(|&last| terms[last] > 0) else { return to.fill(0) };
        let (mut point, mut at) = ([0; MAX_RANK], 0);
        // The inner loop is over the last axis of terms. It has a constant step, and can be vectorised.
        for line in to.chunks_mut(terms[last]) {
            line.iter_mut().zip(0..).for_each(|(to, n)| *to = at + n * steps[last]);
            for k in (0..last).rev() {
                (point[k], at) = (point[k] + 1, at + steps[k]);
                if point[k] < terms[k] {
                    break;
                }
                at -= steps[k] * terms[k] as isize;
                point[k] = 0;
            }
        }
        if let Some((k, step)) = phased.and_then(|n| self.axes[n].term) {
            let (phases, inner) = (self.phases, terms[k + 1..].iter().product::<usize>());
            for (n, to) in to.iter_mut().enumerate() {
                let element = n / inner % terms[k] * step;
                *to += (element % phases) as isize * plane + (element / phases) as isize;
            }
        }
    }

    /// Returns, for each axis of the operand, the extent of the elements that a box of the result reads.
    pub fn extents<'a>(&'a self, len: &'a [usize], terms: &'a [usize]) -> impl Iterator<Item = usize> + 'a {
        self.axes.iter().map(|axis| {
            let of = |steps: Option<(usize, usize)>, len: &[usize]| steps.map_or(0, |(n, step)| step * (len[n] - 1));
            1 + of(axis.point, len) + of(axis.term, terms)
        })
    }
}
