//! The configuration of SAM 3's vision encoder: the published one, and `config.json` of the transformers library.

use std::path::Path;

use serde_json::{Map, Value};

use crate::{
    config::{ConfigError, Fields, read},
    nn::Activation,
};

/// The parameters of the vision encoder of a SAM 3 model, without weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Sam3Config {
    /// The trunk.
    pub trunk: TrunkConfig,
    /// The number of channels that the neck returns.
    pub neck_width: usize,
    /// The branches of the neck, each with its index and its scale. Branches that are not listed are not computed.
    pub branches: Vec<(usize, Scale)>,
}

/// The trunk: a ViT with windows and two-dimensional rotary positions.
#[derive(Clone, Debug, PartialEq)]
pub struct TrunkConfig {
    /// The number of rows of the image, and of columns.
    pub image: usize,
    /// Channels of the image.
    pub channels: usize,
    /// Rows and columns of a patch; they divide the image.
    pub patch: usize,
    /// Width of the tokens.
    pub width: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Attention heads of each block. `width` is a multiple of four times their number.
    pub heads: usize,
    /// Width between the two linear layers of a block.
    pub mlp: usize,
    /// The activation between them.
    pub activation: Activation,
    /// Rows and columns of the windows of attention.
    pub window: usize,
    /// The blocks with attention to the whole image.
    pub global: Vec<usize>,
    /// Rows and columns of the table of absolute positions, which is repeated over the grid.
    pub table: usize,
    /// The base of the wavelengths of rotary positions.
    pub theta: f64,
    /// Epsilon of the layer norms.
    pub eps: f64,
}

/// The scale of a branch of the neck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scale {
    /// Two transposed convolutions. Each doubles rows and columns.
    Quadruple,
    /// One transposed convolution.
    Double,
    /// No change.
    Same,
    /// The maximum of each 2 × 2.
    Half,
}

impl Scale {
    /// All scales, in the order of the published model.
    pub const ALL: [Scale; 4] = [Scale::Quadruple, Scale::Double, Scale::Same, Scale::Half];

    fn factor(self) -> f64 {
        match self {
            Scale::Quadruple => 4.0,
            Scale::Double => 2.0,
            Scale::Same => 1.0,
            Scale::Half => 0.5,
        }
    }

    /// Returns the number of rows of the branch, given that of the grid. The same holds for columns.
    pub fn of(self, side: usize) -> usize {
        (side as f64 * self.factor()) as usize
    }
}

impl Default for Sam3Config {
    /// Returns the published size.
    fn default() -> Sam3Config {
        let trunk = TrunkConfig {
            image: 1008,
            channels: 3,
            patch: 14,
            width: 1024,
            layers: 32,
            heads: 16,
            mlp: 4736,
            activation: Activation::GeluErf,
            window: 24,
            global: vec![7, 15, 23, 31],
            table: 24,
            theta: 10000.0,
            eps: 1e-6,
        };
        Sam3Config { trunk, neck_width: 256, branches: numbered(&Scale::ALL) }
    }
}

impl TrunkConfig {
    /// Returns the number of rows of the tokens, which is also that of columns.
    pub fn grid(&self) -> usize {
        self.image / self.patch
    }

    /// Returns the size of a block's windows, or `None` if it attends to the whole image.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        (!self.global.contains(&layer)).then_some(self.window)
    }
}

impl Sam3Config {
    /// Reads `config.json` of the vision encoder, or of a model with one. Fields that are not needed are ignored.
    /// Missing ones have the defaults of transformers' `Sam3VisionConfig`.
    ///
    /// # Errors
    /// If the file cannot be read or is not JSON, and if fields are wrong. The error lists all of them.
    pub fn open(path: impl AsRef<Path>) -> Result<Sam3Config, ConfigError> {
        read(path.as_ref(), "a SAM 3 model", Sam3Config::from_fields)
    }

