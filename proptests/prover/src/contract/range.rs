//! Proves that the numbers on the right side stay in range if those on the left side do.
//!
//! The result of an op on the right stays in range for one of two reasons. As a real function, it is c times a result
//! on the left or an input, with 1/16 ≤ |c| ≤ 1. Or its bounds are in range for all inputs for which the contract
//! promises the range. A result that may leave the range is accepted if its overflow or underflow has no visible
//! effect. The result of the whole side needs no proof, because it equals the left one.

use std::collections::{BTreeMap, BTreeSet};

use eutectic_ir::{Class, DType, Op, ops::Anchor};
use eutectic_rewrites::{
    Rule,
    rule::{AppliedOp, OpTerm, Root, Term as RuleTerm},
};

use super::{
    bounds::{Range, World, is_share, unmarked},
    nodes::{self, Node, Value},
};
use crate::{
    call::Case,
    facts::{Res, Stop, stop},
    lower::MARK,
    scope::Scope,
    term::{Kind, T, Term, Ty},
};

/// The least allowed ratio of a number on the right to the number on the left to which it is proportional.
const LEAST: f64 = 1.0 / 16.0;
/// −log₂(1 − 1/16), rounded: within 1/16 of the largest number, a rounding error decides whether a result is finite.
const ROOM: f64 = 0.09;
/// The number of significant bits from which on a subnormal number has a relative error far below 1/16.
const DIGITS: f64 = 6.0;
/// The tolerance for rounded constants of the right side.
const ROUNDING: f64 = 1e-6;

/// Calls `visit` with each op of both sides.
fn ops(rule: &Rule, visit: &mut dyn FnMut(&AppliedOp)) {
    let sides = rule.roots.iter().flat_map(|r| [&r.left, &r.right]).chain(rule.lets.iter().map(|(_, t)| t));
    for side in sides {
        side.visit(&mut |term| {
            if let RuleTerm::Call(call) = term {
                visit(call);
            }
        });
    }
}

/// Returns whether a rule has a product, attention or a norm. The range is then promised for moderate inputs only.
pub fn mixes(rule: &Rule) -> bool {
    let mut found = false;
    let mixes = |op: &Op| matches!(op.def().class, Class::Composite | Class::Anchor(Anchor::Named(_)));
    ops(rule, &mut |call| found |= call.op.ops().iter().any(mixes));
    found
}

/// Returns the tensors that may be masks: the bias operands of attention, and addends in an exponent.
fn masks(rule: &Rule, sides: [&T; 2]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    ops(rule, &mut |call| {
        if call.op.ops().iter().any(|op| op.def().leaves_out) {
            call.args.iter().skip(3).for_each(|bias| {
                bias.visit(&mut |term| {
                    if let RuleTerm::Tensor(at) = term {
                        found.insert(rule.variables[*at].name.clone());
                    }
                });
            });
        }
    });
    sides.into_iter().for_each(|side| exponents(&unmarked(side), &mut found));
    found
}

fn exponents(term: &T, found: &mut BTreeSet<String>) {
    match &**term {
        Term::Apply(op, _, args) => {
            if matches!(&**op, "exp" | "exp-normal") {
                args.iter().for_each(|a| addends(a, found));
            }
            args.iter().for_each(|a| exponents(a, found));
        }
        Term::Reduce(_, _, _, body) => exponents(body, found),
        Term::If(_, a, b) => [a, b].into_iter().for_each(|t| exponents(t, found)),
        _ => {}
    }
}

fn addends(term: &T, found: &mut BTreeSet<String>) {
    match &**term {
        Term::Read(name, ty, _) if ty.kind == Kind::Float => {
            found.insert(name.to_string());
        }
        Term::Apply(op, _, args) if matches!(&**op, "add" | "sub" | "neg" | "where" | "cast") => {
            args.iter().for_each(|a| addends(a, found));
        }
        Term::If(_, a, b) => [a, b].into_iter().for_each(|t| addends(t, found)),
        _ => {}
    }
}

/// Returns whether the left side of a root is a single op whose intermediate results may be rounded in any order.
/// Composite ops round intermediate results only in 16-bit element types.
fn has_parts(root: &Root, dtype: DType) -> bool {
    let RuleTerm::Call(AppliedOp { op: OpTerm::Named(op), args, .. }) = &root.left else { return false };
    let class = op.def().class;
    let short = dtype.register() != dtype;
    let whole = !args.iter().any(|a| matches!(a, RuleTerm::Call(_)));
    whole && class.leaves_order_open() && (!matches!(class, Class::Composite) || short)
}

