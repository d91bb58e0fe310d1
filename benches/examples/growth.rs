//! Measures how optimizing scales with the depth of an encoder: the number of e-nodes without outlining, and the time
//! with outlining.
//!
//! `cargo run --release -p eutectic-benches --example growth`

use std::time::{Duration, Instant};

use eutectic::{Compiler, Error, Graph, StageTimes};
use eutectic_benches::{bert_base, bert_base_primitive, compiler};

/// The number of rounds. The fastest one counts.
const ROUNDS: usize = 9;

fn main() -> Result<(), Error> {
    let (whole, outlined) = (compiler(false), compiler(true));
    println!("e-nodes without outlining, of an encoder in composites and in primitives");
    println!("{:>6} {:>10} {:>10} {:>10} {:>10}", "layers", "composite", "a layer", "primitive", "a layer");
    let mut before: Option<(usize, [usize; 2])> = None;
    for layers in [1, 2, 3, 4, 6, 8, 12, 16, 20, 24] {
        let sizes = [enodes(&whole, &bert_base(layers))?, enodes(&whole, &bert_base_primitive(layers))?];
        let a_layer = |form: usize| {
            before.map_or("".into(), |(n, s)| format!("{:.1}", (sizes[form] - s[form]) as f64 / (layers - n) as f64))
        };
        println!("{layers:>6} {:>10} {:>10} {:>10} {:>10}", sizes[0], a_layer(0), sizes[1], a_layer(1));
        before = Some((layers, sizes));
    }
    println!("\noptimizing on one thread, outlined, fastest of {ROUNDS} rounds, in ms");
    println!(
        "{:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}",
        "layers", "outline", "rewrite", "plan", "lower", "all", "measured"
    );
    let depths = [6, 12, 24, 48];
    let graphs = depths.map(bert_base);
    let mut best = depths.map(|_| (Duration::MAX, StageTimes::default()));
    // The depths are measured in alternation, so that a disturbance affects all of them.
    for _ in 0..ROUNDS {
        for (graph, best) in graphs.iter().zip(&mut best) {
            let start = Instant::now();
            let times = outlined.plan(graph)?.times;
            let took = start.elapsed();
            if took < best.0 {
                *best = (took, times);
            }
        }
    }
    let ms = |d: Duration| format!("{:.2}", d.as_secs_f64() * 1e3);
    for (layers, (took, t)) in depths.iter().zip(&best) {
        let [a, b, c, d, e, f] = [t.outline, t.rewrite, t.plan, t.lower, t.total(), *took].map(ms);
        println!("{layers:>6} {a:>8} {b:>8} {c:>8} {d:>8} {e:>8} {f:>9}");
    }
    println!("48 layers take {:.2} times the time of 12", best[3].0.as_secs_f64() / best[1].0.as_secs_f64());
    Ok(())
}

fn enodes(compiler: &Compiler, graph: &Graph) -> Result<usize, Error> {
    let planned = compiler.plan(graph)?;
    Ok(planned.rewritten.iter().filter_map(|r| r.phases.last()).map(|p| p.nodes).sum())
}