    /// Returns the configuration from the fields of a JSON object.
    ///
    /// # Errors
    /// A line for each field that is wrong.
    pub fn from_fields(fields: &Map<String, Value>) -> Result<Sam3Config, Vec<String>> {
        let mut r = Fields::new(fields);
        let kinds = ["sam3_vision_model", "sam3", "sam3_video"];
        r.optional("model_type", &format!("one of {}", kinds.join(", ")), (), |v| {
            v.as_str().filter(|t| kinds.contains(t)).map(|_| ())
        });
        let config = if r.has("detector_config") {
            r.within("detector_config", |r| r.within("vision_config", encoder))
        } else if r.has("vision_config") {
            r.within("vision_config", encoder)
        } else {
            encoder(&mut r)
        };
        r.done(config)
    }
}

fn encoder(r: &mut Fields<'_>) -> Option<Sam3Config> {
    let base = Sam3Config::default();
    let trunk = r.within("backbone_config", |r| trunk(r, &base.trunk));
    let neck_width = r.size_or("fpn_hidden_size", 1 << 20, base.neck_width);
    if let Some(width) = neck_width.filter(|n| !n.is_multiple_of(2)) {
        r.problem("fpn_hidden_size", "an even number", &width);
    }
    r.fixed("fpn_kernel_size", 2);
    r.fixed("fpn_stride", 2);
    let branches = r.optional("scale_factors", "a list of numbers, each 4, 2, 1 or 0.5", base.branches, |v| {
        let scale = |v: &Value| v.as_f64().and_then(|f| Scale::ALL.into_iter().find(|s| s.factor() == f));
        v.as_array()?.iter().map(scale).collect::<Option<Vec<_>>>().map(|scales| numbered(&scales))
    });
    Some(Sam3Config { trunk: trunk?, neck_width: neck_width?, branches: branches? })
}

fn numbered(scales: &[Scale]) -> Vec<(usize, Scale)> {
    scales.iter().copied().enumerate().collect()
}

fn trunk(r: &mut Fields<'_>, base: &TrunkConfig) -> Option<TrunkConfig> {
    let image = r.size_or("image_size", 1 << 16, base.image);
    let channels = r.size_or("num_channels", 1 << 12, base.channels);
    let patch = r.size_or("patch_size", 1 << 12, base.patch);
    let width = r.size_or("hidden_size", 1 << 20, base.width);
    let layers = r.size_or("num_hidden_layers", 1 << 12, base.layers);
    let heads = r.size_or("num_attention_heads", 1 << 20, base.heads);
    let mlp = r.size_or("intermediate_size", 1 << 24, base.mlp);
    let activation = r.activation_or("hidden_act", base.activation);
    let window = r.size_or("window_size", 1 << 12, base.window);
    let global = r.indices_or("global_attn_indexes", &base.global);
    let trained = r.size_or("pretrain_image_size", 1 << 16, base.table * base.patch);
    let eps = r.eps_or("layer_norm_eps", base.eps);
    let theta = r.within("rope_parameters", |r| {
        r.fixed("rope_type", "axial");
        let positive = |v: &Value| v.as_f64().filter(|x| *x > 0.0 && x.is_finite());
        r.optional("rope_theta", "a number above 0", base.theta, positive)
    });
    if let (Some(width), Some(heads)) = (width, heads)
        && !width.is_multiple_of(4 * heads)
    {
        // The column rotates one half of each head's pairs, and the row the other half.
        r.problem("num_attention_heads", format!("a divisor of a quarter of hidden_size, {width}"), &heads);
    }
    if let Some(width) = width.filter(|n| !n.is_multiple_of(4)) {
        r.problem("hidden_size", "a multiple of 4", &width);
    }
    for (name, side) in [("image_size", image), ("pretrain_image_size", trained)] {
        if let (Some(side), Some(patch)) = (side, patch)
            && !side.is_multiple_of(patch)
        {
            r.problem("patch_size", format!("a divisor of {name}, {side}"), &patch);
        }
    }
    Some(TrunkConfig {
        image: image?,
        channels: channels?,
        patch: patch?,
        width: width?,
        layers: layers?,
        heads: heads?,
        mlp: mlp?,
        activation: activation?,
        window: window?,
        global: global?,
        table: trained? / patch?,
        theta: theta?,
        eps: eps?,
    })
}
