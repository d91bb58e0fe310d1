//! Text generation for `run` and `chat`: options and output.

mod args;
#[cfg(feature = "text")]
mod text;

pub use args::{Cache, GenerationArgs};
#[cfg(feature = "text")]
pub use text::{cache, open, options, print};
