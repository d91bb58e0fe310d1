//! The prover: evaluates both sides of each case of a rule at one index, and compares their normal forms.

use std::{collections::BTreeMap, fmt, rc::Rc};

use eutectic_rewrites::{Claim, Contract, Probe, Proof, Rule, rule::Root};
use rayon::prelude::*;

use crate::{
    bind, bits,
    call::Case,
    choices::Choices,
    contract,
    facts::{Res, Stop, stop},
    falsify::{Counterexample, falsify, numbers},
    lower::{Lower, Truths},
    ops,
    range::beyond,
    scope::Scope,
    shape::{Item, Tensor, show},
    side::Reader,
    signs::Known,
    smt::Judge,
    sums,
    term::{Atom, Kind, Poly, T, Term, Ty},
};

/// The result of judging a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The claim that was proved, or the reason why none was.
    Shown(Proof),
    /// An instance on which the interpreter computes different results.
    Refuted(Box<Counterexample>),
}

/// Proves a rule for every size and rank, or up to a bound, or searches for an instance on which the rule is wrong.
pub fn judge(probe: &Probe) -> Verdict {
    judge_by(probe, None)
}

/// Judges a rule as [`judge`] does. The solver, if there is one, decides questions that the prover's own procedure
/// leaves open.
pub fn judge_by(probe: &Probe, judge: Option<&Rc<Judge>>) -> Verdict {
    let shown = prove_by(probe.rule(), judge);
    let found = match shown {
        Proof::Every(_) => None,
        // The sides are one real function, so only overflow, infinities and NaN can refute the rule.
        Proof::Reals(_) => beyond(probe),
        _ => falsify(probe),
    };
    if let Some(found) = found {
        return Verdict::Refuted(Box::new(found));
    }
    match shown {
        Proof::Every(_) => Verdict::Shown(shown),
        shown => Verdict::Shown(bounded(probe.rule()).unwrap_or(shown)),
    }
}

/// The maximal numbers of cases that are tried, without a bound on extents and with one. Cases with a bound are larger.
const CASES: [usize; 2] = [3_000, 40];
/// The largest extents of bounded proofs, in the order in which they are tried.
const BOUNDS: [usize; 2] = [3, 2];

/// Returns the claims that prove the rule's contract, the stronger one first.
fn claims(rule: &Rule) -> &'static [Claim] {
    if rule.contract == Contract::Exact { &[Claim::Bits] } else { &[Claim::Bits, Claim::Contract] }
}

/// Proves a rule for every size and rank. The answer is deterministic because nothing is executed.
pub fn prove(rule: &Rule) -> Proof {
    prove_by(rule, None)
}

/// Proves a rule for every size and rank. The solver decides questions that the prover's own procedure leaves open.
pub fn prove_by(rule: &Rule, judge: Option<&Rc<Judge>>) -> Proof {
    let choices = || Choices::asking(judge.cloned());
    let mut why = String::new();
    for claim in claims(rule) {
        match all_cases(rule, Aim::Proof(*claim), choices()) {
            Ok(()) => return Proof::Every(*claim),
            Err(reason) => why = reason,
        }
    }
    // Equality over the reals does not bound ulps, so it counts only for contracts that promise no bound in ulps.
    let rounds = matches!(rule.contract, Contract::Reassoc | Contract::Fast);
    match rounds && all_cases(rule, Aim::Reals, choices()).is_ok() {
        true => Proof::Reals(why),
        false => Proof::Tested(why),
    }
}

/// Proves a rule for every value and every extent up to a bound. Bounds below a number in the rule's text are skipped,
/// because the rule may match no instance under them.
fn bounded(rule: &Rule) -> Option<Proof> {
    let written = numbers(rule).into_iter().max().unwrap_or(0);
    let cases = BOUNDS.into_iter().flat_map(|most| claims(rule).iter().map(move |claim| (most, *claim)));
    let shown = |(most, claim): (usize, Claim)| all_cases(rule, Aim::Proof(claim), Choices::up_to(most)).is_ok();
    cases
        .filter(|(most, _)| *most as i64 >= written)
        .find(|of| shown(*of))
        .map(|(most, claim)| Proof::UpTo(claim, most))
}

