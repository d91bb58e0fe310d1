//! Models that tests assemble: folded constants, refused nodes, and damaged files.

mod classical;
mod declared;
mod decompositions;
mod elementary;
mod files;
mod float8;
mod forms;
mod ids;
mod int16;
mod loops;
mod microsoft;
mod pairs;
mod random;
mod resize;
mod scatter;

use std::{collections::BTreeMap, fs, path::Path};

use eutectic_ir::{DType, Dim, ops::eval::Data};
use prost::Message;

use super::{
    folder::Folder,
    proto::{
        AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
        TensorProto, TensorShapeProto, TypeProto, ValueInfoProto,
        attribute_proto::AttributeType,
        tensor_proto::DataLocation,
        tensor_shape_proto::{Dimension, dimension::Value as Extent},
        type_proto,
    },
    *,
};

fn node(op: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    let names = |names: &[&str]| names.iter().map(|n| n.to_string()).collect();
    NodeProto {
        op_type: Some(op.into()),
        name: Some(format!("/part/{op}")),
        input: names(inputs),
        output: names(outputs),
        attribute,
        ..Default::default()
    }
}

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(AttributeType::Int as i32),
        i: Some(value),
        ..Default::default()
    }
}

fn word(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(AttributeType::String as i32),
        s: Some(value.to_owned().into()),
        ..Default::default()
    }
}

fn graph_attribute(name: &str, graph: GraphProto) -> AttributeProto {
    let kind = AttributeType::Graph as i32;
    AttributeProto { name: Some(name.into()), r#type: Some(kind), g: Some(graph), ..Default::default() }
}

/// Returns a float port of these extents. 0 is an open dimension.
fn port(name: &str, dims: &[i64]) -> ValueInfoProto {
    let extent = |&n: &i64| Some(if n > 0 { Extent::DimValue(n) } else { Extent::DimParam("batch".into()) });
    let dim = dims.iter().map(|n| Dimension { value: extent(n), ..Default::default() }).collect();
    let tensor = type_proto::Tensor { elem_type: Some(1), shape: Some(TensorShapeProto { dim }) };
    let value = Some(type_proto::Value::TensorType(tensor));
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto { value, ..Default::default() }),
        ..Default::default()
    }
}

fn floats(name: &str, dims: &[i64]) -> TensorProto {
    let count = dims.iter().product::<i64>() as usize;
    let data = (0..count).map(|i| i as f32).collect();
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(1),
        float_data: data,
        ..Default::default()
    }
}

fn integers(name: &str, values: &[i64]) -> TensorProto {
    let dims = vec![values.len() as i64];
    TensorProto { name: Some(name.into()), dims, data_type: Some(7), int64_data: values.into(), ..Default::default() }
}

/// Returns the numbers of a value.
fn reals(data: Data<f64>) -> Vec<f64> {
    match data {
        Data::Real(reals) => reals,
        Data::Int(whole) => whole.into_iter().map(|n| n.expect("it is certain") as f64).collect(),
    }
}

fn model(graph: GraphProto) -> ModelProto {
    let opset = OperatorSetIdProto { version: Some(17), ..Default::default() };
    ModelProto { ir_version: Some(8), opset_import: vec![opset], graph: Some(graph), ..Default::default() }
}

/// Returns relu(x·w) + b for x [batch 4].
fn layer() -> ModelProto {
    model(GraphProto {
        input: vec![port("x", &[0, 4])],
        output: vec![port("y", &[0, 3])],
        initializer: vec![floats("w", &[4, 3]), floats("b", &[3])],
        node: vec![
            node("MatMul", &["x", "w"], &["p"], vec![]),
            node("Relu", &["p"], &["r"], vec![]),
            node("Add", &["r", "b"], &["y"], vec![]),
        ],
        ..Default::default()
    })
}

fn graph_of(model: &mut ModelProto) -> &mut GraphProto {
    model.graph.as_mut().expect("it has one")
}

fn import_bytes(bytes: Vec<u8>, path: &Path) -> Result<Imported, OnnxError> {
    let model = Model::from_bytes(path, bytes)?;
    let shapes = model.symbols().into_iter().map(|name| (name, Dim::Known(2))).collect();
    let imported = model.import(&shapes)?;
    imported.params()?;
    Ok(imported)
}

