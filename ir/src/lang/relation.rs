//! Relations between shapes and attributes that a type pattern alone cannot state.
//!
//! Each says how to `solve` it (check it, or compute what is unbound) and how to `sample` it (choose
//! what is still free), so that whatever a rule states can also be tested on generated cases.

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

/// A relation of the language.
pub struct Relation {
    /// Its name.
    pub name: &'static str,
    /// One sentence.
    pub doc: &'static str,
    /// The parameters, for messages: `A B C`; also their number.
    pub parameters: &'static [&'static str],
    /// Checks it or binds what follows from it; `Err` says in what way it does not hold.
    pub solve: fn(&[RelationArg], &mut Bindings) -> Result<Status, String>,
    /// Chooses what is still free, so far that `solve` can do the rest; `Err` where nothing fits what is bound.
    pub sample: fn(&[RelationArg], &mut Sampler<'_>) -> Result<(), String>,
}

impl Relation {
    /// Every relation, family by family.
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
}

/// A relation with its arguments: `(broadcast A B C)`.
#[derive(Clone, Debug)]
pub struct RelationCall {
    /// Which.
    pub relation: &'static Relation,
    /// Of what.
    pub args: Vec<RelationArg>,
}

impl RelationCall {
    /// Reads `(name arg …)`. Upper-case names must be known to the scope; lower-case names are attributes, made
    /// where they are new.
    ///
    /// # Errors
    /// When there is no such relation or an argument is malformed.
    pub fn parse(sexp: &Sexp, scope: &mut Scope, source: &Source) -> Result<RelationCall, LangError> {
        let Some((name, items)) = sexp.call() else {
            return Err(source.error(sexp.span.clone(), "this is not a relation", "write (name argument …)"));
        };
        let Some(relation) = Relation::all().find(|r| r.name == name) else {
            let known: Vec<_> = Relation::all().map(|r| r.name).collect();
            let help = did_you_mean(name, known.iter().copied());
            let help = help.unwrap_or_else(|| format!("the relations are {}", known.join(", ")));
            return Err(source.error(sexp.span.clone(), format!("there is no relation `{name}`"), help));
        };
        if items.len() != relation.parameters.len() {
            return Err(source.error(
                sexp.span.clone(),
                format!("`{name}` takes {} arguments, {} given", relation.parameters.len(), items.len()),
                format!("write ({name} {})", relation.parameters.join(" ")),
            ));
        }
        let mut args = Vec::new();
        for item in items {
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
                        RelationArg::Attr(slot.map_err(|_| source.error(item.span.clone(), "not an attribute", ""))?)
                    }
                    _ => RelationArg::Dim(DimPattern::parse(item, scope, source)?),
                },
                _ => RelationArg::Dim(DimPattern::parse(item, scope, source)?),
            });
        }
        Ok(RelationCall { relation, args })
    }

    /// Checks it or binds what follows from it.
    ///
    /// # Errors
    /// In what way it does not hold.
    pub fn solve(&self, bindings: &mut Bindings) -> Result<Status, Mismatch> {
        (self.relation.solve)(&self.args, bindings).map_err(|why| {
            let attr = |arg: &RelationArg| match arg {
                RelationArg::Attr(slot) => Some((*slot, bindings.attr(*slot)?.clone())),
                _ => None,
            };
            Mismatch::Relation { attrs: self.args.iter().filter_map(attr).collect(), why }
        })
    }

    /// Whether it speaks of a dimension sequence of that pattern.
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
            _ => Err("a shape is wanted".into()),
        }
    }
}
