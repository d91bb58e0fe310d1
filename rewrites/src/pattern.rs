//! Left sides that are compiled for matching, and the matcher.
//!
//! A left side is matched in legal form, as a graph. Equal subterms are one node, which may connect several roots.
//! The matcher ignores types; the guard checks its candidates afterwards.

use egg::Id;
use eutectic_ir::{
    Attr, Op,
    lang::{TypePattern, typing::DimsItem},
};
use smallvec::SmallVec;

use crate::{
    egraph::{EGraph, Head},
    expr::Wanted,
    instantiate::{From, Instantiator, Ref},
    rule::{AppliedOp, AttrTerm, OpTerm, Rule, Term, VariableKind},
};

/// A node of a pattern.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pat {
    /// A tensor variable.
    Tensor {
        constant: bool,
        wanted: Option<Wanted>,
        varied: bool,
        /// The minimal rank, and whether it is the exact rank.
        rank: (usize, bool),
    },
    /// A tensor whose elements are one known number.
    Number { wanted: Option<Wanted> },
    /// An op.
    Op {
        op: OpTerm,
        /// The required values of literal attributes. For `None`, the guard checks the attribute.
        checks: Vec<Option<Attr>>,
        args: SmallVec<[usize; 4]>,
        /// Whether the first two operands are also tried in swapped order, for commutative ops.
        swap: bool,
        /// The call of the rule that the node stands for, and whether the node is the call's reduction with kept
        /// axes.
        call: Option<(usize, bool)>,
    },
}

#[derive(Clone, Debug)]
enum MatchStep {
    /// Tries the e-nodes of a bound class as a node of the pattern.
    Node(usize),
    /// Binds a root to each class that is `levels` levels above a bound class.
    Join { root: usize, from: usize, levels: usize },
}

/// A compiled left side.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pub nodes: Vec<Pat>,
    pub roots: Vec<usize>,
    /// The node of each tensor variable.
    pub tensors: Vec<usize>,
    /// The node of each number on the left side, by the number's id. Several ids may share a node.
    pub numbers: Vec<usize>,
    /// The node that stands for each call.
    pub calls: Vec<(usize, usize)>,
    /// The calls of the left side, by id.
    pub terms: Vec<Option<AppliedOp>>,
    /// The number of levels from a root to its deepest leaf.
    pub depth: usize,
    steps: Vec<MatchStep>,
}

/// Returns the placeholder for the class of an unbound node.
pub(crate) fn unbound() -> Id {
    Id::from(u32::MAX as usize)
}

/// A match of a pattern: a class and one of its e-nodes for each node of the pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Match {
    pub classes: SmallVec<[Id; 12]>,
    pub heads: SmallVec<[Head; 12]>,
    /// The swapped nodes. Bit `n` is set if node `n` matched with its first two operands swapped.
    pub swapped: u64,
}

/// Observes the matcher's candidates and failures.
pub(crate) trait Watch {
    /// Receives a match. Returns whether the search continues.
    fn found(&mut self, found: &Match) -> bool;

    /// Receives a failure, which occurred after `_ops` ops of the pattern were matched.
    fn missed(&mut self, _ops: usize, _miss: Miss) {}
}

impl<F: FnMut(&Match) -> bool> Watch for F {
    fn found(&mut self, found: &Match) -> bool {
        self(found)
    }
}

/// The reason why a class does not match a node of the pattern.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Miss {
    /// An e-node of the class has another number of operands.
    Operands { node: usize, has: usize },
    /// Attribute `attr` of an e-node with this head differs.
    Attr { node: usize, head: Head, attr: usize },
    /// The node occurs twice in the pattern, and is bound to another class.
    Other { node: usize, class: Id },
    /// The facts about the class do not fit the node.
    Class { node: usize, class: Id },
}

/// The head of a pattern node that is not an op.
const NO_HEAD: Head = Head(u32::MAX);

