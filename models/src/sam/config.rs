//! Reads the configuration of a SAM model from `config.json` of the transformers library, and has the published sizes.

use std::path::Path;

use serde_json::{Map, Value};

use crate::{
    config::{ConfigError, Fields, read},
    nn::Activation,
};

/// The parameters of a SAM model, without weights (Kirillov et al. 2023, arXiv:2304.02643).
#[derive(Clone, Debug, PartialEq)]
pub struct SamConfig {
    /// The image encoder.
    pub vision: VisionConfig,
    /// Channels of a mask prompt before its embedding.
    pub mask_channels: usize,
    /// The activation in the embedding of a mask prompt.
    pub mask_activation: Activation,
    /// The mask decoder.
    pub decoder: DecoderConfig,
}

/// The image encoder: a ViT with windowed attention, decomposed relative positions and a convolutional neck (Li et al.
/// 2022, arXiv:2203.16527).
#[derive(Clone, Debug, PartialEq)]
pub struct VisionConfig {
    /// Rows and columns of the image in pixels, with padding.
    pub image: [usize; 2],
    /// Channels of the image.
    pub channels: usize,
    /// Rows and columns of a square patch, a divisor of the image's extents.
    pub patch: usize,
    /// Width of the tokens.
    pub width: usize,
    /// Number of transformer blocks.
    pub layers: usize,
    /// Attention heads of each block, a divisor of `width`.
    pub heads: usize,
    /// Inner width of a block's feed-forward part.
    pub mlp: usize,
    /// The activation of the feed-forward part.
    pub activation: Activation,
    /// Channels of the image embedding.
    pub out_channels: usize,
    /// Whether queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// Whether the first convolution of the neck has a bias. It has none in published checkpoints.
    pub neck_bias: bool,
    /// Whether an embedding of its position is added to each token.
    pub absolute_positions: bool,
    /// Whether attention scores depend on the relative position of query and key.
    pub relative_positions: bool,
    /// Rows and columns of the attention windows, in tokens.
    pub window: usize,
    /// Indices of the blocks that attend to the whole image.
    pub global: Vec<usize>,
    /// Epsilon of the blocks' layer norms.
    pub eps: f64,
}

/// The mask decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
    /// Number of two-way transformer blocks.
    pub layers: usize,
    /// Attention heads of each block.
    pub heads: usize,
    /// Inner width of a block's feed-forward part.
    pub mlp: usize,
    /// The activation of the feed-forward part.
    pub activation: Activation,
    /// The factor by which attention between tokens and image reduces the width of queries, keys and values.
    pub downsample: usize,
    /// The number of masks for an ambiguous prompt. The decoder predicts one more mask for unambiguous prompts.
    pub masks: usize,
    /// Layers of the head that predicts the scores of masks; at least two.
    pub score_layers: usize,
    /// Inner width of the head that predicts the scores of masks.
    pub score_width: usize,
    /// Epsilon of the blocks' layer norms.
    pub eps: f64,
}

/// The published model sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// ViT-B: 12 blocks, width 768.
    VitB,
    /// ViT-L: 24 blocks, width 1024.
    VitL,
    /// ViT-H: 32 blocks, width 1280.
    VitH,
}

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 3] = [Preset::VitB, Preset::VitL, Preset::VitH];

    /// Returns the name of the preset on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Preset::VitB => "vit-b",
            Preset::VitL => "vit-l",
            Preset::VitH => "vit-h",
        }
    }

    /// Returns the preset of that name.
    pub fn named(name: &str) -> Option<Preset> {
        Preset::ALL.into_iter().find(|p| p.name() == name)
    }

    /// Returns the configuration of the preset.
    pub fn config(self) -> SamConfig {
        let (width, layers, heads, global) = match self {
            Preset::VitB => (768, 12, 12, vec![2, 5, 8, 11]),
            Preset::VitL => (1024, 24, 16, vec![5, 11, 17, 23]),
            Preset::VitH => (1280, 32, 16, vec![7, 15, 23, 31]),
        };
        let vision = VisionConfig {
            image: [1024, 1024],
            channels: 3,
            patch: 16,
            width,
            layers,
            heads,
            mlp: 4 * width,
            activation: Activation::GeluErf,
            out_channels: 256,
            qkv_bias: true,
            neck_bias: false,
            absolute_positions: true,
            relative_positions: true,
            window: 14,
            global,
            eps: 1e-6,
        };
        let decoder = DecoderConfig {
            layers: 2,
            heads: 8,
            mlp: 2048,
            activation: Activation::Relu,
            downsample: 2,
            masks: 3,
            score_layers: 3,
            score_width: 256,
            eps: 1e-6,
        };
        SamConfig { vision, mask_channels: 16, mask_activation: Activation::GeluErf, decoder }
    }
}

impl SamConfig {
    /// Reads `config.json` of a whole model or of its image encoder alone. Ignores fields that the model does not use.
    /// Missing fields get the defaults of transformers' `SamConfig`.
    ///
    /// # Errors
    /// If the file cannot be read or is not a JSON object, or if fields are wrong. The error lists all wrong fields.
    pub fn open(path: impl AsRef<Path>) -> Result<SamConfig, ConfigError> {
        read(path.as_ref(), "a SAM model", SamConfig::from_fields)
    }

