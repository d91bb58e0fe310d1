//! Programs with loops, compiled and run, compared with the reference interpreter. Their plans are shared.

use std::{collections::BTreeMap, sync::Arc};

use eutectic::{Compiler, Cpu, CpuOptions, Graph, Tensor};
use eutectic_backend::{Backend, BackendError, Cost, Executable, Kernel, Limits, Program};
use eutectic_ir::{Attr, DType, NodeId, Type, graph::SubGraph, interpret};

const F: DType = DType::F32;

fn cpu() -> Cpu {
    Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() })
}

fn compiler() -> Compiler {
    Compiler::new(cpu()).expect("the rules load")
}

fn input(g: &mut Graph, name: &str, dims: &[usize]) -> NodeId {
    g.input(name, Type::tensor(F, dims)).unwrap()
}

fn repeat(g: &mut Graph, body: Graph, times: usize, [carried, scanned]: [i64; 2], given: &[NodeId]) -> Vec<NodeId> {
    let count = body.outputs().len() as i64;
    let attrs = [
        ("body", Attr::Graph(SubGraph::from(body))),
        ("times", (times as i64).into()),
        ("carried", carried.into()),
        ("scanned", scanned.into()),
    ];
    let all = g.apply("loop", given, &attrs).unwrap();
    (0..count).map(|at| g.get(all, at).unwrap()).collect()
}

/// Returns the body h' = tanh(x + h·r), which collects h' − h.
fn step(rows: usize, width: usize) -> Graph {
    let mut g = Graph::new("step");
    let (h, x, r) =
        (input(&mut g, "h", &[rows, width]), input(&mut g, "x", &[rows, width]), input(&mut g, "r", &[width, width]));
    let product = g.matmul(h, r).unwrap();
    let sum = g.add(x, product).unwrap();
    let next = g.tanh(sum).unwrap();
    let change = g.sub(next, h).unwrap();
    g.output("next", next).unwrap();
    g.output("change", change).unwrap();
    g
}

fn noise(dims: &[usize], seed: usize) -> Tensor {
    let count: usize = dims.iter().product();
    let value = |i: usize| (((i * 7919 + seed * 104_729) % 1000) as f64 / 500.0 - 1.0) * 0.7;
    Tensor::from_f64(F, dims, (0..count).map(value))
}

/// Returns values for all inputs, parameters and states.
fn given(graph: &Graph) -> BTreeMap<String, Tensor> {
    let leaves = ["input", "param", "state"].into_iter().flat_map(|kind| graph.named(kind).collect::<Vec<_>>());
    let value =
        |(seed, (name, id)): (usize, (&str, NodeId))| (name.to_string(), noise(&graph.ty(id).dims().unwrap(), seed));
    leaves.enumerate().map(value).collect()
}

/// Compiles and runs a graph, and compares all outputs with the reference in f64.
fn agrees(graph: &Graph) {
    agrees_by(&compiler(), graph);
}

fn agrees_by(compiler: &Compiler, graph: &Graph) {
    assert!(graph.verify().is_ok());
    let mut session = compiler.compile(graph).unwrap_or_else(|e| panic!("{}: {e}", graph.name));
    let values = given(graph);
    session.load_named(|name| values.get(name).cloned()).unwrap();
    // Run twice, because a run must not affect the next one.
    for _ in 0..2 {
        let got = session.run_named(|name| values.get(name).cloned()).unwrap();
        let want = interpret::<f64>(graph, &|name| values.get(name).cloned()).unwrap();
        for ((name, _), (got, want)) in graph.outputs().iter().zip(got.iter().zip(&want)) {
            assert_eq!(got.ty(), want.ty(), "{}: {name}", graph.name);
            let pairs = got.to_f64().into_iter().zip(want.to_tensor().to_f64());
            let far = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(far < 1e-5, "{}: {name}: {far:e}", graph.name);
        }
    }
}

