//! `opt`: shows how a graph is compiled: the graph after each phase, its plan, and statistics.

pub mod force;
mod prove;

use std::io::{Write, stdout};

use clap::ValueEnum;
use eutectic::{
    Compiler, Graph, Planned, RuleSet,
    engine::{
        ir::{lang::sexp::suggestion, text},
        lowering::print,
        rewrites::{Phase, Stop},
    },
};
use serde_json::{Value, json};

use crate::{
    args::{CommonArgs, StrategyName, print_json},
    fault::{Fault, input},
    files,
    format::Format,
    output,
    report::{self, Size},
    table::{bytes, duration, faint, hanging, heading, lines, seconds, several, table, thousands},
};

const EXAMPLES: &str = "\
Examples:
  # statistics, kernels, and the plan in full
  eutectic opt model.graph
  # the program as each phase leaves it
  eutectic opt model.graph --print-after-phase all
  eutectic opt minilm --random --no-outline --strategy greedy
  # the plan only: the same text for the same kernels
  eutectic opt model.graph --rules DIR --print plan
  # the graph itself, in text form
  eutectic opt demo --print graph
  eutectic opt demo --dot | dot -Tsvg > demo.svg
  # proves of each kernel that it computes what its ops say
  eutectic opt demo --prove
  # the same of a language model, for texts of any length
  eutectic opt MODEL.gguf --prove
  # the cheapest plan with a kernel of a rule, and how much dearer it is
  eutectic opt model.graph --force mine/joined-lookups
  # the difference between the plan and the best one, for small graphs
  eutectic opt model.graph --gap";

/// Rewrites and plans a program, and prints the result
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    job: CommonArgs,
    /// Prints each block of the program after a phase (legalize, main, algebra, templates, fold, or one of a rule
    /// file); may be repeated
    #[arg(help_heading = None, long, value_name = "PHASE|all")]
    print_after_phase: Vec<String>,
    /// The sections of the result to print as tables; JSON contains phases, rules, kernels and times in any case
    #[arg(help_heading = None, long, value_name = "SECTION", value_enum, value_delimiter = ',',
          default_values_t = [Section::Phases, Section::Rules, Section::Kernels, Section::Plan, Section::Times])]
    print: Vec<Section>,
    /// Prints the graph as Graphviz DOT, and nothing else
    #[arg(help_heading = None, long, conflicts_with_all = ["print", "gap"])]
    dot: bool,
    /// Also searches all plans of small programs, and prints how much better the best one is
    #[arg(help_heading = None, long)]
    gap: bool,
    /// Only proves for each kernel that it computes its ops, at every element and for every length of its axes; exit
    /// code 1 if a kernel is not proved
    #[arg(help_heading = None, long, conflicts_with_all = ["print", "gap", "dot"])]
    prove: bool,
    /// Takes the cheapest plan with a kernel that this rule led to, and compares its price with that of the chosen plan
    #[arg(help_heading = None, long, value_name = "RULE", conflicts_with_all = ["gap", "dot"])]
    force: Option<String>,
}

/// A part of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// The graph as it was given, in text form
    Graph,
    /// The effect of each phase, and why it ended
    Phases,
    /// The rules that fired
    Rules,
    /// The kernels, with the ops that were fused into each
    Kernels,
    /// The plan in canonical form
    Plan,
    /// The time of each stage
    Times,
}

