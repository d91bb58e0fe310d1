//! The other packs restore every composite op that the `decompose` pack expands, from the ops that kernels take.

use eutectic::{Compiler, Cpu, CpuOptions, DType, Graph, RuleSet};
use eutectic_checker::{
    instance::Instance,
    palette::{Drawn, Palette},
};
use eutectic_ir::{Attr, Class, graph::Node, lang::Bindings, text};
use eutectic_rewrites::{Choice, Options, Phase, Probe, Sides, optimize};

/// The number of instances of each rule.
const INSTANCES: usize = 6;

/// The rules whose composite op is not restored, each with the reason.
const LOST: &[(&str, &str)] = &[
    ("decompose/attention-block", PARTS),
    ("decompose/attention-block-mask", PARTS),
    ("decompose/average-pool", WINDOWS),
    ("decompose/average-pool-inside", WINDOWS),
    ("decompose/batch-norm", "of an axis before the last, transposes are left that have moved elsewhere"),
    ("decompose/bernoulli", RANDOM),
    ("decompose/conv", WINDOWS),
    ("decompose/conv-bias", WINDOWS),
    ("decompose/conv-few-channels", WINDOWS),
    ("decompose/conv-groups", WINDOWS),
    ("decompose/conv-transpose", WINDOWS),
    ("decompose/conv-transpose-apart", WINDOWS),
    ("decompose/dropout", RANDOM),
    ("decompose/encoder-layer", PARTS),
    ("decompose/encoder-layer-mask", PARTS),
    ("decompose/group-norm", "its pattern would be of eighteen ops, and exporters keep it whole"),
    ("decompose/linear", PRODUCT),
    ("decompose/linear-act", PRODUCT),
    ("decompose/log-softmax", ROWS),
    ("decompose/max-pool", WINDOWS),
    ("decompose/max-pool-by-axes", WINDOWS),
    ("decompose/mean", "one that keeps no axis is a reshape of one that does"),
    ("decompose/mha", PARTS),
    ("decompose/mha-mask", PARTS),
    ("decompose/random-bits", RANDOM),
    ("decompose/random-normal", RANDOM),
    ("decompose/random-uniform-bf16", RANDOM),
    ("decompose/random-uniform-f16", RANDOM),
    ("decompose/random-uniform-f32", RANDOM),
    ("decompose/random-uniform-f64", RANDOM),
    ("decompose/sdpa", PARTS),
    ("decompose/sdpa-additive", PARTS),
    ("decompose/sdpa-causal", PARTS),
    ("decompose/sdpa-grouped", PARTS),
    ("decompose/sdpa-grouped-mask", PARTS),
    ("decompose/sdpa-keep", PARTS),
    ("decompose/sdpa-window", PARTS),
    ("decompose/short-batch-norm", SHORT),
    ("decompose/short-group-norm", SHORT),
    ("decompose/short-layernorm", SHORT),
    ("decompose/short-mean", SHORT),
    ("decompose/short-norm-gain[layernorm]", SHORT),
    ("decompose/short-norm-gain[rmsnorm]", SHORT),
    ("decompose/short-random-normal", SHORT),
    ("decompose/short-rows[log-softmax]", SHORT),
    ("decompose/short-rows[softmax]", SHORT),
    ("decompose/softmax", ROWS),
];
const PARTS: &str =
    "no backend has a kernel for it beyond those for attention and linear layers, which are found in it";
const RANDOM: &str = "no backend has a kernel for it: random numbers are arithmetic";
const SHORT: &str = "of 16-bit numbers it is found in f32, between casts";
const PRODUCT: &str = "a linear layer without a bias is a product, and every backend has a kernel for that";
const WINDOWS: &str =
    "nobody writes convolutions as products of windows, and no backend has a kernel for what is written so";
const ROWS: &str = "along an axis before the last it is one of rows, between transposes that have moved elsewhere";

fn instances(probe: &Probe) -> Vec<Sides> {
    let palette = Palette {
        extents: vec![3, 4, 5, 6, 7, 8, 9],
        distinct: false,
        zero: false,
        literals: Vec::new(),
        ends: Vec::new(),
        only_ends: false,
        one: None,
        dtypes: vec![DType::F32, DType::I32, DType::Bool],
        relations_first: true,
        ops: Vec::new(),
        words: Vec::new(),
    };
    let of_seed = |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let instance = Instance::draw(probe.rule(), &mut Drawn::from(&palette, &mut random), Bindings::default())?;
        let sides = instance.sides(probe, 0).ok()?;
        // With axes of extent 1, other rules simplify the ops of the definition, and the op is not recognized.
        let wide = |node: &Node| node.ty.dims().is_some_and(|dims| dims.iter().all(|d| *d > 1));
        let is_wide = sides.written.nodes().all(|(_, node)| wide(node));
        is_wide.then_some(sides)
    };
    (0..4000).filter_map(of_seed).take(INSTANCES).collect()
}

fn is_composite(node: &Node) -> bool {
    matches!(node.op.def().class, Class::Composite)
}

/// Returns whether two attributes are equal. Numbers may differ by the rounding of their computation.
fn alike(a: &Attr, b: &Attr) -> bool {
    match (a.float(), b.float()) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-5 * a.abs().max(b.abs()),
        _ => a == b,
    }
}

#[test]
fn composites_are_found_again() {
    let embedded = RuleSet::embedded().unwrap();
    let apart = Choice { only: vec!["decompose/*".into()], ..Choice::default() };
    let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
    let apart = Compiler::from_backend(cpu, embedded.choose(&apart).unwrap());
    let all = embedded.choose(&Choice::default()).unwrap();
    let (mut lost, mut tried) = (Vec::new(), 0);
    for probe in embedded.probes().filter(|p| p.rule().name.starts_with("decompose/")) {
        let rule = probe.rule().name.clone();
        let mut missing: Option<(Graph, Graph)> = None;
        for sides in instances(&probe) {
            let written = sides.left;
            let root = written.node(written.outputs()[0].1);
            if !is_composite(root) {
                continue;
            }
            let primitive = apart.after_phase(&written, Phase::Main).unwrap().remove(0);
            assert!(primitive.nodes().all(|(_, node)| !is_composite(node)), "{rule}");
            tried += 1;
            let classes = optimize(&primitive, &all, &Options::default()).unwrap().classes;
            let again = classes.classes[classes.outputs[0]]
                .nodes
                .iter()
                .any(|n| n.op == root.op && n.attrs.iter().zip(root.attrs.iter()).all(|(a, b)| alike(a, b)));
            if !again {
                missing.get_or_insert((written, primitive));
            }
        }
        if let Some((written, primitive)) = missing {
            let print = |g: &Graph| text::print(g, text::Style { types: true });
            lost.push((rule.to_string(), format!("{}\n{}", print(&written), print(&primitive))));
        }
    }
    assert!(tried > 60, "{tried}");
    let names: Vec<&str> = lost.iter().map(|(rule, _)| rule.as_str()).collect();
    let expected: Vec<&str> = LOST.iter().map(|(rule, _)| *rule).collect();
    let text: String =
        lost.iter().filter(|l| !expected.contains(&l.0.as_str())).map(|l| format!("{}\n{}\n", l.0, l.1)).collect();
    assert_eq!(names, expected, "\n{text}");
}
