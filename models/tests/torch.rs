//! Tests checkpoints of torch: whole, damaged and malicious ones.

use std::{
    io::{Cursor, Write},
    path::Path,
};

use eutectic_models::{Weights, WeightsError};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

fn open(bytes: &[u8]) -> Result<Weights, WeightsError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    Weights::open(file.path())
}

/// Returns an archive like those of torch, with the given pickle and one storage of the numbers 0 to 5.
fn archive(pickle: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let numbers: Vec<u8> = (0..6).flat_map(|n| (n as f32).to_le_bytes()).collect();
    for (name, bytes) in [("x/data.pkl", pickle), ("x/byteorder", b"little"), ("x/data/0", &numbers)] {
        zip.start_file(name, stored).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// Returns the pickle, in protocol 2, of {"w": a tensor of the given extents and strides}.
fn tensor(kind: &str, offset: u8, dims: &[u8], strides: &[u8]) -> Vec<u8> {
    let numbers = |of: &[u8]| [b"(", &of.iter().flat_map(|n| [b'K', *n]).collect::<Vec<_>>()[..], b"t"].concat();
    let storage = format!("ctorch\n{kind}\nX\x01\0\0\x000X\x03\0\0\0cpuK\x06tQ");
    [
        b"\x80\x02}q\0X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storage".as_slice(),
        storage.as_bytes(),
        &[b'K', offset],
        &numbers(dims),
        &numbers(strides),
        b"\x89ccollections\nOrderedDict\n)RtRs.",
    ]
    .concat()
}

fn problem(bytes: &[u8]) -> String {
    open(bytes).map(|_| "it was read").unwrap_err().to_string()
}

#[test]
fn tensors_are_views_of_storages() {
    let read = |offset, dims: &[u8], strides: &[u8]| {
        let weights = open(&archive(&tensor("FloatStorage", offset, dims, strides))).unwrap_or_else(|e| panic!("{e}"));
        weights.get("w").unwrap().to_f64()
    };
    assert_eq!(read(0, &[2, 3], &[3, 1]), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(read(1, &[2, 2], &[3, 1]), [1.0, 2.0, 4.0, 5.0]);
    assert_eq!(read(0, &[3, 2], &[1, 3]), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert_eq!(read(5, &[], &[]), [5.0]);
    assert_eq!(read(9, &[2, 0], &[1, 1]), [0.0; 0]);
    // Tensors with other element types are listed, but cannot be read.
    let complex = open(&archive(&tensor("ComplexFloatStorage", 0, &[3], &[1]))).unwrap();
    assert_eq!(complex.names().collect::<Vec<_>>(), [("w", "ComplexFloat[3]".to_string())]);
}

#[test]
fn what_reaches_beyond_a_storage_is_an_error() {
    for (offset, dims, strides) in
        [(0, [2, 3], [4, 1]), (1, [2, 3], [3, 1]), (0, [7, 1], [1, 1]), (0, [255, 255], [0, 0])]
    {
        let problem = problem(&archive(&tensor("FloatStorage", offset, &dims, &strides)));
        assert!(problem.contains("tensor `w`: it exceeds its storage of 6 elements"), "{problem}");
    }
}

#[test]
fn nothing_is_executed() {
    for (pickle, says) in [
        (b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.".as_slice(), "it asks for `os.system`"),
        (b"\x80\x02cbuiltins\neval\n)\x81.", "opcode 0x81"),
        (b"\x80\x02cargparse\nNamespace\n)R.", "save the model's state_dict() instead"),
        (b"\x80\x02(X\x07\0\0\0storagecos\nsystem\nX\x01\0\0\x000X\x03\0\0\0cpuK\x06tQ.", "it asks for `os.system`"),
        (b"\x80\x02}X\x01\0\0\0ws.", "it adds items to an object that is not a dictionary"),
        (b"\x80\x02(}u.", "it has a key without a value"),
        (b"\x80\x02X\xff\xff\xff\xffabc.", "it ends too early"),
        (b"\x80\x02h\x07.", "its stack lacks a value"),
        (b"", "it ends too early"),
    ] {
        let problem = problem(&archive(pickle));
        assert!(problem.contains("not a valid torch checkpoint") && problem.contains(says), "{says}: {problem}");
    }
}

#[test]
fn dictionaries_that_hold_themselves_end() {
    // The dictionary contains itself.
    assert_eq!(open(&archive(b"\x80\x02}q\0X\x01\0\0\0ah\0s.")).unwrap().names().count(), 0);
}

#[test]
fn damaged_files_are_errors_and_never_panics() {
    let whole = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/sam/model/original.pt")).unwrap();
    for end in (4..whole.len()).step_by(997) {
        assert!(open(&whole[..end]).is_err(), "{end}");
    }
    let pickle = tensor("FloatStorage", 0, &[2, 3], &[3, 1]);
    for at in 0..pickle.len() {
        for value in [0, b'.', b'(', b'R', b'}', 0x8a, 0xff] {
            let mut pickle = pickle.clone();
            pickle[at] = value;
            let _ = open(&archive(&pickle));
        }
    }
    let bare = [b"\x80\x02".as_slice(), b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."].concat();
    assert!(problem(&bare).contains("before version 1.6"), "{}", problem(&bare));
    assert!(problem(b"PK\x03\x04").contains("archive"));
    assert!(Weights::open(Path::new("/no/such/file.pt")).is_err());
}