/// Runs the command.
///
/// # Errors
/// If the program cannot be read, rewritten or planned.
pub fn run(args: &Args) -> Result<(), Fault> {
    files::read_stdin_once(args.job.reads())?;
    let (dot, phases) = (args.dot, !args.print_after_phase.is_empty());
    output::one_on_stdout([("--dot".into(), dot), ("--print-after-phase".into(), phases), args.job.json()])?;
    let program = &args.job.program;
    let compiler = args.job.compile.compiler_for(program)?;
    let graph = if program.is_gguf() { program.decoder()? } else { program.graph()? };
    let mut out = stdout().lock();
    if args.dot {
        return Ok(write!(out, "{}", eutectic::engine::ir::dot::dot(&graph))?);
    }
    let compiler = compiler.with_ops_of(&graph)?;
    for phase in args.phases(compiler.rules())? {
        for (block, graph) in compiler.after_phase(&graph, phase.clone())?.iter().enumerate() {
            writeln!(out, "; after {phase}, block {block}\n{}", text::print(graph, text::Style { types: true }))?;
        }
    }
    let planned = compiler.plan(&graph)?;
    let (planned, forced) = match &args.force {
        Some(rule) => {
            force::forced(rule, &compiler, &graph, planned).map(|(planned, forced)| (planned, Some(forced)))?
        }
        None => (planned, None),
    };
    if args.prove {
        return prove::print(&mut out, &planned, args.job.format);
    }
    let gap = if args.gap { Some(Gap::of(args, &compiler, &graph, &planned)?) } else { None };
    match args.job.format {
        Format::Json => {
            let mut value = describe(&compiler, &graph, &planned, gap.as_ref());
            value["forced"] = forced.map_or(Value::Null, |forced| forced.json());
            print_json(&mut out, &value)
        }
        Format::Table => {
            for section in &args.print {
                print_section(&mut out, *section, &compiler, &graph, &planned)?;
            }
            forced.map_or(Ok(()), |forced| forced.print(&mut out))?;
            gap.map_or(Ok(()), |gap| gap.print(&mut out))
        }
    }
}

impl Args {
    /// Returns the phases after which the program is printed.
    ///
    /// # Errors
    /// If there is no such phase.
    fn phases(&self, rules: &RuleSet) -> Result<Vec<Phase>, Fault> {
        let all = rules.phases();
        let mut chosen = Vec::new();
        for name in &self.print_after_phase {
            if name == "all" {
                chosen.extend(all.iter().cloned());
                continue;
            }
            let names: Vec<String> = all.iter().map(ToString::to_string).collect();
            let Some(at) = names.iter().position(|known| known == name) else {
                let known = names.iter().map(String::as_str).chain(["all"]);
                return Err(input(
                    format!("--print-after-phase {name}: there is no such phase"),
                    suggestion(name, "there are", known),
                ));
            };
            chosen.push(all[at].clone());
        }
        Ok(chosen)
    }
}

fn print_section(
    out: &mut impl Write,
    section: Section,
    compiler: &Compiler,
    graph: &Graph,
    planned: &Planned,
) -> Result<(), Fault> {
    match section {
        // Long lines are not wrapped, so that the text can be copied into a file.
        Section::Graph => write!(out, "{}", text::print(graph, text::Style::default()))?,
        Section::Plan => plan(out, &print::program(&planned.lowered.program))?,
        Section::Phases => phases(out, graph, planned)?,
        Section::Rules => rules(out, compiler, planned)?,
        Section::Kernels => kernels(out, compiler, planned)?,
        Section::Times => times(out, planned)?,
    }
    Ok(())
}

fn plan(out: &mut impl Write, text: &str) -> Result<(), Fault> {
    Ok(writeln!(out, "{}", lines(text))?)
}

fn phases(out: &mut impl Write, graph: &Graph, planned: &Planned) -> Result<(), Fault> {
    writeln!(out, "{}\n{}", heading("graph"), Size::of(graph).describe())?;
    let (blocks, calls) = (planned.outlined.blocks.len(), planned.outlined.calls.len());
    let cuts = planned.outlined.cuts.len();
    writeln!(out, "blocks {blocks}, calls {calls}, cuts {cuts}: fusion across cuts is given up")?;
    writeln!(out, "\n{}", heading("phases"))?;
    let mut table =
        table(&[">block", "phase", "ended because", ">rounds", ">matches", ">e-nodes", ">e-classes", ">took"]);
    for (block, rewritten) in planned.rewritten.iter().enumerate() {
        for phase in &rewritten.phases {
            table.add_row([
                block.to_string(),
                phase.phase.to_string(),
                ended(phase.stop).into(),
                phase.iterations.to_string(),
                thousands(phase.matches),
                thousands(phase.nodes),
                thousands(phase.classes),
                duration(phase.time),
            ]);
        }
    }
    Ok(writeln!(out, "{table}\n")?)
}

