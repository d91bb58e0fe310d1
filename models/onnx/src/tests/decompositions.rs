//! Compares ops that the reader decomposes with their definitions: Fourier transforms of each kind of length, and
//! windows over three axes. Also tests errors about positions, and module paths.

use std::f64::consts::TAU;

use eutectic_ir::{Tensor, interp::interpret};

use super::*;

/// Returns the declaration of an f64 tensor with these extents.
fn wide(name: &str, dims: &[i64]) -> ValueInfoProto {
    let mut port = port(name, dims);
    if let Some(type_proto::Value::TensorType(tensor)) = port.r#type.as_mut().and_then(|t| t.value.as_mut()) {
        tensor.elem_type = Some(11);
    }
    port
}

fn list(name: &str, values: &[i64]) -> AttributeProto {
    let kind = Some(AttributeType::Ints as i32);
    AttributeProto { name: Some(name.into()), r#type: kind, ints: values.into(), ..Default::default() }
}

/// Returns pseudorandom numbers between −1 and 1.
fn noise(count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i as f64 + 1.0) * 12.9898).sin() * 43758.5453 % 1.0).collect()
}

/// Evaluates a model in `f64` and returns its only result.
fn result(model: &ModelProto, given: &[(&str, &[usize], &[f64])]) -> Vec<f64> {
    let graph = import(model).unwrap().graph;
    let tensor = |name: &str| {
        let (_, dims, values) = given.iter().find(|(given, ..)| *given == name)?;
        Some(Tensor::from_f64(DType::F64, dims, values.iter().copied()))
    };
    interpret::<f64>(&graph, &tensor).unwrap()[0].to_tensor().to_f64()
}

fn of_node(node: NodeProto, inputs: &[(&str, &[i64])], constants: Vec<TensorProto>, opset: i64) -> ModelProto {
    let mut model = model(GraphProto {
        input: inputs.iter().map(|(name, dims)| wide(name, dims)).collect(),
        output: vec![wide("y", &[1])],
        initializer: constants,
        node: vec![node],
        ..Default::default()
    });
    model.opset_import[0].version = Some(opset);
    model
}

/// Computes Σ x[j]·e^(sign·2πi·jk/n) term by term.
fn transform(x: &[[f64; 2]], n: usize, sign: f64) -> Vec<[f64; 2]> {
    let term = |k: usize, (j, [re, im]): (usize, &[f64; 2])| {
        let (sin, cos) = (sign * TAU * ((j * k % n) as f64) / n as f64).sin_cos();
        [re * cos - im * sin, re * sin + im * cos]
    };
    let sum = |k| {
        x.iter().take(n).enumerate().map(|t| term(k, t)).fold([0.0, 0.0], |a: [f64; 2], b| [a[0] + b[0], a[1] + b[1]])
    };
    (0..n).map(sum).collect()
}

/// The lengths are small and composite ones, primes for one product and for Bluestein's method, and twice such a prime.
const LENGTHS: [usize; 10] = [1, 2, 12, 60, 67, 97, 128, 400, 1031, 2062];

#[test]
fn transforms_of_any_length_are_what_they_are_defined_as() {
    for n in LENGTHS {
        for (parts, inverse, one_sided) in
            [(1, 0, 0), (2, 0, 0), (1, 0, 1), (2, 1, 0), (2, 1, 1)].into_iter().filter(|c| c.2 == 0 || n > 1)
        {
            let given = if inverse * one_sided == 1 { n / 2 + 1 } else { n };
            let flat = noise(2 * given * parts);
            let dims = [2, given as i64, parts as i64];
            let attributes = vec![int("inverse", inverse), int("onesided", one_sided)];
            let length = TensorProto { dims: vec![], ..integers("length", &[n as i64]) };
            let node = node("DFT", &["x", "length"], &["y"], attributes);
            let model = of_node(node, &[("x", &dims)], vec![length], 17);
            let got = result(&model, &[("x", &[2, given, parts], &flat)]);
            let mut want = Vec::new();
            for signal in flat.chunks(given * parts) {
                let mut x: Vec<[f64; 2]> =
                    signal.chunks(parts).map(|v| [v[0], v.get(1).copied().unwrap_or(0.0)]).collect();
                if inverse * one_sided == 1 {
                    (given..n).for_each(|k| x.push([x[n - k][0], -x[n - k][1]]));
                }
                let mut y = transform(&x, n, if inverse == 1 { 1.0 } else { -1.0 });
                y.iter_mut().flatten().for_each(|v| *v /= if inverse == 1 { n as f64 } else { 1.0 });
                match (inverse, one_sided) {
                    (1, 1) => want.extend(y.iter().map(|v| v[0])),
                    (0, 1) => want.extend(y[..n / 2 + 1].iter().flatten()),
                    _ => want.extend(y.iter().flatten()),
                }
            }
            assert_eq!(got.len(), want.len());
            let far = got.iter().zip(&want).map(|(a, b): (&f64, &f64)| (a - b).abs()).fold(0.0, f64::max);
            assert!(far < 1e-11 * n as f64, "{n} {parts} {inverse} {one_sided}: {far:e}");
        }
    }
}

