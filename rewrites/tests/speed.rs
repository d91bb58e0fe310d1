//! Measures how the engine's time grows with the number of layers of a post-norm encoder made of primitives, without
//! outlining.

use std::time::{Duration, Instant};

use eutectic_ir::{Attr, DType, Graph, NodeId, Tensor, Type};
use eutectic_rewrites::{Choice, Options, RuleSet, Stop, optimize};

struct Encoder {
    graph: Graph,
    hidden: usize,
    heads: usize,
    rows: usize,
}

impl Encoder {
    fn op(&mut self, op: &str, operands: &[NodeId], attrs: &[(&str, Attr)]) -> NodeId {
        self.graph.apply(op, operands, attrs).unwrap()
    }

    fn number(&mut self, x: f64) -> NodeId {
        self.graph.constant(Tensor::from_f64(DType::F32, &[], [x])).unwrap()
    }

    fn param(&mut self, name: &str, dims: &[usize]) -> NodeId {
        self.graph.param(name, Type::tensor(DType::F32, dims)).unwrap()
    }

    fn linear(&mut self, x: NodeId, name: &str, k: usize, n: usize) -> NodeId {
        let (w, b) = (self.param(&format!("{name}.w"), &[k, n]), self.param(&format!("{name}.b"), &[n]));
        let product = self.op("matmul", &[x, w], &[]);
        self.op("add", &[product, b], &[])
    }

    fn reduce(&mut self, op: &str, x: NodeId) -> NodeId {
        self.op(op, &[x], &[("axes", (&[-1_i64][..]).into()), ("keep", true.into())])
    }

    fn norm(&mut self, x: NodeId, name: &str) -> NodeId {
        let n = self.number(self.hidden as f64);
        let sum = self.reduce("reduce-sum", x);
        let mean = self.op("div", &[sum, n], &[]);
        let centred = self.op("sub", &[x, mean], &[]);
        let two = self.number(2.0);
        let squared = self.op("pow", &[centred, two], &[]);
        let sum = self.reduce("reduce-sum", squared);
        let variance = self.op("div", &[sum, n], &[]);
        let eps = self.number(1e-12);
        let shifted = self.op("add", &[variance, eps], &[]);
        let root = self.op("sqrt", &[shifted], &[]);
        let normal = self.op("div", &[centred, root], &[]);
        let (g, b) =
            (self.param(&format!("{name}.g"), &[self.hidden]), self.param(&format!("{name}.b"), &[self.hidden]));
        let scaled = self.op("mul", &[normal, g], &[]);
        self.op("add", &[scaled, b], &[])
    }

    fn split(&mut self, x: NodeId, perm: &[i64]) -> NodeId {
        let shape = [1, self.rows, self.heads, self.hidden / self.heads].into_iter().collect::<eutectic_ir::Shape>();
        let split = self.op("reshape", &[x], &[("shape", shape.into())]);
        self.op("transpose", &[split], &[("perm", perm.into())])
    }

    fn layer(&mut self, x: NodeId, n: usize, mask: NodeId) -> NodeId {
        let (h, name) = (self.hidden, format!("layer.{n}"));
        let [q, k, v] = ["q", "k", "v"].map(|part| self.linear(x, &format!("{name}.{part}"), h, h));
        let (q, k, v) = (self.split(q, &[0, 2, 1, 3]), self.split(k, &[0, 2, 3, 1]), self.split(v, &[0, 2, 1, 3]));
        let scores = self.op("matmul", &[q, k], &[]);
        let root = self.number(((h / self.heads) as f64).sqrt());
        let scaled = self.op("div", &[scores, root], &[]);
        let masked = self.op("add", &[scaled, mask], &[]);
        let top = self.reduce("reduce-max", masked);
        let shifted = self.op("sub", &[masked, top], &[]);
        let e = self.op("exp", &[shifted], &[]);
        let sum = self.reduce("reduce-sum", e);
        let weights = self.op("div", &[e, sum], &[]);
        let mixed = self.op("matmul", &[weights, v], &[]);
        let merged = self.op("transpose", &[mixed], &[("perm", (&[0_i64, 2, 1, 3][..]).into())]);
        let shape = [1, self.rows, h].into_iter().collect::<eutectic_ir::Shape>();
        let merged = self.op("reshape", &[merged], &[("shape", shape.into())]);
        let out = self.linear(merged, &format!("{name}.o"), h, h);
        let sum = self.op("add", &[out, x], &[]);
        let x = self.norm(sum, &format!("{name}.n1"));
        let up = self.linear(x, &format!("{name}.up"), h, 4 * h);
        let root = self.number(std::f64::consts::SQRT_2);
        let inner = self.op("div", &[up, root], &[]);
        let erf = self.op("erf", &[inner], &[]);
        let one = self.number(1.0);
        let sum = self.op("add", &[erf, one], &[]);
        let half = self.number(0.5);
        let halved = self.op("mul", &[up, half], &[]);
        let gelu = self.op("mul", &[halved, sum], &[]);
        let down = self.linear(gelu, &format!("{name}.down"), 4 * h, h);
        let sum = self.op("add", &[down, x], &[]);
        self.norm(sum, &format!("{name}.n2"))
    }
}

fn encoder(layers: usize) -> Graph {
    let mut e = Encoder { graph: Graph::new("encoder"), hidden: 64, heads: 4, rows: 16 };
    let mut x = e.graph.input("x", Type::tensor(DType::F32, &[1, 16, 64])).unwrap();
    let mask = e.graph.input("mask", Type::tensor(DType::F32, &[1, 1, 1, 16])).unwrap();
    for n in 0..layers {
        x = e.layer(x, n, mask);
    }
    e.graph.output("y", x).unwrap();
    e.graph
}

#[test]
fn grows_linearly() {
    let rules = RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap();
    let mut sizes = Vec::new();
    for layers in [1, 2, 3, 6, 12] {
        let graph = encoder(layers);
        let mut best = Duration::MAX;
        let mut nodes = 0;
        for _ in 0..3 {
            let start = Instant::now();
            let done = optimize(&graph, &rules, &Options::default()).unwrap();
            best = best.min(start.elapsed());
            nodes = done.phases.last().unwrap().nodes;
            assert!(done.phases.iter().all(|p| p.stop == Stop::Saturated), "{:?}", done.phases);
        }
        println!("{layers:3} layers: {} graph nodes, {nodes} e-nodes, {best:?}", graph.len());
        sizes.push((layers, nodes));
    }
    let per_layer = |a: usize, b: usize| (sizes[b].1 - sizes[a].1) as f64 / (sizes[b].0 - sizes[a].0) as f64;
    let (early, late) = (per_layer(0, 1), per_layer(3, 4));
    assert!((late / early - 1.0).abs() < 0.1, "{sizes:?}");
}
