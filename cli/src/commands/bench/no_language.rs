//! `bench` of language models in a build without tokenizers.

use super::args::Args;
use crate::fault::{Fault, not_built};

/// Reports the feature that this build lacks.
///
/// # Errors
/// Always.
pub fn run(args: &Args) -> Result<(), Fault> {
    let model = args.job.program.model.display();
    Err(not_built(&format!("{model}: this build has no language models"), "text"))
}
