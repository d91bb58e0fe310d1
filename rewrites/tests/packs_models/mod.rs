//! Transformer encoders as loaders and exporters write them, for the tests of outlining and of the packs.
#![allow(dead_code)]

use eutectic_ir::{Attr, DType, Graph, NodeId, Shape, Tensor, Type};

/// The form of an encoder.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    pub layers: usize,
    /// Whether norms come before the sublayers, with one more norm at the end, instead of after each sublayer.
    pub pre_norm: bool,
    /// Whether only primitives are used: matmul, add, erf, reductions, ….
    pub primitive: bool,
    /// Whether all layers read the same parameters.
    pub shared: bool,
    /// Whether every layer's result is an output of the program.
    pub hidden_states: bool,
    /// Whether each layer computes the bias of its attention again, as in TorchScript exports of torch.
    pub own_bias: bool,
    pub batch: usize,
    pub sequence: usize,
    pub heads: usize,
    pub head: usize,
    pub inner: usize,
}

impl Encoder {
    pub const SMALL: Encoder = Encoder {
        layers: 2,
        pre_norm: false,
        primitive: false,
        shared: false,
        hidden_states: false,
        own_bias: false,
        batch: 2,
        sequence: 5,
        heads: 2,
        head: 3,
        inner: 7,
    };

    pub const BERT: Encoder =
        Encoder { layers: 12, batch: 1, sequence: 128, heads: 12, head: 64, inner: 3072, ..Encoder::SMALL };

    fn width(&self) -> usize {
        self.heads * self.head
    }

    pub fn build(&self) -> Graph {
        let mut b = Builder { g: Graph::new("encoder"), e: *self };
        let tokens = b.g.input("tokens", Type::tensor(DType::F32, &[self.batch, self.sequence, self.width()])).unwrap();
        let mask = b.g.input("mask", Type::tensor(DType::F32, &[self.batch, self.sequence])).unwrap();
        let positions = b.param("positions", &[self.sequence, self.width()]);
        let mut x = b.op("add", &[tokens, positions]);
        if !self.pre_norm {
            x = b.norm(x, "embeddings.norm");
        }
        let shared = b.bias(mask);
        for layer in 0..self.layers {
            let bias = if self.own_bias { b.bias(mask) } else { shared };
            x = b.layer(x, bias, layer);
            if self.hidden_states {
                b.g.output(&format!("hidden{layer}"), x).unwrap();
            }
        }
        if self.pre_norm {
            x = b.norm(x, "final.norm");
        }
        let pooled = b.with("reduce-mean", &[x], &[("axes", ints(&[-2])), ("keep", false.into())]);
        b.g.output("pooled", pooled).unwrap();
        b.g
    }
}

pub fn ints(n: &[i64]) -> Attr {
    n.into()
}

pub fn dims(n: &[usize]) -> Attr {
    Attr::Shape(n.iter().copied().collect::<Shape>())
}

/// A graph under construction. It panics on wrong operands, because they are bugs in the test.
pub struct Builder {
    pub g: Graph,
    pub e: Encoder,
}

impl Builder {
    pub fn op(&mut self, op: &str, operands: &[NodeId]) -> NodeId {
        self.with(op, operands, &[])
    }

    pub fn with(&mut self, op: &str, operands: &[NodeId], attrs: &[(&str, Attr)]) -> NodeId {
        self.g.apply(op, operands, attrs).unwrap_or_else(|e| panic!("{e}"))
    }

    pub fn param(&mut self, name: &str, dims: &[usize]) -> NodeId {
        if let Some((_, id)) = self.g.named("param").find(|(n, _)| *n == name) {
            return id;
        }
        self.g.param(name, Type::tensor(DType::F32, dims)).unwrap()
    }

    pub fn scalar(&mut self, x: f64) -> NodeId {
        self.g.constant(Tensor::from_f64(DType::F32, &[], [x])).unwrap()
    }

    fn bias(&mut self, mask: NodeId) -> NodeId {
        let (one, low) = (self.scalar(1.0), self.scalar(-10000.0));
        let inverted = self.op("sub", &[one, mask]);
        let bias = self.op("mul", &[inverted, low]);
        self.with("reshape", &[bias], &[("shape", dims(&[self.e.batch, 1, 1, self.e.sequence]))])
    }

    pub fn norm(&mut self, x: NodeId, name: &str) -> NodeId {
        let d = self.e.width();
        let (g, b) = (self.param(&format!("{name}.weight"), &[d]), self.param(&format!("{name}.bias"), &[d]));
        if !self.e.primitive {
            return self.with("layernorm", &[x, g, b], &[("eps", 1e-12.into())]);
        }
        let (n, eps) = (self.scalar(d as f64), self.scalar(1e-12));
        let sum = |b: &mut Builder, x| b.with("reduce-sum", &[x], &[("axes", ints(&[-1])), ("keep", true.into())]);
        let total = sum(self, x);
        let mean = self.op("div", &[total, n]);
        let centred = self.op("sub", &[x, mean]);
        let square = self.op("mul", &[centred, centred]);
        let total = sum(self, square);
        let variance = self.op("div", &[total, n]);
        let variance = self.op("add", &[variance, eps]);
        let deviation = self.op("sqrt", &[variance]);
        let normal = self.op("div", &[centred, deviation]);
        let scaled = self.op("mul", &[normal, g]);
        self.op("add", &[scaled, b])
    }

