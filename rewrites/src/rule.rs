//! The parts of a rule: variables, terms and sides. Public for tools that check and change rules.

use std::{fmt, ops::Range, sync::Arc};

use eutectic_ir::{
    Attr, Attrs, Class, Op,
    lang::{
        Bindings, RelationCall, Source, TypePattern,
        typing::{DimPattern, DimsPattern, Scope, VarId},
    },
    ops::{AttrDef, Group},
};

pub use crate::phase::Phase;
use crate::{
    device::{Device, LimitGuard},
    expr::{Close, Expr, Wanted},
    proof::Proof,
};

/// The contract between the two sides of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contract {
    /// Both sides have the same bits.
    Exact,
    /// The values differ by at most this number of units in the last place.
    Ulp(u32),
    /// Both sides are the same real function, rounded in another order.
    Reassoc,
    /// The right side approximates the left one.
    Fast,
}

impl Contract {
    /// Returns the tolerance for numbers on the left side: rules that keep every bit, or count ulps, match the exact
    /// number.
    pub(crate) fn close(self) -> Close {
        if self.rounds() { Close::Computed } else { Close::Held }
    }

    /// Returns whether the sides are only equal in real arithmetic.
    pub(crate) fn rounds(self) -> bool {
        matches!(self, Contract::Reassoc | Contract::Fast)
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contract::Exact => f.write_str("exact"),
            Contract::Ulp(n) => write!(f, "ulp {n}"),
            Contract::Reassoc => f.write_str("reassoc"),
            Contract::Fast => f.write_str("fast"),
        }
    }
}

/// A rewrite rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// `pack/name`.
    pub name: Arc<str>,
    /// The comment above it.
    pub doc: String,
    /// The contract of its sides.
    pub contract: Contract,
    /// Whether it is applied once, to the matches at the start of its phase.
    pub once: bool,
    /// Whether its right side is a normal form from which other rules start, although it is not cheaper.
    pub canonical: bool,
    /// The phase in which it runs.
    pub phase: Phase,
    /// The backends for which it runs. An empty list means all.
    pub backends: Vec<String>,
    /// The bounds on limits of the device under which it runs.
    pub limits: Vec<LimitGuard>,
    /// The factor by which it corrects the predicted time of kernels with its result; 1 if it states none.
    pub price: f64,
    /// The file it comes from.
    pub source: Source,
    /// Its position in the file.
    pub span: Range<usize>,
    /// Its dims, element types and attributes.
    pub scope: Scope,
    /// The variables that `forall` declares, in order.
    pub variables: Vec<Variable>,
    /// The `where` relations, with their positions.
    pub relations: Vec<(RelationCall, Range<usize>)>,
    /// The terms that have names by `let`.
    pub lets: Vec<(String, Term)>,
    /// The pairs of sides: a matched term and the equal one.
    pub roots: Vec<Root>,
    /// Whether it takes all members of a group.
    pub group: bool,
    /// The verdict of `eutectic rules prove` on this text, if the folder of its file has one.
    pub proof: Option<Proof>,
    /// The variables of the right side, with their positions.
    pub(crate) uses: Vec<(VarId, Range<usize>)>,
    /// The number of calls on the left. A call's id is its place among them.
    pub(crate) calls: usize,
    /// The number of numbers on the left. A number's id is its place among them.
    pub(crate) numbers: usize,
}

impl Rule {
    /// Returns its text from its file, without the comment above it.
    pub fn text(&self) -> &str {
        self.source.text.get(self.span.clone()).unwrap_or_default()
    }

    /// Returns why it does not run on a device; `None` if it does. What is not known of the device is no reason.
    pub fn kept_off(&self, device: &Device) -> Option<String> {
        let other = |name: &Arc<str>| !self.backends.is_empty() && !self.backends.iter().any(|own| **own == **name);
        if device.backend.as_ref().is_some_and(other) {
            return Some("it runs for other backends only".into());
        }
        let broken = self.limits.iter().find(|limit| !limit.holds(device))?;
        Some(format!("it runs on devices with {broken} only"))
    }

