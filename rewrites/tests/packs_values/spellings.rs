//! What exporters write for one op, in every spelling that the packs are there to recognise.

use eutectic_ir::{DType, NodeId, Type};

use crate::{
    check::{finds, input, last},
    packs_models::{Builder, ints},
};

#[test]
fn gelu_in_every_grouping() {
    for grouping in 0..3 {
        for divide in [false, true] {
            for tanh in [false, true] {
                let kind = if tanh { "gelu-tanh" } else { "gelu-erf" };
                assert!(finds(&format!("{kind} {grouping} {divide}"), "act", &[kind], |b| {
                    let x = input(b, "x", &[2, 3, 7]);
                    let half = b.scalar(0.5);
                    let inner = if tanh { tanh_inner(b, x) } else { erf_inner(b, x, divide) };
                    match grouping {
                        0 => {
                            let halved = b.op("mul", &[half, x]);
                            b.op("mul", &[halved, inner])
                        }
                        1 => {
                            let product = b.op("mul", &[inner, x]);
                            b.op("mul", &[product, half])
                        }
                        _ => {
                            let halved = b.op("mul", &[inner, half]);
                            b.op("mul", &[x, halved])
                        }
                    }
                }));
            }
        }
    }
}

fn erf_inner(b: &mut Builder, x: NodeId, divide: bool) -> NodeId {
    let root = b.scalar(if divide { std::f64::consts::SQRT_2 } else { std::f64::consts::FRAC_1_SQRT_2 });
    let scaled = b.op(if divide { "div" } else { "mul" }, &[x, root]);
    let (erf, one) = (b.op("erf", &[scaled]), b.scalar(1.0));
    b.op("add", &[one, erf])
}

fn tanh_inner(b: &mut Builder, x: NodeId) -> NodeId {
    let (three, c) = (b.scalar(3.0), b.scalar(0.044715));
    let (root, one) = (b.scalar((2.0 / std::f64::consts::PI).sqrt()), b.scalar(1.0));
    let cube = b.op("pow", &[x, three]);
    let small = b.op("mul", &[c, cube]);
    let sum = b.op("add", &[x, small]);
    let scaled = b.op("mul", &[root, sum]);
    let tanh = b.op("tanh", &[scaled]);
    b.op("add", &[tanh, one])
}

#[test]
fn silu_and_swiglu_in_every_spelling() {
    assert!(finds("silu", "act", &["silu"], |b| {
        let (x, one) = (input(b, "x", &[2, 5]), b.scalar(1.0));
        let minus = b.op("neg", &[x]);
        let exp = b.op("exp", &[minus]);
        let sum = b.op("add", &[one, exp]);
        b.op("div", &[x, sum])
    }));
    assert!(finds("silu by a reciprocal", "act", &["silu"], |b| {
        let (x, one) = (input(b, "x", &[2, 5]), b.scalar(1.0));
        let minus = b.op("neg", &[x]);
        let exp = b.op("exp", &[minus]);
        let sum = b.op("add", &[exp, one]);
        let sigmoid = b.op("div", &[one, sum]);
        b.op("mul", &[sigmoid, x])
    }));
    for gate_first in [false, true] {
        assert!(finds("two projections, one of them a gate", "swiglu", &[], |b| {
            let (x, g, u) = (input(b, "x", &[2, 3, 4]), b.param("g", &[4, 5]), b.param("u", &[4, 5]));
            let (first, second) = (b.op("matmul", &[x, g]), b.op("matmul", &[x, u]));
            let (gate, up) = if gate_first { (first, second) } else { (second, first) };
            let sigmoid = b.op("sigmoid", &[gate]);
            let silu = b.op("mul", &[gate, sigmoid]);
            b.op("mul", &[silu, up])
        }));
    }
}

