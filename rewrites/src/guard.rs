//! Decides whether a candidate of the matcher is a match, and binds the rule's variables.

use std::ops::Range;

use eutectic_ir::{
    Attr, DType, Op, Shape, Type,
    lang::{
        Bindings, Mismatch, RelationCall, TypePattern,
        typing::{Bound, DimPattern, DimsPattern, SlotKind, Status, VarId},
    },
};

use crate::{
    egraph::{Facts, Head, TypeId},
    expr::{Expr, Wanted},
    instantiate::{Instantiator, NoInstance, Ref},
    pattern::{Pat, Pattern, unbound},
    rule::{AttrTerm, AttrVariable, Contract, OpTerm, Phase, Rule, Term, VariableKind},
};

/// The part of a candidate on which the guard depends. It has no classes, so that repeated layers share an entry of
/// the cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sight {
    /// The head of each op of the pattern.
    pub heads: smallvec::SmallVec<[Head; 12]>,
    /// The type of each node of the pattern.
    pub types: smallvec::SmallVec<[TypeId; 12]>,
    /// The bits of the matched value of each number on the left side.
    pub numbers: smallvec::SmallVec<[u64; 2]>,
}

/// The type of a pattern node that shares the class of an equal node, and is not matched itself.
const NO_TYPE: TypeId = TypeId(u32::MAX);

/// The reason why a candidate is not a match.
#[derive(Clone, Debug)]
pub(crate) enum NoMatch {
    /// A part of the rule does not fit. The range is its position in the rule file.
    Mismatch(Box<GuardMisfit>, Range<usize>),
    /// A constraint cannot be decided although all others are solved. The range is its position in the rule file.
    Unsolved(String, Range<usize>),
}

/// The reason for a mismatch.
#[derive(Clone, Debug)]
pub(crate) enum GuardMisfit {
    /// The root is in legal form, so that there is nothing to legalize.
    Legal,
    /// A type does not fit, or a relation does not hold.
    Type(Mismatch),
    /// The value of a matched attribute that does not fit the rule's term for it.
    Attr(Attr),
    /// The value of a matched number that does not fit the rule's term for it.
    Number(f64),
    /// This op observes the rounding of the root, which the rule may change.
    Observed(Op),
    /// The left side as written has other types than the matched classes.
    Left,
}

impl NoMatch {
    /// Returns the op that observes the root, if nothing else prevents the match.
    pub fn observer(&self) -> Option<Op> {
        match self {
            NoMatch::Mismatch(misfit, _) => match **misfit {
                GuardMisfit::Observed(observer) => Some(observer),
                _ => None,
            },
            NoMatch::Unsolved(..) => None,
        }
    }
}

impl GuardMisfit {
    fn at(self, span: &Range<usize>) -> NoMatch {
        NoMatch::Mismatch(Box::new(self), span.clone())
    }
}

/// A constraint that is not yet decided.
enum Constraint<'a> {
    Type(&'a TypePattern, &'a Type),
    Dim(&'a DimPattern, i64),
    Shape(&'a DimsPattern, &'a Shape),
    Relation(&'a RelationCall),
}

/// A check, after all variables are bound, that a number equals an expression.
struct NumberCheck<'a> {
    expr: &'a Expr,
    value: f64,
    dtype: DType,
    span: &'a Range<usize>,
}

/// Binds the variables of a rule to a candidate.
///
/// # Errors
/// The reason why the candidate is not a match.
pub(crate) fn guard(rule: &Rule, pattern: &Pattern, facts: &mut Facts, sight: &Sight) -> Result<Bindings, NoMatch> {
    if rule.phase == Phase::Legalize && is_legal(pattern, facts, sight) {
        return Err(GuardMisfit::Legal.at(&rule.roots[0].span));
    }
    let bindings = bind(rule, pattern, facts, sight)?;
    let members = [bindings];
    same_types(rule, pattern, facts, sight, &members)?;
    if rule.contract != Contract::Exact {
        let mut roots = rule.roots.iter().zip(&pattern.roots);
        // Sums, products and norms may round in any order even if an op observes them, so only ops that hand rounding
        // on are checked.
        let observed = roots.find_map(|(root, at)| {
            let head = sight.heads[*at];
            Some((root, facts.observer(head).filter(|_| facts.op(head).hands_on())?))
        });
        if let Some((root, observer)) = observed.filter(|_| !rule.defines_an_op()) {
            return Err(GuardMisfit::Observed(observer).at(&root.span));
        }
    }
    let [bindings] = members;
    Ok(bindings)
}

/// Returns whether the (first) root is in legal form.
fn is_legal(pattern: &Pattern, facts: &Facts, sight: &Sight) -> bool {
    let root = pattern.roots[0];
    let Pat::Op { args, .. } = &pattern.nodes[root] else { return true };
    let types: Vec<_> = args.iter().map(|a| sight.types[*a]).collect();
    facts.is_legal(sight.heads[root], &types)
}

