//! Lists the kernels of a plan with their ops, predicted costs, and the rules that led to them.

use eutectic::{
    Compiler, Planned,
    report::{Numbers, Repeat, applied, stretches},
};
use pyo3::prelude::*;

/// A kernel. In Python, it is a dictionary with these fields.
#[derive(IntoPyObject)]
pub struct Kernel {
    /// The number of the kernel in each call of its block.
    numbers: Vec<String>,
    /// The op that the kernel is built around, its anchor.
    op: &'static str,
    /// The module path of the anchor.
    origin: String,
    /// The other ops of the kernel. Each has its module path, and the predicted increase of the time in seconds if the
    /// op's result were stored.
    fused: Vec<(&'static str, String, Option<f64>)>,
    /// The rules that led to the kernel, in order, with the first line of each rule's comment.
    rules: Vec<(String, String)>,
    /// The name of the method that computes the kernel.
    way: String,
    /// The number of results that the kernel stores.
    stores: usize,
    /// Whether the kernel runs only once, when parameters are loaded.
    load: bool,
    /// The predicted time in seconds.
    seconds: f64,
    /// The number of bytes that the kernel moves.
    bytes: f64,
    /// The number of floating-point operations.
    flops: f64,
}

/// Lists the kernels of a plan. Repeated layers count once.
pub fn kernels(compiler: &Compiler, planned: &Planned) -> Vec<Kernel> {
    let (blocks, numbers) = (compiler.describe(planned), Numbers::of(planned));
    let mut kernels = Vec::new();
    for Repeat { block, calls } in stretches(planned) {
        for (at, report) in blocks[block].iter().enumerate() {
            let mut rules: Vec<(String, String)> = Vec::new();
            for rule in applied(planned, block, at).iter().map(|applied| &applied.rule) {
                if !rules.iter().any(|(known, _)| **known == **rule) {
                    let doc = compiler.rules().get(rule).and_then(|rule| rule.doc.lines().next()).unwrap_or_default();
                    rules.push((rule.to_string(), doc.to_string()));
                }
            }
            kernels.push(Kernel {
                numbers: calls.clone().map(|call| numbers.get(call, at).to_string()).collect(),
                op: report.anchor.name(),
                origin: report.origin.path().to_string(),
                fused: report.fused.iter().map(|f| (f.op.name(), f.origin.path().to_string(), f.gain)).collect(),
                rules,
                way: report.candidates.first().map(|candidate| candidate.name.to_string()).unwrap_or_default(),
                stores: report.stores,
                load: report.load,
                seconds: report.cost.seconds,
                bytes: report.cost.bytes,
                flops: report.cost.flops,
            });
        }
    }
    kernels
}
