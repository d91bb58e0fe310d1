//! Tests that a failure is an error that names its cause, and that all other work continues.

use std::fmt::Write as _;

use eutectic::{DType, Graph, Memory, Session, Tensor, Type};
use eutectic_backend::BackendError;
use eutectic_ir::{lang::Source, text::parse};

use crate::{
    device::Device,
    suite::{Check, checks},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    memory_that_is_not_there_is_refused,
    a_program_larger_than_the_device_is_refused,
    an_index_out_of_range_ends_one_run,
    a_sum_of_more_inputs_than_a_kernel_takes_is_computed,
    programs_come_and_go,
];

const ROWS: usize = 40;

/// Returns a program that multiplies gathered rows of a table by a matrix.
fn graph() -> Graph {
    let text = "(graph \"g\" (input table f32[40 16]) (input at i64[12]) (param w f32[16 8]) \
        (output y (matmul (gather table at :axis 0) w)))";
    parse(&Source::new("failures.graph", text)).unwrap_or_else(|e| panic!("{e:?}"))
}

fn tensor(dims: &[usize], seed: usize) -> Tensor {
    let count = dims.iter().product::<usize>();
    Tensor::from_f64(DType::F32, dims, (0..count).map(|i| ((i * 37 + seed * 11) % 101) as f64 / 50.0 - 1.0))
}

fn session(device: &Device) -> Session {
    let mut session = device.compiler().compile(&graph()).unwrap_or_else(|e| panic!("{e}"));
    session.load_named(|_| Some(tensor(&[16, 8], 3))).unwrap_or_else(|e| panic!("{e}"));
    session
}

fn run(session: &mut Session, at: i64) -> Result<Tensor, eutectic::Error> {
    let at = Tensor::from_i64(DType::I64, &[12], (0..12).map(|i| if i == 7 { at } else { i }));
    session.run(&[tensor(&[ROWS, 16], 1), at]).map(|mut outputs| outputs.remove(0))
}

/// Returns the right result if the eighth index is `at`.
fn expected(at: usize) -> Vec<f64> {
    let (table, w) = (tensor(&[ROWS, 16], 1).to_f64(), tensor(&[16, 8], 3).to_f64());
    let row = |i: usize| if i == 7 { at } else { i };
    let element = |i: usize| (0..16).map(|k| table[row(i / 8) * 16 + k] * w[k * 8 + i % 8]).sum();
    (0..12 * 8).map(element).collect()
}

fn is_right(session: &mut Session, at: usize) {
    let got = run(session, at as i64).unwrap_or_else(|e| panic!("{e}")).to_f64();
    let near = got.iter().zip(expected(at)).all(|(got, want)| (got - want).abs() < 1e-4);
    assert!(near && got.len() == 96, "{got:?}");
}

fn memory_that_is_not_there_is_refused(device: &Device) {
    let mut session = session(device);
    is_right(&mut session, 5);
    // No machine has this much memory.
    for memory in [Memory::Device, Memory::Host] {
        let error = session.buffer(1 << 60, memory).map(|_| ()).expect_err("no memory has this size").to_string();
        assert!(error.contains("bytes"), "the error must state the requested size: {error}");
    }
    is_right(&mut session, 9);
    device.judge();
}

fn a_program_larger_than_the_device_is_refused(device: &Device) {
    let capacity = device.backend().limits().capacity;
    let Some(n) = capacity.checked_add(1 << 30).map(|bytes| bytes / 4) else { return };
    let mut session = session(device);
    let mut g = Graph::new("large");
    let x = g.input("x", Type::tensor(DType::F32, &[n])).expect("the type is valid");
    let y = g.neg(x).expect("x is a float");
    g.output("y", y).expect("the name is new");
    let error = device.compiler().compile(&g).map(|_| ()).expect_err("the program exceeds the memory").to_string();
    assert!(error.contains("memory") || error.contains("bytes"), "{error}");
    is_right(&mut session, 2);
    device.judge();
}

fn an_index_out_of_range_ends_one_run(device: &Device) {
    let loaded = session(device).loaded().unwrap_or_else(|e| panic!("{e}")).clone();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let loaded = &loaded;
            scope.spawn(move || {
                let mut session = loaded.session().unwrap_or_else(|e| panic!("{e}"));
                for round in 0..20 {
                    if worker % 2 == 0 {
                        let wrong = if round % 2 == 0 { ROWS as i64 } else { -(ROWS as i64) - 1 };
                        match run(&mut session, wrong) {
                            Err(eutectic::Error::Backend(BackendError::IndexOutOfRange { problem, .. })) => {
                                assert_eq!((problem.id, problem.ids.extent), (wrong, ROWS as i64));
                            }
                            other => panic!("the error must name the index: {:?}", other.map(|t| t.ty())),
                        }
                    }
                    is_right(&mut session, (worker * 7 + round) % ROWS);
                }
            });
        }
    });
    device.judge();
}

fn a_sum_of_more_inputs_than_a_kernel_takes_is_computed(device: &Device) {
    const INPUTS: usize = 700;
    let mut text = String::from("(graph \"sum\"");
    (0..INPUTS).for_each(|n| _ = write!(text, " (input x{n} f32[6])"));
    text += " (let s0 x0)";
    (1..INPUTS).for_each(|n| _ = write!(text, " (let s{n} (add s{} x{n}))", n - 1));
    let text = format!("{text} (output y s{}))", INPUTS - 1);
    let graph = parse(&Source::new("sum.graph", text)).unwrap_or_else(|e| panic!("{e:?}"));
    let mut session = device.compiler().compile(&graph).unwrap_or_else(|e| panic!("{e}"));
    session.load_named(|_| None).unwrap_or_else(|e| panic!("{e}"));
    let inputs: Vec<Tensor> = (0..INPUTS).map(|n| tensor(&[6], n)).collect();
    let got = session.run(&inputs).unwrap_or_else(|e| panic!("{e}"))[0].to_f64();
    for (i, got) in got.into_iter().enumerate() {
        let want: f64 = inputs.iter().map(|x| x.to_f64()[i]).sum();
        assert!((got - want).abs() < 1e-2, "element {i}: {got}, expected {want}");
    }
    device.judge();
}

fn programs_come_and_go(device: &Device) {
    let mut kept = session(device);
    for round in 0..20 {
        let mut one = session(device);
        let mut fork = one.fork().unwrap_or_else(|e| panic!("{e}"));
        is_right(&mut one, round);
        drop(one);
        is_right(&mut fork, round + 1);
        is_right(&mut kept, round + 2);
    }
    device.judge();
}
