//! Compiled programs: thunks, and the sources of their slots, before memory is bound.

use std::sync::{Arc, Mutex};

use eutectic_backend::{BackendError, Kernel, Place, Port, Program, Refusal, Slot, Step};
use eutectic_ir::{DType, Origin, Type};
use rustc_hash::FxHashMap;

use super::{
    known_lengths::KnownLengths,
    pointer::Aligned,
    steps::{BoundExit, BoundStep, BoundSteps, SlotSource, StepFacts},
};
use crate::{
    kernels::{self, Way},
    machine::Machine,
    runtime::{memory::ALIGN, threads::Pool, thunk::Thunk},
};

/// A constant operand, which is packed when parameters arrive; steps that run the same kernel on the same buffers share
/// it.
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
    /// For each source of a run's slots, whether steps read it themselves. Other sources are only packed.
    pub read: Vec<bool>,
    pub params: Vec<(String, Type)>,
    pub inputs: Vec<(String, Type)>,
    pub outputs: Vec<(String, Type)>,
    pub states: Vec<(String, Type)>,
    /// For each step of a run, the outputs that need it, and whether a state does.
    pub needed: Vec<Vec<bool>>,
    pub arena_bytes: usize,
    /// Bytes of the thunks' own memory, and of the operands that each run packs.
    pub own_bytes: usize,
    pub passing_bytes: usize,
    /// Bytes of scratch memory that a thread needs.
    pub scratch: usize,
    pub pool: Arc<Pool>,
    /// The data from which runs of other lengths are resolved. The code itself is for the maximal lengths.
    pub varying: Varying,
}

/// The data from which a program's runs are resolved.
pub struct Varying {
    /// Its kernels and extents.
    pub program: Program,
    /// For each kernel, the places of the extents that it depends on: none, where it does not vary.
    pub depends: Vec<Vec<usize>>,
    /// The way in which each kernel is computed.
    pub ways: Vec<Way>,
    pub machine: Machine,
    pub known: Mutex<KnownLengths>,
    /// Helpers with more scratch memory than the longest run takes, where others need that.
    pub larger: Mutex<Option<(usize, Arc<Pool>)>>,
}

impl Varying {
    pub fn new(program: &Program, ways: Vec<Way>, machine: Machine) -> Varying {
        let fixed = program.extents.is_empty();
        let kernels = if fixed { Vec::new() } else { program.kernels.clone() };
        let places = |kernel: &Kernel| {
            let symbols = kernel.symbols();
            let is_used = |at: &usize| symbols.iter().any(|symbol| symbol.name == program.extents[*at].name);
            (0..program.extents.len()).filter(is_used).collect()
        };
        let depends = kernels.iter().map(places).collect();
        let program = Program { kernels, extents: program.extents.clone(), ..Program::default() };
        Varying { program, depends, ways, machine, known: Mutex::default(), larger: Mutex::default() }
    }

    /// Returns the program's extents.
    pub fn program(&self) -> &Program {
        &self.program
    }
}

/// Compiles a program, each kernel in the given way for its constant slots.
///
/// # Errors
/// Every kernel that cannot be built, with its place in the model, and each fault of the program.
pub fn compile(
    program: &Program,
    way: &dyn Fn(&Kernel, &[Slot]) -> Way,
    machine: Machine,
) -> Result<Code, BackendError> {
    let mut problems = Vec::new();
    let ways: Vec<Way> =
        program.kernels.iter().zip(program.constants()).map(|(kernel, constants)| way(kernel, &constants)).collect();
    let most = program.most();
    let thunks: Vec<Option<Arc<dyn Thunk>>> = program
        .kernels
        .iter()
        .enumerate()
        .map(|(k, kernel)| match kernels::compile_at(kernel, &program.lengths(&most), ways[k], machine) {
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
        varying: Varying::new(program, ways, machine),
    })
}

/// Returns bytes of a thunk's own buffers.
pub fn own_bytes(thunk: &dyn Thunk) -> usize {
    thunk.buffers().into_iter().map(|bytes| bytes.next_multiple_of(ALIGN)).sum()
}

/// Finds the sources of steps.
struct Binder<'a> {
    program: &'a Program,
    thunks: &'a [Arc<dyn Thunk>],
    /// For each buffer, the source of the slots that are bound to it.
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

    /// Returns the steps of the load program, or of a run: these have constant operands packed before.
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
            let facts = StepFacts {
                kernel: step.kernel,
                given: step.buffers.len(),
                stores: (0..roles.len()).filter(|&slot| roles[slot].access.written).collect(),
                in_place: !step.in_place.is_empty(),
                origin: step.origin.clone(),
                checks: step.checks.clone(),
            };
            bound.steps.push(BoundStep { thunk, slots: from..bound.sources.len(), packs, facts: Arc::new(facts) });
        }
        bound
    }

    /// Adds the exits, where steps of a run are skipped.
    fn exits(&mut self, run: &mut BoundSteps) {
        for exit in &self.program.exits {
            run.exits.push(BoundExit { before: exit.before, unless: run.sources.len(), to: exit.to });
            run.sources.push(self.sources[exit.unless]);
            self.read.push(true);
        }
    }
}

/// Element type of an input, output or state.
pub fn dtype(ty: &Type) -> DType {
    ty.dtype().unwrap_or(DType::U8)
}
