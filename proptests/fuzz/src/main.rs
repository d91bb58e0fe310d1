//! Reads a given number of damaged files. Files that a reader handles wrongly are written to a folder, and the exit
//! code is 1.

use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
    thread::available_parallelism,
    time::Instant,
};

use clap::Parser;
use eutectic_fuzz::{corpus, fuzz, readers::READERS};

/// The number of executions between two messages.
const TOLD: u64 = 64 * 2000;
/// The maximal number of findings of a reader that are shown.
const SHOWN: usize = 20;

/// Reads damaged files
#[derive(Parser)]
struct Args {
    /// A reader, or `all`
    #[arg(default_value = "all")]
    reader: String,
    /// The number of files that each reader reads
    #[arg(default_value_t = 100_000)]
    executions: u64,
    /// The seed of the damage
    #[arg(default_value_t = 1)]
    seed: u64,
    /// Threads that read [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// The checkout with the files that are damaged
    #[arg(long, value_name = "DIR", default_value = corpus::CHECKOUT)]
    files: PathBuf,
    /// The folder for files that a reader handled wrongly
    #[arg(long, value_name = "DIR", default_value = "target/fuzz")]
    out: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let readers: Vec<_> = READERS.iter().filter(|r| args.reader == "all" || r.name == args.reader).collect();
    if readers.is_empty() {
        let names: Vec<_> = READERS.iter().map(|r| r.name).collect();
        eprintln!("there is no reader `{}`: all, {}", args.reader, names.join(", "));
        return ExitCode::from(2);
    }
    let threads = args.threads.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let (mut executions, mut findings) = (0, 0);
    for reader in readers {
        let start = Instant::now();
        let progress = |done: u64| {
            if done.is_multiple_of(TOLD) {
                println!("{}: {done} after {:.0?}", reader.name, start.elapsed());
            }
        };
        let summary = fuzz(reader, &args.files, args.seed, 0..args.executions, threads, &progress);
        println!(
            "{}: {} executions, {} accepted, {} findings, {:.1?}",
            reader.name,
            summary.executions,
            summary.accepted,
            summary.findings.len(),
            start.elapsed()
        );
        for finding in summary.findings.iter().take(SHOWN) {
            let path = args.out.join(format!("{}-{}-{}", reader.name, args.seed, finding.execution));
            let written = written(&args.out, &path, &finding.bytes);
            println!("  {}{written}: {}", path.display(), finding.what);
        }
        executions += summary.executions;
        findings += summary.findings.len();
    }
    println!("{executions} executions, {findings} findings");
    ExitCode::from(u8::from(findings > 0))
}

fn written(folder: &Path, path: &Path, bytes: &[u8]) -> &'static str {
    let result = fs::create_dir_all(folder).and_then(|()| fs::write(path, bytes));
    if result.is_ok() { "" } else { " (not written)" }
}
