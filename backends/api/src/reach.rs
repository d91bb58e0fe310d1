//! Measures how index maps traverse a domain: which axes they depend on, at how many points guards hold, and how many
//! consecutive elements are contiguous.

use eutectic_ir::{
    index::{Atom, Index},
    ops::Writes,
};

use crate::body::{Body, Guard, Instr, Store};
use crate::kernel::Kernel;

/// A set of axes of a domain: bit `n` for axis `n`.
pub type AxisSet = u64;

/// Returns the number of points along the axes of a set.
pub fn points(domain: &[usize], mask: AxisSet) -> f64 {
    domain.iter().enumerate().filter(|(d, _)| mask >> d & 1 == 1).map(|(_, &n)| n as f64).product()
}

/// Returns the axes whose coordinates a map mentions. Axes on which only the body's values in the map depend are not
/// included.
pub fn mentioned(index: &Index) -> AxisSet {
    index.terms.iter().fold(0, |m, (atom, _)| match atom {
        Atom::Coord(n) => m | 1 << n,
        Atom::Div(inner, _) | Atom::Mod(inner, _) => m | mentioned(inner),
        Atom::Value(_) | Atom::Extent(_) => m,
    })
}

/// Returns the share of the points of a kernel's domain at which it stores a value. The share is less than 1 if guards
/// of the stores exclude points.
pub fn stored(kernel: &Kernel) -> f64 {
    let domain = &kernel.body.domain;
    let share = |guards: &[Guard]| guards.iter().map(|guard| held(guard, domain)).product::<f64>();
    kernel.stores.iter().map(|store| share(&store.guards)).fold(0.0, f64::max)
}

/// Returns the share of a domain's points at which a guard holds; 1 if its map is not affine.
pub fn held((index, range): &Guard, domain: &[usize]) -> f64 {
    let Some(strides) = index.affine(domain.len()) else { return 1.0 };
    let mut axes = (0..domain.len()).filter(|&d| strides[d] != 0 && domain[d] > 1);
    let Some(inner) = axes.next_back() else { return f64::from(u8::from(range.contains(&index.constant))) };
    // Enumerates the points of the outer axes. Along the innermost axis, the number of points that satisfy the guard
    // follows from the stride.
    let outer: Vec<usize> = axes.collect();
    let all: usize = outer.iter().map(|&d| domain[d]).product();
    let points = (0..all).map(|mut n| {
        let mut from = index.constant;
        for &d in outer.iter().rev() {
            from += strides[d] * (n % domain[d]) as i64;
            n /= domain[d];
        }
        let last = from + strides[inner] * (domain[inner] as i64 - 1);
        let (low, high, step) = (from.min(last), from.max(last), strides[inner].abs());
        let first = ((range.start - low).max(0) + step - 1) / step;
        let end = (range.end.min(high + 1) - low).max(0) + step - 1;
        (end / step - first).max(0)
    });
    points.sum::<i64>() as f64 / (all * domain[inner]) as f64
}

/// Returns the axes that form a row; the empty set if the kernel is not a row group.
pub fn row_mask(kernel: &Kernel) -> AxisSet {
    let Some(axes) = kernel.row_axes() else { return 0 };
    let rank = kernel.body.domain.len();
    (rank.saturating_sub(axes)..rank).fold(0, |m, d| m | 1 << d)
}

/// Returns, for each value of a body, the axes on which it depends. `row` has the axes that form a row.
pub fn masks(body: &Body, row: AxisSet) -> Vec<AxisSet> {
    let mut masks: Vec<AxisSet> = Vec::with_capacity(body.instrs.len());
    for instr in &body.instrs {
        let of_args = |args: &[usize]| args.iter().fold(0, |m, &a| m | masks[a]);
        let mask = match instr {
            Instr::Anchor { .. } => AxisSet::MAX,
            Instr::Constant { .. } => 0,
            Instr::Row { args, .. } if instr.is_per_row() => of_args(args) & !row,
            Instr::Row { args, .. } => of_args(args) | row,
            _ => instr.maps().into_iter().fold(of_args(&instr.args()), |m, map| m | mentioned(map)),
        };
        masks.push(mask);
    }
    masks
}

/// Returns the axes on which the index of a store depends.
pub fn of_place(store: &Store, body: &Body) -> AxisSet {
    let own = mentioned(&store.at);
    match store.at.values() {
        values if values.is_empty() => own,
        values => {
            let masks = masks(body, 0);
            values.into_iter().fold(own, |axes, value| axes | masks[value])
        }
    }
}

