//! What plans cost: kernels built and priced once each, remembered by what they are made of.

use std::{cell::RefCell, rc::Rc};

use eutectic_backend::{Backend, Cost};
use eutectic_ir::{
    eclasses::{ClassId, EClasses, ENode},
    ops::{Class, Leaf},
};
use rustc_hash::FxHashMap;

use crate::{
    build::{self, Built},
    plan::{Known, Plan, PlanError, PlanKernel, is_given},
    program,
};

/// How much a second of the load program counts against a second of a run.
///
/// A program is loaded once and run many times; the rest is to prefer, of two plans that run equally fast, the one that
/// keeps less in memory.
const LOAD_SHARE: f64 = 0.01;

/// A saturated e-graph together with the backend that its plans are priced for.
pub struct Space<'a> {
    /// The classes.
    pub classes: &'a EClasses,
    /// The backend.
    pub backend: &'a dyn Backend,
    /// Whether a class is a leaf with a buffer or the same number everywhere.
    pub given: Vec<bool>,
    known: RefCell<Known>,
    costs: RefCell<FxHashMap<Vec<u32>, Cost>>,
    /// Room for a key of `costs`, so that looking one up allocates nothing.
    key: RefCell<Vec<u32>>,
}

/// A plan's price.
#[derive(Clone, Debug)]
pub struct Priced {
    /// Predicted seconds of a run, plus a small share of the load program's.
    pub seconds: f64,
    /// The kernels, in order, with what each is predicted to cost.
    pub kernels: Vec<(Rc<PlanKernel>, Cost)>,
}

impl<'a> Space<'a> {
    /// A space without prices yet.
    pub fn new(classes: &'a EClasses, backend: &'a dyn Backend) -> Space<'a> {
        let given = (0..classes.classes.len()).map(|c| is_given(classes, c)).collect();
        Space { classes, backend, given, known: RefCell::default(), costs: RefCell::default(), key: RefCell::default() }
    }

    /// The price of a plan; infinite where a kernel of it cannot be built.
    ///
    /// # Errors
    /// When the plan is not valid.
    pub fn price(&self, plan: &Plan) -> Result<Priced, PlanError> {
        let kernels = plan.kernels_given(self.classes, &self.given, &mut self.known.borrow_mut())?;
        let mut seconds = 0.0;
        let kernels: Vec<_> = kernels
            .into_iter()
            .map(|kernel| {
                let cost = self.cost(plan, &kernel);
                seconds += if kernel.load { cost.seconds * LOAD_SHARE } else { cost.seconds };
                (kernel, cost)
            })
            .collect();
        Ok(Priced { seconds, kernels })
    }

    /// The price of one kernel of a plan.
    pub fn cost(&self, plan: &Plan, kernel: &PlanKernel) -> Cost {
        // Stores, then interior with choices, then (after a mark) what is read: these determine the kernel.
        let mut key = self.key.take();
        key.clear();
        key.extend(kernel.stores.iter().map(|c| *c as u32));
        key.push(u32::MAX);
        key.extend(kernel.interior.iter().flat_map(|&c| [c as u32, plan.choice[c] as u32]));
        let known = self.costs.borrow().get(key.as_slice()).copied();
        if let Some(cost) = known {
            self.key.replace(key);
            return cost;
        }
        let cost = match build::kernel(self.classes, plan, kernel) {
            Ok(built) => self.cost_of(&built),
            Err(_) => Cost::IMPOSSIBLE,
        };
        self.costs.borrow_mut().insert(key, cost);
        cost
    }

    /// The price of a kernel, and of copying what it writes a part of anew: only a state is sure to have that part in its place.
    fn cost_of(&self, built: &Built) -> Cost {
        let mut cost = self.backend.cost(&built.kernel);
        for &(slot, whole) in &built.parts {
            let is_state = |node: &ENode| matches!(node.op.def().class, Class::Leaf(Leaf::State));
            if !self.classes.classes[whole].nodes.iter().any(is_state) {
                let (dtype, count) = built.kernel.slots[slot];
                let copy = self.backend.cost(&program::copy(dtype, count));
                cost = Cost {
                    seconds: cost.seconds + copy.seconds,
                    flops: cost.flops + copy.flops,
                    bytes: cost.bytes + copy.bytes,
                };
            }
        }
        cost
    }

    /// The price of computing a class by one of its e-nodes in a kernel of its own, all operands read.
    pub fn cost_alone(&self, class: ClassId, node: usize) -> Cost {
        let (plan, kernel) = self.alone(class, node);
        self.cost(&plan, &kernel)
    }

    fn alone(&self, class: ClassId, node: usize) -> (Plan, PlanKernel) {
        let n = self.classes.classes.len();
        let mut plan = Plan { choice: vec![0; n], stored: vec![true; n], host: (0..n).collect() };
        plan.choice[class] = node;
        let mut reads = self.classes.classes[class].nodes[node].operands.to_vec();
        reads.sort_unstable();
        reads.dedup();
        let scalars = reads.iter().copied().filter(|&c| self.classes.classes[c].scalar.is_some());
        let interior = scalars.chain([class]).collect();
        (plan, PlanKernel { stores: vec![class], interior, reads, load: false })
    }

    /// Why a class cannot be computed, for people.
    pub(crate) fn obstacle(&self, class: ClassId) -> String {
        let c = &self.classes.classes[class];
        let reasons: Vec<String> = (0..c.nodes.len())
            .map(|node| {
                let (plan, kernel) = self.alone(class, node);
                let why = match build::kernel(self.classes, &plan, &kernel) {
                    Ok(built) => self.backend.supports(&built.kernel).err().unwrap_or_default().join(", "),
                    Err(why) => why,
                };
                format!("`{}`: {}", c.nodes[node].op, if why.is_empty() { "too expensive".into() } else { why })
            })
            .collect();
        let place = c.origins.first().cloned().unwrap_or_default();
        format!("{place}: a value of type {} ({})", c.ty, reasons.join("; "))
    }
}
