//! Constant folding gives the bits that kernels compute, for single ops and for programs of several.

use eutectic::{
    Compiler, Cpu, CpuOptions, DType, Graph, NodeId, RuleSet, Strategy, Tensor, Type,
    engine::{
        ir::{
            Attr, Op, interpret,
            lang::sexp::Source,
            ops::Class,
            text::{Style, parse, print},
        },
        rewrites::{Choice, Fp},
    },
};

fn compiler() -> Compiler {
    let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
    let rules = RuleSet::embedded().unwrap().choose(&Choice { fp: Fp::Exact, ..Choice::default() }).unwrap();
    Compiler::new(cpu).unwrap().with_rules(rules).with_strategy(Strategy::Unfused)
}

/// Compiles a graph without parameters and runs it.
fn run(compiler: &Compiler, graph: &Graph, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut session = compiler.compile(graph).unwrap();
    session.load(&[]).unwrap();
    session.run(inputs).unwrap()
}

/// Returns special numbers of an element type, and some ordinary ones.
fn numbers(dtype: DType) -> Vec<f64> {
    if dtype == DType::Bool {
        return vec![0.0, 1.0];
    }
    if !dtype.is_float() {
        let most = 2_f64.powi(53) - 1.0;
        let all = [0.0, 1.0, 2.0, 3.0, 7.0, -1.0, -5.0, 100.0, 127.0, -128.0, 255.0, 1e6, 2147483647.0, -2147483648.0];
        let all = all.into_iter().chain([4294967295.0, 16777217.0, -16777219.0, 1099511627775.0, most, -most]);
        return all.filter(|&x| Tensor::from_f64(dtype, &[], [x]).to_f64()[0] == x).collect();
    }
    let special =
        [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 7.0, -3.0, 41.0, 0.1, -0.3, 1e-3, 65504.0, 300.0, 1e10, -1e-10];
    let ends = [1e-40, 3e-45, 1e38, 3e38, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 2147483648.0, -129.0, 255.7];
    // Numbers just above the midpoint of two adjacent elements of a narrower type.
    let middles = [11, 8, 24].map(|bits| 1.0 + 2_f64.powi(-bits) + 2_f64.powi(-50));
    let odd = (1..12).map(|n| (f64::from(n) * 12.9898).sin() * 43.758);
    let all: Vec<f64> = special.into_iter().chain(ends).chain(middles).chain(odd).collect();
    Tensor::from_f64(dtype, &[all.len()], all).to_f64()
}