/// Returns the axes along which several points may write one element, because the element's index does not determine
/// the coordinates along them.
pub fn together(store: &Store, domain: &[usize]) -> AxisSet {
    let all = (0..domain.len()).fold(0, |axes, d| axes | 1 << d);
    if store.writes == Writes::Apart {
        return 0;
    }
    // The index is a number in mixed radix. It determines a coordinate (a digit) if the coordinate's stride exceeds the
    // sum of all lower digits at their maximum.
    let digit = |(atom, unit): &(Atom, i64)| match atom {
        Atom::Coord(axis) => Some((*unit, domain[*axis] as i64, 1 << axis)),
        Atom::Value(_) => {
            let guard = store.guards.iter().find(|(index, _)| *index == Index::atom(atom.clone()))?;
            (guard.1.start == 0).then_some((*unit, guard.1.end, 0))
        }
        Atom::Div(..) | Atom::Mod(..) | Atom::Extent(_) => None,
    };
    let Some(mut digits) = store.at.terms.iter().map(digit).collect::<Option<Vec<(i64, i64, AxisSet)>>>() else {
        return all;
    };
    digits.sort_unstable();
    let mut reach = 0;
    let mut apart = 0;
    for (unit, count, axis) in digits {
        if unit <= reach {
            return all;
        }
        reach += unit * (count - 1).max(0);
        apart |= axis;
    }
    all & !apart
}

/// Returns, for each value of a body, whether it is equal in all runs, because it depends on no load and no anchor.
pub fn known(body: &Body) -> Vec<bool> {
    let mut known: Vec<bool> = Vec::with_capacity(body.instrs.len());
    for instr in &body.instrs {
        let given = matches!(instr, Instr::Load(_) | Instr::Anchor { .. });
        known.push(!given && instr.args().into_iter().all(|arg| known[arg]));
    }
    known
}

/// Returns whether a load with these strides reads contiguous elements, in the order of the axes with a stride other
/// than 0.
pub fn is_dense(strides: &[i64], domain: &[usize]) -> bool {
    let along = (0..strides.len()).rev().filter(|&d| strides[d] != 0 && domain[d] > 1);
    along.fold((true, 1), |(dense, step), d| (dense && strides[d] == step, step * domain[d] as i64)).0
}

/// Returns whether a map reads strided matrices over groups of batch axes, rows and columns: it is affine, and reads
/// the axes of rows as one axis, and those of columns as one axis.
pub fn is_of_matrices(map: &Index, domain: &[usize], groups: [usize; 3]) -> bool {
    let Some(strides) = map.affine(domain.len()) else { return false };
    let pairs = |from: usize, axes: usize| (from + 1..from + axes).map(|inner| (inner - 1, inner));
    let [batch, rows, columns] = groups;
    pairs(batch, rows)
        .chain(pairs(batch + rows, columns))
        .all(|(outer, inner)| strides[outer] == strides[inner] * domain[inner] as i64)
}

/// Returns whether a guard restricts at most one coordinate. If all guards do, they hold in a box of the domain, and
/// the box can be copied as a whole.
pub fn is_of_box((index, _): &Guard) -> bool {
    matches!(index.terms.as_slice(), [] | [(Atom::Coord(_), _)])
}

/// Returns the number of consecutive points at which a guard's map keeps its value: the points of the axes after the
/// last one that the map mentions. Returns `usize::MAX` if the map mentions no axis.
pub fn inside((index, _): &Guard, domain: &[usize]) -> usize {
    let axis = (0..domain.len()).rev().find(|&axis| index.mentions(axis));
    axis.map_or(usize::MAX, |axis| domain[axis + 1..].iter().product())
}

/// Returns the number of elements that a map reads contiguously before it jumps, along the axes on which it depends.
/// Returns `None` if neighbours are not contiguous.
pub fn line(index: &Index, domain: &[usize]) -> Option<f64> {
    let inner = domain.len().checked_sub(1)?;
    if let Some(strides) = index.affine(domain.len()) {
        let mut line = 1;
        for (&stride, &extent) in strides.iter().zip(domain).rev().filter(|(s, n)| **s != 0 && **n > 1) {
            if stride != line {
                return (line > 1).then_some(line as f64);
            }
            line *= extent as i64;
        }
        return Some(line as f64);
    }
    let fastest = |atom: &Atom| match atom {
        Atom::Coord(n) => *n == inner,
        Atom::Mod(i, _) => matches!(i.terms.as_slice(), [(Atom::Coord(n), 1)] if *n == inner),
        _ => false,
    };
    let along = index.terms.iter().find(|(atom, _)| fastest(atom));
    along.is_none_or(|(_, stride)| *stride == 1).then(|| run_length(index, domain))
}

