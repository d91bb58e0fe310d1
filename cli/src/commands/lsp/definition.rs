//! Go to definition: of variables, of names in graphs, and of declared ops.

use std::ops::Range;

use eutectic::engine::ir::lang::{Sexp, Source, sexp::read};

use super::{
    document::{Document, items},
    hover::declaration,
};

/// The place of a definition.
pub enum Definition {
    /// In the document itself.
    Here(Range<usize>),
    /// In a rule file.
    There(Source, Range<usize>),
}

/// Returns the definition of the name at a byte offset. `files` are the rule files of the document.
pub fn definition(document: &Document, offset: usize, files: &[Source]) -> Option<Definition> {
    let top = document.form_at(offset)?;
    let path = top.around(offset - top.start);
    let name = path[0].atom()?;
    let here = |span: &Range<usize>| Definition::Here(top.start + span.start..top.start + span.end);
    let bare = name.strip_suffix("..").unwrap_or(name);
    if let Some(declared) = declaration(&top.form, bare) {
        return Some(here(&declared.span));
    }
    // Names of a body are found before those of the graph around it.
    let bodies = path.iter().filter(|sexp| matches!(sexp.call(), Some(("graph" | "sub", _))));
    if let Some(named) = bodies.filter_map(|body| statement(body, name)).next() {
        return Some(here(&named.span));
    }
    if let Some(span) = op_in(&document.source(), name) {
        return Some(Definition::Here(span));
    }
    files.iter().find_map(|source| Some(Definition::There(source.clone(), op_in(source, name)?)))
}

/// Returns the name in the statement of a body that defines it: `(let NAME …)`, `(let (NAME …) …)`, `(input NAME …)`.
fn statement<'s>(body: &'s Sexp, name: &str) -> Option<&'s Sexp> {
    let is = |sexp: &&Sexp| sexp.atom() == Some(name);
    items(body).iter().find_map(|statement| match statement.call()? {
        ("output" | "update", _) => None,
        (_, [first, ..]) => Some(first).filter(is).or_else(|| items(first).iter().find(is)),
        _ => None,
    })
}

/// Returns the name in the declaration of an op.
fn op_in(source: &Source, name: &str) -> Option<Range<usize>> {
    let forms = read(source).ok()?;
    forms.iter().find_map(|form| match form.call()? {
        ("op", [declared, ..]) if declared.atom() == Some(name) => Some(declared.span.clone()),
        _ => None,
    })
}
