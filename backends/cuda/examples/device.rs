//! `device check FIRST LAST`: random programs and cases on the device against the reference, by seeds. `device time`: kernels beside the
//! device's ceilings.

#[path = "../tests/cases/mod.rs"]
mod cases;

use eutectic::{Backend, Compiler, Graph, Strategy};
use eutectic_checker::run::check;
use eutectic_conformance::program::generate;
use eutectic_cuda::{CudaOptions, on};
use eutectic_gpu::measure;
use eutectic_ir::text;

const STRATEGIES: [Strategy; 3] = [Strategy::Local, Strategy::Greedy, Strategy::Unfused];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize| args.get(n).and_then(|a| a.parse::<u64>().ok()).unwrap_or(0);
    match args.first().map(String::as_str) {
        Some("check") => check_seeds(number(1), number(2)),
        Some("cases") => check_cases(),
        Some("time") => time(),
        _ => println!("usage: device check FIRST LAST | cases | time"),
    }
}

fn compiler() -> Compiler {
    let gpu = on(&CudaOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    Compiler::new(gpu).unwrap_or_else(|e| panic!("{e}"))
}

/// Whether a program computes what it should; prints what it does not.
fn judge(compiler: &Compiler, name: &str, graph: &Graph, seed: u64) -> bool {
    let what = match check(compiler, graph, seed) {
        Ok(Ok(())) => return true,
        Ok(Err(differences)) => format!("{:?}", &differences[0]),
        Err(error) => error.to_string(),
    };
    println!("WRONG {name}: {what}\n{}", text::print(graph, text::Style::default()));
    false
}

fn check_seeds(first: u64, last: u64) {
    let compiler = compiler();
    let mut right = 0;
    for seed in first..last {
        let mut random = fastrand::Rng::with_seed(seed);
        let decisions: Vec<u16> = (0..random.usize(8..100)).map(|_| random.u16(..)).collect();
        let graph = generate(&decisions);
        let compiler = compiler.clone().with_strategy(STRATEGIES[(seed % 3) as usize]);
        right += u32::from(judge(&compiler, &format!("seed {seed}"), &graph, seed));
    }
    println!("{first}..{last}: {right} right");
}

fn check_cases() {
    let compiler = compiler();
    let right = cases::SMALL.iter().filter(|case| judge(&compiler, case.0, &cases::graph(**case), 1)).count();
    println!("{right} of {} cases right", cases::SMALL.len());
    cases::sessions::check(|| open(&CudaOptions::default()).unwrap_or_else(|e| panic!("{e}")));
    println!("sessions right");
}

fn time() {
    let gpu = on(&CudaOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    println!("{}", gpu.describe());
    let compiler = compiler();
    for case in cases::LARGE {
        let planned = compiler.plan(&cases::graph(*case)).unwrap_or_else(|e| panic!("{e}"));
        let costs = planned.step_costs();
        let (mut seconds, mut bytes, mut flops) = (0.0, 0.0, 0.0);
        let mut kinds = Vec::new();
        for (step, cost) in planned.lowered.program.run.iter().zip(costs) {
            let kernel = &planned.lowered.program.kernels[step.kernel];
            let took = measure::seconds(gpu.device(), kernel, 5).unwrap_or_else(|e| {
                println!("{}: {e}", case.0);
                f64::NAN
            });
            seconds += took;
            kinds.push(format!("{} {:.1}", kernel.kind(), took * 1e6));
            if let Some(cost) = cost {
                bytes += cost.bytes;
                flops += cost.flops;
            }
        }
        println!(
            "{:36} {:9.2} us {:8.0} GB/s {:8.1} TFLOP/s  predicted {:8.2} us  [{}]",
            case.0,
            seconds * 1e6,
            bytes / seconds * 1e-9,
            flops / seconds * 1e-12,
            planned.seconds() * 1e6,
            kinds.join(", ")
        );
    }
}