/// Returns the number of consecutive points along the innermost axis over which a map is affine. A quotient or
/// remainder ends such a sequence where it steps or wraps.
pub fn run_length(index: &Index, domain: &[usize]) -> f64 {
    let Some(inner) = domain.len().checked_sub(1) else { return 1.0 };
    // Returns the number of points along the axis after which the index changes.
    fn slowness(index: &Index, inner: usize) -> i64 {
        let of = |atom: &Atom| match atom {
            Atom::Div(i, by) if mentioned(i) >> inner & 1 == 1 => slowness(i, inner).saturating_mul(*by),
            Atom::Mod(i, _) if mentioned(i) >> inner & 1 == 1 => slowness(i, inner),
            Atom::Coord(n) if *n == inner => 1,
            _ => i64::MAX,
        };
        index.terms.iter().map(|(atom, _)| of(atom)).min().unwrap_or(i64::MAX)
    }
    fn shortest(index: &Index, inner: usize) -> i64 {
        index.terms.iter().fold(i64::MAX, |run, (atom, _)| match atom {
            Atom::Div(i, by) | Atom::Mod(i, by) if mentioned(i) >> inner & 1 == 1 => {
                run.min(slowness(i, inner).saturating_mul(*by)).min(shortest(i, inner))
            }
            _ => run,
        })
    }
    shortest(index, inner).min(domain[inner] as i64).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_as_long_as_what_lies_between_two_cuts() {
        // Windows of 3 × 3 × 64 elements at 15 × 15 positions of an image: (k/64)%3 changes every 64 elements.
        let domain = [225, 576];
        let k = Index::coord(1);
        let column = k.div(64, &domain).modulo(3, &domain);
        let at = k.div(192, &domain).times(960).plus(&column.times(64)).plus(&k.modulo(64, &domain));
        assert_eq!(line(&at, &domain), Some(64.0));
        assert_eq!(line(&k.times(3), &domain), None);
    }

    #[test]
    fn points_are_apart_along_axes_that_places_tell() {
        // Points [p, m, q] of a domain 2 × 9 × 4 write element [p, id, q] of a buffer 2 × N × 4.
        let domain = [2, 9, 4];
        let store = |below: i64, [unit_of_p, unit_of_id]: [i64; 2]| {
            let id = Index::atom(Atom::Value(0));
            let at = Index::coord(0).times(unit_of_p).plus(&id.times(unit_of_id)).plus(&Index::coord(2));
            Store { guards: vec![(id, 0..below)], writes: Writes::InOrder, ..Store::new(1, at, 1) }
        };
        assert_eq!(together(&store(5, [20, 4]), &domain), 0b010);
        // Id 5 writes the first elements of the next p.
        assert_eq!(together(&store(6, [20, 4]), &domain), 0b111);
        // The elements of two ids overlap.
        assert_eq!(together(&store(5, [20, 3]), &domain), 0b111);
        assert_eq!(together(&Store { guards: Vec::new(), ..store(5, [20, 4]) }, &domain), 0b111);
        assert_eq!(together(&Store { writes: Writes::Apart, ..store(6, [20, 4]) }, &domain), 0);
    }

    #[test]
    fn a_guard_holds_for_as_many_points_as_are_counted() {
        let domain = [5, 3, 14];
        let at = |strides: [i64; 3], constant| {
            (0..3).fold(Index::constant(constant), |sum, d| sum.plus(&Index::coord(d).times(strides[d])))
        };
        for strides in [[14, 0, 1], [0, 0, 3], [0, 0, -2], [-14, 0, -1], [7, 2, 5], [0, 0, 0], [1, 0, 0]] {
            for (constant, range) in [(0, 0..64), (3, 5..11), (20, -3..9), (0, 8..8), (-5, -100..100)] {
                let index = at(strides, constant);
                let points = (0..210).map(|n| [n / 42, n / 14 % 3, n % 14]);
                let count = points.filter(|point| range.contains(&index.eval(point, &|_| 0))).count();
                let got = held(&(index.clone(), range.clone()), &domain);
                assert!((got - count as f64 / 210.0).abs() < 1e-12, "{index} in {range:?}: {got}, {count} of 210");
            }
        }
    }
}
