//! `explain`: how kernels came about: which rules, in order, and what was fused and why.

use std::{
    collections::BTreeSet,
    io::{Write, stdout},
};

use eutectic::{
    Compiler, Planned,
    engine::{
        lowering::report::{FusedOp, KernelReport},
        rewrites::Applied,
    },
};
use globset::GlobMatcher;
use serde_json::{Value, json};

use crate::{
    args::{CommonArgs, Format, pattern, print_json},
    fault::{Fault, input},
    report::stretches,
    table::{bytes, count, faint, heading, seconds},
};

const EXAMPLES: &str = "\
Examples:
  eutectic explain demo                          every kernel of the plan
  eutectic explain demo 3                        the third
  eutectic explain minilm '*attention*' --random those of that model part
  eutectic explain minilm matmul --random        those around that op
  eutectic explain model.graph --rules DIR --format json

For each kernel: what it costs, the rules that led from the program as written to what the kernel computes, in the order
in which they were applied, and the ops fused into it, each with what storing its result instead would cost.";

/// Says how the kernels of a program's plan came about
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    job: CommonArgs,
    /// Kernels by number, model part or op
    #[arg(default_value = "*", value_name = "KERNEL|GLOB")]
    glob: String,
}

/// A kernel and how it came about.
struct Explanation {
    number: String,
    report: KernelReport,
    times: usize,
    steps: Vec<RuleRun>,
}

/// Rule applications in a row, of one rule to one model part.
struct RuleRun {
    rule: String,
    doc: String,
    origin: String,
    times: usize,
}

/// Runs the command.
///
/// # Errors
/// When the program cannot be planned, or no kernel is meant.
pub fn run(args: &Args) -> Result<(), Fault> {
    let wanted = pattern(&args.glob)?;
    let compiler = args.job.compile.compiler()?;
    let planned = compiler.plan(&args.job.program.graph()?)?;
    let all = explanations(&compiler, &planned);
    let kernels = all.len();
    let chosen: Vec<_> = all.into_iter().filter(|e| e.is_meant(&wanted)).collect();
    if chosen.is_empty() {
        let help = format!("there are {kernels}; `eutectic opt {}` lists them", args.job.program.model.display());
        return Err(input(format!("no kernel has the number, model part or op `{}`", args.glob), help));
    }
    let mut out = stdout().lock();
    if args.job.format == Format::Json {
        return print_json(&mut out, &chosen.iter().map(Explanation::json).collect::<Vec<_>>());
    }
    chosen.iter().try_for_each(|explanation| explanation.print(&mut out))
}

/// Every kernel of the plan, repeated blocks once.
fn explanations(compiler: &Compiler, planned: &Planned) -> Vec<Explanation> {
    let blocks = compiler.describe(planned);
    let (mut all, mut number) = (Vec::new(), 0);
    for stretch in stretches(planned) {
        let first = number;
        for (at, report) in blocks[stretch.block].iter().enumerate() {
            let label = if report.load {
                "load".into()
            } else {
                number += 1;
                number.to_string()
            };
            let steps = steps(compiler, planned, stretch.block, at);
            all.push(Explanation { number: label, report: report.clone(), times: stretch.times, steps });
        }
        number = first + (number - first) * stretch.times;
    }
    all
}

/// The rule applications that led to what a kernel of a block computes, in order.
pub(super) fn applied(planned: &Planned, block: usize, kernel: usize) -> Vec<&Applied> {
    let (rewritten, searched) = (&planned.rewritten[block], &planned.blocks[block].searched);
    let computed = searched.priced.kernels[kernel].0.interior.iter();
    let led: BTreeSet<*const Applied> = computed
        .flat_map(|&class| rewritten.explain(class, searched.plan.choice[class]))
        .map(std::ptr::from_ref)
        .collect();
    rewritten.applications.iter().filter(|a| led.contains(&std::ptr::from_ref(*a))).collect()
}

