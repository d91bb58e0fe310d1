//! The arguments of `bench`.

use std::{path::PathBuf, time::Duration};

use super::sweep::Sweep;
use crate::{
    args::CommonArgs,
    difference::tolerance,
    fault::{Fault, input},
    generation::Cache,
    inputs::InputFiles,
    npy,
    values::NamedTensors,
};

const EXAMPLES: &str = "\
Examples:
  # the last hidden state, 1 x 128 tokens
  eutectic bench minilm --weights DIR --threads 1
  # random weights
  eutectic bench bert-base --batch 4 --seq 64 --iters 50
  # predicted beside measured time of each kernel
  eutectic bench model.graph --shape B=8 --explain
  # for ten seconds
  eutectic bench demo --duration 10
  eutectic bench model.graph --sweep threads=1,2,4 --sweep B=1,8,64 \\
      --csv times.csv
  eutectic bench model.onnx --input x=@x.npy --reference y.npy
  # how two settings compare, in turns: threads, costs, rules, a plan
  eutectic bench demo --against \"--threads 1\" --against \"--costs old.toml\"
  # without the rules of --rules
  eutectic bench model.onnx --rules mine.epack --against \"--rules none\"
  # beside an older binary
  eutectic bench demo --against target/old/eutectic
  # keep a plan, and run it without a search
  eutectic bench demo --save-plan demo.plan
  eutectic bench demo --plan demo.plan
  eutectic bench minilm --weights DIR --ids ids.npy --output hidden.npy \\
      --format json
  # tokens a second: a prompt of 512, then 128 tokens one by one
  eutectic bench model.gguf --prompt 512 --generate 128 --threads 2

--ids takes an i64 array [batch seq] without padding. JSON holds `times_ms`, one number an iteration. A CSV file has a row for each \
point of a sweep; with --explain, one for each kernel.";

/// Measures how long a program takes
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub job: CommonArgs,
    #[command(flatten)]
    pub measure: Measure,
    #[command(flatten)]
    pub inputs: InputFiles,
    /// Token ids of a built-in model, i64[batch seq]
    #[arg(long, value_name = "FILE.npy", help_heading = "Inputs")]
    pub ids: Option<PathBuf>,
    /// The file for the first output
    #[arg(long, value_name = "FILE.npy", help_heading = "Results", value_parser = npy::target())]
    pub output: Option<PathBuf>,
    /// The expected first output; shows the largest difference from it
    #[arg(long, value_name = "FILE.npy", help_heading = "Results")]
    pub reference: Option<PathBuf>,
    /// The largest allowed difference from --reference, as a share of its largest number; a larger one is an error
    #[arg(long, value_name = "SHARE", value_parser = tolerance, requires = "reference", help_heading = "Results")]
    pub tol: Option<f64>,
    /// Shows predicted and measured time, GFLOP/s and GB/s of each kernel
    #[arg(long, help_heading = "Results")]
    pub explain: bool,
    /// Writes the plan, with which --plan runs the same kernels without a search
    #[arg(long, value_name = "FILE", help_heading = "Plan")]
    pub save_plan: Option<PathBuf>,
    /// Takes the plan from a file that --save-plan wrote for the same model, rules and backend
    #[arg(long, value_name = "FILE", help_heading = "Plan", conflicts_with = "save_plan")]
    pub plan: Option<PathBuf>,
    /// Also measures the program with these options, in alternation with the command as given, and compares the times;
    /// a first word without a dash is another eutectic binary, which runs in processes; may be repeated
    #[arg(long, value_name = "OPTIONS", help_heading = "Measuring", allow_hyphen_values = true,
          conflicts_with_all = ["sweep", "output", "reference", "explain", "save_plan", "csv"])]
    pub against: Vec<String>,
    /// Writes the times as comma-separated values
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub csv: Option<PathBuf>,
    #[command(flatten)]
    pub language: LanguageArgs,
}

/// The numbers of tokens that a language model (*.gguf) reads and generates.
#[derive(clap::Args)]
#[command(next_help_heading = "Language models (*.gguf)")]
pub struct LanguageArgs {
    /// The number of arbitrary tokens in the prompt [default: 512]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt: Option<u32>,
    /// The number of tokens that are generated after the prompt [default: 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub generate: Option<u32>,
    /// The element type of the keys and values in the cache [default: f16]
    #[arg(long, value_name = "TYPE", value_enum)]
    pub cache: Option<Cache>,
}

impl LanguageArgs {
    /// Returns the names of the options that are given.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let flags = [
            ("--prompt", self.prompt.is_some()),
            ("--generate", self.generate.is_some()),
            ("--cache", self.cache.is_some()),
        ];
        flags.into_iter().filter_map(|(flag, given)| given.then_some(flag))
    }
}

/// The extent of the measurement.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Measuring")]
pub struct Measure {
    /// The number of timed runs [default: 30; 5 for language models]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: Option<u32>,
    /// The number of runs before the timed ones [default: 5; 1 for language models]
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Runs until this time has passed, but at least three times, instead of --iters times
    #[arg(long, value_name = "SECONDS", value_parser = positive, conflicts_with = "iters")]
    pub duration: Option<f64>,
    /// Measures each of some values for threads, batch, seq or a symbolic dimension; several sweeps give all
    /// combinations
    #[arg(long, value_name = "NAME=N,N,…")]
    pub sweep: Vec<Sweep>,
}

impl Measure {
    /// Returns the limits of the measurement. `iters` and `warmup` are the default numbers of runs.
    pub fn runs(&self, iters: u32, warmup: u32) -> Runs {
        let limit = self.duration.map(Duration::from_secs_f64);
        let iters = if limit.is_some() { usize::MAX } else { self.iters.unwrap_or(iters) as usize };
        Runs { iters, warmup: self.warmup.unwrap_or(warmup) as usize, limit }
    }
}

/// The limits of a measurement.
#[derive(Clone, Copy)]
pub struct Runs {
    pub iters: usize,
    pub warmup: usize,
    pub limit: Option<Duration>,
}

impl Runs {
    /// Returns the number of runs for a progress bar, or `None` if the time limits the measurement.
    pub fn shown(&self) -> Option<u64> {
        self.limit.is_none().then(|| (self.warmup + self.iters) as u64)
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|x: &f64| *x > 0.0 && *x <= 1e6);
    number.ok_or("expected a number of seconds, as in 2.5".into())
}

impl Args {
    pub fn runs(&self) -> Runs {
        self.measure.runs(30, 5)
    }

    pub fn given(&self, job: &CommonArgs) -> Result<NamedTensors, Fault> {
        let mut given = self.inputs.read()?;
        if let Some(path) = &self.ids {
            if job.program.builtin().is_none() {
                return Err(input(
                    "--ids is for built-in models",
                    "give the inputs of a graph file with --input NAME=@FILE.npy",
                ));
            }
            given.insert("ids".into(), npy::read(path)?);
        }
        Ok(given)
    }
}
