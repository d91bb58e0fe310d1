//! Random weights and numbers from a seed. They are equal on every machine.

use std::collections::BTreeMap;

use eutectic_ir::{DType, Graph, Tensor, Type};

/// The random number generator SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Returns 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns an integer in 0..n, or 0 for n = 0. Probabilities differ from 1 / n by less than 2⁻⁶⁴.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }

    /// Returns a number in [−1, 1) from the uniform distribution.
    pub fn symmetric(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (0.5_f64).powi(52) - 1.0
    }
}

/// Returns random values for the parameters of a graph. Their scale keeps activations from vanishing and growing.
///
/// A matrix `[out in]` has entries of variance 1 / in. A vector whose name ends in `weight` is the gain of a norm, so
/// its values are around 1. Other vectors are biases, with values around 0. Integers and Booleans are 0 or 1. The
/// values depend only on the seed, the parameter's name and its type, so two graphs with the same parameters get the
/// same values.
///
/// Parameters with unknown extents get no values.
pub fn random_weights(graph: &Graph, seed: u64) -> BTreeMap<String, Tensor> {
    let value = |(name, id): (&str, _)| Some((name.to_string(), random_tensor(name, graph.ty(id), seed)?));
    graph.named("param").filter_map(value).collect()
}

fn random_tensor(name: &str, ty: &Type, seed: u64) -> Option<Tensor> {
    let (dtype, dims) = (ty.dtype()?, ty.dims()?);
    // The hash is FNV-1a, because the standard library may change its hash function with each version.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let mut rng = Rng::new(seed ^ hash);
    let count = dims.iter().product();
    let (middle, spread) = match dims.as_slice() {
        [] | [_] if name.ends_with("weight") => (1.0, 0.1),
        [] | [_] => (0.0, 0.1),
        // A uniform distribution on [−a, a) has variance a² / 3.
        [.., fan_in] => (0.0, (3.0 / (*fan_in).max(1) as f64).sqrt()),
    };
    Some(if dtype == DType::F32 {
        // Bytes are written directly, without an intermediate `f64` for each of BERT-base's hundred million weights.
        let bytes = (0..count).flat_map(|_| ((middle + spread * rng.symmetric()) as f32).to_le_bytes());
        Tensor::new(dtype, &dims, bytes.collect::<Vec<u8>>()).expect("there is one value for each element")
    } else if dtype.is_float() {
        Tensor::from_f64(dtype, &dims, (0..count).map(|_| middle + spread * rng.symmetric()))
    } else {
        Tensor::from_i64(dtype, &dims, (0..count).map(|_| rng.below(2) as i64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_published_sequence() {
        let mut rng = Rng::new(1234567);
        assert_eq!([rng.next_u64(), rng.next_u64()], [6457827717110365317, 3203168211198807973]);
    }

    #[test]
    fn weights_are_scaled_and_depend_on_name_and_seed() {
        let ty = Type::tensor(DType::F32, &[50, 300]);
        let tensor = |name, seed| random_tensor(name, &ty, seed).expect("its extents are known");
        let values = tensor("w", 1).to_f64();
        let variance = values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64;
        assert!((variance * 300.0 - 1.0).abs() < 0.05, "{variance}");
        assert_eq!(tensor("w", 1), tensor("w", 1));
        assert_ne!(tensor("w", 1), tensor("w", 2));
        assert_ne!(tensor("w", 1), tensor("v", 1));
    }
}
