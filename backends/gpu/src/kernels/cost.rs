//! What products and attentions cost, as they are printed.

use eutectic_backend::{Attention, Body, Contraction, Instr, Kernel, Load, axes, reach::stored, scores::Shares};
use eutectic_ir::{DType, index::Index};

use crate::{
    cost::{Costs, points, touched},
    device::DeviceShape,
    kernels::gathered::reads,
};

/// Bytes that a copy on the way to matrix units brings at once, all of one row.
const COPIED: usize = 16;
/// Rows or columns that are not cut into tiles.
const FEW: f64 = axes::FEW as f64;
/// Blocks of an attention that a processor has at once.
const RESIDENT: f64 = 2.0;

impl Costs {
    /// Seconds in which a product or an attention waits: matrix units for operands that are evaluated, which copies do not hold up; and blocks
    /// of an attention for their first keys and for stores.
    pub(crate) fn waiting(&self, shape: &DeviceShape, kernel: &Kernel) -> f64 {
        // Operands that come tile by tile, how long they are along what is summed over, how many blocks have results, and what these wait besides.
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
        // Matrix units take queries, keys and values whose terms lie side by side.
        let is_attention = kernel.attention().is_some();
        let lies = |body: &Body| is_copied(body) && (!is_attention || lies_along_its_last_axis(body));
        let evaluated = bodies.iter().filter(|body| !lies(body)).count() as f64;
        let waves = (blocks / shape.processors as f64).max(1.0);
        self.evaluated * evaluated * points(along) / 64.0 * waves + besides
    }

    /// Operations of an anchor, the seconds that they take, and how many blocks work on it.
    pub(crate) fn anchor(&self, kernel: &Kernel) -> (f64, f64, f64) {
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
            // Where results are few, parts of the depth go to processors of their own.
            let blocks = domain / 1024.0 * (depth / 128.0).max(1.0);
            let rate = rate(&[lhs, rhs], [self.wide, self.matrix, self.tf32, self.fma]);
            // How many tiles of 128 read an element: those across the other operand.
            let gathered = |body: &Body, inner: usize| {
                let again = (domain * depth / points(&body.domain).max(1.0) / 128.0).max(1.0);
                reads(body, inner, &kernel.slots) * again
            };
            let gathered = gathered(lhs, axes.batch + axes.rows) + gathered(rhs, axes.batch + axes.depth);
            return (flops, flops / (rate * full) + gathered * self.gathered, blocks.max(1.0));
        }
        if let Some(Attention { query, key, value, axes, .. }) = kernel.attention() {
            let groups = points(&query.domain[..axes.batch]);
            // Of queries, those whose results are stored.
            let queries = points(&query.domain[axes.batch..axes.batch + axes.queries]) * stored(kernel);
            let keys = points(&key.domain[axes.batch..axes.batch + axes.keys]);
            extents[1] = queries;
            let flops = (kernel.anchor.def().flops)(&extents) * shares(kernel).visible;
            let rates = [0.5 * self.wide, self.matrix_attention, self.tf32_attention, self.attention];
            let seconds = flops / rate(&[query, key, value], rates);
            return (flops, seconds, (groups * (queries / 64.0).ceil() * (keys / 256.0).max(1.0)).max(1.0));
        }
        (0.0, 0.0, (domain / 2048.0).max(1.0))
    }

    /// Operations of operands' expressions, which are evaluated for each tile of the result that reads them; reading costs nothing more.
    pub(crate) fn prologues(&self, kernel: &Kernel) -> f64 {
        let result = points(&kernel.body.domain);
        let bare = |body: &Body| if is_loaded(body) { 0.0 } else { self.expressions(body, &[]) };
        if let Some(Contraction { lhs, rhs, axes }) = kernel.contraction() {
            let depth = points(&lhs.domain[axes.batch + axes.rows..]).max(1.0);
            // How many tiles of 128 read an element: those across the other operand.
            let again = |body: &Body| (result * depth / points(&body.domain).max(1.0) / 128.0).max(1.0);
            return bare(lhs) * again(lhs) + bare(rhs) * again(rhs);
        }
        if let Some(Attention { query, key, value, bias, axes, .. }) = kernel.attention() {
            let queries = points(&query.domain[axes.batch..axes.batch + axes.queries]);
            let again = (queries / 64.0).max(1.0);
            // Threads read it element by element; what many scores have in common is read once, or near.
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

/// Which part of the tiles of a product has results; a few rows or columns are not cut into tiles.
fn full_tiles(extent: f64) -> f64 {
    if extent <= FEW { 1.0 } else { (extent / 64.0).min(1.0) }
}

/// Whether an operand is what memory has.
fn is_loaded(body: &Body) -> bool {
    let value = body.before_tf32().or(body.results.first().copied());
    value.is_some_and(|value| matches!(body.instrs[value], Instr::Load(_)))
}

/// Whether an operand is what memory has, in steps of the same size along each axis, of whole copies but along one: what copies bring.
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

/// Whether what a body loads lies side by side along its innermost axis.
fn lies_along_its_last_axis(body: &Body) -> bool {
    let step = |map: &Index| map.affine(body.domain.len()).and_then(|strides| strides.last().copied());
    body.instrs.iter().all(|instr| !matches!(instr, Instr::Load(load) if step(&load.at) != Some(1)))
}

/// Whether anything that a body loads lies side by side along the last of its first axes.
fn steps_by_one(body: &Body, first: usize) -> bool {
    let step = |map: &Index| map.affine(body.domain.len())?.get(first.checked_sub(1)?).copied();
    body.instrs.iter().any(|instr| matches!(instr, Instr::Load(load) if step(&load.at) == Some(1)))
}

/// The shares of an attention's scores that are not hidden, and of which the bias is not plain.
fn shares(kernel: &Kernel) -> Shares {
    match kernel.attention() {
        Some(Attention { bias: Some(bias), axes, .. }) => Shares::of(bias, [axes.batch, axes.queries, axes.keys]),
        _ => Shares::ALL,
    }
}
