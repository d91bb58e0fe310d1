//! Sessions: arguments by position and by name, reuse, and errors that name arguments that do not fit.

use eutectic::{
    Compiler, Cpu, CpuOptions, DType, Error, Graph, Session, Strategy, Tensor, Type,
    engine::{
        ir::{interpret, lang::sexp::Source, text::parse},
        lowering::print,
    },
};

fn graph() -> Graph {
    let mut graph = Graph::new("x w + b");
    let x = graph.input("x", Type::tensor(DType::F32, &[2, 3])).unwrap();
    let w = graph.param("w", Type::tensor(DType::F32, &[3, 5])).unwrap();
    let b = graph.param("b", Type::tensor(DType::F32, &[5])).unwrap();
    let product = graph.apply("matmul", &[x, w], &[]).unwrap();
    let y = graph.apply("add", &[product, b], &[]).unwrap();
    graph.output("y", y).unwrap();
    graph
}

fn compiler() -> Compiler {
    Compiler::new(Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() })).unwrap()
}

fn session() -> Session {
    compiler().compile(&graph()).unwrap()
}

fn tensor(dims: &[usize], first: i64) -> Tensor {
    Tensor::from_i64(DType::F32, dims, first..first + dims.iter().product::<usize>() as i64)
}

#[test]
fn every_strategy_computes_the_same() {
    let (x, w, b) = (tensor(&[2, 3], 1), tensor(&[3, 5], -4), tensor(&[5], 10));
    let want = [26.0, 33.0, 40.0, 47.0, 54.0, 35.0, 51.0, 67.0, 83.0, 99.0];
    for strategy in [Strategy::Unfused, Strategy::Greedy, Strategy::Local, Strategy::Exact] {
        let mut session = compiler().with_strategy(strategy).compile(&graph()).unwrap();
        session.load(&[w.clone(), b.clone()]).unwrap();
        for _ in 0..2 {
            assert_eq!(session.run(std::slice::from_ref(&x)).unwrap()[0].to_f64(), want, "{strategy:?}");
        }
        let times = session.profile(std::slice::from_ref(&x), 3).unwrap();
        assert_eq!(times.iter().map(Vec::len).collect::<Vec<_>>(), [session.program().run.len(); 3]);
    }
}

#[test]
fn arguments_by_name() {
    let mut session = session();
    let error = session.load_named(|name| (name == "w").then(|| tensor(&[3, 5], 0))).unwrap_err();
    assert_eq!(error.to_string(), "parameter `b` f32[5] has no value");
    session.load_named(|name| Some(if name == "w" { tensor(&[3, 5], 0) } else { tensor(&[5], 0) })).unwrap();
    assert_eq!(session.run_named(|_| Some(tensor(&[2, 3], 0))).unwrap()[0].dims(), [2, 5]);
}

#[test]
fn runs_into_bytes_take_the_lengths_of_inputs_and_compute_what_is_wanted() {
    let text = r#"(graph "g" (dim S :least 1 :most 8) (input x f32[S 2]) (output y (neg x)) (output t (transpose x :perm [1 0])))"#;
    let mut session = compiler().compile(&parse(&Source::new("g", text)).unwrap()).unwrap();
    session.load(&[]).unwrap();
    for length in [8, 1, 3] {
        let x = tensor(&[length, 2], 1);
        let types = session.fit(std::slice::from_ref(&x)).unwrap();
        assert_eq!(types, [Type::tensor(DType::F32, &[length, 2]), Type::tensor(DType::F32, &[2, length])]);
        let mut y = vec![0; 8 * length];
        session.run_some_into(&[x.bytes()], [Some(y.as_mut_slice()), None]).unwrap();
        let y = Tensor::new(DType::F32, &[length, 2], y).unwrap();
        assert_eq!(y.to_f64(), x.to_f64().iter().map(|x| -x).collect::<Vec<_>>());
        assert!(session.run_some_into(&[x.bytes()], [None]).is_err(), "one output is not spoken of");
    }
    assert!(matches!(session.fit(&[tensor(&[9, 2], 0)]), Err(Error::Arguments(_))));
}

#[test]
fn what_does_not_fit_is_named() {
    let mut session = session();
    assert!(session.run(&[tensor(&[2, 3], 0)]).is_err(), "nothing is loaded");
    let error = session.load(&[tensor(&[5, 3], 0), tensor(&[6], 0)]).unwrap_err().to_string();
    assert!(error.contains("`w` is f32[3 5], but f32[5 3]") && error.contains("`b` is f32[5], but f32[6]"), "{error}");
    session.load(&[tensor(&[3, 5], 0), tensor(&[5], 0)]).unwrap();
    for inputs in [vec![], vec![tensor(&[2, 4], 0)], vec![tensor(&[2, 3], 0); 2]] {
        assert!(matches!(session.run(&inputs), Err(Error::Arguments(_))));
    }
}

