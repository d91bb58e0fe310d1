//! Resizing of long axes by interpolation, compared with its definition.

use eutectic_ir::{Tensor, interp::interpret};

use super::*;

/// Resizes `x`, with the given extents, along its last axis.
fn resized(x: &[f64], dims: [usize; 2], to: usize, mode: &str, coordinates: &str) -> Vec<f64> {
    let attributes = vec![word("mode", mode), word("coordinate_transformation_mode", coordinates)];
    let graph = GraphProto {
        input: vec![port("x", &dims.map(|n| n as i64))],
        output: vec![port("y", &[])],
        initializer: vec![integers("sizes", &[dims[0] as i64, to as i64])],
        node: vec![node("Resize", &["x", "", "", "sizes"], &["y"], attributes)],
        ..Default::default()
    };
    let imported = import(&model(graph)).unwrap();
    assert!(!ops(&imported).contains(&"matmul"), "few elements of {} count", dims[1]);
    let given = Tensor::from_f64(DType::F32, &dims, x.iter().copied());
    let values = interpret::<f64>(&imported.graph, &|name| (name == "x").then(|| given.clone())).unwrap();
    values.into_iter().flat_map(|value| reals(value.data)).collect()
}

/// Returns the weight of Keys' cubic convolution with the coefficient −3/4.
fn cubic(x: f64) -> f64 {
    let a = -0.75;
    match x.abs() {
        x if x <= 1.0 => (a + 2.0) * x.powi(3) - (a + 3.0) * x.powi(2) + 1.0,
        x if x < 2.0 => a * (x.powi(3) - 5.0 * x.powi(2) + 8.0 * x - 4.0),
        _ => 0.0,
    }
}

#[test]
fn elements_of_long_axes_are_those_of_the_definition() {
    let triangle = |x: f64| (1.0 - x.abs()).max(0.0);
    for (mode, kernel) in [("linear", triangle as fn(f64) -> f64), ("cubic", cubic)] {
        for (rows, from, to) in [(2, 600, 77), (1, 601, 61), (3, 530, 700), (2, 513, 1)] {
            let x: Vec<f64> = (0..rows * from).map(|i| f64::from((i * 7919 % 1009) as u16) / 1009.0).collect();
            let got = resized(&x, [rows, from], to, mode, "half_pixel");
            for (n, &got) in got.iter().enumerate() {
                let (row, i) = (n / to, n % to);
                let at = (i as f64 + 0.5) * from as f64 / to as f64 - 0.5;
                let tap = |k: i64| {
                    let element = (at.floor() as i64 + k).clamp(0, from as i64 - 1) as usize;
                    x[row * from + element] * kernel(at - at.floor() - k as f64)
                };
                let want: f64 = (-1..=2).map(tap).sum();
                assert!((got - want).abs() < 1e-6, "{mode} {from} to {to}, element {n}: {got}, not {want}");
            }
        }
    }
}

#[test]
fn what_is_infinite_stays_by_itself() {
    let mut x = vec![1.0; 301];
    x[50] = f64::INFINITY;
    let got = resized(&x, [1, 301], 61, "linear", "align_corners");
    let want: Vec<f64> = (0..61).map(|i| if i == 10 { f64::INFINITY } else { 1.0 }).collect();
    assert_eq!(got, want);
}
