//! What a kernel takes, by roofline: bytes of its distinct loads and stores, arithmetic that it really does, its launch, and how full its
//! waves of blocks are. Coefficients are data, fitted for a device.

use eutectic_backend::{
    Body, Cost, Guard, Instr, Kernel, Store,
    fit::{Fitted, Measured, coefficients, off_by_time},
};
use eutectic_ir::{
    Type,
    index::{Atom, Index},
    ops::Writes,
};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{
    device::DeviceShape,
    kernels::{
        direct::{Direct, Rates},
        in_block::InBlock,
        in_order::split_stores,
        rows::{Rows, order, ranking::Ranking, split_rankings, split_scans},
    },
};

/// What a device may not need at all.
const MAY_BE_NOTHING: [&str; 11] = [
    "launch",
    "latency",
    "turn",
    "exchange",
    "contended",
    "evaluated",
    "gathered",
    "product",
    "across",
    "attention_block",
    "score_bias",
];
/// Threads that exchange values in registers, on most devices.
const TOGETHER: usize = 32;

/// Coefficients of a device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Seconds of a launch that does nothing, as a part of a recorded run.
    pub launch: f64,
    /// Seconds from the start of a kernel to the end, whatever little it does.
    pub latency: f64,
    /// Seconds in which the threads of a row exchange a number and scan a point each, or a few neighbours: the next points wait for them.
    pub turn: f64,
    /// Seconds of one step of a ranking: each thread of a block accesses a few elements in shared memory and waits at a barrier.
    pub exchange: f64,
    /// Seconds of an atomic on an element that all other atomics of the kernel update, too. Over n elements, the time is divided by √n.
    pub contended: f64,
    /// Bytes a second, from memory.
    pub bandwidth: f64,
    /// Bytes a second of kernels all of whose bytes fit into the cache.
    pub cached: f64,
    /// Bytes a second that all processors read, from wherever: what is read again is near.
    pub near: f64,
    /// Bytes of the cache that are there for a kernel.
    pub cache: f64,
    /// Operations a second of pointwise expressions.
    pub pointwise: f64,
    /// Neighbours, at most, for which a thread finds once where they lie: as many as the innermost extent is a multiple of.
    pub lanes: f64,
    /// Multiplications and additions a second, in 32 bits.
    pub fma: f64,
    /// The same in 64 bits.
    pub wide: f64,
    /// The same of 16-bit operands, on matrix units.
    pub matrix: f64,
    /// The same of 32-bit operands of which eleven significant bits are enough.
    pub tf32: f64,
    /// Seconds by which 64 terms of the depth, or 64 keys, take longer on matrix units for each operand that threads evaluate on its way to them.
    pub evaluated: f64,
    /// Seconds that a read adds to a product in tiles, where the operand is no matrix in memory, such as windows. Several neighbours are one read.
    pub gathered: f64,
    /// Seconds of a product before its first terms are there and after its last, unless it has a few rows or columns.
    pub product: f64,
    /// Seconds by which a product of a few rows takes longer where the right operand does not lie along the sums.
    pub across: f64,
    /// Seconds of a block of an attention before its first keys and after its last.
    pub attention_block: f64,
    /// Operations that reading an element of a bias takes.
    pub score_bias: f64,
    /// Operations a second of attention, in 32 bits.
    pub attention: f64,
    /// The same of 16-bit operands, on matrix units.
    pub matrix_attention: f64,
    /// The same of 32-bit operands of which eleven significant bits are enough.
    pub tf32_attention: f64,
}

/// Bytes that memory moves at once: those of an atomic, there and back, and those of threads that read or write neighbours.
const SECTOR: f64 = 32.0;
/// Fewest points of a map whose access to memory is looked at: the time of smaller maps is that of the launch.
const MANY: f64 = 1e5;

impl Costs {
    /// From a file.
    ///
    /// # Errors
    /// What of it is not right, with its line.
    pub fn read(text: &str) -> Result<Costs, String> {
        let costs: Costs = toml::from_str(text).map_err(|e| e.to_string())?;
        let table = toml::Table::try_from(costs).map_err(|e| e.to_string())?;
        for (name, x) in table.iter().filter_map(|(name, x)| Some((name, x.as_float()?))) {
            if !(x > 0.0 && x.is_finite() || x == 0.0 && MAY_BE_NOTHING.contains(&&**name)) {
                return Err(format!("{name}: {x} is no cost: it must be positive and finite"));
            }
        }
        Ok(costs)
    }

