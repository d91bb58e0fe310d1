//! The description of one kernel and its anchor. Each backend generates code from it.

use std::{fmt, hash};

use eutectic_ir::{Attr, Attrs, DType, Dim};
use smallvec::SmallVec;

use crate::body::{Body, Store};

/// One launch. The kernel computes the anchor, then the body at each point of the domain, then the stores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The anchor of the kernel.
    pub anchor: AnchorKernel,
    /// The instructions after the anchor, over the domain of its result. In kernels without operands (maps and row
    /// groups), they are the whole computation.
    pub body: Body,
    /// The stores.
    pub stores: Vec<Store>,
    /// Element type and number of elements of each buffer, at the maximal extents. A kernel may read and write one
    /// buffer only in place: each point reads only elements that the same point writes, and no other store needs the
    /// old value. Elements that no point writes stay unchanged.
    pub slots: Vec<(DType, usize)>,
}

/// The number of a group of axes in [`AnchorDef::groups`].
pub type GroupId = usize;

/// The numbers of the groups of axes that form a body's domain, outermost first.
pub type Layout = &'static [GroupId];

/// The definition of an anchor: an entry of the table in [`crate::anchors`].
pub struct AnchorDef {
    /// The anchor's name in plans and ops.
    pub name: &'static str,
    /// The groups of axes. An anchor treats all axes of a group alike. The first group has all axes of the result that
    /// belong to no other group.
    pub groups: &'static [GroupDef],
    /// The operands. Optional ones come last.
    pub operands: &'static [OperandDef],
    /// The results. The domain of the kernel's own body consists of the groups of the first result.
    pub results: &'static [ResultDef],
    /// The names of the anchor's attributes. The op that lowers to the anchor has the same attributes.
    pub attrs: &'static [&'static str],
    /// Returns the accumulator type for the operands' types; `None` if the anchor accumulates nothing.
    pub accumulator: fn(&[DType]) -> Option<DType>,
    /// Returns the number of floating-point operations, given the number of points of each group.
    pub flops: fn(&[f64]) -> f64,
    /// Completes the normal form of a kernel whose axes are already split and merged.
    pub normalise: fn(&mut Kernel),
    /// Computes the results from the operands. This reference implementation defines the anchor.
    pub eval: fn(&AnchorCall<'_>) -> Vec<Vec<f64>>,
}

/// The definition of a group of axes of an anchor.
pub struct GroupDef {
    /// The group's name.
    pub name: &'static str,
    /// The treatment of the group's axes by the anchor.
    pub along: Along,
}

/// The treatment of a group of axes by an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    /// Results at different points are independent.
    Free,
    /// The anchor reduces over the points. The order is up to the backend's kernel.
    Combined,
    /// The points are the elements of a row. Row instructions of the body operate on them.
    Row,
}

/// The definition of an operand of an anchor.
pub struct OperandDef {
    /// The operand's name.
    pub name: &'static str,
    /// The groups of axes that form the operand's domain.
    pub layout: Layout,
    /// The value of every element if the operand is omitted; `None` if the operand is required.
    pub absent: Option<f64>,
    /// The values that the operand must have at points beyond an extent at run time, so that those points do not affect
    /// results.
    pub beyond: &'static [Beyond],
}

/// The value that an operand must have at points beyond a group's extent at run time.
pub struct Beyond {
    /// The group.
    pub group: GroupId,
    /// The value.
    pub value: f64,
    /// Returns whether the operand must have the value, given the attributes of the anchor.
    pub counts: fn(&[Attr]) -> bool,
}

/// The definition of a result of an anchor.
pub struct ResultDef {
    /// The groups of axes that form the result's domain.
    pub layout: Layout,
    /// A group, and the result if that group has no points in a run. `None` if kernels compute the right result even
    /// then.
    pub none: Option<(GroupId, f64)>,
}

/// The arguments of [`AnchorDef::eval`].
pub struct AnchorCall<'a> {
    /// Elements of each operand, row-major.
    pub operands: &'a [Vec<f64>],
    /// The element type of each operand.
    pub dtypes: &'a [DType],
    /// The number of points of each group.
    pub extents: &'a [usize],
    /// The attributes.
    pub attrs: &'a Attrs,
}

/// The kind of an anchor: an entry of the table in [`crate::anchors`].
#[derive(Clone, Copy)]
pub struct AnchorKind(&'static AnchorDef);

/// The anchor of a kernel, and its operands. The body of an operand computes its elements from loads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AnchorKernel {
    /// The kind of the anchor.
    pub kind: AnchorKind,
    /// The number of axes of each group. The first group is left out; it has the remaining axes of the kernel's own
    /// domain. A group without axes counts as one axis of extent 1.
    pub axes: SmallVec<[usize; 4]>,
    /// The operands that are given, in the order of [`AnchorDef::operands`]. Each body has one result.
    pub operands: Vec<Body>,
    /// The attributes, in the order of [`AnchorDef::attrs`].
    pub attrs: Attrs,
}

impl AnchorKind {
    pub(crate) fn new(def: &'static AnchorDef) -> AnchorKind {
        AnchorKind(def)
    }

