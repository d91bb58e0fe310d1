//! The schedules of attention with their predicted times, by which one is chosen. They differ in the units that
//! multiply, in the queries and keys per block, and in the splits of the keys. Coefficients were measured on an H200.

use eutectic_backend::Kernel;
use eutectic_gpu::{device::DeviceShape, launch::Launch};

use super::{
    attention::{AttentionProblem, REGISTERS},
    attention_way::{AttentionWay, Groups, Units},
    contraction::PrintedWay,
    parts::UnitElement,
};

/// Divisions of the 65,536 registers of a processor among warpgroups.
const GROUPS: [Groups; 4] = [
    Groups { count: 3, resident: 1, stages: 2, registers: [32, 160] },
    Groups { count: 2, resident: 1, stages: 2, registers: [40, 232] },
    Groups { count: 1, resident: 2, stages: 2, registers: [40, 216] },
    Groups { count: 1, resident: 3, stages: 2, registers: [32, 128] },
];
/// Keys per tile of warpgroups.
const KEYS: [usize; 8] = [64, 80, 96, 112, 128, 144, 160, 176];
/// Registers per thread for other values: in addition to scores, weights and sums, and in addition to the results of a
/// single matrix instruction.
const OTHER_REGISTERS: [usize; 2] = [32, 30];
/// Additional registers of a bias.
const BIAS_REGISTERS: usize = 25;
/// Queries per block of warps, and keys per tile. If few warps load many keys, too few loads are in flight.
const WARP_TILES: [(usize, usize); 8] =
    [(16, 16), (16, 32), (16, 64), (32, 16), (32, 32), (64, 16), (64, 32), (64, 64)];
/// The maximal number of warps of a processor.
const MOST_WARPS: usize = 64;
/// The maximal number of elements of keys and values that a thread evaluates ahead of their use, and the seconds of
/// each.
const HELD: usize = 96;
const EVALUATED: f64 = 2e-8;
/// The number of 16-bit elements in a line of 128 bytes.
const LINE: usize = 64;

/// Rates of one processor per second: 16-bit multiply-adds on warpgroup units and on warp units, elementary functions,
/// simple operations, bytes from memory, and bytes from the cache.
const WARPGROUP_RATE: f64 = 3.8e12;
const WARP_RATE: f64 = 1.2e12;
const EXPONENTIALS: f64 = 2.9e10;
const SIMPLE: f64 = 1.5e11;
const MEMORY: f64 = 3.2e10;
const CACHE: f64 = 7.0e10;
/// The share of a bias's operations that is not hidden behind multiplications of other warps.
const WARP_BIAS: f64 = 0.7;
/// Seconds of a block before its first tile and after its last, and seconds of the launch that joins splits.
const ENDS: f64 = 2.5e-6;
const JOIN: f64 = 2.5e-6;

impl Groups {
    /// Returns the bytes of shared memory per block.
    pub fn shared(&self, keys: usize, [depth, columns]: [usize; 2]) -> usize {
        let lines = |n: usize| n.next_multiple_of(LINE);
        let queries = 64 * self.count;
        let tiles = 2 * (queries * lines(depth) + self.stages * keys * (lines(depth) + lines(columns)));
        let results = queries * (columns + 4) * 4;
        tiles.max(results) + 4 * 8 * self.stages
    }

    /// Returns the registers that remain per multiplying thread for a bias.
    pub fn room(&self, keys: usize, columns: usize) -> usize {
        let taken = columns / 2 + keys / 2 + keys / 4 + OTHER_REGISTERS[0] + BIAS_REGISTERS;
        self.registers[1].saturating_sub(taken)
    }

    fn fits(&self, problem: &AttentionProblem, keys: usize, [depth, columns]: [usize; 2]) -> bool {
        let bias = if problem.bias.is_some() { BIAS_REGISTERS } else { 0 };
        let most = self.registers[1];
        // The compiler limits registers to the number that each thread has at the start, before warpgroups exchange
        // them.
        let at_start = 65536 / (128 * (self.count + 1) * self.resident) / 8 * 8;
        let shared = self.shared(keys, [depth, columns]);
        columns / 2 + keys / 2 + keys / 4 + OTHER_REGISTERS[0] + bias <= most
            && keys.max(columns) / 2 + OTHER_REGISTERS[1] <= at_start
            && shared <= problem.shape.shared
            && self.resident * (shared + 1024) <= problem.shape.shared + 1024
    }
}

/// Returns the number of waves, for `resident` blocks per processor.
fn waves(shape: &DeviceShape, blocks: usize, resident: usize) -> f64 {
    let at_once = shape.processors * resident;
    // Small blocks start whenever another one ends. Large blocks start in waves and wait for the slowest.
    if resident > 1 { (blocks as f64 / at_once as f64).max(1.0) } else { blocks.div_ceil(at_once) as f64 }
}

