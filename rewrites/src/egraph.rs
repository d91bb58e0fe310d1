//! The e-graph: its nodes, and the facts about its classes.
//!
//! Attributes are part of a node's head, not leaf children. The engine's matcher reads them there, and the e-graph
//! needs no class for each axis and epsilon. Heads and types are interned. So hashing a node never reads the bytes of
//! a tensor, and the facts about a type are derived once for all repeated layers.

use std::{fmt, rc::Rc};

use egg::{DidMerge, Id, Language};
use eutectic_ir::{
    Attr, Attrs, Class, DType, Op, Tensor, Type,
    attr::Number,
    index::Index,
    lang::{Mismatch, Signature},
    ops::{Access, Piece, ViewCall, ViewMap},
};
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;

use crate::legal::legal_signature;

/// An interned op with its attributes and its observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Head(pub(crate) u32);

/// An interned type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub(crate) u32);

/// An e-node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InternedNode {
    pub(crate) head: Head,
    /// The op.
    pub op: Op,
    /// The classes of its operands.
    pub children: SmallVec<[Id; 4]>,
}

impl fmt::Display for InternedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.op, f)
    }
}

// Nodes are ordered by head, which determines the op. Comparing ops would compare their names.
impl Ord for InternedNode {
    fn cmp(&self, other: &InternedNode) -> std::cmp::Ordering {
        self.head.cmp(&other.head).then_with(|| self.children.cmp(&other.children))
    }
}

impl PartialOrd for InternedNode {
    fn partial_cmp(&self, other: &InternedNode) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Language for InternedNode {
    type Discriminant = Op;

    fn discriminant(&self) -> Op {
        self.op
    }

    fn matches(&self, other: &InternedNode) -> bool {
        self.op == other.op && self.children.len() == other.children.len()
    }

    fn children(&self) -> &[Id] {
        &self.children
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.children
    }
}

/// The facts about a class.
#[derive(Clone, Debug)]
pub struct ClassData {
    pub(crate) ty: TypeId,
    /// Whether the value depends on parameters and constants only.
    pub constant: bool,
    /// The common value of all elements, if it is known.
    pub scalar: Option<f64>,
    /// The discontinuous op, if any, whose result depends on how the value is rounded. Only `exact` rules apply to
    /// such a value.
    pub observer: Option<Op>,
    /// The number of the first program node from which the class stems. It determines order and provenance. The
    /// analysis does not propagate it to other classes.
    pub(crate) rank: u32,
    /// The round in which the class last changed.
    pub(crate) stamp: u32,
}

/// A head with the types of its operands.
type TypedHead = (Head, SmallVec<[TypeId; 4]>);

/// The interned heads and types, and the facts derived from them.
#[derive(Debug, Default)]
pub struct Facts {
    /// The heads. Each includes the op that observes the node's rounding, so that an observed and an unobserved value
    /// never share a node or a class.
    heads: IndexSet<(Op, Attrs, Option<Op>), FxBuildHasher>,
    types: IndexSet<Type, FxBuildHasher>,
    inferred: FxHashMap<TypedHead, Result<TypeId, String>>,
    legal: FxHashMap<Op, Option<Rc<Signature>>>,
    /// For each element type, the finite numbers that classes have as values, in ascending order.
    numbers: FxHashMap<DType, Vec<f64>>,
    /// The current round.
    pub(crate) now: u32,
    /// The `rank` of the class of a new node.
    pub(crate) rank: u32,
    /// The first conflict of a merge or of a new node. The applier checks types before it unites classes, so a
    /// conflict is a defect of the applier.
    pub(crate) alarm: Option<String>,
}

/// egg's e-graph with our nodes and facts.
pub type EGraph = egg::EGraph<InternedNode, Facts>;

/// Returns the classes that have a node with one of the ops, in ascending order.
pub(crate) fn classes_of(egraph: &EGraph, ops: &[Op]) -> Vec<Id> {
    let mut classes: Vec<Id> = ops.iter().filter_map(|op| egraph.classes_for_op(op)).flatten().collect();
    classes.sort_unstable();
    classes.dedup();
    classes
}

/// Returns whether nodes with this op keep their observer. A sum does not hand the observer on to its operands, but a
/// rule may replace the sum by ops that do.
fn keeps_observer(op: Op) -> bool {
    op.hands_on() || matches!(op.def().class, Class::Anchor(_) | Class::Composite | Class::Update(..))
}

impl Facts {
    /// Returns the op and the attributes of a node.
    pub fn call(&self, node: &InternedNode) -> (Op, &Attrs) {
        (node.op, self.attrs(node.head))
    }

