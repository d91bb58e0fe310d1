//! A little of it in each run of the tests.

use eutectic_fuzz::{
    fuzz,
    readers::{READERS, Reader},
};

/// Executions of each reader: about a second.
fn executions(reader: &Reader) -> u64 {
    match reader.name {
        "rules" => 400,
        "onnx" | "image" => 600,
        _ => 3000,
    }
}

#[test]
fn no_damage_breaks_a_reader() {
    for reader in READERS {
        let summary = fuzz(reader, 7, 0..executions(reader), &mut |_| ());
        let shown = summary.findings.iter().map(|f| format!("{}: {}", f.execution, f.what));
        let shown: Vec<String> = shown.collect();
        assert!(shown.is_empty(), "{}: {shown:#?}", reader.name);
        // Damage that is always refused at once tests nothing.
        assert!(summary.accepted * 100 >= summary.executions, "{}: {} accepted", reader.name, summary.accepted);
    }
}
