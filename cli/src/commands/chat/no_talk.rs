//! `chat`, in a build without tokenizers.

use super::args::Args;
use crate::fault::{Fault, not_built};

/// Names the feature that this build lacks.
///
/// # Errors
/// Always.
pub fn run(args: &Args) -> Result<(), Fault> {
    Err(not_built(format!("chat {}: this build has no tokenizer", args.model.display()), "text"))
}