    /// Returns the type of a class.
    pub fn type_of(&self, data: &ClassData) -> &Type {
        self.ty(data.ty)
    }

    /// Returns the first conflict that a wrong rule caused: it united values of different types, or made a node
    /// without a type.
    pub fn conflict(&self) -> Option<&str> {
        self.alarm.as_deref()
    }

    pub(crate) fn head(&mut self, op: Op, attrs: Attrs) -> Head {
        Head(self.heads.insert_full((op, attrs, None)).0 as u32)
    }

    /// Returns a head with the same op and attributes for a node whose rounding `observer` observes.
    pub(crate) fn observed(&mut self, head: Head, observer: Option<Op>) -> Head {
        let (op, attrs, _) = &self.heads[head.0 as usize];
        let key = (*op, attrs.clone(), observer.filter(|_| keeps_observer(*op)));
        Head(self.heads.insert_full(key).0 as u32)
    }

    pub(crate) fn find_head(&self, op: Op, attrs: &Attrs, observer: Option<Op>) -> Option<Head> {
        let key = (op, attrs.clone(), observer.filter(|_| keeps_observer(op)));
        self.heads.get_index_of(&key).map(|n| Head(n as u32))
    }

    /// Returns the op that observes the rounding of a node with this head.
    pub(crate) fn observer(&self, head: Head) -> Option<Op> {
        self.heads[head.0 as usize].2
    }

    pub(crate) fn op(&self, head: Head) -> Op {
        self.heads[head.0 as usize].0
    }

    pub(crate) fn attrs(&self, head: Head) -> &Attrs {
        &self.heads[head.0 as usize].1
    }

    pub(crate) fn type_id(&mut self, ty: Type) -> TypeId {
        TypeId(self.types.insert_full(ty).0 as u32)
    }

    pub(crate) fn ty(&self, id: TypeId) -> &Type {
        &self.types[id.0 as usize]
    }

    pub(crate) fn heads(&self) -> usize {
        self.heads.len()
    }

    /// Returns the type of a node. It is inferred once for each head and operand types.
    pub(crate) fn infer(&mut self, head: Head, operands: &[TypeId]) -> Result<TypeId, String> {
        if let Some(known) = self.inferred.get(&(head, SmallVec::from_slice(operands))) {
            return known.clone();
        }
        let ty = {
            let types: SmallVec<[&Type; 4]> = operands.iter().map(|t| self.ty(*t)).collect();
            let (op, attrs, _) = &self.heads[head.0 as usize];
            op.infer(attrs, &types).map_err(|m: Mismatch| m.describe(&op.signature().scope))
        };
        let ty = ty.map(|ty| self.type_id(ty));
        self.inferred.insert((head, operands.into()), ty.clone());
        ty
    }

    /// Returns the signature of an op's legal forms, if it is narrower than its signature.
    pub(crate) fn legal(&mut self, op: Op) -> Option<Rc<Signature>> {
        self.legal.entry(op).or_insert_with(|| legal_signature(op).map(Rc::new)).clone()
    }

    /// Records a number that a class has as its value.
    fn know(&mut self, x: f64, dtype: DType) {
        let known = self.numbers.entry(dtype).or_insert_with(|| vec![-1.0, 0.5, 1.0, 2.0]);
        if x.is_finite()
            && let Err(at) = known.binary_search_by(|k| k.total_cmp(&x))
        {
            known.insert(at, x);
        }
    }

    /// Returns the nearest known number within 2 eps of a computed number, or else the number itself. Otherwise one
    /// number computed in two orders would become two values. For example, x·(c·c/n) may be x in one order and x·(1 +
    /// eps) in another. The engine would unite both in one class, and products with it would grow endlessly.
    pub(crate) fn snap_constant(&mut self, x: f64, dtype: DType) -> f64 {
        if !dtype.is_float() || x == 0.0 || !x.is_finite() {
            return x;
        }
        self.know(1.0, dtype);
        let known = &self.numbers[&dtype];
        let at = known.partition_point(|k| *k < x);
        let beside = [at.checked_sub(1), Some(at)].into_iter().flatten().filter_map(|at| known.get(at).copied());
        let nearest = beside.min_by(|a, b| (a - x).abs().total_cmp(&(b - x).abs()));
        nearest.filter(|k| (k - x).abs() <= 4.0 * dtype.unit_roundoff() * x.abs()).unwrap_or(x)
    }

