//! Direct convolution, for products whose operand is windows of an image: depthwise convolutions, and grouped ones with
//! few channels per group.
//!
//! A thread sums a tile of results, with operands that it reads straight from memory. The terms of a window are
//! unrolled, so that a thread reads each element of the image and each weight once for all results of its tile.
//! Neighbouring threads read neighbours in memory, and tiles extend along the other axes.

mod access;
mod printer;
mod work;

use eutectic_backend::{Body, Contraction, Instr, Kernel, Load, axes::is_load_of_matrix};
use eutectic_ir::DType;

use crate::device::DeviceShape;
pub use access::Rates;
use access::{Access, Numbers, operations};

/// The maximal number of unrolled terms per result.
const TERMS: usize = 64;
/// The maximal number of unrolled multiplications per thread.
const WRITTEN: usize = 400;
/// The maximal number of results of a thread, whose sums are in registers.
const RESULTS: usize = 32;
/// The numbers of results per thread that are tried along an axis. The full extent of a short axis is tried too.
const COUNTS: [usize; 5] = [2, 4, 6, 8, 16];
/// The number of innermost axes along which tiles are tried.
const TILED: usize = 3;
/// The maximal number of unrolled terms of an axis that is longer than [`TERMS`].
const PART: usize = 16;
/// The number of neighbouring 16-bit elements that a thread reads at once. With it, the threads of a warp request a
/// whole cache line.
const LANES: usize = 2;
/// Threads of a block.
const BLOCK: usize = 128;

/// A product of windows with its schedule. Its axes are those of the result, `[batch.. rows.. columns..]`, and those of
/// the depth.
pub struct Direct<'a> {
    kernel: &'a Kernel,
    /// The extent of each axis.
    extents: Numbers,
    /// The number of axes of the result.
    outer: usize,
    /// The axis of the depth that is split into two, if any, and the extent of the inner one.
    cut: Option<(usize, usize)>,
    /// The operands, over all axes.
    operands: [Operand; 2],
    /// The accesses that are made once for each result.
    own: Vec<Access>,
    /// The type of sums.
    sum: DType,
    /// For each axis, the number of unrolled points: results of a thread or terms of the depth.
    written: Numbers,
    /// The axes of the result, the outermost first. Neighbouring threads take neighbouring points along the last one.
    order: Numbers,
    /// The number of adjacent elements along the last axis of `order` that a thread reads at once.
    lanes: usize,
}

/// The reads of an operand, and the operations that computing one element takes.
struct Operand {
    reads: Vec<Access>,
    operations: f64,
}

