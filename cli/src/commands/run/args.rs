//! The arguments of `run`.

use std::{ffi::OsString, path::PathBuf};

use crate::{args::CommonArgs, generation::GenerationArgs, inputs::InputFiles, npy};

const EXAMPLES: &str = "\
Examples:
  # embeddings and cosine similarities
  eutectic run minilm --weights DIR --text \"a cat\" --text \"a kitten\"
  # all numbers
  eutectic run minilm --weights DIR --text \"a cat\" --format json
  # the continuation of a text by a language model, and its answer to a message
  eutectic run model.gguf --prompt \"The capital of France is\" --max-tokens 20
  eutectic run model.gguf --chat --prompt \"Who are you?\" --temperature 0.8
  # random parameters and inputs
  eutectic run model.graph --shape B=2 --seed 7
  eutectic run model.graph --input x=@x.npy --weights w.safetensors \\
      --output y.npy
  # the array says how large the batch is
  eutectic run model.onnx --input x=@x.npy --output y.npy
  eutectic run model.graph --param w=@w.npy --input x=@- \\
      --output - < x.npy > y.npy
  eutectic run sam --preset vit-b --weights sam_vit_b.pth --image photo.jpg \\
      --point 320,200 --out mask.png
  eutectic run sam --weights FOLDER --image photo.png --out embedding.npy
  # is the result that of the program as written, and if not, whose fault is it?
  eutectic run model.onnx --input x=@x.npy --rules my-rules --verify
  # random parameters
  eutectic run sam --preset vit-b --input pixels=@x.npy --output embedding.npy

FOLDER is as Hugging Face lays a model out (config.json, model.safetensors). DIR holds config.json, model.safetensors and tokenizer.json of all-MiniLM-L6-v2; \
`models/scripts/fetch-minilm.sh DIR` puts them there.";

/// Runs a model on texts, or a graph on arrays
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub job: CommonArgs,
    /// A text to embed (minilm); may be repeated
    #[arg(help_heading = None, long = "text", value_name = "TEXT", allow_hyphen_values = true)]
    pub texts: Vec<OsString>,
    /// The image as a PNG or JPEG file (sam)
    #[arg(help_heading = None, long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// A point on the object to mask, in pixels from the top left of the image; may be repeated (sam)
    #[arg(help_heading = None, long = "point", value_name = "X,Y", value_parser = point)]
    pub points: Vec<[f64; 2]>,
    /// The file of the result: numbers (*.npy), or a picture (*.png) that shows the mask over the image, or the
    /// embedding's first three principal components next to it; may be repeated (sam)
    #[arg(help_heading = None, long = "out", value_name = "FILE.npy|FILE.png")]
    pub results: Vec<PathBuf>,
    /// Also runs the program as written on the same inputs, and compares all results; if they differ by more than
    /// rounding, names the rule and the first kernel that differs, with exit code 1
    #[arg(help_heading = None, long)]
    pub verify: bool,
    #[command(flatten)]
    pub prompt: PromptArgs,
    #[command(flatten)]
    pub inputs: InputFiles,
    /// The file of the first output, or of the output NAME; may be repeated; with - for stdout, nothing else is printed
    #[arg(help_heading = None, long = "output", value_name = "[NAME=]FILE.npy", value_parser = npy::target())]
    pub outputs: Vec<PathBuf>,
}

/// The prompt of a language model (*.gguf), and the options of its continuation.
#[derive(clap::Args)]
#[command(next_help_heading = "Generation")]
pub struct PromptArgs {
    /// The text that a language model continues (*.gguf); - for stdin. The chat template is applied only with --chat.
    /// With --format json, prints an object with prompt_tokens and tokens (ids), text and stop
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// Treats the prompt as a user's message, and applies the file's chat template
    #[arg(long)]
    pub chat: bool,
    #[command(flatten)]
    pub generation: GenerationArgs,
}

impl PromptArgs {
    /// Returns the names of the options that are given.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let own = [("--prompt", self.prompt.is_some()), ("--chat", self.chat)];
        own.into_iter().filter_map(|(flag, given)| given.then_some(flag)).chain(self.generation.given())
    }
}

/// Parses a point `X,Y`.
fn point(text: &str) -> Result<[f64; 2], String> {
    let number = |text: &str| text.trim().parse().ok().filter(|x: &f64| x.is_finite());
    let pair = text.split_once(',').and_then(|(x, y)| Some([number(x)?, number(y)?]));
    pair.ok_or("expected X,Y, as in 320,200".into())
}
