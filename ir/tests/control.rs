//! Compares branches and loops, after inlining, with Rust control flow around the interpreter.

use eutectic_ir::{DType, Graph, NodeId, Tensor, Type, graph::DotAxes, interpret, lang::Source, text};

fn parse(source: &str) -> Graph {
    text::parse(&Source::new("test.graph", source)).unwrap_or_else(|e| panic!("{:?}", e.0))
}

/// Returns a body from its statements.
fn body(name: &str, statements: &str) -> Graph {
    parse(&format!("(graph {name} {statements})"))
}

/// Returns the outputs of a graph whose inputs have these values, in their order.
fn run(graph: &Graph, inputs: &[Tensor]) -> Vec<Tensor> {
    let names: Vec<&str> = graph.named("input").map(|(name, _)| name).collect();
    let given = |name: &str| names.iter().position(|n| *n == name).map(|at| inputs[at].clone());
    interpret::<f64>(graph, &given).unwrap().iter().map(|v| v.to_tensor()).collect()
}

fn numbers(dims: &[usize], x: &[f64]) -> Tensor {
    Tensor::from_f64(DType::F64, dims, x.iter().copied())
}

fn inputs(graph: &mut Graph, types: &[Type]) -> Vec<NodeId> {
    types.iter().enumerate().map(|(at, ty)| graph.input(&format!("x{at}"), ty.clone()).unwrap()).collect()
}

/// Returns the carried values after a loop: from a graph, and from a loop in Rust.
fn both(condition: &Graph, body: &Graph, start: &[Tensor], captured: &[Tensor], most: usize) -> [Vec<Tensor>; 2] {
    let given = [start, captured].concat();
    let mut graph = Graph::new("loop");
    let ids = inputs(&mut graph, &given.iter().map(Tensor::ty).collect::<Vec<_>>());
    let (first, rest) = ids.split_at(start.len());
    let results = graph.repeat(condition, body, first, rest, most).unwrap();
    for (at, id) in results.into_iter().enumerate() {
        graph.output(&format!("y{at}"), id).unwrap();
    }
    graph.verify().unwrap();
    let mut carried = start.to_vec();
    for _ in 0..most {
        let all = [carried.as_slice(), captured].concat();
        if run(condition, &all)[0].to_f64() == [0.0] {
            break;
        }
        carried = run(body, &all);
    }
    [run(&graph, &given), carried]
}

#[test]
fn loops_end_where_their_condition_does() {
    // There are two carried values of different shapes, one captured value, and a condition that reads the second
    // carried value.
    let condition =
        body("small", "(input a f64[2]) (input b f64[]) (input c f64[2]) (output p (lt b (const f64[] { 10 })))");
    let double = body(
        "double",
        "(input a f64[2]) (input b f64[]) (input c f64[2]) (output a (add a c)) (output b (mul b (const f64[] { 2 })))",
    );
    let captured = [numbers(&[2], &[0.5, -1.0])];
    // The condition is never true, true for some steps, or always true.
    for start in [99.0, 10.0, 9.0, 1.0, 0.0] {
        for most in [0, 1, 2, 5, 7] {
            let [got, want] =
                both(&condition, &double, &[numbers(&[2], &[1.0, 2.0]), numbers(&[], &[start])], &captured, most);
            assert_eq!(got, want, "from {start}, {most} steps");
        }
    }
}

#[test]
fn conditions_may_be_numbers() {
    let countdown = body("countdown", "(input n f64[1]) (output n (sub n (const f64[1] { 1 })))");
    let itself = body("itself", "(input n f64[1]) (output n n)");
    // Any number except 0 continues the loop, 0.5 too.
    for start in [3.0, 0.0, 2.5] {
        let [got, want] = both(&itself, &countdown, &[numbers(&[1], &[start])], &[], 4);
        assert_eq!(got, want);
    }
}

