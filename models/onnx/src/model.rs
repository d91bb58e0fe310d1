//! Opens ONNX models: parses and checks the file, before any node is imported.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
};

use eutectic_ir::{Dim, Graph, Ops, Tensor};
use memmap2::Mmap;
use prost::{Message, bytes::Bytes};

use super::{
    error::OnnxError,
    folder::Folder,
    opsets::{NEWEST_OPSET, OLDEST_OPSET, OpSets, qualified},
    proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto},
    stored::StoredTensor,
    types::ModelPort,
};

/// The first IR version of ONNX in which an input may have a default value: a tensor of the file with the input's name.
const FIRST_WITH_DEFAULTS: i64 = 4;

/// An ONNX model. Its file stays mapped as long as one of its tensors exists. The file must not be truncated during
/// that time: a read beyond the end of a mapped file raises SIGBUS, which ends the process.
#[derive(Debug)]
pub struct Model {
    pub(super) path: PathBuf,
    pub(super) folder: Folder,
    pub(super) proto: ModelProto,
    pub(super) opsets: OpSets,
    /// The inputs by name, each with its type or the reason why a program cannot have it.
    pub(super) inputs: Vec<(String, Result<ModelPort, String>)>,
    /// The inputs that have a default value in the file.
    pub(super) defaults: BTreeMap<String, Result<ModelPort, String>>,
    /// The tensors of the file, each with its value or the reason why it cannot be used. The import reports these
    /// reasons.
    pub(super) stored: BTreeMap<String, Result<StoredTensor, String>>,
}

/// Options of the import.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// A number or a run-time extent for each open dimension.
    pub shapes: BTreeMap<String, Dim>,
    /// Inputs with fixed values. They become constants, so shapes may depend on them.
    pub fixed: BTreeMap<String, Tensor>,
    /// Inputs with a default that receive a value in each run nevertheless ([`Model::defaults`]). Other inputs with a
    /// default keep it.
    pub given: BTreeSet<String>,
    /// The limit on iterations of a loop whose trip count depends on the model's inputs. A run that exceeds it is an
    /// error.
    pub most_times: usize,
    /// The ops that the user declares. A node that one of them names becomes that op, even if the reader has a
    /// translation of the node.
    pub ops: Ops,
}

impl Default for ImportOptions {
    fn default() -> ImportOptions {
        let (shapes, fixed, given) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        ImportOptions { shapes, fixed, given, most_times: MOST_TIMES, ops: Ops::default() }
    }
}

impl ImportOptions {
    /// Returns whether an input that has a default receives a value in each run.
    pub(super) fn gives(&self, name: &str) -> bool {
        self.given.contains(name) || self.fixed.contains_key(name)
    }
}

/// The default of [`ImportOptions::most_times`].
pub const MOST_TIMES: usize = 1024;

/// An imported model.
#[derive(Debug)]
pub struct Imported {
    /// The graph. The tensors of the file are its parameters, except single elements and small integer tensors, which
    /// are constants.
    pub graph: Graph,
    pub(super) path: PathBuf,
    pub(super) params: BTreeMap<String, StoredTensor>,
    pub(super) warnings: Vec<String>,
}

/// The contents of a file.
#[derive(Debug)]
pub struct Summary {
    /// The version of ONNX's own op set, if the file states one.
    pub opset: Option<i64>,
    /// The op sets of other domains, with their versions.
    pub other_opsets: Vec<(String, i64)>,
    /// The IR version of the file.
    pub ir_version: i64,
    /// The program that wrote the file.
    pub producer: String,
    /// The inputs, each with a description of its type.
    pub inputs: Vec<(String, String)>,
    /// The declared outputs, each with a description of its type.
    pub outputs: Vec<(String, String)>,
    /// The number of tensors in the file and its external data.
    pub tensors: usize,
    /// The total number of elements of all tensors.
    pub elements: usize,
    /// The total size of all tensors in bytes.
    pub bytes: usize,
    /// The number of occurrences of each op, largest first. Subgraphs are included.
    pub ops: Vec<(String, usize)>,
}

