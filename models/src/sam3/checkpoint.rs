//! Opens published weights of SAM 3's vision encoder, from the original release or from Hugging Face.

use std::path::Path;

use eutectic_ir::Tensor;

use super::Sam3Config;
use crate::weights::{Weights, WeightsError};

/// Name patterns of tensors that the vision encoder does not read. The angles of rotary embeddings are computed
/// instead.
pub const IGNORED: &[&str] = &["*.freqs_cis"];

/// Name patterns of tensors that the neck alone does not read.
pub const IGNORED_FOR_NECK: &[&str] = &["backbone.*", "*.freqs_cis"];

/// The keys under which training code stores the model in a checkpoint.
const WRAPPERS: &[&str] = &["model.", "state_dict.", "sam3_model."];

/// The prefixes of the vision encoder's tensors in files of whole models, first those of the transformers library, then
/// those of the original release. The first prefix that a tensor of the file has is used.
const PREFIXES: &[&str] = &[
    "detector_model.vision_encoder.",
    "vision_encoder.",
    "detector.backbone.vision_backbone.",
    "backbone.vision_backbone.",
    "vision_backbone.",
];

/// Replacements that turn names of the original release into names of the transformers library. All matching pairs are
/// applied in order.
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

/// Opens weights in any of the published forms, and renames them to the names of transformers' `Sam3VisionModel`. Drops
/// the remaining tensors of a whole model, including a second neck that serves tracking.
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

/// Returns the index in [`PREFIXES`] of the prefix that a name has.
fn prefix(name: &str) -> Option<usize> {
    PREFIXES.iter().position(|prefix| name.starts_with(prefix))
}

/// Returns the name in the transformers library for a tensor of the vision encoder.
fn spelled(name: &str) -> String {
    // Names that the transformers library already uses stay as they are.
    let release = ["trunk.", "convs."].iter().any(|part| name.starts_with(part));
    let replace = |name: String, (theirs, ours): &(&str, &str)| match theirs.strip_prefix('.') {
        Some(_) => name.replacen(theirs, ours, 1),
        None => name.strip_prefix(theirs).map(|rest| format!("{ours}{rest}")).unwrap_or(name),
    };
    if release { SPELLINGS.iter().fold(name.into(), replace) } else { name.into() }
}

/// Splits a tensor [3·n ..] into three tensors [n ..]. Returns `None` for other extents and for integers.
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

/// Removes the first row of a table [1 1 + places E], which is that of the class token. Returns `None` if the table has
/// no such row.
fn without_class_token(table: &Tensor, places: usize) -> Option<Tensor> {
    let &[1, rows, width] = table.dims() else { return None };
    let float = table.dtype().is_float();
    (float && rows == places + 1)
        .then(|| Tensor::from_f64(table.dtype(), &[1, places, width], table.to_f64().into_iter().skip(width)))
}
