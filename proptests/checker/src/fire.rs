//! Checks that a rule fires on its own left side, and does not fire if a guard is broken.

use std::collections::BTreeSet;

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

/// The maximal number of operand orders that are tried. Left sides with many commutative ops have more orders.
const WAYS: u64 = 8;

/// Returns the embedded rules that bring a graph into legal form and make it computable, without the rule named `but`.
/// This is the rule that is checked.
///
/// # Errors
/// If an embedded pack lacks one of these rules: a defect of this build.
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

/// Matches a case's left side in up to [`WAYS`] orders of commutative operands, and checks that the engine applies the
/// rule to it. Returns the number of matches.
pub fn fires(probe: &Probe, case: &Case, base: &RuleSet) -> Result<usize, Box<Failure>> {
    let rule = probe.rule();
    let failure = |what: String| Box::new(Failure::of(Check::Fires, what, case, None));
    let ways = 1_u64 << case.instance.commutable(rule).min(6);
    let mut fired = 0;
    // Try all orders if there are few. Otherwise, try the written order, the orders that swap the operands of one op,
    // and the order that swaps all.
    let some: BTreeSet<u64> = match ways <= WAYS {
        true => (0..ways).collect(),
        false => (0..WAYS - 1).map(|n| (1 << n) & (ways - 1)).chain([ways - 1]).collect(),
    };
    for swaps in some {
        let sides = match case.instance.sides(probe, swaps) {
            Ok(sides) => sides,
            Err(Unmatched::NoMatch) => {
                return Err(failure(format!(
                    "the rule does not match with the operands of its commutative ops swapped ({swaps:#b})"
                )));
            }
            Err(other) => {
                return Err(failure(format!(
                    "the rule does not apply if operands of commutative ops are swapped ({swaps:#b}): {other:?}"
                )));
            }
        };
        fired += 1;
        // The engine applies a `once` rule only if that lowers the cost.
        if rule.once {
            continue;
        }
        let rules = base.clone().and(probe.rules()).map_err(|e| failure(e.to_string()))?;
        let rewritten = optimize(&sides.written, &rules, &Options::default()).map_err(|e| failure(e.to_string()))?;
        let applied = rewritten.statistics.iter().any(|s| s.name == rule.name && s.applications > 0);
        if !applied {
            return Err(failure(format!(
                "the engine does not apply the rule to its own left side (mask of the swapped commutative ops: \
                 {swaps:#b})"
            )));
        }
    }
    Ok(fired)
}

/// Checks that the rule does not match its left side after a number was replaced by a neighbour. Returns the number of
/// replacements.
pub fn literals_kept(probe: &Probe, case: &Case) -> Result<usize, Box<Failure>> {
    let (mistaken, tried) = neighbours::mistaken(probe, &case.instance);
    match mistaken.into_iter().next() {
        None => Ok(tried),
        Some((what, sides)) => {
            let what = format!("the rule fires although {what}");
            Err(Box::new(Failure::of(Check::Guard, what, &Case { sides, ..case.clone() }, None)))
        }
    }
}

/// Breaks a guard. The rule must then not match, or match in another way and be right. Returns whether a guard was
/// broken.
pub fn guarded(probe: &Probe, case: &Case, random: &mut fastrand::Rng) -> Result<bool, Box<Failure>> {
    let Some(broken) = broken(probe, &case.instance, random) else { return Ok(false) };
    let failure = |what: String| Box::new(Failure::of(Check::Guard, what, case, None));
    let sides = match broken.sides {
        Ok(sides) => sides,
        Err(Unmatched::IllTyped(_)) => return Ok(false),
        Err(Unmatched::NoMatch | Unmatched::NoRight) => return Ok(true),
        Err(Unmatched::Types(how)) => {
            return Err(failure(format!("the rule fires although {}; then {how}", broken.what)));
        }
    };
    if broken.never {
        return Err(failure(format!("the rule fires although {}", broken.what)));
    }
    let contract = promise(probe.rule());
    let literals = literals(probe.rule());
    let values = fitting(&sides, Manner::of(probe.rule(), Style::Ordinary, &literals), random);
    let other = Case { instance: case.instance.clone(), sides, style: Style::Ordinary, values };
    match other.judge(contract) {
        // A single case cannot refute a `fast` rule.
        Ok(verdict) if contract == Contract::Fast || !verdict.refutes(contract) => Ok(true),
        Ok(verdict) => {
            let what = format!("the rule fires although {}, and is wrong then", broken.what);
            Err(Box::new(Failure::of(Check::Guard, what, &other, verdict.first)))
        }
        Err(error) => {
            Err(failure(format!("the rule fires although {}, and its right side fails: {error}", broken.what)))
        }
    }
}
