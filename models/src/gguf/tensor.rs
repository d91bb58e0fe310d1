//! Tensors of GGUF files, mapped into memory.

use std::{ops::Range, sync::Arc};

use eutectic_ir::{DType, Tensor, interp};
use memmap2::Mmap;

use super::format::{Field, Format};
use crate::weights::Mapped;

/// A tensor of a GGUF file, in its packed format.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// The packed format of the elements.
    pub format: &'static Format,
    /// The extents, outermost axis first. In the file, the innermost axis comes first.
    pub dims: Vec<usize>,
    pub(super) map: Arc<Mmap>,
    pub(super) range: Range<usize>,
}

impl TensorInfo {
    /// Decodes the elements to `f32`, with the same bits as ggml. Compiled programs do not call this function: their
    /// kernels decode the packed fields.
    pub fn decode(&self) -> Tensor {
        let [rows, columns] = self.matrix();
        let graph =
            self.format.of_matrix([rows, columns]).expect("unsupported formats were refused when the file was opened");
        let fields = self.format.fields();
        let given = |name: &str| fields.iter().find(|field| field.name == name).map(|field| self.field(field));
        let decoded = interp::interpret_rounded(&graph, &given).expect("a format decodes any bytes");
        let bytes = decoded.iter().flat_map(|value| value.to_tensor().bytes().to_vec()).collect::<Vec<u8>>();
        Tensor::new(DType::F32, &self.dims, bytes).expect("decoding returns one element for each code")
    }

    /// Returns one field of all blocks as a tensor `[R B ..]`. The tensor shares the bytes of the mapped file if the
    /// field is the only one of a block.
    pub fn field(&self, field: &Field) -> Tensor {
        let [rows, columns] = self.matrix();
        let dims = [&[rows, columns / self.format.block], &field.dims[..]].concat();
        let bytes = &self.map[self.range.clone()];
        // The bytes need no conversion, because both the file and tensors are little-endian.
        let made = if field.bytes() == self.format.bytes {
            Tensor::new(field.dtype, &dims, Mapped { map: self.map.clone(), range: self.range.clone() })
        } else {
            let mut own = Vec::with_capacity(bytes.len() / self.format.bytes * field.bytes());
            for block in bytes.chunks_exact(self.format.bytes) {
                own.extend_from_slice(&block[field.at..field.at + field.bytes()]);
            }
            Tensor::new(field.dtype, &dims, own)
        };
        made.expect("sizes were checked when the file was opened")
    }

    /// Returns the rows and columns of the tensor as a matrix. A tensor of one axis is one row.
    pub fn matrix(&self) -> [usize; 2] {
        let columns = self.dims.last().copied().unwrap_or(1);
        [self.dims.iter().rev().skip(1).product(), columns]
    }

    /// Returns the size of the packed tensor in bytes.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }
}
