//! Errors of commands: a message with help, and an exit code that shows scripts whether the input or the result is
//! wrong.

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
};

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet, renderer::DecorStyle};
use anstream::{AutoStream, ColorChoice};
use eutectic::{
    Error,
    engine::{
        backend::BackendError,
        rewrites::{LoadError, RewriteError},
    },
};
use miette::{Diagnostic, Report};
use serde_json::{Value, json};

use crate::{
    format::Format,
    screen,
    table::{hanging, plain},
};

/// The reason why a command ended without success.
#[derive(Debug)]
pub enum Fault {
    /// The user can correct the arguments or files: exit code 2.
    Input(Report),
    /// The object that was checked is wrong, or no other arguments would help: exit code 1.
    Run(Report),
    /// Several errors. The exit code is the largest of their exit codes.
    Several(Vec<Fault>),
    /// The reader of the command's output has closed it (`eutectic … | head`), which is not an error.
    Closed,
}

/// A message with optional help.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
struct Plain {
    message: String,
    #[help]
    help: Option<String>,
}

/// Returns an error about wrong input. `help` says how to correct it.
pub fn input(message: impl fmt::Display, help: impl Into<String>) -> Fault {
    Fault::Input(Report::new(Plain { message: message.to_string(), help: Some(help.into()) }))
}

/// Returns an error about a part that this build lacks. `feature` is the Cargo feature that adds the part.
pub fn not_built(message: impl fmt::Display, feature: &str) -> Fault {
    let help = format!("build with `--features {feature}`, or with `--features full` for everything");
    input(message, help)
}

/// Returns an error on one line. For a list, the line has the first entry and the number of further entries.
pub fn in_one_line(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    match lines.next().filter(|_| first.ends_with(':')) {
        None => first.into(),
        Some(what) => match lines.count() {
            0 => format!("{first} {what}"),
            more => format!("{first} {what}, and {more} more"),
        },
    }
}

/// Prints clap's error about wrong usage, or the requested help. Returns the exit code.
pub fn usage(error: &clap::Error, format: Format) -> ExitCode {
    if error.use_stderr() && format == Format::Json {
        let text = error.render().to_string();
        return Fault::input(text.trim().trim_start_matches("error: ")).report(format);
    }
    // Printing fails if the destination is closed, which is not reported.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

impl Fault {
    /// Returns an error about wrong input. The message itself says how to correct it.
    pub fn input(message: impl fmt::Display) -> Fault {
        Fault::Input(Report::new(Plain { message: message.to_string(), help: None }))
    }

    /// Returns an error that no other input would avoid.
    pub fn run(message: impl fmt::Display) -> Fault {
        Fault::Run(Report::new(Plain { message: message.to_string(), help: None }))
    }

    /// Combines errors. Returns `Ok` if there are none.
    pub fn all(mut faults: Vec<Fault>) -> Result<(), Fault> {
        match faults.len() {
            0 | 1 => faults.pop().map_or(Ok(()), Err),
            _ => Err(Fault::Several(faults)),
        }
    }

    fn reports(&self) -> Vec<&Report> {
        match self {
            Fault::Closed => Vec::new(),
            Fault::Input(report) | Fault::Run(report) => vec![report],
            Fault::Several(faults) => faults.iter().flat_map(Fault::reports).collect(),
        }
    }

    fn code(&self) -> u8 {
        match self {
            Fault::Closed => 0,
            Fault::Run(_) => 1,
            Fault::Input(_) => 2,
            Fault::Several(faults) => faults.iter().map(Fault::code).max().unwrap_or(0),
        }
    }

    /// Prints the error on stderr as text or JSON. Returns the exit code.
    pub fn report(&self, format: Format) -> ExitCode {
        let (reports, code) = (self.reports(), self.code());
        if code > 0 {
            let text: String = match format {
                Format::Table => reports.iter().map(|report| render((**report).as_ref())).collect(),
                Format::Json => {
                    let errors: Vec<_> = reports.iter().flat_map(|report| listed((**report).as_ref())).collect();
                    format!("{}\n", json!({ "errors": errors, "exit_code": code }))
                }
            };
            // If stderr is closed, no one can be told.
            let _ = io::stderr().write_all(text.as_bytes());
        }
        ExitCode::from(code)
    }
}

/// The largest number of errors of one file that are printed, so that they fit on a screen.
const SHOWN: usize = 4;

/// Formats an error: as an excerpt of its source if it has one, and otherwise as a line `error: …`, like clap.
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
    if let Some(place) = Place::of(diagnostic) {
        return place.drawn(diagnostic);
    }
    let help = diagnostic.help().map_or(String::new(), |help| format!("\n{}", hanging(format!("  help: {help}"), 8)));
    format!("{}{}\n", plain(&hanging(format!("error: {}", message(diagnostic)), 7)), plain(&help))
}

