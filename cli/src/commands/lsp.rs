//! `lsp`: a language server for rule files and graph files.

#[cfg(feature = "lsp")]
mod completion;
#[cfg(feature = "lsp")]
mod definition;
#[cfg(feature = "lsp")]
mod document;
#[cfg(feature = "lsp")]
mod hover;
#[cfg(feature = "lsp")]
mod position;
#[cfg_attr(not(feature = "lsp"), path = "lsp/no_server.rs")]
mod server;
#[cfg(feature = "lsp")]
mod worker;

use crate::{args::OwnRules, fault::Fault};

const EXAMPLES: &str = "\
Examples:
  # editors start it; docs/editors.md says how to set up VS Code, Helix and Neovim
  eutectic lsp
  # files may use the ops and rules of a pack
  eutectic lsp --rules base.epack

A rule file is loaded together with the rule files next to it, or with all of its pack if a folder above it has a pack.toml. A graph file may use the ops that \
rule files next to it declare. Errors of the loader and findings of `rules lint` appear while you write; when a rule file is saved, `rules check` tests its \
rules, and a counterexample appears at the rule.";

/// Serves editors over stdin and stdout: errors, types, completion, definitions, layout, and tests of rules
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    own: OwnRules,
}

/// Runs the server until the editor ends it.
///
/// # Errors
/// If rules do not load, or the editor does not keep to the protocol.
pub fn run(args: &Args) -> Result<(), Fault> {
    server::run(&args.own)
}
