//! Reports on a compiled program: the size of its graph, its kernels with their fused ops, and the rules that fired.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use eutectic::{
    Backend, Compiler, Graph, NodeId, Planned,
    engine::{
        backend::costs::{MeasuredBy, Provenance},
        ir::Class,
        lowering::report::{FusedOp, KernelReport},
    },
    report::{Numbers, Repeat, stretches},
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::table::{Table, bytes, count, faint, seconds, several, table, thousands};

/// The size of a graph before rewriting.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Size {
    /// The number of nodes, including constants, inputs and parameters.
    pub nodes: usize,
    /// The number of parameters.
    pub params: usize,
    /// The number of elements of all parameters.
    pub weights: usize,
    /// The size of all parameters in bytes.
    pub weight_bytes: usize,
    /// The floating-point operations of a run in which each op is computed once.
    pub flops: f64,
    /// The total size in bytes of the results of all ops.
    pub intermediate_bytes: usize,
}

impl Size {
    /// Measures a graph in which each symbol has a number.
    pub fn of(graph: &Graph) -> Size {
        let params: Vec<NodeId> = graph.named("param").map(|(_, id)| id).collect();
        let of_params = |f: fn(&eutectic::Type) -> usize| params.iter().map(|id| f(graph.ty(*id))).sum();
        let ops = || graph.nodes().filter(|(_, n)| !matches!(n.op.def().class, Class::Leaf(_)));
        let flops = ops().map(|(_, n)| {
            let operands: Vec<_> = n.operands.iter().map(|id| graph.ty(*id)).collect();
            n.op.flops(&n.attrs, &operands, &n.ty)
        });
        Size {
            nodes: graph.len(),
            params: params.len(),
            weights: of_params(eutectic::Type::count),
            weight_bytes: of_params(eutectic::Type::bytes),
            flops: flops.sum(),
            intermediate_bytes: ops().map(|(_, n)| n.ty.bytes()).sum(),
        }
    }

    /// Describes the size in one line.
    pub fn describe(&self) -> String {
        format!(
            "{} nodes, {} parameters ({} numbers, {}), {}flop a run",
            thousands(self.nodes),
            thousands(self.params),
            count(self.weights as f64),
            bytes(self.weight_bytes as f64),
            count(self.flops),
        )
    }
}

/// Returns tables of a program's kernels with their titles. Equal layers in sequence share a table.
pub fn kernels(compiler: &Compiler, planned: &Planned) -> Vec<(String, Table)> {
    let blocks = compiler.describe(planned);
    let numbers = Numbers::of(planned);
    let mut tables = Vec::new();
    for Repeat { block, calls } in stretches(planned) {
        let kernels = &blocks[block];
        let run = kernels.iter().filter(|k| !k.load).count();
        let total: f64 = kernels.iter().filter(|k| !k.load).map(|k| k.cost.seconds).sum();
        let repeated = if calls.len() > 1 { format!(", {} times", calls.len()) } else { String::new() };
        let title = format!("{}{repeated}: {}, predicted {}", place(kernels), several(run, "kernel"), seconds(total));
        let mut table = table(&[">#", "kernel", "where", "fused into it", ">predicted", "?>bytes", "?>flop"]);
        for (at, kernel) in kernels.iter().enumerate() {
            table.add_row([
                numbers.get(calls.start, at).to_string(),
                computed(kernel),
                kernel.origin.to_string(),
                fused(kernel),
                seconds(kernel.cost.seconds),
                bytes(kernel.cost.bytes),
                count(kernel.cost.flops),
            ]);
        }
        tables.push((title, table));
    }
    tables
}

/// Returns the module that contains all kernels, or a list of modules.
fn place(kernels: &[KernelReport]) -> String {
    let paths: Vec<Vec<&str>> =
        kernels.iter().filter(|k| !k.load).map(|k| k.origin.path().split('.').collect()).collect();
    let shared = |common: Vec<_>, path: &Vec<_>| {
        common.into_iter().zip(path).take_while(|(a, b)| a == *b).map(|(a, _)| a).collect()
    };
    let common: Vec<&str> = paths.iter().fold(paths.first().cloned().unwrap_or_default(), shared);
    let mut parts: Vec<&str> = paths.iter().filter_map(|path| path.first().copied()).collect();
    parts.dedup();
    let name = if common.is_empty() { parts.join(", ") } else { common.join(".") };
    if name.is_empty() { "the program".into() } else { name }
}

