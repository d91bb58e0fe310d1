//! Index maps: integer functions of coordinates, which are simplified to a normal form as they are built.
//!
//! A view (transpose, reshape, slice, …) does no arithmetic on elements. It only determines where an element is read.
//! Two views are composed by substituting one map into the other. Affine views keep a map a linear combination.
//! Reshapes add floor division and remainder, which vanish if the range of their operand shows that they have no
//! effect.

mod places;
mod text;

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

pub use self::places::{flatten, same_places, strides, unflatten};
use crate::{Dim, Symbol};

/// A sum `constant + Σ coefficient · atom`. The atoms are sorted and distinct, and no coefficient is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Index {
    /// The terms. Most maps have one; maps of views that split or merge axes have two.
    pub terms: SmallVec<[(Atom, i64); 2]>,
    /// The constant.
    pub constant: i64,
}

/// The atoms of a linear combination.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Atom {
    /// The coordinate along axis `n` of the iteration domain.
    Coord(usize),
    /// ⌊index / divisor⌋, divisor > 0.
    Div(Box<Index>, i64),
    /// index mod divisor in `0..divisor`, divisor > 0.
    Mod(Box<Index>, i64),
    /// An integer that is read from a tensor. The holder of the map numbers these integers.
    Value(usize),
    /// A product of extents at run time. It is constant within a run, and may differ between runs.
    Extent(Dim),
}

/// The range of values without known bounds. It is wider than that of any coordinate or extent, and sums of such
/// bounds do not overflow.
pub const ANYTHING: Range<i64> = -(1 << 40)..1 << 40;

impl Index {
    /// Returns the constant `n`.
    pub fn constant(n: i64) -> Index {
        Index { terms: SmallVec::new(), constant: n }
    }

    /// Returns the coordinate along axis `n`.
    pub fn coord(n: usize) -> Index {
        Index::atom(Atom::Coord(n))
    }

    /// Returns a dimension whose symbols are all extents at run time.
    pub fn extent(dim: &Dim) -> Index {
        let (terms, constant) = dim.split_constant();
        let sum = |sum: Index, (product, c)| sum.plus_times(&Index::atom(Atom::Extent(product)), c);
        terms.into_iter().fold(Index::constant(constant), sum)
    }

    /// Returns the map that consists of one atom.
    pub fn atom(atom: Atom) -> Index {
        Index { terms: smallvec![(atom, 1)], constant: 0 }
    }

    /// Returns the sum.
    pub fn plus(&self, other: &Index) -> Index {
        self.clone().plus_times(other, 1)
    }

    /// Returns self + factor · other.
    fn plus_times(mut self, other: &Index, factor: i64) -> Index {
        self.constant += other.constant * factor;
        if other.terms.is_empty() || factor == 0 {
            return self;
        }
        for (atom, c) in &other.terms {
            match self.terms.binary_search_by(|(a, _)| a.cmp(atom)) {
                Ok(at) => self.terms[at].1 += c * factor,
                Err(at) => self.terms.insert(at, (atom.clone(), c * factor)),
            }
        }
        self.terms.retain(|(_, c)| *c != 0);
        self.rejoin()
    }

    /// Applies n · ⌊x/n⌋ + x mod n = x if both terms occur. So merging an axis that was split restores its
    /// coordinate.
    fn rejoin(mut self) -> Index {
        let halves = self.terms.iter().enumerate().find_map(|(i, (atom, c))| {
            let Atom::Mod(x, n) = atom else { return None };
            let j = self.terms.iter().position(|(a, d)| *d == c * n && x.is_div_atom(*n, a))?;
            Some((i, j, x.times(*c)))
        });
        match halves {
            None => self,
            Some((i, j, x)) => {
                self.terms.remove(i.max(j));
                self.terms.remove(i.min(j));
                self.plus(&x)
            }
        }
    }

    /// Returns whether `atom` is the normal form of ⌊self / by⌋.
    fn is_div_atom(&self, by: i64, atom: &Atom) -> bool {
        let Atom::Div(of, whole) = atom else { return false };
        match (self.terms.as_slice(), self.constant) {
            ([(Atom::Div(inner, a), 1)], 0) => of == inner && *whole == a * by,
            _ => **of == *self && *whole == by,
        }
    }

