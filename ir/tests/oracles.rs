//! Compares ops with examples whose results were computed independently from the ops' formulas.

use eutectic_ir::{Attr, DType, Graph, InterpError, Tensor, Type, interpret};

/// Returns the result of one op on constants.
fn eval(op: &str, operands: &[(&[usize], &[f64])], attrs: &[(&str, Attr)]) -> Vec<f64> {
    let mut graph = Graph::new("oracle");
    let ids: Vec<_> = operands
        .iter()
        .map(|(dims, x)| graph.constant(Tensor::from_f64(DType::F64, dims, x.iter().copied())).unwrap())
        .collect();
    let y = graph.apply(op, &ids, attrs).unwrap();
    graph.output("y", y).unwrap();
    interpret::<f64>(&graph, &|_| None).unwrap()[0].to_tensor().to_f64()
}

fn assert_close(got: &[f64], want: &[f64]) {
    let close = |(a, b): (&f64, &f64)| (a - b).abs() < 6e-9 || a.is_nan() && b.is_nan() || a == b;
    assert!(got.len() == want.len() && got.iter().zip(want).all(close), "{got:?} is not {want:?}");
}

fn word(name: &'static str, value: &str) -> (&'static str, Attr) {
    (name, value.into())
}

#[test]
fn elements_are_written_where_ids_say() {
    let x: (&[usize], &[f64]) = (&[1, 3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, f64::NAN]);
    let part: (&[usize], &[f64]) = (&[1, 4, 2], &[10.0, 20.0, -30.0, 40.0, 50.0, 60.0, 70.0, f64::NAN]);
    // Two updates of the first column have the same position, and two of the second column have. −1 and 3 are no
    // positions.
    let scattered = |op: &str| {
        let mut graph = Graph::new("scatter");
        let of = |(dims, x): (&[usize], &[f64])| Tensor::from_f64(DType::F64, dims, x.iter().copied());
        let ids = Tensor::from_i64(DType::I32, &[1, 4, 2], [2, 0, 2, -1, 3, 0, 1, 1]);
        let operands = [of(x), of(part), ids].map(|tensor| graph.constant(tensor).unwrap());
        let y = graph.apply(op, &operands, &[]).unwrap();
        graph.output("y", y).unwrap();
        interpret::<f64>(&graph, &|_| None).unwrap()[0].to_tensor().to_f64()
    };
    let nan = f64::NAN;
    assert_close(&scattered("scatter"), &[1.0, 60.0, 70.0, nan, -30.0, nan]);
    assert_close(&scattered("scatter-sum"), &[1.0, 82.0, 73.0, nan, -15.0, nan]);
    assert_close(&scattered("scatter-prod"), &[1.0, 2400.0, 210.0, nan, -1500.0, nan]);
    assert_close(&scattered("scatter-max"), &[1.0, 60.0, 70.0, nan, 10.0, nan]);
    assert_close(&scattered("scatter-min"), &[1.0, 2.0, 3.0, nan, -30.0, nan]);
}

/// Updates are added one after the other. −0 + −0 is −0, and −0 + 0 is 0. Positions without updates keep their
/// values.
#[test]
fn adding_by_index_keeps_the_sign_of_zeros() {
    let (x, part, ids) =
        ([-0.0, -0.0, -0.0, -0.0, 0.0, -0.0, 1.0], [-0.0, 0.0, -0.0, -0.0, -0.0, 0.0, -0.0], [0, 1, 2, 2, 3, 3, 4]);
    for dtype in [DType::F16, DType::F32, DType::F64] {
        let mut graph = Graph::new("zeros");
        let of = |x: &[f64]| Tensor::from_f64(dtype, &[1, x.len(), 1], x.iter().copied());
        let operands = [of(&x), of(&part), Tensor::from_i64(DType::I64, &[1, 7, 1], ids)];
        let operands = operands.map(|tensor| graph.constant(tensor).unwrap());
        let y = graph.apply("scatter-sum", &operands, &[]).unwrap();
        graph.output("y", y).unwrap();
        let mut want = x;
        ids.iter().zip(part).for_each(|(&place, part)| want[place as usize] += part);
        let got = interpret::<f64>(&graph, &|_| None).unwrap()[0].to_tensor().to_f64();
        assert_eq!(got.iter().map(|y| y.to_bits()).collect::<Vec<_>>(), want.map(f64::to_bits), "{dtype}");
    }
}

#[test]
fn places_of_elements_in_their_row() {
    let row: (&[usize], &[f64]) = (&[2, 4], &[3.0, f64::NAN, 3.0, -1.0, 0.0, -0.0, f64::INFINITY, 0.0]);
    let ranking = |most: i64, descending: bool| {
        let x = Tensor::from_f64(DType::F64, row.0, row.1.iter().copied());
        let mut graph = Graph::new("ranking");
        let x = graph.constant(x).unwrap();
        let y = graph.apply("ranking", &[x], &[("most", most.into()), ("descending", descending.into())]).unwrap();
        graph.output("y", y).unwrap();
        interpret::<f64>(&graph, &|_| None).unwrap()[0].to_tensor().to_f64()
    };
    assert_close(&ranking(4, false), &[1.0, 3.0, 2.0, 0.0, 0.0, 1.0, 3.0, 2.0]);
    assert_close(&ranking(4, true), &[1.0, 0.0, 2.0, 3.0, 1.0, 2.0, 0.0, 3.0]);
    assert_close(&ranking(2, true), &[1.0, 0.0, 2.0, 2.0, 1.0, 2.0, 0.0, 2.0]);
}

