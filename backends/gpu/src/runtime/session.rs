//! Sessions: the arena, the states and the memory of ports. The launches of a run are recorded once per combination of
//! outputs and bindings.

use std::{any::Any, sync::Arc};

use eutectic_backend::{
    BackendError, DeviceBuffer, Input, Loaded, Memory, Output, Port, Program, Session, extents::Placement,
};
use eutectic_ir::Type;

use super::{
    buffer::BoundBuffer,
    code::{Barriers, Code, FAULT_BYTES, RunMemory, SlotSource},
    errors::{expect, part, wrong},
    loaded::GpuLoaded,
};
use crate::device::{Device, DeviceMemory, Stream};

/// The number of recordings that are kept. They differ in the requested outputs and in the bound memory.
const RECORDED: usize = 8;

/// The memory of an input, output or state.
struct PortMemory<D: Device> {
    what: &'static str,
    name: String,
    ty: Type,
    /// The placement of the tensor in the port's memory, at the current lengths.
    placement: Placement,
    own: D::Block,
    bound: Option<Box<BoundBuffer<D>>>,
}

/// Identifies a recording: the requested outputs and the addresses of all ports.
#[derive(Clone, Default, PartialEq, Eq)]
struct RunKey {
    wanted: Vec<bool>,
    ports: [Vec<u64>; 3],
}

/// A session.
pub struct GpuSession<D: Device> {
    loaded: Arc<GpuLoaded<D>>,
    stream: D::Stream,
    arena: D::Block,
    workspace: D::Block,
    fault: D::Block,
    lengths: Vec<usize>,
    /// The buffer from which kernels read the lengths.
    told: D::Block,
    /// Staging memory for values whose layout differs between device and host.
    staged: Vec<u8>,
    /// The memory of inputs, outputs and states.
    places: [Vec<PortMemory<D>>; 3],
    way: RunKey,
    recorded: Vec<(RunKey, <D::Stream as Stream>::Graph)>,
    /// Whether a run was submitted and has not been waited for.
    running: bool,
}

impl<D: Device> PortMemory<D> {
    fn new(
        code: &Code<D>,
        what: &'static str,
        (name, ty): &(String, Type),
        lengths: &[usize],
    ) -> Result<PortMemory<D>, BackendError> {
        let own = code.device.allocate(ty.bytes(), Memory::Device)?;
        Ok(PortMemory {
            what,
            name: name.clone(),
            ty: ty.clone(),
            placement: placed(code, ty, lengths),
            own,
            bound: None,
        })
    }

    fn at(&self) -> u64 {
        self.bound.as_ref().map_or(&self.own, |b| b.block()).address()
    }

    fn wrong(&self, problem: String) -> BackendError {
        wrong(self.what, &self.name, problem)
    }

    /// Checks that a host buffer has the size of the tensor at the current lengths.
    fn check(&self, got: usize) -> Result<(), BackendError> {
        self.expect(got, self.placement.bytes())
    }

    fn expect(&self, got: usize, bytes: usize) -> Result<(), BackendError> {
        let problem = || format!("cannot take {got} bytes because {} has {bytes} bytes", self.ty);
        if got == bytes { Ok(()) } else { Err(self.wrong(problem())) }
    }
}

/// Returns the placement of a tensor in a port's memory, for runs of some lengths.
fn placed<D: Device>(code: &Code<D>, ty: &Type, lengths: &[usize]) -> Placement {
    let placement = match &code.varying {
        Some(program) => Placement::new(ty, &program.lengths(lengths)),
        None => Placement::new(ty, &|_| None),
    };
    placement.expect("the program defines each extent of its ports")
}

impl<D: Device> GpuSession<D> {
    pub fn new(loaded: Arc<GpuLoaded<D>>) -> Result<GpuSession<D>, BackendError> {
        let code = &loaded.code;
        let device = &*code.device;
        let lengths = code.most();
        let list = |what, ports: &[(String, Type)]| -> Result<Vec<_>, BackendError> {
            ports.iter().map(|port| PortMemory::new(code, what, port, &lengths)).collect()
        };
        let mut stream = device.stream()?;
        let bytes = code.lengths_of(&lengths);
        let told = device.allocate(bytes.len(), Memory::Device)?;
        stream.upload(told.address(), &bytes)?;
        let places = [list("input", &code.inputs)?, list("output", &code.outputs)?, list("state", &code.states)?];
        Ok(GpuSession {
            stream,
            lengths,
            told,
            staged: Vec::new(),
            arena: device.allocate(code.arena_bytes, Memory::Device)?,
            workspace: device.allocate(code.workspace, Memory::Device)?,
            fault: device.allocate(FAULT_BYTES, Memory::Device)?,
            places,
            way: RunKey::default(),
            recorded: Vec::new(),
            running: false,
            loaded,
        })
    }

