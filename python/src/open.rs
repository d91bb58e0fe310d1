//! Opens ONNX models and graphs in text form, with their parameters.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use eutectic::{
    Dim, Graph, Tensor, Type,
    engine::{
        ir::{Ops, lang::Source},
        models::{
            Weights,
            onnx::{self, ImportOptions, ModelPort},
        },
    },
    read_graph,
};
use pyo3::{prelude::*, pybacked::PyBackedBytes};

use crate::{
    array,
    error::{Result, guarded, told, unknown},
    port::Port,
};

/// The source of a model.
#[derive(FromPyObject)]
pub enum ModelSource {
    /// The contents of an ONNX file or of a graph file.
    #[pyo3(transparent, annotation = "bytes")]
    Bytes(PyBackedBytes),
    /// The path of an ONNX file or of a graph file.
    #[pyo3(transparent, annotation = "str | os.PathLike")]
    Path(PathBuf),
}

/// The length of a dimension: a number, or bounds for a length that each run chooses.
#[derive(Clone, Copy, FromPyObject)]
pub enum Length {
    /// A length that all runs have.
    #[pyo3(transparent, annotation = "int")]
    Number(i64),
    /// The least and the largest length of a run.
    #[pyo3(annotation = "tuple[int, int]")]
    Between(i64, i64),
}

/// Tensors by name.
pub type Named = BTreeMap<String, Tensor>;

/// Options for opening a model.
pub struct OpenOptions {
    /// The lengths of dimensions, by name.
    pub shapes: BTreeMap<String, Length>,
    /// The values of ONNX inputs that become constants.
    pub fixed: Named,
    /// A file with parameters.
    pub weights: Option<PathBuf>,
    /// Parameters by name. They replace those of files.
    pub params: Named,
    /// The ops that the user's rules declare.
    pub ops: Ops,
}

/// An opened model.
pub struct Opened {
    /// The graph, in which each dimension has a number or bounds.
    pub graph: Graph,
    /// The parameters whose values are known.
    pub params: Named,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Returns the inputs and the outputs that an ONNX model declares, and the names of its dimensions that need a number.
#[pyfunction]
pub fn declared(py: Python<'_>, source: ModelSource) -> Result<(Vec<Port>, Vec<Port>, Vec<String>)> {
    let declared = || {
        let model = match source {
            ModelSource::Bytes(bytes) => onnx::Model::from_bytes("<bytes>", bytes.to_vec())?,
            ModelSource::Path(path) => onnx::Model::open(path)?,
        };
        let port = |(name, port): (String, Result<ModelPort, String>)| {
            let port = port.map_err(|why| told(format_args!("cannot use `{name}`: {why}")))?;
            Ok(Port::of(&name, &Type::Tensor(port.dtype, port.shape.unwrap_or_default())))
        };
        let inputs = model.inputs().map(|(name, port)| (name.to_string(), port.cloned().map_err(str::to_string)));
        let inputs = inputs.filter_map(|input| port(input).transpose()).collect::<Result<_>>()?;
        let outputs = model.outputs().filter_map(|output| port(output).transpose()).collect::<Result<_>>()?;
        Ok((inputs, outputs, model.symbols()))
    };
    py.detach(|| guarded(declared))
}

/// Opens a model.
///
/// # Errors
/// If the model cannot be read, has unsupported parts, or contradicts the options.
pub fn open(source: ModelSource, options: OpenOptions) -> Result<Opened> {
    let mut opened = match source {
        ModelSource::Path(path) if has_extension(&path, "gguf") => {
            let place = path.display();
            return Err(told(format_args!(
                "cannot load {place} because a language model is not a graph; `eutectic run` runs it"
            )));
        }
        ModelSource::Path(path) if has_extension(&path, "onnx") => imported(&onnx::Model::open(path)?, &options)?,
        ModelSource::Path(path) => {
            let bytes = std::fs::read(&path).map_err(|e| told(format_args!("cannot read {}: {e}", path.display())))?;
            parsed(&path.display().to_string(), bytes, &options)?
        }
        ModelSource::Bytes(bytes) if is_text(&bytes) => parsed("<bytes>", bytes.to_vec(), &options)?,
        ModelSource::Bytes(bytes) => imported(&onnx::Model::from_bytes("<bytes>", bytes.to_vec())?, &options)?,
    };
    if let Some(path) = &options.weights {
        let wanted: Vec<_> = opened.graph.named("param").map(|(name, id)| (name, opened.graph.ty(id))).collect();
        let bound = Weights::open(path)?.bind(wanted, &[])?;
        opened.params.extend(bound.tensors);
    }
    for (name, value) in options.params {
        let params = || opened.graph.named("param");
        let found = params().find(|(known, _)| *known == name);
        let (_, id) =
            found.ok_or_else(|| told(unknown("the program", "parameter", &name, params().map(|(name, _)| name))))?;
        let value = array::as_wanted(value, opened.graph.ty(id).dtype());
        opened.params.insert(name, value);
    }
    Ok(opened)
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension == wanted)
}