    /// Costs near these, of devices of that shape, that predict what was measured as well as can be.
    pub fn fit(&self, shape: &DeviceShape, measured: &[Measured]) -> Option<Fitted> {
        let table = toml::Table::try_from(self).ok()?;
        let start: Vec<f64> = table.values().map(toml::Value::as_float).collect::<Option<_>>()?;
        let of = |numbers: &[f64]| -> Option<Costs> {
            let values = numbers.iter().map(|&number| toml::Value::Float(number));
            table.keys().cloned().zip(values).collect::<toml::Table>().try_into().ok()
        };
        let predicted =
            |costs: &Costs| measured.iter().map(|m| costs.cost(shape, &m.kernel).seconds).collect::<Vec<_>>();
        let error = |costs: Costs| off_by_time(predicted(&costs).into_iter().zip(measured.iter().map(|m| m.seconds)));
        let found = of(&coefficients(&start, |numbers| of(numbers).map_or(f64::INFINITY, error)))?;
        Some(Fitted { file: toml::to_string(&found).ok()?, before: predicted(self), after: predicted(&found) })
    }

    /// Returns the price of a kernel: the sum over its launches where it has several.
    pub fn cost(&self, shape: &DeviceShape, kernel: &Kernel) -> Cost {
        match stages(shape, kernel) {
            Ok(Some(launches)) => self.sum(shape, &launches),
            Ok(None) => self.rows(shape, kernel),
            Err(_) => Cost::IMPOSSIBLE,
        }
    }

    fn sum(&self, shape: &DeviceShape, launches: &[Kernel]) -> Cost {
        let each: Vec<Cost> = launches.iter().map(|launch| self.cost(shape, launch)).collect();
        let sum = |of: fn(&Cost) -> f64| each.iter().map(of).sum();
        Cost { seconds: sum(|cost| cost.seconds), flops: sum(|cost| cost.flops), bytes: sum(|cost| cost.bytes) }
    }

    /// Returns the price of a kernel with the turns of its rows.
    fn rows(&self, shape: &DeviceShape, kernel: &Kernel) -> Cost {
        let scans: f64 = kernel.body.instrs.iter().filter_map(scanned).sum();
        let rankings = Ranking::all(&kernel.body.instrs);
        let rows = (scans > 0.0 || !rankings.is_empty()).then(|| Rows::of(kernel, shape, |_| TOGETHER)).flatten();
        let Some(rows) = rows else { return self.launched(shape, kernel, 0.0) };
        if let Some(launches) = split_scans(&rows) {
            return self.sum(shape, &launches);
        }
        let ranked: f64 = rankings.iter().map(|ranking| self.ranking(&rows, ranking)).sum();
        self.launched(shape, kernel, rows.turns() * scans * self.turn + ranked)
    }

    /// Returns the seconds of a ranking: threads read and write keys and places in shared memory, and wait for each other.
    fn ranking(&self, rows: &Rows<'_>, ranking: &Ranking) -> f64 {
        let [count, points] = [0, 1].map(|axis| rows.nest.domain[axis]);
        let [bytes, waits] = ranking.work(points);
        count as f64 * bytes / self.near + waits * self.exchange * rows.waves()
    }