/// The goal of a proof attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// A proof of the rule's contract.
    Proof(Claim),
    /// Equality over the reals, which proves no contract.
    Reals,
}

fn all_cases(rule: &Rule, aim: Aim, mut choices: Choices) -> Result<(), String> {
    for _ in 0..CASES[usize::from(choices.most.is_some())] {
        choices.start();
        match case(rule, aim, &mut choices) {
            Ok(()) => {}
            Err(Stop::Split(name)) if !choices.split.contains(&name) && choices.split.len() < 6 => {
                choices.split.push(name);
                choices.restart();
                continue;
            }
            Err(Stop::Split(name)) => return Err(format!("it is undecided whether {name} is 0")),
            Err(Stop::Peel(name)) => {
                let base: Rc<str> = name.trim_end_matches('′').into();
                let known = choices.peels.entry(base.clone()).or_insert(0);
                *known += 1;
                if *known > 4 {
                    return Err(format!(
                        "an axis is inside the sequence {base}.., and too far from its end to be split off"
                    ));
                }
                choices.restart();
                continue;
            }
            Err(Stop::Because(reason) | Stop::Vacuous(reason)) => return Err(reason),
        }
        if !choices.next() {
            return Ok(());
        }
    }
    Err("there are too many cases".into())
}

/// Proves one case of a rule.
fn case(rule: &Rule, aim: Aim, choices: &mut Choices) -> Res<()> {
    if rule.group {
        return stop("groups of nodes are unsupported");
    }
    let mut scope = Scope::new(rule, choices)?;
    if choices.judge.as_ref().is_some_and(|judge| judge.has_room()) {
        scope.case.facts.record();
    }
    scope.relations()?;
    let case = Rc::clone(&scope.case);
    case.judge.replace(choices.judge.clone());
    let reader = Reader::new(scope, choices);
    let left = match rule.roots.iter().map(|r| reader.term(&r.left)).collect::<Res<Vec<_>>>() {
        Err(Stop::Vacuous(_)) => return Ok(()),
        other => other?,
    };
    if case.facts.absurd() {
        return Ok(());
    }
    case.left.set(false);
    let shown = rule.roots.iter().zip(&left).try_for_each(|(root, left)| one_root(&case, aim, &reader, root, left));
    if let Some(judge) = &choices.judge {
        judge.keep(case.facts.recorded());
    }
    shown
}

fn one_root(case: &Case, aim: Aim, reader: &Reader<'_>, root: &Root, left: &Tensor) -> Res<()> {
    let right = reader.term(&root.right)?;
    let alike = left.shape.len() == right.shape.len()
        && left.shape.iter().zip(&right.shape).all(|(a, b)| {
            let d = &case.canon(&a.extent) - &case.canon(&b.extent);
            a.rank == b.rank && (d == Poly::zero() || case.holds(&d) && case.holds(&(&Poly::zero() - &d)))
        });
    // A scalar constant broadcasts to any shape.
    let number = right.shape.is_empty() && &*right.ty.name == "number";
    if !alike && !number {
        return stop(format!("the shapes of the sides differ: {} and {}", show(&left.shape), show(&right.shape)));
    }
    if left.ty != right.ty && &*right.ty.name != "number" && left.ty.kind != Kind::Stored {
        return stop(format!("the element types of the sides differ: {} and {}", left.ty.name, right.ty.name));
    }
    let index = |item: &Item| {
        if item.extent == Poly::int(1) { Poly::zero() } else { Poly::var(case.facts.index(&item.extent)) }
    };
    let at: Vec<Poly> = left.shape.iter().map(index).collect();
    // The compared element exists, so no extent is 0.
    let there: Vec<Poly> = left.shape.iter().map(|item| &item.extent - &Poly::int(1)).collect();
    let here: &[Poly] = if number { &[] } else { &at };
    case.facts.assume(there, || {
        let (l, r) = ((left.at)(&at)?, (right.at)(here)?);
        let sense = if aim == Aim::Proof(Claim::Bits) { Sense::Bits } else { Sense::Reals };
        let kind = left.ty.kind;
        match same(case, sense, kind, &l, &r).or_else(|stop| same_by_definition(case, sense, kind, [&l, &r], stop)) {
            Err(Stop::Because(_)) if settled(case, reader, &l, &r) => {}
            other => other?,
        }
        if aim == Aim::Proof(Claim::Contract) && left.ty.kind == Kind::Float {
            contract::undefined_alike(case, &l, &r)?;
            let [l, r] = marked(case, reader, root, [&at, here])?;
            contract::kept(&reader.scope, case, root, &l, &r)?;
        }
        Ok(())
    })
}

