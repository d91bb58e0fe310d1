//! GGUF files: elements that are bit-equal to those of the package gguf, decoders that agree with transformers, and
//! damaged files.

mod common;

use std::{collections::BTreeMap, fs, path::PathBuf};

use common::{difference, gguf::Writer, golden, run};
use eutectic_ir::{DType, Tensor};
use eutectic_models::{
    decoder::{ARCHITECTURES, CacheType, Decoder},
    gguf::{Gguf, format::FORMATS},
    npy,
};

/// Returns a folder with the given files.
fn folder(files: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn problem(bytes: Vec<u8>) -> String {
    let folder = folder(&[("m.gguf", bytes)]);
    Gguf::open(folder.path().join("m.gguf")).expect_err("the file is wrong").to_string()
}

#[test]
fn every_format_is_decoded_to_the_bits_that_the_package_gguf_gives() {
    let file = Gguf::open(golden("gguf/formats.gguf")).unwrap();
    let mut checked = Vec::new();
    for (name, tensor) in file.tensors().iter().filter(|(name, _)| !name.ends_with(".f32")) {
        let expected = file.tensors()[&format!("{name}.f32")].decode();
        assert_eq!(tensor.format.name, name);
        assert!(tensor.decode().bytes() == expected.bytes() && tensor.dims == expected.dims(), "{name}");
        assert!(tensor.bytes() < expected.bytes().len());
        checked.push(name.as_str());
    }
    let mut all: Vec<_> = FORMATS.iter().filter(|format| format.is_decoded()).map(|format| format.name).collect();
    // The tensor in the format `F32` is the reference for the other formats.
    all.retain(|name| *name != "F32");
    all.sort_unstable();
    assert_eq!(checked, all);
}

#[test]
fn metadata_is_read_with_all_its_kinds() {
    let scalar = |kind: u32, bytes: &[u8]| Writer::default().value("x", kind, bytes.into());
    let number = |writer: Writer| {
        let folder = folder(&[("m.gguf", writer.bytes())]);
        Gguf::open(folder.path().join("m.gguf")).unwrap().get("x").unwrap().number()
    };
    assert_eq!(number(scalar(0, &[200])), Some(200.0));
    assert_eq!(number(scalar(1, &[200])), Some(-56.0));
    assert_eq!(number(scalar(3, &[0, 0x80])), Some(-32768.0));
    assert_eq!(number(scalar(5, &(-7_i32).to_le_bytes())), Some(-7.0));
    assert_eq!(number(scalar(6, &1.5_f32.to_le_bytes())), Some(1.5));
    assert_eq!(number(scalar(11, &i64::MIN.to_le_bytes())), Some(i64::MIN as f64));
    assert_eq!(number(scalar(12, &0.1_f64.to_le_bytes())), Some(0.1));
    let writer = Writer::default().texts("words", &["", "é", "three"]).numbers("scores", &[1.0, -2.5]).flag("is", true);
    let folder = folder(&[("m.gguf", writer.bytes())]);
    let file = Gguf::open(folder.path().join("m.gguf")).unwrap();
    let words = file.get("words").unwrap().array().unwrap();
    assert_eq!((words.len(), words.texts().collect::<Vec<_>>()), (3, vec!["", "é", "three"]));
    assert_eq!(words.numbers().count(), 0);
    assert_eq!(file.get("scores").unwrap().array().unwrap().numbers().collect::<Vec<_>>(), [1.0, -2.5]);
    assert_eq!(file.get("is").unwrap().flag(), Some(true));
}

#[test]
fn wrong_files_are_refused_with_place_and_remedy() {
    let whole = Writer::default().u32("a", 1).tensor("w", &[2, 3], 0, vec![0; 24]);
    let bytes = whole.bytes();
    // A truncated file is refused, wherever it ends.
    for end in 0..bytes.len() {
        assert!(problem(bytes[..end].to_vec()).contains("at byte"), "{end} bytes");
    }
    let changed = |at: usize, with: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        problem(bytes)
    };
    let expect = |text: String, wanted: &str| assert!(text.contains(wanted) && text.contains("m.gguf"), "{text}");
    expect(changed(0, b"GGML"), "at byte 0, the file begins with [47, 47, 4d, 4c]");
    expect(changed(4, &[1, 0, 0, 0]), "the version is 1; versions 2 and 3 are supported; convert");
    expect(changed(4, &[0, 0, 0, 3]), "big-endian");
    // These counts of tensors and values, and this length of a string, exceed any file.
    for at in [8, 16, 24] {
        expect(changed(at, &u64::MAX.to_le_bytes()), "at byte");
        expect(changed(at, &(1_u64 << 40).to_le_bytes()), "at byte");
    }
    expect(problem(Writer::default().u32("a", 1).u32("a", 2).bytes()), "the key `a` appears twice");
    expect(problem(Writer::default().value("a", 13, vec![0]).bytes()), "unknown kind 13");
    expect(problem(Writer::default().value("a", 7, vec![2]).bytes()), "neither 0 nor 1");
    expect(problem(Writer::default().value("a", 9, [9, 0, 0, 0].repeat(6)).bytes()), "array of arrays");
    expect(problem(Writer::default().u32("general.alignment", 3).bytes()), "not a power of two");
    let twice = whole.clone().tensor("w", &[1], 0, vec![0; 4]);
    expect(problem(twice.bytes()), "the tensor `w` is listed twice");
    expect(problem(Writer::default().tensor("w", &[1 << 40, 1 << 40], 0, vec![]).bytes()), "exceed the address space");
    expect(problem(Writer::default().tensor("w", &[1 << 40], 0, vec![0; 4]).bytes()), "ends after the file's");
    expect(problem(Writer::default().tensor("w", &[33, 32], 2, vec![0; 600]).bytes()), "blocks of Q4_0 have 32");
    expect(problem(Writer::default().tensor("w", &[1; 5], 0, vec![0; 4]).bytes()), "5 axes");
    let unknown = Writer::default().tensor("a", &[1], 99, vec![]).tensor("b", &[256], 16, vec![0; 66]);
    let text = problem(unknown.bytes());
    expect(text.clone(), "number 99 (1 tensors, first `a`)");
    expect(text, "IQ2_XXS (1 tensors, first `b`)");
}

