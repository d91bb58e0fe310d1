//! What a rule is, once it is read: variables, terms and sides. Public for tools that check and change rules.

use std::{fmt, ops::Range, sync::Arc};

use eutectic_ir::{
    Attr, Attrs, Class, Op,
    lang::{
        Bindings, RelationCall, Source, TypePattern,
        typing::{DimPattern, DimsPattern, Scope, VarId},
    },
    ops::{AttrDef, Group},
};

use crate::{
    expr::{Close, Expr, Wanted},
    proof::Proof,
};

/// What the two sides of a rule promise each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contract {
    /// The same bits.
    Exact,
    /// At most that many units in the last place apart.
    Ulp(u32),
    /// The same real function, rounded in another order.
    Reassoc,
    /// An approximation.
    Fast,
}

impl Contract {
    /// Which numbers a number of a left side stands for: rules that keep every bit, or count ulps, match the very number.
    pub(crate) fn close(self) -> Close {
        if self.rounds() { Close::Computed } else { Close::Held }
    }

    /// Whether real arithmetic is all that the sides have in common.
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

/// When a rule runs. Rules of earlier phases stay active in later ones, but for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Surface forms become the forms that kernels take.
    Legalize,
    /// Simplify, decompose and recognise.
    Main,
    /// Associativity and distribution: bounded.
    Algebra,
    /// What is split for a backend's kernels.
    Templates,
    /// What goes into weights that are constant: in the end, so that no other rule acts on what is made.
    Fold,
}

impl Phase {
    /// All, in order.
    pub const ALL: [Phase; 5] = [Phase::Legalize, Phase::Main, Phase::Algebra, Phase::Templates, Phase::Fold];

    /// The phase in which the rules of a pack run.
    pub fn of_pack(pack: &str) -> Phase {
        match pack {
            "legalize" => Phase::Legalize,
            "algebra" => Phase::Algebra,
            // What is rounded is what the phases before have found.
            "unfuse" | "templates" | "tf32" | "f16" | "bf16" => Phase::Templates,
            "fold" => Phase::Fold,
            _ => Phase::Main,
        }
    }

    /// Whether rules of a phase run in this one.
    pub(crate) fn runs(self, of: Phase) -> bool {
        of == self || of < self && self != Phase::Fold
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Legalize => "legalize",
            Phase::Main => "main",
            Phase::Algebra => "algebra",
            Phase::Templates => "templates",
            Phase::Fold => "fold",
        })
    }
}

/// A rewrite rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// `pack/name`.
    pub name: Arc<str>,
    /// The comment above it.
    pub doc: String,
    /// What its sides promise each other.
    pub contract: Contract,
    /// Applied once to the matches that its phase starts with.
    pub once: bool,
    /// Its right side is not cheaper, but the form that other rules start from.
    pub canonical: bool,
    /// When it runs.
    pub phase: Phase,
    /// The backends for which it runs; all where there is none.
    pub backends: Vec<String>,
    /// The file it comes from.
    pub source: Source,
    /// Where it stands in the file.
    pub span: Range<usize>,
    /// Its dims, element types and attributes.
    pub scope: Scope,
    /// What `forall` declares, in order.
    pub variables: Vec<Variable>,
    /// The `where` relations, and where they stand.
    pub relations: Vec<(RelationCall, Range<usize>)>,
    /// The terms that `let` names.
    pub lets: Vec<(String, Term)>,
    /// The pairs of sides.
    pub roots: Vec<Root>,
    /// Whether it takes all members of a group.
    pub group: bool,
    /// What is known of it: the verdict of `eutectic rules prove` on this text, where the folder of its file has one.
    pub proof: Option<Proof>,
    /// Variables of the right, and where they stand.
    pub(crate) uses: Vec<(VarId, Range<usize>)>,
    /// Calls of the left; a call's id is its place here.
    pub(crate) calls: usize,
    /// Numbers of the left, likewise.
    pub(crate) numbers: usize,
}

impl Rule {
    /// Whether it runs for a backend; without one, every rule does.
    pub fn runs_for(&self, backend: Option<&str>) -> bool {
        self.backends.is_empty() || backend.is_none_or(|name| self.backends.iter().any(|own| own == name))
    }

