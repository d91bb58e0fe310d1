//! Failures of commands: what to print, and the exit code that tells a script whose fault it was.

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

/// Why a command ended early.
#[derive(Debug)]
pub enum Fault {
    /// Arguments or files that can be corrected: exit code 2.
    Input(Report),
    /// What was checked is wrong, or something failed that no other arguments would have avoided: exit code 1.
    Run(Report),
    /// Several at once: the exit code is the greatest of theirs.
    Several(Vec<Fault>),
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

/// Something that was left out of this build, and how to get it.
pub fn not_built(message: impl fmt::Display, feature: &str) -> Fault {
    let help = format!("build with `--features {feature}`, or with `--features full`, which leaves nothing out");
    input(message, help)
}

/// An error on one line. Where its first line announces a list, the first of the list and how many there are more.
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

/// Wrong usage, or help that was asked for: prints it, and gives the exit code.
pub fn usage(error: &clap::Error, format: Format) -> ExitCode {
    if error.use_stderr() && format == Format::Json {
        let text = error.render().to_string();
        return Fault::input(text.trim().trim_start_matches("error: ")).report(format);
    }
    // As for other output: where it goes to may be closed.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
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

    /// None of several, or all of them as one.
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

    /// Prints it on stderr, for people or for programs, and gives the exit code.
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
            // There is nobody left to tell if this fails.
            let _ = io::stderr().write_all(text.as_bytes());
        }
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
    if let Some(place) = Place::of(diagnostic) {
        return place.drawn(diagnostic);
    }
    let help = diagnostic.help().map_or(String::new(), |help| format!("\n{}", hanging(format!("  help: {help}"), 8)));
    format!("{}{}\n", plain(&hanging(format!("error: {}", message(diagnostic)), 7)), plain(&help))
}

/// What it says. Files may hold lines of any length: of a long one, what is in the middle is left out.
fn message(diagnostic: &dyn Diagnostic) -> String {
    /// Characters of a line that are shown from its start, and to its end.
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

/// An error, or all those that it is about, for programs.
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

/// Where in a file an error is: the lines around it.
struct Place {
    file: String,
    /// The number of the first line of the text, from 1 on.
    line: usize,
    text: String,
    /// What is wrong, in bytes of the text, and what is said of it there.
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

    /// From 1 on.
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
            Error::Choice(error @ LoadError::Read { .. }) => {
                input(error, "--rules takes a directory; the rule files in it (*.rules) are UTF-8 text")
            }
            Error::Choice(error) => input(error, "`eutectic rules list` shows the names"),
            Error::Unsupported { ref left_out, .. } if !left_out.is_empty() => {
                input(error, "--without, --only and --fp choose the rules: let these take part")
            }
            Error::Rewrite(RewriteError::Illegal(_)) => {
                input(error, "--without and --only choose the rules: let those of legalize/* take part")
            }
            Error::Backend(BackendError::Memory(_)) => input(error, "bind smaller dimensions, or free memory"),
            Error::Backend(BackendError::Device(_) | BackendError::Released(_)) => Fault::run(error),
            Error::NotBuilt { name } => not_built(format!("this build has no backend `{name}`"), name),
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
