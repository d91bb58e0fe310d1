//! The points at which a store writes, and the proof that they write each element once.

use eutectic_backend::{Body, Guard, Store};
use eutectic_ir::index::{ANYTHING, Atom as Part};

use super::memory::extent;
use crate::{
    call::Case,
    facts::{Res, stop},
    term::{Atom, Poly, product},
};

/// A mixed-radix number Σ cₖ·variableₖ whose digits are coordinates. It takes each value of a range exactly once.
struct Digits {
    of: Vec<(u32, i128)>,
    /// The first value.
    first: i128,
    /// The number of values, and an upper bound of this number.
    extent: Poly,
    most: i128,
}

/// The points at which a store writes, as one symbolic point whose coordinates have ranges.
///
/// A guard on a coordinate by constants narrows its range. A guard may also be on a mixed-radix number of coordinates,
/// such as 14·i + j for j < 14. It then narrows the range of that number.
pub struct Points {
    /// The symbolic point.
    pub at: Vec<Poly>,
    /// The guards that narrow no range.
    pub open: Vec<Guard>,
    digits: Vec<Digits>,
}

impl Points {
    /// Returns the points of a body's domain at which all guards may hold.
    pub fn new(case: &Case, body: &Body, guards: &[Guard]) -> Points {
        let mut points = Points { at: Vec::new(), open: Vec::new(), digits: Vec::new() };
        for (axis, most) in body.domain.iter().enumerate() {
            let length = body.lengths.iter().find(|(a, _)| *a == axis).map(|(_, dim)| extent(case, dim));
            let (first, end) = match length {
                None => bounds(axis, *most as i64, guards),
                Some(_) => (0, *most as i64),
            };
            let (first, most) = (i128::from(first), i128::from(end - first));
            let extent = length.unwrap_or_else(|| Poly::int(most));
            case.facts.note(&extent - &Poly::int(1));
            let var = case.facts.index(&extent);
            let own = if extent == Poly::int(1) { Poly::zero() } else { Poly::var(var) };
            points.at.push(&Poly::int(first) + &own);
            points.digits.push(Digits { of: vec![(var, 1)], first: 0, extent, most });
        }
        let vars: Vec<u32> = points.digits.iter().map(|digits| digits.of[0].0).collect();
        for guard in guards {
            let bounds_one = match guard.0.terms.as_slice() {
                [(Part::Coord(axis), 1)] => points.most(vars[*axis]).is_some(),
                _ => false,
            };
            if !bounds_one && !points.join(&vars, guard) {
                points.open.push(guard.clone());
            }
        }
        points
    }

    /// Returns the number of values of a coordinate, if this number is constant and no guard combines the coordinate
    /// with others.
    fn most(&self, var: u32) -> Option<i128> {
        self.digits.iter().find(|d| d.of == [(var, 1)] && d.extent.known().is_some()).map(|d| d.most)
    }

    /// Combines the coordinates of a guard into one mixed-radix number, and narrows its range. Returns `false` if the
    /// coordinates are not the digits of such a number.
    fn join(&mut self, vars: &[u32], (index, range): &Guard) -> bool {
        let digit = |(part, c): &(Part, i64)| match part {
            Part::Coord(axis) => Some((vars[*axis], i128::from(*c), self.at[*axis] == Poly::var(vars[*axis]))),
            _ => None,
        };
        let Some(mut digits) = index.terms.iter().map(digit).collect::<Option<Vec<_>>>() else { return false };
        if digits.is_empty() {
            return false;
        }
        digits.sort_by_key(|(_, c, _)| *c);
        let step = |count: i128, (var, c, from_zero): &(u32, i128, bool)| {
            if *c == count && *from_zero { self.most(*var).map(|most| count * most) } else { None }
        };
        let Some(count) = digits.iter().try_fold(1, step) else { return false };
        let constant = i128::from(index.constant);
        let (start, end) = (i128::from(range.start) - constant, i128::from(range.end) - constant);
        let (first, end) = (start.max(0), end.min(count));
        self.digits.retain(|d| !digits.iter().any(|(var, ..)| d.of == [(*var, 1)]));
        let of = digits.into_iter().map(|(var, c, _)| (var, c)).collect();
        let most = (end - first).max(0);
        self.digits.push(Digits { of, first, extent: Poly::int(most), most });
        true
    }

