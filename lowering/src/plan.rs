//! Defines plans and their validity.

use eutectic_ir::{
    Op,
    eclasses::{ClassId, EClasses},
    ops::{Class, Leaf},
};

/// A plan: the e-node that computes each class, the stored classes, and the kernel that stores each of them.
///
/// Entries of classes that no output depends on do not affect the program. The search keeps tentative choices in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// For each class, the e-node that computes it: an index into its nodes.
    pub choice: Vec<usize>,
    /// For each class, whether it is stored. A needed class that is not stored is virtual: each kernel that reads it
    /// computes it.
    pub stored: Vec<bool>,
    /// For each stored class, the class that leads its kernel. A kernel with several stores has one leader, which names
    /// itself.
    pub host: Vec<ClassId>,
}

/// The reason why a plan is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No kernel can be built for any e-node of a needed class.
    #[error("class {0} cannot be computed because none of its e-nodes has a kernel")]
    NoChoice(ClassId),
    /// The chosen e-nodes have a cycle.
    #[error("the choice is cyclic through class {0}")]
    CyclicChoice(ClassId),
    /// Kernels read each other's results in a cycle.
    #[error("kernels depend on each other in a cycle through class {0}")]
    CyclicKernels(ClassId),
    /// A class names a leader that is not stored or does not lead.
    #[error("class {0} names class {1} as the leader of its kernel, but class {1} leads no kernel")]
    NoHost(ClassId, ClassId),
    /// Several kernels compute an anchor that is not stored.
    #[error("the anchor of class {0} is not stored, but {1} kernels compute it")]
    SharedAnchor(ClassId, usize),
    /// No backend can build the kernel: it has two anchors, rows of different lengths, or a store without an index map.
    #[error("the kernel of class {0} cannot be built: {1}")]
    Kernel(ClassId, String),
}

/// One kernel of a plan, in terms of classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanKernel {
    /// The classes that it stores, ascending. There is at least one.
    pub stores: Vec<ClassId>,
    /// The classes that it computes, operands before users: the stored classes and the virtual classes that they depend
    /// on.
    pub interior: Vec<ClassId>,
    /// The classes that it reads, ascending: leaves, and classes that other kernels store.
    pub reads: Vec<ClassId>,
    /// Whether it belongs to the load program. Such a kernel stores values that depend on parameters and constants
    /// only, and reads leaves or results of the load program. A leaf that is an output is copied in each run.
    pub load: bool,
}

/// Returns whether a class needs no kernel, because it is a leaf with a buffer or one number everywhere.
pub fn is_given(classes: &EClasses, class: ClassId) -> bool {
    let c = &classes.classes[class];
    c.scalar.is_some() || c.nodes.iter().any(|n| is_buffer(n.op))
}

/// Returns whether a leaf has a buffer. Kernels compute the other leaves, such as `iota`, where they read them.
pub fn is_buffer(op: Op) -> bool {
    matches!(op.def().class, Class::Leaf(Leaf::Input | Leaf::Param | Leaf::State | Leaf::Const))
}

impl Plan {
    /// Makes a class virtual. If it led a kernel, each other store of that kernel gets a kernel of its own.
    pub fn release(&mut self, class: ClassId) {
        self.stored[class] = false;
        for (c, host) in self.host.iter_mut().enumerate().filter(|(_, h)| **h == class) {
            *host = c;
        }
        self.host[class] = class;
    }

    /// Returns the class that leads the kernel of a stored class.
    pub(crate) fn leader(&self, class: ClassId) -> Result<ClassId, PlanError> {
        let leader = self.host[class];
        let leads = self.stored[leader] && self.host[leader] == leader;
        if leads { Ok(leader) } else { Err(PlanError::NoHost(class, leader)) }
    }

    /// Returns whether a class is computed by an anchor.
    pub(crate) fn is_anchor(&self, classes: &EClasses, class: ClassId) -> bool {
        let c = &classes.classes[class];
        c.scalar.is_none() && matches!(c.nodes[self.choice[class]].op.def().class, Class::Anchor(_))
    }
}

/// Facts about each class that hold under every plan.
pub(crate) struct ClassFacts {
    /// For each class, whether it needs no kernel ([`is_given`]).
    pub given: Vec<bool>,
    /// For each class, whether it is an output.
    pub output: Vec<bool>,
    /// For each class, outputs included, whether the load program can compute it: whether it depends on parameters and
    /// constants only.
    pub loadable: Vec<bool>,
}

impl ClassFacts {
    pub fn of(classes: &EClasses) -> ClassFacts {
        let n = classes.classes.len();
        let given: Vec<bool> = (0..n).map(|class| is_given(classes, class)).collect();
        let mut output = vec![false; n];
        classes.outputs.iter().for_each(|&c| output[c] = true);
        let loadable = classes.classes.iter().map(|class| class.constant).collect();
        ClassFacts { given, output, loadable }
    }

    /// Returns whether the load program may store a class.
    pub fn is_made_once(&self, class: ClassId) -> bool {
        self.loadable[class] && !(self.given[class] && self.output[class])
    }
}
