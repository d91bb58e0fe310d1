//! Tensors that stay in a mapped file.

use std::{fmt, ops::Range, sync::Arc};

use eutectic_ir::{DType, Tensor, Type};
use memmap2::Mmap;

/// A tensor of a file.
#[derive(Debug)]
pub(super) enum FileTensor {
    /// A tensor with an element type that programs have.
    Usable(Tensor),
    /// A tensor with any other element type. The text describes its type, such as `F8_E4M3[384 384]`.
    Foreign(String),
}

impl fmt::Display for FileTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileTensor::Usable(tensor) => tensor.ty().fmt(f),
            FileTensor::Foreign(text) => f.write_str(text),
        }
    }
}

/// A byte range of a memory map. It is the storage of a tensor.
pub(crate) struct Mapped {
    pub map: Arc<Mmap>,
    pub range: Range<usize>,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }
}

impl FileTensor {
    /// Accepts a tensor of the file, unless one of its Booleans is neither 0 nor 1.
    pub fn usable(tensor: Tensor) -> Result<FileTensor, String> {
        if tensor.dtype() == DType::Bool && tensor.bytes().iter().any(|&b| b > 1) {
            return Err(format!("{} has a Boolean that is neither 0 nor 1", tensor.ty()));
        }
        Ok(FileTensor::Usable(tensor))
    }

    /// Returns the type in the file, and the tensor converted to the float type `wanted`. Returns `None` unless that
    /// type is wider and has the same extents.
    pub fn widened(&self, wanted: &Type) -> Option<(Type, Tensor)> {
        let (FileTensor::Usable(tensor), Some((to, _))) = (self, wanted.as_tensor()) else {
            return None;
        };
        let exact = tensor.dtype() != to && tensor.dtype().float().zip(to.float()).is_some_and(|(of, to)| of.fits(to));
        (exact && wanted.dims().as_deref() == Some(tensor.dims()))
            .then(|| (tensor.ty(), Tensor::from_f64(to, tensor.dims(), tensor.to_f64())))
    }
}
