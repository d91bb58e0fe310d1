//! Features and limits of devices on which kernels and memory depend. Tests lower them to the limits of other devices.

use eutectic_ir::DType;

/// Units that multiply matrices of 16 × 16 16-bit floats by subgroups, and sum in 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatrixUnits {
    /// Whether the units support `f16`.
    pub f16: bool,
    /// Whether the units support `bf16`.
    pub bf16: bool,
    /// Whether plain arithmetic of 32 threads emulates the units, to test their kernels on other devices.
    pub emulated: bool,
}

impl MatrixUnits {
    /// The emulated units, with which tests run on a device without matrix units.
    pub const EMULATED: MatrixUnits = MatrixUnits { f16: true, bf16: true, emulated: true };

    /// Returns whether the units take operands of a type.
    pub fn take(&self, dtype: DType) -> bool {
        match dtype {
            DType::F16 => self.f16,
            DType::Bf16 => self.bf16,
            _ => false,
        }
    }
}

/// The features and limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Whether the device has 64-bit integers.
    pub int64: bool,
    /// Whether the device has 64-bit floats.
    pub float64: bool,
    /// Whether there are atomic additions of 32-bit floats. Without them, threads use compare-and-swap.
    pub float_atomics: bool,
    /// The number of threads that exchange values in registers, a power of two. It is `None` without shuffles, or
    /// without blocks of whole subgroups.
    pub subgroup: Option<usize>,
    /// Matrix units, for which kernels need whole subgroups.
    pub matrices: MatrixUnits,
    /// The maximal number of threads of a block: a power of two.
    pub threads: usize,
    /// The maximal bytes of shared memory of a block.
    pub shared: usize,
    /// The maximal number of blocks along both axes of a grid.
    pub blocks: [usize; 2],
    /// The maximal number of buffers of a kernel.
    pub buffers: usize,
    /// The maximal bytes of a buffer that a kernel can access.
    pub binding: usize,
    /// The alignment of buffers that kernels bind, in bytes.
    pub alignment: usize,
    /// Bytes of the device's memory.
    pub memory: usize,
}

impl Features {
    /// Features without any restriction.
    pub const ALL: Features = Features {
        int64: true,
        float64: true,
        float_atomics: true,
        subgroup: Some(usize::MAX),
        matrices: MatrixUnits { f16: true, bf16: true, emulated: false },
        threads: usize::MAX,
        shared: usize::MAX,
        blocks: [usize::MAX; 2],
        buffers: usize::MAX,
        binding: usize::MAX,
        alignment: 1,
        memory: usize::MAX,
    };

    /// The minimum that Vulkan guarantees of every device, except for the number of buffers: it guarantees four, and
    /// kernels need eight.
    pub const LEAST: Features = Features {
        int64: false,
        float64: false,
        float_atomics: false,
        subgroup: None,
        matrices: MatrixUnits { f16: false, bf16: false, emulated: false },
        threads: 128,
        shared: 16 << 10,
        blocks: [65535; 2],
        buffers: 8,
        binding: 128 << 20,
        alignment: 256,
        memory: 1 << 30,
    };

    /// Returns the features that both `self` and `most` have, and the lower value of each limit.
    pub fn within(self, most: &Features) -> Features {
        Features {
            int64: self.int64 && most.int64,
            float64: self.float64 && most.float64,
            float_atomics: self.float_atomics && most.float_atomics,
            subgroup: self.subgroup.zip(most.subgroup).map(|(has, most)| has.min(most)),
            matrices: match (self.subgroup, most.subgroup) {
                _ if most.matrices.emulated => most.matrices,
                // Matrix units work on the device's own subgroups.
                (Some(has), Some(most_of)) if has <= most_of => MatrixUnits {
                    f16: self.matrices.f16 && most.matrices.f16,
                    bf16: self.matrices.bf16 && most.matrices.bf16,
                    emulated: self.matrices.emulated,
                },
                _ => MatrixUnits::default(),
            },
            threads: self.threads.min(most.threads),
            shared: self.shared.min(most.shared),
            blocks: [0, 1].map(|axis| self.blocks[axis].min(most.blocks[axis])),
            buffers: self.buffers.min(most.buffers),
            binding: self.binding.min(most.binding),
            alignment: self.alignment.max(most.alignment),
            memory: self.memory.min(most.memory),
        }
    }

    /// Returns the first device limit that is too low for kernels, with its value; `None` if all suffice.
    pub fn too_little(&self) -> Option<String> {
        let least = Features::LEAST;
        let counts = [
            (self.threads, least.threads, "invocations of a work group"),
            (self.shared, least.shared, "bytes of shared memory"),
            (self.buffers, least.buffers, "storage buffers of a stage"),
            (self.binding, least.binding, "bytes of a storage buffer's range"),
        ];
        let lacking = counts.into_iter().find(|(has, least, _)| has < least);
        lacking.map(|(has, least, what)| format!("has {has} {what}; kernels take {least}"))
    }

    /// Returns the element types that the device lacks, each with the name of the missing feature.
    pub fn lacks(&self) -> Vec<(DType, &'static str)> {
        let all = [(DType::I64, self.int64, "shaderInt64"), (DType::F64, self.float64, "shaderFloat64")];
        all.into_iter().filter(|(_, has, _)| !has).map(|(dtype, _, feature)| (dtype, feature)).collect()
    }
}

impl Default for Features {
    /// Returns features without any restriction.
    fn default() -> Features {
        Features::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_has_too_little_is_told_by_what() {
        assert_eq!(Features::ALL.within(&Features::LEAST), Features::LEAST);
        assert_eq!(Features::LEAST.within(&Features::ALL), Features::LEAST);
        assert_eq!(Features::LEAST.too_little(), None);
        let few = Features { buffers: 4, ..Features::ALL };
        assert_eq!(few.too_little().unwrap(), "has 4 storage buffers of a stage; kernels take 8");
        let names: Vec<_> = Features::LEAST.lacks().into_iter().map(|(_, feature)| feature).collect();
        assert_eq!(names, ["shaderInt64", "shaderFloat64"]);
    }
}
