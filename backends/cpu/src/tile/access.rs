//! Compiled index maps. They are evaluated at a point, together with the number of points along an axis over which they
//! are affine.

use eutectic_ir::index::{Atom, Index};

use super::domain::{AxisMask, MAX_RANK};

/// A compiled index map.
#[derive(Clone, Debug, Default)]
pub struct CompiledAccess {
    constant: i64,
    strides: [i64; MAX_RANK],
    cuts: Vec<(Cut, i64)>,
}

#[derive(Clone, Debug)]
enum Cut {
    Div(CompiledAccess, i64),
    Mod(CompiledAccess, i64),
    Value(usize),
}

/// The values of a map along an axis from a point on: `value + slope·j` for `j` in `0..len`.
#[derive(Clone, Copy, Debug)]
pub struct AffineRun {
    /// The value of the map at the point.
    pub value: i64,
    /// The difference of the values at neighbouring points.
    pub slope: i64,
    /// The number of points; at least 1.
    pub len: usize,
}

/// A function that returns an integer of the body that a map mentions, at the point, and whether it may differ along
/// the axis.
pub type ReadIndex<'a> = &'a dyn Fn(usize) -> (i64, bool);

impl CompiledAccess {
    /// Compiles a map. Returns `None` if the map has more than [`MAX_RANK`] axes, or mentions an extent at run time.
    pub fn new(index: &Index) -> Option<CompiledAccess> {
        let mut access = CompiledAccess { constant: index.constant, ..CompiledAccess::default() };
        for (atom, c) in &index.terms {
            match atom {
                Atom::Coord(n) => *access.strides.get_mut(*n)? += c,
                Atom::Div(inner, by) => access.cuts.push((Cut::Div(CompiledAccess::new(inner)?, *by), *c)),
                Atom::Mod(inner, by) => access.cuts.push((Cut::Mod(CompiledAccess::new(inner)?, *by), *c)),
                Atom::Value(v) => access.cuts.push((Cut::Value(*v), *c)),
                Atom::Extent(_) => return None,
            }
        }
        Some(access)
    }

    /// Returns the constant and the strides, if the map is affine.
    pub fn affine(&self) -> Option<(i64, [i64; MAX_RANK])> {
        self.cuts.is_empty().then_some((self.constant, self.strides))
    }

    /// Returns the axes whose coordinates the map mentions.
    pub fn mask(&self) -> AxisMask {
        let own = (0..MAX_RANK).filter(|&d| self.strides[d] != 0).fold(0, |m, d| m | 1 << d);
        self.cuts.iter().fold(own, |m, (cut, _)| match cut {
            Cut::Div(inner, _) | Cut::Mod(inner, _) => m | inner.mask(),
            Cut::Value(_) => m,
        })
    }

    /// Returns the axes on which the map depends. `of_value` returns the axes on which an integer of the body depends.
    pub fn depends_on(&self, of_value: &dyn Fn(usize) -> AxisMask) -> AxisMask {
        self.mask() | self.cut_by(of_value)
    }

    /// Returns the axes along which the map may not be affine: those on which its quotients, remainders and integers of
    /// the body depend.
    pub fn cut_by(&self, of_value: &dyn Fn(usize) -> AxisMask) -> AxisMask {
        self.cuts.iter().fold(0, |mask, (cut, _)| mask | cut.depends_on(of_value))
    }

    /// Returns the coefficient of each coordinate, without quotients, remainders and integers of the body.
    pub fn strides(&self) -> &[i64; MAX_RANK] {
        &self.strides
    }

    /// Splits the map into a part that is constant along an axis, a part that depends only on that axis, and integers
    /// of the body that vary along it. Returns `None` if the map is not such a sum. `of_value` returns the axes on
    /// which an integer depends.
    pub fn split(&self, axis: usize, of_value: &dyn Fn(usize) -> AxisMask) -> Option<SplitAccess> {
        let mut outer = CompiledAccess { constant: self.constant, strides: self.strides, cuts: Vec::new() };
        let mut inner = CompiledAccess::default();
        std::mem::swap(&mut outer.strides[axis], &mut inner.strides[axis]);
        let mut read = Vec::new();
        for (cut, c) in &self.cuts {
            let mask = cut.depends_on(of_value);
            match cut {
                _ if mask >> axis & 1 == 0 => outer.cuts.push((cut.clone(), *c)),
                Cut::Value(v) => read.push((*v, *c)),
                _ if mask == 1 << axis => inner.cuts.push((cut.clone(), *c)),
                _ => return None,
            }
        }
        Some(SplitAccess { outer, inner, read })
    }

    /// Returns the minimal number of consecutive points along an axis over which the map is affine, if the ends of the
    /// axis do not limit it.
    pub fn shortest_run(&self, axis: usize, of_value: &dyn Fn(usize) -> AxisMask) -> usize {
        let of = |(cut, _): &(Cut, i64)| match cut {
            Cut::Value(v) if of_value(*v) >> axis & 1 == 1 => 1,
            Cut::Value(_) => usize::MAX,
            Cut::Div(inner, by) | Cut::Mod(inner, by) => {
                let slope = inner.strides[axis].abs();
                let own = if slope % by == 0 { usize::MAX } else { (by / slope).max(1) as usize };
                own.min(inner.shortest_run(axis, of_value))
            }
        };
        self.cuts.iter().map(of).min().unwrap_or(usize::MAX)
    }

