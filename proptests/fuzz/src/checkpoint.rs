//! Builds archives of checkpoints.

use std::io::{Cursor, Write};

use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

/// Returns an archive as torch writes it. `pickle` is its list of tensors, and it has one storage of six numbers.
///
/// # Panics
/// Never, because writes to memory succeed.
pub fn checkpoint(pickle: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let numbers: Vec<u8> = (0..6_u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    for (name, bytes) in [("x/data.pkl", pickle), ("x/byteorder", b"little"), ("x/data/0", &numbers)] {
        zip.start_file(name, stored).expect("writes to memory succeed");
        zip.write_all(bytes).expect("writes to memory succeed");
    }
    zip.finish().expect("writes to memory succeed").into_inner()
}
