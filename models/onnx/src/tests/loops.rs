//! Tests trip counts of loops: stated ones, those that the import computes from a condition, and those that each run
//! finds.

use eutectic_ir::{
    Tensor,
    interp::{InterpError, interpret},
    ops::Loop,
};

use super::*;

fn of_type(name: &str, code: i32, dims: &[i64]) -> ValueInfoProto {
    let mut port = port(name, dims);
    if let Some(type_proto::Value::TensorType(tensor)) = port.r#type.as_mut().and_then(|t| t.value.as_mut()) {
        tensor.elem_type = Some(code);
    }
    port
}

fn number(name: &str, value: f64) -> TensorProto {
    TensorProto { name: Some(name.into()), data_type: Some(1), float_data: vec![value as f32], ..Default::default() }
}

/// Returns a model with the loop v' = v + step while v' < limit. `start` names the start value, which may be the
/// model's input, and `count` the maximum trip count. With `collects`, the loop also returns each −v'.
fn growing(start: &str, count: Option<&str>, collects: bool) -> ModelProto {
    let mut body = GraphProto {
        input: vec![of_type("i", 7, &[]), of_type("going", 9, &[]), of_type("v", 1, &[])],
        output: vec![of_type("on", 9, &[]), of_type("next", 1, &[])],
        node: vec![node("Add", &["v", "step"], &["next"], vec![]), node("Less", &["next", "limit"], &["on"], vec![])],
        ..Default::default()
    };
    let mut outputs = vec!["y"];
    if collects {
        body.node.push(node("Neg", &["next"], &["all"], vec![]));
        body.output.push(of_type("all", 1, &[]));
        outputs.push("collected");
    }
    let constants = vec![
        number("step", 0.1),
        number("limit", 1.0),
        number("zero", 0.0),
        TensorProto { dims: vec![], ..integers("five", &[5]) },
        TensorProto { dims: vec![], ..integers("most", &[i64::MAX]) },
    ];
    model(GraphProto {
        input: vec![of_type("x", 1, &[]), of_type("n", 7, &[])],
        output: outputs
            .iter()
            .map(|name| ValueInfoProto { name: Some(name.to_string()), ..Default::default() })
            .collect(),
        initializer: constants,
        node: vec![node("Loop", &[count.unwrap_or(""), "", start], &outputs, vec![graph_attribute("body", body)])],
        ..Default::default()
    })
}

/// Returns the trip count of the loop in a graph, and whether a condition ends it.
fn times(imported: &Imported) -> Option<(usize, bool)> {
    let (_, node) = imported.graph.nodes().find(|(_, node)| node.op.name() == "loop")?;
    let of = Loop::of(&node.attrs)?;
    Some((of.times, of.condition.is_some()))
}

fn run(imported: &Imported, x: f64, n: i64) -> Result<Vec<Vec<f64>>, InterpError> {
    let given = |name: &str| {
        Some(match name {
            "x" => Tensor::from_f64(DType::F32, &[], [x]),
            _ => Tensor::from_i64(DType::I64, &[], [n]),
        })
    };
    Ok(interpret::<f64>(&imported.graph, &given)?.iter().map(|value| value.to_tensor().to_f64()).collect())
}

/// Returns the sum of the steps in `f32`, and the number of steps.
fn grown(start: f32, most: usize) -> (f64, usize) {
    let (mut v, mut n) = (start, 0);
    while n < most && (n == 0 || v < 1.0) {
        v += 0.1;
        n += 1;
    }
    (f64::from(v), n)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-5
}

#[test]
fn a_condition_on_what_is_known_is_counted() {
    let (last, count) = grown(0.0, usize::MAX);
    assert_eq!(count, 10);
    for (count_input, want) in [(None, 10), (Some("most"), 10), (Some("five"), 5)] {
        let imported = import(&growing("zero", count_input, true)).unwrap();
        assert_eq!(times(&imported), Some((want, false)), "{count_input:?}");
        let got = run(&imported, 0.0, 0).unwrap();
        let last = if want == 10 { last } else { grown(0.0, 5).0 };
        assert!(close(got[0][0], last) && got[1].len() == want && close(got[1][want - 1], -last), "{got:?}");
    }
}

#[test]
fn a_condition_on_inputs_is_found_in_each_run() {
    let imported = import(&growing("x", None, false)).unwrap();
    assert_eq!(times(&imported), Some((MOST_TIMES, true)));
    for x in [-39.97, -1.03, 0.33, 0.95, 7.0] {
        let got = run(&imported, x, 0).unwrap();
        assert!((got[0][0] - grown(x as f32, usize::MAX).0).abs() < 1e-2, "{x}: {got:?}");
    }
    // A known count needs no check in a run. A count that is an input becomes part of the condition.
    let imported = import(&growing("x", Some("five"), false)).unwrap();
    assert_eq!(times(&imported), Some((5, true)));
    assert!(close(run(&imported, -1.0, 0).unwrap()[0][0], -0.5));
    for start in ["x", "zero"] {
        let imported = import(&growing(start, Some("n"), false)).unwrap();
        assert_eq!(times(&imported), Some((MOST_TIMES, true)));
        for n in [-3, 0, 1, 4, 100] {
            let (x, most) = (0.0, n.max(0) as usize);
            let got = run(&imported, x, n).unwrap()[0][0];
            assert!(close(got, grown(0.0, most).0), "{n}: {got}");
        }
    }
}

#[test]
fn a_loop_that_goes_on_is_an_error() {
    let bytes = growing("x", None, false).encode_to_vec();
    let model = Model::from_bytes("model.onnx", bytes).unwrap();
    let imported = model.import_as(&ImportOptions { most_times: 20, ..ImportOptions::default() }).unwrap();
    assert!(close(run(&imported, -0.53, 0).unwrap()[0][0], grown(-0.53, usize::MAX).0));
    let error = run(&imported, -5.0, 0).unwrap_err().to_string();
    assert!(error.contains("the condition of the loop is still true after 20 iterations"), "{error}");
}

#[test]
fn what_has_no_end_or_no_shape_is_refused() {
    let says = |model: &ModelProto| import(model).map(|_| ()).unwrap_err().to_string();
    let collected = says(&growing("x", None, true));
    assert!(
        collected.contains("its trip count depends on the model's inputs, and so does the shape of its scan outputs"),
        "{collected}"
    );
    let mut endless = growing("x", None, false);
    let body = graph_of(&mut endless).node[0].attribute[0].g.as_mut().unwrap();
    body.node[1] = node("Identity", &["going"], &["on"], vec![]);
    assert!(says(&endless).contains("it never ends because its condition is always true"), "{}", says(&endless));
}
