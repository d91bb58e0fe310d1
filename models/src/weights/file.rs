//! Tensors of files, mapped into memory.

use std::{fmt, ops::Range, sync::Arc};

use eutectic_ir::{DType, Tensor, Type};
use memmap2::Mmap;

/// A tensor of the file.
#[derive(Debug)]
pub(super) enum FileTensor {
    /// A tensor with an element type that programs have.
    Usable(Tensor),
    /// A tensor with another one, described as `F8_E4M3[384 384]`.
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

/// A part of a memory map.
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
    /// Checks the Booleans of a tensor of the file.
    pub fn usable(tensor: Tensor) -> Result<FileTensor, String> {
        if tensor.dtype() == DType::Bool && tensor.bytes().iter().any(|&b| b > 1) {
            return Err(format!("{} has a Boolean that is neither 0 nor 1", tensor.ty()));
        }
        Ok(FileTensor::Usable(tensor))
    }

    /// Returns the type in the file and the tensor in the requested float type, if that is wider and nothing else
    /// differs.
    pub fn widened(&self, wanted: &Type) -> Option<(Type, Tensor)> {
        let (FileTensor::Usable(tensor), Some((to, _))) = (self, wanted.as_tensor()) else {
            return None;
        };
        let exact = tensor.dtype() != to && tensor.dtype().float().zip(to.float()).is_some_and(|(of, to)| of.fits(to));
        (exact && wanted.dims().as_deref() == Some(tensor.dims()))
            .then(|| (tensor.ty(), Tensor::from_f64(to, tensor.dims(), tensor.to_f64())))
    }
}
