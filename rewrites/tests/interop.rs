//! Compares the engine with egg's runner. Both saturate random small programs, and must find the same classes, nodes
//! and costs.

use std::collections::BTreeSet;

use egg::{
    AstDepth, AstSize, BackoffScheduler, CostFunction, Extractor, Id, Language, Runner, SimpleScheduler, StopReason,
};
use eutectic_ir::{Attr, DType, Graph, NodeId, Tensor, Type};
use eutectic_rewrites::{
    Choice, EngineLimits, Options, Phase, RuleSet,
    interop::{self, EGraph, Facts, InternedNode},
};

/// The number of programs that CI compares. The ignored test compares more.
const PROGRAMS: u64 = 60;

/// Returns a program of a few ops on two inputs, a parameter and some numbers.
fn program(seed: u64) -> Graph {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut graph = Graph::new(format!("random {seed}"));
    let ty = || Type::tensor(DType::F32, &[2, 3]);
    let mut values: Vec<NodeId> =
        vec![graph.input("x", ty()).unwrap(), graph.input("y", ty()).unwrap(), graph.param("w", ty()).unwrap()];
    for number in [0.0, 1.0, 2.0, -1.0, 0.5] {
        if random.u8(..3) == 0 {
            let number = graph.constant(Tensor::from_f64(DType::F32, &[], [number])).unwrap();
            values.push(graph.apply("expand", &[number], &[("shape", shape(&[2, 3]))]).unwrap());
        }
    }
    for _ in 0..random.usize(3..8) {
        let mut any = || values[random.usize(..values.len())];
        let (a, b) = (any(), any());
        let made = match random.u8(..10) {
            0 => graph
                .apply("transpose", &[a], &[("perm", [1_i64, 0].as_slice().into())])
                .and_then(|t| graph.apply("transpose", &[t], &[("perm", [1_i64, 0].as_slice().into())])),
            1 => graph
                .apply("reduce-sum", &[a], &[("axes", [1_i64].as_slice().into()), ("keep", true.into())])
                .and_then(|sum| graph.apply("expand", &[sum], &[("shape", shape(&[2, 3]))])),
            2 => graph
                .apply("reshape", &[a], &[("shape", shape(&[3, 2]))])
                .and_then(|r| graph.apply("reshape", &[r], &[("shape", shape(&[2, 3]))])),
            3..6 => {
                let op = ["neg", "exp", "abs", "sqrt", "sigmoid", "tanh", "reciprocal"][random.usize(..7)];
                graph.apply(op, &[a], &[])
            }
            _ => {
                let op = ["add", "mul", "sub", "div", "max", "min"][random.usize(..6)];
                graph.apply(op, &[a, b], &[])
            }
        };
        values.push(made.unwrap());
    }
    graph.output("out", values[values.len() - 1]).unwrap();
    graph.output("also", values[values.len() - 2]).unwrap();
    graph
}

fn shape(dims: &[i64]) -> Attr {
    Attr::Shape(dims.iter().map(|n| eutectic_ir::Dim::Known(*n)).collect())
}

fn rules() -> RuleSet {
    interop::single(&RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap())
}

/// A cost function under which the ops have various costs.
struct Weighed;

impl CostFunction<InternedNode> for Weighed {
    type Cost = u64;

    fn cost<C: FnMut(Id) -> u64>(&mut self, node: &InternedNode, mut below: C) -> u64 {
        let own = 1 + node.op.name().bytes().map(u64::from).sum::<u64>() % 7;
        node.fold(own, |sum, child| sum.saturating_add(below(child)))
    }
}

/// The result of a saturation: which nodes of the program are equal, the numbers of classes and e-nodes, and the cost
/// of the cheapest form of each output.
#[derive(Debug, PartialEq)]
struct Outcome {
    equal: BTreeSet<(usize, usize)>,
    classes: usize,
    nodes: usize,
    costs: Vec<(usize, usize, u64)>,
}

