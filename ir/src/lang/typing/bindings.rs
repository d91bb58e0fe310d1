//! The variables of a signature or a rule, their bindings, and the errors of mismatches.

use std::{fmt, sync::Arc};

use smallvec::SmallVec;

use super::{DimPattern, DimsPattern};
use crate::{Attr, Attrs, DType, Dim, Op, Shape};

/// The element types that a variable may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DTypeClass(
    /// One bit for each element type, set if the variable may stand for it.
    u32,
);

fn bit(dtype: DType) -> u32 {
    1 << dtype as u32
}

/// A function that returns whether an element type belongs to a class.
type Admits = fn(DType) -> bool;

/// The classes that have a name.
const CLASSES: [(&str, Admits); 7] = [
    ("any", |_| true),
    ("float", |dtype| dtype.is_float() && dtype.computes()),
    // Floats that kernels compute in their own type.
    ("wide", |dtype| dtype.is_float() && dtype.register() == dtype),
    // Floats of fewer than 32 bits, which kernels compute in `f32`.
    ("short", |dtype| dtype.register() != dtype && dtype.computes()),
    ("int", DType::is_int),
    ("number", |dtype| dtype != DType::Bool && dtype.computes()),
    ("signed", |dtype| dtype != DType::Bool && dtype.computes() && (dtype.is_float() || dtype.integers().0 < 0)),
];

impl DTypeClass {
    fn of(admits: impl Fn(DType) -> bool) -> DTypeClass {
        DTypeClass(DType::ALL.into_iter().filter(|dtype| admits(*dtype)).map(bit).sum())
    }

    /// Returns whether `dtype` belongs to the class.
    pub fn contains(self, dtype: DType) -> bool {
        self.0 & bit(dtype) != 0
    }

    /// Returns the element types of the class.
    pub fn members(self) -> impl Iterator<Item = DType> {
        DType::ALL.into_iter().filter(move |dtype| self.contains(*dtype))
    }

    /// Returns the class of that name: `any`, `float`, `wide`, `short`, `int`, `number`, `signed` or an element type.
    pub fn named(name: &str) -> Option<DTypeClass> {
        match CLASSES.iter().find(|(known, _)| *known == name) {
            Some((_, admits)) => Some(DTypeClass::of(admits)),
            None => name.parse().ok().map(|only: DType| DTypeClass::of(|dtype| dtype == only)),
        }
    }

    /// Returns the names of classes and element types.
    pub fn names() -> impl Iterator<Item = &'static str> {
        CLASSES.iter().map(|(name, _)| *name).chain(DType::names())
    }

    /// Returns the union of two classes.
    pub fn or(self, other: DTypeClass) -> DTypeClass {
        DTypeClass(self.0 | other.0)
    }
}

impl fmt::Display for DTypeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CLASSES.iter().find(|(_, admits)| DTypeClass::of(admits) == *self) {
            Some((name, _)) => f.write_str(name),
            None => f.write_str(&self.members().map(DType::name).collect::<Vec<_>>().join(" or ")),
        }
    }
}

/// The index of a variable in its [`Scope`], also called its slot.
pub type VarId = usize;

/// The kind of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// An element type of a class.
    DType(DTypeClass),
    /// One dimension.
    Dim,
    /// A sequence of dimensions.
    Dims,
    /// An attribute.
    Attr,
    /// An op.
    Op,
}

/// The variables of a signature or a rule.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// The name and kind of each variable, by slot.
    pub variables: Vec<(Arc<str>, SlotKind)>,
}

impl Scope {
    /// Returns the slot of `name`, if it is known.
    pub fn find(&self, name: &str) -> Option<VarId> {
        self.variables.iter().position(|(n, _)| &**n == name)
    }

    /// Returns the slot of `name`, which is added if it is new. The error is the kind of a known variable whose kind
    /// differs.
    pub fn slot(&mut self, name: &str, kind: SlotKind) -> Result<VarId, SlotKind> {
        match self.find(name) {
            Some(slot) if self.variables[slot].1 == kind => Ok(slot),
            Some(slot) => Err(self.variables[slot].1),
            None => {
                self.variables.push((name.into(), kind));
                Ok(self.variables.len() - 1)
            }
        }
    }

    /// Returns the name of a slot, or `_` if the scope lacks the slot.
    pub fn name(&self, slot: VarId) -> &str {
        self.variables.get(slot).map_or("_", |v| &v.0)
    }
}

