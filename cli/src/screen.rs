//! Terminal output: width and colours of the terminal, and tables and paragraphs that fit its width.

use std::{
    fmt,
    io::{IsTerminal, stdout},
};

use anstream::{AutoStream, ColorChoice};
use unicode_width::UnicodeWidthChar;

/// The number of columns that is assumed if the terminal does not report it.
const UNKNOWN: usize = 80;

/// The least width of a column of words when a table shrinks, in characters.
const NARROW: usize = 12;

/// The number of spaces between columns.
const GAP: usize = 2;

/// Returns the number of columns of the terminal, or `None` if the output is not a terminal.
pub fn width() -> Option<usize> {
    let out = stdout();
    out.is_terminal().then(|| terminal_size::terminal_size_of(&out).map_or(UNKNOWN, |(width, _)| width.0.into()))
}

/// Returns whether stdout shows colours: it is a terminal other than `dumb`, and no environment variable (`NO_COLOR`,
/// `CLICOLOR`) forbids colours.
pub fn colour() -> bool {
    AutoStream::choice(&stdout()) != ColorChoice::Never
}

/// Applies an ANSI style (`1` is bold, `2` faint) to each line of a text, if colours are shown.
pub fn styled(style: &str, text: &str) -> String {
    if !colour() {
        return text.into();
    }
    text.split('\n').map(|line| format!("\x1b[{style}m{line}\x1b[0m")).collect::<Vec<_>>().join("\n")
}

/// A part of a line that must not be broken.
struct Word<'a> {
    text: &'a str,
    width: usize,
    /// Whether a space follows the word. A line break replaces that space.
    space: bool,
}

/// Returns the length of the escape sequence at the start of a text, if there is one.
fn escape(text: &str) -> Option<usize> {
    text.starts_with("\x1b[").then(|| text.find('m').map_or(text.len(), |end| end + 1))
}

/// Returns the number of columns that a text takes on a terminal. Escape sequences take none.
pub fn columns(text: &str) -> usize {
    let (mut rest, mut columns) = (text, 0);
    while let Some(c) = rest.chars().next() {
        let taken = escape(rest);
        columns += if taken.is_some() { 0 } else { c.width().unwrap_or(0) };
        rest = &rest[taken.unwrap_or(c.len_utf8())..];
    }
    columns
}

/// Splits a line into words. A name of a module or a rule may be broken after a dot or a slash, and a formula after the
/// parenthesis of a call.
fn words(line: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut start = 0;
    let joint = |at: usize| {
        let (before, after) = (line[..at].chars().next_back(), line[at + 1..].chars().next());
        before.is_some_and(char::is_alphanumeric) && after.is_some_and(char::is_alphabetic)
    };
    for (at, c) in line.char_indices() {
        let space = c == ' ';
        if !(space || matches!(c, '.' | '/' | '(') && joint(at)) {
            continue;
        }
        let text = &line[start..if space { at } else { at + 1 }];
        words.push(Word { text, width: columns(text), space });
        start = at + 1;
    }
    words.push(Word { text: &line[start..], width: columns(&line[start..]), space: false });
    words
}

/// Breaks the lines of a text between words, so that they take at most `width` columns. Longer words stay whole.
/// Continuation lines are indented. A style that is active at a line break continues on the next line.
pub fn fit(text: &str, width: Option<usize>, indent: usize) -> String {
    let Some(width) = width else { return text.into() };
    let mut lines = Vec::new();
    for line in text.split('\n') {
        if columns(line) <= width {
            lines.push(line.to_string());
            continue;
        }
        let (mut made, mut used, mut style, mut pending) = (String::new(), 0, None::<&str>, 0);
        let mut begun = false;
        for word in words(line) {
            if begun && used + pending + word.width > width && used > indent {
                if style.is_some() {
                    made.push_str("\x1b[0m");
                }
                lines.push(std::mem::take(&mut made));
                made.push_str(&" ".repeat(indent));
                made.push_str(style.unwrap_or_default());
                (used, pending) = (indent, 0);
            }
            made.push_str(&" ".repeat(pending));
            made.push_str(word.text);
            used += pending + word.width;
            pending = usize::from(word.space);
            begun |= word.width > 0;
            let mut rest = word.text;
            while let Some(at) = rest.find("\x1b[") {
                let end = at + escape(&rest[at..]).unwrap_or(2);
                style = Some(&rest[at..end]).filter(|code| *code != "\x1b[0m");
                rest = &rest[end..];
            }
        }
        lines.push(made);
    }
    lines.join("\n")
}

