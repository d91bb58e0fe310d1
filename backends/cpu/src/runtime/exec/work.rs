//! The workspace of a session's runs: arena, the memory of inputs, outputs and states (ports), and the table of slots.

use std::{any::Any, sync::Arc};

use eutectic_backend::{
    BackendError, DeviceBuffer, Input, Output, Port, Program,
    extents::{Lengths, Placement},
};
use eutectic_ir::Type;

use super::{
    buffer::CpuBuffer,
    check::{expect, wrong},
    code::{Code, dtype},
    known_lengths::Resolved,
    loaded::CpuLoaded,
    pointer::Pointer,
    steps::SlotSource,
};
use crate::runtime::{fault::IndexFault, memory::Pages, threads::Workers};

/// The memory of an input, output or state. Host bytes that kernels cannot use directly are copied into its own memory.
pub struct PortMemory {
    pub what: &'static str,
    pub name: String,
    ty: Type,
    /// The size in bytes of the tensor with maximal extents.
    bytes: usize,
    /// The positions of a tensor with the lengths of the run in this memory.
    placement: Placement,
    pub own: Pages,
    pub bound: Option<Box<CpuBuffer>>,
}

/// The memory and the threads of a session's runs.
pub struct Workspace {
    code: Arc<Code>,
    arena: Pages,
    thunks_own: Pages,
    passing: Pages,
    /// The memory of the inputs, of the outputs and of the states.
    pub places: [Vec<PortMemory>; 3],
    slots: Vec<Pointer>,
    /// The slots of inputs, outputs and states. Each run sets their addresses.
    late: Vec<(usize, Port)>,
    /// For each output, whether the run computes it. The last entry stands for the states, which are always computed.
    pub wanted: Vec<bool>,
    /// The threads, each with `scratch` bytes of scratch memory.
    workers: Workers,
    scratch: usize,
    fault: IndexFault,
    /// The extents of runs.
    pub lengths: Vec<usize>,
    /// The code for `lengths`; `None` if they are maximal.
    resolved: Option<Arc<Resolved>>,
}

impl PortMemory {
    fn new(what: &'static str, (name, ty): &(String, Type), lengths: Lengths<'_>) -> Result<PortMemory, BackendError> {
        let (name, placement, bytes) = (name.clone(), placement(ty, lengths), ty.bytes());
        Ok(PortMemory { what, name, ty: ty.clone(), bytes, placement, own: Pages::try_new(bytes)?, bound: None })
    }

    /// Returns the memory that is in use: the bound buffer, or else the own memory.
    pub fn memory(&self) -> &Pages {
        self.bound.as_ref().map_or(&self.own, |b| b.block())
    }

    /// Returns the address to which runs write an output that the caller does not want.
    fn unwanted(&self) -> *mut u8 {
        self.own.at()
    }

    fn wrong(&self, problem: String) -> BackendError {
        wrong(self.what, &self.name, problem)
    }

    /// Checks that host bytes have the size of the tensor with the lengths of the run.
    fn check(&self, got: usize) -> Result<(), BackendError> {
        self.expect(got, self.placement.bytes())
    }

    fn expect(&self, got: usize, bytes: usize) -> Result<(), BackendError> {
        let problem = || format!("cannot take {got} bytes because {} has {bytes} bytes", self.ty);
        if got == bytes { Ok(()) } else { Err(self.wrong(problem())) }
    }

    /// Returns whether kernels can use host bytes directly: they are aligned, and have the size of the tensor with
    /// maximal extents.
    fn suits(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.bytes && bytes.as_ptr().addr().is_multiple_of(dtype(&self.ty).size())
    }
}

