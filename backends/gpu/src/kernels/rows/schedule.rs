//! Chooses how many threads share a row, and how many rows a block has.

use eutectic_backend::{Instr, Kernel, Load, axes::Nest};
use eutectic_ir::{DType, index::Index};

use super::{
    ranking::{RankedRows, SORTED},
    team_scan::{GROUPS, Scan},
};
use crate::{device::DeviceShape, dialect::Team, lanes::SplitAxis};

/// The number of threads of a block that several short rows share.
const BLOCK: usize = 128;
/// Elements of neighbouring rows that a block reads at once: a cache line of 128 bytes if elements have 32 bits.
const NEIGHBOURS: usize = 32;
/// The minimal number of contiguous bytes that a block reads if fewer than half of the processors have a block: half a
/// cache line.
const LEAST_BYTES: usize = 64;
/// The number of point groups per thread from which on a row is split over several blocks.
const LEAST: usize = 2;
/// The maximal number of elements per thread of a selection.
const SELECTED: usize = 8;
/// The number of threads that exchange values in registers (a warp), on most devices.
const TOGETHER: usize = 32;
/// The minimal number of neighbouring rows that neighbouring threads rank.
const RANKED_ROWS: usize = 8;
/// Threads that are resident on a processor at once.
pub(crate) const RESIDENT: usize = 2048;

/// A kernel's rows, and their schedule.
pub(crate) struct Rows<'a> {
    pub kernel: &'a Kernel,
    pub shape: &'a DeviceShape,
    pub nest: Nest,
    pub schedule: Schedule,
}

impl<'a> Rows<'a> {
    /// Returns the rows of a kernel with their schedule. `together` gives the number of threads that exchange values of
    /// a type in registers.
    pub fn of(kernel: &'a Kernel, shape: &'a DeviceShape, together: impl Fn(DType) -> usize) -> Option<Rows<'a>> {
        let nest = flat(kernel)?;
        let scanned = nest.instrs.iter().filter_map(Scan::of).map(|scan| together(scan.dtype)).min();
        let ranked = RankedRows::of(&nest.instrs, shape, nest.domain[1]);
        let schedule = Schedule::of(&nest, &kernel.slots, shape, scanned, ranked);
        Some(Rows { kernel, shape, nest, schedule })
    }

    /// Returns the number of row groups and of point groups. A thread processes one group at once.
    pub fn groups(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.schedule.lanes.domain(&self.nest.domain)[axis])
    }

    /// Returns the number of threads of all rows.
    pub fn threads(&self) -> usize {
        self.groups()[0] * self.schedule.team.threads
    }

    /// Returns the number of waves: blocks over the number of blocks that run at once.
    pub fn waves(&self) -> f64 {
        (self.threads() as f64 / (self.shape.processors * RESIDENT) as f64).max(1.0)
    }

    /// Returns the number of sequential iterations over a row, times the number of waves of blocks.
    pub fn turns(&self) -> f64 {
        self.groups()[1].div_ceil(self.schedule.team.threads) as f64 * self.waves()
    }
}

/// Returns the order of the axes in which a kernel visits the points of its rows. The last axis is the one along which
/// most accesses are contiguous. `None` if an operation other than a reduction depends on the order.
pub(crate) fn order(kernel: &Kernel) -> Option<Vec<usize>> {
    let rank = kernel.body.domain.len();
    let outer = rank - kernel.row_axes()?;
    let mut order: Vec<usize> = (0..rank).collect();
    if kernel.body.instrs.iter().any(|instr| instr.row().is_some() && instr.reduction().is_none()) {
        return Some(order);
    }
    let loads =
        kernel.body.instrs.iter().filter_map(|i| if let Instr::Load(l) = i { Some((l.slot, &l.at)) } else { None });
    let accesses: Vec<(usize, &Index)> =
        loads.chain(kernel.stores.iter().map(|store| (store.slot, &store.at))).collect();
    let bytes = |axis: usize| -> usize {
        let size = |&(slot, at): &(usize, &Index)| size_beside(at, axis, rank, kernel.slots[slot].0);
        accesses.iter().filter_map(size).sum()
    };
    let several = (outer..rank).filter(|&axis| kernel.body.domain[axis] > 1);
    if let Some(nearest) = several.max_by_key(|&axis| (bytes(axis), axis)) {
        order.retain(|&axis| axis != nearest);
        order.push(nearest);
    }
    Some(order)
}

