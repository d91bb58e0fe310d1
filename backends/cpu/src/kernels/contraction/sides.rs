//! The two operands of a contraction: read in place, evaluated before the product, or evaluated block by block during
//! it.

use std::ops::Range;

use eutectic_backend::grouped::{Grouped, ROWS};
use eutectic_ir::DType;

use crate::{
    gemm::{
        computed::ComputedOperand,
        gathered::Gathered,
        left::Left,
        matrix::{PartSize, Stretch},
        product::ProductElement,
        right::Right,
        source::RowSource,
    },
    kernels::{
        coded::CodedOperand,
        integers::IntegerOperand,
        operand::{Operand, in_place},
        row_blocks::{RowBlocks, is_view},
        slots::Slots,
    },
    runtime::thunk::ThunkContext,
    simd::Isa,
    tile::Frame,
};

/// The sizes of the blocks in which an operand can be evaluated during the product; `None` if elements would be
/// evaluated several times.
pub type EvaluatedParts = Option<Vec<PartSize>>;

/// The blocks in which a left operand can be evaluated during the product, each element once.
pub struct LhsParts {
    /// The sizes of the blocks of rows and terms that micro-kernels read, if they read such blocks.
    pub parts: EvaluatedParts,
    /// The ranges of rows that tasks can evaluate with all terms; empty if a range would take too much memory.
    pub blocks: Vec<Range<usize>>,
}

/// The left operand.
pub enum Lhs {
    /// Read in place, or evaluated before the product.
    Operand(Box<Operand>),
    /// Gathered block by block during the product.
    Gathered(Box<Gathered>),
    /// Evaluated block by block during the product.
    Computed(Box<ComputedOperand>),
    /// Evaluated with all terms, for some rows of a task at a time.
    Blocks(Box<RowBlocks>),
    /// Integers with scales, which are evaluated before the product.
    Integers(Box<IntegerOperand>),
}

impl Lhs {
    /// Compiles the operand, for micro-kernels of at most `most` rows.
    ///
    /// # Errors
    /// Returns every reason why the operand cannot be compiled.
    pub fn compile<T: ProductElement>(
        lhs: &Grouped,
        acc: DType,
        slots: &mut Slots,
        isa: Isa,
        most: usize,
        parts: Option<LhsParts>,
    ) -> Result<Lhs, Vec<String>> {
        let matrices = lhs.matrices();
        let as_it_is = matrices.as_ref().is_some_and(|nest| in_place(nest, acc, slots).is_some());
        if !as_it_is && let Some(chosen) = Operand::chosen(lhs, acc, slots, isa) {
            return Ok(Lhs::Operand(Box::new(chosen)));
        }
        if !as_it_is && T::lanes(isa).is_some() {
            if let Some(gathered) = Gathered::compile(lhs, acc, &slots.types, most) {
                return Ok(Lhs::Gathered(Box::new(gathered)));
            }
            if let Some(LhsParts { parts, blocks }) = parts {
                let computed = matrices
                    .zip(parts)
                    .and_then(|(nest, parts)| ComputedOperand::compile(&nest, &slots.types, isa, &parts));
                if let Some(computed) = computed {
                    return Ok(Lhs::Computed(Box::new(computed)));
                }
                let is_view = is_view(&lhs.nest.instrs, &lhs.nest.domain, lhs.groups[0], lhs.groups[ROWS]);
                let blocks = (is_view && !blocks.is_empty()).then_some(blocks);
                let blocks = blocks.and_then(|b| RowBlocks::compile(lhs, acc, slots, isa, b.into_iter()));
                if let Some(blocks) = blocks {
                    return Ok(Lhs::Blocks(Box::new(blocks)));
                }
            }
        }
        Operand::compile(lhs, acc, slots, isa).map(|lhs| Lhs::Operand(Box::new(lhs)))
    }

