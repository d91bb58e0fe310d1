//! Tests graphs whose extents are known at run time: types keep these extents, and an error occurs if a condition
//! fails for some extent.

use std::collections::BTreeMap;

use eutectic_ir::{
    DType, Dim, Graph, GraphError, Symbol, Type, interpret,
    lang::{Errors, Source},
    text,
};

fn parse(text: &str) -> Result<Graph, Errors> {
    text::parse(&Source::new("test", text))
}

fn read(text: &str) -> Graph {
    parse(text).unwrap_or_else(|e| panic!("{:?}", miette::Report::new(e)))
}

fn bound(text: &str, least: i64, most: i64) -> Result<Graph, GraphError> {
    read(text).bind_dims(&BTreeMap::from([("S".to_string(), Dim::between("S", least, most))]))
}

#[test]
fn types_keep_extents() {
    let graph = bound(
        "(graph g (input x f32[S 8]) (param w f32[8 6]) (let y (matmul x w)) \
           (output o (concat (reshape y :shape [S 2 3]) (reshape y :shape [S 2 3]) :axis 0)))",
        0,
        16,
    );
    let graph = graph.unwrap();
    let ty = graph.ty(graph.outputs()[0].1);
    assert_eq!((ty.to_string().as_str(), ty.dims(), ty.capacity()), ("f32[(* 2 S) 2 3]", None, Some(vec![32, 2, 3])));
    assert_eq!((ty.count(), graph.symbols().len(), graph.extents().len()), (192, 0, 1));
    assert!(interpret::<f64>(&graph, &|_| None).is_err());
    let at = graph.bind(&BTreeMap::from([("S".to_string(), 5)])).unwrap();
    assert_eq!(*at.ty(at.outputs()[0].1), Type::tensor(DType::F32, &[10, 2, 3]));
}

#[test]
fn an_extent_is_no_number() {
    // The shapes broadcast only if S is 16, its greatest length. The other lengths make the op an error.
    let text = "(graph g (dim S :most 16) (input x f32[S]) (input y f32[16]) (output o (add x y)))";
    let error = parse(text).unwrap_err().0.remove(0).message;
    assert!(error.contains("do not broadcast"), "{error}");
}

#[test]
fn text_declares_extents() {
    let graph = read("(graph g (dim S :least 1 :most 16) (input x f32[S B]) (output o (exp x)))");
    assert_eq!(graph.extents(), [Symbol { name: "S".into(), bounds: Some((1, 16)) }]);
    assert_eq!(graph.symbols().len(), 1);
    for (wrong, says) in [
        ("(dim S)", "must have a bound :most"),
        ("(dim S :most -1)", "not a bound"),
        ("(dim S :least 3 :most 2)", "at least 3"),
        ("(dim S :most 3) (dim S :most 3)", "used or declared before"),
        ("(input x f32[S]) (dim S :most 3)", "used or declared before"),
    ] {
        let error = parse(&format!("(graph g {wrong})")).unwrap_err().0.remove(0).message;
        assert!(error.contains(says), "{wrong}: {error}");
    }
}

#[test]
fn what_does_not_hold_at_every_length_is_refused() {
    let slice = "(graph g (input x f32[S 8]) (output o (slice x :axis 0 :at 1 :len 2)))";
    assert!(bound(slice, 3, 16).is_ok());
    let error = bound(slice, 2, 16).unwrap_err();
    assert!(error.problem.contains("S, which may be 2"), "{}", error.problem);
    let window = "(graph g (input x f32[S]) (output o (window x :axis 0 :size 3)))";
    assert!(bound(window, 3, 16).is_ok() && bound(window, 2, 16).is_err());
    let negative = "(graph g (input x f32[(- S 1)]) (output o x))";
    assert!(bound(negative, 1, 16).is_ok());
    let error = bound(negative, 0, 16).unwrap_err();
    assert!(error.problem.contains("may be negative"), "{}", error.problem);
    let param = "(graph g (param x f32[S]) (output o (exp x)))";
    assert!(bound(param, 0, 16).unwrap_err().problem.contains("would vary from run to run"));
}