impl Model {
    /// Maps a file and checks it. External data is not opened yet.
    ///
    /// # Errors
    /// If the file cannot be opened, is damaged, or is written in an op set that is not supported.
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
            // SAFETY: this process only reads the map. It cannot prevent other processes from truncating the file, so
            // the documentation of `Model` forbids that.
            _ => Bytes::from_owner(unsafe { Mmap::map(&file) }.map_err(io)?),
        };
        Model::read(path, bytes)
    }

    /// Opens a model that is in memory. `path` stands for the model in errors. External data is read from the folder of
    /// `path`.
    ///
    /// # Errors
    /// In the cases of [`Model::open`].
    pub fn from_bytes(path: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Model, OnnxError> {
        Model::read(path.into(), bytes.into())
    }

    fn read(path: PathBuf, bytes: Bytes) -> Result<Model, OnnxError> {
        let format = |problem: String| OnnxError::Format { path: path.clone(), problem };
        let proto = ModelProto::decode(bytes).map_err(|e| format(e.to_string()))?;
        let graph = proto.graph.as_ref().ok_or_else(|| format("it has no graph".into()))?;
        let opsets = OpSets::read(&proto.opset_import);
        if opsets.is_empty() {
            return Err(format("it does not state its op set".into()));
        }
        if let Some(opset) = opsets.own().filter(|opset| !(OLDEST_OPSET..=NEWEST_OPSET).contains(opset)) {
            return Err(format(format!(
                "its opset is {opset}, but only {OLDEST_OPSET} to {NEWEST_OPSET} are supported; convert it with \
                 onnx.version_converter"
            )));
        }
        let folder = Folder::of(&path);
        let stored = tensors(graph, &folder);
        let given = graph.input.iter().filter(|info| !stored.contains_key(info.name()));
        let port = |info: &ValueInfoProto| (info.name().to_string(), ModelPort::read(info));
        let inputs = given.map(port).collect();
        // Before IR version 4, every tensor of the file also had to be listed as an input.
        let may_be_given = proto.ir_version() >= FIRST_WITH_DEFAULTS;
        let defaults = graph.input.iter().filter(|info| may_be_given && stored.contains_key(info.name()));
        let defaults = defaults.map(port).collect();
        Ok(Model { inputs, defaults, stored, opsets, path, folder, proto })
    }

    pub(super) fn graph(&self) -> &GraphProto {
        self.proto.graph.as_ref().expect("a model without a graph is not opened")
    }

    /// Returns the names of the inputs' open dimensions, sorted.
    pub fn symbols(&self) -> Vec<String> {
        let mut names: Vec<_> = self.inputs.iter().flat_map(|(_, port)| port).flat_map(ModelPort::symbols).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the inputs, each with its type or the reason why a program cannot have it.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Result<&ModelPort, &str>)> {
        self.inputs.iter().map(|(name, port)| (name.as_str(), port.as_ref().map_err(String::as_str)))
    }

    /// Returns the outputs that the file declares, each with its type or the reason why a program cannot have it.
    pub fn outputs(&self) -> impl Iterator<Item = (String, Result<ModelPort, String>)> {
        self.graph().output.iter().map(|info| (info.name().to_string(), ModelPort::read(info)))
    }

    /// Returns the inputs that have a default value in the file. [`ImportOptions::given`] selects those that runs
    /// receive instead.
    pub fn defaults(&self) -> impl Iterator<Item = (&str, Result<&ModelPort, &str>)> {
        self.defaults.iter().map(|(name, port)| (name.as_str(), port.as_ref().map_err(String::as_str)))
    }

    /// Summarizes the contents of the file.
    pub fn summary(&self) -> Summary {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        each_node(&self.graph().node, &mut |node| {
            *counts.entry(qualified(node.domain(), node.op_type())).or_default() += 1;
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

impl Imported {
    /// Returns warnings about the file, for example about outputs whose declared shape differs from the computed one.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Reads the value of each parameter.
    ///
    /// # Errors
    /// If external data is missing, too short, or outside the folder of the model. The error lists all such tensors.
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

/// Reads the tensors of a graph by name, without those of its subgraphs.
fn tensors(graph: &GraphProto, folder: &Folder) -> BTreeMap<String, Result<StoredTensor, String>> {
    let sparse = graph.sparse_initializer.iter().filter_map(|s| s.values.as_ref());
    let sparse = sparse.map(|v| (v.name().to_string(), Err("it is sparse, which is not supported".into())));
    let twice = repeated_names(graph).into_iter().map(|name| (name.to_string(), Err(TWICE.into())));
    let dense = graph.initializer.iter().map(|t| (t.name().to_string(), StoredTensor::read(t, folder)));
    dense.chain(sparse).chain(twice).collect()
}

/// The message for a name that two tensors have.
pub(super) const TWICE: &str = "the file has two tensors of that name; remove or rename one of them";

/// Returns the names that more than one tensor of a graph has.
pub(super) fn repeated_names(graph: &GraphProto) -> BTreeSet<&str> {
    let sparse = graph.sparse_initializer.iter().filter_map(|s| s.values.as_ref());
    let mut names: Vec<&str> = graph.initializer.iter().chain(sparse).map(|t| t.name()).collect();
    names.sort_unstable();
    names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect()
}

/// Visits all nodes, including those of subgraphs.
pub(super) fn each_node(nodes: &[NodeProto], visit: &mut dyn FnMut(&NodeProto)) {
    for node in nodes {
        visit(node);
        for attribute in &node.attribute {
            attribute.g.iter().chain(&attribute.graphs).for_each(|inner| each_node(&inner.node, visit));
        }
    }
}
