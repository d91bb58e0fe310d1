//! Accesses the memory of a session's inputs, outputs and states: binds buffers, reads and writes parts of tensors, and
//! starts asynchronous runs.

use std::ops::Range;

use eutectic_backend::{DeviceBuffer, Input, Memory, Output, Port, extents::Placement};
use eutectic_ir::{Tensor, Type};

use crate::{
    Error, Session,
    loaded::position,
    session::{check, tensor, zeros},
};

impl Session {
    /// Returns the input with this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn input(&self, name: &str) -> Result<Port, Error> {
        position("input", names(&self.program().inputs), name).map(Port::Input)
    }

    /// Returns the output with this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn output(&self, name: &str) -> Result<Port, Error> {
        position("output", names(&self.program().outputs), name).map(Port::Output)
    }

    /// Returns the state with this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn state(&self, name: &str) -> Result<Port, Error> {
        position("state", names(&self.program().states), name).map(Port::State)
    }

    /// Allocates memory for inputs, outputs or states, aligned for kernels and filled with zeros.
    ///
    /// # Errors
    /// If parameters were not loaded, or the device has too little free memory.
    pub fn buffer(&mut self, bytes: usize, memory: Memory) -> Result<Box<dyn DeviceBuffer>, Error> {
        Ok(self.running()?.session.buffer(bytes, memory)?)
    }

    /// Returns the tensor in [`Memory::Host`], where runs may read it faster than in its current memory.
    ///
    /// # Errors
    /// If parameters were not loaded, or the device has too little free memory.
    pub fn placed(&mut self, value: &Tensor) -> Result<Tensor, Error> {
        let mut buffer = self.buffer(value.bytes().len(), Memory::Host)?;
        buffer.write(0, value.bytes())?;
        Ok(Tensor::new(value.dtype(), value.dims(), HostBuffer(buffer)).expect("the buffer has the size of the tensor"))
    }

    /// Makes a buffer the memory of a port, or with `None` restores the port's own memory. Returns the buffer that was
    /// bound. A state takes the contents of the new buffer. A state whose own memory is restored has the contents that
    /// it had before the buffer was bound.
    ///
    /// # Errors
    /// If the buffer is of another device or differs in size from the port.
    pub fn bind(
        &mut self,
        port: Port,
        buffer: Option<Box<dyn DeviceBuffer>>,
    ) -> Result<Option<Box<dyn DeviceBuffer>>, Error> {
        Ok(self.running()?.session.bind(port, buffer)?)
    }

    /// Returns the contents of a port's memory, with the lengths of this session's runs.
    ///
    /// # Errors
    /// If the run that was submitted last failed.
    pub fn read(&mut self, port: Port) -> Result<Tensor, Error> {
        let (ty, place) = self.placed_at(port)?;
        let mut bytes = zeros(&ty)?;
        let session = &mut self.running()?.session;
        for (memory, dense) in place.chunks() {
            session.read(port, memory.start, &mut bytes[dense])?;
        }
        Ok(tensor(&ty, bytes))
    }

    /// Writes a port's memory.
    ///
    /// # Errors
    /// When the tensor is not of the port's type.
    pub fn write(&mut self, port: Port, value: &Tensor) -> Result<(), Error> {
        let (ty, place) = self.placed_at(port)?;
        let (what, (name, _)) = self.port(port)?;
        check(what, &[(name.clone(), ty)], std::slice::from_ref(value))?;
        let session = &mut self.running()?.session;
        for (memory, dense) in place.chunks() {
            session.write(port, memory.start, &value.bytes()[dense])?;
        }
        Ok(())
    }

    /// Returns a port's type at the lengths of this session, and the placement of such a tensor in its memory.
    fn placed_at(&mut self, port: Port) -> Result<(Type, Placement), Error> {
        let (program, ty) = (self.program.clone(), self.port(port)?.1.1.clone());
        let running = self.running()?;
        let place = Placement::new(&ty, &program.lengths(&running.lengths)).expect("all extents have lengths");
        Ok((running.at(&program, &ty), place))
    }

    /// Fills a port's memory with zeros, the initial value of states.
    ///
    /// # Errors
    /// If parameters were not loaded.
    pub fn clear(&mut self, port: Port) -> Result<(), Error> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let bytes = self.port(port)?.1.1.bytes();
        let session = &mut self.running()?.session;
        for at in (0..bytes).step_by(ZEROS.len()) {
            session.write(port, at, &ZEROS[..ZEROS.len().min(bytes - at)])?;
        }
        Ok(())
    }

    /// Returns some rows, along an axis, of a port's memory. Axes with run-time extents have their largest extents.
    ///
    /// # Errors
    /// See [`Session::read`]. In addition, if there are no such rows.
    pub fn read_rows(&mut self, port: Port, axis: usize, rows: Range<usize>) -> Result<Tensor, Error> {
        let part = self.rows(port, axis, rows)?;
        let mut bytes = zeros(&part.ty)?;
        let session = &mut self.running()?.session;
        for (outer, chunk) in bytes.chunks_exact_mut(part.chunk.max(1)).enumerate() {
            session.read(port, part.from + outer * part.stride, chunk)?;
        }
        Ok(tensor(&part.ty, bytes))
    }

    /// Writes rows along an axis of a port's memory, starting at row `from`. Other rows do not change. See
    /// [`Session::read_rows`] for axes with run-time extents.
    ///
    /// # Errors
    /// If the tensor's type does not match the written rows, or the rows exceed the axis.
    pub fn write_rows(&mut self, port: Port, axis: usize, from: usize, value: &Tensor) -> Result<(), Error> {
        let count = value.dims().get(axis).copied().unwrap_or(0);
        let part = self.rows(port, axis, from..from.saturating_add(count))?;
        let (what, (name, _)) = self.port(port)?;
        check(what, &[(name.clone(), part.ty)], std::slice::from_ref(value))?;
        let session = &mut self.running()?.session;
        for (outer, chunk) in value.bytes().chunks_exact(part.chunk.max(1)).enumerate() {
            session.write(port, part.from + outer * part.stride, chunk)?;
        }
        Ok(())
    }

    /// Starts a run that reads and writes the memory of the ports. It computes the outputs with these names. It may
    /// return before the run ends.
    ///
    /// # Errors
    /// If there is no such output, parameters were not loaded, or the previously submitted run failed.
    pub fn submit(&mut self, outputs: &[&str]) -> Result<(), Error> {
        let mut wanted = vec![false; self.program().outputs.len()];
        for name in outputs {
            wanted[position("output", names(&self.program().outputs), name)?] = true;
        }
        Ok(self.running()?.session.submit(&wanted)?)
    }

    /// Waits for the last submitted run.
    ///
    /// # Errors
    /// The error of that run.
    pub fn wait(&mut self) -> Result<(), Error> {
        Ok(self.running()?.session.wait()?)
    }

    /// Runs once like [`Session::run`], but computes and returns only the outputs of these names, in this order.
    ///
    /// # Errors
    /// See [`Session::run`]. In addition, if there is no such output.
    pub fn run_some(&mut self, inputs: &[Tensor], outputs: &[&str]) -> Result<Vec<Tensor>, Error> {
        let types = self.fit(inputs)?;
        let number = |name: &&str| position("output", names(&self.program().outputs), name);
        let wanted: Vec<usize> = outputs.iter().map(number).collect::<Result<_, _>>()?;
        let bytes = |n: usize| if wanted.contains(&n) { zeros(&types[n]) } else { Ok(Vec::new()) };
        let mut results: Vec<Vec<u8>> = (0..types.len()).map(bytes).collect::<Result<_, _>>()?;
        let given: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
        let places = results.iter_mut().enumerate();
        self.run_some_into(&given, places.map(|(n, bytes)| wanted.contains(&n).then_some(bytes.as_mut_slice())))?;
        Ok(wanted.iter().map(|&n| tensor(&types[n], results[n].clone())).collect())
    }

    /// Runs once like [`Session::run_into`], but computes only the outputs that receive bytes.
    ///
    /// # Errors
    /// See [`Session::run_into`].
    pub fn run_some_into<'o>(
        &mut self,
        inputs: &[&[u8]],
        outputs: impl IntoIterator<Item = Option<&'o mut [u8]>>,
    ) -> Result<(), Error> {
        let given: Vec<_> = inputs.iter().map(|bytes| Input::Host(bytes)).collect();
        let mut places: Vec<_> =
            outputs.into_iter().map(|bytes| bytes.map_or(Output::Unwanted, Output::Host)).collect();
        Ok(self.running()?.session.execute(&given, &mut places, None)?)
    }

    /// Returns the kind of a port, with its name and its type.
    fn port(&self, port: Port) -> Result<(&'static str, &(String, Type)), Error> {
        let program = self.program();
        let (what, list, n) = match port {
            Port::Input(n) => ("input", &program.inputs, n),
            Port::Output(n) => ("output", &program.outputs, n),
            Port::State(n) => ("state", &program.states, n),
        };
        let missing = || {
            let count = list.len();
            let problem = format!("{what} index {n} is out of range; the program has {count} {what}s, counted from 0");
            Error::Arguments(vec![problem])
        };
        Ok((what, list.get(n).ok_or_else(missing)?))
    }

    fn rows(&self, port: Port, axis: usize, rows: Range<usize>) -> Result<AxisRows, Error> {
        let (what, (name, ty)) = self.port(port)?;
        let (dtype, mut dims) = ty.dtype().zip(ty.capacity()).expect("ports are tensors whose dims have bounds");
        let Some(extent) = dims.get(axis).copied().filter(|&n| rows.start <= rows.end && rows.end <= n) else {
            let problem = format!("{what} `{name}` of type {ty} has no rows {rows:?} along axis {axis}");
            return Err(Error::Arguments(vec![problem]));
        };
        let row = dims[axis + 1..].iter().product::<usize>() * dtype.size();
        dims[axis] = rows.len();
        Ok(AxisRows {
            ty: Type::tensor(dtype, &dims),
            from: rows.start * row,
            chunk: rows.len() * row,
            stride: extent * row,
        })
    }
}

/// A buffer that the host can access.
struct HostBuffer(Box<dyn DeviceBuffer>);

impl AsRef<[u8]> for HostBuffer {
    fn as_ref(&self) -> &[u8] {
        self.0.host().unwrap_or_default()
    }
}

/// Rows along an axis of a contiguous tensor: chunks of bytes at a constant stride.
struct AxisRows {
    ty: Type,
    from: usize,
    chunk: usize,
    stride: usize,
}

fn names(list: &[(String, Type)]) -> impl Iterator<Item = &str> + Clone {
    list.iter().map(|(name, _)| name.as_str())
}
