//! A few long rows, on devices without clusters of blocks: each block reduces a part of a row, and stores the partial
//! result in the workspace for the next launch. There is one launch per level of reductions, and one for the stores.

use eutectic_backend::{
    AnchorKernel, Body, Instr, Kernel, Load, Store, ValueId,
    axes::Nest,
    reductions::{RowValues, varying},
};
use eutectic_ir::{Attrs, DType, index::Index};

use crate::{device::DeviceShape, kernels::rows::flat};

/// The number of points from which on splitting a row gains more than a further launch costs.
const MIN_SPLIT_ROW: usize = 1 << 15;
/// The maximal number of parts per row. Each thread reads the results of all parts.
const MAX_PARTS: usize = 32;

/// Returns a kernel for each launch. The buffer after those of the kernel is the workspace. Returns `None` if one block
/// per row is as fast, if a row operation is not a reduction, or if results are not of one 32-bit type.
pub fn split(kernel: &Kernel, shape: &DeviceShape) -> Option<Vec<Kernel>> {
    let nest = flat(kernel)?;
    let &[rows, points] = &nest.domain[..] else { return None };
    let most = (2 * shape.processors / rows.max(1)).min(MAX_PARTS);
    if shape.cluster > 1 || points < MIN_SPLIT_ROW || rows > shape.processors / 2 || !nest.lengths.is_empty() {
        return None;
    }
    let parts = (2..=most).rev().find(|parts| points.is_multiple_of(*parts))?;
    let nest = nest.split(1, points / parts);
    let (levels, varies) = (RowValues::of(&nest.instrs).levels(), varying(&nest.instrs, 1..3));
    let reductions: Vec<ValueId> = (0..nest.instrs.len()).filter(|&id| nest.instrs[id].row().is_some()).collect();
    let dtype = nest.instrs[*reductions.first()?].dtype();
    let is_of_type = |&id: &ValueId| nest.instrs[id].dtype() == dtype && nest.instrs[id].reduction().is_some();
    if dtype.size() != 4 || !reductions.iter().all(is_of_type) {
        return None;
    }
    let last = levels.iter().copied().max().unwrap_or(0);
    let split = SplitRows { kernel, nest, rows, parts, reductions, dtype, levels, varies };
    (0..=last).map(|stage| split.stage(stage, stage == last)).collect()
}

/// Rows that are split into parts. One block reduces each part.
struct SplitRows<'a> {
    kernel: &'a Kernel,
    /// The kernel over rows, parts and points of a part.
    nest: Nest,
    rows: usize,
    parts: usize,
    reductions: Vec<ValueId>,
    /// The type of partial results.
    dtype: DType,
    /// For each value, the length of the longest chain of reductions that it depends on.
    levels: Vec<usize>,
    /// Whether a value varies along its row.
    varies: Vec<bool>,
}

