//! SAM, the Segment Anything Model (Kirillov et al. 2023, arXiv:2304.02643). Its graphs compute an embedding of an
//! image, or masks for prompts.

mod checkpoint;
mod config;
mod decoder;
mod encoder;
mod prompt;

use eutectic_ir::{DType, Graph, GraphError, NodeId, Type};

pub use checkpoint::{IGNORED_FOR_EMBEDDINGS, IGNORED_FOR_MASKS, open_weights};
pub use config::{DecoderConfig, Preset, SamConfig, VisionConfig};
pub use prompt::Label;

use crate::{module::ModuleBuilder, nn::Form};

/// The extents of the prompts of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompts {
    /// P, the number of prompts for each image.
    pub number: usize,
    /// N, the number of points for each prompt. A prompt without a box has [`Label::None`] as its last point.
    pub points: usize,
    /// Whether each image has an earlier mask as a further prompt.
    pub prior: bool,
}

/// Returns the image encoder for a batch of images. Input: `pixels` `f32[B C H W]`, normalized and padded. Output:
/// `embedding` `f32[B out h w]`. Parameters have the names and shapes of transformers' `SamVisionModel`.
///
/// # Errors
/// If the extents of the configuration contradict each other, or `batch` is 0. Presets and configurations from
/// [`SamConfig::open`] are consistent.
pub fn encoder(config: &SamConfig, form: Form, batch: usize) -> Result<Graph, GraphError> {
    let mut graph = Graph::new("sam");
    let embedding = embedding(&mut ModuleBuilder { g: &mut graph, form }, config, batch)?;
    graph.output("embedding", embedding)?;
    Ok(graph)
}

/// Returns the whole model for a batch of images.
///
/// The inputs are `pixels`, as in [`encoder`]; `points` `f32[B P N 2]`, x before y, in pixels of the padded image;
/// `labels` `i64[B P N]`, each a [`Label`]; and `prior` `f32[B 1 4h 4w]`, the logits of an earlier mask, if
/// [`Prompts::prior`] is set.
///
/// The outputs are `embedding`, as in [`encoder`]; `masks` `f32[B P 1+M 4h 4w]`, logits that are positive inside of a
/// mask; and `scores` `f32[B P 1+M]`, the predicted overlap of each mask with the correct one. Mask 0 is for
/// unambiguous prompts, and masks 1 to M are for ambiguous ones.
///
/// # Errors
/// In the cases of [`encoder`], and if there is no prompt, or no point in a prompt.
pub fn segmenter(config: &SamConfig, form: Form, batch: usize, prompts: Prompts) -> Result<Graph, GraphError> {
    let mut graph = Graph::new("sam");
    let m = &mut ModuleBuilder { g: &mut graph, form };
    let embedding = embedding(m, config, batch)?;
    let dims = [batch, prompts.number, prompts.points];
    let points = m.g.input("points", Type::tensor(DType::F32, &[&dims[..], &[2]].concat()))?;
    let labels = m.g.input("labels", Type::tensor(DType::I64, &dims))?;
    let [rows, columns] = config.vision.grid();
    let mask = Type::tensor(DType::F32, &[batch, 1, 4 * rows, 4 * columns]);
    let prior = prompts.prior.then(|| m.g.input("prior", mask)).transpose()?;

    let matrix = prompt::matrix(m, config)?;
    let places = prompt::places(m, config, matrix)?;
    let (points, dense) = m.within("prompt_encoder", |m| {
        Ok((prompt::points(m, config, matrix, points, labels, dims)?, prompt::dense(m, config, prior)?))
    })?;
    let tokens = [batch, rows * columns, config.vision.out_channels];
    let image = prompt::tokens_of(m, embedding, tokens)?;
    let image = m.add(image, dense)?;
    let image = prompt::for_each_prompt(m, image, tokens, prompts.number)?;
    let prompted = decoder::Prompted { points, image, places, dims };
    let [masks, scores] = m.within("mask_decoder", |m| decoder::decoder(m, config, &prompted))?;
    for (name, value) in [("embedding", embedding), ("masks", masks), ("scores", scores)] {
        graph.output(name, value)?;
    }
    Ok(graph)
}

fn embedding(m: &mut ModuleBuilder<'_>, config: &SamConfig, batch: usize) -> Result<NodeId, GraphError> {
    let vision = &config.vision;
    let [height, width] = vision.image;
    let pixels = m.g.input("pixels", Type::tensor(DType::F32, &[batch, vision.channels, height, width]))?;
    m.within("vision_encoder", |m| encoder::encoder(m, vision, batch, pixels))
}
