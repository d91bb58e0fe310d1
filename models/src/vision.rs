//! Models of images that commands know by name, with a preset or a folder for their sizes.

use std::path::Path;

use eutectic_ir::{Graph, GraphError};

use crate::{
    config::ConfigError,
    image::{self, Preprocessing},
    nn::Form,
    sam::{self, Preset, SamConfig},
    sam3::{self, Sam3Config},
    weights::{Weights, WeightsError},
};

/// A kind of image model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vision {
    /// The image encoder of SAM, or the whole SAM if masks are requested.
    Sam,
    /// The vision encoder of SAM 3: trunk and neck.
    Sam3,
    /// The neck of SAM 3 alone. Its input is the trunk's tokens.
    Sam3Neck,
}

impl Vision {
    /// All kinds of image models.
    pub const ALL: [Vision; 3] = [Vision::Sam, Vision::Sam3, Vision::Sam3Neck];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Vision::Sam => "sam",
            Vision::Sam3 => "sam3",
            Vision::Sam3Neck => "sam3-neck",
        }
    }

    /// Returns the kind of that name.
    pub fn named(name: &str) -> Option<Vision> {
        Vision::ALL.into_iter().find(|v| v.name() == name)
    }

    /// Returns the names of the published sizes. The first one is the default.
    pub fn presets(self) -> &'static [&'static str] {
        match self {
            Vision::Sam => &["vit-b", "vit-l", "vit-h"],
            Vision::Sam3 | Vision::Sam3Neck => &["published"],
        }
    }

    /// Returns the model with a published size, or `None` for an unknown size.
    pub fn preset(self, name: &str) -> Option<VisionModel> {
        let published = || (name == "published").then(Sam3Config::default);
        match self {
            Vision::Sam => Preset::named(name).map(|p| VisionModel::Sam(p.config())),
            Vision::Sam3 => published().map(VisionModel::Sam3),
            Vision::Sam3Neck => published().map(VisionModel::Sam3Neck),
        }
    }

    /// Returns the model that `config.json` in a folder describes.
    ///
    /// # Errors
    /// If the file cannot be used. The error lists all problems.
    pub fn open(self, folder: &Path) -> Result<VisionModel, ConfigError> {
        let file = folder.join("config.json");
        match self {
            Vision::Sam => SamConfig::open(file).map(VisionModel::Sam),
            Vision::Sam3 => Sam3Config::open(file).map(VisionModel::Sam3),
            Vision::Sam3Neck => Sam3Config::open(file).map(VisionModel::Sam3Neck),
        }
    }
}

/// An image model with its configuration.
#[derive(Clone, Debug)]
pub enum VisionModel {
    /// SAM.
    Sam(SamConfig),
    /// The vision encoder of SAM 3.
    Sam3(Sam3Config),
    /// The neck of SAM 3 alone.
    Sam3Neck(Sam3Config),
}

impl VisionModel {
    /// Opens weights, and renames them to the parameters of [`VisionModel::graph`]. Records in the configuration
    /// whether the file has optional tensors.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn weights(&mut self, path: &Path) -> Result<Weights, WeightsError> {
        match self {
            VisionModel::Sam(config) => sam::open_weights(path, config),
            VisionModel::Sam3(config) | VisionModel::Sam3Neck(config) => sam3::open_weights(path, config),
        }
    }

    /// Returns the graph for a batch of images.
    ///
    /// # Errors
    /// If extents do not fit each other.
    pub fn graph(&self, form: Form, batch: usize) -> Result<Graph, GraphError> {
        match self {
            VisionModel::Sam(config) => sam::encoder(config, form, batch),
            VisionModel::Sam3(config) => sam3::encoder(config, form, batch),
            VisionModel::Sam3Neck(config) => sam3::neck(config, form, batch),
        }
    }

    /// Returns name patterns of tensors that files of this model may have and the graph does not read.
    pub fn ignored(&self) -> &'static [&'static str] {
        match self {
            VisionModel::Sam(_) => sam::IGNORED_FOR_EMBEDDINGS,
            VisionModel::Sam3(_) => sam3::IGNORED,
            VisionModel::Sam3Neck(_) => sam3::IGNORED_FOR_NECK,
        }
    }

    /// Returns the preprocessing of images, and their rows and columns. Returns `None` if the graph does not take
    /// pixels.
    pub fn preprocessing(&self) -> Option<(Preprocessing, [usize; 2])> {
        match self {
            VisionModel::Sam(config) => Some((image::SAM, config.vision.image)),
            VisionModel::Sam3(config) => Some((image::SAM3, [config.trunk.image; 2])),
            VisionModel::Sam3Neck(_) => None,
        }
    }

    /// Returns the name of the output [B D h w] that the command `run` draws as a picture.
    pub fn pictured(&self) -> &'static str {
        match self {
            VisionModel::Sam(_) => "embedding",
            // Branch 2 has the scale of the tokens.
            VisionModel::Sam3(_) | VisionModel::Sam3Neck(_) => "feature.2",
        }
    }
}
