//! Sets the lengths of a session's runs, from the inputs or by name.

use eutectic_backend::Program;
use eutectic_ir::{Dim, Symbol, Tensor, Type};

use crate::{
    Error, Session,
    loaded::position,
    session::{Running, check},
};

impl Session {
    /// Returns the length of a run-time extent in runs of this session. Initially it is the upper bound.
    ///
    /// # Errors
    /// If the program has no extent of that name, or parameters were not loaded.
    pub fn length(&mut self, name: &str) -> Result<usize, Error> {
        let at = self.extent(name)?;
        Ok(self.running()?.lengths[at])
    }

    /// Sets the length of a run-time extent for the following runs. Runs on tensors set the lengths of their inputs
    /// themselves.
    ///
    /// # Errors
    /// See [`Session::length`]. In addition, if the length is out of bounds.
    pub fn set_length(&mut self, name: &str, length: usize) -> Result<(), Error> {
        let at = self.extent(name)?;
        let running = self.running()?;
        if running.lengths[at] == length {
            return Ok(());
        }
        let before = std::mem::replace(&mut running.lengths[at], length);
        let set = running.session.set_lengths(&running.lengths);
        if set.is_err() {
            running.lengths[at] = before;
        }
        Ok(set?)
    }

    fn extent(&self, name: &str) -> Result<usize, Error> {
        position("extent", self.program().extents.iter().map(|symbol| &*symbol.name), name)
    }

    /// Sets the lengths to those of the inputs, and returns the types of the outputs of such a run.
    ///
    /// # Errors
    /// If inputs do not have the program's types, or parameters were not loaded.
    pub fn fit(&mut self, inputs: &[Tensor]) -> Result<Vec<Type>, Error> {
        let program = self.program.clone();
        let running = self.running()?;
        if program.extents.is_empty() {
            check("input", &program.inputs, inputs)?;
            return Ok(program.outputs.iter().map(|(_, ty)| ty.clone()).collect());
        }
        let lengths = lengths(&program, inputs, &running.lengths).map_err(Error::Arguments)?;
        let named: Vec<_> =
            program.inputs.iter().map(|(name, ty)| (name.clone(), ty.bind(&program.lengths(&lengths)))).collect();
        check("input", &named, inputs)?;
        if lengths != running.lengths {
            running.session.set_lengths(&lengths)?;
            running.lengths = lengths;
        }
        Ok(program.outputs.iter().map(|(_, ty)| running.at(&program, ty)).collect())
    }
}

impl Running {
    /// Returns a type of the program with the lengths of this session.
    pub(crate) fn at(&self, program: &Program, ty: &Type) -> Type {
        ty.bind(&program.lengths(&self.lengths))
    }
}

/// Returns the lengths that the inputs determine. Other lengths do not change.
///
/// # Errors
/// Lengths that are out of bounds, and inputs that contradict each other.
fn lengths(program: &Program, inputs: &[Tensor], current: &[usize]) -> Result<Vec<usize>, Vec<String>> {
    let (mut lengths, mut told) = (current.to_vec(), vec![None; current.len()]);
    let mut problems = Vec::new();
    for ((name, ty), input) in program.inputs.iter().zip(inputs) {
        let Some((_, shape)) = ty.as_tensor().filter(|(_, shape)| shape.rank() == input.dims().len()) else { continue };
        for (dim, &extent) in shape.iter().zip(input.dims()) {
            let Some((symbol, length)) = solve(dim, extent) else { continue };
            let Some(at) = program.extents.iter().position(|s| *s == symbol) else { continue };
            let given = format!("input `{name}` is {ty}, but {} was given", input.ty());
            let (least, most) = symbol.bounds.unwrap_or_default();
            match (length.filter(|n| (least..=most).contains(n)).and_then(|n| usize::try_from(n).ok()), &told[at]) {
                (None, _) => problems.push(format!("{given}; {symbol} must be from {least} to {most}")),
                (Some(n), Some(by)) if lengths[at] != n => {
                    problems.push(format!("{given}; input `{by}` sets {symbol} to {}", lengths[at]));
                }
                (Some(n), _) => (lengths[at], told[at]) = (n, Some(name)),
            }
        }
    }
    if problems.is_empty() { Ok(lengths) } else { Err(problems) }
}

/// Returns the symbol of a dim that is linear in exactly one symbol, and the value for which the dim is `extent`. The
/// value is `None` if no integer fits.
fn solve(dim: &Dim, extent: usize) -> Option<(Symbol, Option<i64>)> {
    let [symbol] = <[Symbol; 1]>::try_from(dim.symbols()).ok()?;
    let at = |n: i64| dim.bind(&|_| Some(Dim::Known(n))).known();
    let (start, next, later) = (at(0)?, at(1)?, at(2)?);
    let (step, rest) = (next - start, i64::try_from(extent).ok()? - start);
    let is_linear = step != 0 && later - next == step;
    is_linear.then(|| (symbol, (rest % step == 0).then(|| rest / step)))
}
