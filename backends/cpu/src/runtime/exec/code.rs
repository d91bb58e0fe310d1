//! Code: thunks and where each of their slots points to, before there is memory.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::Instant,
};

use eutectic_backend::{BackendError, Kernel, Place, Port, Program, Refusal, Step};
use eutectic_ir::{DType, Origin, Type};
use rustc_hash::FxHashMap;

use super::pointer::{Aligned, Pointer};
use crate::{
    kernels,
    machine::Machine,
    runtime::{
        fault::IndexFault,
        memory::ALIGN,
        threads::{Pool, Workers},
        thunk::{Thunk, ThunkContext},
    },
};

/// Where a slot points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotSource {
    /// A byte of the session's arena.
    Arena(usize),
    /// What a session has for a port.
    Port(Port),
    /// A constant of the program, by number.
    Const(usize),
    /// A parameter.
    Param(usize),
    /// What the load program computed, by number.
    Loaded(usize),
    /// A constant operand in packed form, by number.
    Packed(usize),
    /// A byte of the thunks' own memory, which steps share.
    Own(usize),
    /// Where an operand is packed anew in each run.
    Passing,
    /// Nowhere: the operand is not packed.
    Nowhere,
}

/// A step whose slots are known.
#[derive(Clone)]
pub struct BoundStep {
    pub thunk: Arc<dyn Thunk>,
    /// The number of its kernel, and how many slots that has: those of the thunk's own buffers follow.
    pub kernel: usize,
    pub given: usize,
    /// Its part of [`BoundSteps::sources`].
    pub slots: Range<usize>,
    /// The slots that it writes.
    pub stores: Vec<usize>,
    in_place: bool,
    /// Whether an operand is packed first in each run.
    pub packs: bool,
    pub origin: Origin,
    /// Its model part of each check of ids.
    checks: Vec<Origin>,
}

/// Where a run may go on later than at the next step.
pub struct BoundExit {
    before: usize,
    /// The slot of the truth value without which steps are passed over.
    unless: usize,
    to: usize,
}

/// Steps in order, with the sources of all of their slots.
#[derive(Default)]
pub struct BoundSteps {
    pub steps: Vec<BoundStep>,
    /// In the order of the steps that they stand before.
    pub exits: Vec<BoundExit>,
    pub sources: Vec<SlotSource>,
}

/// A constant operand, which is packed when parameters arrive; steps that run the same kernel on the same buffers share it.
pub struct PackedConstant {
    /// The step of the run program that packs it.
    pub step: usize,
    /// Bytes of its packed form.
    pub bytes: usize,
    /// The step's slots that it is packed from.
    pub reads: Vec<usize>,
}

/// A compiled program.
pub struct Code {
    pub load: BoundSteps,
    pub run: BoundSteps,
    pub packed: Vec<PackedConstant>,
    pub constants: Vec<Aligned>,
    /// Bytes of each buffer that the load program computes.
    pub loaded_bytes: Vec<usize>,
    /// For each source of a run's slots, whether steps read it themselves; others are only packed.
    pub read: Vec<bool>,
    pub params: Vec<(String, Type)>,
    pub inputs: Vec<(String, Type)>,
    pub outputs: Vec<(String, Type)>,
    pub states: Vec<(String, Type)>,
    /// For each step of a run, which outputs need it, and whether a state does.
    pub needed: Vec<Vec<bool>>,
    pub arena_bytes: usize,
    /// Bytes of the thunks' own memory, and of what is packed anew in each run.
    pub own_bytes: usize,
    pub passing_bytes: usize,
    /// Bytes of scratch memory that a thread needs.
    pub scratch: usize,
    pub pool: Arc<Pool>,
    /// What runs of other lengths are resolved from. The code itself is that of the longest run.
    pub varying: Varying,
}

