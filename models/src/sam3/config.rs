//! Reads the configuration of SAM 3's vision encoder from `config.json` of the transformers library, and has the
//! published one.

use std::path::Path;

use serde_json::{Map, Value};

use crate::{
    config::{ConfigError, Fields, read},
    nn::Activation,
};

/// The parameters of the vision encoder of a SAM 3 model, without weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Sam3Config {
    /// The transformer that encodes the image.
    pub trunk: TrunkConfig,
    /// Channels of the neck's features.
    pub neck_width: usize,
    /// The branches of the neck: the index of each in the published model, and its scale. Branches that are not listed
    /// are not computed.
    pub branches: Vec<(usize, Scale)>,
}

/// The trunk of the vision encoder: a ViT with windowed attention and two-dimensional rotary embeddings.
#[derive(Clone, Debug, PartialEq)]
pub struct TrunkConfig {
    /// Rows, and also columns, of the square image in pixels.
    pub image: usize,
    /// Channels of the image.
    pub channels: usize,
    /// Rows and columns of a square patch, a divisor of `image`.
    pub patch: usize,
    /// Width of the tokens.
    pub width: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Attention heads of each block. Four times their number divides `width`.
    pub heads: usize,
    /// Inner width of a block's feed-forward part.
    pub mlp: usize,
    /// The activation of the feed-forward part.
    pub activation: Activation,
    /// Rows and columns of the attention windows, in tokens.
    pub window: usize,
    /// Indices of the blocks that attend to the whole image.
    pub global: Vec<usize>,
    /// Rows and columns of the table of absolute positions. The table is repeated to cover the grid of tokens.
    pub table: usize,
    /// The base of the rotary frequencies.
    pub theta: f64,
    /// Epsilon of the layer norms.
    pub eps: f64,
}

/// The scale of a branch of the neck, relative to the grid of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scale {
    /// Four times the rows and columns: two transposed convolutions double them.
    Quadruple,
    /// Twice the rows and columns: one transposed convolution doubles them.
    Double,
    /// The rows and columns of the grid.
    Same,
    /// Half of the rows and columns: the maximum of each 2 × 2 tokens.
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

    /// Returns the rows, or columns, of the branch for a grid with `side` rows or columns.
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
    /// Returns the rows, and also columns, of the square grid of tokens.
    pub fn grid(&self) -> usize {
        self.image / self.patch
    }

    /// Returns the rows and columns of a block's windows, or `None` if the block attends to the whole image.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        (!self.global.contains(&layer)).then_some(self.window)
    }
}

impl Sam3Config {
    /// Reads `config.json` of the vision encoder, or of a model with that encoder. Ignores fields that the encoder does
    /// not use. Missing fields get the defaults of transformers' `Sam3VisionConfig`.
    ///
    /// # Errors
    /// If the file cannot be read or is not a JSON object, or if fields are wrong. The error lists all wrong fields.
    pub fn open(path: impl AsRef<Path>) -> Result<Sam3Config, ConfigError> {
        read(path.as_ref(), "a SAM 3 model", Sam3Config::from_fields)
    }

    /// Builds the configuration from the fields of a JSON object.
    ///
    /// # Errors
    /// One line for each field that is wrong.
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
        // Rotary embeddings rotate pairs: half of a head's pairs by angles of the column, and half by angles of the
        // row.
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
