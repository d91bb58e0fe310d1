//! Tests packs of rules: the files that `rules pack` writes, and those that --rules accepts and rejects.

mod common;

use std::{fs, path::Path};

use common::{Dir, Run, eutectic};

const MANIFEST: &str = "name = \"mine\"\nversion = \"1.2.0\"\nlanguage = 1\n";
const TWICE: &str =
    ";; −(−x) = x\n(rule mine/twice (forall (F float) (?x F[A..])) (=> (neg (neg ?x)) ?x) (eq exact))\n";
const OP: &str = ";; k·x\n(op mine/scaled (forall (F float) (?x F[A..]) (?k float :default 2.0)) (result F[A..]) (is (mul ?x ?k)))\n";

/// Returns a folder with a pack of two rule files.
fn folder() -> Dir {
    let dir = Dir::new();
    dir.file("mine/pack.toml", MANIFEST);
    dir.file("mine/twice.rules", TWICE);
    dir.file("mine/more/op.rules", OP);
    dir
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Packs a folder, without mutants.
fn pack(dir: &Dir, name: &str, more: &[&str]) -> Run {
    let (folder, out) = (dir.path(name), dir.path(&format!("{name}.epack")));
    let args = ["rules", "pack", text(&folder), "--out", text(&out), "--quick", "--backend", "none"];
    eutectic([&args[..], more].concat())
}

fn list(path: &Path, more: &[&str]) -> Run {
    eutectic([&["rules", "list", "*mine/*", "--rules", text(path)], more].concat())
}

#[test]
fn a_pack_a_folder_and_its_files_are_the_same_rules() {
    let dir = folder();
    let said = pack(&dir, "mine", &[]).good();
    for part in [
        "2 rules",
        "pack mine 1.2.0",
        "checked by eutectic",
        "no mutants",
        "findings of `rules lint`: 1",
        "the rule simplify/neg-neg covers all of its matches",
    ] {
        assert!(said.replace('\n', " ").contains(part), "{part:?} is not in: {said}");
    }
    let names = |path: &str| {
        let listed = list(&dir.path(path), &["--format", "json"]).good();
        let rules: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
        let names = rules.as_array().expect("rules").iter().map(|rule| rule["name"].to_string());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names("mine"), ["\"decompose/mine/scaled\"", "\"mine/twice\""]);
    assert_eq!(names("mine.epack"), names("mine"));
    assert_eq!(names("mine/twice.rules"), ["\"mine/twice\""]);
    let shown = list(&dir.path("mine.epack"), &[]).good().replace('\n', " ");
    assert!(shown.contains("pack mine 1.2.0: checked by eutectic"), "{shown}");
    assert!(list(&dir.path("mine"), &[]).good().contains("a folder, not checked"));
    // Graphs can use the op of a pack, and the pack's rules fire.
    let graph = dir.file("g.graph", "(graph \"g\" (input x f32[4]) (output y (neg (neg (mine/scaled x :k 3.0)))))");
    let rules = ["opt", text(&graph), "--print", "rules", "--rules"];
    let fired = eutectic([&rules[..], &[text(&dir.path("mine.epack"))]].concat()).good();
    assert!(fired.contains("mine/twice") && fired.contains("decompose/mine/scaled"), "{fired}");
}

#[test]
fn mutants_are_counted_in_the_stamp() {
    let dir = folder();
    let (folder, out) = (dir.path("mine"), dir.path("m.epack"));
    let args = ["rules", "pack", text(&folder), "--out", text(&out), "--backend", "none", "--format", "json"];
    let said: serde_json::Value = serde_json::from_str(&eutectic(args).good()).expect("JSON");
    assert!(said["stamp"]["mutants"]["killed"].as_u64() > Some(0), "{said}");
    assert_eq!(said["stamp"]["rules"].as_object().map(serde_json::Map::len), Some(2));
}

#[test]
fn what_is_not_sound_is_not_packed() {
    let dir = folder();
    let wrong = ";; halves\n(rule mine/wrong (forall (F float) (?x F[A..])) (=> (neg ?x) (abs ?x)) (eq exact))\n";
    let rules = dir.file("mine/wrong.rules", wrong);
    let refused = pack(&dir, "mine", &[]);
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert!(refused.err.contains("1 rule is wrong") && refused.out.contains("mine/wrong is wrong"), "{}", refused.out);
    dir.file("mine/wrong.rules", "(rule mine/open");
    pack(&dir, "mine", &[]).refused(&["never closed"]);
    fs::remove_file(rules).expect("it is there");
    fs::remove_file(dir.path("mine/pack.toml")).expect("it is there");
    pack(&dir, "mine", &[]).refused(&["it has no pack.toml", "language = 1"]);
    pack(&dir, "nothing", &[]).refused(&["because it is not a folder"]);
    assert!(!dir.path("mine.epack").exists());
}

#[test]
fn a_pack_that_was_changed_is_refused() {
    let dir = folder();
    pack(&dir, "mine", &[]).good();
    let packed = fs::read_to_string(dir.path("mine.epack")).expect("it is written");
    let changed = |from: &str, to: &str| {
        assert!(packed.contains(from), "{packed}");
        list(&dir.file("changed.epack", packed.replace(from, to)), &[])
    };
    changed("(=> (neg (neg ?x)) ?x)", "(=> (neg (neg (neg ?x))) (neg ?x))")
        .refused(&["`mine/twice` differs from the checked one"]);
    // Comments and spaces may change without an effect on the fingerprint.
    changed("(=> (neg", "(=>  (neg").good();
    changed("language = 1", "language = 2").refused(&[
        "version 2 of the rule language",
        "versions up to 1",
        "newer eutectic",
    ]);
    changed("[stamp]", "[stomp]").refused(&["missing field", "run `eutectic rules pack` to write the file again"]);
    changed("[pack]", "[pack").refused(&["changed.epack"]);
    dir.file("mine/pack.toml", MANIFEST.replace("= 1\n", "= 7\n"));
    list(&dir.path("mine"), &[]).refused(&["version 7 of the rule language", "pack.toml:3"]);
    dir.file("mine/pack.toml", MANIFEST.replace("version = \"1.2.0\"\n", ""));
    list(&dir.path("mine"), &[]).refused(&["version"]);
}

#[test]
fn needs_are_loaded_first() {
    let dir = folder();
    pack(&dir, "mine", &[]).good();
    dir.file(
        "more/pack.toml",
        "name = \"more\"\nversion = \"0.1.0\"\nlanguage = 1\n[needs]\nmine = \"1.1\"\neutectic = \">=0.1\"\n",
    );
    let rule = ";; k·(−x) = −(k·x)\n(rule mine/moved (forall (F float) (?x F[A..]))\
        (=> (mine/scaled (neg ?x) :k 2.0) (neg (mine/scaled ?x :k 2.0))) (eq exact) (canonical))\n";
    dir.file("more/more.rules", rule);
    let base = dir.path("mine.epack");
    pack(&dir, "more", &[]).refused(&["it needs the pack mine ^1.1", "--rules PACK"]);
    pack(&dir, "more", &["--rules", text(&base)]).good();
    let more = dir.path("more.epack");
    list(&base, &["--rules", text(&more)]).good();
    list(&more, &["--rules", text(&base)]).refused(&["it needs the pack mine"]);
    list(&base, &["--rules", text(&base)]).refused(&["is loaded already"]);
}

#[test]
fn paths_without_rules_are_refused() {
    let dir = Dir::new();
    list(&dir.path("missing"), &[]).refused(&["cannot read", "*.rules", "*.epack"]);
    list(&dir.path("missing.epack"), &[]).refused(&["cannot read"]);
    list(&dir.file("empty.rules", ""), &[]).refused(&["it contains no rules"]);
    list(&dir.file("bytes.epack", [0xff, 0xfe]), &[]).refused(&["not UTF-8"]);
    let proved = eutectic(["rules", "prove", "--write", "--rules", text(&dir.file("a.rules", TWICE))]);
    proved.refused(&["because it is not a folder"]);
}
