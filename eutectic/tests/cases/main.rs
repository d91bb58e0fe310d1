//! Text cases: a graph in text form, the rules, and the expected result. Each case is one file, named after the
//! behaviour that it pins.
//!
//! A case (`*.case`) starts with comments that state this behaviour. A comment `;!` sets an option. `;! only GLOB …`,
//! `;! without GLOB …` and `;! fp CONTRACT` are as on the command line. `;! lacks KIND …` removes kernels of that kind
//! (`attention`, `matmul`, `rows`) from the device. `;! keep SHARE` sets the price of a stored byte, and `;! capacity
//! BYTES` the memory. Then follow the graph and sections, each under a line `---- TITLE`:
//!
//! - `rules`: rules in addition to the embedded ones;
//! - `after PHASE`: the program after that phase (`legalize`, `main`, `algebra`, `templates` or `fold`);
//! - `kernels`: the plan's kernels in order, each with the fused ops;
//! - `plan`: the plan in canonical form.
//!
//! A case contains only the sections that show its behaviour. `cargo test -p eutectic --test cases -- --ignored`
//! updates them.

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

/// Replaces the sections by the actual results: `cargo test -p eutectic --test cases -- --ignored`. Then read the
/// difference.
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
