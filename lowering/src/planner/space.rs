//! Prices plans: each kernel is built and priced once, and its price is cached by the kernel's structure.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use eutectic_backend::{Backend, Candidate, Cost, Kernel, Limits};
use eutectic_ir::{
    eclasses::{ClassId, EClasses, ENode},
    ops::{Class, Leaf},
};
use rustc_hash::FxHashMap;

use super::{key::Forms, rates::Rates};
use crate::{
    build::{self, KernelOfClasses, Positions},
    copy::{copy, fill},
    plan::{ClassFacts, Plan, PlanError, PlanKernel},
};

/// A saturated e-graph with the backend that its plans are priced for, and a cache of prices.
pub struct Space<'a> {
    /// The classes.
    pub classes: &'a EClasses,
    /// The backend.
    pub backend: &'a dyn Backend,
    pub(crate) facts: ClassFacts,
    pub(crate) rates: Rates,
    /// The bytes of each class.
    bytes: Vec<f64>,
    limits: Limits,
    refused: &'a Refused,
    positions: Positions,
    forms: Forms,
    /// Factors on prices that rules attach to their results, by class and e-node.
    hints: FxHashMap<(ClassId, usize), f64>,
    costs: RefCell<FxHashMap<u128, KernelPrice>>,
    work: Cell<u64>,
    /// A plan in which each op is a kernel of its own. `alone` sets its choices.
    unfused: RefCell<Plan>,
}

/// Kernels that a backend refused to compile although `supports` had accepted them, with the reasons. Their price is
/// infinite.
#[derive(Clone, Debug, Default)]
pub struct Refused(FxHashMap<Kernel, String>);

impl Refused {
    /// Returns the empty set.
    pub fn none() -> &'static Refused {
        static NONE: std::sync::LazyLock<Refused> = std::sync::LazyLock::new(Refused::default);
        &NONE
    }

    /// Adds a kernel. Returns whether it is new.
    pub fn add(&mut self, kernel: Kernel, why: String) -> bool {
        self.0.insert(kernel, why).is_none()
    }
}

/// The price of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelPrice {
    /// The predicted cost of a run at the maximal lengths.
    pub cost: Cost,
    /// The seconds that the search counts. If lengths vary, they are the mean of the seconds at the maximal lengths and
    /// the seconds at the minimal lengths.
    pub mean: f64,
}

impl KernelPrice {
    const IMPOSSIBLE: KernelPrice = KernelPrice { cost: Cost::IMPOSSIBLE, mean: Cost::IMPOSSIBLE.seconds };
}

/// A plan's price.
#[derive(Clone, Debug)]
pub struct Priced {
    /// Predicted seconds of a run, plus the counted seconds of the load program and of the bytes that are kept between
    /// runs.
    pub seconds: f64,
    /// The kernels in order, each with its predicted cost.
    pub kernels: Vec<(Arc<PlanKernel>, Cost)>,
}

