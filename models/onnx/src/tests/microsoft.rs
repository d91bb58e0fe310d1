//! Ops of `com.microsoft`, compared with the formulas of ONNX Runtime's document.

use eutectic_ir::{Tensor, interp::interpret};

use super::*;

/// Returns a model with one node over `x` and `s`, which are tensors of the given extents, and over weights. The
/// weights are the numbers 0, 1, 2 and so on.
fn of_node(mut node: NodeProto, dims: &[i64], weights: &[(&str, &[i64])]) -> ModelProto {
    node.domain = Some("com.microsoft".into());
    let open = |name: &String| ValueInfoProto { name: Some(name.clone()), ..Default::default() };
    let output = node.output.iter().filter(|name| !name.is_empty()).map(open).collect();
    let initializer = weights.iter().map(|(name, dims)| floats(name, dims)).collect();
    let input = ["x", "s"].into_iter().filter(|name| node.input.iter().any(|of| of == name));
    let input = input.map(|name| port(name, dims)).collect();
    let mut model = model(GraphProto { input, output, initializer, node: vec![node], ..Default::default() });
    let domain = OperatorSetIdProto { version: Some(1), domain: Some("com.microsoft".into()) };
    model.opset_import.push(domain);
    model
}

/// Evaluates a model with one node on given inputs. Returns its outputs.
fn outputs(node: NodeProto, dims: &[i64], weights: &[(&str, &[i64])], given: [&[f64]; 2]) -> Vec<Vec<f64>> {
    let imported = import(&of_node(node, dims, weights)).unwrap();
    let params = imported.params().unwrap();
    let dims: Vec<usize> = dims.iter().map(|n| *n as usize).collect();
    let tensor = |values: &[f64]| Tensor::from_f64(DType::F32, &dims, values.iter().copied());
    let values = interpret::<f64>(&imported.graph, &|name| match name {
        "x" => Some(tensor(given[0])),
        "s" => Some(tensor(given[1])),
        _ => params.get(name).cloned(),
    });
    values.unwrap().into_iter().map(|value| reals(value.data)).collect()
}

fn near(given: &[f64], wanted: &[f64]) {
    assert_eq!(given.len(), wanted.len());
    for (a, b) in given.iter().zip(wanted) {
        assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{given:?}, not {wanted:?}");
    }
}

const X: [f64; 6] = [-2.0, -0.5, 0.0, 0.25, 1.0, 3.0];
const S: [f64; 6] = [1.0, -1.0, 0.5, 2.0, -0.25, 0.0];

#[test]
fn activations_take_a_bias_first() {
    let tanh = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh());
    let given = outputs(node("FastGelu", &["x", "b"], &["y"], vec![]), &[2, 3], &[("b", &[3])], [&X, &S]);
    near(&given[0], &(0..6).map(|n| tanh(X[n] + (n % 3) as f64)).collect::<Vec<_>>());
    let quick = node("QuickGelu", &["x"], &["y"], vec![]);
    near(&outputs(quick, &[2, 3], &[], [&X, &S])[0], &X.map(|x| x / (1.0 + (-1.702 * x).exp())));
}

#[test]
fn products_are_transposed_scaled_and_followed() {
    let half = AttributeProto {
        name: Some("alpha".into()),
        r#type: Some(AttributeType::Float as i32),
        f: Some(0.5),
        ..Default::default()
    };
    let product = |row: usize, column: usize| (0..3).map(|n| X[row * 3 + n] * (column * 3 + n) as f64).sum::<f64>();
    let all = || (0..4).map(|n| product(n / 2, n % 2));
    let given = outputs(
        node("FusedMatMul", &["x", "w"], &["y"], vec![int("transB", 1), half]),
        &[2, 3],
        &[("w", &[2, 3])],
        [&X, &S],
    );
    near(&given[0], &all().map(|x| x / 2.0).collect::<Vec<_>>());
    let given = outputs(
        node("FusedGemm", &["x", "w"], &["y"], vec![int("transB", 1), word("activation", "Relu")]),
        &[2, 3],
        &[("w", &[2, 3])],
        [&X, &S],
    );
    near(&given[0], &all().map(|x| x.max(0.0)).collect::<Vec<_>>());
}

