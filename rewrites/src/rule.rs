//! The parts of a rule: variables, terms and sides. They are public for tools that check and change rules.

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

/// The numeric contract between the sides of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contract {
    /// Both sides have the same bits.
    Exact,
    /// The values differ by at most this number of units in the last place.
    Ulp(u32),
    /// Both sides are the same real function, but may round in different orders.
    Reassoc,
    /// The right side approximates the left one.
    Fast,
}

impl Contract {
    /// Returns the tolerance for numbers on the left side. Rules that keep every bit or count ulps match only the
    /// exact number.
    pub(crate) fn close(self) -> Close {
        if self.rounds() { Close::Computed } else { Close::Held }
    }

    /// Returns whether the sides may be equal only in real arithmetic.
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
    /// The name, `pack/name`.
    pub name: Arc<str>,
    /// The comment above the rule.
    pub doc: String,
    /// The numeric contract of the sides.
    pub contract: Contract,
    /// Whether the rule is applied only once, to the matches at the start of its phase.
    pub once: bool,
    /// Whether the right side is a normal form from which other rules start, although it is not cheaper.
    pub canonical: bool,
    /// The phase in which the rule runs.
    pub phase: Phase,
    /// The backends for which the rule runs. An empty list means all backends.
    pub backends: Vec<String>,
    /// The limits of the device that the rule requires.
    pub limits: Vec<LimitGuard>,
    /// The factor for the predicted time of kernels that compute the rule's result; 1 if the rule states none.
    pub price: f64,
    /// The rule file.
    pub source: Source,
    /// The position in the file.
    pub span: Range<usize>,
    /// The variables for dims, element types and attributes.
    pub scope: Scope,
    /// The variables that `forall` declares, in order.
    pub variables: Vec<Variable>,
    /// The `where` relations, with their positions.
    pub relations: Vec<(RelationCall, Range<usize>)>,
    /// The terms that `let` names.
    pub lets: Vec<(String, Term)>,
    /// The pairs of sides: a matched term, and the term that replaces it.
    pub roots: Vec<Root>,
    /// Whether the rule matches all members of a group at once.
    pub group: bool,
    /// The verdict of `eutectic rules prove` on the rule's text, if the folder of the file has one.
    pub proof: Option<Proof>,
    /// The variables on the right side, with their positions.
    pub(crate) uses: Vec<(VarId, Range<usize>)>,
    /// The number of calls on the left side. A call's id is its index among them.
    pub(crate) calls: usize,
    /// The number of numbers on the left side. A number's id is its index among them.
    pub(crate) numbers: usize,
}

impl Rule {
    /// Returns the rule's text without the comment above it.
    pub fn text(&self) -> &str {
        self.source.text.get(self.span.clone()).unwrap_or_default()
    }

    /// Returns the reason why the rule does not run on a device; `None` if it runs. Unknown limits of the device do
    /// not exclude it.
    pub fn kept_off(&self, device: &Device) -> Option<String> {
        let other = |name: &Arc<str>| !self.backends.is_empty() && !self.backends.iter().any(|own| **own == **name);
        if device.backend.as_ref().is_some_and(other) {
            return Some("it runs only for other backends".into());
        }
        let broken = self.limits.iter().find(|limit| !limit.holds(device))?;
        Some(format!("it runs only on devices with {broken}"))
    }

