//! Rows of a few that are long, on devices whose blocks share no memory: blocks reduce a part of a row each and leave what comes of it in
//! the workspace, where the blocks of the next launch find it. There is a launch for each level of reductions, and one that stores.

use eutectic_backend::{
    AnchorKernel, Body, Instr, Kernel, Load, Store, ValueId,
    reductions::{RowValues, varying},
};
use eutectic_ir::{Attrs, index::Index};

use crate::{device::DeviceShape, kernels::rows::flat};

/// Points of a row from which on launches are shorter than what a block waits for memory.
const LONG: usize = 1 << 15;
/// Most parts of a row, of all of which each thread takes the results.
const PARTS: usize = 32;

/// The kernels of these launches: the buffer after those of the kernel is the workspace. None where a block a row does as well, where
/// an operation on rows is no reduction, or where results are not of one type of 32 bits.
pub fn split(kernel: &Kernel, shape: &DeviceShape) -> Option<Vec<Kernel>> {
    let nest = flat(kernel)?;
    let &[rows, points] = &nest.domain[..] else { return None };
    let most = (2 * shape.processors / rows.max(1)).min(PARTS);
    if shape.cluster > 1 || points < LONG || rows > shape.processors / 2 || !nest.lengths.is_empty() {
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
    let workspace = kernel.slots.len();
    // Where the result of a reduction over a part of a row lies.
    let place = |id: ValueId, part: &Index| {
        let before = reductions.iter().filter(|&&other| other < id).count() * rows * parts;
        Index::coord(0).times(parts as i64).plus(part).plus(&Index::constant(before as i64))
    };
    let last = levels.iter().copied().max().unwrap_or(0);
    let stage = |stage: usize| {
        let mut instrs = Vec::new();
        // What all parts come to, of each reduction of a launch before: all but the last step, which takes the reduction's place.
        let mut whole: Vec<(ValueId, Instr)> = Vec::new();
        for &id in reductions.iter().filter(|&&id| levels[id] <= stage) {
            let (how, _) = nest.instrs[id].reduction()?;
            let first = instrs.len();
            instrs.extend((0..parts).map(|part| {
                let at = place(id, &Index::constant(part as i64));
                Instr::Load(Load { slot: workspace, at, guards: Vec::new(), dtype })
            }));
            let op = how.op();
            let step = |sum: ValueId, part: usize| Instr::Map {
                op,
                attrs: Attrs::default(),
                args: vec![sum, first + part],
                dtype,
            };
            let mut sum = first;
            for part in 1..parts - 1 {
                instrs.push(step(sum, part));
                sum = instrs.len() - 1;
            }
            whole.push((id, step(sum, parts - 1)));
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
        // What is stored once a row, the first part stores.
        let stored = |store: &Store| {
            let mut new = store.clone();
            new.substitute(&at, &|value| value + by, &nest.domain);
            let along = store.maps().any(|map| map.mentions(1) || map.mentions(2));
            if !along && !store.values().into_iter().any(|value| varies[value]) {
                new.guards.push((Index::coord(1), 0..1));
            }
            new
        };
        let stores = if stage < last {
            let left = reductions.iter().filter(|&&id| levels[id] == stage + 1);
            left.map(|&id| Store::new(workspace, place(id, &Index::coord(1)), by + id)).collect()
        } else {
            nest.stores.iter().map(stored).collect()
        };
        Some(Kernel {
            anchor: AnchorKernel::rows(1),
            body: Body { domain: nest.domain.clone(), instrs, ..Body::default() },
            stores,
            slots: kernel.slots.iter().copied().chain([(dtype, reductions.len() * rows * parts)]).collect(),
        })
    };
    (0..=last).map(stage).collect()
}

#[cfg(test)]
mod tests {
    use eutectic_ir::{DType, ops::Reduction};

    use super::*;

    /// The largest element of each row, and how far each element is from it.
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
        // 64,000 has the divisor 32, the most there may be.
        assert_eq!(first.body.domain, [3, 32, 2000]);
        assert_eq!(first.slots[3], (DType::F32, 3 * 32));
        assert_eq!(first.stores.len(), 1);
        assert!(!last.body.instrs.iter().any(|instr| instr.row().is_some()));
        // What is the same for a row is stored by its first part.
        let guards: Vec<_> = last.stores.iter().map(|store| &store.guards[..]).collect();
        assert_eq!(guards, [&[][..], &[(Index::coord(1), 0..1)]]);
        assert_eq!(split(&distances(3, 64_000), &DeviceShape { cluster: 8, ..shape }), None);
        assert_eq!(split(&distances(3, 1000), &shape), None, "a short row");
        assert_eq!(split(&distances(100, 64_000), &shape), None, "rows that keep processors busy");
        assert_eq!(split(&distances(3, 65_537), &shape), None, "a prime number of points");
    }
}