    pub fn linear(&mut self, x: NodeId, name: &str, k: usize, n: usize, act: &str) -> NodeId {
        let (w, b) = (self.param(&format!("{name}.weight"), &[k, n]), self.param(&format!("{name}.bias"), &[n]));
        if !self.e.primitive {
            return self.with("linear", &[x, w, b], &[("act", act.into())]);
        }
        let product = self.op("matmul", &[x, w]);
        let sum = self.op("add", &[product, b]);
        if act == "none" { sum } else { self.gelu(sum) }
    }

    fn gelu(&mut self, x: NodeId) -> NodeId {
        let (root, one, half) = (self.scalar(std::f64::consts::SQRT_2), self.scalar(1.0), self.scalar(0.5));
        let scaled = self.op("div", &[x, root]);
        let erf = self.op("erf", &[scaled]);
        let shifted = self.op("add", &[erf, one]);
        let product = self.op("mul", &[x, shifted]);
        self.op("mul", &[product, half])
    }

    fn split(&mut self, x: NodeId) -> NodeId {
        let Encoder { batch, sequence, heads, head, .. } = self.e;
        let split = self.with("reshape", &[x], &[("shape", dims(&[batch, sequence, heads, head]))]);
        self.with("transpose", &[split], &[("perm", ints(&[0, 2, 1, 3]))])
    }

    fn attention(&mut self, q: NodeId, k: NodeId, v: NodeId, mask: NodeId) -> NodeId {
        let scale = (self.e.head as f64).sqrt();
        if !self.e.primitive {
            let attrs = [("scale", (1.0 / scale).into()), ("mask", "additive".into())];
            return self.with("sdpa", &[q, k, v, mask], &attrs);
        }
        let scale = self.scalar(scale);
        let kt = self.with("transpose", &[k], &[("perm", ints(&[0, 1, 3, 2]))]);
        let scores = self.op("matmul", &[q, kt]);
        let scaled = self.op("div", &[scores, scale]);
        let masked = self.op("add", &[scaled, mask]);
        let along = [("axes", ints(&[-1])), ("keep", true.into())];
        let top = self.with("reduce-max", &[masked], &along);
        let shifted = self.op("sub", &[masked, top]);
        let exp = self.op("exp", &[shifted]);
        let total = self.with("reduce-sum", &[exp], &along);
        let weights = self.op("div", &[exp, total]);
        self.op("matmul", &[weights, v])
    }

    fn attend(&mut self, x: NodeId, mask: NodeId, part: &str) -> NodeId {
        let width = self.e.width();
        let project = |b: &mut Builder, what: &str| {
            let y = b.linear(x, &format!("{part}.{what}"), width, width, "none");
            b.split(y)
        };
        let (q, k, v) = (project(self, "query"), project(self, "key"), project(self, "value"));
        let heads = self.attention(q, k, v, mask);
        let merged = self.with("transpose", &[heads], &[("perm", ints(&[0, 2, 1, 3]))]);
        let shape = dims(&[self.e.batch, self.e.sequence, width]);
        let merged = self.with("reshape", &[merged], &[("shape", shape)]);
        self.linear(merged, &format!("{part}.output"), width, width, "none")
    }

    fn layer(&mut self, x: NodeId, mask: NodeId, layer: usize) -> NodeId {
        let place = format!("layer.{layer}");
        let name = if self.e.shared { "layer".to_string() } else { place.clone() };
        let (width, inner, pre) = (self.e.width(), self.e.inner, self.e.pre_norm);
        let mut g = std::mem::take(&mut self.g);
        let y = g.within(&place, |g| {
            std::mem::swap(&mut self.g, g);
            let (one, two) = (format!("{name}.norm1"), format!("{name}.norm2"));
            let read = if pre { self.norm(x, &one) } else { x };
            let attended = self.attend(read, mask, &format!("{name}.attention"));
            let sum = self.op("add", &[attended, x]);
            let x = if pre { sum } else { self.norm(sum, &one) };
            let read = if pre { self.norm(x, &two) } else { x };
            let up = self.linear(read, &format!("{name}.up"), width, inner, "gelu-erf");
            let down = self.linear(up, &format!("{name}.down"), inner, width, "none");
            let sum = self.op("add", &[down, x]);
            let y = if pre { sum } else { self.norm(sum, &two) };
            std::mem::swap(&mut self.g, g);
            y
        });
        self.g = g;
        y
    }
}
