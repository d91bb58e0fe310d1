//! Tests the domain `ai.onnx.ml`: versions, strings, and malformed trees. The suite `models/classical` compares values.

use super::*;

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(AttributeType::Ints as i32),
        ints: values.into(),
        ..Default::default()
    }
}

fn numbers(name: &str, values: &[f32]) -> AttributeProto {
    let kind = AttributeType::Floats as i32;
    AttributeProto { name: Some(name.into()), r#type: Some(kind), floats: values.into(), ..Default::default() }
}

fn words(name: &str, values: &[&str]) -> AttributeProto {
    let strings = values.iter().map(|word| word.as_bytes().to_vec().into()).collect();
    let kind = AttributeType::Strings as i32;
    AttributeProto { name: Some(name.into()), r#type: Some(kind), strings, ..Default::default() }
}

/// Returns a model with one node over x [2 3] that imports only the domain `ai.onnx.ml`.
fn classical(op: &str, version: i64, outputs: &[&str], attributes: Vec<AttributeProto>) -> ModelProto {
    let mut only = node(op, &["x"], outputs, attributes);
    only.domain = Some("ai.onnx.ml".into());
    let open = |name: &&str| ValueInfoProto { name: Some(name.to_string()), ..Default::default() };
    let mut model = model(GraphProto {
        input: vec![port("x", &[2, 3])],
        output: outputs.iter().map(open).collect(),
        node: vec![only],
        ..Default::default()
    });
    model.opset_import = vec![OperatorSetIdProto { version: Some(version), domain: Some("ai.onnx.ml".into()) }];
    model
}

/// Returns a tree with one branch on a feature. `children` are the ids of the branch's children.
fn tree(feature: i64, children: [i64; 2]) -> Vec<AttributeProto> {
    vec![
        ints("nodes_treeids", &[0, 0, 0]),
        ints("nodes_nodeids", &[0, 1, 2]),
        ints("nodes_featureids", &[feature, 0, 0]),
        words("nodes_modes", &["BRANCH_LEQ", "LEAF", "LEAF"]),
        numbers("nodes_values", &[0.5, 0.0, 0.0]),
        ints("nodes_truenodeids", &[children[0], 0, 0]),
        ints("nodes_falsenodeids", &[children[1], 0, 0]),
    ]
}

fn weights(of: &str, target: i64) -> Vec<AttributeProto> {
    let name = |part: &str| format!("{of}_{part}");
    vec![
        ints(&name("treeids"), &[0, 0]),
        ints(&name("nodeids"), &[1, 2]),
        ints(&name("ids"), &[target, target]),
        numbers(&name("weights"), &[1.0, 2.0]),
    ]
}

fn refused(model: &ModelProto, says: &str) {
    let error = import(model).map(drop).expect_err(says).to_string();
    assert!(error.contains(says), "{says:?} is not in: {error}");
}

#[test]
fn trees_that_are_none_are_refused() {
    let regressor = |feature, children, target| {
        let attributes = [tree(feature, children), weights("target", target)].concat();
        classical("TreeEnsembleRegressor", 1, &["y"], attributes)
    };
    assert!(import(&regressor(2, [1, 2], 0)).is_ok());
    refused(&regressor(3, [1, 2], 0), "a tree reads feature 3, but rows have 3");
    refused(&regressor(0, [1, 7], 0), "tree 0 has no node 7");
    let mut ring = regressor(0, [0, 1], 0);
    for list in graph_of(&mut ring).node[0].attribute.iter_mut().filter(|list| list.name().starts_with("nodes_")) {
        list.ints.truncate(2);
        list.floats.truncate(2);
        list.strings.truncate(2);
    }
    refused(&ring, "a tree has no root");
    refused(&regressor(0, [1, 2], 4), "it has a weight for target 4, which is out of range for 1 targets");
    let mut short = regressor(0, [1, 2], 0);
    graph_of(&mut short).node[0].attribute[0].ints.pop();
    refused(&short, "its attributes nodes_* have different lengths");
}

#[test]
fn a_node_below_itself_is_refused() {
    let attributes = [
        vec![
            ints("nodes_treeids", &[0; 5]),
            ints("nodes_nodeids", &[0, 1, 2, 3, 4]),
            ints("nodes_featureids", &[0; 5]),
            words("nodes_modes", &["BRANCH_LT", "BRANCH_LT", "BRANCH_LT", "LEAF", "LEAF"]),
            numbers("nodes_values", &[0.0; 5]),
            ints("nodes_truenodeids", &[1, 2, 1, 0, 0]),
            ints("nodes_falsenodeids", &[3, 3, 4, 0, 0]),
        ],
        weights("target", 0),
    ]
    .concat();
    refused(&classical("TreeEnsembleRegressor", 3, &["y"], attributes), "a node of a tree is its own descendant");
}

#[test]
fn labels_that_are_strings_are_withheld() {
    let attributes =
        [tree(0, [1, 2]), weights("class", 0), vec![words("classlabels_strings", &["no", "yes"])]].concat();
    let mut model = classical("TreeEnsembleClassifier", 3, &["label", "scores"], attributes);
    refused(&model, "`label` has labels that are strings");
    graph_of(&mut model).output.remove(0);
    assert!(import(&model).is_ok(), "the scores do not need the labels");
    let attributes = vec![words("keys_strings", &["a"]), ints("values_int64s", &[1])];
    refused(&classical("LabelEncoder", 2, &["y"], attributes), "it maps strings");
}

#[test]
fn versions_are_those_of_the_domain() {
    refused(
        &classical("TreeEnsemble", 3, &["y"], vec![]),
        "ai.onnx.ml.TreeEnsemble (opset 3) at /part/TreeEnsemble: it is supported from opset 5",
    );
    refused(&classical("Scaler", 9, &["y"], vec![]), "opsets of this domain are supported up to 5");
    let only = classical("Scaler", 1, &["y"], vec![numbers("scale", &[2.0])]);
    assert!(import(&only).is_ok());
    let summary = Model::from_bytes("model.onnx", only.encode_to_vec()).unwrap().summary();
    assert_eq!((summary.opset, summary.other_opsets), (None, vec![("ai.onnx.ml".into(), 1)]));
}

#[test]
fn maps_of_scores_are_given_as_the_scores() {
    let zip = classical("ZipMap", 1, &["z"], vec![ints("classlabels_int64s", &[4, 5, 6])]);
    let imported = import(&zip).unwrap();
    assert_eq!(ops(&imported), ["input"]);
    assert!(imported.warnings().iter().any(|warning| warning.contains("[4, 5, 6]")), "{:?}", imported.warnings());
}
