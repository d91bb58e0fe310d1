//! The prover: each case of a rule, both sides at one index, and whether they have one normal form.

use std::{collections::BTreeMap, fmt, rc::Rc};

use eutectic_rewrites::{Claim, Contract, Probe, Proof, Rule, rule::Root};
use rayon::prelude::*;

use crate::{
    bind, bits,
    call::Case,
    choices::Choices,
    facts::{Res, Stop, stop},
    falsify::{Counterexample, falsify, numbers},
    lower::{Lower, Truths},
    range::beyond,
    scope::Scope,
    shape::{Item, Tensor, show},
    side::Reader,
    signs::Known,
    sums,
    term::{Atom, Kind, Poly, T, Term, Ty},
};

/// What is known of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// What was shown, or why nothing was.
    Shown(Proof),
    /// An instance on which the interpreter computes different results.
    Refuted(Box<Counterexample>),
}

/// Proves a rule for every size and rank, or up to a bound, or looks for an instance on which it is wrong.
pub fn judge(probe: &Probe) -> Verdict {
    let shown = prove(probe.rule());
    let found = match shown {
        Proof::Every(Claim::Bits) => None,
        // Of real numbers nothing is left to refute; of others the claim does not speak.
        Proof::Every(Claim::Reals) => beyond(probe),
        _ => falsify(probe),
    };
    if let Some(found) = found {
        return Verdict::Refuted(Box::new(found));
    }
    match shown {
        Proof::Tested(why) => Verdict::Shown(bounded(probe.rule()).unwrap_or(Proof::Tested(why))),
        shown => Verdict::Shown(shown),
    }
}

/// More cases than these are not tried; fewer up to a bound, where each is larger.
const CASES: [usize; 2] = [3_000, 40];
/// The largest extents of proofs up to a bound, the largest first.
const BOUNDS: [usize; 2] = [3, 2];

/// What a contract asks for, the stronger claim first.
fn claims(rule: &Rule) -> &'static [Claim] {
    match rule.contract {
        Contract::Exact => &[Claim::Bits],
        _ => &[Claim::Bits, Claim::Reals],
    }
}

/// Proves a rule for every size and rank. Nothing is run: the answer is the same each time.
pub fn prove(rule: &Rule) -> Proof {
    let mut why = String::new();
    for claim in claims(rule) {
        match all_cases(rule, *claim, Choices::default()) {
            Ok(()) if *claim == Claim::Reals && matches!(rule.contract, Contract::Ulp(_)) => {
                why = "the sides are equal over the reals; how many ulps apart they are is not proved".into();
            }
            Ok(()) => return Proof::Every(*claim),
            Err(reason) => why = reason,
        }
    }
    Proof::Tested(why)
}

/// Proves a rule for every value where no extent is larger than a bound. Below a number that the rule writes, a proof would say nothing of it.
fn bounded(rule: &Rule) -> Option<Proof> {
    let written = numbers(rule).into_iter().max().unwrap_or(0);
    // Ulps are counted by tests.
    let claims = if matches!(rule.contract, Contract::Ulp(_)) { &[Claim::Bits][..] } else { claims(rule) };
    let cases = BOUNDS.into_iter().flat_map(|most| claims.iter().map(move |claim| (most, *claim)));
    let shown = |(most, claim): (usize, Claim)| all_cases(rule, claim, Choices::up_to(most)).is_ok();
    cases
        .filter(|(most, _)| *most as i64 >= written)
        .find(|of| shown(*of))
        .map(|(most, claim)| Proof::UpTo(claim, most))
}

