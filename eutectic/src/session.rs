//! Runs a compiled program with its parameters, in sessions.

use std::sync::Arc;

use eutectic_backend::{BackendError, Executable, Program};
use eutectic_ir::{Tensor, Type};

use crate::{Error, Loaded};

/// A compiled program with memory for its runs. It is `Send`, reusable, and does not allocate after its first run.
///
/// Sessions of one [`Loaded`] program share its parameters. Each has its own states and its own memory for inputs and
/// outputs.
pub struct Session {
    pub(crate) program: Arc<Program>,
    executable: Arc<dyn Executable>,
    running: Option<Running>,
}

/// A session that has parameters.
pub(crate) struct Running {
    pub(crate) loaded: Loaded,
    pub(crate) session: Box<dyn eutectic_backend::Session>,
    /// The lengths of [`Program::extents`].
    pub(crate) lengths: Vec<usize>,
}

impl Loaded {
    /// Opens a session. Its states are zeros.
    ///
    /// # Errors
    /// If the device has too little free memory.
    pub fn session(&self) -> Result<Session, Error> {
        Ok(Session::on(self.clone(), self.parameters.clone().session()?))
    }
}

impl Session {
    pub(crate) fn new(program: Program, executable: Arc<dyn Executable>) -> Session {
        Session { program: Arc::new(program), executable, running: None }
    }

    pub(crate) fn on(loaded: Loaded, session: Box<dyn eutectic_backend::Session>) -> Session {
        let (program, executable) = (loaded.program.clone(), loaded.executable.clone());
        let lengths = program.most();
        Session { program, executable, running: Some(Running { loaded, session, lengths }) }
    }

    /// Returns the program, for reports.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Loads the parameters, in the order of [`Program::params`], and runs the load program. States do not change. A
    /// program without parameters needs no call: its first run loads it.
    ///
    /// # Errors
    /// If their number or types differ from the program's.
    pub fn load(&mut self, params: &[Tensor]) -> Result<(), Error> {
        check("parameter", &self.program.params, params)?;
        let parameters = self.executable.clone().load(params)?;
        let (program, executable) = (self.program.clone(), self.executable.clone());
        let loaded = Loaded { program, executable, parameters };
        if self.running.is_some() {
            return self.adopt(&loaded);
        }
        *self = loaded.session()?;
        Ok(())
    }

    /// Loads the parameters by name, as [`Session::load`] does.
    ///
    /// # Errors
    /// See [`Session::load`]. In addition, every parameter that has no value.
    pub fn load_named(&mut self, value: impl Fn(&str) -> Option<Tensor>) -> Result<(), Error> {
        self.load(&named("parameter", &self.program.params, value)?)
    }

    /// Returns the loaded program, for more sessions.
    ///
    /// # Errors
    /// If parameters were not loaded.
    pub fn loaded(&self) -> Result<&Loaded, Error> {
        self.running.as_ref().map(|r| &r.loaded).ok_or_else(|| not_loaded(&self.program))
    }

    /// Replaces all parameters by those of another load of the same compiled program. States do not change.
    ///
    /// # Errors
    /// If parameters were not loaded, or the given ones belong to another program.
    pub fn adopt(&mut self, loaded: &Loaded) -> Result<(), Error> {
        let running = self.running()?;
        running.session.adopt(loaded.parameters.clone())?;
        running.loaded = loaded.clone();
        Ok(())
    }

    /// Replaces some parameters by name, for this session; see [`Loaded::replace`]. States do not change.
    ///
    /// # Errors
    /// See [`Loaded::replace`].
    pub fn replace(&mut self, parameters: &[(&str, Tensor)]) -> Result<(), Error> {
        let loaded = self.loaded()?.replace(parameters)?;
        self.adopt(&loaded)
    }

    /// Returns an independent session on the same parameters. Its states are copies of this session's.
    ///
    /// # Errors
    /// If parameters were not loaded, or the device has too little free memory.
    pub fn fork(&mut self) -> Result<Session, Error> {
        let running = self.running()?;
        let mut twin = Session::on(running.loaded.clone(), running.session.fork()?);
        twin.running()?.lengths.clone_from(&running.lengths);
        Ok(twin)
    }

    /// Runs once with inputs by name, as [`Session::run`] does.
    ///
    /// # Errors
    /// See [`Session::run`]. In addition, every input that has no value.
    pub fn run_named(&mut self, value: impl Fn(&str) -> Option<Tensor>) -> Result<Vec<Tensor>, Error> {
        self.run(&named("input", &self.program.inputs, value)?)
    }

