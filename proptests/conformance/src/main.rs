//! `cargo run --release -p eutectic-conformance -- --backend NAME`: all suites on a backend. The binary alone is all that it takes, on a
//! machine without cargo; models come from folders that are given.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Parser;
use eutectic::{BACKENDS, Listed, Setup};
use eutectic_conformance::{
    device::Device,
    suites::{SUITES, Verdict, models, verdict},
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
    /// Only checks whose name (suite/check) contains this
    #[arg(value_name = "WORD", default_value = "")]
    word: String,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let device = Device::new(vec![args.backend.open(&Setup::default())?])?;
    println!("{}: {}", args.backend.name, device.backend().describe());
    let (mut all, mut failed) = (0, Vec::new());
    let mut show = |verdict: Verdict| {
        all += 1;
        print(&verdict);
        if verdict.failure.is_some() {
            failed.push(verdict.name);
        }
    };
    for suite in SUITES {
        suite.run(&device, &args.word).for_each(&mut show);
    }
    type Check = fn(&Device, &Path);
    let of_models: [(&str, Check, &Option<PathBuf>); 3] = [
        ("models/bert", models::bert, &args.golden),
        ("models/sam", models::sam, &args.golden),
        ("models/sentences", models::sentences, &args.minilm),
    ];
    for (name, check, folder) in of_models.into_iter().filter(|(name, ..)| name.contains(&args.word)) {
        match folder {
            Some(folder) => show(verdict(name.into(), &device, || check(&device, folder))),
            None => println!("left out  {name}: no folder was given"),
        }
    }
    println!("{all} checks, {} failed", failed.len());
    ensure!(failed.is_empty(), "{} fails {}", args.backend.name, failed.join(", "));
    Ok(())
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
