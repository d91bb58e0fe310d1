//! `rules fmt`: which files it changes, and what it says.

mod common;

use std::{fs, io::Write, process::Stdio};

use common::{Dir, Run, command, eutectic};

const WRITTEN: &str = ";; −(−x) = x\n(rule mine/twice (forall (F float) (?x F[A..]))\n    (=> (neg (neg ?x))   ?x) ; both signs\n (eq exact))\n";
const LAID_OUT: &str = ";; −(−x) = x\n(rule mine/twice\n  (forall (F float) (?x F[A..]))\n  (=> (neg (neg ?x)) ?x) ; both signs\n  (eq exact))\n";
const GRAPH: &str = "(graph \"g\"\n  (input x f32[4])\n  (output y (neg x)))\n";

#[test]
fn files_of_a_folder_are_laid_out() {
    let dir = Dir::new();
    let (rules, graph) =
        (dir.file("a/own.rules", WRITTEN), dir.file("a/b/g.graph", GRAPH.replace("  (output", "(output")));
    let other = dir.file("a/notes.txt", "(  not ours )");
    let folder = dir.path("a").display().to_string();

    let checked = eutectic(["rules", "fmt", "--check", &folder]);
    assert_eq!(checked.code, Some(1), "{}", checked.err);
    assert_eq!(checked.out, format!("{}:3\n{}:2\n", graph.display(), rules.display()));
    assert!(checked.err.contains("2 files would be laid out in another way"), "{}", checked.err);
    assert_eq!(fs::read_to_string(&rules).expect("text"), WRITTEN);

    let said = eutectic(["rules", "fmt", &folder]).good();
    assert!(said.contains("own.rules") && said.contains("g.graph"), "{said}");
    assert_eq!(fs::read_to_string(&rules).expect("text"), LAID_OUT);
    assert_eq!(fs::read_to_string(&graph).expect("text"), GRAPH);
    assert_eq!(fs::read_to_string(&other).expect("text"), "(  not ours )");
    assert_eq!(eutectic(["rules", "fmt", &folder]).good(), "");
    assert_eq!(eutectic(["rules", "fmt", "--check", &folder]).good(), "");
}

#[test]
fn stdin_goes_to_stdout() {
    let pipe = |args: &[&str], text: &str| {
        let mut child = command();
        let child =
            child.args(["rules", "fmt"]).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().expect("it starts");
        child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Run { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    };
    assert_eq!(pipe(&["-"], WRITTEN).good(), LAID_OUT);
    assert_eq!(pipe(&["--check", "-"], LAID_OUT).good(), "");
    let checked = pipe(&["--check", "-"], WRITTEN);
    assert_eq!((checked.code, checked.out.as_str()), (Some(1), "<stdin>:2\n"));
    pipe(&["-"], "(rule a/b").refused(&["never closed", "<stdin>"]);
}

#[test]
fn a_file_that_does_not_read_stays_and_others_are_laid_out() {
    let dir = Dir::new();
    let (broken, rules) = (dir.file("broken.rules", "(rule a/b\n  (eq   exact)\n"), dir.file("own.rules", WRITTEN));
    let folder = dir.path("").display().to_string();
    eutectic(["rules", "fmt", &folder]).refused(&["this bracket is never closed", "broken.rules:1:1"]);
    assert_eq!(fs::read_to_string(&broken).expect("text"), "(rule a/b\n  (eq   exact)\n");
    assert_eq!(fs::read_to_string(&rules).expect("text"), LAID_OUT);
    let missing = dir.path("missing.rules").display().to_string();
    eutectic(["rules", "fmt", &missing]).refused(&["cannot read", "missing.rules"]);
    fs::create_dir(dir.path("empty")).expect("a folder");
    let empty = dir.path("empty").display().to_string();
    let problem = "this folder contains no rule files and no graph files";
    eutectic(["rules", "fmt", &empty]).refused(&[problem, "NAME.rules"]);
}