/// The contents of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// Numbers, right-aligned on one line.
    Numbers,
    /// Words, left-aligned on one or more lines.
    Words,
}

struct Column {
    title: String,
    holds: Holds,
    /// Whether the column may be left out if the table is too wide.
    spare: bool,
}

/// A table with titles. If the terminal is too narrow, columns of words are broken between words. If that is not
/// enough, optional columns are left out, starting at the right.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// Creates an empty table. A title that starts with `>` is for a column of right-aligned numbers. A title that starts
/// with `?` is for an optional column.
pub fn table(titles: &[&str]) -> Table {
    let column = |title: &&str| {
        let (spare, title) = title.strip_prefix('?').map_or((false, *title), |title| (true, title));
        let (holds, title) = match title.strip_prefix('>') {
            Some(title) => (Holds::Numbers, title),
            None => (Holds::Words, title),
        };
        Column { title: title.into(), holds, spare }
    };
    Table { columns: titles.iter().map(column).collect(), rows: Vec::new() }
}

impl Table {
    /// Adds a row with one cell for each column.
    pub fn add_row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Formats the table for a terminal of this width, with or without colour.
    fn render(&self, width: Option<usize>, colour: bool) -> String {
        let cell = |row: &[String], at: usize| row.get(at).cloned().unwrap_or_default();
        let title = |at: usize| self.columns[at].title.clone();
        let longest = |text: &str| text.split('\n').map(columns).max().unwrap_or(0);
        let cells = |at: usize| self.rows.iter().map(move |row| cell(row, at)).chain([title(at)]);
        let natural: Vec<usize> =
            (0..self.columns.len()).map(|at| cells(at).map(|text| longest(&text)).max().unwrap_or(0)).collect();
        let least = |at: usize| match self.columns[at].holds {
            Holds::Numbers => natural[at],
            Holds::Words => {
                let word = |text: String| text.split('\n').flat_map(words).map(|w| w.width).max().unwrap_or(0);
                cells(at).map(word).max().unwrap_or(0).max(NARROW.min(natural[at]))
            }
        };
        let least: Vec<usize> = (0..self.columns.len()).map(least).collect();
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let all = |shown: &[usize], of: &[usize]| {
            shown.iter().map(|&at| of[at]).sum::<usize>() + GAP * shown.len().saturating_sub(1) + 2
        };
        if let Some(width) = width {
            while all(&shown, &least) > width
                && let Some(spare) = shown.iter().rposition(|&at| self.columns[at].spare)
            {
                shown.remove(spare);
            }
        }
        let widths = share(&shown, &natural, &least, width, all(&shown, &natural));
        let total = all(&(0..shown.len()).collect::<Vec<_>>(), &widths);
        let rule = |line: &str| line.repeat(total);
        let mut lines = vec![rule("─")];
        let mut row = |texts: Vec<String>, style: Option<&str>| {
            let fitted: Vec<Vec<String>> = texts
                .iter()
                .zip(&widths)
                .map(|(text, &width)| fit(text, Some(width), 0).split('\n').map(String::from).collect())
                .collect();
            for line in 0..fitted.iter().map(Vec::len).max().unwrap_or(0) {
                let mut made = String::from(" ");
                for (n, (cell, &width)) in fitted.iter().zip(&widths).enumerate() {
                    let text = cell.get(line).map_or("", String::as_str);
                    let blank = " ".repeat(width.saturating_sub(columns(text)));
                    let text = match style.filter(|_| colour && !text.is_empty()) {
                        Some(style) => format!("\x1b[{style}m{text}\x1b[0m"),
                        None => text.into(),
                    };
                    made += if n > 0 { "  " } else { "" };
                    made += &match self.columns[shown[n]].holds {
                        Holds::Numbers => blank + &text,
                        Holds::Words => text + &blank,
                    };
                }
                lines.push(made.trim_end().into());
            }
        };
        row(shown.iter().map(|&at| title(at)).collect(), Some("1"));
        let head = row_count(&shown.iter().map(|&at| title(at)).collect::<Vec<_>>(), &widths);
        for cells in &self.rows {
            row(shown.iter().map(|&at| cell(cells, at)).collect(), None);
        }
        lines.insert(1 + head, rule("═"));
        lines.push(rule("─"));
        let left_out: Vec<String> = (0..self.columns.len()).filter(|at| !shown.contains(at)).map(title).collect();
        if let (Some(columns), [.., last]) = (width, &left_out[..]) {
            let first = left_out[..left_out.len() - 1].join(", ");
            let (and, are) = if first.is_empty() { ("", "is") } else { (" and ", "are") };
            let note =
                format!("at {columns} columns, {first}{and}{last} {are} left out; a wider terminal or a pipe has all");
            let note = fit(&note, width, 0);
            lines.push(if colour { format!("\x1b[2m{note}\x1b[0m") } else { note });
        }
        lines.join("\n")
    }
}

