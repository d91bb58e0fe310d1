//! The form of a contraction: its matrices over merged axes, their blocking, and the right operand's packed form.

use eutectic_backend::{
    Contraction, Kernel, ValueId,
    axes::Nest,
    grouped::{COLUMNS, Grouped},
};
use eutectic_ir::index::Index;

use super::tasks::{batch_into_rows, rows_into_batch};
use crate::{
    gemm::{
        blocking::Blocking,
        product::{Extents, ProductElement},
    },
    kernels::{chosen::AllMatrices, operand::kept},
    runtime::thunk::Constant,
    simd::Isa,
};

/// The form in which a right operand is packed before runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Packing {
    /// The form that suits the product best.
    Best,
    /// The form for products of this number of rows.
    OfRows(usize),
    /// No packed form.
    Never,
}

impl Packing {
    /// Returns the packing for all lengths of a kernel's runs: each run finds the operand in one packed form, unless
    /// the operand's extents vary. `chosen` says that its matrices are chosen, so that the packed form has all of them.
    pub fn of(kernel: &Kernel, chosen: bool) -> Packing {
        let Some(Contraction { rhs, axes, .. }) = kernel.contraction() else { return Packing::Best };
        let operand = Grouped::operand(rhs, [axes.batch, axes.depth, axes.columns]);
        let all = AllMatrices::of(&operand).filter(|_| chosen);
        let batch = if all.is_some() { axes.batch } else { 0 };
        let nest = all.map_or(operand, |all| all.operand).nest;
        if nest.lengths.iter().any(|(axis, _)| nest.depends_on(*axis)) || nest.indices().any(Index::varies) {
            return Packing::Never;
        }
        Packing::OfRows(kernel.body.domain[batch..axes.batch + axes.rows].iter().product())
    }
}

/// A contraction over batch axes, one axis of rows and one of columns.
pub struct ProductForm {
    pub lhs: Grouped,
    pub rhs: Grouped,
    /// The result over `[b.. m n]`.
    pub body: Nest,
    /// The number of batch axes.
    pub batch: usize,
    /// The extents of one product.
    pub extents: Extents,
    /// The integer that chooses a matrix of the right operand at each point of the batch. The right operand then has
    /// all matrices, over one batch axis.
    pub chosen: Option<ChosenForm>,
}

/// The choice of a matrix.
pub struct ChosenForm {
    /// The right operand over the axes of the batch.
    pub nest: Nest,
    /// The number of the matrix, one of its values.
    pub number: ValueId,
    /// The number of matrices.
    pub count: usize,
}

/// The packed form of a right operand.
pub struct PackedRight {
    /// The slot of the packed form.
    pub slot: usize,
    /// Strides along the batch axes, in bytes.
    pub strides: Vec<usize>,
    /// The operand that is packed.
    pub constant: Constant,
}

impl ProductForm {
    /// Merges the axes of a contraction. `chosen` says that the matrices of the right operand are chosen among constant
    /// ones.
    pub fn new(mut lhs: Grouped, mut rhs: Grouped, body: Grouped, chosen: bool) -> ProductForm {
        let mut body = body.flat(COLUMNS);
        rows_into_batch([&mut lhs, &mut rhs, &mut body]);
        batch_into_rows([&mut lhs, &mut rhs, &mut body]);
        let (batch, body) = (body.groups[0], body.nest);
        let extents = Extents { m: body.domain[batch], n: body.domain[batch + 1], k: lhs.points(COLUMNS) };
        let all = if chosen { AllMatrices::of(&rhs) } else { None };
        let (rhs, chosen) = match all {
            Some(AllMatrices { operand, number, count }) => {
                (operand, Some(ChosenForm { nest: rhs.nest, number, count }))
            }
            None => (rhs, None),
        };
        ProductForm { lhs, rhs, body, batch, extents, chosen }
    }

    /// Returns the blocking of a product whose right operand is packed as `packing` states.
    pub fn blocking<T: ProductElement>(&self, packing: Packing, isa: Isa) -> Blocking<T> {
        let Extents { m, n, .. } = self.extents;
        let blocking = Blocking::<T>::new(isa, [m, n]);
        let blocking = match packing {
            Packing::OfRows(m) => blocking.formed_for(isa, [m, n]),
            Packing::Best | Packing::Never => blocking,
        };
        let kept = self.rhs.nest.results.first().and_then(|&result| kept(&self.rhs.nest.instrs, result));
        blocking.storing(kept.map(|load| load.dtype), isa)
    }

    /// Returns the bytes of one matrix of the right operand in packed form; `None` if it is not packed. A right operand
    /// of one column is not packed, because that product reads the left matrix at its strides.
    pub fn packed_bytes<T: ProductElement>(&self, blocking: &Blocking<T>, packing: Packing) -> Option<usize> {
        let Extents { n, k, .. } = self.extents;
        if packing != Packing::Never && n > 1 { blocking.packed(n, k) } else { None }
    }

    /// Returns the right operand's packed form in a slot, if it is packed.
    pub fn packed<T: ProductElement>(
        &self,
        blocking: &Blocking<T>,
        packing: Packing,
        slot: usize,
    ) -> Option<PackedRight> {
        let mut bytes = self.packed_bytes(blocking, packing)?;
        let reads = self.rhs.nest.slots();
        let others = [self.lhs.nest.slots(), self.body.slots()].concat();
        let only = reads.iter().copied().filter(|s| !others.contains(s)).collect();
        let batch = self.rhs.groups[0];
        let mut strides = vec![0; batch];
        for d in (0..batch).rev().filter(|&d| self.rhs.nest.depends_on(d)) {
            strides[d] = bytes;
            bytes = bytes.saturating_mul(self.rhs.nest.domain[d]);
        }
        let each_run = blocking.packs_before(self.extents) || blocking.coded.is_some() || self.chosen.is_some();
        Some(PackedRight { slot, strides, constant: Constant { reads, only, bytes, each_run } })
    }
}