/// Returns a loop over x [times rows width]. It contains a product, a result that is read later, and outputs that
/// depend on it.
fn sequence(times: usize, rows: usize, width: usize) -> Graph {
    let mut g = Graph::new(format!("sequence of {times} times {rows}×{width}"));
    let x = input(&mut g, "x", &[times, rows, width]);
    let w = g.param("w", Type::tensor(F, &[width, width])).unwrap();
    let r = g.param("r", Type::tensor(F, &[width, width])).unwrap();
    let projected = g.matmul(x, w).unwrap();
    let zero = g.scalar(0.0, x).unwrap();
    let start = g.expand(zero, [rows, width].into_iter().collect()).unwrap();
    // A constant expression that only the body uses.
    let turned = g.transpose(r, &[1, 0]).unwrap();
    let results = repeat(&mut g, step(rows, width), times, [1, 1], &[start, projected, turned]);
    let sum = g.reduce_sum(results[1], &[0], false).unwrap();
    let both = g.add(sum, results[0]).unwrap();
    g.output("last", results[0]).unwrap();
    g.output("changes", results[1]).unwrap();
    g.output("both", both).unwrap();
    g
}

#[test]
fn sequences_of_any_length_and_width() {
    for (times, rows, width) in [(0, 2, 3), (1, 1, 1), (5, 1, 7), (7, 3, 8), (33, 2, 17)] {
        agrees(&sequence(times, rows, width));
    }
}

#[test]
fn results_feed_loops_that_follow() {
    let mut g = Graph::new("two loops");
    let (rows, width) = (2, 5);
    let x = input(&mut g, "x", &[4, rows, width]);
    let start = input(&mut g, "start", &[rows, width]);
    // Weights that are computed at run time.
    let r = input(&mut g, "r", &[width, width]);
    let r = g.sin(r).unwrap();
    let first = repeat(&mut g, step(rows, width), 4, [1, 1], &[start, x, r]);
    let back = g
        .apply("slice", &[first[1]], &[("axis", 0.into()), ("at", 3.into()), ("len", 4.into()), ("step", (-1).into())])
        .unwrap();
    let second = repeat(&mut g, step(rows, width), 4, [1, 1], &[first[0], back, r]);
    // These loops scan a parameter, and a result of the first loop. The first loop scans an input.
    let p = g.param("p", Type::tensor(F, &[4, rows, width])).unwrap();
    let third = repeat(&mut g, step(rows, width), 4, [1, 1], &[start, p, r]);
    let fourth = repeat(&mut g, step(rows, width), 4, [1, 1], &[second[0], first[1], r]);
    for (name, value) in [("a", first[0]), ("b", second[1]), ("c", third[0]), ("d", fourth[1]), ("x", x), ("p", p)] {
        g.output(name, value).unwrap();
    }
    agrees(&g);
}

#[test]
fn what_stays_the_same_may_be_constant_or_not() {
    let (rows, width) = (2, 3);
    let mut body = Graph::new("mixed");
    let h = input(&mut body, "h", &[rows, width]);
    let x = input(&mut body, "x", &[rows, width]);
    let r = input(&mut body, "r", &[width, width]);
    let limit = input(&mut body, "limit", &[]);
    let bias = input(&mut body, "bias", &[width]);
    let shift = input(&mut body, "shift", &[rows, width]);
    let product = body.matmul(h, r).unwrap();
    let sum = body.add(x, product).unwrap();
    let biased = body.add(sum, bias).unwrap();
    let next = body.tanh(biased).unwrap();
    let scaled = body.mul(next, limit).unwrap();
    let shifted = body.sub(scaled, shift).unwrap();
    body.output("h", next).unwrap();
    body.output("y", shifted).unwrap();
    let mut g = Graph::new("constants and values");
    let start = input(&mut g, "start", &[rows, width]);
    let x = input(&mut g, "x", &[5, rows, width]);
    let r = g.param("r", Type::tensor(F, &[width, width])).unwrap();
    let limit = input(&mut g, "limit", &[]);
    let bias = g.param("bias", Type::tensor(F, &[width])).unwrap();
    let shift = g.sin(start).unwrap();
    let results = repeat(&mut g, body, 5, [1, 1], &[start, x, r, limit, bias, shift]);
    g.output("last", results[0]).unwrap();
    g.output("all", results[1]).unwrap();
    agrees(&g);
}

