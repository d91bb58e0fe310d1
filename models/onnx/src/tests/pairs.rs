//! Scans and top-k, compared with loops: short rows, several blocks, and blocks with a remainder.

use eutectic_ir::{Tensor, interp::interpret};

use super::*;

/// Evaluates a node on `x` with the given extents, and on a known number.
fn outputs(node: NodeProto, dims: &[i64], x: &[f64], number: i64) -> (Vec<Vec<f64>>, usize) {
    let open = |name: &String| ValueInfoProto { name: Some(name.clone()), ..Default::default() };
    let output = node.output.iter().map(open).collect();
    let initializer = vec![integers("n", &[number])];
    let graph =
        GraphProto { input: vec![port("x", dims)], output, initializer, node: vec![node], ..Default::default() };
    let imported = import(&model(graph)).unwrap();
    let largest = imported.graph.nodes().map(|(_, n)| n.ty.count()).max().unwrap();
    let dims: Vec<usize> = dims.iter().map(|n| *n as usize).collect();
    let given = Tensor::from_f64(DType::F32, &dims, x.iter().copied());
    let values = interpret::<f64>(&imported.graph, &|name| (name == "x").then(|| given.clone()));
    (values.unwrap().into_iter().map(|value| reals(value.data)).collect(), largest)
}

/// Returns small integers: many are equal, and sums are exact.
fn numbers(count: usize) -> Vec<f64> {
    let mut at = 7_u64;
    let mut next = || {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (at >> 33) % 41
    };
    (0..count).map(|_| next() as f64 - 20.0).collect()
}

#[test]
fn running_totals_are_those_of_a_loop() {
    for (extent, inner) in [(1, 2), (5, 3), (16, 1), (17, 2), (256, 1), (257, 2), (1000, 1), (17_000, 1)] {
        let x = numbers(extent * inner);
        for (reverse, exclusive) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let attributes = vec![int("reverse", reverse), int("exclusive", exclusive)];
            let sum = node("CumSum", &["x", "n"], &["y"], attributes);
            let (got, largest) = outputs(sum, &[extent as i64, inner as i64], &x, 0);
            let mut want = vec![0.0; x.len()];
            for column in 0..inner {
                let mut total = 0.0;
                for step in 0..extent {
                    let at = if reverse == 1 { extent - 1 - step } else { step } * inner + column;
                    want[at] = if exclusive == 1 { total } else { total + x[at] };
                    total += x[at];
                }
            }
            assert_eq!(got[0], want, "{extent}×{inner}, reverse {reverse}, exclusive {exclusive}");
            assert!(largest <= (extent + 15) * inner, "{extent}: {largest} elements");
        }
    }
}

#[test]
fn the_largest_are_those_of_a_sort() {
    for (rows, extent, k) in
        [(2, 7, 7), (1, 300, 3), (2, 256, 32), (1, 8191, 5), (1, 8192, 3), (2, 9001, 40), (1, 600, 150), (1, 9, 0)]
    {
        let x = numbers(rows * extent);
        for largest in [0, 1] {
            let top = node("TopK", &["x", "n"], &["v", "i"], vec![int("axis", 1), int("largest", largest)]);
            let (got, most) = outputs(top, &[rows as i64, extent as i64], &x, k as i64);
            let (mut values, mut places) = (Vec::new(), Vec::new());
            for row in x.chunks(extent) {
                let mut order: Vec<usize> = (0..extent).collect();
                order.sort_by(
                    |a, b| if largest == 1 { row[*b].total_cmp(&row[*a]) } else { row[*a].total_cmp(&row[*b]) },
                );
                values.extend(order[..k].iter().map(|at| row[*at]));
                places.extend(order[..k].iter().map(|at| *at as f64));
            }
            assert_eq!(got, [values, places], "{k} of {extent}, largest {largest}");
            assert!(most <= rows * extent, "{k} of {extent}: {most} elements");
        }
    }
}

#[test]
fn the_smallest_of_columns_are_found() {
    let top = node("TopK", &["x", "n"], &["v", "i"], vec![int("axis", 0), int("largest", 0)]);
    let (got, _) = outputs(top, &[4, 2], &[3.0, 5.0, 1.0, 8.0, 2.0, 5.0, 1.0, 7.0], 3);
    assert_eq!(got, [[1.0, 5.0, 1.0, 5.0, 2.0, 7.0], [1.0, 0.0, 3.0, 2.0, 2.0, 3.0]]);
}