fn import(model: &ModelProto) -> Result<Imported, OnnxError> {
    import_bytes(model.encode_to_vec(), Path::new("model.onnx"))
}

/// Returns the ops of the graph, in order.
fn ops(imported: &Imported) -> Vec<&'static str> {
    imported.graph.nodes().map(|(_, n)| n.op.name()).collect()
}

#[test]
fn nodes_become_ops_and_tensors_parameters() {
    let imported = import(&layer()).unwrap();
    assert_eq!(ops(&imported), ["input", "param", "param", "matmul", "act", "add"]);
    assert_eq!(imported.graph.node(imported.graph.outputs()[0].1).origin.path(), "part");
    assert_eq!(imported.params().unwrap()["w"].to_f64()[11], 11.0);
    assert!(imported.graph.verify().is_ok());
}

#[test]
fn nodes_may_come_in_any_order() {
    let mut mixed = layer();
    graph_of(&mut mixed).node.rotate_left(1);
    graph_of(&mut mixed).node.swap(0, 1);
    let imported = import(&mixed).unwrap();
    assert_eq!(ops(&imported), ops(&import(&layer()).unwrap()));
    assert!(imported.graph.verify().is_ok());
}

#[test]
fn open_extents_without_a_name_differ() {
    let mut open = layer();
    let extent = |value| Dimension { value: Some(value), ..Default::default() };
    for unnamed in [|| Extent::DimParam("?".into()), || Extent::DimValue(-1)] {
        let shape = TensorShapeProto { dim: vec![extent(unnamed()), extent(Extent::DimValue(4))] };
        let tensor = type_proto::Tensor { elem_type: Some(1), shape: Some(shape) };
        let value = Some(type_proto::Value::TensorType(tensor));
        graph_of(&mut open).input[0].r#type = Some(TypeProto { value, ..Default::default() });
        let model = Model::from_bytes("model.onnx", open.encode_to_vec()).unwrap();
        assert_eq!(model.symbols(), ["x.0"]);
    }
}

#[test]
fn damage_says_what_is_wrong() {
    type Change = fn(&mut ModelProto);
    let cases: &[(&str, Change)] = &[
        ("has no graph", |m| m.graph = None),
        ("it does not state its op set", |m| m.opset_import.clear()),
        ("its opset is 99", |m| m.opset_import[0].version = Some(99)),
        ("its opset is 3, but", |m| m.opset_import[0].version = Some(3)),
        ("w: f32[4 3] needs 48 bytes, but 44 are given", |m| graph_of(m).initializer[0].float_data.truncate(11)),
        ("w: its extent -4 is negative", |m| graph_of(m).initializer[0].dims[0] = -4),
        ("w: programs have no elements of type string", |m| graph_of(m).initializer[0].data_type = Some(8)),
        ("w: the element type number 77 is unknown", |m| graph_of(m).initializer[0].data_type = Some(77)),
        ("no node and no input defines its input `nowhere`", |m| graph_of(m).node[1].input[0] = "nowhere".into()),
        ("no node and no input defines its input `r`", |m| graph_of(m).node[0].input[0] = "r".into()),
        ("output (opset 17) at z: no node computes it", |m| graph_of(m).output[0].name = Some("z".into())),
        ("its input 1 is missing", |m| graph_of(m).node[0].input[1].clear()),
        ("its number of axes", |m| {
            graph_of(m).input[0] = ValueInfoProto {
                r#type: Some(TypeProto {
                    value: Some(type_proto::Value::TensorType(type_proto::Tensor { elem_type: Some(1), shape: None })),
                    ..Default::default()
                }),
                ..port("x", &[])
            }
        }),
        ("it is not a tensor", |m| graph_of(m).input[0].r#type = None),
        ("its signature is", |m| graph_of(m).initializer[0].dims = vec![3, 4]),
    ];
    for (says, change) in cases {
        let mut changed = layer();
        change(&mut changed);
        let error = import(&changed).map(|_| ()).expect_err(says).to_string();
        assert!(error.starts_with("model.onnx: ") && error.contains(says), "{says:?} is not in: {error}");
    }
}

