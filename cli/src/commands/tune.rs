//! `tune`: measures kernels on this machine and writes the costs that predict them best.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt::Write as _,
    io::{self, Write, stdout},
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
    thread,
};

use eutectic::{
    Backend, Compiler, Graph, Setup,
    engine::{
        backend::{
            Step,
            fit::{Fitted, Measured, median_off, off, rank_correlation},
        },
        ir::{lang::Source, text},
    },
};
use serde_json::json;

use crate::{
    args::{BackendArg, Format, Rules, print_json},
    fault::{Fault, input},
    output::{self, OutputFile},
    program::ProgramArgs,
    table::{seconds, several, table, thousands},
    timing::progress,
};

const EXAMPLES: &str = "\
Examples:
  eutectic tune --out costs.toml                  a spread of kernels; takes a minute on an idle machine
  eutectic tune model.onnx --out costs.toml       the kernels of a model of yours
  eutectic bench model.onnx --costs costs.toml    with these costs
  eutectic tune --backend vulkan --out gpu.toml   on a GPU: each kernel as a part of a recorded run

Each coefficient is moved until predictions are as near to what was measured as can be; one that no kernel speaks of stays. Tune on
a machine that does nothing else.";

/// Measures kernels on this machine and writes costs that predict them
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Models and graph files whose kernels are measured [default: a spread of products, passes, rows, views and attention]
    #[arg(value_name = "MODEL|FILE")]
    models: Vec<PathBuf>,
    /// Where the costs are written
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Runs of each kernel; the fastest counts, because what else the machine does only adds
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    iters: u32,
    #[command(flatten)]
    on: BackendArg,
    #[command(flatten)]
    rules: Rules,
    /// How to print
    #[arg(help_heading = None, long, value_enum, default_value_t)]
    format: Format,
}

/// Runs the command.
///
/// # Errors
/// When a program cannot be compiled or run, or the file cannot be written.
pub fn run(args: &Args) -> Result<(), Fault> {
    let unwritable = |e: io::Error| input(format!("{}: {e}", args.out.display()), "--out names a file to write");
    // Better now than after a minute. What is there stays until the new one is whole.
    let mut file = OutputFile::new(&args.out).map_err(unwritable)?;
    let programs = args.programs()?;
    let most = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    // With one thread and with all, where that makes a difference.
    let mut described = BTreeSet::new();
    let (mut kinds, mut measured) = (Vec::new(), Vec::new());
    for threads in [most, 1] {
        let setup = Setup { threads: NonZeroUsize::new(threads), ..Setup::default() };
        let backend = args.on.backend.open(&setup)?;
        if !described.insert(backend.describe()) {
            continue;
        }
        let rules = args.rules.load(&*backend)?;
        let compiler = Compiler::on(backend, rules);
        let bar = progress("measuring", Some(programs.len() as u64));
        for (program, graph) in &programs {
            for (kind, kernel) in kernels(&compiler, program, graph, threads, args.iters)? {
                kinds.push(kind);
                measured.push(kernel);
            }
            bar.inc(1);
        }
    }
    if measured.is_empty() {
        let problem = format!("--backend {}: none of the kernels has a time", args.on.backend.name);
        return Err(input(problem, "the device needs a clock, and programs at least one kernel"));
    }
    let backend = args.on.open()?;
    // Every fourth kernel is only predicted.
    let is_held_out = |n: usize| n % 4 == 3;
    let part = |held_out: bool| -> Vec<Measured> {
        measured.iter().enumerate().filter(|(n, _)| is_held_out(*n) == held_out).map(|(_, m)| m.clone()).collect()
    };
    let none = || {
        let problem = format!("--backend {}: its costs have no coefficients to fit", backend.name());
        input(problem, "`eutectic devices` lists the backends")
    };
    let fitted = backend.fit(&part(false)).ok_or_else(none)?;
    let mut fitted_for: BTreeMap<usize, Arc<dyn Backend>> = BTreeMap::new();
    let mut pairs = Vec::new();
    for m in part(true) {
        let by = match fitted_for.entry(m.threads) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let (threads, costs) = (NonZeroUsize::new(m.threads), Some(fitted.file.clone()));
                let setup = Setup { threads, costs, ..Setup::default() };
                new.insert(args.on.backend.open(&setup)?)
            }
        };
        pairs.push((by.cost(&m.kernel).seconds, m.seconds));
    }
    let fitted = backend.fit(&measured).ok_or_else(none)?;
    let text = format!(
        "# Fitted by `eutectic tune` to {} kernels, on {}.\n# What each is: the backend's own file in its folder costs/.\n\n{}",
        measured.len(),
        backend.describe(),
        fitted.file,
    );
    file.write_all(text.as_bytes()).map_err(unwritable)?;
    file.done().map_err(unwritable)?;
    if output::is_standard(&args.out) {
        return Ok(());
    }
    args.print(&fitted, &kinds, &measured, &pairs)
}

