//! Compiled programs, their parameters, and the sessions that run them.
//!
//! Code is shared by all parameter sets ([`Executable`]), parameters by all sessions ([`Loaded`]); a [`Session`] owns what changes
//! from run to run: arena, states, and the memory of inputs and outputs.

use std::{any::Any, fmt, sync::Arc};

use eutectic_ir::Tensor;
use smallvec::SmallVec;

use crate::error::BackendError;

/// A compiled program, without parameters.
pub trait Executable: Send + Sync {
    /// Takes the parameters, in the order of [`Program::params`](crate::Program::params), and runs the load program. Parameters
    /// that runs do not read are let go.
    ///
    /// # Errors
    /// When a parameter's type is not the program's, or an index is out of range.
    fn load(self: Arc<Self>, params: &[Tensor]) -> Result<Arc<dyn Loaded>, BackendError>;
}

/// A program with its parameters: never changed, and shared by all of its sessions.
pub trait Loaded: Any + Send + Sync {
    /// The program with some parameters replaced, by number. Only what depends on them is computed anew; the rest is shared
    /// with this one, which stays as it is. What is computed anew may depend on other parameters too, which must be given
    /// again if they were let go.
    ///
    /// # Errors
    /// When a parameter's type is not the program's; every parameter that must be given again; or an index out of range.
    fn replace(self: Arc<Self>, params: &[(usize, Tensor)]) -> Result<Arc<dyn Loaded>, BackendError>;

    /// A session of its own state, which is all zeros.
    ///
    /// # Errors
    /// When the device has no memory left.
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>, BackendError>;

    /// Bytes on the device that all sessions share: parameters that runs read, and what was computed from parameters.
    fn bytes(&self) -> usize;
}

/// Something of a program that has memory in a session, by its number in the program's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// The `n`th of [`Program::inputs`](crate::Program::inputs).
    Input(usize),
    /// The `n`th of [`Program::outputs`](crate::Program::outputs).
    Output(usize),
    /// The `n`th of [`Program::states`](crate::Program::states).
    State(usize),
}

/// Where a run takes an input from.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// From these bytes: dense, row-major, little-endian.
    Host(&'a [u8]),
    /// From the memory of its port.
    Port,
}

/// Where a run leaves an output.
#[derive(Debug)]
pub enum Output<'a> {
    /// In these bytes: dense, row-major, little-endian.
    Host(&'a mut [u8]),
    /// In the memory of its port.
    Port,
    /// Nowhere. What only such outputs need is not computed.
    Unwanted,
}

/// One user of a loaded program: runs it, one run at a time, and keeps its states.
///
/// Each input, output and state has memory of its own in the session, unless a buffer is bound to it. What is in the own memory of an
/// input or output after a run from or into other bytes is not said. Whatever touches memory waits for a run that was submitted.
pub trait Session: Send {
    /// What it runs on.
    fn loaded(&self) -> Arc<dyn Loaded>;

    /// From now on runs on other parameters of the same executable; states stay.
    ///
    /// # Errors
    /// When they are those of another executable.
    fn adopt(&mut self, loaded: Arc<dyn Loaded>) -> Result<(), BackendError>;

    /// An independent session on the same parameters, whose states are copies of this one's. Nothing is bound to it.
    ///
    /// # Errors
    /// When the device has no memory left.
    fn fork(&mut self) -> Result<Box<dyn Session>, BackendError>;

    /// Memory for inputs, outputs and states, aligned as kernels like it, all zeros.
    ///
    /// # Errors
    /// When there is none left.
    fn buffer(&self, bytes: usize, memory: Memory) -> Result<Box<dyn DeviceBuffer>, BackendError>;

    /// Sets the lengths of the runs that follow, one for each of [`Program::extents`](crate::Program::extents) in their order; before,
    /// they are the most that they can be. What the host gives and takes is dense, of these lengths; the memory of ports stays as it
    /// is, laid out for the longest run.
    ///
    /// # Errors
    /// When their number is not the program's, one is out of bounds, or the backend cannot build a kernel of such lengths.
    fn set_lengths(&mut self, lengths: &[usize]) -> Result<(), BackendError> {
        let fixed = || BackendError::Device("programs of this backend have fixed extents".into());
        if lengths.is_empty() { Ok(()) } else { Err(fixed()) }
    }

