//! Tests anchors whose groups have any number of axes, and whose operands are read through arbitrary index maps. The
//! reference is the evaluation point by point of the kernel before normalization.

use crate::{
    device::Device,
    kernels::build::{Build, body, constant, map, map_with, push, row_major},
    suite::{Check, checks},
};
use eutectic_backend::{
    AnchorKernel, Attention, AttentionAxes, Body, ContractionAxes, EmptyRow, Instr, Load, ScoreForm, ValueId,
};
use eutectic_ir::{
    Attr, DType,
    index::{Index, flatten},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    contractions,
    attentions,
    windows_of_a_padded_image_and_a_bias,
    grouped_heads_are_an_axis_on_which_the_keys_do_not_depend,
    few_columns_are_few_rows,
    few_columns_of_scaled_matrices_are_few_rows,
];

/// Returns the extents of a group of up to two axes.
fn group(build: &mut Build, of: &[usize]) -> Vec<usize> {
    (0..build.random.below(3)).map(|_| build.random.pick(of)).collect()
}

/// Returns an operand that is contiguous, shared by neighbouring points of an axis (as grouped heads share keys), read
/// through any map, or computed.
fn operand(build: &mut Build, domain: &[usize]) -> Body {
    let mut b = body(domain);
    let x = match build.random.below(5) {
        0 => build.dense(&mut b, DType::F32),
        1 | 2 if domain.iter().any(|&n| n > 1) => {
            let axis = (0..domain.len()).find(|&d| domain[d] > 1).expect("some extent exceeds 1");
            let share =
                (2..=domain[axis]).find(|by| domain[axis].is_multiple_of(*by)).expect("the extent divides itself");
            let mut dims = domain.to_vec();
            dims[axis] /= share;
            let mut at: Vec<_> = (0..domain.len()).map(Index::coord).collect();
            at[axis] = at[axis].div(share as i64, domain);
            let slot = build.input(DType::F32, dims.iter().product());
            build.load(&mut b, slot, flatten(&at, &dims))
        }
        3 => {
            let (x, y) = (build.any(&mut b, DType::F32), build.any(&mut b, DType::F32));
            map(&mut b, "sub", &[x, y], DType::F32)
        }
        _ => build.any(&mut b, DType::F32),
    };
    b.results = vec![x];
    b
}

/// Returns a body that reads the anchor's result, and stores all of it or a part of it contiguously.
fn own(build: &mut Build, domain: &[usize]) -> Body {
    let mut b = body(domain);
    let mut y = push(&mut b, Instr::Anchor { dtype: DType::F32 });
    if build.random.below(3) > 0 {
        let x = build.any(&mut b, DType::F32);
        y = map(&mut b, "add", &[y, x], DType::F32);
    }
    match build.random.below(3) {
        0 => build.store_part(domain, DType::F32, y),
        _ => build.store(domain, DType::F32, y),
    }
    b
}

fn contractions(device: &Device) {
    for seed in 0..150 {
        let mut build = Build::new(seed);
        let [b, m, n, k] = [(); 4].map(|()| group(&mut build, &[1, 2, 3, 4, 6]));
        let axes = ContractionAxes { batch: b.len(), rows: m.len(), columns: n.len(), depth: k.len() };
        let lhs = operand(&mut build, &[&*b, &m, &k].concat());
        let rhs = operand(&mut build, &[&*b, &k, &n].concat());
        let own = own(&mut build, &[&*b, &m, &n].concat());
        let (kernel, inputs) = build.kernel(AnchorKernel::contraction(lhs, rhs, axes), own);
        device.check(&kernel, &inputs, 200.0);
    }
}

/// Adds a mask: 0 for keys that a query sees, and −∞ for others. It is a function of the positions of query and key.
fn mask(build: &mut Build, b: &mut Body, axes: &AttentionAxes) -> ValueId {
    let coords: Vec<_> = (0..b.domain.len()).map(Index::coord).collect();
    let number = |from: usize, count: usize| flatten(&coords[from..from + count], &b.domain[from..from + count]);
    let queries = number(axes.batch, axes.queries);
    let keys = number(axes.batch + axes.queries, axes.keys);
    let int = DType::I32;
    let number = |b: &mut Body, index: Index| push(b, Instr::Coordinate { index, dtype: int });
    let shift = build.random.below(9) as i64 - 4;
    let sees = match build.random.below(3) {
        0 => {
            let (q, k) = (number(b, queries.plus(&Index::constant(shift))), number(b, keys));
            map(b, "le", &[k, q], DType::Bool)
        }
        1 => {
            let (q, k) = (number(b, queries), number(b, keys));
            let far = constant(b, 3.0 + shift as f64, int);
            let apart = map(b, "sub", &[q, k], int);
            let (near, past) = (map(b, "lt", &[apart, far], DType::Bool), map(b, "ge", &[q, k], DType::Bool));
            map(b, "and", &[near, past], DType::Bool)
        }
        _ => {
            let size = constant(b, 5.0, int);
            let (q, k) = (number(b, queries), number(b, keys));
            let (q, k) = (map(b, "div", &[q, size], int), map(b, "div", &[k, size], int));
            map(b, "eq", &[q, k], DType::Bool)
        }
    };
    let (zero, hidden) = (constant(b, 0.0, DType::F32), constant(b, f64::NEG_INFINITY, DType::F32));
    map(b, "where", &[sees, zero, hidden], DType::F32)
}

