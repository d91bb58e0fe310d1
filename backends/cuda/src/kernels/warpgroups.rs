//! Products by warpgroups, whose matrix units read both operands from shared memory. The copy engine loads strided
//! matrices; threads evaluate any other operand.

use eutectic_backend::Instr;
use eutectic_gpu::launch::{Boxes, Launch};

use super::{
    library,
    parts::{PrintedOperand, epilogue},
    product::{Printed, ProductProblem, ProductWay},
};
use crate::dialect::{BlockShape, clusters, entry_with};

/// Terms per step of the depth: 128 bytes, the longest row that the hardware swizzles as a whole.
const DEPTH: usize = 64;
/// Seconds per read of a thread under guards, or from an operand that is not a strided matrix. Fitted on an H200 to
/// windows of SAM (8 neighbours per read) and to the first convolutions of ResNet-50 and DeepLab (one per read).
const GUARDED: f64 = 2.4e-7;
/// Neighbours per read under guards, in operands that are strided matrices otherwise.
const NEIGHBOURS: f64 = 8.0;
/// The maximal number of rows for which warpgroup tiles reach only a fraction of the memory rate, and this fraction.
const SLOW_ROWS: (usize, f64) = (16, 0.85);
/// Threads per block that load tiles.
const BRINGING: usize = 128;
/// Bytes of the barriers in shared memory.
const BARRIERS: usize = 128;

/// The tile of a block.
#[derive(Clone, Copy)]
struct WarpgroupTile {
    rows: usize,
    columns: usize,
    /// Steps of the depth that are in flight at once.
    stages: usize,
    /// Blocks of a cluster, which share columns of the right operand.
    cluster: usize,
    /// Blocks that a processor runs at once.
    resident: usize,
    /// Seconds of a step: with as many blocks per processor as fit, and with a single block, which waits for memory.
    step: [f64; 2],
    /// Seconds after the last step of a tile.
    end: f64,
}

const fn tile(
    [rows, columns]: [usize; 2],
    stages: usize,
    cluster: usize,
    resident: usize,
    step: [f64; 2],
    end: f64,
) -> WarpgroupTile {
    WarpgroupTile { rows, columns, stages, cluster, resident, step, end }
}

/// Tiles whose operands are both loaded by the copy engine. Steps and ends were measured on an H200 (`device products`,
/// `costs/h200_products.txt`), except for 128 × 192, which is interpolated.
const BOXED: [WarpgroupTile; 8] = [
    tile([128, 256], 4, 2, 1, [740e-9, 760e-9], 1.0e-6),
    tile([128, 256], 4, 1, 1, [745e-9, 760e-9], 0.7e-6),
    tile([128, 192], 5, 1, 1, [565e-9, 600e-9], 0.6e-6),
    tile([128, 128], 3, 2, 2, [430e-9, 450e-9], 0.5e-6),
    tile([128, 128], 3, 1, 2, [425e-9, 450e-9], 0.3e-6),
    tile([128, 64], 4, 1, 2, [295e-9, 247e-9], 0.2e-6),
    tile([64, 128], 4, 1, 2, [262e-9, 197e-9], 0.2e-6),
    tile([64, 64], 6, 1, 2, [185e-9, 170e-9], 0.0),
];
/// Tiles of products for which threads evaluate an operand.
const COMPUTED: [WarpgroupTile; 4] = [
    tile([128, 256], 4, 1, 1, [900e-9, 1000e-9], 1.0e-6),
    tile([128, 128], 4, 1, 1, [550e-9, 600e-9], 0.7e-6),
    tile([64, 128], 4, 1, 1, [450e-9, 500e-9], 0.5e-6),
    tile([64, 64], 6, 1, 1, [400e-9, 450e-9], 0.4e-6),
];

impl WarpgroupTile {
    fn shared(&self) -> usize {
        self.stages * (self.rows + self.columns) * DEPTH * 2 + BARRIERS
    }
}

/// An operand whose boxes the copy engine can load.
struct Boxed {
    boxes: Boxes,
    is_along: bool,
}

fn boxed(problem: &ProductProblem, which: usize) -> Option<Boxed> {
    let (nest, body, outer, depth) = match which {
        0 => (&problem.left, problem.lhs, 1, 2),
        _ => (&problem.right, problem.rhs, 2, 1),
    };
    let dtype = body.instrs[body.results[0]].dtype();
    let at = library::matrix(problem.kernel, (nest, body.results[0]), dtype)?;
    let is_along = at.strides[depth] == 1;
    let (near, far) = if is_along { (depth, outer) } else { (outer, depth) };
    // If all points of the batch share one matrix, the batch has one point.
    let batch = if at.strides[0] == 0 { 1 } else { nest.domain[0] };
    let least = at.strides[far].max(1) * nest.domain[far];
    let boxes = Boxes {
        slot: at.slot,
        offset: at.offset,
        dtype,
        extents: [nest.domain[near], nest.domain[far], batch],
        strides: [at.strides[far], if batch == 1 { least.next_multiple_of(8) } else { at.strides[0] }],
        lengths: [DEPTH, 0, 1],
    };
    // The driver limits extents and strides.
    let fits = boxes.extents.iter().all(|&n| n < 1 << 31) && boxes.strides.iter().all(|&n| n < 1 << 38);
    fits.then_some(Boxed { boxes, is_along })
}