impl Workspace {
    /// Allocates the workspace of a session.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new(loaded: &CpuLoaded) -> Result<Workspace, BackendError> {
        let code = loaded.code.clone();
        let lengths = code.varying.program().most();
        let list = |what, ports: &[(String, Type)]| {
            let at = code.varying.program().lengths(&lengths);
            ports.iter().map(|port| PortMemory::new(what, port, &at)).collect::<Result<Vec<_>, _>>()
        };
        let mut work = Workspace {
            arena: Pages::try_new(code.arena_bytes)?,
            thunks_own: Pages::try_new(code.own_bytes)?,
            passing: Pages::try_new(code.passing_bytes)?,
            places: [list("input", &code.inputs)?, list("output", &code.outputs)?, list("state", &code.states)?],
            slots: Vec::new(),
            late: Vec::new(),
            wanted: vec![true; code.outputs.len() + 1],
            workers: Workers::new(code.pool.clone(), code.scratch)?,
            scratch: code.scratch,
            fault: IndexFault::default(),
            lengths,
            resolved: None,
            code,
        };
        work.bind_constants(loaded);
        Ok(work)
    }

    /// Fills the table of slots, except for the slots of inputs, outputs and states.
    pub fn bind_constants(&mut self, loaded: &CpuLoaded) {
        let sources = &self.resolved.as_ref().map_or(&self.code.run, |resolved| &resolved.run).sources;
        let at = |source: &SlotSource| match *source {
            SlotSource::Arena(at) => Pointer(self.arena.at().wrapping_add(at)),
            SlotSource::Passing => Pointer(self.passing.at()),
            source => loaded.at(source, &self.thunks_own),
        };
        self.slots.clear();
        self.slots.extend(sources.iter().map(at));
        let port = |(slot, source): (usize, &SlotSource)| match *source {
            SlotSource::Port(port) => Some((slot, port)),
            _ => None,
        };
        self.late.clear();
        self.late.extend(sources.iter().enumerate().filter_map(port));
    }

    /// Sets the lengths of later runs. An error leaves the workspace unchanged.
    ///
    /// # Errors
    /// If lengths are out of bounds, a kernel cannot be built for these lengths, there is too little memory, or threads
    /// cannot be started.
    pub fn set_lengths(&mut self, loaded: &CpuLoaded, lengths: &[usize]) -> Result<(), BackendError> {
        let resolved = self.code.resolved(lengths)?;
        if let Some(resolved) = &resolved {
            // Slots point into the old blocks. So these are freed only after all new ones were allocated without an
            // error.
            let grown = |block: &Pages, bytes| (block.bytes() < bytes).then(|| Pages::try_new(bytes)).transpose();
            let thunks_own = grown(&self.thunks_own, resolved.own_bytes)?;
            let passing = grown(&self.passing, resolved.passing_bytes)?;
            if self.scratch < resolved.scratch {
                (self.workers, self.scratch) = (self.code.workers(resolved.scratch)?, resolved.scratch);
            }
            if let Some(block) = thunks_own {
                self.thunks_own = block;
            }
            if let Some(block) = passing {
                self.passing = block;
            }
        }
        self.resolved = resolved;
        self.lengths.clear();
        self.lengths.extend(lengths);
        let program: &Program = self.code.varying.program();
        for place in self.places.iter_mut().flatten().filter(|place| place.ty.varies()) {
            place.placement = placement(&place.ty, &program.lengths(lengths));
        }
        self.bind_constants(loaded);
        Ok(())
    }

    /// Returns the memory of a port.
    ///
    /// # Errors
    /// If the program has no port of this number.
    pub fn place(&mut self, port: Port) -> Result<&mut PortMemory, BackendError> {
        let (kind, what, n) = match port {
            Port::Input(n) => (0, "input", n),
            Port::Output(n) => (1, "output", n),
            Port::State(n) => (2, "state", n),
        };
        let count = self.places[kind].len();
        self.places[kind].get_mut(n).ok_or_else(|| {
            let problem = format!("cannot access it because the program has {count} {what}s, counted from 0");
            wrong(what, &n.to_string(), problem)
        })
    }

    /// Binds a buffer to a port; with `None`, restores the port's own memory. Returns the buffer that was bound before.
    ///
    /// # Errors
    /// If there is no such port, or the buffer has another size or is on another device.
    pub fn bind(
        &mut self,
        port: Port,
        buffer: Option<Box<dyn DeviceBuffer>>,
    ) -> Result<Option<Box<dyn DeviceBuffer>>, BackendError> {
        let place = self.place(port)?;
        let buffer = match buffer {
            Some(buffer) => {
                place.expect(buffer.bytes(), place.bytes)?;
                let buffer = (buffer as Box<dyn Any>).downcast::<CpuBuffer>();
                Some(buffer.map_err(|_| {
                    let why = "cannot bind the buffer because it is on another device; allocate one from this session";
                    place.wrong(why.into())
                })?)
            }
            None => None,
        };
        let bound = std::mem::replace(&mut place.bound, buffer);
        if let (None, Port::State(_), Some(before)) = (&place.bound, port, &bound) {
            place.own.fill(before.block().as_ref());
        }
        Ok(bound.map(|b| b as Box<dyn DeviceBuffer>))
    }

    /// Executes a run that reads and writes the memory of the ports. The memory of unwanted outputs stays unchanged if
    /// a buffer is bound.
    pub fn run(&mut self) -> Result<(), BackendError> {
        let wanted = |n: usize| self.wanted[n];
        for &(slot, port) in &self.late {
            self.slots[slot] = Pointer(match port {
                Port::Input(n) => self.places[0][n].memory().at(),
                Port::Output(n) if wanted(n) => self.places[1][n].memory().at(),
                Port::Output(n) => self.places[1][n].unwanted(),
                Port::State(n) => self.places[2][n].memory().at(),
            });
        }
        self.go(None)
    }

    /// Executes a run that reads the given inputs and writes the given outputs.
    ///
    /// # Errors
    /// If an input or output does not fit the program, or an index is out of range.
    pub fn execute(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        times: Option<&mut Vec<f64>>,
    ) -> Result<(), BackendError> {
        let [in_places, out_places, states] = &mut self.places;
        expect("input", inputs.len(), in_places.len())?;
        expect("output", outputs.len(), out_places.len())?;
        for (place, input) in in_places.iter_mut().zip(inputs) {
            if let Input::Host(bytes) = input {
                place.check(bytes.len())?;
                if !place.suits(bytes) {
                    place.placement.spread(bytes, place.own.as_mut());
                }
            }
        }
        for ((place, output), wanted) in out_places.iter().zip(outputs.iter()).zip(&mut self.wanted) {
            if let Output::Host(bytes) = output {
                place.check(bytes.len())?;
            }
            *wanted = !matches!(output, Output::Unwanted);
        }
        for &(slot, port) in &self.late {
            self.slots[slot] = Pointer(match port {
                Port::Input(n) => match inputs[n] {
                    Input::Host(bytes) if in_places[n].suits(bytes) => bytes.as_ptr().cast_mut(),
                    Input::Host(_) => in_places[n].own.at(),
                    Input::Port => in_places[n].memory().at(),
                },
                Port::Output(n) => match &mut outputs[n] {
                    Output::Host(bytes) if out_places[n].suits(bytes) => bytes.as_mut_ptr(),
                    Output::Host(_) => out_places[n].own.at(),
                    Output::Unwanted => out_places[n].unwanted(),
                    Output::Port => out_places[n].memory().at(),
                },
                Port::State(n) => states[n].memory().at(),
            });
        }
        self.go(times)?;
        for (place, output) in self.places[1].iter().zip(outputs) {
            if let Output::Host(bytes) = output
                && !place.suits(bytes)
            {
                place.placement.gather(place.own.as_ref(), bytes);
            }
        }
        Ok(())
    }

    fn go(&mut self, times: Option<&mut Vec<f64>>) -> Result<(), BackendError> {
        let (wanted, needed) = (&self.wanted, &self.code.needed);
        let all = wanted.iter().all(|wanted| *wanted);
        let wanted = |step: usize| all || needed[step].iter().zip(wanted).any(|(needed, wanted)| *needed && *wanted);
        let run = self.resolved.as_ref().map_or(&self.code.run, |resolved| &resolved.run);
        // SAFETY: the table was filled from the sources. The sizes of ports were checked, and their memory belongs to
        // this session or is borrowed for the run.
        unsafe { run.run(&self.slots, (&self.workers, &self.fault), wanted, times) }
    }
}

