//! Left operands that are 8-bit integers with a scale for each block of terms: x = scale·integer. If the right operand
//! is packed as codes, the products within a block are integer products.

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

/// The number of integers below which waking another thread takes longer than adding them up.
const SERIAL: usize = 1 << 16;

/// The values from which an operand of scaled integers is computed.
struct FoundIntegers {
    code: ValueId,
    scale: ValueId,
    /// The number of innermost term axes that make up a block.
    inner: usize,
    /// The number of terms of a block.
    terms: usize,
}

impl FoundIntegers {
    /// Finds the values in an operand over `[b.. m.. k..]`. The terms per scale must be a multiple of `block`.
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

/// Returns whether a kernel multiplies integers if its right operand is constant.
pub fn multiplies_integers(kernel: &Kernel) -> bool {
    let Some(Contraction { lhs, rhs, axes }) = kernel.contraction().filter(|_| !kernel.varies()) else { return false };
    let groups = [[axes.batch, axes.rows, axes.depth], [axes.batch, axes.depth, axes.columns]];
    let [lhs, rhs] = [Grouped::operand(lhs, groups[0]), Grouped::operand(rhs, groups[1])];
    block_of(&rhs).is_some_and(|block| FoundIntegers::of(&lhs, block).is_some())
}

/// A compiled left operand of scaled integers, which is evaluated before the product.
pub struct IntegerOperand {
    codes: Tiles,
    scales: Tiles,
    /// The slots of the integers, the scales, the sums and the least integer.
    slots: [usize; 4],
    /// The number of rows of all matrices, and of terms of a row.
    rows: usize,
    terms: usize,
    /// The number of terms of a block of the right operand.
    block: usize,
}

impl IntegerOperand {
    /// Compiles a left operand over `[b.. m.. k..]`, and a right operand over `[b.. k.. n..]` with the layout of its
    /// panels. Returns `None`, and adds no slots, unless the left operand is scaled integers and the right one can be
    /// packed as codes.
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
        // Scales are repeated, so that there is one for each block of the right operand.
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

    /// Evaluates the integers and their scales, and computes the sums per block and the least integer.
    ///
    /// # Safety
    /// The requirements of [`Thunk::run`] apply.
    pub unsafe fn prepare(&self, launch: &ThunkContext<'_>) {
        let least = AtomicI8::new(i8::MAX);
        // SAFETY: passed on from the caller. The buffers belong to the thunk, and have room for all rows, which are
        // disjoint.
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
    /// The requirements of [`IntegerOperand::prepare`] apply; the integers must have been evaluated.
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

    /// Returns the rows from `row` on, counted over all matrices of the batch.
    ///
    /// # Safety
    /// [`IntegerOperand::prepare`] must have evaluated the operand on these slots.
    pub unsafe fn rows(&self, slots: &[*mut u8], row: usize) -> IntegerRows {
        let [codes, scales, totals, least] = self.slots.map(|slot| slots[slot].cast_const());
        let blocks = row * (self.terms / self.block);
        IntegerRows {
            codes: codes.cast::<i8>().wrapping_add(row * self.terms),
            scales: scales.cast::<f32>().wrapping_add(blocks),
            totals: totals.cast::<i32>().wrapping_add(blocks),
            // SAFETY: the caller promises that [`IntegerOperand::prepare`] has written the least integer.
            least: unsafe { least.cast::<i8>().read() },
        }
    }

    /// Returns the bytes of scratch memory that evaluating the operand takes.
    pub fn scratch(&self) -> usize {
        self.codes.scratch().max(self.scales.scratch())
    }
}

/// Compiles a program that writes a value to a slot, dense over the nest's domain.
fn stored(mut nest: Nest, slot: usize, value: ValueId, slots: &Slots, isa: Isa) -> Option<Tiles> {
    let dense = strides(&nest.domain).into_iter().map(|s| s as i64).enumerate();
    let at = dense.fold(Index::default(), |at, (d, step)| at.plus(&Index::coord(d).times(step)));
    nest.stores = vec![Store::new(slot, at, value)];
    evaluated(nest, slots, isa).ok()
}
