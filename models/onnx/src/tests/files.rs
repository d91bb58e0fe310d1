//! Tests parts of a file other than nodes: default values of inputs, duplicate names, lengths of external data, and
//! declared outputs.

use eutectic_ir::{Tensor, interp::interpret};

use super::*;

const TYPES: [(DType, i32); 14] = [
    (DType::F32, 1),
    (DType::U8, 2),
    (DType::I8, 3),
    (DType::I32, 6),
    (DType::I64, 7),
    (DType::Bool, 9),
    (DType::F16, 10),
    (DType::F64, 11),
    (DType::U32, 12),
    (DType::Bf16, 16),
    (DType::U16, 4),
    (DType::I16, 5),
    (DType::F8E4M3, 17),
    (DType::F8E5M2, 19),
];

/// Returns a model that compares x with w. Both w and its default value of 1 have the given type and extents.
fn defaulted(code: i32, dims: &[i64], ir_version: i64) -> Model {
    let typed = |name: &str| {
        let mut port = port(name, dims);
        if let Some(type_proto::Value::TensorType(tensor)) = port.r#type.as_mut().and_then(|t| t.value.as_mut()) {
            tensor.elem_type = Some(code);
        }
        port
    };
    let (dtype, _) = TYPES.iter().find(|(_, known)| *known == code).unwrap();
    let count: i64 = dims.iter().product();
    let one = full(*dtype, &[], 1);
    let w = TensorProto {
        name: Some("w".into()),
        dims: dims.to_vec(),
        data_type: Some(code),
        raw_data: Some(one.bytes().repeat(count as usize).into()),
        ..Default::default()
    };
    let mut proto = model(GraphProto {
        input: vec![typed("x"), typed("w")],
        output: vec![ValueInfoProto { name: Some("y".into()), ..Default::default() }],
        initializer: vec![w],
        node: vec![node("Equal", &["x", "w"], &["y"], vec![])],
        ..Default::default()
    });
    proto.ir_version = Some(ir_version);
    Model::from_bytes("model.onnx", proto.encode_to_vec()).unwrap()
}

fn full(dtype: DType, dims: &[usize], value: i64) -> Tensor {
    let count = dims.iter().product();
    match dtype.is_float() {
        true => Tensor::from_f64(dtype, dims, vec![value as f64; count]),
        false => Tensor::from_i64(dtype, dims, vec![value; count]),
    }
}

fn truths(imported: &Imported, given: &[(&str, Tensor)]) -> Vec<i64> {
    let params = imported.params().unwrap();
    let value =
        |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, t)| t.clone()).or(params.get(name).cloned());
    interpret::<f64>(&imported.graph, &value).unwrap()[0].to_tensor().to_i64()
}

#[test]
fn an_input_with_a_default_may_be_given_or_not() {
    for (dtype, code) in TYPES {
        for dims in [&[][..], &[1], &[3]] {
            let model = defaulted(code, dims, 4);
            assert_eq!(model.inputs().map(|(name, _)| name).collect::<Vec<_>>(), ["x"]);
            assert_eq!(model.defaults().map(|(name, _)| name).collect::<Vec<_>>(), ["w"]);
            let extents: Vec<usize> = dims.iter().map(|&n| n as usize).collect();
            let (zero, one) = (full(dtype, &extents, 0), full(dtype, &extents, 1));
            let count = zero.count();
            let left_out = model.import(&BTreeMap::new()).unwrap();
            assert_eq!(left_out.graph.named("input").count(), 1, "{dtype}");
            assert_eq!(truths(&left_out, &[("x", one.clone())]), vec![1; count], "{dtype}");
            let options = ImportOptions { given: ["w".to_string()].into(), ..ImportOptions::default() };
            let given = model.import_as(&options).unwrap();
            assert_eq!(given.graph.named("input").count(), 2, "{dtype}");
            let pairs = [(&zero, &zero, 1), (&zero, &one, 0)];
            for (x, w, equal) in pairs {
                assert_eq!(truths(&given, &[("x", x.clone()), ("w", w.clone())]), vec![equal; count], "{dtype}");
            }
            let fixed = model.import_with(&BTreeMap::new(), &[("w".to_string(), zero.clone())].into()).unwrap();
            assert_eq!(truths(&fixed, &[("x", zero)]), vec![1; count], "{dtype}");
        }
    }
}

#[test]
fn tensors_of_old_files_are_no_defaults() {
    let model = defaulted(1, &[3], 3);
    assert_eq!(model.defaults().count(), 0);
    let options = ImportOptions { given: ["w".to_string()].into(), ..ImportOptions::default() };
    let error = model.import_as(&options).unwrap_err().to_string();
    assert!(error.contains("no input named w with a default value"), "{error}");
}

