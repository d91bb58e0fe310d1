//! Published weights of SAM: by Meta, by Hugging Face, and as training code saves them.

use std::path::Path;

use eutectic_ir::{DType, Tensor};

use super::SamConfig;
use crate::weights::{Weights, WeightsError};

/// Tensors that programs for embeddings do not need. The preprocessing is fixed, and the rest belongs to prompts and
/// masks.
pub const IGNORED_FOR_EMBEDDINGS: &[&str] =
    &["pixel_mean", "pixel_std", "prompt_encoder.*", "mask_decoder.*", "shared_image_embedding.*"];

/// Tensors that programs for masks do not need. Whether there is an earlier mask is fixed in each program.
pub const IGNORED_FOR_MASKS: &[&str] =
    &["pixel_mean", "pixel_std", "prompt_encoder.mask_embed.*", "prompt_encoder.no_mask_embed.*"];

/// Maps the names of Meta's release to those of transformers. The first matching pair of each group is applied.
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

/// The matrix that multiplies coordinates, of the image and of prompts.
const POSITIONS: &str = "shared_image_embedding.positional_embedding";

/// Another name of transformers for it.
const POSITIONS_TOO: &str = "prompt_encoder.shared_embedding.positional_embedding";

/// The keys under which training code stores the model.
const WRAPPERS: &[&str] = &["model", "state_dict"];

/// Opens weights in any of the published forms. They get the names of transformers' `SamModel`. Tables of relative
/// positions are resampled to the length that the configuration needs. Optional tensors in the file are recorded in the
/// configuration.
///
/// # Errors
/// If the file cannot be read. [`Weights::bind`] checks whether its tensors fit.
pub fn open_weights(path: impl AsRef<Path>, config: &mut SamConfig) -> Result<Weights, WeightsError> {
    let weights = Weights::open(path)?;
    let wrapper =
        WRAPPERS.iter().map(|w| format!("{w}.")).find(|w| weights.names().any(|(name, _)| name.starts_with(w)));
    // Both forms number the layers of heads, but differently.
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

/// Returns transformers' name for a tensor. `score_layers` is the number of layers of the head that predicts scores, if
/// names depend on it.
fn spelled(name: &str, score_layers: Option<usize>) -> String {
    // The file may contain the image encoder only.
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

/// Returns the name of a head's layer, which Meta's release numbers consecutively. In transformers, the first and the
/// last layer have names instead of numbers.
fn in_and_out(name: &str, layers: usize) -> Option<String> {
    let (head, rest) = name.split_once(".layers.")?;
    let (number, rest) = rest.split_once('.')?;
    Some(match number.parse::<usize>().ok()? {
        0 => format!("{head}.proj_in.{rest}"),
        n if n + 1 == layers => format!("{head}.proj_out.{rest}"),
        n => format!("{head}.layers.{}.{rest}", n - 1),
    })
}

/// Resamples a table [n d] to `rows` rows as torch's linear `interpolate` does: the outer rows extend by half a row.
/// `None` if it is not a table.
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
