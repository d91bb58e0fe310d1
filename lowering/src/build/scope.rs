//! What a kernel is built in: the builder's state, and bodies under construction.

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
    /// What is known of ids.
    pub positions: &'a Positions,
    /// Most instructions of a body.
    pub instrs: usize,
    /// What the kernel computes.
    pub interior: FxHashSet<ClassId>,
    /// Of that, anchors and reductions and what reads one.
    pub above: FxHashSet<ClassId>,
    /// Classes that are read, in the order of first use.
    pub slots: Vec<ClassId>,
    /// The class of the op that asks for each check of ids, by number.
    pub checks: Vec<ClassId>,
    /// The contraction-like anchor.
    pub anchor: Option<ClassId>,
    /// The axis of the domain that runs along a row, and its extent, in a row group.
    pub row: Option<(usize, Dim)>,
    /// The axis of a written-out reduction's result that runs along the row of the scan that it reduces.
    pub along: Option<usize>,
}

/// Coordinates of a value over the domain, where all guards hold.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Where {
    pub at: Vec<Index>,
    pub guards: Vec<Guard>,
}

/// A place of a body. They are numbered, because most ops hand on the place that they were given: comparing and copying maps there
/// would be most of what building a kernel takes.
#[derive(Clone)]
pub(super) struct Place {
    number: usize,
    of: Rc<Where>,
}

impl Place {
    /// The number of the place, and of no other in its body.
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
    /// The value of each class at the places where it was asked for, by their numbers.
    pub values: FxHashMap<(ClassId, usize), ValueId>,
    /// Where each class was first visited without guards.
    pub visited: FxHashMap<ClassId, Place>,
    /// The number of each place.
    places: FxHashMap<Rc<Where>, usize>,
    /// Whether the anchor's result is at hand: not in the bodies of its operands.
    pub above_anchor: bool,
    /// The most instructions.
    most: usize,
}

impl BodyScope {
    /// Over a domain of such extents.
    ///
    /// # Errors
    /// When one of them is open.
    pub fn new(shape: &Shape, above_anchor: bool, most: usize) -> Result<BodyScope, String> {
        let domain = shape.capacity().ok_or_else(|| format!("{shape} has open dimensions"))?;
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

    /// A place with its number.
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

    /// Adds an instruction, unless there is an equal one.
    ///
    /// # Errors
    /// When there are too many.
    pub fn push(&mut self, instr: Instr) -> Result<ValueId, String> {
        // Equal instructions are one value: two classes may load the same element.
        let next = self.body.instrs.len();
        match self.numbers.entry(instr) {
            Entry::Occupied(known) => Ok(*known.get()),
            Entry::Vacant(_) if next == self.most => Err(format!("it would take more than {next} instructions")),
            Entry::Vacant(new) => {
                self.body.instrs.push(new.key().clone());
                Ok(*new.insert(next))
            }
        }
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
