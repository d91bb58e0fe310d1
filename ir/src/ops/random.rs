//! Random numbers as functions of a key and a position. The same key gives the same numbers on every backend and in
//! every run.

use std::{cmp::Ordering, f64::consts::PI};

use super::{
    AttrDef,
    AttrKind::*,
    Class, OpDef, Rounding, attr, each,
    eval::{Data, Element, OpCall, Value, Whole, tensors},
    op,
};
use crate::{DType, Scalar, round::of_integer};

const SHAPE: AttrDef = attr("shape", Shape);
const DTYPE: AttrDef = attr("dtype", DType);

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        attrs: &[SHAPE],
        flops: each::<25>,
        ..op(
            "random-bits",
            "32 random bits for each element: elements 4n to 4n + 3, row-major, are the words of Philox4x32-10 of the key and the counter \
             (n mod 2³², ⌊n/2³²⌋, 0, 0) (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011). Kernels take n below 2³².",
            Class::Composite,
            "u32[2] -> u32[C..] (shape shape C)",
            tensors!(bits),
        )
    },
    OpDef {
        attrs: &[SHAPE, DTYPE],
        rounding: Rounding::Correct,
        flops: each::<27>,
        ..op(
            "random-uniform",
            "Numbers from 0 up to, but not including, 1: the leading bits of `random-bits`, as many as the significand has, times a power of two. \
             An f64 uses the leading 27 and 26 bits of two elements.",
            Class::Composite,
            "(F float) u32[2] -> F[C..] (shape shape C) (dtype dtype F)",
            tensors!(uniform),
        )
    },
    OpDef {
        attrs: &[SHAPE, DTYPE],
        flops: each::<60>,
        ..op(
            "random-normal",
            "Numbers of the standard normal distribution: elements 2n and 2n + 1 are √(−2·ln u)·cos a and √(−2·ln u)·sin a, with \
             u = (b + ½)/2³² and a = 2πc/2³² of elements 2n and 2n + 1 of `random-bits`, b and c (Box and Muller, 1958).",
            Class::Composite,
            "(F float) u32[2] -> F[C..] (shape shape C) (dtype dtype F)",
            tensors!(normal),
        )
    },
    OpDef {
        observes: |_, _| true,
        flops: each::<29>,
        ..op(
            "bernoulli",
            "True with probability p: whether `random-uniform` of f32 is less than p, rounded to f32. Operands: p, key.",
            Class::Composite,
            "(F float) F[A..] u32[2] -> bool[A..]",
            tensors!(bernoulli),
        )
    },
    OpDef {
        attrs: &[attr("ratio", Float)],
        flops: each::<30>,
        ..op(
            "dropout",
            "x·s where `random-uniform` of f32 is not less than the ratio, and 0 elsewhere; s is 1/(1 − ratio). The ratio is rounded to f32, and s to the type of x. \
             Operands: x, key.",
            Class::Composite,
            "(F float) F[A..] u32[2] -> F[A..] (between ratio 0 1)",
            tensors!(dropout),
        )
    },
];

/// The multipliers of Philox4x32, and the increments that each round adds to the key.
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const GROWTH: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Returns the words of Philox4x32-10.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let halves = |a: u32, b: u32| {
        let product = u64::from(a) * u64::from(b);
        ((product >> 32) as u32, product as u32)
    };
    for _ in 0..ROUNDS {
        let (high, low) = halves(MULTIPLIERS[0], counter[0]);
        let (other_high, other_low) = halves(MULTIPLIERS[1], counter[2]);
        counter = [other_high ^ counter[1] ^ key[0], other_low, high ^ counter[3] ^ key[1], low];
        key = [key[0].wrapping_add(GROWTH[0]), key[1].wrapping_add(GROWTH[1])];
    }
    counter
}

/// Returns element `at` of the random bits of a key.
fn word(key: Option<[u32; 2]>, at: usize) -> Option<u32> {
    let n = (at / 4) as u64;
    Some(philox([n as u32, (n >> 32) as u32, 0, 0], key?)[at % 4])
}

/// Returns the key, which is the last operand; `None` if the value of one of its two words is unknown.
fn key<S: Scalar>(call: &OpCall<'_, S>) -> Option<[u32; 2]> {
    match call.operands.last().map(|key| &key.data) {
        Some(Data::Int(key)) => Some([key[0]? as u32, key[1]? as u32]),
        _ => unreachable!("the signature asks for a key"),
    }
}

fn bits<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let ((dtype, dims), key) = (call.result(), key(call));
    let bits = |at| Element::Int(word(key, at).map(i64::from));
    vec![Value::from_elements(dtype, &dims, (0..dims.iter().product()).map(bits))]
}

