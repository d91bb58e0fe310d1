//! Elementary functions at the ends of their range, and attention for queries without visible keys.

use eutectic_ir::{Tensor, interp::interpret};

use super::*;

/// Evaluates nodes with the reference interpreter in `f32`. Inputs are given by name.
fn value(nodes: Vec<NodeProto>, inputs: &[(&str, &[i64], &[f64])]) -> Vec<f64> {
    let graph = GraphProto {
        input: inputs.iter().map(|(name, dims, _)| port(name, dims)).collect(),
        output: vec![port("y", &[])],
        node: nodes,
        ..Default::default()
    };
    let mut model = model(graph);
    model.opset_import[0].version = Some(23);
    let imported = import(&model).unwrap();
    let tensor = |(_, dims, x): &(&str, &[i64], &[f64])| {
        let dims: Vec<usize> = dims.iter().map(|n| *n as usize).collect();
        Tensor::from_f64(DType::F32, &dims, x.iter().copied())
    };
    let given = |name: &str| inputs.iter().find(|i| i.0 == name).map(tensor);
    reals(interpret::<f64>(&imported.graph, &given).unwrap().remove(0).data)
}

#[test]
fn functions_at_the_ends_of_their_range() {
    // Arguments are exact in `f32`. Results were computed with forty digits.
    let (tiny, large) = (f64::from(1e-8_f32), f64::from(1e20_f32));
    let table: &[(&str, f64, f64)] = &[
        ("Asinh", large, 46.744849060481736),
        ("Asinh", -large, -46.744849060481736),
        ("Acosh", large, 46.744849060481736),
        ("Sinh", tiny, tiny),
        ("Asinh", tiny, tiny),
        ("Atanh", tiny, tiny),
        ("Cosh", 89.0, 2.244806409587173e38),
        ("Sinh", -89.0, -2.244806409587173e38),
        ("Acos", 1.0 - f64::from(f32::EPSILON), 4.882_812_548_506_385e-4),
        ("Asin", 1.0, std::f64::consts::FRAC_PI_2),
        ("Atanh", 1.0, f64::INFINITY),
        ("Elu", -1e-7, -1.0000000617e-7),
        ("Selu", -1e-7, -1.758099279e-7),
        ("Celu", -1e-7, -1.0000000617e-7),
    ];
    for (op, x, y) in table {
        let got = value(vec![node(op, &["x"], &["y"], vec![])], &[("x", &[1], &[*x])])[0];
        assert!(got == *y || ((got - y) / y).abs() < 2e-7, "{op}({x:e}) is {got:e}, not {y:e}");
    }
    for (op, x) in [("Acosh", 0.5), ("Atanh", 1.5), ("Asin", -1.5), ("Acos", 1.5)] {
        assert!(value(vec![node(op, &["x"], &["y"], vec![])], &[("x", &[1], &[x])])[0].is_nan(), "{op}({x})");
    }
}

/// Computes attention of 2·`groups` query heads to `groups` heads of keys, as the specification defines it.
fn attended(groups: usize, keys: usize, x: &[Vec<f64>; 3], kept: impl Fn(usize, usize) -> Option<f64>) -> Vec<f64> {
    let mut result = Vec::new();
    for row in 0..2 * groups * 3 {
        let (head, query) = (row / 3, row % 3);
        let of = |at: usize, key: usize| &x[at][(head / 2 * keys + key) * 2..][..2];
        let q = &x[0][row * 2..][..2];
        let weights = (0..keys).map(|key| {
            let k = of(1, key);
            kept(query, key).map_or(0.0, |bias| ((q[0] * k[0] + q[1] * k[1]) / 2f64.sqrt() + bias).exp())
        });
        let weights: Vec<f64> = weights.collect();
        let sum: f64 = weights.iter().sum();
        for column in 0..2 {
            let total: f64 = weights.iter().enumerate().map(|(key, w)| w * of(2, key)[column]).sum();
            result.push(if sum == 0.0 { 0.0 } else { total / sum });
        }
    }
    result
}

#[test]
fn a_query_that_sees_no_key_attends_to_nothing() {
    let numbers = |count: usize, seed: usize| -> Vec<f64> {
        (0..count).map(|n| ((n * 37 + seed * 11) % 29) as f64 / 16.0 - 0.75).collect()
    };
    // Query 1 sees no key, query 0 the first one, and query 2 all.
    let hidden = |query: usize, key: usize| query == 1 || query == 0 && key > 0;
    for (groups, keys) in [(1, 1), (1, 4), (2, 3)] {
        let (heads, count) = (2 * groups as i64, keys as i64);
        let x = [numbers(groups * 12, 1), numbers(groups * keys * 2, 2), numbers(groups * keys * 2, 3)];
        let mask = |shown: f64, hides: f64| -> Vec<f64> {
            (0..3 * keys).map(|at| if hidden(at / keys, at % keys) { hides } else { shown }).collect()
        };
        for causal in [0, 1] {
            let seen = |query: usize, key: usize| !hidden(query, key) && (causal == 0 || key <= query);
            let attention = node("Attention", &["q", "k", "v", "m"], &["y"], vec![int("is_causal", causal)]);
            let dims = [[1, heads, 3, 2], [1, groups as i64, count, 2]];
            let run = |nodes: Vec<NodeProto>, name: &str, mask: &[f64]| {
                let given: [(&str, &[i64], &[f64]); 4] =
                    [("q", &dims[0], &x[0]), ("k", &dims[1], &x[1]), ("v", &dims[1], &x[2]), (name, &[3, count], mask)];
                value(nodes, &given)
            };
            let to_bool = node("Cast", &["n"], &["m"], vec![int("to", 9)]);
            let got = [
                run(vec![attention.clone()], "m", &mask(0.25, f64::NEG_INFINITY)),
                run(vec![to_bool, attention], "n", &mask(1.0, 0.0)),
            ];
            let want = [0.25, 0.0].map(|bias| attended(groups, keys, &x, |q, k| seen(q, k).then_some(bias)));
            // The scale is rounded to `f32`.
            for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
                assert!((got - want).abs() < 1e-7, "{groups} groups, {keys} keys: {got}, not {want}");
            }
        }
    }
}