impl<'a> Direct<'a> {
    /// Returns the schedule with the least predicted time. Returns `None` for a kernel that is not a product, for a
    /// product without windows, and for an empty one.
    pub fn of(kernel: &'a Kernel, shape: &DeviceShape) -> Option<Direct<'a>> {
        let Contraction { lhs, rhs, axes } = kernel.contraction()?;
        let sum = kernel.accumulator()?.register();
        let is_plain = |body: &Body| loads(body).all(|load| is_load_of_matrix(load, &body.domain, &kernel.slots));
        if !sum.is_float() || is_plain(lhs) && is_plain(rhs) {
            return None;
        }
        let inner = axes.batch + axes.rows;
        let outer = inner + axes.columns;
        let extents: Numbers = kernel.body.domain.iter().chain(&lhs.domain[inner..]).copied().collect();
        let results = extents[..outer].iter().try_fold(1_usize, |results, &n| results.checked_mul(n))?;
        if outer == 0 || extents.contains(&0) || results >= 1 << 30 {
            return None;
        }
        let rank = extents.len();
        let left: Numbers = (0..inner).chain(outer..rank).collect();
        let right: Numbers = (0..axes.batch).chain(outer..rank).chain(inner..outer).collect();
        let size = |slot: usize| kernel.slots[slot].0.size();
        let of = |body: &Body, to: &[usize]| Operand {
            reads: loads(body).map(|load| Access::new(&load.at, size(load.slot), to, rank)).collect(),
            operations: operations(&body.instrs),
        };
        let operands = [of(lhs, &left), of(rhs, &right)];
        let to: Numbers = (0..outer).collect();
        let read = loads(&kernel.body).map(|load| Access::new(&load.at, size(load.slot), &to, rank));
        let written = kernel.stores.iter().map(|store| Access::new(&store.at, size(store.slot), &to, rank));
        let own = read.chain(written).collect();
        let written = extents.iter().map(|_| 1).collect();
        let mut direct = Direct { kernel, extents, outer, cut: None, operands, own, sum, written, order: to, lanes: 1 };
        direct.write_terms();
        direct.order_by_memory();
        direct.tile(shape);
        Some(direct)
    }

    /// Unrolls the shortest axes of the depth. If even the shortest one is too long, a part of it is unrolled.
    fn write_terms(&mut self) {
        let mut axes: Vec<usize> = (self.outer..self.extents.len()).collect();
        axes.sort_by_key(|&axis| self.extents[axis]);
        let mut terms = 1;
        for axis in axes {
            let extent = self.extents[axis];
            if extent <= TERMS / terms {
                self.written[axis] = extent;
                terms *= extent;
            } else if terms == 1 {
                let by = (1..=PART).rev().find(|&by| extent.is_multiple_of(by)).unwrap_or(1);
                let operands = self.operands.iter_mut().flat_map(|operand| &mut operand.reads);
                operands.chain(&mut self.own).for_each(|access| access.cut(axis, by));
                self.extents[axis] /= by;
                self.extents.insert(axis + 1, by);
                self.written.insert(axis + 1, by);
                self.cut = Some((axis, by));
                return;
            }
        }
    }

    /// Assigns neighbouring threads to the axis along which most accesses are contiguous. A thread reads two 16-bit
    /// elements at once if it can.
    fn order_by_memory(&mut self) {
        let mut bytes: Numbers = self.order.iter().map(|_| 0).collect();
        let mut count = |access: &Access, times: usize| {
            let beside = (0..self.outer).filter(|&axis| access.steps_by_one(axis));
            beside.for_each(|axis| bytes[axis] += access.size * times);
        };
        for access in self.operands.iter().flat_map(|operand| &operand.reads) {
            let terms = (self.outer..self.extents.len()).filter(|&axis| access.mentions[axis]);
            count(access, terms.map(|axis| self.written[axis]).product());
        }
        self.own.iter().for_each(|access| count(access, 1));
        let several = (0..self.outer).filter(|&axis| self.extents[axis] > 1);
        if let Some(nearest) = several.max_by_key(|&axis| (bytes[axis], axis)) {
            self.order.retain(|axis| *axis != nearest);
            self.order.push(nearest);
            let mut reads = self.operands.iter().flat_map(|operand| &operand.reads);
            let is_packed = |access: &Access| !access.mentions[nearest] || access.is_packed(nearest, LANES);
            if self.extents[nearest].is_multiple_of(LANES) && reads.all(is_packed) {
                self.lanes = LANES;
            }
        }
    }

    /// Chooses the tile, one axis after the other.
    fn tile(&mut self, shape: &DeviceShape) {
        let mut least = self.busy(shape, Rates::USUAL);
        let several = |axis: &usize| self.extents[*axis] > 1;
        let axes: Numbers = self.order.iter().rev().skip(1).copied().filter(several).take(TILED).collect();
        for axis in axes {
            let (extent, mut best) = (self.extents[axis], 1);
            let whole = (extent <= COUNTS[COUNTS.len() - 1]).then_some(extent);
            for count in COUNTS.into_iter().filter(|&count| count < extent).chain(whole) {
                self.written[axis] = count;
                let results = self.lanes * self.written[..self.outer].iter().product::<usize>();
                if results > RESULTS || self.written.iter().product::<usize>() > WRITTEN {
                    continue;
                }
                let seconds = self.busy(shape, Rates::USUAL);
                if seconds < least {
                    (least, best) = (seconds, count);
                }
            }
            self.written[axis] = best;
        }
    }

    /// Returns the name of the schedule, for reports.
    pub fn name(&self) -> String {
        let counts: Vec<String> = self.written.iter().map(ToString::to_string).collect();
        let (results, terms) = counts.split_at(self.outer);
        format!("direct {} of {}", results.join("×"), terms.join("×"))
    }

    /// Returns the number of tiles of an axis of the result. If the tile size does not divide the axis, the last tile
    /// overlaps the previous one.
    fn tiles(&self, axis: usize) -> usize {
        self.extents[axis].div_ceil(self.step(axis))
    }

    /// Returns the distance between the tiles of two neighbouring threads along an axis.
    fn step(&self, axis: usize) -> usize {
        let lanes = if self.order.last() == Some(&axis) { self.lanes } else { 1 };
        self.written[axis] * lanes
    }

    /// Returns the number of threads, one for each tile.
    fn threads(&self) -> usize {
        (0..self.outer).map(|axis| self.tiles(axis)).product()
    }
}

/// Returns the loads of a body.
fn loads(body: &Body) -> impl Iterator<Item = &Load> {
    body.instrs.iter().filter_map(|instr| if let Instr::Load(load) = instr { Some(load) } else { None })
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{AnchorKernel, ContractionAxes, Guard, Store};
    use eutectic_ir::index::Index;

    use super::*;

    /// Windows of 7 × 7 of each channel of two images. The channels are the last axis or the first. The weights are
    /// contiguous per channel, or across channels.
    fn by_channels(channels: usize, [height, width]: [usize; 2], last: bool) -> Kernel {
        let images = 2;
        let [c, n, y, x, p, q] = [0, 1, 2, 3, 4, 5].map(Index::coord);
        let tap = |at: &Index, tap: &Index| at.plus(tap).plus(&Index::constant(-3));
        let (row, column) = (tap(&y, &p), tap(&x, &q));
        let place = |row: &Index, column: &Index| match last {
            true => eutectic_ir::index::flatten(
                &[n.clone(), row.clone(), column.clone(), c.clone()],
                &[images, height, width, channels],
            ),
            false => eutectic_ir::index::flatten(
                &[n.clone(), c.clone(), row.clone(), column.clone()],
                &[images, channels, height, width],
            ),
        };
        let within = |at: &Index, extent: usize| -> Guard { (at.clone(), 0..extent as i64) };
        let guards = vec![within(&row, height), within(&column, width)];
        let load = |slot, at, guards| Instr::Load(Load { slot, at, guards, dtype: DType::F32 });
        // The right operand is over [c p q n y x].
        let moved: Vec<Index> = [0, 3, 4, 5, 1, 2].map(Index::coord).to_vec();
        let domain = vec![channels, 7, 7, images, height, width];
        let mut window = load(0, place(&row, &column), guards);
        window.substitute(&moved, &|value| value, &domain);
        let image = Body { domain, instrs: vec![window], results: vec![0], ..Body::default() };
        let [c1, p1, q1] = [0, 1, 2].map(Index::coord);
        let at = match last {
            true => p1.times(7).plus(&q1).times(channels as i64).plus(&c1),
            false => c1.times(49).plus(&p1.times(7)).plus(&q1),
        };
        let weights = Body {
            domain: vec![channels, 7, 7],
            instrs: vec![load(1, at, Vec::new())],
            results: vec![0],
            ..Body::default()
        };
        let axes = ContractionAxes { batch: 1, rows: 0, columns: 3, depth: 2 };
        let count = images * channels * height * width;
        Kernel {
            anchor: AnchorKernel::contraction(weights, image, axes),
            body: Body {
                domain: vec![channels, images, height, width],
                instrs: vec![Instr::Anchor { dtype: DType::F32 }],
                ..Body::default()
            },
            stores: vec![Store::new(2, place(&y, &x), 0)],
            slots: vec![(DType::F32, count), (DType::F32, channels * 49), (DType::F32, count)],
        }
    }

    #[test]
    fn tiles_lie_across_memory_and_share_what_they_read() {
        let shape = DeviceShape::OF_TESTS;
        // The axes of a tile are channels, images, rows and columns.
        for (last, nearest) in [(false, 3), (true, 0)] {
            let kernel = by_channels(96, [56, 56], last);
            let direct = Direct::of(&kernel, &shape).expect("windows");
            assert_eq!(direct.written[4..], [7, 7], "all terms are written out");
            assert_eq!(direct.order.last(), Some(&nearest), "channels last: {last}");
            assert_eq!(direct.written[nearest], 1);
            assert!(direct.written[1..4].iter().product::<usize>() >= 4, "{}", direct.name());
            // Windows of a tile of 8 rows share 14 rows of the image.
            let one =
                Direct { written: direct.written.iter().map(|_| 1).collect(), ..Direct::of(&kernel, &shape).unwrap() };
            assert!(direct.busy(&shape, Rates::USUAL) < 0.7 * one.busy(&shape, Rates::USUAL));
        }
    }

    #[test]
    fn products_without_windows_are_no_convolutions() {
        let shape = DeviceShape::OF_TESTS;
        assert!(Direct::of(&by_channels(3, [5, 0], false), &shape).is_none(), "nothing to compute");
        let load = |slot, at| Instr::Load(Load { slot, at, guards: Vec::new(), dtype: DType::F32 });
        let at = Index::coord(0).times(8).plus(&Index::coord(1));
        let operand = |slot| Body {
            domain: vec![8, 8],
            instrs: vec![load(slot, at.clone())],
            results: vec![0],
            ..Body::default()
        };
        let axes = ContractionAxes { batch: 0, rows: 1, columns: 1, depth: 1 };
        let body = Body { domain: vec![8, 8], instrs: vec![Instr::Anchor { dtype: DType::F32 }], ..Body::default() };
        let kernel = Kernel {
            anchor: AnchorKernel::contraction(operand(0), operand(1), axes),
            body,
            stores: vec![Store::new(2, at.clone(), 0)],
            slots: vec![(DType::F32, 64); 3],
        };
        assert!(Direct::of(&kernel, &shape).is_none());
    }
}
