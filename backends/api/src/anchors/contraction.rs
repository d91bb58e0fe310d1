//! `out[b.. m.. n..] = Σ_k.. lhs[b.. m.. k..] · rhs[b.. k.. n..]` over the domain `[b.. m.. n..]`, where each letter is
//! a group of any number of axes.

use crate::{
    axes::{FEW, Nest, is_load_of_matrix},
    body::{Body, Instr, Store},
    kernel::{Along, AnchorCall, AnchorDef, AnchorKernel, Beyond, GroupDef, Kernel, OperandDef, ResultDef},
};

const BATCH: usize = 0;
const ROWS: usize = 1;
const COLUMNS: usize = 2;
const DEPTH: usize = 3;

const BEYOND: &[Beyond] = &[Beyond { group: DEPTH, value: 0.0, counts: |_| true }];

pub(super) static DEF: AnchorDef = AnchorDef {
    name: "matmul",
    groups: &[
        GroupDef { name: "batch", along: Along::Free },
        GroupDef { name: "rows", along: Along::Free },
        GroupDef { name: "columns", along: Along::Free },
        GroupDef { name: "depth", along: Along::Combined },
    ],
    operands: &[
        OperandDef { name: "lhs", layout: &[BATCH, ROWS, DEPTH], absent: None, beyond: BEYOND },
        OperandDef { name: "rhs", layout: &[BATCH, DEPTH, COLUMNS], absent: None, beyond: BEYOND },
    ],
    results: &[ResultDef { layout: &[BATCH, ROWS, COLUMNS], none: None }],
    attrs: &[],
    accumulator: |dtypes| dtypes.first().map(|dtype| dtype.register()),
    flops: |points| 2.0 * points[BATCH] * points[ROWS] * points[COLUMNS] * points[DEPTH],
    normalise: transpose_few_columns,
    eval,
};

/// The number of axes of each group of a contraction. A group without axes counts as one axis of extent 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContractionAxes {
    /// Axes of separate products.
    pub batch: usize,
    /// Axes of the left operand and the result.
    pub rows: usize,
    /// Axes of the right operand and the result.
    pub columns: usize,
    /// Axes that are summed over.
    pub depth: usize,
}

/// The contraction that a kernel computes.
#[derive(Clone, Copy, Debug)]
pub struct Contraction<'a> {
    /// The left operand, over the axes of batch, rows and depth.
    pub lhs: &'a Body,
    /// The right operand, over the axes of batch, depth and columns.
    pub rhs: &'a Body,
    /// The number of axes of each group.
    pub axes: ContractionAxes,
}

impl AnchorKernel {
    /// Returns a product of matrices for each point of the batch axes `b..`: `lhs` is over `[b.. m k]`, and `rhs` over
    /// `[b.. k n]`.
    pub fn product(lhs: Body, rhs: Body) -> AnchorKernel {
        AnchorKernel::of(&DEF, &[1, 1, 1], vec![lhs, rhs], Default::default())
    }

    /// Returns a contraction whose groups have any number of axes.
    pub fn contraction(lhs: Body, rhs: Body, axes: ContractionAxes) -> AnchorKernel {
        AnchorKernel::of(&DEF, &[axes.rows, axes.columns, axes.depth], vec![lhs, rhs], Default::default())
    }
}

impl Kernel {
    /// Returns the contraction that the kernel is built around; `None` if it has another anchor.
    pub fn contraction(&self) -> Option<Contraction<'_>> {
        let ([lhs, rhs], true) = (&self.anchor.operands[..], self.anchor.kind.is(&DEF)) else { return None };
        let [batch, rows, columns, depth] = self.groups()[..] else { return None };
        Some(Contraction { lhs, rhs, axes: ContractionAxes { batch, rows, columns, depth } })
    }
}

fn eval(call: &AnchorCall<'_>) -> Vec<Vec<f64>> {
    let ([lhs, rhs], &[batch, rows, columns, depth]) = (call.operands, call.extents) else { return Vec::new() };
    let mut out = Vec::with_capacity(batch * rows * columns);
    for b in 0..batch {
        for m in 0..rows {
            for n in 0..columns {
                let term = |k| lhs[(b * rows + m) * depth + k] * rhs[(b * depth + k) * columns + n];
                out.push((0..depth).map(term).sum());
            }
        }
    }
    vec![out]
}

/// Transposes a product of more than [`FEW`] rows and at most [`FEW`] columns, so that it has few rows.
fn transpose_few_columns(kernel: &mut Kernel) {
    let Some(Contraction { lhs, axes, .. }) = kernel.contraction() else { return };
    let ContractionAxes { batch, rows, columns, depth } = axes;
    let points = |axes: &[usize]| axes.iter().product::<usize>();
    let (of_rows, of_columns) = kernel.body.domain[batch..].split_at(rows);
    if rows > 1 || points(of_rows) <= FEW || points(of_columns) > FEW || !is_matrix(lhs, &kernel.slots) {
        return;
    }
    // Exchanges the two groups of axes that follow the batch axes. `first` and `second` are their numbers of axes.
    let exchanged = |body: &mut Body, stores: &mut Vec<Store>, first: usize, second: usize| {
        let order: Vec<usize> =
            (0..batch).chain(batch + first..batch + first + second).chain(batch..batch + first).collect();
        let nest = Nest { stores: std::mem::take(stores), ..Nest::of(std::mem::take(body)) }.permuted(&order);
        *stores = nest.stores;
        *body = Body { domain: nest.domain, lengths: nest.lengths, instrs: nest.instrs, results: nest.results };
    };
    let operands = &mut kernel.anchor.operands;
    exchanged(&mut operands[0], &mut Vec::new(), rows, depth);
    exchanged(&mut operands[1], &mut Vec::new(), depth, columns);
    operands.swap(0, 1);
    exchanged(&mut kernel.body, &mut kernel.stores, rows, columns);
    kernel.anchor.axes.swap(ROWS - 1, COLUMNS - 1);
}

/// Returns whether every load of a body reads a strided matrix ([`is_load_of_matrix`]).
fn is_matrix(body: &Body, slots: &[(eutectic_ir::DType, usize)]) -> bool {
    let of_matrix = |load| is_load_of_matrix(load, &body.domain, slots);
    body.instrs.iter().all(|instr| if let Instr::Load(load) = instr { of_matrix(load) } else { true })
}