    /// Returns whether kernels compute the op and attributes of `head` for operands of these types.
    pub(crate) fn is_legal(&self, head: Head, operands: &[TypeId]) -> bool {
        let types: SmallVec<[&Type; 4]> = operands.iter().map(|t| self.ty(*t)).collect();
        let (op, attrs, _) = &self.heads[head.0 as usize];
        op.is_legal(attrs, &types)
    }
}

impl egg::Analysis<InternedNode> for Facts {
    type Data = ClassData;

    fn make(egraph: &mut EGraph, node: &InternedNode, _: Id) -> ClassData {
        let operands: SmallVec<[TypeId; 4]> = node.children.iter().map(|c| egraph[*c].data.ty).collect();
        let ty = egraph.analysis.infer(node.head, &operands).unwrap_or_else(|problem| {
            egraph.analysis.alarm.get_or_insert(format!("{}: {problem}", node.op));
            egraph.analysis.type_id(Type::Tuple(Vec::new()))
        });
        let constant = match node.op.def().class {
            Class::Leaf(leaf) => leaf.is_constant(),
            _ => {
                node.children.iter().all(|c| egraph[*c].data.constant)
                    && same_in_all_runs(&egraph.analysis, node, &operands, ty)
            }
        };
        let scalars: SmallVec<[Option<f64>; 4]> = node.children.iter().map(|c| egraph[*c].data.scalar).collect();
        let scalar = scalar_of(&egraph.analysis, node, &operands, &scalars, ty);
        let facts = &mut egraph.analysis;
        if let (Some(scalar), Some(dtype)) = (scalar, facts.ty(ty).dtype()) {
            facts.know(scalar, dtype);
        }
        let observer = facts.observer(node.head);
        ClassData { ty, constant, scalar, observer, rank: facts.rank, stamp: facts.now }
    }

    fn remake(egraph: &mut EGraph, node: &InternedNode, id: Id) -> ClassData {
        // A class keeps its rank if one of its nodes is evaluated again, also while a rule of another rank runs.
        ClassData { rank: u32::MAX, ..Facts::make(egraph, node, id) }
    }

    fn merge(&mut self, a: &mut ClassData, b: ClassData) -> DidMerge {
        if a.ty != b.ty {
            let conflict = format!("a value of type {} was united with one of type {}", self.ty(a.ty), self.ty(b.ty));
            self.alarm.get_or_insert(conflict);
        }
        let constant = a.constant || b.constant;
        // Two values of one class differ only by rounding. The smaller one is kept, so that the order of merges does
        // not matter.
        let scalar = match (a.scalar, b.scalar) {
            (Some(x), Some(y)) => Some(if x.total_cmp(&y).is_le() { x } else { y }),
            (x, y) => x.or(y),
        };
        let observer = a.observer.into_iter().chain(b.observer).min();
        let differs = |d: &ClassData| {
            d.constant != constant || d.scalar.map(f64::to_bits) != scalar.map(f64::to_bits) || d.observer != observer
        };
        let changed = DidMerge(differs(a), differs(&b));
        (a.constant, a.scalar, a.observer) = (constant, scalar, observer);
        (a.rank, a.stamp) = (a.rank.min(b.rank), self.now);
        changed
    }