#[test]
fn no_truncation_and_no_changed_byte_panics() {
    let whole = layer().encode_to_vec();
    for end in 0..whole.len() {
        // A truncated file may still be a valid message. Then the missing fields must be reported.
        let _ = import_bytes(whole[..end].to_vec(), Path::new("cut.onnx"));
    }
    let mut rng = eutectic_models::random::Rng::new(1);
    for _ in 0..4000 {
        let mut bytes = whole.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len());
            bytes[at] = rng.next_u64() as u8;
        }
        let _ = import_bytes(bytes, Path::new("changed.onnx"));
    }
}

#[test]
fn no_changed_byte_of_an_exported_model_panics() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/onnx");
    let mut rng = eutectic_models::random::Rng::new(2);
    for file in
        fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "onnx"))
    {
        let whole = fs::read(&file).unwrap();
        for _ in 0..40 {
            let mut bytes = whole.clone();
            for _ in 0..8 {
                let at = rng.below(bytes.len());
                bytes[at] = rng.next_u64() as u8;
            }
            let _ = import_bytes(bytes, &file);
        }
    }
}

#[test]
fn extents_that_fit_into_no_memory_are_refused() {
    let cases: &[(&str, &[i64])] = &[
        ("Expand", &[i64::MAX, 4]),
        ("Expand", &[1 << 40, 1 << 40, 4]),
        ("Tile", &[i64::MAX, i64::MAX]),
        ("Reshape", &[1 << 62, 1 << 62, -1]),
        ("Pad", &[i64::MAX, 0, 0, i64::MAX]),
        ("Pad", &[i64::MIN, 0, 0, 0]),
        ("ConstantOfShape", &[i64::MAX, i64::MAX]),
        ("Split", &[i64::MAX, i64::MAX]),
    ];
    for (op, values) in cases {
        let inputs: &[&str] = if *op == "ConstantOfShape" { &["values"] } else { &["x", "values"] };
        let proto = model(GraphProto {
            input: vec![port("x", &[2, 4])],
            output: vec![port("y", &[])],
            initializer: vec![integers("values", values)],
            node: vec![node(op, inputs, &["y"], vec![])],
            ..Default::default()
        });
        let error = import(&proto).map(|_| ()).expect_err(op);
        assert!(matches!(error, OnnxError::Unsupported { .. }), "{op} {values:?}: {error}");
    }
}

#[test]
fn everything_unsupported_is_listed_at_once() {
    let mut changed = layer();
    let graph = graph_of(&mut changed);
    graph.node.insert(0, node("Multinomial", &["x"], &["places"], vec![]));
    graph.node.insert(1, node("Relu", &["places"], &["unused"], vec![]));
    graph.node.insert(2, node("SequenceEmpty", &["x"], &["u"], vec![]));
    graph.node[3].domain = Some("com.example".into());
    graph.node.push(node("LayerNormalization", &["x", "w"], &["n"], vec![int("axis", 5)]));
    let error = import(&changed).expect_err("it is not supported");
    let OnnxError::Unsupported { problems, .. } = &error else { panic!("{error}") };
    let found: Vec<_> = problems.iter().map(|p| (p.op.as_str(), p.why.as_str())).collect();
    let none = "this op is not supported";
    assert_eq!(
        found,
        [
            ("Multinomial", none),
            ("SequenceEmpty", none),
            ("com.example.MatMul", "the domain of this op is not supported"),
            ("LayerNormalization", "axis 5 is out of range for 2 axes"),
        ]
    );
    assert!(
        error.to_string().contains("Multinomial (opset 17) at /part/Multinomial: this op is not supported"),
        "{error}"
    );
}

#[test]
fn dimensions_are_bound_by_name() {
    let model = Model::from_bytes("model.onnx", layer().encode_to_vec()).unwrap();
    assert_eq!(model.symbols(), ["batch"]);
    let with =
        |shapes: &[(&str, i64)]| model.import(&shapes.iter().map(|(n, v)| (n.to_string(), Dim::Known(*v))).collect());
    assert!(matches!(with(&[]), Err(OnnxError::Unbound { open, .. }) if open == ["batch"]));
    assert!(matches!(with(&[("batch", 1), ("seq", 2)]), Err(OnnxError::NoSuchDim { name, .. }) if name == "seq"));
    assert!(matches!(with(&[("batch", -1)]), Err(OnnxError::Unsupported { .. })));
    let graph = with(&[("batch", 5)]).unwrap().graph;
    assert_eq!(graph.ty(graph.outputs()[0].1).to_string(), "f32[5 3]");
}

