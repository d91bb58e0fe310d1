//! Published weights of SAM 3's vision encoder, with the names of the original release or of Hugging Face.

use std::path::Path;

use eutectic_ir::Tensor;

use super::Sam3Config;
use crate::weights::{Weights, WeightsError};

/// Tensors that a file may have and the trunk does not need: angles, which are computed.
pub const IGNORED: &[&str] = &["*.freqs_cis"];

/// Tensors that the neck does not need.
pub const IGNORED_FOR_NECK: &[&str] = &["backbone.*", "*.freqs_cis"];

/// The keys under which training code stores the model.
const WRAPPERS: &[&str] = &["model.", "state_dict.", "sam3_model."];

/// The prefixes of the vision encoder in files of whole models: those of transformers, then those of the release. The
/// first prefix with a tensor is used.
const PREFIXES: &[&str] = &[
    "detector_model.vision_encoder.",
    "vision_encoder.",
    "detector.backbone.vision_backbone.",
    "backbone.vision_backbone.",
    "vision_backbone.",
];

/// Maps the names of the release to those of transformers. All matching pairs are applied in order.
const SPELLINGS: &[(&str, &str)] = &[
    ("trunk.pos_embed", "backbone.embeddings.position_embeddings"),
    ("trunk.patch_embed.proj.", "backbone.embeddings.patch_embeddings.projection."),
    ("trunk.ln_pre.", "backbone.layer_norm."),
    ("trunk.blocks.", "backbone.layers."),
    ("trunk.", "backbone."),
    (".norm1.", ".layer_norm1."),
    (".norm2.", ".layer_norm2."),
    (".attn.proj.", ".attention.o_proj."),
    (".attn.qkv.", ".attention.qkv."),
    ("convs.", "neck.fpn_layers."),
    (".conv_1x1.", ".proj1."),
    (".conv_3x3.", ".proj2."),
    (".dconv_2x2.", ".scale_layers.0."),
    (".dconv_2x2_0.", ".scale_layers.0."),
    (".dconv_2x2_1.", ".scale_layers.2."),
];

/// Opens weights in any of the published forms. They get the names of transformers' `Sam3VisionModel`. Other parts of a
/// whole model are dropped, including the second neck, which is for tracking.
///
/// # Errors
/// If the file cannot be read. [`Weights::bind`] checks whether its tensors fit.
pub fn open_weights(path: impl AsRef<Path>, config: &Sam3Config) -> Result<Weights, WeightsError> {
    let weights = Weights::open(path)?;
    let whole = weights.names().any(|(name, _)| prefix(unwrapped(name)).is_some());
    let mut weights = weights.renamed(|name| {
        let name = unwrapped(name);
        let (rank, name) = match prefix(name) {
            Some(rank) => (rank, &name[PREFIXES[rank].len()..]),
            None if whole => return None,
            None => (0, name),
        };
        (!name.starts_with("sam2_convs.")).then(|| (rank, spelled(name)))
    });
    for layer in 0..config.trunk.layers {
        for kind in ["weight", "bias"] {
            let name = |part: &str| format!("backbone.layers.{layer}.attention.{part}.{kind}");
            weights.replace(&name("qkv"), |all| {
                let parts = thirds(all)?;
                Some(["q_proj", "k_proj", "v_proj"].map(name).into_iter().zip(parts).collect())
            });
        }
    }
    let table = "backbone.embeddings.position_embeddings";
    let places = config.trunk.table * config.trunk.table;
    weights.replace(table, |t| Some(vec![(table.into(), without_class_token(t, places)?)]));
    Ok(weights)
}

fn unwrapped(name: &str) -> &str {
    WRAPPERS.iter().fold(name, |name, wrapper| name.strip_prefix(wrapper).unwrap_or(name))
}

/// Returns the index in [`PREFIXES`] of a name's prefix.
fn prefix(name: &str) -> Option<usize> {
    PREFIXES.iter().position(|prefix| name.starts_with(prefix))
}

/// Returns transformers' name for a tensor of the vision encoder.
fn spelled(name: &str) -> String {
    // A name that transformers already uses stays.
    let release = ["trunk.", "convs."].iter().any(|part| name.starts_with(part));
    let replace = |name: String, (theirs, ours): &(&str, &str)| match theirs.strip_prefix('.') {
        Some(_) => name.replacen(theirs, ours, 1),
        None => name.strip_prefix(theirs).map(|rest| format!("{ours}{rest}")).unwrap_or(name),
    };
    if release { SPELLINGS.iter().fold(name.into(), replace) } else { name.into() }
}

/// Splits a tensor [3·n ..] into three [n ..]. `None` if it has another shape.
fn thirds(all: &Tensor) -> Option<[Tensor; 3]> {
    let (&rows, rest) = all.dims().split_first()?;
    if !rows.is_multiple_of(3) || !all.dtype().is_float() {
        return None;
    }
    let dims: Vec<usize> = [rows / 3].into_iter().chain(rest.iter().copied()).collect();
    let values = all.to_f64();
    let size = values.len() / 3;
    Some([0, 1, 2].map(|n| Tensor::from_f64(all.dtype(), &dims, values[n * size..][..size].iter().copied())))
}

/// Removes the row of the class token, which the release stores first, from a table [1 places E].
fn without_class_token(table: &Tensor, places: usize) -> Option<Tensor> {
    let &[1, rows, width] = table.dims() else { return None };
    let float = table.dtype().is_float();
    (float && rows == places + 1)
        .then(|| Tensor::from_f64(table.dtype(), &[1, places, width], table.to_f64().into_iter().skip(width)))
}
