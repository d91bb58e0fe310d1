//! Tests that formatting rule files and graph files keeps every expression and every comment, and is idempotent.

use std::{
    fs,
    path::{Path, PathBuf},
};

use eutectic_ir::lang::{Source, format, sexp::read};
use eutectic_rewrites::RuleSet;
use fastrand::Rng;

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rules" || e == "graph") {
            files.push(path);
        }
    }
}

/// Returns the rule files and graph files of the repository.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let mut files = Vec::new();
    for folder in ["rewrites", "proptests", "examples", "eutectic/tests", "models/src"] {
        collect(&root.join(folder), &mut files);
    }
    assert!(files.len() > 150, "{}", files.len());
    let read = |path: PathBuf| Source::new(path.display().to_string(), fs::read_to_string(&path).expect("text"));
    files.into_iter().map(read).collect()
}

fn laid_out(source: &Source) -> Source {
    Source::new(source.name.clone(), format(source).unwrap_or_else(|e| panic!("{}: {:?}", source.name, e)))
}

/// Returns the expressions without positions, and the comments. A comment is the text from a `;` outside of strings to
/// the end of the line.
fn content(source: &Source) -> (Vec<String>, Vec<String>) {
    let forms = read(source).expect("it reads").iter().map(ToString::to_string).collect();
    let (mut comments, mut rest) = (Vec::new(), &*source.text);
    while let Some(at) = rest.find([';', '"']) {
        let from = &rest[at..];
        let end = if from.starts_with(';') {
            let end = from.find('\n').unwrap_or(from.len());
            comments.push(from[..end].trim().to_string());
            end
        } else {
            let mut chars = from.char_indices().skip(1);
            loop {
                match chars.next() {
                    Some((_, '\\')) => drop(chars.next()),
                    Some((end, '"')) => break end + 1,
                    Some(_) => {}
                    None => break from.len(),
                }
            }
        };
        rest = &from[end..];
    }
    (forms, comments)
}

#[test]
fn every_file_keeps_its_expressions_and_comments() {
    for source in sources() {
        let once = laid_out(&source);
        assert_eq!(content(&source), content(&once), "{}", source.name);
        assert_eq!(once.text, laid_out(&once).text, "{}", source.name);
    }
}

#[test]
fn files_with_any_spacing_keep_their_expressions_and_comments() {
    let mut random = Rng::with_seed(1);
    for source in sources() {
        // The text of a constant with thousands of elements says no more than that of a few.
        let text: String = source.text.chars().take(6000).collect();
        let cut = text.rfind("\n\n").unwrap_or(0);
        let Some(text) = source.text.get(..cut).filter(|text| read(&Source::new("cut", *text)).is_ok()) else {
            continue;
        };
        let (mut mixed, mut in_text, mut in_comment) = (String::new(), false, false);
        for c in text.chars() {
            in_text ^= c == '"' && !in_comment;
            in_comment = (in_comment || c == ';' && !in_text) && c != '\n';
            match c {
                ' ' if !in_text && !in_comment && random.u8(..6) == 0 => {
                    mixed.push_str(
                        ["  ", "\n", "\t", "\n\n\n ", " ; a comment (\n", "\r\n  ", "\n; one\n\n;; more\n"]
                            [random.usize(..7)],
                    );
                }
                '\n' if !in_text && !in_comment && random.u8(..3) == 0 && !mixed.trim_end().ends_with(';') => {
                    let line = mixed.rsplit('\n').next().unwrap_or_default();
                    mixed.push(if line.contains(';') { '\n' } else { ' ' });
                }
                _ => mixed.push(c),
            }
        }
        let mixed = Source::new(source.name.clone(), mixed);
        let once = laid_out(&mixed);
        assert_eq!(content(&mixed), content(&once), "{}:\n{}", source.name, mixed.text);
        assert_eq!(once.text, laid_out(&once).text, "{}:\n{}", source.name, mixed.text);
        assert!(!once.text.lines().any(|line| line.ends_with(' ')), "{}", once.text);
    }
}

