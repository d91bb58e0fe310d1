//! The variables of a signature or a rule, what they are bound to, and why something does not fit them.

use std::{fmt, sync::Arc};

use smallvec::SmallVec;

use super::{DimPattern, DimsPattern};
use crate::{Attr, Attrs, DType, Dim, Op, Shape};

/// Which element types a variable may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DTypeClass {
    /// Every one.
    Any,
    /// `f32 f64 f16 bf16`.
    Float,
    /// Of these, those that are computed as they are stored: `f32 f64`.
    Wide,
    /// The others, which are computed in `f32`: `f16 bf16`.
    Short,
    /// `i8 u8 i32 i64 u32`.
    Int,
    /// Floats and integers.
    Number,
    /// One.
    Only(DType),
}

impl DTypeClass {
    /// Whether `dtype` belongs to it.
    pub fn contains(self, dtype: DType) -> bool {
        match self {
            DTypeClass::Any => true,
            DTypeClass::Float => dtype.is_float(),
            DTypeClass::Wide => dtype.is_float() && dtype.size() > 2,
            DTypeClass::Short => dtype.is_float() && dtype.size() <= 2,
            DTypeClass::Int => dtype.is_int(),
            DTypeClass::Number => dtype != DType::Bool,
            DTypeClass::Only(only) => only == dtype,
        }
    }

    /// The class of that name: `any`, `float`, `wide`, `short`, `int`, `number` or an element type.
    pub fn named(name: &str) -> Option<DTypeClass> {
        Some(match name {
            "any" => DTypeClass::Any,
            "float" => DTypeClass::Float,
            "wide" => DTypeClass::Wide,
            "short" => DTypeClass::Short,
            "int" => DTypeClass::Int,
            "number" => DTypeClass::Number,
            dtype => DTypeClass::Only(dtype.parse().ok()?),
        })
    }
}

impl fmt::Display for DTypeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DTypeClass::Any => "any",
            DTypeClass::Float => "float",
            DTypeClass::Wide => "wide",
            DTypeClass::Short => "short",
            DTypeClass::Int => "int",
            DTypeClass::Number => "number",
            DTypeClass::Only(only) => only.name(),
        })
    }
}

/// The number of a variable in its [`Scope`].
pub type Slot = usize;

/// What a variable stands for.
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
    /// Name and kind of each, by slot.
    pub variables: Vec<(Arc<str>, SlotKind)>,
}

impl Scope {
    /// The slot of `name`, if it is known.
    pub fn find(&self, name: &str) -> Option<Slot> {
        self.variables.iter().position(|(n, _)| &**n == name)
    }

    /// The slot of `name`, made where it is new; `Err` holds the kind that it has already where that differs.
    pub fn slot(&mut self, name: &str, kind: SlotKind) -> Result<Slot, SlotKind> {
        match self.find(name) {
            Some(slot) if self.variables[slot].1 == kind => Ok(slot),
            Some(slot) => Err(self.variables[slot].1),
            None => {
                self.variables.push((name.into(), kind));
                Ok(self.variables.len() - 1)
            }
        }
    }

    /// The name of a slot; `_` where the scope is another's.
    pub fn name(&self, slot: Slot) -> &str {
        self.variables.get(slot).map_or("_", |v| &v.0)
    }
}

/// What a variable is bound to.
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
    /// An op, with its attributes where the variable stands for these too.
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
    /// The value of a slot.
    pub fn get(&self, slot: Slot) -> Option<&Bound> {
        self.0.get(slot)?.as_ref()
    }

    /// The dimension in a slot.
    pub fn dim(&self, slot: Slot) -> Option<&Dim> {
        match self.get(slot) {
            Some(Bound::Dim(d)) => Some(d),
            _ => None,
        }
    }

    /// The sequence of dimensions in a slot.
    pub fn dims(&self, slot: Slot) -> Option<&Shape> {
        match self.get(slot) {
            Some(Bound::Dims(s)) => Some(s),
            _ => None,
        }
    }

    /// The attribute in a slot.
    pub fn attr(&self, slot: Slot) -> Option<&Attr> {
        match self.get(slot) {
            Some(Bound::Attr(a)) => Some(a),
            _ => None,
        }
    }

    /// The op in a slot, and its attributes.
    pub fn op(&self, slot: Slot) -> Option<(Op, &Attrs)> {
        match self.get(slot) {
            Some(Bound::Op(op, attrs)) => Some((*op, attrs)),
            _ => None,
        }
    }

    /// Binds a slot, or compares with what it is bound to already.
    ///
    /// # Errors
    /// When it is bound to something else.
    pub fn bind(&mut self, slot: Slot, value: Bound) -> Result<(), Mismatch> {
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

/// Why types do not fit a pattern.
#[derive(Clone, Debug, PartialEq)]
pub enum Mismatch {
    /// A variable would have to be two things.
    Conflict {
        /// The variable.
        slot: Slot,
        /// What it was bound to first.
        old: Box<Bound>,
        /// What it would have to be here.
        new: Box<Bound>,
    },
    /// The element type is not of the class asked for.
    DType {
        /// The element type.
        got: DType,
        /// What is asked for.
        want: String,
    },
    /// A dimension differs from the one asked for, or an expression has no solution.
    Dim {
        /// The dimension.
        got: Dim,
        /// What is asked for.
        want: DimPattern,
    },
    /// The number of axes differs.
    Rank {
        /// The shape.
        got: Shape,
        /// What is asked for.
        want: DimsPattern,
    },
    /// A tuple where a tensor is wanted, or the wrong number of operands.
    Form(String),
    /// A relation does not hold.
    Relation(String),
    /// Too much is unbound.
    Unsolved(String),
}

impl Mismatch {
    /// A sentence for people, with the variables' names of `scope`.
    pub fn describe(&self, scope: &Scope) -> String {
        match self {
            Mismatch::Conflict { slot, old, new } => {
                format!("{} is {old} in one place and {new} in another", scope.name(*slot))
            }
            Mismatch::DType { got, want } => format!("element type {got} does not fit {want}"),
            Mismatch::Dim { got, want } => format!("dimension {got} does not fit {}", want.show(scope)),
            Mismatch::Rank { got, want } => format!("shape {got} does not have the axes of {}", want.show(scope)),
            Mismatch::Form(text) | Mismatch::Relation(text) => text.clone(),
            Mismatch::Unsolved(text) => format!("{text} cannot be solved from what is known"),
        }
    }
}

/// Whether a constraint is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Everything in it is bound and agrees.
    Done,
    /// More must be bound first.
    Later,
}
