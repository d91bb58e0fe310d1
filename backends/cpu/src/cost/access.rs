//! Prices loads and stores beyond the bytes that go through the caches. The price depends on how elements are arranged
//! in memory.

use eutectic_backend::{
    Body, Kernel, Load, Store,
    reach::{AxisSet, held, is_dense, line, masks, of_place, points, row_mask},
};
use eutectic_ir::ops::Writes;

use super::{
    kernels::stores_tiles,
    lines::{SQUARE, coordinates, cut_by, reads, run},
    model::{CostModel, Walk},
};
use crate::kernels::lanes::form::LaneForm;
use crate::tile::{gather::LONG_RUN, grid::MOST_ELEMENTS, shape::SHORTEST_LINE};

/// The number of elements of a row above which a tile has only few rows.
const LONG_ROW: f64 = 1024.0;
/// The approximate minimal number of rows of a product's tile.
const ROWS_TOGETHER: usize = 64;

/// Returns the extents of a tile of a domain. A tile has all points of the inner axes, as long as they fit into a tile
/// program's register of [`MOST_ELEMENTS`].
fn of_tile(domain: &[usize]) -> Vec<usize> {
    let mut left = MOST_ELEMENTS;
    let mut extents: Vec<usize> = domain
        .iter()
        .rev()
        .map(|&extent| {
            let extent = extent.min(left).max(1);
            left /= extent;
            extent
        })
        .collect();
    extents.reverse();
    extents
}

impl CostModel {
    /// Returns the price in seconds of a load of `n` elements. Dense loads, and loads of long contiguous lines, are
    /// read in place. Others are copied, element by element if the map is affine only over few points.
    pub(super) fn load(
        &self,
        load: &Load,
        body: &Body,
        masks: &[AxisSet],
        (walk, row): (Walk, AxisSet),
        n: f64,
    ) -> f64 {
        let (e, domain) = (&self.costs().element, &body.domain);
        let affine = load.at.affine(domain.len()).filter(|_| load.guards.iter().all(|g| walk.is_of_box(g)));
        let Some(strides) = affine else { return self.walked(load, body, masks, row, n) };
        // A guarded load copies only the points where its guards hold.
        let n = load.guards.iter().fold(n, |n, guard| n * held(guard, domain));
        match line(&load.at, domain) {
            _ if is_dense(&strides, domain) => 0.0,
            Some(line) if line >= SHORTEST_LINE as f64 => n / line * e.in_place,
            Some(line) => n / line * e.short + n * e.cheap,
            None if walk == Walk::Operand => n * e.strided,
            None => n * self.strided(&strides, domain, row),
        }
    }

    /// Returns the price in seconds of a load of `n` elements whose map is not affine. If the map is affine along the
    /// innermost axis, the load is copied in boxes. Otherwise it is copied in runs, over which the map is affine, or
    /// element by element if runs are short.
    fn walked(&self, load: &Load, body: &Body, masks: &[AxisSet], row: AxisSet, n: f64) -> f64 {
        let (e, domain) = (&self.costs().element, &body.domain);
        let of_guards = load.guards.iter().fold(0, |axes, (index, _)| axes | reads(index, masks));
        let (own, fixed) = (of_guards | reads(&load.at, masks), of_guards | cut_by(&load.at, masks));
        if own.checked_ilog2().is_none_or(|inner| fixed >> inner & 1 == 0) {
            let extents: Vec<usize> =
                (0..domain.len()).map(|d| if fixed >> d & 1 == 1 { 1 } else { domain[d] }).collect();
            let (slopes, each) = (coordinates(&load.at), points(&of_tile(domain), own & !fixed).max(1.0));
            let inner = own.checked_ilog2().map_or(1, |inner| domain[inner as usize]);
            return n / each * e.run
                + match line(&slopes, &extents) {
                    Some(line) if line >= each => n * e.cheap,
                    Some(line) => n / line * e.short + n * e.cheap,
                    None if inner < SQUARE => n / inner.max(1) as f64 * e.short + n * e.strided,
                    None => n * self.strided(&slopes.affine(domain.len()).unwrap_or_default(), &extents, row),
                };
        }
        let indices = || load.guards.iter().map(|guard| &guard.0).chain([&load.at]);
        let inner = domain.last().copied().unwrap_or(1).max(1) as f64;
        let run = indices().map(|index| run(index, body, masks)).fold(inner, f64::min);
        match run < LONG_RUN as f64 {
            true => n / inner * e.run + n * e.gather,
            false => n / run * e.run + n * e.cheap,
        }
    }

