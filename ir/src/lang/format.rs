//! The layout of rule files and graph files: one indentation, one spacing, at most 120 columns.
//!
//! The author's line breaks inside forms stay, as in gofmt. The parts of a rule, an op and a graph have a line each. A
//! list that does not fit its line is broken before each argument. Comments and blank lines stay where they are.

use super::{
    Errors, Sexp, SexpKind, Source,
    sexp::{BYTE_ORDER_MARK, read},
};

/// The longest line that is not broken, in characters.
const WIDTH: usize = 120;

/// The indentation of parts, and of arguments below the head of a list.
const INDENT: usize = 2;

/// Forms with a name and a term. The term begins on the line of the name, unless the source breaks the line.
const NAMED: [&str; 5] = ["let", "output", "const", "is", "result"];

/// Parts of a definition whose items fill lines.
const FILLED: [&str; 2] = ["forall", "where"];

/// A constant with more elements stays on its line, and its width does not count.
const MANY: usize = 8;

/// Forms whose parts have a line each. The head and the name are on the first line.
const DEFINITIONS: [&str; 3] = ["rule", "op", "graph"];

/// Returns the text of a rule file or a graph file in the common layout. It reads as the same expressions with the same
/// comments, and the layout of the result is the result.
///
/// # Errors
/// If the text does not read.
pub fn format(source: &Source) -> Result<String, Errors> {
    let forms = read(source)?;
    let start = source.text.len() - source.text.trim_start_matches(BYTE_ORDER_MARK).len();
    let mut layout = Layout { text: &source.text, out: source.text[..start].to_string(), column: 0, depth: 0 };
    let mut end = start;
    for form in &forms {
        let gap = Gap::new(&source.text[end..form.span.start]);
        layout.top_level_gap(&gap, end > start);
        match form.call().filter(|(head, _)| DEFINITIONS.contains(head)).and_then(|_| form.list()) {
            Some(items) => layout.definition(form, items),
            None => layout.item(form, 0),
        }
        end = form.span.end;
    }
    // A comment at the end of the text may lack its line break.
    let last = format!("{}\n", &source.text[end..]);
    layout.top_level_gap(&Gap::new(&last), end > start);
    let length = layout.out.trim_end().len();
    layout.out.truncate(length);
    if length > start {
        layout.out.push('\n');
    }
    Ok(layout.out)
}

/// The text between two items: space and comments.
struct Gap<'a> {
    /// The comment after the previous item on the same line.
    trailing: Option<&'a str>,
    /// The lines between the previous item's line and the next item's, without indentation: comments and blank
    /// lines.
    lines: Vec<&'a str>,
    /// Whether the next item begins a line.
    broken: bool,
}

impl<'a> Gap<'a> {
    fn new(text: &'a str) -> Gap<'a> {
        let Some((first, rest)) = text.split_once('\n') else {
            return Gap { trailing: None, lines: Vec::new(), broken: false };
        };
        // The last line is the indentation of the next item.
        let lines = rest.rsplit_once('\n').map_or(Vec::new(), |(lines, _)| lines.split('\n').map(str::trim).collect());
        Gap { trailing: Some(first.trim()).filter(|comment| !comment.is_empty()), lines, broken: true }
    }

    fn has_comment(&self) -> bool {
        self.trailing.is_some() || self.lines.iter().any(|line| !line.is_empty())
    }

    /// Returns the lines, with consecutive blank lines reduced to one. If `at_start` is set, drops blank lines at the
    /// start.
    fn calm_lines(&self, at_start: bool) -> impl Iterator<Item = &'a str> {
        let mut blank = at_start;
        self.lines.iter().copied().filter(move |line| {
            let keep = !(line.is_empty() && blank);
            blank = line.is_empty();
            keep
        })
    }
}

struct Layout<'a> {
    text: &'a str,
    out: String,
    /// The number of characters on the last line of `out`.
    column: usize,
    /// The number of lists inside of a definition that contain the item being written.
    depth: usize,
}

impl<'a> Layout<'a> {
    fn write(&mut self, text: &str) {
        self.out.push_str(text);
        match text.rsplit_once('\n') {
            Some((_, last)) => self.column = last.chars().count(),
            None => self.column += text.chars().count(),
        }
    }

    fn new_line(&mut self, column: usize) {
        // A line with nothing but indentation is a blank line.
        self.out.truncate(self.out.trim_end_matches(' ').len());
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', column));
        self.column = column;
    }

    /// Writes the comments and blank lines of a gap, and begins the line of the next item.
    fn break_line(&mut self, gap: &Gap<'_>, column: usize, at_start: bool) {
        if let Some(comment) = gap.trailing {
            self.write(" ");
            self.write(comment);
        }
        self.new_line(column);
        for line in gap.calm_lines(at_start) {
            self.write(line);
            self.new_line(column);
        }
    }

