//! Compiled programs before memory is bound: kernels, and the source of each slot's memory.

use std::sync::Arc;

use eutectic_backend::{
    BackendError, Instr, Kernel, Memory, Place, Port, Program, Refusal, Step,
    hazards::{MemoryRange, MemorySpace, hazards},
};
use eutectic_ir::{
    Dim, Origin, Symbol, Type,
    ops::{Ids, OutOfRange},
};

use crate::{
    bounds::outside,
    device::{Device, DeviceMemory, Stream},
    launch::Launch,
    lengths::{FAR, LENGTH, from_memory},
};

/// The source of a slot's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotSource {
    /// An offset in the session's arena, in bytes.
    Arena(usize),
    /// The memory of one of the session's ports.
    Port(Port),
    /// A constant of the program, by number.
    Const(usize),
    /// A parameter, by number.
    Param(usize),
    /// A result of the load program, by number.
    Loaded(usize),
    /// An offset in the buffer of a run's lengths, in bytes.
    Lengths(usize),
}

/// A step with the sources of its slots.
pub struct BoundStep {
    /// The number of the step's kernel.
    pub kernel: usize,
    /// The source of each slot.
    pub sources: Vec<SlotSource>,
    /// The slots that the step writes.
    pub stores: Vec<usize>,
    /// The part of the model that the step computes.
    pub origin: Origin,
    /// For each check of ids, by number, the part of the model that it belongs to.
    pub checks: Vec<Origin>,
}

/// A kernel's launches, compiled.
type CompiledLaunches<M> = Vec<(Launch, M)>;

/// A compiled program.
pub struct Code<D: Device> {
    pub device: Arc<D>,
    pub kernels: Vec<CompiledLaunches<D::Module>>,
    pub load: Vec<BoundStep>,
    pub run: Vec<BoundStep>,
    pub constants: Vec<D::Block>,
    /// Bytes of each buffer that the load program computes.
    pub loaded_bytes: Vec<usize>,
    pub params: Vec<(String, Type)>,
    pub inputs: Vec<(String, Type)>,
    pub outputs: Vec<(String, Type)>,
    pub states: Vec<(String, Type)>,
    /// For each step of a run, whether each output needs it. The last entry is whether any state needs it.
    pub needed: Vec<Vec<bool>>,
    /// For each step of the load program and for each step of a run, the earlier steps that must end first.
    pub waits: [Vec<Vec<usize>>; 2],
    pub arena_bytes: usize,
    /// Bytes of scratch memory: the maximum over all kernels.
    pub workspace: usize,
    /// Whether any step checks ids that it reads from tensors.
    pub faults: bool,
    /// For each kernel, its checks of ids: the check's number, the extent of the indexed axis, and whether negative ids
    /// count from the end of that axis.
    checks: Vec<Vec<(usize, Dim, bool)>>,
    /// The program, if some of its extents are known only at run time.
    pub varying: Option<Program>,
    /// The lengths that kernels read: the number of each extent and its offset in bytes. The lengths of one kernel are
    /// contiguous.
    pub lengths: Vec<(usize, usize)>,
}

/// The barriers between launched steps. A barrier precedes each step that depends on a step after the last barrier.
#[derive(Default)]
pub struct Barriers {
    last: usize,
    launched: Vec<usize>,
}

impl Barriers {
    /// Puts a barrier into a stream if `step`, which is launched next, depends on a step after the last barrier.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    pub fn before<S: Stream>(&mut self, stream: &mut S, step: usize, waits: &[Vec<usize>]) -> Result<(), BackendError> {
        let mut stands = false;
        let mut todo: Vec<usize> = waits[step].clone();
        while let Some(earlier) = todo.pop().filter(|_| !stands) {
            match self.launched.binary_search(&earlier) {
                Ok(_) => stands = earlier >= self.last,
                // The earlier step was not launched, so the steps that it depends on replace it.
                Err(_) => todo.extend(&waits[earlier]),
            }
        }
        self.launched.push(step);
        if stands {
            self.last = step;
            stream.barrier()?;
        }
        Ok(())
    }
}

