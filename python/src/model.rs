//! Compiled models for Python.

use std::{
    collections::BTreeMap,
    ffi::CString,
    path::PathBuf,
    process,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
};

use eutectic::{Compiler, Loaded, Planned, Session, Tensor, Type, engine::ir::Ops};
use pyo3::{
    exceptions::PyUserWarning,
    prelude::*,
    types::{PyDict, PyString},
};

use crate::{
    array::{self, NewArray, Take},
    compile::CompileOptions,
    error::{Result, guarded, told, unknown},
    kernels::{Kernel, kernels},
    open::{Length, ModelSource, Named, OpenOptions, open},
    port::Port,
};

/// A compiled model with its parameters, its states, and memory for its runs.
#[pyclass(frozen, module = "eutectic")]
pub struct Model {
    compiled: Arc<(Compiler, Planned)>,
    loaded: Loaded,
    /// The session. Its lock allows one run at a time.
    session: Mutex<Session>,
    inputs: Vec<Py<PyString>>,
    outputs: Vec<Py<PyString>>,
}

#[pymethods]
impl Model {
    /// Opens, compiles and loads a model. `eutectic.load` documents the arguments.
    #[new]
    fn new(
        py: Python<'_>,
        source: ModelSource,
        shapes: BTreeMap<String, Length>,
        fixed: &Bound<'_, PyDict>,
        weights: Option<PathBuf>,
        params: &Bound<'_, PyDict>,
        options: CompileOptions,
    ) -> Result<Model> {
        let (fixed, params) = (named("the value of", fixed)?, named("parameter", params)?);
        let opening = OpenOptions { shapes, fixed, weights, params, ops: Ops::default() };
        let (compiled, session, warnings) = py.detach(|| guarded(|| load(source, opening, &options)))?;
        for warning in warnings {
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &CString::new(warning).unwrap_or_default(), 2)?;
        }
        Model::of(py, Arc::new(compiled), session)
    }

    /// Runs the model once, and returns the outputs by name. `outputs` selects some of them. Other Python threads
    /// continue during a run. Runs of the same model are computed one after the other.
    #[pyo3(signature = (inputs, /, outputs = None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        outputs: Option<Vec<String>>,
    ) -> Result<Bound<'py, PyDict>> {
        let given = self.given(inputs)?;
        let wanted = self.wanted(outputs)?;
        let arrays = py.detach(|| guarded(|| self.execute(&given, &wanted)))?;
        let results = PyDict::new(py);
        for (name, array) in self.outputs.iter().zip(arrays) {
            if let Some(array) = array {
                results.set_item(name, array.finish())?;
            }
        }
        Ok(results)
    }

    /// Returns the values of a state.
    fn read(&self, py: Python<'_>, state: &str) -> Result<Py<PyAny>> {
        let read = || {
            let mut session = self.lock()?;
            let port = session.state(state)?;
            Ok(session.read(port)?)
        };
        let tensor = py.detach(|| guarded(read))?;
        NewArray::of(py, &tensor)
    }

    /// Sets the values of a state.
    fn write(&self, py: Python<'_>, state: &str, value: &Bound<'_, PyAny>) -> Result<()> {
        let ty = self.loaded.program().states.iter().find(|(name, _)| name == state).map(|(_, ty)| ty);
        let value = array::read(&format!("state `{state}`"), value, Take::Borrow)?;
        let value = array::as_wanted(value, ty.and_then(Type::dtype));
        let write = || {
            let mut session = self.lock()?;
            let port = session.state(state)?;
            Ok(session.write(port, &value)?)
        };
        py.detach(|| guarded(write))
    }

    /// Sets all states to zeros, as in a new model.
    fn clear(&self, py: Python<'_>) -> Result<()> {
        let clear = || {
            let mut session = self.lock()?;
            for (name, _) in &self.loaded.program().states {
                let port = session.state(name)?;
                session.clear(port)?;
            }
            Ok(())
        };
        py.detach(|| guarded(clear))
    }

    /// Sets the length of a run-time extent that no input determines, such as that of a state.
    fn set_length(&self, py: Python<'_>, name: &str, length: usize) -> Result<()> {
        py.detach(|| guarded(|| Ok(self.lock()?.set_length(name, length)?)))
    }

    /// Returns a model that shares the parameters and has its own copies of the states. Both models can run at the same
    /// time.
    fn fork(&self, py: Python<'_>) -> Result<Model> {
        let session = py.detach(|| guarded(|| Ok(self.lock()?.fork()?)))?;
        Model::of(py, self.compiled.clone(), session)
    }

    /// Returns the kernels of the plan. Repeated layers count once.
    fn kernels(&self, py: Python<'_>) -> Result<Vec<Kernel>> {
        py.detach(|| guarded(|| Ok(kernels(&self.compiled.0, &self.compiled.1))))
    }

    /// Explains the kernels, as text or as a table in a notebook.
    fn explain(slf: &Bound<'_, Model>) -> Result<Py<PyAny>> {
        let explanation = slf.py().import("eutectic._explain")?.getattr("Explanation")?;
        Ok(explanation.call1((slf, slf.get().kernels(slf.py())?))?.unbind())
    }

    /// Returns the inputs, in order.
    #[getter]
    fn inputs(&self) -> Vec<Port> {
        Port::all(&self.loaded.program().inputs)
    }

    /// Returns the outputs, in order.
    #[getter]
    fn outputs(&self) -> Vec<Port> {
        Port::all(&self.loaded.program().outputs)
    }

    /// Returns the states, which persist between runs.
    #[getter]
    fn states(&self) -> Vec<Port> {
        Port::all(&self.loaded.program().states)
    }

    /// Returns the run-time extents, each with its least and largest length.
    #[getter]
    fn extents(&self) -> BTreeMap<String, (i64, i64)> {
        let extents = self.loaded.program().extents.iter();
        extents.map(|symbol| (symbol.name.to_string(), symbol.bounds.unwrap_or_default())).collect()
    }

    /// Returns the name of the backend that the model runs on.
    #[getter]
    fn backend(&self) -> &str {
        self.compiled.0.backend().name()
    }

    fn __repr__(&self) -> String {
        let ports = |ports: Vec<Port>| ports.iter().map(Port::__repr__).collect::<Vec<_>>().join(", ");
        format!("<Model on {}: {} to {}>", self.backend(), ports(self.inputs()), ports(self.outputs()))
    }
}