    /// Returns the part of the name before the slash.
    pub fn pack(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// Returns the index of a tensor variable among the tensor variables.
    pub fn tensor(&self, variable: usize) -> usize {
        self.variables[..variable].iter().filter(|v| matches!(v.kind, VariableKind::Tensor { .. })).count()
    }

    /// Returns the tensor variables, each with its type and whether it must be constant.
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

    /// Returns the number that a number variable must equal or be near.
    pub fn wanted(&self, slot: VarId) -> Option<f64> {
        self.variables.iter().find_map(|v| match v.kind {
            VariableKind::Number(s) if s == slot => v.wanted.map(|w| w.value),
            _ => None,
        })
    }

    /// Returns whether a `fast` rule states domains for its inputs. Within these domains, it keeps the contract
    /// `reassoc`.
    pub fn states_its_domain(&self) -> bool {
        self.variables.iter().any(|v| v.domain.is_some())
    }

    /// Returns for each variable whether the right side splats it, that is, lists its values in all members of the
    /// group.
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

    /// Returns whether the left side is a single op, so that the rule defines the op for backends without a kernel
    /// for it.
    pub fn is_definition(&self) -> bool {
        self.roots.iter().all(|root| match &root.left {
            Term::Call(call) => !call.args.iter().any(|arg| matches!(arg, Term::Call(_))),
            _ => true,
        })
    }

    /// Returns whether the rule defines an op whose kernel chooses the order of rounding
    /// ([`Class::leaves_order_open`]), or whether it legalizes. Such a rule does not change how the op's result may
    /// be rounded, because the op has no other definition.
    pub fn defines_an_op(&self) -> bool {
        // A rule for one result of an op defines that result.
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

    /// Returns the file and line of the rule.
    pub fn place(&self) -> String {
        format!("{}:{}", self.source.name, self.source.position(self.span.start).0)
    }
}

/// A pair of sides, `(=> left right)`.
#[derive(Clone, Debug)]
pub struct Root {
    /// The matched term.
    pub left: Term,
    /// The term that replaces it.
    pub right: Term,
    /// The position of the pair.
    pub span: Range<usize>,
}

/// A variable that `forall` declares.
#[derive(Clone, Debug)]
pub struct Variable {
    /// The name, including the question mark.
    pub name: String,
    /// The position of its declaration.
    pub span: Range<usize>,
    /// The kind of the variable.
    pub kind: VariableKind,
    /// The number that all of its elements must equal.
    pub wanted: Option<Wanted>,
    /// The range of elements for which a `fast` rule holds. A lower bound of 0 is exclusive.
    pub domain: Option<(f64, f64)>,
    /// Whether the variable matches only values that are not known to be one number everywhere.
    pub varied: bool,
}

impl Variable {
    /// Returns whether the variable is a tensor.
    pub fn is_tensor(&self) -> bool {
        matches!(self.kind, VariableKind::Tensor { .. })
    }
}

/// The kind of a variable.
#[derive(Clone, Debug)]
pub enum VariableKind {
    /// A tensor.
    Tensor {
        /// The pattern of the tensor's type.
        ty: TypePattern,
        /// Whether the tensor must be constant.
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
    /// Axes in ascending order.
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

/// A term on either side.
#[derive(Clone, Debug)]
pub enum Term {
    /// A tensor variable.
    Tensor(usize),
    /// The values of a tensor variable in all members of the group.
    Splat(usize),
    /// A number as an operand.
    Number {
        /// The index among the numbers on the left side.
        id: usize,
        /// The value.
        expr: Expr,
    },
    /// An op.
    Call(AppliedOp),
    /// A term that `let` names.
    Let(usize),
}

/// An op applied to terms.
#[derive(Clone, Debug)]
pub struct AppliedOp {
    /// The index among the calls on the left side.
    pub id: usize,
    /// The op.
    pub op: OpTerm,
    /// The operands.
    pub args: Vec<Term>,
    /// A term for each attribute that can be written with the op. `None` stands for the default.
    pub attrs: Vec<Option<AttrTerm>>,
    /// The position of the term.
    pub span: Range<usize>,
}

/// An op, or a variable that stands as an op's name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OpTerm {
    /// An op.
    Named(Op),
    /// A variable for any op of a group. It also binds the op's attributes if these differ within the group.
    Variable(VarId, Group),
}

impl OpTerm {
    /// Returns the ops for which the term may stand.
    pub fn ops(&self) -> &[Op] {
        match self {
            OpTerm::Named(op) => std::slice::from_ref(op),
            OpTerm::Variable(_, group) => group.ops(),
        }
    }

    /// Returns whether the term may stand for this op.
    pub fn admits(&self, op: Op) -> bool {
        self.ops().contains(&op)
    }

    /// Returns whether the first two operands can be swapped, for at least one op for which the term may stand.
    pub fn commutes(&self) -> bool {
        self.ops().iter().any(|op| op.def().commutative)
    }

    /// Returns the attributes that a rule may write after the op's name.
    pub fn attrs(&self) -> &'static [AttrDef] {
        match self {
            OpTerm::Named(op) => op.def().attrs,
            OpTerm::Variable(_, group) => group.attrs(),
        }
    }

    /// Returns the index of the attribute `name` in [`OpTerm::attrs`].
    pub fn attr(&self, name: &str) -> Option<usize> {
        self.attrs().iter().position(|def| def.name == name)
    }

    /// Returns the op and the attributes that the variable binds with it; `None` if the variable is unbound.
    pub fn resolve<'b>(&self, bindings: &'b Bindings) -> Option<(Op, &'b [Attr])> {
        match self {
            OpTerm::Named(op) => Some((*op, &[])),
            OpTerm::Variable(slot, _) => bindings.op(*slot).map(|(op, attrs)| (op, attrs.as_slice())),
        }
    }

    /// Returns the attributes that a variable binds together with its op.
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
    /// A variable for an attribute, a number or an element type.
    Slot(VarId),
    /// A dim. A left side solves for its unknown.
    Dim(DimPattern),
    /// A shape.
    Shape(DimsPattern),
    /// An arithmetic expression.
    Number(Expr),
    /// The first permutation followed by the second.
    Compose(Box<[AttrTerm; 2]>),
    /// The inverse permutation.
    Inverse(Box<AttrTerm>),
}

// Terms are equal if they differ only in positions and ids.
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
