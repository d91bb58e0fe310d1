//! Prices products, attentions and atomic stores by the schedules that are printed for them.

use eutectic_backend::{Attention, Body, Contraction, Instr, Kernel, Load, Store, axes, reach::stored, scores::Shares};
use eutectic_ir::{
    DType,
    index::{Atom, Index},
    ops::Writes,
};

use crate::{
    cost::Costs,
    device::DeviceShape,
    kernels::{gathered::reads, in_block::InBlock},
    sectors::{SECTOR, points, touched},
};

/// Bytes of an asynchronous copy to shared memory. All of them belong to one row.
const COPIED: usize = 16;
/// The maximal number of rows or columns of products that are not tiled.
const FEW: f64 = axes::FEW as f64;
/// Blocks of an attention that are resident on a processor at once.
const RESIDENT: f64 = 2.0;

/// The price of stores that atomics combine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Combined {
    /// Bytes that processors access in their first-level caches and shared memory.
    pub bytes: f64,
    /// Seconds in which atomics wait for others on the same bytes.
    pub contended: f64,
}

/// The work of an anchor, that is of a product or an attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AnchorWork {
    /// Operations of the anchor.
    pub flops: f64,
    /// Seconds of these operations if all processors are busy.
    pub seconds: f64,
    /// Blocks that work on the anchor, at least 1.
    pub blocks: f64,
}

impl Costs {
    /// Returns the price of stores that atomics combine.
    pub(crate) fn combined(&self, shape: &DeviceShape, kernel: &Kernel) -> Combined {
        let tables = InBlock::of(kernel, shape);
        let domain = &kernel.body.domain;
        let of = |(n, store): (usize, &Store)| {
            let (dtype, count) = kernel.slots[store.slot];
            let beside = (SECTOR / dtype.size() as f64).max(1.0);
            let in_block = tables.as_ref().and_then(|tables| {
                let copied = tables.stores.iter().find(|copied| copied.store == n)?;
                Some(((tables.blocks * count) as f64, copied.copies as f64))
            });
            let (requests, bytes) = match in_block {
                // Each block initialises its copies, combines points with them, and sends their combination to memory
                // once.
                Some((elements, copies)) => {
                    let tables = elements * (2.0 * copies + 1.0) * dtype.size() as f64;
                    (elements / beside, points(domain) * self.combined + tables)
                }
                // Atomics of neighbouring threads on adjacent elements wait as one request. Each value still accesses a
                // whole sector.
                None if has_neighbours(&store.at, domain) => (points(domain) / beside, points(domain) * SECTOR),
                None => (points(domain), points(domain) * SECTOR),
            };
            Combined { bytes, contended: requests / (count as f64).max(1.0).sqrt() * self.contended }
        };
        let combined = kernel.stores.iter().enumerate().filter(|(_, store)| store.writes != Writes::Apart);
        combined.map(of).fold(Combined::default(), |a, b| Combined {
            bytes: a.bytes + b.bytes,
            contended: a.contended + b.contended,
        })
    }

    /// Returns the stall seconds of a product or an attention: matrix units wait for operands that threads evaluate
    /// instead of copying, and blocks of an attention wait for their first keys and their stores.
    pub(crate) fn waiting(&self, shape: &DeviceShape, kernel: &Kernel) -> f64 {
        // The tiled operands, the extent of the reduced axis, the number of thread blocks, and the fixed stall in
        // seconds.
        let (bodies, along, blocks, besides): (&[&Body], _, _, _) =
            if let Some(Contraction { lhs, rhs, axes }) = kernel.contraction() {
                let (batch, matrix) = kernel.body.domain.split_at(axes.batch);
                let [rows, columns] = [&matrix[..axes.rows], &matrix[axes.rows..]].map(points);
                // Narrow results are cut into smaller tiles.
                let side = if rows.min(columns) <= 64.0 { 64.0 } else { 128.0 };
                let blocks = points(batch) * (rows / side).ceil() * (columns / side).ceil();
                let besides = match () {
                    () if rows <= FEW && !steps_by_one(rhs, axes.batch + axes.depth) => self.across,
                    () if rows.min(columns) <= FEW => 0.0,
                    () => self.product,
                };
                (&[lhs, rhs], &lhs.domain[axes.batch + axes.rows..], blocks, besides)
            } else if let Some(Attention { query, key, value, axes, .. }) = kernel.attention() {
                let blocks = points(&query.domain[..axes.batch + axes.queries]) * stored(kernel) / 64.0;
                let besides = self.attention_block * (blocks / (RESIDENT * shape.processors as f64)).max(1.0);
                (&[query, key, value], &key.domain[axes.batch..axes.batch + axes.keys], blocks, besides)
            } else {
                return 0.0;
            };
        let on_units = |body: &&Body| {
            let dtype = body.results.first().map_or(DType::F32, |&result| body.instrs[result].dtype());
            dtype.is_half() || body.before_tf32().is_some()
        };
        if !bodies.iter().all(on_units) {
            return besides;
        }
        // Matrix units need queries, keys and values that are contiguous along their terms.
        let is_attention = kernel.attention().is_some();
        let lies = |body: &Body| is_copied(body) && (!is_attention || lies_along_its_last_axis(body));
        let evaluated = bodies.iter().filter(|body| !lies(body)).count() as f64;
        let waves = (blocks / shape.processors as f64).max(1.0);
        self.evaluated * evaluated * points(along) / 64.0 * waves + besides
    }

