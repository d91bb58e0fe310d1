//! Tensors of GGUF files, mapped into memory.

use std::{ops::Range, sync::Arc};

use eutectic_ir::{DType, Tensor, interp};
use memmap2::Mmap;

use super::format::{Field, Format};
use crate::weights::Mapped;

/// A tensor of a file.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// The format of its elements.
    pub format: &'static Format,
    /// Its extents, the slowest axis first. The file lists the fastest one first.
    pub dims: Vec<usize>,
    pub(super) map: Arc<Mmap>,
    pub(super) range: Range<usize>,
}

impl TensorInfo {
    /// Returns the elements as `f32`, with the same bits as in ggml. Programs do not use this; they decode the fields.
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

    /// Returns a field of all blocks, `[R B ..]`. If a block has no other field, the tensor shares the bytes of the
    /// file.
    pub fn field(&self, field: &Field) -> Tensor {
        let [rows, columns] = self.matrix();
        let dims = [&[rows, columns / self.format.block], &field.dims[..]].concat();
        let bytes = &self.map[self.range.clone()];
        // Fields are little-endian, as tensors are.
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

    /// Returns its rows and columns; a tensor of one axis is one row.
    pub fn matrix(&self) -> [usize; 2] {
        let columns = self.dims.last().copied().unwrap_or(1);
        [self.dims.iter().rev().skip(1).product(), columns]
    }

    /// Returns the number of bytes that it takes in the file.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }
}
