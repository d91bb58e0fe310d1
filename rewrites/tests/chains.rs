//! Tests chains of ops in which each value can be computed from each earlier one. The work of the rules must grow
//! linearly with the program, and not with its square or cube.

use eutectic_ir::{DType, Graph, NodeId, Tensor, Type};
use eutectic_rewrites::{Choice, Options, Rewritten, RuleSet, Stop, optimize};

/// A step of a chain. It returns the next value, given the last value and its position in the chain.
type Step = fn(&mut Graph, NodeId, usize) -> NodeId;

const FAMILIES: &[(&str, Step)] = &[
    ("numbers multiplied", |g, x, n| scaled(g, x, n)),
    ("numbers added", |g, x, n| {
        let c = number(g, n);
        g.apply("add", &[x, c], &[]).unwrap()
    }),
    ("numbers divided by", |g, x, n| {
        let c = number(g, n);
        g.apply("div", &[x, c], &[]).unwrap()
    }),
    ("parameters added", |g, x, n| {
        let p = g.param(&format!("p{n}"), vector(64)).unwrap();
        g.apply("add", &[x, p], &[]).unwrap()
    }),
    ("inputs divided by", |g, x, n| {
        let p = g.input(&format!("p{n}"), vector(64)).unwrap();
        g.apply("div", &[x, p], &[]).unwrap()
    }),
    ("scaled inputs multiplied", |g, x, n| {
        let (p, x) = (g.input(&format!("p{n}"), vector(64)).unwrap(), scaled(g, x, n));
        g.apply("mul", &[x, p], &[]).unwrap()
    }),
    ("slices of slices", |g, x, n| {
        let len = (2000 - n) as i64;
        g.apply("slice", &[x], &[("axis", (-1).into()), ("at", 1.into()), ("len", len.into())]).unwrap()
    }),
];

fn vector(n: usize) -> Type {
    Type::tensor(DType::F32, &[n])
}

fn number(graph: &mut Graph, n: usize) -> NodeId {
    graph.constant(Tensor::from_f64(DType::F32, &[], [1.0 + (n * 7919 % 1009) as f64 / 1009.0])).unwrap()
}

fn scaled(graph: &mut Graph, x: NodeId, n: usize) -> NodeId {
    let c = number(graph, n);
    graph.apply("mul", &[x, c], &[]).unwrap()
}

/// Adds a chain to the graph, with an output after each step.
fn chain(graph: &mut Graph, name: &str, step: Step, steps: usize) {
    let of = if name == "slices of slices" { 2000 } else { 64 };
    let mut at = graph.input("x", vector(of)).unwrap();
    for n in 1..=steps {
        at = step(graph, at, n);
        let y = graph.apply("exp", &[at], &[]).unwrap();
        graph.output(&format!("y{n}"), y).unwrap();
    }
}

fn run(graph: &Graph) -> Rewritten {
    let rules = RuleSet::embedded().unwrap().choose(&Choice::default()).unwrap();
    optimize(graph, &rules, &Options::default()).unwrap()
}

#[test]
fn twice_the_steps_are_twice_the_work() {
    for (name, step) in FAMILIES {
        let size = |steps: usize| {
            let mut graph = Graph::new(*name);
            chain(&mut graph, name, *step, steps);
            let done = run(&graph);
            assert!(done.phases.iter().all(|p| matches!(p.stop, Stop::Saturated | Stop::Applications)), "{name}");
            let matches: usize = done.phases.iter().map(|p| p.matches).sum();
            (done.phases.iter().map(|p| p.nodes).max().unwrap(), matches)
        };
        let ((nodes, matches), (more_nodes, more_matches)) = (size(40), size(80));
        assert!(more_nodes < nodes * 9 / 4, "{name}: {nodes} e-nodes of 40 steps, {more_nodes} of 80");
        assert!(more_matches <= matches * 9 / 4, "{name}: {matches} matches of 40 steps, {more_matches} of 80");
    }
}

#[test]
fn a_rule_that_is_held_says_so_and_still_works_elsewhere() {
    let mut graph = Graph::new("a long chain and a short one");
    chain(&mut graph, "numbers multiplied", FAMILIES[0].1, 150);
    let z = graph.input("z", vector(64)).unwrap();
    let short = (200..204).fold(z, |at, n| scaled(&mut graph, at, n));
    graph.output("short", short).unwrap();
    let done = run(&graph);
    assert!(done.phases.iter().any(|p| p.stop == Stop::Applications));
    let held: usize = done.statistics.iter().filter(|s| &*s.name == "simplify/scale-scale").map(|s| s.held).sum();
    assert!(held > 0, "{:?}", done.statistics);
    let classes = &done.classes.classes;
    let is_z = |class: usize| class == done.class(z).unwrap();
    let one = classes[done.class(short).unwrap()].nodes.iter().any(|n| {
        n.op.name() == "mul"
            && n.operands.iter().any(|o| is_z(*o))
            && n.operands.iter().any(|o| classes[*o].scalar.is_some())
    });
    assert!(one, "the four numbers of the short chain are one");
}
