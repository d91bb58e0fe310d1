//! The configuration of SAM 3's vision encoder: the published one, and `config.json` as the transformers library writes it.

use std::path::Path;

use serde_json::{Map, Value};

use crate::{
    config::{ConfigError, Fields, read},
    nn::Activation,
};

/// What determines the vision encoder of a SAM 3 model, weights apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Sam3Config {
    /// The trunk.
    pub trunk: TrunkConfig,
    /// Channels of what the neck makes.
    pub neck_width: usize,
    /// The branches of the neck: each with its number, and by what it scales rows and columns. Those that are left out are not computed.
    pub branches: Vec<(usize, Scale)>,
}

/// The trunk: a ViT with windows and rotary positions of two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct TrunkConfig {
    /// Rows, and columns, of the image.
    pub image: usize,
    /// Channels of the image.
    pub channels: usize,
    /// Rows and columns of a patch; they divide the image.
    pub patch: usize,
    /// Width of the tokens.
    pub width: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Attention heads of each; `width` is a multiple of four times their number.
    pub heads: usize,
    /// Width between the two linear layers of a block.
    pub mlp: usize,
    /// The function between these.
    pub activation: Activation,
    /// Rows and columns of the windows in which a block attends.
    pub window: usize,
    /// The blocks that attend to the whole image instead.
    pub global: Vec<usize>,
    /// Rows and columns of the table of absolute positions, which tiles the grid.
    pub table: usize,
    /// The base of the wavelengths of rotary positions.
    pub theta: f64,
    /// Epsilon of the layer norms.
    pub eps: f64,
}

/// What a branch of the neck does to rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scale {
    /// Two transposed convolutions, each twice as large.
    Quadruple,
    /// One of them.
    Double,
    /// Nothing.
    Same,
    /// The largest of each 2 × 2.
    Half,
}

impl Scale {
    /// All of them, as the published model has them.
    pub const ALL: [Scale; 4] = [Scale::Quadruple, Scale::Double, Scale::Same, Scale::Half];

    fn factor(self) -> f64 {
        match self {
            Scale::Quadruple => 4.0,
            Scale::Double => 2.0,
            Scale::Same => 1.0,
            Scale::Half => 0.5,
        }
    }

    /// Rows, or columns, of the branch for a grid.
    pub fn of(self, side: usize) -> usize {
        (side as f64 * self.factor()) as usize
    }
}

impl Default for Sam3Config {
    /// The published size.
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
    /// Rows, and columns, of the tokens.
    pub fn grid(&self) -> usize {
        self.image / self.patch
    }

    /// The size of a block's windows; none where it attends to the whole image.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        (!self.global.contains(&layer)).then_some(self.window)
    }
}

impl Sam3Config {
    /// Reads `config.json`: of the vision encoder, or of a model that has one. Fields that are not needed are ignored; those that
    /// are missing are as in transformers' `Sam3VisionConfig`.
    ///
    /// # Errors
    /// When it cannot be read, is no JSON, or fields are wrong (all of these at once).
    pub fn open(path: impl AsRef<Path>) -> Result<Sam3Config, ConfigError> {
        read(path.as_ref(), "a SAM 3 model", Sam3Config::from_fields)
    }

    /// The configuration from the fields of a JSON object.
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
        // A quarter of each head turns with columns and a quarter with rows, pair by pair.
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
