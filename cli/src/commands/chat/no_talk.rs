//! `chat` in a build without tokenizers.

use super::args::Args;
use crate::fault::{Fault, not_built};

/// Reports the feature that this build lacks.
///
/// # Errors
/// Always.
pub fn run(args: &Args) -> Result<(), Fault> {
    Err(not_built(format!("cannot chat with {} because this build has no tokenizer", args.model.display()), "text"))
}