fn ended(stop: Stop) -> &'static str {
    match stop {
        Stop::Saturated => "nothing changed",
        Stop::Applications => "limit of a rule at a node",
        Stop::Nodes => "limit of e-nodes",
        Stop::Iterations => "limit of rounds",
        Stop::Matches => "limit of matches",
    }
}

fn rules(out: &mut impl Write, compiler: &Compiler, planned: &Planned) -> Result<(), Fault> {
    writeln!(out, "{}", heading("rules that fired"))?;
    let mut table = table(&["rule", ">matches", ">applied", ">changed", ">took"]);
    let mut held = Vec::new();
    let fired = report::rules(compiler, planned);
    if fired.is_empty() {
        return Ok(writeln!(out, "none changes the program\n")?);
    }
    for rule in fired {
        if rule.held > 0 {
            held.push(format!("{} at {}", rule.name, several(rule.held, "node")));
        }
        table.add_row([
            rule.name,
            thousands(rule.matches),
            thousands(rule.applications),
            thousands(rule.changes),
            duration(rule.time),
        ]);
    }
    writeln!(out, "{table}")?;
    if !held.is_empty() {
        writeln!(out, "{}", hanging(format!("could match more than it may: {}", held.join(", ")), 4))?;
    }
    Ok(writeln!(out)?)
}

fn kernels(out: &mut impl Write, compiler: &Compiler, planned: &Planned) -> Result<(), Fault> {
    let program = &planned.lowered.program;
    let title = format!(
        "{} a run, predicted {}, peak memory {}; {} once, {}",
        several(program.run.len(), "kernel"),
        seconds(planned.seconds()),
        bytes(program.arena_bytes as f64),
        several(program.load.len(), "kernel"),
        bytes(program.load_bytes as f64),
    );
    writeln!(out, "{}", heading(title))?;
    for (title, table) in report::kernels(compiler, planned) {
        writeln!(out, "{title}\n{table}")?;
    }
    let (greedy, chosen): (f64, f64) = planned
        .blocks
        .iter()
        .fold((0.0, 0.0), |(g, c), b| (g + b.searched.greedy_seconds, c + b.searched.priced.seconds));
    let tried: usize = planned.blocks.iter().map(|b| b.searched.tried).sum();
    let were = if tried == 1 { "was" } else { "were" };
    let text = format!(
        "{} {were} priced; greedy alone: {:.1} % more",
        several(tried, "plan"),
        // Rounding errors may make the difference slightly negative.
        (100.0 * (greedy / chosen - 1.0)).max(0.0)
    );
    Ok(writeln!(out, "{}\n", faint(text))?)
}

fn times(out: &mut impl Write, planned: &Planned) -> Result<(), Fault> {
    let times = planned.times;
    writeln!(out, "{}", heading("stages"))?;
    let mut table = table(&[">outline", ">rewrite", ">plan", ">lower", ">all"]);
    table.add_row([times.outline, times.rewrite, times.plan, times.lower, times.total()].map(duration));
    writeln!(out, "{table}")?;
    for (block, _) in planned.blocks.iter().enumerate().filter(|(_, block)| block.searched.cut_short) {
        writeln!(out, "block {block}: the search ended at its limit of work; there may be a better plan")?;
    }
    Ok(())
}

/// For each block, the price of the chosen plan and that of the best plan.
struct Gap(Vec<BlockReport>);

struct BlockReport {
    chosen: f64,
    best: f64,
    tried: usize,
    complete: bool,
}