#[test]
fn steps_after_the_last_are_given_the_start() {
    // n is 0 after the last step, so n/n would be NaN in a further step. Further steps get the start instead.
    let mut graph = Graph::new("gated");
    let x = graph.input("x", Type::tensor(DType::F64, &[])).unwrap();
    let condition = body("positive", "(input n f64[]) (output p (gt n (const f64[] { 0 })))");
    let step = body("step", "(input n f64[]) (output n (sub n (div n n)))");
    let y = graph.repeat(&condition, &step, &[x], &[], 5).unwrap();
    graph.output("y", y[0]).unwrap();
    let quotients: Vec<NodeId> = graph.nodes().filter(|(_, n)| n.op.name() == "div").map(|(id, _)| id).collect();
    assert_eq!(quotients.len(), 5);
    for (at, id) in quotients.into_iter().enumerate() {
        graph.output(&format!("q{at}"), id).unwrap();
    }
    let got = run(&graph, &[numbers(&[], &[2.0])]);
    assert_eq!(got[0].to_f64(), [0.0]);
    assert!(got[1..].iter().all(|q| q.to_f64() == [1.0]), "{got:?}");
}

#[test]
fn branches_choose_all_their_results() {
    let then = body("then", "(input x f64[2 2]) (input n i32[]) (output a (neg x)) (output b (add n n))");
    let other = body("other", "(input x f64[2 2]) (input n i32[]) (output a (mul x x)) (output b n)");
    for predicate in
        [Tensor::from_i64(DType::Bool, &[], [1]), Tensor::from_i64(DType::Bool, &[1, 1], [0]), numbers(&[], &[-0.5])]
    {
        let given =
            [predicate.clone(), numbers(&[2, 2], &[1.0, -2.0, 3.0, 0.5]), Tensor::from_i64(DType::I32, &[], [7])];
        let mut graph = Graph::new("branch");
        let ids = inputs(&mut graph, &given.iter().map(Tensor::ty).collect::<Vec<_>>());
        let results = graph.branch(ids[0], &then, &other, &ids[1..]).unwrap();
        for (at, id) in results.into_iter().enumerate() {
            graph.output(&format!("y{at}"), id).unwrap();
        }
        let taken = if predicate.to_f64() == [0.0] { &other } else { &then };
        assert_eq!(run(&graph, &given), run(taken, &given[1..]));
    }
}

#[test]
fn text_nests_and_merges_parameters() {
    let graph = parse(
        r#"(graph "nested"
             (input p bool[])
             (input x f64[2])
             (sub scaled (input x f64[2]) (param w f64[2]) (output y (mul x w)))
             (sub steps
               (input x f64[2])
               (sub go (input x f64[2]) (input n f64[]) (output p (lt n (const f64[] { 3 }))))
               (sub step
                 (input x f64[2]) (input n f64[]) (param w f64[2])
                 (output x (add x w)) (output n (add n (const f64[] { 1 }))))
               (let (y n) (while go step x (const f64[] { 0 }) :most 6))
               (output y y))
             (output y (if p scaled steps x))
             (param w f64[2]))"#,
    );
    assert_eq!(graph.named("param").count(), 1);
    let printed = text::print(&graph, text::Style::default());
    assert_eq!(parse(&printed), graph, "the printed graph differs from the inlined one after parsing");
    for (p, want) in [(1, [3.0, 8.0]), (0, [10.0, 14.0])] {
        let given = |name: &str| {
            Some(match name {
                "p" => Tensor::from_i64(DType::Bool, &[], [p]),
                "x" => numbers(&[2], &[1.0, 2.0]),
                _ => numbers(&[2], &[3.0, 4.0]),
            })
        };
        assert_eq!(interpret::<f64>(&graph, &given).unwrap()[0].to_tensor().to_f64(), want);
    }
}