    /// Writes the comments and blank lines between top-level forms.
    fn top_level_gap(&mut self, gap: &Gap<'_>, after_form: bool) {
        if after_form {
            self.break_line(gap, 0, false);
            return;
        }
        // The first line has no form before it, so that its comment has a line of its own.
        for line in gap.trailing.into_iter().chain(gap.calm_lines(gap.trailing.is_none())) {
            self.write(line);
            self.new_line(0);
        }
    }

    /// Returns the width of an expression on one line, if the author wrote it on one line without comments.
    fn flat_width(&self, sexp: &Sexp) -> Option<usize> {
        let text = &self.text[sexp.span.clone()];
        let (open, items, close) = match &sexp.kind {
            SexpKind::Atom(_) | SexpKind::Text(_) => {
                return (!text.contains('\n')).then(|| text.chars().count());
            }
            SexpKind::List(items) => (1, items, 1),
            SexpKind::Bracket(head, items) => (head.chars().count() + 1, items, 1),
            SexpKind::Brace(items) => (1 + padding(items), items, 1 + padding(items)),
        };
        let long = matches!(sexp.kind, SexpKind::Brace(_)) && items.len() > MANY;
        if text.contains('\n') && self.gaps(sexp, items).iter().any(|gap| gap.broken) {
            return None;
        }
        let widths = items.iter().map(|item| self.flat_width(item));
        let spaces = items.len().saturating_sub(1);
        widths.sum::<Option<usize>>().map(|width| if long { 0 } else { open + width + spaces + close })
    }