#[test]
fn what_is_looked_up_by_arithmetic_on_ranges_is_read_where_it_lies() {
    let distances = |rows: usize| {
        let text = format!(
            "(graph \"distances\"
              (input x f32[5 6 4])
              (param table f32[{rows} 4])
              (let query (cast (iota :shape [5 1] :axis -2 :dtype i64) :to f32))
              (let key (cast (iota :shape [6] :axis -1 :dtype i64) :to f32))
              (const shift f32[] {{ 5.0 }})
              (let ids (cast (add (sub query key) shift) :to i64))
              (output y (add x (gather table ids :axis -2))))"
        );
        parse(&Source::new("distances", text)).unwrap_or_else(|e| panic!("{e}"))
    };
    // Returns whether the load program evaluates the ids, instead of reading the table by an index map.
    let evaluates = |graph: &Graph| {
        let program = compiler().plan(graph).unwrap().lowered.program;
        assert_eq!(program.load.len(), 1, "ranges are not computed for nobody");
        print::program(&program).contains("within")
    };
    assert!(evaluates(&distances(9)), "the last id is past the table");
    let graph = distances(10);
    assert!(!evaluates(&graph));
    let (x, table) = (tensor(&[5, 6, 4], -60), tensor(&[10, 4], 100));
    let given = |name: &str| Some(if name == "x" { x.clone() } else { table.clone() });
    let want = interpret::<f64>(&graph, &given).unwrap()[0].to_tensor().to_f64();
    for strategy in [Strategy::Unfused, Strategy::Local] {
        let mut session = compiler().with_strategy(strategy).compile(&graph).unwrap();
        session.load(std::slice::from_ref(&table)).unwrap();
        assert_eq!(session.run(std::slice::from_ref(&x)).unwrap()[0].to_f64(), want, "{strategy:?}");
    }
}

#[test]
fn indices_out_of_range_are_errors_even_where_padding_is_read() {
    let mut graph = Graph::new("gather of pad");
    let x = graph.input("x", Type::tensor(DType::F32, &[3])).unwrap();
    let ids = graph.input("ids", Type::tensor(DType::I64, &[4])).unwrap();
    let wide = graph.apply("pad", &[x], &[("axis", 0.into()), ("before", 2.into()), ("after", 1.into())]).unwrap();
    let y = graph.apply("gather", &[wide, ids], &[("axis", 0.into())]).unwrap();
    graph.output("y", y).unwrap();
    for strategy in [Strategy::Unfused, Strategy::Local] {
        let mut session = compiler().with_strategy(strategy).compile(&graph).unwrap();
        session.load(&[]).unwrap();
        let mut run = |ids: [i64; 4]| session.run(&[tensor(&[3], 7), Tensor::from_i64(DType::I64, &[4], ids)]);
        assert_eq!(run([0, 2, 4, 5]).unwrap()[0].to_f64(), [0.0, 7.0, 9.0, 0.0]);
        for bad in [6, -1, i64::MIN] {
            let error = run([0, bad, 4, 5]).unwrap_err().to_string();
            assert!(error.contains(&bad.to_string()), "{strategy:?}: {error}");
        }
    }
}

#[test]
fn tensors_without_elements_run() {
    for rows in [0, 2] {
        let mut graph = Graph::new("rows");
        let x = graph.input("x", Type::tensor(DType::F32, &[rows, 3])).unwrap();
        let w = graph.param("w", Type::tensor(DType::F32, &[3, 5])).unwrap();
        let b = graph.param("b", Type::tensor(DType::F32, &[5])).unwrap();
        let y = graph.apply("linear", &[x, w, b], &[("act", "relu".into())]).unwrap();
        let turned = graph.apply("transpose", &[y], &[("perm", [1, 0].as_slice().into())]).unwrap();
        let shares = graph.apply("softmax", &[y], &[("axis", (-1).into())]).unwrap();
        let sums = graph.apply("reduce-sum", &[y], &[("axes", [0].as_slice().into()), ("keep", false.into())]).unwrap();
        let both = graph.apply("concat", &[x, x], &[("axis", 0.into())]).unwrap();
        for (name, value) in [("turned", turned), ("shares", shares), ("sums", sums), ("both", both)] {
            graph.output(name, value).unwrap();
        }
        for strategy in [Strategy::Unfused, Strategy::Greedy, Strategy::Local] {
            let mut session = compiler().with_strategy(strategy).compile(&graph).unwrap();
            session.load(&[tensor(&[3, 5], 1), tensor(&[5], 1)]).unwrap();
            let outputs = session.run(&[tensor(&[rows, 3], 1)]).unwrap();
            let dims: Vec<_> = outputs.iter().map(|t| t.dims().to_vec()).collect();
            assert_eq!(dims, [vec![5, rows], vec![rows, 5], vec![5], vec![2 * rows, 3]], "{strategy:?}");
            let column = |c: i64| {
                (0..rows as i64)
                    .map(|r| (0..3).map(|k| (3 * r + k + 1) * (5 * k + c + 1)).sum::<i64>() + c + 1)
                    .sum::<i64>()
            };
            assert_eq!(outputs[2].to_f64(), (0..5).map(|c| column(c) as f64).collect::<Vec<_>>(), "{strategy:?}");
        }
    }
}

