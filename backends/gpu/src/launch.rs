//! Describes the launches of a kernel: a printed kernel, or a product by the device's library.

use eutectic_ir::DType;

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The code that runs.
    pub work: Work,
    /// Blocks along each axis of the grid. If there is no work, an axis is 0.
    pub grid: [usize; 3],
    /// Threads of a block.
    pub block: usize,
    /// Bytes of dynamic shared memory, whose size is not in the text.
    pub shared: usize,
    /// Bytes of scratch memory that the kernel uses while it runs. All launches of a kernel state the same number.
    pub workspace: usize,
    /// Offsets in the workspace, in bytes, of the buffers that the text may declare after the kernel's own.
    pub parts: Vec<usize>,
    /// Tensors whose boxes the copy engine (TMA) loads. The kernel has one more argument for each.
    pub boxes: Vec<Boxes>,
}

/// A tensor of 16-bit elements whose boxes the copy engine (TMA) loads into shared memory. Elements are contiguous
/// along the first axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Boxes {
    /// The slot of the tensor's buffer.
    pub slot: usize,
    /// The index of the tensor's first element in the buffer.
    pub offset: usize,
    /// Element type.
    pub dtype: DType,
    /// Extents, the innermost axis first.
    pub extents: [usize; 3],
    /// Elements from one point of the second and third axis to the next. A stride in bytes is a multiple of 16.
    pub strides: [usize; 2],
    /// Extents of a box, the innermost axis first.
    pub lengths: [usize; 3],
}

/// The code of a launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// A printed kernel. Its arguments are the workspace, the fault report, the step's number, each buffer, and each
    /// range of the workspace that the text declares as a buffer.
    Printed(String),
    /// A matrix product by the device's library.
    Product(Box<Product>),
}

/// The number of kernel arguments before the buffers: workspace, fault report and step number.
pub const BEFORE_SLOTS: usize = 3;

/// A batch of products of strided matrices. Sums have 32 bits, or 64 bits for 64-bit elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// Extents of batch, rows, columns and depth.
    pub extents: [usize; 4],
    /// Element type of the operands.
    pub operands: DType,
    /// Whether the operands may be rounded to TF32, which has eleven significant bits.
    pub tf32: bool,
    /// Element type of the result.
    pub result: DType,
    /// The left operand: rows by depth.
    pub lhs: MatrixLayout,
    /// The right operand: depth by columns.
    pub rhs: MatrixLayout,
    /// The result: rows by columns.
    pub out: MatrixLayout,
    /// The epilogue of the sums.
    pub finish: Finish,
}

/// The epilogue of a library's product: `activation(product + bias + residual)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Finish {
    /// The buffer and first element of a vector with one number per column, of the result's type.
    pub bias: Option<(usize, usize)>,
    /// A matrix of the result's type that is added to the product.
    pub residual: Option<MatrixLayout>,
    /// The activation, by its key in the op table.
    pub activation: Option<&'static str>,
}

/// Matrices in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixLayout {
    /// The slot of the buffer. One past the last slot stands for the workspace.
    pub slot: usize,
    /// The index of the first element in the buffer.
    pub offset: usize,
    /// Elements from one point of the batch, row and column to the next.
    pub strides: [usize; 3],
}

impl Launch {
    /// Returns the launch of a printed kernel without a workspace.
    pub fn new(source: String, grid: [usize; 3], block: usize) -> Launch {
        Launch { work: Work::Printed(source), grid, block, shared: 0, workspace: 0, parts: vec![0], boxes: Vec::new() }
    }

    /// Returns the launch of a product by the library.
    pub fn product(product: Product, workspace: usize) -> Launch {
        Launch { work: Work::Product(Box::new(product)), workspace, ..Launch::new(String::new(), [1; 3], 1) }
    }

    /// Returns the arguments, given the addresses of the workspace, of the fault report and of each buffer, and the
    /// step's number.
    pub fn arguments(
        &self,
        [workspace, fault, step]: [u64; BEFORE_SLOTS],
        slots: impl Iterator<Item = u64>,
    ) -> Vec<u64> {
        let parts = self.parts.iter().map(|&begin| workspace + begin as u64);
        [workspace, fault, step].into_iter().chain(slots).chain(parts).collect()
    }

    /// Returns whether there is no work.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }

    /// Returns the text of a printed kernel; `None` for a product by the library.
    pub fn source(&self) -> Option<&str> {
        match &self.work {
            Work::Printed(source) => Some(source),
            Work::Product(_) => None,
        }
    }
}
