//! Atomic stores, such as histograms: each block combines its updates in shared memory first.
//!
//! Atomics on few elements of global memory are serialised. If the buffer of such a store is small, each block has a
//! copy in shared memory. The copy starts as the identity of the combination, and the block combines it with the buffer
//! once, after its last point. Devices combine floats by compare-and-swap, which must be repeated if another thread
//! changed the element. Groups of threads therefore have separate copies.

use eutectic_backend::Kernel;
use eutectic_ir::{
    DType,
    attr::Number,
    ops::{Reduction, Writes},
};

use crate::{device::DeviceShape, dialect::Dialect};

/// Bytes of an element. Only 32-bit elements are combined in shared memory, because all devices have atomics for them.
const WORD: usize = 4;
/// Blocks that are resident on a processor at once.
const RESIDENT: usize = 2;
/// The minimal number of updates for each element that the blocks combine with the buffers at the end.
const UPDATES: usize = 2;
/// The number of neighbouring threads that share a copy.
const THREADS: usize = 32;
/// The maximal number of copies of a block.
const COPIES: usize = 32;

/// A store that is combined in shared memory first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Copied {
    /// The number of the store in its kernel.
    pub store: usize,
    /// The combining operation.
    pub how: Reduction,
    /// The number of copies per block.
    pub copies: usize,
}

impl Copied {
    /// Returns the index of an element in a thread's copy of a buffer of `count` elements.
    pub fn place(&self, dialect: &dyn Dialect, count: usize, at: &str) -> String {
        if self.copies == 1 {
            return at.into();
        }
        // Ids of 64 bits give 64-bit indices, but tables are short enough for 32 bits.
        let at = dialect.convert(dialect.index(false), at);
        let group = dialect.div("thread", THREADS as i64, false, false);
        format!("{} * {count} + {at}", dialect.modulo(&group, self.copies as i64, false, false))
    }

    /// Returns whether one atomic instruction combines elements of a type.
    fn is_one_step(&self, dtype: DType) -> bool {
        !dtype.is_float() && self.how != Reduction::Product
    }
}

/// The stores of a map that are combined in shared memory first, and the size of the launch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InBlock {
    /// The stores.
    pub stores: Vec<Copied>,
    /// Threads per block, and the number of blocks.
    pub block: usize,
    pub blocks: usize,
}

impl InBlock {
    /// Returns the shared-memory combinations of a kernel; `None` if its buffers are large, or its updates too few to
    /// be worth the copies.
    pub fn of(kernel: &Kernel, shape: &DeviceShape) -> Option<InBlock> {
        if !kernel.is_map() {
            return None;
        }
        let combined = kernel.stores.iter().enumerate().filter_map(|(n, store)| match store.writes {
            Writes::Combined(how) if kernel.slots[store.slot].0.size() == WORD => {
                Some(Copied { store: n, how, copies: 1 })
            }
            _ => None,
        });
        let mut stores: Vec<Copied> = combined.collect();
        let slot = |copied: &Copied| kernel.slots[kernel.stores[copied.store].slot];
        let elements: usize = stores.iter().map(|copied| slot(copied).1).sum();
        let points: usize = kernel.body.domain.iter().product();
        let block = shape.threads;
        let blocks = points.div_ceil(block).min(RESIDENT * shape.processors);
        let fits = elements.saturating_mul(WORD) <= shape.static_shared();
        let is_worth = points > 0 && elements.saturating_mul(blocks * UPDATES) <= points;
        if stores.is_empty() || elements == 0 || !fits || !is_worth {
            return None;
        }
        let copies = (shape.static_shared() / (WORD * elements)).min(COPIES).min(block.div_ceil(THREADS));
        stores.iter_mut().filter(|of| !of.is_one_step(slot(of).0)).for_each(|of| of.copies = copies);
        Some(InBlock { stores, block, blocks })
    }
}

/// Returns the value that leaves every element unchanged. For sums of floats it is −0, because −0 + 0 is 0.
pub(crate) fn neutral(how: Reduction, dtype: DType) -> Number {
    match how {
        Reduction::Sum if dtype.is_float() => (-0.0).into(),
        _ => how.identity(dtype),
    }
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{AnchorKernel, Body, Instr, Load, Store};
    use eutectic_ir::index::{Atom, Index};

    use super::*;

    /// Returns a kernel of `points` updates of a table with `elements` elements.
    fn histogram(points: usize, elements: usize, dtype: DType) -> Kernel {
        let load = |slot, dtype| Instr::Load(Load { slot, at: Index::coord(0), guards: Vec::new(), dtype });
        let at = Index::atom(Atom::Value(0));
        let writes = Writes::Combined(Reduction::Sum);
        let guards = vec![(at.clone(), 0..elements as i64)];
        Kernel {
            anchor: AnchorKernel::map(),
            body: Body { domain: vec![points], instrs: vec![load(0, DType::I32), load(1, dtype)], ..Body::default() },
            stores: vec![Store { guards, writes, ..Store::new(2, at, 1) }],
            slots: vec![(DType::I32, points), (dtype, points), (dtype, elements)],
        }
    }

    #[test]
    fn small_tables_of_many_updates_are_copied() {
        let of = |points, elements, dtype| InBlock::of(&histogram(points, elements, dtype), &DeviceShape::OF_TESTS);
        let found = of(1 << 22, 256, DType::F32).expect("a small table");
        assert_eq!((found.block, found.blocks), (1024, 264));
        let copies = |elements, dtype| of(1 << 24, elements, dtype).expect("a small table").stores[0].copies;
        assert_eq!([copies(256, DType::F32), copies(3000, DType::F32), copies(256, DType::I32)], [32, 4, 1]);
        assert_eq!(of(1 << 22, 13 << 10, DType::F32), None, "shared memory is too small");
        assert_eq!(of(1 << 22, 12_000, DType::F32), None, "too few updates");
        assert_eq!(of(1 << 22, 256, DType::F64), None, "no words");
        assert_eq!(of(0, 256, DType::F32), None, "no updates");
        assert_eq!(of(1 << 22, 0, DType::F32), None, "no elements");
    }
}