#[test]
fn what_no_memory_holds_is_refused_before_it_is_planned() {
    for dims in [&[usize::MAX, usize::MAX][..], &[usize::MAX], &[1 << 40, 1 << 40]] {
        let mut graph = Graph::new("huge");
        let x = graph.input("x", Type::tensor(DType::F32, dims)).unwrap();
        // The builder may refuse the op itself, because the size of its result overflows.
        let Ok(y) = graph.apply("exp", &[x], &[]) else { continue };
        graph.output("y", y).unwrap();
        let compiler = compiler();
        let errors = [
            compiler.compile(&graph).err(),
            compiler.plan(&graph).err(),
            compiler.why(&graph, |_| true).err(),
            compiler.after_phase(&graph, eutectic::engine::rewrites::Phase::Main).err(),
        ];
        for (at, error) in errors.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("{dims:?}, {at}: it is taken")).to_string();
            assert!(error.contains("memory") || error.contains("too large"), "{dims:?}, {at}: {error}");
        }
    }
}

/// Returns a table of rank 2, which the op reads as one of rank 3, and a sum of its rows after the update.
fn counting(table: &str) -> Graph {
    let text = format!(
        "(graph \"count\" {table} (input u f32[6 8]) (input ids i64[6])
           (let rows (expand (reshape ids :shape [1 6 1]) :shape [1 6 8]))
           (let summed (scatter-sum (reshape table :shape [1 50 8]) (reshape u :shape [1 6 8]) rows))
           (let next (reshape summed :shape [50 8]))"
    );
    let end = match table.starts_with("(state") {
        true => "(update table next) (output y (reduce-sum next :axes [-1] :keep true)))",
        false => "(output next next))",
    };
    parse(&Source::new("count.graph", text + end)).unwrap()
}

#[test]
fn a_table_is_written_in_place_in_any_shape() {
    let ids = Tensor::from_i64(DType::I64, &[6], [3, 7, 3, 49, 0, 7]);
    let mut want = vec![0.0; 50 * 8];
    let graph = counting("(state table f32[50 8])");
    let planned = compiler().plan(&graph).unwrap();
    assert_eq!(planned.lowered.program.run.len(), 2, "{}", print::program(&planned.lowered.program));
    let mut session = compiler().compile(&graph).unwrap();
    session.load(&[]).unwrap();
    for run in 0..3 {
        let u = tensor(&[6, 8], run);
        for (row, id) in [3, 7, 3, 49, 0, 7].into_iter().enumerate() {
            (0..8).for_each(|column| want[id * 8 + column] += u.to_f64()[row * 8 + column]);
        }
        let y = session.run(&[u, ids.clone()]).unwrap();
        let sums: Vec<f64> = want.chunks(8).map(|row| row.iter().sum()).collect();
        assert_eq!(y[0].to_f64(), sums);
    }
}

#[test]
fn an_input_is_copied_once_to_the_output_that_it_becomes() {
    let graph = counting("(input table f32[50 8])");
    let planned = compiler().plan(&graph).unwrap();
    assert_eq!(planned.lowered.program.run.len(), 2, "{}", print::program(&planned.lowered.program));
    let mut session = compiler().compile(&graph).unwrap();
    session.load(&[]).unwrap();
    let (table, u) = (tensor(&[50, 8], -9), tensor(&[6, 8], 1));
    let ids = Tensor::from_i64(DType::I64, &[6], [3, 7, 3, 49, 0, 7]);
    for _ in 0..2 {
        let got = session.run(&[table.clone(), u.clone(), ids.clone()]).unwrap();
        let given = [("table", &table), ("u", &u), ("ids", &ids)];
        let given = |name: &str| given.iter().find(|(of, _)| *of == name).map(|(_, tensor)| (*tensor).clone());
        assert_eq!(got[0].to_f64(), interpret::<f64>(&graph, &given).unwrap()[0].to_tensor().to_f64());
    }
}