#[test]
fn rules_stay_equal() {
    let shown = |sources: &[Source]| {
        let rules = RuleSet::read(sources).unwrap_or_else(|errors| panic!("{errors:?}"));
        // Positions differ.
        let without_positions = |text: String| {
            let mut parts = text.split(|c: char| !c.is_ascii_digit() && c != '.').collect::<Vec<_>>();
            parts.retain(|part| part.contains("..") && part.len() > 2);
            parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
            parts.iter().fold(text.clone(), |text, part| text.replace(part, "_"))
        };
        let whole = |rule: &eutectic_rewrites::Rule| {
            let relations = std::format!("{:?} {:?} {:?}", rule.relations, rule.variables, rule.lets);
            let contract =
                std::format!("{} {} {} {} {}", rule.contract, rule.once, rule.canonical, rule.phase, rule.price);
            let roots = std::format!("{:?}", rule.roots);
            (rule.name.clone(), rule.doc.clone(), contract, without_positions(relations), without_positions(roots))
        };
        rules.iter().map(whole).collect::<Vec<_>>()
    };
    let packs = |source: &Source| source.name.contains("/rewrites/rules/") || source.name.contains("/examples/own-op/");
    let before: Vec<Source> = sources().into_iter().filter(|s| packs(s) && s.name.ends_with(".rules")).collect();
    let after: Vec<Source> = before.iter().map(laid_out).collect();
    assert_eq!(shown(&before), shown(&after));
}

#[track_caller]
fn becomes(text: &str, wanted: &str) {
    let shown = format(&Source::new("t", text)).expect("it reads");
    assert_eq!(shown, wanted, "\n{shown}");
}

#[test]
fn parts_have_a_line_each() {
    becomes(
        ";; x\n(rule a/b   (forall (F float)\n (?x F[A..])) (=> (neg (neg ?x))\n?x)\n\n  (eq exact)(once) )\n\n\n(op a/c\n(forall (?x f32[]))(result f32[]) (is ?x))",
        "\
;; x
(rule a/b
  (forall (F float)
          (?x F[A..]))
  (=> (neg (neg ?x))
      ?x)

  (eq exact) (once))

(op a/c (forall (?x f32[]))
  (result f32[])
  (is ?x))
",
    );
}

#[test]
fn arguments_are_below_the_first_one_or_below_the_head() {
    becomes(
        "(a (f x\n:k [1\n2]\n;; why\ny ; end\n))",
        "(a (f x\n      :k [1\n          2]\n      ;; why\n      y ; end\n      ))\n",
    );
    becomes("(f\nx\n  (g y))", "(f\n  x\n  (g y))\n");
    becomes("{}{1}( )[ ]F[ a ]\"a  b\"", "{}\n{ 1 }\n()\n[]\nF[a]\n\"a  b\"\n");
}

#[test]
fn long_lists_are_broken_before_each_argument_and_attributes_share_lines() {
    let long = "a".repeat(34);
    becomes(
        &std::format!("(f (g {long} {long} :k 1 :l {long}) {long})"),
        &std::format!("(f (g {long} {long} :k 1 :l {long})\n   {long})\n"),
    );
    becomes(
        &std::format!("(f (g {long} {long} {long} :k 1 :l {long}))"),
        &std::format!("(f (g {long}\n      {long}\n      {long}\n      :k 1 :l {long}))\n"),
    );
    // Dims fill lines, and so do variables.
    becomes(
        &std::format!("(rule a/b (forall (?x {long}) (?y {long}) (?z {long})))"),
        &std::format!("(rule a/b\n  (forall (?x {long}) (?y {long})\n          (?z {long})))\n"),
    );
    // Constants stay as they are.
    let constant = std::format!("(graph \"c\"\n  (const x f32[200] {{ {}0 }}))\n", "0 ".repeat(199));
    becomes(&constant, &constant);
}

#[test]
fn comments_stay_at_the_ends_of_a_file() {
    becomes("; a\n\n\n; b", "; a\n\n; b\n");
    becomes("\n\n(a) ; c\n;; d", "(a) ; c\n;; d\n");
    becomes("", "");
    becomes("\u{feff}(a)", "\u{feff}(a)\n");
}

#[test]
fn what_does_not_read_is_an_error() {
    assert!(format(&Source::new("t", "(rule a/b")).is_err());
}
