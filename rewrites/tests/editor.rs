//! Tests that the files for editors agree with the tables of the reader. This command writes the files:
//! `cargo test -p eutectic-rewrites --all-features --test editor -- --ignored write_the_queries`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use eutectic_ir::{
    Class, Op,
    lang::{DTypeClass, Relation},
    text::STATEMENTS,
};
use eutectic_rewrites::{CONTRACTS, KINDS, OP_PARTS, RULE_PARTS, TOP_FORMS};

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("editor/queries/highlights.scm")
}

/// Returns a query for words at the start of a list.
fn heads(what: &str, capture: &str, words: &BTreeSet<&str>) -> String {
    format!("; {what}\n((list . (word) @{capture})\n{}", any_of(capture, words))
}

/// Returns a query for words at any place.
fn words(what: &str, capture: &str, words: &BTreeSet<&str>) -> String {
    format!("; {what}\n((word) @{capture}\n{}", any_of(capture, words))
}

fn any_of(capture: &str, words: &BTreeSet<&str>) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    format!(" (#any-of? @{capture} {}))\n", words.join(" "))
}

fn queries() -> String {
    let leaves = Op::all().filter(|op| matches!(op.def().class, Class::Leaf(_))).map(Op::name);
    let parts = RULE_PARTS.into_iter().chain(OP_PARTS).collect();
    let statements: BTreeSet<&str> = STATEMENTS.into_iter().chain(leaves).collect();
    let relations = Relation::all().map(|relation| relation.name).chain(["near", "is", "not"]).collect();
    let kinds = KINDS.into_iter().chain(DTypeClass::names()).collect();
    [
        "; Written by rewrites/tests/editor.rs from the tables of the reader. Later patterns win.\n".to_string(),
        "(comment) @comment\n(string) @string\n(number) @number\n(variable) @variable.parameter\n(attribute) @property\n\
         (dimension) @type\n[\"(\" \")\" \"[\" \"]\" \"{\" \"}\"] @punctuation.bracket\n"
            .into(),
        "; Ops, built in and declared.\n(list . (word) @function)\n(list . (variable) @function)\n".into(),
        words("Kinds of variables, classes of element types, and element types.", "type.builtin", &kinds),
        words("Promises of rules.", "constant.builtin", &CONTRACTS.into_iter().collect()),
        words("Truth values, and words after the type of a tensor.", "constant.builtin", &BTreeSet::from(["true", "false", "const", "varied"])),
        format!(
            "; Relations.\n((list . (word) @_part (list . (word) @function.builtin))\n (#any-of? @_part \"where\" \"forall\" \"not\")\n{}",
            any_of("function.builtin", &relations)
        ),
        heads("Statements of graphs.", "keyword", &statements),
        heads("Parts of rules and of declared ops.", "keyword", &parts),
        heads("Top-level forms.", "keyword", &TOP_FORMS.into_iter().collect()),
        "; Names of rules and of declared ops.\n((list . (word) @keyword . (word) @label)\n (#any-of? @keyword \"rule\" \"op\"))\n".into(),
    ]
    .join("\n")
}

#[test]
fn the_queries_have_the_words_of_the_reader() {
    let written = fs::read_to_string(path()).expect("the queries are there");
    assert_eq!(written, queries(), "write them by the ignored test");
}

#[test]
#[ignore = "writes the queries"]
fn write_the_queries() {
    fs::write(path(), queries()).expect("they are written");
}

#[test]
fn words_of_the_grammar_end_where_those_of_the_reader_do() {
    let grammar = fs::read_to_string(path().with_file_name("../grammar.js")).expect("the grammar is there");
    // The characters that end a word, in `SexpReader::word`.
    assert!(grammar.contains(r#"const REST = /[^\s()\[\]{}";]*/"#), "{grammar}");
    for end in ['(', ')', '[', ']', '{', '}', '"', ';', ' ', '\n', '\u{a0}'] {
        let text = format!("a{end}b");
        let forms = eutectic_ir::lang::sexp::read(&eutectic_ir::lang::Source::new("t", text));
        let one = forms.is_ok_and(|forms| forms.len() == 1 && forms[0].atom() == Some(&*format!("a{end}b")));
        assert!(!one, "{end:?} is part of a word");
    }
    for part in ['?', ':', '/', '-', '.', '\'', '→', ',', '#', '|'] {
        let text = format!("a{part}b");
        let forms = eutectic_ir::lang::sexp::read(&eutectic_ir::lang::Source::new("t", text.clone())).expect("a word");
        assert_eq!(forms[0].atom(), Some(&*text));
    }
}
