//! MiniLM and SAM come out as the same kernels, whoever wrote their graphs: our builder, or torch's exporters in their many ways.
//!
//! The fixtures have no weights (`models/golden/make_minilm_onnx.py`, `make_sam_onnx.py`); plans need none.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
};

use eutectic::{
    Compiler, Cpu, CpuOptions, Graph,
    engine::{
        lowering::print,
        models::{
            BertOutput, Form,
            bert::{self, BertConfig},
            minilm,
            onnx::Model,
            sam::{self, Preset, SamConfig, VisionConfig},
        },
    },
};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/golden/onnx");

fn kernels(compiler: &Compiler, graph: &Graph) -> String {
    print::kernels(&compiler.plan(graph).unwrap_or_else(|e| panic!("{e}")).lowered.program)
}

/// Two layers on 128 tokens, as in the fixtures.
fn built() -> Graph {
    let config = BertConfig { layers: 2, ..minilm::config() };
    let graph = bert::graph("minilm", &config, Form::Composite, &[BertOutput::LastHiddenState]).expect("it is built");
    bert::bind(&graph, &config, 1, 128).expect("128 tokens are few enough")
}

#[test]
fn exports_of_minilm_come_out_as_the_kernels_of_our_builder() {
    // Two exporters, three opsets, two kinds of attention; torch refuses one of them.
    assert_same_kernels("minilm", 11, &built(), ids_from_the_start);
}

/// A block that attends in windows, one that attends to the whole image, and the neck. The old exporter looks relative positions up by
/// arithmetic on ranges; the new one stores what is looked up, as weights; our builder has a view.
#[test]
fn exports_of_sam_come_out_as_the_kernels_of_our_builder() {
    let preset = Preset::VitB.config();
    let config = SamConfig { vision: VisionConfig { layers: 2, global: vec![1], ..preset.vision }, ..preset };
    let built = sam::encoder(&config, Form::Composite, 1).expect("it is built");
    assert_same_kernels("sam", 4, &built, str::to_string);
    // The comparison sees what a kernel computes in all that hang on it.
    let compiler = Compiler::new(Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() })).expect("the rules load");
    let text = kernels(&compiler, &built);
    let (want, got) = (by_content(&text), by_content(&text.replacen("rsqrt", "sqrt", 1)));
    assert_eq!(
        want.iter().filter(|kernel| got.contains(kernel)).count(),
        1,
        "only what comes before the first norm stays"
    );
}

/// Eager or fused attention, by either exporter: the kernels are the same, in kind and extents, with one attention a layer. Not so where
/// semantics differ: scales that are roots of roots, rounded, and zeros for rows without keys, which eager attention does not give.
/// Maps are left out: T5's relative positions are as good before heads as after, and how the halves of Llama's rotated queries and keys
/// are bundled still depends on the spelling.
#[test]
fn every_spelling_of_an_architecture_comes_out_as_the_same_kernels() {
    const LAYERS: usize = 2;
    let compiler = Compiler::new(Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() })).expect("the rules load");
    let extents = |line: &str| line.split_once(" scale ").map_or(line, |(attention, _)| attention).to_string();
    let counts = |line: &&str| is_header(line) && !line.trim_start().starts_with("map");
    for name in ["bert", "llama", "vit", "t5"] {
        let mut all: Vec<(PathBuf, Vec<String>)> = Vec::new();
        for path in exports(&format!("spellings/{name}")) {
            let imported = Model::open(&path).and_then(|model| model.import(&BTreeMap::new()));
            let text = kernels(&compiler, &imported.unwrap_or_else(|e| panic!("{e}")).graph);
            let mut headers: Vec<String> = text.lines().filter(counts).map(extents).collect();
            headers.sort();
            let attention = headers.iter().filter(|line| line.contains("attention")).count();
            assert_eq!(attention, LAYERS, "attention in {}:\n{}", path.display(), headers.join("\n"));
            all.push((path, headers));
        }
        assert_eq!(all.len(), 4, "both exporters, both spellings of {name}");
        let (first, want) = &all[0];
        for (path, got) in &all[1..] {
            let (got, want) = (got.join("\n"), want.join("\n"));
            assert_eq!(got, want, "{} and {}", path.display(), first.display());
        }
    }
}

/// The exports in a folder of the fixtures.
fn exports(folder: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(format!("{FIXTURES}/{folder}")).expect("the fixtures");
    let mut files: Vec<_> = files.map(|f| f.expect("a file").path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "onnx"));
    files.sort();
    files
}