/// A bound node below a root.
struct WayUp {
    from: usize,
    /// The number of levels between the two nodes.
    levels: usize,
}

impl Pattern {
    /// Compiles the left sides that an instantiator built. Fails if the pattern is too large or its roots are not
    /// connected.
    pub fn compile(builder: &Instantiator<'_>, tops: &[Ref]) -> Result<Pattern, String> {
        let rule = builder.rule;
        let terms = calls_by_id(rule);
        let tensors: Vec<_> = rule
            .tensors()
            .map(|(v, ty, constant)| Pat::Tensor { constant, wanted: v.wanted, varied: v.varied, rank: rank(ty) })
            .collect();
        let mut nodes = tensors.clone();
        let numbers: Vec<usize> = (0..rule.numbers).map(|n| nodes.len() + n).collect();
        nodes.extend(numbers_of(rule));
        let place = |r: Ref| match r {
            Ref::Class(n) => n,
            Ref::Number(n) => tensors.len() + n,
            Ref::Instr(n) => tensors.len() + rule.numbers + n,
        };
        for (at, instr) in builder.instrs.iter().enumerate() {
            let made = builder.calls.iter().find(|(_, (r, _))| *r == Ref::Instr(at)).map(|(id, _)| *id);
            let call = match instr.from {
                From::Kept(id) => Some((id, true)),
                From::Call => made.map(|id| (id, false)),
                From::Inserted => None,
            };
            let term = call.and_then(|(id, _)| terms[id].as_ref());
            let op = term.map_or(OpTerm::Named(builder.facts.op(instr.head)), |term| term.op);
            let checks = term.map_or(Vec::new(), |term| checks(term, call.is_some_and(|(_, kept)| kept)));
            let args = instr.args.iter().map(|r| place(*r)).collect();
            nodes.push(Pat::Op { op, checks, args, swap: op.commutes(), call });
        }
        let calls = builder.calls.iter().map(|(id, (r, _))| (*id, place(*r))).collect();
        let mut pattern = Pattern {
            nodes,
            roots: tops.iter().map(|r| place(*r)).collect(),
            tensors: (0..tensors.len()).collect(),
            numbers,
            calls,
            terms,
            depth: 0,
            steps: Vec::new(),
        };
        if pattern.nodes.len() > 64 {
            return Err(format!("the left side has {} nodes, but at most 64 are possible", pattern.nodes.len()));
        }
        pattern.depth = pattern.roots.iter().map(|r| pattern.depth_of(*r)).max().unwrap_or(0);
        pattern.symmetric(rule);
        pattern.order()?;
        pattern.share_numbers(rule);
        Ok(pattern)
    }

    /// Returns whether some tensor variables match only constants, while others match any value.
    pub fn gathers_constants(&self) -> bool {
        let is = |constant: bool| {
            let of = |node: &usize| matches!(self.nodes[*node], Pat::Tensor { constant: of, .. } if of == constant);
            self.tensors.iter().any(of)
        };
        is(true) && is(false)
    }

    /// Some number terms have no node in the pattern, because an equal term is matched instead. Assigns the equal
    /// term's number to them.
    fn share_numbers(&mut self, rule: &Rule) {
        let mut used = vec![false; self.nodes.len()];
        self.roots.iter().for_each(|r| used[*r] = true);
        for node in 0..self.nodes.len() {
            self.args(node).iter().for_each(|a| used[*a] = true);
        }
        let mut exprs: Vec<Option<&crate::expr::Expr>> = vec![None; rule.numbers];
        for root in &rule.roots {
            root.left.visit(&mut |term| {
                if let Term::Number { id, expr } = term {
                    exprs[*id] = Some(expr);
                }
            });
        }
        for id in 0..rule.numbers {
            if !used[self.numbers[id]]
                && let Some(other) = (0..rule.numbers).find(|o| used[self.numbers[*o]] && exprs[*o] == exprs[id])
            {
                self.numbers[id] = self.numbers[other];
            }
        }
    }

