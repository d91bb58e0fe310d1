//! Models that take images, as commands know them: by name, from a preset or from a folder.

use std::path::Path;

use eutectic_ir::{Graph, GraphError};

use crate::{
    config::ConfigError,
    image::{self, Preprocessing},
    nn::Form,
    sam::{self, Preset, SamConfig},
    weights::{Weights, WeightsError},
};

/// A kind of model that takes images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vision {
    /// The image encoder of SAM, with prompt encoder and mask decoder where masks are asked for.
    Sam,
}

impl Vision {
    /// All of them.
    pub const ALL: [Vision; 1] = [Vision::Sam];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Vision::Sam => "sam",
        }
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Vision> {
        Vision::ALL.into_iter().find(|v| v.name() == name)
    }

    /// Its published sizes; the first is meant where none is said.
    pub fn presets(self) -> &'static [&'static str] {
        match self {
            Vision::Sam => &["vit-b", "vit-l", "vit-h"],
        }
    }

    /// A published size.
    pub fn preset(self, name: &str) -> Option<VisionModel> {
        match self {
            Vision::Sam => Preset::named(name).map(|p| VisionModel::Sam(p.config())),
        }
    }

    /// The model that `config.json` of a folder describes.
    ///
    /// # Errors
    /// Everything that is wrong with the file.
    pub fn open(self, folder: &Path) -> Result<VisionModel, ConfigError> {
        match self {
            Vision::Sam => SamConfig::open(folder.join("config.json")).map(VisionModel::Sam),
        }
    }
}

/// A model that takes images, with its sizes.
#[derive(Clone, Debug)]
pub enum VisionModel {
    /// SAM.
    Sam(SamConfig),
}

impl VisionModel {
    /// Opens weights under the names of [`VisionModel::graph`]'s parameters, and learns which optional tensors there are.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn weights(&mut self, path: &Path) -> Result<Weights, WeightsError> {
        match self {
            VisionModel::Sam(config) => sam::open_weights(path, config),
        }
    }

    /// The graph for a batch of images.
    ///
    /// # Errors
    /// When extents do not fit.
    pub fn graph(&self, form: Form, batch: usize) -> Result<Graph, GraphError> {
        match self {
            VisionModel::Sam(config) => sam::encoder(config, form, batch),
        }
    }

    /// Tensors in files of such models that the graph does not need.
    pub fn ignored(&self) -> &'static [&'static str] {
        match self {
            VisionModel::Sam(_) => sam::IGNORED_FOR_EMBEDDINGS,
        }
    }

    /// What becomes of images, and at what size; none where the graph does not take pixels.
    pub fn preprocessing(&self) -> Option<(Preprocessing, [usize; 2])> {
        match self {
            VisionModel::Sam(config) => Some((image::SAM, config.vision.image)),
        }
    }
}
