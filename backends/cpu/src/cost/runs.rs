//! What index maps take that are worked out in runs: a walk evaluates each map once for as long as all of them are affine.

use eutectic_backend::reach::{AxisSet, mentioned, points};
use eutectic_ir::index::{Atom, Index};

/// How often maps that go together are evaluated on a walk over the axes of `mask`, each division, remainder and value that is read
/// counted as one more. `masks` says on which axes values depend.
pub fn evaluations<'a>(
    maps: impl Iterator<Item = &'a Index> + Clone,
    domain: &[usize],
    mask: AxisSet,
    masks: &[AxisSet],
) -> f64 {
    let inner = (0..domain.len()).rev().find(|axis| mask >> axis & 1 == 1);
    let length = inner.map_or(1.0, |axis| {
        let shortest = maps.clone().map(|map| length(map, axis, masks)).fold(f64::INFINITY, f64::min);
        shortest.min(domain[axis] as f64).max(1.0)
    });
    let each: f64 = maps.map(|map| 1.0 + cuts(map)).sum();
    points(domain, mask) / length * each.max(1.0)
}

/// For how many steps along an axis a map stays affine.
fn length(map: &Index, axis: usize, masks: &[AxisSet]) -> f64 {
    let of = |atom: &Atom| match atom {
        Atom::Div(inner, by) | Atom::Mod(inner, by) if mentioned(inner) >> axis & 1 == 1 => {
            let (speed, by) = (speed(inner, axis), *by as f64);
            // Steps of whole multiples never cross a boundary in between.
            let own = if speed % by == 0.0 { f64::INFINITY } else { (by / speed).max(1.0) };
            own.min(length(inner, axis, masks))
        }
        Atom::Div(inner, _) | Atom::Mod(inner, _) => length(inner, axis, masks),
        Atom::Value(value) if masks.get(*value).is_some_and(|mask| mask >> axis & 1 == 1) => 1.0,
        Atom::Value(_) | Atom::Coord(_) | Atom::Extent(_) => f64::INFINITY,
    };
    map.terms.iter().map(|(atom, _)| of(atom)).fold(f64::INFINITY, f64::min)
}

/// By how much a map moves with a step along an axis.
fn speed(map: &Index, axis: usize) -> f64 {
    let of = |atom: &Atom| match atom {
        Atom::Coord(n) if *n == axis => 1.0,
        Atom::Div(inner, by) => speed(inner, axis) / *by as f64,
        Atom::Mod(inner, _) => speed(inner, axis),
        Atom::Coord(_) | Atom::Value(_) | Atom::Extent(_) => 0.0,
    };
    map.terms.iter().map(|(atom, factor)| of(atom) * factor.abs() as f64).sum()
}

/// How many divisions, remainders and values a map has.
fn cuts(map: &Index) -> f64 {
    let of = |atom: &Atom| match atom {
        Atom::Div(inner, _) | Atom::Mod(inner, _) => 1.0 + cuts(inner),
        Atom::Value(_) => 1.0,
        Atom::Coord(_) | Atom::Extent(_) => 0.0,
    };
    map.terms.iter().map(|(atom, _)| of(atom)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(map: &Index, domain: &[usize], masks: &[AxisSet]) -> f64 {
        evaluations([map].into_iter(), domain, 0b11, masks)
    }

    #[test]
    fn a_walk_evaluates_maps_where_divisions_and_values_change() {
        // Windows [15 15 | 3 3 64] of an image: (k/64)%3 changes with every 64 elements.
        let domain = [225, 576];
        let k = Index::coord(1);
        let column = k.div(64, &domain).modulo(3, &domain);
        let at = k.div(192, &domain).times(960).plus(&column.times(64)).plus(&k.modulo(64, &domain));
        assert_eq!(count(&at, &domain, &[]), 225.0 * 9.0 * 5.0);
        // Nearest upsampling: each element is there twice.
        assert_eq!(count(&k.div(2, &domain), &domain, &[]), 225.0 * 288.0 * 2.0);
        // A row of a table for each row, and an element of a row for each column.
        let indirect = Index::atom(Atom::Value(0)).times(576);
        assert_eq!(count(&indirect.plus(&k), &domain, &[0b01]), 225.0 * 2.0);
        assert_eq!(count(&indirect.plus(&k), &domain, &[0b11]), 225.0 * 576.0 * 2.0);
    }
}