    /// Returns the number of inserted views.
    pub fn inserted(&self) -> usize {
        self.nodes.iter().filter(|n| matches!(n, Pat::Op { call: None, .. })).count()
    }

    /// Returns the ops that the pattern names, without duplicates.
    pub fn named_ops(&self) -> Vec<Op> {
        let named = |node: &Pat| match node {
            Pat::Op { op: OpTerm::Named(op), .. } => Some(*op),
            _ => None,
        };
        let mut ops: Vec<Op> = Vec::new();
        for op in self.nodes.iter().filter_map(named) {
            if !ops.contains(&op) {
                ops.push(op);
            }
        }
        ops
    }

    /// Returns whether two patterns have the same legal form.
    pub fn same_form(&self, other: &Pattern) -> bool {
        self.nodes == other.nodes && self.roots == other.roots
    }

    fn args(&self, node: usize) -> &[usize] {
        match &self.nodes[node] {
            Pat::Op { args, .. } => args,
            _ => &[],
        }
    }

    fn depth_of(&self, node: usize) -> usize {
        1 + self.args(node).iter().map(|a| self.depth_of(*a)).max().unwrap_or(0)
    }

    /// Clears `swap` of nodes whose first two operands are equivalent variables, because swapping them gives the same
    /// match.
    fn symmetric(&mut self, rule: &Rule) {
        let types: Vec<_> = rule.tensors().map(|(_, ty, _)| ty).collect();
        let mut edges = vec![0; self.nodes.len()];
        for node in 0..self.nodes.len() {
            self.args(node).iter().for_each(|a| edges[*a] += 1);
        }
        for node in 0..self.nodes.len() {
            let alike = match self.args(node) {
                [a, b, ..] if a == b => true,
                [a, b, ..] if edges[*a] == 1 && edges[*b] == 1 => match (&self.nodes[*a], &self.nodes[*b]) {
                    (
                        Pat::Tensor { constant: x, wanted: None, varied: v, .. },
                        Pat::Tensor { constant: y, wanted: None, varied: w, .. },
                    ) => x == y && v == w && types[*a] == types[*b],
                    _ => false,
                },
                _ => false,
            };
            if let (true, Pat::Op { swap, .. }) = (alike, &mut self.nodes[node]) {
                *swap = false;
            }
        }
    }

    /// Determines the order in which nodes are matched. The first root is matched from the top down. Each further
    /// root is reached from a node that it shares with an earlier root.
    fn order(&mut self) -> Result<(), String> {
        let mut bound = vec![false; self.nodes.len()];
        let mut steps = Vec::new();
        let mut waiting: Vec<usize> = self.roots.clone();
        // The deepest root comes first, because it usually contains the other roots.
        waiting.sort_by_key(|r| std::cmp::Reverse(self.depth_of(*r)));
        while !waiting.is_empty() {
            let first = steps.is_empty();
            let next = waiting.iter().position(|r| first || bound[*r] || self.way_up(*r, &bound).is_some());
            let Some(next) = next else {
                return Err("cannot match the roots together because they share no subterm".into());
            };
            let root = waiting.remove(next);
            if bound[root] {
                continue;
            }
            if let (false, Some(WayUp { from, levels })) = (first, self.way_up(root, &bound)) {
                steps.push(MatchStep::Join { root, from, levels });
            }
            self.visit(root, &mut bound, &mut steps);
        }
        // The search starts at the first bound root.
        self.steps = steps;
        Ok(())
    }

    fn visit(&self, node: usize, bound: &mut [bool], steps: &mut Vec<MatchStep>) {
        if std::mem::replace(&mut bound[node], true) {
            return;
        }
        if let Pat::Op { args, .. } = &self.nodes[node] {
            steps.push(MatchStep::Node(node));
            args.iter().for_each(|a| self.visit(*a, bound, steps));
        }
    }

