//! Tests random numbers: they are equal for equal seeds, differ for different seeds, and have the distribution that the
//! node states.

use eutectic_ir::Tensor;
use eutectic_models::random::Rng;

use super::{
    forms::{imported, one, results, stored},
    *,
};

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(AttributeType::Ints as i32),
        ints: values.to_vec(),
        ..Default::default()
    }
}

fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(AttributeType::Float as i32),
        f: Some(value),
        ..Default::default()
    }
}

/// Evaluates a node that has only attributes, or whose input x consists of ones.
fn drawn(op: &str, attrs: Vec<AttributeProto>, dims: &[usize]) -> Tensor {
    let inputs: &[&str] = if op.ends_with("Like") { &["x"] } else { &[] };
    let x = Tensor::from_f64(DType::F32, dims, vec![1.0; dims.iter().product()]);
    let shape = ints("shape", &dims.iter().map(|&n| n as i64).collect::<Vec<_>>());
    let attrs = if inputs.is_empty() { [attrs, vec![shape]].concat() } else { attrs };
    one(node(op, inputs, &["y"], attrs), &x, vec![], 22)
}

/// Returns the mean and the variance.
fn moments(x: &Tensor) -> [f64; 2] {
    let (x, n) = (x.to_f64(), x.to_f64().len() as f64);
    let mean = x.iter().sum::<f64>() / n;
    [mean, x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n]
}

#[test]
fn numbers_depend_on_the_seed_alone() {
    for op in ["RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike"] {
        let seeded = |seed: f32| drawn(op, vec![float("seed", seed)], &[3, 5]).to_f64();
        assert_eq!(seeded(1.0), seeded(1.0), "{op}");
        assert_ne!(seeded(1.0), seeded(2.0), "{op}");
        assert_ne!(seeded(0.0), drawn(op, vec![], &[3, 5]).to_f64(), "{op} without a seed");
    }
    // All bits of the seed 0.0 are 0. So the key is (0, 0), that of the first published test vector.
    let words = drawn("RandomUniform", vec![float("seed", 0.0)], &[4]).to_f64();
    let known =
        [0x6627_e8d5_u32, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8].map(|word| f64::from(word >> 8) / 16_777_216.0);
    assert_eq!(words, known);
}

#[test]
fn numbers_have_the_distribution_of_the_node() {
    let dims = [100, 200];
    let is_near = |x: &Tensor, wanted: [f64; 2]| {
        let found = moments(x);
        assert!(
            (0..2).all(|n| (found[n] - wanted[n]).abs() < 0.05 * wanted[1].sqrt().max(wanted[1])),
            "{found:?}, {wanted:?}"
        );
    };
    let seed = || float("seed", 7.0);
    is_near(&drawn("RandomUniform", vec![seed(), float("low", -1.0), float("high", 5.0)], &dims), [2.0, 3.0]);
    is_near(&drawn("RandomNormal", vec![seed(), float("mean", 3.0), float("scale", 2.0)], &dims), [3.0, 4.0]);
    is_near(&drawn("RandomNormalLike", vec![seed()], &dims), [0.0, 1.0]);
    let doubles = drawn("RandomUniformLike", vec![seed(), int("dtype", 11)], &dims);
    assert_eq!(doubles.dtype(), DType::F64);
    is_near(&doubles, [0.5, 1.0 / 12.0]);
    assert!(doubles.to_f64().iter().any(|x| f64::from(*x as f32) != *x), "53 bits");
    let halves = drawn("RandomUniformLike", vec![seed(), int("dtype", 10)], &dims);
    assert!(halves.to_f64().iter().all(|x| (0.0..1.0).contains(x) && (x * 2048.0).fract() == 0.0));
}

#[test]
fn truths_have_their_probabilities() {
    let mut rng = Rng::new(3);
    let p: Vec<f64> = (0..20_000).map(|_| [0.0, 1.0, 0.25, f64::NAN][rng.below(4)]).collect();
    let x = Tensor::from_f64(DType::F32, &[p.len()], p.iter().copied());
    let bernoulli = node("Bernoulli", &["x"], &["y"], vec![float("seed", 5.0), int("dtype", 6)]);
    let y = one(bernoulli, &x, vec![], 15);
    assert_eq!(y.dtype(), DType::I32);
    let of = |wanted: fn(f64) -> bool| -> Vec<i64> {
        p.iter().zip(y.to_i64()).filter(|(p, _)| wanted(**p)).map(|(_, y)| y).collect()
    };
    assert!(of(|p| p == 0.0 || p.is_nan()).iter().all(|&y| y == 0) && of(|p| p == 1.0).iter().all(|&y| y == 1));
    let quarter = of(|p| p == 0.25);
    let share = quarter.iter().sum::<i64>() as f64 / quarter.len() as f64;
    assert!((share - 0.25).abs() < 0.03, "{share}");
}

#[test]
fn training_drops_elements_and_lets_the_others_grow() {
    let number = |name: &str, value: f32| stored(name, &Tensor::from_f64(DType::F32, &[], [f64::from(value)]));
    let training = stored("t", &Tensor::from_i64(DType::Bool, &[], [1]));
    let constants = vec![number("some", 0.2), number("all", 1.0), number("none", 0.0), number("wrong", 1.5), training];
    let dropout = |ratio: &str| node("Dropout", &["x", ratio, "t"], &["y", "mask"], vec![int("seed", -3)]);
    let x = Tensor::from_f64(DType::F32, &[10_000], (1..=10_000).map(f64::from));
    let run = |ratio: &str| {
        let graph =
            imported(dropout(ratio), DType::F32, &[10_000], constants.clone(), 22).unwrap_or_else(|e| panic!("{e}"));
        results(&graph, &[("x", x.clone())])
    };
    for (ratio, kept, scale) in [("some", 0.8, 1.25), ("none", 1.0, 1.0), ("", 0.5, 2.0), ("all", 0.0, 1.0)] {
        let got = run(ratio);
        let (y, mask) = (got[0].to_f64(), got[1].to_i64());
        let share = mask.iter().sum::<i64>() as f64 / mask.len() as f64;
        assert!((share - kept).abs() < 0.02, "{ratio}: {share}");
        for (n, (y, mask)) in y.into_iter().zip(mask).enumerate() {
            let wanted = if mask == 0 { 0.0 } else { (n + 1) as f64 * scale };
            assert!((y - wanted).abs() <= 1e-6 * wanted, "{ratio}: element {n} is {y} in place of {wanted}");
        }
    }
    let error = imported(dropout("wrong"), DType::F32, &[10_000], constants.clone(), 22).unwrap_err().to_string();
    assert!(error.contains("a ratio is from 0 to 1"), "{error}");
}
