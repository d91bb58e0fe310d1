//! The packs on small programs: every way to compute a class that they find gives the same values, in the reference
//! interpreter, and what they are there to recognise is recognised.

mod packs_models;

use std::sync::LazyLock;

use eutectic_ir::{
    Attr, Class, DType, Graph, NodeId, Origin, Tensor, Type,
    eclasses::{ClassId, EClasses, ENode},
    graph::Node,
    interp::{evaluate, interpret},
    ops::{Leaf, eval::Value},
};
use eutectic_rewrites::{Choice, Options, RuleSet, Stop, optimize};
use packs_models::{Builder, Encoder, dims, ints};

/// Values that are neither small integers nor close to each other, the same for the same name.
fn given(name: &str, ty: &Type) -> Tensor {
    let (dtype, dims) = (ty.dtype().unwrap(), ty.dims().unwrap());
    let mut state = name.bytes().fold(17_u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1_u64 << 23) as f64 - 1.0
    };
    let numbers = (0..ty.count()).map(|_| match dtype {
        DType::Bool => f64::from(next() > 0.0),
        _ if dtype.is_int() => (next() * 10.0).round(),
        _ => next(),
    });
    Tensor::from_f64(dtype, &dims, numbers)
}

/// The values of all classes; panics where two nodes of a class differ.
fn check(classes: &EClasses, what: &str) -> Vec<Option<Vec<Value<f64>>>> {
    let mut values: Vec<Option<Vec<Value<f64>>>> = vec![None; classes.classes.len()];
    let mut open: Vec<(ClassId, &ENode)> =
        classes.classes.iter().enumerate().flat_map(|(c, class)| class.nodes.iter().map(move |n| (c, n))).collect();
    loop {
        let before = open.len();
        open.retain(|(class, node)| {
            let Some(computed) = compute(classes, &values, *class, node) else { return true };
            match &values[*class] {
                None => values[*class] = Some(computed),
                Some(known) => {
                    for (a, b) in known.iter().zip(&computed) {
                        assert!(
                            close(a, b),
                            "{what}: class {class}, {}({:?}):\n{known:?}\n{computed:?}",
                            node.op,
                            node.attrs
                        );
                    }
                }
            }
            false
        });
        if open.len() == before {
            break;
        }
    }
    values
}

fn compute(
    classes: &EClasses,
    values: &[Option<Vec<Value<f64>>>],
    class: ClassId,
    node: &ENode,
) -> Option<Vec<Value<f64>>> {
    let ty = &classes.classes[class].ty;
    let operands: Vec<&Vec<Value<f64>>> = node.operands.iter().map(|o| values[*o].as_ref()).collect::<Option<_>>()?;
    Some(match (node.op.def().class, node.attrs.first()) {
        (Class::Leaf(Leaf::Input | Leaf::Param), Some(Attr::Word(name))) => vec![Value::from_tensor(&given(name, ty))],
        (Class::Leaf(Leaf::Const), Some(Attr::Tensor(t))) => vec![Value::from_tensor(t)],
        (Class::Project, Some(Attr::Int(n))) => vec![operands[0][*n as usize].clone()],
        _ => {
            let graph_node = Node {
                op: node.op,
                attrs: node.attrs.clone(),
                operands: Default::default(),
                ty: ty.clone(),
                origin: Origin::default(),
            };
            let operands: Vec<_> = operands.iter().map(|v| &v[0]).collect();
            evaluate(NodeId(0), &graph_node, &operands).unwrap()
        }
    })
}

/// Equal up to the rounding of constants to f32, relative to the largest element.
fn close(a: &Value<f64>, b: &Value<f64>) -> bool {
    let (a, b) = (a.to_tensor().to_f64(), b.to_tensor().to_f64());
    let most = a.iter().filter(|x| x.is_finite()).fold(1e-3_f64, |m, x| m.max(x.abs()));
    a.len() == b.len()
        && a.iter().zip(&b).all(|(x, y)| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= 2e-6 * most)
}

