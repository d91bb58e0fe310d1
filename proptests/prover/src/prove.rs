//! The prover: each case of a rule, both sides at one index, and whether they have one normal form.

use std::{
    collections::BTreeMap,
    fmt,
    rc::Rc,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use eutectic_rewrites::{Contract, Probe, Rule, rule::Root};

use crate::{
    bits,
    call::Case,
    choices::Choices,
    facts::{Res, Stop, stop},
    falsify::{Counterexample, falsify},
    lower::{Lower, Truths},
    real::Known,
    scope::Scope,
    shape::{Item, Tensor, show},
    side::Reader,
    sums,
    term::{Kind, Poly, T, Term, Ty},
};

/// What was proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claim {
    /// Every bit of every element is equal, for every value, NaN and infinities among them.
    Bits,
    /// Both sides are one real function, wherever each part of the left side is a finite number. What overflows, infinities and NaN are not spoken of:
    /// `rules check` tests them.
    Reals,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Claim::Bits => "every bit",
            Claim::Reals => "finite values",
        })
    }
}

/// Whether a rule holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// For every size and rank.
    Proved(Claim),
    /// Why there is no proof.
    NotProved(String),
    /// An instance on which the interpreter computes different results.
    Refuted(Box<Counterexample>),
}

/// Proves a rule for every size and rank, or looks for an instance on which it is wrong.
pub fn judge(probe: &Probe) -> Verdict {
    match prove(probe.rule()) {
        Verdict::NotProved(why) => {
            falsify(probe).map_or(Verdict::NotProved(why), |found| Verdict::Refuted(Box::new(found)))
        }
        proved => proved,
    }
}

/// More cases than these are not tried.
const CASES: usize = 3_000;

/// Proves a rule for every size and rank. Nothing is run: the answer is the same each time.
pub fn prove(rule: &Rule) -> Verdict {
    let claims: &[Claim] = match rule.contract {
        Contract::Exact => &[Claim::Bits],
        _ => &[Claim::Bits, Claim::Reals],
    };
    let mut why = String::new();
    for claim in claims {
        match all_cases(rule, *claim) {
            Ok(()) if *claim == Claim::Reals && matches!(rule.contract, Contract::Ulp(_)) => {
                why = "the sides are equal in real arithmetic; how many ulps apart they are is not proved".into();
            }
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
    let same = left.shape.len() == right.shape.len()
        && left.shape.iter().zip(&right.shape).all(|(a, b)| {
            let d = &case.canon(&a.extent) - &case.canon(&b.extent);
            a.rank == b.rank && (d == Poly::zero() || case.facts.nonneg(&d) && case.facts.nonneg(&(&Poly::zero() - &d)))
        });
    // A number has any shape.
    let number = right.shape.is_empty() && &*right.ty.name == "number";
    if !same && !number {
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
        match claim {
            Claim::Bits => same_bits(case, &l, &r, &mut Truths::new(), 0),
            Claim::Reals if left.ty.kind != Kind::Float => same_bits(case, &l, &r, &mut Truths::new(), 0),
            Claim::Reals => same_reals(case, &l, &r),
        }
    })
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

fn differ<V>(a: &dyn fmt::Display, b: &dyn fmt::Display) -> Res<V> {
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

/// Judges rules on all cores; the verdicts come in the rules' order.
pub fn judge_all(probes: &[Probe]) -> Vec<Verdict> {
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<Option<Verdict>>> = Mutex::new(vec![None; probes.len()]);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(probe) = probes.get(at) else { return };
            let verdict = judge(probe);
            found.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(verdict);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            // Where no thread starts, this one does the work.
            if std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).is_err() {
                work();
            }
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.into_iter().map(|v| v.unwrap_or_else(|| Verdict::NotProved("the prover failed".into()))).collect()
}