    /// Makes a buffer the memory of a port, or gives the port its own memory back; returns the buffer that was bound. A state's
    /// contents are those of the buffer; without one, those that it had before.
    ///
    /// # Errors
    /// When there is no such port, or the buffer is of another device or not as large as the port.
    fn bind(
        &mut self,
        port: Port,
        buffer: Option<Box<dyn DeviceBuffer>>,
    ) -> Result<Option<Box<dyn DeviceBuffer>>, BackendError>;

    /// Writes a part of a port's memory, from byte `at` on.
    ///
    /// # Errors
    /// When there is no such port, or the part does not lie in it.
    fn write(&mut self, port: Port, at: usize, from: &[u8]) -> Result<(), BackendError>;

    /// Reads a part of a port's memory, from byte `at` on.
    ///
    /// # Errors
    /// When there is no such port, or the part does not lie in it; and what went wrong in the run that was submitted last.
    fn read(&mut self, port: Port, at: usize, to: &mut [u8]) -> Result<(), BackendError>;

    /// Runs once, and waits for it. Does not allocate, once it has run. `times` becomes the seconds of each step of the run
    /// program, in order.
    ///
    /// # Errors
    /// When the number or length of inputs or outputs is wrong, or an index read from a tensor is out of range. What states hold
    /// after the latter is not said.
    fn execute(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        times: Option<&mut Vec<f64>>,
    ) -> Result<(), BackendError>;

    /// Starts a run from and into the memory of the ports, and may return before it is done. `wanted` says of each output whether
    /// it is.
    ///
    /// # Errors
    /// When the number of outputs is wrong, or what went wrong in the run that was submitted before.
    fn submit(&mut self, wanted: &[bool]) -> Result<(), BackendError>;

    /// Waits for the run that was submitted last, if it was not waited for.
    ///
    /// # Errors
    /// What went wrong in it, as in [`Session::execute`].
    fn wait(&mut self) -> Result<(), BackendError>;

    /// Runs once, from and into the caller's bytes.
    ///
    /// # Errors
    /// As [`Session::execute`].
    fn run(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), BackendError> {
        self.execute(&host_inputs(inputs), &mut host_outputs(outputs), None)
    }

    /// As [`Session::run`]; gives the seconds of each step of the run program, in order.
    ///
    /// # Errors
    /// As [`Session::execute`].
    fn profile(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<Vec<f64>, BackendError> {
        let mut times = Vec::new();
        self.execute(&host_inputs(inputs), &mut host_outputs(outputs), Some(&mut times))?;
        Ok(times)
    }
}

/// So many inputs and outputs are listed without allocation.
const PORTS: usize = 16;

fn host_inputs<'a>(inputs: &[&'a [u8]]) -> SmallVec<[Input<'a>; PORTS]> {
    inputs.iter().map(|bytes| Input::Host(bytes)).collect()
}

fn host_outputs<'a>(outputs: &'a mut [&mut [u8]]) -> SmallVec<[Output<'a>; PORTS]> {
    outputs.iter_mut().map(|bytes| Output::Host(bytes)).collect()
}

/// Whose memory a [`DeviceBuffer`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The device's own. The host reads and writes it by copies.
    Device,
    /// The host's, where the device reaches it: aligned, and pinned where the device asks for that.
    Host,
}

/// Memory that programs read and write. It has one owner: whoever holds it, or the session that it is bound to.
pub trait DeviceBuffer: Any + Send + Sync {
    /// Its size.
    fn bytes(&self) -> usize;

    /// Its bytes, if the host reaches them: always in [`Memory::Host`].
    fn host(&self) -> Option<&[u8]>;

    /// See [`DeviceBuffer::host`].
    fn host_mut(&mut self) -> Option<&mut [u8]>;

    /// Copies bytes from it, from byte `at` on.
    ///
    /// # Errors
    /// When the part does not lie in it.
    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), BackendError>;

    /// Copies bytes to it, from byte `at` on.
    ///
    /// # Errors
    /// When the part does not lie in it.
    fn write(&mut self, at: usize, from: &[u8]) -> Result<(), BackendError>;
}

impl fmt::Debug for dyn DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({} bytes)", self.bytes())
    }
}
