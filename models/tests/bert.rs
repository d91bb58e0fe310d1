//! BERT's graph in both forms, compared with results of transformers in `float64`.

mod common;

use std::collections::BTreeMap;

use common::{difference, golden, run};
use eutectic_ir::{DType, Graph, Tensor};
use eutectic_models::{
    Activation, BertConfig, BertOutput, Form, ShapeError, Weights,
    bert::{self, bind},
    random_weights,
};

const OUTPUTS: &[BertOutput] = &[BertOutput::LastHiddenState, BertOutput::SentenceEmbedding];

/// The tolerance for composite ops. They store constants as `f64`, except the scale and the epsilon, which are rounded
/// to `f32`. Here, the scale is exactly 1/4, and the epsilon of 1e-12 is negligible.
const COMPOSITE: f64 = 1e-10;
/// The tolerance for primitive ops. They store constants as `f32`: 1/√2, √(2/π) and 0.044715 have relative errors up to
/// 3e-8.
const PRIMITIVE: f64 = 2e-6;

fn weights(graph: &Graph) -> BTreeMap<String, Tensor> {
    let file = Weights::open(golden("tiny-bert/model.safetensors")).unwrap();
    file.bind(graph.named("param").map(|(name, id)| (name, graph.ty(id))), bert::IGNORED).unwrap().tensors
}

#[test]
fn equals_transformers_for_every_activation_and_form() {
    let config = BertConfig::open(golden("tiny-bert/config.json")).unwrap();
    let expected = Weights::open(golden("tiny-bert/expected.safetensors")).unwrap();
    let inputs = ["ids", "mask"].map(|name| (name, expected.get(name).unwrap().clone()));
    for name in ["gelu", "gelu_new", "relu", "silu", "tanh"] {
        let config = BertConfig { activation: Activation::named(name).unwrap(), ..config.clone() };
        for (form, tolerance) in [(Form::Composite, COMPOSITE), (Form::Primitive, PRIMITIVE)] {
            let graph = bind(&bert::graph("tiny", &config, form, OUTPUTS).unwrap(), &config, 3, 7).unwrap();
            let results = run(&graph, &weights(&graph), &inputs);
            for (output, result) in OUTPUTS.iter().zip(results) {
                let expected = expected.get(&format!("{name}.{}", output.name())).unwrap().to_f64();
                let difference = difference(&expected, &result);
                assert!(difference <= tolerance, "{name}, {form:?}, {}: {difference:e}", output.name());
            }
        }
    }
}

#[test]
fn forms_agree_on_random_weights_and_odd_sizes() {
    for (layers, hidden, heads, intermediate, batch, sequence) in
        [(1, 1, 1, 1, 1, 1), (1, 6, 3, 5, 2, 1), (3, 7, 7, 9, 1, 5), (2, 10, 2, 1, 4, 3)]
    {
        let config = BertConfig {
            vocabulary: 9,
            positions: 5,
            types: 1,
            layers,
            hidden,
            heads,
            intermediate,
            ..BertConfig::base()
        };
        let inputs = bert::random_inputs(&config, batch, sequence, 7);
        let results = [Form::Composite, Form::Primitive].map(|form| {
            let graph = bert::graph("odd", &config, form, OUTPUTS).unwrap();
            let graph = bind(&graph, &config, batch, sequence).unwrap();
            run(&graph, &random_weights(&graph, 11), &inputs)
        });
        for (composite, primitive) in results[0].iter().zip(&results[1]) {
            let difference = difference(composite, primitive);
            assert!(difference <= PRIMITIVE, "{config:?}: {difference:e}");
            // A row of one element has variance 0. The norm is then the bias, not NaN.
            assert!(composite.iter().all(|x| x.is_finite()));
        }
    }
}

#[test]
fn a_row_of_nothing_but_padding_is_finite() {
    let config = BertConfig::open(golden("tiny-bert/config.json")).unwrap();
    let zeros = Tensor::from_i64(DType::I64, &[1, 4], [0; 4]);
    for form in [Form::Composite, Form::Primitive] {
        let graph = bind(&bert::graph("tiny", &config, form, OUTPUTS).unwrap(), &config, 1, 4).unwrap();
        let results = run(&graph, &weights(&graph), &[("ids", zeros.clone()), ("mask", zeros.clone())]);
        assert!(results[0].iter().all(|x| x.is_finite()));
        assert!(results[1].iter().all(|x| *x == 0.0));
    }
}

#[test]
fn extents_without_positions_are_errors() {
    let config = BertConfig::open(golden("tiny-bert/config.json")).unwrap();
    let graph = bert::graph("tiny", &config, Form::Composite, OUTPUTS).unwrap();
    for (batch, sequence) in [(1, 25), (1, 0), (0, 3), (usize::MAX, 3), (1, usize::MAX)] {
        assert!(matches!(bind(&graph, &config, batch, sequence), Err(ShapeError::OutOfRange { positions: 24, .. })));
    }
    assert!(bind(&graph, &config, 1, 24).is_ok());
}