/// Returns whether bytes are a graph in text form. An ONNX model starts with the number and type of a protobuf field,
/// which is neither `(` nor `;`.
fn is_text(bytes: &[u8]) -> bool {
    matches!(bytes.trim_ascii_start().first(), Some(b'(' | b';')) && std::str::from_utf8(bytes).is_ok()
}

fn imported(model: &onnx::Model, options: &OpenOptions) -> Result<Opened> {
    let shapes = options.shapes.iter().map(|(name, length)| (name.clone(), length.dim(name))).collect();
    let imported = model.import_as(&ImportOptions {
        shapes,
        fixed: options.fixed.clone(),
        ops: options.ops.clone(),
        ..ImportOptions::default()
    })?;
    let params = imported.params()?;
    let warnings = imported.warnings().to_vec();
    Ok(Opened { params, warnings, graph: imported.graph })
}

fn parsed(place: &str, bytes: Vec<u8>, options: &OpenOptions) -> Result<Opened> {
    let text = String::from_utf8(bytes).map_err(|_| {
        told(format_args!("cannot read {place} because it is not text; an ONNX model is a file NAME.onnx, or bytes"))
    })?;
    if let Some(name) = options.fixed.keys().next() {
        return Err(told(format_args!("cannot fix `{name}` because {place} is not an ONNX model; use a constant")));
    }
    let graph = read_graph(&Source::new(place.to_string(), text), &options.ops)?;
    let graph = bound(place, &graph, &options.shapes)?;
    graph.fits()?;
    graph.computes()?;
    Ok(Opened { graph, params: Named::new(), warnings: Vec::new() })
}

/// Sets the dimensions of a graph to their lengths or bounds.
fn bound(place: &str, graph: &Graph, shapes: &BTreeMap<String, Length>) -> Result<Graph> {
    let (symbols, extents) = (graph.symbols(), graph.extents());
    for (name, length) in shapes {
        let of_file = extents.iter().find(|extent| *extent.name == **name).and_then(|extent| extent.bounds);
        if of_file.is_none() && !symbols.iter().any(|symbol| **symbol == **name) {
            let known = symbols.iter().map(|symbol| &**symbol).chain(extents.iter().map(|extent| &*extent.name));
            return Err(told(unknown(place, "dimension", name, known)));
        }
        let (from, to) = length.range();
        let (least, most) = of_file.unwrap_or((0, i64::MAX));
        if from > to || from < least || to > most {
            let wanted = if from == to { from.to_string() } else { format!("{from} to {to}") };
            let legal =
                if of_file.is_some() { format!("{least} to {most}") } else { "a length, or two in order".into() };
            return Err(told(format_args!("cannot set `{name}` to {wanted} because in {place} it is {legal}")));
        }
    }
    let open: Vec<_> =
        symbols.iter().filter(|symbol| !shapes.contains_key(&***symbol)).map(|s| format!("{s:?}: N")).collect();
    if !open.is_empty() {
        let (names, shapes) = (symbols.join(", "), open.join(", "));
        return Err(told(format_args!(
            "cannot load {place} because it has dimensions without a number: {names}; give shapes={{{shapes}}}"
        )));
    }
    let dims = shapes.iter().map(|(name, length)| (name.clone(), length.dim(name))).collect();
    Ok(graph.bind_dims(&dims)?)
}

impl Length {
    fn range(self) -> (i64, i64) {
        match self {
            Length::Number(n) => (n, n),
            Length::Between(least, most) => (least, most),
        }
    }

    fn dim(self, name: &str) -> Dim {
        match self {
            Length::Number(n) => Dim::Known(n),
            Length::Between(least, most) => Dim::between(name, least, most),
        }
    }
}
