//! ONNX models (<https://onnx.ai/onnx/repo-docs/IR.html>): a reader from ONNX ops to ours.
//!
//! The reader maps op by op and optimizes nothing; rules recognise what exporters took apart. What computes shapes is evaluated while
//! the model is read, by the reference interpreter, because dimensions are bound before.

mod call;
mod error;
mod folder;
mod import;
mod ops;
mod opsets;
#[rustfmt::skip]
#[allow(missing_docs, unused_qualifications, clippy::all)]
mod proto;
mod stored;
mod types;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
};

pub use error::{OnnxError, Unsupported};
use eutectic_ir::{Graph, Tensor};
use folder::Folder;
use memmap2::Mmap;
use opsets::OpSets;
use prost::{Message, bytes::Bytes};
use proto::{GraphProto, ModelProto};
pub use stored::StoredTensor;
pub use types::ModelPort;

/// The first version of the format in which a tensor of the file that is an input is a default.
const FIRST_WITH_DEFAULTS: i64 = 4;

/// The newest version of the op set that the table of ops was written for.
pub const NEWEST_OPSET: i64 = 27;
/// The oldest one: broadcasting is NumPy's since then.
pub const OLDEST_OPSET: i64 = 7;

/// An ONNX model. The file stays mapped as long as one of its tensors lives; it must not be truncated meanwhile (as with every
/// memory map, reading would then end the process).
#[derive(Debug)]
pub struct Model {
    path: PathBuf,
    folder: Folder,
    proto: ModelProto,
    opsets: OpSets,
    /// With the name, and what is wrong where a program cannot have such an input.
    inputs: Vec<(String, Result<ModelPort, String>)>,
    /// The inputs that have a value in the file, which counts where none is given.
    defaults: BTreeMap<String, Result<ModelPort, String>>,
    /// What is wrong with a tensor that cannot be used is told when the model is imported.
    stored: BTreeMap<String, Result<StoredTensor, String>>,
}

/// Decisions that are made when a model becomes a graph.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// Numbers of open dimensions.
    pub shapes: BTreeMap<String, i64>,
    /// Inputs whose values are known now: they are constants, so that shapes may depend on them.
    pub fixed: BTreeMap<String, Tensor>,
    /// Inputs with a default that are given a value in each run ([`Model::defaults`]). Others are what the file says.
    pub given: BTreeSet<String>,
    /// How often a loop runs at most, where only a condition ends it and depends on inputs. A run that would go on is an error.
    pub most_times: usize,
}

impl Default for ImportOptions {
    fn default() -> ImportOptions {
        let (shapes, fixed, given) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        ImportOptions { shapes, fixed, given, most_times: MOST_TIMES }
    }
}

impl ImportOptions {
    /// Whether an input that has a default gets another value.
    fn gives(&self, name: &str) -> bool {
        self.given.contains(name) || self.fixed.contains_key(name)
    }
}

/// See [`ImportOptions::most_times`].
pub const MOST_TIMES: usize = 1024;

/// A model as a graph.
#[derive(Debug)]
pub struct Imported {
    /// The graph; its parameters are the tensors of the file that are no single numbers and no integers.
    pub graph: Graph,
    path: PathBuf,
    params: BTreeMap<String, StoredTensor>,
    warnings: Vec<String>,
}

/// What is in a file.
#[derive(Debug)]
pub struct Summary {
    /// The version of ONNX's own op set, where the file states one.
    pub opset: Option<i64>,
    /// The op sets of other domains, with their versions.
    pub other_opsets: Vec<(String, i64)>,
    /// The version of the format.
    pub ir_version: i64,
    /// What wrote the file.
    pub producer: String,
    /// Inputs, with their types in words.
    pub inputs: Vec<(String, String)>,
    /// Outputs, with their types in words.
    pub outputs: Vec<(String, String)>,
    /// Tensors in the file or beside it.
    pub tensors: usize,
    /// Their elements.
    pub elements: usize,
    /// Their bytes.
    pub bytes: usize,
    /// How often each op occurs, subgraphs included; the most frequent one first.
    pub ops: Vec<(String, usize)>,
}

impl Model {
    /// Maps a file and checks it; no external data is opened yet.
    ///
    /// # Errors
    /// When it cannot be opened, is damaged, is written in an op set that is not known, or has tensors that cannot be.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, OnnxError> {
        let path = path.as_ref().to_path_buf();
        let io = |source| OnnxError::Io { path: path.clone(), source };
        let file = File::open(&path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.is_dir() {
            return Err(io(std::io::ErrorKind::IsADirectory.into()));
        }
        // An empty file cannot be mapped.
        let bytes = match metadata.len() {
            0 => Bytes::new(),
            // SAFETY: the map is only read. That nobody truncates the file meanwhile cannot be enforced; see the type's docs.
            _ => Bytes::from_owner(unsafe { Mmap::map(&file) }.map_err(io)?),
        };
        Model::read(path, bytes)
    }

