//! Opens model files, compiles them, and runs them on inputs by name.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
};

use eutectic_cpu::Cpu;
use eutectic_ir::{
    Dim, Graph, GraphError, Tensor, Type,
    lang::{Errors, Source},
};
use eutectic_models::onnx::{self, ImportOptions, OnnxError};

use crate::{Compiler, Error, Session, read_graph};

/// The reason why a model cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// An ONNX model that is not valid, or has unsupported parts.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// A graph in text form that is not valid.
    #[error("{}", Listed(.0))]
    Text(#[from] Errors),
    /// A graph that is not valid, or has dimensions without a length.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The program cannot be compiled or loaded.
    #[error(transparent)]
    Engine(#[from] Error),
}

/// Formats the errors of a source with their help texts.
struct Listed<'a>(&'a Errors);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        for error in &self.0.0 {
            write!(f, "\n{error}")?;
            if let Some(help) = &error.help {
                write!(f, "\n  help: {help}")?;
            }
        }
        Ok(())
    }
}

/// A file to open, and the values of its dimensions.
pub struct ModelFile {
    path: PathBuf,
    dims: BTreeMap<String, Dim>,
}

impl ModelFile {
    /// Names the file: `control.onnx`, or a graph in text form.
    pub fn new(path: impl AsRef<Path>) -> ModelFile {
        ModelFile { path: path.as_ref().to_path_buf(), dims: BTreeMap::new() }
    }

    /// Sets the length of an open dimension.
    #[must_use]
    pub fn dim(mut self, name: &str, length: i64) -> ModelFile {
        self.dims.insert(name.to_string(), Dim::Known(length));
        self
    }

    /// Sets the least and the largest length of an open dimension. Each run may then have another length.
    #[must_use]
    pub fn dim_between(mut self, name: &str, least: i64, most: i64) -> ModelFile {
        self.dims.insert(name.to_string(), Dim::between(name, least, most));
        self
    }

    /// Reads, compiles and loads the model.
    ///
    /// # Errors
    /// If the file cannot be read, is not valid, has unsupported parts or dimensions without a length, or does not fit
    /// the device.
    pub fn open(&self, compiler: &Compiler) -> Result<Model, ModelError> {
        let (graph, params) = match self.path.extension().is_some_and(|extension| extension == "onnx") {
            true => self.imported(compiler)?,
            false => (self.parsed(compiler)?, BTreeMap::new()),
        };
        let mut session = compiler.compile(&graph)?;
        session.load_named(|name| params.get(name).cloned())?;
        Ok(Model { session })
    }

    fn imported(&self, compiler: &Compiler) -> Result<(Graph, BTreeMap<String, Tensor>), ModelError> {
        let (shapes, ops) = (self.dims.clone(), compiler.rules().ops().clone());
        let options = ImportOptions { shapes, ops, ..ImportOptions::default() };
        let imported = onnx::Model::open(&self.path)?.import_as(&options)?;
        let params = imported.params()?;
        Ok((imported.graph, params))
    }

    fn parsed(&self, compiler: &Compiler) -> Result<Graph, ModelError> {
        let read = |source| ModelError::Read { path: self.path.clone(), source };
        let source = Source::new(self.path.display().to_string(), std::fs::read_to_string(&self.path).map_err(read)?);
        let graph = read_graph(&source, compiler.rules().ops())?.bind_dims(&self.dims)?;
        graph.fits()?;
        graph.computes()?;
        Ok(graph)
    }
}

/// A compiled model with its parameters, its states, and memory for its runs.
pub struct Model {
    session: Session,
}

impl Model {
    /// Returns the inputs with their types, in order.
    pub fn inputs(&self) -> &[(String, Type)] {
        &self.session.program().inputs
    }

    /// Returns the outputs with their types, in order.
    pub fn outputs(&self) -> &[(String, Type)] {
        &self.session.program().outputs
    }

    /// Runs the model once on inputs by name, in any order. Returns the outputs in the model's order.
    ///
    /// # Errors
    /// If a name is not that of an input, an input is missing or does not fit, or an index in an input is out of range.
    pub fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<Tensor>, Error> {
        for (name, _) in inputs {
            self.session.input(name)?;
        }
        self.session
            .run_named(|wanted| inputs.iter().find(|(name, _)| *name == wanted).map(|(_, tensor)| tensor.clone()))
    }

    /// Returns the session, which gives access to states, run-time extents and the caller's buffers.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }
}

/// Opens a model without open dimensions, and compiles it for the CPU.
///
/// ```
/// use eutectic::Tensor;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/onnx/control.onnx");
/// let mut model = eutectic::open(path)?;
/// let [x, limit] = [Tensor::from_f32(&[4, 3, 2], &[0.5; 24])?, Tensor::from_f32(&[], &[3.0])?];
/// let y = model.run(&[("x", x), ("limit", limit)])?;
/// # assert!(y[0].to_f64().iter().all(|y| y.is_finite()));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// See [`ModelFile::open`].
pub fn open(path: impl AsRef<Path>) -> Result<Model, ModelError> {
    ModelFile::new(path).open(&Compiler::new(Cpu::default())?)
}