/// The element types of the operands, and the attributes.
type Call = (Vec<DType>, Vec<(&'static str, Attr)>);

/// Returns the operand types and attributes with which an op is tested.
fn calls(op: Op, dtype: DType) -> Vec<Call> {
    let count = op.signature().operands.len();
    let mut types = vec![dtype; count];
    if count == 3 {
        types[0] = DType::Bool;
    }
    let has = |name| op.attr(name).is_some();
    if has("to") {
        return DType::ALL.into_iter().map(|to| (types.clone(), vec![("to", to.into())])).collect();
    }
    if has("kind") {
        return vec![(types, vec![("kind", "silu".into())])];
    }
    match has("min") {
        true => vec![(types.clone(), vec![("min", (-1.5).into()), ("max", 2.0.into())]), (types, vec![])],
        false => vec![(types, vec![])],
    }
}

/// Returns whether the bits are equal. All NaN count as equal.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

#[test]
fn numbers_are_folded_to_the_bits_that_kernels_give() {
    let (compiler, mut compared, mut wrong) = (compiler(), 0, Vec::new());
    for dtype in DType::ALL {
        let values = numbers(dtype);
        let n = values.len();
        let columns = [
            Tensor::from_f64(dtype, &[n * n], (0..n * n).map(|i| values[i / n])),
            Tensor::from_f64(dtype, &[n * n], (0..n * n).map(|i| values[i % n])),
            Tensor::from_i64(DType::Bool, &[n * n], (0..(n * n) as i64).map(|i| i % 3 % 2)),
        ];
        let mut graph = Graph::new("ops");
        let inputs: Vec<NodeId> =
            columns.iter().zip(["a", "b", "c"]).map(|(column, name)| graph.input(name, column.ty()).unwrap()).collect();
        let mut wanted = Vec::new();
        for op in Op::all().filter(|op| matches!(op.def().class, Class::Pointwise)) {
            for (types, attrs) in calls(op, dtype) {
                let at: Vec<usize> = if types.len() == 3 { vec![2, 0, 1] } else { (0..types.len()).collect() };
                let operands: Vec<NodeId> = at.iter().map(|&at| inputs[at]).collect();
                let Ok(result) = graph.apply(op.name(), &operands, &attrs) else { continue };
                graph.output(&format!("y{}", wanted.len()), result).unwrap();
                wanted.push((op, at, types, result));
            }
        }
        let results = run(&compiler, &graph, &columns);
        let columns: Vec<Vec<f64>> = columns.iter().map(Tensor::to_f64).collect();
        for ((op, at, types, result), got) in wanted.into_iter().zip(&results) {
            let (node, to) = (graph.node(result), got.dtype());
            for (i, got) in got.to_f64().into_iter().enumerate() {
                let operands: Vec<(f64, DType)> =
                    at.iter().zip(&types).map(|(&at, &of)| (columns[at][i], of)).collect();
                let zero = || operands.iter().any(|(x, _)| *x == 0.0 && x.is_sign_negative());
                if !op.is_settled(types.iter().copied(), to, zero) {
                    continue;
                }
                let Some(folded) = op.fold(&node.attrs, &operands, to) else { continue };
                compared += 1;
                if !same(folded, got) {
                    wrong.push(format!("{op} of {operands:?} to {to}: folded {folded:?}, computed {got:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
    assert!(compared > 50_000, "{compared}");
}

/// A generator of pseudorandom numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }
}

const FLOATS: [&str; 14] =
    ["add", "sub", "mul", "div", "max", "sqrt", "floor", "round", "neg", "reciprocal", "exp", "tanh", "abs", "mod"];
const INTEGERS: [&str; 9] = ["add", "sub", "mul", "div", "max", "min", "mod", "abs", "neg"];

/// Returns a program of a few ops whose last results are outputs. Its leaves are constants or inputs.
fn program(seed: u64, dims: &[usize], constant: bool) -> (Graph, Vec<Tensor>) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let dtype = [DType::F32, DType::F16, DType::Bf16, DType::F64, DType::I8, DType::I64][random.below(6)];
    let (mut graph, mut given) = (Graph::new("chain"), Vec::new());
    let values = numbers(dtype);
    let mut known: Vec<NodeId> = (0..3)
        .map(|at| {
            let count = dims.iter().product();
            let tensor = Tensor::from_f64(dtype, dims, (0..count).map(|_| values[random.below(values.len())]));
            let leaf =
                if constant { graph.constant(tensor.clone()) } else { graph.input(&format!("x{at}"), tensor.ty()) };
            given.push(tensor);
            leaf.unwrap()
        })
        .collect();
    for _ in 0..8 {
        let ops: &[&str] = if dtype.is_float() { &FLOATS } else { &INTEGERS };
        let op = Op::named(ops[random.below(ops.len())]).unwrap();
        let operands: Vec<NodeId> = op.signature().operands.iter().map(|_| known[random.below(known.len())]).collect();
        known.push(graph.apply(op.name(), &operands, &[]).unwrap());
    }
    let to = [DType::F32, DType::I64, DType::F16][random.below(3)];
    known.push(graph.apply("cast", &[*known.last().unwrap()], &[("to", to.into())]).unwrap());
    for (at, &value) in known.iter().enumerate().skip(3) {
        graph.output(&format!("y{at}"), value).unwrap();
    }
    (graph, if constant { Vec::new() } else { given })
}

#[test]
fn programs_of_constants_give_what_programs_of_inputs_give() {
    let compiler = compiler();
    for seed in 1..=60 {
        for dims in [&[][..], &[3]] {
            let run = |constant| {
                let (graph, given) = program(seed, dims, constant);
                run(&compiler, &graph, &given)
            };
            for (at, (folded, computed)) in run(true).iter().zip(&run(false)).enumerate() {
                let alike =
                    folded.to_f64().into_iter().zip(computed.to_f64()).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
                assert!(
                    alike && folded.ty() == computed.ty(),
                    "{seed}, {dims:?}, {at}: {folded}, not {computed}\n{}",
                    print(&program(seed, dims, true).0, Style::default())
                );
            }
        }
    }
}

#[test]
fn padding_keeps_all_digits_of_an_integer() {
    let (wide, least) = ((1 << 60) + 1, i64::MIN);
    for value in [wide, -wide, least, i64::MAX, 7] {
        let text =
            format!("(graph \"g\" (input x i64[2]) (output y (pad x :axis 0 :before 1 :after 1 :value {value})))");
        let source = Source::new("g", text);
        let graph = parse(&source).unwrap();
        let again = Source::new("g", print(&graph, Style::default()));
        assert_eq!(parse(&again).unwrap(), graph);
        let x = Tensor::from_i64(DType::I64, &[2], [1, -wide]);
        let got = run(&compiler(), &graph, std::slice::from_ref(&x));
        assert_eq!(got[0].to_i64(), [value, 1, -wide, value]);
        let read = interpret::<f64>(&graph, &|_| Some(x.clone())).unwrap();
        assert_eq!(read[0].to_tensor().to_i64(), [value, 1, -wide, value]);
    }
}

#[test]
fn wide_integers_become_floats_by_one_rounding() {
    let middles = [60, 55, 62].into_iter().flat_map(|bits| [8, 24].map(|of| (1_i64 << bits) + (1 << (bits - of))));
    let values: Vec<i64> =
        middles.flat_map(|n| [n - 1, n, n + 1, -n - 1, 1 - n]).chain([i64::MAX, i64::MIN, 65519, 65520]).collect();
    let x = Tensor::from_i64(DType::I64, &[values.len()], values.iter().copied());
    for constant in [true, false] {
        let mut graph = Graph::new("casts");
        let leaf = if constant { graph.constant(x.clone()) } else { graph.input("x", x.ty()) };
        let leaf = leaf.unwrap();
        let to = [DType::F32, DType::F64, DType::Bf16, DType::F16];
        for (at, to) in to.into_iter().enumerate() {
            let cast = graph.apply("cast", &[leaf], &[("to", to.into())]).unwrap();
            graph.output(&format!("y{at}"), cast).unwrap();
        }
        let given = if constant { Vec::new() } else { vec![x.clone()] };
        for (got, to) in run(&compiler(), &graph, &given).iter().zip(to) {
            assert_eq!(got, &Tensor::from_i64(to, &[values.len()], values.iter().copied()), "{to}");
        }
    }
}

/// Compares some elements of x w with sums, for parameters with these numbers of rows, terms and columns, and weights
/// of a type.
fn product_of_parameters([rows, terms, columns]: [usize; 3], dtype: DType) {
    let mut g = Graph::new("product");
    let x = g.param("x", Type::tensor(DType::F32, &[rows, terms])).unwrap();
    let w = g.param("w", Type::tensor(dtype, &[terms, columns])).unwrap();
    let w = g.cast(w, DType::F32).unwrap();
    let y = g.matmul(x, w).unwrap();
    g.output("y", y).unwrap();
    let number = |n: usize| ((n * 37 + n / 7) % 15) as f64;
    let a: Vec<f64> = (0..rows * terms).map(|n| number(n) - 7.0).collect();
    let b: Vec<f64> = (0..terms * columns).map(|n| number(n + 5)).collect();
    let cpu = Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() });
    let mut session = Compiler::new(cpu).unwrap().compile(&g).unwrap();
    let x = Tensor::from_f64(DType::F32, &[rows, terms], a.iter().copied());
    session.load(&[x, Tensor::from_f64(dtype, &[terms, columns], b.iter().copied())]).unwrap();
    let y = session.run(&[]).unwrap()[0].to_f64();
    // Sums of small integers are exact.
    for at in (0..rows * columns).step_by(1 + rows * columns / 500) {
        let (row, column) = (at / columns, at % columns);
        let want: f64 = (0..terms).map(|k| a[row * terms + k] * b[k * columns + column]).sum();
        assert_eq!(y[at], want, "{dtype}, row {row}, column {column}");
    }
}

#[test]
fn products_of_parameters_alone_are_computed_when_they_are_loaded() {
    for dims in [[1, 8, 2], [5, 64, 40], [1, 256, 300], [2048, 1024, 2048]] {
        for dtype in [DType::F32, DType::I8, DType::U8] {
            product_of_parameters(dims, dtype);
        }
    }
}