    /// Returns the product with a number.
    pub fn times(&self, factor: i64) -> Index {
        if factor == 0 {
            return Index::default();
        }
        Index {
            terms: self.terms.iter().map(|(a, c)| (a.clone(), c * factor)).collect(),
            constant: self.constant * factor,
        }
    }

    /// Returns the range `start..end` of the map's values over a domain. Values that are read from tensors are
    /// unbounded.
    pub fn range(&self, domain: &[usize]) -> Range<i64> {
        self.bounds(&|n| 0..(domain[n] as i64).max(1))
    }

    /// Returns the range of the map's values if each coordinate is in a non-empty range `start..end`.
    pub fn bounds(&self, coord: &dyn Fn(usize) -> Range<i64>) -> Range<i64> {
        Index::sum_bounds(self.constant, self.terms.iter(), coord, &|inner| inner.bounds(coord))
    }

    /// Returns the range of a sum of terms and a constant, as [`Index::bounds`] does. `within` gives the ranges of
    /// the operands of divisions and remainders.
    fn sum_bounds<'a>(
        constant: i64,
        terms: impl Iterator<Item = &'a (Atom, i64)>,
        coord: &dyn Fn(usize) -> Range<i64>,
        within: &dyn Fn(&Index) -> Range<i64>,
    ) -> Range<i64> {
        let (mut low, mut high) = (constant, constant);
        for (atom, c) in terms {
            let r = match atom {
                Atom::Coord(n) => coord(*n),
                Atom::Mod(inner, by) => {
                    let r = within(inner);
                    let steps = r.start.div_euclid(*by);
                    match (r.end - 1).div_euclid(*by) == steps {
                        true => r.start - steps * by..r.end - steps * by,
                        false => 0..*by,
                    }
                }
                Atom::Div(inner, by) => {
                    let r = within(inner);
                    r.start.div_euclid(*by)..(r.end - 1).div_euclid(*by) + 1
                }
                Atom::Value(_) => ANYTHING,
                Atom::Extent(dim) => dim.range().map_or(ANYTHING, |(least, most)| least..most + 1),
            };
            let ends = [c * r.start, c * (r.end - 1)];
            low += ends[0].min(ends[1]);
            high += ends[0].max(ends[1]);
        }
        low..high + 1
    }

    /// Returns the number c such that this map contains every term of c · `other`. Ignores the constant of `other`.
    fn times_of(&self, other: &Index) -> Option<i64> {
        let coefficient =
            |atom: &Atom| self.terms.binary_search_by(|(a, _)| a.cmp(atom)).ok().map(|at| self.terms[at].1);
        let (first, c) = other.terms.first()?;
        let times = coefficient(first).filter(|own| own % c == 0)? / c;
        other.terms.iter().all(|(atom, c)| coefficient(atom) == Some(times * c)).then_some(times)
    }

    /// Returns the sum of the terms whose coefficients `by` divides, divided by `by`. The constant is divided with
    /// rounding down.
    fn whole(&self, by: i64) -> Index {
        let terms = self.terms.iter().filter(|(_, c)| c % by == 0);
        Index { terms: terms.map(|(a, c)| (a.clone(), c / by)).collect(), constant: self.constant.div_euclid(by) }
    }

    /// Returns the sum of the terms whose coefficients `by` does not divide, and the constant's remainder.
    fn rest(&self, by: i64) -> Index {
        let terms = self.terms.iter().filter(|(_, c)| c % by != 0);
        Index { terms: terms.cloned().collect(), constant: self.constant.rem_euclid(by) }
    }

    /// Returns the range of [`Index::rest`].
    fn rest_range(&self, by: i64, known: &Known<'_>) -> Range<i64> {
        if !known.guards.is_empty() {
            return known.range(&self.rest(by));
        }
        let terms = self.terms.iter().filter(|(_, c)| c % by != 0);
        let coord = |n| known.coord(n);
        Index::sum_bounds(self.constant.rem_euclid(by), terms, &coord, &|inner| inner.bounds(&coord))
    }

    /// Returns a proper divisor `g` of `by` and a number `n`. They satisfy self = g·x + y, where y is always in
    /// `g·n..g·(n + 1)`.
    fn factor(&self, by: i64, known: &Known<'_>) -> Option<(i64, i64)> {
        self.terms.iter().map(|(_, c)| gcd(c.abs(), by)).find_map(|g| {
            let r = if g > 1 && g < by { self.rest_range(g, known) } else { return None };
            let n = r.start.div_euclid(g);
            ((r.end - 1).div_euclid(g) == n).then_some((g, n))
        })
    }

    /// Returns ⌊self / by⌋ over a domain. `by` is positive, or 0 if it is the extent of an empty axis.
    pub fn div(&self, by: i64, domain: &[usize]) -> Index {
        self.div_where(by, &Known { domain, guards: &[] })
    }

    fn div_where(&self, by: i64, known: &Known<'_>) -> Index {
        if by <= 1 {
            return self.clone();
        }
        let whole = self.whole(by);
        let r = self.rest_range(by, known);
        let steps = r.start.div_euclid(by);
        if steps == (r.end - 1).div_euclid(by) {
            return whole.plus(&Index::constant(steps));
        }
        let rest = self.rest(by);
        // ⌊(g·x + y) / (g·n)⌋ = ⌊x/n⌋ for y in 0..g
        if let Some((g, steps)) = rest.factor(by, known) {
            return whole.plus(&rest.whole(g).plus(&Index::constant(steps)).div_where(by / g, known));
        }
        // ⌊⌊x/a⌋/b⌋ = ⌊x/(ab)⌋
        if let ([(Atom::Div(inner, a), 1)], 0) = (rest.terms.as_slice(), rest.constant) {
            return whole.plus(&inner.div_where(a * by, known));
        }
        whole.plus(&Index::atom(Atom::Div(Box::new(rest), by)))
    }

    /// Returns self mod by, in `0..by`, over a domain. `by` may be 0 as for [`Index::div`].
    pub fn modulo(&self, by: i64, domain: &[usize]) -> Index {
        self.modulo_where(by, &Known { domain, guards: &[] })
    }

    fn modulo_where(&self, by: i64, known: &Known<'_>) -> Index {
        if by <= 1 {
            return Index::default();
        }
        let rest = self.rest(by);
        let r = known.range(&rest);
        let steps = r.start.div_euclid(by);
        if steps == (r.end - 1).div_euclid(by) {
            return rest.plus(&Index::constant(-steps * by));
        }
        // (g·x + y) mod (g·n) = g·(x mod n) + y for y in 0..g
        if let Some((g, steps)) = rest.factor(by, known) {
            let (x, y) = (rest.whole(g).plus(&Index::constant(steps)), rest.rest(g).plus(&Index::constant(-steps * g)));
            return x.modulo_where(by / g, known).times(g).plus(&y);
        }
        // (x mod ab) mod b = x mod b
        if let ([(Atom::Mod(inner, a), 1)], 0) = (rest.terms.as_slice(), rest.constant)
            && a % by == 0
        {
            return inner.modulo_where(by, known);
        }
        Index::atom(Atom::Mod(Box::new(rest), by))
    }

    /// Replaces coordinate `n` by `at[n]`, a map over `domain`, and value `n` by `values(n)`.
    pub fn substitute(&self, at: &[Index], values: &dyn Fn(usize) -> Index, domain: &[usize]) -> Index {
        let known = Known { domain, guards: &[] };
        self.replace(&|n| at[n].clone(), values, &|dim| Index::atom(Atom::Extent(dim.clone())), &known)
    }

    /// Returns a simpler map that is equal at points of a domain where each guard's map is in its range. Elsewhere it
    /// may have any value: a load of a padded image is masked in the padding, so its address does not matter.
    pub fn under(&self, guards: &[(Index, Range<i64>)], domain: &[usize]) -> Index {
        let (value, extent) = (|v| Index::atom(Atom::Value(v)), |dim: &Dim| Index::atom(Atom::Extent(dim.clone())));
        self.replace(&Index::coord, &value, &extent, &Known { domain, guards })
    }

    /// Replaces extents at run time by the lengths that `value` returns for the names of their symbols. `domain` has
    /// these lengths too.
    pub fn bind(&self, value: &dyn Fn(&str) -> Option<Dim>, domain: &[usize]) -> Index {
        let stays = |n| Index::atom(Atom::Value(n));
        let known = Known { domain, guards: &[] };
        self.replace(&Index::coord, &stays, &|dim| Index::extent(&dim.bind(value)), &known)
    }

    fn replace(
        &self,
        coord: &dyn Fn(usize) -> Index,
        values: &dyn Fn(usize) -> Index,
        extent: &dyn Fn(&Dim) -> Index,
        known: &Known<'_>,
    ) -> Index {
        self.terms.iter().fold(Index::constant(self.constant), |sum, (atom, c)| match atom {
            Atom::Coord(n) => sum.plus_times(&coord(*n), *c),
            Atom::Div(inner, by) => {
                sum.plus_times(&inner.replace(coord, values, extent, known).div_where(*by, known), *c)
            }
            Atom::Mod(inner, by) => {
                sum.plus_times(&inner.replace(coord, values, extent, known).modulo_where(*by, known), *c)
            }
            Atom::Value(n) => sum.plus_times(&values(*n), *c),
            Atom::Extent(dim) => sum.plus_times(&extent(dim), *c),
        })
    }

    /// Returns whether the map contains an extent at run time, so that it differs between runs.
    pub fn varies(&self) -> bool {
        self.terms.iter().any(|(atom, _)| match atom {
            Atom::Extent(_) => true,
            Atom::Div(inner, _) | Atom::Mod(inner, _) => inner.varies(),
            Atom::Coord(_) | Atom::Value(_) => false,
        })
    }

    /// Returns the extents at run time in the map.
    pub fn symbols(&self) -> Vec<Symbol> {
        let of = |atom: &Atom| match atom {
            Atom::Extent(dim) => dim.symbols(),
            Atom::Div(inner, _) | Atom::Mod(inner, _) => inner.symbols(),
            Atom::Coord(_) | Atom::Value(_) => Vec::new(),
        };
        self.terms.iter().flat_map(|(atom, _)| of(atom)).collect()
    }

    /// Returns the stride along each axis of a domain of `rank` axes, if the map is affine.
    pub fn affine(&self, rank: usize) -> Option<Vec<i64>> {
        let mut strides = vec![0; rank];
        for (atom, c) in &self.terms {
            match atom {
                Atom::Coord(n) => strides[*n] += c,
                _ => return None,
            }
        }
        Some(strides)
    }

    /// Returns whether the map depends on the coordinate of an axis.
    pub fn mentions(&self, axis: usize) -> bool {
        self.terms.iter().any(|(atom, _)| match atom {
            Atom::Coord(n) => *n == axis,
            Atom::Div(inner, _) | Atom::Mod(inner, _) => inner.mentions(axis),
            Atom::Value(_) | Atom::Extent(_) => false,
        })
    }

    /// Returns the numbers of the values from tensors on which the map depends.
    pub fn values(&self) -> Vec<usize> {
        let of = |atom: &Atom| match atom {
            Atom::Value(n) => vec![*n],
            Atom::Div(inner, _) | Atom::Mod(inner, _) => inner.values(),
            Atom::Coord(_) | Atom::Extent(_) => Vec::new(),
        };
        self.terms.iter().flat_map(|(atom, _)| of(atom)).collect()
    }

    /// Returns the map's value at a point. `values` gives the integers that are read from tensors.
    ///
    /// # Panics
    /// If the map contains an extent at run time.
    pub fn eval(&self, at: &[usize], values: &dyn Fn(usize) -> i64) -> i64 {
        self.terms.iter().fold(self.constant, |sum, (atom, c)| {
            sum + c * match atom {
                Atom::Coord(n) => at[*n] as i64,
                Atom::Div(inner, by) => inner.eval(at, values).div_euclid(*by),
                Atom::Mod(inner, by) => inner.eval(at, values).rem_euclid(*by),
                Atom::Value(n) => values(*n),
                Atom::Extent(dim) => dim.known().expect("extents are bound before a map is evaluated"),
            }
        })
    }
}

