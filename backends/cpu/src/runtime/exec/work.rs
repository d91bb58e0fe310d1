//! What runs work on: arena, states and the memory of ports, and the table of slots that they go through.

use std::{any::Any, sync::Arc};

use eutectic_backend::{
    BackendError, DeviceBuffer, Input, Output, Port, Program,
    extents::{Lengths, Placement},
};
use eutectic_ir::Type;

use super::{
    buffer::{CpuBuffer, pages},
    check::{expect, wrong},
    code::{Code, Resolved, SlotSource, dtype},
    loaded::CpuLoaded,
    pointer::Pointer,
};
use crate::runtime::{fault::IndexFault, memory::Pages, threads::Workers};

/// The memory of an input, output or state. Its own takes in bytes whose address kernels cannot take, too.
pub struct PortMemory {
    pub what: &'static str,
    pub name: String,
    ty: Type,
    /// Bytes of the longest tensor.
    bytes: usize,
    /// Where a dense tensor of the lengths of a run lies in it.
    placement: Placement,
    pub own: Pages,
    pub bound: Option<Box<CpuBuffer>>,
}

/// What runs work on.
pub struct Workspace {
    code: Arc<Code>,
    arena: Pages,
    thunks_own: Pages,
    passing: Pages,
    /// Of inputs, outputs and states.
    pub places: [Vec<PortMemory>; 3],
    slots: Vec<Pointer>,
    /// The slots of ports, which may be elsewhere in each run.
    late: Vec<(usize, Port)>,
    /// The outputs that a run wants, and as the last one the states.
    pub wanted: Vec<bool>,
    /// With so much scratch memory.
    workers: Workers,
    scratch: usize,
    fault: IndexFault,
    /// The lengths of runs, and the code for them, if they are not the longest.
    pub lengths: Vec<usize>,
    resolved: Option<Arc<Resolved>>,
}

impl PortMemory {
    fn new(what: &'static str, (name, ty): &(String, Type), lengths: Lengths<'_>) -> Result<PortMemory, BackendError> {
        let (name, placement, bytes) = (name.clone(), placement(ty, lengths), ty.bytes());
        Ok(PortMemory { what, name, ty: ty.clone(), bytes, placement, own: pages(bytes)?, bound: None })
    }

    /// Where it is now.
    pub fn memory(&self) -> &Pages {
        self.bound.as_ref().map_or(&self.own, |b| b.block())
    }

    /// Where a step that is needed otherwise stores what nobody wants.
    fn unwanted(&self) -> *mut u8 {
        self.own.at()
    }

    fn wrong(&self, problem: String) -> BackendError {
        wrong(self.what, &self.name, problem)
    }

    /// Whether what the host gives or takes has the size of a tensor of the lengths of runs.
    fn check(&self, got: usize) -> Result<(), BackendError> {
        self.expect(got, self.placement.bytes())
    }

    fn expect(&self, got: usize, bytes: usize) -> Result<(), BackendError> {
        if got == bytes { Ok(()) } else { Err(self.wrong(format!("{got} bytes given, {} is {bytes} bytes", self.ty))) }
    }

    /// Whether kernels can take what is in some bytes: they are aligned, and laid out as the longest tensor.
    fn suits(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.bytes && bytes.as_ptr().addr().is_multiple_of(dtype(&self.ty).size())
    }
}

impl Workspace {
    /// For a session of a loaded program.
    ///
    /// # Errors
    /// When there is not as much memory.
    pub fn new(loaded: &CpuLoaded) -> Result<Workspace, BackendError> {
        let code = loaded.code.clone();
        let lengths = code.varying.program().most();
        let list = |what, ports: &[(String, Type)]| {
            let at = code.varying.program().lengths(&lengths);
            ports.iter().map(|port| PortMemory::new(what, port, &at)).collect::<Result<Vec<_>, _>>()
        };
        let mut work = Workspace {
            arena: pages(code.arena_bytes)?,
            thunks_own: pages(code.own_bytes)?,
            passing: pages(code.passing_bytes)?,
            places: [list("input", &code.inputs)?, list("output", &code.outputs)?, list("state", &code.states)?],
            slots: Vec::new(),
            late: Vec::new(),
            wanted: vec![true; code.outputs.len() + 1],
            workers: Workers::new(code.pool.clone(), code.scratch),
            scratch: code.scratch,
            fault: IndexFault::default(),
            lengths,
            resolved: None,
            code,
        };
        work.bind_constants(loaded);
        Ok(work)
    }

    /// Fills the table of slots, ports aside.
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

    /// Has runs be of other lengths.
    ///
    /// # Errors
    /// When they are out of bounds, or there is no code for them.
    pub fn set_lengths(&mut self, loaded: &CpuLoaded, lengths: &[usize]) -> Result<(), BackendError> {
        let resolved = self.code.resolved(lengths)?;
        if let Some(resolved) = &resolved {
            let grow = |block: &mut Pages, bytes| {
                if block.bytes() < bytes {
                    *block = pages(bytes)?;
                }
                Ok::<(), BackendError>(())
            };
            grow(&mut self.thunks_own, resolved.own_bytes)?;
            grow(&mut self.passing, resolved.passing_bytes)?;
            if self.scratch < resolved.scratch {
                (self.workers, self.scratch) = (self.code.workers(resolved.scratch)?, resolved.scratch);
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

    /// What there is for a port.
    ///
    /// # Errors
    /// When the program has none of this number.
    pub fn place(&mut self, port: Port) -> Result<&mut PortMemory, BackendError> {
        let (kind, what, n) = match port {
            Port::Input(n) => (0, "input", n),
            Port::Output(n) => (1, "output", n),
            Port::State(n) => (2, "state", n),
        };
        let count = self.places[kind].len();
        self.places[kind]
            .get_mut(n)
            .ok_or_else(|| wrong(what, &n.to_string(), format!("the program has {count}, counted from 0")))
    }

    /// Gives a port the memory of a buffer, or its own again; returns the buffer that it had.
    ///
    /// # Errors
    /// When a buffer does not fit.
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
                Some(buffer.map_err(|_| place.wrong("a buffer of another device; ask this session for one".into()))?)
            }
            None => None,
        };
        let bound = std::mem::replace(&mut place.bound, buffer);
        if let (None, Port::State(_), Some(before)) = (&place.bound, port, &bound) {
            place.own.fill(before.block().as_ref());
        }
        Ok(bound.map(|b| b as Box<dyn DeviceBuffer>))
    }

    /// Runs from and into the memory of the ports. An output that is not wanted is not left in its memory.
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

    /// Runs from and into what is given.
    ///
    /// # Errors
    /// When something does not fit the program, or an index is out of range.
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
        // SAFETY: the table was filled from the sources; sizes of ports were checked, and they are this session's or lent to it.
        unsafe { run.run(&self.slots, (&self.workers, &self.fault), wanted, times) }
    }
}

fn placement(ty: &Type, lengths: Lengths<'_>) -> Placement {
    Placement::new(ty, lengths).expect("all extents of a program have lengths")
}
