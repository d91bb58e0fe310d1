//! Left operands that are integers of 8 bits with a scale for each block of terms: x = scale·integer. If the weights are kept as codes, the
//! products within a block are products of integers.

use std::sync::atomic::{AtomicI8, Ordering::Relaxed};

use eutectic_backend::{
    Contraction, Kernel, Store, ValueId,
    axes::Nest,
    grouped::{COLUMNS, Grouped, ROWS},
};
use eutectic_ir::{
    DType,
    index::{Index, strides},
};

use super::{
    coded::{CodedOperand, Values, block_of, cast_to},
    map_rows::{Tiles, evaluated},
    slots::Slots,
};
use crate::{
    gemm::{coded::CodedPanels, integers::IntegerRows, product::ProductElement},
    runtime::thunk::{Thunk, ThunkContext},
    simd::Isa,
};

/// The number of integers below which a second thread takes longer to start than to add them up.
const SERIAL: usize = 1 << 16;

/// The values that such an operand is made of.
struct FoundIntegers {
    code: ValueId,
    scale: ValueId,
    /// Innermost axes of the terms that make up a block.
    inner: usize,
    /// Terms of a block.
    terms: usize,
}

impl FoundIntegers {
    /// Finds them in an operand over `[b.. m.. k..]`, with blocks that are several ones of `block` terms.
    fn of(operand: &Grouped, block: usize) -> Option<FoundIntegers> {
        let nest = &operand.nest;
        let values = Values::of(nest)?;
        let (end, depth) = (nest.domain.len(), operand.groups[COLUMNS]);
        (1..=depth).rev().find_map(|inner| {
            let axes = end - inner..end;
            let terms: usize = nest.domain[axes.clone()].iter().product();
            let (code, scale) =
                values.find().scaled_bytes(values.result, axes.fold(0, |mask, axis| mask | 1 << axis))?;
            (terms > 0 && terms.is_multiple_of(block)).then_some(FoundIntegers { code, scale, inner, terms })
        })
    }
}

/// Returns whether products of a kernel are those of integers, where its right operand is constant.
pub fn multiplies_integers(kernel: &Kernel) -> bool {
    let Some(Contraction { lhs, rhs, axes }) = kernel.contraction().filter(|_| !kernel.varies()) else { return false };
    let groups = [[axes.batch, axes.rows, axes.depth], [axes.batch, axes.depth, axes.columns]];
    let [lhs, rhs] = [Grouped::operand(lhs, groups[0]), Grouped::operand(rhs, groups[1])];
    block_of(&rhs).is_some_and(|block| FoundIntegers::of(&lhs, block).is_some())
}

/// A compiled operand of this kind, which is evaluated before the product.
pub struct IntegerOperand {
    codes: Tiles,
    scales: Tiles,
    /// The slots of the integers, the scales, the sums and the least integer.
    slots: [usize; 4],
    /// Rows of all matrices, and terms of a row.
    rows: usize,
    terms: usize,
    /// Terms of a block of the right operand.
    block: usize,
}

impl IntegerOperand {
    /// Compiles a left operand over `[b.. m.. k..]`, and a right one over `[b.. k.. n..]` with the layout of its panels; `None` if these are
    /// not of such kinds. Slots are added only if both are.
    pub fn compile<T: ProductElement>(
        lhs: &Grouped,
        rhs: &Grouped,
        slots: &mut Slots,
        isa: Isa,
    ) -> Option<(IntegerOperand, (CodedOperand, CodedPanels<T>))> {
        let block = block_of(rhs)?;
        let coded = CodedOperand::compile::<T>(rhs, true, &slots.types, isa)?;
        let mut added = slots.clone();
        let FoundIntegers { code, scale, inner, terms: of_scale } = FoundIntegers::of(lhs, block)?;
        let (end, terms) = (lhs.nest.domain.len(), lhs.points(COLUMNS));
        let rows = lhs.extents(0).iter().chain(lhs.extents(ROWS)).product::<usize>();
        let mut codes = Nest { results: Vec::new(), ..lhs.nest.clone() };
        let code = cast_to(&mut codes, code, DType::I8);
        let mut scales = Nest { results: Vec::new(), ..lhs.nest.clone() };
        for axis in (end - inner..end).rev() {
            scales = scales.without(axis);
        }
        // A scale for each block of the right operand.
        let scales = scales.repeated(end - inner, of_scale / block);
        let places = [
            added.add(DType::I8, rows * terms),
            added.add(DType::F32, rows * terms / block),
            added.add(DType::I32, rows * terms / block),
            added.add(DType::I8, 1),
        ];
        let codes = stored(codes, places[0], code, &added, isa)?;
        let scales = stored(scales, places[1], scale, &added, isa)?;
        *slots = added;
        Some((IntegerOperand { codes, scales, slots: places, rows, terms, block }, coded))
    }

