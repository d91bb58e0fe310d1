//! Measures the lengths of contiguous elements that loads and guarded boxes have.

use eutectic_backend::{
    Body, Guard,
    reach::{AxisSet, inside, mentioned, run_length},
};
use eutectic_ir::index::{Atom, Index};

/// The minimal extent of an axis for which copies transpose squares in registers.
pub(super) const SQUARE: usize = 8;

/// Returns the number of consecutive points of a domain at which a guard holds.
pub(super) fn box_line(guard: &Guard, domain: &[usize]) -> usize {
    let axis = (0..domain.len()).rev().find(|&axis| guard.0.mentions(axis));
    let long = usize::try_from(guard.1.end - guard.1.start).unwrap_or(0);
    axis.map_or(usize::MAX, |axis| long.min(domain[axis]).saturating_mul(inside(guard, domain)))
}

/// Returns the number of consecutive points along the innermost axis over which a map is affine; 1 if it mentions an
/// integer that varies along this axis.
pub(super) fn run(index: &Index, body: &Body, masks: &[AxisSet]) -> f64 {
    let inner = body.domain.len().saturating_sub(1);
    let read = index.values().iter().any(|&value| masks[value] >> inner & 1 == 1);
    if read { 1.0 } else { run_length(index, &body.domain) }
}

/// Returns the axes on which a map depends, including the axes on which integers in the map depend.
pub(super) fn reads(index: &Index, masks: &[AxisSet]) -> AxisSet {
    index.values().iter().fold(mentioned(index), |axes, &value| axes | masks[value])
}

/// Returns the axes along which a map is not affine: the axes of its divisions, and those of integers in the map.
pub(super) fn cut_by(index: &Index, masks: &[AxisSet]) -> AxisSet {
    let of = |atom: &Atom| match atom {
        Atom::Coord(_) | Atom::Extent(_) => 0,
        Atom::Div(inner, _) | Atom::Mod(inner, _) => reads(inner, masks),
        Atom::Value(value) => masks[*value],
    };
    index.terms.iter().fold(0, |axes, (atom, _)| axes | of(atom))
}

/// Returns the sum of those terms of a map that are coordinates.
pub(super) fn coordinates(index: &Index) -> Index {
    let terms = index.terms.iter().filter(|(atom, _)| matches!(atom, Atom::Coord(_)));
    Index { constant: 0, terms: terms.cloned().collect() }
}
