//! What a plan is, and when it is valid.

use std::rc::Rc;

use eutectic_ir::{
    Op,
    eclasses::{ClassId, EClasses},
    ops::{Class, Leaf},
};
use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

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
    /// [`build::kernel`](crate::build::kernel)'s to say.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn kernels(&self, classes: &EClasses) -> Result<Vec<Rc<PlanKernel>>, PlanError> {
        let given: Vec<bool> = (0..classes.classes.len()).map(|class| is_given(classes, class)).collect();
        self.kernels_given(classes, &given, &mut Known::default())
    }

    /// As [`Plan::kernels`], for who knows which classes are given and has asked before: the search asks thousands of times,
    /// for plans that differ in a kernel or two.
    pub(crate) fn kernels_given(
        &self,
        classes: &EClasses,
        given: &[bool],
        known: &mut Known,
    ) -> Result<Vec<Rc<PlanKernel>>, PlanError> {
        let n = given.len();
        let mut kernels: Vec<Rc<PlanKernel>> = Vec::new();
        let mut walks: Vec<Walk> = Vec::new();
        let mut leads_others = FixedBitSet::with_capacity(n);
        leads_others.extend((0..n).filter(|&c| self.stored[c] && self.host[c] != c).map(|c| self.host[c]));
        let mut seen = FixedBitSet::with_capacity(n);
        let mut path = FixedBitSet::with_capacity(n);
        let mut wanted: Vec<ClassId> = classes.outputs.iter().rev().copied().collect();
        while let Some(class) = wanted.pop() {
            if seen.put(class) {
                continue;
            }
            let leader = self.host[class];
            if !self.stored[leader] || self.host[leader] != leader {
                return Err(PlanError::NoHost(class, leader));
            }
            if let Some(kernel) = known.find(self, given, leader).filter(|_| !leads_others.contains(leader)) {
                wanted.extend(kernel.reads.iter().copied().filter(|c| !given[*c]));
                kernels.push(kernel);
                continue;
            }
            let at = walks.iter().position(|w| w.leader == leader).unwrap_or_else(|| {
                walks.push(Walk::new(leader, n));
                walks.len() - 1
            });
            let walk = &mut walks[at];
            walk.kernel.stores.push(class);
            let before = walk.kernel.reads.len();
            self.walk(classes, given, class, class, walk, &mut path)?;
            // A leaf that is itself an output is read, but no kernel makes it.
            walk.kernel.reads[before..].sort_unstable();
            wanted.extend(walk.kernel.reads[before..].iter().filter(|c| !given[**c]));
        }
        for Walk { leader, mut kernel, .. } in walks {
            kernel.stores.sort_unstable();
            kernel.reads.sort_unstable();
            let kernel = Rc::new(kernel);
            if !leads_others.contains(leader) {
                known.insert(self, leader, &kernel);
            }
            kernels.push(kernel);
        }
        self.check_anchors(classes, &kernels)?;
        let mut kernels = order(kernels, classes)?;
        let mut runs = FixedBitSet::with_capacity(n);
        for kernel in &mut kernels {
            let constant = |c: &ClassId| classes.classes[*c].constant && !classes.outputs.contains(c);
            let load = kernel.stores.iter().all(constant) && !kernel.reads.iter().any(|c| runs.contains(*c));
            if kernel.load != load {
                Rc::make_mut(kernel).load = load;
            }
            if !load {
                runs.extend(kernel.stores.iter().copied());
            }
        }
        Ok(kernels)
    }

    /// Collects what computing `class` takes, down to what other kernels store.
    fn walk(
        &self,
        classes: &EClasses,
        given: &[bool],
        class: ClassId,
        root: ClassId,
        walk: &mut Walk,
        path: &mut FixedBitSet,
    ) -> Result<(), PlanError> {
        if path.contains(class) {
            return Err(PlanError::CyclicChoice(class));
        }
        let c = &classes.classes[class];
        let elsewhere = self.stored[class] && self.host[class] != walk.leader && class != root;
        if elsewhere || (given[class] && c.scalar.is_none()) {
            if !walk.reads.put(class) {
                walk.kernel.reads.push(class);
            }
            return Ok(());
        }
        if walk.interior.contains(class) {
            return Ok(());
        }
        if c.scalar.is_none() {
            let node = c.nodes.get(self.choice[class]).ok_or(PlanError::NoChoice(class))?;
            path.insert(class);
            for &operand in &node.operands {
                self.walk(classes, given, operand, root, walk, path)?;
            }
            path.remove(class);
        }
        walk.interior.insert(class);
        walk.kernel.interior.push(class);
        Ok(())
    }

    fn check_anchors(&self, classes: &EClasses, kernels: &[Rc<PlanKernel>]) -> Result<(), PlanError> {
        let is_anchor = |class: ClassId| {
            let c = &classes.classes[class];
            c.scalar.is_none() && matches!(c.nodes[self.choice[class]].op.def().class, Class::Anchor(_))
        };
        let interior = || kernels.iter().flat_map(|k| &k.interior).filter(|c| !self.stored[**c] && is_anchor(**c));
        let mut seen = FixedBitSet::with_capacity(classes.classes.len());
        match interior().find(|c| seen.put(**c)) {
            Some(&shared) => Err(PlanError::SharedAnchor(shared, interior().filter(|c| **c == shared).count())),
            None => Ok(()),
        }
    }
}

