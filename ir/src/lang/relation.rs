//! Relations between shapes and attributes that type patterns alone cannot state.
//!
//! Each relation can `solve` its arguments: it checks them, or computes unbound ones from bound ones. It can also
//! `sample` them: it chooses values for unbound ones. So every condition of a rule can be tested on generated cases.

use super::{
    relations::FAMILIES,
    sample::Sampler,
    sexp::{LangError, Sexp, SexpKind, Source, did_you_mean},
    typing::{
        Bindings, Bound, DimPattern, DimsItem, DimsPattern, Mismatch, Scope, SlotKind, Status, TypePattern, VarId,
    },
};
use crate::{Attr, Dim, Shape};

pub use super::relations::broadcast;

/// A relation of the rule language.
pub struct Relation {
    /// Its name.
    pub name: &'static str,
    /// One sentence that says when the relation holds.
    pub doc: &'static str,
    /// The names of the parameters, for messages: `A B C`. Their number is the number of arguments.
    pub parameters: &'static [&'static str],
    /// Whether an argument may be a number that is not an integer.
    pub numbers: bool,
    /// Checks the relation, or binds the arguments that follow from the bound ones. The error is the reason why it
    /// does not hold.
    pub solve: fn(&[RelationArg], &mut Bindings) -> Result<Status, String>,
    /// Chooses unbound arguments until `solve` can compute the rest. Fails if no choice fits the bound ones.
    pub sample: fn(&[RelationArg], &mut Sampler<'_>) -> Result<(), String>,
}

impl Relation {
    /// Returns every relation, grouped by family.
    pub fn all() -> impl Iterator<Item = &'static Relation> {
        FAMILIES.iter().copied().flatten()
    }
}

impl std::fmt::Debug for Relation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// An argument of a relation.
#[derive(Clone, Debug, PartialEq)]
pub enum RelationArg {
    /// A dimension expression.
    Dim(DimPattern),
    /// A sequence of dimensions.
    Dims(DimsPattern),
    /// An element type.
    DType(VarId),
    /// An attribute.
    Attr(VarId),
    /// A number that is not an integer, or −∞ or ∞.
    Number(f64),
}

/// A relation with its arguments: `(broadcast A B C)`.
#[derive(Clone, Debug)]
pub struct RelationCall {
    /// The relation.
    pub relation: &'static Relation,
    /// Its arguments.
    pub args: Vec<RelationArg>,
    /// Whether the relation must not hold: `(not (name arg …))`.
    pub negated: bool,
}

impl RelationCall {
    /// Parses `(name arg …)` or `(not (name arg …))`. Unknown names are added to the scope: upper-case names as
    /// dimensions, lower-case names as attributes.
    ///
    /// # Errors
    /// If the relation is unknown or an argument is malformed.
    pub fn parse(sexp: &Sexp, scope: &mut Scope, source: &Source) -> Result<RelationCall, LangError> {
        let Some((name, items)) = sexp.call() else {
            return Err(source.error(sexp.span.clone(), "this is not a relation", "write (name argument …)"));
        };
        if let ("not", [inner]) = (name, items) {
            let call = RelationCall::parse(inner, scope, source)?;
            return Ok(RelationCall { negated: !call.negated, ..call });
        }
        let Some(relation) = Relation::all().find(|r| r.name == name) else {
            let known: Vec<_> = Relation::all().map(|r| r.name).collect();
            let help = did_you_mean(name, known.iter().copied());
            let help = help.unwrap_or_else(|| format!("the relations are {}", known.join(", ")));
            return Err(source.error(sexp.span.clone(), format!("there is no relation `{name}`"), help));
        };
        if items.len() != relation.parameters.len() {
            return Err(source.error(
                sexp.span.clone(),
                format!("`{name}` takes {} arguments, but {} are given", relation.parameters.len(), items.len()),
                format!("write ({name} {})", relation.parameters.join(" ")),
            ));
        }
        let mut args = Vec::new();
        for item in items {
            let number = item.atom().filter(|atom| atom.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)));
            let number = number.filter(|atom| atom.parse::<i64>().is_err()).and_then(|atom| atom.parse().ok());
            if let Some(number) = number.filter(|number: &f64| !number.is_nan()) {
                if !relation.numbers {
                    let message = format!("cannot use {} in `{name}` because it takes dimensions", item);
                    return Err(source.error(item.span.clone(), message, "write an integer"));
                }
                args.push(RelationArg::Number(number));
                continue;
            }
            args.push(match (&item.kind, item.atom()) {
                (SexpKind::Bracket(head, dims), _) if head.is_empty() => {
                    RelationArg::Dims(DimsPattern::parse(dims, scope, source)?)
                }
                (_, Some(atom)) => match scope.find(atom).map(|slot| (slot, scope.variables[slot].1)) {
                    Some((slot, SlotKind::Dims)) => RelationArg::Dims(DimsPattern(vec![DimsItem::Many(slot)])),
                    Some((slot, SlotKind::DType(_))) => RelationArg::DType(slot),
                    Some((slot, SlotKind::Attr)) => RelationArg::Attr(slot),
                    None if atom.starts_with(|c: char| c.is_ascii_lowercase()) => {
                        let slot = scope.slot(atom, SlotKind::Attr);
                        RelationArg::Attr(slot.map_err(|_| {
                            source.error(
                                item.span.clone(),
                                "this name is not an attribute",
                                "use a name that is not declared otherwise",
                            )
                        })?)
                    }
                    _ => RelationArg::Dim(DimPattern::parse(item, scope, source)?),
                },
                _ => RelationArg::Dim(DimPattern::parse(item, scope, source)?),
            });
        }
        Ok(RelationCall { relation, args, negated: false })
    }

    /// Checks the relation, or binds the arguments that follow from the bound ones.
    ///
    /// # Errors
    /// The reason why the relation does not hold.
    pub fn solve(&self, bindings: &mut Bindings) -> Result<Status, Mismatch> {
        if self.negated {
            return self.refute(bindings);
        }
        (self.relation.solve)(&self.args, bindings).map_err(|why| {
            let attr = |arg: &RelationArg| match arg {
                RelationArg::Attr(slot) => Some((*slot, bindings.attr(*slot)?.clone())),
                _ => None,
            };
            Mismatch::Relation { attrs: self.args.iter().filter_map(attr).collect(), why }
        })
    }

    /// Checks that the relation does not hold, and binds nothing. It is an error if an argument depends on an extent
    /// at run time, because the answer may differ from length to length.
    fn refute(&self, bindings: &Bindings) -> Result<Status, Mismatch> {
        let misfit = |why: String| Err(Mismatch::Relation { attrs: Vec::new(), why });
        if self.args.iter().any(|arg| arg.is_open(bindings)) {
            return Ok(Status::Later);
        }
        let name = self.relation.name;
        if self.args.iter().any(|arg| arg.varies(bindings)) {
            return misfit(format!("whether `{name}` holds depends on a length at run time"));
        }
        match (self.relation.solve)(&self.args, &mut bindings.clone()) {
            Err(_) => Ok(Status::Done),
            Ok(Status::Later) => Ok(Status::Later),
            Ok(Status::Done) => misfit(format!("`{name}` holds")),
        }
    }

    /// Chooses values for unbound arguments until [`RelationCall::solve`] can compute the rest.
    ///
    /// # Errors
    /// If no choice fits the bindings.
    pub fn sample(&self, sampler: &mut Sampler<'_>) -> Result<(), String> {
        if !self.negated {
            return (self.relation.sample)(&self.args, sampler);
        }
        // Few arguments satisfy a relation, so most random choices violate it.
        self.args.iter().try_for_each(|arg| match arg {
            RelationArg::Dim(pattern) => sampler.choose_dims(pattern),
            _ => Ok(()),
        })
    }

    /// Returns whether an argument contains a dimension sequence, such as `B..`, that also occurs in the pattern.
    pub fn mentions(&self, pattern: &TypePattern) -> bool {
        self.args.iter().any(|arg| match arg {
            RelationArg::Dims(DimsPattern(items)) => {
                items.iter().any(|item| matches!(item, DimsItem::Many(_)) && pattern.dims.0.contains(item))
            }
            _ => false,
        })
    }
}