/// Returns element `at` of the uniform numbers of a key.
fn uniform_at<S: Scalar>(key: Option<[u32; 2]>, dtype: DType, at: usize) -> Element<S> {
    let bits = dtype.significand_bits();
    let whole = match dtype {
        DType::F64 => word(key, 2 * at)
            .zip(word(key, 2 * at + 1))
            .map(|(high, low)| f64::from(high >> 5) * 67_108_864.0 + f64::from(low >> 6)),
        _ => word(key, at).map(|word| f64::from(word >> (32 - bits))),
    };
    whole.map_or(Element::open(dtype), |whole| Element::Real(S::element(whole * 0.5_f64.powi(bits as i32), dtype)))
}

fn uniform<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let ((dtype, dims), key) = (call.result(), key(call));
    vec![Value::from_elements(dtype, &dims, (0..dims.iter().product()).map(|at| uniform_at(key, dtype, at)))]
}

fn normal<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let ((dtype, dims), key) = (call.result(), key(call));
    let register = dtype.register();
    let number = |at: usize| word(key, at).map(|word| S::element(of_integer(i64::from(word), register), register));
    let constant = |x: f64| S::element(register.rounded(x), register);
    let step = 0.5_f64.powi(32);
    let element = |at: usize| {
        let Some((b, c)) = number(at / 2 * 2).zip(number(at / 2 * 2 + 1)) else { return Element::open(dtype) };
        let u = (b * S::exact(step) + S::exact(step / 2.0)).store(register);
        let radius = (u.ln().store(register) * S::exact(-2.0)).sqrt().store(register);
        let angle = (c * constant(2.0 * PI * step)).store(register);
        let part = if at.is_multiple_of(2) { angle.cos() } else { angle.sin() };
        Element::Real((radius * part.store(register)).store(register))
    };
    vec![Value::from_elements(dtype, &dims, (0..dims.iter().product()).map(element))]
}

/// Returns whether the uniform number at position `at` is less than `than`.
fn is_less<S: Scalar>(key: Option<[u32; 2]>, at: usize, than: S) -> Whole {
    match uniform_at::<S>(key, DType::F32, at) {
        Element::Real(x) if key.is_some() => x.judge(than, |order| order == Some(Ordering::Less)).map(i64::from),
        _ => None,
    }
}

fn bernoulli<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let ((dtype, dims), key) = (call.result(), key(call));
    let p = call.operands[0].reals();
    let drawn = |at: usize| Element::Int(is_less(key, at, p[at].store(DType::F32)));
    vec![Value::from_elements(dtype, &dims, (0..p.len()).map(drawn))]
}

fn dropout<S: Scalar>(call: &OpCall<'_, S>) -> Vec<Value<S>> {
    let key = key(call);
    let ratio = call.attrs[0].float().expect("the op table declares a number");
    let (dtype, x) = (call.operands[0].dtype, call.operands[0].reals());
    let element = |x: f64, dtype: DType| S::element(dtype.rounded(x), dtype);
    let (least, scale) = (element(ratio, DType::F32), element(1.0 / (1.0 - ratio), dtype));
    let kept = |at: usize| match is_less(key, at, least) {
        Some(0) => x[at] * scale,
        Some(_) => S::exact(0.0),
        None => (x[at] * scale).either(S::exact(0.0)),
    };
    vec![Value::from_reals(dtype, &call.operands[0].dims, (0..x.len()).map(kept))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_64_bits() {
        let key = [3, 5];
        for (at, counter) in [(6, [1, 0, 0, 0]), ((1 << 34) + 6, [1, 1, 0, 0])] {
            assert_eq!(word(Some(key), at), Some(philox(counter, key)[2]));
        }
    }

    #[test]
    fn ratios_are_from_0_to_1() {
        let mut graph = crate::Graph::new("g");
        let x = graph.input("x", crate::Type::tensor(DType::F32, &[6])).expect("an input");
        let key = graph.input("key", crate::Type::tensor(DType::U32, &[2])).expect("an input");
        for (ratio, is_right) in [(0.0, true), (1.0, true), (-0.5, false), (1.5, false), (f64::NAN, false)] {
            let dropped = graph.apply("dropout", &[x, key], &[("ratio", ratio.into())]);
            assert_eq!(dropped.is_ok(), is_right, "{dropped:?}");
            let told = dropped.map_or_else(|e| e.to_string(), |_| "is not from 0 to 1".into());
            assert!(told.contains("is not from 0 to 1"), "{told}");
        }
    }

    #[test]
    fn words_are_those_of_random123() {
        // These are the vectors `philox4x32 10` of the file `kat_vectors` of Random123.
        for (counter, key, words) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            assert_eq!(philox(counter, key), words);
        }
    }
}
