//! The S-expression reader.

mod names;
mod source;

use std::{fmt, ops::Range};

pub use self::{
    names::{did_you_mean, nearest, suggestion},
    source::{Errors, LangError, Source, is_unseen},
};

/// A node of the syntax tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Sexp {
    /// The kind of expression.
    pub kind: SexpKind,
    /// The position, in bytes of the source.
    pub span: Range<usize>,
}

/// The forms of the syntax.
#[derive(Clone, Debug, PartialEq)]
pub enum SexpKind {
    /// A word: a name, a number, `:keyword`, `?variable`, `=>`.
    Atom(String),
    /// A string in double quotes, unescaped.
    Text(String),
    /// `(…)`.
    List(Vec<Sexp>),
    /// `[…]` with the word directly before it, as in `F[B.. M]`. The word may be empty.
    Bracket(String, Vec<Sexp>),
    /// `{…}`: the elements of a constant.
    Brace(Vec<Sexp>),
}

/// Prints text from which [`read`] returns the same expression.
impl fmt::Display for Sexp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, open: char, items: &[Sexp], close: char| {
            let items: Vec<String> = items.iter().map(Sexp::to_string).collect();
            write!(f, "{open}{}{close}", items.join(" "))
        };
        match &self.kind {
            SexpKind::Atom(word) => f.write_str(word),
            SexpKind::Text(text) => f.write_str(&quote(text)),
            SexpKind::List(items) => list(f, '(', items, ')'),
            SexpKind::Bracket(head, items) => {
                f.write_str(head)?;
                list(f, '[', items, ']')
            }
            SexpKind::Brace(items) => list(f, '{', items, '}'),
        }
    }
}

impl Sexp {
    /// Returns the word of an atom.
    pub fn atom(&self) -> Option<&str> {
        match &self.kind {
            SexpKind::Atom(a) => Some(a),
            _ => None,
        }
    }

