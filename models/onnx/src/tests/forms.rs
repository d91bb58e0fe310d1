//! Valid files with rare features: default values of inputs, padding longer than an axis, diagonals, regions of an
//! image, 8-bit integers. Each is compared with its definition, element by element.

use eutectic_ir::{Tensor, interp::interpret};

use super::*;
use eutectic_models::random::Rng;

/// Evaluates a graph with given inputs.
pub(super) fn results(imported: &Imported, given: &[(&str, Tensor)]) -> Vec<Tensor> {
    let params = imported.params().unwrap();
    let value =
        |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, t)| t.clone()).or(params.get(name).cloned());
    let values = interpret::<f64>(&imported.graph, &value).unwrap_or_else(|e| panic!("{e}"));
    values.iter().map(|value| value.to_tensor()).collect()
}

/// Evaluates one node. Its first input is x, and its other inputs are constants.
pub(super) fn one(op: NodeProto, x: &Tensor, constants: Vec<TensorProto>, opset: i64) -> Tensor {
    let dims: Vec<i64> = x.dims().iter().map(|&n| n as i64).collect();
    results(&imported(op, x.dtype(), &dims, constants, opset).unwrap_or_else(|e| panic!("{e}")), &[("x", x.clone())])
        .remove(0)
}

pub(super) fn imported(
    op: NodeProto,
    dtype: DType,
    dims: &[i64],
    initializer: Vec<TensorProto>,
    opset: i64,
) -> Result<Imported, OnnxError> {
    let output = op.output.iter().map(|name| open(name)).collect();
    let input = vec![typed("x", dtype, dims)];
    let mut model = model(GraphProto { input, output, initializer, node: vec![op], ..Default::default() });
    model.opset_import[0].version = Some(opset);
    import(&model)
}

/// Returns an output without a declared type.
pub(super) fn open(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.into()), ..Default::default() }
}

pub(super) fn code(dtype: DType) -> i32 {
    dtype.def().names.onnx
}

/// Returns the declaration of a tensor of this type. Its extents may be 0.
pub(super) fn typed(name: &str, dtype: DType, dims: &[i64]) -> ValueInfoProto {
    let mut port = port(name, dims);
    if let Some(type_proto::Value::TensorType(tensor)) = port.r#type.as_mut().and_then(|t| t.value.as_mut()) {
        tensor.elem_type = Some(code(dtype));
        for (dim, n) in tensor.shape.iter_mut().flat_map(|s| &mut s.dim).zip(dims) {
            dim.value = Some(Extent::DimValue(*n));
        }
    }
    port
}

/// Returns a tensor in the form in which a file stores it.
pub(super) fn stored(name: &str, value: &Tensor) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: value.dims().iter().map(|&n| n as i64).collect(),
        data_type: Some(code(value.dtype())),
        raw_data: Some(value.bytes().to_vec().into()),
        ..Default::default()
    }
}

fn counted(dims: &[usize]) -> Tensor {
    Tensor::from_f64(DType::F32, dims, (0..dims.iter().product()).map(|i: usize| i as f64))
}

fn text(name: &str, value: &str) -> AttributeProto {
    word(name, value)
}

#[test]
fn padding_repeats_elements_however_far_it_goes() {
    for extent in [1_i64, 2, 3, 6] {
        for (before, after) in
            [(0, 1), (2, 3), (7, 0), (0, 13), (12, 12), (-1, 4), (3, -1), (1 - extent, 9), (5, 1 - extent)]
        {
            let (x, pads) = (counted(&[extent as usize]), integers("pads", &[before, after]));
            let count = extent + before + after;
            if count < 0 || extent + before.min(0) + after.min(0) < 0 {
                continue;
            }
            for mode in ["reflect", "wrap", "edge"] {
                let pad = node("Pad", &["x", "pads"], &["y"], vec![text("mode", mode)]);
                // The reference walks from the first element step by step, and turns around at both ends. Cropped
                // elements can be reflected.
                let reflected = |at: i64| {
                    let (mut place, mut step) = (0, if at < 0 { -1 } else { 1 });
                    for _ in 0..at.abs() {
                        if extent > 1 && !(0..extent).contains(&(place + step)) {
                            step = -step;
                        }
                        place += if extent > 1 { step } else { 0 };
                    }
                    place
                };
                let (first, last) = ((-before).max(0), extent - 1 - (-after).max(0));
                if last < first && mode != "reflect" {
                    continue;
                }
                let got = one(pad, &x, vec![pads.clone()], 19).to_f64();
                let want: Vec<f64> = (-before..extent + after)
                    .map(|at| match mode {
                        "reflect" => reflected(at),
                        "edge" => at.clamp(first, last),
                        _ => first + (at - first).rem_euclid(last - first + 1),
                    })
                    .map(|at| at as f64)
                    .collect();
                assert_eq!(got, want, "{mode} of {extent} by {before} and {after}");
            }
        }
    }
    let pad = node("Pad", &["x", "pads"], &["y"], vec![text("mode", "reflect")]);
    let error = imported(pad, DType::F32, &[0], vec![integers("pads", &[1, 0])], 19).unwrap_err().to_string();
    assert!(error.contains("repeats elements, and axis 0 has none"), "{error}");
}

