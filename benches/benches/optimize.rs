//! Measures the time of optimizing on one thread: rules, plan search and lowering. Weights are not packed, and nothing
//! is run.

use std::{hint::black_box, time::Duration};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use eutectic::Graph;
use eutectic_benches::{bert_base, bert_base_primitive, compiler, minilm};

fn measure(c: &mut Criterion, group: &str, cases: &[(&str, Graph)], outline: &[bool]) {
    let mut group = c.benchmark_group(group);
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    for (name, graph) in cases {
        for &outline in outline {
            let compiler = compiler(outline);
            let id = BenchmarkId::new(*name, if outline { "outlined" } else { "whole" });
            let plan = || compiler.plan(black_box(graph)).expect("an encoder can be planned");
            group.bench_function(id, |b| b.iter(plan));
        }
    }
    group.finish();
}

/// Measures encoders with outlining.
fn models(c: &mut Criterion) {
    let cases = [
        ("minilm", minilm()),
        ("bert-base", bert_base(12)),
        ("bert-base from primitives", bert_base_primitive(12)),
        ("48 layers", bert_base(48)),
    ];
    measure(c, "models", &cases, &[true]);
}

/// Measures the gain of outlining for increasing numbers of layers.
fn outlining(c: &mut Criterion) {
    let cases = [("2 layers", bert_base(2)), ("4 layers", bert_base(4)), ("8 layers", bert_base(8))];
    measure(c, "outlining", &cases, &[true, false]);
}

criterion_group!(benches, models, outlining);
criterion_main!(benches);