/// Returns the numbers of splits of the keys to try: one, and as many as fill the processors.
fn splits(shape: &DeviceShape, blocks: usize, resident: usize, tiles: usize) -> Vec<usize> {
    let full = shape.processors * resident / blocks.max(1);
    let most = (tiles / 2).max(1);
    let mut all = vec![1, full.min(most), (full / 2).min(most)];
    all.retain(|&n| n > 0);
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns all schedules on matrix units.
pub fn ways(problem: &AttentionProblem) -> Vec<AttentionWay> {
    let Some(element) = problem.unit else { return Vec::new() };
    let [depth, columns] = [problem.extents[2], problem.extents[4]].map(|n| n.max(1).next_multiple_of(16));
    let schedules = UnitSchedules { problem, element, depth, columns };
    // The shim of host tests has no clusters, and lacks some instructions of warpgroups.
    let has_warpgroups = problem.shape.cluster > 1 && element.size == 2;
    let mut all = if has_warpgroups { schedules.of_warpgroups() } else { Vec::new() };
    all.extend(schedules.of_warps());
    all
}

/// The schedules of an attention on matrix units.
struct UnitSchedules<'a> {
    problem: &'a AttentionProblem<'a>,
    element: UnitElement,
    /// Depth and columns, padded to whole instructions.
    depth: usize,
    columns: usize,
}

/// The tiles of scores that a processor computes at once, in all of its blocks.
struct ScoreTiles {
    scores: usize,
    /// Multiply-adds per second.
    rate: f64,
    /// The keys of these tiles, and the number of blocks that read the same keys.
    keys: usize,
    readers: usize,
    /// Simple operations of the bias per score.
    bias: f64,
}

/// The seconds of a step: those of its arithmetic and those of its loads.
struct StepTime {
    busy: f64,
    memory: f64,
}