fn placement(ty: &Type, lengths: Lengths<'_>) -> Placement {
    Placement::new(ty, lengths).expect("all extents of a program have lengths")
}

#[cfg(test)]
mod tests {
    use eutectic_ir::Symbol;

    use super::*;
    use crate::{
        kernels::Way,
        machine::Machine,
        runtime::exec::{code::compile, known_lengths::Resolved, loaded::load, steps::BoundSteps},
    };

    /// More bytes than a process can map.
    const TOO_MANY: usize = 1 << 60;

    fn steps() -> BoundSteps {
        let sources = vec![SlotSource::Own(0), SlotSource::Own(64), SlotSource::Passing];
        BoundSteps { sources, ..BoundSteps::default() }
    }

    /// Returns a program without steps and with one extent. Its code for a length of 1 needs these bytes of memory.
    fn loaded(own_bytes: usize, passing_bytes: usize, scratch: usize) -> CpuLoaded {
        let extents = vec![Symbol { name: "n".into(), bounds: Some((1, 8)) }];
        let program = Program { extents, ..Program::default() };
        let mut code = compile(&program, &|_, _| Way::Plain, Machine::default()).expect("a program without steps");
        (code.run, code.own_bytes, code.passing_bytes) = (steps(), 128, 64);
        let short =
            |_: Option<&Resolved>| Ok(Resolved { lengths: vec![1], run: steps(), own_bytes, passing_bytes, scratch });
        code.varying.known.lock().expect("no other thread").get(&[1], short).expect("new lengths");
        load(Arc::new(code), &[]).expect("a program without parameters")
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri's allocator ends the process instead of failing")]
    fn lengths_for_which_memory_is_missing_leave_the_workspace_as_it_was() {
        let enough = 1 << 16;
        for (own, passing, scratch) in
            [(TOO_MANY, enough, enough), (enough, TOO_MANY, enough), (enough, enough, TOO_MANY)]
        {
            let loaded = loaded(own, passing, scratch);
            let mut work = Workspace::new(&loaded).expect("little memory");
            let error = work.set_lengths(&loaded, &[1]).expect_err("more memory than there is");
            assert!(matches!(error, BackendError::Memory(_)), "{error}");
            let now = work.slots.iter().map(|slot| slot.0).collect::<Vec<_>>();
            let own = work.thunks_own.at();
            assert_eq!(now, [own, own.wrapping_add(64), work.passing.at()], "slots point into freed blocks");
            assert_eq!(work.lengths, [8]);
            work.run().expect("runs of the lengths before");
        }
        let loaded = loaded(enough, enough, enough);
        let mut work = Workspace::new(&loaded).expect("little memory");
        work.set_lengths(&loaded, &[1]).expect("enough memory");
        assert_eq!(work.slots[0].0, work.thunks_own.at());
        assert_eq!((work.thunks_own.bytes(), work.passing.bytes(), work.scratch), (enough, enough, enough));
    }
}