/// The kernels of a program's plan, each with the time of its fastest run.
fn kernels(
    compiler: &Compiler,
    program: &ProgramArgs,
    graph: &Graph,
    threads: usize,
    iters: u32,
) -> Result<Vec<(String, Measured)>, Fault> {
    let (planned, mut session) = compiler.compile_planned(graph)?;
    let (params, _) = program.params(graph)?;
    session.load_named(|name| params.get(name).cloned())?;
    let given = program.inputs(graph, Default::default())?;
    let inputs: Vec<_> = session.program().inputs.iter().filter_map(|(name, _)| given.get(name).cloned()).collect();
    let lowered = &planned.lowered.program;
    let mut least = vec![f64::INFINITY; lowered.run.len()];
    // The first run meets cold caches and pages.
    for run in session.profile(&inputs, 1 + iters as usize)?.iter().skip(1) {
        least.iter_mut().zip(run).for_each(|(least, &seconds)| *least = least.min(seconds));
    }
    for (step, least) in lowered.run.iter().zip(&mut least) {
        // As a part of a recorded run, where the backend records runs.
        *least = compiler
            .backend()
            .measure(&lowered.kernels[step.kernel], iters as usize)
            .map_err(eutectic::Error::from)?
            .unwrap_or(*least);
    }
    let of_step = |(step, seconds): (&Step, f64)| {
        let kernel = lowered.kernels[step.kernel].clone();
        (kernel.kind().to_string(), Measured { kernel, threads, seconds })
    };
    Ok(lowered.run.iter().zip(least).filter(|(_, seconds)| *seconds > 0.0).map(of_step).collect())
}

impl Args {
    fn programs(&self) -> Result<Vec<(ProgramArgs, Graph)>, Fault> {
        if self.models.is_empty() {
            return spread().iter().map(|text| Ok((ProgramArgs::random("tune".into()), parsed(text)?))).collect();
        }
        let read = |model: &PathBuf| {
            let program = ProgramArgs::random(model.clone());
            program.graph().map(|graph| (program, graph))
        };
        self.models.iter().map(read).collect()
    }

    fn print(
        &self,
        fitted: &Fitted,
        kinds: &[String],
        measured: &[Measured],
        held_out: &[(f64, f64)],
    ) -> Result<(), Fault> {
        let mut out = stdout().lock();
        let factor = |predicted: &[f64]| off(predicted.iter().copied().zip(measured.iter().map(|m| m.seconds))).exp();
        let (before, after) = (factor(&fitted.before), factor(&fitted.after));
        let (order, median) = (rank_correlation(held_out), median_off(held_out));
        let predictions = fitted.before.iter().zip(&fitted.after);
        let all = kinds.iter().zip(measured).zip(predictions);
        if self.format == Format::Json {
            let kernels: Vec<_> = all
                .map(|((kind, m), (before, after))| {
                    json!({ "kernel": kind, "threads": m.threads, "domain": m.kernel.body.domain, "measured": m.seconds,
                            "before": before, "after": after })
                })
                .collect();
            let held_out = json!({ "kernels": held_out.len(), "rank_correlation": order, "median_factor": median });
            return print_json(
                &mut out,
                &json!({ "kernels": kernels, "before": before, "after": after, "held_out": held_out, "costs": fitted.file }),
            );
        }
        let mut rows = table(&["kernel", ">domain", ">threads", ">measured", ">before", ">after"]);
        for ((kind, m), (before, after)) in all {
            let domain: Vec<String> = m.kernel.body.domain.iter().map(usize::to_string).collect();
            rows.add_row([
                kind.clone(),
                domain.join(" "),
                m.threads.to_string(),
                seconds(m.seconds),
                seconds(*before),
                seconds(*after),
            ]);
        }
        writeln!(out, "{rows}")?;
        writeln!(
            out,
            "{}: predictions were off by a factor of {before:.2}, and are by {after:.2}; the costs are in {}",
            several(measured.len(), "kernel"),
            self.out.display()
        )?;
        if !held_out.is_empty() {
            writeln!(
                out,
                "{} of them, predicted by costs that were fitted to the others: rank correlation {order:.3}, half are off by at most {median:.2}",
                thousands(held_out.len())
            )?;
        }
        Ok(())
    }
}

fn parsed(program: &str) -> Result<Graph, Fault> {
    text::parse(&Source::new("tune", program)).map_err(|e| Fault::Input(e.into()))
}

