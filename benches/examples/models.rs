//! Measures models with seeded weights on a backend: planning, building, memory, and a run. `benches/peers/gpu.py
//! models` measures torch.
//!
//! `cargo run --release -p eutectic-benches --example models -- --backend cuda [--precision tf32] [--costs FILE]
//! [WORD…]`. A run reads and writes the device's memory. If the backend's cache of kernels is empty, building includes
//! their compilation; the next process finds them in the cache.

use std::{collections::BTreeMap, fs, time::Instant};

use eutectic::{
    Compiler, DType, Error, Graph, Listed, Setup, Tensor, Type,
    engine::{
        models::{
            BertConfig, BertOutput, Form, bert,
            llama::LlamaConfig,
            sam::{self, Preset},
        },
        rewrites::{Choice, Precision},
    },
    packs,
};

/// The number of timed runs.
const RUNS: usize = 40;
/// The least number of runs before the timed ones.
const WARMUP: usize = 5;
/// The number of kinds of kernels that are listed, the slowest ones first.
const LISTED: usize = 10;

/// Returns a graph for a batch of texts.
fn encoder(config: &BertConfig, batch: i64) -> Result<Graph, Error> {
    let graph = bert::graph("encoder", config, Form::Composite, &[BertOutput::LastHiddenState])?;
    let dims = [(bert::BATCH, batch), (bert::SEQUENCE, 128)].map(|(name, n)| (name.to_string(), n));
    Ok(graph.bind(&BTreeMap::from(dims))?)
}

/// Returns the image encoder of SAM with the sizes of a preset.
fn segmenter(preset: &str) -> Result<Graph, Error> {
    let config = Preset::named(preset).map(Preset::config).ok_or(Error::NoBackend { name: preset.into() })?;
    Ok(sam::encoder(&config, Form::Composite, 1)?)
}

type Make = fn() -> Result<Graph, Error>;

/// The models by name.
const MODELS: &[(&str, Make)] = &[
    ("minilm 1x128", || encoder(&eutectic::engine::models::minilm::config(), 1)),
    ("bert-base 1x128", || encoder(&BertConfig::base(), 1)),
    ("bert-base 32x128", || encoder(&BertConfig::base(), 32)),
    ("sam-vit-b", || segmenter("vit-b")),
    ("sam-vit-h", || segmenter("vit-h")),
    ("llama-1b decode kv1024", || Ok(LlamaConfig::one_billion(1024).step(1024_usize, true)?)),
];

/// Returns values with which activations neither vanish nor overflow. A block of random values is repeated, because
/// random numbers for billions of weights would take long.
fn value(name: &str, ty: &Type) -> Option<Tensor> {
    let (dtype, dims) = (ty.dtype()?, ty.dims()?);
    let count: usize = dims.iter().product();
    let fan_in = dims.iter().rev().nth(1).map_or(1, |&n| n.max(1)) as f64;
    let [middle, spread] = match dims.len() {
        0 | 1 if name.ends_with("weight") || name.ends_with("norm") => [1.0, 0.1],
        0 | 1 => [0.0, 0.1],
        _ => [0.0, (3.0 / fan_in).sqrt()],
    };
    if !dtype.is_float() {
        return Some(Tensor::from_i64(dtype, &dims, vec![1; count]));
    }
    let mut state = name.bytes().fold(1_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut block = Vec::with_capacity(1 << 16);
    for _ in 0..1 << 14 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = middle + spread * ((state >> 40) as f64 / f64::from(1 << 23) - 1.0);
        block.extend_from_slice(&(number as f32).to_le_bytes());
    }
    let mut bytes = Vec::with_capacity(count * 4);
    while bytes.len() < count * 4 {
        let part = block.len().min(count * 4 - bytes.len());
        bytes.extend_from_slice(&block[..part]);
    }
    match dtype {
        DType::F32 => Tensor::new(dtype, &dims, bytes).ok(),
        _ => Some(Tensor::from_f64(dtype, &dims, Tensor::new(DType::F32, &dims, bytes).ok()?.to_f64())),
    }
}

