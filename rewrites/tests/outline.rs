//! Tests which cuts outlining finds, and that the calls compute the same values as the graph.

mod packs_models;

use std::collections::HashMap;

use eutectic_ir::{
    Attr, Attrs, DType, Graph, NodeId, Op, Tensor, Type,
    interp::interpret,
    outline::{Outlined, outline, whole},
};
use packs_models::{Builder, Encoder, ints};

/// Numbers values. Equal numbers mean equal computations.
#[derive(Default)]
struct Numbering(HashMap<(Op, Attrs, Vec<usize>), usize>);

impl Numbering {
    fn of(&mut self, op: Op, attrs: &Attrs, operands: Vec<usize>) -> usize {
        let next = self.0.len();
        *self.0.entry((op, attrs.clone(), operands)).or_insert(next)
    }

    fn graph(&mut self, graph: &Graph, given: &dyn Fn(&str) -> Option<usize>) -> Vec<usize> {
        let mut numbers: Vec<usize> = Vec::new();
        for (_, node) in graph.nodes() {
            let name =
                node.attrs.first().and_then(|a| a.word()).filter(|_| matches!(node.op.name(), "input" | "param"));
            let operands = node.operands.iter().map(|o| numbers[o.0 as usize]).collect();
            let number = name.and_then(given).unwrap_or_else(|| self.of(node.op, &node.attrs, operands));
            numbers.push(number);
        }
        numbers
    }
}

/// Expands the calls in order and checks that every output is the graph's computation.
fn check(graph: &Graph, outlined: &Outlined) {
    let mut numbering = Numbering::default();
    let expected = numbering.graph(graph, &|_| None);
    let is_given = |id: NodeId| matches!(graph.node(id).op.name(), "input" | "param" | "const");
    let mut have: HashMap<NodeId, usize> =
        graph.nodes().filter(|(id, _)| is_given(*id)).map(|(id, _)| (id, expected[id.0 as usize])).collect();
    for call in &outlined.calls {
        let block = &outlined.blocks[call.block].graph;
        let given = |name: &str| {
            let (list, at) = match name.strip_prefix("in") {
                Some(at) => (&call.inputs, at),
                None => (&call.params, name.strip_prefix('p')?),
            };
            Some(have[&list[at.parse::<usize>().unwrap()]])
        };
        let numbers = numbering.graph(block, &given);
        assert_eq!(block.outputs().len(), call.outputs.len());
        for (i, ((name, inner), outer)) in block.outputs().iter().zip(&call.outputs).enumerate() {
            assert_eq!(*name, format!("out{i}"));
            assert_eq!(block.ty(*inner), graph.ty(*outer));
            have.insert(*outer, numbers[inner.0 as usize]);
        }
    }
    for (name, id) in graph.outputs() {
        let calls = outlined.calls.iter().filter(|c| c.outputs.contains(id)).count();
        assert_eq!(calls, 1, "{name} is made by one call");
    }
    for (id, number) in have {
        assert_eq!(number, expected[id.0 as usize], "{id:?} is another value");
    }
}

/// Returns how often each block is called.
fn counts(outlined: &Outlined) -> Vec<usize> {
    (0..outlined.blocks.len()).map(|b| outlined.calls.iter().filter(|c| c.block == b).count()).collect()
}

fn outlined(encoder: Encoder) -> (Graph, Outlined) {
    let graph = encoder.build();
    let outlined = outline(&graph);
    check(&graph, &outlined);
    (graph, outlined)
}

#[test]
fn a_layer_is_one_block_in_every_form() {
    for layers in 2..6 {
        for form in 0..16 {
            let encoder = Encoder {
                layers,
                pre_norm: form & 1 > 0,
                primitive: form & 2 > 0,
                shared: form & 4 > 0,
                own_bias: form & 8 > 0,
                ..Encoder::SMALL
            };
            let (_, outlined) = outlined(encoder);
            assert_eq!(counts(&outlined), [1, layers, 1], "{encoder:?}");
            let layer = &outlined.calls[2];
            assert_eq!((layer.inputs.len(), layer.outputs.len()), (2, 1), "{encoder:?}");
            assert_eq!(layer.params.len(), 16, "{encoder:?}");
        }
    }
}

#[test]
fn the_cut_is_where_it_is_stored_anyway() {
    for primitive in [false, true] {
        let (graph, post) = outlined(Encoder { primitive, ..Encoder::SMALL });
        let readers = |id: NodeId| {
            let reads =
                |n: &&eutectic_ir::graph::Node| n.operands.contains(&id) && matches!(n.op.name(), "matmul" | "linear");
            graph.nodes().filter(|(_, n)| reads(n)).count()
        };
        assert_eq!(readers(post.calls[1].outputs[0]), 3, "queries, keys and values read it");
        // The cut is after the norm that follows the feed-forward block, and not in the middle of that norm.
        assert_eq!(graph.node(post.calls[0].outputs[0]).origin.path(), "");
    }
}

#[test]
fn origins_follow_the_call() {
    let (_, outlined) = outlined(Encoder { layers: 3, ..Encoder::SMALL });
    let paths: Vec<_> = outlined.calls[2].origins.iter().map(|(a, b)| (a.path(), b.path())).collect();
    assert!(paths.contains(&("layer.0", "layer.1")), "{paths:?}");
}