    /// Returns the part of the name before the slash.
    pub fn pack(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// Returns the place of a tensor variable among the tensor variables.
    pub fn tensor(&self, variable: usize) -> usize {
        self.variables[..variable].iter().filter(|v| matches!(v.kind, VariableKind::Tensor { .. })).count()
    }

    /// Returns the tensor variables, each with its type, and whether it must be constant.
    pub fn tensors(&self) -> impl Iterator<Item = (&Variable, &TypePattern, bool)> {
        self.variables.iter().filter_map(|v| match &v.kind {
            VariableKind::Tensor { ty, constant } => Some((v, ty, *constant)),
            _ => None,
        })
    }

    /// Returns the kind of an attribute variable; `None` for other variables.
    pub fn attribute(&self, slot: VarId) -> Option<&AttrVariable> {
        self.variables.iter().find_map(|v| match &v.kind {
            VariableKind::Attr(s, kind) if *s == slot => Some(kind),
            _ => None,
        })
    }

    /// Returns the number that a number variable must equal, or be near.
    pub fn wanted(&self, slot: VarId) -> Option<f64> {
        self.variables.iter().find_map(|v| match v.kind {
            VariableKind::Number(s) if s == slot => v.wanted.map(|w| w.value),
            _ => None,
        })
    }

    /// Returns whether a `fast` rule states the inputs for which its sides are equal. For these it keeps the contract
    /// `reassoc`.
    pub fn states_its_domain(&self) -> bool {
        self.variables.iter().any(|v| v.domain.is_some())
    }

    /// Returns, for each variable, whether the right side splats it over all members of the group.
    pub fn splatted(&self) -> Vec<bool> {
        let mut splatted = vec![false; self.variables.len()];
        let rights = self.roots.iter().map(|r| &r.right).chain(self.lets.iter().map(|(_, t)| t));
        for right in rights {
            right.visit(&mut |term| {
                if let Term::Splat(at) = term {
                    splatted[*at] = true;
                }
            });
        }
        splatted
    }

    /// Returns whether its left side is a single op, so that it defines the op for backends without a kernel for it.
    pub fn is_definition(&self) -> bool {
        self.roots.iter().all(|root| match &root.left {
            Term::Call(call) => !call.args.iter().any(|arg| matches!(arg, Term::Call(_))),
            _ => true,
        })
    }

    /// Returns whether it defines an op whose kernel chooses the order of rounding ([`Class::leaves_order_open`]), or
    /// replaces a surface form by the form of kernels. Such a rule does not change the op's rounding, because the op
    /// has no other definition.
    pub fn defines_an_op(&self) -> bool {
        // A rule for one of an op's results defines that result.
        let defined = |root: &Root| match &root.left {
            Term::Call(AppliedOp { op: OpTerm::Named(op), args, .. }) if matches!(op.def().class, Class::Project) => {
                args.first().cloned()
            }
            term => Some(term.clone()),
        };
        let is_open = |root: &Root| match defined(root) {
            Some(Term::Call(AppliedOp { op, args, .. })) => {
                op.ops().iter().all(|op| op.def().class.leaves_order_open())
                    && !args.iter().any(|arg| matches!(arg, Term::Call(_)))
            }
            _ => false,
        };
        self.phase == Phase::Legalize || self.pack() == "decompose" && self.roots.iter().all(is_open)
    }

    /// File and line.
    pub fn place(&self) -> String {
        format!("{}:{}", self.source.name, self.source.position(self.span.start).0)
    }
}

/// `(=> left right)`.
#[derive(Clone, Debug)]
pub struct Root {
    /// The matched term.
    pub left: Term,
    /// The equal term.
    pub right: Term,
    /// Its position.
    pub span: Range<usize>,
}

/// A variable that `forall` declares.
#[derive(Clone, Debug)]
pub struct Variable {
    /// The name, with its question mark.
    pub name: String,
    /// The position of its declaration.
    pub span: Range<usize>,
    /// Its kind.
    pub kind: VariableKind,
    /// The number that its elements must equal.
    pub wanted: Option<Wanted>,
    /// The range of its elements for which a `fast` rule holds. A lower bound of 0 is exclusive.
    pub domain: Option<(f64, f64)>,
    /// Whether it matches only values that are not known to be a single number.
    pub varied: bool,
}

impl Variable {
    /// Returns whether it is a tensor.
    pub fn is_tensor(&self) -> bool {
        matches!(self.kind, VariableKind::Tensor { .. })
    }
}

/// The kind of a variable.
#[derive(Clone, Debug)]
pub enum VariableKind {
    /// A tensor.
    Tensor {
        /// The pattern of its type.
        ty: TypePattern,
        /// Whether it must be constant.
        constant: bool,
    },
    /// A number.
    Number(VarId),
    /// An attribute.
    Attr(VarId, AttrVariable),
    /// An op of a group.
    Op(VarId, Group),
}

/// The kind of an attribute variable.
#[derive(Clone, Debug, PartialEq)]
pub enum AttrVariable {
    /// An integer.
    Int,
    /// An axis.
    Axis,
    /// Axes, ascending.
    Axes,
    /// A permutation.
    Perm,
    /// A shape.
    Shape,
    /// A truth value.
    Bool,
    /// An element type.
    DType,
    /// One of these words.
    OneOf(Vec<String>),
}

/// A term of either side.
#[derive(Clone, Debug)]
pub enum Term {
    /// A tensor variable.
    Tensor(usize),
    /// The values of a tensor variable in all members of the group.
    Splat(usize),
    /// A number as an operand.
    Number {
        /// Its place among the numbers of the left.
        id: usize,
        /// Its value.
        expr: Expr,
    },
    /// An op.
    Call(AppliedOp),
    /// A term that has a name by `let`.
    Let(usize),
}

/// An op applied to terms.
#[derive(Clone, Debug)]
pub struct AppliedOp {
    /// Its place among the calls of the left.
    pub id: usize,
    /// The op.
    pub op: OpTerm,
    /// Its operands.
    pub args: Vec<Term>,
    /// A term for each attribute of the op that can be written. `None` is its default.
    pub attrs: Vec<Option<AttrTerm>>,
    /// Its position.
    pub span: Range<usize>,
}

/// A term in place of an op's name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OpTerm {
    /// An op.
    Named(Op),
    /// A variable: any op of a group, with its attributes if these differ from op to op.
    Variable(VarId, Group),
}