/// The rule applications that led to what a kernel computes, rule by rule.
fn steps(compiler: &Compiler, planned: &Planned, block: usize, kernel: usize) -> Vec<RuleRun> {
    let classes = &planned.blocks[block].classes;
    let mut steps: Vec<RuleRun> = Vec::new();
    for applied in applied(planned, block, kernel) {
        let root = applied.roots.iter().flatten().next();
        let origin = root.and_then(|&class| classes.classes[class].origins.first());
        let origin = origin.map_or(String::new(), ToString::to_string);
        let rule = applied.op.map_or(applied.rule.to_string(), |op| format!("{}[{op}]", applied.rule));
        match steps.last_mut().filter(|last| last.rule == rule && last.origin == origin) {
            Some(last) => last.times += 1,
            None => {
                let doc = compiler.rules().get(&applied.rule).map_or("", |rule| rule.doc.lines().next().unwrap_or(""));
                steps.push(RuleRun { rule, doc: doc.into(), origin, times: 1 });
            }
        }
    }
    steps
}

impl Explanation {
    fn is_meant(&self, wanted: &GlobMatcher) -> bool {
        let ops = self.report.fused.iter().map(|f| (f.op, &f.origin));
        let mut all = ops.chain([(self.report.anchor, &self.report.origin)]);
        wanted.is_match(&self.number)
            || all.any(|(op, origin)| wanted.is_match(op.name()) || wanted.is_match(origin.path()))
    }

    fn print(&self, out: &mut impl Write) -> Result<(), Fault> {
        let KernelReport { anchor, origin, cost, stores, .. } = &self.report;
        let repeated = if self.times > 1 { format!(", {} times", self.times) } else { String::new() };
        writeln!(out, "{}", heading(format!("{}: {anchor} in {origin}{repeated}", self.number)))?;
        let plural = if *stores == 1 { "" } else { "s" };
        writeln!(
            out,
            "  predicted {}: {} moved, {}flop, {stores} result{plural} stored",
            seconds(cost.seconds),
            bytes(cost.bytes),
            count(cost.flops)
        )?;
        for RuleRun { rule, doc, origin, times } in &self.steps {
            let times = if *times > 1 { format!(" x {times}") } else { String::new() };
            writeln!(out, "  by {rule}{times} in {origin}")?;
            if !doc.is_empty() {
                writeln!(out, "       {}", faint(doc))?;
            }
        }
        if self.steps.is_empty() {
            writeln!(out, "  {}", faint("no rule: the program says so itself"))?;
        }
        for same in self
            .report
            .fused
            .chunk_by(|a, b| a.gain.is_none() && b.gain.is_none() && a.op == b.op && a.origin == b.origin)
        {
            let FusedOp { op, origin, gain } = &same[0];
            let times = if same.len() > 1 { format!(" x {}", same.len()) } else { String::new() };
            let why = gain.map_or(String::new(), |gain| {
                let word = if gain >= 0.0 { "more" } else { "less" };
                faint(format!(": storing it would cost {} {word}", seconds(gain.abs())))
            });
            writeln!(out, "  with {op}{times} of {origin}{why}")?;
        }
        Ok(writeln!(out)?)
    }

    fn json(&self) -> Value {
        let step = |s: &RuleRun| json!({ "rule": s.rule, "doc": s.doc, "origin": s.origin, "times": s.times });
        let fused = |f: &FusedOp| json!({ "op": f.op.name(), "origin": f.origin.path(), "gain_s": f.gain });
        json!({
            "kernel": self.number, "anchor": self.report.anchor.name(), "origin": self.report.origin.path(),
            "times": self.times, "stores": self.report.stores, "load": self.report.load,
            "predicted_s": self.report.cost.seconds, "bytes": self.report.cost.bytes, "flops": self.report.cost.flops,
            "rules": self.steps.iter().map(step).collect::<Vec<_>>(),
            "fused": self.report.fused.iter().map(fused).collect::<Vec<_>>(),
        })
    }
}
