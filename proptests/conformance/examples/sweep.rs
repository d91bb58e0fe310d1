//! Compiles random programs in every way, and compares their results with the interpreter's:
//! `cargo run --release -p eutectic-conformance --example sweep -- PROGRAMS SEED [BACKEND]`.

use anyhow::{Context, ensure};
use eutectic::{BACKENDS, Listed, Setup};
use eutectic_conformance::{
    device::Device,
    sweep::{Sweep, Way},
};

/// The approximate maximal numbers of ops of a program, one for each sweep.
const STEPS: [usize; 3] = [4, 8, 14];

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| {
        let text = args.get(at).context("usage: sweep PROGRAMS SEED [BACKEND]")?;
        text.parse::<u64>().with_context(|| format!("cannot read `{text}` as a number"))
    };
    let (programs, seed) = (number(0)?, number(1)?);
    let listed = args.get(2).map_or(Ok(&BACKENDS[0]), |name| Listed::named(name))?;
    let device = Device::new(vec![listed.open(&Setup::default())?])?;
    let sweep = Sweep::new(&device);
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
