//! Tests the op `loop`: types, values compared with explicit steps, the text form, and errors.

use eutectic_ir::{
    Attr, Bounded, DType, Graph, GraphError, NodeId, Tensor, Type, graph::SubGraph, interpret, lang::Source, text,
};

const F: DType = DType::F64;

/// c' = c·w + x and y = c' − 1, where c, x and w have shape [2].
fn body() -> Graph {
    let mut g = Graph::new("step");
    let [c, x, w] = ["c", "x", "w"].map(|name| g.input(name, Type::tensor(F, &[2])).unwrap());
    let scaled = g.mul(c, w).unwrap();
    let next = g.add(scaled, x).unwrap();
    let one = g.scalar(1.0, next).unwrap();
    let y = g.sub(next, one).unwrap();
    g.output("c", next).unwrap();
    g.output("y", y).unwrap();
    g
}

fn apply(g: &mut Graph, body: Graph, times: i64, operands: &[NodeId]) -> Result<NodeId, GraphError> {
    let attrs = [
        ("body", Attr::Graph(SubGraph::from(body))),
        ("times", times.into()),
        ("carried", 1.into()),
        ("scanned", 1.into()),
    ];
    g.apply("loop", operands, &attrs)
}

fn looped(times: usize) -> Graph {
    let mut g = Graph::new("loops");
    let c = g.input("start", Type::tensor(F, &[2])).unwrap();
    let x = g.input("x", Type::tensor(F, &[times, 2])).unwrap();
    let w = g.param("w", Type::tensor(F, &[2])).unwrap();
    let both = apply(&mut g, body(), times as i64, &[c, x, w]).unwrap();
    for (at, name) in ["last", "all"].into_iter().enumerate() {
        let value = g.get(both, at as i64).unwrap();
        g.output(name, value).unwrap();
    }
    g
}

#[test]
fn a_loop_is_its_body_so_many_times() {
    for times in [0, 1, 5] {
        let g = looped(times);
        assert!(g.verify().is_ok());
        let (start, w) = ([0.5, -2.0], [0.25, 0.5]);
        let x: Vec<f64> = (0..2 * times).map(|i| i as f64 * 0.125 - 0.5).collect();
        let given = |name: &str| match name {
            "start" => Some(Tensor::from_f64(F, &[2], start)),
            "x" => Some(Tensor::from_f64(F, &[times, 2], x.iter().copied())),
            _ => Some(Tensor::from_f64(F, &[2], w)),
        };
        let (mut last, mut all) = (start, Vec::new());
        for x in x.chunks(2) {
            last = [0, 1].map(|i| last[i] * w[i] + x[i]);
            all.extend(last.map(|c| c - 1.0));
        }
        let got: Vec<_> = interpret::<f64>(&g, &given).unwrap().iter().map(|v| v.to_tensor()).collect();
        assert_eq!(got[0].to_f64(), last);
        assert_eq!((got[1].to_f64(), got[1].dims()), (all, &[times, 2][..]));
        // Error bounds go from each step to the next.
        let bounded = interpret::<Bounded>(&g, &given).unwrap();
        assert_eq!(bounded[0].to_tensor().to_f64(), last);
    }
}

#[test]
fn a_loop_reads_back_from_text() {
    let mut outer = Graph::new("outer");
    let c = outer.input("c", Type::tensor(F, &[2])).unwrap();
    let x = outer.input("x", Type::tensor(F, &[3, 2])).unwrap();
    let inner = apply(&mut outer, body(), 3, &[c, x, c]).unwrap();
    let next = outer.get(inner, 0).unwrap();
    outer.output("c", next).unwrap();
    let mut g = Graph::new("nested");
    let start = g.input("start", Type::tensor(F, &[2])).unwrap();
    let x = g.input("x", Type::tensor(F, &[4, 3, 2])).unwrap();
    let all = apply(&mut g, outer, 4, &[start, x]).unwrap();
    let last = g.get(all, 0).unwrap();
    let first = g.slice(x, 0, 0, 1).unwrap();
    let first = g.reshape(first, [3_usize, 2].into_iter().collect()).unwrap();
    let again = apply(&mut g, body(), 3, &[last, first, start]).unwrap();
    let last = g.get(again, 0).unwrap();
    g.output("last", last).unwrap();
    for types in [false, true] {
        let printed = text::print(&g, text::Style { types });
        let read = text::parse(&Source::new("again", printed.clone())).unwrap_or_else(|e| panic!("{e:?}\n{printed}"));
        assert_eq!(read, g, "{printed}");
    }
}

#[test]
fn what_does_not_fit_the_body_is_refused() {
    let refused = |times: i64, x: &[usize], body: Graph| {
        let mut g = Graph::new("wrong");
        let c = g.input("start", Type::tensor(F, &[2])).unwrap();
        let x = g.input("x", Type::tensor(F, x)).unwrap();
        apply(&mut g, body, times, &[c, x, c]).unwrap_err().to_string()
    };
    assert!(refused(3, &[4, 2], body()).contains("the input x of `step` needs f64[3 2], but f64[4 2] is given"));
    assert!(refused(-1, &[4, 2], body()).contains("non-negative"));
    let mut more = body();
    more.input("extra", Type::tensor(F, &[2])).unwrap();
    assert!(
        refused(4, &[4, 2], more)
            .contains("4 inputs and 2 outputs, but the loop has 1 carried values, 1 scanned ones and 3 operands")
    );
    let mut weights = body();
    weights.param("p", Type::tensor(F, &[2])).unwrap();
    assert!(refused(4, &[4, 2], weights).contains("has the param p"));
    let mut other = Graph::new("step");
    let [c, _, _] = ["c", "x", "w"].map(|name| other.input(name, Type::tensor(F, &[2])).unwrap());
    let wider = other.concat(c, c, -1).unwrap();
    other.output("c", wider).unwrap();
    assert!(refused(4, &[4, 2], other).contains("carries c of type f64[2], but returns c of type f64[4]"));
}
