//! Predicts the time of products and attentions, following the steps that their thunks execute.

use std::borrow::Cow;

use eutectic_backend::{
    Attention, Body, Contraction, Instr, Kernel, ValueId,
    grouped::Grouped,
    reach::{AxisSet, mentioned, points, stored},
    scores::Shares,
};
use eutectic_ir::DType;

use super::{
    coefficients::ProductCosts,
    model::{CostAccumulator, CostModel, Multiplied, OperandUse, Walk, dtype, extents},
    registers,
};
use crate::{
    gemm::{blocking::FEW_ROWS, kept::keeps},
    kernels::{
        attention,
        chosen::{AllMatrices, ChosenMatrix},
        coded::{coded, format_of},
        contraction::tasks as cut,
        integers::multiplies_integers,
        lanes::form::{LaneForm, VECTOR},
        operand::kept,
    },
};

/// Returns the values of a product's epilogue that stay in registers, and the numbers of its batch, row and column
/// axes. There are no groups for a batch-vectorised contraction (`lanes`) and for other kernels.
pub(super) fn tiles(kernel: &Kernel, lanes: bool) -> (Vec<ValueId>, Option<[usize; 3]>) {
    let Some(Contraction { axes, .. }) = kernel.contraction() else { return (Vec::new(), None) };
    let groups = (!lanes).then_some([axes.batch, axes.rows, axes.columns]);
    (registers::taken(&kernel.body, lanes), groups)
}

/// Returns the way in which a kernel's results are stored, given the way in which its body is computed.
pub(super) fn walk_of_stores(kernel: &Kernel, walk: Walk) -> Walk {
    if kernel.attention().is_some() { Walk::Blocks } else { walk }
}

/// Returns the number of tasks into which a product or attention can be divided; `None` for other kernels.
pub(super) fn tasks(kernel: &Kernel) -> Option<f64> {
    if let Some(Contraction { axes, .. }) = kernel.contraction() {
        let [batch, rows, columns] = extents(&kernel.body, [axes.batch, axes.rows, axes.columns]);
        return Some(batch * (rows / cut::ROWS as f64).max(1.0) * (columns / cut::FEW_COLUMNS as f64).max(1.0));
    }
    if let Some(Attention { axes, .. }) = kernel.attention() {
        let [batch, queries, _] = extents(&kernel.body, [axes.batch, axes.queries, axes.columns]);
        return Some(batch * (queries / attention::query_block(batch as usize, queries as usize) as f64).ceil());
    }
    None
}

/// Returns the number of innermost axes that are the columns of a product; 0 for other kernels.
pub(super) fn columns(kernel: &Kernel) -> usize {
    kernel.contraction().map_or(0, |contraction| contraction.axes.columns)
}

/// Returns whether a kernel stores the tiles of a product.
pub(super) fn stores_tiles(kernel: &Kernel) -> bool {
    kernel.contraction().is_some()
}

impl CostModel {
    /// Adds the work of the anchor and its operands. `form` is given if a product is computed in batch-vectorised form.
    /// `taken` is the number of values of the epilogue that stay in registers.
    pub(super) fn anchor(
        &self,
        kernel: &Kernel,
        taken: usize,
        (form, constants): (Option<&LaneForm>, Option<&[usize]>),
        work: &mut CostAccumulator,
    ) {
        if let Some(contraction) = kernel.contraction() {
            self.contraction(kernel, contraction, taken, (form, constants), work);
        }
        if let Some(attention) = kernel.attention() {
            self.attention(kernel, attention, work);
        }
    }

