//! MiniLM and SAM become the same kernels, whether our builder or one of torch's exporters wrote the graph.
//!
//! The fixtures have no weights (`models/golden/make_minilm_onnx.py`, `make_sam_onnx.py`), because plans do not need
//! them.

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

/// Returns a model of two layers and 128 tokens, as in the fixtures.
fn built() -> Graph {
    let config = BertConfig { layers: 2, ..minilm::config() };
    let graph = bert::graph("minilm", &config, Form::Composite, &[BertOutput::LastHiddenState]).expect("it is built");
    bert::bind(&graph, &config, 1, 128).expect("128 tokens are few enough")
}

#[test]
fn exports_of_minilm_come_out_as_the_kernels_of_our_builder() {
    // Two exporters, three opsets and two kinds of attention. torch refuses one combination.
    assert_same_kernels("minilm", 11, &built(), ids_from_the_start);
}

/// A block with attention to windows, one with attention to the whole image, and the neck. The old exporter computes
/// the indices of relative positions by arithmetic on ranges. The new one stores the indexed positions as weights. Our
/// builder uses a view.
#[test]
fn exports_of_sam_come_out_as_the_kernels_of_our_builder() {
    let preset = Preset::VitB.config();
    let config = SamConfig { vision: VisionConfig { layers: 2, global: vec![1], ..preset.vision }, ..preset };
    let built = sam::encoder(&config, Form::Composite, 1).expect("it is built");
    assert_same_kernels("sam", 4, &built, str::to_string);
    // The comparison includes the expressions that a kernel computes.
    let compiler = Compiler::new(Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() })).expect("the rules load");
    let text = kernels(&compiler, &built);
    let (want, got) = (by_content(&text), by_content(&text.replacen("rsqrt", "sqrt", 1)));
    assert_eq!(
        want.iter().filter(|kernel| got.contains(kernel)).count(),
        1,
        "only what comes before the first norm stays"
    );
}

/// Eager or fused attention, by either exporter, gives kernels of the same kinds and extents, with one attention for
/// each layer. Exceptions are spellings with other semantics: scales that are rounded roots of roots, and zeros for
/// rows without keys, which eager attention does not give. Index maps are not compared. T5's relative positions can
/// equally well precede or follow the heads. The bundling of the halves of Llama's rotated queries and keys still
/// depends on the spelling.
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

/// Returns the exports in a folder of the fixtures.
fn exports(folder: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(format!("{FIXTURES}/{folder}")).expect("the fixtures");
    let mut files: Vec<_> = files.map(|f| f.expect("a file").path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "onnx"));
    files.sort();
    files
}

/// Returns whether a line of the print states the kind and the extents of a kernel.
fn is_header(line: &str) -> bool {
    line.starts_with("  ") && !line.starts_with("   ")
}

/// Asserts that a graph and the exports in a folder give the same kernels. `part` selects the part of the print to
/// compare.
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

/// Returns the kernels, sorted. Operands are named by the kernel that computes them, so the order of execution does not
/// matter. The layout of weights is not compared, because exporters choose it: a linear layer is [in out] or [out in],
/// and the same holds for tables of relative positions. Numbers are rounded, because fused attention scales queries and
/// keys by `f32` roots of the scale.
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

/// Rounds a word to six digits if it is a number with a point.
fn rounded(word: &str) -> String {
    let (number, ty) = word.split_once(':').unwrap_or((word, ""));
    match number.parse::<f64>() {
        Ok(value) if number.contains('.') => format!("{value:.5e}:{ty}"),
        _ => word.to_string(),
    }
}

/// Replaces the range of an id check by that of our builder. ONNX's ids may count from the end; those of our builder
/// may not.
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