    /// Adds the constant itself to a class with one known number, so that rules need to match only this form.
    fn modify(egraph: &mut EGraph, id: Id) {
        let data = &egraph[id].data;
        let (Some(value), Type::Tensor(dtype, shape)) = (data.scalar, egraph.analysis.ty(data.ty)) else { return };
        let (number, shape) = (Tensor::from_f64(*dtype, &[], [value]), shape.clone());
        let leaf = |name| Op::named(name).expect("the op table has an op for constants");
        let op = leaf("const");
        let head = egraph.analysis.head(op, Attrs::from_iter([Attr::Tensor(number)]));
        let mut literal = InternedNode { head, op, children: SmallVec::new() };
        if shape.rank() > 0 {
            let number = egraph.add(literal);
            let op = leaf("expand");
            let head = egraph.analysis.head(op, Attrs::from_iter([Attr::Shape(shape)]));
            literal = InternedNode { head, op, children: SmallVec::from_slice(&[number]) };
        }
        let literal = egraph.add(literal);
        egraph.union(id, literal);
    }
}

/// Returns the elements that a view reads, over the domain of its result.
fn access(facts: &Facts, read: ViewMap, node: &InternedNode, operands: &[TypeId], ty: TypeId) -> Option<Access> {
    let shape = |t: TypeId| Some(facts.ty(t).as_tensor()?.1);
    let operands: Vec<_> = operands.iter().map(|t| shape(*t).cloned()).collect::<Option<_>>()?;
    let (result, attrs) = (shape(ty)?, facts.attrs(node.head));
    let domain = result.capacity()?;
    let at: Vec<_> = (0..domain.len()).map(Index::coord).collect();
    read(&ViewCall { attrs, operands: &operands, result, at: &at, domain: &domain }).ok()
}

/// Returns whether an op on constants has the same value in all runs, if buffers are laid out for the greatest
/// lengths of extents at run time. The load program then computes it once for these lengths. This does not hold for
/// ops that combine elements along a varying axis, nor for views whose index map contains a length.
fn same_in_all_runs(facts: &Facts, node: &InternedNode, operands: &[TypeId], ty: TypeId) -> bool {
    if !operands.iter().any(|t| facts.ty(*t).varies()) {
        return true;
    }
    match node.op.def().class {
        Class::Pointwise => true,
        Class::View(read) => {
            let fixed = |p: &Piece| !p.guards.iter().map(|g| &g.0).chain(&p.at).any(Index::varies);
            access(facts, read, node, operands, ty).is_some_and(|access| access.pieces.iter().all(fixed))
        }
        _ => false,
    }
}

/// Returns the common value of all elements of a node, if it follows from the operands' values.
fn scalar_of(
    facts: &Facts,
    node: &InternedNode,
    operands: &[TypeId],
    scalars: &[Option<f64>],
    ty: TypeId,
) -> Option<f64> {
    let attrs = facts.attrs(node.head);
    match node.op.def().class {
        Class::Leaf(_) => match attrs.first() {
            Some(Attr::Tensor(t)) => uniform(t),
            _ => None,
        },
        Class::Pointwise => {
            let value = |(x, t): (&Option<f64>, &TypeId)| Some(((*x)?, facts.ty(*t).dtype()?));
            let values: SmallVec<[_; 4]> = scalars.iter().zip(operands).map(value).collect::<Option<_>>()?;
            let (dtype, zero) =
                (facts.ty(ty).dtype()?, || values.iter().any(|(x, _)| *x == 0.0 && x.is_sign_negative()));
            // Approximate functions are left to kernels, so that the value does not depend on whether the device or
            // the host computes it.
            if !node.op.is_settled(values.iter().map(|(_, of)| *of), dtype, zero) {
                return None;
            }
            node.op.fold(attrs, &values, dtype)
        }
        Class::View(read) => {
            if scalars.iter().all(Option::is_none) {
                return None;
            }
            let access = access(facts, read, node, operands, ty)?;
            // An id out of range must remain an error for any contents of the table.
            if access.pieces.iter().any(|p| p.via.is_some()) {
                return None;
            }
            let mut values = access.pieces.iter().map(|p| scalars[p.operand]).chain(access.fill.map(Number::float));
            let first = values.next()??;
            values.all(|v| v.is_some_and(|v| v.to_bits() == first.to_bits())).then_some(first)
        }
        _ => None,
    }
}

/// Returns the value of a constant's elements, if all are equal.
fn uniform(tensor: &Tensor) -> Option<f64> {
    let size = tensor.dtype().size();
    let mut elements = tensor.bytes().chunks_exact(size);
    let first = elements.next()?;
    if !elements.all(|e| e == first) {
        return None;
    }
    let one = Tensor::new(tensor.dtype(), &[], first.to_vec()).ok()?;
    // Two different integers beyond 2⁵³ may be the same `f64`, so they have no known value.
    let certain = |x: &f64| tensor.dtype().is_float() || x.abs() < 2_f64.powi(53);
    one.to_f64().first().copied().filter(certain)
}
