//! MiniLM and SAM come out as the same kernels, whoever wrote their graphs: our builder, or torch's exporters in their many ways.
//!
//! The fixtures have no weights (`models/golden/make_minilm_onnx.py`, `make_sam_onnx.py`); plans need none.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use eutectic::{
    Compiler, Cpu, CpuOptions, Graph,
    engine::{
        lowering::print,
        models::{
            Form, Output,
            bert::{self, BertConfig},
            minilm,
            onnx::Model,
            sam::{self, Preset, SamConfig, VisionConfig},
            text,
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
    let graph = bert::graph("minilm", &config, Form::Composite, &[Output::LastHiddenState]).expect("it is built");
    text::bind(&graph, &config, 1, 128).expect("128 tokens are few enough")
}

#[test]
fn exports_of_minilm_come_out_as_the_kernels_of_our_builder() {
    // Two exporters, three opsets, two kinds of attention; torch refuses one of them.
    assert_same_kernels("minilm", 11, &built(), ids_from_the_start);
}

/// A block that attends in windows, and one that attends to the whole image. Exporters look relative positions up by index, where our
/// builder has a view, so that operands differ; kinds and extents of kernels do not. The neck is left out: of one export, Winograd's
/// form of its convolution is found to be cheaper by one part in a hundred.
#[test]
fn exports_of_sam_come_out_as_the_kernels_of_our_builder() {
    const OF_BLOCKS: usize = 19;
    let preset = Preset::VitB.config();
    let config = SamConfig { vision: VisionConfig { layers: 2, global: vec![1], ..preset.vision }, ..preset };
    let built = sam::encoder(&config, Form::Composite, 1).expect("it is built");
    let headers =
        |text: &str| text.lines().filter(|line| is_header(line)).take(OF_BLOCKS).collect::<Vec<_>>().join("\n");
    assert_same_kernels("sam", 4, &built, headers);
}

/// Eager or fused attention, by either exporter: the kernels are the same, in kind and extents, with one attention a layer. Not so where
/// semantics differ: scales that are roots of roots, rounded, and zeros for rows without keys, which eager attention does not give.
/// Maps are counted only: before heads or after is as good a place for T5's relative positions, which all layers share.
#[test]
fn every_spelling_of_an_architecture_comes_out_as_the_same_kernels() {
    const LAYERS: usize = 2;
    let compiler = Compiler::new(Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() })).expect("the rules load");
    let extents = |line: &str| match line.split_once(" scale ") {
        Some((attention, _)) => attention.to_string(),
        None if line.trim_start().starts_with("map") => "  map".to_string(),
        None => line.to_string(),
    };
    for name in ["bert", "llama", "vit", "t5"] {
        let mut all: Vec<(PathBuf, Vec<String>)> = Vec::new();
        for path in exports(&format!("spellings/{name}")) {
            let imported = Model::open(&path).and_then(|model| model.import(&BTreeMap::new()));
            let text = kernels(&compiler, &imported.unwrap_or_else(|e| panic!("{e}")).graph);
            let mut headers: Vec<String> = text.lines().filter(|line| is_header(line)).map(extents).collect();
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

/// Asserts that what a part of the print says is the same for a graph and for the exports in a folder.
#[track_caller]
fn assert_same_kernels(folder: &str, count: usize, built: &Graph, part: impl Fn(&str) -> String) {
    let compiler = Compiler::new(Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() })).expect("the rules load");
    let want = part(&weights_by_input(&kernels(&compiler, built)));
    let files = exports(folder);
    let mut differing = Vec::new();
    for path in &files {
        let imported = Model::open(path).and_then(|model| model.import(&BTreeMap::new()));
        let got = part(&kernels(&compiler, &imported.unwrap_or_else(|e| panic!("{e}")).graph));
        if let Some(difference) = difference(&got, &want) {
            differing.push(format!("{}: {difference}", path.display()));
        }
    }
    assert_eq!(files.len(), count);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// Exporters store the weights of a linear layer as [in out], torch and our builder as [out in]: a product reads them along the
/// other axis. Everything else of the text stays.
fn weights_by_input(kernels: &str) -> String {
    let mut extents = None;
    let line = |line: &str| {
        let domain = line.trim_start().strip_prefix("operand 1 over [").and_then(|rest| rest.strip_suffix(']'));
        let extents_of = domain.unwrap_or_default().split([',', '|']).map(str::trim).filter(|n| !n.is_empty());
        if let [outer @ .., k, n] = extents_of.collect::<Vec<_>>().as_slice() {
            extents = Some((outer.len(), k.to_string(), n.to_string()));
        }
        let Some((i, k, n)) = &extents else { return line.to_string() };
        let j = i + 1;
        line.replace(&format!("load:f32 s1[i{i}+{k}*i{j}]"), &format!("load:f32 s1[{n}*i{i}+i{j}]"))
    };
    kernels.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// ONNX's ids may count from the end, those of our builder do not: the choice between the two, `where id < 0`, is left out, and the
/// values of a kernel are numbered anew.
fn ids_from_the_start(kernels: &str) -> String {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut lines = Vec::new();
    for line in kernels.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [name, "=", "where:i64", _, _, id] => {
                let id = names[*id].clone();
                names.insert(name.to_string(), id);
            }
            [_, "=", "lt:bool", ..] | [_, "=", "add:i64", ..] => {}
            [_, "=", number] if number.ends_with(":i64") => {}
            [name, "=", ..] => {
                let kept: BTreeSet<&String> = names.values().collect();
                let new = format!("v{}", kept.len());
                names.insert(name.to_string(), new);
                lines.push(renamed(line, &names));
            }
            // A kernel begins.
            [] => {
                names.clear();
                lines.push(String::new());
            }
            _ => lines.push(renamed(line, &names)),
        }
    }
    lines.join("\n")
}

/// A line with other names of values, v and a number.
fn renamed(line: &str, names: &BTreeMap<String, String>) -> String {
    let parts = line.split_inclusive(|c: char| !c.is_alphanumeric());
    let rename = |part: &str| {
        let (name, end) = part.split_at(part.trim_end_matches(|c: char| !c.is_alphanumeric()).len());
        names.get(name).map_or(name, String::as_str).to_string() + end
    };
    parts.map(rename).collect()
}

/// The first line that differs by more than the rounding of a number: fused attention scales queries and keys by f32 roots of what
/// others scale the scores by.
fn difference(got: &str, want: &str) -> Option<String> {
    if got.lines().count() != want.lines().count() {
        return Some(format!("{} lines, not {}", got.lines().count(), want.lines().count()));
    }
    let close = |a: &str, b: &str| match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= 4.0 * f64::from(f32::EPSILON) * b.abs(),
        _ => false,
    };
    let same = |a: &str, b: &str| {
        let (a, b): (Vec<_>, Vec<_>) = (a.split(' ').collect(), b.split(' ').collect());
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a == b || close(a, b))
    };
    let (at, (a, b)) = got.lines().zip(want.lines()).enumerate().find(|(_, (a, b))| !same(a, b))?;
    Some(format!("line {at}: {a:?}, not {b:?}"))
}
