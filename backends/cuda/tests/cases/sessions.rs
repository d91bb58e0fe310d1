//! Tests sessions on a device: states, bound buffers, runs that are awaited later, unwanted outputs, shared and
//! replaced parameters, and indices out of range.

use std::sync::Arc;

use eutectic::{Backend, Compiler, DType, Tensor};
use eutectic_backend::{BackendError, Loaded, Memory, Port, Program, Session};

const X: Port = Port::Input(0);
const SUM: Port = Port::State(0);

/// The program computes y = x · (v + w), where the load program computes the sum; z = a lookup in x; and a state that
/// becomes sum + x.
const TEXT: &str = "(input x f32[6 8]) (input at i64[3]) (param v f32[8 8]) (param w f32[8 8]) (state sum f32[6 8]) \
    (output y (matmul x (add v w))) (output z (gather x at :axis 0)) (update sum (add sum x))";

fn tensor(dims: &[usize], seed: usize) -> Tensor {
    let count = dims.iter().product::<usize>();
    Tensor::from_f64(DType::F32, dims, (0..count).map(|i| ((i * 37 + seed * 11) % 101) as f64 / 50.0 - 1.0))
}

struct Test {
    program: Program,
    session: Box<dyn Session>,
}

fn run(test: &mut Test, x: &Tensor, at: [i64; 3]) -> Result<Vec<Vec<f64>>, BackendError> {
    let at = Tensor::from_i64(DType::I64, &[3], at);
    let mut bytes: Vec<Vec<u8>> = test.program.outputs.iter().map(|(_, ty)| vec![0; ty.bytes()]).collect();
    let mut outputs: Vec<&mut [u8]> = bytes.iter_mut().map(Vec::as_mut_slice).collect();
    test.session.run(&[x.bytes(), at.bytes()], &mut outputs)?;
    let of = |bytes: Vec<u8>| Tensor::new(DType::F32, &[bytes.len() / 4], bytes).expect("floats").to_f64();
    Ok(bytes.into_iter().map(of).collect())
}

fn read(session: &mut dyn Session, port: Port, count: usize) -> Vec<f64> {
    let mut bytes = vec![0; count * 4];
    session.read(port, 0, &mut bytes).expect("a port's bytes");
    Tensor::new(DType::F32, &[count], bytes).expect("floats").to_f64()
}

fn product(x: &Tensor, v: &Tensor, w: &Tensor) -> Vec<f64> {
    let [x, v, w] = [x, v, w].map(Tensor::to_f64);
    (0..48).map(|i| (0..8).map(|k| x[i / 8 * 8 + k] * (v[k * 8 + i % 8] + w[k * 8 + i % 8])).sum()).collect()
}

fn near(got: &[f64], want: &[f64], what: &str) {
    let off = got.iter().zip(want).any(|(got, want)| (got - want).abs().is_nan() || (got - want).abs() > 1e-5);
    assert!(got.len() == want.len() && !off, "{what}: {got:?}, expected {want:?}");
}

fn sum(inputs: &[&Tensor]) -> Vec<f64> {
    inputs.iter().fold(vec![0.0; 48], |sum, x| sum.iter().zip(x.to_f64()).map(|(sum, x)| sum + x).collect())
}

