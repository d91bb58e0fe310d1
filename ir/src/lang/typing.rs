//! Type patterns, unification against types, and type signatures.
//!
//! A pattern such as `F[B.. M (* 2 H)]` is matched against a type to bind its variables, or instantiated from
//! bindings to compute one. At most one sequence of a shape may be unbound when it is matched, and a dimension
//! expression is inverted only when one variable in it is unbound, so unification never backtracks: a constraint
//! that cannot be decided yet is put off until others have bound more.

use std::{fmt, sync::Arc};

use smallvec::SmallVec;

use super::{
    relation::RelationCall,
    sexp::{LangError, Sexp, SexpKind, Source},
};
use crate::{Attr, DType, Dim, Shape, Type};

/// Which element types a variable may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DTypeClass {
    /// Every one.
    Any,
    /// `f32 f64 f16 bf16`.
    Float,
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
            DTypeClass::Int => dtype.is_int(),
            DTypeClass::Number => dtype != DType::Bool,
            DTypeClass::Only(only) => only == dtype,
        }
    }

    /// The class of that name: `any`, `float`, `int`, `number` or an element type.
    pub fn named(name: &str) -> Option<DTypeClass> {
        Some(match name {
            "any" => DTypeClass::Any,
            "float" => DTypeClass::Float,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// An element type.
    DType(DType),
    /// A dimension.
    Dim(Dim),
    /// A sequence of dimensions.
    Dims(Shape),
    /// An attribute.
    Attr(Attr),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::DType(d) => d.fmt(f),
            Bound::Dim(d) => d.fmt(f),
            Bound::Dims(s) => s.fmt(f),
            Bound::Attr(a) => a.fmt(f),
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

/// An expression over dimensions.
#[derive(Clone, Debug, PartialEq)]
pub enum DimPattern {
    /// A number.
    Number(i64),
    /// A variable.
    Var(Slot),
    /// `(+ a b …)`.
    Sum(Vec<DimPattern>),
    /// `(* a b …)`.
    Product(Vec<DimPattern>),
    /// `(- a b)`.
    Difference(Box<[DimPattern; 2]>),
    /// `(/ a b)`, exact.
    Quotient(Box<[DimPattern; 2]>),
}

impl DimPattern {
    /// As it is written, with the variables' names of `scope`.
    pub fn show<'a>(&'a self, scope: &'a Scope) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            let (op, items) = match self {
                DimPattern::Number(n) => return write!(f, "{n}"),
                DimPattern::Var(slot) => return f.write_str(scope.name(*slot)),
                DimPattern::Sum(items) => ("+", items.as_slice()),
                DimPattern::Product(items) => ("*", items.as_slice()),
                DimPattern::Difference(pair) => ("-", pair.as_slice()),
                DimPattern::Quotient(pair) => ("/", pair.as_slice()),
            };
            write!(f, "({op}")?;
            // Boxed: the type of what is shown would hold itself.
            items.iter().try_for_each(|item| write!(f, " {}", Box::new(item.show(scope)) as Box<dyn fmt::Display>))?;
            f.write_str(")")
        })
    }

    /// Reads one; a new upper-case name becomes a dimension variable of the scope.
    ///
    /// # Errors
    /// When it is no dimension expression.
    pub fn parse(sexp: &Sexp, scope: &mut Scope, source: &Source) -> Result<DimPattern, LangError> {
        let help = "a dimension is a number, an upper-case name, or (+ a b), (- a b), (* a b), (/ a b) of dimensions";
        let bad = |what: String| source.error(sexp.span.clone(), what, help);
        if let Some(atom) = sexp.atom() {
            if let Ok(n) = atom.parse() {
                return Ok(DimPattern::Number(n));
            }
            if !is_variable(atom) {
                return Err(bad(format!("`{atom}` is not a dimension")));
            }
            let slot =
                scope.slot(atom, SlotKind::Dim).map_err(|_| bad(format!("`{atom}` is not a single dimension")))?;
            return Ok(DimPattern::Var(slot));
        }
        let Some((op, items)) = sexp.call() else {
            return Err(bad("this is not a dimension".into()));
        };
        let items: Vec<_> = items.iter().map(|s| DimPattern::parse(s, scope, source)).collect::<Result<_, _>>()?;
        let pair = |items: Vec<DimPattern>| {
            <[DimPattern; 2]>::try_from(items).map(Box::new).map_err(|_| bad(format!("`{op}` takes two dimensions")))
        };
        match op {
            "+" => Ok(DimPattern::Sum(items)),
            "*" => Ok(DimPattern::Product(items)),
            "-" => Ok(DimPattern::Difference(pair(items)?)),
            "/" => Ok(DimPattern::Quotient(pair(items)?)),
            _ => Err(bad(format!("`{op}` is no operation on dimensions"))),
        }
    }

    /// Its value, once every variable in it is bound; `None` also for an inexact quotient.
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
        })
    }

    /// Whether a variable in it is unbound.
    pub fn is_open(&self, bindings: &Bindings) -> bool {
        match self {
            DimPattern::Number(_) => false,
            DimPattern::Var(slot) => bindings.get(*slot).is_none(),
            DimPattern::Sum(items) | DimPattern::Product(items) => items.iter().any(|p| p.is_open(bindings)),
            DimPattern::Difference(pair) | DimPattern::Quotient(pair) => pair.iter().any(|p| p.is_open(bindings)),
        }
    }

    /// Matches a dimension: compares, or solves for the one variable that is unbound.
    ///
    /// # Errors
    /// When it cannot be equal.
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