/// Saturates a graph with all rules of the default contract and checks all that they found.
fn run(graph: &Graph) -> EClasses {
    static RULES: LazyLock<RuleSet> = LazyLock::new(|| {
        let rules = RuleSet::embedded().unwrap_or_else(|e| panic!("{:?}", miette::Report::new(e)));
        rules.choose(&Choice::default()).unwrap()
    });
    let done = optimize(graph, &RULES, &Options::default()).unwrap_or_else(|e| panic!("{}: {e}", graph.name));
    assert!(done.phases.iter().all(|p| p.stop == Stop::Saturated), "{}: {:?}", graph.name, done.phases);
    let values = check(&done.classes, &graph.name);
    let direct = interpret::<f64>(graph, &|name| {
        let named = |op: &str| graph.named(op).find(|(n, _)| *n == name).map(|(_, id)| graph.ty(id).clone());
        Some(given(name, &named("input").or_else(|| named("param"))?))
    });
    for (output, direct) in done.classes.outputs.iter().zip(direct.unwrap()) {
        let value = values[*output].as_ref().unwrap_or_else(|| panic!("{}: no value", graph.name));
        assert!(close(&value[0], &direct), "{}: {:?} {direct:?}", graph.name, value[0]);
    }
    done.classes
}

/// Builds a program of one result, saturates and checks it; true if the result's class, through views, can be
/// computed by `op` with (some of) these attribute words.
fn finds(name: &str, op: &str, words: &[&str], build: impl FnOnce(&mut Builder) -> NodeId) -> bool {
    let mut b = Builder { g: Graph::new(name), e: Encoder::SMALL };
    let result = build(&mut b);
    b.g.output("y", result).unwrap();
    let classes = run(&b.g);
    let mut open = vec![classes.outputs[0]];
    let mut seen = vec![false; classes.classes.len()];
    while let Some(class) = open.pop() {
        if std::mem::replace(&mut seen[class], true) {
            continue;
        }
        for node in &classes.classes[class].nodes {
            let is = |attr: &Attr, word: &str| match (attr.float(), word.parse::<f64>()) {
                (Some(x), Ok(y)) => (x - y).abs() < 1e-6,
                _ => attr.to_string() == word,
            };
            let has = |word: &&str| node.attrs.iter().any(|a| is(a, word));
            if node.op.name() == op && words.iter().all(has) {
                return true;
            }
            if matches!(node.op.def().class, Class::View(_) | Class::Project) {
                open.extend(&node.operands);
            }
        }
    }
    false
}

fn input(b: &mut Builder, name: &str, dims: &[usize]) -> NodeId {
    b.g.input(name, Type::tensor(DType::F32, dims)).unwrap()
}