/// Returns each assignment of float types to the type variables of a case, with the element type of constants.
fn types(scope: &Scope<'_>) -> Vec<(BTreeMap<String, DType>, DType)> {
    let mut all = vec![BTreeMap::new()];
    for (slot, ty) in &scope.types {
        if ty.kind != Kind::Float || ty.dtype.is_some() {
            continue;
        }
        let members = scope.floats(*slot);
        let with = |of: &BTreeMap<String, DType>| {
            let of = of.clone();
            members
                .iter()
                .map(move |d| of.clone().into_iter().chain([(ty.name.to_string(), *d)]).collect())
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    let fixed = scope.types.values().find_map(|ty| ty.dtype.filter(|d| d.is_float()));
    let own = scope.rule.tensors().find_map(|(_, ty, _)| match ty.dtype {
        eutectic_ir::lang::typing::DTypePattern::Fixed(d) if d.is_float() => Some(d),
        _ => None,
    });
    let main = |of: &BTreeMap<String, DType>| of.values().next().copied().or(fixed).or(own).unwrap_or(DType::F32);
    all.into_iter()
        .map(|of| {
            let main = main(&of);
            (of, main)
        })
        .collect()
}

/// An intermediate result of the right side.
struct Part<'a> {
    node: &'a Node,
    value: Value,
}

/// The state of a comparison of both sides.
struct Comparison<'a> {
    world: World<'a>,
    /// The results of the left side.
    left: &'a [(&'a Node, Value)],
    /// The right side.
    side: &'a T,
}

fn values<'a>(case: &Case, of: &'a [Node]) -> Vec<(&'a Node, Value)> {
    of.iter().filter_map(|node| Some((node, node.value(case).ok()?))).collect()
}

/// Proves that the right side leaves the range only if the left side does.
pub fn kept(scope: &Scope<'_>, case: &Case, root: &Root, sides: [&T; 2], left: &[Node], right: &[Node]) -> Res<()> {
    // The result of the whole side equals the left one, and an op that selects computes no new number.
    let parts = right.iter().filter(|node| !is_result(sides[1], node) && !selects(node));
    let parts: Vec<Part<'_>> = parts.map(|node| Ok(Part { node, value: node.value(case)? })).collect::<Res<_>>()?;
    if parts.is_empty() {
        return Ok(());
    }
    let types = types(scope);
    let own = match sides[0].ty() {
        Some(ty) if types.iter().any(|(_, main)| has_parts(root, *main)) => nodes::parts(sides[0], ty),
        _ => Vec::new(),
    };
    let (left, own) = (values(case, left), values(case, &own));
    let rule = scope.rule;
    let constants = rule.tensors().filter(|(_, _, constant)| *constant).map(|(v, ..)| v.name.clone()).collect();
    let integers = scope.types.iter().map(|(slot, ty)| (ty.name.to_string(), scope.bits(*slot))).collect();
    let world = World {
        case,
        types: BTreeMap::new(),
        integers,
        main: DType::F32,
        moderate: mixes(rule),
        constants,
        masks: masks(rule, sides),
    };
    let mut comparison = Comparison { world, left: &left, side: sides[1] };
    for (types, main) in types {
        // If the left side is a single op, its intermediate results may leave the range. The right side may compute the
        // same ones.
        comparison.left = if has_parts(root, main) { &own } else { &left };
        (comparison.world.types, comparison.world.main) = (types, main);
        parts.iter().try_for_each(|part| comparison.part(part))?;
    }
    Ok(())
}

/// Returns whether an op returns one of its operands, the magnitude or negative of one, or 0.
fn selects(node: &Node) -> bool {
    match &*node.term {
        Term::Apply(op, ..) => matches!(&**op, "where" | "max" | "min" | "neg" | "abs" | "act none" | "act relu"),
        Term::Reduce(how, ..) => how.def().selects,
        _ => false,
    }
}

