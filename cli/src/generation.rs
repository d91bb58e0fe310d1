//! The options of text generation that `run` and `chat` share.

mod args;
#[cfg(feature = "text")]
mod text;

pub use args::{Cache, GenerationArgs};
#[cfg(feature = "text")]
pub use text::{cache, open, options, print};
