//! `run` of language models in a build without tokenizers.

use super::args::Args;
use crate::fault::{Fault, not_built};

/// Reports the feature that this build lacks.
///
/// # Errors
/// Always.
pub fn run(_: &Args) -> Result<(), Fault> {
    Err(not_built("cannot continue a prompt because this build has no tokenizer", "text"))
}
