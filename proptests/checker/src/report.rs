//! The checker's report on a rule, written for people.

use std::{fmt, time::Duration};

use eutectic_rewrites::Contract;

use crate::{cases::Case, judge::Difference};

/// The maximal number of elements of a tensor whose elements are shown.
const READABLE: usize = 48;

/// The results of checking a rule.
#[derive(Clone, Debug)]
pub struct Report {
    /// The rule.
    pub rule: String,
    /// The file and the line of the rule.
    pub place: String,
    /// The rule's contract.
    pub contract: Contract,
    /// The number of cases that were compared: instances with values.
    pub cases: usize,
    /// The number of elements that were computed.
    pub elements: usize,
    /// The number of these elements that the contract covers and whose reference value is precise enough.
    pub judged: usize,
    /// The number of left sides that the rule matched. Each tried order of commutative operands counts.
    pub fired: usize,
    /// The number of instances with a broken guard on which the rule did not fire, or was right.
    pub guarded: usize,
    /// The number of neighbours of the left side's numbers that the rule did not match.
    pub neighbours: usize,
    /// The number of programs that were compiled, run and compared on a backend. Each side is compiled in two ways.
    pub ran: usize,
    /// The number of cases that a backend refused, with the reason for the first one.
    pub refused: Option<(usize, String)>,
    /// The results of the rule's mutants, if they were tried.
    pub mutants: Option<Mutants>,
    /// The failures of the rule.
    pub failures: Vec<Failure>,
    /// Remarks on checks that could not be done, or only on some instances.
    pub notes: Vec<String>,
    /// The time that the check took.
    pub time: Duration,
}

/// The results of a rule's mutants.
#[derive(Clone, Debug, Default)]
pub struct Mutants {
    /// The number of mutants that were detected.
    pub killed: usize,
    /// The mutants that the cases did not detect.
    pub survivors: Vec<String>,
    /// The mutants that are equivalent to the rule, each with the reason.
    pub equivalent: Vec<(String, &'static str)>,
}

/// The check that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The sides have one type.
    Types,
    /// The sides have equal values.
    Values,
    /// The rule fires on its own left side.
    Fires,
    /// The rule must not fire if a guard is broken.
    Guard,
    /// The engine does not apply the rule where a discontinuous op reads the result.
    Observed,
    /// A backend computes correct results for each side.
    Backend,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Check::Types => "types",
            Check::Values => "values",
            Check::Fires => "firing",
            Check::Guard => "guard",
            Check::Observed => "observed",
            Check::Backend => "backend",
        })
    }
}

/// A failed check, with the smallest case found in which it fails.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The check that failed.
    pub check: Check,
    /// A description of the failure.
    pub what: String,
    /// The dims, attributes and element types.
    pub variables: Vec<(String, String)>,
    /// The type or the values of each tensor.
    pub tensors: Vec<(String, String)>,
    /// The first element that differs.
    pub difference: Option<Difference>,
}

impl Failure {
    /// Returns a failure in a case.
    pub fn of(check: Check, what: impl Into<String>, case: &Case, difference: Option<Difference>) -> Failure {
        let shown = |(name, tensor): (&String, &eutectic::Tensor)| {
            let text = if tensor.count() <= READABLE { tensor.to_string() } else { format!("{} {{…}}", tensor.ty()) };
            (name.clone(), text)
        };
        Failure {
            check,
            what: what.into(),
            variables: case.instance.values(),
            tensors: case.values.iter().map(shown).collect(),
            difference,
        }
    }
}

/// The least share of elements that must be judged for a rule to count as checked.
const LEAST_SHARE: f64 = 0.05;

/// The outcome of checking a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The checker found no failure.
    Holds,
    /// Too few elements could be judged: the error bounds are too wide, or the rule matches few instances.
    NotChecked,
    /// The checker found a failure.
    Wrong,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Outcome::Holds => "holds",
            Outcome::NotChecked => "not checked",
            Outcome::Wrong => "wrong",
        })
    }
}

impl Report {
    /// Returns whether no check failed.
    pub fn holds(&self) -> bool {
        self.failures.is_empty()
    }

    /// Returns the outcome of the check.
    pub fn outcome(&self) -> Outcome {
        match self.holds() {
            false => Outcome::Wrong,
            true if (self.judged as f64) < LEAST_SHARE * self.elements as f64 || self.judged == 0 => {
                Outcome::NotChecked
            }
            true => Outcome::Holds,
        }
    }

    /// Returns a description of the failures for people, with the command that repeats the check.
    pub fn explain(&self, replay: &str) -> String {
        let mut text = String::new();
        for failure in &self.failures {
            text += &format!("{} is wrong ({}, promises {}): {failure}", self.rule, self.place, self.contract);
            text += &format!("  again: {replay}\n");
        }
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.check, self.what)?;
        if !self.variables.is_empty() {
            let variables: Vec<_> = self.variables.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            writeln!(f, "  where {}", variables.join(", "))?;
        }
        for (name, tensor) in &self.tensors {
            writeln!(f, "  {name} : {tensor}")?;
        }
        if let Some(d) = &self.difference {
            writeln!(
                f,
                "  at {:?} of result {}: left {}, right {}; allowed: {}",
                d.at, d.root, d.left, d.right, d.allowed
            )?;
        }
        Ok(())
    }
}
