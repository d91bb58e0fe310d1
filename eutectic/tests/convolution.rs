//! Convolutions, poolings and norms of images, compared with PyTorch (`convolution/make.py`), interpreted and compiled.

use eutectic::{
    Compiler, Cpu, CpuOptions, DType, Graph, Strategy, Type,
    engine::ir::{Attr, interpret, lang::sexp::Source, text::parse},
};

fn cases() -> impl Iterator<Item = (String, Graph)> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/convolution");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|e| e == "graph")).map(|path| {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.display().to_string();
        let graph = parse(&Source::new(name.clone(), text)).unwrap_or_else(|e| panic!("{e}"));
        (name, graph)
    })
}

fn assert_close(name: &str, got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{name}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= 1e-5 * (1.0 + want.abs()), "{name}: {got} is not {want} at {i}");
    }
}

#[test]
fn the_interpreter_computes_what_pytorch_does() {
    let mut count = 0;
    for (name, graph) in cases() {
        let values = interpret::<f64>(&graph, &|_| None).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(values[0].dims, values[1].dims, "{name}");
        assert_close(&name, &values[0].to_tensor().to_f64(), &values[1].to_tensor().to_f64());
        count += 1;
    }
    assert!(count >= 20, "only {count} cases are there");
}

#[test]
fn so_do_compiled_programs() {
    for strategy in [Strategy::Unfused, Strategy::Local] {
        let cpu = Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() });
        let compiler = Compiler::new(cpu).unwrap().with_strategy(strategy);
        for (name, graph) in cases() {
            let mut session = compiler.compile(&graph).unwrap_or_else(|e| panic!("{name}: {e}"));
            session.load(&[]).unwrap();
            let results = session.run(&[]).unwrap();
            assert_close(&name, &results[0].to_f64(), &results[1].to_f64());
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let error = |op: &str, operands: usize, attrs: &[(&str, &[i64])], part: &str| {
        let mut graph = Graph::new("wrong");
        let x = graph.input("x", Type::tensor(DType::F32, &[1, 4, 3, 3])).unwrap();
        let weights = if op == "conv-transpose" { [4, 2, 5, 1] } else { [2, 4, 5, 1] };
        let w = graph.input("w", Type::tensor(DType::F32, &weights)).unwrap();
        let number = |values: &[i64]| if let [n] = values { Attr::Int(*n) } else { Attr::from(values) };
        let attrs: Vec<_> = attrs.iter().map(|(name, values)| (*name, number(values))).collect();
        let message = graph.apply(op, &[x, w][..operands], &attrs).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    };
    error("conv", 2, &[], "a window that spans 5 elements does not fit an axis of 3");
    error("conv", 2, &[("before", &[1, 0])], "a window that spans 5 elements does not fit an axis of 4");
    error("conv", 2, &[("before", &[1, 0]), ("after", &[1, 0]), ("groups", &[2])], "dimension 4 does not fit");
    error("max-pool", 1, &[("size", &[2, 2]), ("stride", &[0, 1])], "stride 0");
    error("max-pool", 1, &[("size", &[2, 2, 2])], "[2 2 2]");
    error("window", 1, &[("axis", &[2]), ("size", &[2]), ("dilation", &[3])], "spans 4 elements");
    error("conv-transpose", 1, &[], "operands, but");
    error("conv-transpose", 2, &[("before", &[0, 1])], "padding must not be negative");
}