#[test]
fn a_split_model_is_read_from_any_of_its_files() {
    let part = |number: u32, count: u32, tensor: &str| {
        let writer =
            Writer::default().text("name", &format!("part {number}")).value("split.no", 2, vec![number as u8, 0]);
        let writer = writer.value("split.count", 2, vec![count as u8, 0]).u32("split.tensors.count", 2);
        writer.tensor(tensor, &[1], 0, (number as f32).to_le_bytes().into()).bytes()
    };
    let [first, second] = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];
    let good = folder(&[(first, part(0, 2, "a")), (second, part(1, 2, "b"))]);
    for name in [first, second] {
        let file = Gguf::open(good.path().join(name)).unwrap();
        assert_eq!(file.tensors().keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(file.tensors()["b"].decode().to_f64(), [1.0]);
        assert_eq!(file.text("name"), Some("part 0"));
    }
    let error = |files: &[(&str, Vec<u8>)]| {
        let folder = folder(files);
        Gguf::open(folder.path().join(files[0].0)).expect_err("it is wrong").to_string()
    };
    assert!(error(&[(first, part(0, 2, "a"))]).contains(second));
    assert!(error(&[(first, part(0, 2, "a")), (second, part(1, 2, "a"))]).contains("two files have the tensor `a`"));
    assert!(error(&[(first, part(1, 2, "a")), (second, part(0, 2, "b"))]).contains("is 1, but must be 0"));
    assert!(error(&[("m.gguf", part(0, 2, "a"))]).contains("-00001-of-00002.gguf"));
}

/// Returns the names of the models with golden logits.
fn models() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(golden("gguf"))
        .unwrap()
        .filter_map(|file| Some(file.unwrap().file_name().to_str()?.strip_suffix(".npy")?.to_string()))
        .filter(|name| golden(&format!("gguf/{name}.gguf")).exists())
        .collect();
    names.sort_unstable();
    for architecture in ARCHITECTURES {
        assert!(names.iter().any(|name| name == architecture.name), "{} has no golden model", architecture.name);
    }
    names
}