/// The facts that simplify a map: the lengths of its domain, and the ranges of some maps (guards).
struct Known<'a> {
    domain: &'a [usize],
    guards: &'a [(Index, Range<i64>)],
}

impl Known<'_> {
    fn coord(&self, axis: usize) -> Range<i64> {
        0..(self.domain[axis] as i64).max(1)
    }

    fn range(&self, of: &Index) -> Range<i64> {
        let bounds = |of: &Index| {
            Index::sum_bounds(of.constant, of.terms.iter(), &|n| self.coord(n), &|inner| self.range(inner))
        };
        let (mut range, mut rest, mut guarded) = (bounds(of), of.clone(), 0..1);
        for (index, of_index) in self.guards {
            if let Some(times) = rest.times_of(index) {
                rest = rest.plus_times(index, -times);
                let ends = [times * of_index.start, times * (of_index.end - 1)];
                guarded = guarded.start + ends[0].min(ends[1])..guarded.end + ends[0].max(ends[1]);
                let rest = bounds(&rest);
                let (start, end) = (rest.start + guarded.start, rest.end + guarded.end - 1);
                range = range.start.max(start)..range.end.min(end);
            }
        }
        range
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_and_split_axes_cancel() {
        // [4 6] -> [24] -> [4 6] is the identity.
        let domain = [4, 6];
        let at = [Index::coord(0), Index::coord(1)];
        let flat = flatten(&at, &[4, 6]);
        assert_eq!(unflatten(&flat, &[4, 6], &domain), at);
        // [4 6] read as [4 2 3]: the inner axes need quotient and remainder of one coordinate.
        let split = unflatten(&flat, &[4, 2, 3], &domain);
        assert_eq!(split[0], Index::coord(0));
        assert_eq!(split[1].to_string(), "(i1)/3");
        assert_eq!(split[2].to_string(), "(i1)%3");
    }

    #[test]
    fn split_axes_rejoin() {
        // [24] -> [4 6] -> [2 2 6] -> [24] is the identity, although one coordinate was divided.
        let domain = [24];
        let at = unflatten(&Index::coord(0), &[4, 6], &domain);
        let at = unflatten(&flatten(&at, &[4, 6]), &[2, 2, 6], &domain);
        assert_eq!(flatten(&at, &[2, 2, 6]), Index::coord(0));
    }

    #[test]
    fn extents_are_numbers_of_known_range() {
        let s = Dim::between("S", 0, 8);
        let index = Index::coord(0).plus(&Index::extent(&(&(&s * &Dim::Known(2)) - &Dim::Known(3))));
        assert_eq!((index.range(&[4]), index.to_string()), (-3..17, "i0+2*S+-3".into()));
        assert!(index.varies() && index.affine(1).is_none());
        let known = &s.bind(&|_| Some(Dim::Known(5))) - &Dim::Known(3);
        assert_eq!(Index::extent(&known), Index::constant(2));
    }

    #[test]
    fn guards_simplify_what_they_hide() {
        // A window of 3 × 3 over an image of 8 × 8 with padding 1. The image is a pixel shuffle of 4 channels of 4 ×
        // 4.
        let domain = [8, 8, 3, 3];
        let [row, column] = [0, 1].map(|n| Index::coord(n).plus(&Index::coord(n + 2)));
        let guards = [(row.clone(), 1..9), (column.clone(), 1..9)];
        let inside = |index: &Index| index.plus(&Index::constant(-1));
        let of_image = unflatten(&flatten(&[inside(&row), inside(&column)], &[8, 8]), &[4, 2, 4, 2], &domain);
        let at = [1, 3, 0, 2].map(|n| of_image[n].clone());
        let map = flatten(&at, &[2, 2, 4, 4]);
        let under = map.under(&guards, &domain);
        assert_eq!(under.to_string(), "4*(i0+i2+1)/2+(i1+i3+1)/2+32*(i0+i2+1)%2+16*(i1+i3+1)%2+-5");
        for p in 0..576_usize {
            let point = [p / 72, p / 9 % 8, p / 3 % 3, p % 3];
            if guards.iter().all(|(index, range)| range.contains(&index.eval(&point, &|_| 0))) {
                assert_eq!(under.eval(&point, &|_| 0), map.eval(&point, &|_| 0), "{point:?}");
            }
        }
    }

    #[test]
    fn simplification_keeps_the_value() {
        let domain = [3, 4, 5];
        let at: Vec<_> = (0..3).map(Index::coord).collect();
        let flat = flatten(&at, &domain).plus(&Index::constant(7));
        for by in [2, 3, 4, 5, 7, 12, 20, 60, 100] {
            let (q, r) = (flat.div(by, &domain), flat.modulo(by, &domain));
            for p in 0..60_usize {
                let point = [p / 20, p / 5 % 4, p % 5];
                let value = p as i64 + 7;
                assert_eq!(q.eval(&point, &|_| 0), value / by);
                assert_eq!(r.eval(&point, &|_| 0), value % by);
            }
        }
    }
}
