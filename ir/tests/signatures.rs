//! Tests that each op evaluates all operands that its signature admits, that the results have the types of the
//! signature, and that they are within the error bounds.

use eutectic_ir::{
    Attr, Bounded, DType, Graph, Op, Tensor, Type, interpret,
    lang::Source,
    ops::eval::{Data, Value},
    text::{Style, parse, print},
};

/// A small generator (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn tensor(&mut self, ty: &Type, most: i64) -> Tensor {
        let (dtype, dims) = (ty.dtype().unwrap(), ty.dims().unwrap());
        let count = dims.iter().product();
        match dtype {
            DType::Bool => Tensor::from_i64(dtype, &dims, (0..count).map(|_| self.below(2) as i64)),
            _ if dtype.is_int() => {
                Tensor::from_i64(dtype, &dims, (0..count).map(|_| self.below(most.max(1) as usize) as i64))
            }
            _ => Tensor::from_f64(dtype, &dims, (0..count).map(|_| (self.below(4001) as f64 - 2000.0) / 1000.0)),
        }
    }
}

/// Returns the number of legal ids, for an op that checks ids.
fn legal_ids(op: Op, attrs: &[Attr]) -> Option<i64> {
    op.def().ids.map(|ids| ids(attrs).extent)
}

/// Returns a graph with one op on inputs, and tensors for the inputs. All results of the op are outputs.
fn case(op: Op, random: &mut Random) -> Option<(Graph, Vec<Tensor>)> {
    // An axis of extent 0 has no elements that an id can name.
    let (attrs, types) = std::iter::repeat_with(|| op.sample(&mut |n| random.below(n)))
        .find(|sampled| sampled.as_ref().is_none_or(|(attrs, _)| legal_ids(op, attrs) != Some(0)))??;
    let mut graph = Graph::new(op.name());
    let ids: Vec<_> =
        types.iter().enumerate().map(|(i, t)| graph.input(&format!("x{i}"), t.clone()).unwrap()).collect();
    let given: Vec<_> = op.def().attrs.iter().map(|a| a.name).zip(attrs.iter().cloned()).collect();
    let y = graph.apply(op.name(), &ids, &given).unwrap_or_else(|e| panic!("{e}"));
    match graph.ty(y).clone() {
        Type::Tensor(..) => graph.output("y", y).unwrap(),
        Type::Tuple(parts) => {
            for i in 0..parts.len() {
                let part = graph.get(y, i as i64).unwrap();
                graph.output(&format!("y{i}"), part).unwrap();
            }
        }
    }
    // Integer operands of ops that read by index are positions along an axis.
    let axis = attrs.first().and_then(|a| a.int()).unwrap_or(0);
    let extent =
        types.first().and_then(|t| t.as_tensor()).and_then(|(_, s)| s.position(axis).map(|at| s[at].known().unwrap()));
    let most = if op.name() == "gather" { extent.unwrap_or(1) } else { legal_ids(op, &attrs).unwrap_or(20) };
    let tensors = types.iter().map(|t| random.tensor(t, most)).collect();
    Some((graph, tensors))
}

fn given(tensors: &[Tensor]) -> impl Fn(&str) -> Option<Tensor> + '_ {
    |name| tensors.get(name[1..].parse::<usize>().ok()?).cloned()
}

#[test]
fn every_op_evaluates_to_what_its_signature_says() {
    let mut random = Random(1);
    for op in Op::all() {
        let mut cases = 0;
        for _ in 0..60 {
            let Some((graph, tensors)) = case(op, &mut random) else { continue };
            graph.verify().unwrap_or_else(|e| panic!("{e:?}"));
            let exact = interpret::<f64>(&graph, &given(&tensors)).unwrap_or_else(|e| panic!("{op}: {e}"));
            let bounded = interpret::<Bounded>(&graph, &given(&tensors)).unwrap();
            for ((value, bound), (_, id)) in exact.iter().zip(&bounded).zip(graph.outputs()) {
                assert_eq!((&value.ty(), &bound.ty()), (graph.ty(*id), graph.ty(*id)), "{op}");
                assert_same(op, value, bound);
            }
            cases += 1;
        }
        let leaf = matches!(op.name(), "input" | "param" | "state" | "const" | "get" | "loop");
        assert_eq!(cases, if leaf { 0 } else { 60 }, "{op} cannot be sampled");
    }
}

