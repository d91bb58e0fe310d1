//! The kind of kernels without an anchor. They have only pointwise ops and views.

use crate::kernel::{Along, AnchorDef, AnchorKernel, GroupDef, Kernel, ResultDef};

pub(super) static DEF: AnchorDef = AnchorDef {
    name: "map",
    groups: &[GroupDef { name: "points", along: Along::Free }],
    operands: &[],
    results: &[ResultDef { layout: &[0], none: None }],
    attrs: &[],
    accumulator: |_| None,
    flops: |_| 0.0,
    normalise: |_| {},
    eval: |_| Vec::new(),
};

impl AnchorKernel {
    /// Returns the description of a kernel that has only pointwise ops and views.
    pub fn map() -> AnchorKernel {
        AnchorKernel::of(&DEF, &[], Vec::new(), Default::default())
    }
}

impl Kernel {
    /// Returns whether the kernel has neither an anchor nor rows.
    pub fn is_map(&self) -> bool {
        self.anchor.kind.is(&DEF)
    }
}