    fn place(&mut self, port: Port) -> Result<&mut PortMemory<D>, BackendError> {
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

    /// Enqueues a run. It replays a recording if the device supports recording.
    fn go(&mut self) -> Result<(), BackendError> {
        if self.stream.records() {
            let at = self.recording()?;
            self.running = true;
            self.stream.replay(&self.recorded[at].1)?;
        } else {
            self.running = true;
            self.launch_all(None)?;
        }
        let code: &Code<D> = &self.loaded.code;
        if code.faults { self.stream.announce(self.fault.address(), FAULT_BYTES) } else { Ok(()) }
    }

    /// Returns the number of the recording for this run. Makes a new one if there is none.
    fn recording(&mut self) -> Result<usize, BackendError> {
        if let Some(at) = self.recorded.iter().position(|(way, _)| *way == self.way) {
            return Ok(at);
        }
        self.stream.begin()?;
        let launched = self.launch_all(None);
        let graph = self.stream.end();
        launched?;
        if self.recorded.len() == RECORDED {
            self.recorded.remove(0);
        }
        self.recorded.push((self.way.clone(), graph?));
        Ok(self.recorded.len() - 1)
    }

    /// Puts the wanted steps into the stream. If `times` is given, waits and appends the seconds of each step.
    fn launch_all(&mut self, times: Option<&mut Vec<f64>>) -> Result<(), BackendError> {
        let GpuSession { loaded, stream, arena, workspace, fault, way, told, .. } = self;
        let code = &loaded.code;
        let all = way.wanted.iter().all(|wanted| *wanted);
        let at = |source: SlotSource| match source {
            SlotSource::Arena(at) => arena.address() + at as u64,
            SlotSource::Lengths(at) => told.address() + at as u64,
            SlotSource::Port(Port::Input(n)) => way.ports[0][n],
            SlotSource::Port(Port::Output(n)) => way.ports[1][n],
            SlotSource::Port(Port::State(n)) => way.ports[2][n],
            source => loaded.at(source),
        };
        let memory = RunMemory { workspace: workspace.address(), fault: fault.address() };
        let mut barriers = Barriers::default();
        for step in code.run.iter().enumerate() {
            let needed = || code.needed[step.0].iter().zip(&way.wanted).any(|(needed, wanted)| *needed && *wanted);
            if times.is_some() {
                stream.note(step.0)?;
            }
            if all || needed() {
                barriers.before(stream, step.0, &code.waits[1])?;
                code.launch(stream, step, at, memory)?;
            }
        }
        if let Some(times) = times {
            stream.note(code.run.len())?;
            stream.wait()?;
            for n in 0..code.run.len() {
                times.push(stream.seconds(n, n + 1)?);
            }
        }
        Ok(())
    }

    /// Waits for the stream, and checks for faults.
    fn finish(&mut self) -> Result<(), BackendError> {
        self.running = false;
        self.stream.wait()?;
        let code: &Code<D> = &self.loaded.code;
        if code.faults { code.check(&mut self.stream, &self.fault, &code.run, &self.lengths) } else { Ok(()) }
    }
}

impl<D: Device> Session for GpuSession<D> {
    fn loaded(&self) -> Arc<dyn Loaded> {
        self.loaded.clone()
    }

    fn adopt(&mut self, loaded: Arc<dyn Loaded>) -> Result<(), BackendError> {
        let other = "cannot use these parameters because they belong to another program; use the result of `replace` \
                     on the parameters of this session";
        let loaded = (loaded as Arc<dyn Any + Send + Sync>).downcast::<GpuLoaded<D>>().ok();
        let loaded = loaded.filter(|loaded| Arc::ptr_eq(&loaded.code, &self.loaded.code));
        let loaded = loaded.ok_or_else(|| wrong("parameter", "*", other.into()))?;
        self.stream.wait()?;
        self.recorded.clear();
        self.loaded = loaded;
        Ok(())
    }

    fn fork(&mut self) -> Result<Box<dyn Session>, BackendError> {
        let mut twin = GpuSession::new(self.loaded.clone())?;
        twin.set_lengths(&self.lengths)?;
        self.stream.wait()?;
        for (from, to) in self.places[2].iter().zip(&twin.places[2]) {
            twin.stream.copy(from.at(), to.at(), from.ty.bytes())?;
        }
        Ok(Box::new(twin))
    }

    fn buffer(&self, bytes: usize, memory: Memory) -> Result<Box<dyn DeviceBuffer>, BackendError> {
        Ok(Box::new(BoundBuffer::new(&self.loaded.code.device, bytes, memory)?))
    }

    fn set_lengths(&mut self, lengths: &[usize]) -> Result<(), BackendError> {
        let code = self.loaded.code.clone();
        let program = match &code.varying {
            Some(program) => program,
            None => return Program::default().check_lengths(lengths),
        };
        program.check_lengths(lengths)?;
        self.wait()?;
        self.stream.upload(self.told.address(), &code.lengths_of(lengths))?;
        self.lengths.clear();
        self.lengths.extend(lengths);
        for place in self.places.iter_mut().flatten().filter(|place| place.ty.varies()) {
            place.placement = placed(&code, &place.ty, lengths);
        }
        Ok(())
    }