/// What a program's runs are resolved from.
pub struct Varying {
    /// Its kernels and extents.
    pub program: Program,
    /// For each kernel, the places of the extents that it depends on.
    pub depends: Vec<Vec<usize>>,
    pub machine: Machine,
    /// The one that was used last is the last.
    pub known: Mutex<Vec<Arc<Resolved>>>,
    /// Helpers with more scratch memory than the longest run takes, where others need that.
    pub larger: Mutex<Option<(usize, Arc<Pool>)>>,
}

/// The code of runs of certain lengths.
pub struct Resolved {
    pub lengths: Vec<usize>,
    /// As [`Code::run`], with the same ports, constants, parameters and packed operands.
    pub run: BoundSteps,
    /// As those of [`Code`].
    pub own_bytes: usize,
    pub passing_bytes: usize,
    pub scratch: usize,
}

impl Varying {
    pub fn new(program: &Program, machine: Machine) -> Varying {
        let fixed = program.extents.is_empty();
        let kernels = if fixed { Vec::new() } else { program.kernels.clone() };
        let places = |kernel: &Kernel| {
            let symbols = kernel.symbols();
            let is_used = |at: &usize| symbols.iter().any(|symbol| symbol.name == program.extents[*at].name);
            (0..program.extents.len()).filter(is_used).collect()
        };
        let depends = kernels.iter().map(places).collect();
        let program = Program { kernels, extents: program.extents.clone(), ..Program::default() };
        Varying { program, depends, machine, known: Mutex::default(), larger: Mutex::default() }
    }

    /// The program's extents.
    pub fn program(&self) -> &Program {
        &self.program
    }
}

/// Compiles a program.
///
/// # Errors
/// Every kernel that cannot be built, with its place in the model; and what is not right about the program.
pub fn compile(program: &Program, machine: Machine) -> Result<Code, BackendError> {
    let mut problems = Vec::new();
    let most = program.most();
    let thunks: Vec<Option<Arc<dyn Thunk>>> = program
        .kernels
        .iter()
        .enumerate()
        .map(|(k, kernel)| match kernels::compile_at(kernel, &program.lengths(&most), machine) {
            Ok(thunk) => Some(thunk.into()),
            Err(why) => {
                let used = program.load.iter().chain(&program.run).find(|s| s.kernel == k);
                let origin = used.map_or_else(Origin::default, |s| s.origin.clone());
                problems.extend(why.into_iter().map(|why| Refusal { kernel: Some(k), origin: origin.clone(), why }));
                None
            }
        })
        .collect();
    problems.extend(program.problems().into_iter().map(Refusal::from));
    if !problems.is_empty() {
        return Err(BackendError::Unsupported { backend: "cpu".into(), problems });
    }
    let thunks: Vec<_> = thunks.into_iter().flatten().collect();
    let scratch = thunks.iter().map(|t| t.scratch()).max().unwrap_or(0);
    let mut binder = Binder::new(program, &thunks);
    let load = binder.steps(&program.load, false);
    let mut run = binder.steps(&program.run, true);
    binder.exits(&mut run);
    Ok(Code {
        load,
        run,
        constants: binder.constants,
        packed: binder.packed,
        loaded_bytes: binder.loaded_bytes,
        read: binder.read,
        params: program.params.clone(),
        inputs: program.inputs.clone(),
        outputs: program.outputs.clone(),
        states: program.states.clone(),
        needed: program.needed_for(),
        arena_bytes: program.arena_bytes,
        own_bytes: thunks.iter().map(|t| own_bytes(&**t)).max().unwrap_or(0),
        passing_bytes: binder.passing_bytes,
        scratch,
        pool: Arc::new(Pool::new(machine.threads, scratch)?),
        varying: Varying::new(program, machine),
    })
}

/// Bytes of a thunk's own buffers.
pub fn own_bytes(thunk: &dyn Thunk) -> usize {
    thunk.buffers().into_iter().map(|bytes| bytes.next_multiple_of(ALIGN)).sum()
}

