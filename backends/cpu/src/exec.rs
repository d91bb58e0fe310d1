//! Compiled programs: thunks with their buffers bound.

use std::{sync::Arc, time::Instant};

use eutectic_backend::{BackendError, Buffer, Executable, Instr, Kernel, Place, Program, Step};
use eutectic_ir::{DType, Origin, Tensor, Type};
use rustc_hash::FxHashMap;

use crate::{
    fault::Fault,
    kernels::{self, Launch, Machine, Thunk},
    memory::{ALIGN, Block},
    partition::Workers,
};

/// A step, bound.
struct Bound {
    thunk: Arc<dyn Thunk>,
    /// Its part of [`Schedule::slots`].
    slots: std::ops::Range<usize>,
    in_place: bool,
    origin: Origin,
}

/// Where a pointer in the table of slots comes from, if it is known only later.
#[derive(Clone, Copy)]
enum Late {
    Param(usize),
    Input(usize),
    Output(usize),
}

impl Late {
    fn param(self) -> Option<usize> {
        if let Late::Param(n) = self { Some(n) } else { None }
    }
}

#[derive(Default)]
struct Schedule {
    steps: Vec<Bound>,
    slots: Vec<Pointer>,
    /// Slots that are bound later, and whether they are only packed.
    late: Vec<(usize, Late, bool)>,
    constants: Vec<PackedConstant>,
    /// Bytes of all packed constants, and where they are.
    packed_bytes: usize,
    packed: Option<Block>,
}

/// A constant operand, which is packed when parameters arrive; steps that run the same kernel on the same buffers share it.
struct PackedConstant {
    /// The step that packs it.
    step: usize,
    /// Its slots in the table, one for each step that reads it.
    slots: Vec<usize>,
    /// Its first byte in the block of all of them.
    offset: usize,
}

/// A pointer that may be sent to another thread along with the memory that it points into.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Pointer(*mut u8);

// SAFETY: pointers in a schedule point into memory that the program owns, or into what a run borrows for its time.
unsafe impl Send for Pointer {}
// SAFETY: as above.
unsafe impl Sync for Pointer {}

/// A tensor at an address that suits its element type.
struct Aligned {
    tensor: Tensor,
    copy: Option<Block>,
}

impl Aligned {
    fn new(tensor: &Tensor) -> Aligned {
        let aligned = (tensor.bytes().as_ptr() as usize).is_multiple_of(tensor.dtype().size());
        let copy = (!aligned).then(|| {
            let mut block = Block::new(tensor.bytes().len());
            block.fill(tensor.bytes());
            block
        });
        Aligned { tensor: tensor.clone(), copy }
    }

    fn at(&self) -> *mut u8 {
        self.copy.as_ref().map_or(self.tensor.bytes().as_ptr().cast_mut(), Block::at)
    }
}

/// An input or output: what it must be, and a buffer for when the caller's is not aligned.
struct Port {
    name: String,
    dtype: DType,
    bytes: usize,
    staging: Block,
}

impl Port {
    fn new((name, ty): &(String, Type)) -> Port {
        let bytes = ty.bytes();
        Port { name: name.clone(), dtype: ty.dtype().unwrap_or(DType::U8), bytes, staging: Block::new(bytes) }
    }

    fn check(&self, what: &'static str, got: usize, ty: &dyn Fn() -> String) -> Result<(), BackendError> {
        if got == self.bytes {
            return Ok(());
        }
        let problem = format!("{got} bytes given, {} is {} bytes", ty(), self.bytes);
        Err(BackendError::Binding { what, name: self.name.clone(), problem })
    }

    fn suits(&self, at: *const u8) -> bool {
        (at as usize).is_multiple_of(self.dtype.size())
    }
}

/// A program that runs on the CPU.
pub struct CpuProgram {
    load: Schedule,
    run: Schedule,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    params: Vec<(String, Type)>,
    /// The parameters that runs read; others were only packed.
    bound: Vec<Option<Aligned>>,
    loaded: bool,
    workers: Workers,
    fault: Fault,
    /// What pointers in the schedules point into.
    _memory: (Vec<Aligned>, [Block; 3]),
}

