//! Patterns of dimensions and shapes such as `[B.. M (* 2 H)]`: how they are read, matched, solved for one unknown
//! and computed.

use std::fmt;

use smallvec::SmallVec;

use super::{
    super::sexp::{LangError, Sexp, Source},
    Bindings, Bound, Mismatch, Scope, SlotKind, Status, VarId, is_variable,
};
use crate::{Dim, Shape, dim::MOST_TERMS};

/// An expression over dimensions.
#[derive(Clone, Debug, PartialEq)]
pub enum DimPattern {
    /// A number.
    Number(i64),
    /// A variable.
    Var(VarId),
    /// `(+ a b …)`.
    Sum(Vec<DimPattern>),
    /// `(* a b …)`.
    Product(Vec<DimPattern>),
    /// `(- a b)`.
    Difference(Box<[DimPattern; 2]>),
    /// `(/ a b)`, which has no value if the division leaves a remainder.
    Quotient(Box<[DimPattern; 2]>),
    /// `(floor a b)`: the largest integer up to a/b. It is computed and never solved for its variables.
    Floor(Box<[DimPattern; 2]>),
    /// `(mod a b)`: a − b·⌊a/b⌋. It is computed and never solved for its variables.
    Mod(Box<[DimPattern; 2]>),
}

impl DimPattern {
    /// Returns the source form, with the names that variables have in `scope`.
    pub fn show<'a>(&'a self, scope: &'a Scope) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            let (op, items) = match self {
                DimPattern::Number(n) => return write!(f, "{n}"),
                DimPattern::Var(slot) => return f.write_str(scope.name(*slot)),
                DimPattern::Sum(items) => ("+", items.as_slice()),
                DimPattern::Product(items) => ("*", items.as_slice()),
                DimPattern::Difference(pair) => ("-", pair.as_slice()),
                DimPattern::Quotient(pair) => ("/", pair.as_slice()),
                DimPattern::Floor(pair) => ("floor", pair.as_slice()),
                DimPattern::Mod(pair) => ("mod", pair.as_slice()),
            };
            write!(f, "({op}")?;
            // Boxing the item avoids an infinitely recursive type.
            items.iter().try_for_each(|item| write!(f, " {}", Box::new(item.show(scope)) as Box<dyn fmt::Display>))?;
            f.write_str(")")
        })
    }

    /// Reads a dimension expression. A new upper-case name becomes a dimension variable of the scope.
    ///
    /// # Errors
    /// If the text is not a dimension expression.
    pub fn parse(sexp: &Sexp, scope: &mut Scope, source: &Source) -> Result<DimPattern, LangError> {
        let help = "write a number, an upper-case name, or (+ a b), (- a b), (* a b), (/ a b), (floor a b), (mod a b) of dimensions";
        let bad = |what: String| source.error(sexp.span.clone(), what, help);
        if let Some(atom) = sexp.atom() {
            if let Ok(n) = atom.parse() {
                return Ok(DimPattern::Number(n));
            }
            if !is_variable(atom) {
                return Err(bad(format!("`{atom}` is not a dimension")));
            }
            let slot = scope
                .slot(atom, SlotKind::Dim)
                .map_err(|_| bad(format!("`{atom}` is not the name of a single dimension")))?;
            return Ok(DimPattern::Var(slot));
        }
        let Some((op, items)) = sexp.call() else {
            return Err(bad("this is not a dimension".into()));
        };
        let items: Vec<_> = items.iter().map(|s| DimPattern::parse(s, scope, source)).collect::<Result<_, _>>()?;
        let pair = |items: Vec<DimPattern>| {
            <[DimPattern; 2]>::try_from(items).map(Box::new).map_err(|_| bad(format!("`{op}` takes two dimensions")))
        };
        let made = match op {
            "+" => DimPattern::Sum(items),
            "*" => DimPattern::Product(items),
            "-" => DimPattern::Difference(pair(items)?),
            "/" => DimPattern::Quotient(pair(items)?),
            "floor" => DimPattern::Floor(pair(items)?),
            "mod" => DimPattern::Mod(pair(items)?),
            _ => return Err(bad(format!("there is no operation `{op}` on dimensions"))),
        };
        match made.terms() {
            terms if terms > MOST_TERMS => Err(bad(format!(
                "cannot use this dimension because it expands to {terms} terms; at most {MOST_TERMS} are allowed"
            ))),
            _ => Ok(made),
        }
    }

    /// Returns the maximal number of terms of the expression's value, a polynomial.
    fn terms(&self) -> usize {
        match self {
            DimPattern::Number(_) | DimPattern::Var(_) => 1,
            DimPattern::Sum(items) => items.iter().map(DimPattern::terms).fold(0, usize::saturating_add),
            DimPattern::Product(items) => items.iter().map(DimPattern::terms).fold(1, usize::saturating_mul),
            DimPattern::Difference(pair) => pair[0].terms().saturating_add(pair[1].terms()),
            DimPattern::Quotient(pair) => pair[0].terms(),
            // Quotients and remainders have a value only for numbers, so the value has one term.
            DimPattern::Floor(_) | DimPattern::Mod(_) => 1,
        }
    }

    /// Returns the value of the expression. Returns `None` if a variable is unbound or a quotient is inexact, or if
    /// `floor` or `mod` has a symbolic operand or a non-positive divisor.
    pub fn value(&self, bindings: &Bindings) -> Option<Dim> {
        Some(match self {
            DimPattern::Number(n) => Dim::Known(*n),
            DimPattern::Var(slot) => bindings.dim(*slot)?.clone(),
            DimPattern::Sum(items) => items.iter().try_fold(Dim::Known(0), |n, p| Some(&n + &p.value(bindings)?))?,
            DimPattern::Product(items) => {
                items.iter().try_fold(Dim::Known(1), |n, p| Some(&n * &p.value(bindings)?))?
            }
            DimPattern::Difference(pair) => &pair[0].value(bindings)? - &pair[1].value(bindings)?,
            DimPattern::Quotient(pair) => pair[0].value(bindings)?.checked_div(&pair[1].value(bindings)?)?,
            DimPattern::Floor(pair) => divided(pair, bindings)?.0,
            DimPattern::Mod(pair) => divided(pair, bindings)?.1,
        })
    }

    /// Returns whether the expression has an unbound variable.
    pub fn is_open(&self, bindings: &Bindings) -> bool {
        match self {
            DimPattern::Number(_) => false,
            DimPattern::Var(slot) => bindings.get(*slot).is_none(),
            DimPattern::Sum(items) | DimPattern::Product(items) => items.iter().any(|p| p.is_open(bindings)),
            DimPattern::Difference(pair)
            | DimPattern::Quotient(pair)
            | DimPattern::Floor(pair)
            | DimPattern::Mod(pair) => pair.iter().any(|p| p.is_open(bindings)),
        }
    }

    /// Returns whether a variable of the expression is bound to a dimension with symbols.
    pub(in crate::lang) fn varies(&self, bindings: &Bindings) -> bool {
        match self {
            DimPattern::Number(_) => false,
            DimPattern::Var(slot) => bindings.dim(*slot).is_some_and(|dim| dim.known().is_none()),
            DimPattern::Sum(items) | DimPattern::Product(items) => items.iter().any(|p| p.varies(bindings)),
            DimPattern::Difference(pair)
            | DimPattern::Quotient(pair)
            | DimPattern::Floor(pair)
            | DimPattern::Mod(pair) => pair.iter().any(|p| p.varies(bindings)),
        }
    }

    /// Matches a dimension: compares it with the expression's value, or solves for the only unbound variable.
    ///
    /// # Errors
    /// If the expression cannot be equal to the dimension.
    pub fn unify(&self, dim: &Dim, bindings: &mut Bindings) -> Result<Status, Mismatch> {
        let mismatch = || Mismatch::Dim { got: dim.clone(), want: self.clone() };
        if let DimPattern::Var(slot) = self {
            return bindings.bind(*slot, Bound::Dim(dim.clone())).map(|()| Status::Done);
        }
        if !self.is_open(bindings) {
            let value = self.value(bindings).ok_or_else(mismatch)?;
            return if value == *dim { Ok(Status::Done) } else { Err(mismatch()) };
        }
        let (part, rest) = match self {
            DimPattern::Number(_) | DimPattern::Var(_) => return Err(mismatch()),
            DimPattern::Floor(_) | DimPattern::Mod(_) => return Ok(Status::Later),
            DimPattern::Sum(items) | DimPattern::Product(items) => {
                let (open, closed): (Vec<_>, Vec<_>) = items.iter().partition(|p| p.is_open(bindings));
                let [part] = open.as_slice() else { return Ok(Status::Later) };
                let known: Vec<_> =
                    closed.iter().map(|p| p.value(bindings)).collect::<Option<_>>().ok_or_else(mismatch)?;
                let rest = if matches!(self, DimPattern::Sum(_)) {
                    known.iter().fold(dim.clone(), |n, d| &n - d)
                } else {
                    let product = known.iter().fold(Dim::Known(1), |n, d| &n * d);
                    dim.checked_div(&product).ok_or_else(mismatch)?
                };
                (*part, rest)
            }
            DimPattern::Difference(pair) | DimPattern::Quotient(pair) => {
                let minus = matches!(self, DimPattern::Difference(_));
                match (pair[0].value(bindings), pair[1].value(bindings)) {
                    (None, Some(b)) => (&pair[0], if minus { dim + &b } else { dim * &b }),
                    (Some(a), None) => {
                        (&pair[1], if minus { &a - dim } else { a.checked_div(dim).ok_or_else(mismatch)? })
                    }
                    _ => return Ok(Status::Later),
                }
            }
        };
        part.unify(&rest, bindings)
    }
}

