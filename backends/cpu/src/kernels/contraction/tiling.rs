//! The tiles of a contraction: its tasks, and the rows that a task computes at once.

use std::ops::Range;

use eutectic_backend::grouped::ROWS;

use super::{
    form::ProductForm,
    sides::{EvaluatedParts, LhsParts},
    tasks::block,
};
use crate::{
    gemm::{
        blocking::Blocking,
        product::{Extents, ProductElement},
    },
    tile::{Grid, MAX_RANK, span},
};

/// The maximal number of elements of a register, the buffer of a value in the epilogue's tile program.
const REGISTER: usize = 4096;
/// The minimal number of rows of a block of the left operand that is evaluated at once, with all terms. Only blocks of
/// tasks of fewer rows have fewer.
const FEWEST: usize = 64;

/// The division of a product. Index 0 is for a packed right operand, and index 1 for others.
pub struct Tiling {
    /// The tasks over `[b.. m n]`.
    pub grids: [Grid; 2],
    /// The number of rows of a tile that the epilogue computes at once.
    pub strips: [usize; 2],
    /// The number of rows of a tile for which a left operand is evaluated at once, with all terms; 0 if they take too
    /// much memory.
    pub block: [usize; 2],
}

impl Tiling {
    /// Divides a product. If `is_direct`, its results are written to their destination without an epilogue.
    pub fn new<T: ProductElement>(
        form: &ProductForm,
        blocking: &Blocking<T>,
        threads: usize,
        is_direct: bool,
    ) -> Tiling {
        let ProductForm { batch, extents, .. } = *form;
        let domain = &form.body.domain;
        let points = domain[..batch].iter().product();
        let grids = [true, false].map(|packed| {
            let mut len = [1; MAX_RANK];
            let size = block(extents, points, blocking, threads, packed, is_direct);
            (len[batch], len[batch + 1]) = (size.rows, size.columns);
            Grid::exactly(domain, &len)
        });
        let strips = [0, 1].map(|g| (REGISTER / grids[g].len()[batch + 1].max(1)).max(1));
        // A block has as many rows as take a quarter of the second-level cache. They are complete strips of the
        // epilogue, or complete lines along the axes of the rows.
        let fits = blocking.tile() / 2 / extents.k.max(1);
        let block = grids.each_ref().map(|grid| grid.len()[batch]);
        let block = [0, 1].map(|g| match block[g] > fits {
            true if fits < FEWEST => 0,
            true if !is_direct => fits / strips[g] * strips[g],
            true => form.lhs.extents(ROWS).iter().rev().fold(1, |n, axis| n * (fits / n).clamp(1, *axis)),
            false => block[g],
        });
        Tiling { grids, strips, block }
    }

    /// Returns whether the tiles of a grid have the full extent of an axis.
    fn has_whole(&self, grid: usize, form: &ProductForm, axis: usize) -> bool {
        self.grids[grid].len()[axis] == form.body.domain[axis]
    }

    /// Returns the blocks in which tasks can evaluate the left operand. Returns `None` if several tasks read a block:
    /// the operand is then evaluated once, before the product.
    pub fn left_parts<T: ProductElement>(&self, form: &ProductForm, blocking: &Blocking<T>) -> Option<LhsParts> {
        let ProductForm { batch, extents, .. } = *form;
        if extents.n == 1 || !(0..2).all(|grid| self.has_whole(grid, form, batch + 1)) {
            return None;
        }
        let parts = blocking.takes_parts(extents.m).then(|| blocking.left_parts(extents.k));
        let of_grid = |g: usize| {
            let tasks = span::parts(0..extents.m, self.grids[g].len()[batch]);
            tasks.flat_map(move |task| span::parts(task, self.block[g]))
        };
        let blocks: Vec<Range<usize>> =
            if self.block.contains(&0) { Vec::new() } else { (0..2).flat_map(of_grid).collect() };
        Some(LhsParts { parts, blocks })
    }

    /// Returns the blocks in which tasks can evaluate the right operand. Returns `None` if several tasks read a block:
    /// the operand is then evaluated once, before the product.
    pub fn right_parts<T: ProductElement>(
        &self,
        form: &ProductForm,
        blocking: &Blocking<T>,
        has_vectors: bool,
    ) -> EvaluatedParts {
        let ProductForm { batch, extents, .. } = *form;
        let columns = self.has_whole(1, form, batch) && extents.n > 1 && has_vectors;
        let products = self.grids[1].extents().into_iter().map(|len| Extents { n: len[batch + 1], ..extents });
        columns.then(|| blocking.right_parts(products))
    }

    /// Returns the shapes of the strips that the epilogue takes.
    pub fn epilogue_shapes(&self, batch: usize) -> Vec<[usize; MAX_RANK]> {
        [0, 1].map(|g| self.grids[g].strips(batch, self.strips[g])).concat()
    }
}