#[test]
fn mistakes_say_what_differs() {
    let wrong = |statements: &str| {
        let source = format!(
            "(graph g (input x f32[2]) (input p bool[]) (input q bool[2])
               (sub a (input x f32[2]) (output y x))
               (sub b (input x f32[2]) (output y (reduce-sum x :axes [0])))
               (sub c (input x f32[2]) (output y x) (output z x))
               {statements})"
        );
        let errors = text::parse(&Source::new("wrong.graph", source)).unwrap_err();
        errors.0.iter().map(|e| e.message.clone()).collect::<Vec<_>>().join("; ")
    };
    for (statements, part) in [
        ("(output y (if q a a x))", "not one element"),
        ("(output y (if p a b x))", "result 0 is f32[2] in `a`, f32[1] in `b`"),
        ("(output y (if p a c x))", "`a` has 1 results, but `c` has 2"),
        ("(output y (if p a a x x))", "it has 1 inputs (x), but 2 values are given"),
        ("(output y (if p a a p))", "its input x has type f32[2], but the given value has type bool[]"),
        ("(output y (if p a nothing x))", "there is no body of that name"),
        ("(output y (while a a x))", "does not end in :most"),
        ("(output y (while a a x :most 3))", "the condition of a loop is f32[2], not one element"),
        ("(output y (while b b x :most 3))", "result 0 of `b` has type f32[1], but the carried value has type f32[2]"),
        ("(output y (if p c c x))", "this has 2 results"),
        ("(let (y z w) (if p c c x))", "3 names for 2 results"),
        ("(sub a (input x f32[2]) (output y x))", "`a` is defined already"),
    ] {
        let message = wrong(statements);
        assert!(message.contains(part), "{statements}: {message}");
    }
    // A body sees only its own names. The error is reported once.
    let unseen = "(sub d (input x f32[2]) (output y q)) (output y (if p d d x))";
    assert_eq!(wrong(unseen), "there is no value `q` here");
}

#[test]
fn general_products() {
    let mut state = 1_u64;
    let mut random = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for _ in 0..60 {
        // Axes have labels: batch, contracted, left, right. Each operand has its axes in an order of its own.
        let mut extents =
            |count: u64| (0..random(count)).map(|_| [0, 1, 2, 3, 5][random(5) as usize]).collect::<Vec<usize>>();
        let (batch, contract, left, right) = (extents(3), extents(3), extents(3), extents(3));
        let labels = |own: &[usize], kind: usize| {
            let all = [(0, batch.as_slice()), (1, &contract), (kind, own)];
            all.into_iter()
                .flat_map(|(k, x)| x.iter().enumerate().map(move |(at, n)| ((k, at), *n)))
                .collect::<Vec<_>>()
        };
        let mut shuffled = |mut axes: Vec<((usize, usize), usize)>| {
            (1..axes.len()).rev().for_each(|i| axes.swap(i, random(i as u64 + 1) as usize));
            axes
        };
        let (a, b) = (shuffled(labels(&left, 2)), shuffled(labels(&right, 3)));
        let dims = |axes: &[((usize, usize), usize)]| axes.iter().map(|(_, n)| *n).collect::<Vec<_>>();
        let places = |axes: &[((usize, usize), usize)], kind: usize| {
            let mut found: Vec<_> = axes
                .iter()
                .enumerate()
                .filter(|(_, (l, _))| l.0 == kind)
                .map(|(at, (l, _))| (l.1, at as i64))
                .collect();
            found.sort_unstable();
            found.into_iter().map(|(_, at)| at).collect::<Vec<i64>>()
        };
        let mut fill = |axes: &[((usize, usize), usize)]| {
            let count = dims(axes).iter().product::<usize>();
            numbers(&dims(axes), &(0..count).map(|_| random(9) as f64 - 4.0).collect::<Vec<_>>())
        };
        let (x, y) = (fill(&a), fill(&b));
        let mut graph = Graph::new("dot");
        let ids = inputs(&mut graph, &[x.ty(), y.ty()]);
        let axes = DotAxes { contract: (&places(&a, 1), &places(&b, 1)), batch: (&places(&a, 0), &places(&b, 0)) };
        let dot = graph.dot_general(ids[0], ids[1], axes).unwrap();
        graph.output("dot", dot).unwrap();
        let got = run(&graph, &[x.clone(), y.clone()]).remove(0);
        // Each operand keeps the order of its outer axes.
        let outer = |axes: &[((usize, usize), usize)], kind: usize| {
            axes.iter().filter(|(l, _)| l.0 == kind).copied().collect::<Vec<_>>()
        };
        let of = |kind: usize, extents: &[usize]| {
            extents.iter().enumerate().map(|(at, n)| ((kind, at), *n)).collect::<Vec<_>>()
        };
        let result = [of(0, &batch), outer(&a, 2), outer(&b, 3)].concat();
        assert_eq!(got.dims(), dims(&result));
        let all = [result, of(1, &contract)].concat();
        let at = |axes: &[((usize, usize), usize)], point: &[usize]| {
            axes.iter().fold(0, |flat, (l, n)| flat * n + point[all.iter().position(|(m, _)| m == l).unwrap()])
        };
        let mut want = vec![0.0; got.to_f64().len()];
        let count = dims(&all).iter().product::<usize>();
        let inner = contract.iter().product::<usize>().max(1);
        for flat in 0..count {
            let mut rest = flat;
            let mut point: Vec<usize> = dims(&all).iter().rev().map(|n| (rest % n, rest /= n).0).collect();
            point.reverse();
            want[flat / inner] += x.to_f64()[at(&a, &point)] * y.to_f64()[at(&b, &point)];
        }
        assert_eq!(got.to_f64(), want, "{a:?} {b:?}");
    }
}

