//! Tests `rules check` on rules that are not embedded in the command, and the commands of CONTRIBUTING's tutorial.

mod common;

use std::{fs, path::Path};

use common::{Dir, eutectic};

const WRONG: &str = ";; the halves of a row are each other\n\
    (rule mine/half (forall (F any) (?a F[B.. N]) (?b F[B.. N]))\n\
    (=> (slice (concat ?a ?b :axis -1) :axis -1 :at 0 :len N :step 1) ?b) (eq exact))";

/// Returns the arguments that check the rules in a directory.
fn check<'a>(directory: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let directory = directory.to_str().expect("a path in UTF-8");
    [&["rules", "check", "--rules", directory, "--backend", "none"], more].concat()
}

#[test]
fn a_wrong_rule_is_refuted_the_same_way_again() {
    let dir = Dir::new();
    dir.file("mine.rules", WRONG);
    let path = dir.path("");
    let first = eutectic(check(&path, &[]));
    assert_eq!(first.code, Some(1), "{}", first.err);
    for part in ["mine/half is wrong", "mine.rules:2", "?a :", "left", "allowed: no difference (integers)"] {
        assert!(first.out.contains(part), "{part:?} is not in: {}", first.out);
    }
    // The printed command checks this rule alone.
    let again = eutectic(check(&path, &["mine/half", "--seed", "1"]));
    let shown = |out: &str| out.lines().filter(|l| l.starts_with("  ")).map(String::from).collect::<Vec<_>>();
    assert_eq!(shown(&first.out), shown(&again.out));
    let json = eutectic(check(&path, &["--format", "json"]));
    let reports: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!((&reports[0]["rule"], &reports[0]["holds"]), (&"mine/half".into(), &false.into()));
    assert_eq!(reports[0]["failures"][0]["check"], "values");
}

#[test]
fn a_file_that_does_not_load_hides_no_other() {
    let dir = Dir::new();
    dir.file("mine.rules", WRONG);
    dir.file(
        "open.rules",
        ";; open\n(rule mine/open\n  (forall (F float) (?x F[A..])\n  (=> (neg ?x) ?x)\n  (eq exact))\n",
    );
    dir.file(
        "words.rules",
        ";; names that nearly are\n(rule mine/names (forall (F flaot) (?x F[A..])) (=> (neg ?x) ?x) (eq exact))\n",
    );
    let path = dir.path("");
    let all = eutectic(check(&path, &[]));
    assert_eq!(all.code, Some(2), "{}", all.err);
    assert!(all.out.contains("mine/half is wrong"), "{}", all.out);
    for part in ["1 rule is wrong", "never closed", "open.rules:3:3", "did you mean `float`?"] {
        assert!(all.err.contains(part), "{part:?} is not in: {}", all.err);
    }
    let json = eutectic(check(&path, &["--format", "json"]));
    let errors: serde_json::Value = serde_json::from_str(&json.err).expect("one value");
    assert_eq!((errors["errors"].as_array().map(Vec::len), &errors["exit_code"]), (Some(3), &2.into()), "{errors}");
    for command in ["list", "lint"] {
        let shown = eutectic(["rules", command, "mine/*", "--rules", path.to_str().expect("UTF-8")]);
        assert!(shown.out.contains("1 rule"), "{command}: {}", shown.out);
        shown.refused(&["never closed", "did you mean `float`?"]);
    }
    // If the only rule does not load, nothing is checked.
    let alone = Dir::new();
    alone.file("text.rules", "(rule");
    let none = eutectic(check(&alone.path(""), &[]));
    assert_eq!((none.code, none.out.as_str()), (Some(2), ""), "{}", none.err);
    // The glob may mean a rule that did not load, so both errors are reported.
    eutectic(check(&alone.path(""), &["mine/*"])).refused(&["never closed", "no rule is named `mine/*`"]);
}

#[test]
fn integers_that_differ_are_shown_as_integers() {
    let dir = Dir::new();
    dir.file(
        "mine.rules",
        ";; one more\n(rule mine/next (forall (?x i64[A..])) (=> (neg (neg ?x)) (add ?x 9007199254740993)) (eq exact))",
    );
    let wrong = eutectic(check(&dir.path(""), &[]));
    assert_eq!(wrong.code, Some(1), "{}", wrong.err);
    assert!(wrong.out.contains("left 0, right 900719925474099"), "{}", wrong.out);
}

