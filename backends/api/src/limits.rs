//! What a device can take: sizes that kernels and programs are planned within.

use crate::kernel::Kernel;

/// Sizes of a device. A kernel beyond them costs infinitely much, and so is in no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Buffers start at multiples of this many bytes.
    pub alignment: usize,
    /// Most bytes of one buffer.
    pub binding: usize,
    /// Most bytes of all buffers together: parameters and constants, what the load program keeps, the arena of a run.
    pub capacity: usize,
    /// Most bytes of scalar arguments of a launch, which has one [`Limits::ARGUMENT`] for each buffer: where it starts.
    pub arguments: usize,
    /// Most instructions of a kernel, those of its operands' bodies included.
    pub instrs: usize,
}

impl Limits {
    /// Bytes of one scalar argument.
    pub const ARGUMENT: usize = 8;

    /// What of a kernel is too large, for people; nothing if it fits.
    pub fn exceeded(&self, kernel: &Kernel) -> Vec<String> {
        let instrs = kernel.bodies().iter().map(|body| body.instrs.len()).sum();
        let largest = kernel.slots.iter().map(|(dtype, count)| count.saturating_mul(dtype.size())).max().unwrap_or(0);
        let sizes = [
            (instrs, self.instrs, "instructions"),
            (kernel.slots.len() * Limits::ARGUMENT, self.arguments, "bytes of arguments"),
            (largest, self.binding, "bytes of one buffer"),
        ];
        let beyond = sizes.into_iter().filter(|(size, most, _)| size > most);
        beyond.map(|(size, most, what)| format!("{size} {what}; the device takes {most}")).collect()
    }
}

impl Default for Limits {
    /// Cache lines, any memory, kernels of 256 instructions: larger ones save next to nothing, and take long to plan and to build.
    fn default() -> Limits {
        Limits { alignment: 64, binding: usize::MAX, capacity: usize::MAX, arguments: usize::MAX, instrs: 256 }
    }
}
