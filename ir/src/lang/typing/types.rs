//! Patterns of tensor types such as `F[B.. M K]`, and the solver for several patterns and relations.

use std::fmt;

use smallvec::SmallVec;

use super::{
    super::{
        relation::RelationCall,
        sexp::{LangError, Sexp, SexpKind, Source, suggestion},
    },
    Bindings, Bound, DTypeClass, DimsPattern, Mismatch, Scope, SlotKind, Status, VarId,
};
use crate::{DType, Type};

/// The element type of a pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DTypePattern {
    /// A variable for any element type of the class.
    Var(VarId, DTypeClass),
    /// One type.
    Fixed(DType),
}

/// A tensor type with variables: `F[B.. M K]`.
#[derive(Clone, Debug, PartialEq)]
pub struct TypePattern {
    /// The element type.
    pub dtype: DTypePattern,
    /// The shape.
    pub dims: DimsPattern,
}

impl TypePattern {
    /// Returns the source form, with the names that variables have in `scope`: `F[B.. (* 2 H)]`.
    pub fn show<'a>(&'a self, scope: &'a Scope) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| match self.dtype {
            DTypePattern::Var(slot, _) => write!(f, "{}{}", scope.name(slot), self.dims.show(scope)),
            DTypePattern::Fixed(dtype) => write!(f, "{dtype}{}", self.dims.show(scope)),
        })
    }

    /// Reads `F[…]`. `F` must be an element type or a variable of the scope.
    ///
    /// # Errors
    /// If the text is not a type, or `F` is not declared.
    pub fn parse(sexp: &Sexp, scope: &mut Scope, source: &Source) -> Result<TypePattern, LangError> {
        let SexpKind::Bracket(name, items) = &sexp.kind else {
            return Err(source.error(
                sexp.span.clone(),
                "this is not a type",
                "write an element type and a shape: F[B.. M K]",
            ));
        };
        let dtype = match (name.parse(), scope.find(name).map(|slot| (slot, scope.variables[slot].1))) {
            (Ok(dtype), _) => DTypePattern::Fixed(dtype),
            (_, Some((slot, SlotKind::DType(class)))) => DTypePattern::Var(slot, class),
            _ => {
                let declared = scope.variables.iter().filter(|(_, kind)| matches!(kind, SlotKind::DType(_)));
                let known = declared.map(|(name, _)| &**name).chain(DType::ALL.iter().map(|dtype| dtype.name()));
                let help = suggestion(name, "declare it, as in (F float), or take one of", known);
                return Err(source.error(sexp.span.clone(), format!("`{name}` is not a known element type"), help));
            }
        };
        Ok(TypePattern { dtype, dims: DimsPattern::parse(items, scope, source)? })
    }

    /// Matches a type and binds the pattern's variables.
    ///
    /// # Errors
    /// If the pattern cannot be equal to the type.
    pub fn unify(&self, ty: &Type, bindings: &mut Bindings) -> Result<Status, Mismatch> {
        let (dtype, shape) = ty.as_tensor().ok_or_else(|| {
            Mismatch::Form(format!("a tensor is needed, but {ty} is a tuple; take one result out of it with `get`"))
        })?;
        match self.dtype {
            DTypePattern::Fixed(want) if want != dtype => {
                return Err(Mismatch::DType { got: dtype, want: want.to_string() });
            }
            DTypePattern::Fixed(_) => {}
            DTypePattern::Var(slot, class) => {
                if !class.contains(dtype) {
                    return Err(Mismatch::DType { got: dtype, want: class.to_string() });
                }
                bindings.bind(slot, Bound::DType(dtype))?;
            }
        }
        self.dims.unify(shape, bindings)
    }

    /// Returns the type, once every variable of the pattern is bound.
    pub fn value(&self, bindings: &Bindings) -> Option<Type> {
        let dtype = match self.dtype {
            DTypePattern::Fixed(dtype) => dtype,
            DTypePattern::Var(slot, _) => match bindings.get(slot)? {
                Bound::DType(dtype) => *dtype,
                _ => return None,
            },
        };
        Some(Type::Tensor(dtype, self.dims.value(bindings)?))
    }
}

/// Solves types and relations. Retries those that wait for others until all are solved.
///
/// # Errors
/// The first contradiction, or a remaining constraint if none can be decided.
pub fn solve(
    types: &[(&TypePattern, &Type)],
    relations: &[RelationCall],
    bindings: &mut Bindings,
) -> Result<(), Mismatch> {
    let mut types: SmallVec<[_; 4]> = types.iter().copied().collect();
    let mut relations: SmallVec<[_; 4]> = relations.iter().collect();
    loop {
        let before = (types.len(), relations.len(), bindings.clone());
        let mut failure = Ok(());
        types.retain(|(pattern, ty)| match pattern.unify(ty, bindings) {
            Ok(status) => status == Status::Later,
            Err(e) => {
                failure = Err(e);
                true
            }
        });
        failure?;
        let mut failure = Ok(());
        relations.retain(|call| match call.solve(bindings) {
            Ok(status) => status == Status::Later,
            Err(e) => {
                failure = Err(e);
                true
            }
        });
        failure?;
        if types.is_empty() && relations.is_empty() {
            return Ok(());
        }
        if before == (types.len(), relations.len(), bindings.clone()) {
            let what = relations.first().map_or("a shape".to_string(), |r| format!("`{}`", r.relation.name));
            return Err(Mismatch::Unsolved(what));
        }
    }
}
