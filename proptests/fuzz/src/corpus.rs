//! Valid files to start from.

use std::{
    fs,
    io::{Cursor, Write},
    path::{Path, PathBuf},
};

use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use crate::readers::Reader;

/// The largest file that is taken: small ones are read often, and most of what is damaged in them matters.
const LARGEST: u64 = 100_000;

/// The files that a reader's are made from.
///
/// # Panics
/// When the checkout lacks them.
pub fn of(reader: &Reader) -> Vec<Vec<u8>> {
    let found = match reader.name {
        "graph" => [cases(), files("benches/graphs", "graph"), GRAPHS.map(owned).into()].concat(),
        "rules" => rules(),
        "onnx" => files("models/golden/onnx", "onnx"),
        "safetensors" => files("models/golden/onnx", "safetensors"),
        "checkpoint" => pickles().iter().map(|pickle| checkpoint(pickle)).collect(),
        "pickle" => pickles(),
        "costs" => files("backends/cpu/costs", "toml"),
        "config" => files("models/golden/tiny-bert", "config.json"),
        "tokenizer" => files("models/golden/tiny-bert", "tokenizer.json"),
        "image" => files("models/golden/sam/images", "png"),
        other => unreachable!("`{other}` has no corpus"),
    };
    assert!(!found.is_empty(), "there are no files for `{}`", reader.name);
    found
}

fn owned(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// The files below a folder of the checkout whose names end so, by name.
fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder), ending, &mut paths);
    paths.sort();
    let small = |path: &PathBuf| fs::metadata(path).is_ok_and(|data| data.len() <= LARGEST);
    paths.iter().filter(|path| small(path)).map(|path| fs::read(path).expect("it was listed")).collect()
}

fn collect(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, ending, found);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

/// The graphs of the cases of rewriting, without what must become of them.
fn cases() -> Vec<Vec<u8>> {
    let graph = |file: Vec<u8>| {
        let text = String::from_utf8_lossy(&file).into_owned();
        owned(text.split("\n----").next().unwrap_or_default())
    };
    files("eutectic/tests/cases", "case").into_iter().map(graph).collect()
}

/// The rules of the packs, and those of the language's tests, each by itself: a file of all would be read slowly.
fn rules() -> Vec<Vec<u8>> {
    let all = [files("rewrites/rules", "rules"), files("rewrites/tests/rules", "rules")].concat();
    let each = |file: &Vec<u8>| -> Vec<Vec<u8>> {
        let text = String::from_utf8_lossy(file);
        text.split("\n\n").filter(|part| part.contains("(rule ")).map(owned).collect()
    };
    all.iter().flat_map(each).collect()
}

/// What the language has beside what the cases of rewriting use.
const GRAPHS: [&str; 4] = [
    "(graph \"run time\" (dim S :least 1 :most 16) (input x f32[S 8]) (param w f32[8 4])\n  (let h (matmul x w) :origin a.b)\n  (output y (softmax h :axis -1)))",
    "(graph \"halve\" (input x f32[])\n (sub large (input y f32[]) (output large (gt y (const f32[] { 1.0 }))))\n (sub half (input y f32[]) (output y (mul y (const f32[] { 0.5 }))))\n (output y (while large half x :most 4)))",
    "(graph \"branch\" (input p bool[]) (input x f32[4])\n (sub a (input y f32[4]) (output y (neg y)))\n (sub b (input y f32[4]) (output y (exp y)))\n (output y (if p a b x)))",
    "(graph \"state\" (state k f16[B 4]) (input x f16[B 4]) (const c f16[4] { 0.5 -1.0 nan ... })\n (update k (add k x)) (output y (mul (add k c) (const f16[] { -inf }))))",
];

/// An archive as torch makes it, with this list of tensors and one storage of six numbers.
///
/// # Panics
/// Never: it is written to memory.
pub fn checkpoint(pickle: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let numbers: Vec<u8> = (0..6_u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    for (name, bytes) in [("x/data.pkl", pickle), ("x/byteorder", b"little"), ("x/data/0", &numbers)] {
        zip.start_file(name, stored).expect("memory takes files");
        zip.write_all(bytes).expect("memory takes bytes");
    }
    zip.finish().expect("memory takes a list").into_inner()
}

/// {"w": a tensor of these extents and strides}, as protocol 2 of pickle writes it.
fn pickles() -> Vec<Vec<u8>> {
    let pickle = |kind: &str, offset: u8, dims: &[u8], strides: &[u8]| {
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
    };
    let mut found = vec![pickle("FloatStorage", 0, &[2, 3], &[3, 1]), pickle("FloatStorage", 1, &[2, 2], &[3, 1])];
    found.push(pickle("HalfStorage", 0, &[3, 2], &[1, 3]));
    found.push(pickle("LongStorage", 2, &[], &[]));
    found
}
