//! The buffers that a thunk is compiled for.

use eutectic_ir::DType;

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