/// Bytes of a fault report. Its four words say whether an id is out of range, the step's number, the id and the number
/// of the check.
pub const FAULT_BYTES: usize = 32;

/// Compiles a program.
///
/// # Errors
/// Names every kernel that cannot be built, with its place in the model.
pub fn compile<D: Device>(device: &Arc<D>, program: &Program) -> Result<Code<D>, BackendError> {
    let unsupported = |problems| BackendError::Unsupported { backend: device.name().into(), problems };
    let problems: Vec<Refusal> = program.problems().into_iter().map(Refusal::from).collect();
    if !problems.is_empty() {
        // The printers require a valid program.
        return Err(unsupported(problems));
    }
    let (kernels, symbols) = build(&**device, program).map_err(unsupported)?;
    let Sources { sources, constants, loaded_bytes } = Sources::new(&**device, program)?;
    let (places, lengths) = place_lengths(&symbols, program, device.limits().alignment);
    let bind = |step: &Step| BoundStep {
        kernel: step.kernel,
        sources: step.buffers.iter().map(|&id| sources[id]).chain(places[step.kernel]).collect(),
        stores: program.kernels[step.kernel].stores.iter().map(|s| s.slot).collect(),
        origin: step.origin.clone(),
        checks: step.checks.clone(),
    };
    // All steps share one workspace, so steps that write to it must run one after the other.
    let workspace = |kernel: usize| kernels[kernel].iter().map(|(launch, _)| launch.workspace).max().unwrap_or(0);
    let waits = |steps: &[Step]| {
        let touched = |step: &Step| {
            let mut touched = program.touched(step);
            let space = MemorySpace::Buffer(program.buffers.len());
            touched.writes.push(MemoryRange { space, bytes: 0..workspace(step.kernel) });
            touched
        };
        hazards(steps.iter().map(touched))
    };
    let waits = [waits(&program.load), waits(&program.run)];
    let checks: Vec<Vec<_>> = program.kernels.iter().map(checks).collect();
    Ok(Code {
        device: device.clone(),
        load: program.load.iter().map(bind).collect(),
        run: program.run.iter().map(bind).collect(),
        constants,
        loaded_bytes,
        params: program.params.clone(),
        inputs: program.inputs.clone(),
        outputs: program.outputs.clone(),
        states: program.states.clone(),
        needed: program.needed_for(),
        waits,
        arena_bytes: program.arena_bytes,
        workspace: (0..kernels.len()).map(workspace).max().unwrap_or(0),
        varying: (!program.extents.is_empty()).then(|| program.clone()),
        lengths,
        faults: checks.iter().any(|checks| !checks.is_empty()),
        checks,
        kernels,
    })
}

/// The launches of each kernel, and the extents that it reads from memory.
type BuiltKernels<M> = (Vec<CompiledLaunches<M>>, Vec<Vec<Symbol>>);

/// Prints and builds the kernels of a program.
///
/// # Errors
/// Names every kernel that cannot be built, with its place in the model.
fn build<D: Device>(device: &D, program: &Program) -> Result<BuiltKernels<D::Module>, Vec<Refusal>> {
    let refusal = |kernel: usize, why: String| {
        let used = program.load.iter().chain(&program.run).find(|step| step.kernel == kernel);
        let origin = used.map_or_else(Origin::default, |step| step.origin.clone());
        Refusal { kernel: Some(kernel), origin, why }
    };
    let (mut problems, mut launches, mut counts, mut reading) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (n, kernel) in program.kernels.iter().enumerate() {
        problems.extend(outside(kernel).into_iter().map(|why| refusal(n, why)));
        let (kernel, symbols) = from_memory(kernel);
        reading.push(symbols);
        let printed = device.print(&kernel).unwrap_or_else(|why| {
            problems.extend(why.into_iter().map(|why| refusal(n, why)));
            Vec::new()
        });
        let before = launches.len();
        launches.extend(printed.into_iter().filter(|launch| !launch.is_empty()));
        counts.push(launches.len() - before);
    }
    let mut modules = device.build(&launches).into_iter().zip(launches);
    let mut kernels = Vec::new();
    for (n, &count) in counts.iter().enumerate() {
        let mut built: CompiledLaunches<D::Module> = Vec::new();
        for (module, launch) in modules.by_ref().take(count) {
            match module {
                Ok(module) => built.push((launch, module)),
                Err(why) => problems.push(refusal(n, why)),
            }
        }
        kernels.push(built);
    }
    if problems.is_empty() { Ok((kernels, reading)) } else { Err(problems) }
}

