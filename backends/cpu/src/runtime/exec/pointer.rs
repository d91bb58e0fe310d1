//! The addresses in tables of slots, and tensors at aligned addresses.

use eutectic_ir::Tensor;

use crate::runtime::memory::Pages;

/// A tensor at an address that is aligned to its element type.
pub struct Aligned {
    tensor: Tensor,
    copy: Option<Pages>,
}

impl Aligned {
    /// Returns the tensor itself if its address is aligned, otherwise an aligned copy.
    pub fn new(tensor: &Tensor) -> Aligned {
        let aligned = (tensor.bytes().as_ptr() as usize).is_multiple_of(tensor.dtype().size());
        let copy = (!aligned).then(|| Pages::of(tensor.bytes()));
        Aligned { tensor: tensor.clone(), copy }
    }

    /// Returns the address of the first byte.
    pub fn at(&self) -> *mut u8 {
        self.copy.as_ref().map_or(self.tensor.bytes().as_ptr().cast_mut(), Pages::at)
    }

    /// Returns the number of bytes of the tensor.
    pub fn bytes(&self) -> usize {
        self.tensor.bytes().len()
    }
}

/// A pointer that may be sent to another thread along with the memory that it points into.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Pointer(pub *mut u8);

// SAFETY: pointers in a table of slots point into memory that its owner keeps, or that a run borrows.
unsafe impl Send for Pointer {}
// SAFETY: pointers in a table of slots point into memory that its owner keeps, or that a run borrows.
unsafe impl Sync for Pointer {}

/// The pointer of a slot without memory.
pub const NOWHERE: Pointer = Pointer(std::ptr::null_mut());
