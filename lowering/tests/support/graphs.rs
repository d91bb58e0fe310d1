//! Builds random graphs in legal form, for the tests of this crate and for tests of whole programs.

use eutectic_ir::{DType, Graph, NodeId, Type};

/// A small splitmix generator for tests.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// Returns a random graph over square matrices, built in `ops` steps. A step adds a pointwise op, a transpose, a
/// product, or a row reduction with `expand`. The graph has shared values and one or two outputs.
pub fn random_graph(seed: u64, ops: usize, extents: &[usize]) -> Graph {
    let mut rng = Rng(seed);
    let n = extents[rng.below(extents.len())];
    let mut g = Graph::new(format!("random {seed}"));
    let mut values: Vec<NodeId> =
        ["x", "y"].iter().map(|name| g.input(name, Type::tensor(DType::F32, &[n, n])).unwrap()).collect();
    for _ in 0..ops {
        let a = values[rng.below(values.len())];
        let b = values[rng.below(values.len())];
        let value = match rng.below(7) {
            0 => g.apply("add", &[a, b], &[]),
            1 => g.apply("mul", &[a, b], &[]),
            2 => g.apply("exp", &[a], &[]),
            3 => g.apply("transpose", &[a], &[("perm", [1_i64, 0].as_slice().into())]),
            4 => g.apply("matmul", &[a, b], &[]),
            _ => {
                let axes: eutectic_ir::Attr = [-1_i64].as_slice().into();
                let row = g.apply("reduce-sum", &[a], &[("axes", axes)]).unwrap();
                let shape: eutectic_ir::Shape = [n, n].into_iter().collect();
                g.apply("expand", &[row], &[("shape", shape.into())])
            }
        };
        values.push(value.unwrap());
    }
    let last = *values.last().unwrap();
    g.output("last", last).unwrap();
    let other = values[2 + rng.below(values.len() - 2)];
    if other != last {
        g.output("other", other).unwrap();
    }
    g
}