impl Model {
    fn of(py: Python<'_>, compiled: Arc<(Compiler, Planned)>, session: Session) -> Result<Model> {
        let loaded = session.loaded()?.clone();
        let names = |of: &[(String, Type)]| of.iter().map(|(name, _)| PyString::new(py, name).unbind()).collect();
        let (inputs, outputs) = (names(&loaded.program().inputs), names(&loaded.program().outputs));
        Ok(Model { compiled, loaded, session: Mutex::new(session), inputs, outputs })
    }

    fn lock(&self) -> Result<MutexGuard<'_, Session>> {
        same_process()?;
        self.session
            .lock()
            .map_err(|_| told("cannot use the model because a run has failed within the engine; load it again"))
    }

    /// Returns the values of the inputs in the program's order.
    fn given(&self, inputs: &Bound<'_, PyDict>) -> Result<Vec<Tensor>> {
        let program = &self.loaded.program().inputs;
        let (mut given, mut problems) = (Vec::with_capacity(program.len()), Vec::new());
        for ((name, ty), key) in program.iter().zip(&self.inputs) {
            match inputs.get_item(key)? {
                Some(value) => {
                    let value = array::read(&format!("input `{name}`"), &value, Take::Borrow)?;
                    given.push(array::as_wanted(value, ty.dtype()));
                }
                None => problems.push(format!("input `{name}` {ty} has no value")),
            }
        }
        if given.len() != inputs.len() {
            let known = |name: &str| program.iter().any(|(known, _)| known == name);
            for name in inputs.keys().iter().map(|name| name.to_string()).filter(|name| !known(name)) {
                problems.push(unknown("the program", "input", &name, program.iter().map(|(name, _)| name.as_str())));
            }
        }
        if problems.is_empty() { Ok(given) } else { Err(told(problems.join("\n"))) }
    }

    /// Returns, for each output, whether `names` selects it.
    fn wanted(&self, names: Option<Vec<String>>) -> Result<Vec<bool>> {
        let outputs = &self.loaded.program().outputs;
        let Some(names) = names else { return Ok(vec![true; outputs.len()]) };
        let mut wanted = vec![false; outputs.len()];
        for name in &names {
            let known = || outputs.iter().map(|(name, _)| name.as_str());
            let at = known().position(|known| known == name);
            wanted[at.ok_or_else(|| told(unknown("the program", "output", name, known())))?] = true;
        }
        Ok(wanted)
    }

    /// Runs the program. Returns new arrays for the wanted outputs.
    fn execute(&self, given: &[Tensor], wanted: &[bool]) -> Result<Vec<Option<NewArray>>> {
        let mut session = self.lock()?;
        let types = session.fit(given)?;
        // A thread that waits for the session does not hold the interpreter's lock, so taking that lock here cannot
        // deadlock.
        let mut arrays = Python::attach(|py| {
            let array = |(ty, &wanted): (&Type, &bool)| wanted.then(|| NewArray::zeros(py, ty)).transpose();
            types.iter().zip(wanted).map(array).collect::<Result<Vec<_>>>()
        })?;
        let inputs: Vec<&[u8]> = given.iter().map(Tensor::bytes).collect();
        session.run_some_into(&inputs, arrays.iter_mut().map(|array| array.as_mut().map(NewArray::bytes)))?;
        Ok(arrays)
    }
}

/// Checks that this process is the first one that used the engine. A fork of that process lacks the engine's threads.
fn same_process() -> Result<()> {
    static FIRST: OnceLock<u32> = OnceLock::new();
    match *FIRST.get_or_init(process::id) == process::id() {
        true => Ok(()),
        false => {
            Err(told("cannot run in a fork of a process that has used the engine; start processes with \"spawn\""))
        }
    }
}

/// Converts the arrays of a dictionary to tensors.
fn named(what: &str, arrays: &Bound<'_, PyDict>) -> Result<Named> {
    let read = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: String = name.extract()?;
        // The array is copied, because the caller may change it later.
        Ok((name.clone(), array::read(&format!("{what} `{name}`"), &value, Take::Copy)?))
    };
    arrays.iter().map(read).collect()
}

fn load(
    source: ModelSource,
    mut opening: OpenOptions,
    options: &CompileOptions,
) -> Result<((Compiler, Planned), Session, Vec<String>)> {
    same_process()?;
    let compiler = options.compiler()?;
    opening.ops = compiler.rules().ops().clone();
    let opened = open(source, opening)?;
    let compiler = compiler.with_ops_of(&opened.graph)?;
    let (planned, mut session) = compiler.compile_planned(&opened.graph)?;
    session.load_named(|name| opened.params.get(name).cloned())?;
    Ok(((compiler, planned), session, opened.warnings))
}