/// The binding of a variable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// An element type.
    DType(DType),
    /// A dimension.
    Dim(Dim),
    /// A sequence of dimensions.
    Dims(Shape),
    /// An attribute.
    Attr(Attr),
    /// An op, with its attributes if the variable stands for these too.
    Op(Op, Attrs),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::DType(d) => d.fmt(f),
            Bound::Dim(d) => d.fmt(f),
            Bound::Dims(s) => s.fmt(f),
            Bound::Attr(a) => a.fmt(f),
            Bound::Op(op, attrs) => {
                write!(f, "{op}")?;
                let named = op.def().attrs.iter().zip(attrs);
                named.into_iter().try_for_each(|(def, attr)| write!(f, " :{} {attr}", def.name))
            }
        }
    }
}

/// The values of a scope's variables, by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings(SmallVec<[Option<Bound>; 8]>);

impl Bindings {
    /// Returns the value of a slot.
    pub fn get(&self, slot: VarId) -> Option<&Bound> {
        self.0.get(slot)?.as_ref()
    }

    /// Returns the dimension in a slot.
    pub fn dim(&self, slot: VarId) -> Option<&Dim> {
        match self.get(slot) {
            Some(Bound::Dim(d)) => Some(d),
            _ => None,
        }
    }

    /// Returns the sequence of dimensions in a slot.
    pub fn dims(&self, slot: VarId) -> Option<&Shape> {
        match self.get(slot) {
            Some(Bound::Dims(s)) => Some(s),
            _ => None,
        }
    }

    /// Returns the attribute in a slot.
    pub fn attr(&self, slot: VarId) -> Option<&Attr> {
        match self.get(slot) {
            Some(Bound::Attr(a)) => Some(a),
            _ => None,
        }
    }

    /// Returns the op in a slot and its attributes.
    pub fn op(&self, slot: VarId) -> Option<(Op, &Attrs)> {
        match self.get(slot) {
            Some(Bound::Op(op, attrs)) => Some((*op, attrs)),
            _ => None,
        }
    }

    /// Binds a slot, or compares the value with the existing binding.
    ///
    /// # Errors
    /// If the slot has another value.
    pub fn bind(&mut self, slot: VarId, value: Bound) -> Result<(), Mismatch> {
        if slot >= self.0.len() {
            self.0.resize(slot + 1, None);
        }
        match &self.0[slot] {
            None => self.0[slot] = Some(value),
            Some(old) if *old == value => {}
            Some(old) => return Err(Mismatch::Conflict { slot, old: Box::new(old.clone()), new: Box::new(value) }),
        }
        Ok(())
    }
}

/// The reason why types do not fit a pattern.
#[derive(Clone, Debug, PartialEq)]
pub enum Mismatch {
    /// A variable would have two different values.
    Conflict {
        /// The variable.
        slot: VarId,
        /// The first binding.
        old: Box<Bound>,
        /// The value that the variable would have here.
        new: Box<Bound>,
    },
    /// The element type is not in the expected class.
    DType {
        /// The element type.
        got: DType,
        /// The expected types.
        want: String,
    },
    /// A dimension differs from the expected one, or an expression has no solution.
    Dim {
        /// The dimension.
        got: Dim,
        /// The expected dimension.
        want: DimPattern,
    },
    /// The number of axes differs.
    Rank {
        /// The shape.
        got: Shape,
        /// The expected dimensions.
        want: DimsPattern,
    },
    /// A tuple in place of a tensor, or the wrong number of operands.
    Form(String),
    /// A relation does not hold.
    Relation {
        /// The attributes among the relation's arguments.
        attrs: Vec<(VarId, Attr)>,
        /// The reason.
        why: String,
    },
    /// A constraint has too many unbound variables. The text names the constraint.
    Unsolved(String),
}

impl Mismatch {
    /// Returns the mismatch as a sentence, with the names that variables have in `scope`.
    pub fn describe(&self, scope: &Scope) -> String {
        match self {
            Mismatch::Conflict { slot, old, new } => {
                format!("{} is {old} in one place and {new} in another", scope.name(*slot))
            }
            Mismatch::DType { got, want } => format!("element type {got} does not fit {want}"),
            Mismatch::Dim { got, want } => format!("dimension {got} does not fit {}", want.show(scope)),
            Mismatch::Rank { got, want } => format!("shape {got} does not have the axes of {}", want.show(scope)),
            Mismatch::Form(text) => text.clone(),
            Mismatch::Relation { attrs, why } => {
                let attrs = attrs.iter().map(|(slot, attr)| format!("`:{} {attr}`: ", scope.name(*slot)));
                attrs.chain([why.clone()]).collect()
            }
            Mismatch::Unsolved(text) => format!("cannot solve {text} from the bound variables"),
        }
    }
}

/// The state of a constraint after an attempt to solve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All of the constraint's variables are bound, and it holds.
    Done,
    /// The constraint cannot be decided until more variables are bound.
    Later,
}
