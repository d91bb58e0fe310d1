//! Compares programs with states to the interpreter after each run. States are updated in place, by copies, or by
//! `where`.

use std::collections::BTreeMap;

use eutectic::{Compiler, DType, Graph, Strategy, Tensor};
use eutectic_ir::{
    interp::interpret,
    lang::Source,
    text::{Style, parse, print},
};

use crate::{
    device::Device,
    suite::{Check, checks},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![states_equal_those_of_the_interpreter];

/// For each program: its name, the number of copy kernels in its plan, and its text.
pub const PROGRAMS: &[(&str, usize, &str)] = &[
    ("sum", 0, "(state sum f32[2 3]) (let next (add sum x)) (update sum next) (output y (mul sum x))"),
    ("new value is an output", 1, "(state sum f32[2 3]) (let next (add sum x)) (update sum next) (output y next)"),
    ("old value is an output", 0, "(state last f32[2 3]) (update last (neg x)) (output y (exp last))"),
    ("input", 0, "(state last f32[2 3]) (update last x) (output y (exp last))"),
    (
        "swap in one kernel",
        0,
        "(state a f32[2 3]) (state b f32[2 3]) (update a (add b x)) (update b (sub a x)) (output y (add a b))",
    ),
    (
        "swap",
        1,
        "(state a f32[2 3]) (state b f32[2 3]) (update a (matmul b w)) (update b (matmul (neg a) w)) (output y (add a b))",
    ),
    (
        "one value for two",
        1,
        "(state a f32[2 3]) (state b f32[2 3]) (let n (tanh x)) (update a n) (update b n) (output y (sub a b))",
    ),
    (
        "old and new",
        1,
        "(state a f32[2 3]) (let n (matmul a w)) (update a n) (output y (add (matmul n w) (softmax a :axis -1)))",
    ),
    ("untouched", 0, "(state a f32[2 3]) (output y (add a x))"),
    (
        "row",
        0,
        "(state a f32[4 5 3]) (update a (update-slice a (reshape x :shape [2 1 3]) at :axis -2)) (output y (neg x))",
    ),
    (
        "rows",
        0,
        "(state a f32[5 3]) (let n (update-slice a x at :axis -2)) (update a n) (output y (reduce-sum n :axes [-1] :keep false))",
    ),
    (
        "row as exporters write it",
        0,
        "(state a f32[2 5]) (let c (reduce-sum x :axes [-1] :keep true)) \
         (let n (where (eq (iota [5] -1 i64) at) c a)) (update a n) (output y (softmax n :axis -1))",
    ),
    (
        "two parts",
        0,
        "(state a f32[6 3]) (let n (update-slice (update-slice a x at :axis -2) (neg x) (add at (const i64[] { 2 })) :axis -2)) \
         (update a n) (output y (reduce-max n :axes [-2] :keep false))",
    ),
    (
        "part whose old tensor is read",
        0,
        "(state a f32[5 3]) (let n (update-slice a x at :axis -2)) (update a n) \
         (output y (matmul n (transpose (softmax a :axis -1) :perm [-1 -2])))",
    ),
    (
        "part of what is computed",
        0,
        "(state a f32[5 3]) (let s (softmax a :axis -1)) (let n (update-slice s x at :axis -2)) (update a n) (output y (exp s))",
    ),
    ("part of a parameter", 0, "(state a f32[3 3]) (update a (update-slice w x at :axis -2)) (output y (neg a))"),
];

/// Parses a program, and checks that its printed text gives the same program.
pub fn graph(text: &str) -> Graph {
    let leaves = "(input x f32[2 3]) (input at i64[]) (param w f32[3 3])";
    // `x` has a row for each of two heads, so the cache gets two heads instead of four.
    let text = text.replace("f32[4 5 3]", "f32[2 5 3]");
    let graph = parse(&Source::new("state.graph", format!("(graph \"g\" {leaves} {text})")))
        .unwrap_or_else(|e| panic!("{e:?}"));
    let printed = print(&graph, Style::default());
    assert_eq!(parse(&Source::new("again", printed)).unwrap(), graph);
    graph
}

fn tensor(seed: usize, dims: &[usize]) -> Tensor {
    let count = dims.iter().product::<usize>();
    Tensor::from_f64(DType::F32, dims, (0..count).map(|i| ((i * 37 + seed * 19) % 101) as f64 / 50.0 - 1.0))
}

fn check(name: &str, graph: &Graph, compiler: Compiler, strategy: Strategy) {
    let mut session = compiler.with_strategy(strategy).compile(graph).unwrap_or_else(|e| panic!("{name}: {e}"));
    let w = tensor(7, &[3, 3]);
    session.load_named(|_| Some(w.clone())).unwrap();
    let mut states: BTreeMap<String, Tensor> = graph
        .named("state")
        .map(|(name, id)| {
            (
                name.to_string(),
                Tensor::from_f64(
                    DType::F32,
                    &graph.ty(id).dims().unwrap(),
                    std::iter::repeat_n(0.0, graph.ty(id).count()),
                ),
            )
        })
        .collect();
    for (run, at) in [1, 3, -1, 0, 4, 9, 2].into_iter().enumerate() {
        let inputs = |name: &str| match name {
            "x" => Some(tensor(run, &[2, 3])),
            "at" => Some(Tensor::from_i64(DType::I64, &[], [at])),
            _ => None,
        };
        let given = |name: &str| {
            inputs(name).or_else(|| states.get(name).cloned()).or_else(|| (name == "w").then(|| w.clone()))
        };
        let want = interpret::<f64>(graph, &given).unwrap();
        let got = session.run_named(inputs).unwrap();
        let updated =
            graph.updates().iter().map(|(state, _)| session.state(state).and_then(|port| session.read(port)).unwrap());
        let got: Vec<Tensor> = got.into_iter().chain(updated.collect::<Vec<_>>()).collect();
        assert_eq!(got.len(), want.len());
        for (at, (got, want)) in got.iter().zip(&want).enumerate() {
            let want = want.to_tensor();
            for (got, want) in got.to_f64().iter().zip(want.to_f64()) {
                assert!(
                    (got - want).abs() < 1e-4 * (1.0 + want.abs()),
                    "{name}, {strategy:?}, run {run}, result {at}: {got}, expected {want}"
                );
            }
        }
        let outputs = graph.outputs().len();
        let new: Vec<_> =
            graph.updates().iter().zip(&got[outputs..]).map(|((state, _), new)| (state.clone(), new.clone())).collect();
        states.extend(new);
    }
}

fn states_equal_those_of_the_interpreter(device: &Device) {
    for (name, _, text) in PROGRAMS {
        let graph = graph(text);
        for strategy in [Strategy::Unfused, Strategy::Greedy, Strategy::Local] {
            check(name, &graph, device.compiler(), strategy);
            device.judge();
        }
    }
}
