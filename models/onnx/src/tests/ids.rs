//! Tests ids in and out of range for every op that indexes, and the index of the extremum in rows with NaN.

use eutectic_ir::{InterpError, Tensor, interp::interpret};

use super::*;

/// Returns the declaration of an integer tensor with these extents.
fn int_port(name: &str, dims: &[i64]) -> ValueInfoProto {
    let mut port = port(name, dims);
    if let Some(type_proto::Value::TensorType(tensor)) = port.r#type.as_mut().and_then(|ty| ty.value.as_mut()) {
        tensor.elem_type = Some(7);
    }
    port
}

/// A node that indexes x [2 3] by ids.
struct Case {
    op: &'static str,
    ids: &'static [i64],
    updates: Option<&'static [i64]>,
    attributes: Vec<AttributeProto>,
    /// The extent of the indexed axis, for each id.
    extents: &'static [i64],
}

fn cases() -> Vec<Case> {
    let axis = |n: i64| vec![int("axis", n)];
    let add = |attributes: &[AttributeProto]| [attributes, &[word("reduction", "add")]].concat();
    let case = |op, ids, updates, attributes, extents| Case { op, ids, updates, attributes, extents };
    vec![
        case("Gather", &[2], None, axis(0), &[2]),
        case("Gather", &[1, 2], None, axis(1), &[3]),
        case("GatherElements", &[2, 2], None, axis(1), &[3]),
        case("GatherElements", &[1, 3], None, axis(0), &[2]),
        case("GatherND", &[2, 2], None, vec![], &[2, 3]),
        case("GatherND", &[2, 1], None, vec![], &[2]),
        case("GatherND", &[2, 1], None, vec![int("batch_dims", 1)], &[3]),
        case("ScatterElements", &[2, 2], Some(&[2, 2]), axis(1), &[3]),
        case("ScatterElements", &[1, 2], Some(&[1, 2]), add(&axis(0)), &[2]),
        case("ScatterND", &[2, 2], Some(&[2]), vec![], &[2, 3]),
        case("ScatterND", &[2, 1], Some(&[2, 3]), add(&[]), &[2]),
    ]
}

impl Case {
    fn model(&self, constant: Option<&[i64]>) -> ModelProto {
        let mut input = vec![port("x", &[2, 3])];
        let mut initializer = Vec::new();
        match constant {
            Some(ids) => initializer.push(TensorProto { dims: self.ids.to_vec(), ..integers("ids", ids) }),
            None => input.push(int_port("ids", self.ids)),
        }
        input.extend(self.updates.map(|dims| port("updates", dims)));
        let names: Vec<&str> = ["x", "ids", "updates"][..if self.updates.is_some() { 3 } else { 2 }].to_vec();
        let node = node(self.op, &names, &["y"], self.attributes.clone());
        let output = vec![port("y", &[1])];
        let mut model = model(GraphProto { input, output, initializer, node: vec![node], ..Default::default() });
        model.opset_import[0].version = Some(18);
        model
    }

    fn run(&self, ids: &[i64]) -> Result<Vec<f64>, InterpError> {
        let imported = import(&self.model(None)).unwrap();
        let dims = |dims: &[i64]| dims.iter().map(|&n| n as usize).collect::<Vec<_>>();
        let count = |dims: &[i64]| dims.iter().product::<i64>();
        let given = |name: &str| match name {
            "x" => Some(Tensor::from_f64(DType::F32, &[2, 3], (0..6).map(f64::from))),
            "ids" => Some(Tensor::from_i64(DType::I64, &dims(self.ids), ids.iter().copied())),
            _ => self
                .updates
                .map(|of| Tensor::from_f64(DType::F32, &dims(of), (0..count(of)).map(|n| 10.0 * (n + 1) as f64))),
        };
        Ok(interpret::<f64>(&imported.graph, &given)?.remove(0).to_tensor().to_f64())
    }

    fn ids(&self) -> usize {
        self.ids.iter().product::<i64>() as usize
    }
}

#[test]
fn ids_out_of_range_are_refused_where_they_are_read() {
    for case in cases() {
        for at in 0..case.ids() {
            let extent = case.extents[at % case.extents.len()];
            for wrong in [extent, -extent - 1, extent + 4, i64::MAX, i64::MIN, 1 << 32] {
                let mut ids = vec![0; case.ids()];
                ids[at] = wrong;
                let Err(InterpError::IndexOutOfRange { problem, origin, .. }) = case.run(&ids) else {
                    panic!("{} takes {ids:?}", case.op);
                };
                assert_eq!((problem.id, problem.ids.extent), (wrong, extent), "{} of {ids:?}", case.op);
                assert_eq!(origin.path(), format!("part.{}", case.op));
                // The import refuses ids in the file, and names the same node.
                let said = import(&case.model(Some(&ids))).unwrap_err().to_string();
                let wanted =
                    format!("id {wrong} is out of range for an axis of {extent}; ids must be in -{extent}..{extent}");
                assert!(said.contains(&wanted) && said.contains(&format!("/part/{}", case.op)), "{said}");
            }
        }
    }
}