#[test]
fn what_computes_shapes_leaves_no_trace() {
    let imported = import(&model(GraphProto {
        input: vec![port("x", &[0, 4, 6])],
        output: vec![port("y", &[])],
        initializer: vec![integers("first", &[0]), integers("rest", &[-1])],
        node: vec![
            node("Shape", &["x"], &["shape"], vec![]),
            node("Gather", &["shape", "first"], &["batch"], vec![]),
            node("Concat", &["batch", "rest"], &["target"], vec![int("axis", 0)]),
            node("Reshape", &["x", "target"], &["y"], vec![]),
        ],
        ..Default::default()
    }))
    .unwrap();
    assert_eq!(ops(&imported), ["input", "reshape"]);
    assert_eq!(imported.graph.ty(imported.graph.outputs()[0].1).to_string(), "f32[2 24]");
}

#[test]
fn functions_and_known_branches_are_put_in_place() {
    let mut of_function = int("axis", 0);
    of_function.ref_attr_name = Some("along".into());
    of_function.i = None;
    let function = FunctionProto {
        name: Some("Normal".into()),
        domain: Some("local".into()),
        input: vec!["a".into()],
        output: vec!["b".into()],
        attribute: vec!["along".into()],
        node: vec![node("Softmax", &["a"], &["b"], vec![of_function])],
        ..Default::default()
    };
    let branch = |op: &str| GraphProto {
        node: vec![node(op, &["n"], &["inner"], vec![])],
        output: vec![port("inner", &[])],
        ..Default::default()
    };
    let mut call = node("Normal", &["x"], &["n"], vec![int("along", 0)]);
    call.domain = Some("local".into());
    let either = vec![graph_attribute("then_branch", branch("Exp")), graph_attribute("else_branch", branch("NonZero"))];
    let truth = TensorProto { data_type: Some(9), int32_data: vec![1], ..integers("yes", &[1]) };
    let mut proto = model(GraphProto {
        input: vec![port("x", &[3, 5])],
        output: vec![port("y", &[])],
        initializer: vec![truth],
        node: vec![call, node("If", &["yes"], &["y"], either)],
        ..Default::default()
    });
    proto.functions.push(function);
    let imported = import(&proto).unwrap();
    assert_eq!(ops(&imported), ["input", "softmax", "exp"]);
    let (_, softmax) = imported.graph.nodes().nth(1).unwrap();
    assert_eq!(softmax.attrs[0].int(), Some(-2));
}

#[test]
fn external_data_stays_in_its_folder_and_in_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("model");
    fs::create_dir_all(folder.join("data")).unwrap();
    let bytes: Vec<u8> = (0..12).flat_map(|i| (i as f32).to_le_bytes()).collect();
    fs::write(folder.join("data/w.bin"), [&[7; 4], bytes.as_slice()].concat()).unwrap();
    fs::write(dir.path().join("secret.bin"), &bytes).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("../secret.bin", folder.join("link.bin")).unwrap();
    let with = |entries: &[(&str, &str)]| {
        let entry =
            |(k, v): &(&str, &str)| StringStringEntryProto { key: Some(k.to_string()), value: Some(v.to_string()) };
        let mut changed = layer();
        let tensor = &mut graph_of(&mut changed).initializer[0];
        tensor.float_data.clear();
        tensor.data_location = Some(DataLocation::External as i32);
        tensor.external_data = entries.iter().map(entry).collect();
        import_bytes(changed.encode_to_vec(), &folder.join("m.onnx"))
    };
    let good = with(&[("location", "data/w.bin"), ("offset", "4"), ("length", "48")]).unwrap();
    let w = &good.params().unwrap()["w"];
    assert_eq!((w.dtype(), w.to_f64()[11]), (DType::F32, 11.0));
    let outside = "is outside of the model's folder";
    let refused: &[(&[(&str, &str)], &str)] = &[
        (&[("location", "../secret.bin")], outside),
        (&[("location", "data/../../secret.bin")], outside),
        (&[("location", "/etc/passwd")], outside),
        (&[("location", "")], outside),
        (&[("offset", "0")], "without a `location`"),
        (&[("location", "link.bin")], "it is a symbolic link to a file outside of the model's folder"),
        (&[("location", "missing.bin")], "missing.bin"),
        (&[("location", "data")], "data"),
        (&[("location", "data/w.bin"), ("offset", "8")], "has 52 bytes, but the tensor needs 48 from offset 8"),
        (
            &[("location", "data/w.bin"), ("offset", "18446744073709551615")],
            "but the tensor needs 48 from offset 18446744073709551615",
        ),
        (&[("location", "data/w.bin"), ("offset", "-4")], "the offset of its external data is `-4`"),
        (
            &[("location", "data/w.bin"), ("length", "44")],
            "its type needs 48 bytes, but its external data has a length of 44",
        ),
    ];
    for (entries, says) in refused {
        let error = with(entries).map(|_| ()).expect_err(says).to_string();
        assert!(error.contains("w: ") && error.contains(says), "{says:?} is not in: {error}");
    }
}

