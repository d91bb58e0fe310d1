//! The prompt encoder. It embeds points, corners of boxes and earlier masks.

use eutectic_ir::{Attr, DType, Dim, NodeId, Tensor};

use super::{SamConfig, encoder::CHANNEL_EPS};
use crate::module::{Conv, ModuleBuilder, channels_last, concat, expanded, reshaped};
use crate::nn::Built;

/// The meaning of a point. The number is the label in the graph's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i64)]
pub enum Label {
    /// No point. It pads prompts that have fewer points. A prompt without a box ends with one more such label.
    None = -1,
    /// A point outside of the mask.
    Out = 0,
    /// A point inside of the mask.
    In = 1,
    /// The top left corner of a box.
    First = 2,
    /// The bottom right corner of a box.
    Second = 3,
}

/// Computes the sine and cosine of random projections of coordinates between 0 and 1: [.. 2] → [.. C] (Tancik et al.
/// 2020, arXiv:2006.10739).
fn fourier(m: &mut ModuleBuilder<'_>, coordinates: NodeId, matrix: NodeId) -> Built {
    let (one, two) = (m.g.scalar(1.0, coordinates)?, m.g.scalar(2.0, coordinates)?);
    let doubled = m.g.apply("mul", &[coordinates, two], &[])?;
    let centred = m.g.apply("sub", &[doubled, one], &[])?;
    let projected = m.g.apply("matmul", &[centred, matrix], &[])?;
    let turn = m.g.scalar(std::f64::consts::TAU, projected)?;
    let angle = m.g.apply("mul", &[projected, turn], &[])?;
    let (sin, cos) = (m.g.apply("sin", &[angle], &[])?, m.g.apply("cos", &[angle], &[])?);
    concat(m.g, &[sin, cos], -1)
}

/// Adds the parameter that projects the positions of points and of image tokens.
pub(super) fn matrix(m: &mut ModuleBuilder<'_>, config: &SamConfig) -> Built {
    m.within("shared_image_embedding", |m| m.param("positional_embedding", &[2, config.vision.out_channels / 2]))
}

/// Returns the position encoding of each image token, [h·w C]. It depends only on weights, so loading computes it once.
pub(super) fn places(m: &mut ModuleBuilder<'_>, config: &SamConfig, matrix: NodeId) -> Built {
    let grid = config.vision.grid();
    let shape = Attr::Shape(grid.iter().map(|n| Dim::from(*n)).collect());
    let mut coordinate = |axis: i64, extent: usize| {
        let attrs = [("shape", shape.clone()), ("axis", axis.into()), ("dtype", DType::F32.into())];
        let at = m.g.apply("iota", &[], &attrs)?;
        let (half, extent) = (m.g.scalar(0.5, at)?, m.g.scalar(extent as f64, at)?);
        let middle = m.add(at, half)?;
        let share = m.g.apply("div", &[middle, extent], &[])?;
        reshaped(m.g, share, &[grid[0] * grid[1], 1])
    };
    let (x, y) = (coordinate(-1, grid[1])?, coordinate(-2, grid[0])?);
    let coordinates = concat(m.g, &[x, y], -1)?;
    fourier(m, coordinates, matrix)
}

/// Embeds points: [B P N 2], x before y, in pixels of the padded image, with labels [B P N] → [B P N C].
pub(super) fn points(
    m: &mut ModuleBuilder<'_>,
    config: &SamConfig,
    matrix: NodeId,
    points: NodeId,
    labels: NodeId,
    dims: [usize; 3],
) -> Built {
    let [batch, prompts, number] = dims;
    let width = config.vision.out_channels;
    let half = m.g.scalar(0.5, points)?;
    let middle = m.add(points, half)?;
    let [height, across] = config.vision.image;
    let extents = m.g.constant(Tensor::from_f64(DType::F32, &[2], [across as f64, height as f64]))?;
    let share = m.g.apply("div", &[middle, extents], &[])?;
    let place = fourier(m, share, matrix)?;
    let mut embedding = |part: &str| m.within(part, |m| m.param("weight", &[1, width]));
    let kinds = ["not_a_point_embed", "point_embed.0", "point_embed.1", "point_embed.2", "point_embed.3"];
    let kinds: Vec<_> = kinds.into_iter().map(&mut embedding).collect::<Result<_, _>>()?;
    let table = concat(m.g, &kinds, 0)?;
    // Labels start at −1, and rows of the table at 0.
    let one = m.g.scalar(1.0, labels)?;
    let kind = m.add(labels, one)?;
    let meaning = m.g.apply("gather", &[table, kind], &[("axis", 0.into())])?;
    let none = m.g.scalar(Label::None as i64 as f64, labels)?;
    let is_none = m.g.apply("eq", &[labels, none], &[])?;
    let is_none = reshaped(m.g, is_none, &[batch, prompts, number, 1])?;
    let zero = m.g.scalar(0.0, place)?;
    let place = m.g.apply("where", &[is_none, zero, place], &[])?;
    m.add(place, meaning)
}

/// Returns the embedding that is added to the image's tokens. Without an earlier mask, it is one vector, [1 1 C]. With
/// an earlier mask [B 1 4h 4w], it is the embedding of that mask, [B h·w C].
pub(super) fn dense(m: &mut ModuleBuilder<'_>, config: &SamConfig, prior: Option<NodeId>) -> Built {
    let width = config.vision.out_channels;
    let Some(prior) = prior else {
        return m.within("no_mask_embed", |m| {
            let none = m.param("weight", &[1, width])?;
            reshaped(m.g, none, &[1, 1, width])
        });
    };
    let [rows, columns] = config.vision.grid();
    let (batch, middle) = (m.g.shape(prior).and_then(|s| s.known()).map_or(1, |d| d[0]), config.mask_channels);
    m.within("mask_embed", |m| {
        let mut x = prior;
        for (n, channels) in [(1, [1, middle / 4]), (2, [middle / 4, middle])] {
            x = m.conv(&format!("conv{n}"), x, Conv { channels, size: 2, stride: 2, pad: 0, bias: true })?;
            x = m.channel_norm(&format!("layer_norm{n}"), x, channels[1], CHANNEL_EPS)?;
            x = m.activation(x, config.mask_activation)?;
        }
        x = m.conv("conv3", x, Conv { channels: [middle, width], size: 1, stride: 1, pad: 0, bias: true })?;
        tokens_of(m, x, [batch, rows * columns, width])
    })
}

/// Converts an image [B C h w] to tokens [B h·w C].
pub(super) fn tokens_of(m: &mut ModuleBuilder<'_>, x: NodeId, dims: [usize; 3]) -> Built {
    let last = channels_last(m.g, x)?;
    reshaped(m.g, last, &dims)
}

/// Repeats a value [B S C] for each of P prompts: [B·P S C].
pub(super) fn for_each_prompt(
    m: &mut ModuleBuilder<'_>,
    x: NodeId,
    [batch, tokens, width]: [usize; 3],
    prompts: usize,
) -> Built {
    if prompts == 1 {
        return Ok(x);
    }
    let apart = reshaped(m.g, x, &[batch, 1, tokens, width])?;
    let repeated = expanded(m.g, apart, &[batch, prompts, tokens, width])?;
    reshaped(m.g, repeated, &[batch * prompts, tokens, width])
}