    /// Reads and checks a model that is in memory. `path` is what errors call it; external data is looked for in its folder.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_bytes(path: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Model, OnnxError> {
        Model::read(path.into(), bytes.into())
    }

    fn read(path: PathBuf, bytes: Bytes) -> Result<Model, OnnxError> {
        let format = |problem: String| OnnxError::Format { path: path.clone(), problem };
        let proto = ModelProto::decode(bytes).map_err(|e| format(e.to_string()))?;
        let graph = proto.graph.as_ref().ok_or_else(|| format("it holds no graph".into()))?;
        let opsets = OpSets::read(&proto.opset_import);
        if opsets.is_empty() {
            return Err(format("it does not say in which op set it is written".into()));
        }
        if let Some(opset) = opsets.own().filter(|opset| !(OLDEST_OPSET..=NEWEST_OPSET).contains(opset)) {
            let known = format!("{OLDEST_OPSET} to {NEWEST_OPSET} are known");
            return Err(format(format!("it is written in opset {opset}, {known}; onnx.version_converter converts it")));
        }
        let folder = Folder::of(&path);
        let stored = tensors(graph, &folder);
        let given = graph.input.iter().filter(|info| !stored.contains_key(info.name()));
        let port = |info: &proto::ValueInfoProto| (info.name().to_string(), ModelPort::read(info));
        let inputs = given.map(port).collect();
        // Before version 4 of the format, every tensor had to be listed as an input.
        let may_be_given = proto.ir_version() >= FIRST_WITH_DEFAULTS;
        let defaults = graph.input.iter().filter(|info| may_be_given && stored.contains_key(info.name()));
        let defaults = defaults.map(port).collect();
        Ok(Model { inputs, defaults, stored, opsets, path, folder, proto })
    }

    fn graph(&self) -> &GraphProto {
        self.proto.graph.as_ref().expect("a model without a graph is not opened")
    }

    /// The dimensions of inputs that need a number, sorted.
    pub fn symbols(&self) -> Vec<String> {
        let mut names: Vec<_> = self.inputs.iter().flat_map(|(_, port)| port).flat_map(ModelPort::symbols).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Its inputs, with what is wrong where a program cannot have such a one.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Result<&ModelPort, &str>)> {
        self.inputs.iter().map(|(name, port)| (name.as_str(), port.as_ref().map_err(String::as_str)))
    }

    /// Its outputs as the file declares them, with what is wrong where a program cannot have such a one.
    pub fn outputs(&self) -> impl Iterator<Item = (String, Result<ModelPort, String>)> {
        self.graph().output.iter().map(|info| (info.name().to_string(), ModelPort::read(info)))
    }

    /// The inputs that have a value in the file: a run may give another one ([`ImportOptions::given`]).
    pub fn defaults(&self) -> impl Iterator<Item = (&str, Result<&ModelPort, &str>)> {
        self.defaults.iter().map(|(name, port)| (name.as_str(), port.as_ref().map_err(String::as_str)))
    }

    /// The graph for these numbers of its open dimensions. No values of parameters are needed for that.
    ///
    /// # Errors
    /// When a dimension has no number, or a number no dimension; everything that has no counterpart in our ops.
    pub fn import(&self, shapes: &BTreeMap<String, i64>) -> Result<Imported, OnnxError> {
        self.import_with(shapes, &BTreeMap::new())
    }

    /// As [`Model::import`], with inputs whose values are known now: they are constants, so that shapes may depend on them.
    ///
    /// # Errors
    /// As [`Model::import`]; when a value has another type than its input.
    pub fn import_with(
        &self,
        shapes: &BTreeMap<String, i64>,
        fixed: &BTreeMap<String, Tensor>,
    ) -> Result<Imported, OnnxError> {
        self.import_as(&ImportOptions { shapes: shapes.clone(), fixed: fixed.clone(), ..ImportOptions::default() })
    }

    /// As [`Model::import`], with everything that can be decided.
    ///
    /// # Errors
    /// As [`Model::import_with`]; when an input is given that has no default.
    pub fn import_as(&self, options: &ImportOptions) -> Result<Imported, OnnxError> {
        let shapes = &options.shapes;
        let mut known = self.symbols();
        let open: Vec<_> = known.iter().filter(|name| !shapes.contains_key(*name)).cloned().collect();
        for (_, port) in self.defaults.iter().filter(|(name, _)| options.gives(name)) {
            known.extend(port.iter().flat_map(ModelPort::symbols));
        }
        if let Some(name) = shapes.keys().find(|name| !known.contains(name)) {
            return Err(OnnxError::NoSuchDim { path: self.path.clone(), name: name.clone(), known });
        }
        if let Some(name) = options.given.iter().find(|name| !self.defaults.contains_key(*name)) {
            let known = self.defaults.keys().cloned().collect();
            return Err(OnnxError::NoDefault { path: self.path.clone(), name: name.clone(), known });
        }
        if !open.is_empty() {
            return Err(OnnxError::Unbound { path: self.path.clone(), open });
        }
        let broken = self.stored.iter().filter_map(|(name, t)| Some(format!("{name}: {}", t.as_ref().err()?)));
        let problems: Vec<_> = broken.collect();
        if !problems.is_empty() {
            return Err(OnnxError::Tensors { path: self.path.clone(), problems });
        }
        import::import(self, options)
    }

    /// The nodes whose op has no mapping, whatever their attributes and shapes.
    pub fn unknown_ops(&self) -> Vec<Unsupported> {
        let mut unknown = Vec::new();
        let functions = &self.proto.functions;
        let mut visit = |node: &proto::NodeProto| {
            let local = functions.iter().any(|f| (f.domain(), f.name()) == (node.domain(), node.op_type()));
            let version = self.opsets.version(node.domain());
            if let (false, Err(why)) = (local, ops::find(node.domain(), node.op_type(), version)) {
                unknown.push(Unsupported::at(node, version, why));
            }
        };
        import::each_node(&self.graph().node, &mut visit);
        functions.iter().for_each(|f| import::each_node(&f.node, &mut visit));
        unknown
    }

    /// What is in the file.
    pub fn summary(&self) -> Summary {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        import::each_node(&self.graph().node, &mut |node| {
            *counts.entry(ops::qualified(node.domain(), node.op_type())).or_default() += 1;
        });
        let mut ops: Vec<_> = counts.into_iter().collect();
        ops.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let described = |(name, port): (String, Result<ModelPort, String>)| {
            (name, port.map_or_else(|why| why, |port| port.to_string()))
        };
        let types = || self.stored.values().flatten().map(StoredTensor::ty);
        let input = |(name, port): &(String, Result<ModelPort, String>)| {
            (name.clone(), port.as_ref().map_or_else(String::clone, ModelPort::to_string))
        };
        Summary {
            opset: self.opsets.own(),
            other_opsets: self.opsets.others().map(|(domain, version)| (domain.to_string(), version)).collect(),
            ir_version: self.proto.ir_version(),
            producer: format!("{} {}", self.proto.producer_name(), self.proto.producer_version()).trim().to_string(),
            inputs: self.inputs.iter().map(input).collect(),
            outputs: self.outputs().map(described).collect(),
            tensors: self.stored.len(),
            elements: types().map(|t| t.count()).sum(),
            bytes: types().map(|t| t.bytes()).sum(),
            ops,
        }
    }
}

