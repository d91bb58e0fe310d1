//! SAM's and SAM 3's graphs, compiled and run, compared with transformers (`models/golden/make_sam.py`).

use std::path::PathBuf;

use eutectic::{
    Compiler, Cpu, CpuOptions, DType, Graph, Tensor,
    engine::models::{
        Form, Weights,
        sam::{self, IGNORED_FOR_EMBEDDINGS, IGNORED_FOR_MASKS, Label, Prompts, SamConfig},
        sam3::{self, Sam3Config},
    },
};

/// The largest allowed difference, relative to the largest value.
const TOLERANCE: f64 = 1e-4;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/golden/sam").join(name)
}

fn compiler() -> Compiler {
    Compiler::new(Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() })).expect("the rules load")
}

/// Evaluates a graph with weights from a file.
fn run(
    compiler: &Compiler,
    graph: &Graph,
    weights: &Weights,
    ignored: &[&str],
    given: impl Fn(&str) -> Option<Tensor>,
) -> Vec<Tensor> {
    let params = graph.named("param").map(|(name, id)| (name, graph.ty(id)));
    let bound = weights.bind(params, ignored).unwrap_or_else(|e| panic!("{e}"));
    let mut session = compiler.compile(graph).unwrap_or_else(|e| panic!("{e}"));
    session.load_named(|name| bound.tensors.get(name).cloned()).expect("every parameter has a value");
    session.run_named(given).unwrap_or_else(|e| panic!("{e}"))
}

#[track_caller]
fn assert_close(what: &str, got: &Tensor, want: &Tensor) {
    assert_eq!(got.ty(), want.ty(), "{what}");
    let (got, want) = (got.to_f64(), want.to_f64());
    let largest = want.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    // A NaN fails this comparison.
    let close = got.iter().zip(&want).all(|(a, b)| (a - b).abs() <= TOLERANCE * largest);
    let worst = got.iter().zip(&want).map(|(a, b)| (a - b).abs() / largest).fold(0.0, f64::max);
    assert!(close, "{what}: {worst:e}");
}

#[test]
fn embeddings_are_those_of_transformers() {
    let compiler = compiler();
    for name in ["padded", "resampled", "oblong", "model"] {
        let mut config = SamConfig::open(golden(name).join("config.json")).expect("the fixture");
        let weights = sam::open_weights(golden(name).join("model.safetensors"), &mut config).expect("the fixture");
        let expected = Weights::open(golden(name).join("expected.safetensors")).expect("the fixture");
        for form in [Form::Composite, Form::Primitive] {
            let graph = sam::encoder(&config, form, 2).expect("the graph");
            let results = run(&compiler, &graph, &weights, IGNORED_FOR_EMBEDDINGS, |name| expected.get(name).cloned());
            assert_close(&format!("{name}, {form:?}"), &results[0], expected.get("embedding").expect("an embedding"));
        }
    }
}

#[test]
fn points_give_the_masks_of_transformers() {
    let folder = golden("model");
    let mut config = SamConfig::open(folder.join("config.json")).expect("the fixture");
    let weights = sam::open_weights(folder.join("original.pt"), &mut config).expect("the fixture");
    let expected = Weights::open(folder.join("expected.safetensors")).expect("the fixture");
    let value = |name: &str| expected.get(name).unwrap_or_else(|| panic!("no {name}")).clone();
    // Each prompt ends with padding instead of a point.
    let (points, labels) = (value("points").to_f64(), value("labels").to_i64());
    let points = points.chunks(6).flat_map(|p| [p, &[0.0, 0.0]].concat());
    let labels = labels.chunks(3).flat_map(|l| [l, &[Label::None as i64]].concat());
    let points = Tensor::from_f64(DType::F32, &[2, 2, 4, 2], points);
    let labels = Tensor::from_i64(DType::I64, &[2, 2, 4], labels);
    let graph = sam::segmenter(&config, Form::Composite, 2, Prompts { number: 2, points: 4, prior: false });
    let results = run(&compiler(), &graph.expect("the graph"), &weights, IGNORED_FOR_MASKS, |name| match name {
        "points" => Some(points.clone()),
        "labels" => Some(labels.clone()),
        name => Some(value(name)),
    });
    assert_close("embedding", &results[0], &value("embedding"));
    for (result, name) in [(&results[1], "masks"), (&results[2], "scores")] {
        // The first mask of each prompt is the one for unambiguous prompts.
        let size: usize = result.dims()[3..].iter().product();
        let (one, three): (Vec<_>, Vec<_>) =
            result.to_f64().chunks(4 * size).map(|p| (p[..size].to_vec(), p[size..].to_vec())).unzip();
        for (kind, values) in [("one", one.concat()), ("three", three.concat())] {
            let want = value(&format!("{kind}.{name}"));
            assert_close(&format!("{kind}.{name}"), &Tensor::from_f64(DType::F32, want.dims(), values), &want);
        }
    }
}

#[test]
fn sam_3_is_that_of_transformers() {
    let compiler = compiler();
    for (name, file) in [("sam3", "model"), ("sam3", "original"), ("sam3-padded", "model")] {
        let folder = golden(name);
        let config = Sam3Config::open(folder.join("config.json")).expect("the fixture");
        let weights = sam3::open_weights(folder.join(format!("{file}.safetensors")), &config).expect("the fixture");
        let expected = Weights::open(folder.join("expected.safetensors")).expect("the fixture");
        for form in [Form::Composite, Form::Primitive] {
            let graph = sam3::encoder(&config, form, 2).expect("the graph");
            let results = run(&compiler, &graph, &weights, sam3::IGNORED, |name| expected.get(name).cloned());
            for ((output, _), result) in graph.outputs().iter().zip(&results) {
                let what = format!("{name}, {file}, {form:?}: {output}");
                let want = expected.get(output).expect("an expected result");
                match output.starts_with("position") {
                    true => assert_close(&what, &unfactored(result), want),
                    false => assert_close(&what, result, want),
                }
            }
        }
    }
}

/// Returns the position of each pixel [D n n] from those of rows or columns [D/2 n].
fn unfactored(table: &Tensor) -> Tensor {
    let &[half, n] = table.dims() else { panic!("{}", table.ty()) };
    let values = table.to_f64();
    let value = |at: usize| {
        let (channel, row, column) = (at / (n * n), at / n % n, at % n);
        values[channel % half * n + if channel < half { row } else { column }]
    };
    Tensor::from_f64(DType::F32, &[2 * half, n, n], (0..2 * half * n * n).map(value))
}

#[test]
fn the_neck_of_sam_3_takes_tokens_and_leaves_branches_out() {
    let folder = golden("sam3");
    let mut config = Sam3Config::open(folder.join("config.json")).expect("the fixture");
    let weights = sam3::open_weights(folder.join("original.safetensors"), &config).expect("the fixture");
    let expected = Weights::open(folder.join("expected.safetensors")).expect("the fixture");
    config.branches.retain(|(number, _)| [1, 3].contains(number));
    let graph = sam3::neck(&config, Form::Composite, 2).expect("the graph");
    let names: Vec<_> = graph.outputs().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["feature.1", "position.1", "feature.3", "position.3"]);
    let ignored = [sam3::IGNORED_FOR_NECK, &["neck.fpn_layers.0.*", "neck.fpn_layers.2.*"]].concat();
    let results = run(&compiler(), &graph, &weights, &ignored, |name| expected.get(name).cloned());
    for at in [0, 2] {
        assert_close(names[at], &results[at], expected.get(names[at]).expect("an expected result"));
    }
}
