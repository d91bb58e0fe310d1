//! Assembles the plans of outlined blocks into one program: load steps, run steps, buffers and memory.

use eutectic_backend::{Backend, Buffer, BufferId, Kernel, Place, Program, Step};
use eutectic_ir::{
    Attr, DType, Graph, NodeId, Origin, Type,
    eclasses::{ClassId, EClasses},
    ops::{Class, Leaf},
    outline::{BlockCall, Outlined},
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    build::{self, KernelOfClasses, Positions},
    copy::{copied, copy, fill, without_store},
    elision::{CopyElision, DroppedStore, elide_copies},
    join::join,
    memory,
    planner::search::Searched,
};

/// A block of an outlined program with its plan.
#[derive(Clone, Debug)]
pub struct PlannedBlock {
    /// The saturated e-graph of the block.
    pub classes: EClasses,
    /// The result of the search.
    pub searched: Searched,
}

/// A lowered program with provenance for reports.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The program.
    pub program: Program,
    /// For each step of the run program, the number of the block call, and the number of the kernel in the plan of its
    /// block. `None` for copies: to an output, to a state, or of a tensor before an update of a part.
    pub steps: Vec<Option<(usize, usize)>>,
}

/// The reason why a plan could not be lowered. Planning builds every kernel of a plan, so this error means a defect of
/// the compiler.
#[derive(Debug, thiserror::Error)]
#[error("in {origin}: {problem}")]
pub struct LowerError {
    /// The part of the model that causes the error.
    pub origin: Origin,
    /// The problem.
    pub problem: String,
}

/// Lowers a program whose blocks have plans for a backend.
///
/// # Errors
/// If a kernel of a plan cannot be built, or a call does not fit its block.
pub fn lower(
    graph: &Graph,
    outlined: &Outlined,
    blocks: &[PlannedBlock],
    backend: &dyn Backend,
) -> Result<Lowered, LowerError> {
    let mut lowering = Lowering {
        graph,
        program: Program::default(),
        kernels: FxHashMap::default(),
        leaves: FxHashMap::default(),
        produced: FxHashMap::default(),
        run: Vec::new(),
        updates: Vec::new(),
        parts: Vec::new(),
    };
    lowering.interface();
    // Kernels are built once per block, for all its calls.
    let mut built: Vec<Option<BuiltBlock>> = blocks.iter().map(|_| None).collect();
    for (at, call) in outlined.calls.iter().enumerate() {
        let block = &blocks[call.block];
        let body = match built[call.block].take() {
            Some(body) => body,
            None => lowering.build(call, &outlined.blocks[call.block].graph, block)?,
        };
        lowering.call(at, call, block, &body);
        built[call.block] = Some(body);
    }
    lowering.outputs()?;
    lowering.updates()?;
    Ok(lowering.finish(backend))
}

/// The data that all calls of a block share.
struct BuiltBlock {
    kernels: Vec<BuiltKernel>,
    /// For each class whose buffer exists outside the block, its source.
    given: FxHashMap<ClassId, Given>,
}

/// A kernel of a block.
struct BuiltKernel {
    /// The number of the kernel in the program.
    kernel: usize,
    /// The class of each slot. The first `reads` slots are read.
    classes: Vec<ClassId>,
    reads: usize,
    /// The slots that an update op writes in part, each with the class of the whole tensor.
    parts: Vec<(usize, ClassId)>,
    /// For each run-time check of ids, by its number, the class of the op that requests it.
    checks: Vec<ClassId>,
    /// Whether it belongs to the load program.
    load: bool,
}

/// The source of a block's leaf: one of the call's inputs, a parameter, a state, or a buffer.
enum Given {
    Input(usize),
    Param(usize),
    State(usize),
    Const(BufferId),
}

struct Lowering<'a> {
    graph: &'a Graph,
    program: Program,
    kernels: FxHashMap<Kernel, usize>,
    leaves: FxHashMap<NodeId, BufferId>,
    produced: FxHashMap<NodeId, BufferId>,
    run: Vec<(Step, Option<(usize, usize)>)>,
    /// Copies of new values to their states.
    updates: Vec<CopyElision>,
    /// Copies in the run program that may be elided: copies of a tensor before an op updates part of it, and stores
    /// that only copy a tensor.
    parts: Vec<CopyElision>,
}