fn bind(rule: &Rule, pattern: &Pattern, facts: &Facts, sight: &Sight) -> Result<Bindings, NoMatch> {
    let mut bindings = Bindings::default();
    let (mut open, mut checks) = (Vec::new(), Vec::new());
    for (at, (variable, ty, _)) in rule.tensors().enumerate() {
        open.push((Constraint::Type(ty, facts.ty(sight.types[pattern.tensors[at]])), &variable.span));
    }
    numbers(rule, pattern, facts, sight, &mut bindings, &mut checks)?;
    for (at, node) in pattern.nodes.iter().enumerate() {
        let Pat::Op { op, call: Some((id, kept)), .. } = node else { continue };
        let Some(call) = &pattern.terms[*id] else { continue };
        let attrs = facts.attrs(sight.heads[at]);
        if let OpTerm::Variable(slot, _) = op {
            let bound = Bound::Op(facts.op(sight.heads[at]), op.carried(attrs));
            bindings.bind(*slot, bound).map_err(|mismatch| GuardMisfit::Type(mismatch).at(&call.span))?;
        }
        let keep = if *kept { op.attr("keep") } else { None };
        let other = |attr: &Attr| GuardMisfit::Attr(attr.clone()).at(&call.span);
        for (n, (term, attr)) in call.attrs.iter().zip(attrs).enumerate() {
            match term {
                _ if keep == Some(n) => {}
                Some(AttrTerm::Slot(slot)) => {
                    bind_slot(rule, *slot, attr, &mut bindings).map_err(|misfit| misfit.at(&call.span))?;
                }
                Some(AttrTerm::Dim(dim)) => {
                    open.push((Constraint::Dim(dim, attr.int().ok_or_else(|| other(attr))?), &call.span));
                }
                Some(AttrTerm::Shape(dims)) => {
                    open.push((Constraint::Shape(dims, attr.shape().ok_or_else(|| other(attr))?), &call.span));
                }
                Some(AttrTerm::Number(expr)) => {
                    let (value, dtype) = match attr.int() {
                        Some(n) => (n as f64, DType::I64),
                        None => (attr.float().ok_or_else(|| other(attr))?, attribute_type(rule)),
                    };
                    checks.push(NumberCheck { expr, value, dtype, span: &call.span });
                }
                _ => {}
            }
        }
    }
    open.extend(rule.relations.iter().map(|(call, span)| (Constraint::Relation(call), span)));
    solve(open, &mut bindings)?;
    variables_fit(rule, pattern, &bindings)?;
    for check in checks {
        let want = check.expr.value(&bindings, &[]).map(|n| Wanted { value: n.get(), close: rule.contract.close() });
        if !want.is_some_and(|want| want.is(check.value, check.dtype)) {
            return Err(GuardMisfit::Number(check.value).at(check.span));
        }
    }
    Ok(bindings)
}

/// Binds number variables that are operands, and collects the checks of other numbers.
fn numbers<'a>(
    rule: &'a Rule,
    pattern: &Pattern,
    facts: &Facts,
    sight: &Sight,
    bindings: &mut Bindings,
    checks: &mut Vec<NumberCheck<'a>>,
) -> Result<(), NoMatch> {
    let mut result = Ok(());
    for root in &rule.roots {
        root.left.visit(&mut |term| {
            let Term::Number { id, expr } = term else { return };
            let value = f64::from_bits(sight.numbers[*id]);
            let dtype = facts.ty(sight.types[pattern.numbers[*id]]).dtype().unwrap_or(DType::F64);
            if let Expr::Slot(slot) = expr
                && rule.scope.variables[*slot].1 == SlotKind::Attr
                && bindings.get(*slot).is_none()
            {
                let is_int = rule
                    .variables
                    .iter()
                    .any(|v| matches!(&v.kind, VariableKind::Attr(s, AttrVariable::Int) if s == slot));
                let attr = match is_int {
                    true if value.fract() == 0.0 => Attr::Int(value as i64),
                    true => return result = Err(GuardMisfit::Number(value).at(&root.span)),
                    false => Attr::from(value),
                };
                // The slot is unbound, so binding cannot fail.
                let _ = bindings.bind(*slot, Bound::Attr(attr));
            } else if expr.literal().is_none() {
                checks.push(NumberCheck { expr, value, dtype, span: &root.span });
            }
        });
    }
    result
}

fn bind_slot(rule: &Rule, slot: VarId, attr: &Attr, bindings: &mut Bindings) -> Result<(), GuardMisfit> {
    match (rule.scope.variables[slot].1, attr) {
        (SlotKind::DType(class), Attr::DType(dtype)) if class.contains(*dtype) => {
            bindings.bind(slot, Bound::DType(*dtype))
        }
        (SlotKind::DType(_), _) => return Err(GuardMisfit::Attr(attr.clone())),
        _ => bindings.bind(slot, Bound::Attr(attr.clone())),
    }
    .map_err(GuardMisfit::Type)
}