/// Programs whose kernels are of every kind, in sizes from a few elements to more than caches hold.
fn spread() -> Vec<String> {
    let mut programs = Vec::new();
    let mut add = |inputs: &[(&str, &str)], result: &str| {
        let mut program = String::from("(graph \"tune\"\n");
        for (name, ty) in inputs {
            let (kind, name) = name.strip_prefix('%').map_or(("input", *name), |name| ("param", name));
            let _ = writeln!(program, "  ({kind} {name} {ty})");
        }
        let _ = writeln!(program, "  (output y {result}))");
        programs.push(program);
    };
    // Products: vectors, few rows, many; short and long sums; narrow and wide; with what models put behind them.
    for (m, k, n) in [
        (1, 384, 384),
        (1, 2048, 2048),
        (1, 4096, 8192),
        (4, 512, 2048),
        (16, 384, 1536),
        (64, 64, 64),
        (128, 384, 384),
        (128, 1536, 384),
        (512, 64, 512),
        (512, 512, 16),
        (784, 256, 512),
        (1024, 1024, 1024),
    ] {
        let (x, w) = (format!("f32[{m} {k}]"), format!("f32[{k} {n}]"));
        let (b, r) = (format!("f32[{n}]"), format!("f32[{m} {n}]"));
        add(&[("x", &x), ("%w", &w), ("%b", &b)], "(linear x w b :act none)");
        add(&[("x", &x), ("%w", &w), ("%b", &b)], "(linear x w b :act gelu-erf)");
        add(&[("x", &x), ("%w", &w), ("r", &r)], "(add (linear x w :act none) r)");
        add(&[("x", &x), ("w", &w)], "(matmul x w)");
    }
    for n in [64, 512] {
        let f64s = format!("f64[{n} {n}]");
        add(&[("x", &f64s), ("%w", &f64s)], "(matmul x w)");
    }
    // Passes, from a cache line's worth to more than the last cache.
    for n in [256, 1 << 13, 1 << 17, 1 << 20, 1 << 23] {
        let ty = format!("f32[{n}]");
        let one: &[(&str, &str)] = &[("x", &ty)];
        for function in ["abs", "exp", "erf", "tanh", "sqrt", "sin"] {
            add(one, &format!("({function} x)"));
        }
        add(one, "(act x :kind silu)");
        add(one, "(mul (exp (neg (exp (neg (abs x))))) (exp x))");
        add(one, "(cast (cast x :to f16) :to f32)");
        add(&[("x", &ty), ("z", &ty)], "(add x z)");
        add(&[("x", &ty), ("z", &ty)], "(div (mul x z) (add (abs x) (const f32[] { 1.5 })))");
        let f64s = format!("f64[{n}]");
        add(&[("x", &f64s), ("z", &f64s)], "(add x z)");
    }
    // Rows.
    for (m, n) in [(4, 64), (128, 128), (384, 768), (4096, 1024)] {
        let (ty, row) = (format!("f32[{m} {n}]"), format!("f32[{n}]"));
        add(&[("x", &ty)], "(reduce-sum x :axes [-1] :keep true)");
        add(&[("x", &ty)], "(softmax x :axis -1)");
        add(&[("x", &ty), ("g", &row), ("b", &row)], "(layernorm x g b :eps 1e-5)");
        // Views that no order of elements makes dense.
        add(&[("x", &ty)], "(transpose x :perm [1 0])");
        add(&[("x", &ty)], &format!("(abs (slice x :axis -1 :at 0 :len {} :step 2))", n / 2));
        add(&[("x", &ty), ("z", &ty)], "(concat x z :axis -1)");
        let (words, ids) = (format!("f32[{m} {n}]"), format!("i64[{}]", m / 2));
        add(&[("%t", &words), ("i", &ids)], "(abs (gather t i :axis 0))");
    }
    // Attention, and images.
    for (h, s, d) in [(12, 16, 32), (12, 128, 32), (8, 512, 64)] {
        let ty = format!("f32[{h} {s} {d}]");
        let bias = format!("f32[{s}]");
        add(&[("q", &ty), ("k", &ty), ("v", &ty)], "(sdpa q k v :scale 0.125 :mask none)");
        add(&[("q", &ty), ("k", &ty), ("v", &ty), ("m", &bias)], "(sdpa q k v m :scale 0.125 :mask additive)");
    }
    for (c, size) in [(64, 56), (256, 14)] {
        let (x, w) = (format!("f32[1 {c} {size} {size}]"), format!("f32[{c} {c} 3 3]"));
        add(
            &[("x", &x), ("%w", &w)],
            "(conv (abs (conv x w :before [1 1] :after [1 1])) w :stride [2 2] :before [1 1] :after [1 1])",
        );
        add(&[("x", &x)], "(max-pool (abs x) :size [3 3] :stride [2 2] :before [1 1] :after [1 1])");
    }
    programs
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_programs_of_the_spread_are_well_formed() {
        for program in super::spread() {
            assert!(super::parsed(&program).is_ok(), "{program}");
        }
    }
}