#[test]
fn activations() {
    let act = |kind: &str, x: f64| eval("act", &[(&[], &[x])], &[word("kind", kind)])[0];
    assert_close(&[act("silu", 1.0), act("silu", -2.0)], &[0.7310585786, -0.2384058440]);
    for (x, erf, tanh) in
        [(1.0, 0.8413447461, 0.8411919906), (-0.5, -0.1542687694, -0.1542859902), (3.0, 2.9959503059, 2.9963626079)]
    {
        assert_close(&[act("gelu-erf", x), act("gelu-tanh", x)], &[erf, tanh]);
    }
    assert_close(&[act("relu", -1.0), act("none", -1.0)], &[0.0, -1.0]);
    let p: (&[usize], &[f64]) = (&[4], &[1.0, 2.0, 3.0, -1.0]);
    assert_close(&eval("glu", &[p], &[word("gate", "second")]), &[2.8577223805, -0.5378828427]);
    assert_close(&eval("glu", &[p], &[word("gate", "first")]), &[2.1931757359, -1.7615941560]);
}

#[test]
fn norms() {
    let x: (&[usize], &[f64]) = (&[1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let g: (&[usize], &[f64]) = (&[4], &[1.0; 4]);
    let b: (&[usize], &[f64]) = (&[4], &[0.0; 4]);
    let eps = [("eps", Attr::from(1e-5))];
    let layer = [-1.34163542, -0.44721181, 0.44721181, 1.34163542];
    assert_close(&eval("layernorm", &[x, g, b], &eps), &layer);
    assert_close(&eval("rmsnorm", &[x, g], &eps), &[0.36514813, 0.73029626, 1.09544438, 1.46059251]);
}

#[test]
fn rotary_embedding() {
    let x: (&[usize], &[f64]) = (&[1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let (a, b) = (1.0_f64, 0.01_f64);
    let tables =
        |n: &[f64]| (n.iter().map(|x| x.cos()).collect::<Vec<_>>(), n.iter().map(|x| x.sin()).collect::<Vec<_>>());
    let (cos, sin) = tables(&[a, b]);
    let style = [word("style", "half")];
    let full = eval("rope", &[x, (&[1, 2], &cos), (&[1, 2], &sin)], &style);
    assert_close(&full, &[-1.98411065, 1.95990067, 2.46237790, 4.01979967]);
    let partial = eval("rope", &[x, (&[1, 1], &cos[..1]), (&[1, 1], &sin[..1])], &style);
    assert_close(&partial, &[-1.14263966, 1.92207560, 3.0, 4.0]);
    let adjacent = eval("rope", &[x, (&[1, 1], &cos[..1]), (&[1, 1], &sin[..1])], &[word("style", "adjacent")]);
    assert_close(&adjacent, &partial);
}

#[test]
fn attention_of_one_query() {
    let (q, k, v): ([f64; 2], [f64; 4], [f64; 4]) = ([1.0, 0.0], [1.0, 0.0, 0.0, 1.0], [1.0, 2.0, 3.0, 4.0]);
    let scale = [("scale", Attr::from(0.5_f64.sqrt()))];
    let got = eval("attention", &[(&[1, 2], &q), (&[2, 2], &k), (&[2, 2], &v)], &scale);
    assert_close(&got, &[1.66047690, 2.66047690]);
    let mut attrs = vec![word("mask", "none")];
    attrs.extend(scale);
    let got = eval("sdpa", &[(&[1, 1, 2], &q), (&[1, 2, 2], &k), (&[1, 2, 2], &v)], &attrs);
    assert_close(&got, &[1.66047690, 2.66047690]);
}

/// Returns the keys that each query sees. All scores are equal, and each value has a 1 at the place of its key and
/// zeros elsewhere.
fn visible(queries: usize, keys: usize, attrs: &[(&str, Attr)]) -> Vec<Vec<usize>> {
    let v: Vec<f64> = (0..keys).flat_map(|j| (0..keys).map(move |e| f64::from(u8::from(e == j)))).collect();
    let (q, k) = (vec![0.0; queries], vec![0.0; keys]);
    let operands: [(&[usize], &[f64]); 3] = [(&[1, queries, 1], &q), (&[1, keys, 1], &k), (&[1, keys, keys], &v)];
    let weights = eval("sdpa", &operands, &[&[("scale", Attr::from(1.0))], attrs].concat());
    weights.chunks(keys).map(|row| (0..keys).filter(|&j| row[j] > 0.0).collect()).collect()
}

#[test]
fn visibility() {
    let window = [word("mask", "window"), ("window", Attr::Int(2))];
    assert_eq!(visible(4, 4, &window), [vec![0], vec![0, 1], vec![1, 2], vec![2, 3]]);
    let causal = [word("mask", "causal")];
    assert_eq!(visible(2, 5, &causal), [vec![0, 1, 2, 3], vec![0, 1, 2, 3, 4]]);
    assert_eq!(visible(1, 5, &causal), [vec![0, 1, 2, 3, 4]]);
    // There are more queries than keys. The first queries see no keys, so their results are zeros.
    assert_eq!(visible(3, 1, &causal), [vec![], vec![], vec![0]]);
}

#[test]
fn fully_masked_rows() {
    let (q, k, v): ([f64; 1], [f64; 2], [f64; 2]) = ([1.0], [1.0, 2.0], [3.0, 4.0]);
    let hidden = [f64::NEG_INFINITY; 2];
    let operands: [(&[usize], &[f64]); 4] = [(&[1, 1], &q), (&[2, 1], &k), (&[2, 1], &v), (&[1, 2], &hidden)];
    let attend = |empty: &str| eval("attention", &operands, &[("scale", Attr::from(1.0)), word("empty", empty)]);
    assert_close(&attend("zeros"), &[0.0]);
    assert_close(&attend("nan"), &[f64::NAN]);
}

#[test]
fn grouped_heads_read_their_group() {
    // There are four query heads and two key heads. The value of each key head identifies it.
    let operands: [(&[usize], &[f64]); 3] =
        [(&[4, 1, 1], &[1.0; 4]), (&[2, 1, 1], &[1.0; 2]), (&[2, 1, 1], &[10.0, 20.0])];
    let got = eval("sdpa", &operands, &[("scale", Attr::from(1.0)), word("mask", "none")]);
    assert_close(&got, &[10.0, 10.0, 20.0, 20.0]);
}

#[test]
fn integers_and_casts() {
    let run = |op: &str, dtype: DType, operands: &[&[i64]], attrs: &[(&str, Attr)]| {
        let mut graph = Graph::new("ints");
        let ids: Vec<_> = operands
            .iter()
            .map(|n| graph.constant(Tensor::from_i64(dtype, &[n.len()], n.iter().copied())).unwrap())
            .collect();
        let y = graph.apply(op, &ids, attrs).unwrap();
        graph.output("y", y).unwrap();
        interpret::<f64>(&graph, &|_| None).unwrap()[0].to_tensor()
    };
    let ints = |op, dtype, operands: &[&[i64]]| run(op, dtype, operands, &[]).to_i64();
    assert_eq!(ints("add", DType::I8, &[&[127, -128], &[1, -1]]), [-128, 127]);
    assert_eq!(ints("neg", DType::U32, &[&[1]]), [u32::MAX.into()]);
    assert_eq!(ints("div", DType::I32, &[&[7, -7, 3, i32::MIN.into()], &[2, 2, 0, -1]]), [3, -3, 0, i32::MIN.into()]);
    assert_eq!(ints("mod", DType::I32, &[&[7, -7, 7, -7, 1], &[3, 3, -3, -3, 0]]), [1, 2, -2, -1, 0]);
    assert_eq!(ints("pow", DType::I32, &[&[2, -1, 0, 5, 2], &[10, -3, -1, -1, 31]]), [1024, -1, 0, 0, i32::MIN.into()]);
    let cast = |x: f64, to: DType| {
        let mut graph = Graph::new("cast");
        let x = graph.constant(Tensor::from_f64(DType::F64, &[], [x])).unwrap();
        let y = graph.apply("cast", &[x], &[("to", to.into())]).unwrap();
        graph.output("y", y).unwrap();
        interpret::<f64>(&graph, &|_| None).unwrap()[0].to_tensor().to_i64()[0]
    };
    assert_eq!([cast(-1.9, DType::I32), cast(300.0, DType::U8), cast(-3.0, DType::U8)], [-1, 255, 0]);
    assert_eq!([cast(f64::NAN, DType::I64), cast(f64::NAN, DType::Bool), cast(1e30, DType::I64)], [0, 1, i64::MAX]);
}

#[test]
fn errors_say_where() {
    let mut graph = Graph::new("errors");
    let table = graph.param("table", Type::tensor(DType::F32, &[3, 2])).unwrap();
    let ids = graph.input("ids", Type::tensor(DType::I64, &[2])).unwrap();
    let y = graph.within("embeddings", |g| g.apply("gather", &[table, ids], &[])).unwrap();
    graph.output("y", y).unwrap();
    let error = interpret::<f64>(&graph, &|_| None).unwrap_err();
    assert_eq!(error.to_string(), "`table` : f32[3 2] was not given; `ids` : i64[2] was not given");
    let given = |name: &str| match name {
        "ids" => Some(Tensor::from_i64(DType::I64, &[2], [2, -1])),
        _ => Some(Tensor::from_f64(DType::F32, &[3, 2], (0..6).map(f64::from))),
    };
    let error = interpret::<f64>(&graph, &given).unwrap_err();
    let InterpError::IndexOutOfRange { problem, .. } = &error else { panic!("{error}") };
    assert_eq!((problem.id, problem.ids.extent), (-1, 3));
    assert!(error.to_string().contains("embeddings"), "{error}");
}