/// The ONNX ops that are mapped, sorted.
pub fn supported_ops() -> Vec<&'static str> {
    ops::supported()
}

/// A tensor in a file of its own, as ONNX's test data has them.
///
/// # Errors
/// When the file cannot be read or holds no tensor that programs can have.
pub fn read_tensor(path: impl AsRef<Path>) -> Result<Tensor, OnnxError> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|source| OnnxError::Io { path: path.into(), source })?;
    let proto = proto::TensorProto::decode(Bytes::from(bytes)).map_err(|e| e.to_string());
    let tensor = proto.and_then(|proto| StoredTensor::read_plain(&proto, &Folder::of(path))?.tensor());
    tensor.map_err(|problem| OnnxError::Format { path: path.into(), problem })
}

impl Imported {
    /// Warnings for the user: outputs whose declared shape is not the computed one.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The value of each parameter.
    ///
    /// # Errors
    /// Every one whose external data is missing, too short, or out of reach.
    pub fn params(&self) -> Result<BTreeMap<String, Tensor>, OnnxError> {
        let mut problems = Vec::new();
        let mut value = |(name, stored): (&String, &StoredTensor)| match stored.tensor() {
            Ok(tensor) => Some((name.clone(), tensor)),
            Err(why) => {
                problems.push(format!("{name}: {why}"));
                None
            }
        };
        let wanted = self.graph.named("param").filter_map(|(name, _)| self.params.get_key_value(name));
        let tensors = wanted.filter_map(&mut value).collect();
        match problems.is_empty() {
            true => Ok(tensors),
            false => Err(OnnxError::Tensors { path: self.path.clone(), problems }),
        }
    }
}

/// The tensors of a graph by name, those of its subgraphs aside.
fn tensors(graph: &GraphProto, folder: &Folder) -> BTreeMap<String, Result<StoredTensor, String>> {
    let sparse = graph.sparse_initializer.iter().filter_map(|s| s.values.as_ref());
    let sparse = sparse.map(|v| (v.name().to_string(), Err("it is sparse".into())));
    let twice = repeated_names(graph).into_iter().map(|name| (name.to_string(), Err(TWICE.into())));
    let dense = graph.initializer.iter().map(|t| (t.name().to_string(), StoredTensor::read(t, folder)));
    dense.chain(sparse).chain(twice).collect()
}

/// The message for a tensor of a name that another one has.
const TWICE: &str = "the file has two tensors of that name; remove or rename one of them";

/// The names that more than one tensor of a graph has.
fn repeated_names(graph: &GraphProto) -> BTreeSet<&str> {
    let sparse = graph.sparse_initializer.iter().filter_map(|s| s.values.as_ref());
    let mut names: Vec<&str> = graph.initializer.iter().chain(sparse).map(|t| t.name()).collect();
    names.sort_unstable();
    names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect()
}

#[cfg(test)]
mod tests;
