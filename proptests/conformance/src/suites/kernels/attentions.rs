//! Tests attention with batches, biases, and several layouts of operands and results.

use eutectic_backend::{AnchorKernel, AttentionAxes, Body, EmptyRow, Instr, ScoreForm};
use eutectic_ir::{DType, index::Index};

use super::operands::operand;
use crate::{
    device::Device,
    kernels::build::{Build, body, constant, map, push},
};

/// The extents of an attention, and the kind of its bias, which is 0 for none.
struct Case {
    batch: &'static [usize],
    s: usize,
    t: usize,
    d: usize,
    e: usize,
    softcap: f64,
    bias: usize,
}

pub(super) fn attentions(device: &Device) {
    let case = |batch, s, t, d, e, softcap, bias| Case { batch, s, t, d, e, softcap, bias };
    let cases = [
        case(&[], 1, 1, 1, 1, 0.0, 0),
        case(&[2, 3], 5, 7, 4, 6, 0.0, 1),
        case(&[3], 1, 40, 16, 16, 0.0, 0),
        case(&[2], 33, 65, 8, 8, 5.0, 2),
        case(&[1], 70, 1300, 16, 12, 0.0, 1),
        case(&[2], 3, 1100, 4, 5, 3.0, 3),
        case(&[2], 300, 40, 70, 33, 0.0, 1),
        case(&[2], 70, 100, 80, 80, 0.0, 1),
        case(&[], 20, 70, 88, 96, 0.0, 2),
        // The keys are an odd number of tiles of 64, 32 or 16 keys. If half as many parts share the tiles, the last
        // part has none.
        case(&[2], 9, 570, 64, 64, 0.0, 4),
        case(&[2], 9, 590, 64, 64, 0.0, 4),
    ];
    for (n, c) in cases.iter().enumerate() {
        for dtype in [DType::F32, DType::F64, DType::F16] {
            for seed in 0..4_u64 {
                let mut build = Build::new(seed * 10 + n as u64);
                let extents = |a, b| c.batch.iter().copied().chain([a, b]).collect::<Vec<_>>();
                let kinds = [0, 1, 3].map(|k| if seed == 0 { k } else { build.random.below(5) });
                let query = operand(&mut build, &extents(c.s, c.d), dtype, kinds[0]);
                let key = operand(&mut build, &extents(c.t, c.d), dtype, kinds[1]);
                let value = operand(&mut build, &extents(c.t, c.e), dtype, kinds[2]);
                let bias = (c.bias > 0).then(|| bias_of(&mut build, c, dtype));
                let domain = extents(c.s, c.e);
                let mut b = body(&domain);
                let mut y = push(&mut b, Instr::Anchor { dtype });
                let rank = domain.len();
                let mut axes: Vec<_> = (0..rank).collect();
                if seed < 2 {
                    // An op changes the result, which is stored as [b.. e s].
                    y = map(&mut b, "add", &[y, y], dtype);
                    axes.swap(rank - 1, rank - 2);
                } else {
                    // The result is stored unchanged, as [s b.. e].
                    axes[..rank - 1].rotate_right(1);
                }
                let (dims, at): (Vec<_>, Vec<_>) = axes.iter().map(|&d| (domain[d], Index::coord(d))).unzip();
                build.store_at(domain.iter().product(), eutectic_ir::index::flatten(&at, &dims), dtype, y);
                let empty = if seed % 2 == 1 { EmptyRow::Zeros } else { EmptyRow::Nan };
                let (scale, softcap) = (0.4, c.softcap);
                let axes = AttentionAxes::matrices(c.batch.len());
                let anchor =
                    AnchorKernel::attention([query, key, value], bias, axes, ScoreForm { scale, softcap, empty });
                let (kernel, inputs) = build.kernel(anchor, b);
                let loose = if dtype.size() == 2 { 2f64.powi(16) } else { 400.0 };
                device.check(&kernel, &inputs, loose);
            }
        }
    }
}

/// Returns the bias of a case: numbers for each key, an expression of query and key, or stored numbers, perhaps with
/// hidden blocks.
fn bias_of(build: &mut Build, case: &Case, dtype: DType) -> Body {
    let domain: Vec<_> = case.batch.iter().copied().chain([case.s, case.t]).collect();
    let mut b = body(&domain);
    let rank = b.domain.len();
    let mut x = match case.bias {
        // A number for each key.
        1 => {
            let slot = build.input(dtype, case.t);
            build.load(&mut b, slot, Index::coord(rank - 1))
        }
        // An expression that depends on query and key.
        2 => {
            let slot = build.input(dtype, case.s);
            let x = build.load(&mut b, slot, Index::coord(rank - 2));
            let y = build.any(&mut b, dtype);
            map(&mut b, "mul", &[x, y], dtype)
        }
        _ => build.dense(&mut b, dtype),
    };
    if case.bias == 3 {
        // Some rows have no finite score, and others have none in the first block of keys.
        let i = push(&mut b, Instr::Coordinate { index: Index::coord(rank - 2), dtype: DType::I64 });
        let j = push(&mut b, Instr::Coordinate { index: Index::coord(rank - 1), dtype: DType::I64 });
        let one = constant(&mut b, 600.0, DType::I64);
        let bound = map(&mut b, "mul", &[i, one], DType::I64);
        let hidden = map(&mut b, "lt", &[j, bound], DType::Bool);
        let minus = constant(&mut b, f64::NEG_INFINITY, dtype);
        x = map(&mut b, "where", &[hidden, minus, x], dtype);
    }
    b.results = vec![x];
    b
}
