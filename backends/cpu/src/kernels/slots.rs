//! The buffers that a thunk is compiled for.

use eutectic_ir::DType;

/// The types and sizes of a kernel's slots, to which buffers of the thunk's own are added.
#[derive(Clone)]
pub struct Slots {
    /// The types and sizes of all slots.
    pub types: Vec<(DType, usize)>,
    /// The number of the kernel's own slots.
    pub given: usize,
}

impl Slots {
    /// Adds a buffer.
    pub fn add(&mut self, dtype: DType, count: usize) -> usize {
        self.types.push((dtype, count));
        self.types.len() - 1
    }

    /// Returns bytes of the buffers that were added.
    pub fn added(&self) -> Vec<usize> {
        self.types[self.given..].iter().map(|(dtype, count)| dtype.size() * count).collect()
    }
}
