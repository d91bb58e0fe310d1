//! Compiled programs, their parameters, and the sessions that run them.
//!
//! All sets of parameters share the code ([`Executable`]), and all sessions share the parameters ([`Loaded`]). A
//! [`Session`] owns the memory that runs change: arena, states, inputs and outputs.

use std::{any::Any, fmt, sync::Arc};

use eutectic_ir::Tensor;
use smallvec::SmallVec;

use crate::error::BackendError;

/// A compiled program, without parameters.
pub trait Executable: Send + Sync {
    /// Loads the parameters, in the order of [`Program::params`](crate::Program::params), and runs the load program.
    /// Frees parameters that runs do not read.
    ///
    /// # Errors
    /// If a parameter's type is not the program's, or an index is out of range.
    fn load(self: Arc<Self>, params: &[Tensor]) -> Result<Arc<dyn Loaded>, BackendError>;
}

/// A compiled program with its parameters. It never changes, and all of its sessions share it.
pub trait Loaded: Any + Send + Sync {
    /// Returns the program with some parameters replaced, by number. Only those results of the load program are
    /// recomputed that depend on them. All other memory is shared with this program, which stays unchanged. Recomputed
    /// results may also depend on other parameters. The caller must give these again if loading freed them.
    ///
    /// # Errors
    /// If a parameter's type is not the program's, if an index is out of range, or if parameters must be given again.
    /// The error names them.
    fn replace(self: Arc<Self>, params: &[(usize, Tensor)]) -> Result<Arc<dyn Loaded>, BackendError>;

    /// Returns a session with states of its own, which are initially zeros.
    ///
    /// # Errors
    /// If the device has too little free memory.
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>, BackendError>;

    /// Returns the bytes on the device that all sessions share: parameters that runs read, and results of the load
    /// program.
    fn bytes(&self) -> usize;
}

/// An input, output or state of a session, by its number in the program's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// The `n`th of [`Program::inputs`](crate::Program::inputs).
    Input(usize),
    /// The `n`th of [`Program::outputs`](crate::Program::outputs).
    Output(usize),
    /// The `n`th of [`Program::states`](crate::Program::states).
    State(usize),
}

/// The source of an input.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The given bytes: dense, row-major, little-endian.
    Host(&'a [u8]),
    /// The memory of the input's port.
    Port,
}

/// The destination of an output.
#[derive(Debug)]
pub enum Output<'a> {
    /// The given bytes: dense, row-major, little-endian.
    Host(&'a mut [u8]),
    /// The memory of the output's port.
    Port,
    /// None. A run skips steps that only unwanted outputs need.
    Unwanted,
}

/// One user of a loaded program, with states of its own. A session executes one run at a time.
///
/// Each input, output and state (a port) has memory in the session, unless a buffer is bound to it. If a run takes an
/// input from host bytes, or writes an output to host bytes, the port's own memory has unspecified contents afterwards.
/// Functions that access memory first wait for a submitted run.
pub trait Session: Send {
    /// Returns the loaded program.
    fn loaded(&self) -> Arc<dyn Loaded>;

    /// Switches later runs to other parameters of the same executable. States keep their contents.
    ///
    /// # Errors
    /// If the parameters are those of another executable.
    fn adopt(&mut self, loaded: Arc<dyn Loaded>) -> Result<(), BackendError>;

    /// Returns an independent session on the same parameters, with copies of this session's states. No buffers are
    /// bound to it.
    ///
    /// # Errors
    /// If the device has too little free memory.
    fn fork(&mut self) -> Result<Box<dyn Session>, BackendError>;

    /// Allocates memory for an input, output or state, aligned for kernels and filled with zeros.
    ///
    /// # Errors
    /// If there is too little free memory.
    fn buffer(&self, bytes: usize, memory: Memory) -> Result<Box<dyn DeviceBuffer>, BackendError>;

    /// Sets the extents of later runs, one for each of [`Program::extents`](crate::Program::extents) in their order.
    /// Initially they are the maximal ones. Host tensors are dense, with these extents. The memory of ports is laid out
    /// for the maximal extents, and keeps its contents.
    ///
    /// # Errors
    /// If the number of lengths is not the program's, one is out of bounds, or the backend cannot build a kernel of
    /// these lengths.
    fn set_lengths(&mut self, lengths: &[usize]) -> Result<(), BackendError> {
        let fixed = || {
            let why = "cannot set lengths because this backend's programs have fixed extents; pass no lengths";
            BackendError::Device(why.into())
        };
        if lengths.is_empty() { Ok(()) } else { Err(fixed()) }
    }

