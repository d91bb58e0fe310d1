//! Tests programs with run-time extents. At every length, the results are those of a program compiled for that length,
//! and nothing beyond the length is read.

use std::collections::BTreeMap;

use eutectic::{Compiler, DType, Graph, Session, Strategy, Tensor, Type};
use eutectic_ir::{lang::Source, text::parse};

use crate::{
    device::Device,
    naive::Naive,
    suite::{Check, checks},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![unfused, greedy, local];

/// The maximal lengths of S and T.
pub const MOST: [i64; 2] = [9, 6];

/// Names and programs. The inputs are `x f32[S 4]`, `y f32[2 S 4]`, `z f32[T 4]` and `ids i64[S]`, and the parameters
/// `w f32[4 6]` and `p f32[16 4]`.
const PROGRAMS: &[(&str, &str)] = &[
    ("pointwise", "(output o (exp (neg x)))"),
    ("broadcast", "(output o (add y x))"),
    ("inner axis", "(output o (transpose y :perm [-3 -1 -2]))"),
    ("sum of rows", "(output o (reduce-sum x :axes [-2] :keep false))"),
    ("sum of both", "(output o (reduce-sum y :axes [-2 -1] :keep true))"),
    ("largest", "(output o (reduce-max y :axes [-2] :keep false))"),
    (
        "extrema of narrow integers",
        "(let n (cast y :to i8)) (output o (reduce-max n :axes [-2] :keep false)) (output p (reduce-min n :axes [-2] :keep false))",
    ),
    (
        "extrema of wide integers",
        "(let n (cast y :to i64)) (output o (reduce-max n :axes [-2] :keep false)) (output p (reduce-min n :axes [-2] :keep false))",
    ),
    ("product of integers", "(output o (reduce-prod (cast y :to i32) :axes [-2] :keep false))"),
    ("softmax within", "(output o (softmax x :axis -1))"),
    ("softmax along", "(output o (softmax y :axis -2))"),
    ("layer norm", "(param g f32[4]) (param b f32[4]) (output o (layernorm y g b :eps 1e-5))"),
    ("scan within", "(output o (scan-sum x))"),
    ("scan along", "(output o (scan-sum y :axis -2)) (output p (scan-max y :axis -2 :reverse true))"),
    ("recurrence", "(output o (scan-linear (tanh y) y :axis -2))"),
    ("recurrence from the end", "(output o (scan-linear (tanh y) y :axis -2 :reverse true :exclusive true))"),
    ("order within", "(output o (ranking x :most 3 :descending false))"),
    ("order along", "(output o (ranking (transpose y :perm [-3 -1 -2]) :most 9 :descending true))"),
    (
        "written by ids",
        "(let i (expand (reshape ids :shape [1 S 1]) :shape [1 S 4])) \
         (output o (scatter (reshape p :shape [1 16 4]) (reshape x :shape [1 S 4]) i))",
    ),
    ("linear", "(param b f32[6]) (output o (linear x w b :act gelu-erf))"),
    ("linear of several", "(param b f32[6]) (output o (linear y w b :act relu))"),
    ("depth", "(output o (matmul (transpose x :perm [-1 -2]) x))"),
    ("columns", "(output o (matmul z (transpose x :perm [-1 -2])))"),
    ("batches", "(output o (matmul (transpose y :perm [-2 -3 -1]) w))"),
    ("attention", "(output o (sdpa y y y :scale 0.5 :mask none))"),
    (
        "cross attention",
        "(let k (reshape x :shape [1 S 4])) (output o (sdpa (reshape z :shape [1 T 4]) k k :scale 0.5 :mask none))",
    ),
    ("causal attention", "(output o (sdpa y y y :scale 0.5 :mask causal))"),
    ("attention by primitives", "(output o (matmul (softmax (matmul z (transpose x :perm [-1 -2])) :axis -1) x))"),
    ("heads", "(output o (reshape (transpose (reshape x :shape [S 2 2]) :perm [-2 -3 -1]) :shape [2 S 2]))"),
    ("merged", "(output o (reshape (transpose (reshape x :shape [S 2 2]) :perm [-2 -3 -1]) :shape [2 (* 2 S)]))"),
    ("pad", "(output o (pad x :axis -2 :before 1 :after 2 :value 0.5))"),
    ("concat", "(output o (concat x z :axis -2))"),
    ("concat of sums", "(output o (reduce-sum (concat x (exp z) :axis -2) :axes [-2] :keep false))"),
    ("gather by ids", "(output o (gather p ids :axis 0))"),
    ("gather from", "(output o (gather x (const i64[3] { 0 0 0 }) :axis 0))"),
    ("positions", "(output o (add x (gather p (iota [S] -1 i64) :axis 0)))"),
    ("mask of positions", "(output o (where (lt (iota [S 1] -2 i64) (const i64[] { 3 })) x (neg x)))"),
    ("beside a fixed axis", "(input f f32[9 4]) (output o (matmul f (transpose x :perm [-1 -2])))"),
    ("two outputs", "(let n (softmax x :axis -1)) (output o n) (output s (reduce-sum n :axes [-2] :keep false))"),
    ("output twice", "(let n (neg x)) (output o n) (output again n)"),
    (
        "block",
        "(param b f32[6]) (param v f32[6 4]) (let n (softmax x :axis -1)) \
         (output o (add x (matmul (act (add (matmul n w) b) :kind silu) v)))",
    ),
];

const INPUTS: &str = "(input x f32[S 4]) (input y f32[2 S 4]) (input z f32[T 4]) (input ids i64[S]) (param w f32[4 6]) (param p f32[16 4])";

/// Parses a program.
///
/// # Panics
/// If the text is not valid.
pub fn graph(text: &str) -> Graph {
    parsed(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn parsed(text: &str) -> Result<Graph, String> {
    let dims = format!("(dim S :most {}) (dim T :most {})", MOST[0], MOST[1]);
    let text = format!("(graph \"g\" {dims} {INPUTS} {text})");
    parse(&Source::new("extents.graph", text)).map_err(|e| format!("{:?}", e.0))
}

/// Returns small numbers that depend on the name, the position and the seed. Ids are below 16.
fn value(name: &str, ty: &Type, seed: usize) -> Tensor {
    let (dtype, dims) = (ty.dtype().unwrap(), ty.dims().unwrap());
    let start = name.bytes().map(usize::from).sum::<usize>() + 31 * seed;
    let count = dims.iter().product::<usize>();
    match dtype {
        DType::I64 => Tensor::from_i64(dtype, &dims, (0..count).map(|i| ((start + 5 * i) % 16) as i64)),
        _ => Tensor::from_f64(dtype, &dims, (0..count).map(|i| ((start + 7 * i) % 23) as f64 / 8.0 - 1.25)),
    }
}

fn at(graph: &Graph, lengths: [i64; 2]) -> Graph {
    let names = ["S", "T"].map(str::to_string);
    graph.bind(&BTreeMap::from_iter(names.into_iter().zip(lengths))).unwrap()
}

fn inputs(graph: &Graph, seed: usize) -> Vec<Tensor> {
    graph.named("input").map(|(name, id)| value(name, graph.ty(id), seed)).collect()
}

/// Returns a session of a program.
///
/// # Errors
/// If the program does not compile, or its parameters do not load: the reason.
pub fn session(compiler: &Compiler, graph: &Graph) -> Result<Session, String> {
    let mut session = compiler.compile(graph).map_err(|e| e.to_string())?;
    session
        .load_named(|name| graph.named("param").find(|p| p.0 == name).map(|(_, id)| value(name, graph.ty(id), 0)))
        .map_err(|e| e.to_string())?;
    Ok(session)
}

fn close(got: &Tensor, want: &Tensor) -> bool {
    let near = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 * (1.0 + b.abs());
    got.ty() == want.ty() && got.to_f64().iter().zip(&want.to_f64()).all(near)
}

fn serve(device: &Device, strategy: Strategy) {
    let compiler = device.compiler().with_strategy(strategy);
    let fixed = Compiler::new(Naive).expect("the rules load");
    let mut wrong = Vec::new();
    for (name, text) in PROGRAMS {
        let made = parsed(text).and_then(|open| Ok((session(&compiler, &open)?, open)));
        let (mut varying, open) = match made {
            Ok(made) => made,
            Err(why) => {
                wrong.push(format!("{name}: {why}"));
                continue;
            }
        };
        // Lengths grow and shrink. Beyond its length, a shorter run thus has elements of a longer one, which it must
        // not read.
        for (seed, lengths) in [[9, 6], [1, 0], [5, 3], [0, 6], [9, 1], [2, 2]].into_iter().enumerate() {
            if text.contains("gather x") && lengths[0] == 0 {
                continue;
            }
            let one = at(&open, lengths);
            let given = inputs(&one, seed);
            let want = session(&fixed, &one).and_then(|mut one| one.run(&given).map_err(|e| e.to_string()));
            let want = want.unwrap_or_else(|e| panic!("{name}: {e}"));
            match varying.run(&given) {
                Ok(got) if got.len() == want.len() && got.iter().zip(&want).all(|(got, want)| close(got, want)) => {
                    device.judge();
                }
                got => wrong.push(format!("{name}, {lengths:?}: {got:?}, expected {want:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn unfused(device: &Device) {
    serve(device, Strategy::Unfused);
}

fn greedy(device: &Device) {
    serve(device, Strategy::Greedy);
}

fn local(device: &Device) {
    serve(device, Strategy::Local);
}