impl Comparison<'_> {
    fn part(&self, part: &Part<'_>) -> Res<()> {
        let range = self.world.range(&part.node.ty);
        if self.is_multiple(part, range, &|c| (LEAST..=1.0 + ROUNDING).contains(&c.abs()))? {
            return Ok(());
        }
        let node = part.node;
        let bound = node.inside(self.world.case, || self.world.bound(&node.term));
        let main = self.world.main;
        let form = || {
            let text = unmarked(&node.term).to_string();
            if text.chars().count() > 120 { text.chars().take(120).collect::<String>() + " …" } else { text }
        };
        let overflows = bound.size() > range.most + ROUNDING;
        if overflows && !self.saturates(node) && !self.is_outgrown(part, range) && !self.is_near(part, range) {
            return stop(format!(
                "`{}` on the right may overflow in {main}, where no number of the left side is as large: {}",
                node.op,
                form()
            ));
        }
        // Multiples of the least subnormal number are exact in the subnormal range, as are their sums.
        let vanishes = bound.step < range.step && bound.least < range.step + DIGITS;
        let as_large = self.is_multiple(part, range, &|c| c.abs() >= LEAST)?;
        let harmless = || {
            as_large
                || is_share(self.world.case, &node.term)
                || is_absorbed(self.side, &node.term, self.world.moderate)
                || is_summand(self.side, node)
        };
        if vanishes && !harmless() {
            return stop(format!(
                "`{}` on the right may vanish in {main}, where no number of the left side is as small: {}",
                node.op,
                form()
            ));
        }
        Ok(())
    }

    /// Returns whether a product is used only by functions that are almost constant where the product overflows.
    fn saturates(&self, node: &Node) -> bool {
        let ends = |op: &str| matches!(op, "tanh" | "sigmoid" | "erf");
        let product = matches!(&*unmarked(&node.term), Term::Apply(op, ..) if matches!(&**op, "mul" | "div"));
        product && only_in(self.side, &node.term, &mut |op, _| ends(op), &mut |op| op.starts_with(MARK))
    }

    /// Returns whether the part is c·xᵐ, and the left side has a result d·xⁿ that is at least as large wherever c·xᵐ
    /// overflows.
    fn is_outgrown(&self, part: &Part<'_>, range: Range) -> bool {
        let value = &part.value;
        let Some((x, m, c)) = value.real.power_of_a_leaf() else { return false };
        let overflows_at = (range.most - c.abs().log2()) / f64::from(m);
        self.left.iter().filter(|(node, other)| node.ty == part.node.ty && value.is_where(other)).any(|(_, other)| {
            other.real.power_of_a_leaf().is_some_and(|(y, n, d)| {
                x == y && n >= m && (d / c).abs().log2() + f64::from(n - m) * overflows_at >= -ROUNDING
            })
        })
    }

    /// Returns whether the part differs from a result of the left side by another result, which is at most a sixteenth
    /// of the largest number. If the part overflows, that result of the left side is close to the largest number.
    /// Rounding then decides whether it is finite.
    fn is_near(&self, part: &Part<'_>, range: Range) -> bool {
        let all = || self.left.iter().filter(|(node, _)| node.ty == part.node.ty);
        let small = |node: &Node| {
            let bound = node.inside(self.world.case, || self.world.bound(&node.term));
            bound.size() <= range.most + LEAST.log2()
        };
        let same = |c: f64| (c - 1.0).abs() < ROUNDING;
        all().filter(|(node, _)| small(node)).any(|(difference, _)| {
            let sum = part.node.plus(self.world.case, difference).ok().flatten();
            sum.is_some_and(|sum| all().any(|(_, whole)| sum.times(whole).is_some_and(same)))
        })
    }

    /// Returns whether the part is c times an input or a result of the left side, for a c that satisfies `fits`. The
    /// type of that input or result must have no wider range.
    fn is_multiple(&self, part: &Part<'_>, range: Range, fits: &dyn Fn(f64) -> bool) -> Res<bool> {
        // Masks may be the largest numbers of their type, so they allow no tolerance.
        let room = if self.world.masks.is_empty() { ROOM } else { 0.0 };
        let holds = |other: Range| range.most >= other.most - room && range.least <= other.least;
        let value = &part.value;
        if value.real.multiple_of_a_leaf().is_some_and(fits) {
            let mut types = Vec::new();
            reads(&part.node.term, &mut types);
            if types.iter().all(|ty| holds(self.world.range(ty))) {
                return Ok(true);
            }
        }
        for (node, other) in self.left {
            if !holds(self.world.range(&node.ty)) {
                continue;
            }
            if value.times(other).is_some_and(fits) || value.is_root_of(other) {
                return Ok(true);
            }
            // A sum may be evaluated in any order, and so in parts.
            if part.node.is_sum()
                && let Some(whole) = part.node.summed(self.world.case)?
                && whole.times(other).is_some_and(fits)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Collects the types of the elements in a term.
fn reads(term: &T, found: &mut Vec<Ty>) {
    match &**term {
        Term::Read(_, ty, _) => found.push(ty.clone()),
        Term::Apply(_, _, args) => args.iter().for_each(|a| reads(a, found)),
        Term::Reduce(_, _, _, body) => reads(body, found),
        Term::If(_, a, b) => [a, b].into_iter().for_each(|t| reads(t, found)),
        _ => {}
    }
}

/// Returns whether an underflow of a result has no visible effect: only exponents, and sums with a number that is not
/// small, use the result. Before that use it may be multiplied: any number of times if inputs are moderate, otherwise
/// once.
fn is_absorbed(side: &T, result: &T, moderate: bool) -> bool {
    let number = |t: &T| t.number().is_some_and(|x| x.abs() >= 0.5);
    let mut ends = |op: &str, args: &[T]| match op {
        "exp" | "exp-normal" => true,
        "add" | "sub" => args.iter().any(number),
        _ => false,
    };
    let mut products = 0;
    let mut passes = |op: &str| match op {
        "mul" => {
            products += 1;
            moderate || products == 1
        }
        "add" | "sub" | "neg" | "where" | "max" | "min" => true,
        _ => op.starts_with(MARK) || op.starts_with("round "),
    };
    only_in(side, result, &mut ends, &mut passes)
}

/// Returns whether the side is a sum that adds the result unscaled, in the element type of the result. An underflow
/// loses at most half of the least number, which is at most half a unit in the last place of any sum.
fn is_summand(side: &T, node: &Node) -> bool {
    match &**side {
        Term::Apply(op, _, args) if op.starts_with(MARK) && args[0] == node.term => true,
        Term::Apply(op, ty, args) if op.starts_with(MARK) => *ty == node.ty && is_summand(&args[0], node),
        Term::Apply(op, _, args) if matches!(&**op, "add" | "sub" | "neg" | "max" | "min") => {
            args.iter().all(|a| is_summand(a, node))
        }
        // log(1 + x) with x ≥ 0 changes by at most the change of x.
        Term::Apply(op, _, args) if **op == *"log1p" && unmarked(&args[0]).args("exp").is_some() => {
            is_summand(&args[0], node)
        }
        _ => walk(side, &node.term, &mut |_, _| false, &mut |_| true).is_none(),
    }
}

/// Returns whether each use of a result ends in a function that satisfies `ends`, after functions that satisfy
/// `passes`.
fn only_in(
    side: &T,
    result: &T,
    ends: &mut dyn FnMut(&str, &[T]) -> bool,
    passes: &mut dyn FnMut(&str) -> bool,
) -> bool {
    walk(side, result, ends, passes).is_none_or(|through| !through)
}

/// Returns `None` if the term does not contain the result, and otherwise whether the result can affect the term's
/// value.
fn walk(
    term: &T,
    result: &T,
    ends: &mut dyn FnMut(&str, &[T]) -> bool,
    passes: &mut dyn FnMut(&str) -> bool,
) -> Option<bool> {
    match &**term {
        Term::Apply(op, _, args) => {
            if op.starts_with(MARK) && args[0] == *result {
                return Some(true);
            }
            let mut found = None;
            for arg in args {
                match walk(arg, result, ends, passes) {
                    // If a function satisfies neither `ends` nor `passes`, the result can affect the term's value.
                    Some(true) if !ends(op, args) && !passes(op) => return Some(true),
                    Some(true) if !ends(op, args) => found = Some(true),
                    Some(_) => found = found.or(Some(false)),
                    None => {}
                }
            }
            found
        }
        Term::Reduce(_, _, _, body) => walk(body, result, ends, passes),
        Term::If(_, a, b) => match (walk(a, result, ends, passes), walk(b, result, ends, passes)) {
            (None, other) | (other, None) => other,
            (Some(x), Some(y)) => Some(x || y),
        },
        _ => None,
    }
}

/// Returns whether a node is the result of the whole side, perhaps under conditions.
fn is_result(side: &T, node: &Node) -> bool {
    match &**side {
        Term::Apply(op, _, args) if op.starts_with(MARK) => args[0] == node.term,
        Term::If(_, a, b) => is_result(a, node) || is_result(b, node),
        _ => false,
    }
}

/// Puts the name of the obligation before the reason of a stop.
pub fn because(what: &str, stop: Stop) -> Stop {
    match stop {
        Stop::Because(why) => Stop::Because(format!("{what}: {why}")),
        other => other,
    }
}