    /// Returns the price of one launch. Scans and rankings add `turns`, the seconds in which the threads of a row wait for each other.
    fn launched(&self, shape: &DeviceShape, kernel: &Kernel, turns: f64) -> Cost {
        let domain = &kernel.body.domain;
        let own = self.expressions(&kernel.body, &kernel.stores);
        let orders = orders(kernel);
        let moved = |order: &Vec<usize>| {
            accesses(kernel).map(|(at, size)| sectors(at, domain, order, size) * size as f64).sum::<f64>()
        };
        let order = orders.iter().min_by(|a, b| moved(a).total_cmp(&moved(b)));
        // Tiles are read in the order of memory.
        let sectors = |at: &Index, size: usize| order.map_or(1.0, |order| sectors(at, domain, order, size));
        // For each buffer: the bytes that threads ask for, and the bytes that memory moves for them.
        let mut seen: Vec<(usize, [f64; 2])> = Vec::new();
        let mut read = 0.0;
        for body in kernel.bodies() {
            for instr in &body.instrs {
                if let Instr::Load(load) = instr {
                    let (dtype, count) = kernel.slots[load.slot];
                    let elements = touched(&load.at, &body.domain).min(count as f64);
                    let sectors = sectors(&load.at, dtype.size());
                    let bytes = elements * dtype.size() as f64;
                    read += points(&body.domain) * dtype.size() as f64 * sectors;
                    // Loads by other maps may be of other elements.
                    let all = (count * dtype.size()) as f64;
                    match seen.iter_mut().find(|(slot, _)| *slot == load.slot) {
                        Some((_, [asked, moved])) => {
                            *asked = (*asked + bytes).min(all);
                            *moved = (*moved + bytes * sectors).min(all * sectors);
                        }
                        None => seen.push((load.slot, [bytes, bytes * sectors])),
                    }
                }
            }
        }
        let written = |s: &Store| {
            let (dtype, count) = kernel.slots[s.slot];
            let bytes = touched(&s.at, domain).min(count as f64) * dtype.size() as f64;
            [bytes, bytes * sectors(&s.at, dtype.size())]
        };
        let all = seen.iter().map(|(_, bytes)| *bytes).chain(kernel.stores.iter().map(written));
        let [bytes, moved] = all.fold([0.0; 2], |sum, bytes| [sum[0] + bytes[0], sum[1] + bytes[1]]);
        // Each combined value is one access to memory.
        let combined = kernel.stores.iter().filter(|store| store.writes != Writes::Apart).count() as f64;
        read += combined * points(domain) * SECTOR;
        let contended = self.contended(shape, kernel);
        let (flops, product, blocks) = self.anchor(kernel);
        let pointwise = own + self.prologues(kernel);
        // Few blocks leave processors idle, and part of the last wave does.
        let waves = (blocks / shape.processors as f64).max(1e-3);
        let full = waves / waves.ceil();
        // Of what is more than the cache, as much again is gone before it is read.
        let hit = (2.0 - bytes / self.cache).clamp(0.0, 1.0);
        let passed = moved * (hit / self.cached + (1.0 - hit) / self.bandwidth);
        let memory = passed.max(read / self.near);
        let busy = memory.max((product + pointwise / self.pointwise) / full).max(turns).max(contended);
        let busy = busy + self.waiting(shape, kernel);
        let rates = Rates { operations: self.fma / 2.0, near: self.near };
        let direct = Direct::of(kernel, shape).map_or(f64::INFINITY, |direct| direct.busy(shape, rates).max(passed));
        Cost { seconds: self.launch + self.latency + busy.min(direct), flops: flops + pointwise, bytes }
    }

    /// Returns the seconds in which atomics of stores that combine wait for those on the same bytes.
    fn contended(&self, shape: &DeviceShape, kernel: &Kernel) -> f64 {
        let tables = InBlock::of(kernel, shape);
        let domain = &kernel.body.domain;
        let of = |(n, store): (usize, &Store)| {
            let (dtype, count) = kernel.slots[store.slot];
            let beside = (SECTOR / dtype.size() as f64).max(1.0);
            // A block's copy goes to memory once; threads that have neighbours send them together.
            let is_in_block = |tables: &InBlock| tables.stores.iter().any(|copied| copied.store == n);
            let requests = match &tables {
                Some(tables) if is_in_block(tables) => (tables.blocks * count) as f64 / beside,
                _ if steps_by_one(&store.at, domain) => points(domain) / beside,
                _ => points(domain),
            };
            requests / (count as f64).max(1.0).sqrt() * self.contended
        };
        let combined = kernel.stores.iter().enumerate().filter(|(_, store)| store.writes != Writes::Apart);
        combined.map(of).sum()
    }

