//! The replacement of a match. Equal matches share it.

use std::sync::{Arc, OnceLock};

use eutectic_ir::{DType, Dim, Op, Shape, Type, lang::Bindings};
use smallvec::SmallVec;

use crate::{
    egraph::{EGraph, Facts, Head, TypeId},
    guard::Sight,
    instantiate::{Instantiator, NoInstance, NodeRecipe, Ref},
    left::{self, Draw, Form},
    pattern::{Match, Pat, Pattern},
    rule::Rule,
};

/// A rule with one legal form of its left side.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub rule: Arc<Rule>,
    pub left: LeftSide,
    /// The index of the legal form among those of the left side.
    pub variant: usize,
}

/// A legal form of a left side, compiled when it is first needed.
#[derive(Clone, Debug)]
pub(crate) struct LeftSide {
    form: Form,
    pattern: OnceLock<Pattern>,
}

impl LeftSide {
    /// Makes a form whose pattern is compiled already.
    pub fn found(draw: Draw, pattern: Pattern) -> LeftSide {
        LeftSide { form: Form { draw, ops: pattern.named_ops() }, pattern: pattern.into() }
    }

    /// Makes a form that `forms.txt` lists. Its pattern is compiled when it is first needed.
    pub fn listed(form: Form) -> LeftSide {
        LeftSide { form, pattern: OnceLock::new() }
    }

    #[cfg(test)]
    pub fn form(&self) -> Form {
        self.form.clone()
    }

    #[cfg(test)]
    pub fn is_compiled(&self) -> bool {
        self.pattern.get().is_some()
    }
}

/// The nodes to make for a match. Some of them (the tops) are united with the roots of the match.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub instrs: Vec<NodeRecipe>,
    /// The tops, one for each root of each member. The tops of a member are adjacent.
    pub tops: SmallVec<[Ref; 2]>,
}

impl Recipe {
    /// Marks a top as observed if its root is observed.
    fn observe(&mut self, facts: &mut Facts, top: usize, root: Head) {
        if let Some(observer) = facts.observer(root) {
            self.hand_on(facts, self.tops[top], observer);
        }
    }

    /// Marks the operands of discontinuous ops as observed, as [`Graph::observed`](eutectic_ir::Graph::observed) does
    /// for a program.
    fn observe_operands(&mut self, facts: &mut Facts) {
        for at in 0..self.instrs.len() {
            let instr = &self.instrs[at];
            let (op, args, to) = (facts.op(instr.head), instr.args.clone(), facts.ty(instr.ty).dtype());
            for arg in args {
                let Ref::Instr(read) = arg else { continue };
                let dtypes = facts.ty(self.instrs[read].ty).dtype().zip(to);
                if dtypes.is_some_and(|(from, to)| from.is_float() && op.observes(from, to)) {
                    self.hand_on(facts, arg, op);
                }
            }
        }
    }

    /// Marks a value as observed, and the values whose rounding it hands on.
    fn hand_on(&mut self, facts: &mut Facts, value: Ref, observer: Op) {
        let mut open: SmallVec<[Ref; 4]> = SmallVec::from_slice(&[value]);
        while let Some(next) = open.pop() {
            let Ref::Instr(at) = next else { continue };
            let instr = &mut self.instrs[at];
            let is_known = facts.observer(instr.head).is_some();
            if is_known || !facts.ty(instr.ty).dtype().is_some_and(DType::is_float) {
                continue;
            }
            instr.head = facts.observed(instr.head, Some(observer));
            if facts.op(instr.head).hands_on() {
                open.extend(instr.args.iter().copied());
            }
        }
    }
}

impl Compiled {
    /// Returns the compiled left side.
    pub fn pattern(&self) -> &Pattern {
        let compile = || left::form(&self.rule, &self.left.form.draw);
        self.left.pattern.get_or_init(|| compile().expect("a test compiles each listed form"))
    }

    /// Returns the left side for use by another rule with the same left side.
    pub fn shared_left(&self) -> LeftSide {
        LeftSide { form: self.left.form.clone(), pattern: self.pattern().clone().into() }
    }

    /// Returns whether an e-graph has all ops of the left side, without which there is no match.
    pub fn may_match(&self, egraph: &EGraph) -> bool {
        let is_there = |op: &Op| egraph.classes_for_op(op).is_some_and(|mut classes| classes.next().is_some());
        self.left.form.ops.iter().all(is_there)
    }

