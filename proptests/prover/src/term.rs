//! Terms: the value of one element of a tensor, as a function of indices and extents.

use std::{fmt, rc::Rc};

use eutectic_ir::{DType, ops::Reduction};

use crate::poly::{Atom, Poly};

/// A term, shared.
pub type T = Rc<Term>;

/// The kinds of element types that laws tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Floats.
    Float,
    /// Integers.
    Int,
    /// Truth values.
    Bool,
    /// Types that are only stored.
    Stored,
}

impl Kind {
    /// The kind of an element type.
    pub fn of(dtype: DType) -> Kind {
        match () {
            () if dtype == DType::Bool => Kind::Bool,
            () if !dtype.computes() => Kind::Stored,
            () if dtype.is_float() => Kind::Float,
            () => Kind::Int,
        }
    }
}

/// An element type: one, or any of a kind, by the name of its variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ty {
    /// What it is called.
    pub name: Rc<str>,
    /// What kind of numbers it holds.
    pub kind: Kind,
    /// Which one it is, where that is known.
    pub dtype: Option<DType>,
}

impl Ty {
    /// One element type.
    pub fn fixed(dtype: DType) -> Ty {
        Ty { name: dtype.name().into(), kind: Kind::of(dtype), dtype: Some(dtype) }
    }

    /// The truth values.
    pub fn bool() -> Ty {
        Ty::fixed(DType::Bool)
    }
}

/// The value of an element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Term {
    /// A number, by the bits of its `f64`.
    Num(u64),
    /// A number variable of the rule.
    Param(Rc<str>),
    /// An integer that is computed from indices and extents, as an element.
    Index(Poly),
    /// An element of an operand.
    Read(Rc<str>, Ty, Vec<Poly>),
    /// A function of elements: an op of the table or of the language of rules, and its result's element type.
    Apply(Rc<str>, Ty, Vec<T>),
    /// A reduction of the body over variables below their extents.
    Reduce(Reduction, Ty, Vec<(u32, Poly)>, T),
    /// The first where every polynomial is at least 0, else the second.
    If(Vec<Poly>, T, T),
}

/// A number.
pub fn num(x: f64) -> T {
    Rc::new(Term::Num(if x.is_nan() { f64::NAN } else { x }.to_bits()))
}

/// A function of elements.
pub fn apply(op: &str, ty: &Ty, args: Vec<T>) -> T {
    Rc::new(Term::Apply(op.into(), ty.clone(), args))
}

/// A choice by index.
pub fn choose(conditions: Vec<Poly>, then: T, otherwise: T) -> T {
    if conditions.is_empty() || then == otherwise {
        return then;
    }
    Rc::new(Term::If(conditions, then, otherwise))
}

impl Term {
    /// The number that it is.
    pub fn number(&self) -> Option<f64> {
        match self {
            Term::Num(bits) => Some(f64::from_bits(*bits)),
            Term::Index(p) => p.known().filter(|n| n.abs() < 1 << 53).map(|n| n as f64),
            _ => None,
        }
    }

    /// The element type, where the term has one of its own.
    pub fn ty(&self) -> Option<&Ty> {
        match self {
            Term::Read(_, ty, _) | Term::Apply(_, ty, _) | Term::Reduce(_, ty, ..) => Some(ty),
            Term::If(_, a, b) => a.ty().or(b.ty()),
            Term::Num(_) | Term::Param(_) | Term::Index(_) => None,
        }
    }

    /// The operands of a function of that name.
    pub fn args(&self, name: &str) -> Option<&[T]> {
        match self {
            Term::Apply(op, _, args) if **op == *name => Some(args),
            _ => None,
        }
    }

    /// Calls `visit` with every index in it.
    pub fn visit_indices(&self, visit: &mut dyn FnMut(&Poly)) {
        match self {
            Term::Num(_) | Term::Param(_) => {}
            Term::Index(p) => visit(p),
            Term::Read(_, _, at) => at.iter().for_each(visit),
            Term::Apply(_, _, args) => args.iter().for_each(|a| a.visit_indices(visit)),
            Term::Reduce(_, _, vars, body) => {
                vars.iter().for_each(|(_, extent)| visit(extent));
                body.visit_indices(visit);
            }
            Term::If(conditions, a, b) => {
                conditions.iter().for_each(&mut *visit);
                a.visit_indices(visit);
                b.visit_indices(visit);
            }
        }
    }

    /// Whether an index variable is in it.
    pub fn mentions(&self, id: u32) -> bool {
        let mut found = false;
        self.visit_indices(&mut |p| found |= p.mentions(id));
        found
    }

    /// How many terms it is made of.
    pub fn size(&self) -> usize {
        match self {
            Term::Apply(_, _, args) => 1 + args.iter().map(|a| a.size()).sum::<usize>(),
            Term::Reduce(_, _, _, body) => 1 + body.size(),
            Term::If(_, a, b) => 1 + a.size() + b.size(),
            _ => 1,
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |of: &[Poly]| of.iter().map(Poly::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Term::Num(bits) => write!(f, "{}", f64::from_bits(*bits)),
            Term::Param(name) => f.write_str(name),
            Term::Index(p) => write!(f, "{p}"),
            Term::Read(name, _, at) => write!(f, "{name}[{}]", list(at)),
            Term::Apply(op, _, args) => {
                write!(f, "({op}")?;
                args.iter().try_for_each(|a| write!(f, " {a}"))?;
                f.write_str(")")
            }
            Term::Reduce(how, _, vars, body) => {
                let vars: Vec<_> = vars.iter().map(|(v, e)| format!("i{v} < {e}")).collect();
                write!(f, "({} {{{}}} {body})", how.def().name, vars.join(", "))
            }
            Term::If(conditions, a, b) => {
                let all: Vec<_> = conditions.iter().map(|c| format!("{c} ≥ 0")).collect();
                write!(f, "(if {} then {a} else {b})", all.join(" and "))
            }
        }
    }
}

/// An integer that is read from a tensor, as an index.
pub fn value(term: T) -> Poly {
    match &*term {
        Term::Index(p) => p.clone(),
        Term::Num(bits) if f64::from_bits(*bits).fract() == 0.0 && f64::from_bits(*bits).abs() < 2_f64.powi(53) => {
            Poly::int(f64::from_bits(*bits) as i128)
        }
        _ => Poly::atom(Atom::Value(term)),
    }
}
