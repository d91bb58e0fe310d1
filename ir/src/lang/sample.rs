//! Sampling: chooses types and attributes that satisfy patterns and relations, to test ops and rules.
//!
//! Bound variables keep their values. Each relation chooses its own unbound arguments, and variables without a
//! relation are drawn last. A choice may contradict a later relation. [`sample`] then returns an error, and the
//! caller draws again.

use super::{
    relation::{RelationArg, RelationCall},
    typing::{
        Bindings, Bound, DTypeClass, DTypePattern, DimPattern, DimsItem, DimsPattern, Mismatch, Scope, SlotKind,
        Status, TypePattern, VarId,
    },
};
use crate::{Attr, DType, Dim, Shape};

/// A source of random numbers: it returns a number below its argument, which is not 0.
pub type Random<'a> = &'a mut dyn FnMut(usize) -> usize;

/// The state of sampling: the bindings so far, and the source of random numbers.
pub struct Sampler<'a> {
    scope: &'a Scope,
    /// The patterns to sample.
    patterns: &'a [&'a TypePattern],
    /// The values that are chosen so far.
    pub bindings: Bindings,
    random: Random<'a>,
}

/// Chooses values for every variable of the patterns, and solves the relations for the variables that they determine.
///
/// # Errors
/// If the choices contradict each other; another draw may succeed.
pub fn sample(
    scope: &Scope,
    patterns: &[&TypePattern],
    relations: &[RelationCall],
    bindings: Bindings,
    random: Random<'_>,
) -> Result<Bindings, String> {
    let mut sampler = Sampler { scope, patterns, bindings, random };
    let mut open: Vec<&RelationCall> = relations.iter().collect();
    while !open.is_empty() {
        let before = (open.len(), sampler.bindings.clone());
        let mut failure = None;
        open.retain(|call| match call.solve(&mut sampler.bindings) {
            Ok(status) => status == Status::Later,
            Err(problem) => {
                failure = Some(problem.describe(sampler.scope));
                true
            }
        });
        if let Some(problem) = failure {
            return Err(problem);
        }
        let Some(first) = open.first() else { break };
        if before == (open.len(), sampler.bindings.clone()) {
            first.sample(&mut sampler)?;
            if before.1 == sampler.bindings {
                return Err(format!(
                    "cannot sample `{}` because none of its arguments can be chosen",
                    first.relation.name
                ));
            }
        }
    }
    for pattern in patterns {
        sampler.dtype(pattern.dtype)?;
        sampler.shape(&pattern.dims)?;
    }
    Ok(sampler.bindings)
}

