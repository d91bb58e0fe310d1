//! What a device can take: sizes and element types that kernels and programs are planned within.

use std::collections::BTreeSet;

use eutectic_ir::{DType, ops::Writes};

use crate::{
    body::Instr,
    kernel::Kernel,
    reach::{points, row_mask},
    row_ops::RowLimits,
};

/// A set of element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DTypes(u32);

impl DTypes {
    /// All of them.
    pub const ALL: DTypes = DTypes(u32::MAX);

    /// None of them.
    pub const NONE: DTypes = DTypes(0);

    /// These.
    pub fn of<const N: usize>(dtypes: [DType; N]) -> DTypes {
        dtypes.into_iter().collect()
    }

    /// Those but one.
    pub fn without(self, dtype: DType) -> DTypes {
        DTypes(self.0 & !(1 << dtype as u32))
    }

    /// Returns the element types of a kernel that are not among them, each with a reason why the kernel is refused.
    pub fn lacking(self, kernel: &Kernel) -> Vec<String> {
        let instrs = kernel.bodies().into_iter().flat_map(|body| &body.instrs);
        let types = instrs.map(Instr::dtype).chain(kernel.slots.iter().map(|slot| slot.0));
        let lacking: BTreeSet<DType> = types.filter(|dtype| !self.contains(*dtype)).collect();
        lacking.into_iter().map(|dtype| format!("{dtype}; the device does not have it")).collect()
    }

    /// Whether one is among them.
    pub fn contains(self, dtype: DType) -> bool {
        self.0 & 1 << dtype as u32 != 0
    }
}

impl FromIterator<DType> for DTypes {
    fn from_iter<I: IntoIterator<Item = DType>>(dtypes: I) -> DTypes {
        DTypes(dtypes.into_iter().fold(0, |all, dtype| all | 1 << dtype as u32))
    }
}

/// Limits of a device. A kernel beyond them costs infinitely much, and so is in no plan; a program beyond [`Limits::capacity`] is not
/// compiled. What a device lacks besides, [`Backend::supports`](crate::Backend::supports) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Buffers start at multiples of this many bytes: a power of two.
    pub alignment: usize,
    /// Whether a part of a buffer may start at any multiple of its element type's size.
    pub any_part: bool,
    /// Most bytes of one buffer.
    pub binding: usize,
    /// Most bytes of all buffers of a session together: parameters that runs read, constants, what the load program keeps, the arena
    /// of a run, inputs, outputs and states. A larger program is planned for less memory.
    pub capacity: usize,
    /// Most bytes of scalar arguments of a launch, which has one [`Limits::ARGUMENT`] for each buffer: where it starts.
    pub arguments: usize,
    /// Most instructions of a kernel, those of its operands' bodies included.
    pub instrs: usize,
    /// Most loads of a kernel.
    pub loads: usize,
    /// Most stores of a kernel.
    pub stores: usize,
    /// Most axes of a domain, in normal form.
    pub rank: usize,
    /// Most points along an axis of a domain.
    pub extent: usize,
    /// The element types of buffers and values.
    pub dtypes: DTypes,
    /// Whether several points of a map may write one element, in order.
    pub in_order: bool,
    /// The element types of which maps combine what several points write to one element.
    pub combined: DTypes,
    /// Most elements of the rows of each row operation.
    pub rows: RowLimits,
    /// Whether kernels tell numbers below the smallest normal one from zero.
    pub subnormals: bool,
}

impl Limits {
    /// Bytes of one scalar argument.
    pub const ARGUMENT: usize = 8;

    /// What of a kernel is too large, for people; nothing if it fits.
    pub fn exceeded(&self, kernel: &Kernel) -> Vec<String> {
        let bodies = kernel.bodies();
        let instrs = || bodies.iter().flat_map(|body| &body.instrs);
        let largest = kernel.slots.iter().map(|(dtype, count)| count.saturating_mul(dtype.size())).max();
        let sizes = [
            (instrs().count(), self.instrs, "instructions"),
            (instrs().filter(|i| matches!(i, Instr::Load(_))).count(), self.loads, "loads"),
            (kernel.stores.len(), self.stores, "stores"),
            (bodies.iter().map(|body| body.domain.len()).max().unwrap_or(0), self.rank, "axes"),
            (
                bodies.iter().flat_map(|body| &body.domain).copied().max().unwrap_or(0),
                self.extent,
                "points along an axis",
            ),
            (kernel.slots.len() * Limits::ARGUMENT, self.arguments, "bytes of arguments"),
            (largest.unwrap_or(0), self.binding, "bytes of one buffer"),
        ];
        let beyond = sizes.into_iter().filter(|(size, most, _)| size > most);
        let row = points(&kernel.body.domain, row_mask(kernel));
        let too_long = |instr: &Instr| match instr {
            Instr::Row { op, .. } if row > self.rows.longest(*op) as f64 => {
                Some(format!("`{op}` of rows of {row} elements; the device takes {}", self.rows.longest(*op)))
            }
            _ => None,
        };
        let mut too_long: Vec<String> = instrs().filter_map(too_long).collect();
        too_long.dedup();
        let refused = kernel.stores.iter().filter_map(|store| match (store.writes, kernel.slots[store.slot].0) {
            (Writes::InOrder, _) if !self.in_order => {
                Some("stores of several points to one element, in order".to_string())
            }
            (Writes::Combined(how), dtype) if !self.combined.contains(dtype) => {
                Some(format!("{how:?} of {dtype} where several points store to one element"))
            }
            _ => None,
        });
        let refused = refused.map(|what| format!("{what}; the device does not take these"));
        beyond
            .map(|(size, most, what)| format!("{size} {what}; the device takes {most}"))
            .chain(self.dtypes.lacking(kernel))
            .chain(refused)
            .chain(too_long)
            .collect()
    }
}

impl Default for Limits {
    /// Cache lines, any memory, kernels of 256 instructions: larger ones save next to nothing, and take long to plan and to build.
    fn default() -> Limits {
        const ANY: usize = usize::MAX;
        Limits {
            alignment: 64,
            any_part: false,
            binding: ANY,
            capacity: ANY,
            arguments: ANY,
            instrs: 256,
            loads: ANY,
            stores: ANY,
            rank: ANY,
            extent: ANY,
            dtypes: DTypes::ALL,
            in_order: false,
            combined: DTypes::NONE,
            rows: RowLimits::REDUCTIONS,
            subnormals: true,
        }
    }
}
