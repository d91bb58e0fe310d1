//! Measures the quality of a rule's cases. The cases must detect mutants: rules whose right side is wrong on purpose.

use eutectic_rewrites::{Contract, Probe, Unmatched};

use crate::{
    cases::Case,
    equivalent,
    judge::Verdict,
    mutate::{self, Mutant},
    progress::Clock,
    promise::promise,
    report::Mutants,
};

/// Runs the cases on every mutant until one case detects it.
pub fn mutants(probe: &Probe, cases: &[Case], clock: &Clock<'_>) -> Mutants {
    let mut result = Mutants::default();
    let mutants = mutate::mutants(probe);
    let count = mutants.len();
    for (n, mutant) in mutants.into_iter().enumerate() {
        clock.tick("trying mutant", n, count);
        if killed(&mutant, cases) {
            result.killed += 1;
        } else if let Some(reason) = equivalent::reason(&probe.rule().name, &mutant.what) {
            result.equivalent.push((mutant.what, reason));
        } else {
            result.survivors.push(mutant.what);
        }
    }
    result
}

fn killed(mutant: &Mutant, cases: &[Case]) -> bool {
    let contract = promise(mutant.probe.rule());
    let mut applied = false;
    let mut all = Verdict::default();
    for case in cases {
        let sides = match case.instance.sides(&mutant.probe, 0) {
            Ok(sides) => sides,
            Err(Unmatched::Types(_) | Unmatched::IllTyped(_)) => return true,
            Err(Unmatched::NoMatch | Unmatched::NoRight) => continue,
        };
        applied = true;
        let other = Case { sides, ..case.clone() };
        if other.illegal(mutant.probe.rule()).is_some() {
            return true;
        }
        match other.judge(contract) {
            Ok(verdict) if contract == Contract::Fast || !verdict.refutes(contract) => all = all.and(verdict),
            _ => return true,
        }
    }
    // A mutant whose right side can never be built counts as detected, because the rule would not fire.
    !applied || all.refutes(contract)
}
