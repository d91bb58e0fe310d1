//! Products: tiles of the result in registers, operands and epilogue any expressions.

use eutectic_backend::{AnchorKernel, Kernel, axes::Nest};
use eutectic_gpu::{device::Shape, launch::Launch};

use super::{
    library,
    parts::{Operand, epilogue, flat, short, wide},
};
use crate::dialect::{arguments, entry};

/// A tile: of a block, its depth; how threads or warps share it; and how much of the processor's rate it comes to.
#[derive(Clone, Copy)]
struct Tile {
    rows: usize,
    columns: usize,
    depth: usize,
    /// Rows and columns of a thread; on matrix units, how many warps share rows and columns.
    shares: [usize; 2],
    rate: f64,
}

const fn tile(rows: usize, columns: usize, depth: usize, shares: [usize; 2], rate: f64) -> Tile {
    Tile { rows, columns, depth, shares, rate }
}

impl Tile {
    /// Most bytes of shared memory that it takes on matrix units, however operands lie.
    fn matrix_bytes(&self) -> usize {
        let Tile { rows, columns, depth, .. } = *self;
        let along = (rows + columns) * (depth + 8);
        let across = depth * (rows + columns + 16);
        (2 * STAGES * along.max(across)).max(rows * (columns + 4) * 4)
    }
}

/// By multiplications and additions.
const TILES: [Tile; 6] = [
    tile(128, 128, 16, [8, 8], 0.8),
    tile(128, 64, 16, [8, 4], 0.65),
    tile(64, 64, 16, [4, 4], 0.5),
    tile(32, 64, 16, [4, 4], 0.35),
    tile(16, 64, 32, [2, 4], 0.2),
    tile(16, 16, 32, [1, 1], 0.05),
];
/// On matrix units, whose rate is so much higher.
const MATRICES: [Tile; 6] = [
    tile(128, 256, 32, [2, 4], 0.9 * MATRIX_RATE),
    tile(128, 128, 32, [2, 4], 0.75 * MATRIX_RATE),
    tile(128, 64, 32, [4, 2], 0.5 * MATRIX_RATE),
    tile(64, 64, 32, [2, 2], 0.35 * MATRIX_RATE),
    tile(32, 64, 64, [2, 2], 0.2 * MATRIX_RATE),
    tile(16, 64, 64, [1, 4], 0.12 * MATRIX_RATE),
];
const MATRIX_RATE: f64 = 10.0;
/// How many steps of the depth are on their way at once.
const STAGES: usize = 4;
const SPLITS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Most bytes for sums of parts of the depth.
const WORKSPACE: usize = 64 << 20;
const COMBINE: usize = 256;

