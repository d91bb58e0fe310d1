//! Counts the places that distinguish kinds of kernels or ops. The declarations define the kinds, and the kernel
//! folders of a backend implement them. All other code asks the declarations for facts, so that a new kind changes no
//! other file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use eutectic_ir::Op;

mod source;

use source::{is_name, tokens_outside_tests};

/// The folders that are counted.
const COUNTED: &[&str] = &[
    "backends",
    "cli/src",
    "eutectic/src",
    "ir/src",
    "lowering/src",
    "proptests/checker/src",
    "proptests/conformance/src",
    "rewrites/src",
];

/// Files that are not counted: declarations, folders of kernels, builders of programs, and code for tests and
/// measurements.
const LEFT_OUT: &[&str] = &[
    "backends/api/src",
    "backends/cpu/src/gemm",
    "backends/cpu/src/simd",
    "backends/cpu/src/tile",
    "benches",
    "examples",
    "ir/src/graph",
    "ir/src/ops",
    "kernels",
    "proptests/conformance/src/program",
    "proptests/conformance/src/suites",
    "tests",
];

/// The counts, which only go down: a change that reduces a count lowers it here.
const CEILINGS: &[(&str, usize)] = &[
    ("names of row operations", 0),
    ("classes of anchors", 5),
    ("kernels of anchors", 0),
    ("monoids", 1),
    ("matches on names of ops", 1),
];

#[test]
fn few_places_distinguish_kinds_of_kernels_and_ops() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = BTreeMap::new();
    COUNTED.iter().for_each(|folder| read(&root, folder, &mut files));
    assert!(files.len() > 100, "files are not found: {}", files.len());
    let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (path, text) in &files {
        for (what, count) in census(text) {
            counts.entry(what).or_default().insert(path, count);
        }
    }
    let mut wrong = String::new();
    for (what, ceiling) in CEILINGS {
        let places = counts.get(what).cloned().unwrap_or_default();
        let count: usize = places.values().sum();
        if count != *ceiling {
            let advice =
                if count < *ceiling { "lower the ceiling in census.rs" } else { "ask for a fact in the declaration" };
            wrong += &format!("\n{what}: {count}, not {ceiling}; {advice}: {places:?}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_census_counts_code_alone() {
    let counted = |text| census(text).into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>();
    assert_eq!(
        counted("if kernel.contraction().is_some() { f(kernel.attention()) } kernel.kind() == \"rows\""),
        [("kernels of anchors", 3)]
    );
    assert!(counted("fn attention(contraction: f64) {} // kernel.attention()").is_empty());
    assert!(counted("#[cfg(test)] mod tests { fn f() { kernel.attention(); } } mod m;").is_empty());
    assert_eq!(counted("matches!(class, Class::Anchor(Anchor::Named(_)))"), [("classes of anchors", 1)]);
    assert_eq!(counted("Reduction::ALL; Reduction::Max"), [("monoids", 1)]);
    let named = [("names of row operations", 1), ("matches on names of ops", 1)];
    assert_eq!(counted("if op.name() == \"ranking\" {}").into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(named));
    assert!(counted("\"ranking of rows\"").is_empty());
}

/// Returns the counts of a file, with the names in [`CEILINGS`].
fn census(text: &str) -> [(&'static str, usize); 5] {
    let tokens = tokens_outside_tests(text);
    let rows: BTreeSet<String> = Op::all().filter(|op| op.row().is_some()).map(|op| format!("\"{op}\"")).collect();
    let named = tokens.iter().filter(|token| rows.contains(*token)).count();
    // A variant starts with a capital letter and has small ones. Constants and functions do not.
    let is_variant =
        |name: &String| is_name(name) && name.chars().any(char::is_lowercase) && name.starts_with(char::is_uppercase);
    let variants = |of: &str| {
        let is_path = |path: &[String]| path[0] == of && path[1] == "::" && is_variant(&path[2]);
        tokens.windows(3).filter(|path| is_path(path)).count()
    };
    let is = |at: usize, words: &[&str]| {
        words.iter().enumerate().all(|(n, word)| tokens.get(at + n).is_some_and(|t| t == word))
    };
    let is_match = |at: usize| is(at, &["match", "op", ".", "name"]) || is(at, &["match", "(", "op", ".", "name"]);
    let is_literal = |at: usize| tokens.get(at).is_some_and(|token| token.starts_with('"'));
    let compares = |at: usize, what| {
        is(at, &[what, "(", ")"]) && ["=", "!"].iter().any(|sign| is(at + 3, &[sign, "="])) && is_literal(at + 5)
    };
    // Counts calls for typed views of kernels, and comparisons with names of kernels.
    let is_view = |at: usize| ["contraction", "attention"].iter().any(|view| is(at, &[".", view, "(", ")"]));
    let is_kind = |at: usize| {
        let is_named = is(at, &["AnchorKind", "::", "named", "("]) && is_literal(at + 4);
        compares(at, "kind") || is_named || is(at, &["match", "kernel", ".", "kind"])
    };
    let kinds = (0..tokens.len()).filter(|&at| is_view(at) || is_kind(at)).count();
    [
        ("names of row operations", named),
        ("classes of anchors", variants("Anchor")),
        ("kernels of anchors", kinds),
        ("monoids", variants("Reduction")),
        ("matches on names of ops", (0..tokens.len()).filter(|&at| is_match(at) || compares(at, "name")).count()),
    ]
}

/// Adds the texts of the counted files of a folder to `files`, by path.
fn read(root: &Path, folder: &str, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = format!("{folder}/{name}");
        if LEFT_OUT.contains(&&*path) || LEFT_OUT.contains(&&*name) {
            continue;
        }
        if root.join(&path).is_dir() {
            read(root, &path, files);
        } else if name.ends_with(".rs") {
            files.insert(path.clone(), fs::read_to_string(root.join(&path)).unwrap());
        }
    }
}