#[test]
fn a_file_of_external_data_is_mapped_once() {
    let dir = tempfile::tempdir().unwrap();
    let numbers: Vec<u8> = (0..24).flat_map(|i| (i as f32).to_le_bytes()).collect();
    fs::write(dir.path().join("w.bin"), numbers).unwrap();
    let folder = Folder::of(&dir.path().join("m.onnx"));
    let at = |offset: &str| {
        let entry =
            |key: &str, value: &str| StringStringEntryProto { key: Some(key.into()), value: Some(value.into()) };
        let proto = TensorProto {
            dims: vec![3],
            data_type: Some(1),
            data_location: Some(DataLocation::External as i32),
            external_data: vec![entry("location", "w.bin"), entry("offset", offset)],
            ..TensorProto::default()
        };
        StoredTensor::read(&proto, &folder).unwrap().tensor().unwrap()
    };
    let (first, second) = (at("0"), at("48"));
    assert_eq!((first.to_f64(), second.to_f64()), (vec![0.0, 1.0, 2.0], vec![12.0, 13.0, 14.0]));
    assert_eq!(second.bytes().as_ptr() as usize - first.bytes().as_ptr() as usize, 48, "two maps of one file");
}

#[cfg(unix)]
#[test]
fn a_pipe_is_no_external_data() {
    let dir = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("w.bin")).status().unwrap();
    assert!(made.success());
    let folder = Folder::of(&dir.path().join("m.onnx"));
    let error = folder.map(Path::new("w.bin")).unwrap_err();
    assert_eq!(error, "it is not a regular file");
}

/// Returns the error for a model of one or two nodes.
fn refusal(nodes: Vec<NodeProto>, input: &[i64], constants: Vec<TensorProto>) -> String {
    let output = nodes.last().map(|n| port(&n.output[0], &[])).into_iter().collect();
    let graph =
        GraphProto { input: vec![port("x", input)], output, initializer: constants, node: nodes, ..Default::default() };
    import(&model(graph)).err().map(|e| e.to_string()).unwrap_or_default()
}

#[test]
fn a_split_into_more_parts_than_it_has_outputs_is_refused_at_once() {
    for parts in [1 << 62, 1 << 40, 10_000_000, 0, -1] {
        let split = node("Split", &["x"], &["a", "b"], vec![int("num_outputs", parts)]);
        assert!(refusal(vec![split], &[4], vec![]).contains("2 outputs"), "{parts}");
    }
}

#[test]
fn values_have_one_definition_and_extremes_elements() {
    let twice = vec![node("Neg", &["x"], &["y"], vec![]), node("Abs", &["x"], &["y"], vec![])];
    assert!(refusal(twice, &[4], vec![]).contains("already defines its output `y`"));
    assert!(
        refusal(vec![node("Neg", &["x"], &["x"], vec![])], &[4], vec![]).contains("already defines its output `x`")
    );
    // An empty row has no largest element.
    let nothing = node("Slice", &["x", "zero", "zero"], &["n"], vec![]);
    for op in ["ArgMax", "ArgMin"] {
        let largest = node(op, &["n"], &["y"], vec![int("axis", 0)]);
        assert!(
            refusal(vec![nothing.clone(), largest], &[4], vec![integers("zero", &[0])]).contains("no elements"),
            "{op}"
        );
    }
}

#[test]
fn names_that_a_terminal_would_obey_are_refused() {
    let evil = refusal(vec![node("Neg", &["x"], &["y\u{1b}[2J"], vec![])], &[4], vec![]);
    assert!(evil.contains("control character"), "{evil}");
}