    /// Returns the items of a `(…)`.
    pub fn list(&self) -> Option<&[Sexp]> {
        match &self.kind {
            SexpKind::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the items after the head of a `(head …)`.
    pub fn call(&self) -> Option<(&str, &[Sexp])> {
        let (head, rest) = self.list()?.split_first()?;
        Some((head.atom()?, rest))
    }
}

/// The byte order mark that some editors write at the start of a file. The reader skips it.
pub const BYTE_ORDER_MARK: char = '\u{feff}';

/// The maximal nesting of brackets. Deeper input is an error, because the recursive reader would exhaust the stack.
const MAX_DEPTH: usize = 128;

/// Reads all top-level expressions of a source. `;` starts a comment that runs to the end of the line.
///
/// # Errors
/// If brackets are unbalanced, a string is not closed, or brackets are nested too deeply. After an error in a
/// top-level form, the reader continues at the next line that starts with `(`, until it has a maximal number of
/// errors.
pub fn read(source: &Source) -> Result<Vec<Sexp>, Errors> {
    read_all(source).0
}

/// Returns the positions of the brackets that are open at the end of a text, the outermost one first. Editors complete
/// a word by the forms around it, which are not closed yet.
pub fn open_brackets(source: &Source) -> Vec<usize> {
    read_all(source).1
}

/// Reads all top-level expressions. Returns also the brackets that are open at the end.
fn read_all(source: &Source) -> (Result<Vec<Sexp>, Errors>, Vec<usize>) {
    if let Some((at, c)) = source.text.char_indices().find(|(_, c)| is_unseen(*c)) {
        let message = format!("this is the control character U+{:04X}", u32::from(c));
        return (Err(source.error(at..at + c.len_utf8(), message, "remove it").into()), Vec::new());
    }
    let (mut forms, mut errors): (Vec<Sexp>, _) = (Vec::new(), Vec::new());
    let start = source.text.len() - source.text.trim_start_matches(BYTE_ORDER_MARK).len();
    let mut reader = SexpReader { source, at: start, line: start, outdented: None, open: Vec::new() };
    loop {
        reader.skip_blank();
        if reader.rest().is_empty() {
            break;
        }
        let start = reader.at;
        reader.outdented = None;
        reader.open.clear();
        match reader.expression(0) {
            Ok(form) => forms.push(form),
            Err(error) => {
                errors.push(reader.closed_too_early(start, &forms).unwrap_or(*error));
                match source.text[start..].find("\n(").filter(|_| errors.len() < MOST_ERRORS) {
                    Some(next) => (reader.at, reader.line) = (start + next + 1, start + next + 1),
                    None => break,
                }
            }
        }
    }
    (if errors.is_empty() { Ok(forms) } else { Err(Errors(errors)) }, reader.open)
}

/// The maximal number of errors in a source. Each of them may require reading to the end of the source.
const MOST_ERRORS: usize = 20;

struct SexpReader<'a> {
    source: &'a Source,
    at: usize,
    /// The start of the current line, in bytes of the source.
    line: usize,
    /// The first bracket of this top-level form that is still open when a line begins at its column or further left.
    /// If a closing bracket is missing, it is most likely the one for this bracket.
    outdented: Option<usize>,
    /// The open brackets of this top-level form.
    open: Vec<usize>,
}

impl<'a> SexpReader<'a> {
    fn rest(&self) -> &'a str {
        &self.source.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Skips spaces and comments. Returns whether a new line begins.
    fn skip_blank(&mut self) -> bool {
        let before = self.line;
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            let blank = &rest[..rest.len() - trimmed.len()];
            if let Some(end) = blank.rfind('\n') {
                self.line = self.at + end + 1;
            }
            self.at += blank.len();
            if !trimmed.starts_with(';') {
                return self.line != before;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn fail<T>(&self, span: Range<usize>, message: String, help: &str) -> Result<T, Box<LangError>> {
        Err(Box::new(self.source.error(span, message, help)))
    }

    fn expression(&mut self, depth: usize) -> Result<Sexp, Box<LangError>> {
        let start = self.at;
        if depth > MAX_DEPTH {
            return self.fail(
                start..start + 1,
                format!("cannot read this because brackets are nested more than {MAX_DEPTH} deep"),
                "name subexpressions with `let`",
            );
        }
        let kind = match self.peek() {
            Some('(') => SexpKind::List(self.items(')', depth)?),
            Some('[') => SexpKind::Bracket(String::new(), self.items(']', depth)?),
            Some('{') => SexpKind::Brace(self.items('}', depth)?),
            Some('"') => SexpKind::Text(self.text()?),
            Some(c @ (')' | ']' | '}')) => {
                return self.fail(
                    start..start + 1,
                    format!("`{c}` closes no bracket"),
                    "remove it, or open a bracket before it",
                );
            }
            _ => {
                let word = self.word();
                if self.peek() == Some('[') {
                    SexpKind::Bracket(word, self.items(']', depth)?)
                } else {
                    SexpKind::Atom(word)
                }
            }
        };
        Ok(Sexp { kind, span: start..self.at })
    }

    /// Returns an error if the form before a stray closing bracket was closed too early. Its indentation shows that
    /// it should contain the expressions after it.
    fn closed_too_early(&self, stray: usize, forms: &[Sexp]) -> Option<LangError> {
        if !self.source.text[stray..].starts_with([')', ']', '}']) {
            return None;
        }
        let inner = forms.iter().rev().take_while(|form| self.source.position(form.span.start).1 > 1).count();
        let form = forms.get(forms.len().checked_sub(inner + 1)?).filter(|_| inner > 0)?;
        let (line, _) = self.source.position(form.span.start);
        let message = format!("this bracket closes the form of line {line} too early");
        Some(self.source.error(form.span.end - 1..form.span.end, message, "remove this bracket or one before it"))
    }

    fn items(&mut self, close: char, depth: usize) -> Result<Vec<Sexp>, Box<LangError>> {
        let (open, column) = (self.at, self.at - self.line);
        self.at += 1;
        self.open.push(open);
        let mut items = Vec::new();
        let unclosed = |reader: &Self| {
            let at = reader.outdented.unwrap_or(open);
            let close = match reader.source.text[at..].chars().next() {
                Some('[') => ']',
                Some('{') => '}',
                _ => ')',
            };
            reader.fail(at..at + 1, "this bracket is never closed".into(), &format!("add `{close}`"))
        };
        loop {
            let begins = self.skip_blank();
            if begins && self.outdented.is_none() && self.at - self.line <= column && self.peek() != Some(close) {
                self.outdented = Some(open);
            }
            match self.peek() {
                None => return unclosed(self),
                Some(c) if c == close => {
                    self.at += 1;
                    self.open.pop();
                    return Ok(items);
                }
                Some(')' | ']' | '}') if self.outdented.is_some() => return unclosed(self),
                Some(c @ (')' | ']' | '}')) => {
                    let message = format!("`{c}` closes a bracket that needs `{close}`");
                    return self.fail(self.at..self.at + 1, message, "close the last open bracket first");
                }
                Some(_) => items.push(self.expression(depth + 1)?),
            }
        }
    }

    fn text(&mut self) -> Result<String, Box<LangError>> {
        let start = self.at;
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = start + i + 1;
                    if let Some(end) = self.source.text[start..self.at].rfind('\n') {
                        self.line = start + end + 1;
                    }
                    return Ok(text);
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, c)) => text.push(c),
                    None => break,
                },
                c => text.push(c),
            }
        }
        self.fail(start..start + 1, "this string is never closed".into(), "add `\"`")
    }

    fn word(&mut self) -> String {
        let rest = self.rest();
        let end = rest.find(|c: char| c.is_whitespace() || "()[]{}\";".contains(c)).unwrap_or(rest.len());
        self.at += end;
        rest[..end].to_string()
    }
}