#[test]
fn slices_are_those_of_python() {
    let mut rng = Rng::new(3);
    let extremes = [i64::MIN, i64::MIN + 1, -(1 << 62), -9, -4, -3, -2, -1, 0, 1, 2, 3, 4, 9, 1 << 62, i64::MAX];
    for extent in [0_usize, 1, 2, 5] {
        for _ in 0..120 {
            let [start, end, step] = [0; 3].map(|_| extremes[rng.below(extremes.len())]);
            if step == 0 {
                continue;
            }
            let constants = [("s", start), ("e", end), ("a", 0), ("t", step)].map(|(name, n)| integers(name, &[n]));
            let slice = node("Slice", &["x", "s", "e", "a", "t"], &["y"], vec![]);
            let got = one(slice, &counted(&[extent]), constants.into(), 13).to_f64();
            let n = extent as i128;
            let from_start = |at: i64| if at < 0 { i128::from(at) + n } else { i128::from(at) };
            let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
            let (mut at, end) = (
                from_start(start).clamp(low.max(if step > 0 { 0 } else { -1 }), high),
                from_start(end).clamp(low, high),
            );
            // ONNX clamps a start before the axis to its first element, for either sign of the step.
            at = at.max(0).min(high.max(0));
            let mut want = Vec::new();
            while n > 0 && ((step > 0 && at < end) || (step < 0 && at > end)) {
                want.push(at as f64);
                at += i128::from(step);
            }
            assert_eq!(got, want, "{extent} elements [{start}:{end}:{step}]");
        }
    }
}

#[test]
fn an_axis_that_is_named_twice_is_a_diagonal() {
    let x = |dims: &[usize]| counted(dims);
    let sum = |equation: &str, x: &Tensor| {
        one(node("Einsum", &["x"], &["y"], vec![text("equation", equation)]), x, vec![], 13)
    };
    for n in [0, 1, 2, 3, 17] {
        let diagonal: Vec<f64> = (0..n).map(|i| (i * (n + 1)) as f64).collect();
        assert_eq!(sum("ii->i", &x(&[n, n])).to_f64(), diagonal, "{n}");
        assert_eq!(sum("ii", &x(&[n, n])).to_f64(), [diagonal.iter().sum::<f64>()], "{n}");
        let far: Vec<f64> = (0..n).map(|i| (i * (n * n + n + 1)) as f64).collect();
        assert_eq!(sum("iii->i", &x(&[n, n, n])).to_f64(), far, "{n}");
    }
    // Element [b i c i] of x has the index b·24 + i·8 + c·2 + i.
    let diagonal = sum("bici->cib", &x(&[3, 2, 4, 2]));
    assert_eq!(diagonal.dims(), [4, 2, 3]);
    let want = (0..4).flat_map(|c| (0..2).flat_map(move |i| (0..3).map(move |b| (b * 16 + i * 8 + c * 2 + i) as f64)));
    assert_eq!(diagonal.to_f64(), want.collect::<Vec<_>>());
    assert_eq!(sum("...ii->...i", &x(&[2, 3, 3])).to_f64(), [0.0, 4.0, 8.0, 9.0, 13.0, 17.0]);
    let refused = |equation: &str| {
        let einsum = node("Einsum", &["x"], &["y"], vec![text("equation", equation)]);
        imported(einsum, DType::F32, &[2, 3], vec![], 13).unwrap_err().to_string()
    };
    assert!(refused("ii->i").contains("the axis i twice, with 2 and 3 elements"), "{}", refused("ii->i"));
    assert!(refused("ij->ii").contains("names the axis i of its result twice"), "{}", refused("ij->ii"));
}

/// Returns pseudorandom integers of this type.
fn bytes(dtype: DType, dims: &[usize], rng: &mut Rng) -> Tensor {
    let (low, count) = if dtype == DType::I8 { (-128, 256) } else { (0, 256) };
    let mut extreme = rng.below(3) == 0;
    let values = (0..dims.iter().product()).map(|_: usize| {
        // Extreme values make sums as large as possible.
        extreme ^= rng.below(50) == 0;
        if extreme { low + 255 * i64::from(dtype == DType::U8) } else { low + rng.below(count) as i64 }
    });
    Tensor::from_i64(dtype, dims, values.collect::<Vec<_>>())
}

