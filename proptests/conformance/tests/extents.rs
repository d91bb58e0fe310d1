//! Programs with extents at run time: at every length they give what a program compiled for that length gives, and read nothing
//! that is beyond it.

use std::collections::BTreeMap;

use eutectic::{Compiler, Cpu, CpuOptions, DType, Dim, Graph, Session, Strategy, Tensor, Type};
use eutectic_conformance::naive::Naive;
use eutectic_ir::{lang::Source, text::parse};

/// The most that S and T are.
const MOST: [i64; 2] = [9, 6];

/// Name and program over `x f32[S 4]`, `y f32[2 S 4]`, `z f32[T 4]`, `ids i64[S]`, `w f32[4 6]` and `p f32[16 4]`.
const PROGRAMS: &[(&str, &str)] = &[
    ("pointwise", "(output o (exp (neg x)))"),
    ("broadcast", "(output o (add y x))"),
    ("inner axis", "(output o (transpose y :perm [-3 -1 -2]))"),
    ("sum of rows", "(output o (reduce-sum x :axes [-2] :keep false))"),
    ("sum of both", "(output o (reduce-sum y :axes [-2 -1] :keep true))"),
    ("largest", "(output o (reduce-max y :axes [-2] :keep false))"),
    ("softmax within", "(output o (softmax x :axis -1))"),
    ("softmax along", "(output o (softmax y :axis -2))"),
    ("layer norm", "(param g f32[4]) (param b f32[4]) (output o (layernorm y g b :eps 1e-5))"),
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

fn graph(text: &str) -> Graph {
    parsed(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn parsed(text: &str) -> Result<Graph, String> {
    let dims = format!("(dim S :most {}) (dim T :most {})", MOST[0], MOST[1]);
    let text = format!("(graph \"g\" {dims} {INPUTS} {text})");
    parse(&Source::new("extents.graph", text)).map_err(|e| format!("{:?}", e.0))
}

fn compilers() -> [Compiler; 2] {
    let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
    [Compiler::new(Naive).unwrap(), Compiler::new(cpu).unwrap()]
}

/// Small numbers that depend on the name, the place and the seed, ids within 16.
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

fn session(compiler: &Compiler, graph: &Graph) -> Result<Session, String> {
    let mut session = compiler.compile(graph).map_err(|e| e.to_string())?;
    session
        .load_named(|name| graph.named("param").find(|p| p.0 == name).map(|(_, id)| value(name, graph.ty(id), 0)))
        .unwrap();
    Ok(session)
}

fn close(got: &Tensor, want: &Tensor) -> bool {
    let near = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 * (1.0 + b.abs());
    got.ty() == want.ty() && got.to_f64().iter().zip(&want.to_f64()).all(near)
}

#[test]
fn one_program_serves_every_length() {
    let mut wrong = Vec::new();
    for mut compiler in compilers() {
        let backend = compiler.backend().name().to_string();
        for strategy in [Strategy::Unfused, Strategy::Greedy, Strategy::Local] {
            compiler = compiler.with_strategy(strategy);
            for (name, text) in PROGRAMS {
                let made = parsed(text).and_then(|open| Ok((session(&compiler, &open)?, open)));
                let (mut varying, open) = match made {
                    Ok(made) => made,
                    Err(why) => {
                        wrong.push(format!("{name} on {backend}, {strategy:?}: {why}"));
                        continue;
                    }
                };
                // Back and forth, so that what a longer run left lies beyond what a shorter one may read.
                for (seed, lengths) in [[9, 6], [1, 0], [5, 3], [0, 6], [9, 1], [2, 2]].into_iter().enumerate() {
                    let needs_rows = text.contains("gather x");
                    if needs_rows && lengths[0] == 0 {
                        continue;
                    }
                    let fixed = at(&open, lengths);
                    let given = inputs(&fixed, seed);
                    let want = session(&compiler, &fixed).unwrap().run(&given).unwrap();
                    match varying.run(&given) {
                        Ok(got) if got.iter().zip(&want).all(|(got, want)| close(got, want)) => {}
                        got => wrong.push(format!(
                            "{name} on {backend}, {strategy:?}, {lengths:?}: {got:?}, expected {want:?}"
                        )),
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn lengths_that_do_not_fit_are_named() {
    for compiler in compilers() {
        let mut session = session(&compiler, &graph("(output o (exp x))")).unwrap();
        let tensor = |dims: &[usize]| Tensor::from_f64(DType::F32, dims, vec![1.0; dims.iter().product()]);
        let ids = |n: usize| Tensor::from_i64(DType::I64, &[n], vec![0; n]);
        let fit = [tensor(&[3, 4]), tensor(&[2, 3, 4]), tensor(&[2, 4]), ids(3)];
        assert_eq!(session.run(&fit).unwrap()[0].dims(), [3, 4]);
        assert_eq!((session.length("S").unwrap(), session.length("T").unwrap()), (3, 2));
        for (at, wrong, says) in [
            (0, tensor(&[10, 4]), "S is 0 to 9"),
            (1, tensor(&[2, 4, 4]), "S is 3 by input `x`"),
            (2, tensor(&[7, 4]), "T is 0 to 6"),
            (2, tensor(&[2, 5]), "input `z` is f32[2 4], but f32[2 5] was given"),
        ] {
            let mut given = fit.clone();
            given[at] = wrong;
            let error = session.run(&given).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        // What did not fit changed nothing.
        assert_eq!(session.run(&fit).unwrap()[0].dims(), [3, 4]);
        assert!(session.set_length("S", 10).unwrap_err().to_string().contains("compiled for 0 to 9"));
        assert!(session.set_length("U", 1).unwrap_err().to_string().contains("no extent `U`; it has S, T"));
        session.set_length("S", 5).unwrap();
        assert_eq!(session.length("S").unwrap(), 5);
    }
}

#[test]
fn what_cannot_be_planned_is_refused_by_name() {
    let compiler = Compiler::new(Naive).unwrap();
    for (text, says) in [
        // The second axis varies inside of the first: its rows lie apart.
        ("(output o (reshape y :shape [(* 2 S) 4]))", "moves elements from run to run"),
        ("(output o (reduce-mean x :axes [-2] :keep false))", "reduce-mean"),
    ] {
        let Err(error) = session(&compiler, &graph(text)) else { panic!("{text} is planned") };
        assert!(error.contains(says), "{error}");
    }
    let mut graph = Graph::new("two ranges");
    for (name, most) in [("a", 3), ("b", 4)] {
        let ty = Type::Tensor(DType::F32, [Dim::between("S", 0, most)].into_iter().collect());
        let x = graph.input(name, ty).unwrap();
        graph.output(&format!("{name}'"), x).unwrap();
    }
    let Err(error) = compiler.compile(&graph) else { panic!("S is two things") };
    assert!(error.to_string().contains("S is 0 to 3 and 0 to 4"), "{error}");
}

#[test]
fn a_state_keeps_what_is_beyond_a_run() {
    // In place, and copied because the new value is an output too.
    let leaves =
        "(dim S :least 2 :most 9) (state s f32[1 S 4]) (input x f32[S 4]) (input r f32[1 2 4]) (input at i64[])";
    let part = "(update s (update-slice s r at :axis -2)) (output o (reduce-sum s :axes [-2] :keep false))";
    let whole = "(let n (add s (reshape x :shape [1 S 4]))) (update s n) (output o n)";
    for (compiler, in_place) in compilers().map(|c| (c, true)).into_iter().chain(compilers().map(|c| (c, false))) {
        let text = format!("(graph \"g\" {leaves} {})", if in_place { part } else { whole });
        let graph = parse(&Source::new("state.graph", text)).unwrap_or_else(|e| panic!("{:?}", e.0[0]));
        let mut session = session(&compiler, &graph).unwrap();
        let mut run = |length: usize, value: f64, at: i64| {
            let x = Tensor::from_f64(DType::F32, &[length, 4], vec![value; 4 * length]);
            let r = Tensor::from_f64(DType::F32, &[1, 2, 4], [value; 8]);
            session.run(&[x, r, Tensor::from_i64(DType::I64, &[], [at])]).unwrap();
            let state = session.state("s").unwrap();
            assert_eq!(session.read(state).unwrap().dims(), [1, length, 4]);
            session.set_length("S", 9).unwrap();
            let rows = session.read(state).unwrap().to_f64();
            rows.chunks(4).map(|row| row[0]).collect::<Vec<_>>()
        };
        let after = [run(9, 1.0, 4), run(5, 3.0, 1), run(7, 5.0, 5)];
        let want = match in_place {
            true => [
                [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0],
                [0.0, 3.0, 3.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0],
                [0.0, 3.0, 3.0, 0.0, 1.0, 5.0, 5.0, 0.0, 0.0],
            ],
            false => {
                [[1.0; 9], [4.0, 4.0, 4.0, 4.0, 4.0, 1.0, 1.0, 1.0, 1.0], [9.0, 9.0, 9.0, 9.0, 9.0, 6.0, 6.0, 1.0, 1.0]]
            }
        };
        assert_eq!(after.map(|rows| <[f64; 9]>::try_from(rows).unwrap()), want);
    }
}