    /// Returns the number of points.
    pub fn count(&self) -> Poly {
        product(self.digits.iter().map(|digits| &digits.extent))
    }

    /// Returns the row-major number of the point, or `None` if guards combine several coordinates.
    pub fn number(&self) -> Option<Poly> {
        let own = |digits: &Digits| match digits.of.as_slice() {
            [(_, 1)] if digits.extent == Poly::int(1) => Some(Poly::zero()),
            [(var, 1)] => Some(Poly::var(*var)),
            _ => None,
        };
        self.digits.iter().try_fold(Poly::zero(), |n, digits| Some(&(&n * &digits.extent) + &own(digits)?))
    }

    /// Returns the strides of an address in ascending order, each with the number of its values, and the address of the
    /// first point.
    fn strides(&self, place: &Poly) -> Res<(Vec<(i128, i128)>, Poly)> {
        let (mut strides, mut first) = (Vec::new(), place.clone());
        for digits in &self.digits {
            let mut own = None;
            for (var, c) in &digits.of {
                let Some((slope, rest)) = first.linear_in(&Atom::Var(*var)) else {
                    return stop("the map of a store is not linear");
                };
                first = rest;
                // A coordinate that is always 0 adds nothing.
                let slope = if slope == Poly::zero() && digits.most == 1 { continue } else { slope };
                let Some(slope) = slope.known().filter(|slope| slope % c == 0) else {
                    return stop("the strides of a store are not constants");
                };
                if own.is_some_and(|own| own != slope / c) {
                    return stop("the guards of a store bound other numbers than those of its map");
                }
                own = Some(slope / c);
            }
            let Some(own) = own else { continue };
            first = &first + &Poly::int(own * digits.first);
            strides.push((own, digits.most));
        }
        strides.sort_unstable();
        Ok((strides, first))
    }

    /// Proves that each element of a tensor with these extents is written once. In ascending order, each stride must
    /// equal the number of elements that the strides before it reach. Points of one row may share an element if one
    /// value is stored for the row.
    pub fn cover(&self, place: &Poly, room: &[Poly], extents: &[Poly]) -> Res<()> {
        let (strides, first) = self.strides(place)?;
        let moves = |digits: &&Digits| digits.of.iter().any(|(var, _)| place.mentions(*var));
        if product(self.digits.iter().filter(moves).map(|digits| &digits.extent)) != product(extents) {
            return stop("it is undecided whether a store has as many points as elements");
        }
        let mut own = strides.iter().filter(|(stride, _)| *stride != 0);
        let next = own.try_fold(1, |next, (stride, most)| (next == *stride).then_some(next * most));
        match first == Poly::zero() && next.is_some() && next == product(room).known() {
            true => Ok(()),
            false => stop(format!("it is undecided whether a store writes each element once, at the address {place}")),
        }
    }

    /// Returns whether no two points write to one address: in ascending order, each stride is larger than the reach of
    /// all strides before it.
    pub fn are_distinct(&self, place: &Poly) -> Res<bool> {
        let (strides, _) = self.strides(place)?;
        let beyond = |reach, (stride, most): &(i128, i128)| (*stride > reach).then_some(reach + stride * (most - 1));
        Ok(strides.iter().try_fold(0, beyond).is_some())
    }
}

/// Returns the range of coordinates along an axis within the guards.
fn bounds(axis: usize, extent: i64, guards: &[Guard]) -> (i64, i64) {
    let (mut first, mut end) = (0, extent);
    for (index, range) in guards {
        if !matches!(index.terms.as_slice(), [(Part::Coord(of), 1)] if *of == axis) {
            continue;
        }
        if range.start > ANYTHING.start {
            first = first.max(range.start - index.constant);
        }
        if range.end < ANYTHING.end {
            end = end.min(range.end - index.constant);
        }
    }
    (first, end.max(first))
}

/// The effect of a store at a point.
pub struct Write<'a> {
    /// The store.
    pub store: &'a Store,
    /// The points.
    pub points: &'a Points,
    /// The address of the element at the symbolic point.
    pub place: &'a Poly,
    /// Expressions that are at least 0 wherever the store writes.
    pub conditions: &'a [Poly],
    /// The allocated extent of each axis.
    pub room: &'a [Poly],
    /// Whether the part overwrites every element.
    pub fills: bool,
}
