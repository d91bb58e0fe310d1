//! Kernels that take several launches. Each launch is described by a separate kernel, whose last buffers are ranges of
//! the workspace.

use eutectic_backend::{AnchorKernel, Body, Guard, Instr, Kernel, Load, Store, ValueId};
use eutectic_ir::{Attrs, DType, Op, index::Index};

use super::rows::radix::DigitPass;

/// The alignment of parts of the workspace, in bytes.
const ALIGNMENT: usize = 256;

/// One launch of a kernel that takes several.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stage {
    /// The computation. For a radix-sort pass, it describes the buffers and accesses only.
    pub kernel: Kernel,
    /// The radix-sort pass, if the launch is one.
    pub pass: Option<DigitPass>,
    /// The offsets of the kernel's last buffers in the workspace, in bytes.
    pub parts: Vec<usize>,
}

impl Stage {
    /// Returns the bytes of the workspace up to the end of the last buffer.
    pub fn workspace(&self) -> usize {
        let slots = &self.kernel.slots[self.kernel.slots.len() - self.parts.len()..];
        let end = |(begin, (dtype, count)): (&usize, &(DType, usize))| begin + dtype.size() * count;
        self.parts.iter().zip(slots).map(end).max().unwrap_or(0)
    }

    /// Returns the launches of the kernels into which this launch was split. Each has one more buffer, whose range
    /// follows this launch's workspace.
    pub fn cut(&self, kernels: Vec<Kernel>) -> Vec<Stage> {
        let parts: Vec<usize> =
            self.parts.iter().copied().chain([self.workspace().next_multiple_of(ALIGNMENT)]).collect();
        kernels.into_iter().map(|kernel| Stage { kernel, pass: None, parts: parts.clone() }).collect()
    }
}

/// The buffers of all launches of a kernel: its own, and ranges of the workspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers {
    slots: Vec<(DType, usize)>,
    parts: Vec<usize>,
    end: usize,
}

impl Buffers {
    /// Returns the buffers of a kernel, without any range of the workspace.
    pub fn of(kernel: &Kernel) -> Buffers {
        Buffers { slots: kernel.slots.clone(), ..Buffers::default() }
    }

    /// Adds a range of the workspace with `count` elements, and returns its slot.
    pub fn part(&mut self, dtype: DType, count: usize) -> usize {
        let begin = self.end.next_multiple_of(ALIGNMENT);
        self.end = begin + dtype.size() * count;
        self.slots.push((dtype, count));
        self.parts.push(begin);
        self.slots.len() - 1
    }

    /// Returns the bytes of the workspace.
    pub fn workspace(&self) -> usize {
        self.end
    }

    /// Returns the launch of a body.
    pub fn stage(&self, anchor: AnchorKernel, domain: Vec<usize>, instrs: Vec<Instr>, stores: Vec<Store>) -> Stage {
        let body = Body { domain, instrs, ..Body::default() };
        let kernel = Kernel { anchor, body, stores, slots: self.slots.clone() };
        Stage { kernel, pass: None, parts: self.parts.clone() }
    }
}

/// Writes the instructions of a body.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyWriter(pub Vec<Instr>);

impl BodyWriter {
    /// Adds an instruction.
    pub fn push(&mut self, instr: Instr) -> ValueId {
        self.0.push(instr);
        self.0.len() - 1
    }

    /// Adds a load of an element where guards hold.
    pub fn load(&mut self, (slot, dtype): (usize, DType), at: Index, guards: Vec<Guard>) -> ValueId {
        self.push(Instr::Load(Load { slot, at, guards, dtype }))
    }

    /// Adds a value that is an index.
    pub fn coordinate(&mut self, index: Index, dtype: DType) -> ValueId {
        self.push(Instr::Coordinate { index, dtype })
    }

    /// Adds a constant.
    pub fn constant(&mut self, n: i64, dtype: DType) -> ValueId {
        self.push(Instr::Constant { value: n.into(), dtype })
    }

    /// Adds a pointwise op without attributes.
    pub fn op(&mut self, name: &str, args: &[ValueId], dtype: DType) -> ValueId {
        let op = Op::named(name).expect("the op table has this op");
        self.push(Instr::Map { op, attrs: Attrs::default(), args: args.to_vec(), dtype })
    }
}