/// A shape with variables: `[B.. M K]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DimsPattern(pub Vec<DimsItem>);

/// One item of a shape pattern.
#[derive(Clone, Debug, PartialEq)]
pub enum DimsItem {
    /// One axis.
    One(DimPattern),
    /// `B..`: any number of axes.
    Many(Slot),
}

impl DimsPattern {
    /// As it is written, with the variables' names of `scope`: `[B.. (* 2 H)]`.
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

    /// Reads the items of a bracket.
    ///
    /// # Errors
    /// When an item is no dimension.
    pub fn parse(items: &[Sexp], scope: &mut Scope, source: &Source) -> Result<DimsPattern, LangError> {
        let item = |s: &Sexp| match s.atom().and_then(|a| a.strip_suffix("..")) {
            Some(name) if is_variable(name) => scope.slot(name, SlotKind::Dims).map(DimsItem::Many).map_err(|_| {
                source.error(s.span.clone(), format!("`{name}` is not a sequence of dimensions"), "use another name")
            }),
            _ => DimPattern::parse(s, scope, source).map(DimsItem::One),
        };
        items.iter().map(item).collect::<Result<_, _>>().map(DimsPattern)
    }

    /// The shape, once every variable is bound and no extent is negative.
    pub fn value(&self, bindings: &Bindings) -> Option<Shape> {
        let mut dims: SmallVec<[Dim; 5]> = SmallVec::new();
        for item in &self.0 {
            match item {
                DimsItem::One(p) => dims.push(p.value(bindings)?),
                DimsItem::Many(slot) => dims.extend(bindings.dims(*slot)?.iter().cloned()),
            }
        }
        dims.iter().all(|d| d.known().is_none_or(|n| n >= 0)).then_some(Shape(dims))
    }

    /// Matches a shape.
    ///
    /// # Errors
    /// When it cannot be equal.
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

/// The element type of a pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DTypePattern {
    /// A variable, of a class.
    Var(Slot, DTypeClass),
    /// One type.
    Fixed(DType),
}

/// A tensor type with variables: `F[B.. M K]`.
#[derive(Clone, Debug, PartialEq)]
pub struct TypePattern {
    /// Element type.
    pub dtype: DTypePattern,
    /// Shape.
    pub dims: DimsPattern,
}

