//! Inverts index maps that are bijections.

use std::borrow::Cow;

use eutectic_backend::axes::{AxisSplit, places_to_split};
use eutectic_ir::{
    Dim, Shape,
    index::{Atom, Index, same_places},
};

/// A domain whose axes were split, with the old coordinates in terms of the new ones.
struct Refined {
    /// Extents of the new domain.
    domain: Vec<usize>,
    /// Each old coordinate as a map over the new domain.
    coords: Vec<Index>,
    /// For each new axis, the old axis that it is part of.
    part_of: Vec<usize>,
}

impl Refined {
    /// Rewrites a map over the old domain as a map over the new domain.
    fn map<'m>(&self, map: &'m Index) -> Cow<'m, Index> {
        if self.is_same() {
            return Cow::Borrowed(map);
        }
        Cow::Owned(map.substitute(&self.coords, &|v| Index::atom(Atom::Value(v)), &self.domain))
    }

    /// Returns whether no axis was split.
    fn is_same(&self) -> bool {
        self.domain.len() == self.coords.len()
    }
}

/// Splits axes wherever a map divides a single coordinate by a divisor of its axis.
fn refine<'a>(maps: impl Iterator<Item = &'a Index> + Clone, domain: &[usize]) -> Refined {
    let mut refined = Refined {
        domain: domain.to_vec(),
        coords: (0..domain.len()).map(Index::coord).collect(),
        part_of: (0..domain.len()).collect(),
    };
    // Each round only reduces extents, so the loop ends. Views of real models need at most two rounds.
    loop {
        let mut places = Vec::new();
        maps.clone().for_each(|map| places_to_split(&refined.map(map), &refined.domain, &mut places));
        let Some(&AxisSplit { axis, by }) = places.first() else { return refined };
        let outer = refined.domain[axis] / by;
        refined.domain.splice(axis..=axis, [outer, by]);
        let owner = refined.part_of[axis];
        refined.part_of.insert(axis, owner);
        let renamed: Vec<_> = (0..refined.domain.len() - 1)
            .map(|i| match i.cmp(&axis) {
                std::cmp::Ordering::Less => Index::coord(i),
                std::cmp::Ordering::Equal => Index::coord(axis).times(by as i64).plus(&Index::coord(axis + 1)),
                std::cmp::Ordering::Greater => Index::coord(i + 1),
            })
            .collect();
        for coord in &mut refined.coords {
            *coord = coord.substitute(&renamed, &|v| Index::atom(Atom::Value(v)), &refined.domain);
        }
    }
}

/// Inverts `at`, a map from a domain of extents `from` to coordinates in extents `to`.
///
/// The result gives each coordinate of `from` over the domain `to`. With `row`, the domain has one more axis of `row`
/// elements. This axis runs in row-major order over the axes of `from` that do not occur in `at`. Returns `None` if
/// `at` is not such a bijection, or if the simplifier cannot tell.
pub(crate) fn invert(at: &[Index], from: &[usize], to: &[usize], row: Option<usize>) -> Option<Vec<Index>> {
    if at.len() != to.len() {
        // The map belongs to another anchor or reduction.
        return None;
    }
    if to.contains(&0) {
        // An empty domain has no point to place.
        return from.contains(&0).then(|| vec![Index::default(); from.len()]);
    }
    let refined = refine(at.iter(), from);
    let strides: Vec<Vec<i64>> = at
        .iter()
        .map(|map| {
            let map = refined.map(map);
            (map.constant == 0).then(|| map.affine(refined.domain.len()))?
        })
        .collect::<Option<_>>()?;
    let mut domain = to.to_vec();
    domain.extend(row);
    let mut coords: Vec<Index> = vec![Index::default(); refined.domain.len()];
    let mut rest = 1;
    for axis in (0..refined.domain.len()).rev().filter(|&a| refined.domain[a] > 1) {
        let extent = refined.domain[axis];
        let used: Vec<usize> = (0..to.len()).filter(|&i| strides[i][axis] != 0).collect();
        let (target, stride) = match used.as_slice() {
            [] => {
                rest *= extent;
                (to.len(), (rest / extent) as i64)
            }
            [i] => (*i, strides[*i][axis]),
            _ => return None,
        };
        if target >= domain.len() || stride < 1 {
            return None;
        }
        coords[axis] = Index::coord(target).div(stride, &domain).modulo(extent as i64, &domain);
    }
    let covered = (0..to.len()).all(|i| {
        let mut radix: Vec<(i64, usize)> = strides[i]
            .iter()
            .zip(&refined.domain)
            .filter(|(s, d)| **s != 0 && **d > 1)
            .map(|(s, d)| (*s, *d))
            .collect();
        radix.sort_unstable();
        let end = radix.iter().try_fold(1, |next, (stride, extent)| (*stride == next).then(|| next * *extent as i64));
        end == Some(to[i] as i64)
    });
    // `rest` is 1 if the value is constant along the row: then no axis of `from` runs along the row.
    if !covered || (rest != 1 && Some(rest) != row) {
        return None;
    }
    let renamed = &coords;
    let mut result = vec![Index::default(); from.len()];
    let mut stride = vec![1_i64; from.len()];
    for axis in (0..refined.domain.len()).rev() {
        let owner = refined.part_of[axis];
        result[owner] = result[owner].plus(&renamed[axis].times(stride[owner]));
        stride[owner] *= refined.domain[axis] as i64;
    }
    Some(result)
}