/// Returns the quotient, rounded down, and the remainder of two numbers. Returns `None` if the second is not
/// positive.
fn divided(pair: &[DimPattern; 2], bindings: &Bindings) -> Option<(Dim, Dim)> {
    let (n, by) = (pair[0].value(bindings)?.known()?, pair[1].value(bindings)?.known()?);
    (by > 0).then(|| (Dim::Known(n.div_euclid(by)), Dim::Known(n.rem_euclid(by))))
}

/// A shape with variables: `[B.. M K]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DimsPattern(pub Vec<DimsItem>);

/// One item of a shape pattern.
#[derive(Clone, Debug, PartialEq)]
pub enum DimsItem {
    /// One axis.
    One(DimPattern),
    /// `B..`: any number of axes.
    Many(VarId),
}

impl DimsPattern {
    /// Returns the source form, with the names that variables have in `scope`: `[B.. (* 2 H)]`.
    pub fn show<'a>(&'a self, scope: &'a Scope) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            f.write_str("[")?;
            for (i, item) in self.0.iter().enumerate() {
                f.write_str(if i == 0 { "" } else { " " })?;
                match item {
                    DimsItem::One(p) => write!(f, "{}", p.show(scope))?,
                    DimsItem::Many(slot) => write!(f, "{}..", scope.name(*slot))?,
                }
            }
            f.write_str("]")
        })
    }

    /// Reads the items of a shape pattern in brackets.
    ///
    /// # Errors
    /// If an item is not a dimension.
    pub fn parse(items: &[Sexp], scope: &mut Scope, source: &Source) -> Result<DimsPattern, LangError> {
        let item = |s: &Sexp| match s.atom().and_then(|a| a.strip_suffix("..")) {
            Some(name) if is_variable(name) => scope.slot(name, SlotKind::Dims).map(DimsItem::Many).map_err(|_| {
                source.error(
                    s.span.clone(),
                    format!("`{name}` is not a sequence of dimensions"),
                    "name the sequence otherwise",
                )
            }),
            _ => DimPattern::parse(s, scope, source).map(DimsItem::One),
        };
        items.iter().map(item).collect::<Result<_, _>>().map(DimsPattern)
    }

    /// Returns the shape, once every variable is bound and if no extent is negative.
    pub fn value(&self, bindings: &Bindings) -> Option<Shape> {
        let mut dims: SmallVec<[Dim; 5]> = SmallVec::new();
        for item in &self.0 {
            match item {
                DimsItem::One(p) => dims.push(p.value(bindings)?),
                DimsItem::Many(slot) => dims.extend(bindings.dims(*slot)?.iter().cloned()),
            }
        }
        dims.iter().all(|d| d.range().is_none_or(|(least, _)| least >= 0)).then_some(Shape(dims))
    }

    /// Matches a shape and binds the pattern's variables.
    ///
    /// # Errors
    /// If the pattern cannot be equal to the shape.
    pub fn unify(&self, shape: &Shape, bindings: &mut Bindings) -> Result<Status, Mismatch> {
        let open = |item: &&DimsItem| matches!(item, DimsItem::Many(slot) if bindings.get(*slot).is_none());
        if self.0.iter().filter(open).count() > 1 {
            return Ok(Status::Later);
        }
        let fixed: usize = self
            .0
            .iter()
            .map(|item| match item {
                DimsItem::One(_) => 1,
                DimsItem::Many(slot) => bindings.dims(*slot).map_or(0, Shape::rank),
            })
            .sum();
        let mismatch = || Mismatch::Rank { got: shape.clone(), want: self.clone() };
        let free = shape.rank().checked_sub(fixed).ok_or_else(mismatch)?;
        let mut status = Status::Done;
        let mut at = 0;
        for item in &self.0 {
            match item {
                DimsItem::One(p) => {
                    if p.unify(&shape[at], bindings)? == Status::Later {
                        status = Status::Later;
                    }
                    at += 1;
                }
                DimsItem::Many(slot) => {
                    let len = bindings.dims(*slot).map_or(free, Shape::rank);
                    let part: Shape = shape[at..at + len].iter().cloned().collect();
                    bindings.bind(*slot, Bound::Dims(part))?;
                    at += len;
                }
            }
        }
        if at == shape.rank() { Ok(status) } else { Err(mismatch()) }
    }
}
