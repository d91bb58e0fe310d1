//! Products by tiles of the result in registers, by multiply-adds or by matrix units that each warp feeds. Operands and
//! epilogue may be any expressions.

use eutectic_gpu::launch::Launch;

use super::{
    parts::{UnitElement, epilogue},
    product::{Printed, ProductProblem, ProductWay},
};
use crate::dialect::{BlockShape, entry};

/// A tile: its extents per block, its depth, the division among threads or warps, and the time of a step of the depth.
#[derive(Clone, Copy)]
struct ProductTile {
    rows: usize,
    columns: usize,
    depth: usize,
    /// Rows and columns of a thread; on matrix units, how many warps share rows and columns.
    shares: [usize; 2],
    /// Seconds of a step: with as many blocks per processor as fit, and with a single block, which waits for memory.
    step: [f64; 2],
}

const fn tile(rows: usize, columns: usize, depth: usize, shares: [usize; 2], step: [f64; 2]) -> ProductTile {
    ProductTile { rows, columns, depth, shares, step }
}

impl ProductTile {
    /// Returns the maximal bytes of shared memory on matrix units, for any layout of the operands.
    fn matrix_bytes(&self, element: UnitElement) -> usize {
        let ProductTile { rows, columns, depth, .. } = *self;
        let tiles = element.tile(rows, depth) + element.tile(columns, depth);
        (STAGES * tiles).max(rows * (columns + 4) * 4)
    }
}

/// Tiles of 32-bit multiply-adds. Steps were measured on an H200 (`device products`).
const TILES: [ProductTile; 6] = [
    tile(128, 128, 16, [8, 8], [1.82e-6, 2.5e-6]),
    tile(128, 64, 16, [8, 4], [0.98e-6, 1.25e-6]),
    tile(64, 64, 16, [4, 4], [0.575e-6, 0.74e-6]),
    tile(32, 64, 16, [4, 4], [0.29e-6, 0.52e-6]),
    tile(16, 64, 32, [2, 4], [0.55e-6, 1.1e-6]),
    tile(16, 16, 32, [1, 1], [0.36e-6, 0.5e-6]),
];
/// Tiles on matrix units, for 16-bit operands.
const MATRICES: [ProductTile; 6] = [
    tile(128, 256, 32, [2, 4], [1.06e-6, 1.06e-6]),
    tile(128, 128, 32, [2, 4], [0.64e-6, 0.64e-6]),
    tile(128, 64, 32, [4, 2], [0.4e-6, 0.4e-6]),
    tile(64, 64, 32, [2, 2], [0.27e-6, 0.27e-6]),
    tile(32, 64, 64, [2, 2], [0.31e-6, 0.31e-6]),
    tile(16, 64, 64, [1, 4], [0.2e-6, 0.2e-6]),
];
/// Tiles on matrix units, for TF32 operands.
const SINGLES: [ProductTile; 6] = [
    tile(128, 256, 32, [2, 4], [2.4e-6, 2.4e-6]),
    tile(128, 128, 32, [2, 4], [1.4e-6, 1.4e-6]),
    tile(128, 64, 32, [4, 2], [0.85e-6, 0.85e-6]),
    tile(64, 64, 32, [2, 2], [0.54e-6, 0.54e-6]),
    tile(32, 64, 32, [2, 2], [0.33e-6, 0.33e-6]),
    tile(16, 64, 32, [1, 4], [0.22e-6, 0.22e-6]),
];
/// Steps of the depth in flight.
const STAGES: usize = 4;
/// Seconds per element in the epilogue of a tile on matrix units, and additional seconds per element for each division
/// in the epilogue's maps. Padding elements count as well.
const ELEMENT: [f64; 2] = [0.8e-10, 0.6e-10];

/// Seconds per read of a thread from an operand that is not a strided matrix. The reads of one step are in flight at
/// once.
const GATHERED: f64 = 1.0e-7;

