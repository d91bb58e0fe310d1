//! A row group: the innermost axes of the domain form a row, and [`crate::Instr::Row`] computes over its elements.

use crate::kernel::{Along, AnchorDef, AnchorKernel, GroupDef, ResultDef};

pub(super) static DEF: AnchorDef = AnchorDef {
    name: "rows",
    groups: &[GroupDef { name: "rows", along: Along::Free }, GroupDef { name: "elements", along: Along::Row }],
    operands: &[],
    results: &[ResultDef { layout: &[0, 1], none: None }],
    attrs: &[],
    accumulator: |_| None,
    flops: |_| 0.0,
    normalise: |_| {},
    eval: |_| Vec::new(),
};

impl AnchorKernel {
    /// Returns the description of a row group. A row consists of the last `axes` axes of the domain.
    pub fn rows(axes: usize) -> AnchorKernel {
        AnchorKernel::of(&DEF, &[axes], Vec::new(), Default::default())
    }
}
