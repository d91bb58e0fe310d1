//! Finds sets of rules that do not terminate together because each of them rewrites the result of another.

use std::{collections::BTreeSet, sync::Arc};

use eutectic_ir::{Attr, Class, Graph, GraphError, NodeId, Tensor, Type, lang::Bindings, ops::Leaf};
use rayon::prelude::*;

use crate::{
    engine::{EngineLimits, RuleStatistics, Stop},
    instance::Probe,
    lint::Lint,
    optimize::{Options, merged, saturate},
    rule::Rule,
    ruleset::RuleSet,
    sample::{Generic, draw},
};

/// The number of instances of each rule.
const INSTANCES: usize = 2;
/// The maximal number of draws.
const DRAWS: u64 = 60;
/// The limits for a graph of one instance. Terminating rules reach about a tenth of them.
const LIMITS: EngineLimits = EngineLimits { applications: usize::MAX, nodes: 120, iterations: 40, matches: 600 };
/// The maximal number of rules that a finding names, those with the most matches.
const NAMED: usize = 4;

/// Runs all rules on instances of the left side of each `chosen` rule, with unchanged and with scaled operands. If a
/// scale almost cancels a factor such as √n, rounding may make rules cycle. Returns one finding for each set of rules
/// that does not terminate.
pub fn circles(rules: &RuleSet, chosen: impl Fn(&Rule) -> bool) -> Vec<Lint> {
    let probes: Vec<Probe> = rules.probes().filter(|probe| chosen(probe.rule())).collect();
    let mut seen: BTreeSet<Vec<Arc<str>>> = BTreeSet::new();
    let found: Vec<_> = probes.par_iter().filter_map(|probe| Some((probe, circle(probe, rules)?))).collect();
    let mut lints = Vec::new();
    for (probe, (stop, busiest)) in found {
        let mut names: Vec<Arc<str>> = busiest.iter().map(|s| s.name.clone()).collect();
        let shown: Vec<String> = busiest.iter().map(|s| format!("{} ({} matches)", s.name, s.matches)).collect();
        names.sort();
        if seen.insert(names) {
            let message = format!(
                "these rules do not terminate on this rule's left side ({stop}): {}; let one of them make a form that \
                 the others do not match, or add (once)",
                shown.join(", ")
            );
            lints.push(Lint::of(probe.rule(), message));
        }
    }
    lints
}

/// Returns the limit that stops the rules on an instance, and the rules with the most matches. Returns `None` if the
/// rules terminate.
fn circle(probe: &Probe, rules: &RuleSet) -> Option<(&'static str, Vec<RuleStatistics>)> {
    let instance = |seed| {
        let sample = draw(probe.rule(), &mut Generic::new(seed), Bindings::default())?;
        probe.sides(probe.rule(), &[sample]).ok()
    };
    let instances = (0..DRAWS).filter_map(instance).take(INSTANCES);
    let graphs = instances.flat_map(|sides| [scaled(&sides.written).ok(), Some(sides.written)]).flatten();
    graphs.into_iter().find_map(|graph| {
        let (engine, _, phases) = saturate(&graph, rules, &Options { limits: LIMITS, ..Options::default() }).ok()?;
        let stop = match phases.iter().map(|phase| phase.stop).find(|stop| *stop != Stop::Saturated)? {
            Stop::Nodes => "the limit of nodes",
            Stop::Iterations => "the limit of rounds",
            _ => "the limit of matches",
        };
        let mut busiest = merged(engine.statistics);
        busiest.sort_by_key(|s| std::cmp::Reverse(s.matches));
        busiest.truncate(NAMED);
        Some((stop, busiest))
    })
}

/// Returns the graph with each floating input multiplied by √n or 1/√n, where n is its last extent.
fn scaled(graph: &Graph) -> Result<Graph, GraphError> {
    let mut scaled = Graph::new(graph.name.clone());
    let mut at: Vec<NodeId> = Vec::with_capacity(graph.len());
    for (id, node) in graph.nodes() {
        let attrs: Vec<(&str, Attr)> =
            node.op.def().attrs.iter().map(|d| d.name).zip(node.attrs.iter().cloned()).collect();
        let operands: Vec<NodeId> = node.operands.iter().map(|o| at[o.0 as usize]).collect();
        let mut value = scaled.apply(node.op, &operands, &attrs)?;
        let given = matches!(node.op.def().class, Class::Leaf(Leaf::Input | Leaf::Param));
        if let (true, Type::Tensor(dtype, shape)) = (given, &node.ty)
            && dtype.is_float()
        {
            let root = shape.last().and_then(|d| d.known()).map_or(2.0, |n| (n.max(2) as f64).sqrt());
            let factor = if id.0 % 2 == 0 { root } else { root.recip() };
            let factor = scaled.constant(Tensor::from_f64(*dtype, &[], [factor]))?;
            value = scaled.apply("mul", &[value, factor], &[])?;
        }
        at.push(value);
    }
    for (name, id) in graph.outputs() {
        scaled.output(name, at[id.0 as usize])?;
    }
    Ok(scaled)
}
