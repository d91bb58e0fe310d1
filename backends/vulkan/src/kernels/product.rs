//! A product with the properties that all of its schedules need.

use eutectic_backend::{Contraction, Kernel, axes::Nest};
use eutectic_gpu::dialect::Dialect;
use eutectic_ir::DType;

use super::parts::{Epilogue, PrintedOperand, matrix, sums};
use crate::dialect::Wgsl;

/// A tile form: the extents of a block's tile, its steps, and their rate.
#[derive(Clone, Copy, Debug)]
pub struct TileForm {
    /// Rows and columns of a block's tile.
    pub block: [usize; 2],
    /// Terms per step of the depth.
    pub depth: usize,
    /// Rows and columns of a thread; on matrix units, how many subgroups share rows and columns.
    pub shares: [usize; 2],
    /// The rate that a busy processor reaches, relative to its 32-bit multiply-adds.
    pub rate: f64,
}

/// The product `out[b m n] = Σ_k lhs[b m k] · rhs[b k n]`, where each letter stands for one axis.
pub struct Product<'a> {
    pub dialect: &'a Wgsl,
    pub kernel: &'a Kernel,
    /// Extents of batch, rows, columns and depth.
    pub extents: [usize; 4],
    /// The type of sums.
    pub sum: DType,
    /// The operands, each with its result; and the epilogue.
    pub operands: [(Nest, usize); 2],
    pub own: Nest,
}

/// A tile's text: threads per block, declarations before the kernel, and its body.
pub struct TileText {
    pub threads: usize,
    pub before: String,
    pub body: String,
}

/// The epilogue of the sums of neighbours in a row, from column `at_n` of row `m` on: the kernel's stores, or a store
/// of partial sums.
pub struct TilePoints<'a> {
    pub product: &'a Product<'a>,
    pub epilogue: &'a Epilogue,
    /// The number of splits of the depth.
    pub parts: usize,
}

impl TilePoints<'_> {
    /// Returns how many neighbours are stored at once.
    pub fn lanes(&self) -> usize {
        self.epilogue.lanes()
    }

    /// Returns statements that store the neighbours, given the sum of each.
    pub fn at(&self, sum: impl Fn(usize) -> String) -> String {
        let Product { dialect, kernel, extents: [b, m, n, _], .. } = *self.product;
        let part = |lane: usize| {
            let at = format!("((part * {b} + b) * {m} + m) * {n} + at_n + {lane}");
            dialect.store(kernel.slots.len(), &at, &sum(lane))
        };
        let statements = match self.parts {
            1 => self.epilogue.at(sum),
            _ => (0..self.lanes()).map(part).collect(),
        };
        format!("if (m < {m} && at_n < {n}) {{\n{statements}\n}}\n")
    }
}

impl<'a> Product<'a> {
    /// Returns the product of a kernel; `None` for other kernels.
    pub fn new(dialect: &'a Wgsl, kernel: &'a Kernel) -> Option<Product<'a>> {
        let Contraction { lhs, rhs, axes } = kernel.contraction()?;
        let left = matrix(&Nest::of(lhs.clone()), [axes.batch, axes.rows, axes.depth]);
        let right = matrix(&Nest::of(rhs.clone()), [axes.batch, axes.depth, axes.columns]);
        Some(Product {
            dialect,
            kernel,
            extents: [left.domain[0], left.domain[1], right.domain[2], left.domain[2]],
            sum: sums(&kernel.bodies()),
            operands: [(left, lhs.results[0]), (right, rhs.results[0])],
            own: matrix(&Nest::new(&kernel.body, &kernel.stores), [axes.batch, axes.rows, axes.columns]),
        })
    }

    /// Returns the element type of the operands; `None` if they differ.
    pub fn operand_type(&self) -> Option<DType> {
        let [left, right] = [0, 1].map(|n| self.operands[n].0.instrs[self.operands[n].1].dtype());
        (left == right).then_some(left)
    }

    /// Returns whether the device's matrix units take the operands.
    pub fn takes_matrices(&self) -> bool {
        self.sum == DType::F32 && self.operand_type().is_some_and(|dtype| self.dialect.matrices.take(dtype))
    }

    /// Returns the printed operands, with at most `most` neighbours per access.
    ///
    /// # Errors
    /// Returns the reasons why they cannot be printed.
    pub fn operands(&self, most: usize) -> Result<[PrintedOperand; 2], Vec<String>> {
        let print = |n: usize| {
            let (nest, result) = &self.operands[n];
            PrintedOperand::print(self.dialect, (nest, *result), &self.kernel.slots, n == 1, most, None)
        };
        Ok([print(0)?, print(1)?])
    }
}