fn run(compiler: &Compiler, name: &str, make: Make) -> Result<(), Error> {
    let graph = make()?;
    let start = Instant::now();
    let planned = compiler.plan(&graph)?;
    let plan = start.elapsed();
    let start = Instant::now();
    let mut session = compiler.build(&planned)?;
    let build = start.elapsed();
    let types: BTreeMap<&str, &Type> = graph.named("param").map(|(name, id)| (name, graph.ty(id))).collect();
    let start = Instant::now();
    session.load_named(|name| value(name, types.get(name)?))?;
    let load = start.elapsed();
    let inputs: Vec<(String, Tensor)> =
        graph.named("input").filter_map(|(name, id)| Some((name.to_string(), value(name, graph.ty(id))?))).collect();
    for (name, tensor) in &inputs {
        let port = session.input(name)?;
        session.write(port, tensor)?;
    }
    let outputs: Vec<String> = session.program().outputs.iter().map(|(name, _)| name.clone()).collect();
    let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
    let mut times = Vec::new();
    let (begin, mut before) = (Instant::now(), 0);
    while times.len() < RUNS {
        let start = Instant::now();
        session.submit(&outputs)?;
        session.wait()?;
        if before < WARMUP || begin.elapsed() < compiler.backend().warm_up() {
            before += 1;
        } else {
            times.push(start.elapsed().as_secs_f64());
        }
    }
    times.sort_by(f64::total_cmp);
    let port = session.output(outputs[0])?;
    let result = session.read(port)?.to_f64();
    let sound = if result.iter().all(|x| x.is_finite()) { "finite" } else { "NOT FINITE" };
    let (loaded, arena) = (session.loaded()?.bytes() >> 20, session.program().arena_bytes >> 20);
    println!(
        "{name:24} {:9.1} us (half of all from {:.1} to {:.1}); planned in {plan:.2?}, built in {build:.2?}, loaded in {load:.2?}; {} kernels, predicted {:.1} us; \
         {loaded} MiB of parameters, {arena} MiB of arena; {sound}",
        times[RUNS / 2] * 1e6,
        times[RUNS / 4] * 1e6,
        times[RUNS * 3 / 4] * 1e6,
        session.program().run.len(),
        planned.seconds() * 1e6,
    );
    let kinds = planned.step_costs().into_iter().zip(&planned.lowered.program.run);
    let inputs: Vec<Tensor> = session
        .program()
        .inputs
        .iter()
        .filter_map(|(name, _)| inputs.iter().find(|(n, _)| n == name).map(|(_, tensor)| tensor.clone()))
        .collect();
    let steps = session.profile(&inputs, 3)?.pop().unwrap_or_default();
    // Kernels are grouped by their description, which is the same in all layers.
    let mut all: BTreeMap<String, (usize, f64, f64, String)> = BTreeMap::new();
    for ((cost, step), seconds) in kinds.zip(&steps) {
        let kernel = &planned.lowered.program.kernels[step.kernel];
        let what = format!("{} {:?}", kernel.kind(), kernel.body.domain);
        let (count, sum, predicted, _) = all.entry(what).or_insert((0, 0.0, 0.0, step.origin.to_string()));
        *count += 1;
        *sum += seconds;
        *predicted += cost.map_or(f64::NAN, |c| c.seconds);
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by(|(_, a), (_, b)| b.1.total_cmp(&a.1));
    for (what, (count, sum, predicted, first)) in all.into_iter().take(LISTED) {
        println!("    {:9.1} us, predicted {:9.1}: {count} x {what}, first {first}", sum * 1e6, predicted * 1e6);
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut option = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.remove(at);
        (at < words.len()).then(|| words.remove(at))
    };
    let listed = Listed::named(&option("--backend").unwrap_or_else(|| "cpu".into()))?;
    let name = option("--precision").unwrap_or_else(|| "f32".into());
    let precision = Precision::ALL.into_iter().find(|p| p.name() == name).unwrap_or_default();
    let costs = option("--costs").map(|file| fs::read_to_string(&file).unwrap_or_else(|e| panic!("{file}: {e}")));
    let backend = listed.open(&Setup { costs, ..Setup::default() })?;
    println!("{}, {}", backend.describe(), precision.name());
    let rules = packs(&*backend)?.choose(&Choice { precision, ..Choice::default() })?;
    let compiler = Compiler::from_arc(backend, rules);
    for (name, make) in MODELS {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            run(&compiler, name, *make).unwrap_or_else(|e| println!("{name}: {e}"));
        }
    }
    Ok(())
}
