//! `devices`: lists the backends that this machine can run, and the requirements that it lacks for other backends.

use std::io::{Write, stdout};

use eutectic::{BACKENDS, Error, Setup};
use serde_json::json;

use crate::{args::print_json, fault::Fault, format::Format, table::table};

const EXAMPLES: &str = "\
Examples:
  eutectic devices
  eutectic devices --format json
  eutectic bench demo --backend cpu";

/// Lists the devices that can run programs, and the requirements that other backends lack
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
/// If stdout cannot be written.
pub fn run(args: &Args) -> Result<(), Fault> {
    let opened = BACKENDS.iter().map(|listed| (listed, listed.open(&Setup::default())));
    let mut out = stdout().lock();
    if args.format == Format::Json {
        let devices = opened.map(|(listed, opened)| match opened {
            Ok(backend) => json!({ "name": listed.name, "about": listed.about, "description": backend.describe() }),
            Err(error) => json!({ "name": listed.name, "about": listed.about, "missing": why(error) }),
        });
        return print_json(&mut out, &devices.collect::<Vec<_>>());
    }
    let mut table = table(&["backend", "runs programs on", "here"]);
    for (listed, opened) in opened {
        let here = opened.map_or_else(|error| format!("no: {}", why(error)), |backend| backend.describe());
        table.add_row([listed.name.to_string(), listed.about.to_string(), here]);
    }
    Ok(writeln!(out, "{table}")?)
}

/// Returns the reason why a backend cannot be opened, without the backend's name.
fn why(error: Error) -> String {
    match error {
        Error::Open { why, .. } => why.to_string(),
        Error::NotBuilt { name } => format!("not in this build, which takes `--features {name}`"),
        error => error.to_string(),
    }
}