/// Asserts that evaluation in f64 and evaluation with error bounds give the same numbers. Asserts too that each
/// result, rounded to its element type, is within its bound.
fn assert_same(op: Op, value: &Value<f64>, bound: &Value<Bounded>) {
    match (&value.data, &bound.data) {
        (Data::Real(x), Data::Real(y)) => {
            let stored = value.to_tensor().to_f64();
            for ((x, y), stored) in x.iter().zip(y).zip(stored) {
                let same = *x == y.value || x.is_nan() && y.value.is_nan() || y.err.is_infinite();
                assert!(same, "{op}: {x} is not {y:?}");
                assert_ne!(y.admits(stored), Some(false), "{op}: {stored} is not within {y:?}");
            }
        }
        (Data::Int(x), Data::Int(y)) => {
            assert!(x.iter().zip(y).all(|(x, y)| y.is_none() || x == y), "{op}: {x:?} is not {y:?}");
        }
        _ => panic!("{op}: the two evaluations have different types of data"),
    }
}

/// Returns a graph with many ops. Each operand is an existing value of its type, or an input if there is no such
/// value.
fn graph(random: &mut Random) -> Graph {
    let mut graph = Graph::new(["", "a \"graph\"", "g"][random.below(3)]);
    let ops: Vec<_> = Op::all().collect();
    for n in 0..1 + random.below(25) {
        let op = ops[random.below(ops.len())];
        let Some((attrs, types)) = op.sample(&mut |n| random.below(n)) else { continue };
        let there: Vec<_> = types.iter().map(|t| graph.nodes().find(|(_, v)| v.ty == *t).map(|(id, _)| id)).collect();
        let part = ["layer.0", "a b", ":x", ""][random.below(4)];
        graph.within(part, |g| {
            let operand = |(i, (ty, there)): (usize, (&Type, Option<_>))| match there {
                Some(id) => id,
                None if random.below(2) == 0 => g.constant(random.tensor(ty, 100)).unwrap(),
                None => g.input(&format!("x {n} {i}"), ty.clone()).unwrap(),
            };
            let ids: Vec<_> = types.iter().zip(there).enumerate().map(operand).collect();
            let given: Vec<_> = op.def().attrs.iter().map(|a| a.name).zip(attrs.iter().cloned()).collect();
            let y = g.apply(op.name(), &ids, &given).unwrap();
            if g.ty(y).as_tensor().is_some() {
                g.output(&format!("y{n}"), y).unwrap();
            }
        });
    }
    graph
}

#[test]
fn random_graphs_read_back() {
    let mut random = Random(2);
    for _ in 0..150 {
        let graph = graph(&mut random);
        graph.verify().unwrap_or_else(|e| panic!("{e:?}"));
        let text = print(&graph, Style { types: random.below(2) == 0 });
        let again = parse(&Source::new("sample", text.clone())).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        assert!(graph == again, "{text}");
    }
}

#[test]
fn errors_list_few_operands() {
    let mut graph = Graph::new("many");
    let x = graph.input("x", Type::tensor(DType::F32, &[2, 4])).unwrap();
    let refused = graph.apply("concat", &[x; 3000], &[("axis", 1.into())]).unwrap_err();
    assert!(refused.operands.ends_with("f32[2 4], and 2992 more"), "{}", refused.operands);
    assert!(refused.to_string().len() < 400, "{refused}");
}

#[test]
fn there_is_a_group_at_least() {
    let mut graph = Graph::new("groups");
    let mut input = |name: &str, dims: &[usize]| graph.input(name, Type::tensor(DType::F32, dims)).unwrap();
    let (x, g, b) = (input("x", &[2, 4, 3, 3]), input("g", &[4]), input("b", &[4]));
    let w = input("w", &[4, 2, 1, 1]);
    for groups in [-2_i64, -1, 0] {
        let norm = graph.apply("group-norm", &[x, g, b], &[("groups", groups.into()), ("eps", 0.1.into())]);
        let conv = graph.apply("conv-transpose", &[x, w], &[("groups", groups.into())]);
        for refused in [norm, conv] {
            let problem = refused.unwrap_err().problem;
            assert_eq!(problem, format!("`:groups {groups}`: 1 is greater than {groups}"));
        }
    }
    assert!(graph.apply("group-norm", &[x, g, b], &[("groups", 2.into()), ("eps", 0.1.into())]).is_ok());
}