    /// Returns the matrix at a batch point from a row on; `before` counts the rows of the matrices before it. Rows that
    /// are evaluated with all terms are written to `room`.
    ///
    /// # Safety
    /// The requirements of [`crate::runtime::thunk::Thunk::run`] apply. `room` must have the size that [`Lhs::room`]
    /// returns.
    pub unsafe fn at<'a, T: Copy>(
        &'a self,
        frame: &'a Frame<'a>,
        point: &[usize],
        before: usize,
        rows: Stretch,
        room: *mut u8,
    ) -> Left<'a> {
        let row = rows.first;
        match self {
            Lhs::Blocks(lhs) => {
                // SAFETY: passed on from the caller.
                Left::Strided(unsafe { lhs.matrix(frame, point, row..row + rows.count, true, room.cast::<T>()) })
            }
            Lhs::Operand(lhs) => Left::Strided(lhs.matrix(frame.slots, point, row, 0)),
            Lhs::Gathered(lhs) => {
                let buffer = frame.slots[lhs.slot].cast_const();
                Left::Blocks(RowSource::Gathered(lhs, buffer, before + row))
            }
            Lhs::Computed(lhs) => Left::Blocks(RowSource::Computed(lhs.at(frame, point, row, 0))),
            Lhs::Integers(_) => unreachable!("products with integers have separate kernels"),
        }
    }

    /// Evaluates the operand, if it is evaluated before the product.
    ///
    /// # Safety
    /// The requirements of [`crate::runtime::thunk::Thunk::run`] apply.
    pub unsafe fn prepare(&self, launch: &ThunkContext<'_>) {
        // SAFETY: passed on from the caller.
        unsafe {
            match self {
                Lhs::Operand(lhs) => lhs.prepare(launch),
                Lhs::Integers(lhs) => lhs.prepare(launch),
                Lhs::Gathered(_) | Lhs::Computed(_) | Lhs::Blocks(_) => {}
            }
        }
    }

    /// Returns the bytes of scratch memory that [`Lhs::prepare`] takes.
    pub fn scratch(&self) -> usize {
        match self {
            Lhs::Operand(lhs) => lhs.scratch(),
            Lhs::Integers(lhs) => lhs.scratch(),
            Lhs::Gathered(_) | Lhs::Computed(_) | Lhs::Blocks(_) => 0,
        }
    }

    /// Returns the bytes of scratch memory that evaluating blocks takes, at the start of a frame's scratch memory.
    pub fn registers(&self) -> usize {
        match self {
            Lhs::Operand(_) | Lhs::Gathered(_) | Lhs::Integers(_) => 0,
            Lhs::Computed(lhs) => lhs.scratch(),
            Lhs::Blocks(lhs) => lhs.registers(),
        }
    }

    /// Returns the number of elements of `rows` rows of an operand that tasks evaluate with all terms; 0 for other
    /// operands.
    pub fn room(&self, rows: usize) -> usize {
        if let Lhs::Blocks(lhs) = self { lhs.room(rows) } else { 0 }
    }
}

/// The right operand.
pub enum Rhs {
    /// Read in place, or evaluated before the product.
    Operand(Box<Operand>),
    /// Evaluated block by block during the product.
    Computed(Box<ComputedOperand>),
    /// Packed as codes before each run, or once before all runs.
    Coded(Box<CodedOperand>),
}

impl Rhs {
    /// Compiles the operand.
    ///
    /// # Errors
    /// Returns every reason why the operand cannot be compiled.
    pub fn compile(
        rhs: &Grouped,
        acc: DType,
        slots: &mut Slots,
        isa: Isa,
        parts: EvaluatedParts,
    ) -> Result<Rhs, Vec<String>> {
        if let Some(chosen) = Operand::chosen(rhs, acc, slots, isa) {
            return Ok(Rhs::Operand(Box::new(chosen)));
        }
        let evaluated = parts.zip(rhs.matrices()).filter(|(_, nest)| in_place(nest, acc, slots).is_none());
        match evaluated.and_then(|(parts, nest)| ComputedOperand::compile(&nest, &slots.types, isa, &parts)) {
            Some(computed) => Ok(Rhs::Computed(Box::new(computed))),
            None => Operand::compile(rhs, acc, slots, isa).map(|rhs| Rhs::Operand(Box::new(rhs))),
        }
    }

    /// Returns the matrix at a batch point, from a column on.
    pub fn at<'a>(&'a self, frame: &'a Frame<'a>, point: &[usize], column: usize) -> Right<'a> {
        match self {
            Rhs::Operand(rhs) => Right::Strided(rhs.matrix(frame.slots, point, 0, column)),
            Rhs::Computed(rhs) => Right::Computed(rhs.at(frame, point, 0, column)),
            Rhs::Coded(_) => unreachable!("operands that are kept as codes are packed"),
        }
    }

    /// Evaluates the operand, if it is evaluated before the product.
    ///
    /// # Safety
    /// The requirements of [`crate::runtime::thunk::Thunk::run`] apply.
    pub unsafe fn prepare(&self, launch: &ThunkContext<'_>) {
        if let Rhs::Operand(rhs) = self {
            // SAFETY: passed on from the caller.
            unsafe { rhs.prepare(launch) };
        }
    }

    /// Returns the bytes of scratch memory that [`Rhs::prepare`] takes.
    pub fn scratch(&self) -> usize {
        if let Rhs::Operand(rhs) = self { rhs.scratch() } else { 0 }
    }

    /// Returns the bytes of scratch memory that evaluating blocks takes, at the start of a frame's scratch memory.
    pub fn registers(&self) -> usize {
        match self {
            Rhs::Operand(_) => 0,
            Rhs::Computed(rhs) => rhs.scratch(),
            Rhs::Coded(rhs) => rhs.scratch(),
        }
    }
}