impl SplitRows<'_> {
    /// Returns the slot of the workspace.
    fn workspace(&self) -> usize {
        self.kernel.slots.len()
    }

    /// Returns the index of a part's partial result of a reduction in the workspace.
    fn place(&self, id: ValueId, part: &Index) -> Index {
        let before = self.reductions.iter().filter(|&&other| other < id).count() * self.rows * self.parts;
        Index::coord(0).times(self.parts as i64).plus(part).plus(&Index::constant(before as i64))
    }

    /// Returns the kernel of a launch, which reduces the parts of the next level's reductions. The kernel of the last
    /// launch stores the results.
    fn stage(&self, stage: usize, is_last: bool) -> Option<Kernel> {
        let (nest, workspace, dtype) = (&self.nest, self.workspace(), self.dtype);
        let mut instrs = Vec::new();
        // For each reduction whose partial results an earlier launch stored, the instruction that combines them.
        let mut whole: Vec<(ValueId, Instr)> = Vec::new();
        for &id in self.reductions.iter().filter(|&&id| self.levels[id] <= stage) {
            whole.push((id, self.combine(id, &mut instrs)?));
        }
        let by = instrs.len();
        let at: Vec<Index> = (0..nest.domain.len()).map(Index::coord).collect();
        let own = |instr: &Instr| {
            let mut new = instr.clone();
            new.substitute(&at, &|value| value + by, &nest.domain);
            new
        };
        instrs.extend(nest.instrs.iter().map(own));
        whole.into_iter().for_each(|(id, step)| instrs[by + id] = step);
        // Values with one element per row are stored by the first part only.
        let stored = |store: &Store| {
            let mut new = store.clone();
            new.substitute(&at, &|value| value + by, &nest.domain);
            let along = store.maps().any(|map| map.mentions(1) || map.mentions(2));
            if !along && !store.values().into_iter().any(|value| self.varies[value]) {
                new.guards.push((Index::coord(1), 0..1));
            }
            new
        };
        let stores = if is_last {
            nest.stores.iter().map(stored).collect()
        } else {
            let left = self.reductions.iter().filter(|&&id| self.levels[id] == stage + 1);
            left.map(|&id| Store::new(workspace, self.place(id, &Index::coord(1)), by + id)).collect()
        };
        let partial = (dtype, self.reductions.len() * self.rows * self.parts);
        Some(Kernel {
            anchor: AnchorKernel::rows(1),
            body: Body { domain: nest.domain.clone(), instrs, ..Body::default() },
            stores,
            slots: self.kernel.slots.iter().copied().chain([partial]).collect(),
        })
    }

    /// Appends instructions that combine the partial results of a reduction. The last instruction is returned instead
    /// of appended.
    fn combine(&self, id: ValueId, instrs: &mut Vec<Instr>) -> Option<Instr> {
        let (slot, dtype) = (self.workspace(), self.dtype);
        let (how, _) = self.nest.instrs[id].reduction()?;
        let first = instrs.len();
        instrs.extend((0..self.parts).map(|part| {
            let at = self.place(id, &Index::constant(part as i64));
            Instr::Load(Load { slot, at, guards: Vec::new(), dtype })
        }));
        let step = |sum: ValueId, part: usize| Instr::Map {
            op: how.op(),
            attrs: Attrs::default(),
            args: vec![sum, first + part],
            dtype,
        };
        let mut sum = first;
        for part in 1..self.parts - 1 {
            instrs.push(step(sum, part));
            sum = instrs.len() - 1;
        }
        Some(step(sum, self.parts - 1))
    }
}

#[cfg(test)]
mod tests {
    use eutectic_ir::ops::Reduction;

    use super::*;

    /// Returns a kernel of the largest element of each row, and of the distance of each element from it.
    fn distances(rows: usize, points: usize) -> Kernel {
        let at = eutectic_ir::index::flatten(&[Index::coord(0), Index::coord(1)], &[rows, points]);
        let load = Instr::Load(Load { slot: 0, at: at.clone(), guards: Vec::new(), dtype: DType::F32 });
        let reduce = Instr::reduce(Reduction::Max, 0, DType::F32);
        let op = eutectic_ir::Op::named("sub").expect("an op");
        let apart = Instr::Map { op, attrs: Attrs::default(), args: vec![0, 1], dtype: DType::F32 };
        Kernel {
            anchor: AnchorKernel::rows(1),
            body: Body { domain: vec![rows, points], instrs: vec![load, reduce, apart], ..Body::default() },
            stores: vec![Store::new(1, at, 2), Store::new(2, Index::coord(0), 1)],
            slots: vec![(DType::F32, rows * points), (DType::F32, rows * points), (DType::F32, rows)],
        }
    }

    #[test]
    fn few_long_rows_are_split_where_blocks_share_no_memory() {
        let shape = DeviceShape::OF_TESTS;
        let stages = split(&distances(3, 64_000), &shape).expect("rows in parts");
        let [first, last] = &stages[..] else { panic!("{} launches", stages.len()) };
        // 64,000 has the divisor 32, the maximal number of parts.
        assert_eq!(first.body.domain, [3, 32, 2000]);
        assert_eq!(first.slots[3], (DType::F32, 3 * 32));
        assert_eq!(first.stores.len(), 1);
        assert!(!last.body.instrs.iter().any(|instr| instr.row().is_some()));
        // The first part stores the values that are constant along the row.
        let guards: Vec<_> = last.stores.iter().map(|store| &store.guards[..]).collect();
        assert_eq!(guards, [&[][..], &[(Index::coord(1), 0..1)]]);
        assert_eq!(split(&distances(3, 64_000), &DeviceShape { cluster: 8, ..shape }), None);
        assert_eq!(split(&distances(3, 1000), &shape), None, "a short row");
        assert_eq!(split(&distances(100, 64_000), &shape), None, "rows that keep processors busy");
        assert_eq!(split(&distances(3, 65_537), &shape), None, "a prime number of points");
    }
}
