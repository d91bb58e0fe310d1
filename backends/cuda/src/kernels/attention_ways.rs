//! The ways of attention: which units multiply, how many queries and keys a block has at once, into how many parts the keys are cut; and what each
//! takes, by which one is chosen. Coefficients were measured on an H200.

use eutectic_backend::Kernel;
use eutectic_gpu::{device::DeviceShape, launch::Launch};

use super::{
    attention::{AttentionProblem, REGISTERS},
    attention_way::{AttentionWay, Groups, Units},
    contraction::PrintedWay,
};

/// 64 KiB of registers, by which warpgroups are shared out.
const GROUPS: [Groups; 4] = [
    Groups { count: 3, resident: 1, stages: 2, registers: [32, 160] },
    Groups { count: 2, resident: 1, stages: 2, registers: [40, 232] },
    Groups { count: 1, resident: 2, stages: 2, registers: [40, 216] },
    Groups { count: 1, resident: 3, stages: 2, registers: [32, 128] },
];
/// Keys of a tile of warpgroups.
const KEYS: [usize; 8] = [64, 80, 96, 112, 128, 144, 160, 176];
/// Registers of a thread besides tiles; and besides the operands of one instruction.
const OTHER_REGISTERS: [usize; 2] = [32, 30];
/// What the bias takes besides.
const BIAS_REGISTERS: usize = 25;
/// Queries of a block of warps, and keys of its tiles: where few warps bring many keys, too little is on its way.
const WARP_TILES: [(usize, usize); 8] =
    [(16, 16), (16, 32), (16, 64), (32, 16), (32, 32), (64, 16), (64, 32), (64, 64)];
/// Most warps of a processor.
const MOST_WARPS: usize = 64;
/// Elements of keys and values that a thread can evaluate ahead; and seconds of one.
const HELD: usize = 96;
const EVALUATED: f64 = 2e-8;
/// Elements that a line of 128 bytes holds.
const LINE: usize = 64;

/// Of a processor: multiplications and additions of 16-bit operands a second on units of warpgroups and of warps, elementary functions, simple operations,
/// and bytes from memory.
const WARPGROUP_RATE: f64 = 3.8e12;
const WARP_RATE: f64 = 1.2e12;
const EXPONENTIALS: f64 = 2.9e10;
const SIMPLE: f64 = 1.5e11;
const MEMORY: f64 = 3.2e10;
const CACHE: f64 = 7.0e10;
/// Which share of a bias's operations warps wait for: others of the processor multiply meanwhile.
const WARP_BIAS: f64 = 0.7;
/// Seconds of a block before its first tile and after its last; of another launch, that joins parts.
const ENDS: f64 = 2.5e-6;
const JOIN: f64 = 2.5e-6;

impl Groups {
    /// Bytes of shared memory of a block.
    pub fn shared(&self, keys: usize, [depth, columns]: [usize; 2]) -> usize {
        let lines = |n: usize| n.next_multiple_of(LINE);
        let queries = 64 * self.count;
        let tiles = 2 * (queries * lines(depth) + self.stages * keys * (lines(depth) + lines(columns)));
        let results = queries * (columns + 4) * 4;
        tiles.max(results) + 4 * 8 * self.stages
    }

    /// Registers of a thread that multiplies which are left, where there is a bias.
    pub fn room(&self, keys: usize, columns: usize) -> usize {
        let taken = columns / 2 + keys / 2 + keys / 4 + OTHER_REGISTERS[0] + BIAS_REGISTERS;
        self.registers[1].saturating_sub(taken)
    }

    fn fits(&self, problem: &AttentionProblem, keys: usize, [depth, columns]: [usize; 2]) -> bool {
        let bias = if problem.bias.is_some() { BIAS_REGISTERS } else { 0 };
        let most = self.registers[1];
        // What the compiler counts with is what all threads have at the start.
        let at_start = 65536 / (128 * (self.count + 1) * self.resident) / 8 * 8;
        let shared = self.shared(keys, [depth, columns]);
        columns / 2 + keys / 2 + keys / 4 + OTHER_REGISTERS[0] + bias <= most
            && keys.max(columns) / 2 + OTHER_REGISTERS[1] <= at_start
            && shared <= problem.shape.shared
            && self.resident * (shared + 1024) <= problem.shape.shared + 1024
    }
}

