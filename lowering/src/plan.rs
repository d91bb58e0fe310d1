//! What a plan is, and when it is valid.

use eutectic_ir::{
    Op,
    eclasses::{ClassId, EClasses},
    ops::{Class, Leaf},
};

/// A choice of what to compute, what to store, and in which kernel.
///
/// Entries of classes that the outputs do not need have no meaning; the search keeps its latest wishes in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// For each class, the e-node that computes it: an index into its nodes.
    pub choice: Vec<usize>,
    /// For each class, whether it is stored. A class that is needed and not stored is computed anew in each kernel that
    /// reads it (it is virtual there).
    pub stored: Vec<bool>,
    /// For each stored class, the class that leads its kernel: kernels with several stores have one leader. A class that
    /// leads its own kernel names itself.
    pub host: Vec<ClassId>,
}

/// Why a plan is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A class that is needed has no e-node that a kernel can be built from.
    #[error("class {0} cannot be computed: no e-node of it has a kernel")]
    NoChoice(ClassId),
    /// The choice runs in a circle.
    #[error("the choice is cyclic through class {0}")]
    CyclicChoice(ClassId),
    /// Kernels wait for each other.
    #[error("kernels wait for each other around class {0}")]
    CyclicKernels(ClassId),
    /// A class names a leader that is not stored or does not lead.
    #[error("class {0} is hosted by class {1}, which leads no kernel")]
    NoHost(ClassId, ClassId),
    /// An anchor that is not stored is computed by several kernels.
    #[error("the anchor of class {0} is not stored, but {1} kernels compute it")]
    SharedAnchor(ClassId, usize),
    /// A kernel that no backend could take: two anchors, rows of different lengths, a store at no known place.
    #[error("the kernel of class {0} cannot be built: {1}")]
    Kernel(ClassId, String),
}

/// One kernel of a plan, in terms of classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanKernel {
    /// What it stores, ascending; never empty.
    pub stores: Vec<ClassId>,
    /// What it computes: the stores and the virtual classes below them, operands before users.
    pub interior: Vec<ClassId>,
    /// What it reads: stored classes of other kernels, and leaves, ascending.
    pub reads: Vec<ClassId>,
    /// Whether it belongs to the load program: it stores constants, and reads what is given or what the load program stores. What is
    /// given and an output is copied in each run.
    pub load: bool,
}

/// Whether a class needs no kernel: it is given, or the same number everywhere.
pub fn is_given(classes: &EClasses, class: ClassId) -> bool {
    let c = &classes.classes[class];
    c.scalar.is_some() || c.nodes.iter().any(|n| is_buffer(n.op))
}

/// Whether a leaf has a buffer of its own (others, such as iota, are computed where they are wanted).
pub fn is_buffer(op: Op) -> bool {
    matches!(op.def().class, Class::Leaf(Leaf::Input | Leaf::Param | Leaf::State | Leaf::Const))
}

impl Plan {
    /// Makes a class virtual; if it led a kernel, the kernel's other stores are on their own again.
    pub fn release(&mut self, class: ClassId) {
        self.stored[class] = false;
        for (c, host) in self.host.iter_mut().enumerate().filter(|(_, h)| **h == class) {
            *host = c;
        }
        self.host[class] = class;
    }

    /// The class that leads the kernel which stores a class.
    pub(crate) fn leader(&self, class: ClassId) -> Result<ClassId, PlanError> {
        let leader = self.host[class];
        let leads = self.stored[leader] && self.host[leader] == leader;
        if leads { Ok(leader) } else { Err(PlanError::NoHost(class, leader)) }
    }

    /// Whether a class that some kernel computes is an anchor.
    pub(crate) fn is_anchor(&self, classes: &EClasses, class: ClassId) -> bool {
        let c = &classes.classes[class];
        c.scalar.is_none() && matches!(c.nodes[self.choice[class]].op.def().class, Class::Anchor(_))
    }
}

/// What is true of each class under every plan.
pub(crate) struct ClassFacts {
    /// Whether it needs no kernel ([`is_given`]).
    pub given: Vec<bool>,
    /// Whether it is an output.
    pub output: Vec<bool>,
    /// Whether it is there before the first run, or could be. That holds for outputs as well: parts of a constant would be computed once and
    /// others in each run, by a form of it that is less exact than the one that kernels of a run have.
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

    /// Whether a load program may store it.
    pub fn is_made_once(&self, class: ClassId) -> bool {
        self.loadable[class] && !(self.given[class] && self.output[class])
    }
}
