//! Hover: the inferred type of a value, the row of an op, and the sentence of a relation.

use eutectic::engine::ir::{
    Op,
    lang::{Relation, Sexp},
    ops::Ops,
};

use super::document::{Document, TopForm, items};
use crate::commands::ops::{attributes, made_of};

/// A text about an expression.
pub struct Card {
    /// The text, in Markdown.
    pub text: String,
    /// The expression, in bytes of the document.
    pub span: std::ops::Range<usize>,
}

/// Returns the text about the expression at a byte offset.
pub fn hover(document: &Document, offset: usize, ops: &Ops) -> Option<Card> {
    let top = document.form_at(offset)?;
    let path = top.around(offset - top.start);
    let (inner, outer) = (path[0], path.get(1).copied());
    let word = inner.atom();
    let is_head = outer.and_then(Sexp::list).and_then(<[Sexp]>::first) == Some(inner);
    // The type of an application is shown at its op and at its brackets.
    let value = if is_head { outer? } else { inner };
    let mut parts = Vec::new();
    if let Some(ty) = type_of(document, &top, value, ops) {
        parts.push(format!("```\n{ty}\n```"));
    }
    if let Some(word) = word {
        let about = match is_head {
            true => about_head(word, &path, ops),
            false => about_word(word, outer, &top, ops),
        };
        parts.extend(about);
    }
    let span = top.start + value.span.start..top.start + value.span.end;
    (!parts.is_empty()).then(|| Card { text: parts.join("\n\n"), span })
}

/// Returns the type of a value: an application, a named value in a graph, or a variable of a rule.
fn type_of(document: &Document, top: &TopForm, value: &Sexp, ops: &Ops) -> Option<String> {
    let types = document.types(top, ops);
    let at = |sexp: &Sexp| types.iter().find(|(span, _)| *span == sexp.span).map(|(_, ty)| ty.clone());
    if let Some(ty) = at(value) {
        return Some(format!("{}{ty}", value.atom().map_or(String::new(), |name| format!("{name} : "))));
    }
    let name = value.atom().filter(|word| word.starts_with('?'))?;
    let name = name.strip_suffix("..").unwrap_or(name);
    let declaration = declaration(&top.form, name)?;
    match declaration.call() {
        Some(("let", [_, term])) => at(term).map(|ty| format!("{name} : {ty}")),
        _ => Some(declaration.to_string()),
    }
}

/// Returns the form that declares a variable of a rule or of an op: `(?x F[A..])`, `(near ?c 0.5)`, `(let ?y …)`.
pub fn declaration<'s>(form: &'s Sexp, name: &str) -> Option<&'s Sexp> {
    let is = |sexp: &Sexp| sexp.atom().is_some_and(|word| word == name);
    if !form.call().is_some_and(|(head, _)| matches!(head, "rule" | "op")) {
        return None;
    }
    items(form).iter().find_map(|part| match part.call()? {
        ("forall", declarations) => declarations.iter().find(|declared| match declared.call() {
            Some(("near" | "is", [variable, ..])) => is(variable),
            Some((head, _)) => head == name,
            None => false,
        }),
        ("let" | "group", [variable, ..]) if is(variable) => Some(part),
        _ => None,
    })
}

fn about_head(word: &str, path: &[&Sexp], ops: &Ops) -> Option<String> {
    let in_where = path.get(2).and_then(|sexp| sexp.call()).is_some_and(|(head, _)| head == "where" || head == "not");
    let relation = Relation::all().find(|relation| relation.name == word).filter(|_| in_where);
    match relation {
        Some(relation) => Some(about_relation(relation)),
        None => ops.named(word).map(about_op),
    }
}

fn about_word(word: &str, outer: Option<&Sexp>, top: &TopForm, ops: &Ops) -> Option<String> {
    let Some(name) = word.strip_prefix(':') else {
        // The name of an op's declaration.
        let declares =
            top.form.call().is_some_and(|(head, _)| head == "op") && items(&top.form).get(1)?.atom() == Some(word);
        return ops.named(word).filter(|_| declares).map(about_op);
    };
    let op = ops.named(outer?.call()?.0)?;
    let attr = op.def().attrs.iter().find(|attr| attr.name == name)?;
    let line = attributes(op).lines().find(|line| line.starts_with(&format!(":{} ", attr.name)))?.to_string();
    Some(format!("`{line}` of `{op}`"))
}

/// Returns the row of an op in the op table.
pub fn about_op(op: Op) -> String {
    let def = op.def();
    let legal = if def.legal.is_empty() { String::new() } else { format!("\nlegal: {}", def.legal) };
    let attributes = attributes(op).lines().map(|line| format!("\n{line}")).collect::<String>();
    let made_of = made_of(op);
    let made_of = if made_of.is_empty() { String::new() } else { format!("\n\n```\n{}\n```", made_of.trim()) };
    format!("**{op}** {}\n\n```\n{}{legal}{attributes}\n```{made_of}", def.doc, def.signature)
}

/// Returns the sentence of a relation.
pub fn about_relation(relation: &Relation) -> String {
    format!("`({} {})` {}", relation.name, relation.parameters.join(" "), relation.doc)
}