impl Sampler<'_> {
    /// Returns a number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.random)(n.max(1))
    }

    /// Returns a random element of `all`.
    pub fn of<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }

    /// Returns a small extent. 1 and odd numbers are as likely as even ones.
    pub fn extent(&mut self) -> Dim {
        Dim::Known(*self.of(&[1, 2, 3, 4, 5, 7]))
    }

    /// Returns a shape of at least `least` axes.
    pub fn any_shape(&mut self, least: usize) -> Shape {
        let rank = least + self.below(4 - least.min(3));
        (0..rank).map(|_| self.extent()).collect()
    }

    /// Binds a slot.
    ///
    /// # Errors
    /// If the slot has another value.
    pub fn bind(&mut self, slot: VarId, value: Bound) -> Result<(), String> {
        let scope = self.scope;
        self.bindings.bind(slot, value).map_err(|m| m.describe(scope))
    }

    /// Binds the variables of an argument so that it is this shape.
    ///
    /// # Errors
    /// If the argument cannot be this shape.
    pub fn set_shape(&mut self, arg: &RelationArg, shape: Shape) -> Result<(), String> {
        arg.set_dims(shape, &mut self.bindings).map(|_| ())
    }

    /// Binds the variables of an argument so that it is this integer.
    ///
    /// # Errors
    /// If the argument cannot be this integer.
    pub fn set_int(&mut self, arg: &RelationArg, n: i64) -> Result<(), String> {
        match arg {
            RelationArg::Attr(slot) => self.bind(*slot, Bound::Attr(Attr::Int(n))),
            RelationArg::Dim(p) => {
                let scope = self.scope;
                p.unify(&Dim::Known(n), &mut self.bindings).map(|_| ()).map_err(|m| m.describe(scope))
            }
            _ => Err("the argument must be an integer".into()),
        }
    }

    /// Binds an argument to this attribute.
    ///
    /// # Errors
    /// If the argument cannot be this attribute.
    pub fn set_attr(&mut self, arg: &RelationArg, value: impl Into<Attr>) -> Result<(), String> {
        match arg {
            RelationArg::Attr(slot) => self.bind(*slot, Bound::Attr(value.into())),
            _ => Err("the argument must be an attribute".into()),
        }
    }

    /// Returns the shape of an argument. If it is unbound, chooses one with at least `least` axes.
    ///
    /// # Errors
    /// If the argument is not a shape.
    pub fn shape_of(&mut self, arg: &RelationArg, least: usize) -> Result<Shape, String> {
        if let Some(shape) = arg.dims(&self.bindings) {
            return Ok(shape);
        }
        match arg {
            // A pattern that is one unbound sequence may have any shape.
            RelationArg::Dims(DimsPattern(items)) if matches!(items.as_slice(), [DimsItem::Many(_)]) => {
                let shape = self.any_shape(least);
                self.set_shape(arg, shape.clone())?;
                Ok(shape)
            }
            RelationArg::Dims(pattern) => self.shape(pattern),
            _ => {
                let shape = self.any_shape(least);
                self.set_shape(arg, shape.clone())?;
                Ok(shape)
            }
        }
    }

    /// Returns the shape of a pattern after choosing its unbound variables.
    ///
    /// # Errors
    /// If an extent becomes negative or a quotient is not exact.
    pub fn shape(&mut self, pattern: &DimsPattern) -> Result<Shape, String> {
        for item in &pattern.0 {
            match item {
                DimsItem::One(p) => self.choose_dims(p)?,
                DimsItem::Many(slot) if self.bindings.get(*slot).is_none() => {
                    let rank = self.below(3);
                    let dims = (0..rank).map(|_| self.extent()).collect();
                    self.bind(*slot, Bound::Dims(dims))?;
                }
                DimsItem::Many(_) => {}
            }
        }
        pattern.value(&self.bindings).ok_or_else(|| format!("{} has no value", pattern.show(self.scope)))
    }

    /// Chooses the unbound variables of a dimension expression.
    ///
    /// # Errors
    /// If one of them is bound to something other than a dimension.
    pub fn choose_dims(&mut self, pattern: &DimPattern) -> Result<(), String> {
        match pattern {
            DimPattern::Number(_) => Ok(()),
            DimPattern::Var(slot) if self.bindings.get(*slot).is_some() => Ok(()),
            DimPattern::Var(slot) => {
                let dim = self.extent();
                self.bind(*slot, Bound::Dim(dim))
            }
            DimPattern::Sum(items) | DimPattern::Product(items) => items.iter().try_for_each(|p| self.choose_dims(p)),
            DimPattern::Difference(pair)
            | DimPattern::Quotient(pair)
            | DimPattern::Floor(pair)
            | DimPattern::Mod(pair) => pair.iter().try_for_each(|p| self.choose_dims(p)),
        }
    }

    /// Returns the element type of a pattern, and chooses it if it is unbound.
    ///
    /// # Errors
    /// If the variable is bound to something other than an element type.
    pub fn dtype(&mut self, pattern: DTypePattern) -> Result<DType, String> {
        match pattern {
            DTypePattern::Fixed(dtype) => Ok(dtype),
            DTypePattern::Var(slot, _) => self.dtype_of(slot),
        }
    }

    /// Returns the element type in a slot, and chooses it if it is unbound.
    ///
    /// # Errors
    /// If the variable is not one for element types.
    pub fn dtype_of(&mut self, slot: VarId) -> Result<DType, String> {
        if let Some(Bound::DType(dtype)) = self.bindings.get(slot) {
            return Ok(*dtype);
        }
        let SlotKind::DType(class) = self.scope.variables[slot].1 else {
            return Err(format!("{} is not an element type", self.scope.name(slot)));
        };
        let dtype = self.dtype_in(class);
        self.bind(slot, Bound::DType(dtype))?;
        Ok(dtype)
    }

    fn dtype_in(&mut self, class: DTypeClass) -> DType {
        let fitting: Vec<_> = DType::ALL.into_iter().filter(|d| class.contains(*d)).collect();
        *self.of(&fitting)
    }

    /// Returns whether a pattern to sample has this element-type variable.
    pub fn needs(&self, dtype: VarId) -> bool {
        self.patterns.iter().any(|p| matches!(p.dtype, DTypePattern::Var(slot, _) if slot == dtype))
    }

    /// Returns a shape that expands to the given one: some outer axes are dropped, and some others get extent 1.
    pub fn shrunk(&mut self, shape: &Shape) -> Shape {
        let skipped = if self.below(2) == 0 { 0 } else { self.below(shape.rank() + 1) };
        shape[skipped..].iter().map(|d| if self.below(3) == 0 { Dim::Known(1) } else { d.clone() }).collect()
    }

    /// Returns a shape to which the given one expands.
    pub fn grown(&mut self, shape: &Shape) -> Shape {
        let added = self.below(3).min(4_usize.saturating_sub(shape.rank()));
        let mut dims: Vec<Dim> = (0..added).map(|_| self.extent()).collect();
        for d in shape.iter() {
            dims.push(if *d == Dim::Known(1) && self.below(2) == 0 { self.extent() } else { d.clone() });
        }
        dims.into_iter().collect()
    }

    /// Returns a random axis of a shape, counted from the end.
    pub fn axis(&mut self, rank: usize) -> i64 {
        -1 - self.below(rank) as i64
    }

    /// Returns at least one axis of a shape, counted from the end, in ascending order.
    pub fn axes(&mut self, rank: usize) -> Vec<i64> {
        let sure = self.axis(rank);
        (-(rank as i64)..0).filter(|&axis| axis == sure || self.below(2) == 0).collect()
    }

    /// Returns the axes of a shape in random order, counted from the end.
    pub fn permutation(&mut self, rank: usize) -> Vec<i64> {
        let mut perm: Vec<i64> = (-(rank as i64)..0).collect();
        for i in (1..rank).rev() {
            perm.swap(i, self.below(i + 1));
        }
        perm
    }

    /// Returns another shape with as many elements.
    pub fn reshaped(&mut self, shape: &Shape) -> Shape {
        let mut dims: Vec<Dim> = shape.to_vec();
        for _ in 0..self.below(4) {
            match self.below(4) {
                0 => dims.insert(self.below(dims.len() + 1), Dim::Known(1)),
                1 | 2 if dims.len() > 1 => {
                    let at = self.below(dims.len() - 1);
                    let next = dims.remove(at + 1);
                    dims[at] = &dims[at] * &next;
                }
                _ => {
                    let at = self.below(dims.len().max(1));
                    let half = dims.get(at).and_then(|d| d.checked_div(&Dim::Known(2)));
                    if let Some(half) = half {
                        dims[at] = half;
                        dims.insert(at, Dim::Known(2));
                    }
                }
            }
        }
        dims.into_iter().collect()
    }
}

/// Returns the text of a mismatch within a relation, where the names of variables are not known.
pub(super) fn told(m: Mismatch) -> String {
    match m {
        Mismatch::Conflict { old, new, .. } => format!("it should be {new} but is {old}"),
        other => other.describe(&Scope::default()),
    }
}
