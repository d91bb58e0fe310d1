//! Compiled programs: thunks with their buffers bound.

mod schedule;

use std::sync::Arc;

use eutectic_backend::{BackendError, Buffer, Executable, Place, Program, Step};
use eutectic_ir::{DType, Origin, Tensor, Type};

use self::schedule::{Binder, Late, Schedule};
use crate::{
    kernels::{self, Machine, Thunk},
    runtime::{
        fault::Fault,
        memory::{ALIGN, Block},
        threads::Workers,
    },
};

/// A tensor at an address that suits its element type.
struct Aligned {
    tensor: Tensor,
    copy: Option<Block>,
}

impl Aligned {
    fn new(tensor: &Tensor) -> Aligned {
        let aligned = (tensor.bytes().as_ptr() as usize).is_multiple_of(tensor.dtype().size());
        let copy = (!aligned).then(|| Block::of(tensor.bytes()));
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

impl CpuProgram {
    fn bind_params(&mut self) {
        let bound = &self.bound;
        for schedule in [&mut self.load, &mut self.run] {
            schedule.bind(|late| match late {
                Late::Param(n) => bound[n].as_ref().map(Aligned::at),
                Late::Input(_) | Late::Output(_) => None,
            });
        }
    }

    /// Lets go of parameters that runs do not read, because they were packed or only the load program reads them.
    fn release_params(&mut self) {
        let mut read = vec![false; self.bound.len()];
        for late in self.run.reads() {
            if let Late::Param(n) = late {
                read[n] = true;
            }
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
        self.run.bind(|late| {
            Some(match late {
                Late::Param(_) => return None,
                Late::Input(n) if self.inputs[n].suits(inputs[n].as_ptr()) => inputs[n].as_ptr().cast_mut(),
                Late::Input(n) => self.inputs[n].staging.at(),
                Late::Output(n) if self.outputs[n].suits(outputs[n].as_ptr()) => outputs[n].as_mut_ptr(),
                Late::Output(n) => self.outputs[n].staging.at(),
            })
        });
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
        let mut times = vec![0.0; self.run.len()];
        self.execute(inputs, outputs, Some(&mut times))?;
        Ok(times)
    }
}