/// Returns a schedule for each tile that fits and each number of splits of the depth.
pub fn ways<'a>(problem: &'a ProductProblem<'a>) -> Vec<ProductWay<'a>> {
    let [b, m, n, k] = problem.extents;
    let tiles = match (problem.unit, problem.sum) {
        (Some(element), _) => {
            if element.size == 2 {
                &MATRICES[..]
            } else {
                &SINGLES
            }
        }
        // The largest tiles of 64-bit numbers would not fit into registers.
        (None, "double") => &TILES[2..],
        (None, _) => &TILES,
    };
    let fits =
        |tile: &&ProductTile| problem.unit.is_none_or(|element| tile.matrix_bytes(element) <= problem.shape.shared);
    let gathered = problem.gathered();
    let mut ways = Vec::new();
    for &tile in tiles.iter().filter(fits) {
        let ProductTile { rows, columns, depth, shares, step } = tile;
        for splits in problem.splits(4 * depth) {
            let blocks = b * m.div_ceil(rows) * n.div_ceil(columns) * splits;
            let waves = |at_once: usize| blocks.div_ceil(at_once) as f64;
            let (processors, size) = (problem.shape.processors, (problem.bytes / 4) as f64);
            let steps = (k.div_ceil(splits) as f64 / depth as f64).ceil() * size;
            let of_element = ELEMENT[0] + problem.own.divisions() as f64 * ELEMENT[1];
            let end = if problem.unit.is_some() { (rows * columns) as f64 * of_element } else { 0.0 };
            let threads = if problem.unit.is_some() {
                32 * shares[0] * shares[1]
            } else {
                rows / shares[0] * (columns / shares[1])
            };
            let reads = (rows as f64 * gathered[0] + columns as f64 * gathered[1]) * depth as f64 / threads as f64;
            let step = step.map(|step| step + GATHERED * reads);
            let busy = (waves(processors) * (steps * step[0] + end))
                .max(waves(processors * resident(problem)) * (steps * step[1] + end));
            let kind = if problem.unit.is_some() { "warps" } else { "fma" };
            ways.push(ProductWay {
                name: format!("{kind} {rows}×{columns} in {splits}"),
                seconds: problem.seconds(busy + problem.epilogue(), splits),
                print: Box::new(move || print(problem, tile, splits)),
            });
        }
    }
    ways
}

/// Returns the number of blocks that a processor runs at once.
fn resident(problem: &ProductProblem) -> usize {
    if problem.unit.is_none() && problem.sum == "float" { 2 } else { 1 }
}

fn print(problem: &ProductProblem, tile: ProductTile, splits: usize) -> Printed {
    let operands = problem.operands()?;
    let [b, m, n, _] = problem.extents;
    let ProductTile { rows, columns, depth, shares: [sm, sn], .. } = tile;
    let most = if problem.unit.is_some() { 8 } else { sn.min(4) };
    let (epilogue, lanes) = epilogue(&problem.own, &problem.kernel.slots, most, problem.sum, "m")?;
    let (texts, threads, shared, call) = match problem.unit {
        Some(element) => {
            let stage = operands[0].shared(element, rows, depth) + operands[1].shared(element, columns, depth);
            let call = format!(
                "multiply_matrices<{}, {rows}, {columns}, {depth}, {sm}, {sn}, {STAGES}, {splits}, {lanes}>(slots);",
                element.name
            );
            let texts = &[include_str!("../text/halves.cu"), include_str!("../text/matrix.cu")][..];
            (texts, sm * sn * 32, (STAGES * stage).max(rows * (columns + 4) * 4), call)
        }
        None => {
            let sum = problem.sum;
            let call =
                format!("multiply_tiles<{sum}, {rows}, {columns}, {depth}, {sm}, {sn}, {splits}, {lanes}>(slots);");
            (&[][..], rows / sm * (columns / sn), 2 * depth * (rows + columns + 8) * problem.bytes, call)
        }
    };
    let head = problem.head(&operands, &epilogue, texts);
    let resident = resident(problem);
    let grid = [m.div_ceil(rows) * n.div_ceil(columns), splits, b.min(65535)];
    let product =
        Launch { shared, ..Launch::new(head.clone() + &entry(BlockShape { threads, resident }, &call), grid, threads) };
    Ok(problem.launches(product, &head, splits, lanes))
}