    /// Builds the configuration from the fields of a JSON object.
    ///
    /// # Errors
    /// One line for each field that is wrong.
    pub fn from_fields(fields: &Map<String, Value>) -> Result<SamConfig, Vec<String>> {
        let mut r = Fields::new(fields);
        let base = Preset::VitB.config();
        // A file of the image encoder alone has its fields at the top level.
        let whole = r.has("vision_config");
        let kinds = if whole { ["sam"].as_slice() } else { &["sam_vision_model"] };
        r.optional("model_type", &format!("{:?}", kinds[0]), (), |v| {
            v.as_str().filter(|t| kinds.contains(t)).map(|_| ())
        });
        let vision = if whole { r.within("vision_config", vision) } else { vision(&mut r) };
        let out = vision.as_ref().map(|v| v.out_channels);
        let prompt = r.within("prompt_encoder_config", |r| {
            r.fixed("num_point_embeddings", 4);
            equal(r, "hidden_size", 256, out, "output_channels of vision_config");
            let mask_channels = r.size_or("mask_input_channels", 1 << 16, base.mask_channels)?;
            if !mask_channels.is_multiple_of(4) {
                r.problem("mask_input_channels", "a multiple of 4", &mask_channels);
            }
            Some((mask_channels, r.activation_or("hidden_act", base.mask_activation)?))
        });
        let decoder = r.within("mask_decoder_config", |r| {
            if whole {
                equal(r, "hidden_size", 256, out, "output_channels of vision_config");
            }
            decoder(r, &base.decoder, out)
        });
        let config = || {
            let (mask_channels, mask_activation) = prompt?;
            Some(SamConfig { vision: vision?, mask_channels, mask_activation, decoder: decoder? })
        };
        r.done(config())
    }
}

/// Reads a size that must equal the size `other`. In the message, `is` describes that size.
fn equal(r: &mut Fields<'_>, name: &str, default: usize, other: Option<usize>, is: &str) {
    if let (Some(size), Some(other)) = (r.size_or(name, 1 << 20, other.unwrap_or(default)), other)
        && size != other
    {
        r.problem(name, format!("{other}, the {is}"), &size);
    }
}

fn vision(r: &mut Fields<'_>) -> Option<VisionConfig> {
    let base = Preset::VitB.config().vision;
    let image = r.pair_or("image_size", 1 << 16, 1024);
    let patch = r.size_or("patch_size", 1 << 12, base.patch);
    let channels = r.size_or("num_channels", 1 << 12, base.channels);
    let width = r.size_or("hidden_size", 1 << 20, base.width);
    let layers = r.size_or("num_hidden_layers", 1 << 12, base.layers);
    let heads = r.size_or("num_attention_heads", 1 << 20, base.heads);
    let ratio = r
        .optional("mlp_ratio", "a number above 0 and up to 64", 4.0, |v| v.as_f64().filter(|x| *x > 0.0 && *x <= 64.0));
    let mlp = r.size_or("mlp_dim", 1 << 24, (width? as f64 * ratio?) as usize);
    let activation = r.activation_or("hidden_act", base.activation);
    let out_channels = r.size_or("output_channels", 1 << 20, base.out_channels);
    let qkv_bias = r.flag_or("qkv_bias", true);
    let absolute_positions = r.flag_or("use_abs_pos", true);
    let relative_positions = r.flag_or("use_rel_pos", true);
    let window = r.size_or("window_size", 1 << 12, base.window);
    let global = r.indices_or("global_attn_indexes", &base.global);
    let eps = r.eps_or("layer_norm_eps", base.eps);
    if let (Some(width), Some(heads)) = (width, heads)
        && !width.is_multiple_of(heads)
    {
        r.problem("num_attention_heads", format!("a divisor of hidden_size, {width}"), &heads);
    }
    if let (Some(image), Some(patch)) = (image, patch)
        && image.iter().any(|side| !side.is_multiple_of(patch))
    {
        r.problem("patch_size", format!("a divisor of image_size, {image:?}"), &patch);
    }
    Some(VisionConfig {
        image: image?,
        channels: channels?,
        patch: patch?,
        width: width?,
        layers: layers?,
        heads: heads?,
        mlp: mlp?,
        activation: activation?,
        out_channels: out_channels?,
        qkv_bias: qkv_bias?,
        neck_bias: false,
        absolute_positions: absolute_positions?,
        relative_positions: relative_positions?,
        window: window?,
        global: global?,
        eps: eps?,
    })
}

fn decoder(r: &mut Fields<'_>, base: &DecoderConfig, width: Option<usize>) -> Option<DecoderConfig> {
    let layers = r.size_or("num_hidden_layers", 1 << 12, base.layers);
    let heads = r.size_or("num_attention_heads", 1 << 20, base.heads);
    let mlp = r.size_or("mlp_dim", 1 << 24, base.mlp);
    let activation = r.activation_or("hidden_act", base.activation);
    let downsample = r.size_or("attention_downsample_rate", 1 << 12, base.downsample);
    let masks = r.size_or("num_multimask_outputs", 1 << 12, base.masks);
    let score_layers = r.size_or("iou_head_depth", 1 << 8, base.score_layers);
    let score_width = r.size_or("iou_head_hidden_dim", 1 << 20, base.score_width);
    let eps = r.eps_or("layer_norm_eps", base.eps);
    if score_layers == Some(1) {
        r.problem("iou_head_depth", "2 or more", &1);
    }
    // The file of an image encoder alone has no `hidden_size`; no decoder is built from it.
    if let (Some(width), Some(heads), Some(rate), true) = (width, heads, downsample, r.has("hidden_size"))
        && (!width.is_multiple_of(heads * rate) || !width.is_multiple_of(8))
    {
        let expected =
            format!("a multiple of 8 and of num_attention_heads times attention_downsample_rate, {heads}·{rate}");
        r.problem("hidden_size", expected, &width);
    }
    Some(DecoderConfig {
        layers: layers?,
        heads: heads?,
        mlp: mlp?,
        activation: activation?,
        downsample: downsample?,
        masks: masks?,
        score_layers: score_layers?,
        score_width: score_width?,
        eps: eps?,
    })
}
