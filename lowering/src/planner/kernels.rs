//! Derives the kernels of a plan in topological order, and checks that the plan is valid.

use std::sync::Arc;

use eutectic_ir::eclasses::{ClassId, EClasses};
use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use crate::{
    plan::{ClassFacts, Plan, PlanError, PlanKernel},
    walk::Walker,
};

impl Plan {
    /// Returns the kernels of the plan in an order in which they can run, or the reason why the plan is not valid. A
    /// plan is valid if
    ///
    /// 1. the choice of the needed classes is acyclic;
    /// 2. every output is stored, and every class that is needed and not stored is computed in each kernel that reads
    ///    it;
    /// 3. a stored class is stored by the kernel of its host;
    /// 4. an anchor that is not stored is computed by exactly one kernel;
    /// 5. kernels have no cyclic dependency.
    ///
    /// [`build::kernel`](crate::build::kernel) decides whether a backend can build each kernel (at most one contraction
    /// or one row group, and so on). The search updates the kernels of its plan move by move instead, and a test
    /// compares them with this definition.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn kernels(&self, classes: &EClasses) -> Result<Vec<Arc<PlanKernel>>, PlanError> {
        self.kernels_among(classes, &ClassFacts::of(classes))
    }

    /// Computes [`Plan::kernels`] from facts that are already known.
    pub(crate) fn kernels_among(
        &self,
        classes: &EClasses,
        facts: &ClassFacts,
    ) -> Result<Vec<Arc<PlanKernel>>, PlanError> {
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
            // A copy kernel reads a leaf that is an output; no kernel computes the leaf.
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
            kernel.load = kernel.stores.iter().all(|c| facts.is_made_once(*c))
                && kernel.reads.iter().all(|c| if given[*c] { facts.loadable[*c] } else { loaded.contains(*c) });
            if kernel.load {
                loaded.extend(kernel.stores.iter().copied());
            }
        }
        Ok(kernels.into_iter().map(Arc::new).collect())
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
}

/// Sorts kernels topologically. The kernels of an output come after those of the outputs before it.
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
    // Each entry is a kernel and the number of its next unvisited read. The stack replaces recursion, because programs
    // may be deeper than the call stack allows.
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
            // Leaves exist before any kernel runs, even if a kernel copies them to an output.
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
