//! A compiled program with its parameters: what runs.

use std::sync::Arc;

use eutectic_backend::{BackendError, Executable, Program};
use eutectic_ir::{Tensor, Type};

use crate::{Error, Loaded};

/// A compiled program. `Send`, reusable, and free of allocation once it has run.
///
/// Sessions of one [`Loaded`] program share its parameters; each has its own states, and memory for inputs and outputs.
pub struct Session {
    pub(crate) program: Arc<Program>,
    executable: Arc<dyn Executable>,
    running: Option<Running>,
}

/// A session that has parameters.
pub(crate) struct Running {
    pub(crate) loaded: Loaded,
    pub(crate) session: Box<dyn eutectic_backend::Session>,
    /// Of [`Program::extents`].
    pub(crate) lengths: Vec<usize>,
}

impl Loaded {
    /// Opens a session, whose states are all zeros.
    ///
    /// # Errors
    /// When the device has no memory left.
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

    /// The program, for reports.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Takes the parameters, in the order of [`Program::params`], and runs the load program. States stay.
    ///
    /// # Errors
    /// When their number or types are not the program's.
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

    /// As [`Session::load`], with the parameters by name.
    ///
    /// # Errors
    /// As [`Session::load`]; and every parameter that has no value.
    pub fn load_named(&mut self, value: impl Fn(&str) -> Option<Tensor>) -> Result<(), Error> {
        self.load(&named("parameter", &self.program.params, value)?)
    }

    /// What it runs on, for more sessions.
    ///
    /// # Errors
    /// When parameters were not loaded.
    pub fn loaded(&self) -> Result<&Loaded, Error> {
        self.running.as_ref().map(|r| &r.loaded).ok_or_else(|| not_loaded(&self.program))
    }

    /// From now on runs on other parameters of the same compiled program; states stay.
    ///
    /// # Errors
    /// When parameters were not loaded, or those given are another program's.
    pub fn adopt(&mut self, loaded: &Loaded) -> Result<(), Error> {
        let running = self.running()?;
        running.session.adopt(loaded.parameters.clone())?;
        running.loaded = loaded.clone();
        Ok(())
    }

    /// Replaces some parameters by name, for this session; see [`Loaded::replace`]. States stay.
    ///
    /// # Errors
    /// As [`Loaded::replace`].
    pub fn replace(&mut self, parameters: &[(&str, Tensor)]) -> Result<(), Error> {
        let loaded = self.loaded()?.replace(parameters)?;
        self.adopt(&loaded)
    }

    /// An independent session on the same parameters, whose states are copies of this one's.
    ///
    /// # Errors
    /// When parameters were not loaded, or the device has no memory left.
    pub fn fork(&mut self) -> Result<Session, Error> {
        let running = self.running()?;
        let mut twin = Session::on(running.loaded.clone(), running.session.fork()?);
        twin.running()?.lengths.clone_from(&running.lengths);
        Ok(twin)
    }

    /// As [`Session::run`], with the inputs by name.
    ///
    /// # Errors
    /// As [`Session::run`]; and every input that has no value.
    pub fn run_named(&mut self, value: impl Fn(&str) -> Option<Tensor>) -> Result<Vec<Tensor>, Error> {
        self.run(&named("input", &self.program.inputs, value)?)
    }

    /// Runs once and gives new tensors.
    ///
    /// # Errors
    /// When inputs do not fit, parameters were not loaded, or an index read from an input is out of range.
    pub fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        Ok(self.with_outputs(inputs, |session, inputs, outputs| session.run(inputs, outputs))?.1)
    }

    /// Runs once, from and into the caller's bytes (dense, row-major, little-endian), of the lengths that were set last; allocates
    /// nothing.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_into(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        Ok(self.running()?.session.run(inputs, outputs)?)
    }

    /// Seconds of each step, for each of some runs. All of them write to the same buffers: the first one meets new pages.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn profile(&mut self, inputs: &[Tensor], runs: usize) -> Result<Vec<Vec<f64>>, Error> {
        let runs = |session: &mut dyn eutectic_backend::Session, inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
            (0..runs).map(|_| session.profile(inputs, outputs)).collect()
        };
        Ok(self.with_outputs(inputs, runs)?.0)
    }

    pub(crate) fn running(&mut self) -> Result<&mut Running, Error> {
        self.running.as_mut().ok_or_else(|| not_loaded(&self.program))
    }

    /// Runs into new tensors.
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
    Error::Arguments(vec![format!("the program has {count} parameters; call `load` with them before it runs")])
}

/// The bytes of a tensor of this type, all 0.
///
/// # Errors
/// When there is no memory for them.
pub(crate) fn zeros(ty: &Type) -> Result<Vec<u8>, Error> {
    let bytes = ty.bytes();
    // Asked for before it is taken, for zeroed pages come from the system without being touched.
    let mut room: Vec<u8> = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| Error::NoRoom { ty: ty.clone(), bytes })?;
    drop(room);
    Ok(vec![0; bytes])
}

/// A tensor of a type whose bytes are there.
pub(crate) fn tensor(ty: &Type, bytes: Vec<u8>) -> Tensor {
    let (dtype, dims) = (ty.dtype().expect("ports are tensors"), ty.dims().expect("dims are bound"));
    Tensor::new(dtype, &dims, bytes).expect("as many bytes as the type asks for")
}

/// The tensors that are wanted, in order.
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
        problems.push(format!("{} {what}s are wanted ({}), {} given", wanted.len(), names.join(", "), given.len()));
    }
    if problems.is_empty() { Ok(()) } else { Err(Error::Arguments(problems)) }
}
