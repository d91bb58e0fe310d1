//! The trunk: a patch embedding, and blocks that attend within windows or to the whole image. Rotary embeddings encode
//! both rows and columns.

use eutectic_ir::{DType, GraphError, NodeId, Tensor};

use super::TrunkConfig;
use crate::{
    module::{Conv, ModuleBuilder, channels_last, expanded, reshaped},
    nn::{Built, transpose},
    windows::{TokenGrid, in_windows},
};

/// Computes tokens [B g g E] from pixels [B C H W]. `m` is the module of the trunk.
pub(super) fn trunk(m: &mut ModuleBuilder<'_>, config: &TrunkConfig, batch: usize, pixels: NodeId) -> Built {
    let side = config.grid();
    let x = m.within("embeddings", |m| {
        let (channels, size) = ([config.channels, config.width], config.patch);
        let conv = Conv { channels, size, stride: size, pad: 0, bias: false };
        let patches = m.within("patch_embeddings", |m| m.conv("projection", pixels, conv))?;
        let tokens = channels_last(m.g, patches)?;
        let positions = m.param("position_embeddings", &[1, config.table * config.table, config.width])?;
        let positions = tiled(m, positions, config, side)?;
        m.add(tokens, positions)
    })?;
    let mut x = m.layernorm("layer_norm", x, config.width, config.eps)?;
    let turns = [Turns::new(m, config, config.window)?, Turns::new(m, config, side)?];
    let grid = TokenGrid { batch, rows: side, columns: side };
    for layer in 0..config.layers {
        let window = config.window_of(layer);
        let turns = turns[usize::from(window.is_none())];
        x = m.within(&format!("layers.{layer}"), |m| block(m, config, grid, window, turns, x))?;
    }
    Ok(x)
}

/// Repeats a table [1 t·t E] in both directions until it covers the grid, and crops it: [1 g g E].
fn tiled(m: &mut ModuleBuilder<'_>, table: NodeId, config: &TrunkConfig, side: usize) -> Built {
    let (t, width) = (config.table, config.width);
    let times = side.div_ceil(t);
    let apart = reshaped(m.g, table, &[1, 1, t, 1, t, width])?;
    let repeated = expanded(m.g, apart, &[1, times, t, times, t, width])?;
    let mut tiled = reshaped(m.g, repeated, &[1, times * t, times * t, width])?;
    for axis in [-3, -2] {
        if times * t > side {
            tiled = crate::module::slice(m.g, tiled, axis, 0, side)?;
        }
    }
    Ok(tiled)
}

/// The rotary tables: cosines and sines of angles, each a constant [side·side d/2].
#[derive(Clone, Copy)]
struct Turns {
    cos: NodeId,
    sin: NodeId,
}

impl Turns {
    /// Computes the angles for attention among side × side tokens. The first half of the d/2 angles depends on the
    /// column, and the second half on the row. The frequencies are θ^(−4j/d). Positions on a grid that is larger than a
    /// window are scaled down to the extent of a window.
    fn new(m: &mut ModuleBuilder<'_>, config: &TrunkConfig, side: usize) -> Result<Turns, GraphError> {
        let quarter = config.width / config.heads / 4;
        let scale = config.window as f64 / side as f64;
        let frequencies: Vec<f64> = (0..quarter).map(|j| config.theta.powf(-(j as f64) / quarter as f64)).collect();
        let mut angles = Vec::with_capacity(side * side * 2 * quarter);
        for (row, column) in (0..side).flat_map(|row| (0..side).map(move |column| (row, column))) {
            for at in [column, row] {
                angles.extend(frequencies.iter().map(|f| at as f64 * scale * f));
            }
        }
        let mut table = |f: fn(f64) -> f64| {
            let dims = [side * side, 2 * quarter];
            m.g.constant(Tensor::from_f64(DType::F32, &dims, angles.iter().map(|a| f(*a))))
        };
        Ok(Turns { cos: table(f64::cos)?, sin: table(f64::sin)? })
    }
}

fn block(
    m: &mut ModuleBuilder<'_>,
    config: &TrunkConfig,
    grid: TokenGrid,
    window: Option<usize>,
    turns: Turns,
    x: NodeId,
) -> Built {
    let normal = m.layernorm("layer_norm1", x, config.width, config.eps)?;
    let attended = in_windows(m, grid, config.width, window, normal, |m, grid, x| {
        m.within("attention", |m| attention(m, config, grid, turns, x))
    })?;
    let x = m.add(x, attended)?;
    let normal = m.layernorm("layer_norm2", x, config.width, config.eps)?;
    let mixed = m.within("mlp", |m| {
        let inner = m.linear("fc1", normal, [config.width, config.mlp], true)?;
        let inner = m.activation(inner, config.activation)?;
        m.linear("fc2", inner, [config.mlp, config.width], true)
    })?;
    m.add(x, mixed)
}

fn attention(m: &mut ModuleBuilder<'_>, config: &TrunkConfig, grid: TokenGrid, turns: Turns, x: NodeId) -> Built {
    let TrunkConfig { width, heads, .. } = *config;
    let TokenGrid { batch, rows, columns } = grid;
    let (tokens, depth) = (rows * columns, width / heads);
    let mut part = |name: &str| {
        let part = m.linear(name, x, [width, width], true)?;
        let split = reshaped(m.g, part, &[batch, tokens, heads, depth])?;
        transpose(m.g, split, &[0, 2, 1, 3])
    };
    let [q, k, v] = [part("q_proj")?, part("k_proj")?, part("v_proj")?];
    let mut turned = |x| m.form.rope_adjacent(m.g, x, [turns.cos, turns.sin]);
    let [q, k] = [turned(q)?, turned(k)?];
    let mixed = m.form.attention(m.g, [q, k, v], None, depth)?;
    let joined = transpose(m.g, mixed, &[0, 2, 1, 3])?;
    let joined = reshaped(m.g, joined, &[batch, rows, columns, width])?;
    m.linear("o_proj", joined, [width, width], true)
}
