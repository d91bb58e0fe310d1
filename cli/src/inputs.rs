//! Values of inputs and parameters: arrays from files, and random numbers.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::Args;
use eutectic::{
    DType, Graph, NodeId, Shape, Tensor,
    engine::{
        ir::{Class, index::Index, ops::ViewCall},
        models::random::Rng,
    },
};

use crate::{
    fault::{Fault, input},
    infer::{no_input, solve},
    program::ProgramArgs,
    values::{NamedTensors, named_file, read_named},
};

/// The values of inputs that the user gives.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Inputs")]
pub struct InputFiles {
    /// An input from a file (- for stdin); other inputs are random; dimensions without a number take the extents of the
    /// array; may be repeated
    #[arg(long = "input", value_name = "NAME=@FILE.npy", value_parser = named_file)]
    pub files: Vec<(String, PathBuf)>,
}

impl InputFiles {
    /// Returns the files that the command reads, each with the argument that names it.
    pub fn reads(&self) -> impl Iterator<Item = (String, &Path)> {
        self.files.iter().map(|(name, path)| (format!("--input {name}"), path.as_path()))
    }

    /// Reads the files.
    ///
    /// # Errors
    /// If a file is not a usable `.npy` file, or a name is given twice.
    pub fn read(&self) -> Result<NamedTensors, Fault> {
        read_named("--input", &self.files)
    }
}

impl ProgramArgs {
    /// Returns a value for each input: that in `given`, or a random one. Texts of built-in models have no padding.
    /// Inputs that the results do not depend on are zeros, which the system allocates when they are first read.
    ///
    /// # Errors
    /// If the graph has no input for a given value, or if the value has another type than its input.
    pub fn inputs(&self, graph: &Graph, given: NamedTensors) -> Result<NamedTensors, Fault> {
        let bound = at_lengths(graph, &given)?;
        let graph = bound.as_ref().unwrap_or(graph);
        let inputs: Vec<(&str, NodeId)> = graph.named("input").collect();
        let is_known = |name: &str| self.decided.known.contains_key(name);
        if let Some(name) = given.keys().find(|name| !inputs.iter().any(|(n, _)| n == name) && !is_known(name)) {
            let inputs: Vec<_> = inputs.iter().map(|(name, id)| (*name, graph.ty(*id))).collect();
            return Err(no_input(name, &inputs));
        }
        let mut values = NamedTensors::new();
        let (read, _bar) = (what_is_read(graph), self.progress("making random inputs"));
        for (name, id) in inputs {
            let ty = graph.ty(id);
            let made = || match (ty.dtype(), ty.dims()) {
                (Some(dtype), Some(dims)) if !read[id.0 as usize] => {
                    Tensor::new(dtype, &dims, vec![0; ty.bytes()]).map_err(Fault::input)
                }
                _ => self.random_input(graph, name, id),
            };
            let value = given.get(name).cloned().map_or_else(made, Ok)?;
            if value.ty() != *ty {
                let help = "give an array of exactly this element type and shape, or bind other extents";
                return Err(input(format!("input `{name}` is {ty}, but {} was given", value.ty()), help));
            }
            values.insert(name.into(), value);
        }
        Ok(values)
    }

    fn random_input(&self, graph: &Graph, name: &str, id: NodeId) -> Result<Tensor, Fault> {
        let ty = graph.ty(id);
        let (Some(dtype), Some(dims)) = (ty.dtype(), ty.dims()) else {
            return Err(Fault::input(format!("input `{name}` {ty} has no known extents")));
        };
        let mut rng = Rng::new(self.seed ^ name.bytes().fold(0, |h: u64, b| h.wrapping_mul(31).wrapping_add(b.into())));
        let count = dims.iter().product();
        // A built-in model has two inputs: token ids, and a mask of ones.
        let limit = match (self.builtin(), name) {
            (Some(builtin), "ids") => (self.config(builtin)?).vocabulary,
            (Some(_), _) => return Ok(Tensor::from_i64(dtype, &dims, std::iter::repeat_n(1, count))),
            (None, _) => legal_ids(graph, id),
        };
        Ok(match dtype {
            float if float.is_float() => Tensor::from_f64(dtype, &dims, (0..count).map(|_| rng.symmetric())),
            DType::Bool => Tensor::from_i64(dtype, &dims, (0..count).map(|_| rng.below(2) as i64)),
            _ => Tensor::from_i64(dtype, &dims, (0..count).map(|_| rng.below(limit) as i64)),
        })
    }
}

