//! Compiled kernels, as programs run them.

use super::{fault::IndexFault, threads::Workers};

/// What a thunk runs on.
pub struct ThunkContext<'a> {
    /// The buffers of the kernel's slots, then the thunk's own, then that of its packed constant.
    pub slots: &'a [*mut u8],
    /// Who works.
    pub workers: &'a Workers,
    /// Whether some buffer is read and written (in place).
    pub in_place: bool,
    /// Where an index out of range is reported.
    pub fault: &'a IndexFault,
}

// SAFETY: the pointers are to buffers that the program owns or borrows during a run; tasks write disjoint parts.
unsafe impl Sync for ThunkContext<'_> {}

/// An operand that a thunk takes in a form of its own, if what it is computed from is the same in all runs.
#[derive(Clone, Debug)]
pub struct Constant {
    /// The kernel's slots from which it is computed.
    pub reads: Vec<usize>,
    /// Those of them that nothing else in the kernel reads.
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

    /// Bytes of scratch memory of each worker.
    fn scratch(&self) -> usize;

    /// Bytes of each buffer of its own, which all workers share.
    fn buffers(&self) -> Vec<usize>;

    /// The operand that is packed once where it is constant. Its slot follows the thunk's own buffers; it is null where the
    /// operand is not packed before a run.
    fn constant(&self) -> Option<Constant> {
        None
    }

    /// Packs that operand into its slot.
    ///
    /// # Safety
    /// As [`Thunk::run`], and the slot must have room for as many bytes as the constant states.
    unsafe fn pack(&self, _launch: &ThunkContext<'_>) {}
}
