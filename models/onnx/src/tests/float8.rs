//! 8-bit floats: tensors of files, casts with and without saturation, and quantization with a scale and a zero point.

use eutectic_ir::Tensor;

use super::{
    forms::{code, one, open, results, stored, typed},
    *,
};

/// Returns the 8-bit float types.
fn float_bytes() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|dtype| dtype.is_float() && dtype.bits() == 8)
}

/// Returns all numbers of an 8-bit type.
fn all(dtype: DType) -> Tensor {
    Tensor::new(dtype, &[256], (0..=255).collect::<Vec<u8>>()).unwrap()
}

#[test]
fn floats_of_8_bits_are_written_with_and_without_saturation() {
    let given = [0.0, -0.0, 1.0625, -3.3, 0.001, 1e-9, 448.0, 464.0, 464.1, 61e3, 62e3, -1e6, f64::INFINITY, f64::NAN];
    for dtype in float_bytes() {
        let numbers = all(dtype).to_f64();
        let most = numbers.iter().copied().filter(|x| x.is_finite()).fold(0.0, f64::max);
        for (attrs, saturates) in [(vec![], true), (vec![int("saturate", 1)], true), (vec![int("saturate", 0)], false)]
        {
            for from in [DType::F32, DType::F64] {
                let x = Tensor::from_f64(from, &[given.len()], given);
                let op = node("Cast", &["x"], &["y"], [vec![int("to", code(dtype).into())], attrs.clone()].concat());
                let y = one(op, &x, Vec::new(), 19);
                assert_eq!(y.dtype(), dtype);
                for (x, y) in x.to_f64().into_iter().zip(y.to_f64()) {
                    if x.is_nan() || saturates && x.abs() >= most {
                        let want = if x.is_nan() { x } else { most.copysign(x) };
                        assert!(y == want || y.is_nan() && want.is_nan(), "{x} as {dtype} is {y}");
                    } else if y.is_finite() {
                        let nearest = numbers.iter().filter(|n| n.is_finite()).map(|n| (n - x).abs());
                        assert_eq!((y - x).abs(), nearest.fold(f64::INFINITY, f64::min), "{x} as {dtype} is {y}");
                        assert_eq!(y.is_sign_negative(), x.is_sign_negative());
                    } else {
                        assert!(x.abs() > most, "{x} as {dtype} is {y}");
                    }
                }
            }
        }
    }
}

#[test]
fn floats_of_8_bits_are_read_from_files() {
    for dtype in float_bytes() {
        let bits = all(dtype);
        let raw = stored("w", &bits);
        let listed = TensorProto { raw_data: None, int32_data: (0..256).collect(), ..raw.clone() };
        for w in [raw, listed] {
            let op = node("Add", &["x", "f"], &["y"], Vec::new());
            let cast = node("Cast", &["w"], &["f"], vec![int("to", 1)]);
            let input = vec![typed("x", DType::F32, &[256])];
            let graph = GraphProto {
                input,
                output: vec![open("y")],
                initializer: vec![w],
                node: vec![cast, op],
                ..Default::default()
            };
            let imported = import(&model(graph)).unwrap_or_else(|e| panic!("{e}"));
            let y = results(&imported, &[("x", Tensor::from_f64(DType::F32, &[256], [0.0; 256]))]).remove(0);
            for (got, want) in y.to_f64().into_iter().zip(bits.to_f64()) {
                assert!(got == want || got.is_nan() && want.is_nan(), "{dtype}: {got} for {want}");
            }
        }
    }
}

#[test]
fn floats_of_8_bits_are_quantised_by_a_scale() {
    for dtype in float_bytes() {
        let x = Tensor::from_f64(DType::F32, &[6], [0.0, 0.5, -3.0, 7.25, 1e9, -1e9]);
        let scale = stored("scale", &Tensor::from_f64(DType::F32, &[], [0.25]));
        let zero = stored("zero", &Tensor::from_f64(dtype, &[], [0.0]));
        let y = one(
            node("QuantizeLinear", &["x", "scale", "zero"], &["y"], Vec::new()),
            &x,
            vec![scale.clone(), zero.clone()],
            19,
        );
        let most = dtype.normal_range().1;
        // 7.25 / 0.25 is 29. Its neighbours are 28 and 30 with three fraction bits, and 28 and 32 with two. Ties go to
        // even.
        assert_eq!(y.to_f64(), [0.0, 2.0, -12.0, 28.0, most, -most], "{dtype}");
        let back =
            one(node("DequantizeLinear", &["x", "scale", "zero"], &["y"], Vec::new()), &y, vec![scale, zero], 19);
        assert_eq!(back.to_f64(), [0.0, 0.5, -3.0, 7.0, most / 4.0, -most / 4.0], "{dtype}");
    }
}

