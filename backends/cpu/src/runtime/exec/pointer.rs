//! Addresses in tables of slots, and tensors at addresses that kernels can take.

use eutectic_ir::Tensor;

use crate::runtime::memory::Pages;

/// A tensor at an address that suits its element type.
pub struct Aligned {
    tensor: Tensor,
    copy: Option<Pages>,
}

impl Aligned {
    /// Copies it if its address does not suit.
    pub fn new(tensor: &Tensor) -> Aligned {
        let aligned = (tensor.bytes().as_ptr() as usize).is_multiple_of(tensor.dtype().size());
        let copy = (!aligned).then(|| Pages::of(tensor.bytes()));
        Aligned { tensor: tensor.clone(), copy }
    }

    /// Returns its first byte.
    pub fn at(&self) -> *mut u8 {
        self.copy.as_ref().map_or(self.tensor.bytes().as_ptr().cast_mut(), Pages::at)
    }

    /// Returns how many bytes it has.
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
// SAFETY: as above.
unsafe impl Sync for Pointer {}

/// The pointer of a slot without memory.
pub const NOWHERE: Pointer = Pointer(std::ptr::null_mut());