#[test]
fn norms_in_every_spelling() {
    for spelling in 0..24 {
        let (square, root, gain) = (spelling % 2, spelling / 2 % 4, spelling / 8);
        assert!(finds(&format!("layernorm {square} {root} {gain}"), "layernorm", &[], |b| {
            let (x, g, c) = (input(b, "x", &[2, 3, 6]), b.param("g", &[6]), b.param("c", &[6]));
            let mean = b.with("reduce-mean", &[x], &last(true));
            let centred = b.op("sub", &[x, mean]);
            let two = b.scalar(2.0);
            let squared = if square == 0 { b.op("mul", &[centred, centred]) } else { b.op("pow", &[centred, two]) };
            let variance = b.with("reduce-mean", &[squared], &last(true));
            let eps = b.scalar(1e-5);
            let sum = b.op("add", &[variance, eps]);
            if gain == 2 {
                let r = deviation(b, sum, root);
                let a = b.op("mul", &[r, g]);
                let (left, shift) = (b.op("mul", &[x, a]), b.op("mul", &[mean, a]));
                let right = b.op("sub", &[c, shift]);
                return b.op("add", &[left, right]);
            }
            let scaled = if gain == 1 {
                let r = deviation(b, sum, root);
                let a = b.op("mul", &[r, g]);
                b.op("mul", &[centred, a])
            } else if root == 3 {
                let deviation = b.op("sqrt", &[sum]);
                let normal = b.op("div", &[centred, deviation]);
                b.op("mul", &[g, normal])
            } else {
                let r = deviation(b, sum, root);
                let normal = b.op("mul", &[centred, r]);
                b.op("mul", &[g, normal])
            };
            b.op("add", &[scaled, c])
        }));
    }
    for gain_first in [false, true] {
        assert!(finds("rmsnorm", "rmsnorm", &[], |b| {
            let (x, g, two, eps) = (input(b, "x", &[2, 6]), b.param("g", &[6]), b.scalar(2.0), b.scalar(1e-6));
            let squared = b.op("pow", &[x, two]);
            let mean = b.with("reduce-mean", &[squared], &last(true));
            let sum = b.op("add", &[mean, eps]);
            let r = deviation(b, sum, 0);
            if gain_first {
                let a = b.op("mul", &[r, g]);
                return b.op("mul", &[x, a]);
            }
            let normal = b.op("mul", &[x, r]);
            b.op("mul", &[g, normal])
        }));
    }
}

/// 1/√x, in four spellings.
fn deviation(b: &mut Builder, x: NodeId, how: usize) -> NodeId {
    let (one, power) = (b.scalar(1.0), b.scalar(-0.5));
    match how {
        0 => b.op("rsqrt", &[x]),
        1 => b.op("pow", &[x, power]),
        2 => {
            let root = b.op("sqrt", &[x]);
            b.op("reciprocal", &[root])
        }
        _ => {
            let root = b.op("sqrt", &[x]);
            b.op("div", &[one, root])
        }
    }
}

#[test]
fn attention_wherever_the_scale_is() {
    for place in 0..6 {
        for mask in 0..4 {
            assert!(finds(&format!("scale {place}, mask {mask}"), "attention", &["0.5"], |b| {
                let q = input(b, "q", &[2, 3, 5, 4]);
                let (k, v) = (input(b, "k", &[2, 3, 7, 4]), input(b, "v", &[2, 3, 7, 4]));
                let (half, two, part) = (b.scalar(0.5), b.scalar(2.0), b.scalar(0.5_f64.sqrt()));
                let q = match place {
                    2 => b.op("mul", &[q, half]),
                    3 => b.op("mul", &[part, q]),
                    4 => b.op("div", &[q, two]),
                    _ => q,
                };
                let k = if place == 3 { b.op("mul", &[k, part]) } else { k };
                let kt = b.with("transpose", &[k], &[("perm", ints(&[0, 1, 3, 2]))]);
                let kt = if place == 5 { b.op("mul", &[kt, half]) } else { kt };
                let scores = b.op("matmul", &[q, kt]);
                let scores = match place {
                    0 => b.op("mul", &[scores, half]),
                    1 => b.op("div", &[scores, two]),
                    _ => scores,
                };
                let scores = masked(b, scores, mask);
                let weights = b.with("softmax", &[scores], &[("axis", (-1).into())]);
                b.op("matmul", &[weights, v])
            }));
        }
    }
}

fn masked(b: &mut Builder, scores: NodeId, mask: usize) -> NodeId {
    let minus_infinity = b.scalar(f64::NEG_INFINITY);
    let bools = Type::tensor(DType::Bool, &[2, 1, 5, 7]);
    match mask {
        0 => scores,
        1 => {
            let m = input(b, "m", &[2, 1, 1, 7]);
            b.op("add", &[scores, m])
        }
        2 => {
            let keep = b.g.input("keep", bools).unwrap();
            b.op("where", &[keep, scores, minus_infinity])
        }
        _ => {
            let drop = b.g.input("drop", bools).unwrap();
            b.op("where", &[drop, minus_infinity, scores])
        }
    }
}

#[test]
fn capped_scores_are_attention() {
    for masked in [false, true] {
        assert!(finds("softcap", "attention", &["5.0", "0.25"], |b| {
            let (q, k, v) = (input(b, "q", &[2, 3, 4]), input(b, "k", &[2, 4, 5]), input(b, "v", &[2, 5, 4]));
            let (a, c) = (b.scalar(0.05), b.scalar(5.0));
            let scores = b.op("matmul", &[q, k]);
            let scores = b.op("mul", &[scores, a]);
            let scores = b.op("tanh", &[scores]);
            let mut scores = b.op("mul", &[scores, c]);
            if masked {
                let m = input(b, "m", &[3, 5]);
                scores = b.op("add", &[scores, m]);
            }
            let weights = b.with("softmax", &[scores], &[("axis", (-1).into())]);
            b.op("matmul", &[weights, v])
        }));
    }
}
