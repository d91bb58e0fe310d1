//! `explain`: how kernels came about: which rules, in order, what was fused and why, and why the rest was not.

mod page;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Write, stdout},
    path::PathBuf,
};

use eutectic::{
    Compiler, Error, Graph, Planned,
    engine::{
        backend::Candidate,
        ir::lang::sexp::did_you_mean,
        lowering::{
            report::{FusedOp, KernelReport},
            unjoined::{Reason, UnjoinedPair},
        },
        rewrites::{Choice, glob::Glob},
    },
    report::{Numbers, applied, stretches},
};
use serde_json::{Value, json};

use crate::{
    args::{CommonArgs, pattern, print_json},
    fault::{Fault, in_one_line, input},
    files,
    format::Format,
    output,
    report::candidates_json,
    table::{bytes, count, faint, hanging, heading, seconds},
    timing::progress,
    values::whole,
};

const EXAMPLES: &str = "\
Examples:
  # every kernel of the plan
  eutectic explain demo
  # the third kernel
  eutectic explain demo 3
  # the kernels of the model's parts named so
  eutectic explain minilm '*attention*' --random
  # the kernels around an op
  eutectic explain minilm matmul --random
  # a page for a browser: the graph of kernels, measured
  eutectic explain demo --html plan.html
  eutectic explain model.graph --rules DIR --format json

For each kernel: what it costs; the rules that led from the program as written to what the kernel computes, in the order \
in which they were applied, and what the whole plan costs without each; the ops fused into it, each with what storing its \
result instead would cost; and the kernels whose results it reads, with what one kernel for both would cost.";

/// Says how the kernels of a program's plan came about
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    job: CommonArgs,
    /// Kernels by number, model part or op
    #[arg(help_heading = None, default_value = "*", value_name = "KERNEL|GLOB")]
    glob: String,
    /// Leaves out what each rule gains, for which the program is planned again without it
    #[arg(help_heading = None, long)]
    quick: bool,
    /// Writes a page for a browser instead, which needs no other file: the graph of all kernels, with measured times
    #[arg(help_heading = None, long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Runs that are measured for the page; 0 leaves measuring out
    #[arg(help_heading = None, long, value_name = "N", default_value_t = 20, value_parser = whole::<usize>)]
    iters: usize,
}

/// Candidates, at most, that are named beside the one that is taken.
const RUNNERS_UP: usize = 2;

/// A kernel and how it came about.
struct Explanation {
    /// Its number in each call of its block.
    numbers: Vec<String>,
    /// Its block, and its number there.
    of: (usize, usize),
    report: KernelReport,
    steps: Vec<RuleRun>,
    withheld: Vec<WithheldRule>,
    reads: Vec<Read>,
}

/// A rule that was kept from a value of the kernel, and the op that observes this value.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct WithheldRule {
    rule: String,
    observer: &'static str,
    origin: String,
}

/// Rule applications in a row, of one rule to one model part.
struct RuleRun {
    /// Its name; with the op that it was applied to, where it is for several.
    rule: String,
    /// Its name in rule files.
    base: String,
    doc: String,
    origin: String,
    times: usize,
}

/// A kernel of which this one reads a result.
struct Read {
    /// In the block.
    from: usize,
    number: String,
    name: String,
    /// What is read.
    between: String,
    why: Reason,
}

/// What the plan is without a rule.
enum Without {
    /// So many predicted seconds longer.
    Longer(f64),
    /// There is none.
    Nothing(String),
}

/// What each rule gains, by its name in rule files.
type Gains = BTreeMap<String, Without>;

/// Runs the command.
///
/// # Errors
/// When the program cannot be planned, or no kernel is meant.
pub fn run(args: &Args) -> Result<(), Fault> {
    files::read_stdin_once(args.job.reads())?;
    output::one_on_stdout([("--html".into(), args.html.is_some()), args.job.json()])?;
    let wanted = pattern(&args.glob)?;
    let compiler = args.job.compile.compiler()?;
    let graph = args.job.program.graph()?;
    let planned = {
        let _bar = progress("planning", None);
        compiler.plan(&graph)?
    };
    let all = explanations(&compiler, &planned);
    let kernels = all.len();
    let chosen: Vec<_> = all.into_iter().filter(|e| e.is_meant(&wanted)).collect();
    if chosen.is_empty() {
        let list = format!("there are {kernels}; `eutectic opt {}` lists them", args.job.program.model.display());
        let names: BTreeSet<String> = explanations(&compiler, &planned).iter().flat_map(Explanation::names).collect();
        let guess = did_you_mean(&args.glob, names.iter().map(String::as_str));
        let help = guess.map_or(list.clone(), |guess| format!("{guess} {list}"));
        return Err(input(format!("no kernel has the number, model part or op `{}`", args.glob), help));
    }
    let gains = if args.quick { Gains::new() } else { gains(args, &compiler, &graph, &planned, &chosen)? };
    if let Some(path) = &args.html {
        return page::write(args, path, &compiler, &graph, &planned, &chosen, &gains);
    }
    let mut out = stdout().lock();
    if args.job.format == Format::Json {
        return print_json(&mut out, &chosen.iter().map(|e| e.json(&gains)).collect::<Vec<_>>());
    }
    chosen.iter().try_for_each(|explanation| explanation.print(&mut out, &gains))
}

