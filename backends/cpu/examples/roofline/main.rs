//! Compares kernels with their rooflines. It prints the achieved time, the ceiling measured in the same process
//! (multiply-adds in registers, or reading and writing the kernel's bytes), and the prediction of the cost model. An
//! argument selects the kernels whose names contain it.

mod ceilings;
#[path = "../kernels/mod.rs"]
mod kernels;

use std::time::Instant;

use ceilings::{CALLS, Memory, flops_per_second};
use eutectic_backend::Backend;
use eutectic_cpu::{Cpu, CpuOptions, Isa};
use kernels::Single;

/// The number of rounds. Each round measures the kernel and the ceilings. The minimum over all rounds counts, because
/// other processes only add time.
const ROUNDS: usize = 20;
/// The minimal seconds of a measurement.
const TURN: f64 = 0.001;

/// Returns the mean seconds of a call. Repeats it at least [`CALLS`] times and for at least [`TURN`] seconds.
fn turn(mut f: impl FnMut()) -> f64 {
    let (start, mut runs) = (Instant::now(), 0);
    loop {
        f();
        runs += 1;
        let seconds = start.elapsed().as_secs_f64();
        if runs >= CALLS && seconds >= TURN {
            return seconds / f64::from(runs);
        }
    }
}

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    println!("{}; bound: a = arithmetic, m = memory", Isa::detect().name());
    println!(
        "{:30} {:>7} {:>10} {:>10} {:>7} {:>9} {:>9} {:>10}",
        "kernel", "threads", "us", "ceiling", "share", "GFLOP/s", "GB/s", "model us"
    );
    for (name, kernel) in kernels::all().into_iter().filter(|(name, _)| name.contains(&wanted)) {
        for threads in [1, 2] {
            let cpu = Cpu::new(CpuOptions { threads, ..CpuOptions::default() });
            let cost = cpu.cost(&kernel);
            let mut single = Single::new(&cpu, &kernel);
            let mut memory = Memory::new(threads, single.read, single.written);
            let (mut ours, mut traffic, mut rate) = (f64::INFINITY, f64::INFINITY, 0.0_f64);
            (0..2).for_each(|_| single.run());
            for _ in 0..ROUNDS {
                ours = ours.min(turn(|| single.run()));
                traffic = traffic.min(Memory::seconds(&mut memory));
                rate = rate.max(flops_per_second(threads));
            }
            let arithmetic = cost.flops / rate;
            let ceiling = arithmetic.max(traffic);
            println!(
                "{name:30} {threads:7} {:10.2} {:8.2} {} {:5.0} % {:9.1} {:9.1} {:10.2}",
                ours * 1e6,
                ceiling * 1e6,
                if arithmetic > traffic { 'a' } else { 'm' },
                100.0 * ceiling / ours,
                cost.flops / ours / 1e9,
                (single.read + single.written) as f64 / ours / 1e9,
                cost.seconds * 1e6
            );
        }
    }
}
