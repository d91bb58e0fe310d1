//! The interface of compiled kernels (thunks).

use super::{fault::IndexFault, threads::Workers};

/// The arguments of a thunk.
pub struct ThunkContext<'a> {
    /// The addresses of the kernel's slots, then of the thunk's additional buffers, then of the packed operand.
    pub slots: &'a [*mut u8],
    /// The threads that share the work.
    pub workers: &'a Workers,
    /// Whether the kernel reads and writes some buffer in place.
    pub in_place: bool,
    /// The receiver of reports of indices out of range.
    pub fault: &'a IndexFault,
}

// SAFETY: the pointers point to buffers that the program owns or borrows during a run, and tasks write disjoint parts.
unsafe impl Sync for ThunkContext<'_> {}

/// An operand that a thunk can pack before it runs: once if the operand is constant, or in each run.
#[derive(Clone, Debug)]
pub struct Constant {
    /// The kernel's slots from which the operand is computed.
    pub reads: Vec<usize>,
    /// Those slots of `reads` that nothing else in the kernel reads.
    pub only: Vec<usize>,
    /// The size of the packed operand in bytes.
    pub bytes: usize,
    /// Whether packing the operand in each run pays off if it is not constant.
    pub each_run: bool,
}

/// A compiled kernel, shared by all steps that run it.
pub trait Thunk: Send + Sync {
    /// Returns the name of the algorithm, for reports.
    fn name(&self) -> &'static str;

    /// Runs the kernel.
    ///
    /// # Safety
    /// The buffers must be valid, aligned to their element types, and have the sizes that the kernel states.
    unsafe fn run(&self, launch: &ThunkContext<'_>);

    /// Returns the bytes of scratch memory that each worker needs.
    fn scratch(&self) -> usize;

    /// Returns the size in bytes of each additional buffer that the thunk needs. All workers share these buffers.
    fn buffers(&self) -> Vec<usize>;

    /// Returns the operand that the thunk can pack, if there is one. Its slot follows the thunk's additional buffers,
    /// and is null if the operand is not packed before a run.
    fn constant(&self) -> Option<Constant> {
        None
    }

    /// Packs the operand of [`Thunk::constant`] into its slot.
    ///
    /// # Safety
    /// As [`Thunk::run`], and the slot must point to memory of [`Constant::bytes`].
    unsafe fn pack(&self, _launch: &ThunkContext<'_>) {}
}