    /// Returns the definition of the anchor.
    pub fn def(self) -> &'static AnchorDef {
        self.0
    }

    pub(crate) fn is(self, def: &'static AnchorDef) -> bool {
        std::ptr::eq(self.0, def)
    }
}

impl PartialEq for AnchorKind {
    fn eq(&self, other: &AnchorKind) -> bool {
        self.is(other.0)
    }
}

impl Eq for AnchorKind {}

impl hash::Hash for AnchorKind {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl fmt::Debug for AnchorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl AnchorDef {
    /// Returns the layout of each body: first of the given number of operands, then of the kernel's own body.
    pub(crate) fn layouts(&self, operands: usize) -> Vec<Layout> {
        let own = self.results.first().map(|result| result.layout);
        self.operands.iter().take(operands).map(|operand| operand.layout).chain(own).collect()
    }
}

impl AnchorKernel {
    /// Returns an anchor of a kind. Each of its groups except the first has one axis.
    pub fn new(kind: AnchorKind, operands: Vec<Body>, attrs: Attrs) -> AnchorKernel {
        let axes = std::iter::repeat_n(1, kind.def().groups.len() - 1).collect();
        AnchorKernel { kind, axes, operands, attrs }
    }

    pub(crate) fn of(def: &'static AnchorDef, axes: &[usize], operands: Vec<Body>, attrs: Attrs) -> AnchorKernel {
        AnchorKernel { kind: AnchorKind(def), axes: axes.into(), operands, attrs }
    }

    /// Returns the definition of the anchor.
    pub fn def(&self) -> &'static AnchorDef {
        self.kind.def()
    }

    /// Returns the element types of the operands; `None` if an operand has no result.
    pub fn dtypes(&self) -> Option<Vec<DType>> {
        self.operands.iter().map(|body| body.results.first().map(|&result| body.instrs[result].dtype())).collect()
    }
}

/// Axes with extents at run time, each with its extent.
type RunLengths<'a> = Vec<(usize, &'a Dim)>;

impl Kernel {
    /// Returns the bodies of the anchor's operands.
    pub fn operands(&self) -> Vec<&Body> {
        self.anchor.operands.iter().collect()
    }

    /// Returns [`Kernel::bodies`], mutable.
    pub(crate) fn bodies_mut(&mut self) -> Vec<&mut Body> {
        self.anchor.operands.iter_mut().chain([&mut self.body]).collect()
    }

    /// Returns all bodies: the anchor's operands, then the kernel's own.
    pub fn bodies(&self) -> Vec<&Body> {
        self.anchor.operands.iter().chain([&self.body]).collect()
    }

    /// Returns the name of the anchor.
    pub fn kind(&self) -> &'static str {
        self.anchor.def().name
    }

    /// Returns the layout of each body's axes, in the order of [`Kernel::bodies`].
    pub fn layouts(&self) -> Vec<Layout> {
        self.anchor.def().layouts(self.anchor.operands.len())
    }

    /// Returns the number of axes of each group.
    pub fn groups(&self) -> SmallVec<[usize; 5]> {
        let axes = &self.anchor.axes;
        let own = self.anchor.def().results.first().map_or(&[][..], |result| result.layout);
        let inner: usize = own.iter().filter_map(|group| axes.get(group.checked_sub(1)?)).sum();
        [self.body.domain.len().saturating_sub(inner)].into_iter().chain(axes.iter().copied()).collect()
    }

    /// Returns the number of points of each group.
    pub fn extents(&self) -> Vec<usize> {
        (0..self.groups().len())
            .map(|group| self.group(group).map_or(1, |(domain, _)| domain.iter().product()))
            .collect()
    }

    /// Returns the extents of a group's axes, and those of its axes that have extents at run time. Axes are counted
    /// from the group's first one.
    pub fn group(&self, group: GroupId) -> Option<(&[usize], RunLengths<'_>)> {
        let groups = self.groups();
        self.bodies().into_iter().zip(self.layouts()).find_map(|(body, layout)| {
            let (first, axes) = (place(layout, &groups, group)?, groups[group]);
            let of_group = body.lengths.iter().filter(|(axis, _)| (first..first + axes).contains(axis));
            let lengths = of_group.map(|(axis, length)| (*axis - first, length)).collect();
            Some((body.domain.get(first..first + axes)?, lengths))
        })
    }

    /// Returns the number of innermost axes of the domain that form a row; `None` if the kernel is not a row group.
    pub fn row_axes(&self) -> Option<usize> {
        let row = self.anchor.def().groups.iter().position(|group| group.along == Along::Row)?;
        self.groups().get(row).copied()
    }

    /// Returns the accumulator type of the anchor. Returns `None` if the anchor accumulates nothing, or if an operand
    /// has no result. This is not the accumulator of reductions over rows: that is [`DType::register`] of the
    /// instruction's type.
    pub fn accumulator(&self) -> Option<DType> {
        (self.anchor.def().accumulator)(&self.anchor.dtypes()?)
    }
}

/// Returns the first axis of a group in a domain of this layout; `None` if the layout lacks the group. `groups` has the
/// number of axes of each group.
pub fn place(layout: &[GroupId], groups: &[usize], group: GroupId) -> Option<usize> {
    let at = layout.iter().position(|&g| g == group)?;
    Some(layout[..at].iter().map(|&g| groups[g]).sum())
}