/// Quotes a text so that [`read`] returns it unchanged.
pub fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_form() {
        let source = Source::new("t", "(a :b -1 ; note\n F[B.. (* 2 H)] [1 2] \"x\\\"y\" {1.5})");
        let forms = read(&source).unwrap();
        let (head, rest) = forms[0].call().unwrap();
        assert_eq!((head, rest.len()), ("a", 6));
        assert!(matches!(&rest[2].kind, SexpKind::Bracket(f, items) if f == "F" && items.len() == 2));
        assert!(matches!(&rest[4].kind, SexpKind::Text(t) if t == "x\"y"));
    }

    #[test]
    fn reports_each_broken_form() {
        let source = Source::new("t", "(a (b)\n(c]\n(d)\n(e \"x");
        let errors = read(&source).unwrap_err();
        let places: Vec<_> = errors.0.iter().map(|e| source.position(e.offset())).collect();
        assert_eq!(places, [(1, 1), (2, 3), (4, 4)], "{errors:?}");
    }

    #[test]
    fn what_is_wrong_may_be_any_character() {
        for text in ["é", "�h (a)", "(a) 日", "é)", "(a é", "(a \"日", "(a]é", "(é"] {
            let source = Source::new("t", text);
            if let Err(errors) = read(&source) {
                let _ = (errors.to_string(), source.position(errors.0[0].offset()));
                assert!(!format!("{:?}", miette::Report::new(errors)).is_empty());
            }
        }
    }

    #[test]
    fn control_characters_are_refused_and_never_shown() {
        let errors = read(&Source::new("t", "(graph \"\u{1b}[2Jevil\u{7}\")")).unwrap_err();
        let shown = format!("{:?}", miette::Report::new(errors));
        assert!(shown.contains("U+001B") && shown.contains("?[2Jevil?") && !shown.contains(is_unseen), "{shown}");
        let errors = read(&Source::new("t", "(graph \"a\u{202e}b\")")).unwrap_err();
        let shown = format!("{:?}", miette::Report::new(errors));
        assert!(shown.contains("U+202E") && !shown.contains(is_unseen), "{shown}");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_file() {
        let forms = read(&Source::new("t", "\u{feff}(a b)")).unwrap();
        assert_eq!(forms.len(), 1);
        assert_eq!(forms[0].call().unwrap().0, "a");
    }

    #[test]
    fn unbalanced_brackets_are_found_by_indentation() {
        let place = |text: &str| {
            let source = Source::new("t", text);
            let errors = read(&source).unwrap_err();
            assert_eq!(errors.0.len(), 1, "{errors:?}");
            source.position(errors.0[0].offset())
        };
        // The second line lacks a closing bracket, and further forms follow.
        assert_eq!(place("(rule a\n  (forall (F any)\n  (=> (x)\n      y))\n\n(rule b)\n(rule c)\n"), (2, 3));
        assert_eq!(place("(rule a\n  (=> (f ?x[1 2\n      y))\n\n(rule b)\n"), (2, 12));
        // A line has one closing bracket too many: the form ends before its last two lines.
        assert_eq!(place("(rule a\n  (forall (F any)))\n  (=> x\n      y)\n  (eq exact))\n\n(rule b)\n"), (2, 19));
        // Without line breaks, only the unbalanced bracket itself is known.
        assert_eq!(place("(a (b)"), (1, 1));
        assert_eq!(place("a)"), (1, 2));
    }

    #[test]
    fn the_open_brackets_are_those_of_the_last_form() {
        assert_eq!(open_brackets(&Source::new("t", "(a (b)\n(c\n(d [e \"(\" (f) ; (\n")), [10, 13]);
        assert_eq!(open_brackets(&Source::new("t", "(a (b))")), [0; 0]);
    }

    #[test]
    fn deep_nesting_is_an_error() {
        assert!(read(&Source::new("t", "(".repeat(100_000))).is_err());
    }
}