/// A case of convolution: input and output channels of a group, groups, and extents of image, windows, strides,
/// dilations and padding.
struct Volume {
    channels: [usize; 3],
    image: [usize; 3],
    size: [usize; 3],
    stride: [usize; 3],
    dilation: [usize; 3],
    pads: [usize; 6],
}

const VOLUMES: [Volume; 2] = [
    Volume {
        channels: [2, 3, 2],
        image: [4, 5, 3],
        size: [2, 3, 1],
        stride: [1, 2, 1],
        dilation: [2, 1, 1],
        pads: [1, 0, 0, 0, 2, 1],
    },
    Volume {
        channels: [3, 2, 1],
        image: [3, 3, 5],
        size: [3, 2, 2],
        stride: [2, 1, 3],
        dilation: [1, 1, 2],
        pads: [1, 1, 0, 1, 0, 2],
    },
];

impl Volume {
    fn attributes(&self) -> Vec<AttributeProto> {
        let numbers = |n: &[usize]| n.iter().map(|&n| n as i64).collect::<Vec<_>>();
        vec![
            list("strides", &numbers(&self.stride)),
            list("dilations", &numbers(&self.dilation)),
            list("pads", &numbers(&self.pads)),
            int("group", self.channels[2] as i64),
        ]
    }

    /// Returns the number of windows in the padded image.
    fn windows(&self) -> [usize; 3] {
        [0, 1, 2].map(|i| {
            let padded = self.image[i] + self.pads[i] + self.pads[i + 3];
            (padded - self.dilation[i] * (self.size[i] - 1) - 1) / self.stride[i] + 1
        })
    }

    /// Calls `of` for each element of a window that is inside the image, with flat indices.
    fn each(&self, mut of: impl FnMut(usize, usize, usize)) {
        let count = |dims: [usize; 3]| dims.iter().product::<usize>();
        let point = |at: usize, dims: [usize; 3]| [at / (dims[1] * dims[2]), at / dims[2] % dims[1], at % dims[2]];
        let windows = self.windows();
        for window in 0..count(windows) {
            for tap in 0..count(self.size) {
                let (o, k) = (point(window, windows), point(tap, self.size));
                let at = [0, 1, 2].map(|i| (o[i] * self.stride[i] + k[i] * self.dilation[i]).checked_sub(self.pads[i]));
                if let [Some(a), Some(b), Some(c)] = at
                    && a < self.image[0]
                    && b < self.image[1]
                    && c < self.image[2]
                {
                    of(window, tap, (a * self.image[1] + b) * self.image[2] + c);
                }
            }
        }
    }
}

#[test]
fn convolutions_over_three_axes_are_sums_over_windows() {
    for case in &VOLUMES {
        let ([inner, outer, groups], size) = (case.channels, |dims: &[usize]| dims.iter().product::<usize>());
        let (taps, windows, image) = (size(&case.size), size(&case.windows()), size(&case.image));
        let signed = |dims: &[usize]| dims.iter().map(|&n| n as i64).collect::<Vec<_>>();
        let x_dims = [&[2, groups * inner], &case.image[..]].concat();
        let w_dims = [&[groups * outer, inner], &case.size[..]].concat();
        let (x, w, b) = (noise(size(&x_dims)), noise(size(&w_dims)), noise(groups * outer));
        let mut want = vec![0.0; 2 * groups * outer * windows];
        for n in 0..2 {
            for o in 0..groups * outer {
                let result = &mut want[(n * groups * outer + o) * windows..][..windows];
                result.fill(b[o]);
                for i in 0..inner {
                    let x = &x[(n * groups * inner + o / outer * inner + i) * image..];
                    case.each(|window, tap, at| result[window] += x[at] * w[(o * inner + i) * taps + tap]);
                }
            }
        }
        let conv = node("Conv", &["x", "w", "b"], &["y"], case.attributes());
        let (xs, ws, bs) = (signed(&x_dims), signed(&w_dims), signed(&[groups * outer]));
        let model = of_node(conv, &[("x", &xs), ("w", &ws), ("b", &bs)], vec![], 17);
        let got = result(&model, &[("x", &x_dims, &x), ("w", &w_dims, &w), ("b", &[groups * outer], &b)]);
        close(&got, &want);

        // A transposed convolution adds each result of the convolution to the elements that it was computed from.
        let y_dims = [&[2, groups * outer], &case.windows()[..]].concat();
        let y = noise(size(&y_dims));
        // Elements after the last window contribute to no result.
        let rest: Vec<usize> = (0..3)
            .map(|i| {
                let padded = case.image[i] + case.pads[i] + case.pads[i + 3];
                (padded - case.dilation[i] * (case.size[i] - 1) - 1) % case.stride[i]
            })
            .collect();
        let mut want = vec![0.0; 2 * groups * inner * image];
        for n in 0..2 {
            for o in 0..groups * outer {
                let y = &y[(n * groups * outer + o) * windows..];
                for i in 0..inner {
                    let to = (n * groups * inner + o / outer * inner + i) * image;
                    case.each(|window, tap, at| want[to + at] += y[window] * w[(o * inner + i) * taps + tap]);
                }
            }
        }
        let attributes = [case.attributes(), vec![list("output_padding", &signed(&rest))]].concat();
        let transpose = node("ConvTranspose", &["g", "w"], &["y"], attributes);
        let model = of_node(transpose, &[("g", &signed(&y_dims)), ("w", &ws)], vec![], 17);
        close(&result(&model, &[("g", &y_dims, &y), ("w", &w_dims, &w)]), &want);
    }
}