impl Lowering<'_> {
    fn buffer(&mut self, dtype: DType, count: usize, place: Place) -> BufferId {
        self.program.buffers.push(Buffer { dtype, count, place });
        self.program.buffers.len() - 1
    }

    /// Declares inputs, parameters, states and outputs in the graph's order.
    fn interface(&mut self) {
        for (id, node) in self.graph.nodes() {
            let place = match (node.op.def().class, node.attrs.first()) {
                (Class::Leaf(Leaf::Input), Some(Attr::Word(name))) => {
                    self.program.inputs.push((name.to_string(), node.ty.clone()));
                    Place::Input(self.program.inputs.len() - 1)
                }
                (Class::Leaf(Leaf::Param), Some(Attr::Word(name))) => {
                    self.program.params.push((name.to_string(), node.ty.clone()));
                    Place::Param(self.program.params.len() - 1)
                }
                (Class::Leaf(Leaf::State), Some(Attr::Word(name))) => {
                    self.program.states.push((name.to_string(), node.ty.clone()));
                    Place::State(self.program.states.len() - 1)
                }
                (Class::Leaf(Leaf::Const), Some(Attr::Tensor(value))) => Place::Const(value.clone()),
                _ => continue,
            };
            let dtype = node.ty.dtype().unwrap_or(DType::F32);
            let buffer = self.buffer(dtype, node.ty.count(), place);
            self.leaves.insert(id, buffer);
        }
        self.program.extents = self.graph.extents();
        for (name, id) in self.graph.outputs() {
            self.program.outputs.push((name.clone(), self.graph.ty(*id).clone()));
        }
    }

    /// Builds the kernels of a block. `call` gives the model parts that errors name.
    fn build(&mut self, call: &BlockCall, body: &Graph, block: &PlannedBlock) -> Result<BuiltBlock, LowerError> {
        let (mut kernels, positions) = (Vec::new(), Positions::default());
        for (parts, _) in &block.searched.priced.kernels {
            let KernelOfClasses { kernel, classes, reads, parts: of_kernel, checks } =
                build::kernel(&block.classes, &block.searched.plan, parts, &positions, usize::MAX)
                    .map_err(|problem| LowerError { origin: origin_of(block, parts.stores[0], call), problem })?;
            let kernel = self.kernel(kernel);
            kernels.push(BuiltKernel { kernel, classes, reads, parts: of_kernel, checks, load: parts.load });
        }
        let mut given = FxHashMap::default();
        for class in kernels.iter().flat_map(|k| k.classes[..k.reads].iter().chain(k.parts.iter().map(|p| &p.1))) {
            if !given.contains_key(class)
                && let Some(found) = self.given(block, *class, body)
            {
                given.insert(*class, found);
            }
        }
        Ok(BuiltBlock { kernels, given })
    }

    fn call(&mut self, at: usize, call: &BlockCall, block: &PlannedBlock, body: &BuiltBlock) {
        let mut local: FxHashMap<ClassId, BufferId> = FxHashMap::default();
        let of_load = body.kernels.iter().filter(|k| k.load).flat_map(|k| &k.classes[k.reads..]);
        let of_load: FxHashSet<ClassId> = of_load.copied().collect();
        for (class, &node) in block.classes.outputs.iter().zip(&call.outputs) {
            let ty = self.graph.ty(node);
            let buffer = match local.get(class) {
                Some(&shared) => shared,
                None => {
                    let place = if of_load.contains(class) { Place::Loaded(0) } else { Place::Arena(0) };
                    self.buffer(ty.dtype().unwrap_or(DType::F32), ty.count(), place)
                }
            };
            local.insert(*class, buffer);
            self.produced.insert(node, buffer);
        }
        for (k, built) in body.kernels.iter().enumerate() {
            let mut buffers = Vec::with_capacity(built.classes.len());
            for (slot, class) in built.classes.iter().enumerate() {
                let given = body.given.get(class).filter(|_| slot < built.reads).and_then(|g| self.given_to(call, g));
                let buffer = given.or_else(|| local.get(class).copied()).unwrap_or_else(|| {
                    let (dtype, count) = self.program.kernels[built.kernel].slots[slot];
                    let place = if built.load { Place::Loaded(0) } else { Place::Arena(0) };
                    let buffer = self.buffer(dtype, count, place);
                    local.insert(*class, buffer);
                    buffer
                });
                buffers.push(buffer);
            }
            let stored = block.searched.priced.kernels[k].0.stores[0];
            let origin = origin_of(block, stored, call);
            for (slot, class) in &built.parts {
                let (whole, new) = (&block.classes.classes[*class], buffers[*slot]);
                if let Some(value) = whole.scalar {
                    let kernel = self.kernel(fill(&whole.ty, value));
                    let fill = Step::new(kernel, vec![new], origin.clone());
                    match built.load {
                        true => self.program.load.push(fill),
                        false => self.run.push((fill, None)),
                    }
                    continue;
                }
                let given = body.given.get(class).and_then(|g| self.given_to(call, g));
                // An earlier kernel of the plan stores the class, or the class is given.
                if let Some(old) = given.or_else(|| local.get(class).copied()) {
                    let copy = self.copy(old, new, &whole.ty, origin.clone());
                    if built.load {
                        self.program.load.push(copy);
                    } else {
                        self.parts.push(CopyElision { old, new, copy: self.run.len(), store: None });
                        self.run.push((copy, None));
                    }
                }
            }
            let checks = built.checks.iter().map(|&class| origin_of(block, class, call)).collect();
            let step = Step { checks, ..Step::new(built.kernel, buffers, origin) };
            if built.load {
                self.program.load.push(step);
            } else {
                self.run.push((step, Some((at, k))));
            }
        }
    }

    /// Returns the buffer of a leaf of a block in a call.
    fn given_to(&self, call: &BlockCall, given: &Given) -> Option<BufferId> {
        let value = match given {
            Given::Input(n) => call.inputs[*n],
            Given::Param(n) => call.params[*n],
            Given::State(n) => call.states[*n],
            Given::Const(buffer) => return Some(*buffer),
        };
        self.leaves.get(&value).or_else(|| self.produced.get(&value)).copied()
    }

    /// Returns the source of a class that is an input, parameter, state or constant of its block.
    fn given(&mut self, block: &PlannedBlock, class: ClassId, body: &Graph) -> Option<Given> {
        block.classes.classes[class].nodes.iter().find_map(|node| {
            let position = |op: &str| {
                let name = node.attrs.first()?.word()?;
                body.named(op).position(|(n, _)| n == name)
            };
            match (node.op.def().class, node.attrs.first()) {
                (Class::Leaf(Leaf::Input), _) => position("input").map(Given::Input),
                (Class::Leaf(Leaf::Param), _) => position("param").map(Given::Param),
                (Class::Leaf(Leaf::State), _) => position("state").map(Given::State),
                (Class::Leaf(Leaf::Const), Some(Attr::Tensor(value))) => {
                    let same = |b: &Buffer| matches!(&b.place, Place::Const(v) if v == value);
                    Some(Given::Const(match self.program.buffers.iter().position(same) {
                        Some(buffer) => buffer,
                        None => self.buffer(value.dtype(), value.count(), Place::Const(value.clone())),
                    }))
                }
                _ => None,
            }
        })
    }

    fn kernel(&mut self, kernel: Kernel) -> usize {
        let next = self.program.kernels.len();
        let at = *self.kernels.entry(kernel.clone()).or_insert(next);
        if at == next {
            self.program.kernels.push(kernel);
        }
        at
    }

    /// Stores the values of outputs in the buffers of the outputs. A value with several names is copied.
    fn outputs(&mut self) -> Result<(), LowerError> {
        for (at, (name, node)) in self.graph.outputs().iter().enumerate() {
            let from = *self.produced.get(node).ok_or_else(|| LowerError {
                origin: self.graph.node(*node).origin.clone(),
                problem: format!("no block computes the output `{name}`"),
            })?;
            if matches!(self.program.buffers[from].place, Place::Arena(_)) {
                self.program.buffers[from].place = Place::Output(at);
                continue;
            }
            let (dtype, count) = (self.program.buffers[from].dtype, self.program.buffers[from].count);
            let to = self.buffer(dtype, count, Place::Output(at));
            let step = self.copy(from, to, self.graph.ty(*node), self.graph.node(*node).origin.clone());
            self.run.push((step, None));
        }
        Ok(())
    }

    /// Copies the new values of states to the states, at the end.
    fn updates(&mut self) -> Result<(), LowerError> {
        for (name, node) in self.graph.updates() {
            let origin = self.graph.node(*node).origin.clone();
            let state = self.graph.named("state").find(|(state, _)| state == name).and_then(|s| self.leaves.get(&s.1));
            let (Some(&old), Some(&new)) = (state, self.produced.get(node)) else {
                return Err(LowerError {
                    origin,
                    problem: format!("no block computes the new value of the state `{name}`"),
                });
            };
            self.updates.push(CopyElision { old, new, copy: self.run.len(), store: None });
            let step = self.copy(new, old, self.graph.ty(*node), origin);
            self.run.push((step, None));
        }
        Ok(())
    }

    fn copy(&mut self, from: BufferId, to: BufferId, ty: &Type, origin: Origin) -> Step {
        Step::new(self.kernel(copy(ty)), vec![from, to], origin)
    }

    fn finish(mut self, backend: &dyn Backend) -> Lowered {
        let alignment = backend.limits().alignment;
        let program = &mut self.program;
        let run = self.run.iter().map(|(step, _)| step);
        let used = drop_unread(&program.kernels, &mut program.load, run, program.buffers.len());
        for (buffer, _) in program.buffers.iter_mut().zip(used).filter(|(_, used)| *used) {
            let bytes = memory::bytes(buffer, alignment);
            if let Place::Loaded(at) = &mut buffer.place {
                *at = program.load_bytes;
                program.load_bytes += bytes;
            }
        }
        let (steps, sources): (Vec<Step>, Vec<_>) = self.run.into_iter().unzip();
        self.parts.extend(copies(&program.kernels, &steps, self.parts.iter().chain(&self.updates)));
        let elided = elide_copies(&program.kernels, &program.buffers, &steps, &self.updates, &self.parts);
        let (mut numbers, mut steps): (Vec<usize>, Vec<Step>) = elided.steps.into_iter().unzip();
        drop_stores(&mut program.kernels, &mut numbers, &mut steps, elided.dropped);
        let calls: Vec<_> = numbers.iter().map(|&at| sources[at].map(|(call, _)| call)).collect();
        let left = join(&mut program.kernels, &program.buffers, &mut steps, &calls, backend);
        (numbers, steps) = left.into_iter().map(|at| (numbers[at], steps[at].clone())).unzip();
        let (order, bytes) = memory::schedule(&program.kernels, &mut program.buffers, &steps, alignment);
        program.arena_bytes = bytes;
        let in_place = |step: &Step| Step { in_place: program.shared_slots(step).collect(), ..step.clone() };
        program.run = order.iter().map(|&at| in_place(&steps[at])).collect();
        drop_unused(program);
        let steps = order.into_iter().map(|at| sources[numbers[at]]).collect();
        Lowered { program: self.program, steps }
    }
}

