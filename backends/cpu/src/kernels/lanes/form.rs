//! Which contractions are sums side by side, and along which axis: where matrices have few columns or rows, and some axis of the result is
//! one of an operand too. Of a depthwise convolution that is the channels, or what lies side by side in space.

use eutectic_backend::{
    Contraction, ContractionAxes, Instr, Kernel,
    axes::{Nest, is_load_of_matrix},
    reach::{is_of_matrices, line, masks},
    windows::Window,
};

use crate::{
    gemm::kept::keeps,
    kernels::{chosen::ChosenMatrix, coded::coded, operand::kept},
    tile::MAX_RANK,
};

/// Columns, or rows, from which on products of matrices fill their vectors.
const FEW: usize = 16;
/// Lanes that a vector is taken to have, whatever the machine: all make the same choice.
pub const VECTOR: usize = 16;

/// Cycles, about, that decide between this and a product of matrices. Of a vector of sums, a term; of an element that is evaluated: in lines,
/// and where neighbours lie apart.
const TERM: f64 = 1.3;
/// Of a term whose operand is a matrix that outgrows the first-level cache, of [`NEAR`] bytes: in tiles that stay there, its rows are read a
/// vector or two at a time.
const FAR_TERM: f64 = 4.5;
const NEAR: f64 = 32e3;
/// Until a vector of sums can take the next term.
pub const LATENCY: f64 = 4.0;
const COPY: f64 = 0.25;
const APART: f64 = 1.0;
/// Of an element whose line is taken apart by phase.
const SPLIT: f64 = 0.25;
/// Of a product of matrices: a term of a row that is copied in lines of few elements, and in long ones; of a product with a vector, a sum,
/// and a term whose neighbours lie apart.
const SHORT_LINE: f64 = 1.5;
const LONG_LINE: f64 = 0.15;
const DOT: f64 = 8.0;
const DOT_APART: f64 = 3.0;
/// Neighbours from which on a line of a matrix that others complete is read as fast as one of a matrix alone.
const LINE: f64 = 64.0;

/// A contraction as sums side by side.
#[derive(Clone, Debug)]
pub struct LaneForm {
    /// How the axes of the result are ordered in `body`: its axis `n` is axis `order[n]` of the kernel's. The lanes are the last one.
    pub order: Vec<usize>,
    /// The extents of these.
    pub domain: Vec<usize>,
    /// The extents of the axes that are summed over.
    pub terms: Vec<usize>,
    /// The operand that has an element for each lane, and the other one.
    pub sides: [Side; 2],
}

/// An operand over axes of its own: without those on which it does not depend, and each window over what its elements are elements of.
#[derive(Clone, Debug)]
pub struct Side {
    /// The body.
    pub nest: Nest,
    /// What each of its axes is; the lanes come last.
    pub axes: Vec<SideAxis>,
    /// How far a step along the lanes goes on the last axis. Where it is more than one element, lines are taken apart by phase, so that lanes
    /// lie side by side.
    pub phases: usize,
}

/// What an axis of an operand is: its coordinate is the sum of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideAxis {
    /// An axis of the result, and how far a step along it goes.
    pub point: Option<(usize, usize)>,
    /// An axis that is summed over, and how far a step along it goes.
    pub term: Option<(usize, usize)>,
}

impl LaneForm {
    /// The form of a kernel of fixed extents, if it is better computed so.
    pub fn of(kernel: &Kernel) -> Option<LaneForm> {
        let Contraction { lhs, rhs, axes } = kernel.contraction()?;
        let as_product = as_product(kernel, lhs, rhs, &axes);
        // Most products are such that no form can be better.
        let terms: f64 = lhs.domain[axes.batch + axes.rows..].iter().map(|&n| n as f64).product();
        if terms * TERM / VECTOR as f64 >= as_product {
            return None;
        }
        LaneForm::best(kernel).filter(|(takes, _)| *takes < as_product).map(|(_, form)| form)
    }