/// Every kernel of the plan, repeated blocks once.
fn explanations(compiler: &Compiler, planned: &Planned) -> Vec<Explanation> {
    let (blocks, unjoined) = (compiler.describe(planned), compiler.unjoined_pairs(planned));
    let numbers = Numbers::of(planned);
    let mut all = Vec::new();
    for stretch in stretches(planned) {
        let kernels = &blocks[stretch.block];
        let number = |call: usize, at: usize| numbers.get(call, at).to_string();
        for (at, report) in kernels.iter().enumerate() {
            let read = |pair: &UnjoinedPair| {
                let between: Vec<String> =
                    pair.between.iter().map(|(op, origin)| format!("{op} of {origin}")).collect();
                Read {
                    from: pair.from,
                    number: number(stretch.calls.start, pair.from),
                    name: kernels[pair.from].anchor.to_string(),
                    between: between.join(", "),
                    why: pair.why.clone(),
                }
            };
            all.push(Explanation {
                numbers: stretch.calls.clone().map(|call| number(call, at)).collect(),
                of: (stretch.block, at),
                report: report.clone(),
                steps: steps(compiler, planned, stretch.block, at),
                withheld: withheld(planned, stretch.block, at),
                reads: unjoined[stretch.block].iter().filter(|pair| pair.to == at).map(read).collect(),
            });
        }
    }
    all
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
                let base = applied.rule.to_string();
                steps.push(RuleRun { rule, base, doc: doc.into(), origin, times: 1 });
            }
        }
    }
    steps
}

/// The rules that observers kept from what a kernel computes.
fn withheld(planned: &Planned, block: usize, kernel: usize) -> Vec<WithheldRule> {
    let (rewritten, of) = (&planned.rewritten[block], &planned.blocks[block]);
    let computed = &of.searched.priced.kernels[kernel].0.interior;
    let here = rewritten.withheld.iter().filter_map(|one| {
        let class = one.class.filter(|class| computed.contains(class))?;
        let origin = of.classes.classes[class].origins.first().map_or(String::new(), ToString::to_string);
        Some(WithheldRule { rule: one.rule.to_string(), observer: one.observer.name(), origin })
    });
    here.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Plans the program again without each of the rules that led to some kernels.
fn gains(
    args: &Args,
    compiler: &Compiler,
    graph: &Graph,
    planned: &Planned,
    of: &[Explanation],
) -> Result<Gains, Fault> {
    let rules: BTreeSet<&str> = of.iter().flat_map(|e| &e.steps).map(|step| &*step.base).collect();
    let bar = progress("planning without each rule", Some(rules.len() as u64));
    let mut gains = Gains::new();
    for rule in rules {
        let choice = Choice {
            without: vec![rule.into()],
            fp: args.job.compile.rules.fp.into(),
            precision: args.job.compile.rules.precision.into(),
            ..Choice::default()
        };
        let less = compiler.clone().with_rules(compiler.rules().choose(&choice).map_err(Error::from)?);
        let without = match less.plan(graph) {
            Ok(less) => Without::Longer(less.seconds() - planned.seconds()),
            Err(error) => Without::Nothing(in_one_line(&error)),
        };
        gains.insert(rule.into(), without);
        bar.inc(1);
    }
    Ok(gains)
}

/// `12 µs more`, `12 µs less`, or nothing.
fn more(difference: f64) -> String {
    match difference {
        d if d.abs() < 0.5e-9 => "no more".into(),
        d if d > 0.0 => format!("{} more", seconds(d)),
        d => format!("{} less", seconds(-d)),
    }
}

impl Without {
    fn describe(&self) -> String {
        match self {
            Without::Longer(difference) => format!("without it a run would take {}", more(*difference)),
            Without::Nothing(why) => format!("without it there is no plan: {why}"),
        }
    }

    fn json(&self) -> Value {
        match self {
            Without::Longer(difference) => json!({ "without_s": difference }),
            Without::Nothing(why) => json!({ "needed": why }),
        }
    }
}

/// Why two kernels are two, in words.
fn in_words(why: &Reason) -> String {
    match why {
        Reason::Dearer(difference) => format!("one kernel for both would take {}", more(*difference)),
        Reason::Impossible(why) => format!("no kernel can do both: {why}"),
    }
}

impl Explanation {
    fn is_meant(&self, wanted: &Glob) -> bool {
        let ops = self.report.fused.iter().map(|f| (f.op, &f.origin));
        let mut all = ops.chain([(self.report.anchor, &self.report.origin)]);
        self.numbers.iter().any(|number| wanted.is_match(number))
            || all.any(|(op, origin)| wanted.is_match(op.name()) || wanted.is_match(origin.path()))
    }

    /// What it can be asked for by.
    fn names(&self) -> Vec<String> {
        let ops =
            self.report.fused.iter().map(|f| (f.op, &f.origin)).chain([(self.report.anchor, &self.report.origin)]);
        ops.flat_map(|(op, origin)| [op.to_string(), origin.path().to_string()]).collect()
    }

    fn print(&self, out: &mut impl Write, gains: &Gains) -> Result<(), Fault> {
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
        for RuleRun { rule, base, doc, origin, times } in &self.steps {
            let times = if *times > 1 { format!(" x {times}") } else { String::new() };
            writeln!(out, "{}", hanging(format!("  by {rule}{times} in {origin}"), 5))?;
            for line in [Some(doc.clone()), gains.get(base).map(Without::describe)].into_iter().flatten() {
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

    fn json(&self, gains: &Gains) -> Value {
        let step = |s: &RuleRun| {
            json!({ "rule": s.rule, "doc": s.doc, "origin": s.origin, "times": s.times,
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
