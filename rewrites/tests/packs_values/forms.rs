//! Tests that broadcasts and other forms become legal, that ops without effect are removed, and that encoders keep
//! their values.

use eutectic_ir::{DType, Graph, Type};

use crate::{
    check::{finds, input, run},
    packs_models::{Builder, Encoder, dims, ints},
};

#[test]
fn surface_forms_become_legal() {
    assert!(finds("outer axes broadcast", "matmul", &[], |b| {
        let (x, y) = (input(b, "x", &[3, 1, 2, 4]), input(b, "y", &[5, 4, 2]));
        b.op("matmul", &[x, y])
    }));
    for op in ["reduce-sum", "reduce-prod", "reduce-max", "reduce-min"] {
        for (axes, keep) in [(vec![0], true), (vec![0, 2], false), (vec![1], false), (vec![0, 1, 2], false)] {
            assert!(finds(op, op, &[], |b| {
                let x = input(b, "x", &[2, 3, 4]);
                b.with(op, &[x], &[("axes", ints(&axes)), ("keep", keep.into())])
            }));
        }
    }
    assert!(finds("where broadcasts", "where", &[], |b| {
        let (x, y) = (input(b, "x", &[3, 1]), input(b, "y", &[4]));
        let (c, zero) = (b.op("lt", &[x, y]), b.scalar(0.0));
        b.op("where", &[c, x, zero])
    }));
}

#[test]
fn views_and_neutral_elements_disappear() {
    let mut b = Builder { g: Graph::new("nothing"), e: Encoder::SMALL };
    let x = input(&mut b, "x", &[2, 3, 4]);
    let (zero, one) = (b.scalar(0.0), b.scalar(1.0));
    let y = b.with("transpose", &[x], &[("perm", ints(&[1, 2, 0]))]);
    let y = b.op("sub", &[y, zero]);
    let y = b.with("transpose", &[y], &[("perm", ints(&[2, 0, 1]))]);
    let y = b.op("mul", &[one, y]);
    let y = b.with("reshape", &[y], &[("shape", dims(&[6, 4]))]);
    let y = b.op("neg", &[y]);
    let y = b.op("neg", &[y]);
    let y = b.with("concat", &[y, y], &[("axis", (-1).into())]);
    let y = b.with("slice", &[y], &[("axis", (-1).into()), ("at", 4.into()), ("len", 4.into())]);
    let y = b.with("cast", &[y], &[("to", DType::F32.into())]);
    let y = b.with("reshape", &[y], &[("shape", dims(&[2, 3, 4]))]);
    b.g.output("y", y).unwrap();
    b.g.output("x", x).unwrap();
    let classes = run(&b.g);
    assert_eq!(classes.outputs[0], classes.outputs[1]);
}

#[test]
fn products_of_one_value_are_merged() {
    let mut b = Builder { g: Graph::new("merged"), e: Encoder::SMALL };
    let x = input(&mut b, "x", &[2, 3, 4]);
    for (name, n) in [("q", 6), ("k", 2), ("v", 3)] {
        let y = b.linear(x, name, 4, n, "none");
        b.g.output(name, y).unwrap();
    }
    let classes = run(&b.g);
    let wide = |c: &&eutectic_ir::eclasses::EClass| {
        c.ty == Type::tensor(DType::F32, &[6, 11]) && c.nodes.iter().any(|n| n.op.name() == "matmul")
    };
    assert_eq!(classes.classes.iter().filter(wide).count(), 1);
}

#[test]
fn whole_encoders_keep_their_values() {
    for form in 0..4 {
        run(&Encoder { pre_norm: form & 1 > 0, primitive: form & 2 > 0, layers: 1, ..Encoder::SMALL }.build());
    }
}