#[test]
fn padding_may_take_all_that_a_transposed_convolution_makes() {
    // Elements, taps, pads and the remaining elements.
    for (n, taps, pads, left) in
        [(1, 3, [2, 1], 0), (1, 3, [1, 2], 0), (2, 2, [2, 1], 0), (1, 3, [2, 0], 1), (1, 1, [0, 1], 0)]
    {
        let transpose = node("ConvTranspose", &["x", "w"], &["y"], vec![list("pads", &pads)]);
        let model = of_node(transpose, &[("x", &[1, 1, n]), ("w", &[1, 1, taps])], vec![], 17);
        let (x, w) = (vec![2.0; n as usize], noise(taps as usize));
        let got = result(&model, &[("x", &[1, 1, n as usize], &x), ("w", &[1, 1, taps as usize], &w)]);
        let mut whole = vec![0.0; (n + taps - 1) as usize];
        for (i, k) in (0..n as usize).flat_map(|i| (0..taps as usize).map(move |k| (i, k))) {
            whole[i + k] += x[i] * w[k];
        }
        let end = whole.len() - pads[1] as usize;
        assert_eq!(end.saturating_sub(pads[0] as usize), left, "{n} elements, {taps} taps, {pads:?}");
        close(&got, &whole[pads[0] as usize..end]);
    }
}

#[test]
fn a_bias_that_counts_0_times_is_not_read() {
    let zero = AttributeProto {
        name: Some("beta".into()),
        r#type: Some(AttributeType::Float as i32),
        f: Some(0.0),
        ..Default::default()
    };
    let product = node("Gemm", &["a", "b", "c"], &["y"], vec![zero]);
    let model = of_node(product, &[("a", &[2, 2]), ("b", &[2, 1]), ("c", &[2, 1])], vec![], 13);
    let (a, b, c) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0], [f64::INFINITY, f64::NAN]);
    close(&result(&model, &[("a", &[2, 2], &a), ("b", &[2, 1], &b), ("c", &[2, 1], &c)]), &[17.0, 39.0]);
}

fn close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    let far = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(far < 1e-12, "{far:e}");
}

#[test]
fn a_sequence_longer_than_the_table_is_said_to_be_that() {
    let bounds = ["starts", "ends", "axes"].map(|name| integers(name, &[if name == "ends" { 6 } else { 0 }]));
    let cut = model(GraphProto {
        input: vec![port("x", &[6, 3])],
        output: vec![port("y", &[6, 3])],
        initializer: [vec![floats("positions", &[4, 3])], bounds.to_vec()].concat(),
        node: vec![
            node("Slice", &["positions", "starts", "ends", "axes"], &["part"], vec![]),
            node("Add", &["x", "part"], &["y"], vec![]),
        ],
        ..Default::default()
    });
    let said = import(&cut).unwrap_err().to_string();
    assert!(said.contains("6 elements of an axis of `positions` that has 4"), "{said}");
    assert!(said.contains("longer than the model's table of positions"), "{said}");
    let read = model(GraphProto {
        output: vec![port("y", &[2, 3])],
        initializer: vec![floats("positions", &[4, 3]), integers("ids", &[0, 5])],
        node: vec![node("Gather", &["positions", "ids"], &["y"], vec![])],
        ..Default::default()
    });
    let said = import(&read).unwrap_err().to_string();
    assert!(
        said.contains("id 5 is out of range for an axis of 4") && said.contains("the sequence is longer"),
        "{said}"
    );
}

#[test]
fn a_node_belongs_to_the_module_that_its_properties_name() {
    for (scopes, path) in [
        ("['', 'encoder', 'encoder.layer.0', 'linear']", "encoder.layer.0"),
        ("['', 'add_3']", ""),
        ("['add_3']", ""),
        ("[\"\", \"a.b\", \"mul\"]", "a.b"),
    ] {
        let mut model = layer();
        let property = |value: &str| StringStringEntryProto {
            key: Some("pkg.torch.onnx.name_scopes".into()),
            value: Some(value.into()),
        };
        graph_of(&mut model).node[2].metadata_props.push(property(scopes));
        let imported = import(&model).unwrap();
        assert_eq!(imported.graph.node(imported.graph.outputs()[0].1).origin.path(), path);
    }
}
