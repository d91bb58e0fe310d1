//! What a plan is, and when it is valid.

use std::sync::Arc;

use eutectic_ir::{
    Op,
    eclasses::{ClassId, EClasses},
    ops::{Class, Leaf},
};
use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use crate::walk::Walker;

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
    /// Whether it belongs to the load program: it stores constants that are no outputs, and reads what is given or what the
    /// load program stores.
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

    /// The kernels of the plan, in an order in which they can run, or why it is not valid. This is the definition of a plan:
    ///
    /// 1. the choice of the needed classes is acyclic;
    /// 2. every output is stored, and every class that is needed and not stored is computed in each kernel that reads it;
    /// 3. a stored class is stored by the kernel of its host;
    /// 4. an anchor that is not stored is computed by exactly one kernel;
    /// 5. kernels do not wait for each other.
    ///
    /// Whether a backend can build each kernel (at most one contraction or one row group, and so on) is
    /// [`build::kernel`](crate::build::kernel)'s to say. The search keeps the kernels of its plan up to date move by move
    /// instead; a test holds that against this.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn kernels(&self, classes: &EClasses) -> Result<Vec<Arc<PlanKernel>>, PlanError> {
        self.kernels_among(classes, &Facts::of(classes))
    }

    /// As [`Plan::kernels`], for who knows the facts already.
    pub(crate) fn kernels_among(&self, classes: &EClasses, facts: &Facts) -> Result<Vec<Arc<PlanKernel>>, PlanError> {
        let (n, given) = (classes.classes.len(), &facts.given);
        let mut walker = Walker::new(n);
        let mut live = FixedBitSet::with_capacity(n);
        let mut place: FxHashMap<ClassId, usize> = FxHashMap::default();
        let mut kernels: Vec<PlanKernel> = Vec::new();
        let mut wanted: Vec<ClassId> = classes.outputs.iter().rev().copied().collect();
        while let Some(class) = wanted.pop() {
            if live.put(class) {
                continue;
            }
            let leader = self.leader(class)?;
            let at = *place.entry(leader).or_insert(kernels.len());
            let mut stores = kernels.get(at).map_or(Vec::new(), |kernel| kernel.stores.clone());
            stores.push(class);
            stores.sort_unstable();
            let kernel = walker.kernel(classes, given, self, leader, stores)?;
            // A leaf that is itself an output is read, but no kernel makes it.
            wanted.extend(kernel.reads.iter().filter(|c| !given[**c]));
            match kernels.get_mut(at) {
                Some(smaller) => *smaller = kernel,
                None => kernels.push(kernel),
            }
        }
        self.check_anchors(classes, &kernels)?;
        let mut kernels = order(kernels, classes, given)?;
        let mut loaded = FixedBitSet::with_capacity(n);
        for kernel in &mut kernels {
            kernel.load = kernel.stores.iter().all(|c| facts.loadable[*c] && !facts.output[*c])
                && kernel.reads.iter().all(|c| if given[*c] { facts.loadable[*c] } else { loaded.contains(*c) });
            if kernel.load {
                loaded.extend(kernel.stores.iter().copied());
            }
        }
        Ok(kernels.into_iter().map(Arc::new).collect())
    }

    /// The class that leads the kernel which stores a class.
    pub(crate) fn leader(&self, class: ClassId) -> Result<ClassId, PlanError> {
        let leader = self.host[class];
        let leads = self.stored[leader] && self.host[leader] == leader;
        if leads { Ok(leader) } else { Err(PlanError::NoHost(class, leader)) }
    }

    fn check_anchors(&self, classes: &EClasses, kernels: &[PlanKernel]) -> Result<(), PlanError> {
        let interior = || {
            let all = kernels.iter().flat_map(|k| &k.interior).copied();
            all.filter(|&c| !self.stored[c] && self.is_anchor(classes, c))
        };
        let mut seen = FixedBitSet::with_capacity(classes.classes.len());
        match interior().find(|c| seen.put(*c)) {
            Some(shared) => Err(PlanError::SharedAnchor(shared, interior().filter(|c| *c == shared).count())),
            None => Ok(()),
        }
    }

    /// Whether a class that some kernel computes is an anchor.
    pub(crate) fn is_anchor(&self, classes: &EClasses, class: ClassId) -> bool {
        let c = &classes.classes[class];
        c.scalar.is_none() && matches!(c.nodes[self.choice[class]].op.def().class, Class::Anchor(_))
    }
}

/// What is true of each class under every plan.
pub(crate) struct Facts {
    /// Whether it needs no kernel ([`is_given`]).
    pub given: Vec<bool>,
    /// Whether it is an output.
    pub output: Vec<bool>,
    /// Whether it is there before the first run, or could be: constant, and no output that a kernel makes.
    pub loadable: Vec<bool>,
}

impl Facts {
    pub fn of(classes: &EClasses) -> Facts {
        let n = classes.classes.len();
        let given: Vec<bool> = (0..n).map(|class| is_given(classes, class)).collect();
        let mut output = vec![false; n];
        classes.outputs.iter().for_each(|&c| output[c] = true);
        let loadable = (0..n).map(|c| classes.classes[c].constant && (given[c] || !output[c])).collect();
        Facts { given, output, loadable }
    }
}

/// Sorts kernels so that what a kernel reads is stored before, each output's after those of the outputs before it.
fn order(kernels: Vec<PlanKernel>, classes: &EClasses, given: &[bool]) -> Result<Vec<PlanKernel>, PlanError> {
    const NONE: usize = usize::MAX;
    let mut maker = vec![NONE; classes.classes.len()];
    for (k, kernel) in kernels.iter().enumerate() {
        kernel.stores.iter().for_each(|&c| maker[c] = k);
    }
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; kernels.len()];
    let mut sorted = Vec::with_capacity(kernels.len());
    // Kernels with the reads that are still to be looked at, because programs are deeper than the stack.
    let mut stack: Vec<(usize, usize)> = Vec::new();
    for &output in &classes.outputs {
        if marks[maker[output]] == Mark::New {
            marks[maker[output]] = Mark::Open;
            stack.push((maker[output], 0));
        }
        while let Some((k, next)) = stack.last_mut() {
            let Some(&read) = kernels[*k].reads.get(*next) else {
                marks[*k] = Mark::Done;
                sorted.push(*k);
                stack.pop();
                continue;
            };
            *next += 1;
            // What is given is there before any kernel, even if one copies it to an output.
            let from = maker[read];
            match marks.get(from).filter(|_| !given[read]) {
                Some(Mark::Open) => return Err(PlanError::CyclicKernels(kernels[from].stores[0])),
                Some(Mark::New) => {
                    marks[from] = Mark::Open;
                    stack.push((from, 0));
                }
                Some(Mark::Done) | None => {}
            }
        }
    }
    let mut kernels: Vec<_> = kernels.into_iter().map(Some).collect();
    Ok(sorted.into_iter().filter_map(|k| kernels[k].take()).collect())
}