    /// Returns the price in seconds of storing elements at indices that the body computes. Several elements may have
    /// one index. If the indices vary along the innermost axis, elements are stored one by one.
    fn scattered(&self, kernel: &Kernel, store: &Store) -> f64 {
        let (e, body) = (&self.costs().element, &kernel.body);
        let (n, inner) = (points(&body.domain, AxisSet::MAX), body.domain.last().map_or(1.0, |&n| n.max(1) as f64));
        let one_by_one = run(&store.at, body, &masks(body, 0)) < LONG_RUN as f64;
        let (dtype, count) = kernel.slots[store.slot];
        let near = (count * dtype.size()) as f64 <= self.costs().memory.l2_bytes;
        let place = if one_by_one { e.gather + if near { e.strided } else { e.scattered } } else { e.cheap };
        n / inner * e.run + n * place
    }

    /// Returns the price in seconds of copying an element whose neighbours in the tile are not contiguous in memory. If
    /// elements are contiguous along another axis of the tile, squares are transposed in registers, which is cheaper.
    fn strided(&self, strides: &[i64], domain: &[usize], row: AxisSet) -> f64 {
        let e = &self.costs().element;
        let beside = strides.iter().zip(domain).position(|(&s, &n)| s.abs() == 1 && n >= SQUARE);
        // If rows are long, a tile has too few of them for squares.
        let is_in_tile = |d: usize| row == 0 || row >> d & 1 == 1 || points(domain, row) <= LONG_ROW;
        if beside.is_some_and(is_in_tile) { e.square } else { e.strided }
    }

    /// Returns the price in seconds of storing a kernel's elements. Long contiguous lines are written in place, and
    /// short ones are copied.
    pub(super) fn store(&self, kernel: &Kernel, form: Option<&LaneForm>, store: &Store) -> f64 {
        let (e, domain) = (&self.costs().element, &kernel.body.domain);
        let n = points(domain, of_place(store, &kernel.body));
        if store.writes != Writes::Apart {
            return self.scattered(kernel, store);
        }
        if let Some(form) = form {
            // A vector of sums is stored by one instruction if its elements are contiguous, otherwise one by one.
            let lane = form.order.last().copied().unwrap_or(0);
            let beside = store.at.affine(domain.len()).is_some_and(|strides| [0, 1].contains(&strides[lane]));
            return if beside { 0.0 } else { n * e.strided };
        }
        match (line(&store.at, domain), stores_tiles(kernel)) {
            (Some(line), _) if line >= SHORTEST_LINE as f64 || line >= n => 0.0,
            (Some(line), _) => n / line * e.short + n * e.cheap,
            (None, true) => {
                let strides = store.at.affine(domain.len()).unwrap_or_default();
                let beside = strides.iter().zip(domain).position(|(&s, &n)| s.abs() == 1 && n >= SQUARE);
                // A tile has at least `ROWS_TOGETHER` consecutive rows. If the axis of contiguous elements is farther
                // out, another tile stores an element's neighbours, after the cache line was evicted.
                let between = |d: usize| domain[d + 1..domain.len() - 1].iter().product::<usize>();
                let together = beside.is_none_or(|d| between(d) <= ROWS_TOGETHER);
                let near = n * 4.0 <= self.costs().memory.l2_bytes;
                n * if together || near { e.strided } else { e.scattered }
            }
            (None, false) => {
                let (strides, row) = (store.at.affine(domain.len()).unwrap_or_default(), row_mask(kernel));
                let beside = strides.iter().zip(domain).position(|(&s, &n)| s.abs() == 1 && n > 1);
                match beside.is_some_and(|d| row != 0 && row >> d & 1 == 0) {
                    // Elements of different rows share a cache line. A tile has only some of these rows, and the line
                    // is evicted before the next tile stores the others.
                    true if n * 4.0 > self.costs().memory.l2_bytes => n * e.scattered,
                    true => n * e.strided,
                    false => n * self.strided(&strides, domain, row),
                }
            }
        }
    }
}
