//! Tensors of GGUF files, mapped into memory.

use std::{ops::Range, sync::Arc};

use eutectic_ir::{DType, Tensor};
use memmap2::Mmap;

use super::format::Format;
use crate::weights::Mapped;

/// A tensor of a file.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// How its elements are stored.
    pub format: &'static Format,
    /// Its extents, the slowest axis first. (In the file, the fastest one comes first.)
    pub dims: Vec<usize>,
    pub(super) map: Arc<Mmap>,
    pub(super) range: Range<usize>,
}

impl TensorInfo {
    /// Returns the elements as `f32`, to the bits that ggml decodes them to.
    pub fn decode(&self) -> Tensor {
        let bytes = &self.map[self.range.clone()];
        // ggml's formats are little-endian, as tensors are.
        if self.format.name == "F32" && (bytes.as_ptr() as usize).is_multiple_of(4) {
            let mapped = Mapped { map: self.map.clone(), range: self.range.clone() };
            return Tensor::new(DType::F32, &self.dims, mapped).expect("sizes were checked when the file was opened");
        }
        let mut values = vec![0.0; self.dims.iter().product()];
        self.format.decode(bytes, &mut values);
        Tensor::from_f32(&self.dims, &values).expect("a value for each element")
    }

    /// Returns the number of bytes that it takes in the file.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }
}
