//! The command of a build without the language server.

use crate::fault::{Fault, not_built};

/// Returns the error that this build has no server.
///
/// # Errors
/// Always.
pub fn run(_: &crate::args::OwnRules) -> Result<(), Fault> {
    Err(not_built("cannot serve an editor because this build has no language server", "lsp"))
}
