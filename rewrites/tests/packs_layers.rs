//! Tests encoders made of composites and of primitives. Both reach the same classes, and time and space grow linearly
//! with the layers.

mod packs_models;

use std::collections::HashMap;

use eutectic_ir::{Attrs, Class, Op, eclasses::EClasses};
use eutectic_rewrites::{Choice, Options, Rewritten, RuleSet, Stop, optimize};
use packs_models::Encoder;

fn rules() -> RuleSet {
    let rules = RuleSet::embedded().unwrap_or_else(|e| panic!("{:?}", miette::Report::new(e)));
    rules.choose(&Choice::default()).unwrap()
}

fn run(encoder: Encoder) -> Rewritten {
    let done = optimize(&encoder.build(), &rules(), &Options::default()).unwrap();
    assert!(done.phases.iter().all(|p| p.stop == Stop::Saturated), "{:?}", done.phases);
    done
}

/// A form of a class: the class's observer, and the op, attributes and operands of one node.
type Form<'a> = (Option<Op>, Op, &'a Attrs, Vec<usize>);

/// For each class of `small`, returns the class of `large` that has the same nodes, if there is one.
fn embed(small: &EClasses, large: &EClasses) -> Vec<Option<usize>> {
    // An observed value and an unobserved one may have the same nodes, but their observers differ.
    let mut places: HashMap<Form<'_>, usize> = HashMap::new();
    for (at, class) in large.classes.iter().enumerate() {
        for node in &class.nodes {
            places.insert((class.observer, node.op, &node.attrs, node.operands.to_vec()), at);
        }
    }
    let mut image: Vec<Option<usize>> = vec![None; small.classes.len()];
    loop {
        let mut changed = false;
        for (at, class) in small.classes.iter().enumerate() {
            if image[at].is_some() {
                continue;
            }
            image[at] = class.nodes.iter().find_map(|n| {
                let operands: Vec<usize> = n.operands.iter().map(|o| image[*o]).collect::<Option<_>>()?;
                places.get(&(class.observer, n.op, &n.attrs, operands)).copied()
            });
            changed |= image[at].is_some();
        }
        if !changed {
            return image;
        }
    }
}

#[test]
fn primitives_reach_everything_that_composites_reach() {
    for pre_norm in [false, true] {
        let encoder = Encoder { pre_norm, layers: 1, ..Encoder::BERT };
        let (composite, primitive) = (run(encoder), run(Encoder { primitive: true, ..encoder }));
        let image = embed(&composite.classes, &primitive.classes);
        assert_eq!(image[composite.classes.outputs[0]], Some(primitive.classes.outputs[0]));
        let mut missing = Vec::new();
        for (at, class) in composite.classes.classes.iter().enumerate() {
            // Composites have no kernels, so only the nodes of their expansions count.
            for node in class.nodes.iter().filter(|n| !matches!(n.op.def().class, Class::Composite | Class::Project)) {
                let operands: Option<Vec<usize>> = node.operands.iter().map(|o| image[*o]).collect();
                let there = operands.zip(image[at]).is_some_and(|(operands, class)| {
                    primitive.classes.classes[class]
                        .nodes
                        .iter()
                        .any(|n| n.op == node.op && n.attrs == node.attrs && n.operands.as_slice() == operands)
                });
                if !there {
                    missing.push(format!("{} {:?} : {}", node.op, node.attrs, class.ty));
                }
            }
        }
        assert!(missing.is_empty(), "{} of {}: {missing:#?}", missing.len(), composite.classes.classes.len());
    }
}

#[test]
fn a_layer_is_a_few_hundred_nodes() {
    for primitive in [false, true] {
        let nodes = |layers| run(Encoder { layers, primitive, ..Encoder::BERT }).phases.last().unwrap().nodes;
        let counts = [1, 2, 3, 6].map(nodes);
        let layer = counts[1] - counts[0];
        assert_eq!(counts[2] - counts[1], layer, "{counts:?}");
        assert_eq!(counts[3] - counts[2], 3 * layer, "{counts:?}");
        assert!(layer < 480, "{layer} e-nodes a layer");
    }
}