/// Returns the number of lines that a row takes.
fn row_count(texts: &[String], widths: &[usize]) -> usize {
    texts.iter().zip(widths).map(|(text, &width)| fit(text, Some(width), 0).split('\n').count()).max().unwrap_or(0)
}

/// Returns the width of each shown column. The widest columns shrink until all fit, but no column becomes narrower than
/// its longest word.
fn share(shown: &[usize], natural: &[usize], least: &[usize], width: Option<usize>, mut total: usize) -> Vec<usize> {
    let mut widths: Vec<usize> = shown.iter().map(|&at| natural[at]).collect();
    let least: Vec<usize> = shown.iter().map(|&at| least[at]).collect();
    while width.is_some_and(|width| total > width) {
        let widest = (0..widths.len()).filter(|&n| widths[n] > least[n]).max_by_key(|&n| widths[n]);
        let Some(widest) = widest else { break };
        widths[widest] -= 1;
        total -= 1;
    }
    widths
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(width(), colour()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_codes_take_no_columns() {
        assert_eq!(columns("\x1b[2mthrough µ\x1b[0m"), 9);
        assert_eq!(columns(""), 0);
        assert_eq!(columns("表"), 2);
    }

    #[test]
    fn lines_end_between_words_and_styles_go_on() {
        assert_eq!(fit("one two three", Some(8), 2), "one two\n  three");
        assert_eq!(fit("one two three", None, 2), "one two three");
        assert_eq!(fit("\x1b[2mone two\x1b[0m", Some(4), 0), "\x1b[2mone\x1b[0m\n\x1b[2mtwo\x1b[0m");
        assert_eq!(fit("encoder.layer.0.attention", Some(12), 0), "encoder.\nlayer.0.\nattention");
        assert_eq!(fit("reshape(softmax(x))", Some(12), 0), "reshape(\nsoftmax(x))");
        assert_eq!(fit("unbreakable", Some(4), 0), "unbreakable");
        assert_eq!(fit("1.25 MiB", Some(8), 0), "1.25 MiB");
    }

    #[test]
    fn numbers_stay_whole_and_what_can_be_spared_goes_first() {
        let mut table = table(&[">#", "where", "?>flop"]);
        table.add_row(["1", "encoder.layer.0.attention", "12.5 M"]);
        let lines = |width| table.render(width, false).lines().map(String::from).collect::<Vec<_>>();
        let (line, double) = ("─".repeat(38), "═".repeat(38));
        let head = format!(" #  {:25}  {:>6}", "where", "flop");
        let body = " 1  encoder.layer.0.attention  12.5 M".to_string();
        assert_eq!(lines(None), [line.clone(), head, double, body, line]);
        assert!(lines(Some(30)).iter().all(|line| columns(line) <= 30));
        assert!(lines(Some(30)).concat().contains("12.5 M"));
        assert!(!lines(Some(20)).concat().contains("12.5 M"));
        assert!(lines(Some(20)).join(" ").contains("at 20 columns, flop is left out;"), "{:?}", lines(Some(20)));
        assert!(lines(Some(20)).concat().contains("attention"));
    }
}