    /// Returns the recipe for a match, or for the members of a group. Returns `Ok(None)` if a value of the right side
    /// does not exist for this match, for example because a division is inexact.
    ///
    /// # Errors
    /// If the right side has no type, or another type than the left side.
    pub fn recipe(
        &self,
        facts: &mut Facts,
        sights: &[&Sight],
        members: &[Bindings],
    ) -> Result<Option<Recipe>, (String, std::ops::Range<usize>)> {
        let mut types: Vec<TypeId> = Vec::new();
        for sight in sights {
            types.extend(self.pattern().tensors.iter().map(|t| sight.types[*t]));
        }
        let offsets = offsets(self.pattern(), facts, sights);
        let mut builder = Instantiator::new(facts, &self.rule, members, &types);
        builder.offsets = &offsets;
        let mut tops = SmallVec::new();
        for (member, sight) in sights.iter().enumerate() {
            for (root, at) in self.rule.roots.iter().zip(&self.pattern().roots) {
                let left = sight.types[*at];
                let want: Option<DType> = builder.facts.ty(left).dtype();
                let (top, right) = match builder.term(&root.right, member, want) {
                    Ok(made) => made,
                    Err(NoInstance::Inapplicable) => return Ok(None),
                    Err(NoInstance::Wrong { message, span }) => {
                        return Err((message, if span.is_empty() { root.span.clone() } else { span }));
                    }
                };
                if left != right {
                    match builder.expand_number(top, right, left) {
                        Some(expanded) => {
                            tops.push(expanded);
                            continue;
                        }
                        None => {
                            let (l, r) = (builder.facts.ty(left), builder.facts.ty(right));
                            return Err((
                                format!("the left side has type {l}, but the right side has type {r}"),
                                root.span.clone(),
                            ));
                        }
                    }
                }
                tops.push(top);
            }
        }
        let mut recipe = Recipe { instrs: builder.instrs, tops };
        recipe.observe_operands(facts);
        let observers = sights.iter().flat_map(|sight| self.pattern().roots.iter().map(|root| sight.heads[*root]));
        for (top, head) in observers.enumerate() {
            recipe.observe(facts, top, head);
        }
        Ok(Some(recipe))
    }
}

/// Returns the offsets of each member: for each axis, from the last one outwards, the sum of the earlier members'
/// extents. The sum is `None` if an extent is not a number.
fn offsets(pattern: &Pattern, facts: &Facts, sights: &[&Sight]) -> Vec<Vec<Option<i64>>> {
    let shape = |sight: &&Sight| facts.ty(sight.types[pattern.roots[0]]).as_tensor().map(|(_, shape)| shape);
    let rank = sights.first().and_then(&shape).map_or(0, Shape::rank);
    let mut at = vec![Some(0_i64); rank];
    let mut offsets = Vec::with_capacity(sights.len());
    for sight in sights {
        offsets.push(at.clone());
        let extents = shape(sight).into_iter().flat_map(|shape| shape.iter().rev().map(Dim::known));
        for (sum, extent) in at.iter_mut().zip(extents) {
            *sum = sum.zip(extent).and_then(|(sum, extent)| sum.checked_add(extent));
        }
    }
    offsets
}

impl Instantiator<'_> {
    /// Expands a number that is the whole right side to the shape of the value that it replaces.
    fn expand_number(&mut self, top: Ref, has: TypeId, want: TypeId) -> Option<Ref> {
        let (Type::Tensor(d, shape), Type::Tensor(wanted, _)) = (self.facts.ty(has), self.facts.ty(want)) else {
            return None;
        };
        if shape.rank() > 0 || d != wanted || !matches!(top, Ref::Instr(_)) {
            return None;
        }
        Some(self.view("expand", (top, has), want).0)
    }
}

/// Returns whether a replacement is estimated to be cheaper than the match, first by flops, then by written elements.
/// Nodes that depend only on constants cost nothing.
pub(crate) fn gains(compiled: &Compiled, egraph: &EGraph, found: &Match, recipe: &Recipe) -> bool {
    let pattern = &compiled.pattern();
    let mut before = RecipeCost::default();
    for (at, node) in pattern.nodes.iter().enumerate() {
        let Pat::Op { args, .. } = node else { continue };
        let data = &egraph[found.classes[at]].data;
        if !data.constant {
            let types: Vec<_> = args.iter().map(|a| egraph[found.classes[*a]].data.ty).collect();
            before.add(egraph, found.heads[at], &types, data.ty);
        }
    }
    let mut after = RecipeCost::default();
    let mut constant: Vec<bool> = Vec::new();
    for instr in &recipe.instrs {
        let of = |r: &Ref| match r {
            Ref::Class(n) => {
                let data = &egraph[found.classes[pattern.tensors[*n]]].data;
                (data.ty, data.constant)
            }
            Ref::Instr(n) => (recipe.instrs[*n].ty, constant[*n]),
            Ref::Number(_) => (instr.ty, true),
        };
        let (types, constants): (Vec<_>, Vec<_>) = instr.args.iter().map(of).unzip();
        let free = constants.iter().all(|c| *c);
        constant.push(free);
        if !free {
            after.add(egraph, instr.head, &types, instr.ty);
        }
    }
    (after.flops, after.elements) < (before.flops, before.elements)
}

#[derive(Debug, Default, PartialEq, PartialOrd)]
struct RecipeCost {
    flops: f64,
    elements: f64,
}

impl RecipeCost {
    fn add(&mut self, egraph: &EGraph, head: Head, operands: &[TypeId], result: TypeId) {
        let facts = &egraph.analysis;
        let operands: Vec<_> = operands.iter().map(|t| facts.ty(*t)).collect();
        let op = facts.op(head);
        self.flops += op.flops(facts.attrs(head), &operands, facts.ty(result));
        if !matches!(op.def().class, eutectic_ir::Class::View(_) | eutectic_ir::Class::Project) {
            self.elements += facts.ty(result).count() as f64;
        }
    }
}