/// Compiles a program: thunks, buffers, scratch memory.
///
/// # Errors
/// Every kernel that cannot be built, with its place in the model; and what is not right about the program.
pub fn compile(program: &Program, machine: Machine) -> Result<CpuProgram, BackendError> {
    let mut problems = Vec::new();
    let thunks: Vec<Option<Arc<dyn Thunk>>> = program
        .kernels
        .iter()
        .enumerate()
        .map(|(k, kernel)| match kernels::compile(kernel, machine) {
            Ok(thunk) => Some(thunk.into()),
            Err(why) => {
                let used = program.load.iter().chain(&program.run).find(|s| s.kernel == k);
                let origin = used.map_or_else(Origin::default, |s| s.origin.clone());
                problems.extend(why.into_iter().map(|w| (origin.clone(), w)));
                None
            }
        })
        .collect();
    check(program, &mut problems);
    if !problems.is_empty() {
        return Err(BackendError::Unsupported { backend: "cpu".into(), problems });
    }
    let thunks: Vec<_> = thunks.into_iter().flatten().collect();
    let scratch = thunks.iter().map(|t| t.scratch()).max().unwrap_or(0);
    let own = |t: &Arc<dyn Thunk>| t.buffers().into_iter().map(|b| b.next_multiple_of(ALIGN)).sum();
    let memory = [program.arena_bytes, program.load_bytes, thunks.iter().map(own).max().unwrap_or(0)].map(Block::new);
    let constants: Vec<_> = program
        .buffers
        .iter()
        .filter_map(|b| if let Place::Const(t) = &b.place { Some(Aligned::new(t)) } else { None })
        .collect();
    let binder = Binder { program, thunks: &thunks, memory: &memory, constants: &constants };
    Ok(CpuProgram {
        load: binder.schedule(&program.load, false),
        run: binder.schedule(&program.run, true),
        inputs: program.inputs.iter().map(Port::new).collect(),
        outputs: program.outputs.iter().map(Port::new).collect(),
        params: program.params.clone(),
        bound: Vec::new(),
        loaded: false,
        workers: Workers::new(machine.threads, scratch)?,
        fault: Fault::default(),
        _memory: (constants, memory),
    })
}

/// Whether buffers lie where they can and steps bind what their kernels ask for: thunks rely on it.
fn check(program: &Program, problems: &mut Vec<(Origin, String)>) {
    let whole = |n: usize, of: &[(String, Type)], b: &Buffer| {
        of.get(n).is_some_and(|(_, ty)| ty.dtype() == Some(b.dtype) && ty.count() == b.count)
    };
    let within = |at: usize, size: usize, b: &Buffer| {
        at.is_multiple_of(b.dtype.size()) && at.checked_add(b.count * b.dtype.size()).is_some_and(|end| end <= size)
    };
    for (id, buffer) in program.buffers.iter().enumerate() {
        let fits = match &buffer.place {
            Place::Input(n) => whole(*n, &program.inputs, buffer),
            Place::Param(n) => whole(*n, &program.params, buffer),
            Place::Output(n) => whole(*n, &program.outputs, buffer),
            Place::Const(t) => t.dtype() == buffer.dtype && t.count() == buffer.count,
            Place::Loaded(at) => within(*at, program.load_bytes, buffer),
            Place::Arena(at) => within(*at, program.arena_bytes, buffer),
        };
        if !fits {
            let what = format!("buffer {id} of {} {} does not fit its place", buffer.count, buffer.dtype);
            problems.push((Origin::default(), what));
        }
    }
    let mut check = |steps: &[Step], load: bool| {
        for step in steps {
            let fits = program.kernels.get(step.kernel).is_some_and(|kernel| {
                let same = |(slot, &id): (&(DType, usize), &usize)| {
                    program.buffers.get(id).is_some_and(|b| b.dtype == slot.0 && b.count >= slot.1)
                };
                let written = |slot: usize| {
                    matches!(
                        (&program.buffers[step.buffers[slot]].place, load),
                        (Place::Arena(_), _) | (Place::Loaded(_), true) | (Place::Output(_), false)
                    )
                };
                kernel.slots.len() == step.buffers.len()
                    && kernel.slots.iter().zip(&step.buffers).all(same)
                    && kernel.stores.iter().all(|s| s.slot < step.buffers.len() && written(s.slot))
            });
            if !fits {
                problems.push((step.origin.clone(), format!("a step binds what kernel {} cannot use", step.kernel)));
            }
        }
    };
    check(&program.load, true);
    check(&program.run, false);
}

struct Binder<'a> {
    program: &'a Program,
    thunks: &'a [Arc<dyn Thunk>],
    /// Arena, load arena, buffers of thunks.
    memory: &'a [Block; 3],
    constants: &'a [Aligned],
}