#[test]
fn the_sum_before_a_norm_is_its_fourth_output() {
    let skip = node("SkipLayerNormalization", &["x", "s", "g", "b"], &["y", "", "", "t"], vec![]);
    let given = outputs(skip, &[2, 3], &[("g", &[3]), ("b", &[3])], [&X, &S]);
    let sums: Vec<f64> = X.iter().zip(S).map(|(x, s)| x + s).collect();
    let wanted = sums.chunks(3).flat_map(|row| {
        let mean = row.iter().sum::<f64>() / 3.0;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 3.0;
        (0..3).map(move |n| (row[n] - mean) / (variance + 1e-12).sqrt() * n as f64 + n as f64)
    });
    near(&given[0], &wanted.collect::<Vec<_>>());
    near(&given[1], &sums);
    let mean = node("SkipLayerNormalization", &["x", "s", "g", "b"], &["y", "m"], vec![]);
    let refused = import(&of_node(mean, &[2, 3], &[("g", &[3]), ("b", &[3])])).map(drop).unwrap_err().to_string();
    assert!(refused.contains("inv_std_var"), "{refused}");
}

#[test]
fn ops_of_unknown_domains_are_named() {
    let mut other = node("Gelu", &["x"], &["y"], vec![]);
    other.domain = Some("com.example".into());
    let graph = GraphProto {
        input: vec![port("x", &[2, 3])],
        output: vec![port("y", &[2, 3])],
        node: vec![other],
        ..Default::default()
    };
    let error = import(&model(graph)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("com.example.Gelu"), "{error}");
}

/// Attention with a cache that past and present share, and with an additional key in the softmax, is refused.
#[test]
fn attention_of_groups_names_what_it_refuses() {
    let heads = || vec![int("num_heads", 2), int("kv_num_heads", 1)];
    let inputs = ["x", "k", "k", "p", "p", "l", "t"];
    let weights: [(&str, &[i64]); 4] = [("k", &[1, 1, 4]), ("p", &[1, 1, 3, 4]), ("l", &[1]), ("t", &[1])];
    let attention = node("GroupQueryAttention", &inputs, &["y", "keys", "values"], heads());
    let refused = import(&of_node(attention, &[1, 1, 8], &weights)).unwrap_err().to_string();
    assert!(refused.contains("total_sequence_length is 0, but must be 4"), "{refused}");
    let smooth = [heads(), vec![int("smooth_softmax", 1)]].concat();
    let attention = node("GroupQueryAttention", &inputs, &["y", "keys", "values"], smooth);
    let refused = import(&of_node(attention, &[1, 1, 8], &weights)).unwrap_err().to_string();
    assert!(refused.contains("smooth_softmax"), "{refused}");
}

#[test]
fn products_in_blocks_name_sizes_that_do_not_fit() {
    let sizes = |bits| vec![int("K", 32), int("N", 2), int("bits", bits), int("block_size", 16)];
    let product = |attributes| node("MatMulNBits", &["x", "w", "s"], &["y"], attributes);
    let weights: [(&str, &[i64]); 2] = [("w", &[2, 2, 7]), ("s", &[2, 2])];
    let refused = import(&of_node(product(sizes(4)), &[1, 32], &weights)).unwrap_err().to_string();
    assert!(refused.contains("its bytes have extents [2, 2, 7]"), "{refused}");
    let refused = import(&of_node(product(sizes(3)), &[1, 32], &weights)).unwrap_err().to_string();
    assert!(refused.contains("its elements have 3 bits; 2, 4 and 8 are supported"), "{refused}");
}