/// Compares logits with those of transformers. `room` limits the tokens of the cache.
fn agrees(model: &str, expected: &Tensor, room: Option<usize>) {
    let file = Gguf::open(golden(&format!("gguf/{model}.gguf"))).unwrap();
    let decoder = Decoder::new(&file, room).unwrap_or_else(|e| panic!("{e}"));
    let decoder = decoder.with_cache(CacheType::F32);
    let (tokens, words) = (expected.dims()[0], expected.dims()[1]);
    let graph = decoder.graph(tokens, decoder.config().cache_rows(tokens)).unwrap();
    let params: BTreeMap<String, Tensor> = graph
        .named("param")
        .map(|(name, _)| (name.to_string(), decoder.param(name).expect("a parameter of the graph")))
        .collect();
    let states = graph.named("state").map(|(name, id)| {
        let dims = graph.ty(id).dims().unwrap();
        (name.to_string(), Tensor::from_f64(DType::F32, &dims, vec![0.0; dims.iter().product()]))
    });
    let given: BTreeMap<_, _> = params.into_iter().chain(states).collect();
    for last in [0, 8, 9, 20, tokens - 1] {
        let ids = (0..tokens as i64).map(|i| (i * i * 7 + i * 3 + 5) % words as i64);
        let inputs = [
            ("ids", Tensor::from_i64(DType::I64, &[tokens], ids)),
            ("at", Tensor::from_i64(DType::I64, &[], [0])),
            ("last", Tensor::from_i64(DType::I64, &[1], [last as i64])),
        ];
        let logits = run(&graph, &given, &inputs).remove(0);
        let error = difference(&logits, &expected.to_f64()[last * words..][..words]);
        assert!(error < 2e-5, "{model}: token {last} differs by {error}");
    }
}

#[test]
fn decoders_compute_what_transformers_computes() {
    models().iter().for_each(|model| agrees(model, &golden_logits(model), None));
}

#[test]
fn longrope_depends_on_the_room_of_the_cache() {
    agrees("phi3-long", &golden_logits("phi3-long-short"), Some(32));
}

fn golden_logits(architecture: &str) -> Tensor {
    npy::read(fs::read(golden(&format!("gguf/{architecture}.npy"))).unwrap()).unwrap()
}

#[test]
fn everything_that_stands_in_the_way_is_named_at_once() {
    let error = |writer: Writer| {
        let folder = folder(&[("m.gguf", writer.bytes())]);
        let path: PathBuf = folder.path().join("m.gguf");
        Decoder::new(&Gguf::open(path).unwrap(), None).expect_err("it is wrong").to_string()
    };
    let text = error(Writer::default().text("general.architecture", "mamba"));
    assert!(text.contains("`mamba` is not supported; supported are llama, qwen2"), "{text}");
    let writer = Writer::default().text("general.architecture", "llama").u32("llama.block_count", 1);
    let text = error(writer.clone().u32("llama.expert_count", 8).text("llama.rope.scaling.type", "ntk"));
    for wanted in
        ["llama.expert_used_count", "llama.rope.scaling.type", "llama.embedding_length", "llama.context_length"]
    {
        assert!(text.contains(wanted), "{wanted} is not in {text}");
    }
    let writer = writer.u32("llama.attention.head_count", 1);
    let sizes = ["embedding_length", "context_length", "feed_forward_length"];
    let writer = sizes.iter().fold(writer, |writer, name| writer.u32(&format!("llama.{name}"), 2));
    let writer = writer.tensor("token_embd.weight", &[2, 5], 0, vec![0; 40]).tensor("blk.0.ssm", &[1], 0, vec![0; 4]);
    let text = error(writer.tensor("output_norm.weight", &[3], 0, vec![0; 12]));
    for wanted in [
        "`output_norm.weight` should be f32[2]",
        "`blk.0.attn_q.weight` of type f32[2 2] is missing",
        "has no tensor `blk.0.ssm`",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in {text}");
    }
}
