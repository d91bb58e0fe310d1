//! Checks and measures kernels on a CUDA device.
//!
//! - `device check FIRST LAST`: compares random programs, whose seeds are FIRST..LAST, with the reference.
//! - `device cases [PREFIX]`: compares the cases of the tests with the reference. Of the schedules of products and
//!   attention, it checks those whose names begin with PREFIX.
//! - `device products [WORD [COUNT]]`, and the same for `convolutions` and `attention`: measures the COUNT schedules
//!   with the least expected times, for each case whose name contains WORD.
//! - `device models`: compares encoders with the reference, and measures them.
//! - `device cycles COUNT`: loads and drops programs COUNT times (at least 200), and exhausts the memory.

#[path = "../tests/cases/mod.rs"]
mod cases;

use std::{collections::BTreeMap, time::Instant};

use eutectic::{
    Backend, Compiler, Graph, Strategy, Tensor,
    engine::models::{
        bert::{self, BertConfig, BertOutput},
        nn::Form,
        random::random_weights,
    },
};
use eutectic_checker::run::{check, check_on};
use eutectic_conformance::program::generate;
use eutectic_cuda::{CudaOptions, kernels, on};
use eutectic_gpu::{Gpu, device::Device, measure};
use eutectic_ir::text;
use rayon::prelude::*;

const STRATEGIES: [Strategy; 3] = [Strategy::Local, Strategy::Greedy, Strategy::Unfused];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let word = |n: usize| args.get(n).map_or("", String::as_str);
    let number = |n: usize| args.get(n).and_then(|a| a.parse::<u64>().ok()).unwrap_or(0);
    match args.first().map(String::as_str) {
        Some("check") => check_seeds(number(1), number(2)),
        Some("cases") => check_cases(word(1)),
        Some("products") => measured(cases::products(), word(1), number(2)),
        Some("convolutions") => measured(cases::convolutions(), word(1), number(2)),
        Some("attention") => measured(cases::attentions(), word(1), number(2)),
        Some("models") => models(),
        Some("cycles") => cycles(number(1).max(200)),
        _ => println!(
            "usage: device check FIRST LAST | cases [PREFIX] | products [WORD [COUNT]] | convolutions [WORD [COUNT]] | attention [WORD [COUNT]] | models | cycles COUNT"
        ),
    }
}