fn last(keep: bool) -> [(&'static str, Attr); 2] {
    [("axes", ints(&[-1])), ("keep", keep.into())]
}

#[test]
fn composites_are_what_their_parts_are() {
    type Build = fn(&mut Builder) -> NodeId;
    let cases: &[(&str, &str, Build)] = &[
        ("softmax of an inner axis", "div", |b| {
            let x = input(b, "x", &[2, 3, 4]);
            b.with("softmax", &[x], &[("axis", (-2).into())])
        }),
        ("softmax", "div", |b| {
            let x = input(b, "x", &[2, 5]);
            b.with("softmax", &[x], &[("axis", (-1).into())])
        }),
        ("log-softmax", "sub", |b| {
            let x = input(b, "x", &[2, 5]);
            b.with("log-softmax", &[x], &[("axis", (-1).into())])
        }),
        ("mean of outer axes", "mul", |b| {
            let x = input(b, "x", &[2, 3, 4]);
            b.with("reduce-mean", &[x], &[("axes", ints(&[0, 1])), ("keep", false.into())])
        }),
        ("layernorm", "add", |b| {
            let (x, g, c) = (input(b, "x", &[3, 6]), b.param("g", &[6]), b.param("c", &[6]));
            b.with("layernorm", &[x, g, c], &[("eps", 1e-5.into())])
        }),
        ("rmsnorm", "mul", |b| {
            let (x, g) = (input(b, "x", &[3, 6]), b.param("g", &[6]));
            b.with("rmsnorm", &[x, g], &[("eps", 1e-5.into())])
        }),
        ("residual layernorm", "mul", |b| {
            let (x, r, g, c) = (input(b, "x", &[3, 6]), input(b, "r", &[3, 6]), b.param("g", &[6]), b.param("c", &[6]));
            let t = b.with("add-layernorm", &[x, r, g, c], &[("eps", 1e-5.into())]);
            let (s, n) = (b.with("get", &[t], &[("index", 0.into())]), b.with("get", &[t], &[("index", 1.into())]));
            b.op("mul", &[s, n])
        }),
        ("residual rmsnorm", "mul", |b| {
            let (x, r, g) = (input(b, "x", &[3, 6]), input(b, "r", &[3, 6]), b.param("g", &[6]));
            let t = b.with("add-rmsnorm", &[x, r, g], &[("eps", 1e-5.into())]);
            let (s, n) = (b.with("get", &[t], &[("index", 0.into())]), b.with("get", &[t], &[("index", 1.into())]));
            b.op("mul", &[s, n])
        }),
        ("linear without a bias", "matmul", |b| {
            let (x, w) = (input(b, "x", &[2, 3, 4]), b.param("w", &[4, 5]));
            b.with("linear", &[x, w], &[("act", "none".into())])
        }),
        ("swiglu, gate second", "mul", |b| {
            let p = input(b, "p", &[2, 6]);
            b.with("swiglu", &[p], &[("gate", "second".into())])
        }),
        ("swiglu, gate first", "mul", |b| {
            let p = input(b, "p", &[2, 6]);
            b.with("swiglu", &[p], &[("gate", "first".into())])
        }),
    ];
    for (name, op, build) in cases {
        assert!(finds(name, op, &[], build), "{name}: no {op}");
    }
}

#[test]
fn activations_have_two_forms() {
    for (kind, op) in [
        ("relu", "max"),
        ("gelu-erf", "mul"),
        ("gelu-tanh", "mul"),
        ("silu", "mul"),
        ("sigmoid", "sigmoid"),
        ("tanh", "tanh"),
    ] {
        assert!(finds(kind, op, &[], |b| {
            let x = input(b, "x", &[2, 5]);
            b.with("act", &[x], &[("kind", kind.into())])
        }));
        for rank in 2..4 {
            assert!(finds(kind, "linear", &[kind], |b| {
                let (x, w, c) = (input(b, "x", &[2, 3, 4][3 - rank..]), b.param("w", &[4, 5]), b.param("c", &[5]));
                let product = b.op("matmul", &[x, w]);
                let sum = b.op("add", &[product, c]);
                b.with("act", &[sum], &[("kind", kind.into())])
            }));
        }
    }
}

#[test]
fn every_mask_becomes_a_bias() {
    for groups in [1, 2] {
        for softcap in [0.0, 3.0] {
            for mask in ["none", "causal", "window", "keep", "additive"] {
                let name = format!("{mask}, {groups} heads a group, softcap {softcap}");
                assert!(finds(&name, "attention", &[], |b| {
                    let q = input(b, "q", &[2, 2 * groups, 3, 4]);
                    let (k, v) = (input(b, "k", &[2, 2, 5, 4]), input(b, "v", &[2, 2, 5, 6]));
                    let mut operands = vec![q, k, v];
                    match mask {
                        // With this seed no row is empty for every head; emptiness has a test of its own.
                        "keep" => operands.push(b.g.input("keep", Type::tensor(DType::Bool, &[2, 1, 3, 5])).unwrap()),
                        "additive" => operands.push(input(b, "m", &[2, 1, 1, 5])),
                        _ => {}
                    }
                    let window = if mask == "window" { 2 } else { 0 };
                    let attrs = [
                        ("scale", 0.5.into()),
                        ("softcap", softcap.into()),
                        ("mask", mask.into()),
                        ("window", window.into()),
                    ];
                    b.with("sdpa", &operands, &attrs)
                }));
            }
        }
    }
}

#[test]
fn rows_with_nothing_to_attend_to_are_zeros() {
    assert!(finds("empty rows", "attention", &["zeros"], |b| {
        let (q, k, v) = (input(b, "q", &[3, 4]), input(b, "k", &[2, 4]), input(b, "v", &[2, 4]));
        let q = b.with("reshape", &[q], &[("shape", dims(&[1, 3, 4]))]);
        let k = b.with("reshape", &[k], &[("shape", dims(&[1, 2, 4]))]);
        let v = b.with("reshape", &[v], &[("shape", dims(&[1, 2, 4]))]);
        // More queries than keys: the first query sees nothing.
        b.with("sdpa", &[q, k, v], &[("scale", 0.5.into()), ("mask", "causal".into())])
    }));
}

#[test]
fn rope_turns_pairs() {
    for style in ["half", "adjacent"] {
        for width in [6, 8] {
            assert!(finds(style, "concat", &[], |b| {
                let (x, c, s) = (input(b, "x", &[2, 3, width]), input(b, "c", &[3, 3]), input(b, "s", &[3, 3]));
                b.with("rope", &[x, c, s], &[("style", style.into())])
            }));
        }
    }
}

#[test]
fn gelu_in_every_grouping() {
    for grouping in 0..3 {
        for divide in [false, true] {
            for tanh in [false, true] {
                let kind = if tanh { "gelu-tanh" } else { "gelu-erf" };
                assert!(finds(&format!("{kind} {grouping} {divide}"), "act", &[kind], |b| {
                    let x = input(b, "x", &[2, 3, 7]);
                    let half = b.scalar(0.5);
                    let inner = if tanh { tanh_inner(b, x) } else { erf_inner(b, x, divide) };
                    match grouping {
                        0 => {
                            let halved = b.op("mul", &[half, x]);
                            b.op("mul", &[halved, inner])
                        }
                        1 => {
                            let product = b.op("mul", &[inner, x]);
                            b.op("mul", &[product, half])
                        }
                        _ => {
                            let halved = b.op("mul", &[inner, half]);
                            b.op("mul", &[x, halved])
                        }
                    }
                }));
            }
        }
    }
}

fn erf_inner(b: &mut Builder, x: NodeId, divide: bool) -> NodeId {
    let root = b.scalar(if divide { std::f64::consts::SQRT_2 } else { std::f64::consts::FRAC_1_SQRT_2 });
    let scaled = b.op(if divide { "div" } else { "mul" }, &[x, root]);
    let (erf, one) = (b.op("erf", &[scaled]), b.scalar(1.0));
    b.op("add", &[one, erf])
}

fn tanh_inner(b: &mut Builder, x: NodeId) -> NodeId {
    let (three, c) = (b.scalar(3.0), b.scalar(0.044715));
    let (root, one) = (b.scalar((2.0 / std::f64::consts::PI).sqrt()), b.scalar(1.0));
    let cube = b.op("pow", &[x, three]);
    let small = b.op("mul", &[c, cube]);
    let sum = b.op("add", &[x, small]);
    let scaled = b.op("mul", &[root, sum]);
    let tanh = b.op("tanh", &[scaled]);
    b.op("add", &[tanh, one])
}

#[test]
fn silu_and_swiglu_in_every_spelling() {
    assert!(finds("silu", "act", &["silu"], |b| {
        let (x, one) = (input(b, "x", &[2, 5]), b.scalar(1.0));
        let minus = b.op("neg", &[x]);
        let exp = b.op("exp", &[minus]);
        let sum = b.op("add", &[one, exp]);
        b.op("div", &[x, sum])
    }));
    assert!(finds("silu by a reciprocal", "act", &["silu"], |b| {
        let (x, one) = (input(b, "x", &[2, 5]), b.scalar(1.0));
        let minus = b.op("neg", &[x]);
        let exp = b.op("exp", &[minus]);
        let sum = b.op("add", &[exp, one]);
        let sigmoid = b.op("div", &[one, sum]);
        b.op("mul", &[sigmoid, x])
    }));
    for gate_first in [false, true] {
        assert!(finds("two projections, one of them a gate", "swiglu", &[], |b| {
            let (x, g, u) = (input(b, "x", &[2, 3, 4]), b.param("g", &[4, 5]), b.param("u", &[4, 5]));
            let (first, second) = (b.op("matmul", &[x, g]), b.op("matmul", &[x, u]));
            let (gate, up) = if gate_first { (first, second) } else { (second, first) };
            let sigmoid = b.op("sigmoid", &[gate]);
            let silu = b.op("mul", &[gate, sigmoid]);
            b.op("mul", &[silu, up])
        }));
    }
}

#[test]
fn norms_in_every_spelling() {
    for spelling in 0..24 {
        let (square, root, gain) = (spelling % 2, spelling / 2 % 4, spelling / 8);
        assert!(finds(&format!("layernorm {square} {root} {gain}"), "layernorm", &[], |b| {
            let (x, g, c) = (input(b, "x", &[2, 3, 6]), b.param("g", &[6]), b.param("c", &[6]));
            let mean = b.with("reduce-mean", &[x], &last(true));
            let centred = b.op("sub", &[x, mean]);
            let two = b.scalar(2.0);
            let squared = if square == 0 { b.op("mul", &[centred, centred]) } else { b.op("pow", &[centred, two]) };
            let variance = b.with("reduce-mean", &[squared], &last(true));
            let eps = b.scalar(1e-5);
            let sum = b.op("add", &[variance, eps]);
            if gain == 2 {
                let r = deviation(b, sum, root);
                let a = b.op("mul", &[r, g]);
                let (left, shift) = (b.op("mul", &[x, a]), b.op("mul", &[mean, a]));
                let right = b.op("sub", &[c, shift]);
                return b.op("add", &[left, right]);
            }
            let scaled = if gain == 1 {
                let r = deviation(b, sum, root);
                let a = b.op("mul", &[r, g]);
                b.op("mul", &[centred, a])
            } else if root == 3 {
                let deviation = b.op("sqrt", &[sum]);
                let normal = b.op("div", &[centred, deviation]);
                b.op("mul", &[g, normal])
            } else {
                let r = deviation(b, sum, root);
                let normal = b.op("mul", &[centred, r]);
                b.op("mul", &[g, normal])
            };
            b.op("add", &[scaled, c])
        }));
    }
    for gain_first in [false, true] {
        assert!(finds("rmsnorm", "rmsnorm", &[], |b| {
            let (x, g, two, eps) = (input(b, "x", &[2, 6]), b.param("g", &[6]), b.scalar(2.0), b.scalar(1e-6));
            let squared = b.op("pow", &[x, two]);
            let mean = b.with("reduce-mean", &[squared], &last(true));
            let sum = b.op("add", &[mean, eps]);
            let r = deviation(b, sum, 0);
            if gain_first {
                let a = b.op("mul", &[r, g]);
                return b.op("mul", &[x, a]);
            }
            let normal = b.op("mul", &[x, r]);
            b.op("mul", &[g, normal])
        }));
    }
}

/// 1/√x, in four spellings.
fn deviation(b: &mut Builder, x: NodeId, how: usize) -> NodeId {
    let (one, power) = (b.scalar(1.0), b.scalar(-0.5));
    match how {
        0 => b.op("rsqrt", &[x]),
        1 => b.op("pow", &[x, power]),
        2 => {
            let root = b.op("sqrt", &[x]);
            b.op("reciprocal", &[root])
        }
        _ => {
            let root = b.op("sqrt", &[x]);
            b.op("div", &[one, root])
        }
    }
}

#[test]
fn attention_wherever_the_scale_is() {
    for place in 0..6 {
        for mask in 0..4 {
            assert!(finds(&format!("scale {place}, mask {mask}"), "attention", &["0.5"], |b| {
                let q = input(b, "q", &[2, 3, 5, 4]);
                let (k, v) = (input(b, "k", &[2, 3, 7, 4]), input(b, "v", &[2, 3, 7, 4]));
                let (half, two, part) = (b.scalar(0.5), b.scalar(2.0), b.scalar(0.5_f64.sqrt()));
                let q = match place {
                    2 => b.op("mul", &[q, half]),
                    3 => b.op("mul", &[part, q]),
                    4 => b.op("div", &[q, two]),
                    _ => q,
                };
                let k = if place == 3 { b.op("mul", &[k, part]) } else { k };
                let kt = b.with("transpose", &[k], &[("perm", ints(&[0, 1, 3, 2]))]);
                let kt = if place == 5 { b.op("mul", &[kt, half]) } else { kt };
                let scores = b.op("matmul", &[q, kt]);
                let scores = match place {
                    0 => b.op("mul", &[scores, half]),
                    1 => b.op("div", &[scores, two]),
                    _ => scores,
                };
                let scores = masked(b, scores, mask);
                let weights = b.with("softmax", &[scores], &[("axis", (-1).into())]);
                b.op("matmul", &[weights, v])
            }));
        }
    }
}

fn masked(b: &mut Builder, scores: NodeId, mask: usize) -> NodeId {
    let minus_infinity = b.scalar(f64::NEG_INFINITY);
    let bools = Type::tensor(DType::Bool, &[2, 1, 5, 7]);
    match mask {
        0 => scores,
        1 => {
            let m = input(b, "m", &[2, 1, 1, 7]);
            b.op("add", &[scores, m])
        }
        2 => {
            let keep = b.g.input("keep", bools).unwrap();
            b.op("where", &[keep, scores, minus_infinity])
        }
        _ => {
            let drop = b.g.input("drop", bools).unwrap();
            b.op("where", &[drop, minus_infinity, scores])
        }
    }
}

#[test]
fn capped_scores_are_attention() {
    for masked in [false, true] {
        assert!(finds("softcap", "attention", &["5.0", "0.25"], |b| {
            let (q, k, v) = (input(b, "q", &[2, 3, 4]), input(b, "k", &[2, 4, 5]), input(b, "v", &[2, 5, 4]));
            let (a, c) = (b.scalar(0.05), b.scalar(5.0));
            let scores = b.op("matmul", &[q, k]);
            let scores = b.op("mul", &[scores, a]);
            let scores = b.op("tanh", &[scores]);
            let mut scores = b.op("mul", &[scores, c]);
            if masked {
                let m = input(b, "m", &[3, 5]);
                scores = b.op("add", &[scores, m]);
            }
            let weights = b.with("softmax", &[scores], &[("axis", (-1).into())]);
            b.op("matmul", &[weights, v])
        }));
    }
}

#[test]
fn surface_forms_become_legal() {
    assert!(finds("outer axes broadcast", "matmul", &[], |b| {
        let (x, y) = (input(b, "x", &[3, 1, 2, 4]), input(b, "y", &[5, 4, 2]));
        b.op("matmul", &[x, y])
    }));
    for op in ["reduce-sum", "reduce-prod", "reduce-max", "reduce-min"] {
        for (axes, keep) in [(vec![0], true), (vec![0, 2], false), (vec![1], false), (vec![0, 1, 2], false)] {
            assert!(finds(op, op, &[], |b| {
                let x = input(b, "x", &[2, 3, 4]);
                b.with(op, &[x], &[("axes", ints(&axes)), ("keep", keep.into())])
            }));
        }
    }
    assert!(finds("where broadcasts", "where", &[], |b| {
        let (x, y) = (input(b, "x", &[3, 1]), input(b, "y", &[4]));
        let (c, zero) = (b.op("lt", &[x, y]), b.scalar(0.0));
        b.op("where", &[c, x, zero])
    }));
}

#[test]
fn views_and_neutral_elements_disappear() {
    let mut b = Builder { g: Graph::new("nothing"), e: Encoder::SMALL };
    let x = input(&mut b, "x", &[2, 3, 4]);
    let (zero, one) = (b.scalar(0.0), b.scalar(1.0));
    let y = b.with("transpose", &[x], &[("perm", ints(&[1, 2, 0]))]);
    let y = b.op("add", &[y, zero]);
    let y = b.with("transpose", &[y], &[("perm", ints(&[2, 0, 1]))]);
    let y = b.op("mul", &[one, y]);
    let y = b.with("reshape", &[y], &[("shape", dims(&[6, 4]))]);
    let y = b.op("neg", &[y]);
    let y = b.op("neg", &[y]);
    let y = b.with("concat", &[y, y], &[("axis", (-1).into())]);
    let y = b.with("slice", &[y], &[("axis", (-1).into()), ("at", 4.into()), ("len", 4.into())]);
    let y = b.with("cast", &[y], &[("to", DType::F32.into())]);
    let y = b.with("reshape", &[y], &[("shape", dims(&[2, 3, 4]))]);
    b.g.output("y", y).unwrap();
    b.g.output("x", x).unwrap();
    let classes = run(&b.g);
    assert_eq!(classes.outputs[0], classes.outputs[1]);
}

#[test]
fn products_of_one_value_are_merged() {
    let mut b = Builder { g: Graph::new("merged"), e: Encoder::SMALL };
    let x = input(&mut b, "x", &[2, 3, 4]);
    for (name, n) in [("q", 6), ("k", 2), ("v", 3)] {
        let y = b.linear(x, name, 4, n, "none");
        b.g.output(name, y).unwrap();
    }
    let classes = run(&b.g);
    let wide = |c: &&eutectic_ir::eclasses::EClass| {
        c.ty == Type::tensor(DType::F32, &[6, 11]) && c.nodes.iter().any(|n| n.op.name() == "matmul")
    };
    assert_eq!(classes.classes.iter().filter(wide).count(), 1);
}

#[test]
fn whole_encoders_keep_their_values() {
    for form in 0..4 {
        run(&Encoder { pre_norm: form & 1 > 0, primitive: form & 2 > 0, layers: 1, ..Encoder::SMALL }.build());
    }
}
