//! Tests loads whose index maps are affine only within short runs of points. Maps contain loaded indices or divided
//! coordinates, along the innermost axis and others. Some loads have guards on coordinates or divided coordinates. The
//! reference evaluates each point separately.

use crate::{
    device::Device,
    kernels::build::{Build, body, map, push},
    suite::{Check, checks},
};
use eutectic_backend::{AnchorKernel, Body, ContractionAxes, Instr, Load, ValueId};
use eutectic_ir::{
    DType, Tensor,
    index::{Atom, Index, flatten},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    rows_and_columns_that_indices_choose,
    elements_with_an_index_each,
    coordinates_that_are_divided,
    divided_coordinates_under_guards,
    matrices_that_indices_choose,
];

const SHAPES: &[[usize; 3]] =
    &[[1, 1, 1], [2, 3, 1], [1, 1, 9], [3, 5, 7], [2, 4, 33], [7, 1, 64], [2, 9, 300], [1, 2, 1030], [40, 6, 3]];

const TYPES: [DType; 8] =
    [DType::F32, DType::F64, DType::F16, DType::U8, DType::I64, DType::F8E5M2, DType::F8E4M3, DType::I16];

/// The element types of loaded indices.
const PLACES: [DType; 5] = [DType::I64, DType::I32, DType::U8, DType::U16, DType::I16];

/// Returns an index below `extent` that is loaded from a tensor over some axes of the domain.
fn ids(build: &mut Build, b: &mut Body, axes: &[usize], extent: usize, dtype: DType) -> Index {
    let dims: Vec<usize> = axes.iter().map(|&axis| b.domain[axis]).collect();
    let count = dims.iter().product();
    let numbers: Vec<i64> = (0..count).map(|_| build.random.below(extent) as i64).collect();
    let slot = build.tensor(Tensor::from_i64(dtype, &[count], numbers));
    let at = flatten(&axes.iter().map(|&axis| Index::coord(axis)).collect::<Vec<_>>(), &dims);
    let id = build.load(b, slot, at);
    let (from_end, check, guards) = (false, 0, Vec::new());
    let id = push(b, Instr::Within { arg: id, extent: extent.into(), from_end, check, guards, dtype });
    Index::atom(Atom::Value(id))
}

fn store(device: &Device, mut build: Build, b: Body, value: ValueId, dtype: DType) {
    build.store(&b.domain, dtype, value);
    let (kernel, inputs) = build.kernel(AnchorKernel::map(), b);
    device.check(&kernel, &inputs, 4.0);
}

/// Gathers some rows and some columns of matrices, as for a resized image.
fn rows_and_columns_that_indices_choose(device: &Device) {
    for (s, domain) in SHAPES.iter().enumerate() {
        for (t, of_ids) in PLACES.into_iter().enumerate() {
            let dtype = TYPES[(s + t) % TYPES.len()];
            let mut build = Build::new((s * 10 + t) as u64);
            let mut b = body(domain);
            let (rows, columns) = (5, 11);
            let row = ids(&mut build, &mut b, &[1], rows, of_ids);
            let column = ids(&mut build, &mut b, &[2], columns, of_ids);
            let slot = build.input(dtype, domain[0] * rows * columns);
            let at = flatten(&[Index::coord(0), row, column], &[domain[0], rows, columns]);
            let x = build.load(&mut b, slot, at);
            store(device, build, b, x, dtype);
        }
    }
}

/// Loads each element at its own index. Its column is the sum of an index and a coordinate.
fn elements_with_an_index_each(device: &Device) {
    for (s, domain) in SHAPES.iter().enumerate() {
        let dtype = TYPES[s % TYPES.len()];
        let mut build = Build::new(s as u64);
        let mut b = body(domain);
        let all = ids(&mut build, &mut b, &[0, 1, 2], 6, DType::I64);
        let some = ids(&mut build, &mut b, &[1, 2], 4, DType::I32);
        let slot = build.input(dtype, 6 * (4 + domain[2]));
        let at = flatten(&[all, some.plus(&Index::coord(2))], &[6, 4 + domain[2]]);
        let x = build.load(&mut b, slot, at);
        store(device, build, b, x, dtype);
    }
}