    /// Returns the nearest bound node below `root`.
    fn way_up(&self, root: usize, bound: &[bool]) -> Option<WayUp> {
        let mut level = vec![root];
        for levels in 0..self.nodes.len() {
            if let Some(from) = level.iter().find(|n| bound[**n]) {
                return Some(WayUp { from: *from, levels });
            }
            level = level.iter().flat_map(|n| self.args(*n).iter().copied()).collect();
        }
        None
    }

    /// Returns the node at which a search starts, and the node's op.
    pub fn entry(&self) -> (usize, &OpTerm) {
        let Some(MatchStep::Node(node)) = self.steps.first() else { unreachable!("a left side is an op") };
        let Pat::Op { op, .. } = &self.nodes[*node] else { unreachable!("a left side is an op") };
        (*node, op)
    }

    /// Returns the number of ops that are matched before a step.
    fn ops(&self, pc: usize) -> usize {
        self.steps.iter().take(pc).filter(|s| matches!(s, MatchStep::Node(_))).count()
    }

    /// Finds every match whose start node is bound to `class`.
    pub fn search(&self, egraph: &EGraph, class: Id, watch: &mut impl Watch) {
        let mut found = Match {
            classes: SmallVec::from_elem(unbound(), self.nodes.len()),
            heads: SmallVec::from_elem(NO_HEAD, self.nodes.len()),
            swapped: 0,
        };
        let (entry, _) = self.entry();
        found.classes[entry] = egraph.find(class);
        self.step(egraph, 0, &mut found, watch);
    }

    fn step(&self, egraph: &EGraph, pc: usize, found: &mut Match, watch: &mut impl Watch) -> bool {
        match self.steps.get(pc) {
            None => watch.found(found),
            Some(MatchStep::Join { root, from, levels }) => {
                for class in ancestors(egraph, found.classes[*from], *levels) {
                    found.classes[*root] = class;
                    if !self.step(egraph, pc + 1, found, watch) {
                        return false;
                    }
                }
                found.classes[*root] = unbound();
                true
            }
            Some(MatchStep::Node(node)) => self.try_nodes(egraph, *node, pc, found, watch),
        }
    }

    fn try_nodes(&self, egraph: &EGraph, at: usize, pc: usize, found: &mut Match, watch: &mut impl Watch) -> bool {
        let Pat::Op { op, checks, args, swap, .. } = &self.nodes[at] else { return true };
        let class = &egraph[found.classes[at]];
        for node in &class.nodes {
            if !op.admits(node.op) {
                continue;
            }
            if node.children.len() != args.len() {
                watch.missed(self.ops(pc), Miss::Operands { node: at, has: node.children.len() });
                continue;
            }
            let mut attrs = checks.iter().zip(egraph.analysis.attrs(node.head));
            if let Some(attr) = attrs.position(|(want, has)| want.as_ref().is_some_and(|want| want != has)) {
                watch.missed(self.ops(pc), Miss::Attr { node: at, head: node.head, attr });
                continue;
            }
            let twins = node.children.len() > 1 && node.children[0] == node.children[1];
            for swapped in [false, true] {
                if swapped && (!swap || twins || !node.op.def().commutative) {
                    break;
                }
                let child = |n: usize| node.children[if swapped && n < 2 { 1 - n } else { n }];
                let mut fresh: SmallVec<[usize; 4]> = SmallVec::new();
                let miss = args.iter().enumerate().find_map(|(n, arg)| {
                    let class = egraph.find(child(n));
                    if found.classes[*arg] != unbound() {
                        return (found.classes[*arg] != class).then_some(Miss::Other { node: *arg, class });
                    }
                    found.classes[*arg] = class;
                    fresh.push(*arg);
                    (!self.admits(egraph, *arg, class)).then_some(Miss::Class { node: *arg, class })
                });
                if let Some(miss) = miss {
                    watch.missed(self.ops(pc + 1), miss);
                }
                let go_on = miss.is_some() || {
                    found.heads[at] = node.head;
                    found.swapped = found.swapped & !(1 << at) | u64::from(swapped) << at;
                    self.step(egraph, pc + 1, found, watch)
                };
                fresh.iter().for_each(|arg| found.classes[*arg] = unbound());
                if !go_on {
                    return false;
                }
            }
        }
        true
    }

