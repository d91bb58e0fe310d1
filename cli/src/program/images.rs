//! Built-in image models, with a preset or with the folder of their weights.

use std::path::PathBuf;

use eutectic::{
    Graph,
    engine::{
        ir::lang::sexp::suggestion,
        models::{
            Weights,
            vision::{Vision, VisionModel},
        },
    },
};

use super::ProgramArgs;
use crate::{
    fault::{Fault, input},
    values::NamedTensors,
};

/// An image model, and the weights that the user gives for it.
pub struct Opened {
    /// The model with its sizes.
    pub model: VisionModel,
    weights: Option<(PathBuf, Weights)>,
}

impl ProgramArgs {
    /// Returns the kind of image model that the program is, or `None` for other programs.
    pub fn vision(&self) -> Option<Vision> {
        Vision::named(self.model.to_str()?)
    }

    /// Returns the number of images in a batch.
    pub fn images(&self) -> usize {
        self.batch.unwrap_or(1)
    }

    /// Returns the image model with a preset, or with the sizes in the folder of its weights. Returns `None` for other
    /// programs.
    ///
    /// # Errors
    /// If there is no such preset, or if files cannot be read or contradict the arguments.
    pub fn opened(&self) -> Result<Option<Opened>, Fault> {
        let Some(kind) = self.vision() else {
            return match &self.preset {
                None => Ok(None),
                Some(name) => {
                    let problem = format!("--preset {name}: {} has one size only", self.model.display());
                    Err(input(problem, "leave out --preset; sam has presets"))
                }
            };
        };
        let presets = kind.presets().join(", ");
        let for_texts = [("--seq", self.seq.is_some()), ("--shape", !self.shape.is_empty())];
        if let Some((flag, _)) = for_texts.iter().find(|(_, given)| *given) {
            let problem = format!("{flag} does not apply to {}, which takes images of one size", kind.name());
            return Err(input(problem, "--batch sets the number of images"));
        }
        if self.batch == Some(0) {
            return Err(input("--batch is 0, so there is no image", "give at least one"));
        }
        let folder = self.weights.as_ref().filter(|path| path.is_dir());
        let mut model = match (folder, &self.preset) {
            (Some(folder), None) => kind.open(folder).map_err(|e| {
                input(
                    e,
                    format!(
                        "give a folder with config.json and model.safetensors, or a file and one of --preset {presets}"
                    ),
                )
            })?,
            (Some(folder), Some(name)) => {
                let problem =
                    format!("--preset {name} does not apply because {} already describes the model", folder.display());
                return Err(input(problem, "leave out --preset, or let --weights name the file in the folder"));
            }
            (None, None) if self.weights.is_some() => {
                let help = format!("add --preset, one of {presets}, or let --weights name a folder with config.json");
                return Err(input("--weights names a file, which does not state the sizes of its model", help));
            }
            (None, name) => {
                let name = name.as_deref().unwrap_or(kind.presets()[0]);
                let unknown = || {
                    let help = suggestion(name, "it has", kind.presets().iter().copied());
                    input(format!("--preset {name}: {} has no preset of that name", kind.name()), help)
                };
                kind.preset(name).ok_or_else(unknown)?
            }
        };
        let path = folder.map(|folder| folder.join("model.safetensors")).or(self.weights.clone());
        let weights = path.map(|path| {
            let weights = model.weights(&path).map_err(|e| self.unusable(e))?;
            Ok::<_, Fault>((path, weights))
        });
        Ok(Some(Opened { weights: weights.transpose()?, model }))
    }

    /// Returns the parameters of the graph, and a description of their source. The file may have other tensors if their
    /// names match `ignored`.
    ///
    /// # Errors
    /// If the tensors of the file are not those that the graph needs.
    pub fn image_params(
        &self,
        opened: &Opened,
        graph: &Graph,
        ignored: &[&str],
    ) -> Result<(NamedTensors, String), Fault> {
        let Some((path, weights)) = &opened.weights else {
            let source = format!("random, from seed {}: the results are meaningless", self.seed);
            return Ok((self.random_params(graph), source));
        };
        let wanted = graph.named("param").map(|(name, id)| (name, graph.ty(id)));
        let bound = weights.bind(wanted, ignored).map_err(|e| self.unusable(e))?;
        Ok((bound.tensors, format!("from {}", path.display())))
    }
}