#[test]
fn a_rule_that_nothing_can_be_computed_of_is_not_called_wrong() {
    let dir = Dir::new();
    dir.file(
        "mine.rules",
        ";; −(−x) = x\n(rule mine/long (forall (F float) (?x F[(+ M 4000000000)])) (=> (neg (neg ?x)) ?x) (eq exact))\n",
    );
    let long = eutectic(check(&dir.path(""), &[]));
    assert_eq!((long.code, long.err.as_str()), (Some(1), "error: 1 rule is not checked\n"));
    assert!(long.out.contains("not checked") && long.out.contains("too large to be computed"), "{}", long.out);
}

#[test]
fn names_without_a_rule_are_refused() {
    eutectic(["rules", "check", "mine/*"]).refused(&["mine/*", "rules list"]);
    eutectic(["rules", "check", "simplify/mul-on"]).refused(&["did you mean `simplify/mul-one`?"]);
    for cases in ["0", "99999999999"] {
        eutectic(["rules", "check", "--cases", cases]).refused(&["--cases"]);
    }
}

#[test]
fn ablation_finds_the_rule_that_changes_a_result() {
    let dir = Dir::new();
    let graph = dir.file("g.graph", "(graph \"g\" (input a f32[64]) (input b f32[64]) (output y (neg (sub a b))))");
    dir.file(
        "rules/mine.rules",
        ";; not so\n(rule mine/sign (forall (F float) (?a F[A..]) (?b F[A..]))\n\
        (=> (neg (sub ?a ?b)) (sub ?a ?b)) (eq fast))",
    );
    let (graph, rules) = (graph.to_str().expect("UTF-8"), dir.path("rules"));
    let rules = rules.to_str().expect("UTF-8");
    let ablate = |more: &[&str]| {
        eutectic([&["rules", "ablate", graph, "--rules", rules, "--fp", "fast", "--iters", "0"], more].concat()).good()
    };
    let json: serde_json::Value = serde_json::from_str(&ablate(&["--format", "json"])).expect("JSON");
    let row = json.as_array().and_then(|rows| rows.iter().find(|r| r["rule"] == "mine/sign")).expect("it fires");
    assert!(row["difference"].as_f64().is_some_and(|d| d > 0.1), "{row}");
    let found = ablate(&["--bisect"]);
    assert!(found.contains("with mine/sign"), "{found}");
    let none = ablate(&["--bisect", "--tolerance", "10"]);
    assert!(none.contains("no difference: 1 rule changes the result"), "{none}");
    // Rules without an effect on the kernels are not measured.
    let measured: serde_json::Value = serde_json::from_str(
        &eutectic(["rules", "ablate", "demo", "--seq", "8", "--iters", "3", "--format", "json"]).good(),
    )
    .expect("JSON");
    let rows = measured.as_array().expect("rows");
    assert!(rows.iter().any(|r| r["same_kernels"] == true && r["measured_change"].is_null()), "{measured}");
    let ordered =
        |c: &serde_json::Value| c["p10"].as_f64() <= c["p50"].as_f64() && c["p50"].as_f64() <= c["p90"].as_f64();
    let changes: Vec<_> = rows.iter().map(|r| &r["measured_change"]).filter(|c| !c.is_null()).collect();
    assert!(!changes.is_empty() && changes.into_iter().all(ordered), "{measured}");
}

#[test]
fn the_tutorial_works_as_it_is_written() {
    let contributing = Path::new(env!("CARGO_MANIFEST_DIR")).join("../CONTRIBUTING.md");
    let text = fs::read_to_string(contributing).expect("it is there");
    let (_, tutorial) = text.split_once("In five minutes").expect("the tutorial");
    let (tutorial, _) = tutorial.split_once("### ").expect("its end");
    let dir = Dir::new();
    let mut blocks = tutorial.split("```").skip(1).step_by(2);
    let mut commands = 0;
    while let Some((kind, block)) = blocks.next().and_then(|b| b.split_once('\n')) {
        match kind {
            "lisp" => {
                let (name, _) = block.split_once('\n').expect("a line");
                dir.file(name.strip_prefix("; ").expect("the file's name"), block);
            }
            "sh" => {
                for line in block.lines() {
                    let (command, comment) = line.split_once('#').unwrap_or((line, ""));
                    let args = command.split_whitespace().skip(1).map(|a| a.trim_matches('\''));
                    let run = common::command().args(args).current_dir(dir.path("")).output();
                    let run = run.expect("it starts");
                    let wanted = if comment.contains("exit code 1") { 1 } else { 0 };
                    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
                    assert_eq!(run.status.code(), Some(wanted), "{line}\n{out}\n{err}");
                    commands += 1;
                }
            }
            _ => {}
        }
    }
    assert_eq!(commands, 6);
}
