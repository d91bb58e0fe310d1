//! Runs a small transformer in the interpreter, made of composites and made of primitives.

use std::collections::BTreeMap;

use eutectic_ir::{Bounded, DType, Graph, GraphError, NodeId, Tensor, Type, interpret, ops::eval::Data};

const HEADS: usize = 4;

struct Sizes {
    tokens: usize,
    hidden: usize,
}

fn weight(g: &mut Graph, name: &str, dims: &[usize]) -> Result<NodeId, GraphError> {
    g.param(name, Type::tensor(DType::F32, dims))
}

fn linear(g: &mut Graph, x: NodeId, name: &str, n: usize, composite: bool) -> Result<NodeId, GraphError> {
    let k = g.shape(x).unwrap().last().unwrap().known().unwrap() as usize;
    let (w, b) = (weight(g, &format!("{name}.w"), &[k, n])?, weight(g, &format!("{name}.b"), &[n])?);
    if composite {
        return g.linear(x, w, b, "none");
    }
    let y = g.matmul(x, w)?;
    g.add(y, b)
}

fn normalised(g: &mut Graph, x: NodeId, name: &str, composite: bool) -> Result<NodeId, GraphError> {
    let d = g.shape(x).unwrap().last().unwrap().known().unwrap() as usize;
    let (w, b) = (weight(g, &format!("{name}.w"), &[d])?, weight(g, &format!("{name}.b"), &[d])?);
    if composite {
        return g.layernorm(x, w, b, 1e-5);
    }
    let mean = g.reduce_mean(x, &[-1], true)?;
    let centred = g.sub(x, mean)?;
    let square = g.mul(centred, centred)?;
    let variance = g.reduce_mean(square, &[-1], true)?;
    let eps = g.scalar(1e-5, variance)?;
    let shifted = g.add(variance, eps)?;
    let root = g.sqrt(shifted)?;
    let y = g.div(centred, root)?;
    let y = g.mul(y, w)?;
    g.add(y, b)
}

fn attention(g: &mut Graph, [q, k, v]: [NodeId; 3], composite: bool) -> Result<NodeId, GraphError> {
    let depth = g.shape(q).unwrap().last().unwrap().known().unwrap() as f64;
    if composite {
        return g.apply("sdpa", &[q, k, v], &[("scale", depth.sqrt().recip().into()), ("mask", "none".into())]);
    }
    let kt = g.transpose(k, &[-3, -1, -2])?;
    let scores = g.matmul(q, kt)?;
    let scale = g.scalar(depth.sqrt(), scores)?;
    let scores = g.div(scores, scale)?;
    let most = g.reduce_max(scores, &[-1], true)?;
    let powers = g.sub(scores, most)?;
    let powers = g.exp(powers)?;
    let sum = g.reduce_sum(powers, &[-1], true)?;
    let p = g.div(powers, sum)?;
    g.matmul(p, v)
}

fn layer(g: &mut Graph, x: NodeId, sizes: &Sizes, name: &str, composite: bool) -> Result<NodeId, GraphError> {
    let Sizes { tokens, hidden } = *sizes;
    let mut heads = [x; 3];
    for (head, part) in heads.iter_mut().zip(["q", "k", "v"]) {
        let y = linear(g, x, &format!("{name}.{part}"), hidden, composite)?;
        let split = g.reshape(y, [tokens, HEADS, hidden / HEADS].into_iter().collect())?;
        *head = g.transpose(split, &[-2, -3, -1])?;
    }
    let mixed = attention(g, heads, composite)?;
    let mixed = g.transpose(mixed, &[-2, -3, -1])?;
    let mixed = g.reshape(mixed, [tokens, hidden].into_iter().collect())?;
    let out = linear(g, mixed, &format!("{name}.o"), hidden, composite)?;
    let x = g.add(x, out)?;
    let x = normalised(g, x, &format!("{name}.n1"), composite)?;
    let up = linear(g, x, &format!("{name}.up"), 4 * hidden, composite)?;
    let up = g.act(up, "gelu-erf")?;
    let down = linear(g, up, &format!("{name}.down"), hidden, composite)?;
    let x = g.add(x, down)?;
    normalised(g, x, &format!("{name}.n2"), composite)
}