/// Returns the stores of steps that copy a whole tensor, without the known copies.
fn copies<'a>(kernels: &[Kernel], steps: &[Step], known: impl Iterator<Item = &'a CopyElision>) -> Vec<CopyElision> {
    let known: FxHashSet<usize> = known.map(|elision| elision.copy).collect();
    let mut copies = Vec::new();
    for (copy, step) in steps.iter().enumerate().filter(|(at, _)| !known.contains(at)) {
        let kernel = &kernels[step.kernel];
        for store in 0..kernel.stores.len() {
            let Some(slot) = copied(kernel, store) else { continue };
            let (old, new) = (step.buffers[slot], step.buffers[kernel.stores[store].slot]);
            copies.push(CopyElision { old, new, copy, store: (kernel.stores.len() > 1).then_some(store) });
        }
    }
    copies
}

/// Removes stores from the steps' kernels. A step without stores is removed.
fn drop_stores(
    kernels: &mut Vec<Kernel>,
    numbers: &mut Vec<usize>,
    steps: &mut Vec<Step>,
    mut dropped: Vec<DroppedStore>,
) {
    // Remove the last store of a kernel first, so that the numbers of the others stay valid.
    dropped.sort_unstable_by(|a, b| b.cmp(a));
    for DroppedStore { step, store } in dropped {
        let Some(at) = numbers.iter().position(|n| *n == step) else { continue };
        let kernel = &kernels[steps[at].kernel];
        if kernel.stores.len() == 1 {
            numbers.remove(at);
            steps.remove(at);
            continue;
        }
        steps[at].buffers.remove(kernel.stores[store].slot);
        kernels.push(without_store(kernel, store));
        steps[at].kernel = kernels.len() - 1;
    }
}