/// Blocks on processors, each of which runs some at once: how often all of them are full.
fn waves(shape: &DeviceShape, blocks: usize, resident: usize) -> f64 {
    let at_once = shape.processors * resident;
    // Small blocks start whenever another one ends; large ones wait for the slowest.
    if resident > 1 { (blocks as f64 / at_once as f64).max(1.0) } else { blocks.div_ceil(at_once) as f64 }
}

/// Parts of the keys that keep processors busy: none, or as many as run at once.
fn splits(shape: &DeviceShape, blocks: usize, resident: usize, tiles: usize) -> Vec<usize> {
    let full = shape.processors * resident / blocks.max(1);
    let most = (tiles / 2).max(1);
    let mut all = vec![1, full.min(most), (full / 2).min(most)];
    all.retain(|&n| n > 0);
    all.sort_unstable();
    all.dedup();
    all
}

/// All ways of a problem on matrix units.
pub fn ways(problem: &AttentionProblem) -> Vec<AttentionWay> {
    let Some(element) = problem.unit else { return Vec::new() };
    let AttentionProblem { shape, extents: [b, s, d, t, e], .. } = *problem;
    let [depth, columns] = [d, e].map(|n| n.max(1).next_multiple_of(16));
    let mut all = Vec::new();
    let seconds = |way: &AttentionWay, resident: usize, step: f64| {
        let blocks = (b * s.div_ceil(way.queries) * way.splits).max(1);
        let tiles = t.div_ceil(way.keys).div_ceil(way.splits) as f64;
        let visible = problem.visible(way.queries, way.keys);
        let stored = (blocks as f64 * problem.stored(way.queries)).ceil() as usize;
        // What is missing of a processor's blocks, the others do not wait for.
        let resident = resident.min(blocks.div_ceil(shape.processors)).max(1);
        let join = if way.splits > 1 { JOIN } else { 0.0 };
        let (of_block, longest) = (ENDS + tiles * visible * step, ENDS + tiles * step);
        if visible < 1.0 {
            // Blocks differ, and the longest go first: at the end some processors wait for a part of one.
            let full = blocks as f64 / (shape.processors * resident) as f64;
            return (full * of_block + 0.3 * longest).max(longest) + join;
        }
        waves(shape, stored, resident) * of_block + join
    };
    // A tile of scores on a processor, all of its blocks together.
    let step = |scores: usize, rate: f64, [keys_of_all, blocks_of_keys]: [usize; 2], bias: f64| {
        let scores = scores as f64;
        let products = scores * (depth + columns) as f64 / rate;
        let softmax = scores / EXPONENTIALS + scores * bias / SIMPLE;
        let bytes = (keys_of_all * (depth + columns) * element.size) as f64;
        // Keys that several blocks read, they read from the cache.
        [products + softmax, bytes / if blocks_of_keys > 1 { CACHE } else { MEMORY }]
    };
    // The tests' host, which has no clusters, has not all that these take of warpgroups.
    if shape.cluster > 1 && element.size == 2 {
        for groups in GROUPS {
            for keys in KEYS.into_iter().filter(|&keys| groups.fits(problem, keys, [depth, columns])) {
                let bias = problem.bias_operations(keys, groups.room(keys, columns));
                let queries = 64 * groups.count;
                let blocks = b * s.div_ceil(queries);
                for splits in splits(shape, blocks, groups.resident, t.div_ceil(keys)) {
                    let at_once = groups.resident.min((blocks * splits).div_ceil(shape.processors)).max(1);
                    let [busy, memory] =
                        step(queries * keys * at_once, WARPGROUP_RATE, [keys * at_once, s.div_ceil(queries)], bias);
                    // Three take turns so that none waits; three blocks wait for each other's.
                    let waiting = match (groups.count, groups.resident) {
                        (3, _) => 0.1e-6,
                        (_, 3) => 0.3e-6,
                        _ => 0.25e-6,
                    };
                    let way = AttentionWay { units: Units::Warpgroups(groups), queries, keys, splits, seconds: 0.0 };
                    all.push(AttentionWay {
                        seconds: seconds(&way, groups.resident, (busy + waiting).max(memory)),
                        ..way
                    });
                }
            }
        }
    }
    let is_computed = problem.computes_keys();
    for (queries, keys) in WARP_TILES {
        let bytes = problem.warps_shared(element, queries, keys);
        let registers = problem.warps_registers(queries, keys);
        let by_registers = REGISTERS / (2 * queries * registers.next_multiple_of(8));
        let resident = ((shape.shared + 1024) / (bytes + 1024)).min(by_registers).min(MOST_WARPS / (queries / 16));
        if bytes > shape.shared || resident == 0 || !is_computed && keys < 32 && t > 16 {
            continue;
        }
        // What a thread evaluates lies in its registers until the tile before is used.
        let evaluated = if is_computed { keys * (depth + columns) / (2 * queries) } else { 0 };
        if evaluated > HELD {
            continue;
        }
        let bias = WARP_BIAS * problem.bias_operations(keys, problem.warps_room(queries, keys, resident));
        let blocks = b * s.div_ceil(queries);
        // Warps without queries, and keys of a last tile that is cut off, are not computed.
        let [of_queries, of_keys] = [(s, queries), (t, keys)]
            .map(|(n, by)| n.next_multiple_of(16).max(1) as f64 / (n.div_ceil(by).max(1) * by) as f64);
        for splits in splits(shape, blocks, resident, t.div_ceil(keys)) {
            let at_once = resident.min((blocks * splits).div_ceil(shape.processors)).max(1);
            let rate = 2.0 / element.size as f64 * WARP_RATE;
            let [busy, memory] = step(queries * keys * at_once, rate, [keys * at_once, s.div_ceil(queries)], bias);
            // Each warp does one after the other; few do not fill the processor, and one alone brings all keys itself.
            let [hidden, first] = if queries == 16 { [1.8, 2.0e-6] } else { [1.4, 0.6e-6] };
            let alone = first + (keys * (depth + columns)) as f64 * 1.0e-10 + evaluated as f64 * EVALUATED;
            let way = AttentionWay { units: Units::Warps(resident), queries, keys, splits, seconds: 0.0 };
            let step = (busy * hidden * of_queries * of_keys).max(memory).max(alone);
            all.push(AttentionWay { seconds: seconds(&way, resident, step), ..way });
        }
    }
    all
}

