//! What a plan is, and when it is valid.

use eutectic_ir::{
    Op,
    eclasses::{ClassId, EClasses},
    ops::{Class, Leaf},
};
use rustc_hash::{FxHashMap, FxHashSet};

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
}

/// Whether a class needs no kernel: it is given, or the same number everywhere.
pub fn is_given(classes: &EClasses, class: ClassId) -> bool {
    let c = &classes.classes[class];
    c.scalar.is_some() || c.nodes.iter().any(|n| is_buffer(n.op))
}

/// Whether a leaf has a buffer of its own (others, such as iota, are computed where they are wanted).
pub fn is_buffer(op: Op) -> bool {
    matches!(op.def().class, Class::Leaf(Leaf::Input | Leaf::Param | Leaf::Const))
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

    /// The kernels of the plan, in an order in which they can run, or why it is not valid. This is the definition of a plan:
    ///
    /// 1. the choice of the needed classes is acyclic;
    /// 2. every output is stored, and every class that is needed and not stored is computed in each kernel that reads it;
    /// 3. a stored class is stored by the kernel of its host;
    /// 4. an anchor that is not stored is computed by exactly one kernel;
    /// 5. kernels do not wait for each other.
    ///
    /// Whether a backend can build each kernel (at most one contraction or one row group, and so on) is
    /// [`build::kernel`](crate::build::kernel)'s to say.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn kernels(&self, classes: &EClasses) -> Result<Vec<PlanKernel>, PlanError> {
        let mut kernels: Vec<PlanKernel> = Vec::new();
        let mut of_leader: FxHashMap<ClassId, usize> = FxHashMap::default();
        let mut wanted: Vec<ClassId> = classes.outputs.iter().rev().copied().collect();
        let mut seen: FxHashSet<ClassId> = FxHashSet::default();
        while let Some(class) = wanted.pop() {
            if !seen.insert(class) {
                continue;
            }
            let leader = self.host[class];
            if !self.stored[leader] || self.host[leader] != leader {
                return Err(PlanError::NoHost(class, leader));
            }
            let at = *of_leader.entry(leader).or_insert_with(|| {
                kernels.push(PlanKernel { stores: Vec::new(), interior: Vec::new(), reads: Vec::new() });
                kernels.len() - 1
            });
            kernels[at].stores.push(class);
            let before = kernels[at].reads.len();
            self.walk(classes, class, class, leader, &mut kernels[at], &mut Vec::new())?;
            // A leaf that is itself an output is read, but no kernel makes it.
            wanted.extend(kernels[at].reads[before..].iter().rev().filter(|c| !is_given(classes, **c)));
        }
        for kernel in &mut kernels {
            kernel.stores.sort_unstable();
            kernel.reads.sort_unstable();
        }
        self.check_anchors(classes, &kernels)?;
        order(kernels, classes)
    }

    /// Collects what computing `class` takes, down to what other kernels store.
    fn walk(
        &self,
        classes: &EClasses,
        class: ClassId,
        root: ClassId,
        leader: ClassId,
        kernel: &mut PlanKernel,
        path: &mut Vec<ClassId>,
    ) -> Result<(), PlanError> {
        if path.contains(&class) {
            return Err(PlanError::CyclicChoice(class));
        }
        let elsewhere = self.stored[class] && self.host[class] != leader && class != root;
        if elsewhere || (is_given(classes, class) && classes.classes[class].scalar.is_none()) {
            if !kernel.reads.contains(&class) {
                kernel.reads.push(class);
            }
            return Ok(());
        }
        if kernel.interior.contains(&class) {
            return Ok(());
        }
        if classes.classes[class].scalar.is_none() {
            let node = classes.classes[class].nodes.get(self.choice[class]).ok_or(PlanError::NoChoice(class))?;
            path.push(class);
            for &operand in &node.operands {
                self.walk(classes, operand, root, leader, kernel, path)?;
            }
            path.pop();
        }
        kernel.interior.push(class);
        Ok(())
    }

    fn check_anchors(&self, classes: &EClasses, kernels: &[PlanKernel]) -> Result<(), PlanError> {
        let mut users: FxHashMap<ClassId, usize> = FxHashMap::default();
        for kernel in kernels {
            for &class in kernel.interior.iter().filter(|c| !self.stored[**c]) {
                let c = &classes.classes[class];
                if c.scalar.is_none() && matches!(c.nodes[self.choice[class]].op.def().class, Class::Anchor(_)) {
                    *users.entry(class).or_default() += 1;
                }
            }
        }
        let mut shared: Vec<_> = users.into_iter().filter(|(_, n)| *n > 1).collect();
        shared.sort_unstable();
        shared.first().map_or(Ok(()), |&(class, n)| Err(PlanError::SharedAnchor(class, n)))
    }
}

/// Sorts kernels so that what a kernel reads is stored before; among those that can run, the one that was found last
/// (nearest to the inputs) goes first.
fn order(kernels: Vec<PlanKernel>, classes: &EClasses) -> Result<Vec<PlanKernel>, PlanError> {
    let maker: FxHashMap<ClassId, usize> =
        kernels.iter().enumerate().flat_map(|(k, kernel)| kernel.stores.iter().map(move |c| (*c, k))).collect();
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    fn visit(
        k: usize,
        kernels: &[PlanKernel],
        maker: &FxHashMap<ClassId, usize>,
        marks: &mut [Mark],
        sorted: &mut Vec<usize>,
    ) -> Result<(), PlanError> {
        match marks[k] {
            Mark::Done => return Ok(()),
            Mark::Open => return Err(PlanError::CyclicKernels(kernels[k].stores[0])),
            Mark::New => marks[k] = Mark::Open,
        }
        for read in &kernels[k].reads {
            if let Some(&from) = maker.get(read) {
                // An output that copies a leaf stores the class that it reads.
                if from != k || !kernels[k].stores.contains(read) {
                    visit(from, kernels, maker, marks, sorted)?;
                }
            }
        }
        marks[k] = Mark::Done;
        sorted.push(k);
        Ok(())
    }
    let mut marks = vec![Mark::New; kernels.len()];
    let mut sorted = Vec::with_capacity(kernels.len());
    for output in &classes.outputs {
        visit(maker[output], &kernels, &maker, &mut marks, &mut sorted)?;
    }
    let mut kernels: Vec<_> = kernels.into_iter().map(Some).collect();
    Ok(sorted.into_iter().filter_map(|k| kernels[k].take()).collect())
}