    /// Makes a buffer the memory of a port; with `None`, restores the port's own memory. Returns the buffer that was
    /// bound before. A state then has the contents of the buffer; with `None`, the contents of its own memory.
    ///
    /// # Errors
    /// If there is no such port, or if the buffer is of another device or differs in size from the port.
    fn bind(
        &mut self,
        port: Port,
        buffer: Option<Box<dyn DeviceBuffer>>,
    ) -> Result<Option<Box<dyn DeviceBuffer>>, BackendError>;

    /// Writes a part of a port's memory, from byte `at` on.
    ///
    /// # Errors
    /// If there is no such port, or the part exceeds its memory.
    fn write(&mut self, port: Port, at: usize, from: &[u8]) -> Result<(), BackendError>;

    /// Reads a part of a port's memory, from byte `at` on.
    ///
    /// # Errors
    /// If there is no such port, if the part exceeds its memory, or if the run that was submitted last failed.
    fn read(&mut self, port: Port, at: usize, to: &mut [u8]) -> Result<(), BackendError>;

    /// Executes one run and waits for it. Only the first run allocates memory. `times` receives the seconds of each
    /// step of the run program, in order.
    ///
    /// # Errors
    /// If the number or length of inputs or outputs is wrong, or an index read from a tensor is out of range. After an
    /// index out of range, the contents of states are unspecified.
    fn execute(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        times: Option<&mut Vec<f64>>,
    ) -> Result<(), BackendError>;

    /// Starts a run that reads and writes the memory of the ports, and may return before the run is done. `wanted` has,
    /// for each output, whether it is needed.
    ///
    /// # Errors
    /// If the number of outputs is wrong, or the run that was submitted before failed.
    fn submit(&mut self, wanted: &[bool]) -> Result<(), BackendError>;

    /// Waits for the run that was submitted last.
    ///
    /// # Errors
    /// If that run failed, as in [`Session::execute`].
    fn wait(&mut self) -> Result<(), BackendError>;

    /// Executes one run that reads inputs from the caller's bytes and writes outputs to the caller's bytes.
    ///
    /// # Errors
    /// As [`Session::execute`].
    fn run(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), BackendError> {
        self.execute(&host_inputs(inputs), &mut host_outputs(outputs), None)
    }

    /// Executes one run like [`Session::run`], and returns the seconds of each step of the run program, in order.
    ///
    /// # Errors
    /// As [`Session::execute`].
    fn profile(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<Vec<f64>, BackendError> {
        let mut times = Vec::new();
        self.execute(&host_inputs(inputs), &mut host_outputs(outputs), Some(&mut times))?;
        Ok(times)
    }
}

/// The number of inputs or outputs up to which [`Session::run`] does not allocate for their list.
const PORTS: usize = 16;

fn host_inputs<'a>(inputs: &[&'a [u8]]) -> SmallVec<[Input<'a>; PORTS]> {
    inputs.iter().map(|bytes| Input::Host(bytes)).collect()
}

fn host_outputs<'a>(outputs: &'a mut [&mut [u8]]) -> SmallVec<[Output<'a>; PORTS]> {
    outputs.iter_mut().map(|bytes| Output::Host(bytes)).collect()
}

/// The kind of memory of a [`DeviceBuffer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Memory of the device. The host reads and writes it by copies.
    Device,
    /// Host memory that the device can access: aligned, and pinned if the device requires it.
    Host,
}

/// Memory that programs read and write. One owner has it: the caller, or the session to which it is bound.
pub trait DeviceBuffer: Any + Send + Sync {
    /// Returns the buffer's size in bytes.
    fn bytes(&self) -> usize;

    /// Returns the buffer's bytes if the host can access them directly; always `Some` for [`Memory::Host`].
    fn host(&self) -> Option<&[u8]>;

    /// Returns [`DeviceBuffer::host`], mutable.
    fn host_mut(&mut self) -> Option<&mut [u8]>;

    /// Copies bytes out of the buffer, from byte `at` on.
    ///
    /// # Errors
    /// If the range exceeds the buffer.
    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), BackendError>;

    /// Copies bytes into the buffer, from byte `at` on.
    ///
    /// # Errors
    /// If the range exceeds the buffer.
    fn write(&mut self, at: usize, from: &[u8]) -> Result<(), BackendError>;
}

impl fmt::Debug for dyn DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({} bytes)", self.bytes())
    }
}