/// Solves constraints. Retries each constraint that depends on unbound variables until all constraints are solved.
fn solve(mut open: Vec<(Constraint<'_>, &Range<usize>)>, bindings: &mut Bindings) -> Result<(), NoMatch> {
    while !open.is_empty() {
        let before = (open.len(), bindings.clone());
        let mut failure = Ok(());
        open.retain(|(constraint, span)| {
            let status = match constraint {
                Constraint::Type(pattern, ty) => pattern.unify(ty, bindings),
                Constraint::Dim(pattern, n) => pattern.unify(&eutectic_ir::Dim::Known(*n), bindings),
                Constraint::Shape(pattern, shape) => pattern.unify(shape, bindings),
                Constraint::Relation(call) => call.solve(bindings),
            };
            match status {
                Ok(status) => status == Status::Later,
                Err(mismatch) => {
                    failure = Err(GuardMisfit::Type(mismatch).at(span));
                    false
                }
            }
        });
        failure?;
        if !open.is_empty() && before == (open.len(), bindings.clone()) {
            let (constraint, span) = &open[0];
            let what = match constraint {
                Constraint::Type(..) => "the dims of this type",
                Constraint::Dim(..) => "the dim of an attribute",
                Constraint::Shape(..) => "the shape of an attribute",
                Constraint::Relation(_) => "this relation",
            };
            return Err(NoMatch::Unsolved(what.into(), (*span).clone()));
        }
    }
    Ok(())
}

/// Checks that words are among the declared ones, and that number attributes are near their declared numbers.
fn variables_fit(rule: &Rule, pattern: &Pattern, bindings: &Bindings) -> Result<(), NoMatch> {
    for variable in &rule.variables {
        let fits = match (&variable.kind, variable.wanted) {
            (VariableKind::Attr(slot, AttrVariable::OneOf(words)), _) => match bindings.attr(*slot) {
                Some(Attr::Word(w)) => words.iter().any(|o| **o == **w),
                _ => true,
            },
            (VariableKind::Number(slot), Some(want)) => {
                // Numbers that are operands were already compared, in their own element type.
                let is_attr = |term: &AttrTerm| *term == AttrTerm::Slot(*slot);
                let in_attrs = pattern.terms.iter().flatten().any(|c| c.attrs.iter().flatten().any(is_attr));
                let has = bindings.attr(*slot).and_then(Attr::float);
                !in_attrs || has.is_none_or(|has| want.is(has, attribute_type(rule)))
            }
            _ => true,
        };
        if let (false, VariableKind::Number(slot) | VariableKind::Attr(slot, _)) = (fits, &variable.kind) {
            let has = bindings.attr(*slot).cloned();
            return Err(has.map_or(GuardMisfit::Left, GuardMisfit::Attr).at(&variable.span));
        }
    }
    Ok(())
}

/// Returns the element type with whose precision a number attribute is compared. Models store attributes in `f32`.
fn attribute_type(rule: &Rule) -> DType {
    if rule.contract.rounds() { DType::F32 } else { DType::F64 }
}

/// Checks that the left side as written has the types of the matched classes.
fn same_types(
    rule: &Rule,
    pattern: &Pattern,
    facts: &mut Facts,
    sight: &Sight,
    members: &[Bindings],
) -> Result<(), NoMatch> {
    let types: Vec<TypeId> = pattern.tensors.iter().map(|t| sight.types[*t]).collect();
    let mut builder = Instantiator::new(facts, rule, members, &types);
    (builder.left, builder.legal) = (true, false);
    for (root, at) in rule.roots.iter().zip(&pattern.roots) {
        let want = builder.facts.ty(sight.types[*at]).dtype();
        match builder.term(&root.left, 0, want) {
            Ok((Ref::Instr(_), ty)) if ty == sight.types[*at] => {}
            Ok(_) | Err(NoInstance::Inapplicable | NoInstance::Wrong { .. }) => {
                return Err(GuardMisfit::Left.at(&root.span));
            }
        }
    }
    let fits = builder.calls.iter().all(|(id, (_, ty))| {
        pattern.calls.iter().find(|(call, _)| call == id).is_none_or(|(_, at)| sight.types[*at] == *ty)
    });
    if fits { Ok(()) } else { Err(GuardMisfit::Left.at(&rule.roots[0].span)) }
}

impl Sight {
    /// Returns the part of a candidate on which the guard depends.
    pub fn of(pattern: &Pattern, egraph: &crate::egraph::EGraph, found: &crate::pattern::Match) -> Sight {
        let ty = |class: &egg::Id| if *class == unbound() { NO_TYPE } else { egraph[*class].data.ty };
        let types = found.classes.iter().map(ty).collect();
        let number = |at: &usize| egraph[found.classes[*at]].data.scalar.unwrap_or(f64::NAN).to_bits();
        Sight { heads: found.heads.clone(), types, numbers: pattern.numbers.iter().map(number).collect() }
    }
}