/// Loads some elements several times and skips others, along all axes.
fn coordinates_that_are_divided(device: &Device) {
    for (s, domain) in SHAPES.iter().enumerate() {
        for by in [2, 3, 5] {
            let dtype = TYPES[(s + by) % TYPES.len()];
            let mut build = Build::new((s * 10 + by) as u64);
            let mut b = body(domain);
            let divided = |axis: usize| Index::coord(axis).plus(&Index::constant(1)).div(by as i64, domain);
            let at: Vec<Index> = (0..3).map(divided).collect();
            let dims = domain.map(|n| n / by + 1);
            let slot = build.input(dtype, dims.iter().product());
            let x = build.load(&mut b, slot, flatten(&at, &dims));
            let turned = Index::coord(2).times(3).modulo(7, domain);
            let other = build.input(dtype, 7 * domain[1]);
            let y = build.load(&mut b, other, flatten(&[turned, Index::coord(1)], &[7, domain[1]]));
            let least = map(&mut b, "min", &[x, y], dtype);
            store(device, build, b, least, dtype);
        }
    }
}

/// Repeats elements between borders, under a guard on the divided or on the original coordinate.
fn divided_coordinates_under_guards(device: &Device) {
    for (s, domain) in SHAPES.iter().enumerate() {
        for whole in [false, true] {
            let dtype = TYPES[s % TYPES.len()];
            let mut build = Build::new((s * 2) as u64 + u64::from(whole));
            let mut b = body(domain);
            let half = |axis: usize| Index::coord(axis).plus(&Index::constant(-1)).div(2, domain);
            let guard = |axis: usize| match whole {
                true => (Index::coord(axis), 1..domain[axis] as i64),
                false => (half(axis), 0..(domain[axis] as i64) / 3),
            };
            let guards = vec![guard(1), guard(2)];
            let dims = [domain[0], domain[1], domain[2]];
            let slot = build.input(dtype, dims.iter().product());
            let at = flatten(&[Index::coord(0), half(1), half(2)], &dims);
            let x = push(&mut b, Instr::Load(Load { slot, at, guards: guards.clone(), dtype }));
            let fill = if dtype.is_float() { 0.5 } else { 3.0 };
            let x = push(&mut b, Instr::Select { pieces: vec![(guards, x)], fill: fill.into(), dtype });
            store(device, build, b, x, dtype);
        }
    }
}

/// Multiplies by one of several matrices, as in a mixture of experts. An index chooses the matrix for each point of one
/// or two batch axes.
fn matrices_that_indices_choose(device: &Device) {
    for (s, [m, k, n]) in
        [[1, 64, 48], [1, 7, 1], [3, 33, 17], [20, 16, 40], [1, 1, 5], [1, 300, 200]].into_iter().enumerate()
    {
        for (t, of_ids) in PLACES.into_iter().enumerate() {
            for turned in [false, true] {
                let dtype = if (s + t) % 4 == 3 { DType::F64 } else { DType::F32 };
                let mut build = Build::new((s * 100 + t * 10) as u64 + u64::from(turned));
                let (batch, count) = ([4, 3], 5);
                let mut lhs = body(&[batch[0], batch[1], m, k]);
                let x = build.dense(&mut lhs, dtype);
                lhs.results = vec![x];
                let mut rhs = body(&[batch[0], batch[1], k, n]);
                let axes: &[usize] = [&[0, 1][..], &[1], &[0]][(s + t) % 3];
                let number = ids(&mut build, &mut rhs, axes, count, of_ids);
                let [term, column] = [2, 3].map(Index::coord);
                let slot = build.input(dtype, count * k * n);
                let at = match turned {
                    true => flatten(&[number, column, term], &[count, n, k]),
                    false => flatten(&[number, term, column], &[count, k, n]),
                };
                let w = build.load(&mut rhs, slot, at);
                rhs.results = vec![w];
                let domain = [batch[0], batch[1], m, n];
                let mut own = body(&domain);
                let y = push(&mut own, Instr::Anchor { dtype });
                build.store(&domain, dtype, y);
                let axes = ContractionAxes { batch: 2, rows: 1, columns: 1, depth: 1 };
                let (kernel, inputs) = build.kernel(AnchorKernel::contraction(lhs, rhs, axes), own);
                for params in [0, 2] {
                    device.check_with(&kernel, &inputs, params, 8.0 + 4.0 * k as f64);
                }
            }
        }
    }
}