fn compiler() -> Compiler {
    let gpu = on(&CudaOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    Compiler::new(gpu).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns whether a program computes the right results. Prints the first difference if not.
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

fn check_cases(prefix: &str) {
    let compiler = compiler();
    let right = cases::SMALL.iter().filter(|case| judge(&compiler, case.0, &cases::graph(**case), 1)).count();
    println!("{right} of {} cases right", cases::SMALL.len());
    check_ways(prefix);
    cases::sessions::check(|| on(&CudaOptions::default()).unwrap_or_else(|e| panic!("{e}")));
    println!("sessions right");
}

/// Checks each schedule of a product whose name begins with `prefix`, and one schedule of each such attention family.
fn check_ways(prefix: &str) {
    let gpu = on(&CudaOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let shape = *gpu.device().shape();
    let mut ways = BTreeMap::new();
    for case in cases::PRODUCTS.iter().chain(cases::ATTENTIONS) {
        let graph = cases::graph(*case);
        let program = compiler().plan(&graph).unwrap_or_else(|e| panic!("{e}")).lowered.program;
        for way in program.kernels.iter().flat_map(|kernel| kernels::ways(&shape, kernel)) {
            // Costs choose among the schedules of one attention family, so one schedule of each family is checked.
            let family = way.name.split(',').next().unwrap_or_default().to_string();
            if !family.starts_with(prefix) {
                continue;
            }
            let of_family = ways.entry(family).or_insert_with(Vec::new);
            if !of_family.iter().any(|(name, _)| *name == case.0) {
                of_family.push((case.0, graph.clone()));
            }
        }
    }
    let check = |(name, graphs): (&String, &Vec<(&str, Graph)>)| {
        let device = on(&CudaOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        let only = cases::only::Only {
            device: device.into_device().expect("no compiled code uses the device"),
            shape,
            name: name.clone(),
        };
        let compiler = Compiler::new(Gpu::new(only)).unwrap_or_else(|e| panic!("{e}"));
        let right =
            graphs.iter().filter(|(case, graph)| judge(&compiler, &format!("{name}: {case}"), graph, 1)).count();
        [right, graphs.len()]
    };
    let counts = ways.par_iter().map(check).reduce(|| [0, 0], |a, b| [a[0] + b[0], a[1] + b[1]]);
    println!("{} of {} products and attentions right, in {} ways", counts[0], counts[1], ways.len());
}

/// The number of schedules per kernel that are measured: those with the least expected time.
const MEASURED: usize = 9;

fn measured(list: Vec<(String, String)>, word: &str, count: u64) {
    let count = if count > 0 { count as usize } else { MEASURED };
    let gpu = on(&CudaOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let compiler = compiler();
    let mut todo = Vec::new();
    for (name, text) in list.into_iter().filter(|(name, _)| name.contains(word)) {
        let planned = compiler.plan(&cases::graph((&name, &text))).unwrap_or_else(|e| panic!("{e}"));
        for kernel in planned.lowered.program.kernels {
            let mut ways = kernels::ways(gpu.device().shape(), &kernel);
            ways.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
            ways.truncate(count);
            todo.extend(ways.into_iter().enumerate().map(|(n, way)| (name.clone(), kernel.clone(), n, way)));
        }
    }
    // Compiles in parallel, and caches the results for the measurements.
    let launches: Vec<_> = todo.iter().flat_map(|(.., way)| way.printed.clone().unwrap_or_default()).collect();
    gpu.device().build(&launches);
    for (name, kernel, n, way) in todo {
        let seconds = way.printed.map_err(|why| eutectic_backend::BackendError::Device(why.join("; ")));
        match seconds.and_then(|launches| measure::of_launches(gpu.device(), &kernel, launches, 5)) {
            Ok(took) => {
                println!("{name:44} {n} {:34} {:9.2} us, expected {:9.2}", way.name, took * 1e6, way.seconds * 1e6);
            }
            Err(why) => println!("{name:44} {n} {}: {why}", way.name),
        }
    }
}

/// Returns the memory of this process that is not mapped from files, in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(0)
}

/// Compiles, loads, runs and drops a program repeatedly, and exhausts the memory once. Panics if memory leaks.
fn cycles(count: u64) {
    let gpu = on(&CudaOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let (graph, values) =
        encoder(&BertConfig { layers: 1, hidden: 384, intermediate: 1536, ..BertConfig::base() }, 1, 32);
    let program = compiler().plan(&graph).unwrap_or_else(|e| panic!("{e}")).lowered.program;
    let params: Vec<Tensor> = program.params.iter().map(|(name, _)| values[name].clone()).collect();
    let inputs: Vec<&[u8]> = program.inputs.iter().map(|(name, _)| values[name].bytes()).collect();
    let run = || -> Result<Vec<Vec<u8>>, eutectic_backend::BackendError> {
        let mut session = gpu.compile(&program)?.load(&params)?.session()?;
        let mut outputs: Vec<Vec<u8>> = program.outputs.iter().map(|(_, ty)| vec![0; ty.bytes()]).collect();
        session.run(&inputs, &mut outputs.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>())?;
        Ok(outputs)
    };
    let want = run().unwrap_or_else(|e| panic!("{e}"));
    let free = || gpu.device().free().unwrap_or_else(|e| panic!("{e}"));
    let mut before = (0, 0);
    for round in 0..count {
        // The first rounds fill memory pools that stay.
        if round == count / 10 {
            before = (free(), resident());
        }
        if round == count / 2 {
            let mut kept =
                gpu.compile(&program).and_then(|e| e.load(&params)?.session()).unwrap_or_else(|e| panic!("{e}"));
            let mut all = Vec::new();
            let refused = loop {
                match kept.buffer(16 << 30, eutectic_backend::Memory::Device) {
                    Ok(buffer) => all.push(buffer),
                    Err(error) => break error,
                }
            };
            println!("{} buffers of 16 GiB, then: {refused}", all.len());
            let mut outputs: Vec<Vec<u8>> = program.outputs.iter().map(|(_, ty)| vec![0; ty.bytes()]).collect();
            let mut slices: Vec<_> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
            kept.run(&inputs, &mut slices).unwrap_or_else(|e| panic!("a session that has its memory: {e}"));
            assert!(outputs == want, "a session while the memory is exhausted");
        }
        assert!(run().unwrap_or_else(|e| panic!("{e}")) == want, "round {round}");
    }
    let after = (free(), resident());
    let gone = (before.0 as i64 - after.0 as i64, after.1 as i64 - before.1 as i64);
    println!("{count} rounds: {} bytes of the device and {} KiB of the host are gone", gone.0, gone.1);
    assert!(gone.0 <= 4 << 20 && gone.1 <= 32 << 10, "memory is lost");
}

/// Inputs and parameters by name.
type Values = BTreeMap<String, Tensor>;

/// Returns an encoder for texts of some length, with random weights and inputs.
fn encoder(config: &BertConfig, batch: usize, sequence: usize) -> (Graph, Values) {
    let graph = bert::graph("encoder", config, Form::Composite, &[BertOutput::LastHiddenState]).expect("a graph");
    let dims = [(bert::BATCH, batch), (bert::SEQUENCE, sequence)].map(|(name, n)| (name.to_string(), n as i64));
    let graph = graph.bind(&dims.into_iter().collect()).expect("dims");
    let mut values = random_weights(&graph, 1);
    values.extend(bert::random_inputs(config, batch, sequence, 1).map(|(name, x)| (name.to_string(), x)));
    (graph, values)
}

fn models() {
    let minilm = BertConfig { hidden: 384, layers: 6, intermediate: 1536, ..BertConfig::base() };
    let (graph, values) = encoder(&BertConfig { layers: 2, ..minilm.clone() }, 2, 24);
    match check_on(&compiler(), &graph, &|name| values.get(name).cloned()) {
        Ok(Ok(())) => println!("two layers of MiniLM: right"),
        Ok(Err(differences)) => println!("two layers of MiniLM: WRONG {:?}", differences[0]),
        Err(error) => println!("two layers of MiniLM: {error}"),
    }
    for (name, config, batch) in
        [("MiniLM", &minilm, 1), ("BERT-base", &BertConfig::base(), 1), ("BERT-base", &BertConfig::base(), 32)]
    {
        let (graph, values) = encoder(config, batch, 128);
        let gpu = on(&CudaOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        let start = Instant::now();
        let program = compiler().plan(&graph).unwrap_or_else(|e| panic!("{e}")).lowered.program;
        let planned = start.elapsed();
        let params: Vec<Tensor> = program.params.iter().map(|(name, _)| values[name].clone()).collect();
        let run = || -> Result<(), eutectic_backend::BackendError> {
            let start = Instant::now();
            let executable = gpu.compile(&program)?;
            let built = start.elapsed();
            let mut session = executable.load(&params)?.session()?;
            for (n, (name, _)) in program.inputs.iter().enumerate() {
                session.write(eutectic_backend::Port::Input(n), 0, values[name].bytes())?;
            }
            let mut times = Vec::new();
            for _ in 0..40 {
                let start = Instant::now();
                session.submit(&vec![true; program.outputs.len()])?;
                session.wait()?;
                times.push(start.elapsed().as_secs_f64());
            }
            times.sort_by(f64::total_cmp);
            println!(
                "{name} {batch}×128 f32: {:.0} us, {} kernels; planned in {planned:.1?}, built in {built:.1?}",
                times[20] * 1e6,
                program.run.len()
            );
            Ok(())
        };
        run().unwrap_or_else(|e| println!("{name}: {e}"));
    }
}
