//! Failures of commands: what to print, and the exit code that tells a script whose fault it was.

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
};

use eutectic::{
    Error,
    engine::{backend::BackendError, rewrites::LoadError},
};
use miette::{Diagnostic, GraphicalReportHandler, Report};

use crate::table::plain;

/// Why a command ended early.
#[derive(Debug)]
pub enum Fault {
    /// The arguments or a file are wrong: exit code 2.
    Input(Report),
    /// It went wrong on our side, or the system's: exit code 1.
    Run(Report),
    /// Nobody reads our output any more (`eutectic … | head`): no failure.
    Closed,
}

/// A message, and what to do about it.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
struct Plain {
    message: String,
    #[help]
    help: Option<String>,
}

/// Wrong input: what and where, and what to do.
pub fn input(message: impl fmt::Display, help: impl Into<String>) -> Fault {
    Fault::Input(Report::new(Plain { message: message.to_string(), help: Some(help.into()) }))
}

impl Fault {
    /// Wrong input that says itself what to do.
    pub fn input(message: impl fmt::Display) -> Fault {
        Fault::Input(Report::new(Plain { message: message.to_string(), help: None }))
    }

    /// A failure that no other input would have avoided.
    pub fn run(message: impl fmt::Display) -> Fault {
        Fault::Run(Report::new(Plain { message: message.to_string(), help: None }))
    }

    /// Prints it on stderr, in colour where that is a terminal, and gives the exit code.
    pub fn report(&self) -> ExitCode {
        let (report, code) = match self {
            Fault::Closed => return ExitCode::SUCCESS,
            Fault::Input(report) => (report, 2),
            Fault::Run(report) => (report, 1),
        };
        // There is nobody left to tell if this fails.
        let _ = io::stderr().write_all(render(report.as_ref()).as_bytes());
        ExitCode::from(code)
    }
}

/// How many errors of a file are shown: what fits on a screen.
const SHOWN: usize = 4;

/// Errors with an excerpt of their source are drawn; plain ones are a line `error: …`, as clap's are.
fn render(diagnostic: &dyn Diagnostic) -> String {
    if let Some(related) = diagnostic.related() {
        let all: Vec<_> = related.collect();
        let shown: String = all.iter().take(SHOWN).map(|error| format!("\n{}", render(*error))).collect();
        let rest = match all.len().saturating_sub(SHOWN) {
            0 => String::new(),
            n => format!("\n… and {n} more\n"),
        };
        return format!("error: {diagnostic}\n{shown}{rest}");
    }
    let mut text = String::new();
    let drawn = diagnostic.source_code().is_some();
    if drawn && GraphicalReportHandler::new().render_report(&mut text, diagnostic).is_ok() {
        return text.trim_start_matches('\n').into();
    }
    let help = diagnostic.help().map_or(String::new(), |help| format!("\n  help: {help}"));
    plain(&format!("error: {diagnostic}{help}\n"))
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        match error {
            Error::Rules(errors) => Fault::Input(Report::new(errors)),
            Error::Choice(error @ LoadError::Read { .. }) => {
                input(error, "--rules takes a directory; the rule files in it (*.rules) are UTF-8 text")
            }
            Error::Choice(error) => input(error, "`eutectic rules list` shows the names"),
            Error::Lower(_) | Error::Backend(BackendError::Device(_) | BackendError::Released(_)) => Fault::run(error),
            error => Fault::input(error),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Fault::Closed,
            _ => Fault::run(format!("cannot write the output: {error}")),
        }
    }
}
