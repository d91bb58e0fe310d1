//! Collects valid files, which the fuzzer damages.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{checkpoint::checkpoint, readers::Reader};

/// The maximal size of a file in the corpus, in bytes. Small files are read fast, and damage rarely hits unimportant
/// data.
const LARGEST: u64 = 100_000;

/// The checkout of the repository from which the fuzzer was built.
pub const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns the files of a checkout that a reader reads.
///
/// # Panics
/// If the checkout lacks such files.
pub fn of(reader: &Reader, checkout: &Path) -> Vec<Vec<u8>> {
    let files = |folder: &str, ending: &str| files(checkout, folder, ending);
    let found = match reader.name {
        "graph" => [cases(checkout), files("benches/graphs", "graph"), GRAPHS.map(owned).into()].concat(),
        "rules" => rules(checkout),
        "onnx" => files("models/golden/onnx", "onnx"),
        "safetensors" => files("models/golden/onnx", "safetensors"),
        "checkpoint" => pickles().iter().map(|pickle| checkpoint(pickle)).collect(),
        "pickle" => pickles(),
        "costs" => files("backends/cpu/costs", "toml"),
        "gpu-costs" => [files("backends/cuda/costs", "toml"), files("backends/vulkan/costs", "toml")].concat(),
        "npy" => arrays(),
        "config" => files("models/golden/tiny-bert", "config.json"),
        "tokenizer" => files("models/golden/tiny-bert", "tokenizer.json"),
        "gguf" => files("models/golden/gguf", "gguf"),
        "language" => files("models/golden/gguf", "llama.gguf"),
        "image" => files("models/golden/sam/images", "png"),
        other => unreachable!("`{other}` has no corpus"),
    };
    assert!(!found.is_empty(), "there are no files for `{}`", reader.name);
    found
}

fn owned(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// Returns the files below a folder of the checkout whose names have this ending, sorted by name.
fn files(checkout: &Path, folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    collect(&checkout.join(folder), ending, &mut paths);
    paths.sort();
    let small = |path: &PathBuf| fs::metadata(path).is_ok_and(|data| data.len() <= LARGEST);
    paths.iter().filter(|path| small(path)).map(|path| fs::read(path).expect("the file was listed")).collect()
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

/// Returns the graphs of the rewriting cases, without the expected results.
fn cases(checkout: &Path) -> Vec<Vec<u8>> {
    let graph = |file: Vec<u8>| {
        let text = String::from_utf8_lossy(&file).into_owned();
        owned(text.split("\n----").next().unwrap_or_default())
    };
    files(checkout, "eutectic/tests/cases", "case").into_iter().map(graph).collect()
}

/// Returns each rule of the packs and of the language's tests as a file. A file with all rules would be slow to read.
fn rules(checkout: &Path) -> Vec<Vec<u8>> {
    let all = [files(checkout, "rewrites/rules", "rules"), files(checkout, "rewrites/tests/rules", "rules")].concat();
    let each = |file: &Vec<u8>| -> Vec<Vec<u8>> {
        let text = String::from_utf8_lossy(file);
        text.split("\n\n").filter(|part| part.contains("(rule ")).map(owned).collect()
    };
    all.iter().flat_map(each).collect()
}

/// Graphs with features of the language that no rewriting case uses.
const GRAPHS: [&str; 4] = [
    "(graph \"run time\" (dim S :least 1 :most 16) (input x f32[S 8]) (param w f32[8 4])\n  (let h (matmul x w) :origin a.b)\n  (output y (softmax h :axis -1)))",
    "(graph \"halve\" (input x f32[])\n (sub large (input y f32[]) (output large (gt y (const f32[] { 1.0 }))))\n (sub half (input y f32[]) (output y (mul y (const f32[] { 0.5 }))))\n (output y (while large half x :most 4)))",
    "(graph \"branch\" (input p bool[]) (input x f32[4])\n (sub a (input y f32[4]) (output y (neg y)))\n (sub b (input y f32[4]) (output y (exp y)))\n (output y (if p a b x)))",
    "(graph \"state\" (state k f16[B 4]) (input x f16[B 4]) (const c f16[4] { 0.5 -1.0 nan ... })\n (update k (add k x)) (output y (mul (add k c) (const f16[] { -inf }))))",
];

/// Returns arrays as numpy writes them, of some element types, ranks and versions of the format.
fn arrays() -> Vec<Vec<u8>> {
    let array = |version: u8, descr: &str, order: &str, shape: &str, count: usize| {
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({shape}), }}").into_bytes();
        header.resize(117, b' ');
        header.push(b'\n');
        let length: Vec<u8> = if version == 1 { vec![118, 0] } else { vec![118, 0, 0, 0] };
        let bytes: Vec<u8> = (0..count).map(|n| u8::from(n % 3 == 0)).collect();
        [b"\x93NUMPY", &[version, 0][..], &length, &header, &bytes].concat()
    };
    vec![
        array(1, "<f4", "False", "2, 3", 24),
        array(1, "<f8", "True", "2, 1, 3", 48),
        array(2, "<i8", "False", "", 8),
        array(1, "|b1", "True", "4, 2", 8),
        array(3, "<f2", "False", "0, 5", 0),
        array(1, "|u1", "False", "7,", 7),
    ]
}

/// Returns pickles of protocol 2 with one tensor named `w`, of several extents and strides.
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