    /// Returns the gap before each item, and that before the closing bracket.
    fn gaps(&self, sexp: &Sexp, items: &[Sexp]) -> Vec<Gap<'a>> {
        let text = self.text;
        let head = if let SexpKind::Bracket(head, _) = &sexp.kind { head.len() } else { 0 };
        let ends = std::iter::once(sexp.span.start + head + 1).chain(items.iter().map(|item| item.span.end));
        let starts = items.iter().map(|item| item.span.start).chain([sexp.span.end - 1]);
        ends.zip(starts).map(|(end, start)| Gap::new(&text[end..start])).collect()
    }

    /// Writes an expression, with `after` closing brackets after it.
    fn item(&mut self, sexp: &Sexp, after: usize) {
        let fits = self.flat_width(sexp).is_some_and(|width| self.column + width + after <= WIDTH);
        let text = self.text;
        match &sexp.kind {
            SexpKind::Atom(_) | SexpKind::Text(_) => self.write(&text[sexp.span.clone()]),
            SexpKind::List(items) => {
                self.depth += 1;
                self.write("(");
                self.items(sexp, items, fits, after + 1);
                self.write(")");
                self.depth -= 1;
            }
            SexpKind::Bracket(head, items) => {
                self.write(head);
                self.write("[");
                self.items(sexp, items, fits, after + 1);
                self.write("]");
            }
            SexpKind::Brace(items) => {
                let space = &" "[..padding(items)];
                self.write("{");
                self.write(space);
                self.items(sexp, items, fits, after + 1 + padding(items));
                self.write(space);
                self.write("}");
            }
        }
    }

    /// Writes a rule, an op or a graph.
    fn definition(&mut self, sexp: &Sexp, items: &[Sexp]) {
        let column = self.column + INDENT;
        let gaps = self.gaps(sexp, items);
        self.write("(");
        for (n, (item, gap)) in items.iter().zip(&gaps).enumerate() {
            let is_forall = item.call().is_some_and(|(head, _)| head == "forall");
            let same_line = n < 2 || n == 2 && is_forall && items[0].atom() == Some("op");
            // A flag may follow another part, as in `(eq reassoc) (once)`.
            let is_flag = n > 2 && !gap.broken && item.list().is_some_and(|items| items.len() == 1);
            match (same_line || is_flag) && !gap.has_comment() {
                true if n == 0 => {}
                true => self.write(" "),
                false => self.break_line(gap, column, false),
            }
            self.item(item, if n + 1 == items.len() { 1 } else { 0 });
        }
        self.close(gaps.last(), column);
        self.write(")");
    }

    /// Writes the items of a list.
    fn items(&mut self, sexp: &Sexp, items: &[Sexp], fits: bool, after: usize) {
        let open = self.column;
        let gaps = self.gaps(sexp, items);
        let head = sexp.call().map(|(head, _)| head);
        let first_below = head.is_some() && items.len() > 1 && gaps[1].broken;
        // Arguments are aligned with the first one, or indented below the head if the author broke the line after it.
        let mut column = if first_below { open - 1 + INDENT } else { open };
        let breaks = if fits { Breaks::Kept } else { self.breaks(sexp, items, &gaps, after) };
        for (n, (item, gap)) in items.iter().zip(&gaps).enumerate() {
            let is_value = n > 0 && is_keyword(&items[n - 1]);
            let value = items.get(n + 1).filter(|_| is_keyword(item) && !gaps[n + 1].has_comment());
            let is_last = n + 1 + usize::from(value.is_some()) == items.len();
            let overflows = || self.overflows(item, value, if is_last { after } else { 0 });
            let separate = match (n, breaks) {
                (0, _) => gap.has_comment(),
                _ if is_value => gap.has_comment(),
                (1, _) if head.is_some() => gap.broken,
                (_, Breaks::Kept) => gap.broken,
                (_, Breaks::More) => gap.broken || overflows(),
                // Attributes share lines.
                (_, Breaks::Every) if n > 2 && is_keyword(item) && is_keyword(&items[n - 2]) => {
                    gap.has_comment() || overflows()
                }
                (_, Breaks::Every) => true,
                // An item of several lines keeps its place, so that one that was broken here stays on a line of its own.
                (_, Breaks::Filled) if self.flat_width(item).is_none() => gap.broken,
                (_, Breaks::Filled) => gap.has_comment() || overflows(),
            };
            match separate {
                true => self.break_line(gap, column, n == 0),
                false if n > 0 => self.write(" "),
                false => {}
            }
            if n == 1 && head.is_some() && !first_below {
                column = self.column;
            }
            self.item(item, if n + 1 == items.len() { after } else { 0 });
        }
        self.close(gaps.last(), column);
    }

    /// Returns the line breaks of a list that does not fit one line.
    fn breaks(&self, sexp: &Sexp, items: &[Sexp], gaps: &[Gap<'_>], after: usize) -> Breaks {
        let head = sexp.call().map(|(head, _)| head);
        if head.is_some_and(|head| NAMED.contains(&head)) {
            return Breaks::Kept;
        }
        let by_author = self.flat_width(sexp).is_none();
        let filled = self.depth == 1 && head.is_some_and(|head| FILLED.contains(&head));
        if filled || matches!(sexp.kind, SexpKind::Bracket(..)) {
            return if by_author && self.lines_fit(items, gaps, after) { Breaks::Kept } else { Breaks::Filled };
        }
        match &sexp.kind {
            SexpKind::Brace(_) => Breaks::Kept,
            _ if by_author => Breaks::More,
            _ => Breaks::Every,
        }
    }

    /// Returns whether a list that starts at the current column fits the line width with the author's line breaks.
    fn lines_fit(&self, items: &[Sexp], gaps: &[Gap<'_>], after: usize) -> bool {
        let head = items.first().and_then(|head| self.flat_width(head)).unwrap_or_default();
        let (start, mut column) = (self.column + head + 1, self.column + head);
        for (n, (item, gap)) in items.iter().zip(gaps).enumerate().skip(1) {
            let Some(width) = self.flat_width(item) else { return true };
            column = if gap.broken { start + width } else { column + 1 + width };
            if column + if n + 1 == items.len() { after } else { 0 } > WIDTH {
                return false;
            }
        }
        true
    }

    /// Returns whether an item, with its value if it is a keyword, would end beyond column `WIDTH` on the current
    /// line. Returns false for an item that the author broke into lines.
    fn overflows(&self, item: &Sexp, value: Option<&Sexp>, after: usize) -> bool {
        let width = |sexp: Option<&Sexp>| sexp.map_or(Some(0), |sexp| self.flat_width(sexp).map(|width| width + 1));
        let both = width(Some(item)).zip(width(value));
        both.is_some_and(|(item, value)| self.column + item + value + after > WIDTH)
    }

    /// Writes the comments before a closing bracket. If there are any, begins a new line for the bracket.
    fn close(&mut self, gap: Option<&Gap<'_>>, column: usize) {
        if let Some(gap) = gap.filter(|gap| gap.has_comment()) {
            self.break_line(gap, column, false);
        }
    }
}

/// The places at which a list is broken into lines.
#[derive(Clone, Copy)]
enum Breaks {
    /// The line breaks of the source.
    Kept,
    /// The line breaks of the source, and one before each item that fits on a new line but not on the current one.
    More,
    /// A line break before each argument.
    Every,
    /// A line break before each item that does not fit on the current line.
    Filled,
}

/// Returns the number of spaces inside each brace.
fn padding(items: &[Sexp]) -> usize {
    usize::from(!items.is_empty())
}

fn is_keyword(sexp: &Sexp) -> bool {
    sexp.atom().is_some_and(|word| word.starts_with(':'))
}
