//! Random programs through the whole engine, in every way, against the interpreter. `examples/sweep.rs` tries more of them.

use eutectic::Strategy;
use eutectic_conformance::sweep::{Sweep, Way};
use eutectic_ir::{lang::sexp::Source, text::parse};

fn agree(way: Way) {
    Sweep::new().unwrap().programs(way, 250, 9, 0).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn unfused() {
    agree(Way::Search(Strategy::Unfused));
}

#[test]
fn greedy() {
    agree(Way::Search(Strategy::Greedy));
}

#[test]
fn local() {
    agree(Way::Search(Strategy::Local));
}

#[test]
fn some_rules() {
    agree(Way::SomeRules);
}

#[test]
fn rules_come_to_rest() {
    Sweep::new().unwrap().rest(500, 12, 0).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn programs_that_once_failed() {
    let sweep = Sweep::new().unwrap();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/once_failed")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let graph = parse(&Source::new(path.display().to_string(), text)).unwrap_or_else(|e| panic!("{e}"));
        for (way, seed) in Way::ALL.into_iter().flat_map(|way| (0..20).map(move |seed| (way, seed))) {
            sweep.agrees(way, &graph, seed).unwrap_or_else(|e| panic!("{}, {way:?}, seed {seed}: {e}", path.display()));
        }
    }
}