    /// Returns the work of a kernel's anchor.
    pub(crate) fn anchor(&self, kernel: &Kernel) -> AnchorWork {
        let domain = points(&kernel.body.domain);
        let rate = |bodies: &[&Body], [wide, matrix, tf32, fma]: [f64; 4]| {
            let dtype = |body: &&Body| body.results.first().map_or(DType::F32, |&r| body.instrs[r].dtype());
            match () {
                () if bodies.iter().any(|b| dtype(b) == DType::F64) => wide,
                () if bodies.iter().all(|b| dtype(b).is_half()) => matrix,
                () if bodies.iter().all(|b| b.before_tf32().is_some()) => tf32,
                () => fma,
            }
        };
        let mut extents: Vec<f64> = kernel.extents().into_iter().map(|n| n as f64).collect();
        if let Some(Contraction { lhs, rhs, axes }) = kernel.contraction() {
            let flops = (kernel.anchor.def().flops)(&extents);
            let depth = points(&lhs.domain[axes.batch + axes.rows..]);
            let (rows, columns) = kernel.body.domain[axes.batch..].split_at(axes.rows);
            let full = [rows, columns].map(|extents| full_tiles(points(extents))).iter().product::<f64>();
            // If there are few results, split-K gives further blocks a part of the depth.
            let blocks = domain / 1024.0 * (depth / 128.0).max(1.0);
            let rate = rate(&[lhs, rhs], [self.wide, self.matrix, self.tf32, self.fma]);
            // The number of reads of an element: one for each tile of 128 along the other operand.
            let gathered = |body: &Body, inner: usize| {
                let again = (domain * depth / points(&body.domain).max(1.0) / 128.0).max(1.0);
                reads(body, inner, &kernel.slots) * again
            };
            let gathered = gathered(lhs, axes.batch + axes.rows) + gathered(rhs, axes.batch + axes.depth);
            let seconds = flops / (rate * full) + gathered * self.gathered;
            return AnchorWork { flops, seconds, blocks: blocks.max(1.0) };
        }
        if let Some(Attention { query, key, value, axes, .. }) = kernel.attention() {
            let groups = points(&query.domain[..axes.batch]);
            // Only queries whose results are stored count.
            let queries = points(&query.domain[axes.batch..axes.batch + axes.queries]) * stored(kernel);
            let keys = points(&key.domain[axes.batch..axes.batch + axes.keys]);
            extents[1] = queries;
            let flops = (kernel.anchor.def().flops)(&extents) * shares(kernel).visible;
            let rates = [0.5 * self.wide, self.matrix_attention, self.tf32_attention, self.attention];
            let seconds = flops / rate(&[query, key, value], rates);
            let blocks = groups * (queries / 64.0).ceil() * (keys / 256.0).max(1.0);
            return AnchorWork { flops, seconds, blocks: blocks.max(1.0) };
        }
        AnchorWork { flops: 0.0, seconds: 0.0, blocks: (domain / 2048.0).max(1.0) }
    }

