//! The `eutectic` command.

mod args;
mod calibration;
mod commands;
mod difference;
mod fault;
mod files;
mod findings;
mod format;
mod generation;
mod infer;
mod inputs;
mod interrupt;
mod npy;
mod output;
mod plan_file;
mod profile;
mod program;
mod report;
mod screen;
mod table;
mod timing;
mod values;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{
    commands as c,
    fault::{Fault, usage},
    format::Format,
};

const EXAMPLES: &str = "\
Examples:
  # an introduction with a small transformer; needs no files
  eutectic demo
  # the embedding of a sentence
  eutectic run minilm --weights DIR --text \"hello\"
  # the plan for a graph in text form, with rules of your own
  eutectic opt model.graph --rules my-rules
  # an ONNX model; `eutectic inspect` says what is in it
  eutectic run model.onnx --shape batch=1 --input x=@x.npy --output y.npy
  # how these kernels came about
  eutectic explain minilm '*attention*'
  # how long a run takes
  eutectic bench minilm --weights DIR --threads 1
  # a page with the graph of kernels
  eutectic explain minilm --random --html plan.html
  eutectic completions bash > /etc/bash_completion.d/eutectic

Exit codes: 0 success; 1 what was checked is wrong, or a failure while running; 2 wrong usage or bad input.";

/// Makes tensor programs fast by declarative graph rewriting
///
/// Rules from data files rewrite the graph of a program into many equal programs. The one whose kernels have the lowest
/// predicted cost is compiled.
#[derive(Parser)]
#[command(name = "eutectic", version, after_long_help = EXAMPLES, after_help = "More, with examples: eutectic --help")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(c::demo::Args),
    Run(c::run::Args),
    Chat(c::chat::Args),
    Opt(c::opt::Args),
    Compare(c::compare::Args),
    Explain(c::explain::Args),
    Inspect(c::inspect::Args),
    Bench(c::bench::Args),
    Tune(c::tune::Args),
    Costs(c::costs::Args),
    Rules(c::rules::Args),
    Ops(c::ops::Args),
    Lsp(c::lsp::Args),
    Devices(c::devices::Args),
    Completions(c::completions::Args),
}

fn main() -> ExitCode {
    let format = asked_format();
    let arguments = with_negative_numbers(Cli::command()).try_get_matches();
    let cli = match arguments.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, format),
    };
    let done: Result<(), Fault> = match cli.command {
        Command::Demo(args) => c::demo::run(&args),
        Command::Run(args) => c::run::run(&args),
        Command::Chat(args) => c::chat::run(&args),
        Command::Opt(args) => c::opt::run(&args),
        Command::Compare(args) => c::compare::run(&args),
        Command::Explain(args) => c::explain::run(&args),
        Command::Inspect(args) => c::inspect::run(&args),
        Command::Bench(args) => c::bench::run(&args),
        Command::Tune(args) => c::tune::run(&args),
        Command::Costs(args) => c::costs::run(&args),
        Command::Rules(args) => c::rules::run(&args),
        Command::Ops(args) => c::ops::run(&args),
        Command::Lsp(args) => c::lsp::run(&args),
        Command::Devices(args) => c::devices::run(&args),
        Command::Completions(args) => c::completions::run(&args, Cli::command()),
    };
    done.map_or_else(|fault| fault.report(format), |()| ExitCode::SUCCESS)
}

/// Lets options take values that begin with a minus. So `--seed -1` is reported as a wrong value, and not as an unknown
/// option `-1`.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    command.mut_subcommands(with_negative_numbers)
}

/// Returns the format for errors, which is that for results. It is found in the raw arguments, because wrong usage is
/// an error before arguments are parsed.
fn asked_format() -> Format {
    let args: Vec<_> = std::env::args_os().collect();
    let apart = args.windows(2).any(|pair| pair[0] == "--format" && pair[1] == "json");
    if apart || args.iter().any(|arg| arg == "--format=json") { Format::Json } else { Format::Table }
}