/// Prints it.
///
/// # Errors
/// What cannot be printed.
pub fn print(shape: &Shape, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
    let AnchorKernel::Contraction { lhs, rhs, axes } = &kernel.anchor else { return Err(vec!["no product".into()]) };
    let sum = if wide(&kernel.bodies()) { "double" } else { "float" };
    let bytes = if sum == "double" { 8 } else { 4 };
    let left = flat(&Nest::of(lhs.clone()), [axes.batch, axes.rows, axes.depth]);
    let right = flat(&Nest::of(rhs.clone()), [axes.batch, axes.depth, axes.columns]);
    let own = flat(&Nest::new(&kernel.body, &kernel.stores), [axes.batch, axes.rows, axes.columns]);
    let ([b, m, k], n) = ([left.domain[0], left.domain[1], left.domain[2]], right.domain[2]);
    let extents = [b, m, n, k];
    if let Some(launches) = library::print(shape, kernel, extents, [&left, &right, &own]) {
        return launches;
    }
    let operand = short(&[lhs, rhs]).filter(|_| sum == "float");
    let tiles = match (operand, sum) {
        (Some(_), _) => &MATRICES[..],
        // The largest tiles of 64-bit numbers would not fit into registers.
        (None, "double") => &TILES[2..],
        (None, _) => &TILES,
    };
    let fits = |tile: &Tile| operand.is_none() || tile.matrix_bytes() <= shape.shared;
    let tiles: Vec<Tile> = tiles.iter().copied().filter(fits).collect();
    let (tile, splits) = schedule(shape, extents, &tiles);
    let operands = [
        Operand::print(0, &left, lhs.results[0], &kernel.slots, (false, sum))?,
        Operand::print(1, &right, rhs.results[0], &kernel.slots, (true, sum))?,
    ];
    let Tile { rows, columns, depth, shares: [sm, sn], .. } = tile;
    let (epilogue, lanes) = epilogue(&own, &kernel.slots, if operand.is_some() { 8 } else { sn.min(4) }, sum)?;
    let constants = format!(
        "#define OPERANDS 2\nconstexpr int B = {b}, M = {m}, N = {n}, K = {k};\ntemplate <int WHICH> struct Operand;\n"
    );
    let before = constants + &operands[0].properties + &operands[1].properties;
    let methods = epilogue + &operands[0].method + &operands[1].method;
    let head = [
        arguments(&kernel.slots, &before, &methods).as_str(),
        include_str!("../text/tiles.cu"),
        include_str!("../text/contraction.cu"),
    ]
    .concat();
    let head = match operand {
        Some(_) => [&head, include_str!("../text/halves.cu"), include_str!("../text/matrix.cu")].concat(),
        None => head,
    };
    let (threads, shared, call) = match operand {
        Some(half) => {
            let stage = operands[0].shared(rows, depth) + operands[1].shared(columns, depth);
            let call = format!(
                "multiply_matrices<{half}, {rows}, {columns}, {depth}, {sm}, {sn}, {STAGES}, {splits}, {lanes}>(slots);"
            );
            (sm * sn * 32, (STAGES * stage).max(rows * (columns + 4) * 4), call)
        }
        None => {
            let call =
                format!("multiply_tiles<{sum}, {rows}, {columns}, {depth}, {sm}, {sn}, {splits}, {lanes}>(slots);");
            (rows / sm * (columns / sn), 2 * depth * (rows + columns + 8) * bytes, call)
        }
    };
    let workspace = if splits > 1 { splits * b * m * n * bytes } else { 0 };
    let grid = [m.div_ceil(rows) * n.div_ceil(columns), splits, b.min(65535)];
    let product = Launch {
        shared,
        workspace,
        ..Launch::new(
            head.clone() + &entry((threads, if operand.is_none() && sum == "float" { 2 } else { 1 }), &call),
            grid,
            threads,
        )
    };
    let mut launches = vec![product];
    if splits > 1 {
        let call = format!("combine<{sum}, {splits}, {lanes}, {COMBINE}>(slots);");
        let blocks = (b * m * n / lanes).div_ceil(COMBINE).min(shape.processors * 16);
        launches.push(Launch { workspace, ..Launch::new(head + &entry((COMBINE, 1), &call), [blocks, 1, 1], COMBINE) });
    }
    Ok(launches)
}

/// The tile and the number of parts of the depth that take the least time.
fn schedule(shape: &Shape, [b, m, n, k]: [usize; 4], tiles: &[Tile]) -> (Tile, usize) {
    let mut best = (tiles[0], 1, f64::INFINITY);
    for &tile in tiles {
        for splits in SPLITS {
            if splits > 1 && (k < splits * 4 * tile.depth || splits * b * m * n * 4 > WORKSPACE) {
                continue;
            }
            let blocks = b * m.div_ceil(tile.rows) * n.div_ceil(tile.columns) * splits;
            let waves = blocks.div_ceil(shape.processors) as f64;
            // In multiplications and additions of one processor: what a wave does, the latency of each step, adding the parts.
            let steps = (k.div_ceil(splits) as f64 / tile.depth as f64).ceil();
            let step = (tile.rows * tile.columns * tile.depth) as f64 / tile.rate + 10_000.0;
            let adding = if splits > 1 { 600_000.0 + (splits * b * m * n) as f64 * 8.0 / 132.0 } else { 0.0 };
            let time = waves * steps * step + adding;
            if time < best.2 {
                best = (tile, splits, time);
            }
        }
    }
    (best.0, best.1)
}
