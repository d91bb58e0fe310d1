//! The mask decoder: tokens of the prompt and of the image attend to each other. Masks and their scores are computed
//! from the results.

use eutectic_ir::NodeId;

use super::{DecoderConfig, SamConfig, encoder::CHANNEL_EPS};
use crate::{
    module::{ModuleBuilder, channels_first, concat, expanded, reshaped, slice},
    nn::{Activation, Built, transpose},
};

/// The epsilon of the transformer's last norm: torch's default.
const LAST_EPS: f64 = 1e-5;

/// The inputs of the mask decoder, for B images, P prompts per image, N points per prompt and C channels.
pub(super) struct Prompted {
    /// The embeddings of the points, [B P N C].
    pub points: NodeId,
    /// The image embedding plus that of a mask prompt, repeated for each prompt: [B·P h·w C].
    pub image: NodeId,
    /// The position encodings of the image's tokens, [h·w C].
    pub places: NodeId,
    /// The extents B, P and N.
    pub dims: [usize; 3],
}

/// Computes the logits of masks, [B P 1+M 4h 4w], and the scores of these masks, [B P 1+M].
pub(super) fn decoder(
    m: &mut ModuleBuilder<'_>,
    config: &SamConfig,
    prompted: &Prompted,
) -> Result<[NodeId; 2], eutectic_ir::GraphError> {
    let (c, width) = (&config.decoder, config.vision.out_channels);
    let [batch, prompts, points] = prompted.dims;
    let (all, masks) = (batch * prompts, c.masks + 1);
    let [rows, columns] = config.vision.grid();

    let score = m.within("iou_token", |m| m.param("weight", &[1, width]))?;
    let mask = m.within("mask_tokens", |m| m.param("weight", &[masks, width]))?;
    let own = concat(m.g, &[score, mask], 0)?;
    let own = expanded(m.g, own, &[all, 1 + masks, width])?;
    let points_of_all = reshaped(m.g, prompted.points, &[all, points, width])?;
    let tokens = concat(m.g, &[own, points_of_all], 1)?;
    let sizes = Sizes { all, tokens: 1 + masks + points, image: rows * columns, width };
    let [tokens, image] =
        m.within("transformer", |m| transformer(m, c, sizes, tokens, prompted.image, prompted.places))?;

    let image = reshaped(m.g, image, &[all, rows, columns, width])?;
    let image = channels_first(m.g, image)?;
    let upscaled = m.conv_transpose("upscale_conv1", image, [width, width / 4], 2)?;
    let upscaled = m.channel_norm("upscale_layer_norm", upscaled, width / 4, CHANNEL_EPS)?;
    let upscaled = m.activation(upscaled, Activation::GeluErf)?;
    let upscaled = m.conv_transpose("upscale_conv2", upscaled, [width / 4, width / 8], 2)?;
    let upscaled = m.activation(upscaled, Activation::GeluErf)?;
    let pixels = reshaped(m.g, upscaled, &[all, width / 8, 16 * rows * columns])?;

    // A small network maps each mask's token to weights. The logits of the mask are the product of these weights with
    // the channels of each pixel of the upscaled image.
    let mut weights = Vec::new();
    for kind in 0..masks {
        let token = slice(m.g, tokens, 1, 1 + kind, 1)?;
        let part = format!("output_hypernetworks_mlps.{kind}");
        weights.push(m.within(&part, |m| head(m, token, [width, width, width / 8], 3))?);
    }
    let weights = concat(m.g, &weights, 1)?;
    let logits = m.g.apply("matmul", &[weights, pixels], &[])?;
    let logits = reshaped(m.g, logits, &[batch, prompts, masks, 4 * rows, 4 * columns])?;

    let token = slice(m.g, tokens, 1, 0, 1)?;
    let scores = m.within("iou_prediction_head", |m| head(m, token, [width, c.score_width, masks], c.score_layers))?;
    Ok([logits, reshaped(m.g, scores, &[batch, prompts, masks])?])
}

/// Applies linear layers with a ReLU between them.
fn head(m: &mut ModuleBuilder<'_>, x: NodeId, [from, inner, to]: [usize; 3], layers: usize) -> Built {
    let mut x = m.linear("proj_in", x, [from, inner], true)?;
    x = m.activation(x, Activation::Relu)?;
    for layer in 0..layers - 2 {
        x = m.linear(&format!("layers.{layer}"), x, [inner, inner], true)?;
        x = m.activation(x, Activation::Relu)?;
    }
    m.linear("proj_out", x, [inner, to], true)
}

