//! Thunks: kernels with every offset, stride and function resolved.

pub mod attention;
pub mod contraction;
pub mod grouped;
pub mod map_rows;
pub mod operand;

use eutectic_backend::{AnchorKernel, Kernel, axes::Nest};
use eutectic_ir::DType;

use self::grouped::Grouped;
use crate::{
    runtime::{fault::Fault, threads::Workers},
    simd::Isa,
    unroll::unrolled,
};

/// What a thunk runs on.
pub struct Launch<'a> {
    /// The buffers of the kernel's slots, then the thunk's own, then that of its packed constant.
    pub slots: &'a [*mut u8],
    /// Who works.
    pub workers: &'a Workers,
    /// Whether some buffer is read and written (in place).
    pub in_place: bool,
    /// Where an index out of range is reported.
    pub fault: &'a Fault,
}

// SAFETY: the pointers are to buffers that the program owns or borrows during a run; tasks write disjoint parts.
unsafe impl Sync for Launch<'_> {}

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
    /// Runs it.
    ///
    /// # Safety
    /// The buffers must be valid, aligned to their element type, of the sizes that the kernel states.
    unsafe fn run(&self, launch: &Launch<'_>);

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
    unsafe fn pack(&self, _launch: &Launch<'_>) {}
}

/// The types and sizes of a kernel's slots, to which buffers of the thunk's own are added.
pub struct Slots {
    /// All of them.
    pub types: Vec<(DType, usize)>,
    /// How many are the kernel's.
    pub given: usize,
}

impl Slots {
    /// Adds a buffer.
    pub fn add(&mut self, dtype: DType, count: usize) -> usize {
        self.types.push((dtype, count));
        self.types.len() - 1
    }

    /// Bytes of the buffers that were added.
    pub fn added(&self) -> Vec<usize> {
        self.types[self.given..].iter().map(|(dtype, count)| dtype.size() * count).collect()
    }
}

/// What kernels are compiled for.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The instruction-set level.
    pub isa: Isa,
    /// How many threads share the work. Results do not depend on it.
    pub threads: usize,
}

/// Compiles a kernel.
///
/// # Errors
/// Everything that stands in the way.
pub fn compile(kernel: &Kernel, machine: Machine) -> Result<Box<dyn Thunk>, Vec<String>> {
    let ranks = kernel.bodies().into_iter().zip(kernel.layouts()).map(|(body, layout)| {
        let groups = kernel.groups();
        body.domain.len() == layout.iter().map(|&g| groups[g]).sum::<usize>()
    });
    if !ranks.into_iter().all(|fits| fits) {
        return Err(vec![format!("a `{}` whose operands have other axes than its groups", kernel.kind())]);
    }
    let unrolled = unrolled(kernel);
    let kernel = unrolled.as_ref().unwrap_or(kernel);
    let mut slots = Slots { types: kernel.slots.clone(), given: kernel.slots.len() };
    let body = Nest::new(&kernel.body, &kernel.stores);
    let isa = machine.isa;
    match &kernel.anchor {
        AnchorKernel::Map => Ok(Box::new(map_rows::Tiles::compile(&body, 0, &slots.types, isa)?)),
        AnchorKernel::Rows { axes } => Ok(Box::new(map_rows::Tiles::compile(&body, *axes, &slots.types, isa)?)),
        AnchorKernel::Contraction { lhs, rhs, axes } => {
            let lhs = Grouped::operand(lhs, [axes.batch, axes.rows, axes.depth]);
            let rhs = Grouped::operand(rhs, [axes.batch, axes.depth, axes.columns]);
            let body = Grouped { nest: body, groups: [axes.batch, axes.rows, axes.columns] };
            contraction::compile(lhs, rhs, body, &mut slots, machine)
        }
        AnchorKernel::Attention { query, key, value, bias, axes, scale, softcap, empty } => {
            let operands = [
                Grouped::operand(query, [axes.batch, axes.queries, axes.depth]),
                Grouped::operand(key, [axes.batch, axes.keys, axes.depth]),
                Grouped::operand(value, [axes.batch, axes.keys, axes.columns]),
            ];
            let bias = bias.as_ref().map(|b| Grouped::operand(b, [axes.batch, axes.queries, axes.keys]));
            let body = Grouped { nest: body, groups: [axes.batch, axes.queries, axes.columns] };
            let form = attention::Form { scale: scale.get(), softcap: softcap.get(), empty: *empty };
            attention::compile(operands, bias, body, form, &mut slots, isa)
        }
    }
}