/// Returns the message. Leaves out the middle of very long lines, because files may have lines of any length.
fn message(diagnostic: &dyn Diagnostic) -> String {
    /// The number of characters that are shown from the start and from the end of a long line.
    const ENDS: [usize; 2] = [300, 200];
    let shortened = |line: &str| {
        let count = line.chars().count();
        let left_out = count.saturating_sub(ENDS[0] + ENDS[1]);
        match left_out {
            0 => line.to_string(),
            _ => {
                let start: String = line.chars().take(ENDS[0]).collect();
                let end: String = line.chars().skip(count - ENDS[1]).collect();
                format!("{start} … {left_out} characters … {end}")
            }
        }
    };
    diagnostic.to_string().split('\n').map(shortened).collect::<Vec<_>>().join("\n")
}

/// Returns an error as JSON, or a list of the errors that it combines.
fn listed(diagnostic: &dyn Diagnostic) -> Vec<Value> {
    if let Some(related) = diagnostic.related() {
        return related.flat_map(listed).collect();
    }
    let place = Place::of(diagnostic);
    vec![json!({
        "message": message(diagnostic),
        "help": diagnostic.help().map(|help| help.to_string()),
        "file": place.as_ref().map(|place| &place.file),
        "line": place.as_ref().map(|place| place.line + place.lines_before()),
        "column": place.as_ref().map(Place::column),
    })]
}

/// The position of an error in a file, with the lines around it.
struct Place {
    file: String,
    /// The number of the first line in `text`, from 1 on.
    line: usize,
    text: String,
    /// The range of the error in `text`, in bytes. `label` is the message at that range.
    span: std::ops::Range<usize>,
    label: String,
}

impl Place {
    fn of(diagnostic: &dyn Diagnostic) -> Option<Place> {
        let source = diagnostic.source_code()?;
        let label = diagnostic.labels()?.next()?;
        let contents = source.read_span(label.inner(), 1, 1).ok()?;
        let text = String::from_utf8_lossy(contents.data()).into_owned();
        let start = label.offset().saturating_sub(contents.span().offset()).min(text.len());
        Some(Place {
            file: contents.name().unwrap_or_default().into(),
            line: contents.line() + 1,
            span: start..(start + label.len()).min(text.len()),
            label: label.label().unwrap_or_default().into(),
            text,
        })
    }

    fn lines_before(&self) -> usize {
        self.text[..self.span.start].matches('\n').count()
    }

    /// Returns the column of the error, from 1 on.
    fn column(&self) -> usize {
        self.text[..self.span.start].chars().rev().take_while(|c| *c != '\n').count() + 1
    }

    fn drawn(&self, diagnostic: &dyn Diagnostic) -> String {
        let (message, help) = (message(diagnostic), diagnostic.help().map(|help| help.to_string()));
        let mark = AnnotationKind::Primary.span(self.span.clone()).label(&self.label);
        let snippet = Snippet::source(&self.text).line_start(self.line).path(&self.file).annotation(mark);
        let mut group = Level::ERROR.primary_title(&message).element(snippet);
        if let Some(help) = &help {
            group = group.element(Level::HELP.message(help));
        }
        let coloured = AutoStream::choice(&io::stderr()) != ColorChoice::Never;
        let renderer = if coloured { Renderer::styled() } else { Renderer::plain() };
        let renderer = renderer.decor_style(DecorStyle::Unicode).term_width(screen::width().unwrap_or(140));
        renderer.render(&[group]) + "\n"
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        match error {
            Error::Rules(errors) => Fault::Input(Report::new(errors)),
            Error::Choice(error @ LoadError::Read { .. }) => input(
                error,
                "--rules takes a rule file (*.rules), a folder of them, or a pack (*.epack); they are UTF-8 text",
            ),
            // The messages of these errors already say how to correct them.
            Error::Choice(error @ (LoadError::Pack { .. } | LoadError::Proofs { .. })) => Fault::input(error),
            Error::Choice(error) => input(error, "`eutectic rules list` shows the names"),
            Error::Unsupported { ref left_out, .. } if !left_out.is_empty() => {
                input(error, "--without, --only and --fp select the rules; include these")
            }
            Error::Rewrite(RewriteError::Illegal(_)) => {
                input(error, "--without and --only select the rules; include those of legalize/*")
            }
            Error::Backend(BackendError::Memory(_)) => input(error, "use smaller dimensions, or free memory"),
            Error::Backend(BackendError::Device(_) | BackendError::Released(_)) => Fault::run(error),
            Error::NotBuilt { name } => {
                not_built(format!("cannot open the backend `{name}` because this build lacks it"), name)
            }
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
