//! Tests screens: tables on terminals of different widths, in a pipe, and without colours.
#![cfg(unix)]

mod common;

use std::{collections::BTreeSet, process::Command};

use common::{Dir, eutectic};

/// The commands whose screens are compared. Measured numbers differ from run to run, so they are masked.
const SCREENS: [&[&str]; 8] = [
    &["demo", "--seq", "8"],
    &["opt", "demo", "--seq", "8"],
    &["rules", "why", "fuse/{mean,variance}*", "demo", "--seq", "8"],
    &["explain", "demo", "*attention*", "--seq", "8", "--quick"],
    &["bench", "demo", "--seq", "8", "--iters", "3", "--warmup", "1", "--explain"],
    &["rules", "list", "fuse/*"],
    &["rules", "check", "fuse/linear*", "--mutants", "--backend", "none", "--cases", "4"],
    &["rules", "ablate", "demo", "--seq", "8", "--iters", "0"],
];

/// The starts of sentences that follow measured times and differ from run to run.
const HINT: &str = "predictions are off by a factor of 2; `eutectic tune` measures this machine, and commands plan by that from then on; \
     other processes disturbed this: threads waited for a processor 61 % of the time";

/// Returns the output of a command on a terminal of `columns` columns, by `script` of util-linux.
fn on_terminal(args: &[&str], columns: u16, environment: &[(&str, &str)]) -> String {
    let quoted = |arg: &str| format!("'{arg}'");
    let command: Vec<String> = args.iter().map(|arg| quoted(arg)).collect();
    let line =
        format!("stty cols {columns} rows 50 -onlcr; {} {}", quoted(env!("CARGO_BIN_EXE_eutectic")), command.join(" "));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--echo", "never", "--command", &line, "/dev/null"]);
    script.env("TERM", "xterm-256color").env("HOME", common::home());
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        script.env_remove(name);
    }
    let output = script.envs(environment.iter().copied()).output().expect("`script` of util-linux is there");
    let text = String::from_utf8(output.stdout).expect("it prints UTF-8");
    assert!(output.status.success(), "{text}");
    text
}

/// Removes escape sequences, and progress that was overwritten.
fn plain(text: &str) -> String {
    let mut shown = String::new();
    for line in text.lines() {
        // The text after the last carriage return stays on the screen.
        let line = line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
        let mut rest = line;
        while let Some(at) = rest.find("\x1b[") {
            shown.push_str(&rest[..at]);
            let end = rest[at + 2..].find(|c: char| c.is_ascii_alphabetic()).map_or(rest.len(), |n| at + 3 + n);
            rest = &rest[end..];
        }
        shown.push_str(rest);
        shown.push('\n');
    }
    shown
}

/// Returns the words of a screen without numbers, times and line breaks.
fn words(text: &str) -> BTreeSet<String> {
    let word = |text: &str| text.chars().all(|c| c.is_alphabetic() || c == '-') && text.len() > 2;
    let parts = text.split(|c: char| c.is_whitespace() || "./,:()[]".contains(c));
    parts.filter(|part| word(part)).map(String::from).collect()
}

#[test]
fn screens_fit_and_no_word_is_split() {
    for args in SCREENS {
        let piped = eutectic(args).good();
        assert!(!piped.contains('\x1b'), "{args:?}: {piped}");
        for columns in [80, 200] {
            let screen = plain(&on_terminal(args, columns, &[]));
            for line in screen.lines() {
                let width = line.chars().count();
                assert!(width <= usize::from(columns), "{args:?} at {columns}: {width} columns: {line}");
            }
            let note = format!("at {columns} columns, are is left out; a wider terminal or a pipe has all");
            let known = &(&words(&piped) | &words(&note)) | &words(HINT);
            let strange: Vec<_> = words(&screen).difference(&known).cloned().collect();
            assert!(strange.is_empty(), "{args:?} at {columns}: {strange:?} in\n{screen}");
        }
    }
}

#[test]
fn colours_are_for_terminals_that_have_them() {
    let args = ["rules", "list", "fuse/*"];
    assert!(on_terminal(&args, 100, &[]).contains("\x1b[1"));
    for environment in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let screen = on_terminal(&args, 100, &[environment]);
        assert!(!screen.contains('\x1b'), "{environment:?}: {screen}");
    }
    // A longer command does not draw its progress either.
    let screen = on_terminal(&["opt", "demo", "--seq", "8"], 100, &[("TERM", "dumb")]);
    assert!(!screen.contains('\x1b') && !screen.contains("compiling"), "{screen}");
}

#[test]
fn a_terminal_without_a_width_has_80_columns() {
    let screen = plain(&on_terminal(&["rules", "list", "fuse/*"], 0, &[]));
    let longest = screen.lines().map(|line| line.chars().count()).max();
    assert!(longest.is_some_and(|width| (60..=80).contains(&width)), "{longest:?}: {screen}");
}

/// Replaces digits by 9, and removes machine-dependent parts.
fn masked(screen: &str) -> String {
    screen.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect()
}

const LAYER: &str = r#"
(graph "layer"
  (input x f32[16 32])
  (param w f32[32 64])
  (param b f32[64])
  (output y (act (add (matmul x w) b) :kind relu)))
"#;

#[test]
fn screens_are_as_they_were_looked_at() {
    let dir = Dir::new();
    let path = dir.file("layer.graph", LAYER);
    let graph = path.to_str().expect("UTF-8");
    for columns in [80, 200] {
        for (name, args) in
            [("opt", &["opt", graph, "--print", "kernels"][..]), ("explain", &["explain", graph, "--quick"][..])]
        {
            let screen = masked(&plain(&on_terminal(args, columns, &[("NO_COLOR", "1")])));
            insta::assert_snapshot!(format!("{name}-{columns}"), screen);
        }
    }
}
