//! Weights of SAM as they are published: by Meta, by Hugging Face, and as training code saves them.

use std::path::Path;

use eutectic_ir::{DType, Tensor};

use super::SamConfig;
use crate::weights::{Weights, WeightsError};

/// Tensors that programs for embeddings do not need: the preprocessing is fixed, the rest belongs to prompts and masks.
pub const IGNORED_FOR_EMBEDDINGS: &[&str] =
    &["pixel_mean", "pixel_std", "prompt_encoder.*", "mask_decoder.*", "shared_image_embedding.*"];

/// Tensors that programs for masks do not need: an image has an earlier mask, or it has none.
pub const IGNORED_FOR_MASKS: &[&str] =
    &["pixel_mean", "pixel_std", "prompt_encoder.mask_embed.*", "prompt_encoder.no_mask_embed.*"];

/// What Meta's release calls the parts of transformers' model. The first pair that fits is taken of each group.
const SPELLINGS: &[&[(&str, &str)]] = &[
    &[
        ("image_encoder.", "vision_encoder."),
        ("prompt_encoder.pe_layer.positional_encoding_gaussian_matrix", POSITIONS),
    ],
    &[
        ("vision_encoder.patch_embed.proj.", "vision_encoder.patch_embed.projection."),
        ("vision_encoder.blocks.", "vision_encoder.layers."),
        ("vision_encoder.neck.0.", "vision_encoder.neck.conv1."),
        ("vision_encoder.neck.1.", "vision_encoder.neck.layer_norm1."),
        ("vision_encoder.neck.2.", "vision_encoder.neck.conv2."),
        ("vision_encoder.neck.3.", "vision_encoder.neck.layer_norm2."),
        ("prompt_encoder.point_embeddings.", "prompt_encoder.point_embed."),
        ("prompt_encoder.mask_downscaling.0.", "prompt_encoder.mask_embed.conv1."),
        ("prompt_encoder.mask_downscaling.1.", "prompt_encoder.mask_embed.layer_norm1."),
        ("prompt_encoder.mask_downscaling.3.", "prompt_encoder.mask_embed.conv2."),
        ("prompt_encoder.mask_downscaling.4.", "prompt_encoder.mask_embed.layer_norm2."),
        ("prompt_encoder.mask_downscaling.6.", "prompt_encoder.mask_embed.conv3."),
        ("mask_decoder.output_upscaling.0.", "mask_decoder.upscale_conv1."),
        ("mask_decoder.output_upscaling.1.", "mask_decoder.upscale_layer_norm."),
        ("mask_decoder.output_upscaling.3.", "mask_decoder.upscale_conv2."),
        ("mask_decoder.transformer.norm_final_attn.", "mask_decoder.transformer.layer_norm_final_attn."),
    ],
];

/// The matrix that coordinates are multiplied with, which image and prompts share.
const POSITIONS: &str = "shared_image_embedding.positional_embedding";

/// How transformers also names it.
const POSITIONS_TOO: &str = "prompt_encoder.shared_embedding.positional_embedding";

/// Under which keys training code puts a model beside other things.
const WRAPPERS: &[&str] = &["model", "state_dict"];

/// Opens weights in any of the published forms. They are named as in transformers' `SamModel`, tables of relative positions
/// have the length that the configuration asks for, and the configuration learns which optional tensors there are.
///
/// # Errors
/// When the file cannot be read. Whether its tensors fit is for [`Weights::bind`] to say.
pub fn open_weights(path: impl AsRef<Path>, config: &mut SamConfig) -> Result<Weights, WeightsError> {
    let weights = Weights::open(path)?;
    let wrapper =
        WRAPPERS.iter().map(|w| format!("{w}.")).find(|w| weights.names().any(|(name, _)| name.starts_with(w)));
    // Both count layers of heads, and mean others by the same name.
    let transformers = weights.names().any(|(name, _)| name.contains("iou_prediction_head.proj_in."));
    let score_layers = (!transformers).then_some(config.decoder.score_layers);
    let mut weights = weights.renamed(|name| {
        let name = wrapper.as_ref().map_or(Some(name), |w| name.strip_prefix(w.as_str()))?;
        Some((usize::from(name == POSITIONS_TOO), spelled(name, score_layers)))
    });
    for layer in 0..config.vision.layers {
        let grid = config.vision.grid();
        for (axis, side) in [("h", grid[0]), ("w", grid[1])] {
            let rows = 2 * config.vision.window_of(layer).unwrap_or(side) - 1;
            let name = format!("vision_encoder.layers.{layer}.attn.rel_pos_{axis}");
            weights.replace(&name, |table| Some(vec![(name.clone(), resampled(table, rows)?)]));
        }
    }
    config.vision.neck_bias = weights.get("vision_encoder.neck.conv1.bias").is_some();
    Ok(weights)
}

/// transformers' name for a tensor. `score_layers`: how many layers the head that predicts scores has, where names count through them.
fn spelled(name: &str, score_layers: Option<usize>) -> String {
    // An image encoder that was saved for itself.
    let bare = ["pos_embed", "patch_embed.", "blocks.", "layers.", "neck."].iter().any(|part| name.starts_with(part));
    let mut name = if bare { format!("vision_encoder.{name}") } else { name.to_string() };
    if name == POSITIONS_TOO {
        return POSITIONS.into();
    }
    for group in SPELLINGS {
        if let Some((rest, ours)) = group.iter().find_map(|(theirs, ours)| Some((name.strip_prefix(theirs)?, ours))) {
            name = format!("{ours}{rest}");
        }
    }
    if name.contains(".layers.") {
        name = name.replace(".norm", ".layer_norm");
    }
    let heads = [
        ("mask_decoder.iou_prediction_head.", score_layers),
        ("mask_decoder.output_hypernetworks_mlps.", score_layers.map(|_| 3)),
    ];
    let layers = heads.into_iter().find(|(head, _)| name.starts_with(head)).and_then(|(_, layers)| layers);
    layers.and_then(|layers| in_and_out(&name, layers)).unwrap_or(name)
}

/// A layer of a head that Meta's release counts through: the first and the last have names of their own in transformers.
fn in_and_out(name: &str, layers: usize) -> Option<String> {
    let (head, rest) = name.split_once(".layers.")?;
    let (number, rest) = rest.split_once('.')?;
    Some(match number.parse::<usize>().ok()? {
        0 => format!("{head}.proj_in.{rest}"),
        n if n + 1 == layers => format!("{head}.proj_out.{rest}"),
        n => format!("{head}.layers.{}.{rest}", n - 1),
    })
}

/// A table [n d] with that many rows: each is between two of the given ones, linearly, with half a row beyond the middles of
/// the outer ones; what torch's `interpolate` does. None for what is no table.
fn resampled(table: &Tensor, rows: usize) -> Option<Tensor> {
    let &[from, width] = table.dims() else { return None };
    if from == rows || from == 0 || !table.dtype().is_float() {
        return None;
    }
    let values = table.to_f64();
    let row = |o: usize| {
        let at = ((o as f64 + 0.5) * from as f64 / rows as f64 - 0.5).max(0.0);
        let (below, share) = (at as usize, at.fract());
        let above = (below + 1).min(from - 1);
        let values = &values;
        (0..width).map(move |d| (1.0 - share) * values[below * width + d] + share * values[above * width + d])
    };
    Some(Tensor::from_f64(DType::F32, &[rows, width], (0..rows).flat_map(row)))
}
