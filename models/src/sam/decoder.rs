//! The mask decoder: tokens of the prompt and tokens of the image attend to each other, and become masks and scores.

use eutectic_ir::NodeId;

use super::{DecoderConfig, SamConfig, encoder::CHANNEL_EPS};
use crate::{
    module::{ModuleBuilder, channels_first, concat, expanded, reshaped, slice},
    nn::{Activation, Built, transpose},
};

/// Epsilon of the last norm of the transformer: torch's default.
const LAST_EPS: f64 = 1e-5;

/// The embeddings that masks are made of.
pub(super) struct Prompted {
    /// Of points, [B P N C].
    pub points: NodeId,
    /// Of the image with what is known of the mask, [B·P h·w C].
    pub image: NodeId,
    /// Of the places in the image, [h·w C].
    pub places: NodeId,
    /// B, P, N.
    pub dims: [usize; 3],
}

/// Masks [B P 1+M 4h 4w], as logits, and their scores [B P 1+M].
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

    // Each kind of mask is a product of the upscaled image with what a network of its own makes of its token.
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

/// Linear layers with a relu between each two.
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
    /// Prompts of all images.
    all: usize,
    /// Tokens of each.
    tokens: usize,
    /// Tokens of an image.
    image: usize,
    width: usize,
}

/// Both sides after the two-way blocks, [all tokens C] and [all image C]. What tokens and places were at first is added to queries and keys
/// throughout, so that they stay what they are.
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
                // Here the tokens are still what would be added.
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

/// Attention of some width.
#[derive(Clone, Copy)]
struct AttentionLayer {
    inner: usize,
    heads: usize,
    sizes: Sizes,
}

impl AttentionLayer {
    /// Of queries, keys and values [all S C]; `lengths` are the numbers of queries and of keys.
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
