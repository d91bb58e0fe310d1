//! Compiled kernels, as programs run them.

use super::{fault::IndexFault, threads::Workers};

/// The arguments of a thunk.
pub struct ThunkContext<'a> {
    /// The buffers of the kernel's slots, then the thunk's own, then that of its packed constant.
    pub slots: &'a [*mut u8],
    /// The workers.
    pub workers: &'a Workers,
    /// Whether some buffer is read and written (in place).
    pub in_place: bool,
    /// Receives reports of indices out of range.
    pub fault: &'a IndexFault,
}

// SAFETY: the pointers are to buffers that the program owns or borrows during a run; tasks write disjoint parts.
unsafe impl Sync for ThunkContext<'_> {}

/// An operand that a thunk packs, if its source is equal in all runs.
#[derive(Clone, Debug)]
pub struct Constant {
    /// The kernel's slots from which it is computed.
    pub reads: Vec<usize>,
    /// The slots of the source that nothing else in the kernel reads.
    pub only: Vec<usize>,
    /// Bytes of its own form.
    pub bytes: usize,
    /// Whether it is better packed before each run where that is not the same.
    pub each_run: bool,
}

/// A compiled kernel, shared by all steps that run it.
pub trait Thunk: Send + Sync {
    /// Returns the name of its schedule.
    fn name(&self) -> &'static str;

    /// Runs it.
    ///
    /// # Safety
    /// The buffers must be valid, aligned to their element type, of the sizes that the kernel states.
    unsafe fn run(&self, launch: &ThunkContext<'_>);

    /// Returns bytes of scratch memory of each worker.
    fn scratch(&self) -> usize;

    /// Returns bytes of each buffer of its own, which all workers share.
    fn buffers(&self) -> Vec<usize>;

    /// Returns the operand that is packed once if it is constant. Its slot follows the thunk's own buffers, and is null
    /// if the operand is not packed before a run.
    fn constant(&self) -> Option<Constant> {
        None
    }

    /// Packs that operand into its slot.
    ///
    /// # Safety
    /// As [`Thunk::run`], and the slot must have room for as many bytes as the constant states.
    unsafe fn pack(&self, _launch: &ThunkContext<'_>) {}
}
