//! The arguments of `chat`.

use std::path::PathBuf;

use crate::{args::Compile, format::Format, generation::GenerationArgs, values::whole};

const EXAMPLES: &str = "\
Examples:
  eutectic chat model.gguf
  eutectic chat model.gguf --system \"Answer in one sentence.\" \\
      --temperature 0.8 --top-p 0.95
  # a file of messages, one a line, and an object for each answer
  eutectic chat model.gguf --format json < messages.txt

A message is a line of stdin; the end of stdin (Ctrl-D) ends the conversation.";

/// Talks with a language model
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// A language model with a chat template (*.gguf)
    #[arg(value_name = "FILE")]
    pub model: PathBuf,
    #[command(flatten)]
    pub compile: Compile,
    #[command(flatten)]
    pub generation: GenerationArgs,
    /// The system message, which tells the model how to answer
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// The largest number of tokens in a conversation, at most the number that the model was trained for
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = whole::<usize>)]
    pub context: usize,
    /// The seed of random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}