/// Returns a schedule for each tile that fits and each number of splits of the depth.
pub fn ways<'a>(problem: &'a ProductProblem<'a>) -> Vec<ProductWay<'a>> {
    let [b, m, n, k] = problem.extents;
    if problem.shape.cluster == 0
        || problem.unit.is_none_or(|element| element.size != 2)
        || problem.extents.contains(&0)
    {
        return Vec::new();
    }
    let both = boxed(problem, 0).is_some() && boxed(problem, 1).is_some();
    let gathered = problem.gathered();
    let guarded = [&problem.left, &problem.right].map(|nest| nest.instrs.iter().any(is_guarded));
    // Counts the reads of a thread per element of a tile.
    let reads = [0, 1].map(|n| if guarded[n] { gathered[n].max(1.0 / NEIGHBOURS) } else { gathered[n] });
    let tiles = if both { &BOXED[..] } else { &COMPUTED };
    let fits = |tile: &&WarpgroupTile| tile.shared() <= problem.shape.shared && tile.cluster <= problem.shape.cluster;
    let mut ways = Vec::new();
    for &tile in tiles.iter().filter(fits) {
        let WarpgroupTile { rows, columns, cluster, resident, step, end, .. } = tile;
        if cluster > 1 && m <= rows {
            continue;
        }
        let tiles = b * m.div_ceil(rows).next_multiple_of(cluster) * n.div_ceil(columns);
        if tiles >= 1 << 30 {
            continue;
        }
        for splits in problem.splits(4 * DEPTH) {
            let blocks = tiles * splits;
            let steps = (k.div_ceil(splits) as f64 / DEPTH as f64).ceil();
            let waves = |at_once: usize| blocks.div_ceil(at_once) as f64;
            let processors = problem.shape.processors;
            let of_tile: f64 = [rows, columns].into_iter().zip(reads).map(|(n, reads)| n as f64 * reads).sum();
            let evaluated = of_tile * DEPTH as f64 / BRINGING as f64 * GUARDED;
            let own = |step: f64| steps * (step + evaluated) + end;
            let reading = if m <= SLOW_ROWS.0 { problem.memory() / SLOW_ROWS.1 } else { 0.0 };
            let busy = (waves(processors) * own(step[0])).max(waves(processors * resident) * own(step[1]));
            ways.push(ProductWay {
                name: format!("warpgroups {rows}×{columns} of {cluster} in {splits}"),
                seconds: problem.seconds((busy + problem.epilogue()).max(reading), splits),
                print: Box::new(move || print(problem, tile, splits)),
            });
        }
    }
    ways
}

fn is_guarded(instr: &Instr) -> bool {
    matches!(instr, Instr::Load(load) if !load.guards.is_empty())
}

fn print(problem: &ProductProblem, tile: WarpgroupTile, splits: usize) -> Printed {
    let [b, m, n, k] = problem.extents;
    let WarpgroupTile { rows, columns, stages, cluster, resident, .. } = tile;
    let half = problem.unit.map_or("", |element| element.name);
    let mut operands = problem.operands()?;
    let mut boxes = Vec::new();
    for (which, (outer, tile)) in [(m, rows), (n, columns / cluster)].into_iter().enumerate() {
        if let Some(Boxed { boxes: found, is_along }) = boxed(problem, which) {
            operands[which] = PrintedOperand::boxed(which, [outer, k], is_along, found.extents[2] > 1);
            let lengths = [DEPTH, if is_along { tile } else { DEPTH }, 1];
            boxes.push(Boxes { lengths, ..found });
        }
    }
    let (epilogue, lanes) = epilogue(&problem.own, &problem.kernel.slots, 8, problem.sum, "m")?;
    let head = problem.head(&operands, &epilogue, &[include_str!("../text/warpgroups.cu")]);
    // With one block per processor, the warpgroup that loads tiles gives registers to those that multiply. The
    // instruction for this needs whole warpgroups.
    let threads = rows / 64 * 128 + if boxes.len() == 2 && resident > 1 { 32 } else { 128 };
    let (parameter, argument) = match boxes.len() {
        0 => (String::new(), "(const Box*)0"),
        _ => (", PARAMETER Boxes<BOXES> boxes".to_string(), "boxes.of"),
    };
    let call = format!(
        "multiply_warpgroups<{half}, {rows}, {columns}, {stages}, {cluster}, {resident}, {splits}, {lanes}>(slots, {argument});"
    );
    let text = format!("{head}#define BOXES {}\n", boxes.len())
        + &entry_with(BlockShape { threads, resident }, &clusters(cluster), &parameter, &call);
    let tiles = b * m.div_ceil(rows).next_multiple_of(cluster) * n.div_ceil(columns);
    let grid = [tiles.min(problem.shape.processors * resident / cluster * cluster), splits, 1];
    let product = Launch { shared: tile.shared(), boxes, ..Launch::new(text, grid, threads) };
    Ok(problem.launches(product, &head, splits, lanes))
}