/// Returns the model part of a class in a call.
fn origin_of(block: &PlannedBlock, class: ClassId, call: &BlockCall) -> Origin {
    let body = block.classes.classes[class].origins.first().cloned().unwrap_or_default();
    call.origins.iter().find(|(from, _)| *from == body).map_or(body, |(_, to)| to.clone())
}

/// Removes load steps whose results no step reads, such as ids that became index maps. Returns, for each buffer,
/// whether the remaining steps read or write it.
fn drop_unread<'s>(
    kernels: &[Kernel],
    load: &mut Vec<Step>,
    run: impl Iterator<Item = &'s Step>,
    buffers: usize,
) -> Vec<bool> {
    let mut read = vec![false; buffers];
    let reads = |step: &Step| step.buffers.len() - kernels[step.kernel].stores.len();
    run.for_each(|step| step.buffers[..reads(step)].iter().for_each(|&buffer| read[buffer] = true));
    let mut kept: Vec<Step> = Vec::with_capacity(load.len());
    for step in load.drain(..).rev() {
        let (from, to) = step.buffers.split_at(reads(&step));
        if to.iter().any(|&buffer| read[buffer]) {
            from.iter().for_each(|&buffer| read[buffer] = true);
            kept.push(step);
        }
    }
    kept.iter().flat_map(|step| &step.buffers).for_each(|&buffer| read[buffer] = true);
    load.extend(kept.into_iter().rev());
    read
}

