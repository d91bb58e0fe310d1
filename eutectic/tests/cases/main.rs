//! Text cases: a graph in text form, which rules, and what must come out; one file a case, named after what it pins.
//!
//! A case (`*.case`) begins with comments that say what it pins. A comment `;!` chooses what is not as by default:
//! `;! only GLOB …`, `;! without GLOB …` and `;! fp CONTRACT` as on the command line; `;! lacks KIND …` takes kernels of that kind
//! (`attention`, `matmul`, `rows`) from the device; `;! keep SHARE` and `;! capacity BYTES` say what a byte that is kept counts there,
//! and how many there are. Then follow the graph and sections, each under a line `---- TITLE`:
//!
//! - `rules`: more rules than the embedded ones;
//! - `after PHASE`: the program as that phase leaves it (`legalize`, `main`, `algebra`, `templates` or `fold`);
//! - `kernels`: the plan's kernels in order, each with what was fused into it;
//! - `plan`: the plan in canonical print.
//!
//! A case holds those that show its point. `cargo test -p eutectic --test cases -- --ignored` writes what is under them anew.

mod case;
mod device;
mod diff;

use std::{fs, path::PathBuf};

use case::Case;

fn files() -> Vec<PathBuf> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    let entries = fs::read_dir(directory).expect("the directory of the cases is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "case"));
    files.sort();
    files
}

#[test]
fn cases_give_what_they_say() {
    let mut failures = Vec::new();
    for path in files() {
        let text = fs::read_to_string(&path).expect("a case is UTF-8 text");
        let name = path.file_name().expect("a file has a name").to_string_lossy();
        match Case::read(&name, &text).and_then(|case| case.run()) {
            Ok(got) if got == text => {}
            Ok(got) => failures.push(format!("{}:\n{}", path.display(), diff::lines(&text, &got))),
            Err(problem) => failures.push(format!("{}: {problem}", path.display())),
        }
    }
    let help = "if this is as it should be: cargo test -p eutectic --test cases -- --ignored; then read the difference";
    assert!(failures.is_empty(), "\n{}\n{help}", failures.join("\n"));
}

/// Writes the sections anew: `cargo test -p eutectic --test cases -- --ignored`; then read the difference.
#[test]
#[ignore = "writes tests/cases/*.case"]
fn pin_cases() {
    for path in files() {
        let text = fs::read_to_string(&path).expect("a case is UTF-8 text");
        let name = path.file_name().expect("a file has a name").to_string_lossy();
        let got = Case::read(&name, &text).and_then(|case| case.run());
        fs::write(&path, got.unwrap_or_else(|problem| panic!("{}: {problem}", path.display()))).expect("it is written");
    }
}