    /// Returns whether the map is 0 at all points.
    pub fn is_zero(&self) -> bool {
        self.constant == 0 && self.cuts.is_empty() && self.strides.iter().all(|&stride| stride == 0)
    }

    /// Evaluates the map from a point on along `axis`.
    pub fn at(&self, point: &[usize; MAX_RANK], axis: usize, read: ReadIndex<'_>) -> AffineRun {
        let value = (0..MAX_RANK).fold(self.constant, |sum, d| sum + self.strides[d] * point[d] as i64);
        let mut run = AffineRun { value, slope: self.strides[axis], len: usize::MAX };
        for (cut, c) in &self.cuts {
            let part = cut.at(point, axis, read);
            // An integer of the body may have any value at points where its check does not count, so sums wrap.
            run.value = run.value.wrapping_add(c.wrapping_mul(part.value));
            run.slope += c * part.slope;
            run.len = run.len.min(part.len);
        }
        run
    }
}

/// A map as the sum of three parts, with respect to an axis.
#[derive(Clone, Debug)]
pub struct SplitAccess {
    /// The part that is constant along the axis.
    pub outer: CompiledAccess,
    /// The part that depends only on the axis.
    pub inner: CompiledAccess,
    /// The integers of the body that vary along the axis, each with its factor.
    pub read: Vec<(usize, i64)>,
}

impl Cut {
    fn depends_on(&self, of_value: &dyn Fn(usize) -> AxisMask) -> AxisMask {
        match self {
            Cut::Value(v) => of_value(*v),
            Cut::Div(inner, _) | Cut::Mod(inner, _) => inner.depends_on(of_value),
        }
    }

    fn at(&self, point: &[usize; MAX_RANK], axis: usize, read: ReadIndex<'_>) -> AffineRun {
        match self {
            Cut::Div(inner, by) => {
                let r = inner.at(point, axis, read);
                let slope = if r.slope % by == 0 { r.slope / by } else { 0 };
                AffineRun { value: r.value.div_euclid(*by), slope, len: r.len.min(steps_within(r, *by)) }
            }
            Cut::Mod(inner, by) => {
                let r = inner.at(point, axis, read);
                let slope = if r.slope % by == 0 { 0 } else { r.slope };
                AffineRun { value: r.value.rem_euclid(*by), slope, len: r.len.min(steps_within(r, *by)) }
            }
            Cut::Value(v) => {
                let (value, changes) = read(*v);
                AffineRun { value, slope: 0, len: if changes { 1 } else { usize::MAX } }
            }
        }
    }
}

/// Returns the number of points over which ⌊value / by⌋ is constant, or is affine if `by` divides the slope.
fn steps_within(r: AffineRun, by: i64) -> usize {
    if r.slope % by == 0 {
        return usize::MAX;
    }
    let rest = r.value.rem_euclid(by);
    let steps = if r.slope > 0 { (by - rest + r.slope - 1) / r.slope } else { rest / -r.slope + 1 };
    steps as usize
}

/// A condition on a point of the domain: the value of a map is in a range.
#[derive(Clone, Debug)]
pub struct TileGuard {
    /// The map.
    pub access: CompiledAccess,
    /// The first value of the range.
    pub from: i64,
    /// The value after the last of the range.
    pub to: i64,
}

impl TileGuard {
    /// Returns whether the guard holds at a point, and for how many points along `axis` this answer is valid.
    pub fn holds(&self, point: &[usize; MAX_RANK], axis: usize, read: ReadIndex<'_>) -> (bool, usize) {
        let run = self.access.at(point, axis, read);
        let inside = (self.from..self.to).contains(&run.value);
        let ahead = match (run.slope, inside) {
            (0, _) => usize::MAX,
            (s, true) if s > 0 => ((self.to - run.value + s - 1) / s) as usize,
            (s, true) => ((run.value - self.from) / -s + 1) as usize,
            (s, false) if s > 0 && run.value < self.from => ((self.from - run.value + s - 1) / s) as usize,
            (s, false) if s < 0 && run.value >= self.to => ((run.value - self.to) / -s + 1) as usize,
            _ => usize::MAX,
        };
        (inside, ahead.min(run.len))
    }
}

/// Returns whether all guards hold at a point, and for how many points along `axis` this answer is valid.
pub fn all_hold(guards: &[TileGuard], point: &[usize; MAX_RANK], axis: usize, read: ReadIndex<'_>) -> (bool, usize) {
    let mut steps = usize::MAX;
    for guard in guards {
        let (holds, ahead) = guard.holds(point, axis, read);
        if !holds {
            return (false, ahead);
        }
        steps = steps.min(ahead);
    }
    (true, steps)
}

impl CompiledAccess {
    /// Renumbers the integers of the body that the map mentions.
    pub fn with_values(mut self, number: &dyn Fn(usize) -> usize) -> CompiledAccess {
        for (cut, _) in &mut self.cuts {
            *cut = match std::mem::replace(cut, Cut::Value(0)) {
                Cut::Div(inner, by) => Cut::Div(inner.with_values(number), by),
                Cut::Mod(inner, by) => Cut::Mod(inner.with_values(number), by),
                Cut::Value(v) => Cut::Value(number(v)),
            };
        }
        self
    }

    /// Returns the integers of the body that the map mentions.
    pub fn values(&self) -> Vec<usize> {
        let of = |cut: &Cut| match cut {
            Cut::Div(inner, _) | Cut::Mod(inner, _) => inner.values(),
            Cut::Value(v) => vec![*v],
        };
        self.cuts.iter().flat_map(|(cut, _)| of(cut)).collect()
    }
}
