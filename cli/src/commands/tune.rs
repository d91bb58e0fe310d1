//! `tune`: measures kernels on this machine and writes the costs that predict them best.

use std::{
    fmt::Write as _,
    io::{self, Write, stdout},
    path::PathBuf,
};

use eutectic::{
    Backend, Compiler, Cpu, CpuOptions, Graph,
    engine::{
        backend::Step,
        cpu::{Costs, Fitted, Measured, fit},
        ir::{lang::Source, text},
    },
};
use serde_json::json;

use crate::{
    args::{BackendArg, Format, Rules, print_json},
    fault::{Fault, input},
    output::OutputFile,
    program::ProgramArgs,
    table::{seconds, table, thousands},
    timing::progress,
};

const EXAMPLES: &str = "\
Examples:
  eutectic tune --out costs.toml                  a spread of kernels; takes a minute on an idle machine
  eutectic tune model.onnx --out costs.toml       the kernels of a model of yours
  eutectic bench model.onnx --costs costs.toml    with these costs

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
    let backend = args.on.open()?;
    if backend.name() != Cpu::default().name() {
        let problem = format!("--backend {}: what its kernels cost is not fitted by this command", backend.name());
        return Err(input(problem, "--backend cpu fits the costs of the processor"));
    }
    let rules = args.rules.load(&*backend)?;
    let unwritable = |e: io::Error| input(format!("{}: {e}", args.out.display()), "--out names a file to write");
    // Better now than after a minute. What is there stays until the new one is whole.
    let mut file = OutputFile::new(&args.out).map_err(unwritable)?;
    let most = CpuOptions::default().threads;
    let programs = args.programs()?;
    let bar = progress("measuring", Some((programs.len() * most.min(2)) as u64));
    let (mut kinds, mut measured) = (Vec::new(), Vec::new());
    for threads in if most > 1 { vec![1, most] } else { vec![1] } {
        let cpu = Cpu::new(CpuOptions { threads, ..CpuOptions::default() });
        let compiler = Compiler::of(cpu, rules.clone());
        for (program, graph) in &programs {
            for (kind, kernel) in kernels(&compiler, program, graph, threads, args.iters)? {
                kinds.push(kind);
                measured.push(kernel);
            }
            bar.inc(1);
        }
    }
    drop(bar);
    let start = Costs::default();
    let fitted = fit(&start, &measured);
    let written = fitted.costs.print().map_err(Fault::run)?;
    let text = format!(
        "# Fitted by `eutectic tune` to {} kernels, on {}.\n# What each is: costs/default.toml.\n\n{written}",
        measured.len(),
        Cpu::default().describe(),
    );
    file.write_all(text.as_bytes()).map_err(unwritable)?;
    file.done().map_err(unwritable)?;
    args.print(&fitted, &kinds, &measured)
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

    fn print(&self, fitted: &Fitted, kinds: &[String], measured: &[Measured]) -> Result<(), Fault> {
        let mut out = stdout().lock();
        if self.format == Format::Json {
            let kernels: Vec<_> = kinds
                .iter()
                .zip(measured)
                .map(|(kind, m)| {
                    json!({ "kernel": kind, "threads": m.threads, "domain": m.kernel.body.domain, "measured": m.seconds,
                            "before": predicted(&Costs::default(), m), "after": predicted(&fitted.costs, m) })
                })
                .collect();
            return print_json(
                &mut out,
                &json!({ "kernels": kernels, "before": fitted.before, "after": fitted.after, "costs": fitted.costs }),
            );
        }
        let mut rows = table(&["kernel", ">domain", ">threads", ">measured", ">before", ">after"]);
        for (kind, m) in kinds.iter().zip(measured) {
            let domain: Vec<String> = m.kernel.body.domain.iter().map(usize::to_string).collect();
            rows.add_row([
                kind.clone(),
                domain.join(" "),
                m.threads.to_string(),
                seconds(m.seconds),
                seconds(predicted(&Costs::default(), m)),
                seconds(predicted(&fitted.costs, m)),
            ]);
        }
        writeln!(out, "{rows}")?;
        writeln!(
            out,
            "{} kernels: predictions were off by a factor of {:.2}, and are by {:.2}; the costs are in {}",
            thousands(measured.len()),
            fitted.before,
            fitted.after,
            self.out.display()
        )?;
        Ok(())
    }
}

fn predicted(costs: &Costs, measured: &Measured) -> f64 {
    let cpu = Cpu::new(CpuOptions { threads: measured.threads, costs: costs.clone(), ..CpuOptions::default() });
    cpu.cost(&measured.kernel).seconds
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