/// Removes unused kernels, and arena buffers that no step uses: those of removed steps, and those that another buffer
/// replaced.
fn drop_unused(program: &mut Program) {
    let mut kernels = vec![false; program.kernels.len()];
    let mut buffers: Vec<bool> =
        program.buffers.iter().map(|b| !matches!(b.place, Place::Arena(_) | Place::Loaded(_))).collect();
    for step in program.load.iter().chain(&program.run) {
        kernels[step.kernel] = true;
        step.buffers.iter().for_each(|&b| buffers[b] = true);
    }
    let (new_kernel, new_buffer) = (numbers(&kernels), numbers(&buffers));
    for step in program.load.iter_mut().chain(&mut program.run) {
        step.kernel = new_kernel[step.kernel];
        step.buffers.iter_mut().for_each(|b| *b = new_buffer[*b]);
    }
    let (mut kernels, mut buffers) = (kernels.into_iter(), buffers.into_iter());
    program.kernels.retain(|_| kernels.next() == Some(true));
    program.buffers.retain(|_| buffers.next() == Some(true));
}

/// Returns the new number of each kept element.
fn numbers(kept: &[bool]) -> Vec<usize> {
    let count = |next: &mut usize, kept: &bool| {
        let number = *next;
        *next += usize::from(*kept);
        Some(number)
    };
    kept.iter().scan(0, count).collect()
}