fn attentions(device: &Device) {
    for seed in 0..150 {
        let mut build = Build::new(1000 + seed);
        let batch = group(&mut build, &[1, 2, 4]);
        let many: &[usize] = if seed % 10 == 0 { &[7, 30, 61] } else { &[1, 2, 3, 5] };
        let (s, t) = (group(&mut build, many), group(&mut build, many));
        let (d, e) = (group(&mut build, &[1, 2, 4]), group(&mut build, &[1, 2, 3]));
        let axes =
            AttentionAxes { batch: batch.len(), queries: s.len(), keys: t.len(), depth: d.len(), columns: e.len() };
        let query = operand(&mut build, &[&*batch, &s, &d].concat());
        let key = operand(&mut build, &[&*batch, &t, &d].concat());
        let value = operand(&mut build, &[&*batch, &t, &e].concat());
        let kind = build.random.below(4);
        let bias = (kind > 0).then(|| {
            let mut b = body(&[&*batch, &s, &t].concat());
            let mut x = match kind {
                1 => mask(&mut build, &mut b, &axes),
                _ => build.any(&mut b, DType::F32),
            };
            if kind == 3 {
                let hidden = mask(&mut build, &mut b, &axes);
                x = map(&mut b, "add", &[x, hidden], DType::F32);
            }
            b.results = vec![x];
            b
        });
        let domain = [&*batch, &s, &e].concat();
        let own = match build.random.below(3) {
            // The result is stored without an epilogue, in the order in which heads are merged.
            0 => {
                let mut own = body(&domain);
                let y = push(&mut own, Instr::Anchor { dtype: DType::F32 });
                let mut order: Vec<_> = (0..domain.len()).collect();
                order[..batch.len() + s.len()].rotate_left(batch.len());
                let (dims, at): (Vec<_>, Vec<_>) =
                    order.into_iter().map(|axis| (domain[axis], Index::coord(axis))).unzip();
                build.store_at(domain.iter().product(), flatten(&at, &dims), DType::F32, y);
                own
            }
            _ => own(&mut build, &domain),
        };
        let empty = build.random.pick(&[EmptyRow::Zeros, EmptyRow::Nan]);
        let (scale, softcap) = (0.4, build.random.pick(&[0.0, 0.0, 3.0]));
        let anchor = AnchorKernel::attention([query, key, value], bias, axes, ScoreForm { scale, softcap, empty });
        let (kernel, inputs) = build.kernel(anchor, own);
        device.check(&kernel, &inputs, 400.0);
    }
}

/// Windows over an image whose extents need not be multiples of the window's.
struct Windows {
    count: [usize; 2],
    each: [usize; 2],
    image: [usize; 2],
    heads: usize,
}

impl Windows {
    /// Returns a body that stores results of attention at their points of the image, and drops points outside of it.
    fn cropped(&self, build: &mut Build, domain: &[usize]) -> Body {
        let mut b = body(domain);
        let value = push(&mut b, Instr::Anchor { dtype: DType::F32 });
        let [y, x] = [0, 1].map(|d| Index::coord(d).times(self.each[d] as i64).plus(&Index::coord(3 + d)));
        let [lines, columns] = self.image;
        let dims = [lines, columns, self.heads, domain[5]];
        let at = flatten(&[y.clone(), x.clone(), Index::coord(2), Index::coord(5)], &dims);
        build.store_at(dims.iter().product(), at, DType::F32, value);
        if let Some(store) = build.stores.last_mut() {
            store.guards = vec![(y, 0..lines as i64), (x, 0..columns as i64)];
        }
        b
    }