/// Compares the elements again after the expansion of random words to their definition, if there are any.
fn same_by_definition(case: &Case, sense: Sense, kind: Kind, sides: [&T; 2], stop: Stop) -> Res<()> {
    let [l, r] = sides.map(|t| ops::defined(&case.facts, t));
    match stop {
        Stop::Because(_) if [&l, &r] != sides => same(case, sense, kind, &l, &r),
        stop => Err(stop),
    }
}

/// Returns whether the solver shows that two elements are equal to the last bit. If not, records sizes at which they
/// may differ.
fn settled(case: &Case, reader: &Reader<'_>, l: &T, r: &T) -> bool {
    let judge = case.judge.borrow().clone();
    let Some(judge) = judge else { return false };
    let normal = |t: &T| bits::normal(case, t, &Truths::new());
    let equal = judge.equal_words(&reader.scope.integer_types(), l, r)
        || matches!((normal(l), normal(r)), (Ok(l), Ok(r)) if judge.equal_indices(&case.facts, &l, &r));
    if !equal {
        judge.explore(&case.facts, &case.chosen.borrow(), l, r);
    }
    equal
}

/// The maximal number of steps for the proof of a contract's other obligations.
const STEPS: usize = 200_000;

/// Returns the elements of both sides at an index, with marks around the results of ops.
fn marked(case: &Case, reader: &Reader<'_>, root: &Root, at: [&[Poly]; 2]) -> Res<[T; 2]> {
    case.fuel.set(STEPS);
    case.marks.set(true);
    let element = |side, at: &[Poly], is_left: bool| {
        case.left.set(is_left);
        reader.term(side).and_then(|tensor| (tensor.at)(at))
    };
    let elements = element(&root.left, at[0], true).and_then(|l| Ok([l, element(&root.right, at[1], false)?]));
    case.marks.set(false);
    case.left.set(false);
    elements
}

/// The sense in which two elements are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sense {
    /// To the last bit, for every value.
    Bits,
    /// As real functions: equal if rounding is ignored.
    Reals,
}

/// Checks that two elements of a kind are equal.
pub fn same(case: &Case, sense: Sense, kind: Kind, l: &T, r: &T) -> Res<()> {
    match sense {
        Sense::Reals if kind == Kind::Float => same_reals(case, l, r),
        _ => same_bits(case, l, r, &mut Truths::new(), 0),
    }
}

/// The maximal number of truth values whose combinations are tried.
const TRUTHS: usize = 9;

/// Checks that two terms have the same normal form in each case. A case assumes that each open condition and truth
/// value in them holds, or does not hold.
fn same_bits(case: &Case, l: &T, r: &T, truths: &mut Truths, depth: usize) -> Res<()> {
    let (a, b) = (bits::normal(case, l, truths)?, bits::normal(case, r, truths)?);
    if a == b {
        return Ok(());
    }
    if case.facts.absurd() {
        return Ok(());
    }
    if depth < TRUTHS {
        if let Some(p) = condition(&a).or_else(|| condition(&b)) {
            for p in [p.clone(), &Poly::int(-1) - &p] {
                case.facts.assume([p.clone()], || {
                    let only = only(case, &p);
                    let [a, b] = [&a, &b].map(|t| bind::with(&case.facts, t, &only));
                    same_bits(case, &a?, &b?, truths, depth + 1)
                })?;
            }
            return Ok(());
        }
        if let Some(t) = open_truth(&a, truths).or_else(|| open_truth(&b, truths)) {
            for truth in [true, false] {
                truths.insert(t.clone(), truth);
                let result = same_bits(case, &a, &b, truths, depth + 1);
                truths.remove(&t);
                result?;
            }
            return Ok(());
        }
    }
    differ(&a, &b)
}

