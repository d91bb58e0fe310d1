//! Tests each form in which exporters write an op, for each op that the packs recognise.

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
fn silu_and_glu_in_every_spelling() {
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
        assert!(finds("two projections, one of them a gate", "glu", &[], |b| {
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

/// Returns 1/√x in one of four forms.
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
        for mask in 0..5 {
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
        // The least number of the element type, as in Hugging Face's models.
        3 => {
            let (keep, least) = (b.g.input("keep", bools).unwrap(), b.scalar(f64::from(f32::MIN)));
            b.op("where", &[keep, scores, least])
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

#[test]
fn the_approximation_of_gelu_in_the_spellings_of_frameworks() {
    for spelling in 0..3 {
        assert!(finds(&format!("gelu-tanh {spelling}"), "act", &["gelu-tanh"], |b| {
            let x = input(b, "x", &[2, 3, 7]);
            let (c, root, one, half) =
                (b.scalar(0.044715), b.scalar((2.0 / std::f64::consts::PI).sqrt()), b.scalar(1.0), b.scalar(0.5));
            match spelling {
                // x·σ(2·√(2/π)·(x + c·x³))
                0 => {
                    let square = b.op("mul", &[x, x]);
                    let cube = b.op("mul", &[square, x]);
                    let small = b.op("mul", &[cube, c]);
                    let sum = b.op("add", &[x, small]);
                    let twice = b.scalar(2.0 * (2.0 / std::f64::consts::PI).sqrt());
                    let inner = b.op("mul", &[sum, twice]);
                    let sigmoid = b.op("sigmoid", &[inner]);
                    b.op("mul", &[x, sigmoid])
                }
                // c·x·x·x from left to right, or √(2/π)·x·(1 + c·x·x)
                _ => {
                    let first = b.op("mul", &[c, x]);
                    let second = b.op("mul", &[first, x]);
                    let inner = if spelling == 1 {
                        let cube = b.op("mul", &[second, x]);
                        let sum = b.op("add", &[x, cube]);
                        b.op("mul", &[root, sum])
                    } else {
                        let sum = b.op("add", &[one, second]);
                        let scaled = b.op("mul", &[root, x]);
                        b.op("mul", &[scaled, sum])
                    };
                    let tanh = b.op("tanh", &[inner]);
                    let sum = b.op("add", &[one, tanh]);
                    let halved = b.op("mul", &[half, x]);
                    b.op("mul", &[halved, sum])
                }
            }
        }));
    }
}

#[test]
fn the_logarithm_of_softmax_by_logsumexp() {
    assert!(finds("log-softmax by logsumexp", "log-softmax", &[], |b| {
        let x = input(b, "x", &[2, 3, 4]);
        let most = b.with("reduce-max", &[x], &last(true));
        let shifted = b.op("sub", &[x, most]);
        let e = b.op("exp", &[shifted]);
        let sum = b.with("reduce-sum", &[e], &last(true));
        let log = b.op("log", &[sum]);
        let total = b.op("add", &[log, most]);
        b.op("sub", &[x, total])
    }));
}

#[test]
fn the_variance_of_one_pass_is_a_norm() {
    assert!(finds("one pass", "layernorm", &[], |b| {
        let (x, g, c) = (input(b, "x", &[2, 3, 6]), b.param("g", &[6]), b.param("c", &[6]));
        let mean = b.with("reduce-mean", &[x], &last(true));
        let square = b.op("mul", &[x, x]);
        let mean_of_square = b.with("reduce-mean", &[square], &last(true));
        let square_of_mean = b.op("mul", &[mean, mean]);
        let variance = b.op("sub", &[mean_of_square, square_of_mean]);
        let eps = b.scalar(1e-5);
        let sum = b.op("add", &[variance, eps]);
        let r = b.op("rsqrt", &[sum]);
        let centred = b.op("sub", &[x, mean]);
        let normal = b.op("mul", &[centred, r]);
        let scaled = b.op("mul", &[normal, g]);
        b.op("add", &[scaled, c])
    }));
}

#[test]
fn gates_of_every_kind_are_gated_linear_units() {
    for kind in ["gelu-erf", "gelu-tanh", "relu", "sigmoid"] {
        assert!(finds(kind, "glu", &[kind, "second"], |b| {
            let p = input(b, "p", &[2, 3, 8]);
            let half = |b: &mut Builder, at: i64| {
                b.with("slice", &[p], &[("axis", (-1).into()), ("at", at.into()), ("len", 4.into())])
            };
            let (up, gate) = (half(b, 0), half(b, 4));
            let gate = match kind {
                "sigmoid" => b.op("sigmoid", &[gate]),
                _ => b.with("act", &[gate], &[("kind", kind.into())]),
            };
            b.op("mul", &[gate, up])
        }));
    }
}

#[test]
fn rope_with_tables_that_hold_each_angle_twice() {
    for unsqueezed in [false, true] {
        assert!(finds("rotated half", "rope", &["half"], |b| {
            let (x, angles) = (input(b, "x", &[2, 3, 5, 8]), b.param("angles", &[5, 4]));
            let part = |b: &mut Builder, at: i64| {
                b.with("slice", &[x], &[("axis", (-1).into()), ("at", at.into()), ("len", 4.into())])
            };
            let (first, second) = (part(b, 0), part(b, 4));
            let minus = b.op("neg", &[second]);
            let rotated = b.with("concat", &[minus, first], &[("axis", (-1).into())]);
            let twice = b.with("concat", &[angles, angles], &[("axis", (-1).into())]);
            let table = |b: &mut Builder, op: &str| {
                let table = b.op(op, &[twice]);
                match unsqueezed {
                    true => b.with("reshape", &[table], &[("shape", crate::packs_models::dims(&[1, 1, 5, 8]))]),
                    false => table,
                }
            };
            let (cos, sin) = (table(b, "cos"), table(b, "sin"));
            let (straight, turned) = (b.op("mul", &[x, cos]), b.op("mul", &[rotated, sin]));
            b.op("add", &[straight, turned])
        }));
    }
}