    /// Returns an operand over windows, heads, lines, columns and `depth`, with its axes in `order`. It is the image,
    /// with 0 outside, plus a vector for each head. Its type in memory is `dtype`.
    fn operand(&self, build: &mut Build, order: [usize; 6], depth: usize, dtype: DType) -> Body {
        let sizes = [self.count[0], self.count[1], self.heads, self.each[0], self.each[1], depth];
        let mut b = body(&order.map(|axis| sizes[axis]));
        let coord =
            |axis: usize| Index::coord(order.iter().position(|&a| a == axis).expect("the order has every axis"));
        let [y, x] = [0, 1].map(|d| coord(d).times(self.each[d] as i64).plus(&coord(3 + d)));
        let [lines, columns] = self.image;
        let slot = build.input(dtype, lines * columns * self.heads * depth);
        let at = flatten(&[y.clone(), x.clone(), coord(2), coord(5)], &[lines, columns, self.heads, depth]);
        let guards = [(y, 0..lines as i64), (x, 0..columns as i64)];
        let load = Load { slot, at, guards: guards.to_vec(), dtype };
        let mut value = push(&mut b, Instr::Load(load));
        let of_heads = build.input(dtype, self.heads * depth);
        let own = build.load(&mut b, of_heads, flatten(&[coord(2), coord(5)], &[self.heads, depth]));
        for guard in guards {
            let pieces = vec![(vec![guard], value)];
            value = push(&mut b, Instr::Select { pieces, fill: 0.0.into(), dtype });
        }
        value = map(&mut b, "add", &[value, own], dtype);
        if dtype != DType::F32 {
            value = map_with(&mut b, "cast", &[Attr::DType(DType::F32)], &[value], DType::F32);
        }
        b.results = vec![value];
        b
    }
}

/// Tests operands that are computed when they are read: queries, keys and values of windows, and rows of a product.
fn windows_of_a_padded_image_and_a_bias(device: &Device) {
    let windows = |count, each, image, heads| Windows { count, each, image, heads };
    let cases = [
        (windows([5, 5], [14, 14], [64, 64], 2), 17, 33),
        (windows([2, 2], [5, 3], [7, 4], 3), 7, 5),
        (windows([1, 3], [1, 1], [1, 2], 2), 5, 4),
        (windows([2, 1], [4, 30], [7, 30], 1), 16, 8),
        (windows([1, 2], [40, 30], [37, 45], 1), 4, 4),
        (windows([1, 1], [37, 33], [30, 33], 1), 3, 2),
        (windows([3, 2], [1, 7], [3, 9], 1), 1, 1),
    ];
    for (n, (windows, d, e)) in cases.iter().enumerate() {
        for (dtype, causal, cropped) in [
            (DType::F32, false, false),
            (DType::F32, false, true),
            (DType::F32, true, false),
            (DType::F32, true, true),
            (DType::F16, false, false),
            (DType::F16, false, true),
        ] {
            let mut build = Build::new(7 * n as u64);
            let order = [0, 1, 2, 3, 4, 5];
            let [query, key, value] = [d, d, e].map(|&depth| windows.operand(&mut build, order, depth, dtype));
            let domain = value.domain.clone();
            let axes = AttentionAxes { batch: 3, queries: 2, keys: 2, depth: 1, columns: 1 };
            let bias = causal.then(|| {
                let mut b = body(&[&domain[..5], &domain[3..5]].concat());
                b.results = vec![mask(&mut build, &mut b, &axes)];
                b
            });
            let own = if cropped { windows.cropped(&mut build, &domain) } else { own(&mut build, &domain) };
            let (scale, softcap, empty) = (0.4, 0.0, EmptyRow::Zeros);
            let anchor = AnchorKernel::attention([query, key, value], bias, axes, ScoreForm { scale, softcap, empty });
            let (kernel, inputs) = build.kernel(anchor, own);
            device.check(&kernel, &inputs, 400.0);
        }
        // The right operand has a matrix for each line of a window. The rows of a product are windows, heads and
        // columns.
        let mut build = Build::new(7 * n as u64 + 1);
        let lhs = windows.operand(&mut build, [3, 0, 1, 2, 4, 5], *d, DType::F32);
        let (batch, rows) = (lhs.domain[0], lhs.domain[1..5].to_vec());
        let mut rhs = body(&[batch, *d, *e]);
        rhs.results = vec![build.dense(&mut rhs, DType::F32)];
        let own = own(&mut build, &[&[batch], &*rows, &[*e]].concat());
        let axes = ContractionAxes { batch: 1, rows: 4, columns: 1, depth: 1 };
        let (kernel, inputs) = build.kernel(AnchorKernel::contraction(lhs, rhs, axes), own);
        device.check(&kernel, &inputs, 200.0);
    }
}