#[test]
fn two_tensors_of_one_name_are_an_error() {
    let mut twice = layer();
    graph_of(&mut twice).initializer.push(floats("w", &[4, 3]));
    let error = import(&twice).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("w: the file has two tensors of that name"), "{error}");
    let branch = GraphProto {
        initializer: vec![floats("v", &[3]), floats("v", &[3])],
        node: vec![node("Add", &["x", "v"], &["inner"], vec![])],
        output: vec![port("inner", &[3])],
        ..Default::default()
    };
    let either = vec![graph_attribute("then_branch", branch.clone()), graph_attribute("else_branch", branch)];
    let truth = TensorProto { data_type: Some(9), int32_data: vec![1], ..integers("yes", &[1]) };
    let proto = model(GraphProto {
        input: vec![port("x", &[3])],
        output: vec![port("y", &[3])],
        initializer: vec![truth],
        node: vec![node("If", &["yes"], &["y"], either)],
        ..Default::default()
    });
    let error = import(&proto).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("v: the file has two tensors of that name"), "{error}");
}

#[test]
fn a_model_in_memory_is_what_its_file_is() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes) = (dir.path().join("m.onnx"), layer().encode_to_vec());
    fs::write(&path, &bytes).unwrap();
    let (opened, read) = (Model::open(&path).unwrap(), Model::from_bytes(&path, bytes).unwrap());
    assert_eq!(opened.summary().outputs, read.summary().outputs);
    let outputs: Vec<_> = read.outputs().map(|(name, port)| format!("{name} {}", port.unwrap())).collect();
    assert_eq!(outputs, read.summary().outputs.iter().map(|(name, ty)| format!("{name} {ty}")).collect::<Vec<_>>());
    assert!(matches!(Model::from_bytes("m", vec![1, 2, 3]), Err(OnnxError::Format { .. })));
}

#[test]
fn external_data_takes_the_bytes_of_its_type() {
    let dir = tempfile::tempdir().unwrap();
    let numbers: Vec<u8> = (0..16).flat_map(|i| (i as f32).to_le_bytes()).collect();
    fs::write(dir.path().join("w.bin"), numbers).unwrap();
    let entry = |(key, value): &(&str, &str)| StringStringEntryProto {
        key: Some(key.to_string()),
        value: Some(value.to_string()),
    };
    for (offset, length, first) in [
        (None, None, 0.0),
        (Some("8"), None, 2.0),
        (Some("16"), Some("0"), 4.0),
        (None, Some("0"), 0.0),
        (Some("4"), Some("48"), 1.0),
    ] {
        let mut changed = layer();
        let tensor = &mut graph_of(&mut changed).initializer[0];
        tensor.float_data.clear();
        tensor.data_location = Some(DataLocation::External as i32);
        let entries = [Some(("location", "w.bin")), offset.map(|n| ("offset", n)), length.map(|n| ("length", n))];
        tensor.external_data = entries.iter().flatten().map(entry).collect();
        let imported = import_bytes(changed.encode_to_vec(), &dir.path().join("m.onnx")).unwrap();
        let w = imported.params().unwrap()["w"].to_f64();
        assert_eq!((w.len(), w[0], w[11]), (12, first, first + 11.0), "{offset:?} {length:?}");
    }
}

#[test]
fn an_output_is_what_its_nodes_compute() {
    let declared = |dims: &[i64], code: i32| {
        let mut changed = layer();
        let mut output = port("y", dims);
        if let Some(type_proto::Value::TensorType(tensor)) = output.r#type.as_mut().and_then(|t| t.value.as_mut()) {
            tensor.elem_type = Some(code);
        }
        graph_of(&mut changed).output = vec![output];
        import(&changed)
    };
    // The dimension `batch` is 2.
    for dims in [&[0, 3][..], &[2, 3]] {
        assert_eq!(declared(dims, 1).unwrap().warnings(), [""; 0]);
    }
    for dims in [&[2, 4][..], &[3, 3], &[6], &[]] {
        let imported = declared(dims, 1).unwrap();
        let [warning] = imported.warnings() else { panic!("{dims:?}") };
        assert!(warning.contains("but its nodes compute f32[2 3]"), "{warning}");
        assert_eq!(imported.graph.ty(imported.graph.outputs()[0].1).to_string(), "f32[2 3]");
    }
    let error = declared(&[2, 3], 11).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("it is declared as f64[2 3], but its nodes compute f32[2 3]"), "{error}");
}
