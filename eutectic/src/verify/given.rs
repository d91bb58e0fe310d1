//! The inputs of a verified run: the caller's tensors, and the same tensors disturbed by about one rounding.

use std::collections::BTreeMap;

use eutectic_ir::{
    Attr, Bounded, DType, Graph, Tensor,
    ops::{Loop, eval::Value},
};
use rayon::prelude::*;

use super::{
    Precision,
    expected::{Expected, at_lengths},
};
use crate::Error;

/// The number of reference runs: one on the original tensors, and the others on disturbed ones.
pub(crate) const LANES: usize = 4;

/// Inputs, parameters and states by name, for each lane.
pub(crate) struct Given {
    pub lanes: Vec<BTreeMap<String, Tensor>>,
    /// Whether values with error bounds are also needed.
    pub bounded: bool,
}

impl Given {
    /// Collects the tensors of a graph and disturbs inputs and parameters for the further lanes. States are zeros, with
    /// their run-time extents from `lengths`.
    ///
    /// # Errors
    /// Every input and parameter that has no value.
    pub fn new(
        graph: &Graph,
        value: &dyn Fn(&str) -> Option<Tensor>,
        lengths: &[(String, usize)],
        bits: u32,
    ) -> Result<Given, Error> {
        let (mut first, mut missing) = (BTreeMap::new(), Vec::new());
        for (name, id) in ["input", "param"].into_iter().flat_map(|kind| graph.named(kind)) {
            match value(name) {
                Some(tensor) => _ = first.insert(name.to_string(), tensor),
                None => missing.push(format!("`{name}` {} has no value", graph.ty(id))),
            }
        }
        if !missing.is_empty() {
            return Err(Error::Arguments(missing));
        }
        let given: Vec<(&String, &Tensor)> = first.iter().collect();
        let disturbed = |lane: usize| {
            let one = |&(name, tensor): &(&String, &Tensor)| (name.clone(), disturb(tensor, bits, seed(name, lane)));
            given.par_iter().map(one).collect::<BTreeMap<_, _>>()
        };
        let mut lanes: Vec<_> = (1..LANES).map(disturbed).collect();
        lanes.insert(0, first);
        for (name, id) in graph.named("state") {
            let ty = at_lengths(graph.ty(id), lengths);
            let (dtype, dims) = ty.dtype().zip(ty.dims()).expect("run-time extents have lengths in a run");
            let zeros = Tensor::new(dtype, &dims, vec![0; ty.bytes()]).expect("the bytes have the size of the type");
            lanes.iter_mut().for_each(|lane| _ = lane.insert(name.to_string(), zeros.clone()));
        }
        Ok(Given { lanes, bounded: false })
    }

    /// Returns the tensor with this name in a lane.
    pub fn get(&self, lane: usize, name: &str) -> Option<Tensor> {
        self.lanes[lane].get(name).cloned()
    }

    /// Returns the tensor with this name as a reference value.
    pub fn expected(&self, name: &str) -> Option<Expected> {
        let lanes: Vec<Tensor> = self.lanes.iter().map(|lane| lane.get(name).cloned()).collect::<Option<_>>()?;
        Some(self.known(lanes))
    }

    /// Returns a constant as a reference value.
    pub fn constant(&self, tensor: &Tensor) -> Expected {
        self.known(vec![tensor.clone(); LANES])
    }

    fn known(&self, lanes: Vec<Tensor>) -> Expected {
        let bounded = self.bounded.then(|| Value::<Bounded>::from_tensor(&lanes[0]));
        Expected { lanes, bounded }
    }
}

/// Returns the smallest number of significant bits of a type that the graph uses, or that `precision` rounds to.
pub(crate) fn significant_bits(graph: &Graph, precision: Precision) -> u32 {
    let asked = bits_of(precision).into_iter();
    let of_node = |node: &eutectic_ir::graph::Node| {
        let own = node.ty.dtype().filter(|dtype| dtype.is_float()).map(DType::significand_bits);
        let body = Loop::of(&node.attrs).map(|of| significant_bits(of.body, precision));
        own.into_iter().chain(body).min()
    };
    graph.nodes().filter_map(|(_, node)| of_node(node)).chain(asked).min().unwrap_or(DType::F32.significand_bits())
}

