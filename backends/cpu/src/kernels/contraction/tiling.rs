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

/// Elements of a register of the epilogue.
const REGISTER: usize = 4096;
/// The minimal rows of a left operand that is evaluated with all terms, if there are more.
const FEWEST: usize = 64;

/// How a product is divided: for a packed right operand, and for others.
pub struct Tiling {
    /// The tasks over `[b.. m n]`.
    pub grids: [Grid; 2],
    /// Rows of a tile that the epilogue takes at once.
    pub strips: [usize; 2],
    /// Rows of a tile for which a left operand is evaluated at once, with all terms.
    pub block: [usize; 2],
}

impl Tiling {
    /// Divides a product. Its results are written directly, or by way of the epilogue.
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
        // As many rows as take a quarter of the second-level cache: whole strips of the epilogue, or whole lines of the
        // rows' axes.
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

    /// Returns whether tiles of a grid have the whole length of an axis.
    fn has_whole(&self, grid: usize, form: &ProductForm, axis: usize) -> bool {
        self.grids[grid].len()[axis] == form.body.domain[axis]
    }

    /// Returns the parts in which the left operand could be evaluated. `None` if several tasks read it: then it is
    /// evaluated once before.
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

    /// Returns the parts in which the right operand could be evaluated. `None` if several tasks read it: then it is
    /// evaluated once before.
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
