//! Limits of devices: the sizes and element types to which planning restricts kernels and programs.

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
    /// The set of all types.
    pub const ALL: DTypes = DTypes(u32::MAX);

    /// The empty set.
    pub const NONE: DTypes = DTypes(0);

    /// Returns the set of these types.
    pub fn of<const N: usize>(dtypes: [DType; N]) -> DTypes {
        dtypes.into_iter().collect()
    }

    /// Returns the set without one type.
    pub fn without(self, dtype: DType) -> DTypes {
        DTypes(self.0 & !(1 << dtype as u32))
    }

    /// Returns a message for each element type of the kernel that is not in the set.
    pub fn lacking(self, kernel: &Kernel) -> Vec<String> {
        let instrs = kernel.bodies().into_iter().flat_map(|body| &body.instrs);
        let types = instrs.map(Instr::dtype).chain(kernel.slots.iter().map(|slot| slot.0));
        let lacking: BTreeSet<DType> = types.filter(|dtype| !self.contains(*dtype)).collect();
        lacking.into_iter().map(|dtype| format!("cannot use {dtype} because the device does not have it")).collect()
    }

    /// Returns whether a type is in the set.
    pub fn contains(self, dtype: DType) -> bool {
        self.0 & 1 << dtype as u32 != 0
    }
}

impl FromIterator<DType> for DTypes {
    fn from_iter<I: IntoIterator<Item = DType>>(dtypes: I) -> DTypes {
        DTypes(dtypes.into_iter().fold(0, |all, dtype| all | 1 << dtype as u32))
    }
}

/// Limits of a device. A kernel that exceeds a limit costs infinitely much, so no plan has it. A program that exceeds
/// [`Limits::capacity`] is not compiled. [`Backend::supports`](crate::Backend::supports) reports further restrictions
/// of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The alignment of buffers in bytes: a power of two.
    pub alignment: usize,
    /// Whether a part of a buffer may start at any multiple of its element type's size.
    pub any_part: bool,
    /// The maximal number of bytes of one buffer.
    pub binding: usize,
    /// The maximal bytes of all buffers of a session together: parameters that runs read, constants, results of the
    /// load program, the arena of a run, inputs, outputs and states. A program that needs more is planned again, for
    /// less memory.
    pub capacity: usize,
    /// The maximal bytes of a launch's scalar arguments. Each buffer takes [`Limits::ARGUMENT`] bytes of them for its
    /// start.
    pub arguments: usize,
    /// The maximal number of instructions of a kernel, including those of its operands.
    pub instrs: usize,
    /// The maximal number of loads of a kernel.
    pub loads: usize,
    /// The maximal number of stores of a kernel.
    pub stores: usize,
    /// The maximal number of axes of a domain, in normal form.
    pub rank: usize,
    /// The maximal number of points along an axis of a domain.
    pub extent: usize,
    /// The element types of buffers and values.
    pub dtypes: DTypes,
    /// Whether several points of a kernel may write one element, so that the last write in row-major order remains.
    pub in_order: bool,
    /// The element types of stores that combine the values of several points in one element.
    pub combined: DTypes,
    /// The maximal number of elements in the rows of each row operation.
    pub rows: RowLimits,
    /// Whether kernels distinguish subnormal numbers from zero.
    pub subnormals: bool,
}

impl Limits {
    /// Bytes of one scalar argument.
    pub const ARGUMENT: usize = 8;

    /// Returns a message for each limit that a kernel exceeds.
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
            Instr::Row { op, .. } if row > self.rows.longest(*op) as f64 => Some(format!(
                "cannot compute `{op}` of rows of {row} elements because the device supports at most {}",
                self.rows.longest(*op)
            )),
            _ => None,
        };
        let mut too_long: Vec<String> = instrs().filter_map(too_long).collect();
        too_long.dedup();
        let refused = kernel.stores.iter().filter_map(|store| match (store.writes, kernel.slots[store.slot].0) {
            (Writes::InOrder, _) if !self.in_order => Some(
                "cannot order several stores to one element because the device does not support ordered stores".into(),
            ),
            (Writes::Combined(how), dtype) if !self.combined.contains(dtype) => Some(format!(
                "cannot combine stores of {dtype} to one element by {how:?} because the device does not support it"
            )),
            _ => None,
        });
        beyond
            .map(|(size, most, what)| {
                format!("cannot launch a kernel with {size} {what} because the device supports at most {most}")
            })
            .chain(self.dtypes.lacking(kernel))
            .chain(refused)
            .chain(too_long)
            .collect()
    }
}

impl Default for Limits {
    /// Returns limits with buffers aligned to cache lines, unlimited memory, and kernels of at most 256 instructions.
    /// Larger kernels save almost nothing, and take long to plan and to build.
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