#[test]
fn products_of_integers_are_exact() {
    let mut rng = Rng::new(4);
    for (rows, inner, columns) in [(1, 1, 1), (3, 0, 2), (2, 7, 5), (4, 64, 3), (3, 300, 4), (2, 4097, 3)] {
        for (a_type, b_type) in [(DType::U8, DType::I8), (DType::I8, DType::I8), (DType::U8, DType::U8)] {
            for (a_zeros, b_zeros) in [(None, None), (Some(1), Some(1)), (Some(rows), Some(columns)), (Some(1), None)] {
                let (a, b) = (bytes(a_type, &[rows, inner], &mut rng), bytes(b_type, &[inner, columns], &mut rng));
                let zeros = |n: Option<usize>, ty, rng: &mut Rng| n.map(|n| bytes(ty, &[n], rng));
                let (az, bz) = (zeros(a_zeros, a_type, &mut rng), zeros(b_zeros, b_type, &mut rng));
                let mut constants = vec![stored("b", &b)];
                constants.extend(az.iter().map(|z| stored("az", z)).chain(bz.iter().map(|z| stored("bz", z))));
                let inputs = ["x", "b", if az.is_some() { "az" } else { "" }, if bz.is_some() { "bz" } else { "" }];
                let got = one(node("MatMulInteger", &inputs, &["y"], vec![]), &a, constants, 10);
                let at = |z: &Option<Tensor>, i: usize| {
                    z.as_ref().map_or(0, |z| z.to_i64()[if z.count() == 1 { 0 } else { i }])
                };
                let (x, w) = (a.to_i64(), b.to_i64());
                let product = |i: usize, j: usize| -> i64 {
                    (0..inner).map(|k| (x[i * inner + k] - at(&az, i)) * (w[k * columns + j] - at(&bz, j))).sum()
                };
                let want: Vec<i64> = (0..rows * columns).map(|n| product(n / columns, n % columns)).collect();
                assert_eq!(
                    (got.dtype(), got.to_i64()),
                    (DType::I32, want),
                    "{rows}×{inner}×{columns} {a_type} {b_type}"
                );
            }
        }
    }
}

#[test]
fn sums_that_no_type_holds_exactly_are_known_by_their_bounds() {
    let element = |inner: usize| {
        let x = Tensor::from_i64(DType::U8, &[1, inner], vec![255; inner]);
        let b = stored("b", &Tensor::from_i64(DType::U8, &[inner, 1], vec![255; inner]));
        let imported =
            imported(node("MatMulInteger", &["x", "b"], &["y"], vec![]), DType::U8, &[1, inner as i64], vec![b], 10)
                .unwrap();
        let (id, _) = imported.graph.nodes().find(|(_, node)| node.op.name() == "matmul").expect("a product");
        assert_eq!(results(&imported, &[("x", x)])[0].to_i64(), [255 * 255 * inner as i64]);
        imported.graph.ty(id).dtype()
    };
    assert_eq!([258, 259, 33_000].map(element), [Some(DType::F32), Some(DType::F64), Some(DType::F64)]);
}

