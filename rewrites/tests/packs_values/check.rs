//! Saturates a program, and compares the values of all forms of each class in the reference interpreter.

use std::sync::LazyLock;

use eutectic_ir::{
    Attr, Class, DType, Graph, NodeId, Origin, Tensor, Type,
    eclasses::{ClassId, EClasses, ENode},
    graph::Node,
    interp::{evaluate, interpret},
    ops::{Leaf, eval::Value},
};
use eutectic_rewrites::{Choice, Options, RuleSet, Stop, optimize};

use crate::packs_models::{Builder, Encoder, ints};

/// Returns values that are neither small integers nor close to each other. A name always has the same values.
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

/// Returns the values of all classes. Panics if two nodes of a class differ.
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
                observer: None,
            };
            let operands: Vec<_> = operands.iter().map(|v| &v[0]).collect();
            evaluate(NodeId(0), &graph_node, &operands).unwrap()
        }
    })
}

/// Returns whether two values are equal, relative to the largest element, except for the rounding of constants to
/// f32.
fn close(a: &Value<f64>, b: &Value<f64>) -> bool {
    let (a, b) = (a.to_tensor().to_f64(), b.to_tensor().to_f64());
    let most = a.iter().filter(|x| x.is_finite()).fold(1e-3_f64, |m, x| m.max(x.abs()));
    a.len() == b.len()
        && a.iter().zip(&b).all(|(x, y)| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= 2e-6 * most)
}

/// Saturates a graph with all rules of the default contract, and checks all forms that the rules found.
pub fn run(graph: &Graph) -> EClasses {
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

/// Saturates and checks a program with one result. Returns whether `op` with all of these attribute words can compute
/// the result's class. Views between them are allowed.
pub fn finds(name: &str, op: &str, words: &[&str], build: impl FnOnce(&mut Builder) -> NodeId) -> bool {
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

pub fn input(b: &mut Builder, name: &str, dims: &[usize]) -> NodeId {
    b.g.input(name, Type::tensor(DType::F32, dims)).unwrap()
}

pub fn last(keep: bool) -> [(&'static str, Attr); 2] {
    [("axes", ints(&[-1])), ("keep", keep.into())]
}