/// The source of each buffer of a program, with the memory that all sessions share.
struct Sources<B> {
    sources: Vec<SlotSource>,
    constants: Vec<B>,
    loaded_bytes: Vec<usize>,
}

impl<B: DeviceMemory> Sources<B> {
    /// Finds the sources, and uploads constants.
    ///
    /// # Errors
    /// Returns an error if there is too little memory, or if the device failed.
    fn new<D: Device<Block = B>>(device: &D, program: &Program) -> Result<Sources<B>, BackendError> {
        let (mut constants, mut loaded_bytes) = (Vec::new(), Vec::new());
        let mut stream = device.stream()?;
        let mut sources = Vec::with_capacity(program.buffers.len());
        for buffer in &program.buffers {
            sources.push(match &buffer.place {
                Place::Arena(at) => SlotSource::Arena(*at),
                Place::Input(n) => SlotSource::Port(Port::Input(*n)),
                Place::Output(n) => SlotSource::Port(Port::Output(*n)),
                Place::State(n) => SlotSource::Port(Port::State(*n)),
                Place::Param(n) => SlotSource::Param(*n),
                Place::Const(tensor) => {
                    let block = device.allocate(tensor.bytes().len(), Memory::Device)?;
                    stream.upload(block.address(), tensor.bytes())?;
                    constants.push(block);
                    SlotSource::Const(constants.len() - 1)
                }
                Place::Loaded(_) => {
                    loaded_bytes.push(buffer.count * buffer.dtype.size());
                    SlotSource::Loaded(loaded_bytes.len() - 1)
                }
            });
        }
        stream.wait()?;
        Ok(Sources { sources, constants, loaded_bytes })
    }
}

/// For each kernel, the source of its lengths. For each length, the number of its extent and its offset in bytes.
type PlacedLengths = (Vec<Option<SlotSource>>, Vec<(usize, usize)>);

/// Places the lengths that kernels read in one buffer.
fn place_lengths(symbols: &[Vec<Symbol>], program: &Program, alignment: usize) -> PlacedLengths {
    let (mut lengths, mut bytes) = (Vec::new(), 0_usize);
    let mut place = |symbols: &Vec<Symbol>| {
        let first = bytes;
        for symbol in symbols {
            let extent = program.extents.iter().position(|extent| extent == symbol);
            lengths.push((extent.unwrap_or(usize::MAX), bytes));
            bytes += LENGTH.size();
        }
        // Each kernel's range is bound as a separate buffer, which must be aligned.
        bytes = bytes.next_multiple_of(alignment);
        (!symbols.is_empty()).then_some(SlotSource::Lengths(first))
    };
    let places = symbols.iter().map(&mut place).collect::<Vec<_>>();
    (places, lengths)
}

/// Returns the checks of ids in a kernel, in the form of `Code::checks`.
fn checks(kernel: &Kernel) -> Vec<(usize, Dim, bool)> {
    let check = |instr: &Instr| match instr {
        Instr::Within { extent, from_end, check, .. } => Some((*check, extent.clone(), *from_end)),
        _ => None,
    };
    kernel.bodies().into_iter().flat_map(|body| &body.instrs).filter_map(check).collect()
}

