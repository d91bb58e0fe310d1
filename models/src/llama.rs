//! Decoders in the style of Llama (Touvron et al. 2023): RMS norms, rotary embeddings, SwiGLU and grouped-query
//! attention. A graph computes either one token, with keys and values in states, or a whole sequence without states.

use eutectic_ir::{DType, Dim, Graph, NodeId, Shape, Tensor, Type};

use crate::nn::Built;

/// The sizes of a decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LlamaConfig {
    /// The number of layers.
    pub layers: usize,
    /// The number of query heads.
    pub heads: usize,
    /// The number of heads of keys and values, a divisor of the number of query heads.
    pub groups: usize,
    /// The width of a head, an even number.
    pub depth: usize,
    /// The inner width of the feed-forward part.
    pub inner: usize,
    /// The number of token ids.
    pub words: usize,
    /// The largest number of tokens in a sequence.
    pub positions: usize,
    /// Whether the embedding table also projects the hidden state to logits.
    pub tied: bool,
    /// The base of the rotary frequencies.
    pub theta: f64,
}

/// The source of the keys and values that a layer attends to.
enum Cache {
    /// The tokens of this run, which are the whole sequence.
    None,
    /// States with `rows` rows. The mask `here` marks the row of the current token. The mask `seen` marks the rows that
    /// the token attends to; `None` means all rows.
    Rows { rows: Dim, here: NodeId, seen: Option<NodeId> },
}

fn f32s(dims: &[usize]) -> Type {
    Type::tensor(DType::F32, dims)
}

fn shape(dims: &[usize]) -> Shape {
    dims.iter().copied().collect()
}

impl LlamaConfig {
    /// Returns the sizes of Llama 3.2 1B.
    pub fn one_billion(positions: usize) -> LlamaConfig {
        LlamaConfig {
            layers: 16,
            heads: 32,
            groups: 8,
            depth: 64,
            inner: 8192,
            words: 128_256,
            positions,
            tied: true,
            theta: 5e5,
        }
    }

    /// Returns the width of the hidden state.
    pub fn width(&self) -> usize {
        self.heads * self.depth
    }

    /// Returns the number of bytes of one token's keys in one layer. Its values take as many bytes.
    pub fn row_bytes(&self) -> usize {
        self.groups * self.depth * DType::F32.size()
    }

    /// Builds the graph of one decoding step: from the token `id i64[1]` at position `at i64[]` to its logits. Each
    /// layer has two states of `rows` rows, for keys and values. The token attends to the rows up to its position if
    /// `masked`, and otherwise to all rows.
    ///
    /// # Errors
    /// If the sizes of the configuration contradict each other.
    pub fn step(&self, rows: impl Into<Dim>, masked: bool) -> Built<Graph> {
        let rows: Dim = rows.into();
        let mut g = Graph::new("step");
        let id = g.input("id", Type::tensor(DType::I64, &[1]))?;
        let at = g.input("at", Type::tensor(DType::I64, &[]))?;
        let row = g.reshape(at, shape(&[1]))?;
        let mut angles = [at; 2];
        for (angle, table) in angles.iter_mut().zip(self.angles(&mut g)?) {
            *angle = g.gather(table, row, 0)?;
        }
        let row = g.iota([rows.clone(), 1_usize.into()].into_iter().collect(), -2, DType::I64)?;
        let here = g.apply("eq", &[row, at], &[])?;
        let mut seen = None;
        if masked {
            let key = g.iota([1_usize.into(), rows.clone()].into_iter().collect(), -1, DType::I64)?;
            seen = Some(g.apply("le", &[key, at], &[])?);
        }
        self.build(&mut g, id, angles, 1, &Cache::Rows { rows, here, seen })?;
        Ok(g)
    }

    /// Builds the graph from a whole sequence `ids i64[tokens]` to the logits of each token.
    ///
    /// # Errors
    /// If the sizes of the configuration contradict each other.
    pub fn whole(&self, tokens: usize) -> Built<Graph> {
        let mut g = Graph::new("whole");
        let ids = g.input("ids", Type::tensor(DType::I64, &[tokens]))?;
        let mut angles = [ids; 2];
        for (angle, table) in angles.iter_mut().zip(self.angles(&mut g)?) {
            *angle = g.slice(table, 0, 0, tokens as i64)?;
        }
        self.build(&mut g, ids, angles, tokens, &Cache::None)?;
        Ok(g)
    }