    /// Returns whether a class may match a node, according to the facts about the class.
    fn admits(&self, egraph: &EGraph, node: usize, class: Id) -> bool {
        let data = &egraph[class].data;
        let is_it = |want: Wanted| {
            let dtype = egraph.analysis.ty(data.ty).dtype();
            data.scalar.zip(dtype).is_some_and(|(has, dtype)| want.is(has, dtype))
        };
        match &self.nodes[node] {
            Pat::Tensor { constant, wanted, varied, rank: (least, exact) } => {
                let rank = egraph.analysis.ty(data.ty).as_tensor().map_or(0, |(_, shape)| shape.rank());
                let fits = if *exact { rank == *least } else { rank >= *least };
                let flags = (!constant || data.constant) && (!varied || data.scalar.is_none());
                fits && flags && wanted.is_none_or(is_it)
            }
            Pat::Number { wanted } => data.scalar.is_some() && wanted.is_none_or(is_it),
            Pat::Op { op, .. } => egraph[class].nodes.iter().any(|n| op.admits(n.op)),
        }
    }
}

/// Returns the classes `levels` levels above a class, in ascending order.
pub(crate) fn ancestors(egraph: &EGraph, class: Id, levels: usize) -> Vec<Id> {
    let mut level = vec![egraph.find(class)];
    for _ in 0..levels {
        let parents = level.iter().flat_map(|c| egraph[*c].parents()).map(|p| egraph.find(p));
        level = parents.collect();
        level.sort_unstable();
        level.dedup();
    }
    level
}

/// Returns the minimal rank of a type, and whether it is the exact rank.
fn rank(ty: &TypePattern) -> (usize, bool) {
    let one = |item: &&DimsItem| matches!(item, DimsItem::One(_));
    let least = ty.dims.0.iter().filter(one).count();
    (least, least == ty.dims.0.len())
}

fn calls_by_id(rule: &Rule) -> Vec<Option<AppliedOp>> {
    let mut calls = vec![None; rule.calls];
    for root in &rule.roots {
        root.left.visit(&mut |term| {
            if let Term::Call(call) = term {
                calls[call.id] = Some(call.clone());
            }
        });
    }
    calls
}

/// Returns the literal attributes of a call, or of its reduction with kept axes if `kept`.
fn checks(call: &AppliedOp, kept: bool) -> Vec<Option<Attr>> {
    let keep = if kept { call.op.attr("keep") } else { None };
    let check = |(at, term): (usize, &Option<AttrTerm>)| match term {
        _ if keep == Some(at) => Some(true.into()),
        Some(AttrTerm::Value(value)) => Some(value.clone()),
        _ => None,
    };
    call.attrs.iter().enumerate().map(check).collect()
}

/// Returns the conditions on numbers that the matcher checks: literals, and variables that must be near a number.
fn numbers_of(rule: &Rule) -> Vec<Pat> {
    let mut pats = vec![Pat::Number { wanted: None }; rule.numbers];
    for root in &rule.roots {
        root.left.visit(&mut |term| {
            if let Term::Number { id, expr } = term {
                let declared = rule.variables.iter().find(
                    |v| matches!((&v.kind, expr), (VariableKind::Number(a), crate::expr::Expr::Slot(b)) if a == b),
                );
                let literal = expr.literal().map(|value| Wanted { value, close: rule.contract.close() });
                pats[*id] = Pat::Number { wanted: literal.or(declared.and_then(|v| v.wanted)) };
            }
        });
    }
    pats
}