impl RelationArg {
    /// Returns whether the argument contains an unbound variable.
    fn is_open(&self, bindings: &Bindings) -> bool {
        match self {
            RelationArg::Dim(pattern) => pattern.is_open(bindings),
            RelationArg::Dims(DimsPattern(items)) => items.iter().any(|item| match item {
                DimsItem::One(pattern) => pattern.is_open(bindings),
                DimsItem::Many(slot) => bindings.get(*slot).is_none(),
            }),
            RelationArg::DType(slot) | RelationArg::Attr(slot) => bindings.get(*slot).is_none(),
            RelationArg::Number(_) => false,
        }
    }

    /// Returns whether the argument depends on an extent at run time.
    fn varies(&self, bindings: &Bindings) -> bool {
        let unknown = |dim: Dim| dim.known().is_none();
        // A remainder or a rounded quotient of an extent at run time has no value.
        if let RelationArg::Dim(pattern) = self
            && pattern.value(bindings).is_none()
        {
            return pattern.varies(bindings);
        }
        self.dim(bindings).is_some_and(unknown) || self.dims(bindings).is_some_and(|s| s.iter().cloned().any(unknown))
    }

    pub(super) fn dims(&self, bindings: &Bindings) -> Option<Shape> {
        match self {
            RelationArg::Dims(p) => p.value(bindings),
            RelationArg::Attr(slot) => bindings.attr(*slot)?.shape().cloned(),
            _ => None,
        }
    }

    pub(super) fn dim(&self, bindings: &Bindings) -> Option<Dim> {
        match self {
            RelationArg::Dim(p) => p.value(bindings),
            RelationArg::Attr(slot) => bindings.attr(*slot)?.int().map(Dim::Known),
            _ => None,
        }
    }

    /// Returns the argument as a number, once its variables are bound.
    pub(super) fn number(&self, bindings: &Bindings) -> Option<f64> {
        match self {
            RelationArg::Number(number) => Some(*number),
            _ => self.dim(bindings)?.known().map(|n| n as f64),
        }
    }

    pub(super) fn attr<'b>(&self, bindings: &'b Bindings) -> Option<&'b Attr> {
        match self {
            RelationArg::Attr(slot) => bindings.attr(*slot),
            _ => None,
        }
    }

    pub(super) fn set_dims(&self, shape: Shape, bindings: &mut Bindings) -> Result<Status, String> {
        let told = |m: Mismatch| match m {
            Mismatch::Conflict { old, new, .. } => format!("the shape should be {new} but is {old}"),
            _ => format!("the shape cannot be {shape}"),
        };
        match self {
            RelationArg::Dims(p) => p.unify(&shape, bindings).map_err(told),
            RelationArg::Attr(slot) => {
                bindings.bind(*slot, Bound::Attr(Attr::Shape(shape.clone()))).map(|()| Status::Done).map_err(told)
            }
            _ => Err("the argument must be a shape".into()),
        }
    }
}