/// Returns whether an affine offset into a tensor visits each element exactly once, at every length of the extents that
/// vary. Axes that the offset does not depend on must be the `row`: a value that is constant along a row is visited
/// once, even if the row is empty.
pub(crate) fn is_bijection(offset: &Index, domain: &Shape, row: Option<usize>, tensor: &Shape) -> bool {
    let (Some(most), Some(count)) = (domain.capacity(), tensor.capacity()) else { return false };
    let count: usize = count.into_iter().product();
    if count == 0 {
        return most.contains(&0);
    }
    let refined = refine(std::iter::once(offset), &most);
    let offset = refined.map(offset);
    let Some(strides) = offset.affine(refined.domain.len()) else { return false };
    let mut radix: Vec<(i64, usize)> =
        strides.iter().copied().zip(refined.domain.iter().copied()).filter(|(s, d)| *s != 0 && *d > 1).collect();
    radix.sort_unstable();
    let end = radix.iter().try_fold(1_i64, |next, (stride, d)| (*stride == next).then(|| next * *d as i64));
    offset.constant == 0 && end == i64::try_from(count).ok() && covers(&refined, &strides, domain, row, tensor)
}

/// Returns whether the offset is a bijection onto the tensor at every length, given that it is one at the maximal
/// lengths.
fn covers(refined: &Refined, strides: &[i64], domain: &Shape, row: Option<usize>, tensor: &Shape) -> bool {
    if !domain.varies() && !tensor.varies() {
        return true;
    }
    let mut axes: Vec<(i64, usize, Dim)> = Vec::new();
    for (axis, dim) in domain.iter().enumerate() {
        let parts: Vec<usize> = (0..refined.domain.len()).filter(|&part| refined.part_of[part] == axis).collect();
        // If an axis was split, only its outermost part has an extent that varies.
        let inner = parts.iter().skip(1).map(|&part| refined.domain[part]).product::<usize>();
        let Some(outer) = dim.checked_div(&Dim::from(inner)) else { return false };
        for (n, &part) in parts.iter().enumerate() {
            let length = if n == 0 { outer.clone() } else { Dim::from(refined.domain[part]) };
            match (strides[part], length) {
                (_, Dim::Known(1)) => {}
                // An axis of at most one point has no stride.
                (0, length) if length.varies() && length.capacity() == Some(1) => axes.push((1, part, length)),
                (0, length) if length.varies() && row != Some(axis) => return false,
                (0, _) => {}
                (stride, length) => axes.push((stride, part, length)),
            }
        }
    }
    axes.sort_by_key(|(stride, part, _)| (std::cmp::Reverse(*stride), *part));
    same_places(&axes.into_iter().map(|(_, _, length)| length).collect(), tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eutectic_ir::index::{flatten, unflatten};

    #[test]
    fn merged_heads_invert() {
        // out[s, h·32 + d] reads attention[h, s, d]: 12 heads of 32.
        let from = [128, 384];
        let at = [Index::coord(1).div(32, &from), Index::coord(0), Index::coord(1).modulo(32, &from)];
        let inverse = invert(&at, &from, &[12, 128, 32], None).unwrap();
        assert_eq!(inverse[0], Index::coord(1));
        assert_eq!(inverse[1], Index::coord(0).times(32).plus(&Index::coord(2)));
    }

    #[test]
    fn the_map_of_another_anchor_has_no_inverse() {
        assert_eq!(invert(&[Index::coord(0)], &[4], &[4, 1], None), None);
    }

    #[test]
    fn windows_invert_to_a_quasi_affine_map() {
        // Windows [2 3 5] of an image [6 5], read as [2 15].
        let from = [6, 5];
        let flat = flatten(&[Index::coord(0), Index::coord(1)], &from);
        let at = unflatten(&flat, &[2, 15], &from);
        let inverse = invert(&at, &from, &[2, 15], None).unwrap();
        let domain = [2, 15];
        for p in 0..30 {
            let point = [p / 15, p % 15];
            assert_eq!(flatten(&inverse, &from).eval(&point, &|_| 0), p as i64, "{domain:?}");
        }
    }

    #[test]
    fn rows_get_an_axis_of_their_own() {
        // x[i, j] depends on the mean of row i. Rows have 7 elements.
        let inverse = invert(&[Index::coord(0)], &[4, 7], &[4], Some(7)).unwrap();
        assert_eq!(inverse, [Index::coord(0), Index::coord(1)]);
        assert!(invert(&[Index::coord(0)], &[4, 7], &[4], Some(8)).is_none());
        assert!(invert(&[Index::coord(0).plus(&Index::coord(1))], &[4, 7], &[10], None).is_none());
    }
}