    /// Returns the operations of the operands' expressions. Each tile of the result evaluates its operands again.
    /// Operands that are only loaded count as 0.
    pub(crate) fn prologues(&self, kernel: &Kernel) -> f64 {
        let result = points(&kernel.body.domain);
        let bare = |body: &Body| if is_loaded(body) { 0.0 } else { self.expressions(body, &[]) };
        if let Some(Contraction { lhs, rhs, axes }) = kernel.contraction() {
            let depth = points(&lhs.domain[axes.batch + axes.rows..]).max(1.0);
            // The number of reads of an element: one for each tile of 128 along the other operand.
            let again = |body: &Body| (result * depth / points(&body.domain).max(1.0) / 128.0).max(1.0);
            return bare(lhs) * again(lhs) + bare(rhs) * again(rhs);
        }
        if let Some(Attention { query, key, value, bias, axes, .. }) = kernel.attention() {
            let queries = points(&query.domain[axes.batch..axes.batch + axes.queries]);
            let again = (queries / 64.0).max(1.0);
            // Threads read the bias element by element. Elements that many scores share are read once, or from the
            // cache.
            let of = |bias: &Body| {
                let elements = |instr: &Instr| match instr {
                    Instr::Load(load) => touched(&load.at, &bias.domain),
                    _ => 0.0,
                };
                self.expressions(bias, &[]) + bias.instrs.iter().map(elements).sum::<f64>() * self.score_bias
            };
            let bias = bias.map_or(0.0, of) * shares(kernel).mixed;
            return bare(query) + (bare(key) + bare(value)) * again + bias;
        }
        0.0
    }
}

/// Returns the fraction of a tile that results fill along an axis. Products of few rows or columns are not tiled.
fn full_tiles(extent: f64) -> f64 {
    if extent <= FEW { 1.0 } else { (extent / 64.0).min(1.0) }
}

/// Returns whether an operand is loaded from memory without computation.
fn is_loaded(body: &Body) -> bool {
    let value = body.before_tf32().or(body.results.first().copied());
    value.is_some_and(|value| matches!(body.instrs[value], Instr::Load(_)))
}

/// Returns whether asynchronous copies can load an operand: it is unchanged memory, with a constant stride along each
/// axis, and whole copies along one of them.
fn is_copied(body: &Body) -> bool {
    let is_stepped = |load: &Load| {
        let whole = |step: &i64| (step.unsigned_abs() as usize * load.dtype.size()).is_multiple_of(COPIED);
        load.at.affine(body.domain.len()).is_some_and(|steps| steps.iter().all(|step| *step == 1 || whole(step)))
    };
    let is_plain = |instr: &Instr| match instr {
        Instr::Load(load) => load.guards.is_empty() && is_stepped(load),
        _ => true,
    };
    is_loaded(body) && body.instrs.iter().all(is_plain)
}

/// Returns whether the loads of a body are contiguous along its innermost axis.
fn lies_along_its_last_axis(body: &Body) -> bool {
    let step = |map: &Index| map.affine(body.domain.len()).and_then(|strides| strides.last().copied());
    body.instrs.iter().all(|instr| !matches!(instr, Instr::Load(load) if step(&load.at) != Some(1)))
}

/// Returns whether neighbours along the innermost axis are neighbours in memory.
fn has_neighbours(map: &Index, domain: &[usize]) -> bool {
    let last = domain.len().checked_sub(1).filter(|&axis| domain[axis] > 1);
    last.is_some_and(|axis| map.terms.iter().any(|term| *term == (Atom::Coord(axis), 1)))
}

/// Returns whether any load of a body is contiguous along axis `first - 1`.
fn steps_by_one(body: &Body, first: usize) -> bool {
    let step = |map: &Index| map.affine(body.domain.len())?.get(first.checked_sub(1)?).copied();
    body.instrs.iter().any(|instr| matches!(instr, Instr::Load(load) if step(&load.at) == Some(1)))
}

/// Returns the share of an attention's scores that is visible, and the share whose bias is not constant 0.
fn shares(kernel: &Kernel) -> Shares {
    match kernel.attention() {
        Some(Attention { bias: Some(bias), axes, .. }) => Shares::of(bias, [axes.batch, axes.queries, axes.keys]),
        _ => Shares::ALL,
    }
}