fn outcome(graph: &Graph, egraph: &EGraph, class: &[Option<Id>]) -> Outcome {
    let found: Vec<Option<Id>> = class.iter().map(|id| id.map(|id| egraph.find(id))).collect();
    let pairs = (0..found.len()).flat_map(|a| (a + 1..found.len()).map(move |b| (a, b)));
    let equal = pairs.filter(|(a, b)| found[*a].is_some() && found[*a] == found[*b]).collect();
    let (size, depth) = (Extractor::new(egraph, AstSize), Extractor::new(egraph, AstDepth));
    let weighed = Extractor::new(egraph, Weighed);
    let costs = graph.outputs().iter().map(|(_, node)| {
        let id = found[node.0 as usize].unwrap();
        (size.find_best_cost(id), depth.find_best_cost(id), weighed.find_best_cost(id))
    });
    // The engine refuses an e-node that has its own class as an operand, if this is known when the e-node is added. A
    // later union of classes can still make such e-nodes, so they are not counted.
    let from_itself = |class: Id, node: &InternedNode| node.children.iter().any(|child| egraph.find(*child) == class);
    let nodes = egraph.classes().map(|c| c.nodes.iter().filter(|node| !from_itself(c.id, node)).count()).sum();
    Outcome { equal, classes: egraph.number_of_classes(), nodes, costs: costs.collect() }
}

/// Saturates a graph by egg. Returns `None` if that does not terminate within the limits.
fn by_egg(graph: &Graph, rules: &RuleSet, backoff: bool) -> Option<Outcome> {
    let (egraph, class) = interop::egraph(graph).unwrap();
    let runner =
        Runner::<InternedNode, Facts>::default().with_egraph(egraph).with_iter_limit(200).with_node_limit(20_000);
    let runner = runner.with_time_limit(std::time::Duration::from_secs(600));
    let runner = match backoff {
        true => runner.with_scheduler(BackoffScheduler::default()),
        false => runner.with_scheduler(SimpleScheduler),
    };
    let runner = runner.run(&interop::rewrites(rules, &Phase::Templates));
    assert_eq!(runner.egraph.analysis.conflict(), None, "{}", graph.name);
    matches!(runner.stop_reason, Some(StopReason::Saturated)).then(|| outcome(graph, &runner.egraph, &class))
}

/// Compares the engine and egg on programs. Returns the number of programs on which both terminated.
fn compare(seeds: impl Iterator<Item = u64>) -> usize {
    let rules = rules();
    let limits = EngineLimits { applications: usize::MAX, nodes: 2000, iterations: 200, matches: 100_000 };
    let options = Options { limits, until: Some(Phase::Templates), ..Options::default() };
    let mut compared = 0;
    for seed in seeds {
        let graph = program(seed);
        let (egraph, class) = interop::saturate(&graph, &rules, &options).unwrap();
        let ours = outcome(&graph, &egraph, &class);
        if let Some(egg) = by_egg(&graph, &rules, seed % 4 == 0) {
            compared += 1;
            assert_eq!(ours, egg, "{}", eutectic_ir::text::print(&graph, eutectic_ir::text::Style::default()));
        }
    }
    compared
}

#[test]
fn egg_comes_to_the_same_classes_and_costs() {
    let compared = compare(0..PROGRAMS);
    assert!(compared as u64 >= PROGRAMS * 9 / 10, "only {compared} came to rest");
}

#[test]
fn a_rule_less_shows() {
    let (all, graphs) = (rules(), (0..PROGRAMS).map(program).collect::<Vec<_>>());
    let choice = Choice { without: vec!["simplify/neg-neg".into(), "simplify/mul-one".into()], ..Choice::default() };
    let less = interop::single(&RuleSet::embedded().unwrap().choose(&choice).unwrap());
    assert!(graphs.iter().any(|graph| by_egg(graph, &all, false) != by_egg(graph, &less, false)));
}

#[test]
#[ignore = "takes minutes"]
fn egg_comes_to_the_same_on_many_programs() {
    let compared = compare(1000..6000);
    println!("{compared} of 5000 programs compared");
    assert!(compared > 4500, "only {compared} came to rest");
}