    fn contraction(
        &self,
        kernel: &Kernel,
        Contraction { lhs, rhs, axes }: Contraction<'_>,
        taken: usize,
        (form, constants): (Option<&LaneForm>, Option<&[usize]>),
        work: &mut CostAccumulator,
    ) {
        if let Some(form) = form {
            self.lanes(form, work);
        } else {
            self.operand(lhs, [axes.batch, axes.rows, axes.depth], OperandUse::Left, work);
            let [batch, rows, columns] = extents(&kernel.body, [axes.batch, axes.rows, axes.columns]);
            let [.., depth] = extents(lhs, [axes.batch, axes.rows, axes.depth]);
            let constant = |slot| constants.is_none_or(|constants| constants.contains(&slot));
            let all_constant =
                rhs.instrs.iter().all(|i| if let Instr::Load(load) = i { constant(load.slot) } else { true });
            let all = AllMatrices::of_kernel(kernel, constants);
            let kept = match &all {
                Some(all) => Some(Kept::of_matrices(all)),
                None => Kept::of(kernel, rhs).filter(|_| all_constant && columns > 1.0),
            };
            let is_chosen = all.is_some();
            // Rows that choose the same matrix are multiplied together.
            let together =
                all.filter(|_| rows == 1.0).map_or(1.0, |all| (batch / all.count as f64).clamp(1.0, FEW_ROWS as f64));
            let (batch, rows) = (batch / together, rows * together);
            let is_coded = kept.is_some_and(|kept| kept.coded) && !is_chosen;
            let integers = self.machine().integers && is_coded && multiplies_integers(kernel);
            match kept {
                // The operand was packed when parameters were loaded, and its codes are multiplied without decoding.
                Some(_) if integers => {}
                // The operand was packed when parameters were loaded, and kernels decode elements when they read them.
                Some(kept) => {
                    let elements = points(&rhs.domain, kept.depends_on) / together;
                    work.seconds += elements * kept.decoding(&self.costs().product)
                }
                None => self.operand(rhs, [axes.batch, axes.depth, axes.columns], OperandUse::Whole, work),
            }
            let of = Multiplied { dtype: dtype(lhs), kept: kept.map(|kept| kept.bytes), integers };
            self.product([batch, rows, columns, depth], of, work);
            // If one operand is a vector, nothing is packed, and a matrix costs as much as starting a kernel.
            let matrix = if rows.min(columns) > 1.0 { self.costs().product.matrix } else { self.costs().launch };
            work.seconds += if batch > 1.0 { batch * matrix } else { 0.0 };
        }
        let maps = kernel.body.instrs.iter().filter(|i| matches!(i, Instr::Map { .. })).count();
        if maps > taken || kernel.stores.len() > 1 {
            work.seconds += points(&kernel.body.domain, u64::MAX) * self.costs().product.tile;
        }
    }

    /// Returns a lower bound of the seconds that one thread takes for a contraction in batch-vectorised form.
    pub(super) fn least_of_lanes(&self, kernel: &Kernel) -> f64 {
        let Some(Contraction { lhs, axes, .. }) = kernel.contraction() else { return f64::INFINITY };
        let terms = points(&lhs.domain[axes.batch + axes.rows..], AxisSet::MAX);
        let costs = self.machine().lanes;
        let term = [costs.far, costs.matrix, costs.memory].into_iter().fold(costs.term, f64::min);
        points(&kernel.body.domain, AxisSet::MAX) * terms / VECTOR as f64 * term
    }

    fn attention(&self, kernel: &Kernel, of: Attention<'_>, work: &mut CostAccumulator) {
        let Attention { query, key, value, bias, axes, .. } = of;
        let [batch, queries, columns] = extents(&kernel.body, [axes.batch, axes.queries, axes.columns]);
        // The thunk skips queries whose results are not stored.
        let wanted = queries * stored(kernel);
        // If keys and values do not depend on the innermost batch axes (heads that share keys), the queries along these
        // axes are rows of one matrix.
        let heads: Vec<usize> =
            (0..axes.batch).rev().take_while(|&axis| [key, value].iter().all(|of| !mentions(of, axis))).collect();
        let repeated: usize = heads.iter().map(|&axis| kernel.body.domain[axis]).product();
        let (points, rows) = (batch as usize / repeated.max(1), queries as usize * repeated);
        // If the queries exceed one block, several tasks use each key, so keys are evaluated before.
        let of_keys = if rows <= attention::query_block(points, rows) { OperandUse::Blocks } else { OperandUse::Whole };
        self.operand(query, [axes.batch, axes.queries, axes.depth], OperandUse::Blocks, work);
        for (of, columns) in [(key, axes.depth), (value, axes.columns)] {
            let mut once = Cow::Borrowed(of);
            heads.iter().for_each(|&axis| once.to_mut().domain[axis] = 1);
            let short = is_short(of, kernel.accumulator());
            if !short {
                self.operand(&once, [axes.batch, axes.keys, columns], of_keys, work);
            }
            if rows > FEW_ROWS {
                // Each block of queries packs the keys and values again. Narrow types need a second pass, which widens
                // them.
                let elements = once.domain.iter().map(|&n| n as f64).product::<f64>();
                let blocks = (rows as f64 / attention::query_block(points, rows) as f64).ceil();
                let passes = if short { 2.0 } else { 1.0 };
                work.seconds += elements * blocks * passes * self.costs().element.cheap;
            }
        }
        let [_, keys, depth] = extents(key, [axes.batch, axes.keys, axes.depth]);
        let shares = bias.map_or(Shares::ALL, |b| Shares::of(b, [axes.batch, axes.queries, axes.keys]));
        let (matrices, rows) = (batch / repeated.max(1) as f64 * shares.visible, wanted * repeated as f64);
        for [n, k] in [[keys, depth], [columns, keys]] {
            self.attention_product([matrices, rows, n, k], dtype(query), work);
        }
        let count = batch * wanted * keys * shares.visible;
        let float = dtype(query).is_float();
        let each = if float { self.costs().element.softmax * self.factor(dtype(query)) } else { f64::INFINITY };
        work.seconds += count.max(1.0) * each;
        work.flops += 8.0 * count;
        if let Some(bias) = bias {
            let mut of_bias = CostAccumulator::default();
            self.body(bias, 0, Walk::Within, &mut of_bias);
            work.seconds += of_bias.seconds * shares.mixed;
            work.flops += of_bias.flops * shares.mixed;
        }
    }
}

