//! Opens published weights of SAM: releases by Meta and by Hugging Face, and checkpoints of training code.

use std::path::Path;

use eutectic_ir::{DType, Tensor};

use super::SamConfig;
use crate::weights::{Weights, WeightsError};

/// Name patterns of tensors that programs for image embeddings do not read. The mean and deviation of pixels are fixed
/// in the preprocessing, and the remaining tensors serve prompts and masks.
pub const IGNORED_FOR_EMBEDDINGS: &[&str] =
    &["pixel_mean", "pixel_std", "prompt_encoder.*", "mask_decoder.*", "shared_image_embedding.*"];

/// Name patterns of tensors that some programs for masks do not read. A program with an earlier mask as prompt reads
/// `mask_embed.*`, and a program without one reads `no_mask_embed.*`.
pub const IGNORED_FOR_MASKS: &[&str] =
    &["pixel_mean", "pixel_std", "prompt_encoder.mask_embed.*", "prompt_encoder.no_mask_embed.*"];

/// Pairs of name prefixes: Meta's and that of the transformers library. Within each group, the first matching pair is
/// applied.
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

/// The random matrix of the position encoding, which multiplies coordinates of the image and of prompts.
const POSITIONS: &str = "shared_image_embedding.positional_embedding";

/// Another name of the position matrix in files of the transformers library.
const POSITIONS_TOO: &str = "prompt_encoder.shared_embedding.positional_embedding";

/// The keys under which training code stores the model in a checkpoint.
const WRAPPERS: &[&str] = &["model", "state_dict"];

/// Opens weights in any of the published forms, and renames them to the names of transformers' `SamModel`. Resamples
/// tables of relative positions to the length that the configuration needs. Sets `neck_bias` of the configuration if
/// the file has that optional tensor.
///
/// # Errors
/// If the file cannot be read. [`Weights::bind`] checks whether its tensors fit.
pub fn open_weights(path: impl AsRef<Path>, config: &mut SamConfig) -> Result<Weights, WeightsError> {
    let weights = Weights::open(path)?;
    let wrapper =
        WRAPPERS.iter().map(|w| format!("{w}.")).find(|w| weights.names().any(|(name, _)| name.starts_with(w)));
    // Both releases number the layers of the decoder's heads, but with different numbers.
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

/// Returns transformers' name for a tensor. `score_layers` is the number of layers of the head that predicts scores. It
/// is `None` if the file already has transformers' names.
fn spelled(name: &str, score_layers: Option<usize>) -> String {
    // A file of the image encoder alone has names without the prefix of the encoder.
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

/// Converts the name of a layer of a head. Meta's release numbers all layers; the transformers library numbers inner
/// layers only, and calls the first and last one `proj_in` and `proj_out`.
fn in_and_out(name: &str, layers: usize) -> Option<String> {
    let (head, rest) = name.split_once(".layers.")?;
    let (number, rest) = rest.split_once('.')?;
    Some(match number.parse::<usize>().ok()? {
        0 => format!("{head}.proj_in.{rest}"),
        n if n + 1 == layers => format!("{head}.proj_out.{rest}"),
        n => format!("{head}.layers.{}.{rest}", n - 1),
    })
}

/// Resamples a table [n d] linearly to `rows` rows. As in torch's `interpolate`, the outermost rows extend by half a
/// row. Returns `None` if the table needs no resampling or is no table of floats.
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
