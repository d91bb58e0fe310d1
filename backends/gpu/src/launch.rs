//! Describes the launches of a kernel: a printed kernel, or a product by the device's library.

use eutectic_ir::DType;

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The code that runs.
    pub work: Work,
    /// Blocks along each axis of the grid. Any axis is 0 if there is no work.
    pub grid: [usize; 3],
    /// Threads of a block.
    pub block: usize,
    /// Bytes of shared memory whose size is not in the text.
    pub shared: usize,
    /// Bytes of memory that it needs for itself while it runs; all launches of a kernel have the same.
    pub workspace: usize,
    /// Bytes of the workspace at which the buffers begin that texts may declare after the kernel's own.
    pub parts: Vec<usize>,
    /// Tensors whose boxes the copy engine loads. The kernel has one more argument for each.
    pub boxes: Vec<Boxes>,
}

/// A tensor of 16-bit elements whose boxes a copy engine brings to shared memory; along the first axis elements are
/// neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Boxes {
    /// Its buffer.
    pub slot: usize,
    /// Its first element.
    pub offset: usize,
    /// Element type.
    pub dtype: DType,
    /// Extents, the nearest axis first.
    pub extents: [usize; 3],
    /// Elements from one point of the second and third axis to the next: of 16 bytes, or several times as many.
    pub strides: [usize; 2],
    /// Extents of a box.
    pub lengths: [usize; 3],
}

/// The code of a launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// A printed kernel. Its arguments: the workspace, the fault report, the step's number, each buffer, and the ranges
    /// of the workspace that the text declares as buffers.
    Printed(String),
    /// A product.
    Product(Box<Product>),
}

/// The number of arguments before those of the buffers.
pub const BEFORE_SLOTS: usize = 3;

/// A batch of products of strided matrices, summed in 32 bits, or in 64 for 64-bit elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// Extents of batch, rows, columns and depth.
    pub extents: [usize; 4],
    /// Element type of the operands.
    pub operands: DType,
    /// Whether eleven significant bits of them are enough.
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
    /// Buffer and first element of a number for each column, of the result's type.
    pub bias: Option<(usize, usize)>,
    /// A matrix of the result's type.
    pub residual: Option<MatrixLayout>,
    /// The activation, by its key in the op table.
    pub activation: Option<&'static str>,
}

/// Matrices in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixLayout {
    /// The buffer; one past the last is the workspace.
    pub slot: usize,
    /// Its first element.
    pub offset: usize,
    /// Elements from one point of the batch, row and column to the next.
    pub strides: [usize; 3],
}

impl Launch {
    /// Returns a printed kernel without memory of its own.
    pub fn new(source: String, grid: [usize; 3], block: usize) -> Launch {
        Launch { work: Work::Printed(source), grid, block, shared: 0, workspace: 0, parts: vec![0], boxes: Vec::new() }
    }

    /// Returns a product by the library.
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

    /// Returns the text, of a printed kernel.
    pub fn source(&self) -> Option<&str> {
        match &self.work {
            Work::Printed(source) => Some(source),
            Work::Product(_) => None,
        }
    }
}
