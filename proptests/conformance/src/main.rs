//! `cargo run --release -p eutectic-conformance -- --backend NAME`: all suites on a backend. The binary alone is all that it takes, on a
//! machine without cargo; models come from folders that are given.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::ensure;
use clap::Parser;
use eutectic::{BACKENDS, Listed, Setup};
use eutectic_conformance::{
    device::Device,
    suites::{SUITES, Verdict, models, onnx, verdict},
};

/// Checks that a backend computes what programs say
///
/// Exit code 1 if it does not.
#[derive(Parser)]
#[command(name = "conformance")]
struct Args {
    /// The backend
    #[arg(long, value_name = "NAME", value_parser = Listed::named, default_value = BACKENDS[0].name)]
    backend: &'static Listed,
    /// The folder models/golden: small models, run against what transformers computes
    #[arg(long, value_name = "DIR")]
    golden: Option<PathBuf>,
    /// The folder of all-MiniLM-L6-v2, as models/scripts/fetch-minilm.sh fetches it
    #[arg(long, value_name = "DIR")]
    minilm: Option<PathBuf>,
    /// The folder of ONNX's node tests, as models/scripts/fetch-onnx-node-tests.sh fetches them
    #[arg(long, value_name = "DIR")]
    onnx: Option<PathBuf>,
    /// Checks that run beside each other [default: one for each processor of the host]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Kernels are launched one by one, each when the one before it has ended, as compute-sanitizer needs it
    #[arg(long)]
    apart: bool,
    /// Only checks whose name (suite/check) contains this; several are separated by commas
    #[arg(value_name = "WORD", value_delimiter = ',', default_value = "")]
    words: Vec<String>,
}

/// A check by its name.
type Named<'a> = (String, Box<dyn Fn(&Device) + Send + Sync + 'a>);

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let device = Device::new(vec![args.backend.open(&Setup { apart: args.apart, ..Setup::default() })?])?;
    println!("{}: {}", args.backend.name, device.backend().describe());
    let checks = args.checks();
    let jobs = args.jobs.or(thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        let device = device.twin();
        while let Some((name, check)) = checks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let verdict = verdict(name.clone(), &device, check);
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            print(&verdict);
            if verdict.failure.is_some() {
                failed.push(verdict.name);
            }
        }
    };
    thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{} checks, {} failed", checks.len(), failed.len());
    ensure!(failed.is_empty(), "{} fails {}", args.backend.name, failed.join(", "));
    Ok(())
}

impl Args {
    /// Those that were asked for; the ones that take longest come last in the suites, and are started first.
    fn checks(&self) -> Vec<Named<'_>> {
        type OfFolder = fn(&Device, &Path);
        let of_models: [(&str, OfFolder, &Option<PathBuf>); 4] = [
            ("models/bert", models::bert, &self.golden),
            ("models/sam", models::sam, &self.golden),
            ("models/sentences", models::sentences, &self.minilm),
            ("models/onnx", onnx::nodes, &self.onnx),
        ];
        let mut checks: Vec<Named<'_>> = Vec::new();
        for suite in SUITES {
            let named = |(name, check): &(&str, fn(&Device))| -> Named<'_> {
                let check = *check;
                (format!("{}/{name}", suite.name), Box::new(check))
            };
            checks.extend(suite.checks.iter().map(named));
        }
        let is_wanted = |name: &str| self.words.iter().any(|word| name.contains(word.as_str()));
        for (name, check, folder) in of_models {
            match folder {
                Some(folder) => checks.push((name.into(), Box::new(move |device| check(device, folder)))),
                None if is_wanted(name) => println!("left out  {name}: no folder was given"),
                None => {}
            }
        }
        checks.retain(|(name, _)| is_wanted(name));
        checks.reverse();
        checks
    }
}

fn print(verdict: &Verdict) {
    let Verdict { name, failure, judged, refused, why, time } = verdict;
    let word = if failure.is_some() { "FAILED  " } else { "right   " };
    let why = why.as_ref().map_or(String::new(), |why| format!(", {refused} refused, the first because {why}"));
    println!("{word}  {name}: {judged} right{why}; {:.1} s", time.as_secs_f64());
    if let Some(failure) = failure {
        println!("{}", failure.lines().take(12).map(|line| format!("          {line}\n")).collect::<String>());
    }
}