fn all_cases(rule: &Rule, claim: Claim, mut choices: Choices) -> Result<(), String> {
    for _ in 0..CASES[usize::from(choices.most.is_some())] {
        choices.start();
        match case(rule, claim, &mut choices) {
            Ok(()) => {}
            Err(Stop::Split(name)) if !choices.split.contains(&name) && choices.split.len() < 6 => {
                choices.split.push(name);
                choices.restart();
                continue;
            }
            Err(Stop::Split(name)) => return Err(format!("whether {name} is 0")),
            Err(Stop::Peel(name)) => {
                let base: Rc<str> = name.trim_end_matches('′').into();
                let known = choices.peels.entry(base.clone()).or_insert(0);
                *known += 1;
                if *known > 4 {
                    return Err(format!("an axis lies inside of a sequence {base}.."));
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

/// One case of a rule.
fn case(rule: &Rule, claim: Claim, choices: &mut Choices) -> Res<()> {
    if rule.group {
        return stop("groups of nodes are not understood");
    }
    let mut scope = Scope::new(rule, choices)?;
    scope.relations()?;
    let case = Rc::clone(&scope.case);
    let reader = Reader::new(scope, choices);
    let left = match rule.roots.iter().map(|r| reader.term(&r.left)).collect::<Res<Vec<_>>>() {
        Err(Stop::Vacuous(_)) => return Ok(()),
        other => other?,
    };
    if case.facts.absurd() {
        return Ok(());
    }
    case.left.set(false);
    for (root, left) in rule.roots.iter().zip(&left) {
        one_root(&case, claim, &reader, root, left)?;
    }
    Ok(())
}

fn one_root(case: &Case, claim: Claim, reader: &Reader<'_>, root: &Root, left: &Tensor) -> Res<()> {
    let right = reader.term(&root.right)?;
    let alike = left.shape.len() == right.shape.len()
        && left.shape.iter().zip(&right.shape).all(|(a, b)| {
            let d = &case.canon(&a.extent) - &case.canon(&b.extent);
            a.rank == b.rank && (d == Poly::zero() || case.facts.nonneg(&d) && case.facts.nonneg(&(&Poly::zero() - &d)))
        });
    // A number has any shape.
    let number = right.shape.is_empty() && &*right.ty.name == "number";
    if !alike && !number {
        return stop(format!("the shapes of the sides, {} and {}", show(&left.shape), show(&right.shape)));
    }
    if left.ty != right.ty && &*right.ty.name != "number" && left.ty.kind != Kind::Stored {
        return stop(format!("the element types of the sides, {} and {}", left.ty.name, right.ty.name));
    }
    let index = |item: &Item| {
        if item.extent == Poly::int(1) { Poly::zero() } else { Poly::var(case.facts.index(&item.extent)) }
    };
    let at: Vec<Poly> = left.shape.iter().map(index).collect();
    // An element is there, so that no extent is 0.
    let there: Vec<Poly> = left.shape.iter().map(|item| &item.extent - &Poly::int(1)).collect();
    case.facts.assume(there, || {
        let (l, r) = ((left.at)(&at)?, (right.at)(if number { &[] } else { &at })?);
        same(case, claim, left.ty.kind, &l, &r)
    })
}

/// Whether two elements of a kind are equal in the sense of a claim.
pub fn same(case: &Case, claim: Claim, kind: Kind, l: &T, r: &T) -> Res<()> {
    match claim {
        Claim::Reals if kind == Kind::Float => same_reals(case, l, r),
        _ => same_bits(case, l, r, &mut Truths::new(), 0),
    }
}

/// More truth values than these are not tried in all combinations.
const TRUTHS: usize = 9;

/// Whether two terms have one normal form, whatever the truth values and conditions in them are.
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

/// The variables of a condition that can have one value only, with that value.
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

/// A condition on indices that no binder names.
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

/// A truth value that is open, and that no binder stands above: the innermost first.
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
        // The left side is no number.
        Err(Stop::Vacuous(_)) => return Ok(()),
        other => other?,
    };
    let b = right.real(r)?;
    if a != b && !sums::equal(&a, &b, &Known(case)) {
        return differ(&a, &b);
    }
    let defined = left.partial.into_inner();
    for part in right.partial.into_inner() {
        if !defined.contains(&part) {
            let (what, of) = (part.0, part.1);
            return stop(format!("the right side has {what}({of}), which the left side has not"));
        }
    }
    Ok(())
}

/// So many bytes of stack for terms that lie deep in each other.
const STACK: usize = 256 << 20;

/// Runs on threads whose stacks hold terms that lie deep in each other.
pub fn on_large_stacks<V: Send>(work: impl FnOnce() -> V + Send) -> V {
    match rayon::ThreadPoolBuilder::new().stack_size(STACK).build() {
        Ok(pool) => pool.install(work),
        // Where no thread starts, this one does the work.
        Err(_) => work(),
    }
}

/// Judges rules on all cores; the verdicts come in the rules' order.
pub fn judge_all(probes: &[Probe]) -> Vec<Verdict> {
    on_large_stacks(|| probes.par_iter().map(judge).collect())
}

/// Proves rules on all cores, without a look for instances on which they are wrong; in the rules' order.
pub fn prove_all(probes: &[Probe]) -> Vec<Proof> {
    on_large_stacks(|| probes.par_iter().map(|probe| prove(probe.rule())).collect())
}