fn grouped_heads_are_an_axis_on_which_the_keys_do_not_depend(_: &Device) {
    let mut build = Build::new(1);
    let mut kernel = {
        let dense = |build: &mut Build, domain: &[usize]| {
            let mut b = body(domain);
            b.results = vec![build.dense(&mut b, DType::F32)];
            b
        };
        let query = dense(&mut build, &[1, 32, 9, 8]);
        let shared = |build: &mut Build| {
            let (domain, dims) = ([1, 32, 7, 8], [1, 8, 7, 8]);
            let mut b = body(&domain);
            let slot = build.input(DType::F32, dims.iter().product());
            let mut at: Vec<_> = (0..4).map(Index::coord).collect();
            at[1] = at[1].div(4, &domain);
            b.results = vec![build.load(&mut b, slot, flatten(&at, &dims))];
            b
        };
        let (key, value) = (shared(&mut build), shared(&mut build));
        let mut own = body(&[1, 32, 9, 8]);
        let y = push(&mut own, Instr::Anchor { dtype: DType::F32 });
        build.store(&[1, 32, 9, 8], DType::F32, y);
        let (axes, bias, empty) = (AttentionAxes::matrices(2), None, EmptyRow::Nan);
        let anchor =
            AnchorKernel::attention([query, key, value], bias, axes, ScoreForm { scale: 1.0, softcap: 0.0, empty });
        build.kernel(anchor, own).0
    };
    kernel.normalise();
    let Some(Attention { key, axes, .. }) = kernel.attention() else { unreachable!("it is attention") };
    assert_eq!(axes, AttentionAxes { batch: 2, queries: 1, keys: 1, depth: 1, columns: 1 });
    assert_eq!((&key.domain, &kernel.body.domain), (&vec![8, 4, 7, 8], &vec![8, 4, 9, 8]));
    let Instr::Load(load) = &key.instrs[0] else { unreachable!("it is a load") };
    assert_eq!(load.at.affine(4), Some(vec![56, 0, 8, 1]));
    assert_eq!(kernel.stores[0].at, row_major(&[8, 4, 9, 8]));
    let again = kernel.clone();
    kernel.normalise();
    assert_eq!(kernel, again, "normalization is idempotent");
}

/// Tests weights with a scale as left operands. Their rows become the columns of the transposed product.
fn few_columns_of_scaled_matrices_are_few_rows(device: &Device) {
    for (scale, rows, columns, becomes) in
        [(0, 20, 3, [3, 20]), (1, 20, 3, [3, 20]), (2, 20, 3, [3, 20]), (1, 8, 3, [8, 3])]
    {
        let mut build = Build::new(1);
        let mut lhs = body(&[rows, 7]);
        let x = build.dense(&mut lhs, DType::I8);
        let x = map_with(&mut lhs, "cast", &[Attr::DType(DType::F32)], &[x], DType::F32);
        // One scale for each row, one for each term, or one for all.
        let (count, at) = [(rows, Index::coord(0)), (7, Index::coord(1)), (1, Index::default())][scale].clone();
        let slot = build.input(DType::F32, count);
        let s = build.load(&mut lhs, slot, at);
        lhs.results = vec![map(&mut lhs, "mul", &[x, s], DType::F32)];
        let mut rhs = body(&[7, columns]);
        rhs.results = vec![build.dense(&mut rhs, DType::F32)];
        let mut own = body(&[rows, columns]);
        let y = push(&mut own, Instr::Anchor { dtype: DType::F32 });
        build.store(&[rows, columns], DType::F32, y);
        let (mut kernel, inputs) = build.kernel(AnchorKernel::product(lhs, rhs), own);
        device.check(&kernel, &inputs, 400.0);
        kernel.normalise();
        assert_eq!(kernel.body.domain, becomes, "scale {scale}");
        let again = kernel.clone();
        kernel.normalise();
        assert_eq!(kernel, again, "normalization is idempotent");
    }
}

fn few_columns_are_few_rows(device: &Device) {
    for ([rows, columns], becomes) in [([20, 3], [3, 20]), ([9, 8], [8, 9]), ([8, 8], [8, 8]), ([20, 9], [20, 9])] {
        let mut build = Build::new(1);
        let mut operand = |domain: [usize; 3]| {
            let mut b = body(&domain);
            b.results = vec![build.dense(&mut b, DType::F32)];
            b
        };
        let (lhs, rhs) = (operand([2, rows, 7]), operand([2, 7, columns]));
        let mut own = body(&[2, rows, columns]);
        let y = push(&mut own, Instr::Anchor { dtype: DType::F32 });
        build.store(&[2, rows, columns], DType::F32, y);
        let axes = ContractionAxes { batch: 1, rows: 1, columns: 1, depth: 1 };
        let (mut kernel, inputs) = build.kernel(AnchorKernel::contraction(lhs, rhs, axes), own);
        device.check(&kernel, &inputs, 200.0);
        kernel.normalise();
        assert_eq!(kernel.body.domain, [2, becomes[0], becomes[1]]);
        let again = kernel.clone();
        kernel.normalise();
        assert_eq!(kernel, again, "normalization is idempotent");
    }
}