#[test]
fn convolutions_of_integers_are_exact_and_pad_with_the_zero_point() {
    let mut rng = Rng::new(5);
    let (channels, outputs, width, size) = (6, 4, 11, 3);
    for groups in [1, 2] {
        let inner = channels / groups;
        let (x, w) =
            (bytes(DType::U8, &[1, channels, width], &mut rng), bytes(DType::I8, &[outputs, inner, size], &mut rng));
        let (xz, wz) = (bytes(DType::U8, &[], &mut rng), bytes(DType::I8, &[outputs], &mut rng));
        let bias = Tensor::from_i64(DType::I32, &[outputs], [1 << 30, -(1 << 30), 5, 0]);
        let scale = |name: &str, value: &[f64]| {
            let dims: &[usize] = if value.len() == 1 { &[] } else { &[outputs] };
            stored(name, &Tensor::from_f64(DType::F32, dims, value.iter().copied()))
        };
        let constants = vec![stored("w", &w), stored("xz", &xz), stored("wz", &wz)];
        let pads = AttributeProto {
            ints: vec![2, 1],
            r#type: Some(AttributeType::Ints as i32),
            name: Some("pads".into()),
            ..Default::default()
        };
        let attributes = vec![pads, int("group", groups as i64)];
        let got =
            one(node("ConvInteger", &["x", "w", "xz", "wz"], &["y"], attributes.clone()), &x, constants.clone(), 10);
        let (a, b, az, bz) = (x.to_i64(), w.to_i64(), xz.to_i64()[0], wz.to_i64());
        let places = width + 1;
        let element = |o: usize, at: usize| -> i64 {
            let group = o / (outputs / groups);
            let term = |i: usize, k: usize| match (at + k).checked_sub(2).filter(|&p| p < width) {
                Some(place) => (a[(group * inner + i) * width + place] - az) * (b[(o * inner + i) * size + k] - bz[o]),
                None => 0,
            };
            (0..inner).flat_map(|i| (0..size).map(move |k| (i, k))).map(|(i, k)| term(i, k)).sum()
        };
        let sums: Vec<i64> = (0..outputs * places).map(|n| element(n / places, n % places)).collect();
        assert_eq!((got.dims(), got.to_i64()), (&[1, outputs, places][..], sums.clone()));
        // Scaling by powers of two is exact.
        let mut constants = constants;
        constants.extend([scale("xs", &[0.25]), scale("ws", &[0.5, 0.25, 0.125, 1.0]), scale("ys", &[16.0])]);
        constants.extend([stored("yz", &Tensor::from_i64(DType::I8, &[], [-3])), stored("bias", &bias)]);
        let inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "bias"];
        let got = one(node("QLinearConv", &inputs, &["y"], attributes), &x, constants, 10);
        let scales = [0.5, 0.25, 0.125, 1.0].map(|w| 0.25 * w / 16.0);
        let requantized = |(n, sum): (usize, &i64)| {
            let o = n / places;
            let sum = *sum + bias.to_i64()[o];
            ((sum as f32 * scales[o] as f32).round_ties_even() as i64 - 3).clamp(-128, 127)
        };
        let want: Vec<i64> = sums.iter().enumerate().map(requantized).collect();
        assert_eq!((got.dtype(), got.to_i64()), (DType::I8, want), "{groups} groups");
    }
}

#[test]
fn quantized_products_have_scales_of_rows_and_columns() {
    let floats = |name: &str, values: &[f64]| {
        let dims: &[usize] = if values.len() == 1 { &[] } else { &[values.len()] };
        stored(name, &Tensor::from_f64(DType::F32, dims, values.iter().copied()))
    };
    let whole = |name: &str, dtype, values: &[i64]| {
        let dims: &[usize] = if values.len() == 1 { &[] } else { &[values.len()] };
        stored(name, &Tensor::from_i64(dtype, dims, values.iter().copied()))
    };
    let x = Tensor::from_i64(DType::U8, &[2, 3], [0, 255, 7, 128, 1, 90]);
    let b = Tensor::from_i64(DType::I8, &[3, 2], [-128, 3, 127, -5, 64, 0]);
    let constants = vec![
        floats("as", &[0.5, 0.25]),
        whole("az", DType::U8, &[128, 3]),
        stored("b", &b),
        floats("bs", &[0.125, 2.0]),
        whole("bz", DType::I8, &[1, -2]),
        floats("ys", &[32.0]),
        whole("yz", DType::U8, &[100]),
    ];
    let inputs = ["x", "as", "az", "b", "bs", "bz", "ys", "yz"];
    let got = one(node("QLinearMatMul", &inputs, &["y"], vec![]), &x, constants, 10);
    let (a, w, az, bz) = (x.to_i64(), b.to_i64(), [128, 3], [1, -2]);
    let want = (0..4).map(|n| {
        let (i, j) = (n / 2, n % 2);
        let sum: i64 = (0..3).map(|k| (a[i * 3 + k] - az[i]) * (w[k * 2 + j] - bz[j])).sum();
        let scaled = sum as f32 * ([0.5_f32, 0.25][i] * [0.125, 2.0][j] / 32.0);
        (scaled.round_ties_even() as i64 + 100).clamp(0, 255)
    });
    assert_eq!(got.to_i64(), want.collect::<Vec<_>>());
}

#[test]
fn what_is_quantized_in_each_run_spans_0_and_all_elements() {
    let cases: &[(&[f64], &[i64], f64, i64)] = &[
        (&[-127.0, 128.0, 0.5], &[0, 255, 127], 1.0, 127),
        (&[0.0, 0.0], &[0, 0], 1.0, 0),
        (&[255.0, 51.0], &[255, 51], 1.0, 0),
        (&[-255.0, -51.0], &[0, 204], 1.0, 255),
        (&[], &[], 1.0, 0),
    ];
    for (x, y, scale, zero) in cases {
        let quantize = node("DynamicQuantizeLinear", &["x"], &["y", "s", "z"], vec![]);
        let imported = imported(quantize, DType::F32, &[x.len() as i64], vec![], 13).unwrap();
        let got = results(&imported, &[("x", Tensor::from_f64(DType::F32, &[x.len()], x.iter().copied()))]);
        assert_eq!(
            (got[0].to_i64(), got[1].to_f64(), got[2].to_i64()),
            (y.to_vec(), vec![*scale], vec![*zero]),
            "{x:?}"
        );
    }
}