/// Returns the number of significant bits that `precision` keeps in operands, if it rounds them.
pub(crate) fn bits_of(precision: Precision) -> Option<u32> {
    match precision {
        Precision::F32 => None,
        Precision::Tf32 | Precision::F16 => Some(DType::F16.significand_bits()),
        Precision::Bf16 => Some(DType::Bf16.significand_bits()),
    }
}

/// Returns the work of interpreting a graph, as the number of operations and elements.
pub(crate) fn work(graph: &Graph) -> f64 {
    let of_node = |node: &eutectic_ir::graph::Node| {
        let operands: Vec<_> = node.operands.iter().map(|id| graph.ty(*id)).collect();
        let body = node.attrs.iter().any(|attr| matches!(attr, Attr::Graph(_)));
        let looped = body.then(|| Loop::of(&node.attrs).map(|of| of.times as f64 * work(of.body))).flatten();
        looped.unwrap_or_else(|| node.op.flops(&node.attrs, &operands, &node.ty) + node.ty.count() as f64)
    };
    graph.nodes().map(|(_, node)| of_node(node)).sum()
}

fn seed(name: &str, lane: usize) -> u64 {
    let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ (lane as u64).rotate_left(32), hash)
}

/// Moves each element of a float tensor up or down by one unit in the last of `bits` significant bits. Integers,
/// infinities and NaN do not change, because masks, ids and counts are exact in every program. A number with fewer bits
/// moves by one unit of its own type.
fn disturb(tensor: &Tensor, bits: u32, seed: u64) -> Tensor {
    let dtype = tensor.dtype();
    if !dtype.is_float() {
        return tensor.clone();
    }
    let own = dtype.significand_bits();
    let mut random = seed;
    let moved = |x: f64| {
        // SplitMix64 (Steele, Lea and Flood, 2014).
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let up = ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 63) == 0;
        let whole = x.fract() == 0.0 || !x.is_finite();
        if whole {
            return x;
        }
        let short = x.to_bits().trailing_zeros() >= 53 - bits.min(53);
        let unit = 0.5_f64.powi(if short { own } else { bits.min(own) } as i32 - 1);
        x * if up { 1.0 + unit } else { 1.0 - unit }
    };
    Tensor::from_f64(dtype, tensor.dims(), tensor.to_f64().into_iter().map(moved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exact_in_every_program_is_not_disturbed() {
        let numbers = [0.0, -3.0, f64::INFINITY, 1e9, 0.3, -1e-20, 0.5];
        let tensor = Tensor::from_f64(DType::F32, &[numbers.len()], numbers);
        let disturbed = |bits| disturb(&tensor, bits, 7).to_f64();
        let before = tensor.to_f64();
        for bits in [24, 11, 8] {
            let after = disturbed(bits);
            assert_eq!(after[..4], before[..4]);
            for (x, y) in before.iter().zip(&after).skip(4).take(2) {
                let relative = ((x - y) / x).abs() * 2_f64.powi(bits as i32 - 1);
                assert!((0.4..2.1).contains(&relative), "{bits}: {x} {y}");
            }
            // The number has fewer bits, so it moves by one unit of its own type.
            assert!(((after[6] - 0.5) / 0.5).abs() < 3e-7 && after[6] != 0.5);
        }
        assert!(disturb(&Tensor::from_f64(DType::F64, &[], [f64::NAN]), 24, 1).to_f64()[0].is_nan());
    }

    #[test]
    fn the_narrowest_type_counts() {
        let mut graph = Graph::new("g");
        let x = graph.input("x", eutectic_ir::Type::tensor(DType::F32, &[2])).unwrap();
        graph.output("y", x).unwrap();
        assert_eq!(significant_bits(&graph, Precision::F32), 24);
        assert_eq!(significant_bits(&graph, Precision::Bf16), 8);
        let short = graph.apply("cast", &[x], &[("to", Attr::DType(DType::F16))]).unwrap();
        graph.output("z", short).unwrap();
        assert_eq!(significant_bits(&graph, Precision::F32), 11);
    }
}