/// Whether a line of the print says what kind a kernel is, and its extents.
fn is_header(line: &str) -> bool {
    line.starts_with("  ") && !line.starts_with("   ")
}

/// Asserts that a graph and the exports in a folder come out as the same kernels; `part` says what of their print counts.
#[track_caller]
fn assert_same_kernels(folder: &str, count: usize, built: &Graph, part: impl Fn(&str) -> String) {
    let compiler = Compiler::new(Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() })).expect("the rules load");
    let kernels = |graph: &Graph| by_content(&part(&kernels(&compiler, graph)));
    let want = kernels(built);
    let files = exports(folder);
    let mut differing = Vec::new();
    for path in &files {
        let imported = Model::open(path).and_then(|model| model.import(&BTreeMap::new()));
        let got = kernels(&imported.unwrap_or_else(|e| panic!("{e}")).graph);
        if got != want {
            let only = |here: &[String], there: &[String]| {
                here.iter().filter(|k| !there.contains(k)).cloned().collect::<Vec<_>>().join("\n")
            };
            let (more, less) = (only(&got, &want), only(&want, &got));
            differing.push(format!("{}: only here\n{more}\nonly of the builder\n{less}", path.display()));
        }
    }
    assert_eq!(files.len(), count);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// Kernels, sorted, each with what it reads named by the kernel that made it: the same for programs that run them in another order.
/// Where weights lie is the exporter's choice ([in out] for a linear layer, which torch and our builder have as [out in]; tables of
/// relative positions as they are looked up): of those it is left open. Numbers are rounded: fused attention scales queries and keys
/// by f32 roots of what others scale the scores by.
fn by_content(kernels: &str) -> Vec<String> {
    let steps: Vec<(Vec<&str>, Vec<&str>)> = kernels
        .split("\n\n")
        .map(|step| {
            let mut lines = step.lines();
            (lines.next().unwrap_or_default().split(' ').collect(), lines.collect())
        })
        .collect();
    let stored = |line: &str| {
        let slot = line.trim_start().strip_prefix("store ")?.split(" at s").nth(1)?.split('[').next()?;
        slot.parse::<usize>().ok()
    };
    let mut made: BTreeMap<&str, String> = BTreeMap::new();
    let mut texts = Vec::new();
    for (buffers, lines) in &steps {
        let outputs: Vec<usize> = lines.iter().filter_map(|line| stored(line)).collect();
        let line = |line: &&str| {
            let Some((before, (slot, after))) =
                line.split_once(" s").and_then(|(before, rest)| Some((before, rest.split_once('[')?)))
            else {
                return line.split(' ').map(rounded).collect::<Vec<_>>().join(" ");
            };
            let buffer = slot.parse::<usize>().ok().and_then(|slot| buffers.get(slot));
            match buffer.map(|name| (name, made.get(name))) {
                Some((_, Some(maker))) => format!("{before} {maker}[{after}"),
                Some((name, None)) if name.starts_with("t") && stored(line).is_none() => format!("{before} weight"),
                Some((name, None)) if stored(line).is_none() => format!("{before} {name}[{after}"),
                _ => line.to_string(),
            }
        };
        let text = lines.iter().map(line).collect::<Vec<_>>().join("\n");
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        for (number, &slot) in outputs.iter().enumerate() {
            made.insert(buffers[slot], format!("{:016x}.{number}", hasher.finish()));
        }
        texts.push(text);
    }
    texts.sort();
    texts
}

/// A word, with six digits if it is a number with a point.
fn rounded(word: &str) -> String {
    let (number, ty) = word.split_once(':').unwrap_or((word, ""));
    match number.parse::<f64>() {
        Ok(value) if number.contains('.') => format!("{value:.5e}:{ty}"),
        _ => word.to_string(),
    }
}

/// ONNX's ids may count from the end, those of our builder do not: the range of the check is that of the builder's.
fn ids_from_the_start(kernels: &str) -> String {
    let line = |line: &str| match line.split_once("within:i64 -") {
        Some((before, range)) => {
            let (_, rest) = range.split_once("..").expect("a range");
            format!("{before}within:i64 0..{rest}")
        }
        None => line.to_string(),
    };
    kernels.lines().map(line).collect::<Vec<_>>().join("\n")
}
