//! Composites, and the parts that the packs say they are made of.

use eutectic_ir::{DType, NodeId, Type};

use crate::{
    check::{finds, input},
    packs_models::{Builder, dims, ints},
};

#[test]
fn composites_are_what_their_parts_are() {
    type Build = fn(&mut Builder) -> NodeId;
    let cases: &[(&str, &str, Build)] = &[
        ("softmax of an inner axis", "div", |b| {
            let x = input(b, "x", &[2, 3, 4]);
            b.with("softmax", &[x], &[("axis", (-2).into())])
        }),
        ("softmax", "div", |b| {
            let x = input(b, "x", &[2, 5]);
            b.with("softmax", &[x], &[("axis", (-1).into())])
        }),
        ("log-softmax", "sub", |b| {
            let x = input(b, "x", &[2, 5]);
            b.with("log-softmax", &[x], &[("axis", (-1).into())])
        }),
        ("mean of outer axes", "mul", |b| {
            let x = input(b, "x", &[2, 3, 4]);
            b.with("reduce-mean", &[x], &[("axes", ints(&[0, 1])), ("keep", false.into())])
        }),
        ("layernorm", "add", |b| {
            let (x, g, c) = (input(b, "x", &[3, 6]), b.param("g", &[6]), b.param("c", &[6]));
            b.with("layernorm", &[x, g, c], &[("eps", 1e-5.into())])
        }),
        ("rmsnorm", "mul", |b| {
            let (x, g) = (input(b, "x", &[3, 6]), b.param("g", &[6]));
            b.with("rmsnorm", &[x, g], &[("eps", 1e-5.into())])
        }),
        ("residual layernorm", "mul", |b| {
            let (x, r, g, c) = (input(b, "x", &[3, 6]), input(b, "r", &[3, 6]), b.param("g", &[6]), b.param("c", &[6]));
            let t = b.with("add-layernorm", &[x, r, g, c], &[("eps", 1e-5.into())]);
            let (s, n) = (b.with("get", &[t], &[("index", 0.into())]), b.with("get", &[t], &[("index", 1.into())]));
            b.op("mul", &[s, n])
        }),
        ("residual rmsnorm", "mul", |b| {
            let (x, r, g) = (input(b, "x", &[3, 6]), input(b, "r", &[3, 6]), b.param("g", &[6]));
            let t = b.with("add-rmsnorm", &[x, r, g], &[("eps", 1e-5.into())]);
            let (s, n) = (b.with("get", &[t], &[("index", 0.into())]), b.with("get", &[t], &[("index", 1.into())]));
            b.op("mul", &[s, n])
        }),
        ("linear without a bias", "matmul", |b| {
            let (x, w) = (input(b, "x", &[2, 3, 4]), b.param("w", &[4, 5]));
            b.with("linear", &[x, w], &[("act", "none".into())])
        }),
        ("softplus", "add", |b| {
            let x = input(b, "x", &[2, 5]);
            b.op("softplus", &[x])
        }),
        ("swiglu, gate second", "mul", |b| {
            let p = input(b, "p", &[2, 6]);
            b.with("swiglu", &[p], &[("gate", "second".into())])
        }),
        ("swiglu, gate first", "mul", |b| {
            let p = input(b, "p", &[2, 6]);
            b.with("swiglu", &[p], &[("gate", "first".into())])
        }),
    ];
    for (name, op, build) in cases {
        assert!(finds(name, op, &[], build), "{name}: no {op}");
    }
}

#[test]
fn activations_have_two_forms() {
    for (kind, op) in [
        ("relu", "max"),
        ("gelu-erf", "mul"),
        ("gelu-tanh", "mul"),
        ("silu", "mul"),
        ("sigmoid", "sigmoid"),
        ("tanh", "tanh"),
    ] {
        assert!(finds(kind, op, &[], |b| {
            let x = input(b, "x", &[2, 5]);
            b.with("act", &[x], &[("kind", kind.into())])
        }));
        for rank in 2..4 {
            assert!(finds(kind, "linear", &[kind], |b| {
                let (x, w, c) = (input(b, "x", &[2, 3, 4][3 - rank..]), b.param("w", &[4, 5]), b.param("c", &[5]));
                let product = b.op("matmul", &[x, w]);
                let sum = b.op("add", &[product, c]);
                b.with("act", &[sum], &[("kind", kind.into())])
            }));
        }
    }
}

#[test]
fn every_mask_becomes_a_bias() {
    for groups in [1, 2] {
        for softcap in [0.0, 3.0] {
            for mask in ["none", "causal", "window", "keep", "additive"] {
                let name = format!("{mask}, {groups} heads a group, softcap {softcap}");
                assert!(finds(&name, "attention", &[], |b| {
                    let q = input(b, "q", &[2, 2 * groups, 3, 4]);
                    let (k, v) = (input(b, "k", &[2, 2, 5, 4]), input(b, "v", &[2, 2, 5, 6]));
                    let mut operands = vec![q, k, v];
                    match mask {
                        // With this seed no row is empty for every head; emptiness has a test of its own.
                        "keep" => operands.push(b.g.input("keep", Type::tensor(DType::Bool, &[2, 1, 3, 5])).unwrap()),
                        "additive" => operands.push(input(b, "m", &[2, 1, 1, 5])),
                        _ => {}
                    }
                    let window = if mask == "window" { 2 } else { 0 };
                    let attrs = [
                        ("scale", 0.5.into()),
                        ("softcap", softcap.into()),
                        ("mask", mask.into()),
                        ("window", window.into()),
                    ];
                    b.with("sdpa", &operands, &attrs)
                }));
            }
        }
    }
}

#[test]
fn rows_with_nothing_to_attend_to_are_zeros() {
    assert!(finds("empty rows", "attention", &["zeros"], |b| {
        let (q, k, v) = (input(b, "q", &[3, 4]), input(b, "k", &[2, 4]), input(b, "v", &[2, 4]));
        let q = b.with("reshape", &[q], &[("shape", dims(&[1, 3, 4]))]);
        let k = b.with("reshape", &[k], &[("shape", dims(&[1, 2, 4]))]);
        let v = b.with("reshape", &[v], &[("shape", dims(&[1, 2, 4]))]);
        // More queries than keys: the first query sees nothing.
        b.with("sdpa", &[q, k, v], &[("scale", 0.5.into()), ("mask", "causal".into())])
    }));
}

#[test]
fn rope_turns_pairs() {
    for style in ["half", "adjacent"] {
        for width in [6, 8] {
            assert!(finds(style, "concat", &[], |b| {
                let (x, c, s) = (input(b, "x", &[2, 3, width]), input(b, "c", &[3, 3]), input(b, "s", &[3, 3]));
                b.with("rope", &[x, c, s], &[("style", style.into())])
            }));
        }
    }
}
