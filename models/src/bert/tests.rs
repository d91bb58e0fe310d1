//! Tests of the BERT graph: parameter names, types and origins, with composite and with primitive ops.

use std::collections::BTreeMap;

use super::*;
use crate::nn::Activation;

const OUTPUTS: &[BertOutput] = &[BertOutput::LastHiddenState, BertOutput::SentenceEmbedding];

fn tiny() -> BertConfig {
    BertConfig {
        vocabulary: 11,
        hidden: 6,
        layers: 2,
        heads: 3,
        intermediate: 5,
        activation: Activation::GeluErf,
        positions: 9,
        types: 2,
        eps: 1e-12,
    }
}

fn params(graph: &Graph) -> BTreeMap<String, String> {
    graph.named("param").map(|(name, id)| (name.to_string(), graph.ty(id).to_string())).collect()
}

#[test]
fn parameters_are_named_and_shaped_as_in_the_files() {
    let graph = graph("tiny", &tiny(), Form::Composite, OUTPUTS).unwrap();
    let params = params(&graph);
    assert_eq!(params.len(), 5 + 2 * 16);
    assert_eq!(params["embeddings.word_embeddings.weight"], "f32[11 6]");
    assert_eq!(params["embeddings.LayerNorm.bias"], "f32[6]");
    assert_eq!(params["encoder.layer.1.attention.self.query.weight"], "f32[6 6]");
    assert_eq!(params["encoder.layer.1.attention.output.LayerNorm.weight"], "f32[6]");
    assert_eq!(params["encoder.layer.0.intermediate.dense.weight"], "f32[5 6]");
    assert_eq!(params["encoder.layer.0.output.dense.weight"], "f32[6 5]");
    assert_eq!(graph.named("input").map(|(name, _)| name).collect::<Vec<_>>(), ["ids", "mask"]);
}

#[test]
fn both_forms_have_the_same_parameters_and_results() {
    for activation in Activation::names().filter_map(Activation::named) {
        let config = BertConfig { activation, ..tiny() };
        let forms = [Form::Composite, Form::Primitive].map(|form| graph("tiny", &config, form, OUTPUTS).unwrap());
        assert_eq!(params(&forms[0]), params(&forms[1]));
        for graph in &forms {
            let types: Vec<_> = graph.outputs().iter().map(|(n, id)| format!("{n} {}", graph.ty(*id))).collect();
            assert_eq!(types, ["last_hidden_state f32[B S 6]", "sentence_embedding f32[B 6]"]);
            let bound = graph.bind(&BTreeMap::from([("B".into(), 2), ("S".into(), 7)])).unwrap();
            assert_eq!(bound.ty(bound.outputs()[0].1).to_string(), "f32[2 7 6]");
        }
    }
}

#[test]
fn the_primitive_form_holds_no_composite() {
    let graph = graph("tiny", &tiny(), Form::Primitive, OUTPUTS).unwrap();
    let composite = |n: &eutectic_ir::graph::Node| matches!(n.op.def().class, eutectic_ir::Class::Composite);
    let composites: Vec<_> = graph.nodes().filter(|(_, n)| composite(n)).map(|(_, n)| n.op.name()).collect();
    assert!(composites.is_empty(), "{composites:?}");
    assert!(graph.nodes().all(|(_, n)| n.op.name() != "act"));
}

#[test]
fn every_value_remembers_its_module() {
    let graph = graph("tiny", &tiny(), Form::Primitive, OUTPUTS).unwrap();
    let top: Vec<_> = graph.nodes().filter(|(_, n)| n.origin.path().is_empty()).map(|(_, n)| n.op.name()).collect();
    assert_eq!(top, ["input", "input", "cast"]);
    let (_, erf) = graph.nodes().find(|(_, n)| n.op.name() == "erf").expect("the activation");
    assert_eq!(erf.origin.path(), "encoder.layer.0.intermediate");
}

#[test]
fn extents_that_do_not_fit_are_errors_with_their_place() {
    let config = BertConfig { heads: 4, ..tiny() };
    let error = graph("tiny", &config, Form::Composite, OUTPUTS).unwrap_err().to_string();
    assert!(error.contains("encoder.layer.0.attention.self"), "{error}");
}

#[test]
fn random_inputs_are_in_range() {
    let [(_, ids), (_, mask)] = random_inputs(&tiny(), 3, 9, 5);
    assert_eq!((ids.dims(), mask.dims()), ([3, 9].as_slice(), [3, 9].as_slice()));
    assert!(ids.to_i64().iter().all(|id| (0..11).contains(id)));
    assert!(mask.to_i64()[..9].iter().all(|m| *m == 1));
}