/// The addresses of memory that all steps of a run share.
#[derive(Clone, Copy)]
pub struct RunMemory {
    pub workspace: u64,
    /// The record of the first id that is out of range.
    pub fault: u64,
}

impl<D: Device> Code<D> {
    /// Puts the launches of step `n` into a stream.
    ///
    /// # Errors
    /// Returns an error if the device failed.
    pub fn launch(
        &self,
        stream: &mut D::Stream,
        (n, step): (usize, &BoundStep),
        at: impl Fn(SlotSource) -> u64,
        memory: RunMemory,
    ) -> Result<(), BackendError> {
        for (part, (launch, module)) in self.kernels[step.kernel].iter().enumerate() {
            if part > 0 {
                stream.barrier()?;
            }
            let slots = step.sources.iter().map(|&source| at(source));
            stream.launch(module, launch, &launch.arguments([memory.workspace, memory.fault, n as u64], slots))?;
        }
        Ok(())
    }

    /// Returns the contents of the buffer from which kernels read the lengths of a run.
    pub fn lengths_of(&self, lengths: &[usize]) -> Vec<u8> {
        let mut bytes = vec![0; self.lengths.last().map_or(0, |(_, at)| at + LENGTH.size())];
        for &(extent, at) in &self.lengths {
            let length = lengths.get(extent).and_then(|&n| i32::try_from(n).ok()).unwrap_or(0);
            bytes[at..at + LENGTH.size()].copy_from_slice(&length.to_le_bytes());
        }
        bytes
    }

    /// Returns the maximum of each extent.
    pub fn most(&self) -> Vec<usize> {
        self.varying.as_ref().map_or_else(Vec::new, Program::most)
    }

    /// Returns the valid indices of a check in a run of these lengths, and whether their number depends on the lengths.
    fn ids(&self, step: &BoundStep, check: usize, lengths: &[usize]) -> Option<(Ids, bool)> {
        let lengths = self.varying.as_ref().map(|program| program.lengths(lengths));
        let bound = |extent: &Dim| match &lengths {
            Some(lengths) => extent.bind(lengths).known(),
            None => extent.known(),
        };
        let checks = self.checks[step.kernel].iter().find(|known| known.0 == check);
        checks.map(|(_, extent, from_end)| {
            (Ids { extent: bound(extent).unwrap_or(0), from_end: *from_end }, extent.varies())
        })
    }

    /// Checks whether a run reported an index that is out of range, and clears the report.
    ///
    /// # Errors
    /// Returns the reported fault, or an error if the device failed.
    pub fn check(
        &self,
        stream: &mut D::Stream,
        fault: &D::Block,
        steps: &[BoundStep],
        lengths: &[usize],
    ) -> Result<(), BackendError> {
        let mut report = [0; FAULT_BYTES];
        stream.download(fault.address(), &mut report)?;
        let word = |n: usize| i64::from_le_bytes(report[8 * n..8 * n + 8].try_into().expect("a word has eight bytes"));
        if word(0) == 0 {
            return Ok(());
        }
        stream.upload(fault.address(), &[0; FAULT_BYTES])?;
        let (id, check) = (word(2), usize::try_from(word(3)).unwrap_or(usize::MAX));
        let Some(step) = steps.get(word(1) as usize) else {
            let why = format!("cannot find the step that read the index {id}, which is out of range");
            return Err(BackendError::Device(why));
        };
        let origin = step.checks.get(check).unwrap_or(&step.origin).clone();
        let problem = match self.ids(step, check, lengths) {
            // Kernels add `FAR` to indices beyond the length of an extent that varies.
            Some((ids, true)) if id >= FAR => OutOfRange { id: id - FAR, ids },
            Some((ids, _)) => OutOfRange { id, ids },
            None => {
                return Err(BackendError::Device(format!(
                    "cannot report the valid range of the index {id}, which is out of range at {origin}, because its \
                     check is unknown"
                )));
            }
        };
        Err(BackendError::IndexOutOfRange { problem, origin })
    }
}
