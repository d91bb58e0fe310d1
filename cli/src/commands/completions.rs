//! `completions`: shell completions.

use std::io::{Write, stdout};

use clap_complete::{Shell, generate};

use crate::fault::Fault;

const EXAMPLES: &str = "\
Examples:
  eutectic completions bash > /etc/bash_completion.d/eutectic
  eutectic completions zsh > ~/.zfunc/_eutectic
  eutectic completions fish > ~/.config/fish/completions/eutectic.fish";

/// Prints a script with which a shell completes commands and options
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs the command.
///
/// # Errors
/// If stdout cannot be written.
pub fn run(args: &Args, mut command: clap::Command) -> Result<(), Fault> {
    let mut script = Vec::new();
    generate(args.shell, &mut command, "eutectic", &mut script);
    Ok(stdout().lock().write_all(&script)?)
}