impl CostModel {
    /// Adds `count` products `[m k] · [k n]` of attention. Products of few rows read the right operand in place. Their
    /// rate is at most twice that of a vector times a matrix, because the loads of the right operand limit them.
    fn attention_product(&self, [count, m, n, k]: [f64; 4], dtype: DType, work: &mut CostAccumulator) {
        let mut product = CostAccumulator::default();
        self.product([count, m, n, k], Multiplied { dtype, kept: None, integers: false }, &mut product);
        let few = m > 1.0 && m <= FEW_ROWS as f64 && product.flops > 0.0;
        let least = if few { product.flops / (2.0 * self.costs().product.vector) } else { 0.0 };
        work.flops += product.flops;
        work.seconds += product.seconds.max(least);
    }
}

/// Returns the value whose integer selects the matrix of a contraction's operand at each batch point. Returns `None` if
/// products cannot read the selected matrices in place or packed.
pub(super) fn number_of_matrices(kernel: &Kernel, body: &Body, masks: &[AxisSet]) -> Option<ValueId> {
    let Contraction { lhs, rhs, axes } = kernel.contraction()?;
    let is = |of: &Body| std::ptr::eq(of, body);
    let in_place = || ChosenMatrix::of(&body.instrs, *body.results.first()?, masks, axes.batch).map(|of| of.number);
    let packed = || {
        let operand = Grouped::operand(body, [axes.batch, axes.depth, axes.columns]);
        is(rhs).then(|| AllMatrices::of(&operand)).flatten().map(|all| all.number)
    };
    (is(lhs) || is(rhs)).then(|| in_place().or_else(packed)).flatten()
}

/// Returns whether an operand depends on an axis.
fn mentions(body: &Body, axis: usize) -> bool {
    body.instrs.iter().flat_map(Instr::maps).any(|map| map.mentions(axis))
}

/// Returns whether products can read keys or values in place, in a type narrower than the accumulator.
fn is_short(body: &Body, acc: Option<DType>) -> bool {
    let load = body.results.first().and_then(|&result| kept(&body.instrs, result));
    load.is_some_and(|load| {
        let strides = load.at.affine(body.domain.len()).filter(|_| load.guards.is_empty());
        let is_dense = strides.is_some_and(|strides| strides.last() == Some(&1));
        is_dense && acc.is_some_and(|acc| acc != load.dtype && keeps(acc, load.dtype))
    })
}

/// The packed form of a constant right operand whose elements have fewer bytes in memory than in registers.
#[derive(Clone, Copy)]
struct Kept {
    /// Bytes per element.
    bytes: f64,
    /// Whether elements are codes, which kernels decode with the scale of their block.
    coded: bool,
    /// The axes along which elements differ.
    depends_on: AxisSet,
}

impl Kept {
    fn of(kernel: &Kernel, rhs: &Body) -> Option<Kept> {
        if let Some(format) = coded(kernel) {
            return Some(Kept { bytes: format.weight_bytes(), coded: true, depends_on: AxisSet::MAX });
        }
        let load = kept(&rhs.instrs, *rhs.results.first()?)?;
        let keeps = keeps(kernel.accumulator()?, load.dtype) && load.guards.is_empty();
        let bytes = load.dtype.size() as f64;
        (keeps && load.at.affine(rhs.domain.len()).is_some()).then(|| Kept {
            bytes,
            coded: false,
            depends_on: mentioned(&load.at),
        })
    }

    /// The form of matrices that are chosen at run time. They are packed as numbers if there is no shorter form.
    fn of_matrices(all: &AllMatrices) -> Kept {
        let Grouped { nest, .. } = &all.operand;
        let format = format_of(&all.operand);
        let load = nest.results.first().and_then(|&result| kept(&nest.instrs, result));
        let load = load.filter(|load| keeps(DType::F32, load.dtype) && load.guards.is_empty());
        let bytes = match (format, load) {
            (Some(format), _) => format.weight_bytes(),
            (None, Some(load)) => load.dtype.size() as f64,
            (None, None) => DType::F32.size() as f64,
        };
        Kept { bytes, coded: format.is_some(), depends_on: AxisSet::MAX }
    }

    /// Returns the seconds of decoding an element when it is read.
    fn decoding(self, costs: &ProductCosts) -> f64 {
        match self.coded {
            true => costs.code,
            false if self.bytes == 1.0 => costs.decode,
            false => 0.0,
        }
    }
}