/// How many kernels are remembered for a leader: the plan's own and those of the trials around it.
const REMEMBERED: usize = 4;

/// Kernels of one store that were found before, by leader.
///
/// A walk goes the same way again as long as what it met is chosen and stored alike.
#[derive(Default)]
pub(crate) struct Known(FxHashMap<ClassId, Vec<Found>>);

/// A kernel, and the choices of its interior.
type Found = (Rc<PlanKernel>, Vec<usize>);

impl Known {
    /// The kernel of a leader that hosts no other class.
    fn find(&mut self, plan: &Plan, given: &[bool], leader: ClassId) -> Option<Rc<PlanKernel>> {
        let of_leader = self.0.get_mut(&leader)?;
        let holds = |(kernel, choices): &Found| {
            let alike = |(&c, &choice): (&ClassId, &usize)| {
                (c == leader || !plan.stored[c]) && (given[c] || plan.choice[c] == choice)
            };
            kernel.interior.iter().zip(choices).all(alike) && kernel.reads.iter().all(|&c| given[c] || plan.stored[c])
        };
        let at = of_leader.iter().position(holds)?;
        of_leader[..=at].rotate_right(1);
        Some(of_leader[0].0.clone())
    }

    fn insert(&mut self, plan: &Plan, leader: ClassId, kernel: &Rc<PlanKernel>) {
        let of_leader = self.0.entry(leader).or_default();
        of_leader.truncate(REMEMBERED - 1);
        let choices = kernel.interior.iter().map(|&c| plan.choice[c]).collect();
        of_leader.insert(0, (kernel.clone(), choices));
    }
}

/// A kernel under construction, with what it holds so far as sets.
struct Walk {
    leader: ClassId,
    kernel: PlanKernel,
    interior: FixedBitSet,
    reads: FixedBitSet,
}

impl Walk {
    fn new(leader: ClassId, classes: usize) -> Walk {
        // Room for a usual kernel: the search makes thousands.
        let kernel = PlanKernel {
            stores: Vec::with_capacity(4),
            interior: Vec::with_capacity(32),
            reads: Vec::with_capacity(8),
            load: false,
        };
        let set = || FixedBitSet::with_capacity(classes);
        Walk { leader, kernel, interior: set(), reads: set() }
    }
}

/// Sorts kernels so that what a kernel reads is stored before; among those that can run, the one that was found last
/// (nearest to the inputs) goes first.
fn order(kernels: Vec<Rc<PlanKernel>>, classes: &EClasses) -> Result<Vec<Rc<PlanKernel>>, PlanError> {
    const NONE: u32 = u32::MAX;
    let mut maker = vec![NONE; classes.classes.len()];
    for (k, kernel) in (0..).zip(&kernels) {
        kernel.stores.iter().for_each(|&c| maker[c] = k);
    }
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    fn visit(
        k: usize,
        kernels: &[Rc<PlanKernel>],
        maker: &[u32],
        marks: &mut [Mark],
        sorted: &mut Vec<usize>,
    ) -> Result<(), PlanError> {
        match marks[k] {
            Mark::Done => return Ok(()),
            Mark::Open => return Err(PlanError::CyclicKernels(kernels[k].stores[0])),
            Mark::New => marks[k] = Mark::Open,
        }
        for read in &kernels[k].reads {
            let from = maker[*read];
            // An output that copies a leaf stores the class that it reads.
            if from != NONE && (from as usize != k || !kernels[k].stores.contains(read)) {
                visit(from as usize, kernels, maker, marks, sorted)?;
            }
        }
        marks[k] = Mark::Done;
        sorted.push(k);
        Ok(())
    }
    let mut marks = vec![Mark::New; kernels.len()];
    let mut sorted = Vec::with_capacity(kernels.len());
    for &output in &classes.outputs {
        if maker[output] == NONE {
            continue;
        }
        visit(maker[output] as usize, &kernels, &maker, &mut marks, &mut sorted)?;
    }
    let mut kernels: Vec<_> = kernels.into_iter().map(Some).collect();
    Ok(sorted.into_iter().filter_map(|k| kernels[k].take()).collect())
}