    /// Runs once and returns new tensors.
    ///
    /// # Errors
    /// If inputs do not fit, parameters were not loaded, or an index in an input is out of range.
    pub fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        Ok(self.with_outputs(inputs, |session, inputs, outputs| session.run(inputs, outputs))?.1)
    }

    /// Runs once on the caller's bytes, which are dense, row-major and little-endian. The lengths are those that were
    /// set last. It does not allocate.
    ///
    /// # Errors
    /// See [`Session::run`].
    pub fn run_into(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        Ok(self.running()?.session.run(inputs, outputs)?)
    }

    /// Returns the time of each step in seconds, for each of several runs. All runs write to the same buffers, so only
    /// the first one has page faults.
    ///
    /// # Errors
    /// See [`Session::run`].
    pub fn profile(&mut self, inputs: &[Tensor], runs: usize) -> Result<Vec<Vec<f64>>, Error> {
        let runs = |session: &mut dyn eutectic_backend::Session, inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
            (0..runs).map(|_| session.profile(inputs, outputs)).collect()
        };
        Ok(self.with_outputs(inputs, runs)?.0)
    }

    /// Returns the session on the parameters. Loads a program that has none.
    pub(crate) fn running(&mut self) -> Result<&mut Running, Error> {
        if self.running.is_none() && self.program.params.is_empty() {
            self.load(&[])?;
        }
        self.running.as_mut().ok_or_else(|| not_loaded(&self.program))
    }

    /// Runs once and writes to new tensors.
    fn with_outputs<T>(
        &mut self,
        inputs: &[Tensor],
        run: impl FnOnce(&mut dyn eutectic_backend::Session, &[&[u8]], &mut [&mut [u8]]) -> Result<T, BackendError>,
    ) -> Result<(T, Vec<Tensor>), Error> {
        let types = self.fit(inputs)?;
        let running = self.running()?;
        let mut results = types.iter().map(zeros).collect::<Result<Vec<Vec<u8>>, Error>>()?;
        let inputs: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
        let mut slices: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        let value = run(&mut *running.session, &inputs, &mut slices)?;
        let outputs = types.iter().zip(results).map(|(ty, bytes)| tensor(ty, bytes));
        Ok((value, outputs.collect()))
    }
}

fn not_loaded(program: &Program) -> Error {
    let count = program.params.len();
    Error::Arguments(vec![format!(
        "cannot run the program because its {count} parameters are not loaded; call `load` first"
    )])
}

/// Returns the bytes of a tensor of this type, all 0.
///
/// # Errors
/// If there is not enough memory.
pub(crate) fn zeros(ty: &Type) -> Result<Vec<u8>, Error> {
    let bytes = ty.bytes();
    // `try_reserve` reports a lack of memory. `vec![0; n]` then gets zeroed pages from the system without touching
    // them.
    let mut room: Vec<u8> = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| Error::NoRoom { ty: ty.clone(), bytes })?;
    drop(room);
    Ok(vec![0; bytes])
}

/// Returns a tensor of this type with the given bytes.
pub(crate) fn tensor(ty: &Type, bytes: Vec<u8>) -> Tensor {
    let (dtype, dims) = (ty.dtype().expect("ports are tensors"), ty.dims().expect("dims are bound"));
    Tensor::new(dtype, &dims, bytes).expect("the bytes have the size of the type")
}

/// Returns the wanted tensors, in order.
fn named(what: &str, wanted: &[(String, Type)], value: impl Fn(&str) -> Option<Tensor>) -> Result<Vec<Tensor>, Error> {
    let mut missing = Vec::new();
    let mut find = |(name, ty): &(String, Type)| {
        let tensor = value(name);
        if tensor.is_none() {
            missing.push(format!("{what} `{name}` {ty} has no value"));
        }
        tensor
    };
    let tensors: Vec<_> = wanted.iter().filter_map(&mut find).collect();
    if missing.is_empty() { Ok(tensors) } else { Err(Error::Arguments(missing)) }
}

pub(crate) fn check(what: &'static str, wanted: &[(String, Type)], given: &[Tensor]) -> Result<(), Error> {
    let mut problems: Vec<String> = wanted
        .iter()
        .zip(given)
        .filter(|((_, want), got)| *want != got.ty())
        .map(|((name, want), got)| format!("{what} `{name}` is {want}, but {} was given", got.ty()))
        .collect();
    if wanted.len() != given.len() {
        let names: Vec<_> = wanted.iter().map(|(name, ty)| format!("{name} {ty}")).collect();
        problems.push(format!(
            "the program needs {} {what}s ({}), but {} were given",
            wanted.len(),
            names.join(", "),
            given.len()
        ));
    }
    if problems.is_empty() { Ok(()) } else { Err(Error::Arguments(problems)) }
}