    /// Evaluates it.
    ///
    /// # Safety
    /// As [`Thunk::run`].
    pub unsafe fn prepare(&self, launch: &ThunkContext<'_>) {
        let least = AtomicI8::new(i8::MAX);
        // SAFETY: passed on from the caller. The buffers are the thunk's own, with as many elements; rows are disjoint.
        unsafe {
            self.codes.run(launch);
            self.scales.run(launch);
            launch.workers.for_each(self.rows, self.rows * self.terms < SERIAL, &|row, _| {
                least.fetch_min(self.add_up(launch, row), Relaxed);
            });
            launch.slots[self.slots[3]].cast::<i8>().write(least.into_inner());
        }
    }

    /// Adds up the integers of each block of a row, and returns the least one.
    ///
    /// # Safety
    /// As [`IntegerOperand::prepare`]; the integers must be there.
    unsafe fn add_up(&self, launch: &ThunkContext<'_>, row: usize) -> i8 {
        let [codes, _, totals, _] = self.slots.map(|slot| launch.slots[slot]);
        let (blocks, mut least) = (self.terms / self.block, i8::MAX);
        for block in row * blocks..(row + 1) * blocks {
            // SAFETY: passed on from the caller.
            unsafe {
                let codes = codes.cast::<i8>().cast_const().add(block * self.block);
                let codes = std::slice::from_raw_parts(codes, self.block);
                least = codes.iter().fold(least, |least, code| least.min(*code));
                totals.cast::<i32>().add(block).write(codes.iter().map(|code| i32::from(*code)).sum());
            }
        }
        least
    }

    /// Returns the rows from one on, counted over all matrices.
    ///
    /// # Safety
    /// The operand must have been evaluated, on these slots.
    pub unsafe fn rows(&self, slots: &[*mut u8], row: usize) -> IntegerRows {
        let [codes, scales, totals, least] = self.slots.map(|slot| slots[slot].cast_const());
        let blocks = row * (self.terms / self.block);
        IntegerRows {
            codes: codes.cast::<i8>().wrapping_add(row * self.terms),
            scales: scales.cast::<f32>().wrapping_add(blocks),
            totals: totals.cast::<i32>().wrapping_add(blocks),
            // SAFETY: the caller promises that it was written.
            least: unsafe { least.cast::<i8>().read() },
        }
    }

    /// Bytes of scratch memory that evaluating it takes.
    pub fn scratch(&self) -> usize {
        self.codes.scratch().max(self.scales.scratch())
    }
}

/// Compiles the evaluation of a value to a slot, dense over the nest's domain.
fn stored(mut nest: Nest, slot: usize, value: ValueId, slots: &Slots, isa: Isa) -> Option<Tiles> {
    let dense = strides(&nest.domain).into_iter().map(|s| s as i64).enumerate();
    let at = dense.fold(Index::default(), |at, (d, step)| at.plus(&Index::coord(d).times(step)));
    nest.stores = vec![Store::new(slot, at, value)];
    evaluated(nest, slots, isa).ok()
}
