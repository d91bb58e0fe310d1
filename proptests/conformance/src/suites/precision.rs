//! Tests programs whose products and attention may round their operands. The error bounds are those of the rounded
//! computation.

use eutectic::{
    Compiler, Graph, RuleSet,
    engine::rewrites::{Choice, Precision},
    packs,
};
use eutectic_checker::run::check;
use eutectic_ir::{lang::Source, text::parse};

use crate::{
    device::Device,
    suite::{Check, checks},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![tf32, f16, bf16];

/// The names and the texts of programs.
const PROGRAMS: &[(&str, &str)] = &[
    (
        "layer",
        "(input x f32[40 64]) (param w f32[64 128]) (param b f32[128]) (param v f32[128 64]) (param g f32[64]) \
         (output y (layernorm (add x (matmul (act (add (matmul x w) b) :kind gelu-erf) v)) g g :eps 1e-5))",
    ),
    (
        "attention with a bias",
        "(input q f32[2 40 16]) (input k f32[2 72 16]) (input v f32[2 72 16]) (input c f32[40 72]) \
         (output y (attention q k v c :scale 0.25))",
    ),
    (
        "causal attention of grouped heads",
        "(input q f32[4 33 16]) (input k f32[2 33 16]) (input v f32[2 33 16]) (output y (sdpa q k v :scale 0.25 :mask causal))",
    ),
    ("convolution", "(input x f32[1 8 9 11]) (param w f32[16 8 3 3]) (output y (conv x w :before [1 1] :after [1 1]))"),
    (
        "one row",
        "(input x f32[1 256]) (param w f32[256 96]) (param v f32[256 96]) \
         (output y (mul (act (matmul x w) :kind silu) (matmul x v)))",
    ),
];

fn graph(name: &str, text: &str) -> Graph {
    let source = Source::new(name, format!("(graph \"{name}\" {text})"));
    parse(&source).unwrap_or_else(|e| panic!("{name}: {e:?}"))
}

fn rounded(device: &Device, precision: Precision) {
    let backend = device.backend();
    let all = packs(&**backend).unwrap_or_else(|e| panic!("{e}"));
    let rules = |choice: &Choice| -> RuleSet { all.choose(choice).unwrap_or_else(|e| panic!("{e}")) };
    let asked = rules(&Choice { precision, ..Choice::default() });
    assert!(asked.iter().any(|rule| rule.pack() == precision.name()), "the pack of the precision has rules");
    let other = |rule: &str| Precision::of_pack(rule).is_some_and(|other| other != precision);
    assert!(!asked.iter().any(|rule| other(rule.pack())), "rules of another precision");
    let compiler = Compiler::from_arc(backend.clone(), asked);
    for (name, text) in PROGRAMS {
        let graph = graph(name, text);
        for seed in 0..3 {
            match check(&compiler, &graph, seed).unwrap_or_else(|e| panic!("{name}: {e}")) {
                Ok(()) => device.judge(),
                Err(differences) => panic!("{name}, seed {seed}: {:?}", differences[0]),
            }
        }
    }
}

fn tf32(device: &Device) {
    rounded(device, Precision::Tf32);
}

fn f16(device: &Device) {
    rounded(device, Precision::F16);
}

fn bf16(device: &Device) {
    rounded(device, Precision::Bf16);
}
