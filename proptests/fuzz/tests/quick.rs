//! Runs each reader for about a second.

use std::{num::NonZeroUsize, path::Path};

use eutectic_fuzz::{
    corpus, fuzz,
    readers::{READERS, Reader},
};

/// Returns the number of executions that take a reader about a second.
fn executions(reader: &Reader) -> u64 {
    match reader.name {
        "rules" => 400,
        "onnx" | "image" | "gguf" | "language" => 600,
        _ => 3000,
    }
}

#[test]
fn no_damage_breaks_a_reader() {
    for reader in READERS {
        let checkout = Path::new(corpus::CHECKOUT);
        let summary = fuzz(reader, checkout, 7, 0..executions(reader), NonZeroUsize::MIN, &|_| ());
        let shown = summary.findings.iter().map(|f| format!("{}: {}", f.execution, f.what));
        let shown: Vec<String> = shown.collect();
        assert!(shown.is_empty(), "{}: {shown:#?}", reader.name);
        // If nearly all damaged files are refused, the promises about accepted files are not tested.
        assert!(summary.accepted * 100 >= summary.executions, "{}: {} accepted", reader.name, summary.accepted);
    }
}