fn transformer(sizes: &Sizes, layers: usize, composite: bool) -> Graph {
    let mut g = Graph::new("transformer");
    let mut x = g.input("x", Type::tensor(DType::F32, &[sizes.tokens, sizes.hidden])).unwrap();
    for n in 0..layers {
        x = g.within(&format!("layer.{n}"), |g| layer(g, x, sizes, &format!("layer.{n}"), composite)).unwrap();
    }
    g.output("y", x).unwrap();
    g
}

fn values(graph: &Graph) -> BTreeMap<String, Tensor> {
    let mut seed = 0_u64;
    let mut number = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 40) as f64 / (1 << 24) as f64 - 0.5
    };
    let leaves = graph.named("input").chain(graph.named("param"));
    let mut tensor = |(name, id): (&str, NodeId)| {
        let dims = graph.ty(id).dims().unwrap();
        let scale = if dims.len() == 2 { 2.0 / (dims[0] as f64).sqrt() } else { 1.0 };
        let count = dims.iter().product();
        (name.to_string(), Tensor::from_f64(DType::F32, &dims, (0..count).map(|_| number() * scale)))
    };
    leaves.map(&mut tensor).collect()
}

#[test]
fn composites_and_primitives_agree() {
    let sizes = Sizes { tokens: 5, hidden: 16 };
    let (a, b) = (transformer(&sizes, 2, true), transformer(&sizes, 2, false));
    assert!(a.verify().is_ok() && b.verify().is_ok());
    let values = values(&a);
    let given = |name: &str| values.get(name).cloned();
    let (x, y) = (interpret::<f64>(&a, &given).unwrap(), interpret::<f64>(&b, &given).unwrap());
    let (x, y) = (x[0].to_tensor(), y[0].to_tensor());
    let apart = x.to_f64().iter().zip(y.to_f64()).fold(0.0, |m: f64, (x, y)| m.max((x - y).abs()));
    assert!(apart < 1e-6, "{apart}");
}

#[test]
fn bounds_stay_useful_through_a_layer() {
    let graph = transformer(&Sizes { tokens: 6, hidden: 32 }, 1, true);
    let values = values(&graph);
    let bounded = interpret::<Bounded>(&graph, &|name| values.get(name).cloned()).unwrap();
    let Data::Real(y) = &bounded[0].data else { panic!("the output is not a float") };
    let widest = y.iter().fold(0.0, |m: f64, y| m.max(y.err));
    // The results are about 1, so these bounds are moderate.
    assert!(widest > 1e-7 && widest < 5e-2, "{widest}");
}

/// Without a mask, all scores of a row are −∞ only if operands contain infinities. Then the softmax of the row is
/// NaN, for the composite and for the primitives.
#[test]
fn a_row_of_scores_of_minus_infinity_is_nan_without_a_mask() {
    let ty = Type::tensor(DType::F64, &[1, 1, 2]);
    for composite in [true, false] {
        let mut g = Graph::new("rows");
        let operands = ["q", "k", "v"].map(|name| g.input(name, ty.clone()).unwrap());
        let operands = match composite {
            true => operands.map(|x| g.reshape(x, [1_i64, 1, 1, 2].into_iter().collect()).unwrap()),
            false => operands,
        };
        let y = attention(&mut g, operands, composite).unwrap();
        g.output("y", y).unwrap();
        let given = |name: &str| {
            let x = if name == "q" { f64::NEG_INFINITY } else { 1.0 };
            Some(Tensor::from_f64(DType::F64, &[1, 1, 2], [x, x]))
        };
        let results = interpret::<f64>(&g, &given).unwrap();
        assert!(results[0].to_tensor().to_f64().iter().all(|x| x.is_nan()), "{results:?}");
    }
}
