//! Judges rules with an SMT solver in addition to the prover's own procedure: `rules prove --solver z3`.

use std::{rc::Rc, sync::Arc};

use eutectic_ir::{
    Attr, Dim,
    lang::{
        Bindings,
        typing::{Bound, SlotKind},
    },
};
use eutectic_rewrites::{Probe, Proof, Rule, rule::AttrVariable};
use rayon::prelude::*;

use crate::{
    falsify::{Counterexample, falsify_at},
    prove::{Verdict, judge_by, on_large_stacks, prove_by},
    smt::{Answer, Answers, Judge, Sizes, Solver},
};

/// The answer of a solver about a rule.
#[derive(Clone, Debug)]
pub struct Solved {
    /// The verdict of the prover together with the solver.
    pub verdict: Verdict,
    /// The number of answers of the prover's own procedure that the solver confirms.
    pub agreed: usize,
    /// The number of answers that the solver does not decide within its limits.
    pub undecided: usize,
    /// The answers that the solver contradicts, with its counterexamples.
    pub disagreements: Vec<String>,
    /// The number of obligations that only the solver shows.
    pub shown: usize,
}

/// Judges rules with z3, on all cores. The results have the rules' order.
///
/// # Errors
/// If z3 is not installed, or does not answer.
pub fn judge_all_with_z3(probes: &[Probe]) -> Result<Vec<Solved>, String> {
    Solver::z3()?;
    let known = Answers::default();
    on_large_stacks(|| probes.par_iter().map(|probe| judge_with_z3(probe, &known)).collect())
}

fn judge_with_z3(probe: &Probe, known: &Answers) -> Result<Solved, String> {
    let asked = Rc::new(Judge::new(Solver::z3()?, Arc::clone(known)));
    asked.asks.set(false);
    let own = judge_by(probe, Some(&asked));
    asked.asks.set(true);
    let verdict = match own {
        Verdict::Refuted(_) | Verdict::Shown(Proof::Every(_)) => own,
        Verdict::Shown(_) => match prove_by(probe.rule(), Some(&asked)) {
            with_solver @ Proof::Every(_) => Verdict::Shown(with_solver),
            _ => refuted_at(probe, &asked.sizes.borrow()).map_or(own, |found| Verdict::Refuted(Box::new(found))),
        },
    };
    asked.answered()?;
    let mut solved =
        Solved { verdict, agreed: 0, undecided: 0, disagreements: Vec::new(), shown: *asked.shown.borrow() };
    for question in asked.answers.borrow().iter() {
        match asked.ask(question) {
            Answer::Unsat => solved.agreed += 1,
            Answer::Unknown => solved.undecided += 1,
            Answer::Failed(why) => return Err(why),
            Answer::Sat(values) => solved.disagreements.push(format!("{question:?} holds for {values:?}")),
        }
    }
    Ok(solved)
}

/// Searches for an instance that refutes a rule, only at sizes from a solver. No sizes are drawn near the numbers in
/// the rule's text.
pub fn refuted_by_z3(probe: &Probe) -> Result<Option<Counterexample>, String> {
    let asked = Rc::new(Judge::new(Solver::z3()?, Answers::default()));
    prove_by(probe.rule(), Some(&asked));
    asked.answered()?;
    let found = refuted_at(probe, &asked.sizes.borrow());
    Ok(found)
}

fn refuted_at(probe: &Probe, all: &[Sizes]) -> Option<Counterexample> {
    all.iter().find_map(|sizes| falsify_at(probe, &bindings(probe.rule(), sizes)?))
}

/// Returns the extents of a sequence of axes: the number of elements of its unsplit part as one axis, and the extents
/// of its separate axes.
fn sequence(name: &str, named: &dyn Fn(&str) -> Option<i64>) -> Option<Vec<i64>> {
    let (mut axes, mut rest) = (Vec::new(), name.to_string());
    while let Some(last) = named(&format!("{rest}ₙ")) {
        axes.insert(0, last);
        rest += "′";
    }
    match named(&format!("#{rest}")) {
        Some(others) => axes.insert(0, others),
        None if axes.is_empty() => return None,
        None => {}
    }
    Some(axes)
}

/// Returns bindings for the variables of a rule to which the solver gave sizes.
fn bindings(rule: &Rule, sizes: &Sizes) -> Option<Bindings> {
    let mut bindings = Bindings::default();
    for (slot, (name, kind)) in rule.scope.variables.iter().enumerate() {
        let named = |name: &str| sizes.get(name).and_then(|n| i64::try_from(*n).ok());
        let value = match kind {
            SlotKind::Dim => named(name).map(|n| Bound::Dim(Dim::Known(n))),
            SlotKind::Dims => {
                sequence(name, &named).map(|dims| Bound::Dims(dims.into_iter().map(Dim::Known).collect()))
            }
            SlotKind::Attr if rule.attribute(slot) == Some(&AttrVariable::Int) => {
                named(name).map(|n| Bound::Attr(Attr::Int(n)))
            }
            _ => None,
        };
        if let Some(value) = value {
            bindings.bind(slot, value).ok()?;
        }
    }
    Some(bindings)
}
