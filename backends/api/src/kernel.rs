//! The description of one kernel, from which every backend prints its own, and of the anchor that it is built around.

use std::{fmt, hash};

use eutectic_ir::{Attr, Attrs, DType, Dim};
use smallvec::SmallVec;

use crate::body::{Body, Store};

/// One launch. What it computes: for each point of the domain, the body; then the stores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// What the kernel is built around.
    pub anchor: AnchorKernel,
    /// The epilogue (of maps and row groups: everything), over the anchor's result domain.
    pub body: Body,
    /// What is written.
    pub stores: Vec<Store>,
    /// Element type and number of elements of each buffer that it touches, all axes at the most that they can be. No buffer is both read and
    /// written, unless each point reads only what the same point writes (in place), and no other store takes that as it was read. What no
    /// point writes of a buffer stays.
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
    /// Groups of axes; an anchor does the same along all axes of a group. The first one has those axes of the result that no other has.
    pub groups: &'static [GroupDef],
    /// What goes in, those that can be left out last.
    pub operands: &'static [OperandDef],
    /// What comes out; the kernel's own body is over the groups of the first one.
    pub results: &'static [ResultDef],
    /// Names of its attributes, which the op that lowers to it has too.
    pub attrs: &'static [&'static str],
    /// The type in which it accumulates, from the operands' types; none where it accumulates nothing.
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
    /// How the anchor goes along it.
    pub along: Along,
}

/// How an anchor goes along a group of axes.
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
    /// The value everywhere if it is left out; none if it must be given.
    pub absent: Option<f64>,
    /// Values that it must have beyond extents of a run, so that points there do not count.
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
    /// Its value where a group has no points in a run, if it is not the one that kernels compute.
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
    /// Which anchor it is.
    pub kind: AnchorKind,
    /// How many axes each group has but the first, which has the other axes of the kernel's own domain; a group of none counts as one axis of
    /// extent 1.
    pub axes: SmallVec<[usize; 4]>,
    /// The operands that are given, in the order of the table; each has one result.
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
    /// Returns the groups of each body, of so many operands and the kernel's own.
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
    /// The bodies of the anchor's operands.
    pub fn operands(&self) -> Vec<&Body> {
        self.anchor.operands.iter().collect()
    }

    /// See [`Kernel::bodies`].
    pub(crate) fn bodies_mut(&mut self) -> Vec<&mut Body> {
        self.anchor.operands.iter_mut().chain([&mut self.body]).collect()
    }

    /// All bodies: the anchor's operands, then the kernel's own.
    pub fn bodies(&self) -> Vec<&Body> {
        self.anchor.operands.iter().chain([&self.body]).collect()
    }

    /// A word for reports: the name of the anchor.
    pub fn kind(&self) -> &'static str {
        self.anchor.def().name
    }

    /// The groups of axes of each body, in the order of [`Kernel::bodies`].
    pub fn layouts(&self) -> Vec<Layout> {
        self.anchor.def().layouts(self.anchor.operands.len())
    }

    /// How many axes each group has.
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

    /// Returns the extents of a group's axes, and those axes whose extent is another in each run, counted from the group's first one.
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

    /// The type in which the anchor accumulates. `None` where it accumulates nothing, and for an operand without a result. A reduction over
    /// rows accumulates in [`DType::register`] of its own type.
    pub fn accumulator(&self) -> Option<DType> {
        (self.anchor.def().accumulator)(&self.anchor.dtypes()?)
    }
}

/// Returns where a group's axes begin in a domain of such a layout.
pub fn place(layout: &[GroupId], groups: &[usize], group: GroupId) -> Option<usize> {
    let at = layout.iter().position(|&g| g == group)?;
    Some(layout[..at].iter().map(|&g| groups[g]).sum())
}