impl UnitSchedules<'_> {
    /// Returns the seconds of a schedule with `resident` blocks per processor, whose steps take `step` seconds.
    fn seconds(&self, way: &AttentionWay, resident: usize, step: f64) -> f64 {
        let AttentionProblem { shape, extents: [b, s, _, t, _], .. } = *self.problem;
        let blocks = (b * s.div_ceil(way.queries) * way.splits).max(1);
        let tiles = t.div_ceil(way.keys).div_ceil(way.splits) as f64;
        let visible = self.problem.visible(way.queries, way.keys);
        let stored = (blocks as f64 * self.problem.stored(way.queries)).ceil() as usize;
        // If a processor has fewer blocks than it can hold, only these blocks share its units.
        let resident = resident.min(blocks.div_ceil(shape.processors)).max(1);
        let join = if way.splits > 1 { JOIN } else { 0.0 };
        let (of_block, longest) = (ENDS + tiles * visible * step, ENDS + tiles * step);
        if visible < 1.0 {
            // Blocks take different times, and the longest ones start first. At the end some processors wait for part
            // of a block.
            let full = blocks as f64 / (shape.processors * resident) as f64;
            return (full * of_block + 0.3 * longest).max(longest) + join;
        }
        waves(shape, stored, resident) * of_block + join
    }

    /// Returns the seconds in which a processor computes tiles of scores.
    fn step(&self, tiles: &ScoreTiles) -> StepTime {
        let scores = tiles.scores as f64;
        let products = scores * (self.depth + self.columns) as f64 / tiles.rate;
        let softmax = scores / EXPONENTIALS + scores * tiles.bias / SIMPLE;
        let bytes = (tiles.keys * (self.depth + self.columns) * self.element.size) as f64;
        // If several blocks read the same keys, they read them from the cache.
        StepTime { busy: products + softmax, memory: bytes / if tiles.readers > 1 { CACHE } else { MEMORY } }
    }

    /// Returns the schedules on warpgroup units.
    fn of_warpgroups(&self) -> Vec<AttentionWay> {
        let (problem, depth, columns) = (self.problem, self.depth, self.columns);
        let AttentionProblem { shape, extents: [b, s, _, t, _], .. } = *problem;
        let mut all = Vec::new();
        for groups in GROUPS {
            for keys in KEYS.into_iter().filter(|&keys| groups.fits(problem, keys, [depth, columns])) {
                let bias = problem.bias_operations(keys, groups.room(keys, columns));
                let queries = 64 * groups.count;
                let readers = s.div_ceil(queries);
                let blocks = b * readers;
                for splits in splits(shape, blocks, groups.resident, t.div_ceil(keys)) {
                    let at_once = groups.resident.min((blocks * splits).div_ceil(shape.processors)).max(1);
                    let (scores, of_all) = (queries * keys * at_once, keys * at_once);
                    let StepTime { busy, memory } =
                        self.step(&ScoreTiles { scores, rate: WARPGROUP_RATE, keys: of_all, readers, bias });
                    // Three warpgroups alternate at the matrix units without waiting. Three blocks wait for each other
                    // at the units.
                    let waiting = match (groups.count, groups.resident) {
                        (3, _) => 0.1e-6,
                        (_, 3) => 0.3e-6,
                        _ => 0.25e-6,
                    };
                    let way = AttentionWay { units: Units::Warpgroups(groups), queries, keys, splits, seconds: 0.0 };
                    let seconds = self.seconds(&way, groups.resident, (busy + waiting).max(memory));
                    all.push(AttentionWay { seconds, ..way });
                }
            }
        }
        all
    }

    /// Returns the schedules on the units of warps.
    fn of_warps(&self) -> Vec<AttentionWay> {
        let (problem, depth, columns) = (self.problem, self.depth, self.columns);
        let AttentionProblem { shape, extents: [b, s, _, t, _], .. } = *problem;
        let is_computed = problem.computes_keys();
        let mut all = Vec::new();
        for (queries, keys) in WARP_TILES {
            let bytes = problem.warps_shared(self.element, queries, keys);
            let registers = problem.warps_registers(queries, keys);
            let by_registers = REGISTERS / (2 * queries * registers.next_multiple_of(8));
            let resident = ((shape.shared + 1024) / (bytes + 1024)).min(by_registers).min(MOST_WARPS / (queries / 16));
            if bytes > shape.shared || resident == 0 || !is_computed && keys < 32 && t > 16 {
                continue;
            }
            // An evaluated element stays in the thread's registers until the previous tile is consumed.
            let evaluated = if is_computed { keys * (depth + columns) / (2 * queries) } else { 0 };
            if evaluated > HELD {
                continue;
            }
            let bias = WARP_BIAS * problem.bias_operations(keys, problem.warps_room(queries, keys, resident));
            let readers = s.div_ceil(queries);
            let blocks = b * readers;
            // Warps without queries do no work, and missing keys of a partial last tile are not computed.
            let [of_queries, of_keys] = [(s, queries), (t, keys)]
                .map(|(n, by)| n.next_multiple_of(16).max(1) as f64 / (n.div_ceil(by).max(1) * by) as f64);
            for splits in splits(shape, blocks, resident, t.div_ceil(keys)) {
                let at_once = resident.min((blocks * splits).div_ceil(shape.processors)).max(1);
                let rate = 2.0 / self.element.size as f64 * WARP_RATE;
                let (scores, of_all) = (queries * keys * at_once, keys * at_once);
                let StepTime { busy, memory } = self.step(&ScoreTiles { scores, rate, keys: of_all, readers, bias });
                // A warp runs its steps in sequence. Few warps do not fill the processor, and a single warp loads all
                // keys itself.
                let [hidden, first] = if queries == 16 { [1.8, 2.0e-6] } else { [1.4, 0.6e-6] };
                let alone = first + (keys * (depth + columns)) as f64 * 1.0e-10 + evaluated as f64 * EVALUATED;
                let way = AttentionWay { units: Units::Warps(resident), queries, keys, splits, seconds: 0.0 };
                let step = (busy * hidden * of_queries * of_keys).max(memory).max(alone);
                all.push(AttentionWay { seconds: self.seconds(&way, resident, step), ..way });
            }
        }
        all
    }
}

/// Prints a kernel's attention with the fastest predicted schedule.
///
/// # Errors
/// Returns the reasons why it cannot be printed.
pub fn print(shape: &DeviceShape, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
    let problem = AttentionProblem::of(shape, kernel)
        .ok_or_else(|| vec!["cannot print attention because the kernel has none".to_string()])?;
    let way = ways(&problem).into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
    problem.print(&way.unwrap_or_else(|| problem.by_threads()))
}

/// Returns the schedules of a kernel's attention with their predicted seconds; an empty list for other kernels.
pub fn expected(shape: &DeviceShape, kernel: &Kernel) -> Vec<(String, f64)> {
    let problem = AttentionProblem::of(shape, kernel);
    problem.map_or_else(Vec::new, |problem| ways(&problem).iter().map(|way| (way.name(), way.seconds)).collect())
}

/// Returns all schedules of a kernel's attention; an empty list for other kernels.
pub fn all(shape: &DeviceShape, kernel: &Kernel) -> Vec<PrintedWay> {
    let Some(problem) = AttentionProblem::of(shape, kernel).filter(|problem| problem.unit.is_some()) else {
        return Vec::new();
    };
    let printed =
        |way: AttentionWay| PrintedWay { name: way.name(), seconds: way.seconds, printed: problem.print(&way) };
    ways(&problem).into_iter().map(printed).collect()
}
