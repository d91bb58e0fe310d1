//! The image encoder: a patch embedding, blocks that attend within windows or to the whole image, and a neck of
//! convolutions.

use eutectic_ir::{GraphError, NodeId};

use super::VisionConfig;
use crate::{
    module::{Conv, ModuleBuilder, channels_first, channels_last, reshaped, slice},
    nn::{Built, transpose},
    windows::{TokenGrid, in_windows},
};

/// The epsilon of the norms over channels. The original code fixes it.
pub(super) const CHANNEL_EPS: f64 = 1e-6;

/// Encodes pixels [B C H W] as an embedding [B out h w]. `m` is the module of the encoder.
pub(super) fn encoder(m: &mut ModuleBuilder<'_>, config: &VisionConfig, batch: usize, pixels: NodeId) -> Built {
    let [rows, columns] = config.grid();
    let mut x = m.within("patch_embed", |m| {
        let (channels, size) = ([config.channels, config.width], config.patch);
        let conv = Conv { channels, size, stride: size, pad: 0, bias: true };
        let patches = m.conv("projection", pixels, conv)?;
        channels_last(m.g, patches)
    })?;
    if config.absolute_positions {
        let positions = m.param("pos_embed", &[1, rows, columns, config.width])?;
        x = m.add(x, positions)?;
    }
    let grid = TokenGrid { batch, rows, columns };
    for layer in 0..config.layers {
        x = m.within(&format!("layers.{layer}"), |m| block(m, config, grid, config.window_of(layer), x))?;
    }
    m.within("neck", |m| neck(m, config, x))
}

impl VisionConfig {
    /// Returns the rows and columns of the grid of patches.
    pub fn grid(&self) -> [usize; 2] {
        self.image.map(|side| side / self.patch)
    }

    /// Returns the rows and columns of a block's windows, or `None` if the block attends to the whole image.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        (!self.global.contains(&layer)).then_some(self.window)
    }
}

fn block(m: &mut ModuleBuilder<'_>, config: &VisionConfig, grid: TokenGrid, window: Option<usize>, x: NodeId) -> Built {
    let normal = m.layernorm("layer_norm1", x, config.width, config.eps)?;
    let attended = in_windows(m, grid, config.width, window, normal, |m, grid, x| {
        m.within("attn", |m| attention(m, config, grid, x))
    })?;
    let x = m.add(x, attended)?;
    let normal = m.layernorm("layer_norm2", x, config.width, config.eps)?;
    let mixed = m.within("mlp", |m| {
        let inner = m.linear("lin1", normal, [config.width, config.mlp], true)?;
        let inner = m.activation(inner, config.activation)?;
        m.linear("lin2", inner, [config.mlp, config.width], true)
    })?;
    m.add(x, mixed)
}

fn attention(m: &mut ModuleBuilder<'_>, config: &VisionConfig, grid: TokenGrid, x: NodeId) -> Built {
    let VisionConfig { width, heads, .. } = *config;
    let TokenGrid { batch, rows, columns } = grid;
    let (tokens, depth) = (rows * columns, width / heads);
    let all = m.linear("qkv", x, [width, 3 * width], config.qkv_bias)?;
    let mut part = |n: usize| {
        let part = slice(m.g, all, -1, n * width, width)?;
        let split = reshaped(m.g, part, &[batch, tokens, heads, depth])?;
        transpose(m.g, split, &[0, 2, 1, 3])
    };
    let [q, k, v] = [part(0)?, part(1)?, part(2)?];
    let bias = config.relative_positions.then(|| relative_positions(m, heads, depth, grid, q)).transpose()?;
    let mixed = m.form.attention(m.g, [q, k, v], bias, depth)?;
    let joined = transpose(m.g, mixed, &[0, 2, 1, 3])?;
    let joined = reshaped(m.g, joined, &[batch, rows, columns, width])?;
    m.linear("proj", joined, [width, width], true)
}

/// Computes the bias q · Rh[yq − yk] + q · Rw[xq − xk] of each query and key: [batch heads queries keys]. The queries
/// are those before scaling.
fn relative_positions(m: &mut ModuleBuilder<'_>, heads: usize, depth: usize, grid: TokenGrid, q: NodeId) -> Built {
    let TokenGrid { batch, rows, columns } = grid;
    let image = reshaped(m.g, q, &[batch, heads, rows, columns, depth])?;
    // All queries of an image row share one matrix of Rh, and all queries of a column one of Rw. So each row and each
    // column is one matrix product.
    let down = {
        let table = toeplitz(m, "rel_pos_h", rows, depth)?;
        let by_row = transpose(m.g, image, &[2, 0, 1, 3, 4])?;
        let by_row = reshaped(m.g, by_row, &[rows, batch * heads * columns, depth])?;
        let down = m.g.apply("matmul", &[by_row, table], &[])?;
        let down = reshaped(m.g, down, &[rows, batch, heads, columns, rows])?;
        let down = transpose(m.g, down, &[1, 2, 0, 3, 4])?;
        reshaped(m.g, down, &[batch, heads, rows, columns, rows, 1])?
    };
    let across = {
        let table = toeplitz(m, "rel_pos_w", columns, depth)?;
        let by_column = transpose(m.g, image, &[3, 0, 1, 2, 4])?;
        let by_column = reshaped(m.g, by_column, &[columns, batch * heads * rows, depth])?;
        let across = m.g.apply("matmul", &[by_column, table], &[])?;
        let across = reshaped(m.g, across, &[columns, batch, heads, rows, columns])?;
        let across = transpose(m.g, across, &[1, 2, 3, 0, 4])?;
        reshaped(m.g, across, &[batch, heads, rows, columns, 1, columns])?
    };
    let bias = m.add(down, across)?;
    reshaped(m.g, bias, &[batch, heads, rows * columns, rows * columns])
}

/// Arranges a table [2n − 1, d] of relative positions as [query d key]. A query and a key get row query − key + n − 1
/// of the table. The rows of one query are contiguous, so a sliding window over the reversed table gives the result
/// without stored indices.
fn toeplitz(m: &mut ModuleBuilder<'_>, name: &str, n: usize, depth: usize) -> Built {
    let table = m.param(name, &[2 * n - 1, depth])?;
    let reversed = reverse(m, table, -2, 2 * n - 1)?;
    let windows = m.g.apply("window", &[reversed], &[("axis", (-2).into()), ("size", (n as i64).into())])?;
    let rows = reverse(m, windows, -3, n)?;
    transpose(m.g, rows, &[0, 2, 1])
}

fn reverse(m: &mut ModuleBuilder<'_>, x: NodeId, axis: i64, extent: usize) -> Result<NodeId, GraphError> {
    let (last, len) = (extent as i64 - 1, extent as i64);
    m.g.apply("slice", &[x], &[("axis", axis.into()), ("at", last.into()), ("len", len.into()), ("step", (-1).into())])
}

/// Adds two convolutions. A norm over the channels follows each of them.
fn neck(m: &mut ModuleBuilder<'_>, config: &VisionConfig, x: NodeId) -> Built {
    let out = config.out_channels;
    let x = channels_first(m.g, x)?;
    let first = Conv { channels: [config.width, out], size: 1, stride: 1, pad: 0, bias: config.neck_bias };
    let x = m.conv("conv1", x, first)?;
    let x = m.channel_norm("layer_norm1", x, out, CHANNEL_EPS)?;
    let x = m.conv("conv2", x, Conv { channels: [out, out], size: 3, stride: 1, pad: 1, bias: false })?;
    m.channel_norm("layer_norm2", x, out, CHANNEL_EPS)
}
