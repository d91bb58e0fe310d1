//! What a kernel is built in: the builder's state, and bodies under construction.

use eutectic_backend::{Body, Guard, Instr, ValueId};
use eutectic_ir::{
    Attr, Dim, Shape,
    eclasses::{ClassId, EClasses, ENode},
    index::Index,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::positions::Positions;
use crate::plan::{Plan, PlanKernel};

/// Most instructions of a body: an op that is read at many places is computed at each.
const MOST_INSTRS: usize = 4096;

/// A kernel under construction.
pub(super) struct KernelBuilder<'a> {
    pub classes: &'a EClasses,
    pub plan: &'a Plan,
    pub parts: &'a PlanKernel,
    /// What is known of ids.
    pub positions: &'a Positions,
    /// What the kernel computes.
    pub interior: FxHashSet<ClassId>,
    /// Of that, anchors and reductions and what reads one.
    pub above: FxHashSet<ClassId>,
    /// Classes that are read, in the order of first use.
    pub slots: Vec<ClassId>,
    /// The contraction-like anchor.
    pub anchor: Option<ClassId>,
    /// The axis of the domain that runs along a row, and its extent, in a row group.
    pub row: Option<(usize, Dim)>,
}

/// A body under construction.
pub(super) struct BodyScope {
    pub body: Body,
    /// The number of each instruction.
    pub numbers: FxHashMap<Instr, ValueId>,
    pub values: FxHashMap<(ClassId, Vec<Index>, Vec<Guard>), ValueId>,
    /// Where each class was first visited without guards.
    pub visited: FxHashMap<ClassId, Vec<Index>>,
    /// Whether the anchor's result is at hand: not in the bodies of its operands.
    pub above_anchor: bool,
}

impl BodyScope {
    /// Over a domain of such extents.
    ///
    /// # Errors
    /// When one of them is open.
    pub fn new(shape: &Shape, above_anchor: bool) -> Result<BodyScope, String> {
        let domain = shape.capacity().ok_or_else(|| format!("{shape} has open dimensions"))?;
        let varying = shape.iter().enumerate().filter(|(_, dim)| dim.varies());
        let lengths = varying.map(|(axis, dim)| (axis, dim.clone())).collect();
        Ok(BodyScope {
            body: Body { domain, lengths, ..Body::default() },
            numbers: FxHashMap::default(),
            values: FxHashMap::default(),
            visited: FxHashMap::default(),
            above_anchor,
        })
    }

    /// Adds an instruction, unless there is an equal one.
    ///
    /// # Errors
    /// When there are too many.
    pub fn push(&mut self, instr: Instr) -> Result<ValueId, String> {
        // Equal instructions are one value: two classes may load the same element.
        let next = self.body.instrs.len();
        if next > MOST_INSTRS {
            return Err(format!("it would take more than {MOST_INSTRS} instructions"));
        }
        let at = *self.numbers.entry(instr).or_insert_with_key(|instr| {
            self.body.instrs.push(instr.clone());
            next
        });
        Ok(at)
    }
}

impl<'a> KernelBuilder<'a> {
    /// The extents of a class, the most that they can be.
    pub fn dims(&self, class: ClassId) -> Result<Vec<usize>, String> {
        self.classes.classes[class].ty.capacity().ok_or_else(|| format!("class {class} is no tensor of known extents"))
    }

    /// The e-node that is chosen for a class.
    pub fn node(&self, class: ClassId) -> &'a ENode {
        &self.classes.classes[class].nodes[self.plan.choice[class]]
    }

    /// Whether the kernel computes a class.
    pub fn is_interior(&self, class: ClassId) -> bool {
        self.interior.contains(&class)
    }
}

/// An attribute of a node, by name.
pub(super) fn attr<'n>(node: &'n ENode, name: &str) -> Option<&'n Attr> {
    node.attrs.get(node.op.attr(name)?)
}