/// Binds run-time extents to the lengths of the given arrays. An extent that no array determines gets its upper bound.
///
/// # Errors
/// If an array has a length that is out of bounds.
fn at_lengths(graph: &Graph, given: &NamedTensors) -> Result<Option<Graph>, Fault> {
    let extents = graph.extents();
    if extents.is_empty() {
        return Ok(None);
    }
    let mut lengths = BTreeMap::new();
    for (name, id) in graph.named("input") {
        let (Some(shape), Some(value)) = (graph.shape(id), given.get(name)) else { continue };
        if shape.rank() != value.dims().len() {
            continue;
        }
        for (dim, &extent) in shape.iter().zip(value.dims()) {
            let Some((symbol, length)) = solve(dim, extent) else { continue };
            let Some((least, most)) = extents.iter().find(|e| *e.name == *symbol).and_then(|e| e.bounds) else {
                continue;
            };
            if !(least..=most).contains(&length) {
                let problem = format!("input `{name}` is {}, but {} was given", graph.ty(id), value.ty());
                return Err(input(
                    problem,
                    format!("{symbol} is {least} to {most}; give an array within these bounds"),
                ));
            }
            lengths.entry(symbol).or_insert(length);
        }
    }
    for extent in extents {
        let (_, most) = extent.bounds.unwrap_or_default();
        lengths.entry(extent.name.to_string()).or_insert(most);
    }
    graph.bind(&lengths).map(Some).map_err(|e| input(e.problem, e.help))
}

/// Returns, for each node, whether a result depends on it.
fn what_is_read(graph: &Graph) -> Vec<bool> {
    let mut read = vec![false; graph.len()];
    graph.results().for_each(|(_, id)| read[id.0 as usize] = true);
    // Ids of operands are less than those of their users, so the reverse order visits users first.
    for (id, node) in graph.nodes().collect::<Vec<_>>().into_iter().rev() {
        if read[id.0 as usize] {
            node.operands.iter().for_each(|operand| read[operand.0 as usize] = true);
        }
    }
    read
}

/// Returns the number of legal ids for an input: the smallest extent that it indexes. If it indexes none, this is 2,
/// which suits masks.
fn legal_ids(graph: &Graph, input: NodeId) -> usize {
    let mut same = vec![false; graph.len()];
    same[input.0 as usize] = true;
    let mut least = None;
    for (id, node) in graph.nodes() {
        let carried: Vec<usize> = (0..node.operands.len()).filter(|&n| same[node.operands[n].0 as usize]).collect();
        let operands: Option<Vec<_>> = node.operands.iter().map(|o| graph.ty(*o).dims()).collect();
        let (false, Some(operands), Some(result)) = (carried.is_empty(), operands, node.ty.dims()) else { continue };
        // The result of a conversion is still an id, but that of arithmetic is not.
        same[id.0 as usize] = matches!(node.op.def().class, Class::Pointwise) && node.operands.len() == 1;
        if let Some(ids) = node.op.def().ids {
            least = usize::try_from(ids(&node.attrs).extent).ok().into_iter().chain(least).min();
        }
        let Class::View(view) = node.op.def().class else { continue };
        let shapes: Vec<Shape> = node.operands.iter().filter_map(|o| graph.shape(*o).cloned()).collect();
        let Some(shape) = graph.shape(id) else { continue };
        let at: Vec<_> = (0..result.len()).map(Index::coord).collect();
        let call = ViewCall { attrs: &node.attrs, operands: &shapes, result: shape, at: &at, domain: &result };
        for piece in view(&call).into_iter().flat_map(|access| access.pieces) {
            same[id.0 as usize] |= carried.contains(&piece.operand);
            let read = piece.via.filter(|(ids, _)| carried.contains(ids));
            let axis = piece.at.iter().position(|i| *i == Index::gathered()).filter(|_| read.is_some());
            least = axis.map(|axis| operands[piece.operand][axis]).into_iter().chain(least).min();
        }
    }
    least.unwrap_or(2)
}
