//! Steps with their buffers bound: tables of pointers that runs go through.

use std::{ops::Range, sync::Arc, time::Instant};

use eutectic_backend::{BackendError, Instr, Kernel, Place, Program, Step};
use eutectic_ir::Origin;
use rustc_hash::FxHashMap;

use super::Aligned;
use crate::{
    kernels::{Launch, Thunk},
    runtime::{
        fault::Fault,
        memory::{ALIGN, Block},
        threads::Workers,
    },
};

/// A step, bound.
struct Bound {
    thunk: Arc<dyn Thunk>,
    /// Its part of [`Schedule::slots`].
    slots: Range<usize>,
    in_place: bool,
    /// Whether an operand is packed first in each run.
    packs: bool,
    origin: Origin,
}

/// Where a pointer in the table of slots comes from, if it is known only later.
#[derive(Clone, Copy)]
pub enum Late {
    Param(usize),
    Input(usize),
    Output(usize),
}

/// The steps of a program, bound.
#[derive(Default)]
pub struct Schedule {
    steps: Vec<Bound>,
    slots: Vec<Pointer>,
    /// Slots that are bound later, and whether they are only packed.
    late: Vec<(usize, Late, bool)>,
    constants: Vec<PackedConstant>,
    /// Bytes of all packed constants, and where they are.
    packed_bytes: usize,
    packed: Option<Block>,
    /// Where steps that pack an operand in each run put it, one after the other.
    _passing: Option<Block>,
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

/// What steps are bound to.
pub struct Binder<'a> {
    pub program: &'a Program,
    pub thunks: &'a [Arc<dyn Thunk>],
    /// Arena, load arena, buffers of thunks.
    pub memory: &'a [Block; 3],
    pub constants: &'a [Aligned],
}

impl Binder<'_> {
    /// Binds steps. Where `constants` are to be packed, what they are computed from must be there before the first of them.
    pub fn schedule(&self, steps: &[Step], constants: bool) -> Schedule {
        let mut schedule = Schedule::default();
        let mut known = FxHashMap::default();
        let (mut passing, mut bytes) = (Vec::new(), 0);
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
            let mut packs = false;
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
                } else if constant.each_run {
                    packs = true;
                    passing.push(slot);
                    bytes = constant.bytes.max(bytes);
                }
            }
            let in_place = self.in_place(kernel, step);
            let slots = from..schedule.slots.len();
            schedule.steps.push(Bound { thunk, slots, in_place, packs, origin: step.origin.clone() });
        }
        if !passing.is_empty() {
            let block = Block::new(bytes);
            passing.into_iter().for_each(|slot| schedule.slots[slot] = Pointer(block.at()));
            schedule._passing = Some(block);
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

    /// How many steps there are.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Binds what has a place now.
    pub fn bind(&mut self, mut at: impl FnMut(Late) -> Option<*mut u8>) {
        for &(slot, late, _) in &self.late {
            if let Some(at) = at(late) {
                self.slots[slot] = Pointer(at);
            }
        }
    }

    /// What is bound later and read by steps, not only packed before them.
    pub fn reads(&self) -> impl Iterator<Item = Late> {
        self.late.iter().filter(|(_, _, only_packed)| !only_packed).map(|(_, late, _)| *late)
    }

    /// What a step runs on.
    fn launch<'a>(&'a self, step: &Bound, workers: &'a Workers, fault: &'a Fault) -> Launch<'a> {
        let slots = &self.slots[step.slots.clone()];
        // SAFETY: `Pointer` is transparent.
        let slots = unsafe { std::slice::from_raw_parts(slots.as_ptr().cast::<*mut u8>(), slots.len()) };
        Launch { slots, workers, in_place: step.in_place, fault }
    }

    pub fn run(&self, workers: &Workers, fault: &Fault, times: Option<&mut [f64]>) -> Result<(), BackendError> {
        let mut times = times;
        for (n, step) in self.steps.iter().enumerate() {
            let start = times.is_some().then(Instant::now);
            let launch = self.launch(step, workers, fault);
            // SAFETY: `check` compared buffers with what the kernel states; there is room for what the thunk packs.
            unsafe {
                if step.packs {
                    step.thunk.pack(&launch);
                }
                step.thunk.run(&launch);
            }
            step.report(fault)?;
            if let (Some(times), Some(start)) = (&mut times, start) {
                times[n] = start.elapsed().as_secs_f64();
            }
        }
        Ok(())
    }

    /// Packs the constants, from buffers that are bound.
    pub fn pack(&mut self, workers: &Workers, fault: &Fault) -> Result<(), BackendError> {
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