/// Returns the code nearest to a number, by exact distances. Ties go to even. A number beyond the greatest one becomes
/// the greatest one. `None` for NaN.
fn nearest(x: f64, dtype: DType) -> Option<f64> {
    let numbers = all(dtype).to_f64();
    let finite = numbers.iter().enumerate().filter(|(_, n)| n.is_finite());
    let near = finite.min_by(|(a, x_a), (b, x_b)| {
        // Distances to much larger numbers would all round to the same.
        let distance = |n: &f64| (n - x.clamp(-1e6, 1e6)).abs();
        distance(x_a).total_cmp(&distance(x_b)).then((a & 1).cmp(&(b & 1)))
    });
    near.map(|(_, &n)| n).filter(|_| !x.is_nan())
}

#[test]
fn integers_are_rounded_once() {
    for dtype in float_bytes() {
        // All integers near those that 8 bits distinguish, and integers that `f32` cannot represent.
        let small = (-70_000..=70_000_i64).step_by(7).chain(-600..=600);
        let halves =
            (8..17).flat_map(|n| [17, 19, 25, 27, 29, 31].map(|k| (k << n) >> 4)).flat_map(|n| [n - 1, n, n + 1]);
        let large = [24, 25, 31, 40, 53, 62].into_iter().flat_map(|n| [(1_i64 << n) - 1, 1 << n, (1 << n) + 1]);
        let given: Vec<i64> = small.chain(halves).chain(large).flat_map(|n| [n, -n]).chain([i64::MIN]).collect();
        for from in DType::ALL.into_iter().filter(|from| from.is_int()) {
            let (least, most) = from.integers();
            let given: Vec<i64> = given.iter().copied().filter(|n| (least..=most).contains(n)).collect();
            let x = Tensor::from_i64(from, &[given.len()], given.iter().copied());
            for saturate in [1, 0] {
                let attrs = vec![int("to", code(dtype).into()), int("saturate", saturate)];
                let y = one(node("Cast", &["x"], &["y"], attrs), &x, Vec::new(), 19).to_f64();
                for (&n, y) in given.iter().zip(y) {
                    let exact = n as f64;
                    let want = nearest(exact, dtype).unwrap();
                    let beyond = exact.abs() > dtype.normal_range().1;
                    let right = if beyond && saturate == 0 { y == want || !y.is_finite() } else { y == want };
                    assert!(right, "{n} of {from} as {dtype}: {y}, not {want}");
                }
            }
        }
    }
}

#[test]
fn a_zero_point_is_added_before_floats_of_8_bits_are_rounded() {
    for dtype in float_bytes() {
        let x = Tensor::from_f64(DType::F32, &[2, 4], [0.0, -0.0, 0.5, -3.0, 7.25, 1e9, -1e9, f64::NAN]);
        for zero in [vec![0.0], vec![1.5], vec![-2.0], vec![0.0, 1.5, -2.0, 0.25]] {
            let dims = if zero.len() == 1 { vec![] } else { vec![zero.len()] };
            let scale = stored("scale", &Tensor::from_f64(DType::F32, &dims, vec![0.25; zero.len()]));
            let point = stored("zero", &Tensor::from_f64(dtype, &dims, zero.clone()));
            let op = node("QuantizeLinear", &["x", "scale", "zero"], &["y"], Vec::new());
            let y = one(op, &x, vec![scale, point], 19).to_f64();
            for (i, (x, y)) in x.to_f64().into_iter().zip(y).enumerate() {
                let zero = zero[i % zero.len()];
                let want = nearest(x / 0.25 + zero, dtype);
                let sign = |x: f64| x.is_sign_negative();
                let same = want.map_or(y.is_nan(), |want| y == want && (zero != 0.0 || sign(y) == sign(x)));
                assert!(same, "{x} with zero point {zero} as {dtype}: {y}, not {want:?}");
            }
        }
    }
}
