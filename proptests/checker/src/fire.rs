//! Whether a rule fires where it should, and stays silent where it does not hold.

use eutectic_rewrites::{Choice, Contract, Fp, Options, Probe, RuleSet, Unmatched, optimize};

use crate::{
    cases::Case,
    fitting::fitting,
    literals::literals,
    mutate::broken,
    neighbours,
    promise::promise,
    report::{Check, Failure},
    values::{Manner, Style},
};

/// At most so many ways round are tried of a left side with many commutative ops.
const WAYS: u64 = 8;

/// The rules that bring a graph into legal form and make it computable, without the one that is checked.
///
/// # Errors
/// When the pack's names are gone: a defect.
pub fn base(embedded: &RuleSet, but: &str) -> Result<RuleSet, eutectic_rewrites::LoadError> {
    let only = [
        "decompose/*",
        "simplify/*-same",
        "simplify/expand-expand",
        "simplify/transpose-transpose",
        "simplify/reshape-reshape",
    ];
    let without = if embedded.get(but).is_some() { vec![but.to_string()] } else { Vec::new() };
    embedded.choose(&Choice { only: only.map(String::from).to_vec(), without, fp: Fp::Fast, ..Choice::default() })
}

/// Matches every way round of a case's left side, and lets the engine apply the rule to it as it is written.
pub fn fires(probe: &Probe, case: &Case, base: &RuleSet) -> Result<usize, Box<Failure>> {
    let rule = probe.rule();
    let failure = |what: String| Box::new(Failure::of(Check::Fires, what, case, None));
    let ways = 1_u64 << case.instance.commutable(rule).min(6);
    let mut fired = 0;
    // All ways where they are few, else those that swap one op, or all.
    let some: Vec<u64> = match ways <= WAYS {
        true => (0..ways).collect(),
        false => (0..WAYS - 1).map(|n| (1 << n) & (ways - 1)).chain([ways - 1]).collect(),
    };
    for swaps in some {
        let sides = match case.instance.sides(probe, swaps) {
            Ok(sides) => sides,
            Err(Unmatched::NoMatch) => {
                return Err(failure(format!(
                    "it does not match with the operands of its commutative ops swapped ({swaps:#b})"
                )));
            }
            Err(other) => return Err(failure(format!("with operands swapped: {other:?}"))),
        };
        fired += 1;
        // The engine asks whether it gains.
        if rule.once {
            continue;
        }
        let rules = base.clone().and(probe.rules()).map_err(|e| failure(e.to_string()))?;
        let rewritten = optimize(&sides.written, &rules, &Options::default()).map_err(|e| failure(e.to_string()))?;
        let applied = rewritten.statistics.iter().any(|s| s.name == rule.name && s.applications > 0);
        if !applied {
            return Err(failure(format!("the engine does not apply it to its own left side ({swaps:#b})")));
        }
    }
    Ok(fired)
}

/// Puts neighbours in the place of each number of the left side; the rule must not match. How many were tried.
pub fn literals_kept(probe: &Probe, case: &Case) -> Result<usize, Box<Failure>> {
    let (mistaken, tried) = neighbours::mistaken(probe, &case.instance);
    match mistaken.into_iter().next() {
        None => Ok(tried),
        Some((what, sides)) => {
            let what = format!("it fires although {what}");
            Err(Box::new(Failure::of(Check::Guard, what, &Case { sides, ..case.clone() }, None)))
        }
    }
}

/// Breaks a guard; the rule must be silent, or right where it matches in another way.
pub fn guarded(probe: &Probe, case: &Case, random: &mut fastrand::Rng) -> Result<bool, Box<Failure>> {
    let Some(broken) = broken(probe, &case.instance, random) else { return Ok(false) };
    let failure = |what: String| Box::new(Failure::of(Check::Guard, what, case, None));
    let sides = match broken.sides {
        Ok(sides) => sides,
        Err(Unmatched::IllTyped(_)) => return Ok(false),
        Err(Unmatched::NoMatch | Unmatched::NoRight) => return Ok(true),
        Err(Unmatched::Types(how)) => return Err(failure(format!("it fires although {}; then {how}", broken.what))),
    };
    if broken.never {
        return Err(failure(format!("it fires although {}", broken.what)));
    }
    let contract = promise(probe.rule());
    let literals = literals(probe.rule());
    let values = fitting(&sides, Manner::of(probe.rule(), Style::Ordinary, &literals), random);
    let other = Case { instance: case.instance.clone(), sides, style: Style::Ordinary, values };
    match other.judge(contract) {
        // A single case says nothing of a `fast` rule.
        Ok(verdict) if contract == Contract::Fast || !verdict.refutes(contract) => Ok(true),
        Ok(verdict) => {
            let what = format!("it fires although {}, and is wrong there", broken.what);
            Err(Box::new(Failure::of(Check::Guard, what, &other, verdict.first)))
        }
        Err(error) => Err(failure(format!("it fires although {}; then {error}", broken.what))),
    }
}
