//! Tests nodes that become an op of the user.

use eutectic_ir::{
    Op, Ops,
    lang::{Signature, Source},
    ops::{AttrDef, AttrKind, Declaration, Default as AttrDefault, interned},
};

use super::*;

/// Returns an op of one operand, `com.me Scaled`. Its attributes are `scale-by` and `last`, which has no default.
fn scaled() -> Ops {
    let attrs = vec![
        AttrDef { name: interned("scale-by"), kind: AttrKind::Float, default: AttrDefault::Float(2.0) },
        AttrDef { name: interned("last"), kind: AttrKind::Axis, default: AttrDefault::None },
    ];
    let shown = "(F float) F[A..] -> F[A..]";
    let signature = Signature::parse(&Source::new("test", shown), &["scale-by", "last"]).unwrap();
    let op = Op::declare(Declaration {
        name: "my/scaled",
        doc: "",
        attrs,
        signature,
        shown,
        is: "(neg ?x)",
        text: "(op my/scaled …)",
        uses: &[],
        onnx: &[("com.me".into(), "Scaled".into())],
        place: "own.rules:1",
    });
    let mut ops = Ops::default();
    ops.add(op).unwrap();
    ops
}

fn import(domain: &str, attributes: Vec<AttributeProto>, inputs: &[&str]) -> Result<Imported, OnnxError> {
    let mut scaled_node = node("Scaled", inputs, &["y"], attributes);
    scaled_node.domain = Some(domain.into());
    let mut proto = model(GraphProto {
        input: vec![port("x", &[2, 3])],
        output: vec![port("y", &[2, 3])],
        node: vec![scaled_node],
        ..Default::default()
    });
    let own = OperatorSetIdProto { domain: Some("com.me".into()), version: Some(1) };
    proto.opset_import.push(own);
    let model = Model::from_bytes("m.onnx", proto.encode_to_vec()).unwrap();
    model.import_as(&ImportOptions { ops: scaled(), ..ImportOptions::default() })
}

#[test]
fn a_node_becomes_the_op_with_its_attributes_by_name() {
    let scale = AttributeProto { f: Some(0.5), ..attribute("scale_by", AttributeType::Float) };
    let graph = import("com.me", vec![int("last", 1), scale], &["x"]).unwrap().graph;
    let (_, node) = graph.nodes().find(|(_, node)| node.op.name() == "my/scaled").unwrap();
    assert_eq!((node.attrs[0].float(), node.attrs[1].int()), (Some(0.5), Some(-1)));
    let graph = import("com.me", vec![int("last", -1)], &["x"]).unwrap().graph;
    let (_, node) = graph.nodes().find(|(_, node)| node.op.name() == "my/scaled").unwrap();
    assert_eq!(node.attrs[0].float(), Some(2.0));
}

#[test]
fn what_does_not_fit_the_op_is_refused_by_name() {
    let refused = |domain, attributes, inputs: &[&str], says: &str| {
        let error = import(domain, attributes, inputs).unwrap_err().to_string();
        assert!(error.contains(says), "{says} is not in {error}");
    };
    refused(
        "com.me",
        vec![],
        &["x"],
        "its attribute `last` is missing, and the declared op `my/scaled` has no default",
    );
    let other = vec![int("last", 1), int("first", 1)];
    refused("com.me", other, &["x"], "`my/scaled` has no attribute `first`; it has scale_by, last");
    refused("com.me", vec![int("last", 1)], &["x", "x"], "the op takes 1 operands, but 2 are given");
    refused("com.me", vec![int("last", 1)], &[""], "its input 0 is missing");
    refused("com.you", vec![int("last", 1)], &["x"], "the domain of this op is not supported");
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.into()), r#type: Some(kind as i32), ..Default::default() }
}