/// Returns the nest of a kernel with two axes: rows, and points of a row.
pub(crate) fn flat(kernel: &Kernel) -> Option<Nest> {
    let axes = kernel.row_axes()?;
    let outer = kernel.body.domain.len() - axes;
    let nest = Nest::new(&kernel.body, &kernel.stores);
    let order = order(kernel)?;
    let nest = if order.is_sorted() { nest } else { nest.permuted(&order) };
    Some(nest.flat(outer, axes).flat(0, outer))
}

/// Returns the bytes of an element, if neighbours along an axis are neighbours in memory.
fn size_beside(map: &Index, axis: usize, rank: usize, dtype: DType) -> Option<usize> {
    let mut at = vec![0; rank];
    let before = map.eval(&at, &|_| 0);
    at[axis] = 1;
    ((map.eval(&at, &|_| 0) - before).abs() == 1).then(|| dtype.size())
}

/// The assignment of rows to threads and blocks.
pub(crate) struct Schedule {
    pub team: Team,
    pub lanes: SplitAxis,
}

impl Schedule {
    /// Assigns the rows of a nest to threads. `scanned` is the number of neighbouring threads that exchange values in
    /// registers, if rows are scanned. `ranked` is the memory that rankings take, if rows are ranked.
    fn of(
        nest: &Nest,
        slots: &[(DType, usize)],
        shape: &DeviceShape,
        scanned: Option<usize>,
        ranked: Option<RankedRows>,
    ) -> Schedule {
        let size_beside = |axis: usize, slot: usize, map: &Index| size_beside(map, axis, 2, slots[slot].0);
        let loaded = |axis: usize| {
            let of = move |i: &Instr| match i {
                Instr::Load(Load { slot, at, .. }) => size_beside(axis, *slot, at),
                _ => None,
            };
            nest.instrs.iter().filter_map(of)
        };
        let stored = |axis: usize| nest.stores.iter().filter_map(move |s| size_beside(axis, s.slot, &s.at));
        let bytes = |axis: usize| loaded(axis).chain(stored(axis)).sum::<usize>();
        // The number of rows is a power of two, so that the number of threads per block is a power of two, too.
        let points = nest.domain[1];
        let at_once = ranked.map_or(usize::MAX, |rows| 1 << rows.rows(points).checked_ilog2().unwrap_or(0));
        let is_selected = ranked.is_some_and(|rows| !rows.sorts);
        let along = bytes(1) >= bytes(0) || at_once < RANKED_ROWS;
        let most = match along {
            true => 8,
            false if ranked.is_some_and(|rows| rows.selects) => 1,
            false => 8.min(at_once / RANKED_ROWS),
        };
        let lanes = SplitAxis::best(nest, slots, usize::from(along), most);
        let [rows, points] = [0, 1].map(|axis| lanes.domain(&nest.domain)[axis].max(1));
        let team = if along {
            let threads = points.div_ceil(4).next_power_of_two().min(shape.threads);
            // A few rows that are long enough are each shared by several blocks.
            let fits = |blocks: usize| {
                scanned.is_none()
                    && ranked.is_none()
                    && blocks <= shape.cluster
                    && rows * blocks <= shape.processors
                    && points >= blocks * shape.threads * LEAST
            };
            let blocks = [8, 4, 2].into_iter().find(|&blocks| fits(blocks)).unwrap_or(1);
            // If there are enough rows, the threads of one register exchange share a row. Otherwise `GROUPS` times as
            // many do, and each thread also reads the totals of all groups.
            let most = |together: usize| match 4 * rows * together >= shape.processors * RESIDENT {
                true => together,
                false => GROUPS * together,
            };
            let points_of_row = nest.domain[1].next_power_of_two();
            let threads = match ranked {
                Some(_) if is_selected => threads.min(TOGETHER).max((points_of_row / SELECTED).min(shape.threads)),
                Some(_) => threads.max((points_of_row / SORTED).min(shape.threads)),
                None => threads,
            };
            let threads = threads.min(scanned.map_or(threads, most));
            let rows = (BLOCK / threads).clamp(1, at_once);
            let threads = if scanned.is_none() { threads.max(BLOCK / rows) } else { threads };
            Team { threads, rows, along, blocks }
        } else {
            // A block has enough rows to read whole cache lines, and few enough that each processor has a block.
            let fewest = NEIGHBOURS.min(LEAST_BYTES / loaded(0).max().unwrap_or(1));
            let least = |beside: usize| {
                let most_have_none = 2 * rows.div_ceil(beside) < shape.processors;
                (if most_have_none { fewest } else { NEIGHBOURS } / lanes.count).max(1)
            };
            let mut beside = rows.next_power_of_two().min(32);
            while beside > least(beside) && rows.div_ceil(beside) < shape.processors {
                beside /= 2;
            }
            let wanted = (shape.processors * shape.threads / rows).next_power_of_two();
            let threads = wanted.min(points.next_power_of_two()).clamp(1, shape.column_threads / beside);
            let threads = threads.min(scanned.map_or(threads, |_| GROUPS));
            let rows = beside.max(BLOCK / threads).min(at_once / lanes.count);
            let threads = if scanned.is_none() { threads.max(BLOCK / rows) } else { threads };
            Team { threads, rows, along, blocks: 1 }
        };
        let most = if along { shape.threads } else { shape.column_threads };
        let team = if ranked.is_some_and(|rows| rows.sorts) { of_sorts(team, (nest, lanes), most) } else { team };
        Schedule { team, lanes }
    }
}

