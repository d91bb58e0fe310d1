//! The description of one kernel and of its anchor, from which each backend generates its code.

use std::{fmt, hash};

use eutectic_ir::{Attr, Attrs, DType, Dim};
use smallvec::SmallVec;

use crate::body::{Body, Store};

/// One launch: for each point of the domain, the body is computed, and then the stores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The anchor of the kernel.
    pub anchor: AnchorKernel,
    /// The epilogue (of maps and row groups: everything), over the anchor's result domain.
    pub body: Body,
    /// The stores.
    pub stores: Vec<Store>,
    /// Element type and number of elements of each buffer, at the maximal extents. A buffer may be both read and
    /// written only if each point reads no element but those that the same point writes (in place), and no other store
    /// reads the old value. Elements that no point writes stay unchanged.
    pub slots: Vec<(DType, usize)>,
}

/// The number of a group of axes in [`AnchorDef::groups`].
pub type GroupId = usize;

/// The groups of axes that a body's domain consists of, outermost first.
pub type Layout = &'static [GroupId];

/// An anchor, as a row of the table.
pub struct AnchorDef {
    /// Its name, as plans and ops name it.
    pub name: &'static str,
    /// Groups of axes. An anchor treats all axes of a group alike. The first group has the axes of the result that
    /// belong to no other group.
    pub groups: &'static [GroupDef],
    /// The operands. Optional ones come last.
    pub operands: &'static [OperandDef],
    /// The results. The kernel's own body is over the groups of the first one.
    pub results: &'static [ResultDef],
    /// Names of its attributes, which the op that lowers to it has too.
    pub attrs: &'static [&'static str],
    /// Returns the accumulator type for the operands' types; `None` if the anchor accumulates nothing.
    pub accumulator: fn(&[DType]) -> Option<DType>,
    /// Floating-point operations, from the number of points of each group.
    pub flops: fn(&[f64]) -> f64,
    /// Brings a kernel whose axes are in normal form into normal form.
    pub normalise: fn(&mut Kernel),
    /// The definition.
    pub eval: fn(&AnchorCall<'_>) -> Vec<Vec<f64>>,
}

/// A group of axes.
pub struct GroupDef {
    /// Its name.
    pub name: &'static str,
    /// The treatment of the group's axes by the anchor.
    pub along: Along,
}

/// The treatment of a group of axes by an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    /// Each point is computed by itself.
    Free,
    /// Points are combined, in an order that is left to the kernel.
    Combined,
    /// Points are the elements of a row, on which instructions of the body operate.
    Row,
}

/// An operand.
pub struct OperandDef {
    /// Its name.
    pub name: &'static str,
    /// The groups that it is over.
    pub layout: Layout,
    /// The value of every element if the operand is omitted; `None` if the operand is required.
    pub absent: Option<f64>,
    /// Values that the operand must have beyond extents at run time, so that these points do not count.
    pub beyond: &'static [Beyond],
}

/// The value of an operand beyond the extent that a group has in a run.
pub struct Beyond {
    /// The group.
    pub group: GroupId,
    /// The value.
    pub value: f64,
    /// Whether it matters, by the attributes.
    pub counts: fn(&[Attr]) -> bool,
}

/// A result.
pub struct ResultDef {
    /// The groups that it is over.
    pub layout: Layout,
    /// The result if a group has no points in a run, if that differs from the result that kernels compute.
    pub none: Option<(GroupId, f64)>,
}

/// Operands of an anchor, to evaluate it.
pub struct AnchorCall<'a> {
    /// Elements of each operand, row-major.
    pub operands: &'a [Vec<f64>],
    /// Their element types.
    pub dtypes: &'a [DType],
    /// The number of points of each group.
    pub extents: &'a [usize],
    /// The attributes.
    pub attrs: &'a Attrs,
}

/// A row of the table.
#[derive(Clone, Copy)]
pub struct AnchorKind(&'static AnchorDef);

/// The anchor of a kernel, with its operands, each with its prologue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AnchorKernel {
    /// The kind of the anchor.
    pub kind: AnchorKind,
    /// The number of axes of each group. The first group is left out; it has the remaining axes of the kernel's own
    /// domain. A group without axes counts as one axis of extent 1.
    pub axes: SmallVec<[usize; 4]>,
    /// The given operands, in the order of the table. Each has one result.
    pub operands: Vec<Body>,
    /// The attributes, in the order of the table.
    pub attrs: Attrs,
}