impl<'a> Space<'a> {
    /// Returns a space without cached prices.
    pub fn new(classes: &'a EClasses, backend: &'a dyn Backend) -> Space<'a> {
        Space::within(classes, backend, Refused::none(), 0.0)
    }

    /// Returns a space that excludes some kernels. `memory_pressure` is 0 if memory suffices; otherwise each byte that
    /// a plan stores counts as that number of additional reads and writes.
    pub fn within(
        classes: &'a EClasses,
        backend: &'a dyn Backend,
        refused: &'a Refused,
        memory_pressure: f64,
    ) -> Space<'a> {
        let n = classes.classes.len();
        let facts = ClassFacts::of(classes);
        let unfused = Plan { choice: vec![0; n], stored: vec![true; n], host: (0..n).collect() };
        Space {
            classes,
            backend,
            forms: Forms::of(classes, &facts),
            hints: classes.hints.iter().map(|hint| ((hint.class, hint.node), hint.factor)).collect(),
            facts,
            rates: Rates::of(backend, memory_pressure),
            bytes: classes.classes.iter().map(|class| class.ty.bytes() as f64).collect(),
            limits: backend.limits(),
            refused,
            positions: Positions::default(),
            costs: RefCell::default(),
            work: Cell::default(),
            unfused: RefCell::new(unfused),
        }
    }

    /// Returns whether a class is a leaf with a buffer or one number everywhere.
    pub fn is_given(&self, class: ClassId) -> bool {
        self.facts.given[class]
    }

    /// Returns the price of a plan. It is infinite if a kernel cannot be built.
    ///
    /// # Errors
    /// If the plan is not valid.
    pub fn price(&self, plan: &Plan) -> Result<Priced, PlanError> {
        let kernels = plan.kernels_among(self.classes, &self.facts)?;
        let mut seconds = 0.0;
        let mut read = vec![false; self.facts.given.len()];
        let mut priced = Vec::with_capacity(kernels.len());
        for kernel in kernels {
            let price = self.kernel_price(plan, &kernel);
            seconds += self.seconds(&kernel, price);
            for &class in kernel.reads.iter().filter(|c| !kernel.load && self.is_kept_leaf(**c)) {
                if !std::mem::replace(&mut read[class], true) {
                    seconds += self.keep(class);
                }
            }
            priced.push((kernel, price.cost));
        }
        Ok(Priced { seconds, kernels: priced })
    }

    /// Returns the contribution of a kernel to the plan's price, in weighted seconds: its time and a penalty for the
    /// bytes that it stores. The time of a load-program kernel has a smaller weight.
    pub(crate) fn seconds(&self, kernel: &PlanKernel, price: KernelPrice) -> f64 {
        let seconds = price.mean;
        let stored = |rate: f64, class: ClassId| self.bytes[class] * rate;
        if !kernel.load {
            return kernel.stores.iter().fold(seconds, |sum, &class| sum + stored(self.rates.stored, class));
        }
        kernel.stores.iter().fold(seconds * self.rates.load, |sum, &class| sum + stored(self.rates.byte, class))
    }

    /// Returns the penalty, in seconds of the plan's price, for keeping the bytes of a class between runs.
    pub(crate) fn keep(&self, class: ClassId) -> f64 {
        self.bytes[class] * self.rates.byte
    }

    /// Returns whether storing a class is never better than storing its only reader, computed by e-node `node`: the
    /// reader is as small, is a pointwise op, and belongs to the same program.
    pub(crate) fn leaves_storing_to(&self, class: ClassId, reader: ClassId, node: usize) -> bool {
        let pointwise = |node: &ENode| matches!(node.op.def().class, Class::Pointwise);
        self.classes.classes[reader].nodes.get(node).is_some_and(pointwise)
            && self.facts.loadable[class] == self.facts.loadable[reader]
            && self.bytes[reader] <= self.bytes[class]
    }

    /// Returns whether a class is a leaf that is kept between runs.
    pub(crate) fn is_kept_leaf(&self, class: ClassId) -> bool {
        self.facts.given[class] && self.facts.loadable[class]
    }

    /// Returns the work on the space so far, in ops visited. Pricing an op counts as several visits.
    pub fn work(&self) -> u64 {
        self.work.get()
    }

    pub(crate) fn spend(&self, ops: usize) {
        self.work.set(self.work.get() + ops as u64);
    }

    /// Returns the price of one kernel of a plan.
    pub(crate) fn kernel_price(&self, plan: &Plan, kernel: &PlanKernel) -> KernelPrice {
        let key = self.key(plan, kernel);
        let price = self.known(key).unwrap_or_else(|| self.price_of_key(key, plan, kernel));
        self.hinted(price, plan, kernel)
    }

    /// Multiplies the counted seconds of a kernel by the factors of the rules whose results it computes. The predicted
    /// cost does not change.
    pub(crate) fn hinted(&self, price: KernelPrice, plan: &Plan, kernel: &PlanKernel) -> KernelPrice {
        if self.hints.is_empty() {
            return price;
        }
        let factor = kernel.interior.iter().filter_map(|&class| self.hints.get(&(class, plan.choice[class])));
        KernelPrice { mean: price.mean * factor.product::<f64>(), ..price }
    }

    /// Returns the key under which a kernel's price is cached.
    pub(crate) fn key(&self, plan: &Plan, kernel: &PlanKernel) -> u128 {
        self.forms.key(self.classes, plan, kernel)
    }

    /// Returns the price of a key, if a kernel with that key has been priced.
    pub(crate) fn known(&self, key: u128) -> Option<KernelPrice> {
        self.costs.borrow().get(&key).copied()
    }

    /// Prices a kernel whose key has no cached price.
    pub(crate) fn price_of_key(&self, key: u128, plan: &Plan, kernel: &PlanKernel) -> KernelPrice {
        // Building and pricing an op takes several times as long as walking over it.
        self.spend(4 * kernel.interior.len());
        let price = match build::kernel(self.classes, plan, kernel, &self.positions, self.limits.instrs) {
            Ok(built) if self.takes(&built.kernel) => self.price_of(&built),
            _ => KernelPrice::IMPOSSIBLE,
        };
        self.costs.borrow_mut().insert(key, price);
        price
    }

    /// Returns the backend's ways to compute a kernel of a plan, the cheapest first. The list is empty if the backend
    /// cannot compute the kernel.
    pub fn candidates(&self, plan: &Plan, kernel: &PlanKernel) -> Vec<Candidate> {
        let built = build::kernel(self.classes, plan, kernel, &self.positions, self.limits.instrs);
        let candidates = |built: &KernelOfClasses| self.backend.candidates(&built.kernel, &self.constants(built)).ok();
        built.ok().and_then(|built| candidates(&built)).unwrap_or_default()
    }

    /// Returns the slots that a kernel reads and that have equal contents in all runs.
    fn constants(&self, built: &KernelOfClasses) -> Vec<usize> {
        (0..built.reads).filter(|&slot| self.facts.loadable[built.classes[slot]]).collect()
    }

    fn takes(&self, kernel: &Kernel) -> bool {
        self.limits.exceeded(kernel).is_empty() && !self.refused.0.contains_key(kernel)
    }

    /// Returns the price of a kernel. If the kernel updates a tensor in part, the price includes a copy of the tensor,
    /// unless the tensor is a state: only a state is sure to hold the old elements in place. If lengths vary, the price
    /// is the mean at the maximal and the minimal lengths: a program may read a prompt in long runs and generate text
    /// in short ones.
    fn price_of(&self, built: &KernelOfClasses) -> KernelPrice {
        let constants = self.constants(built);
        let mut cost = self.backend.cost_among(&built.kernel, &constants);
        let shortest = built.kernel.shortest();
        let shortest = shortest.map_or(cost.seconds, |kernel| self.backend.cost_among(&kernel, &constants).seconds);
        let mut mean = (cost.seconds + shortest) / 2.0;
        for &(_, whole) in &built.parts {
            let whole = &self.classes.classes[whole];
            let is_state = |node: &ENode| matches!(node.op.def().class, Class::Leaf(Leaf::State));
            if !whole.nodes.iter().any(is_state) {
                let before = whole.scalar.map_or_else(|| copy(&whole.ty), |value| fill(&whole.ty, value));
                let copied = self.backend.cost(&before);
                mean += copied.seconds;
                cost = Cost {
                    seconds: cost.seconds + copied.seconds,
                    flops: cost.flops + copied.flops,
                    bytes: cost.bytes + copied.bytes,
                };
            }
        }
        KernelPrice { cost, mean }
    }

    /// Returns the counted seconds of computing a class by one of its e-nodes in its own kernel, with all operands
    /// read.
    pub(crate) fn price_alone(&self, class: ClassId, node: usize) -> f64 {
        self.alone(class, node, |plan, kernel| self.kernel_price(plan, kernel)).mean
    }

    /// Returns the seconds of copying a class; 0 if the backend cannot copy it.
    pub(crate) fn copied(&self, class: ClassId) -> f64 {
        Some(self.backend.cost(&copy(&self.classes.classes[class].ty)).seconds).filter(|s| s.is_finite()).unwrap_or(0.0)
    }

    fn alone<T>(&self, class: ClassId, node: usize, ask: impl FnOnce(&Plan, &PlanKernel) -> T) -> T {
        let mut plan = self.unfused.borrow_mut();
        plan.choice[class] = node;
        let mut reads = self.classes.classes[class].nodes[node].operands.to_vec();
        reads.sort_unstable();
        reads.dedup();
        let scalars = reads.iter().copied().filter(|&c| self.classes.classes[c].scalar.is_some());
        let interior = scalars.chain([class]).collect();
        ask(&plan, &PlanKernel { stores: vec![class], interior, reads, load: false })
    }

    /// Returns the reason why a kernel of a plan cannot be built.
    pub(crate) fn refusal(&self, plan: &Plan, kernel: &PlanKernel) -> String {
        let why = match build::kernel(self.classes, plan, kernel, &self.positions, self.limits.instrs) {
            Ok(KernelOfClasses { kernel, .. }) => {
                let refused = self.backend.supports(&kernel).err().unwrap_or_default();
                let later = self.refused.0.get(&kernel).cloned().into_iter().collect();
                [self.limits.exceeded(&kernel), refused, later].concat().join(", ")
            }
            Err(why) => why,
        };
        if why.is_empty() { "the backend predicts an infinite time for the kernel".into() } else { why }
    }

    /// Returns the reason why a class cannot be computed.
    pub(crate) fn obstacle(&self, class: ClassId) -> String {
        let c = &self.classes.classes[class];
        let reasons: Vec<String> = (0..c.nodes.len())
            .map(|node| {
                let why = self.alone(class, node, |plan, kernel| self.refusal(plan, kernel));
                format!("`{}`: {why}", c.nodes[node].op)
            })
            .collect();
        let place = c.origins.first().cloned().unwrap_or_default();
        format!("{place}: a value of type {} ({})", c.ty, reasons.join("; "))
    }
}