/// Checks sessions on the backend that `open` returns.
pub fn check<B: Backend + 'static>(open: impl Fn() -> B) {
    let graph = super::graph(("sessions", TEXT));
    let program = Compiler::new(open()).expect("rules").plan(&graph).expect("a plan").lowered.program;
    let backend = open();
    let executable = backend.compile(&program).unwrap_or_else(|e| panic!("{e}"));
    let [v, w, other] = [1, 2, 3].map(|seed| tensor(&[8, 8], seed));
    let [a, b] = [4, 5].map(|seed| tensor(&[6, 8], seed));
    let by_name = |name: &str| if name == "v" { v.clone() } else { w.clone() };
    let params: Vec<Tensor> = program.params.iter().map(|(name, _)| by_name(name)).collect();
    let loaded = executable.load(&params).unwrap_or_else(|e| panic!("{e}"));
    let start = |loaded: &Arc<dyn Loaded>| Test {
        program: program.clone(),
        session: loaded.clone().session().expect("memory"),
    };
    let mut test = start(&loaded);

    // Runs return results and update states.
    let out = run(&mut test, &a, [5, 0, 2]).unwrap_or_else(|e| panic!("{e}"));
    near(&out[0], &product(&a, &v, &w), "a product");
    near(&out[1][..8], &a.to_f64()[40..], "a row that was looked up");
    run(&mut test, &b, [1, 1, 1]).unwrap_or_else(|e| panic!("{e}"));
    near(&read(&mut *test.session, SUM, 48), &sum(&[&a, &b]), "a state after two runs");

    // An index out of range is reported once, with its place, and the session stays usable.
    match run(&mut test, &a, [0, 6, 0]) {
        Err(BackendError::IndexOutOfRange { problem, .. }) if (problem.id, problem.ids.extent) == (6, 6) => {}
        other => panic!("it should name the index: {other:?}"),
    }
    run(&mut test, &b, [0, 0, 0]).unwrap_or_else(|e| panic!("the fault was taken: {e}"));

    // A fork begins with a copy of the state, and then has a separate state.
    let mut test = start(&loaded);
    run(&mut test, &a, [0, 0, 0]).unwrap_or_else(|e| panic!("{e}"));
    let mut fork = Test { program: program.clone(), session: test.session.fork().expect("memory") };
    run(&mut fork, &b, [0, 0, 0]).unwrap_or_else(|e| panic!("{e}"));
    near(&read(&mut *fork.session, SUM, 48), &sum(&[&a, &b]), "a fork's state");
    near(&read(&mut *test.session, SUM, 48), &sum(&[&a]), "the state that was forked");

    // A buffer is the memory of a port while it is bound. A read waits for the submitted run.
    let mut buffer = test.session.buffer(48 * 4, Memory::Host).expect("memory");
    buffer.write(0, b.bytes()).expect("it fits");
    test.session.bind(X, Some(buffer)).expect("its size");
    let mut state = test.session.buffer(48 * 4, Memory::Device).expect("memory");
    state.write(0, a.bytes()).expect("it fits");
    test.session.bind(SUM, Some(state)).expect("its size");
    let at = Tensor::from_i64(DType::I64, &[3], [0, 1, 2]);
    test.session.write(Port::Input(1), 0, at.bytes()).expect("it fits");
    test.session.submit(&[true, false]).expect("a run");
    near(&read(&mut *test.session, Port::Output(0), 48), &product(&b, &v, &w), "a run from a bound buffer");
    test.session.bind(SUM, None).expect("it was bound");
    near(&read(&mut *test.session, SUM, 48), &sum(&[&a, &b]), "a state that was bound");
    let bound = test.session.bind(X, None).expect("it was bound").expect("a buffer");
    assert_eq!(bound.host().expect("the host's memory"), b.bytes());
    let wrong = test.session.buffer(4, Memory::Device).expect("memory");
    assert!(test.session.bind(X, Some(wrong)).is_err(), "a buffer of another size");

    // Parameters are replaced only in sessions that adopt them.
    let n = program.params.iter().position(|(name, _)| name == "v").expect("it is a parameter");
    match loaded.clone().replace(&[(n, other.clone())]) {
        // If the load program computes the sum, it frees the operands. A plan may also add them in each run.
        Err(BackendError::Released(names)) => assert_eq!(names, ["`w`"]),
        Ok(_) => assert!(program.load.is_empty(), "`w` was let go, and is needed"),
        got => panic!("it should ask for the other one: {:?}", got.err()),
    }
    let both = [(n, other.clone()), (1 - n, w.clone())];
    let replaced = loaded.clone().replace(&both).unwrap_or_else(|e| panic!("{e}"));
    test.session.adopt(replaced).expect("of the same program");
    let out = run(&mut test, &a, [0, 0, 0]).unwrap_or_else(|e| panic!("{e}"));
    near(&out[0], &product(&a, &other, &w), "replaced parameters");
    let out = run(&mut fork, &a, [0, 0, 0]).unwrap_or_else(|e| panic!("{e}"));
    near(&out[0], &product(&a, &v, &w), "those of others stay");
}