/// Returns the body (a, b) → (b, a + b), whose two carried values exchange places.
fn exchange(width: usize) -> Graph {
    let mut g = Graph::new("exchange");
    let (a, b) = (input(&mut g, "a", &[width]), input(&mut g, "b", &[width]));
    let sum = g.add(a, b).unwrap();
    g.output("a", b).unwrap();
    g.output("b", sum).unwrap();
    g.output("seen", a).unwrap();
    g
}

#[test]
fn carried_values_exchange_places() {
    let mut g = Graph::new("exchange");
    let (a, b) = (input(&mut g, "a", &[3]), input(&mut g, "b", &[3]));
    let results = repeat(&mut g, exchange(3), 6, [2, 0], &[a, b]);
    for (at, value) in results.iter().enumerate() {
        g.output(&format!("out{at}"), *value).unwrap();
    }
    // Both carried values start with the same value.
    let again = repeat(&mut g, exchange(3), 3, [2, 0], &[a, a]);
    g.output("again", again[1]).unwrap();
    agrees(&g);
}

#[test]
fn loops_run_in_loops() {
    let (rows, width) = (2, 3);
    let mut outer = Graph::new("outer");
    let h = input(&mut outer, "h", &[rows, width]);
    let x = input(&mut outer, "x", &[4, rows, width]);
    let r = input(&mut outer, "r", &[width, width]);
    let inner = repeat(&mut outer, step(rows, width), 4, [1, 1], &[h, x, r]);
    let mean = outer.reduce_mean(inner[1], &[0], false).unwrap();
    outer.output("h", inner[0]).unwrap();
    outer.output("mean", mean).unwrap();
    let mut g = Graph::new("nested");
    let start = input(&mut g, "start", &[rows, width]);
    let x = input(&mut g, "x", &[3, 4, rows, width]);
    let r = g.param("r", Type::tensor(F, &[width, width])).unwrap();
    let results = repeat(&mut g, outer, 3, [1, 1], &[start, x, r]);
    g.output("last", results[0]).unwrap();
    g.output("means", results[1]).unwrap();
    agrees(&g);
}

#[test]
fn a_state_is_read_by_all_stages_before_it_changes() {
    let mut g = Graph::new("state");
    let s = g.state("s", Type::tensor(F, &[2, 3])).unwrap();
    let x = input(&mut g, "x", &[4, 2, 3]);
    let r = g.param("r", Type::tensor(F, &[3, 3])).unwrap();
    let doubled = g.add(s, s).unwrap();
    let results = repeat(&mut g, step(2, 3), 4, [1, 1], &[s, x, r]);
    let after = g.add(results[0], s).unwrap();
    g.output("after", after).unwrap();
    g.update("s", doubled).unwrap();
    let mut session = compiler().compile(&g).unwrap();
    let mut values = given(&g);
    session.load_named(|name| values.get(name).cloned()).unwrap();
    values.insert("s".into(), Tensor::from_f64(F, &[2, 3], [0.0; 6]));
    for _ in 0..2 {
        let got = session.run_named(|name| values.get(name).cloned()).unwrap();
        let want = interpret::<f64>(&g, &|name| values.get(name).cloned()).unwrap();
        let far = got[0].to_f64().into_iter().zip(want[0].to_tensor().to_f64()).map(|(a, b)| (a - b).abs());
        assert!(far.fold(0.0, f64::max) < 1e-5);
        values.insert("s".into(), want[1].to_tensor());
    }
}