    /// Operations of a body's expressions over its domain.
    pub(crate) fn expressions(&self, body: &Body, stores: &[Store]) -> f64 {
        let inner = body.domain.len().saturating_sub(1);
        let whole = body.domain.last().map_or(1.0, |extent| f64::from(extent.trailing_zeros()).exp2());
        let share = 1.0 / whole.min(self.lanes).max(1.0);
        // A thread that has several neighbours finds where they lie once, unless divisions part them.
        let at = |index: &Index| {
            let parts = |(atom, _): &(Atom, i64)| match atom {
                Atom::Div(of, _) | Atom::Mod(of, _) => of.mentions(inner),
                Atom::Value(_) => true,
                Atom::Coord(_) | Atom::Extent(_) => false,
            };
            if index.terms.iter().any(parts) { 1.0 } else { share }
        };
        let flops = |instr: &Instr| match instr {
            // What elementary functions take is a few tens of instructions; the table knows which are.
            Instr::Map { op, args, dtype, .. } => {
                let arg = |&a: &usize| Type::tensor(body.instrs[a].dtype(), &[]);
                let args: Vec<_> = args.iter().map(arg).collect();
                let args: Vec<_> = args.iter().collect();
                (op.def().flops)(&args, &Type::tensor(*dtype, &[]))
            }
            Instr::Row { .. } => 1.0,
            Instr::Load(load) => {
                // What is the same for all of them is read once, too.
                let reads = if load.at.values().is_empty() && !load.at.mentions(inner) { share } else { 1.0 };
                2.0 * reads + 2.0 * load.at.terms.len() as f64 * at(&load.at)
            }
            Instr::Select { pieces, .. } => {
                let guards =
                    |(guards, _): &(Vec<Guard>, usize)| guards.iter().map(|(index, _)| at(index)).fold(0.0, f64::max);
                2.0 * pieces.iter().map(guards).sum::<f64>()
            }
            Instr::Within { .. } => 4.0,
            Instr::Coordinate { .. } => 2.0,
            Instr::Constant { .. } | Instr::Anchor { .. } => 0.0,
        };
        let each: f64 = body.instrs.iter().map(flops).sum();
        points(&body.domain) * (each + 2.0 * stores.len() as f64)
    }
}

/// Whether neighbours along the innermost axis are neighbours in memory.
fn steps_by_one(map: &Index, domain: &[usize]) -> bool {
    let last = domain.len().checked_sub(1).filter(|&axis| domain[axis] > 1);
    last.is_some_and(|axis| map.terms.iter().any(|term| *term == (Atom::Coord(axis), 1)))
}

pub(crate) fn points(domain: &[usize]) -> f64 {
    domain.iter().map(|&n| n as f64).product()
}

/// Returns how many numbers threads exchange for an element of a scan.
fn scanned(instr: &Instr) -> Option<f64> {
    let row = instr.row().filter(|row| row.is_scan())?;
    Some(if row.monoid.is_some() { 1.0 } else { 3.0 })
}

/// Returns the launches of a kernel whose rows are too long for a block, or whose stores have an order.
fn stages(shape: &DeviceShape, kernel: &Kernel) -> Result<Option<Vec<Kernel>>, Vec<String>> {
    let stages = if kernel.is_map() { split_stores(kernel, shape)? } else { split_rankings(kernel, shape)? };
    Ok(stages.map(|stages| stages.into_iter().map(|stage| stage.kernel).collect()))
}

/// Returns the maps of the loads and stores of a kernel's own body, each with the bytes of an element.
fn accesses(kernel: &Kernel) -> impl Iterator<Item = (&Index, usize)> {
    let size = |slot: usize| kernel.slots[slot].0.size();
    let loads = kernel.body.instrs.iter().filter_map(|i| if let Instr::Load(load) = i { Some(load) } else { None });
    let stores = kernel.stores.iter().map(move |store| (&store.at, size(store.slot)));
    loads.map(move |load| (&load.at, size(load.slot))).chain(stores)
}

