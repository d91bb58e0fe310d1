//! Compiled programs: the thunks of all steps, and a description of the memory of each slot, before addresses are
//! known.

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

/// A constant operand that is packed when parameters are loaded. Steps that run one kernel on the same buffers share
/// it.
pub struct PackedConstant {
    /// The step of the run program whose thunk packs the operand.
    pub step: usize,
    /// The size of the packed operand in bytes.
    pub bytes: usize,
    /// The step's slots from which the operand is packed.
    pub reads: Vec<usize>,
}

/// A compiled program.
pub struct Code {
    pub load: BoundSteps,
    pub run: BoundSteps,
    pub packed: Vec<PackedConstant>,
    pub constants: Vec<Aligned>,
    /// The size in bytes of each result of the load program.
    pub loaded_bytes: Vec<usize>,
    /// For each entry of `run.sources`, whether a step accesses the memory itself. If not, it is only the source of a
    /// packed operand.
    pub read: Vec<bool>,
    pub params: Vec<(String, Type)>,
    pub inputs: Vec<(String, Type)>,
    pub outputs: Vec<(String, Type)>,
    pub states: Vec<(String, Type)>,
    /// For each step of a run, whether each output needs it. The last entry of a step is set if a state needs it.
    pub needed: Vec<Vec<bool>>,
    pub arena_bytes: usize,
    /// Bytes of the buffers that a thunk needs in addition to the kernel's: the maximum over all thunks.
    pub own_bytes: usize,
    /// Bytes of an operand that each run packs: the maximum over all steps.
    pub passing_bytes: usize,
    /// Bytes of scratch memory that each thread needs.
    pub scratch: usize,
    pub pool: Arc<Pool>,
    /// The data from which the code for other lengths is compiled. All other fields are for the maximal lengths.
    pub varying: Varying,
}

/// The data from which the code for runs of other lengths is compiled.
pub struct Varying {
    /// A program with only the kernels and extents of the compiled one.
    pub program: Program,
    /// For each kernel, the numbers of the extents that it depends on; empty if it is equal at all lengths.
    pub depends: Vec<Vec<usize>>,
    /// For each kernel, the way in which it is computed.
    pub ways: Vec<Way>,
    pub machine: Machine,
    pub known: Mutex<KnownLengths>,
    /// The last pool that was started for lengths that need more scratch memory than the maximal lengths: the bytes per
    /// thread, and the pool.
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

    /// Returns the program of the kernels and extents.
    pub fn program(&self) -> &Program {
        &self.program
    }
}

/// Compiles a program. `way` chooses the way in which to compute a kernel, given its constant slots.
///
/// # Errors
/// If a kernel cannot be built, or the program has a fault. The error lists all of them with their places in the model.
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

/// Returns the bytes of the buffers that a thunk needs in addition to the kernel's.
pub fn own_bytes(thunk: &dyn Thunk) -> usize {
    thunk.buffers().into_iter().map(|bytes| bytes.next_multiple_of(ALIGN)).sum()
}

/// Finds, for each slot of each step, the source of its memory.
struct Binder<'a> {
    program: &'a Program,
    thunks: &'a [Arc<dyn Thunk>],
    /// For each buffer of the program, the source of its memory.
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

    /// Returns the steps of the load program, or of the run program if `run` is set. Constant operands of the run
    /// program are packed when parameters are loaded.
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

    /// Adds the exits of the run program, at which it may skip steps.
    fn exits(&mut self, run: &mut BoundSteps) {
        for exit in &self.program.exits {
            run.exits.push(BoundExit { before: exit.before, unless: run.sources.len(), to: exit.to });
            run.sources.push(self.sources[exit.unless]);
            self.read.push(true);
        }
    }
}

/// Returns the element type of an input, output or state.
pub fn dtype(ty: &Type) -> DType {
    ty.dtype().unwrap_or(DType::U8)
}
