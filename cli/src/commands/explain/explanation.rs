//! The explanation of a kernel, and its output as text and as JSON.

use std::{collections::BTreeMap, io::Write};

use eutectic::engine::{
    backend::Candidate,
    lowering::{
        report::{FusedOp, KernelReport},
        unjoined::Reason,
    },
    rewrites::glob::Glob,
};
use serde_json::{Value, json};

use crate::{
    fault::Fault,
    report::candidates_json,
    table::{bytes, count, faint, hanging, heading, seconds},
};

/// The largest number of other candidates that are named after the selected one.
const RUNNERS_UP: usize = 2;

/// A kernel, with the rules and the decisions that led to it.
pub struct Explanation {
    /// The kernel's number in each call of its block. A block is a part of the program that may occur several times.
    pub numbers: Vec<String>,
    /// The index of the block, and the index of the kernel in the block.
    pub of: (usize, usize),
    pub report: KernelReport,
    pub steps: Vec<RuleRun>,
    pub withheld: Vec<WithheldRule>,
    pub reads: Vec<Read>,
}

/// A rule that was not applied to a value of the kernel, and the op that observes the value.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct WithheldRule {
    pub rule: String,
    pub observer: &'static str,
    pub origin: String,
}

/// Consecutive applications of one rule to values of one module.
pub struct RuleRun {
    /// The name of the rule, with the op if the rule is for several ops.
    pub rule: String,
    /// The name of the rule in rule files.
    pub base: String,
    pub doc: String,
    /// The prover's verdict on the rule.
    pub proof: String,
    pub origin: String,
    pub times: usize,
}

/// A kernel whose result the explained kernel reads.
pub struct Read {
    /// The index of the read kernel in the block.
    pub from: usize,
    pub number: String,
    pub name: String,
    /// The ops whose results are read.
    pub between: String,
    pub why: Reason,
}

/// The effect of leaving out a rule.
pub enum Without {
    /// The predicted increase of the time, in seconds.
    Longer(f64),
    /// There is no plan without the rule. The field is the reason.
    Nothing(String),
}

/// The effect of leaving out each rule, by its name in rule files.
pub type Gains = BTreeMap<String, Without>;

/// Returns a difference in seconds in words: `12 µs more`, `12 µs less` or `no more`.
fn more(difference: f64) -> String {
    match difference {
        d if d.abs() < 0.5e-9 => "no more".into(),
        d if d > 0.0 => format!("{} more", seconds(d)),
        d => format!("{} less", seconds(-d)),
    }
}

impl Without {
    pub fn describe(&self) -> String {
        match self {
            Without::Longer(difference) => format!("without it a run would take {}", more(*difference)),
            Without::Nothing(why) => format!("without it there is no plan: {why}"),
        }
    }

    pub fn json(&self) -> Value {
        match self {
            Without::Longer(difference) => json!({ "without_s": difference }),
            Without::Nothing(why) => json!({ "needed": why }),
        }
    }
}

/// Returns the reason why two kernels are not one kernel, in words.
pub fn in_words(why: &Reason) -> String {
    match why {
        Reason::Dearer(difference) => format!("one kernel for both would take {}", more(*difference)),
        Reason::Impossible(why) => format!("no kernel can do both: {why}"),
    }
}

impl Explanation {
    pub fn is_meant(&self, wanted: &Glob) -> bool {
        let ops = self.report.fused.iter().map(|f| (f.op, &f.origin));
        let mut all = ops.chain([(self.report.anchor, &self.report.origin)]);
        self.numbers.iter().any(|number| wanted.is_match(number))
            || all.any(|(op, origin)| wanted.is_match(op.name()) || wanted.is_match(origin.path()))
    }

    /// Returns the ops and module paths that select the kernel on the command line.
    pub fn names(&self) -> Vec<String> {
        let ops =
            self.report.fused.iter().map(|f| (f.op, &f.origin)).chain([(self.report.anchor, &self.report.origin)]);
        ops.flat_map(|(op, origin)| [op.to_string(), origin.path().to_string()]).collect()
    }

