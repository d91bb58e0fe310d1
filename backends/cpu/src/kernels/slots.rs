//! The buffers that a thunk is compiled for.

use eutectic_ir::DType;

/// The types and sizes (in elements) of a kernel's slots, and of the buffers that the thunk adds for its own use.
#[derive(Clone)]
pub struct Slots {
    /// The types and sizes of all slots.
    pub types: Vec<(DType, usize)>,
    /// The number of the kernel's own slots.
    pub given: usize,
}

impl Slots {
    /// Adds a buffer of `count` elements, and returns the number of its slot.
    pub fn add(&mut self, dtype: DType, count: usize) -> usize {
        self.types.push((dtype, count));
        self.types.len() - 1
    }

    /// Returns the bytes of each buffer that was added.
    pub fn added(&self) -> Vec<usize> {
        self.types[self.given..].iter().map(|(dtype, count)| dtype.size() * count).collect()
    }
}
