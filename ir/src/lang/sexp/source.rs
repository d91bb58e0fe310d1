//! Source texts, and errors with positions in them.

use std::{ops::Range, sync::Arc};

use miette::{Diagnostic, NamedSource, SourceSpan};

/// The longest line, in bytes, that an excerpt shows. An error in a longer line has its position in numbers instead.
const LONGEST_LINE: usize = 400;

/// The maximal number of lines of a span that an excerpt shows.
const MOST_LINES: usize = 12;

/// A source file (or an embedded one, or a string), for error messages.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path or a made-up name such as `<signature of matmul>`.
    pub name: Arc<str>,
    /// The whole text.
    pub text: Arc<str>,
}

impl Source {
    /// Returns a source named `name`.
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Source {
        Source { name: name.into(), text: text.into() }
    }

    /// Returns an error at `span` of this source.
    pub fn error(&self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> LangError {
        let help: String = help.into();
        let mut message = message.into();
        // A byte position stands for the character that contains it.
        let mut span = self.text.floor_char_boundary(span.start)..self.text.ceil_char_boundary(span.end);
        // Only the first line of a span over many lines is shown.
        let lines = self.text[span.clone()].match_indices('\n');
        if let Some((end, _)) = lines.clone().next().filter(|_| lines.count() >= MOST_LINES) {
            span.end = span.start + end;
        }
        let source_code = self.is_shown_around(&span).then(|| NamedSource::new(&self.name, shown(&self.text)));
        if source_code.is_none() {
            let (line, column) = self.position(span.start);
            message = format!("{}:{line}:{column}: {message}", self.name);
        }
        LangError {
            message,
            label: "here".into(),
            help: (!help.is_empty()).then_some(help),
            of: self.name.clone(),
            source_code: source_code.map(Arc::new),
            span: span.into(),
        }
    }

    /// Returns whether the lines of a span and the adjacent lines are short enough for an excerpt.
    fn is_shown_around(&self, span: &Range<usize>) -> bool {
        let at = |offset: usize| self.position(offset).0;
        let lines = self.text.lines().skip(at(span.start).saturating_sub(2));
        lines.take(at(span.end) - at(span.start) + 3).all(|line| line.len() <= LONGEST_LINE)
    }

    /// Returns line and column of a byte offset, both counted from 1.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |n| n + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// An error in a source: the message, the position (with an excerpt and a caret) and the help.
#[derive(Clone, Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub struct LangError {
    /// The message.
    pub message: String,
    label: String,
    /// A suggestion for a correction.
    #[help]
    pub help: Option<String>,
    of: Arc<str>,
    #[source_code]
    source_code: Option<Arc<NamedSource<Arc<str>>>>,
    #[label("{label}")]
    span: SourceSpan,
}

impl LangError {
    /// Sets the text under the caret.
    pub fn with_label(mut self, label: impl Into<String>) -> LangError {
        self.label = label.into();
        self
    }

    /// Returns the byte offset of the caret.
    pub fn offset(&self) -> usize {
        self.span.offset()
    }

    /// Returns the marked range, in bytes of the source.
    pub fn span(&self) -> Range<usize> {
        self.span.offset()..self.span.offset() + self.span.len()
    }

    /// Returns the name of the source.
    pub fn source_name(&self) -> &str {
        &self.of
    }
}

/// All errors in one or more sources.
#[derive(Clone, Debug, thiserror::Error, Diagnostic)]
#[error("{} error{} in {}", self.0.len(), if self.0.len() == 1 { "" } else { "s" }, self.names())]
pub struct Errors(#[related] pub Vec<LangError>);

impl Errors {
    fn names(&self) -> String {
        let mut names = Vec::new();
        for name in self.0.iter().map(|e| e.source_name()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }
}

impl From<LangError> for Errors {
    fn from(error: LangError) -> Errors {
        Errors(vec![error])
    }
}

/// Returns whether a terminal interprets a character instead of showing it. Such characters are control characters
/// and those that change the text direction (Unicode TR 36), which make a text look different from its content.
pub fn is_unseen(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\r' | '\t') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns a text with such characters replaced by visible ones of equal length, so that positions stay valid.
fn shown(text: &Arc<str>) -> Arc<str> {
    if !text.contains(is_unseen) {
        return text.clone();
    }
    let sign = |c: char| match c.len_utf8() {
        _ if !is_unseen(c) => c,
        1 => '?',
        2 => '·',
        _ => '•',
    };
    text.chars().map(sign).collect::<String>().into()
}