#[derive(Clone, Copy)]
struct Sizes {
    /// The number of prompts of all images, B·P.
    all: usize,
    /// The number of tokens for each prompt: one for scores, one for each mask, and the points.
    tokens: usize,
    /// The number of tokens of an image, h·w.
    image: usize,
    width: usize,
}

/// Applies the two-way blocks to tokens [all tokens C] and to the image [all image C]. Each block adds the initial
/// tokens and the position encodings to its queries and keys.
fn transformer(
    m: &mut ModuleBuilder<'_>,
    c: &DecoderConfig,
    sizes: Sizes,
    first: NodeId,
    image: NodeId,
    places: NodeId,
) -> Result<[NodeId; 2], eutectic_ir::GraphError> {
    let Sizes { width, .. } = sizes;
    let to_image = AttentionLayer { inner: width / c.downsample, heads: c.heads, sizes };
    let (mut tokens, mut image) = (first, image);
    for layer in 0..c.layers {
        [tokens, image] = m.within(&format!("layers.{layer}"), |m| {
            let own = AttentionLayer { inner: width, ..to_image };
            let attended = if layer == 0 {
                // The tokens of the first block are the initial ones, so that block does not add them a second time.
                own.of(m, "self_attn", [tokens, tokens, tokens], [sizes.tokens; 2])?
            } else {
                let query = m.add(tokens, first)?;
                let attended = own.of(m, "self_attn", [query, query, tokens], [sizes.tokens; 2])?;
                m.add(tokens, attended)?
            };
            let tokens = m.layernorm("layer_norm1", attended, width, c.eps)?;

            let (query, key) = (m.add(tokens, first)?, m.add(image, places)?);
            let lengths = [sizes.tokens, sizes.image];
            let attended = to_image.of(m, "cross_attn_token_to_image", [query, key, image], lengths)?;
            let tokens = m.add(tokens, attended)?;
            let tokens = m.layernorm("layer_norm2", tokens, width, c.eps)?;

            let mixed = m.within("mlp", |m| {
                let inner = m.linear("lin1", tokens, [width, c.mlp], true)?;
                let inner = m.activation(inner, c.activation)?;
                m.linear("lin2", inner, [c.mlp, width], true)
            })?;
            let tokens = m.add(tokens, mixed)?;
            let tokens = m.layernorm("layer_norm3", tokens, width, c.eps)?;

            let query = m.add(tokens, first)?;
            let lengths = [sizes.image, sizes.tokens];
            let attended = to_image.of(m, "cross_attn_image_to_token", [key, query, tokens], lengths)?;
            let image = m.add(image, attended)?;
            Ok([tokens, m.layernorm("layer_norm4", image, width, c.eps)?])
        })?;
    }
    let (query, key) = (m.add(tokens, first)?, m.add(image, places)?);
    let lengths = [sizes.tokens, sizes.image];
    let attended = to_image.of(m, "final_attn_token_to_image", [query, key, image], lengths)?;
    let tokens = m.add(tokens, attended)?;
    Ok([m.layernorm("layer_norm_final_attn", tokens, width, LAST_EPS)?, image])
}

/// Attention whose queries, keys and values have the width `inner`.
#[derive(Clone, Copy)]
struct AttentionLayer {
    inner: usize,
    heads: usize,
    sizes: Sizes,
}

impl AttentionLayer {
    /// Adds attention of queries, keys and values [all S C]. `lengths` are the numbers of queries and of keys.
    fn of(self, m: &mut ModuleBuilder<'_>, part: &str, [q, k, v]: [NodeId; 3], lengths: [usize; 2]) -> Built {
        let AttentionLayer { inner, heads, sizes: Sizes { all, width, .. } } = self;
        let ([queries, keys], depth) = (lengths, inner / heads);
        m.within(part, |m| {
            let mut split = |part: &str, x: NodeId, length: usize| {
                let x = m.linear(part, x, [width, inner], true)?;
                let split = reshaped(m.g, x, &[all, length, heads, depth])?;
                transpose(m.g, split, &[0, 2, 1, 3])
            };
            let parts = [split("q_proj", q, queries)?, split("k_proj", k, keys)?, split("v_proj", v, keys)?];
            let mixed = m.form.attention(m.g, parts, None, depth)?;
            let joined = transpose(m.g, mixed, &[0, 2, 1, 3])?;
            let joined = reshaped(m.g, joined, &[all, queries, inner])?;
            m.linear("out_proj", joined, [inner, width], true)
        })
    }
}
