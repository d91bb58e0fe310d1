//! `cargo run --release -p eutectic-proptests --example sweep -- PROGRAMS SEED`: random programs in every way.

use std::process::ExitCode;

use eutectic_proptests::sweep::{Way, sweep};

/// Programs are at most so long.
const STEPS: [usize; 3] = [4, 8, 14];

fn main() -> ExitCode {
    let numbers: Option<Vec<u64>> = std::env::args().skip(1).map(|a| a.parse().ok()).collect();
    let Some(&[programs, seed]) = numbers.as_deref() else {
        eprintln!("usage: sweep PROGRAMS SEED");
        return ExitCode::from(2);
    };
    let mut failed = false;
    for way in Way::ALL {
        for steps in STEPS {
            let share = (programs as usize / STEPS.len() / Way::ALL.len()).max(1) as u32;
            let result = sweep(way, share, steps, seed ^ steps as u64);
            println!("{way:?}, {steps} steps, {share} programs: {}", result.as_ref().map_or("FAILED", |()| "agree"));
            if let Err(failure) = result {
                failed = true;
                println!("{failure}");
            }
        }
    }
    ExitCode::from(u8::from(failed))
}
