//! The kernels of a plan, in an order in which they can run: what makes a plan valid.

use std::sync::Arc;

use eutectic_ir::eclasses::{ClassId, EClasses};
use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use crate::{
    plan::{ClassFacts, Plan, PlanError, PlanKernel},
    walk::Walker,
};

impl Plan {
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
        self.kernels_among(classes, &ClassFacts::of(classes))
    }

    /// As [`Plan::kernels`], for who knows the facts already.
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
