//! `explain`: describes each kernel of a plan by the rules that led to it, its fused ops, and the reasons why it is not
//! fused with other kernels.

mod args;
mod explanation;
mod page;

use std::{collections::BTreeSet, io::stdout};

pub use self::args::Args;
use self::explanation::{Explanation, Gains, Read, RuleRun, WithheldRule, Without};
use crate::{
    args::{pattern, print_json},
    commands::rules::shown,
    fault::{Fault, in_one_line, input},
    files,
    format::Format,
    output,
    timing::progress,
};
use eutectic::{
    Compiler, Error, Graph, Planned,
    engine::{ir::lang::sexp::did_you_mean, lowering::unjoined::UnjoinedPair, rewrites::Choice},
    report::{Numbers, applied, stretches},
};

/// Runs the command.
///
/// # Errors
/// If the program cannot be planned, or the argument selects no kernel.
pub fn run(args: &Args) -> Result<(), Fault> {
    files::read_stdin_once(args.job.reads())?;
    output::one_on_stdout([("--html".into(), args.html.is_some()), args.job.json()])?;
    let wanted = pattern(&args.glob)?;
    let compiler = args.job.compile.compiler_for(&args.job.program)?;
    let graph = args.job.program.graph()?;
    let compiler = compiler.with_ops_of(&graph)?;
    let planned = {
        let _bar = progress("planning", None);
        compiler.plan(&graph)?
    };
    let all = explanations(&compiler, &planned);
    let kernels = all.len();
    // Equal layers share one explanation, but their kernels have different numbers.
    let last = all.iter().flat_map(|e| &e.numbers).filter_map(|n| n.parse::<usize>().ok()).max().unwrap_or_default();
    let chosen: Vec<_> = all.into_iter().filter(|e| e.is_meant(&wanted)).collect();
    if chosen.is_empty() {
        let list = format!(
            "numbers go up to {last}, for {kernels} different kernels; `eutectic opt {}` lists them",
            args.job.program.model.display()
        );
        let names: BTreeSet<String> = explanations(&compiler, &planned).iter().flat_map(Explanation::names).collect();
        let guess = did_you_mean(&args.glob, names.iter().map(String::as_str));
        let help = guess.map_or(list.clone(), |guess| format!("{guess} {list}"));
        return Err(input(format!("no kernel has the number, model part or op `{}`", args.glob), help));
    }
    let gains = if args.quick { Gains::new() } else { gains(args, &compiler, &graph, &planned, &chosen)? };
    if let Some(path) = &args.html {
        return page::write(args, path, (&compiler, &graph, &planned), &chosen, &gains);
    }
    let mut out = stdout().lock();
    if args.job.format == Format::Json {
        return print_json(&mut out, &chosen.iter().map(|e| e.json(&gains)).collect::<Vec<_>>());
    }
    chosen.iter().try_for_each(|explanation| explanation.print(&mut out, &gains))
}

/// Returns an explanation of every kernel. The calls of a block share their explanations.
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

/// Returns the applications of rules that led to a kernel. Consecutive applications of the same rule are merged.
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
                let found = compiler.rules().get(&applied.rule);
                let doc = found.map_or("", |rule| rule.doc.lines().next().unwrap_or("")).to_string();
                let proof = found.map_or_else(String::new, shown);
                let base = applied.rule.to_string();
                steps.push(RuleRun { rule, base, doc, proof, origin, times: 1 });
            }
        }
    }
    steps
}

/// Returns the rules that were not applied to values of a kernel, because an op observes these values.
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

/// Plans the program again without each rule that led to the kernels, and returns the gain of each rule.
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
