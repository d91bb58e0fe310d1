//! A compiled program with its parameters: what runs.

use eutectic_backend::{BackendError, Executable, Program};
use eutectic_ir::{Tensor, Type};

use crate::Error;

/// A compiled program. `Send`, reusable, and free of allocation once it has run (outside the GEMM library).
pub struct Session {
    program: Program,
    executable: Box<dyn Executable>,
}

impl Session {
    pub(crate) fn new(program: Program, executable: Box<dyn Executable>) -> Session {
        Session { program, executable }
    }

    /// The program, for reports.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Takes the parameters, in the order of [`Program::params`], and runs the load program.
    ///
    /// # Errors
    /// When their number or types are not the program's.
    pub fn load(&mut self, params: &[Tensor]) -> Result<(), Error> {
        check("parameter", &self.program.params, params)?;
        Ok(self.executable.load(params)?)
    }

    /// As [`Session::load`], with the parameters by name.
    ///
    /// # Errors
    /// As [`Session::load`]; and every parameter that has no value.
    pub fn load_named(&mut self, value: impl Fn(&str) -> Option<Tensor>) -> Result<(), Error> {
        self.load(&named("parameter", &self.program.params, value)?)
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
        Ok(self.with_outputs(inputs, |executable, inputs, outputs| executable.run(inputs, outputs))?.1)
    }

    /// Runs once, from and into the caller's bytes (dense, row-major, little-endian); allocates nothing.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_into(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        Ok(self.executable.run(inputs, outputs)?)
    }

    /// Seconds of each step, for each of some runs. All of them write to the same buffers: the first one meets new pages.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn profile(&mut self, inputs: &[Tensor], runs: usize) -> Result<Vec<Vec<f64>>, Error> {
        let runs = |executable: &mut dyn Executable, inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
            (0..runs).map(|_| executable.profile(inputs, outputs)).collect()
        };
        Ok(self.with_outputs(inputs, runs)?.0)
    }

    /// Runs into new tensors.
    fn with_outputs<T>(
        &mut self,
        inputs: &[Tensor],
        run: impl FnOnce(&mut dyn Executable, &[&[u8]], &mut [&mut [u8]]) -> Result<T, BackendError>,
    ) -> Result<(T, Vec<Tensor>), Error> {
        check("input", &self.program.inputs, inputs)?;
        let mut results: Vec<Vec<u8>> = self.program.outputs.iter().map(|(_, ty)| vec![0; ty.bytes()]).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
        let mut slices: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        let value = run(&mut *self.executable, &inputs, &mut slices)?;
        let outputs = self.program.outputs.iter().zip(results).map(|((_, ty), bytes)| {
            let (dtype, dims) = (ty.dtype().expect("an output is a tensor"), ty.dims().expect("dims are bound"));
            Tensor::new(dtype, &dims, bytes).expect("as many bytes as the type asks for")
        });
        Ok((value, outputs.collect()))
    }
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

fn check(what: &'static str, wanted: &[(String, Type)], given: &[Tensor]) -> Result<(), Error> {
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
