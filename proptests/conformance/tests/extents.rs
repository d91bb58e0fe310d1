//! Tests run-time extents: refused programs, states, and the suite on the naive backend, which defines kernels.

use std::sync::Arc;

use eutectic::{Compiler, Cpu, CpuOptions, DType, Dim, Graph, Tensor, Type};
use eutectic_conformance::{
    device::Device,
    naive::Naive,
    suites::{
        SUITES,
        extents::{graph, session},
    },
};
use eutectic_ir::{lang::Source, text::parse};

fn compilers() -> [Compiler; 2] {
    let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
    [Compiler::new(Naive).unwrap(), Compiler::new(cpu).unwrap()]
}

#[test]
fn the_definition_of_kernels_serves_every_length() {
    let device = Device::new(vec![Arc::new(Naive)]).unwrap();
    let suite = SUITES.iter().find(|suite| suite.name == "extents").unwrap();
    for verdict in suite.run(&device, "") {
        assert!(verdict.failure.is_none(), "{}: {:?}", verdict.name, verdict.failure);
    }
}

#[test]
fn lengths_that_do_not_fit_are_named() {
    for compiler in compilers() {
        let mut session = session(&compiler, &graph("(output o (exp x))")).unwrap();
        let tensor = |dims: &[usize]| Tensor::from_f64(DType::F32, dims, vec![1.0; dims.iter().product()]);
        let ids = |n: usize| Tensor::from_i64(DType::I64, &[n], vec![0; n]);
        let fit = [tensor(&[3, 4]), tensor(&[2, 3, 4]), tensor(&[2, 4]), ids(3)];
        assert_eq!(session.run(&fit).unwrap()[0].dims(), [3, 4]);
        assert_eq!((session.length("S").unwrap(), session.length("T").unwrap()), (3, 2));
        for (at, wrong, says) in [
            (0, tensor(&[10, 4]), "S must be from 0 to 9"),
            (1, tensor(&[2, 4, 4]), "input `x` sets S to 3"),
            (2, tensor(&[7, 4]), "T must be from 0 to 6"),
            (2, tensor(&[2, 5]), "input `z` is f32[2 4], but f32[2 5] was given"),
        ] {
            let mut given = fit.clone();
            given[at] = wrong;
            let error = session.run(&given).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        // Lengths that do not fit change nothing.
        assert_eq!(session.run(&fit).unwrap()[0].dims(), [3, 4]);
        assert!(session.set_length("S", 10).unwrap_err().to_string().contains("compiled for 0 to 9"));
        assert!(session.set_length("U", 1).unwrap_err().to_string().contains("no extent `U`; it has S, T"));
        session.set_length("S", 5).unwrap();
        assert_eq!(session.length("S").unwrap(), 5);
    }
}

#[test]
fn programs_that_cannot_be_planned_are_refused_with_reasons() {
    let compiler = Compiler::new(Naive).unwrap();
    for (text, says) in [
        // The inner one of the merged axes varies, so that their rows are not contiguous.
        ("(output o (reshape y :shape [(* 2 S) 4]))", "element offsets would vary"),
        ("(output o (reduce-mean x :axes [-2] :keep false))", "reduce-mean"),
    ] {
        let Err(error) = session(&compiler, &graph(text)) else { panic!("{text} is planned") };
        assert!(error.contains(says), "{error}");
    }
    let mut graph = Graph::new("two ranges");
    for (name, most) in [("a", 3), ("b", 4)] {
        let ty = Type::Tensor(DType::F32, [Dim::between("S", 0, most)].into_iter().collect());
        let x = graph.input(name, ty).unwrap();
        graph.output(&format!("{name}'"), x).unwrap();
    }
    let Err(error) = compiler.compile(&graph) else { panic!("S has two ranges") };
    assert!(error.to_string().contains("S has the ranges 0 to 3 and 0 to 4"), "{error}");
}

#[test]
fn a_state_keeps_elements_beyond_the_length_of_a_run() {
    // The state is updated in place, or copied because the new value is an output too.
    let leaves =
        "(dim S :least 2 :most 9) (state s f32[1 S 4]) (input x f32[S 4]) (input r f32[1 2 4]) (input at i64[])";
    let part = "(update s (update-slice s r at :axis -2)) (output o (reduce-sum s :axes [-2] :keep false))";
    let whole = "(let n (add s (reshape x :shape [1 S 4]))) (update s n) (output o n)";
    for (compiler, in_place) in compilers().map(|c| (c, true)).into_iter().chain(compilers().map(|c| (c, false))) {
        let text = format!("(graph \"g\" {leaves} {})", if in_place { part } else { whole });
        let graph = parse(&Source::new("state.graph", text)).unwrap_or_else(|e| panic!("{:?}", e.0[0]));
        let mut session = session(&compiler, &graph).unwrap();
        let mut run = |length: usize, value: f64, at: i64| {
            let x = Tensor::from_f64(DType::F32, &[length, 4], vec![value; 4 * length]);
            let r = Tensor::from_f64(DType::F32, &[1, 2, 4], [value; 8]);
            session.run(&[x, r, Tensor::from_i64(DType::I64, &[], [at])]).unwrap();
            let state = session.state("s").unwrap();
            assert_eq!(session.read(state).unwrap().dims(), [1, length, 4]);
            session.set_length("S", 9).unwrap();
            let rows = session.read(state).unwrap().to_f64();
            rows.chunks(4).map(|row| row[0]).collect::<Vec<_>>()
        };
        let after = [run(9, 1.0, 4), run(5, 3.0, 1), run(7, 5.0, 5)];
        let want = match in_place {
            true => [
                [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0],
                [0.0, 3.0, 3.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0],
                [0.0, 3.0, 3.0, 0.0, 1.0, 5.0, 5.0, 0.0, 0.0],
            ],
            false => {
                [[1.0; 9], [4.0, 4.0, 4.0, 4.0, 4.0, 1.0, 1.0, 1.0, 1.0], [9.0, 9.0, 9.0, 9.0, 9.0, 6.0, 6.0, 1.0, 1.0]]
            }
        };
        assert_eq!(after.map(|rows| <[f64; 9]>::try_from(rows).unwrap()), want);
    }
}