/// Returns the team with enough threads to sort its rows, in a block of at most `most` threads.
fn of_sorts(team: Team, (nest, lanes): (&Nest, SplitAxis), most: usize) -> Team {
    let at_once = if lanes.axis == 0 { lanes.count } else { 1 };
    let needed = (at_once * nest.domain[1].div_ceil(SORTED)).next_power_of_two();
    let threads = team.threads.max(needed.min(most));
    Team { threads, rows: team.rows.min(most / threads).max(1), ..team }
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{Body, Store};
    use eutectic_ir::ops::Reduction;

    use super::*;

    /// Returns the schedule of summing the columns of a matrix.
    fn of_columns(lines: usize, columns: usize, dtype: DType) -> Schedule {
        let at = eutectic_ir::index::flatten(&[Index::coord(1), Index::coord(0)], &[lines, columns]);
        let load = Instr::Load(Load { slot: 0, at, guards: Vec::new(), dtype });
        let sum = Instr::reduce(Reduction::Sum, 0, DType::F32);
        let slots = [(dtype, lines * columns), (DType::F32, columns)];
        let body = Body { domain: vec![columns, lines], instrs: vec![load, sum], ..Body::default() };
        let nest = Nest::new(&body, &[Store::new(1, Index::coord(0), 1)]);
        Schedule::of(&nest.flat(1, 1).flat(0, 1), &slots, &DeviceShape::OF_TESTS, None, None)
    }

    #[test]
    fn blocks_read_half_lines_where_few_processors_have_a_block() {
        // Each case gives the bytes of neighbouring columns that a block reads at once, and the threads per column.
        for (lines, columns, dtype, bytes, threads) in [
            // There are 64 blocks. Whole cache lines would give 32.
            (65536, 1024, DType::F32, 64, 128),
            (65536, 1024, DType::F16, 64, 128),
            // There are 128 blocks, so most processors have one.
            (8192, 4096, DType::F32, 128, 64),
            // There are enough columns for the largest blocks.
            (512, 65536, DType::F32, 512, 8),
        ] {
            let Schedule { team, lanes } = of_columns(lines, columns, dtype);
            assert_eq!((team.along, team.blocks), (false, 1));
            assert_eq!((team.rows * lanes.count * dtype.size(), team.threads), (bytes, threads), "{lines} x {columns}");
        }
    }
}
