//! Type signatures of ops: the types of operands and results, and the relations between them.

use smallvec::SmallVec;

use super::{
    super::{
        relation::RelationCall,
        sexp::{LangError, SexpKind, Source, read},
    },
    Bindings, Bound, DTypeClass, Mismatch, Scope, SlotKind, TypePattern, VarId, is_variable, solve,
};
use crate::{Attr, Type};

/// The type signature of an op: `(F float) F[B.. M K] F[B.. K N] -> F[B.. M N]`, followed by relations.
#[derive(Clone, Debug)]
pub struct Signature {
    /// The variables. An attribute of the op is a variable with the attribute's name.
    pub scope: Scope,
    /// The types of the operands.
    pub operands: Vec<TypePattern>,
    /// The number of required operands; the operands after these are optional.
    pub required: usize,
    /// The types of the results; the op returns a tuple if there are several.
    pub results: Vec<SignatureResult>,
    /// Relations between the variables.
    pub relations: Vec<RelationCall>,
}

/// The type of a result.
#[derive(Clone, Debug)]
pub enum SignatureResult {
    /// The pattern's value.
    Pattern(TypePattern),
    /// The type in this attribute, or the type of the constant in it.
    Attr(VarId),
}

impl Signature {
    /// Reads a signature. `attrs` are the names of the op's attributes.
    ///
    /// # Errors
    /// If the signature is malformed.
    pub fn parse(source: &Source, attrs: &[&str]) -> Result<Signature, LangError> {
        let forms = read(source).map_err(|mut e| e.0.remove(0))?;
        let mut scope = Scope::default();
        for attr in attrs {
            scope.variables.push(((*attr).into(), SlotKind::Attr));
        }
        let (mut operands, mut results, mut relations) = (Vec::new(), Vec::new(), Vec::new());
        let (mut required, mut arrow) = (0, false);
        for form in &forms {
            let bad = |what: &str| {
                source.error(form.span.clone(), what, "(F float) F[A..] F[B..]? -> F[C..] (broadcast A B C)")
            };
            match &form.kind {
                SexpKind::Atom(a) if a == "->" => arrow = true,
                SexpKind::Atom(a) if a == "?" => required -= 1,
                SexpKind::Atom(a) if arrow => {
                    let slot = scope.find(a).ok_or_else(|| bad("the op has no such attribute"))?;
                    results.push(SignatureResult::Attr(slot));
                }
                SexpKind::Bracket(..) if arrow => {
                    results.push(SignatureResult::Pattern(TypePattern::parse(form, &mut scope, source)?));
                }
                SexpKind::Bracket(..) => {
                    operands.push(TypePattern::parse(form, &mut scope, source)?);
                    required += 1;
                }
                SexpKind::List(_) => match form.call() {
                    Some((name, [class])) if is_variable(name) => {
                        let class = class
                            .atom()
                            .and_then(DTypeClass::named)
                            .ok_or_else(|| bad("there is no such class of element types"))?;
                        scope.slot(name, SlotKind::DType(class)).map_err(|_| bad("this variable is declared twice"))?;
                    }
                    _ => relations.push(RelationCall::parse(form, &mut scope, source)?),
                },
                _ => return Err(bad("this does not belong in a signature")),
            }
        }
        Ok(Signature { scope, operands, required, results, relations })
    }

    /// Binds the variables to attributes and operand types.
    ///
    /// # Errors
    /// If attributes or operand types do not fit the signature.
    pub fn bind(&self, attrs: &[Attr], operands: &[&Type]) -> Result<Bindings, Mismatch> {
        if operands.len() < self.required || operands.len() > self.operands.len() {
            let want = match (self.required, self.operands.len()) {
                (a, b) if a == b => a.to_string(),
                (a, b) => format!("{a} to {b}"),
            };
            return Err(Mismatch::Form(format!("the op takes {want} operands, but {} are given", operands.len())));
        }
        let mut bindings = Bindings::default();
        for (slot, attr) in attrs.iter().enumerate() {
            bindings.bind(slot, Bound::Attr(attr.clone()))?;
        }
        let types: SmallVec<[_; 4]> = self.operands.iter().zip(operands.iter().copied()).collect();
        // Relations that mention a missing optional operand are ignored.
        let absent = &self.operands[operands.len()..];
        let relations: SmallVec<[_; 4]> =
            self.relations.iter().filter(|r| !absent.iter().any(|p| r.mentions(p))).cloned().collect();
        solve(&types, &relations, &mut bindings)?;
        Ok(bindings)
    }

    /// Returns the type of the result, given attributes and operand types.
    ///
    /// # Errors
    /// If attributes or operand types do not fit the signature.
    pub fn infer(&self, attrs: &[Attr], operands: &[&Type]) -> Result<Type, Mismatch> {
        let bindings = self.bind(attrs, operands)?;
        let mut results = self.results.iter().map(|result| match result {
            SignatureResult::Pattern(p) => p.value(&bindings).ok_or_else(|| Mismatch::Unsolved("the result".into())),
            SignatureResult::Attr(slot) => match bindings.attr(*slot) {
                Some(Attr::Type(t @ Type::Tensor(..))) => Ok(t.clone()),
                Some(Attr::Tensor(t)) => Ok(t.ty()),
                _ => Err(Mismatch::Form("the attribute must be the type of a tensor".into())),
            },
        });
        match self.results.len() {
            1 => results.next().expect("the signature has one result"),
            _ => results.collect::<Result<_, _>>().map(Type::Tuple),
        }
    }
}