fn differ<V>(a: &dyn fmt::Display, b: &dyn fmt::Display) -> Res<V> {
    let short = |t: String| if t.chars().count() > 300 { t.chars().take(300).collect::<String>() + " …" } else { t };
    stop(format!("the normal forms differ: {} and {}", short(a.to_string()), short(b.to_string())))
}

/// Returns the variables of a condition that can have only one value, with that value.
fn only(case: &Case, condition: &Poly) -> BTreeMap<u32, Poly> {
    let mut vars = BTreeMap::new();
    condition.visit(&mut |atom| {
        if let Atom::Var(id) = atom
            && let Some(value) = case.facts.only(*id)
        {
            vars.insert(*id, value);
        }
    });
    vars
}

/// Returns a condition on indices that uses no bound variable.
fn condition(term: &T) -> Option<Poly> {
    match &**term {
        Term::If(conditions, a, b) => {
            let free = conditions.iter().find(|p| !bind::is_bound(p)).cloned();
            free.or_else(|| condition(a)).or_else(|| condition(b))
        }
        Term::Apply(_, _, args) => args.iter().find_map(condition),
        Term::Reduce(_, _, _, body) => condition(body),
        _ => None,
    }
}

/// Returns the innermost undecided truth value outside all binders.
fn open_truth(term: &T, truths: &BTreeMap<T, bool>) -> Option<T> {
    match &**term {
        Term::Apply(op, ty, args) => args.iter().find_map(|a| open_truth(a, truths)).or_else(|| {
            let structure = matches!(&**op, "not" | "and" | "or" | "xor" | "where");
            (*ty == Ty::bool() && !structure && !truths.contains_key(term)).then(|| term.clone())
        }),
        Term::Read(_, ty, _) => (*ty == Ty::bool() && !truths.contains_key(term)).then(|| term.clone()),
        Term::If(_, a, b) => open_truth(a, truths).or_else(|| open_truth(b, truths)),
        _ => None,
    }
}

fn same_reals(case: &Case, l: &T, r: &T) -> Res<()> {
    let (left, right) = (Lower::new(case), Lower::new(case));
    let a = match left.real(l) {
        // The left side is infinite or NaN here, so there is nothing to show.
        Err(Stop::Vacuous(_)) => return Ok(()),
        other => other?,
    };
    let b = right.real(r)?;
    if a != b && !a.is_close(&b) && !sums::equal(&a, &b, &Known(case)) {
        return differ(&a, &b);
    }
    let defined = left.partial.into_inner();
    for part in right.partial.into_inner() {
        if !defined.contains(&part) {
            let (what, of) = (part.0, part.1);
            return stop(format!("the right side has {what}({of}), and the left side has not"));
        }
    }
    Ok(())
}

/// The stack size of a thread, in bytes. The prover recurses into deeply nested terms.
const STACK: usize = 256 << 20;

/// Runs work on threads with stacks that are large enough for deeply nested terms.
pub fn on_large_stacks<V: Send>(work: impl FnOnce() -> V + Send) -> V {
    match rayon::ThreadPoolBuilder::new().stack_size(STACK).build() {
        Ok(pool) => pool.install(work),
        // If no thread starts, this one does the work.
        Err(_) => work(),
    }
}

/// Judges rules on all cores. The verdicts have the rules' order.
pub fn judge_all(probes: &[Probe]) -> Vec<Verdict> {
    on_large_stacks(|| probes.par_iter().map(judge).collect())
}

/// Proves rules on all cores, without a search for instances that refute them. The proofs have the rules' order.
pub fn prove_all(probes: &[Probe]) -> Vec<Proof> {
    on_large_stacks(|| probes.par_iter().map(|probe| prove(probe.rule())).collect())
}
