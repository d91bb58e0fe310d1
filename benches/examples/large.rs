//! Measures how long it takes to optimize large programs: a chain of pointwise ops, many similar outputs, random ops,
//! and chains with an output after each step. In the last kind, a value is part of all later outputs.
//!
//! `cargo run --release -p eutectic-benches --example large`; words select the programs whose names contain one of
//! them.

use std::time::Duration;

use eutectic::{DType, Error, Graph, NodeId, Tensor, Type};
use eutectic_benches::compiler;

const DIMS: &[usize] = &[64, 64];

fn start(name: &str) -> Result<(Graph, NodeId, NodeId), Error> {
    let mut graph = Graph::new(name);
    let x = graph.input("x", Type::tensor(DType::F32, DIMS))?;
    let z = graph.input("z", Type::tensor(DType::F32, DIMS))?;
    Ok((graph, x, z))
}

/// Returns a chain of ops that repeats tanh, times z, sine, plus x.
fn chain(ops: usize) -> Result<Graph, Error> {
    let (mut graph, x, z) = start("chain")?;
    let mut at = x;
    for n in 0..ops {
        at = match n % 4 {
            0 => graph.apply("tanh", &[at], &[]),
            1 => graph.apply("mul", &[at, z], &[]),
            2 => graph.apply("sin", &[at], &[]),
            _ => graph.apply("add", &[at, x], &[]),
        }?;
    }
    graph.output("y", at)?;
    Ok(graph)
}

/// Returns the outputs x·zᵢ + sin x for `count` inputs zᵢ.
fn outputs(count: usize) -> Result<Graph, Error> {
    let (mut graph, x, _) = start("outputs")?;
    for n in 0..count {
        let z = graph.input(&format!("z{n}"), Type::tensor(DType::F32, DIMS))?;
        let (product, sine) = (graph.apply("mul", &[x, z], &[])?, graph.apply("sin", &[x], &[])?);
        let y = graph.apply("add", &[product, sine], &[])?;
        graph.output(&format!("y{n}"), y)?;
    }
    Ok(graph)
}

/// Returns a random graph of pointwise ops, transposes, sums of rows and products.
fn random(ops: usize) -> Result<Graph, Error> {
    let (mut graph, x, z) = start("random")?;
    let (mut values, mut state) = (vec![x, z], 1_u64);
    let mut below = |n: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % n
    };
    for _ in 0..ops {
        let (a, b) = (values[below(values.len())], values[below(values.len())]);
        let value = match below(7) {
            0 => graph.apply("add", &[a, b], &[]),
            1 => graph.apply("mul", &[a, b], &[]),
            2 => graph.apply("exp", &[a], &[]),
            3 => graph.apply("transpose", &[a], &[("perm", [1_i64, 0].as_slice().into())]),
            4 => graph.apply("matmul", &[a, b], &[]),
            _ => {
                let row = graph.apply("reduce-sum", &[a], &[("axes", [-1_i64].as_slice().into())])?;
                let shape: eutectic::Shape = [64_i64, 1].into_iter().map(|n| n as usize).collect();
                let column = graph.apply("reshape", &[row], &[("shape", shape.into())])?;
                graph.apply("add", &[column, b], &[])
            }
        };
        values.push(value?);
    }
    for n in 0..4 {
        graph.output(&format!("y{n}"), values[values.len() - 1 - n])?;
    }
    Ok(graph)
}

/// Returns a chain in which `op` combines the previous value with a further constant, parameter or input. The
/// exponential of each value is an output.
fn prefixes(op: &str, other: &str, count: usize) -> Result<Graph, Error> {
    let (mut graph, mut at, _) = start("prefixes")?;
    for n in 0..count {
        let name = format!("p{n}");
        let with = match other {
            "number" => graph.constant(Tensor::from_f64(DType::F32, &[], [1.0 + (n * 7919 % 1009) as f64 / 1009.0])),
            "param" => graph.param(&name, Type::tensor(DType::F32, DIMS)),
            _ => graph.input(&name, Type::tensor(DType::F32, DIMS)),
        }?;
        at = graph.apply(op, &[at, with], &[])?;
        let y = graph.apply("exp", &[at], &[])?;
        graph.output(&format!("y{n}"), y)?;
    }
    Ok(graph)
}

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let programs = [
        ("chain 500", chain(500)?),
        ("chain 2000", chain(2000)?),
        ("chain 10000", chain(10_000)?),
        ("outputs 125", outputs(125)?),
        ("outputs 500", outputs(500)?),
        ("random 250", random(250)?),
        ("random 1000", random(1000)?),
        ("scales 200", prefixes("mul", "number", 200)?),
        ("scales 400", prefixes("mul", "number", 400)?),
        ("biases 200", prefixes("add", "param", 200)?),
        ("biases 400", prefixes("add", "param", 400)?),
        ("ratios 200", prefixes("div", "input", 200)?),
        ("ratios 400", prefixes("div", "input", 400)?),
    ];
    let compiler = compiler(false);
    println!(
        "{:>12} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "program", "e-nodes", "kernels", "rewrite", "plan", "lower", "work used"
    );
    for (name, graph) in programs.iter().filter(|(name, _)| words.is_empty() || words.iter().any(|w| name.contains(w)))
    {
        let planned = compiler.plan(graph)?;
        let nodes: usize = planned.rewritten.iter().filter_map(|r| r.phases.last()).map(|p| p.nodes).sum();
        let ms = |d: Duration| format!("{:.0} ms", d.as_secs_f64() * 1e3);
        let [rewrite, plan, lower] = [planned.times.rewrite, planned.times.plan, planned.times.lower].map(ms);
        let ended = if planned.blocks.iter().any(|b| b.searched.cut_short) { "all of it" } else { "less" };
        let kernels = planned.lowered.program.run.len();
        println!("{name:>12} {nodes:>8} {kernels:>8} {rewrite:>8} {plan:>8} {lower:>8} {ended:>10}");
    }
    Ok(())
}