impl TypePattern {
    /// As it is written, with the variables' names of `scope`: `F[B.. (* 2 H)]`.
    pub fn show<'a>(&'a self, scope: &'a Scope) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| match self.dtype {
            DTypePattern::Var(slot, _) => write!(f, "{}{}", scope.name(slot), self.dims.show(scope)),
            DTypePattern::Fixed(dtype) => write!(f, "{dtype}{}", self.dims.show(scope)),
        })
    }

    /// Reads `F[…]`; `F` must be an element type or declared in the scope.
    ///
    /// # Errors
    /// When it is no type, or `F` is not declared.
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
                return Err(source.error(
                    sexp.span.clone(),
                    format!("`{name}` is not a known element type"),
                    "declare it first, as in (F float), or use f32, f64, f16, bf16, i8, u8, i32, i64, u32 or bool",
                ));
            }
        };
        Ok(TypePattern { dtype, dims: DimsPattern::parse(items, scope, source)? })
    }

    /// Matches a type.
    ///
    /// # Errors
    /// When it cannot be equal.
    pub fn unify(&self, ty: &Type, bindings: &mut Bindings) -> Result<Status, Mismatch> {
        let (dtype, shape) = ty
            .as_tensor()
            .ok_or_else(|| Mismatch::Form(format!("{ty} is a tuple; take one result out of it with `get`")))?;
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

    /// The type, once every variable is bound.
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

/// Settles constraints in whatever order works.
///
/// # Errors
/// The first contradiction, or what is left when nothing moves any more.
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
                failure = Err(Mismatch::Relation(e));
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

/// The type signature of an op: `(F float) F[B.. M K] F[B.. K N] -> F[B.. M N]`, then relations.
#[derive(Clone, Debug)]
pub struct Signature {
    /// Its variables; attributes of the op stand in it under their own names.
    pub scope: Scope,
    /// Operands.
    pub operands: Vec<TypePattern>,
    /// How many operands must be there; the rest are optional.
    pub required: usize,
    /// Results; a tuple if there are several.
    pub results: Vec<SignatureResult>,
    /// Relations between all of these.
    pub relations: Vec<RelationCall>,
}

/// The type of a result.
#[derive(Clone, Debug)]
pub enum SignatureResult {
    /// Computed from the pattern.
    Pattern(TypePattern),
    /// Whatever the attribute in the slot says: a type, or the type of a constant.
    Attr(Slot),
}

impl Signature {
    /// Reads a signature; `attrs` are the op's attribute names.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn parse(source: &Source, attrs: &[&str]) -> Result<Signature, LangError> {
        let forms = super::sexp::read(source).map_err(|mut e| e.0.remove(0))?;
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
                    let slot = scope.find(a).ok_or_else(|| bad("no such attribute"))?;
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
                        let class = class.atom().and_then(DTypeClass::named).ok_or_else(|| bad("no such class"))?;
                        scope.slot(name, SlotKind::DType(class)).map_err(|_| bad("declared twice"))?;
                    }
                    _ => relations.push(RelationCall::parse(form, &mut scope, source)?),
                },
                _ => return Err(bad("this does not belong in a signature")),
            }
        }
        Ok(Signature { scope, operands, required, results, relations })
    }

    /// Binds the variables from attributes and operand types.
    ///
    /// # Errors
    /// When they do not fit.
    pub fn bind(&self, attrs: &[Attr], operands: &[&Type]) -> Result<Bindings, Mismatch> {
        if operands.len() < self.required || operands.len() > self.operands.len() {
            let want = match (self.required, self.operands.len()) {
                (a, b) if a == b => a.to_string(),
                (a, b) => format!("{a} to {b}"),
            };
            return Err(Mismatch::Form(format!("{want} operands wanted, {} given", operands.len())));
        }
        let mut bindings = Bindings::default();
        for (slot, attr) in attrs.iter().enumerate() {
            bindings.bind(slot, Bound::Attr(attr.clone()))?;
        }
        let types: SmallVec<[_; 4]> = self.operands.iter().zip(operands.iter().copied()).collect();
        // A relation about an optional operand that is not there says nothing.
        let absent = &self.operands[operands.len()..];
        let relations: SmallVec<[_; 4]> =
            self.relations.iter().filter(|r| !absent.iter().any(|p| r.mentions(p))).cloned().collect();
        solve(&types, &relations, &mut bindings)?;
        Ok(bindings)
    }

    /// The type of the result for given attributes and operand types.
    ///
    /// # Errors
    /// When they do not fit.
    pub fn infer(&self, attrs: &[Attr], operands: &[&Type]) -> Result<Type, Mismatch> {
        let bindings = self.bind(attrs, operands)?;
        let mut results = self.results.iter().map(|result| match result {
            SignatureResult::Pattern(p) => p.value(&bindings).ok_or_else(|| Mismatch::Unsolved("the result".into())),
            SignatureResult::Attr(slot) => match bindings.attr(*slot) {
                Some(Attr::Type(t @ Type::Tensor(..))) => Ok(t.clone()),
                Some(Attr::Tensor(t)) => Ok(t.ty()),
                _ => Err(Mismatch::Form("the type of a tensor is wanted".into())),
            },
        });
        match self.results.len() {
            1 => results.next().expect("one result"),
            _ => results.collect::<Result<_, _>>().map(Type::Tuple),
        }
    }
}

/// Whether a name is spelled as a variable of the type language: upper case first.
pub fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