impl Binder<'_> {
    /// Binds steps. Where `constants` are to be packed, what they are computed from must be there before the first of them.
    fn schedule(&self, steps: &[Step], constants: bool) -> Schedule {
        let mut schedule = Schedule::default();
        let mut known = FxHashMap::default();
        for (number, step) in steps.iter().enumerate() {
            let kernel = &self.program.kernels[step.kernel];
            let from = schedule.slots.len();
            for &id in &step.buffers {
                let at = match self.program.buffers[id].place {
                    Place::Arena(at) => self.memory[0].at().wrapping_add(at),
                    Place::Loaded(at) => self.memory[1].at().wrapping_add(at),
                    Place::Const(_) => self.constants[self.constant(id)].at(),
                    Place::Param(n) => schedule.later(Late::Param(n)),
                    Place::Input(n) => schedule.later(Late::Input(n)),
                    Place::Output(n) => schedule.later(Late::Output(n)),
                };
                schedule.slots.push(Pointer(at));
            }
            let thunk = self.thunks[step.kernel].clone();
            let mut own = self.memory[2].at();
            for bytes in thunk.buffers() {
                schedule.slots.push(Pointer(own));
                own = own.wrapping_add(bytes.next_multiple_of(ALIGN));
            }
            if let Some(constant) = thunk.constant() {
                let slot = schedule.slots.len();
                schedule.slots.push(Pointer(std::ptr::null_mut()));
                if constants && constant.reads.iter().all(|&s| self.is_constant(step.buffers[s])) {
                    let packed = &mut schedule.constants;
                    let buffers: Vec<_> = constant.reads.iter().map(|&s| step.buffers[s]).collect();
                    let at = *known.entry((step.kernel, buffers)).or_insert(packed.len());
                    if at == packed.len() {
                        packed.push(PackedConstant { step: number, slots: vec![], offset: schedule.packed_bytes });
                        schedule.packed_bytes += constant.bytes.next_multiple_of(ALIGN);
                    }
                    packed[at].slots.push(slot);
                    // Nothing else reads these: once it is packed, the parameters need not be kept.
                    let only = constant.only.iter().map(|&s| from + s);
                    schedule.late.iter_mut().filter(|l| only.clone().any(|s| s == l.0)).for_each(|l| l.2 = true);
                }
            }
            let in_place = self.in_place(kernel, step);
            let slots = from..schedule.slots.len();
            schedule.steps.push(Bound { thunk, slots, in_place, origin: step.origin.clone() });
        }
        schedule
    }

    /// Whether a buffer holds the same in all runs.
    fn is_constant(&self, id: usize) -> bool {
        matches!(self.program.buffers[id].place, Place::Param(_) | Place::Const(_) | Place::Loaded(_))
    }

    fn constant(&self, id: usize) -> usize {
        self.program.buffers[..id].iter().filter(|b| matches!(b.place, Place::Const(_))).count()
    }

    /// Whether memory that is stored to is also loaded from.
    fn in_place(&self, kernel: &Kernel, step: &Step) -> bool {
        let bodies = kernel.bodies();
        let loads = bodies.iter().flat_map(|b| &b.instrs).filter_map(|i| match i {
            Instr::Load(load) => Some(load.slot),
            _ => None,
        });
        let range = |slot: usize| {
            let b = &self.program.buffers[step.buffers[slot]];
            let (kind, at) = match b.place {
                Place::Arena(at) => (0, at),
                Place::Loaded(at) => (1, at),
                Place::Output(n) => (2 + n, 0),
                _ => return None,
            };
            Some((kind, at..at + b.count * b.dtype.size()))
        };
        let stored: Vec<_> = kernel.stores.iter().filter_map(|s| range(s.slot)).collect();
        loads.filter_map(range).any(|l| stored.iter().any(|s| s.0 == l.0 && s.1.start < l.1.end && l.1.start < s.1.end))
    }
}

impl Schedule {
    /// Notes that the slot that is added next is known only later.
    fn later(&mut self, what: Late) -> *mut u8 {
        self.late.push((self.slots.len(), what, false));
        std::ptr::null_mut()
    }

    /// What a step runs on.
    fn launch<'a>(&'a self, step: &Bound, workers: &'a Workers, fault: &'a Fault) -> Launch<'a> {
        let slots = &self.slots[step.slots.clone()];
        // SAFETY: `Pointer` is transparent.
        let slots = unsafe { std::slice::from_raw_parts(slots.as_ptr().cast::<*mut u8>(), slots.len()) };
        Launch { slots, workers, in_place: step.in_place, fault }
    }

    fn run(&self, workers: &Workers, fault: &Fault, times: Option<&mut [f64]>) -> Result<(), BackendError> {
        let mut times = times;
        for (n, step) in self.steps.iter().enumerate() {
            let start = times.is_some().then(Instant::now);
            // SAFETY: `check` compared buffers with what the kernel states.
            unsafe { step.thunk.run(&self.launch(step, workers, fault)) };
            step.report(fault)?;
            if let (Some(times), Some(start)) = (&mut times, start) {
                times[n] = start.elapsed().as_secs_f64();
            }
        }
        Ok(())
    }

    /// Packs the constants, from buffers that are bound.
    fn pack(&mut self, workers: &Workers, fault: &Fault) -> Result<(), BackendError> {
        let block = self.packed.get_or_insert_with(|| Block::new(self.packed_bytes)).at();
        for constant in &self.constants {
            let at = block.wrapping_add(constant.offset);
            for &slot in &constant.slots {
                self.slots[slot] = Pointer(at);
            }
            let step = &self.steps[constant.step];
            // SAFETY: as in `run`; the block was made for the constant.
            unsafe { step.thunk.pack(&self.launch(step, workers, fault)) };
            step.report(fault)?;
        }
        Ok(())
    }
}

