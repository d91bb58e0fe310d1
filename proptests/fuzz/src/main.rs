//! Reads damaged files for as long as it is asked to: `eutectic-fuzz READER|all EXECUTIONS [SEED]`. Files that were not taken as they
//! should are written to `target/fuzz/`, and the exit code is 1.

use std::{env, fs, process::ExitCode, time::Instant};

use eutectic_fuzz::{fuzz, readers::READERS};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let wanted = args.first().map_or("all", String::as_str);
    let number = |at: usize, or: u64| args.get(at).and_then(|n| n.parse().ok()).unwrap_or(or);
    let (executions, seed) = (number(1, 100_000), number(2, 1));
    let readers: Vec<_> = READERS.iter().filter(|r| wanted == "all" || r.name == wanted).collect();
    if readers.is_empty() {
        let names: Vec<_> = READERS.iter().map(|r| r.name).collect();
        eprintln!("there is no reader `{wanted}`: all, {}", names.join(", "));
        return ExitCode::from(2);
    }
    let mut failed = false;
    for reader in readers {
        let start = Instant::now();
        let mut progress = |done: u64| {
            if done.is_multiple_of(50_000) {
                println!("{}: {done} after {:.0?}", reader.name, start.elapsed());
            }
        };
        let summary = fuzz(reader, seed, 0..executions, &mut progress);
        println!(
            "{}: {} executions, {} accepted, {} findings, {:.1?}",
            reader.name,
            summary.executions,
            summary.accepted,
            summary.findings.len(),
            start.elapsed()
        );
        for finding in summary.findings.iter().take(20) {
            let path = format!("target/fuzz/{}-{seed}-{}", reader.name, finding.execution);
            let written = fs::create_dir_all("target/fuzz").and_then(|()| fs::write(&path, &finding.bytes));
            println!("  {path}{}: {}", if written.is_ok() { "" } else { " (not written)" }, finding.what);
        }
        failed |= !summary.findings.is_empty();
    }
    ExitCode::from(u8::from(failed))
}