    fn bind(
        &mut self,
        port: Port,
        buffer: Option<Box<dyn DeviceBuffer>>,
    ) -> Result<Option<Box<dyn DeviceBuffer>>, BackendError> {
        self.stream.wait()?;
        let device = self.loaded.code.device.clone();
        let place = self.place(port)?;
        let buffer = match buffer {
            Some(buffer) => {
                place.expect(buffer.bytes(), place.ty.bytes())?;
                let buffer = (buffer as Box<dyn Any>).downcast::<BoundBuffer<D>>().ok().filter(|b| b.is_of(&device));
                Some(buffer.ok_or_else(|| {
                    let why = "cannot bind the buffer because it is on another device; allocate one from this session";
                    place.wrong(why.into())
                })?)
            }
            None => None,
        };
        let bound = std::mem::replace(&mut place.bound, buffer);
        let (to, bytes, now) = (place.own.address(), place.ty.bytes(), place.bound.is_some());
        if let (false, Port::State(_), Some(before)) = (now, port, &bound) {
            self.stream.copy(before.block().address(), to, bytes)?;
            self.stream.wait()?;
        }
        Ok(bound.map(|b| b as Box<dyn DeviceBuffer>))
    }

    fn write(&mut self, port: Port, at: usize, from: &[u8]) -> Result<(), BackendError> {
        let place = self.place(port)?;
        part(place.what, &place.name, at, from.len(), place.ty.bytes())?;
        let to = place.at() + at as u64;
        self.stream.upload(to, from)
    }

    fn read(&mut self, port: Port, at: usize, to: &mut [u8]) -> Result<(), BackendError> {
        self.wait()?;
        let place = self.place(port)?;
        part(place.what, &place.name, at, to.len(), place.ty.bytes())?;
        let from = place.at() + at as u64;
        self.stream.download(from, to)
    }

    fn execute(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        times: Option<&mut Vec<f64>>,
    ) -> Result<(), BackendError> {
        self.wait()?;
        expect("input", inputs.len(), self.places[0].len())?;
        expect("output", outputs.len(), self.places[1].len())?;
        for (place, input) in self.places[0].iter().zip(inputs) {
            if let Input::Host(bytes) = input {
                place.check(bytes.len())?;
                if place.placement.is_dense() {
                    self.stream.upload(place.own.address(), bytes)?;
                } else {
                    self.staged.resize(place.ty.bytes(), 0);
                    place.placement.spread(bytes, &mut self.staged);
                    self.stream.upload(place.own.address(), &self.staged)?;
                }
            }
        }
        for (place, output) in self.places[1].iter().zip(outputs.iter()) {
            if let Output::Host(bytes) = output {
                place.check(bytes.len())?;
            }
        }
        // Transfers between host and device use the port's own memory, even if a buffer is bound.
        let [of_inputs, of_outputs, of_states] = &self.places;
        let own = |place: &PortMemory<D>, port: bool| if port { place.at() } else { place.own.address() };
        self.way.wanted.clear();
        self.way.wanted.extend(outputs.iter().map(|output| !matches!(output, Output::Unwanted)).chain([true]));
        self.way.ports.iter_mut().for_each(Vec::clear);
        let inputs = of_inputs.iter().zip(inputs).map(|(place, input)| own(place, matches!(input, Input::Port)));
        self.way.ports[0].extend(inputs);
        let placed = of_outputs.iter().zip(outputs.iter()).map(|(place, o)| own(place, matches!(o, Output::Port)));
        self.way.ports[1].extend(placed);
        self.way.ports[2].extend(of_states.iter().map(PortMemory::at));
        match times {
            Some(times) => self.launch_all(Some(times))?,
            None => self.go()?,
        }
        for (place, output) in self.places[1].iter().zip(outputs.iter()) {
            if let Output::Host(bytes) = output {
                self.stream.announce(place.own.address(), bytes.len())?;
            }
        }
        self.finish()?;
        for (place, output) in self.places[1].iter().zip(outputs) {
            if let Output::Host(bytes) = output {
                if place.placement.is_dense() {
                    self.stream.download(place.own.address(), bytes)?;
                } else {
                    self.staged.resize(place.ty.bytes(), 0);
                    self.stream.download(place.own.address(), &mut self.staged)?;
                    place.placement.gather(&self.staged, bytes);
                }
            }
        }
        Ok(())
    }

    fn submit(&mut self, wanted: &[bool]) -> Result<(), BackendError> {
        self.wait()?;
        expect("output", wanted.len(), self.places[1].len())?;
        self.way.wanted.clear();
        self.way.wanted.extend(wanted.iter().copied().chain([true]));
        self.way.ports.iter_mut().for_each(Vec::clear);
        for ((ports, places), kind) in self.way.ports.iter_mut().zip(&self.places).zip(0..) {
            let at = |(n, place): (usize, &PortMemory<D>)| match kind == 1 && !wanted[n] {
                true => place.own.address(),
                false => place.at(),
            };
            ports.extend(places.iter().enumerate().map(at));
        }
        self.go()?;
        self.stream.start()
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        if self.running { self.finish() } else { Ok(()) }
    }
}

impl<D: Device> Drop for GpuSession<D> {
    /// Waits until the stream no longer uses the memory that is freed next.
    fn drop(&mut self) {
        let _ = self.stream.wait();
    }
}
