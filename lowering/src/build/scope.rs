//! State of the construction of a kernel: the builder, and the bodies under construction.

use std::{collections::hash_map::Entry, ops::Deref, rc::Rc};

use eutectic_backend::{Body, Guard, Instr, ValueId};
use eutectic_ir::{
    Attr, Dim, Shape,
    eclasses::{ClassId, EClasses, ENode},
    index::Index,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::positions::Positions;
use crate::plan::{Plan, PlanKernel};

/// A kernel under construction.
pub(super) struct KernelBuilder<'a> {
    pub classes: &'a EClasses,
    pub plan: &'a Plan,
    pub parts: &'a PlanKernel,
    /// The affine maps of ids.
    pub positions: &'a Positions,
    /// The maximal number of instructions of a body.
    pub instrs: usize,
    /// The classes that the kernel computes.
    pub interior: FxHashSet<ClassId>,
    /// The interior classes that are an anchor or a reduction, or depend on one within the kernel.
    pub above: FxHashSet<ClassId>,
    /// Classes that are read, in the order of first use.
    pub slots: Vec<ClassId>,
    /// For each run-time check of ids, by its number, the class of the op that requests it.
    pub checks: Vec<ClassId>,
    /// The anchor, if the kernel has a contraction, attention or a similar op.
    pub anchor: Option<ClassId>,
    /// The axis of the domain that runs along a row, and its extent, in a row group.
    pub row: Option<(usize, Dim)>,
    /// The result axis that runs along the scan's row, if the kernel unrolls a reduction across rows of a scan.
    pub along: Option<usize>,
}

/// The coordinates of a value over the domain, and the guards under which it is read.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Where {
    pub at: Vec<Index>,
    pub guards: Vec<Guard>,
}

/// The coordinates and guards under which a body reads a value, with a number. Most ops pass their own place on to
/// their operands. Comparing its number instead of index maps saves most of the time of building a kernel.
#[derive(Clone)]
pub(super) struct Place {
    number: usize,
    of: Rc<Where>,
}

impl Place {
    /// Returns the number, which is unique in the body.
    pub fn number(&self) -> usize {
        self.number
    }
}

impl Deref for Place {
    type Target = Where;

    fn deref(&self) -> &Where {
        &self.of
    }
}

/// A body under construction.
pub(super) struct BodyScope {
    pub body: Body,
    /// The number of each instruction.
    pub numbers: FxHashMap<Instr, ValueId>,
    /// The value of each class at each place, by the number of the place.
    pub values: FxHashMap<(ClassId, usize), ValueId>,
    /// The first place without guards where each class was read.
    pub visited: FxHashMap<ClassId, Place>,
    /// The number of each place.
    places: FxHashMap<Rc<Where>, usize>,
    /// Whether the body may read the anchor's result; the bodies of the anchor's operands may not.
    pub above_anchor: bool,
    /// The maximal number of instructions.
    most: usize,
}

impl BodyScope {
    /// Returns an empty body over a domain of these extents.
    ///
    /// # Errors
    /// If an extent has no upper bound.
    pub fn new(shape: &Shape, above_anchor: bool, most: usize) -> Result<BodyScope, String> {
        let domain = shape.capacity().ok_or_else(|| format!("{shape} has dimensions without bounds"))?;
        let varying = shape.iter().enumerate().filter(|(_, dim)| dim.varies());
        let lengths = varying.map(|(axis, dim)| (axis, dim.clone())).collect();
        Ok(BodyScope {
            body: Body { domain, lengths, ..Body::default() },
            numbers: FxHashMap::default(),
            values: FxHashMap::default(),
            visited: FxHashMap::default(),
            places: FxHashMap::default(),
            above_anchor,
            most,
        })
    }

    /// Returns the place with these coordinates and guards.
    pub fn place(&mut self, at: Vec<Index>, guards: Vec<Guard>) -> Place {
        let (next, of) = (self.places.len(), Rc::new(Where { at, guards }));
        match self.places.entry(of) {
            Entry::Occupied(known) => Place { number: *known.get(), of: known.key().clone() },
            Entry::Vacant(new) => {
                let of = new.key().clone();
                Place { number: *new.insert(next), of }
            }
        }
    }

    /// Adds an instruction, unless the body has an equal one, and returns its value.
    ///
    /// # Errors
    /// If the body would exceed its maximal number of instructions.
    pub fn push(&mut self, instr: Instr) -> Result<ValueId, String> {
        // Equal instructions are one value. Two classes may load the same element.
        let next = self.body.instrs.len();
        match self.numbers.entry(instr) {
            Entry::Occupied(known) => Ok(*known.get()),
            Entry::Vacant(_) if next == self.most => Err(format!("the body would have more than {next} instructions")),
            Entry::Vacant(new) => {
                self.body.instrs.push(new.key().clone());
                Ok(*new.insert(next))
            }
        }
    }
}

impl<'a> KernelBuilder<'a> {
    /// Returns the maximal extents of a class.
    pub fn dims(&self, class: ClassId) -> Result<Vec<usize>, String> {
        self.classes.classes[class]
            .ty
            .capacity()
            .ok_or_else(|| format!("class {class} is not a tensor with bounded extents"))
    }

    /// Returns the e-node that the plan chooses for a class.
    pub fn node(&self, class: ClassId) -> &'a ENode {
        &self.classes.classes[class].nodes[self.plan.choice[class]]
    }

    /// Returns whether the kernel computes a class.
    pub fn is_interior(&self, class: ClassId) -> bool {
        self.interior.contains(&class)
    }
}

/// Returns an attribute of a node by its name.
pub(super) fn attr<'n>(node: &'n ENode, name: &str) -> Option<&'n Attr> {
    node.attrs.get(node.op.attr(name)?)
}