/// Returns the anchor of a kernel, and the name of the method that computes it.
fn computed(kernel: &KernelReport) -> String {
    let way = kernel.candidates.first().map(|first| faint(format!("by {}", first.name)));
    [Some(kernel.anchor.to_string()), way].into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// Returns the ops of a kernel in addition to its anchor: pointwise ops with the gain of fusing them, then views.
fn fused(kernel: &KernelReport) -> String {
    let (ops, views): (Vec<&FusedOp>, Vec<&FusedOp>) =
        kernel.fused.iter().partition(|f| !matches!(f.op.def().class, Class::View(_) | Class::Leaf(_)));
    let mut lines = vec![counted(&ops)];
    let best = ops.iter().filter_map(|f| Some((f.gain?, f.op))).max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((gain, op)) = best.filter(|(gain, _)| *gain > 0.0) {
        lines.push(faint(format!("storing {op} would cost {} more", seconds(gain))));
    }
    let mut views: Vec<&str> = views.iter().map(|f| f.op.name()).collect();
    views.sort_unstable();
    views.dedup();
    if !views.is_empty() {
        lines.push(faint(format!("through {}", views.join(", "))));
    }
    if kernel.stores > 1 {
        lines.push(faint(format!("stores {} results", kernel.stores)));
    }
    lines.retain(|line| !line.is_empty());
    lines.join("\n")
}

/// Returns ops as in `add x 3, mul`: each op once with its count, in the order of first occurrence.
fn counted(ops: &[&FusedOp]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for name in ops.iter().map(|f| f.op.name()) {
        match counts.iter_mut().find(|(n, _)| *n == name) {
            Some((_, n)) => *n += 1,
            None => counts.push((name, 1)),
        }
    }
    let shown = counts.into_iter().map(|(name, n)| if n == 1 { name.into() } else { format!("{name} x {n}") });
    shown.collect::<Vec<String>>().join(", ")
}

/// Returns the kernels of a program as JSON.
pub fn kernels_json(compiler: &Compiler, planned: &Planned) -> Value {
    let blocks = compiler.describe(planned);
    let numbers = Numbers::of(planned);
    let kernel = |calls: &Range<usize>, at: usize, k: &KernelReport| {
        let fused: Vec<_> =
            k.fused.iter().map(|f| json!({ "op": f.op.name(), "origin": f.origin.path(), "gain_s": f.gain })).collect();
        json!({
            "numbers": calls.clone().map(|call| numbers.get(call, at)).collect::<Vec<_>>(),
            "anchor": k.anchor.name(), "origin": k.origin.path(), "fused": fused, "stores": k.stores, "load": k.load,
            "candidates": candidates_json(k), "predicted_s": k.cost.seconds, "bytes": k.cost.bytes, "flops": k.cost.flops,
        })
    };
    let stretch = |Repeat { block, calls }: Repeat| {
        let kernels = blocks[block].iter().enumerate().map(|(at, k)| kernel(&calls, at, k));
        json!({ "times": calls.len(), "kernels": kernels.collect::<Vec<_>>() })
    };
    stretches(planned).into_iter().map(stretch).collect()
}

/// Returns the methods that can compute a kernel as JSON. The chosen method comes first.
pub fn candidates_json(kernel: &KernelReport) -> Vec<Value> {
    kernel.candidates.iter().map(|c| json!({ "name": c.name, "predicted_s": c.cost.seconds })).collect()
}

/// The effect of a rule in the compilation of a program.
pub struct RuleReport {
    /// The name of the rule.
    pub name: String,
    /// The first line of the rule's comment.
    pub doc: String,
    /// The number of matches in all blocks.
    pub matches: usize,
    /// The number of matches that were applied. A match that was found before is not applied a second time.
    pub applications: usize,
    /// The number of applications that changed the e-graph.
    pub changes: usize,
    /// The number of nodes of the program at which the rule reached its limit of applications.
    pub held: usize,
    /// The time that searching for matches and applying them took.
    pub time: Duration,
}

/// Returns the rules that changed the e-graph, the most active first.
pub fn rules(compiler: &Compiler, planned: &Planned) -> Vec<RuleReport> {
    let mut by_name: BTreeMap<&str, RuleReport> = BTreeMap::new();
    for statistics in planned.rewritten.iter().flat_map(|r| &r.statistics) {
        let report = by_name.entry(&statistics.name).or_insert_with(|| {
            let doc = compiler.rules().get(&statistics.name).map_or("", |rule| rule.doc.as_str());
            RuleReport {
                name: statistics.name.to_string(),
                doc: doc.lines().next().unwrap_or_default().to_string(),
                matches: 0,
                applications: 0,
                changes: 0,
                held: 0,
                time: Duration::ZERO,
            }
        });
        report.matches += statistics.matches;
        report.applications += statistics.applications;
        report.changes += statistics.changes;
        report.held += statistics.held;
        report.time += statistics.time;
    }
    let mut fired: Vec<_> = by_name.into_values().filter(|r| r.changes > 0).collect();
    fired.sort_by(|a, b| b.changes.cmp(&a.changes).then_with(|| a.name.cmp(&b.name)));
    fired
}

/// Describes the source of a backend's costs: built-in, or measured.
pub fn origin_of_costs(backend: &dyn Backend) -> String {
    match backend.costs().and_then(|sheet| sheet.provenance) {
        Some(Provenance { date, kernels, by: MeasuredBy::Tune, .. }) => {
            format!("tuned on {date} to {}", several(kernels, "kernel"))
        }
        Some(Provenance { date, kernels, by: MeasuredBy::Calibration, .. }) => {
            format!("calibrated on {date} by {}; `eutectic tune` measures more", several(kernels, "kernel"))
        }
        None => "default; `eutectic tune` measures this device".into(),
    }
}