/// Finds the sources of steps.
struct Binder<'a> {
    program: &'a Program,
    thunks: &'a [Arc<dyn Thunk>],
    /// For each buffer, the source of slots that it is bound to.
    sources: Vec<SlotSource>,
    constants: Vec<Aligned>,
    loaded_bytes: Vec<usize>,
    packed: Vec<PackedConstant>,
    read: Vec<bool>,
    passing_bytes: usize,
}

impl<'a> Binder<'a> {
    fn new(program: &'a Program, thunks: &'a [Arc<dyn Thunk>]) -> Binder<'a> {
        let (mut constants, mut loaded_bytes) = (Vec::new(), Vec::new());
        let source = |buffer: &eutectic_backend::Buffer| match &buffer.place {
            Place::Arena(at) => SlotSource::Arena(*at),
            Place::Input(n) => SlotSource::Port(Port::Input(*n)),
            Place::Output(n) => SlotSource::Port(Port::Output(*n)),
            Place::State(n) => SlotSource::Port(Port::State(*n)),
            Place::Param(n) => SlotSource::Param(*n),
            Place::Const(tensor) => {
                constants.push(Aligned::new(tensor));
                SlotSource::Const(constants.len() - 1)
            }
            Place::Loaded(_) => {
                loaded_bytes.push(buffer.count * buffer.dtype.size());
                SlotSource::Loaded(loaded_bytes.len() - 1)
            }
        };
        let sources = program.buffers.iter().map(source).collect();
        let (packed, read) = (Vec::new(), Vec::new());
        Binder { program, thunks, sources, constants, loaded_bytes, packed, read, passing_bytes: 0 }
    }

    /// The steps of the load program, or of a run: these have constant operands packed before.
    fn steps(&mut self, steps: &[Step], run: bool) -> BoundSteps {
        let mut bound = BoundSteps::default();
        let mut known = FxHashMap::default();
        for (number, step) in steps.iter().enumerate() {
            let (from, roles) = (bound.sources.len(), self.program.roles(step));
            bound.sources.extend(step.buffers.iter().map(|&id| self.sources[id]));
            let thunk = self.thunks[step.kernel].clone();
            let mut own = 0;
            for bytes in thunk.buffers() {
                bound.sources.push(SlotSource::Own(own));
                own += bytes.next_multiple_of(ALIGN);
            }
            let mut packs = false;
            let mut only_packed = Vec::new();
            if let Some(constant) = thunk.constant() {
                let source = if run && constant.reads.iter().all(|&slot| roles[slot].constant) {
                    let buffers: Vec<_> = constant.reads.iter().map(|&s| step.buffers[s]).collect();
                    let next = self.packed.len();
                    let at = *known.entry((step.kernel, buffers)).or_insert(next);
                    if at == next {
                        let (bytes, reads) = (constant.bytes, constant.reads);
                        self.packed.push(PackedConstant { step: number, bytes, reads });
                    }
                    only_packed = constant.only;
                    SlotSource::Packed(at)
                } else if constant.each_run {
                    packs = true;
                    self.passing_bytes = self.passing_bytes.max(constant.bytes);
                    SlotSource::Passing
                } else {
                    SlotSource::Nowhere
                };
                bound.sources.push(source);
            }
            if run {
                self.read.extend((0..bound.sources.len() - from).map(|slot| !only_packed.contains(&slot)));
            }
            bound.steps.push(BoundStep {
                thunk,
                kernel: step.kernel,
                given: step.buffers.len(),
                slots: from..bound.sources.len(),
                stores: (0..roles.len()).filter(|&slot| roles[slot].access.written).collect(),
                in_place: !step.in_place.is_empty(),
                packs,
                origin: step.origin.clone(),
                checks: step.checks.clone(),
            });
        }
        bound
    }

    /// Where steps of a run are passed over.
    fn exits(&mut self, run: &mut BoundSteps) {
        for exit in &self.program.exits {
            run.exits.push(BoundExit { before: exit.before, unless: run.sources.len(), to: exit.to });
            run.sources.push(self.sources[exit.unless]);
            self.read.push(true);
        }
    }
}