impl Gap {
    fn of(args: &Args, compiler: &Compiler, graph: &Graph, planned: &Planned) -> Result<Gap, Fault> {
        let exact = compiler.clone().with_strategy(StrategyName::Exact.into());
        let best = exact.plan(graph)?;
        debug_assert_eq!(best.blocks.len(), planned.blocks.len(), "{:?}", args.job.program.model);
        let block =
            |(chosen, best): (&eutectic::engine::lowering::PlannedBlock, &eutectic::engine::lowering::PlannedBlock)| {
                BlockReport {
                    chosen: chosen.searched.priced.seconds,
                    best: best.searched.priced.seconds,
                    tried: best.searched.tried,
                    complete: !best.searched.cut_short,
                }
            };
        Ok(Gap(planned.blocks.iter().zip(&best.blocks).map(block).collect()))
    }

    fn print(&self, out: &mut impl Write) -> Result<(), Fault> {
        writeln!(out, "\n{}", heading("gap to the best plan"))?;
        let mut table = table(&[">block", ">chosen", ">best", ">gap", ">plans", "all of them"]);
        for (at, block) in self.0.iter().enumerate() {
            table.add_row([
                at.to_string(),
                seconds(block.chosen),
                seconds(block.best),
                format!("{:.2} %", 100.0 * block.gap()),
                thousands(block.tried),
                if block.complete { "yes" } else { "no: the limit was met" }.into(),
            ]);
        }
        Ok(writeln!(out, "{table}")?)
    }
}

impl BlockReport {
    fn gap(&self) -> f64 {
        self.chosen / self.best - 1.0
    }
}

fn describe(compiler: &Compiler, graph: &Graph, planned: &Planned, gap: Option<&Gap>) -> Value {
    let phase = |(block, p): (usize, &eutectic::engine::rewrites::PhaseReport)| {
        json!({
            "block": block, "phase": p.phase.to_string(), "saturated": p.stop == Stop::Saturated, "stop": ended(p.stop),
            "rounds": p.iterations, "matches": p.matches, "nodes": p.nodes, "classes": p.classes,
            "seconds": p.time.as_secs_f64(),
        })
    };
    let phases = planned.rewritten.iter().enumerate().flat_map(|(at, r)| r.phases.iter().map(move |p| (at, p)));
    let rules = report::rules(compiler, planned).into_iter().map(|r| {
        json!({ "name": r.name, "matches": r.matches, "applications": r.applications, "changes": r.changes,
                "held": r.held, "seconds": r.time.as_secs_f64() })
    });
    let (program, times) = (&planned.lowered.program, planned.times);
    let gap = gap.map(|gap| {
        let block =
            |b: &BlockReport| json!({ "chosen_s": b.chosen, "best_s": b.best, "tried": b.tried, "complete": b.complete });
        gap.0.iter().map(block).collect::<Vec<_>>()
    });
    json!({
        "graph": Size::of(graph),
        "blocks": planned.outlined.blocks.len(),
        "calls": planned.outlined.calls.len(),
        "cuts": planned.outlined.cuts.len(),
        "phases": phases.map(phase).collect::<Vec<_>>(),
        "rules": rules.collect::<Vec<_>>(),
        "searches": planned.blocks.iter().map(|b| {
            json!({ "work": b.searched.work, "plans": b.searched.tried, "cut_short": b.searched.cut_short })
        }).collect::<Vec<_>>(),
        "predicted_s": planned.seconds(),
        "run_kernels": program.run.len(),
        "load_kernels": program.load.len(),
        "arena_bytes": program.arena_bytes,
        "load_bytes": program.load_bytes,
        "kernels": report::kernels_json(compiler, planned),
        "gap": gap,
        "plan": print::program(program),
        "seconds": {
            "outline": times.outline.as_secs_f64(), "rewrite": times.rewrite.as_secs_f64(),
            "plan": times.plan.as_secs_f64(), "lower": times.lower.as_secs_f64(), "all": times.total().as_secs_f64(),
        },
    })
}