impl OpTerm {
    /// Returns the ops that it may stand for.
    pub fn ops(&self) -> &[Op] {
        match self {
            OpTerm::Named(op) => std::slice::from_ref(op),
            OpTerm::Variable(_, group) => group.ops(),
        }
    }

    /// Returns whether it may stand for an op.
    pub fn admits(&self, op: Op) -> bool {
        self.ops().contains(&op)
    }

    /// Returns whether the first two operands can be swapped for each op that it may be.
    pub fn commutes(&self) -> bool {
        self.ops().iter().any(|op| op.def().commutative)
    }

    /// Returns the attributes that are written with it.
    pub fn attrs(&self) -> &'static [AttrDef] {
        match self {
            OpTerm::Named(op) => op.def().attrs,
            OpTerm::Variable(_, group) => group.attrs(),
        }
    }

    /// Returns the place of an attribute among those that are written with it.
    pub fn attr(&self, name: &str) -> Option<usize> {
        self.attrs().iter().position(|def| def.name == name)
    }

    /// Returns the op, and the attributes that the variable binds with it. Returns `None` if the variable is not bound.
    pub fn resolve<'b>(&self, bindings: &'b Bindings) -> Option<(Op, &'b [Attr])> {
        match self {
            OpTerm::Named(op) => Some((*op, &[])),
            OpTerm::Variable(slot, _) => bindings.op(*slot).map(|(op, attrs)| (op, attrs.as_slice())),
        }
    }

    /// Returns the attributes that a variable binds with its op.
    pub fn carried(&self, attrs: &Attrs) -> Attrs {
        if self.attrs().is_empty() { attrs.clone() } else { Attrs::new() }
    }
}

impl fmt::Display for OpTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpTerm::Named(op) => op.fmt(f),
            OpTerm::Variable(_, group) => group.fmt(f),
        }
    }
}

/// An attribute in a term.
#[derive(Clone, Debug, PartialEq)]
pub enum AttrTerm {
    /// A literal.
    Value(Attr),
    /// An attribute or number variable, or an element type.
    Slot(VarId),
    /// A dim. On the left, it is solved for.
    Dim(DimPattern),
    /// A shape.
    Shape(DimsPattern),
    /// Arithmetic.
    Number(Expr),
    /// The first permutation, followed by the second.
    Compose(Box<[AttrTerm; 2]>),
    /// The inverse permutation.
    Inverse(Box<AttrTerm>),
}

// Two terms are equal if they differ only in their positions.
impl PartialEq for Term {
    fn eq(&self, other: &Term) -> bool {
        match (self, other) {
            (Term::Tensor(a), Term::Tensor(b)) | (Term::Splat(a), Term::Splat(b)) | (Term::Let(a), Term::Let(b)) => {
                a == b
            }
            (Term::Number { expr: a, .. }, Term::Number { expr: b, .. }) => a == b,
            (Term::Call(a), Term::Call(b)) => a.op == b.op && a.args == b.args && a.attrs == b.attrs,
            _ => false,
        }
    }
}

impl Term {
    /// Calls `visit` with this term and every nested one, the outermost first.
    pub fn visit<'t>(&'t self, visit: &mut dyn FnMut(&'t Term)) {
        visit(self);
        if let Term::Call(call) = self {
            call.args.iter().for_each(|a| a.visit(visit));
        }
    }
}