impl BoundStep {
    /// Runs it on a table of slots that has all of its steps'.
    ///
    /// # Safety
    /// The table's pointers must be those that the sources tell, to memory of the sizes that the program states, which nobody else
    /// writes meanwhile.
    unsafe fn run(&self, slots: &[Pointer], workers: &Workers, fault: &IndexFault) -> Result<(), BackendError> {
        let launch = self.launch(slots, workers, fault);
        // SAFETY: `check` compared buffers with what the kernel states; there is room for what the thunk packs.
        unsafe {
            if self.packs {
                self.thunk.pack(&launch);
            }
            self.thunk.run(&launch);
        }
        self.report(fault)
    }

    /// Packs its constant operand.
    ///
    /// # Safety
    /// As [`BoundStep::run`], for the slots from which the operand is packed, and its own.
    pub unsafe fn pack(&self, slots: &[Pointer], workers: &Workers, fault: &IndexFault) -> Result<(), BackendError> {
        // SAFETY: passed on from the caller.
        unsafe { self.thunk.pack(&self.launch(slots, workers, fault)) };
        self.report(fault)
    }

    fn launch<'a>(&self, slots: &'a [Pointer], workers: &'a Workers, fault: &'a IndexFault) -> ThunkContext<'a> {
        let slots = &slots[self.slots.clone()];
        // SAFETY: `Pointer` is transparent.
        let slots = unsafe { std::slice::from_raw_parts(slots.as_ptr().cast::<*mut u8>(), slots.len()) };
        ThunkContext { slots, workers, in_place: self.in_place, fault }
    }

    /// What went wrong in it, if something did.
    fn report(&self, fault: &IndexFault) -> Result<(), BackendError> {
        match fault.take() {
            Some((problem, check)) => {
                let origin = self.checks.get(check).unwrap_or(&self.origin).clone();
                Err(BackendError::IndexOutOfRange { problem, origin })
            }
            None => Ok(()),
        }
    }
}

impl BoundSteps {
    /// Runs the steps that are `wanted`, by number.
    ///
    /// # Safety
    /// As [`BoundStep::run`].
    pub unsafe fn run(
        &self,
        slots: &[Pointer],
        (workers, fault): (&Workers, &IndexFault),
        wanted: impl Fn(usize) -> bool,
        mut times: Option<&mut Vec<f64>>,
    ) -> Result<(), BackendError> {
        let (mut exits, mut next) = (self.exits.iter().peekable(), 0);
        for (n, step) in self.steps.iter().enumerate() {
            while let Some(exit) = exits.next_if(|exit| exit.before <= n) {
                // SAFETY: the slot points to a byte of the arena, and no step is under way.
                if exit.before >= next && unsafe { *slots[exit.unless].0 } == 0 {
                    next = exit.to;
                }
            }
            let start = times.is_some().then(Instant::now);
            if n >= next && wanted(n) {
                // SAFETY: passed on from the caller.
                unsafe { step.run(slots, workers, fault)? };
            }
            if let (Some(times), Some(start)) = (&mut times, start) {
                times.push(start.elapsed().as_secs_f64());
            }
        }
        Ok(())
    }

    /// Runs one step.
    ///
    /// # Safety
    /// As [`BoundStep::run`].
    pub unsafe fn run_one(
        &self,
        n: usize,
        slots: &[Pointer],
        workers: &Workers,
        fault: &IndexFault,
    ) -> Result<(), BackendError> {
        // SAFETY: passed on from the caller.
        unsafe { self.steps[n].run(slots, workers, fault) }
    }
}

/// Element type of an input, output or state.
pub fn dtype(ty: &Type) -> DType {
    ty.dtype().unwrap_or(DType::U8)
}
