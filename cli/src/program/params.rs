//! The parameters of a program: from files of single arrays, from a file of weights, from the model, or random.

use std::collections::BTreeMap;

use eutectic::{
    Graph,
    engine::{
        ir::lang::sexp::suggestion,
        models::{Weights, bert::IGNORED, random_weights},
    },
};

use super::{ProgramArgs, onnx_fault};
use crate::{
    fault::{Fault, input},
    values::{NamedTensors, read_named},
};

impl ProgramArgs {
    /// Reads the parameters that the user gives as files of single arrays.
    ///
    /// # Errors
    /// If a file is not a usable `.npy` file, or a name is given twice.
    pub fn given_params(&self) -> Result<NamedTensors, Fault> {
        read_named("--param", &self.params)
    }

    /// Returns the parameters of the graph, and a description of their source.
    ///
    /// # Errors
    /// If the weights cannot be read or are not those that the graph needs, or if the user must download weights first.
    pub fn params(&self, graph: &Graph) -> Result<(NamedTensors, String), Fault> {
        let given = self.given_params()?;
        let types: BTreeMap<&str, &eutectic::Type> =
            graph.named("param").map(|(name, id)| (name, graph.ty(id))).collect();
        for (name, value) in &given {
            let Some(ty) = types.get(name.as_str()) else {
                let help = suggestion(name, "the parameters are", types.keys().copied());
                return Err(input(format!("--param {name}: the program has no parameter of that name"), help));
            };
            if value.ty() != **ty {
                let help = "give an array of exactly this element type and shape";
                return Err(input(format!("parameter `{name}` is {ty}, but {} was given", value.ty()), help));
            }
        }
        if !types.is_empty() && given.len() == types.len() {
            return Ok((given, "each from its own file".into()));
        }
        let (mut params, mut source) = self.other_params(graph)?;
        if !given.is_empty() {
            source = format!("{source}; {} from their own files", given.len());
        }
        params.extend(given);
        Ok((params, source))
    }

    fn other_params(&self, graph: &Graph) -> Result<(NamedTensors, String), Fault> {
        if let Some(opened) = self.opened()? {
            return self.image_params(&opened, graph, opened.model.ignored());
        }
        match &self.weights {
            Some(path) => {
                let file = if path.is_dir() { path.join("model.safetensors") } else { path.clone() };
                let weights = Weights::open(&file).map_err(|e| self.unusable(e))?;
                let wanted: Vec<_> = graph.named("param").map(|(name, id)| (name, graph.ty(id))).collect();
                let ignored = if self.builtin().is_some() { IGNORED } else { &[] };
                let bound = weights.bind(wanted, ignored).map_err(|e| self.unusable(e))?;
                Ok((bound.tensors, format!("from {}", file.display())))
            }
            None if self.published().is_some() && !self.random => {
                Err(self.unusable(format!("{} needs --weights DIR, or --random", self.model.display())))
            }
            None if self.is_onnx() && !self.random => {
                let params = self.import()?.params().map_err(onnx_fault)?;
                Ok((params, format!("from {}", self.model.display())))
            }
            None => Ok((self.random_params(graph), format!("random, from seed {}", self.seed))),
        }
    }

    pub(super) fn random_params(&self, graph: &Graph) -> NamedTensors {
        let _bar = self.progress("making random parameters");
        random_weights(graph, self.seed)
    }
}