/// Prints a kernel's attention in the way that takes the least time.
///
/// # Errors
/// What cannot be printed.
pub fn print(shape: &DeviceShape, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
    let problem = AttentionProblem::of(shape, kernel).ok_or_else(|| vec!["no attention".to_string()])?;
    let way = ways(&problem).into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
    problem.print(&way.unwrap_or_else(|| problem.by_threads()))
}

/// Returns the ways to compute a kernel's attention, with the seconds that each is expected to take; none of another kernel.
pub fn expected(shape: &DeviceShape, kernel: &Kernel) -> Vec<(String, f64)> {
    let problem = AttentionProblem::of(shape, kernel);
    problem.map_or_else(Vec::new, |problem| ways(&problem).iter().map(|way| (way.name(), way.seconds)).collect())
}

/// All ways to compute a kernel's attention; none of another kernel.
pub fn all(shape: &DeviceShape, kernel: &Kernel) -> Vec<PrintedWay> {
    let Some(problem) = AttentionProblem::of(shape, kernel).filter(|problem| problem.unit.is_some()) else {
        return Vec::new();
    };
    let printed =
        |way: AttentionWay| PrintedWay { name: way.name(), seconds: way.seconds, printed: problem.print(&way) };
    ways(&problem).into_iter().map(printed).collect()
}
