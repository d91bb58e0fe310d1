//! Checks that the engine does not apply a rule that may change bits if a discontinuous op reads the result.

use eutectic_ir::{Attr, DType, Graph, GraphError, NodeId};
use eutectic_rewrites::{Contract, Options, Probe, RuleSet, optimize};

use crate::{
    cases::Case,
    report::{Check, Failure},
};

/// The discontinuous ops, each with a function that applies it to a value. The last two ops read the value through
/// another op.
const READERS: [(&str, Reader); 8] = [
    ("floor", |g, x| g.apply("floor", &[x], &[])),
    ("ceil", |g, x| g.apply("ceil", &[x], &[])),
    ("round", |g, x| g.apply("round", &[x], &[])),
    ("sign", |g, x| g.apply("sign", &[x], &[])),
    ("cast", |g, x| g.apply("cast", &[x], &[("to", Attr::DType(DType::I32))])),
    ("lt", |g, x| {
        let half = g.scalar(0.5, x)?;
        g.apply("lt", &[x, half], &[])
    }),
    ("is-nan of a sum", |g, x| {
        let sum = g.apply("add", &[x, x], &[])?;
        g.apply("is-nan", &[sum], &[])
    }),
    ("mod of an opposite", |g, x| {
        let (opposite, one) = (g.apply("neg", &[x], &[])?, g.scalar(1.0, x)?);
        g.apply("mod", &[opposite, one], &[])
    }),
];

type Reader = fn(&mut Graph, NodeId) -> Result<NodeId, GraphError>;

/// Returns the graph with a discontinuous op that reads each floating result whose op propagates rounding
/// ([`Op::hands_on`](eutectic_ir::Op::hands_on)). Returns `None` if there is no such result. Results such as sums are
/// left out, because rules may change their order of rounding for any reader.
fn read(graph: &Graph, reader: Reader) -> Option<Graph> {
    let mut read = graph.clone();
    let floats = graph.outputs().iter().filter(|(_, id)| graph.ty(*id).dtype().is_some_and(DType::is_float));
    for (name, id) in floats.filter(|(_, id)| graph.node(*id).op.hands_on()) {
        let jumps = reader(&mut read, *id).ok()?;
        read.output(&format!("{name}-read"), jumps).ok()?;
    }
    (read.outputs().len() > graph.outputs().len()).then_some(read)
}

/// Optimizes the left side of a case under each discontinuous reader, where the engine must not apply the rule. Returns
/// the number of readers tried.
///
/// A rule that defines an op is exempt, because the op could not be computed without it.
pub fn left_alone(probe: &Probe, case: &Case, base: &RuleSet) -> Result<usize, Box<Failure>> {
    let rule = probe.rule();
    if rule.contract == Contract::Exact || rule.defines_an_op() {
        return Ok(0);
    }
    let failure = |what: String| Box::new(Failure::of(Check::Observed, what, case, None));
    let rules = base.clone().and(probe.rules()).map_err(|e| failure(e.to_string()))?;
    let mut tried = 0;
    for (name, reader) in READERS {
        let Some(graph) = read(&case.sides.written, reader) else { continue };
        let rewritten = optimize(&graph, &rules, &Options::default()).map_err(|e| failure(e.to_string()))?;
        if rewritten.statistics.iter().any(|s| s.name == rule.name && s.applications > 0) {
            return Err(failure(format!("the engine applies the rule although `{name}` reads the result")));
        }
        tried += 1;
    }
    Ok(tried)
}
