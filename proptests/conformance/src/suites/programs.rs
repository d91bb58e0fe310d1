//! Compiles random programs in every way, and compares their results with the interpreter's. `examples/sweep.rs` tries
//! more programs.

use eutectic::Strategy;
use eutectic_ir::{lang::sexp::Source, text::parse};

use crate::{
    device::Device,
    suite::{Check, checks},
    sweep::{Sweep, Way},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![unfused, greedy, local, some_rules, programs_that_once_failed];

fn agree(device: &Device, way: Way) {
    Sweep::new(device).programs(way, 250, 9, 0).unwrap_or_else(|failure| panic!("{failure}"));
}

fn unfused(device: &Device) {
    agree(device, Way::Search(Strategy::Unfused));
}

fn greedy(device: &Device) {
    agree(device, Way::Search(Strategy::Greedy));
}

fn local(device: &Device) {
    agree(device, Way::Search(Strategy::Local));
}

fn some_rules(device: &Device) {
    agree(device, Way::SomeRules);
}

/// Expands to the names and the contents of files in a folder.
macro_rules! files {
    ($folder:literal: $($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!($folder, "/", $name)))),*] };
}

/// The programs in `proptests/conformance/tests/once_failed`. A test checks that the list is complete.
pub const ONCE_FAILED: &[(&str, &str)] = files!["../../tests/once_failed":
    "adapter_of_nothing.graph",
    "bytes_of_many_threads.graph",
    "constant_beside_a_run.graph",
    "eps_of_short_norm.graph",
    "gather_of_pad.graph",
    "gelu_of_small_numbers.graph",
    "reduction_under_a_guard.graph",
    "rows_of_nothing_next_to_pieces.graph",
    "scale_of_short_attention.graph",
    "value_beside_an_empty_output.graph",
];

fn programs_that_once_failed(device: &Device) {
    let sweep = Sweep::new(device);
    for (name, text) in ONCE_FAILED {
        let graph = parse(&Source::new(*name, *text)).unwrap_or_else(|e| panic!("{e}"));
        for (way, seed) in Way::ALL.into_iter().flat_map(|way| (0..20).map(move |seed| (way, seed))) {
            sweep.agrees(way, &graph, seed).unwrap_or_else(|e| panic!("{name}, {way:?}, seed {seed}: {e}"));
        }
    }
}