#[test]
fn general_products_are_validated() {
    let mut graph = Graph::new("dot");
    let ids = inputs(&mut graph, &[Type::tensor(DType::F32, &[2, 3]), Type::tensor(DType::F32, &[3, 2])]);
    let mut wrong = |contract: (&[i64], &[i64]), batch: (&[i64], &[i64])| {
        graph.dot_general(ids[0], ids[1], DotAxes { contract, batch }).unwrap_err().to_string()
    };
    assert!(
        wrong((&[1], &[1]), (&[], &[]))
            .contains("the contracted axes have extents [3] on the left and [2] on the right")
    );
    assert!(wrong((&[1], &[]), (&[], &[])).contains("the contracted axes"));
    assert!(wrong((&[1], &[0]), (&[1], &[1])).contains("axis 1 of the left operand is named twice"));
    assert!(wrong((&[2], &[0]), (&[], &[])).contains("has no axis 2"));
}

#[test]
fn masks_of_every_rank_are_told_apart() {
    let mut graph = Graph::new("masks");
    let mut form = |name: &str, mask: &[usize], batch: &[usize], scores: [usize; 3]| {
        let id = graph.input(name, Type::tensor(DType::Bool, mask)).unwrap();
        let scores = scores.map(|n| (n as i64).into());
        let form = graph.mask_of_scores(id, &batch.iter().copied().collect(), scores);
        form.map(|id| graph.ty(id).dims().unwrap()).map_err(|e| e.problem)
    };
    assert_eq!(form("a", &[2, 5], &[2], [4, 3, 5]), Ok(vec![2, 1, 1, 5]));
    assert_eq!(form("b", &[2, 3, 5], &[2], [4, 3, 5]), Ok(vec![2, 1, 3, 5]));
    assert_eq!(form("c", &[2, 4, 3, 5], &[2], [4, 3, 5]), Ok(vec![2, 4, 3, 5]));
    assert_eq!(form("d", &[4, 3, 5], &[2], [4, 3, 5]), Ok(vec![4, 3, 5]));
    assert_eq!(form("e", &[3, 5], &[2], [4, 3, 5]), Ok(vec![3, 5]));
    assert_eq!(form("f", &[5], &[2], [4, 3, 5]), Ok(vec![5]));
    assert_eq!(form("g", &[1, 3, 5], &[1], [4, 3, 5]), Ok(vec![1, 1, 3, 5]));
    assert_eq!(form("h", &[3, 5], &[], [4, 3, 5]), Ok(vec![1, 3, 5]));
    assert!(form("i", &[2, 5], &[2], [4, 2, 5]).unwrap_err().contains("can be read as [2 1 1 5] and as [2 5]"));
    assert!(form("j", &[4, 3, 5], &[4], [4, 3, 5]).unwrap_err().contains("can be read as"));
    assert!(form("k", &[2, 4], &[2], [4, 3, 5]).unwrap_err().contains("does not expand"));
}
