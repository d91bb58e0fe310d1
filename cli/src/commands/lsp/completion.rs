//! Completion: ops, relations, attributes, variables and the words that begin forms.

use std::collections::BTreeSet;

use eutectic::engine::{
    ir::{
        Class, Op,
        lang::{DTypeClass, Relation, Source, sexp::open_brackets},
        ops::Ops,
        text::STATEMENTS,
    },
    rewrites::{CONTRACTS, KINDS, OP_PARTS, RULE_PARTS, TOP_FORMS},
};
use lsp_types::{CompletionItem, CompletionItemKind, Documentation, MarkupContent, MarkupKind};

use super::{
    document::{Document, Language},
    hover::{about_op, about_relation},
};
use crate::commands::ops::attributes;

/// Returns the completions at a byte offset.
pub fn completions(document: &Document, offset: usize, ops: &Ops) -> Vec<CompletionItem> {
    let before = &document.text[..offset];
    let ends = |c: char| c.is_whitespace() || "()[]{}\";".contains(c);
    let word = &before[before.rfind(ends).map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8))..];
    let before = &before[..before.len() - word.len()];
    let start = before.rfind("\n(").map_or(0, |at| at + 1);
    let form = &before[start..];
    let open = open_brackets(&Source::new("", form));
    // The heads of the lists around the word, the outermost one first.
    let heads: Vec<&str> = open.iter().map(|at| form[at + 1..].split(ends).next().unwrap_or_default()).collect();
    let head = heads.last().copied().unwrap_or_default();
    if word.starts_with(':') {
        return ops.named(head).map_or(Vec::new(), attributes_of);
    }
    if word.starts_with('?') {
        let end = document.text[offset..].find("\n(").map_or(document.text.len(), |at| offset + at);
        return variables(form, &document.text[offset..end]);
    }
    if before.ends_with('(') {
        // The last open bracket is that of the word.
        return heads_at(&heads[..heads.len().saturating_sub(1)], document.language(), ops);
    }
    match (heads.as_slice(), document.language()) {
        ([_, .., "eq"], _) => words(CONTRACTS, CompletionItemKind::KEYWORD),
        ([_, "forall", ..], _) => words(KINDS.into_iter().chain(DTypeClass::names()), CompletionItemKind::KEYWORD),
        ([_, ..], Language::Graph) => names(form),
        _ => Vec::new(),
    }
}

/// Returns what may begin a list inside of these lists.
fn heads_at(heads: &[&str], language: Language, ops: &Ops) -> Vec<CompletionItem> {
    let keywords = |of: &[&'static str]| words(of.iter().copied(), CompletionItemKind::KEYWORD);
    match (heads, language) {
        ([], _) => keywords(&TOP_FORMS),
        (["rule"], _) => keywords(&RULE_PARTS),
        (["op"], _) => keywords(&OP_PARTS),
        (["graph"], _) | (["graph", "sub"], _) => {
            let leaves = Op::all().filter(|op| matches!(op.def().class, Class::Leaf(_))).map(Op::name);
            words(STATEMENTS.into_iter().chain(leaves), CompletionItemKind::KEYWORD)
        }
        ([_, "where"] | [_, "where", "not"], _) => Relation::all().map(relation).collect(),
        ([_, "forall"], _) => Vec::new(),
        _ => ops.all().map(op).collect(),
    }
}

fn item(label: &str, kind: CompletionItemKind) -> CompletionItem {
    CompletionItem { label: label.into(), kind: Some(kind), ..CompletionItem::default() }
}

fn words<'w>(words: impl IntoIterator<Item = &'w str>, kind: CompletionItemKind) -> Vec<CompletionItem> {
    words.into_iter().map(|word| item(word, kind)).collect()
}

fn markdown(value: String) -> Option<Documentation> {
    Some(Documentation::MarkupContent(MarkupContent { kind: MarkupKind::Markdown, value }))
}

fn op(op: Op) -> CompletionItem {
    let (detail, documentation) = (Some(op.def().signature.to_string()), markdown(about_op(op)));
    CompletionItem { detail, documentation, ..item(op.name(), CompletionItemKind::FUNCTION) }
}

fn relation(relation: &'static Relation) -> CompletionItem {
    let (detail, documentation) = (Some(relation.parameters.join(" ")), markdown(about_relation(relation)));
    CompletionItem { detail, documentation, ..item(relation.name, CompletionItemKind::INTERFACE) }
}

fn attributes_of(op: Op) -> Vec<CompletionItem> {
    let lines = attributes(op);
    let attribute = |line: &str| {
        let (name, kind) = line.split_once(' ')?;
        Some(CompletionItem { detail: Some(kind.into()), ..item(name, CompletionItemKind::FIELD) })
    };
    lines.lines().filter_map(attribute).collect()
}

/// Returns the variables `?x` of a form, before and after the word.
fn variables(before: &str, after: &str) -> Vec<CompletionItem> {
    let words = |text: &str| {
        let words = text.split(|c: char| c.is_whitespace() || "()[]{}\";".contains(c));
        words.filter(|word| word.starts_with('?') && word.len() > 1).map(str::to_string).collect::<BTreeSet<_>>()
    };
    // The rest of the word that is typed is none.
    let after = after.split_once(|c: char| c.is_whitespace() || "()[]{}\";".contains(c)).map_or("", |(_, after)| after);
    let known: BTreeSet<String> = words(before).union(&words(after)).cloned().collect();
    known.iter().map(|name| item(name.trim_end_matches(".."), CompletionItemKind::VARIABLE)).collect()
}

/// Returns the names that a graph defines before the word.
fn names(before: &str) -> Vec<CompletionItem> {
    let mut names = BTreeSet::new();
    for (at, _) in before.match_indices('(') {
        let mut words = before[at + 1..].split_whitespace();
        if let (Some("let" | "input" | "param" | "const" | "state" | "sub"), Some(name)) = (words.next(), words.next())
        {
            names.insert(name.trim_matches(['(', ')']).to_string());
        }
    }
    names.iter().map(|name| item(name, CompletionItemKind::VARIABLE)).collect()
}
