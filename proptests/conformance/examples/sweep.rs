//! `cargo run --release -p eutectic-conformance --example sweep -- PROGRAMS SEED`: random programs in every way.

use anyhow::{Context, ensure};
use eutectic_conformance::sweep::{Sweep, Way};

/// Programs are at most so long.
const STEPS: [usize; 3] = [4, 8, 14];

fn main() -> anyhow::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|a| a.parse::<u64>().with_context(|| format!("`{a}` is no number")));
    let mut next = || numbers.next().context("usage: sweep PROGRAMS SEED")?;
    let (programs, seed) = (next()?, next()?);
    let sweep = Sweep::new()?;
    let share = (programs as usize).div_ceil(STEPS.len() * Way::ALL.len()) as u32;
    let mut failed = 0;
    for (way, steps) in Way::ALL.into_iter().flat_map(|way| STEPS.map(|steps| (way, steps))) {
        let result = sweep.programs(way, share, steps, seed ^ steps as u64);
        println!("{way:?}, {steps} steps, {share} programs: {}", result.as_ref().map_or("FAILED", |()| "agree"));
        if let Err(failure) = result {
            failed += 1;
            println!("{failure}");
        }
    }
    ensure!(failed == 0, "{failed} of {} sweeps failed", STEPS.len() * Way::ALL.len());
    Ok(())
}