impl Bound {
    /// What went wrong in it, if something did.
    fn report(&self, fault: &Fault) -> Result<(), BackendError> {
        match fault.take() {
            Some((index, extent)) => Err(BackendError::IndexOutOfRange { index, extent, origin: self.origin.clone() }),
            None => Ok(()),
        }
    }
}

impl CpuProgram {
    fn bind_params(&mut self) {
        for schedule in [&mut self.load, &mut self.run] {
            for &(slot, late, _) in &schedule.late {
                if let Some(param) = late.param().and_then(|n| self.bound[n].as_ref()) {
                    schedule.slots[slot] = Pointer(param.at());
                }
            }
        }
    }

    /// Lets go of parameters that runs do not read, because they were packed or only the load program reads them.
    fn release_params(&mut self) {
        let mut read = vec![false; self.bound.len()];
        for (_, late, only_packed) in &self.run.late {
            late.param().filter(|_| !only_packed).into_iter().for_each(|n| read[n] = true);
        }
        self.bound.iter_mut().zip(&read).filter(|b| !b.1).for_each(|b| *b.0 = None);
    }

    fn execute(
        &mut self,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        times: Option<&mut [f64]>,
    ) -> Result<(), BackendError> {
        if !self.loaded {
            return Err(BackendError::NotLoaded(self.params.len()));
        }
        expect("input", inputs.len(), self.inputs.len())?;
        expect("output", outputs.len(), self.outputs.len())?;
        for (port, bytes) in self.inputs.iter_mut().zip(inputs) {
            port.check("input", bytes.len(), &|| port.dtype.to_string())?;
            if !port.suits(bytes.as_ptr()) {
                port.staging.fill(bytes);
            }
        }
        for (port, bytes) in self.outputs.iter().zip(outputs.iter()) {
            port.check("output", bytes.len(), &|| port.dtype.to_string())?;
        }
        for &(slot, late, _) in &self.run.late {
            let at = match late {
                Late::Param(_) => continue,
                Late::Input(n) if self.inputs[n].suits(inputs[n].as_ptr()) => inputs[n].as_ptr().cast_mut(),
                Late::Input(n) => self.inputs[n].staging.at(),
                Late::Output(n) if self.outputs[n].suits(outputs[n].as_ptr()) => outputs[n].as_mut_ptr(),
                Late::Output(n) => self.outputs[n].staging.at(),
            };
            self.run.slots[slot] = Pointer(at);
        }
        self.run.run(&self.workers, &self.fault, times)?;
        for (port, bytes) in self.outputs.iter().zip(outputs) {
            if !port.suits(bytes.as_ptr()) {
                // SAFETY: the staging block has the port's size, which is the slice's.
                unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(port.staging.at(), port.bytes) };
            }
        }
        Ok(())
    }
}

fn expect(what: &'static str, got: usize, wanted: usize) -> Result<(), BackendError> {
    if got == wanted {
        return Ok(());
    }
    let problem = format!("{got} given, the program has {wanted}");
    Err(BackendError::Binding { what, name: "*".into(), problem })
}

impl Executable for CpuProgram {
    fn load(&mut self, params: &[Tensor]) -> Result<(), BackendError> {
        self.loaded = false;
        expect("parameter", params.len(), self.params.len())?;
        for ((name, ty), param) in self.params.iter().zip(params) {
            if param.ty() != *ty {
                let problem = format!("{} given, the program takes {ty}", param.ty());
                return Err(BackendError::Binding { what: "parameter", name: name.clone(), problem });
            }
        }
        self.bound = params.iter().map(|p| Some(Aligned::new(p))).collect();
        self.bind_params();
        self.load.run(&self.workers, &self.fault, None)?;
        self.run.pack(&self.workers, &self.fault)?;
        self.release_params();
        self.loaded = true;
        Ok(())
    }

    fn run(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), BackendError> {
        self.execute(inputs, outputs, None)
    }

    fn profile(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<Vec<f64>, BackendError> {
        let mut times = vec![0.0; self.run.steps.len()];
        self.execute(inputs, outputs, Some(&mut times))?;
        Ok(times)
    }
}