#[test]
fn a_body_is_planned_once_and_its_weights_are_prepared_once() {
    let compiler = compiler();
    let planned = |times| compiler.plan(&sequence(times, 2, 16)).unwrap();
    let (few, many) = (planned(3), planned(300));
    let (few, many) = (&few.lowered.program, &many.lowered.program);
    // The kernels differ only in the shapes of whole sequences.
    assert_eq!(few.kernels.len(), many.kernels.len());
    assert_eq!(few.load.len(), many.load.len());
    let per_step = (many.run.len() - few.run.len()) / 297;
    assert!((1..=2).contains(&per_step), "{per_step} kernels a time");
    assert!(many.problems().is_empty(), "{:?}", many.problems());
}

/// Returns the body h' = tanh(x + h·r), which is carried and collected. If `change`, h' − h is also collected.
fn collected(times: usize, rows: usize, width: usize, change: bool) -> Graph {
    let mut body = Graph::new("collected");
    let [h, x] = ["h", "x"].map(|name| input(&mut body, name, &[rows, width]));
    let r = input(&mut body, "r", &[width, width]);
    let product = body.matmul(h, r).unwrap();
    let sum = body.add(x, product).unwrap();
    let next = body.tanh(sum).unwrap();
    body.output("next", next).unwrap();
    body.output("kept", next).unwrap();
    if change {
        let change = body.sub(next, h).unwrap();
        body.output("change", change).unwrap();
    }
    let mut g = Graph::new(format!("collected {times} times {rows}×{width}"));
    let x = input(&mut g, "x", &[times, rows, width]);
    let start = input(&mut g, "start", &[rows, width]);
    let r = g.param("r", Type::tensor(F, &[width, width])).unwrap();
    for (at, result) in repeat(&mut g, body, times, [1, 1], &[start, x, r]).into_iter().enumerate() {
        g.output(&format!("y{at}"), result).unwrap();
    }
    g
}

#[test]
fn what_is_carried_is_read_where_it_was_collected() {
    for (times, rows, width) in [(0, 2, 3), (1, 1, 5), (2, 1, 16), (9, 3, 7)] {
        agrees(&collected(times, rows, width, false));
        agrees(&collected(times, rows, width, true));
    }
    let planned = |times| compiler().plan(&collected(times, 1, 16, false)).unwrap().lowered.program;
    let (few, many) = (planned(3), planned(300));
    assert_eq!((many.run.len() - few.run.len()) / 297, 1, "a kernel a time, and no copy");
    assert!(many.problems().is_empty(), "{:?}", many.problems());
}

#[test]
fn too_many_steps_are_refused() {
    let error = compiler().plan(&sequence(200_000, 1, 2)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("a program has at most 262144 steps"), "{error}");
}

/// The CPU backend with a requirement: buffers must be aligned to cache lines.
struct Aligned(Cpu);

impl Backend for Aligned {
    fn name(&self) -> &str {
        "aligned"
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn limits(&self) -> Limits {
        Limits { any_part: false, ..self.0.limits() }
    }

    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>> {
        self.0.supports(kernel)
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        self.0.cost(kernel)
    }

    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        self.0.compile(program)
    }
}

#[test]
fn parts_start_where_buffers_of_the_device_may() {
    let compiler = Compiler::new(Aligned(cpu())).unwrap();
    for (times, rows, width) in [(0, 2, 3), (1, 1, 5), (4, 1, 16), (9, 3, 7)] {
        for graph in [sequence(times, rows, width), collected(times, rows, width, true)] {
            agrees_by(&compiler, &graph);
            let program = compiler.plan(&graph).unwrap().lowered.program;
            assert!(program.problems().is_empty(), "{:?}", program.problems());
            let mut starts = program.parts.iter().map(|(part, of)| of.at * program.buffers[*part].dtype.size());
            assert!(starts.all(|start| start % 64 == 0), "{program:?}");
        }
    }
}