    pub fn print(&self, out: &mut impl Write, gains: &Gains) -> Result<(), Fault> {
        let KernelReport { anchor, origin, cost, stores, .. } = &self.report;
        let repeated = match &self.numbers[1..] {
            [] => String::new(),
            others => format!(", and the same as {}", others.join(", ")),
        };
        writeln!(out, "{}", heading(format!("{}: {anchor} in {origin}{repeated}", self.numbers[0])))?;
        let plural = if *stores == 1 { "" } else { "s" };
        let line = format!(
            "  predicted {}: {} moved, {} flop, {stores} result{plural} stored",
            seconds(cost.seconds),
            bytes(cost.bytes),
            count(cost.flops)
        );
        writeln!(out, "{}", hanging(line, 4))?;
        if let Some((first, others)) = self.report.candidates.split_first() {
            let longer =
                |other: &Candidate| format!("{}: {}", other.name, more(other.cost.seconds - first.cost.seconds));
            let others: Vec<String> = others.iter().take(RUNNERS_UP).map(longer).collect();
            let others = if others.is_empty() { String::new() } else { faint(format!(" ({})", others.join("; "))) };
            writeln!(out, "{}", hanging(format!("  computed by {}{others}", first.name), 4))?;
        }
        for RuleRun { rule, base, doc, proof, origin, times } in &self.steps {
            let times = if *times > 1 { format!(" x {times}") } else { String::new() };
            writeln!(out, "{}", hanging(format!("  by {rule}{times} in {origin}"), 5))?;
            for line in
                [Some(doc.clone()), Some(proof.clone()), gains.get(base).map(Without::describe)].into_iter().flatten()
            {
                if !line.is_empty() {
                    writeln!(out, "{}", hanging(format!("       {}", faint(line)), 7))?;
                }
            }
        }
        if self.steps.is_empty() {
            writeln!(out, "  {}", faint("no rule: the program says so itself"))?;
        }
        for WithheldRule { rule, observer, origin } in &self.withheld {
            let line = format!("  {rule} is not applied in {origin}: `{observer}` observes this value");
            writeln!(out, "{}", hanging(line, 5))?;
        }
        for same in self
            .report
            .fused
            .chunk_by(|a, b| a.gain.is_none() && b.gain.is_none() && a.op == b.op && a.origin == b.origin)
        {
            let FusedOp { op, origin, gain } = &same[0];
            let times = if same.len() > 1 { format!(" x {}", same.len()) } else { String::new() };
            let why = gain.map_or(String::new(), |gain| faint(format!(": storing it would cost {}", more(gain))));
            writeln!(out, "{}", hanging(format!("  with {op}{times} of {origin}{why}"), 7))?;
        }
        for Read { number, name, between, why, .. } in &self.reads {
            let why = faint(format!(": {}", in_words(why)));
            writeln!(out, "{}", hanging(format!("  after {number}, {name}, which stores {between}{why}"), 8))?;
        }
        Ok(writeln!(out)?)
    }

    pub fn json(&self, gains: &Gains) -> Value {
        let step = |s: &RuleRun| {
            json!({ "rule": s.rule, "doc": s.doc, "proof": s.proof, "origin": s.origin, "times": s.times,
                    "gain": gains.get(&s.base).map(Without::json) })
        };
        let fused = |f: &FusedOp| json!({ "op": f.op.name(), "origin": f.origin.path(), "gain_s": f.gain });
        let withheld = |w: &WithheldRule| json!({ "rule": w.rule, "observer": w.observer, "origin": w.origin });
        let read = |r: &Read| {
            let (joined, reason) = match &r.why {
                Reason::Dearer(difference) => (Some(*difference), None),
                Reason::Impossible(why) => (None, Some(why)),
            };
            json!({ "kernel": r.number, "between": r.between, "joined_s": joined, "impossible": reason })
        };
        json!({
            "kernel": self.numbers[0], "numbers": self.numbers, "anchor": self.report.anchor.name(),
            "origin": self.report.origin.path(),
            "times": self.numbers.len(), "stores": self.report.stores, "load": self.report.load,
            "candidates": candidates_json(&self.report),
            "predicted_s": self.report.cost.seconds, "bytes": self.report.cost.bytes, "flops": self.report.cost.flops,
            "rules": self.steps.iter().map(step).collect::<Vec<_>>(),
            "fused": self.report.fused.iter().map(fused).collect::<Vec<_>>(),
            "not_applied": self.withheld.iter().map(withheld).collect::<Vec<_>>(),
            "reads": self.reads.iter().map(read).collect::<Vec<_>>(),
        })
    }
}