    /// The best form of a kernel that takes it at other extents.
    pub fn as_of(kernel: &Kernel) -> Option<LaneForm> {
        LaneForm::best(kernel).map(|(_, form)| form)
    }

    /// The best form, and about how many cycles a sum takes.
    fn best(kernel: &Kernel) -> Option<(f64, LaneForm)> {
        let Contraction { lhs, rhs, axes } = kernel.contraction()?;
        let domain = &kernel.body.domain;
        let (rows, columns) = (axes.batch..axes.batch + axes.rows, axes.batch + axes.rows..domain.len());
        let points = |range: std::ops::Range<usize>| domain[range].iter().product::<usize>();
        let few = points(columns.clone()).min(points(rows.clone()));
        let fits = domain.len() <= MAX_RANK && !domain.is_empty() && !domain.contains(&0) && !lhs.domain.contains(&0);
        let float = kernel.accumulator().is_some_and(eutectic_ir::DType::is_float);
        if few >= FEW || !fits || !float || kernel.varies() {
            return None;
        }
        let terms = lhs.domain[axes.batch + axes.rows..].to_vec();
        // Which axis of the result or of the sums each axis of an operand is.
        let result = |d: usize| SideAxis { point: Some((d, 1)), term: None };
        let summed = |k: usize| SideAxis { point: None, term: Some((k, 1)) };
        let batch = || (0..axes.batch).map(result);
        let of_lhs: Vec<_> = batch().chain(rows.map(result)).chain((0..axes.depth).map(summed)).collect();
        let of_rhs: Vec<_> = batch().chain((0..axes.depth).map(summed)).chain(columns.map(result)).collect();
        let sides = [Side::new(Nest::of(lhs.clone()), of_lhs), Side::new(Nest::of(rhs.clone()), of_rhs)];
        let lanes = (0..domain.len()).filter(|&d| domain[d] > 1);
        let forms = lanes.filter_map(|lane| LaneForm::along(kernel, &terms, &sides, lane));
        forms.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The form whose lanes are an axis of the result, and the cycles that a sum takes; none where no operand has its elements side by side
    /// along it.
    fn along(kernel: &Kernel, terms: &[usize], sides: &[Side; 2], lane: usize) -> Option<(f64, LaneForm)> {
        let rank = kernel.body.domain.len();
        let order: Vec<usize> = (0..rank).filter(|&d| d != lane).chain([lane]).collect();
        let domain: Vec<usize> = order.iter().map(|&d| kernel.body.domain[d]).collect();
        let mut sides = sides.clone().map(|side| side.with_lanes(lane));
        let [a, b] = [0, 1].map(|n: usize| sides[n].as_ref().map(|side| side.has_lanes(lane)));
        match (a?, b?) {
            (false, false) => return None,
            (false, true) => sides.swap(0, 1),
            (true, _) => {}
        }
        let [mut moving, mut fixed] = sides.map(|side| side.expect("both have lanes, or none"));
        let renumber = |side: &mut Side| {
            for axis in &mut side.axes {
                if let Some((d, _)) = &mut axis.point {
                    *d = order.iter().position(|of| of == d).unwrap_or(0);
                }
            }
        };
        renumber(&mut moving);
        renumber(&mut fixed);
        let lanes = kernel.body.domain[lane];
        let points: f64 = domain.iter().map(|&n| n as f64).product();
        let count: f64 = terms.iter().map(|&n| n as f64).product();
        let used = lanes as f64 / lanes.next_multiple_of(VECTOR) as f64;
        let store = |s: &eutectic_backend::Store| s.at.affine(rank).is_some_and(|strides| strides[lane] == 1);
        let stored = if kernel.stores.iter().all(store) { COPY } else { APART };
        let evaluated: f64 = [&moving, &fixed].map(|side| side.evaluating()).iter().sum();
        let far = |a: &Side, b: &Side| a.in_place() && a.matrix(b) * 4.0 > NEAR;
        let term = if far(&moving, &fixed) || far(&fixed, &moving) { FAR_TERM } else { TERM };
        let shared = (0..rank - 1).filter(|&d| !fixed.depends_on(d)).map(|d| domain[d]).max().unwrap_or(1);
        let term = term.max(LATENCY / in_flight(lanes, shared));
        let takes = count * term / VECTOR as f64 / used + evaluated / points + stored;
        Some((takes, LaneForm { order, domain, terms: terms.to_vec(), sides: [moving, fixed] }))
    }
}

/// Vectors of sums that do not wait for each other, of so many lanes and points: see [`crate::simd::lanes`].
pub fn in_flight(lanes: usize, points: usize) -> f64 {
    let vectors = lanes.div_ceil(VECTOR);
    (if points == 1 { vectors.min(8) } else { points.min(6) * vectors.min(2) }) as f64
}

/// About how many cycles a sum takes as one of a product of matrices.
fn as_product(
    kernel: &Kernel,
    lhs: &eutectic_backend::Body,
    rhs: &eutectic_backend::Body,
    axes: &ContractionAxes,
) -> f64 {
    let domain = &kernel.body.domain;
    let points = |range: std::ops::Range<usize>| domain[range].iter().product::<usize>() as f64;
    let rows = points(axes.batch..axes.batch + axes.rows);
    let columns = points(axes.batch + axes.rows..domain.len());
    let terms: f64 = lhs.domain[axes.batch + axes.rows..].iter().map(|&n| n as f64).product();
    // Of the operand that is read over and over, or of the matrix beside a vector: how its terms lie.
    let (matrix, groups, depth) = match columns <= rows {
        true => (lhs, [axes.batch, axes.rows, axes.depth], axes.batch + axes.rows..lhs.domain.len()),
        false => (rhs, [axes.batch, axes.depth, axes.columns], axes.batch..axes.batch + axes.depth),
    };
    let load = matrix.results.first().and_then(|&r| match &matrix.instrs[r] {
        Instr::Load(load) if load.guards.is_empty() => Some(&load.at),
        _ => None,
    });
    let chosen = || {
        let chosen = ChosenMatrix::of(&matrix.instrs, *matrix.results.first()?, &masks(matrix, 0), axes.batch)?;
        Some(is_of_matrices(&chosen.at, &matrix.domain, groups))
    };
    // A right operand that is kept in a shorter type is packed so, and its panels are read as fast as it would be in place.
    let packed = || {
        if std::ptr::eq(matrix, rhs) && coded(kernel).is_some() {
            return Some(true);
        }
        let load =
            kept(&matrix.instrs, *matrix.results.first()?).filter(|_| std::ptr::eq(matrix, rhs) && columns > 1.0)?;
        let fits = keeps(kernel.accumulator()?, load.dtype) && is_load_of_matrix(load, &matrix.domain, &kernel.slots);
        Some(fits && is_of_matrices(&load.at, &matrix.domain, groups))
    };
    let in_place = load.is_some_and(|at| is_of_matrices(at, &matrix.domain, groups));
    let in_place = in_place || chosen() == Some(true) || packed() == Some(true);
    let along = |at: &eutectic_ir::index::Index| {
        let strides = at.affine(matrix.domain.len())?;
        let dense = strides.iter().enumerate().rev().find(|(d, s)| **s == 1 && matrix.domain[*d] > 1)?.0;
        Some((dense, line(at, &matrix.domain).unwrap_or(1.0)))
    };
    let loads = || matrix.instrs.iter().filter_map(|i| if let Instr::Load(load) = i { Some(&load.at) } else { None });
    let dense: Vec<_> = loads().filter_map(along).collect();
    let few = rows.min(columns);
    if few == 1.0 {
        // Dot products of terms that lie side by side, or sums of lines of the matrix; of several, if their lines are long.
        let in_lines = || dense.len() == loads().count() && dense.iter().all(|(_, long)| *long >= LINE);
        let beside = |(d, _): &(usize, f64)| depth.contains(d) || *d >= axes.batch;
        let side_by_side = chosen() == Some(true) || (in_place || in_lines()) && dense.iter().any(beside);
        return if side_by_side { DOT + terms / VECTOR as f64 } else { terms * DOT_APART };
    }
    // Matrices as they are in memory fill vectors along their longer side.
    if in_place {
        return DOT + terms / VECTOR as f64;
    }
    let vectors = (few / VECTOR as f64).ceil();
    let is_long = |(d, long): &(usize, f64)| depth.contains(d) && *long >= VECTOR as f64;
    let copied = if dense.iter().any(is_long) { LONG_LINE } else { SHORT_LINE };
    terms * (vectors + copied) / few
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

    /// An axis of the result and one that is summed over of which the body sees the sum alone, where windows share elements: others, such as
    /// rows of a dense matrix, are as many.
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

    /// With the axis that moves along an axis of the result as the last one; none if that is in steps of more than two.
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

    /// Whether it depends on an axis of the result.
    pub fn depends_on(&self, point: usize) -> bool {
        self.axes.iter().any(|axis| axis.point.is_some_and(|(d, _)| d == point))
    }

    /// Elements of it beside one matrix of the other operand, if no windows share them.
    fn matrix(&self, other: &Side) -> f64 {
        if self.axes.iter().any(|axis| axis.point.is_some() && axis.term.is_some()) {
            return 0.0;
        }
        let of_matrix = |axis: &SideAxis| axis.point.is_none_or(|(d, _)| !other.depends_on(d));
        self.axes.iter().zip(&self.nest.domain).filter(|(axis, _)| of_matrix(axis)).map(|(_, &n)| n as f64).product()
    }

    /// The load that it is read from in place: elements lie side by side along its last axis.
    pub fn in_place(&self) -> bool {
        let [Instr::Load(load)] = self.nest.instrs.as_slice() else { return false };
        let strides = load.at.affine(self.nest.domain.len());
        load.guards.is_empty() && load.dtype.size() >= 4 && strides.is_some_and(|s| s.last().is_none_or(|&s| s == 1))
    }

    /// Elements that a line of so many takes once it is taken apart.
    pub fn split(&self, len: usize) -> usize {
        len.next_multiple_of(self.phases)
    }

    /// About how many cycles evaluating it takes.
    fn evaluating(&self) -> f64 {
        let elements: f64 = self.nest.domain.iter().map(|&n| n as f64).product();
        let split = if self.phases > 1 { elements * SPLIT } else { 0.0 };
        split + self.copying(elements)
    }

    fn copying(&self, elements: f64) -> f64 {
        if self.in_place() {
            return 0.0;
        }
        let rank = self.nest.domain.len();
        let side_by_side = |i: &Instr| match i {
            Instr::Load(load) => {
                load.at.affine(rank).is_some_and(|strides| strides.last().is_none_or(|s| [0, 1].contains(s)))
            }
            _ => true,
        };
        elements * if self.nest.instrs.iter().all(side_by_side) { COPY } else { APART }
    }

    /// Where the terms lie from the first one on, if a step along each axis goes so far, and one from a phase of the lanes to the next.
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
        // In lines, which have vectors.
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

    /// The extents of what it is evaluated on for a box of the result.
    pub fn extents<'a>(&'a self, len: &'a [usize], terms: &'a [usize]) -> impl Iterator<Item = usize> + 'a {
        self.axes.iter().map(|axis| {
            let of = |steps: Option<(usize, usize)>, len: &[usize]| steps.map_or(0, |(n, step)| step * (len[n] - 1));
            1 + of(axis.point, len) + of(axis.term, terms)
        })
    }
}
