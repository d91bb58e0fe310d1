//! `devices`: what programs can be compiled for on this machine.

use std::io::{Write, stdout};

use eutectic::{Backend, Cpu};
use serde_json::json;

use crate::{
    args::{Format, print_json},
    fault::Fault,
    table::table,
};

const EXAMPLES: &str = "\
Examples:
  eutectic devices
  eutectic devices --format json";

/// Lists the devices that programs can be compiled for
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs the command.
///
/// # Errors
/// When stdout cannot be written to.
pub fn run(args: &Args) -> Result<(), Fault> {
    let cpu = Cpu::default();
    let mut out = stdout().lock();
    if args.format == Format::Json {
        return print_json(&mut out, &[json!({ "name": cpu.name(), "description": cpu.describe() })]);
    }
    let mut table = table(&["device", "what it is"]);
    table.add_row([cpu.name().to_string(), cpu.describe()]);
    Ok(writeln!(out, "{table}")?)
}