impl AnchorKind {
    pub(crate) fn new(def: &'static AnchorDef) -> AnchorKind {
        AnchorKind(def)
    }

    /// Returns its facts.
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
    /// Returns the groups of each body: those of `operands` operands, and the kernel's own.
    pub(crate) fn layouts(&self, operands: usize) -> Vec<Layout> {
        let own = self.results.first().map(|result| result.layout);
        self.operands.iter().take(operands).map(|operand| operand.layout).chain(own).collect()
    }
}

impl AnchorKernel {
    /// Returns an anchor of a name, whose groups have one axis each but the first.
    pub fn new(kind: AnchorKind, operands: Vec<Body>, attrs: Attrs) -> AnchorKernel {
        let axes = std::iter::repeat_n(1, kind.def().groups.len() - 1).collect();
        AnchorKernel { kind, axes, operands, attrs }
    }

    pub(crate) fn of(def: &'static AnchorDef, axes: &[usize], operands: Vec<Body>, attrs: Attrs) -> AnchorKernel {
        AnchorKernel { kind: AnchorKind(def), axes: axes.into(), operands, attrs }
    }

    /// Returns its facts.
    pub fn def(&self) -> &'static AnchorDef {
        self.kind.def()
    }

    /// Returns the element types of the operands; none for one that has no result.
    pub fn dtypes(&self) -> Option<Vec<DType>> {
        self.operands.iter().map(|body| body.results.first().map(|&result| body.instrs[result].dtype())).collect()
    }
}

/// Axes whose extent is another in each run, each with that extent.
type RunLengths<'a> = Vec<(usize, &'a Dim)>;

impl Kernel {
    /// Returns the bodies of the anchor's operands.
    pub fn operands(&self) -> Vec<&Body> {
        self.anchor.operands.iter().collect()
    }

    /// See [`Kernel::bodies`].
    pub(crate) fn bodies_mut(&mut self) -> Vec<&mut Body> {
        self.anchor.operands.iter_mut().chain([&mut self.body]).collect()
    }

    /// Returns all bodies: the anchor's operands, then the kernel's own.
    pub fn bodies(&self) -> Vec<&Body> {
        self.anchor.operands.iter().chain([&self.body]).collect()
    }

    /// Returns a word for reports: the name of the anchor.
    pub fn kind(&self) -> &'static str {
        self.anchor.def().name
    }

    /// Returns the groups of axes of each body, in the order of [`Kernel::bodies`].
    pub fn layouts(&self) -> Vec<Layout> {
        self.anchor.def().layouts(self.anchor.operands.len())
    }

    /// Returns how many axes each group has.
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

    /// Returns the extents of a group's axes, and the axes with extents at run time, counted from the group's first
    /// axis.
    pub fn group(&self, group: GroupId) -> Option<(&[usize], RunLengths<'_>)> {
        let groups = self.groups();
        self.bodies().into_iter().zip(self.layouts()).find_map(|(body, layout)| {
            let (first, axes) = (place(layout, &groups, group)?, groups[group]);
            let of_group = body.lengths.iter().filter(|(axis, _)| (first..first + axes).contains(axis));
            let lengths = of_group.map(|(axis, length)| (*axis - first, length)).collect();
            Some((body.domain.get(first..first + axes)?, lengths))
        })
    }

    /// Returns how many axes form a row, the innermost ones of the domain; none outside of row groups.
    pub fn row_axes(&self) -> Option<usize> {
        let row = self.anchor.def().groups.iter().position(|group| group.along == Along::Row)?;
        self.groups().get(row).copied()
    }

    /// Returns the accumulator type of the anchor. Returns `None` if the anchor accumulates nothing or an operand has
    /// no result. A reduction over rows accumulates in [`DType::register`] of its own type.
    pub fn accumulator(&self) -> Option<DType> {
        (self.anchor.def().accumulator)(&self.anchor.dtypes()?)
    }
}

/// Returns the first axis of a group in a domain of this layout.
pub fn place(layout: &[GroupId], groups: &[usize], group: GroupId) -> Option<usize> {
    let at = layout.iter().position(|&g| g == group)?;
    Some(layout[..at].iter().map(|&g| groups[g]).sum())
}
