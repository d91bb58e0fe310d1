//! 16-bit integers: tensors of files, wrapping arithmetic, and quantization at their limits.

use eutectic_ir::Tensor;

use super::{
    forms::{one, open, results, stored, typed},
    *,
};

const TYPES: [DType; 2] = [DType::I16, DType::U16];

/// Returns the least, the greatest and some other integers of a type.
fn values(dtype: DType) -> Vec<i64> {
    let (least, most) = dtype.integers();
    vec![least, least + 1, 0, 1, 127, 128, 255, 256, 257, 32_767, most - 1, most]
}

#[test]
fn integers_of_16_bits_are_read_from_files() {
    for dtype in TYPES {
        let values = values(dtype);
        let tensor = Tensor::from_i64(dtype, &[values.len()], values.iter().copied());
        let raw = stored("w", &tensor);
        let listed = TensorProto {
            raw_data: None,
            int32_data: values.iter().map(|&n| i32::try_from(n).unwrap()).collect(),
            ..raw.clone()
        };
        for w in [raw, listed] {
            let graph = GraphProto {
                input: vec![typed("x", dtype, &[values.len() as i64])],
                output: vec![open("y")],
                initializer: vec![w],
                node: vec![node("Sub", &["w", "x"], &["y"], Vec::new())],
                ..Default::default()
            };
            let imported = import(&model(graph)).unwrap_or_else(|e| panic!("{e}"));
            for x in [0, 1, 300] {
                let given = Tensor::from_i64(dtype, &[values.len()], vec![x; values.len()]);
                let y = results(&imported, &[("x", given)]).remove(0);
                let wrapped = |n: i64| if dtype == DType::I16 { n as i16 as i64 } else { n as u16 as i64 };
                let want: Vec<i64> = values.iter().map(|n| wrapped(n - x)).collect();
                assert_eq!((y.dtype(), y.to_i64()), (dtype, want), "{dtype} less {x}");
            }
        }
    }
}

#[test]
fn integers_of_16_bits_are_quantised_within_their_limits() {
    for dtype in TYPES {
        let (least, most) = dtype.integers();
        let given = [0.0, -0.25, 0.75, 1.25, 100.5, -100.5, 16_383.75, 8_192.0, -8_192.25, 1e9, -1e9, 0.125];
        let x = Tensor::from_f64(DType::F32, &[given.len()], given);
        for zero in [0, 1, 32_767, least, most] {
            let scale = stored("scale", &Tensor::from_f64(DType::F32, &[], [0.25]));
            let point = stored("zero", &Tensor::from_i64(dtype, &[], [zero]));
            let op = node("QuantizeLinear", &["x", "scale", "zero"], &["y"], Vec::new());
            let y = one(op, &x, vec![scale.clone(), point.clone()], 21);
            let number = |x: f64| ((x / 0.25).round_ties_even() as i64).saturating_add(zero).clamp(least, most);
            let want: Vec<i64> = given.iter().map(|&x| number(x)).collect();
            assert_eq!((y.dtype(), y.to_i64()), (dtype, want.clone()), "zero point {zero}");
            let op = node("DequantizeLinear", &["x", "scale", "zero"], &["y"], Vec::new());
            let back = one(op, &y, vec![scale, point], 21).to_f64();
            let want: Vec<f64> = want.iter().map(|n| (n - zero) as f64 * 0.25).collect();
            assert_eq!(back, want, "zero point {zero} of {dtype}");
        }
    }
}