    /// The part of the name before the slash.
    pub fn pack(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// The place of a tensor variable among the tensor variables.
    pub fn tensor(&self, variable: usize) -> usize {
        self.variables[..variable].iter().filter(|v| matches!(v.kind, VariableKind::Tensor { .. })).count()
    }

    /// The tensor variables: each with its type, and whether it is to be constant.
    pub fn tensors(&self) -> impl Iterator<Item = (&Variable, &TypePattern, bool)> {
        self.variables.iter().filter_map(|v| match &v.kind {
            VariableKind::Tensor { ty, constant } => Some((v, ty, *constant)),
            _ => None,
        })
    }

    /// What an attribute variable stands for; `None` of any other.
    pub fn attribute(&self, slot: VarId) -> Option<&AttrVariable> {
        self.variables.iter().find_map(|v| match &v.kind {
            VariableKind::Attr(s, kind) if *s == slot => Some(kind),
            _ => None,
        })
    }

    /// The number that a number variable is to be, or to be near.
    pub fn wanted(&self, slot: VarId) -> Option<f64> {
        self.variables.iter().find_map(|v| match v.kind {
            VariableKind::Number(s) if s == slot => v.wanted.map(|w| w.value),
            _ => None,
        })
    }

    /// Whether a `fast` rule says for which inputs its sides are equal: there it keeps what `reassoc` promises.
    pub fn states_its_domain(&self) -> bool {
        self.variables.iter().any(|v| v.domain.is_some())
    }

    /// For each variable, whether the right side takes it of all members of the group at once.
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

    /// Whether its left side is one op: it says what that is made of, for backends without a kernel for it.
    pub fn is_definition(&self) -> bool {
        self.roots.iter().all(|root| match &root.left {
            Term::Call(call) => !call.args.iter().any(|arg| matches!(arg, Term::Call(_))),
            _ => true,
        })
    }

    /// Whether it defines an op by others: one whose order of rounding is left to its kernel ([`Class::leaves_order_open`]), or a
    /// surface form by the one that kernels take. That is no liberty with the op's rounding, which has no other.
    pub fn defines_an_op(&self) -> bool {
        // What takes one result out of several says what that result is.
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
    /// What is matched.
    pub left: Term,
    /// What it is equal to.
    pub right: Term,
    /// Where it stands.
    pub span: Range<usize>,
}

/// A variable that `forall` declares.
#[derive(Clone, Debug)]
pub struct Variable {
    /// With its question mark.
    pub name: String,
    /// Where it is declared.
    pub span: Range<usize>,
    /// What it stands for.
    pub kind: VariableKind,
    /// The number that its elements are to be.
    pub wanted: Option<Wanted>,
    /// The least and the most that its elements may be for a `fast` rule to promise anything; the least is left out where it is 0.
    pub domain: Option<(f64, f64)>,
    /// Whether it is no number: nothing that is known to have one value everywhere.
    pub varied: bool,
}

impl Variable {
    /// Whether it is a tensor.
    pub fn is_tensor(&self) -> bool {
        matches!(self.kind, VariableKind::Tensor { .. })
    }
}

/// What a variable stands for.
#[derive(Clone, Debug)]
pub enum VariableKind {
    /// A tensor.
    Tensor {
        /// What its type is to be.
        ty: TypePattern,
        /// Whether it is to be constant.
        constant: bool,
    },
    /// A number.
    Number(VarId),
    /// An attribute.
    Attr(VarId, AttrVariable),
    /// An op of a group.
    Op(VarId, Group),
}

/// What an attribute variable stands for.
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
    /// A tensor variable in all members of the group.
    Splat(usize),
    /// A number as an operand.
    Number {
        /// Its place among the numbers of the left.
        id: usize,
        /// What it is.
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
    /// Its place among the calls of the left.
    pub id: usize,
    /// The op.
    pub op: OpTerm,
    /// Its operands.
    pub args: Vec<Term>,
    /// One for each attribute of the op that can be written; `None`: its default.
    pub attrs: Vec<Option<AttrTerm>>,
    /// Where it stands.
    pub span: Range<usize>,
}

/// What stands as the name of an op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OpTerm {
    /// An op.
    Named(Op),
    /// A variable: any op of a group, with its attributes where these differ from op to op.
    Variable(VarId, Group),
}

impl OpTerm {
    /// The ops that it may stand for.
    pub fn ops(&self) -> &[Op] {
        match self {
            OpTerm::Named(op) => std::slice::from_ref(op),
            OpTerm::Variable(_, group) => group.ops(),
        }
    }

    /// Whether it may stand for an op.
    pub fn admits(&self, op: Op) -> bool {
        self.ops().contains(&op)
    }

    /// Whether the first two operands of an op that it stands for can be swapped.
    pub fn commutes(&self) -> bool {
        self.ops().iter().any(|op| op.def().commutative)
    }

    /// The attributes that are written with it.
    pub fn attrs(&self) -> &'static [AttrDef] {
        match self {
            OpTerm::Named(op) => op.def().attrs,
            OpTerm::Variable(_, group) => group.attrs(),
        }
    }

    /// The place of an attribute among those that are written with it.
    pub fn attr(&self, name: &str) -> Option<usize> {
        self.attrs().iter().position(|def| def.name == name)
    }

    /// The op that it is, and the attributes that the variable brings with it; `None` where the variable is not bound.
    pub fn resolve<'b>(&self, bindings: &'b Bindings) -> Option<(Op, &'b [Attr])> {
        match self {
            OpTerm::Named(op) => Some((*op, &[])),
            OpTerm::Variable(slot, _) => bindings.op(*slot).map(|(op, attrs)| (op, attrs.as_slice())),
        }
    }

    /// The attributes that a variable binds with its op.
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
    /// A dim (on the left: solved).
    Dim(DimPattern),
    /// A shape.
    Shape(DimsPattern),
    /// Arithmetic.
    Number(Expr),
    /// First the one, then the other permutation.
    Compose(Box<[AttrTerm; 2]>),
    /// The inverse permutation.
    Inverse(Box<AttrTerm>),
}

// Where a term stands does not matter to what it is.
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
    /// Calls `visit` with this term and everything in it, outermost first.
    pub fn visit<'t>(&'t self, visit: &mut dyn FnMut(&'t Term)) {
        visit(self);
        if let Term::Call(call) = self {
            call.args.iter().for_each(|a| a.visit(visit));
        }
    }
}
