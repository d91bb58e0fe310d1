//! What the checker has to say of a rule, for people.

use std::{fmt, time::Duration};

use eutectic_rewrites::Contract;

use crate::{cases::Case, judge::Difference};

/// Tensors with more elements are shown by their type only.
const READABLE: usize = 48;

/// What checking a rule gave.
#[derive(Clone, Debug)]
pub struct Report {
    /// The rule.
    pub rule: String,
    /// File and line.
    pub place: String,
    /// What it promises.
    pub contract: Contract,
    /// Instances that were compared.
    pub cases: usize,
    /// Elements that were computed.
    pub elements: usize,
    /// Of these, elements that the contract and the reference say enough about to be compared.
    pub judged: usize,
    /// Left sides, in every way round, in which the engine applied the rule.
    pub fired: usize,
    /// Instances with a guard broken on which the rule was silent, or right all the same.
    pub guarded: usize,
    /// Neighbours of the numbers of its left side that it did not take for these.
    pub neighbours: usize,
    /// Sides that were compiled, run and compared on a backend.
    pub ran: usize,
    /// Sides that a backend refused, and why the first of them.
    pub refused: Option<(usize, String)>,
    /// Mutants that were found out, and the others.
    pub mutants: Option<Mutants>,
    /// What is wrong with the rule.
    pub failures: Vec<Failure>,
    /// What the checker could not do.
    pub notes: Vec<String>,
    /// How long it took.
    pub time: Duration,
}

/// What became of a rule's mutants.
#[derive(Clone, Debug, Default)]
pub struct Mutants {
    /// How many were found out.
    pub killed: usize,
    /// Those that the cases do not tell from the rule.
    pub survivors: Vec<String>,
    /// Those that are as right as the rule, each with the reason.
    pub equivalent: Vec<(String, &'static str)>,
}

/// Which of the checks failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The sides have one type.
    Types,
    /// The sides have one value.
    Values,
    /// The rule fires on its own left side.
    Fires,
    /// It does not fire on what it does not hold for.
    Guard,
    /// The engine does not apply it where a discontinuous op reads the result.
    Observed,
    /// A backend computes each side rightly.
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

/// A check that failed, with the smallest case in which it does.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which check.
    pub check: Check,
    /// What is wrong.
    pub what: String,
    /// Dims, attributes and element types.
    pub variables: Vec<(String, String)>,
    /// The tensors.
    pub tensors: Vec<(String, String)>,
    /// The first element that differs.
    pub difference: Option<Difference>,
}

impl Failure {
    /// A failure in a case.
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

/// The least share of the elements that is to be judged, else a rule counts as not checked.
const LEAST_SHARE: f64 = 0.05;

/// What checking a rule came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is wrong with it.
    Holds,
    /// Too few elements could be judged to say so: its error bounds are too wide, or it hardly matches.
    NotChecked,
    /// It is wrong.
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
    /// Whether nothing is wrong.
    pub fn holds(&self) -> bool {
        self.failures.is_empty()
    }

    /// What checking it came to.
    pub fn outcome(&self) -> Outcome {
        match self.holds() {
            false => Outcome::Wrong,
            true if (self.judged as f64) < LEAST_SHARE * self.elements as f64 || self.judged == 0 => {
                Outcome::NotChecked
            }
            true => Outcome::Holds,
        }
    }

    /// The failures, as a person reads them, with the command that repeats them.
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
