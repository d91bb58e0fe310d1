//! What is launched for a kernel: a printed one, or a product by the device's library.

use eutectic_ir::DType;

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// What runs.
    pub work: Work,
    /// Blocks along each axis of the grid; none where there is nothing to do.
    pub grid: [usize; 3],
    /// Threads of a block.
    pub block: usize,
    /// Bytes of shared memory whose size is not in the text.
    pub shared: usize,
    /// Bytes of memory that it needs for itself while it runs; all launches of a kernel have the same.
    pub workspace: usize,
    /// Bytes of the workspace at which the buffers begin that texts may declare after the kernel's own.
    pub parts: Vec<usize>,
    /// Tensors of which it asks a copy engine for boxes; texts have them as one more argument.
    pub boxes: Vec<Boxes>,
}

/// A tensor of 16-bit elements whose boxes a copy engine brings to shared memory; along the first axis elements are neighbours.
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

/// What runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// A text. Its arguments: the workspace, where faults are reported, the step's number, each buffer, and the parts of the workspace, which
    /// texts may declare as buffers.
    Printed(String),
    /// A product.
    Product(Box<Product>),
}

/// How many arguments come before those of the buffers.
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
    /// What is done with sums before they are stored.
    pub finish: Finish,
}

/// The epilogue of a library's product: `activation(product + bias + residual)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Finish {
    /// Buffer and first element of a number for each column, of the result's type.
    pub bias: Option<(usize, usize)>,
    /// A matrix of the result's type.
    pub residual: Option<MatrixLayout>,
    /// By its key in the table of ops.
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
    /// A printed kernel without memory of its own.
    pub fn new(source: String, grid: [usize; 3], block: usize) -> Launch {
        Launch { work: Work::Printed(source), grid, block, shared: 0, workspace: 0, parts: vec![0], boxes: Vec::new() }
    }

    /// A product by the library.
    pub fn product(product: Product, workspace: usize) -> Launch {
        Launch { work: Work::Product(Box::new(product)), workspace, ..Launch::new(String::new(), [1; 3], 1) }
    }

    /// Returns its arguments, given the addresses of the workspace, of the report of faults and of each buffer, and the number of its step.
    pub fn arguments(
        &self,
        [workspace, fault, step]: [u64; BEFORE_SLOTS],
        slots: impl Iterator<Item = u64>,
    ) -> Vec<u64> {
        let parts = self.parts.iter().map(|&begin| workspace + begin as u64);
        [workspace, fault, step].into_iter().chain(slots).chain(parts).collect()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }

    /// The text, of a printed kernel.
    pub fn source(&self) -> Option<&str> {
        match &self.work {
            Work::Printed(source) => Some(source),
            Work::Product(_) => None,
        }
    }
}
