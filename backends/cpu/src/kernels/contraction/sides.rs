//! The two sides of a contraction: what is read in place, what is evaluated before, and what part by part.

use eutectic_backend::grouped::Grouped;
use eutectic_ir::DType;

use crate::{
    gemm::{
        computed::ComputedOperand, gathered::Gathered, left::Left, matrix::PartSize, product::ProductElement,
        right::Right, source::RowSource,
    },
    kernels::{
        operand::{Operand, in_place},
        slots::Slots,
    },
    runtime::thunk::ThunkContext,
    simd::Isa,
    tile::Frame,
};

/// The parts in which an operand would be evaluated, if each is evaluated once.
pub type EvaluatedParts = Option<Vec<PartSize>>;

/// The left operand.
pub enum Lhs {
    /// Read in place, or evaluated first.
    Operand(Box<Operand>),
    /// Copied part by part.
    Gathered(Gathered),
    /// Evaluated part by part.
    Computed(Box<ComputedOperand>),
}

impl Lhs {
    /// Compiles it.
    ///
    /// # Errors
    /// Everything that stands in the way.
    pub fn compile<T: ProductElement>(
        lhs: &Grouped,
        acc: DType,
        slots: &mut Slots,
        isa: Isa,
        parts: EvaluatedParts,
    ) -> Result<Lhs, Vec<String>> {
        let matrices = lhs.matrices();
        let as_it_is = matrices.as_ref().is_some_and(|nest| in_place(nest, acc, slots).is_some());
        if !as_it_is && let Some(chosen) = Operand::chosen(lhs, acc, slots, isa) {
            return Ok(Lhs::Operand(Box::new(chosen)));
        }
        if !as_it_is && T::lanes(isa).is_some() {
            if let Some(gathered) = Gathered::compile(lhs, acc, &slots.types) {
                return Ok(Lhs::Gathered(gathered));
            }
            let computed = matrices
                .zip(parts)
                .and_then(|(nest, parts)| ComputedOperand::compile(&nest, &slots.types, isa, &parts));
            if let Some(computed) = computed {
                return Ok(Lhs::Computed(Box::new(computed)));
            }
        }
        Operand::compile(lhs, acc, slots, isa).map(|lhs| Lhs::Operand(Box::new(lhs)))
    }

    /// The matrix at a batch point from a row on; `before` are the rows of the matrices before it.
    pub fn at<'a>(&'a self, frame: &'a Frame<'a>, point: &[usize], before: usize, row: usize) -> Left<'a> {
        match self {
            Lhs::Operand(lhs) => Left::Strided(lhs.matrix(frame.slots, point, row, 0)),
            Lhs::Gathered(lhs) => {
                let buffer = frame.slots[lhs.slot].cast_const();
                Left::Blocks(RowSource::Gathered(lhs, buffer, before + row))
            }
            Lhs::Computed(lhs) => Left::Blocks(RowSource::Computed(lhs.at(frame, point, row, 0))),
        }
    }

    fn forms(&self) -> (Option<&Operand>, Option<&ComputedOperand>) {
        match self {
            Lhs::Operand(lhs) => (Some(lhs), None),
            Lhs::Gathered(_) => (None, None),
            Lhs::Computed(lhs) => (None, Some(lhs)),
        }
    }
}

/// The right operand.
pub enum Rhs {
    /// Read in place, or evaluated first.
    Operand(Box<Operand>),
    /// Evaluated part by part.
    Computed(Box<ComputedOperand>),
}

impl Rhs {
    /// Compiles it.
    ///
    /// # Errors
    /// Everything that stands in the way.
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

    /// The matrix at a batch point, from a column on.
    pub fn at<'a>(&'a self, frame: &'a Frame<'a>, point: &[usize], column: usize) -> Right<'a> {
        match self {
            Rhs::Operand(rhs) => Right::Strided(rhs.matrix(frame.slots, point, 0, column)),
            Rhs::Computed(rhs) => Right::Computed(rhs.at(frame, point, 0, column)),
        }
    }

    fn forms(&self) -> (Option<&Operand>, Option<&ComputedOperand>) {
        match self {
            Rhs::Operand(rhs) => (Some(rhs), None),
            Rhs::Computed(rhs) => (None, Some(rhs)),
        }
    }
}

macro_rules! both {
    ($($side:ty),*) => {$(
        impl $side {
            /// Evaluates it, if that comes first.
            ///
            /// # Safety
            /// As [`crate::runtime::thunk::Thunk::run`].
            pub unsafe fn prepare(&self, launch: &ThunkContext<'_>) {
                if let Some(operand) = self.forms().0 {
                    // SAFETY: passed on from the caller.
                    unsafe { operand.prepare(launch) };
                }
            }

            /// Bytes of scratch memory that this takes.
            pub fn scratch(&self) -> usize {
                self.forms().0.map_or(0, Operand::scratch)
            }

            /// Bytes of scratch memory that evaluating parts takes, at the beginning of the frame's.
            pub fn registers(&self) -> usize {
                self.forms().1.map_or(0, ComputedOperand::scratch)
            }
        }
    )*};
}
both!(Lhs, Rhs);