/// Returns the orders of axes between which the schedule of a kernel chooses. Neighbouring threads are neighbours along the last axis: within a row, or
/// across rows. A product and an attention have tiles, and so no order.
fn orders(kernel: &Kernel) -> Vec<Vec<usize>> {
    let rank = kernel.body.domain.len();
    match (order(kernel), kernel.row_axes()) {
        (Some(order), Some(axes)) => {
            let mut across = order.clone();
            across.rotate_right(axes);
            vec![order, across]
        }
        _ if kernel.bodies().len() == 1 => vec![(0..rank).collect()],
        _ => Vec::new(),
    }
}

/// Returns how many bytes memory moves for a byte that neighbouring threads read or write: sectors hold elements that they do not ask for.
fn sectors(map: &Index, domain: &[usize], order: &[usize], size: usize) -> f64 {
    if points(domain) < MANY || map.affine(domain.len()).is_none() {
        return 1.0;
    }
    let place = |thread: usize| {
        let mut rest = thread;
        let mut at: SmallVec<[usize; 8]> = domain.iter().map(|_| 0).collect();
        for &axis in order.iter().rev() {
            (at[axis], rest) = (rest % domain[axis], rest / domain[axis]);
        }
        map.eval(&at, &|_| 0)
    };
    let mut places: SmallVec<[i64; TOGETHER]> = (0..TOGETHER).map(place).collect();
    places.sort_unstable();
    places.dedup();
    let fewest = (places.len() * size).div_ceil(SECTOR as usize);
    places.iter_mut().for_each(|place| *place = *place * size as i64 / SECTOR as i64);
    places.dedup();
    // Where neighbours start within a sector, the rest of it is another thread's.
    if places.len() <= fewest + 1 { 1.0 } else { places.len() as f64 / fewest as f64 }
}

/// How many elements a map can reach over a domain.
pub fn touched(map: &Index, domain: &[usize]) -> f64 {
    let indirect = map.terms.iter().any(|(atom, _)| matches!(atom, Atom::Value(_)));
    let axes = domain.iter().enumerate().filter(|(axis, _)| indirect || map.mentions(*axis));
    axes.map(|(_, &n)| n as f64).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_across_memory_move_whole_sectors() {
        let (axis, at) = (Index::coord, |n: i64| Index::constant(n));
        let domain = [1024, 512];
        for (map, size, expected) in [
            (axis(0).times(512).plus(&axis(1)), 4, 1.0),
            (axis(0).times(512).plus(&axis(1)).plus(&at(3)), 4, 1.0),
            (axis(1).times(1024).plus(&axis(0)), 4, 8.0),
            (axis(1).times(1024).plus(&axis(0)), 2, 16.0),
            (axis(0).times(1024).plus(&axis(1).times(2)), 4, 2.0),
            // All threads read one element, which others read next.
            (axis(0), 4, 1.0),
        ] {
            assert_eq!(sectors(&map, &domain, &[0, 1], size), expected, "{map}, {size} bytes");
        }
        // Interleaved channels: three threads read from three places, and the next three threads read the elements after them.
        let interleaved = axis(1).times(200_000).plus(&axis(0));
        assert!(sectors(&interleaved, &[200_000, 3], &[0, 1], 4) < 2.0);
        assert_eq!(sectors(&axis(1).times(8).plus(&axis(0)), &[8, 8], &[0, 1], 4), 1.0, "few points");
        // Threads of neighbouring rows read columns.
        assert_eq!(sectors(&axis(1).times(1024).plus(&axis(0)), &domain, &[1, 0], 4), 1.0);
    }

    #[test]
    fn a_number_that_is_no_cost_is_named() {
        let text = include_str!("../../cuda/costs/h200.toml");
        assert!(Costs::read(text).is_ok());
        let with =
            |name: &str, number: &str| text.replacen(&format!("\n{name} = "), &format!("\n{name} = {number} # "), 1);
        for (name, number) in [("latency", "-1.0"), ("fma", "0.0"), ("cache", "nan"), ("matrix", "inf")] {
            let told = Costs::read(&with(name, number)).unwrap_err();
            assert!(told.starts_with(&format!("{name}: ")) && told.contains("is no cost"), "{told}");
        }
        assert!(Costs::read(&with("evaluated", "0.0")).is_ok());
    }
}
