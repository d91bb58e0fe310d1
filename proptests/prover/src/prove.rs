//! The prover: each case of a rule, both sides at one index, and whether they have one normal form.

use std::{collections::BTreeMap, rc::Rc};

use eutectic_rewrites::{Contract, Rule, rule::Root};

use crate::{
    bits,
    call::Case,
    choices::Choices,
    facts::{Res, Stop, stop},
    lower::{Lower, Truths},
    poly::Poly,
    real::{self, Known},
    scope::Scope,
    shape::{Item, Tensor, show},
    side::Reader,
    term::{Kind, T, Term, Ty},
};

/// What was proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claim {
    /// Every bit of every element is equal, for every value.
    Bits,
    /// Both sides are one real function of finite values.
    Reals,
}

/// Whether a rule holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// For every size and rank.
    Proved(Claim),
    /// Why there is no proof.
    NotProved(String),
}

/// More cases than these are not tried.
const CASES: usize = 3_000;

/// Proves a rule.
pub fn prove(rule: &Rule) -> Verdict {
    let claims: &[Claim] = match rule.contract {
        Contract::Exact => &[Claim::Bits],
        _ => &[Claim::Bits, Claim::Reals],
    };
    let mut why = String::new();
    for claim in claims {
        match all_cases(rule, *claim) {
            Ok(()) => return Verdict::Proved(*claim),
            Err(reason) => why = reason,
        }
    }
    Verdict::NotProved(why)
}

fn all_cases(rule: &Rule, claim: Claim) -> Result<(), String> {
    let mut choices = Choices::default();
    for _ in 0..CASES {
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
    let scope = Scope::new(rule, choices)?;
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
    let same = left.shape.len() == right.shape.len()
        && left.shape.iter().zip(&right.shape).all(|(a, b)| {
            let d = &case.canon(&a.extent) - &case.canon(&b.extent);
            a.rank == b.rank
                && (d == Poly::zero() || case.facts.nonneg(&d) && case.facts.nonneg(&(&Poly::zero() - &d)))
        });
    // A number has any shape.
    let number = right.shape.is_empty() && &*right.ty.name == "number";
    if !same && !number {
        return stop(format!("the shapes of the sides, {} and {}", show(&left.shape), show(&right.shape)));
    }
    if left.ty != right.ty && &*right.ty.name != "number" && left.ty.kind != Kind::Stored {
        return stop(format!("the element types of the sides, {} and {}", left.ty.name, right.ty.name));
    }
    let index = |item: &Item| if item.extent == Poly::int(1) { Poly::zero() } else { Poly::var(case.facts.index(&item.extent)) };
    let at: Vec<Poly> = left.shape.iter().map(index).collect();
    left.shape.iter().for_each(|item| case.facts.note(&item.extent - &Poly::int(1)));
    let (l, r) = ((left.at)(&at)?, (right.at)(if number { &[] } else { &at })?);
    match claim {
        Claim::Bits => same_bits(case, &l, &r, &mut Truths::new(), 0),
        Claim::Reals if left.ty.kind != Kind::Float => same_bits(case, &l, &r, &mut Truths::new(), 0),
        Claim::Reals => same_reals(case, &l, &r),
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
                case.facts.assume([p], || same_bits(case, &a, &b, truths, depth + 1))?;
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

fn differ<V>(a: &dyn std::fmt::Display, b: &dyn std::fmt::Display) -> Res<V> {
    let short = |t: String| if t.chars().count() > 300 { t.chars().take(300).collect::<String>() + " …" } else { t };
    stop(format!("the normal forms differ: {} and {}", short(a.to_string()), short(b.to_string())))
}

/// A condition on indices that no binder stands above.
fn condition(term: &T) -> Option<Poly> {
    match &**term {
        Term::If(conditions, a, b) => conditions.first().cloned().or_else(|| condition(a)).or_else(|| condition(b)),
        Term::Apply(_, _, args) => args.iter().find_map(condition),
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
    if a != b && !real::equal(&a, &b, &Known(case)) {
        return stop(format!("the normal forms differ: {a:?} and {b:?}").chars().take(900).collect::<String>());
    }
    let defined = left.partial.into_inner();
    for part in right.partial.into_inner() {
        if !defined.contains(&part) {
            return stop(format!("the right side has {}{:?}, which may not be defined where the left side is", part.0, part.1)
                .chars().take(400).collect::<String>());
        }
    }
    Ok(())
}