#[test]
fn hidden_states_in_the_middle_stay_outputs() {
    for pre_norm in [false, true] {
        let (_, outlined) = outlined(Encoder { layers: 4, pre_norm, hidden_states: true, ..Encoder::SMALL });
        assert_eq!(counts(&outlined), [1, 4, 1]);
    }
}

#[test]
fn nothing_repeats_nothing_is_cut() {
    let (graph, outlined) = outlined(Encoder { layers: 1, ..Encoder::SMALL });
    assert_eq!(outlined, whole(&graph));
    assert!(outlined.cuts.is_empty());
    assert_eq!(outlined.blocks.len(), 1);
}

#[test]
fn every_encoder_has_its_own_cuts() {
    // Two stacks of different depth and form are in sequence.
    let mut b = Builder { g: Encoder { layers: 3, ..Encoder::SMALL }.build(), e: Encoder::SMALL };
    let mut x = b.g.outputs()[0].1;
    for i in 0..4 {
        let y = b.linear(x, &format!("tail.{i}"), 6, 6, "gelu-erf");
        let y = b.op("tanh", &[y]);
        x = b.op("add", &[x, y]);
    }
    b.g.output("tail", x).unwrap();
    let outlined = outline(&b.g);
    check(&b.g, &outlined);
    let mut counts = counts(&outlined);
    counts.sort_unstable();
    assert!(counts.ends_with(&[3, 4]), "{counts:?}");
}

#[test]
fn leaves_and_constant_subgraphs_may_be_outputs() {
    let mut b = Builder { g: Graph::new("odd"), e: Encoder::SMALL };
    let w = b.param("w", &[2, 3]);
    let t = b.with("transpose", &[w], &[("perm", ints(&[1, 0]))]);
    let c = b.scalar(2.0);
    for (name, id) in [("w", w), ("t", t), ("c", c), ("again", t)] {
        b.g.output(name, id).unwrap();
    }
    let outlined = outline(&b.g);
    check(&b.g, &outlined);
    assert_eq!(outlined.calls[0].outputs, [w, t, c]);
}

#[test]
fn many_layers_are_one_block() {
    let graph = Encoder { layers: 48, primitive: true, ..Encoder::BERT }.build();
    assert_eq!(counts(&outline(&graph)), [1, 48, 1]);
}

/// Runs the calls in order in the interpreter, and returns the program's outputs.
fn run(graph: &Graph, outlined: &Outlined) -> Vec<Tensor> {
    let mut have: HashMap<NodeId, Tensor> = HashMap::new();
    for (id, node) in graph.nodes() {
        match (node.op.name(), node.attrs.first()) {
            ("input" | "param", Some(name)) => drop(have.insert(id, numbers(name.word().unwrap(), &node.ty))),
            ("const", Some(Attr::Tensor(t))) => drop(have.insert(id, t.clone())),
            _ => {}
        }
    }
    for call in &outlined.calls {
        let given = |name: &str| {
            let of = |list: &[NodeId], at: &str| have.get(&list[at.parse::<usize>().ok()?]).cloned();
            name.strip_prefix("in").map_or_else(|| of(&call.params, &name[1..]), |at| of(&call.inputs, at))
        };
        let results = interpret::<f64>(&outlined.blocks[call.block].graph, &given).unwrap();
        have.extend(call.outputs.iter().copied().zip(results.iter().map(|v| v.to_tensor())));
    }
    graph.outputs().iter().map(|(_, id)| have[id].clone()).collect()
}

fn numbers(name: &str, ty: &Type) -> Tensor {
    let seed = name.bytes().fold(7_u64, |h, b| h.wrapping_mul(131).wrapping_add(u64::from(b)));
    let number =
        |i: usize| ((seed.wrapping_add(i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64) / 16e6 - 0.5;
    Tensor::from_f64(ty.dtype().unwrap(), &ty.dims().unwrap(), (0..ty.count()).map(number))
}

#[test]
fn the_calls_compute_what_the_graph_computes() {
    // The stacks consist of layers of a few kinds. Some stacks repeat a layer, and others do not.
    for seed in 0..40_usize {
        let mut b = Builder { g: Graph::new("stack"), e: Encoder { primitive: seed % 2 > 0, ..Encoder::SMALL } };
        let mut x = b.g.input("x", Type::tensor(DType::F32, &[2, 1 + seed % 3, 6])).unwrap();
        for layer in 0..2 + seed % 5 {
            let name = if seed % 7 == 0 { "shared".to_string() } else { format!("layer.{layer}") };
            let y = match (seed / 3 + if seed % 4 == 0 { layer } else { 0 }) % 3 {
                0 => b.norm(x, &name),
                1 => b.op("tanh", &[x]),
                _ => x,
            };
            let up = b.linear(y, &format!("{name}.up"), 6, 5, "gelu-erf");
            let down = b.linear(up, &format!("{name}.down"), 5, 6, "none");
            x = b.op("add", &[down, x]);
            if seed % 5 == layer {
                b.g.output("middle", x).unwrap();
            }
        }
        b.g.output("y", x).unwrap();
        let outlined = outline(&b.g);
        check(&b.g, &outlined);
        let direct = run(&b.g, &whole(&b.g));
        // Values between calls are rounded to f32. In the whole graph, they are not rounded.
        for (a, b) in run(&b.g, &outlined).iter().zip(&direct) {
            let far = a.to_f64().iter().zip(b.to_f64()).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            assert!(a.ty() == b.ty() && far < 1e-5, "seed {seed}: off by {far}");
        }
    }
}
