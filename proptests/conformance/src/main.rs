//! `cargo run --release -p eutectic-conformance -- --backend NAME`: runs all suites on a backend. The binary needs no
//! other file, and no cargo on the machine; models are read from the given folders.

use std::{
    env,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::{Context, ensure};
use clap::Parser;
use eutectic::{BACKENDS, Listed, Setup};
use eutectic_conformance::{
    device::Device,
    suites::{SUITES, Verdict, models, numbers, onnx, verdict},
};

/// Checks that a backend computes programs correctly
///
/// The exit code is 1 if it does not.
#[derive(Parser)]
#[command(name = "conformance")]
struct Args {
    /// The backend
    #[arg(long, value_name = "NAME", value_parser = Listed::named, default_value = BACKENDS[0].name)]
    backend: &'static Listed,
    /// The folder models/golden, with small models and the results of transformers
    #[arg(long, value_name = "DIR")]
    golden: Option<PathBuf>,
    /// The folder of all-MiniLM-L6-v2, as models/scripts/fetch-minilm.sh fetches it
    #[arg(long, value_name = "DIR")]
    minilm: Option<PathBuf>,
    /// The folder of ONNX's node tests, as models/scripts/fetch-onnx-node-tests.sh fetches them
    #[arg(long, value_name = "DIR")]
    onnx: Option<PathBuf>,
    /// Checks that run in parallel, each in its own process [default: one for each processor of the host]; 1: one after
    /// the other, in this process
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Launches each kernel when the one before it has ended, which compute-sanitizer needs
    #[arg(long)]
    serialize_launches: bool,
    /// Runs only checks whose name (suite/check) contains this word; commas separate several words
    #[arg(value_name = "WORD", value_delimiter = ',', default_value = "")]
    words: Vec<String>,
    /// Runs this check alone, by its full name, and prints only its result
    #[arg(long, value_name = "NAME", hide = true)]
    one: Option<String>,
}

/// The name `suite/check` of a check, and the check.
type Named<'a> = (String, Box<dyn Fn(&Device) + 'a>);

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let device = Device::new(vec![
        args.backend.open(&Setup { serialize_launches: args.serialize_launches, ..Setup::default() })?,
    ])?;
    let checks = args.checks();
    ensure!(!checks.is_empty(), "no check has a name that contains {}", args.words.join(" or "));
    if args.one.is_some() {
        let right = checks.into_iter().all(|(name, check)| is_right(&device, name, check));
        return Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    println!("{}: {}", args.backend.name, device.backend().describe());
    let jobs = args.jobs.or(thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let count = checks.len();
    let failed: Vec<String> = if jobs == 1 {
        let wrong = |(name, check): Named<'_>| (!is_right(&device, name.clone(), check)).then_some(name);
        checks.into_iter().filter_map(wrong).collect()
    } else {
        drop(device);
        beside(jobs, checks.into_iter().map(|(name, _)| name).collect())?
    };
    println!("{count} checks, {} failed", failed.len());
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{} fails {}", args.backend.name, failed.join(", "));
    Ok(ExitCode::FAILURE)
}

/// Runs a check, prints its result, and returns whether it passed.
fn is_right(device: &Device, name: String, check: impl FnOnce(&Device)) -> bool {
    let verdict = verdict(name, device, check);
    print(&verdict);
    verdict.failure.is_none()
}

/// Runs each check in its own process, `jobs` at a time, and returns the names of the failed checks. A driver that
/// crashes thus fails only one check. Processes also compile in parallel: within one process, NVRTC uses only four
/// processors for 16 threads.
fn beside(jobs: usize, names: Vec<String>) -> anyhow::Result<Vec<String>> {
    let this = env::current_exe()
        .context("cannot start other processes because the path of this program is unknown; use --jobs 1")?;
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> anyhow::Result<()> {
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut one = Command::new(&this);
            one.args(env::args_os().skip(1)).args(["--one", name]).stdin(Stdio::null());
            let done = one.output().with_context(|| format!("cannot start {}", this.display()))?;
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            print!("{}", String::from_utf8_lossy(&done.stdout));
            if !done.status.success() {
                failed.push(name.clone());
                if done.stdout.is_empty() {
                    println!("FAILED    {name}: its process ended with {}", done.status);
                    print_some(&String::from_utf8_lossy(&done.stderr));
                }
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|w| w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

impl Args {
    /// Returns the requested checks in the reverse order of the suites. The slowest checks are last in the suites, and
    /// must start first.
    fn checks(&self) -> Vec<Named<'_>> {
        type OfFolder = fn(&Device, &Path);
        let of_models: [(&str, OfFolder, &Option<PathBuf>); 7] = [
            ("models/bert", models::bert, &self.golden),
            ("models/sam", models::sam, &self.golden),
            ("models/numbers", numbers::numbers, &self.golden),
            ("models/classical", numbers::classical, &self.golden),
            ("models/microsoft", numbers::microsoft, &self.golden),
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
        let is_wanted = |name: &str| match &self.one {
            Some(one) => name == one,
            None => self.words.iter().any(|word| name.contains(word.as_str())),
        };
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
    let why = why.as_ref().map_or(String::new(), |why| format!(", {refused} refused (reason for the first: {why})"));
    println!("{word}  {name}: {judged} right{why}; {:.1} s", time.as_secs_f64());
    if let Some(failure) = failure {
        print_some(failure);
    }
}

/// Prints the first lines of a text, indented below the result of a check.
fn print_some(text: &str) {
    println!("{}", text.lines().take(12).map(|line| format!("          {line}\n")).collect::<String>());
}