#[test]
fn a_region_of_an_image_is_sampled_and_surrounded() {
    let floats = |name: &str, values: &[f64]| {
        stored(name, &Tensor::from_f64(DType::F32, &[values.len()], values.iter().copied()))
    };
    let (extent, count) = (5, 7);
    for (start, end) in [(0.0, 1.0), (0.25, 0.75), (-0.5, 1.5), (1.25, 0.5), (2.0, 3.0)] {
        let attributes = vec![
            text("mode", "linear"),
            text("coordinate_transformation_mode", "tf_crop_and_resize"),
            AttributeProto {
                f: Some(-4.5),
                r#type: Some(AttributeType::Float as i32),
                name: Some("extrapolation_value".into()),
                ..Default::default()
            },
        ];
        let constants = vec![floats("roi", &[0.0, start, 1.0, end]), integers("sizes", &[2, count])];
        let x = counted(&[2, extent]);
        let got = one(node("Resize", &["x", "roi", "", "sizes"], &["y"], attributes), &x, constants, 13).to_f64();
        for (n, &got) in got.iter().enumerate() {
            let (row, i) = (n / count as usize, n % count as usize);
            let last = extent as f64 - 1.0;
            let at = start * last + i as f64 * (end - start) * last / (count as f64 - 1.0);
            // The elements of x are a linear function of their index.
            let want = if (0.0..=last).contains(&at) { (row * extent) as f64 + at } else { -4.5 };
            assert!((got - want).abs() < 1e-6, "{start} to {end}, element {n}: {got}, not {want}");
        }
    }
    // The scale is that of the region, and not that of the image.
    let attributes = vec![text("mode", "nearest"), text("coordinate_transformation_mode", "tf_crop_and_resize")];
    let constants = vec![floats("roi", &[0.0, 0.5, 1.0, 1.0]), floats("scales", &[1.0, 2.0])];
    let got = one(node("Resize", &["x", "roi", "scales"], &["y"], attributes), &counted(&[1, 9]), constants, 13);
    assert_eq!((got.dims(), got.to_f64()[0]), (&[1, 9][..], 4.0));
}

#[test]
fn halves_of_elements_are_found_as_tensorflow_finds_them() {
    for (mode, round) in [("floor", f64::floor as fn(f64) -> f64), ("ceil", f64::ceil)] {
        for (extent, count) in [(2_usize, 4_i64), (5, 3), (3, 8), (4, 1)] {
            let attributes = vec![
                text("mode", "nearest"),
                text("nearest_mode", mode),
                text("coordinate_transformation_mode", "tf_half_pixel_for_nn"),
            ];
            let resize = node("Resize", &["x", "", "", "sizes"], &["y"], attributes);
            let got = one(resize, &counted(&[extent]), vec![integers("sizes", &[count])], 13).to_f64();
            let scale = count as f64 / extent as f64;
            let at = |i: i64| round((i as f64 + 0.5) / scale).clamp(0.0, extent as f64 - 1.0);
            assert_eq!(got, (0..count).map(at).collect::<Vec<_>>(), "{mode} {extent} to {count}");
        }
    }
}

#[test]
fn powers_are_as_exact_as_their_exponents() {
    let x = Tensor::from_f64(DType::Bf16, &[4], [1000.0, 3.0, 0.5, -6.5]);
    for exponents in [[2.2, 0.3, 1.1, 2.0], [2.0, 0.5, -1.0, 1e-45]] {
        let y = stored("y", &Tensor::from_f64(DType::F32, &[4], exponents));
        let exponents = Tensor::from_f64(DType::F32, &[4], exponents).to_f64();
        let got = one(node("Pow", &["x", "y"], &["z"], vec![]), &x, vec![y], 17);
        let exact = x.to_f64().into_iter().zip(exponents).map(|(x, y)| x.powf(y));
        let want = Tensor::from_f64(DType::Bf16, &[4], exact);
        assert_eq!(got.dtype(), DType::Bf16);
        for (got, want) in got.to_f64().into_iter().zip(want.to_f64()) {
            assert!(got == want || got.is_nan() && want.is_nan(), "{got}, not {want}");
        }
    }
}