#[test]
fn ids_in_range_name_the_same_places_from_both_ends() {
    for case in cases() {
        for seed in 0..20_i64 {
            let id = |at: usize| (seed * 7 + at as i64 * 5) % case.extents[at % case.extents.len()];
            let ids: Vec<i64> = (0..case.ids()).map(id).collect();
            let back = |at: usize| {
                if (seed + at as i64) % 2 == 0 { id(at) - case.extents[at % case.extents.len()] } else { id(at) }
            };
            let from_end: Vec<i64> = (0..case.ids()).map(back).collect();
            let want = case.run(&ids).unwrap();
            assert_eq!(case.run(&from_end).unwrap(), want, "{} of {from_end:?}", case.op);
        }
    }
}

#[test]
fn the_error_says_where_the_id_is() {
    let case = &cases()[2];
    let said = import(&case.model(Some(&[0, 1, -5, 2]))).unwrap_err().to_string();
    assert!(
        said.contains("id -5 is out of range for an axis of 3; ids must be in -3..3 (element [1, 0] of the ids)"),
        "{said}"
    );
    let said = case.run(&[0, 1, -5, 2]).unwrap_err().to_string();
    assert!(
        said.contains("at part.GatherElements: id -5 is out of range for an axis of 3; ids must be in -3..3"),
        "{said}"
    );
}

#[test]
fn a_node_without_a_name_is_called_by_its_output() {
    let case = &cases()[0];
    let mut model = case.model(None);
    graph_of(&mut model).node[0].name = None;
    let imported = import(&model).unwrap();
    let checks = imported.graph.nodes().filter(|(_, node)| node.op.name() == "checked-id");
    assert_eq!(checks.map(|(_, node)| node.origin.path()).collect::<Vec<_>>(), ["y"]);
}

/// Evaluates a node on `x` of shape [3 n]. Returns its last output.
fn of_rows(node: NodeProto, rows: &[&[f64]], folded: bool, k: Option<i64>) -> Vec<f64> {
    let dims = [rows.len() as i64, rows[0].len() as i64];
    let all = rows.concat();
    let mut graph = GraphProto { node: vec![node], ..Default::default() };
    let name = graph.node[0].output.last().cloned();
    graph.output = vec![ValueInfoProto { name, ..Default::default() }];
    graph.initializer.extend(k.map(|k| integers("k", &[k])));
    match folded {
        true => graph
            .initializer
            .push(TensorProto { float_data: all.iter().map(|&x| x as f32).collect(), ..floats("x", &dims) }),
        false => graph.input.push(port("x", &dims)),
    }
    let imported = import(&model(graph)).unwrap();
    let params = imported.params().unwrap();
    let x = Tensor::from_f64(DType::F32, &dims.map(|n| n as usize), all.iter().copied());
    let given = |name: &str| if name == "x" { Some(x.clone()) } else { params.get(name).cloned() };
    interpret::<f64>(&imported.graph, &given).unwrap().pop().unwrap().to_tensor().to_f64()
}

const NAN: f64 = f64::NAN;

#[test]
fn nan_is_the_extremum_of_its_row() {
    let rows: [&[f64]; 4] = [&[NAN, 0.0], &[0.0, NAN], &[NAN, NAN], &[0.0, 1.0]];
    for folded in [false, true] {
        for (op, plain) in [("ArgMax", 1.0), ("ArgMin", 0.0)] {
            let place = |last: i64| {
                let attributes = vec![int("axis", 1), int("keepdims", 0), int("select_last_index", last)];
                of_rows(node(op, &["x"], &["y"], attributes), &rows, folded, None)
            };
            assert_eq!(place(0), [0.0, 1.0, 0.0, plain], "{op}");
            assert_eq!(place(1), [0.0, 1.0, 1.0, plain], "{op}, the last one");
        }
        let hardmax = node("Hardmax", &["x"], &["y"], vec![int("axis", 1)]);
        assert_eq!(of_rows(hardmax, &rows, folded, None), [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
        let infinite: [&[f64]; 2] = [&[f64::INFINITY, NAN, 1.0], &[f64::NEG_INFINITY; 3]];
        let last = node("ArgMax", &["x"], &["y"], vec![int("axis", 1), int("keepdims", 0)]);
        assert_eq!(of_rows(last, &infinite, folded, None), [1.0, 0.0]);
    }
}

#[test]
fn nan_comes_first_among_the_largest_and_last_among_the_smallest() {
    let rows: [&[f64]; 2] = [&[2.0, NAN, f64::INFINITY, 2.0, NAN], &[NAN; 5]];
    for folded in [false, true] {
        let places = |largest: i64| {
            let top = node("TopK", &["x", "k"], &["v", "i"], vec![int("axis", 1), int("largest", largest)]);
            of_rows(top, &rows, folded, Some(5))
        };
        assert_eq!(places(1), [1.0, 4.0, 2.0, 0.0, 3.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(places(0), [0.0, 3.0, 2.0, 1.0, 4.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
    }
}