    /// Returns the rotary tables, which are the values of the parameters `cos` and `sin`: `[positions depth/2]`.
    pub fn rotation(&self) -> [(&'static str, Tensor); 2] {
        let pairs = self.depth / 2;
        let angle = |i: usize| (i / pairs) as f64 / self.theta.powf((i % pairs) as f64 / pairs as f64);
        let table = |f: fn(f64) -> f64| {
            let values = (0..self.positions * pairs).map(|i| f(angle(i)));
            Tensor::from_f64(DType::F32, &[self.positions, pairs], values)
        };
        [("cos", table(f64::cos)), ("sin", table(f64::sin))]
    }

    fn angles(&self, g: &mut Graph) -> Built<[NodeId; 2]> {
        let ty = f32s(&[self.positions, self.depth / 2]);
        Ok([g.param("cos", ty.clone())?, g.param("sin", ty)?])
    }

    /// Builds the graph from `ids` to logits. `angles` are the cosines and sines of each token.
    fn build(&self, g: &mut Graph, ids: NodeId, angles: [NodeId; 2], tokens: usize, cache: &Cache) -> Built<()> {
        let table = g.param("embedding", f32s(&[self.words, self.width()]))?;
        let mut x = g.gather(table, ids, 0)?;
        for layer in 0..self.layers {
            x = g.within(&format!("layer.{layer}"), |g| self.layer(g, layer, x, angles, tokens, cache))?;
        }
        let gain = g.param("norm", f32s(&[self.width()]))?;
        let x = g.rmsnorm(x, gain, 1e-5)?;
        let head = match self.tied {
            true => g.transpose(table, &[1, 0])?,
            false => g.param("head", f32s(&[self.width(), self.words]))?,
        };
        let logits = g.matmul(x, head)?;
        g.output("logits", logits)
    }

    fn layer(
        &self,
        g: &mut Graph,
        layer: usize,
        x: NodeId,
        angles: [NodeId; 2],
        tokens: usize,
        cache: &Cache,
    ) -> Built {
        let (w, d) = (self.width(), self.depth);
        let param = |g: &mut Graph, name: &str, dims: &[usize]| g.param(&format!("{layer}.{name}"), f32s(dims));
        let gain = param(g, "attention-norm", &[w])?;
        let n = g.rmsnorm(x, gain, 1e-5)?;
        let mut heads = Vec::new();
        for (name, count) in [("q", self.heads), ("k", self.groups), ("v", self.groups)] {
            let weight = param(g, name, &[w, count * d])?;
            let y = g.matmul(n, weight)?;
            let y = g.reshape(y, shape(&[tokens, count, d]))?;
            let y = g.transpose(y, &[1, 0, 2])?;
            heads.push(if name == "v" { y } else { g.rope(y, angles[0], angles[1], "half")? });
        }
        let [q, mut k, mut v] = heads[..] else { unreachable!("the loop above builds queries, keys and values") };
        let scale = ("scale", (1.0 / (d as f64).sqrt()).into());
        let y = match cache {
            Cache::None => g.apply("sdpa", &[q, k, v], &[scale, ("mask", "causal".into())])?,
            Cache::Rows { rows, here, seen } => {
                for (name, x) in [("keys", &mut k), ("values", &mut v)] {
                    let name = format!("{layer}.{name}");
                    let state = [self.groups.into(), rows.clone(), d.into()].into_iter().collect();
                    let before = g.state(&name, Type::Tensor(DType::F32, state))?;
                    *x = g.select(*here, *x, before)?;
                    g.update(&name, *x)?;
                }
                match seen {
                    Some(seen) => g.apply("sdpa", &[q, k, v, *seen], &[scale, ("mask", "keep".into())])?,
                    None => g.apply("sdpa", &[q, k, v], &[scale, ("mask", "none".into())])?,
                }
            }
        };
        let y = g.transpose(y, &[1, 0, 2])?;
        let y = g.reshape(y, shape(&[tokens, w]))?;
        let weight = param(g, "o", &[w, w])?;
        let y = g.matmul(y, weight)?;
        let x = g.add(x, y)?;
        let gain = param(g, "mlp-norm", &[w])?;
        let n = g.rmsnorm(x, gain, 1e-5)?;
        let weight = param(g, "gate-up", &[w, 2 * self.inner])?;
        let y = g.matmul(n, weight)?;
        let y = g.glu(y, "first", "silu")?;
        let weight = param(g, "down", &[self.inner, w])?;
        let y = g.matmul(y, weight)?;
        g.add(x, y)
    }
}
