//! The vision encoder of SAM 3 as graphs: the trunk, and the neck with its branches at several scales.

mod checkpoint;
mod config;
mod neck;
mod trunk;

use eutectic_ir::{DType, Graph, GraphError, NodeId, Type};

pub use checkpoint::{IGNORED, IGNORED_FOR_NECK, open_weights};
pub use config::{Sam3Config, Scale, TrunkConfig};

use crate::{
    module::{ModuleBuilder, reshaped},
    nn::Form,
};

/// Returns the vision encoder for a batch of images.
///
/// The input is `pixels` `f32[B C H W]`, normalized. For each branch i, the outputs are `feature.i` `f32[B D n n]` and
/// `position.i` `f32[D/2 n]`. The last output is `tokens` `f32[B g·g E]`, the result of the trunk. The position
/// encoding of the pixel in row r and column c joins the columns r and c of `position.i`. Parameters have the names and
/// shapes of transformers' `Sam3VisionModel`.
///
/// # Errors
/// If the extents of the configuration contradict each other, or `batch` is 0. The published configuration and those
/// from [`Sam3Config::open`] are consistent.
pub fn encoder(config: &Sam3Config, form: Form, batch: usize) -> Result<Graph, GraphError> {
    let mut graph = Graph::new("sam3");
    let m = &mut ModuleBuilder { g: &mut graph, form };
    let TrunkConfig { image, channels, width, .. } = config.trunk;
    let pixels = m.g.input("pixels", Type::tensor(DType::F32, &[batch, channels, image, image]))?;
    let grid = m.within("backbone", |m| trunk::trunk(m, &config.trunk, batch, pixels))?;
    branches(m, config, grid)?;
    let side = config.trunk.grid();
    let tokens = reshaped(m.g, grid, &[batch, side * side, width])?;
    graph.output("tokens", tokens)?;
    Ok(graph)
}

/// Returns the neck alone. Its input is `tokens` `f32[B g·g E]`, in row-major order of the grid. It has the outputs of
/// [`encoder`] except `tokens`.
///
/// # Errors
/// In the cases of [`encoder`].
pub fn neck(config: &Sam3Config, form: Form, batch: usize) -> Result<Graph, GraphError> {
    let mut graph = Graph::new("sam3-neck");
    let m = &mut ModuleBuilder { g: &mut graph, form };
    let (side, width) = (config.trunk.grid(), config.trunk.width);
    let tokens = m.g.input("tokens", Type::tensor(DType::F32, &[batch, side * side, width]))?;
    let grid = reshaped(m.g, tokens, &[batch, side, side, width])?;
    branches(m, config, grid)?;
    Ok(graph)
}

/// Adds the branches of the neck as outputs, each with its position encodings.
fn branches(m: &mut ModuleBuilder<'_>, config: &Sam3Config, grid: NodeId) -> Result<(), GraphError> {
    for &(number, scale) in &config.branches {
        let feature = m.within(&format!("neck.fpn_layers.{number}"), |m| neck::branch(m, config, scale, grid))?;
        let table = neck::positions(m, config.neck_width, scale.of(config.trunk.grid()))?;
        for (name, value) in [("feature", feature), ("position", table)] {
            m.g.output(&format!("{name}.{number}"), value)?;
        }
    }
    Ok(())
}
