//! Tests sessions: states, buffers, asynchronous runs, outputs that are not requested, and parameters that are shared
//! and replaced.

use std::sync::Arc;

use eutectic_backend::{
    AnchorKernel, Backend, BackendError, Body, Buffer, DeviceBuffer, Instr, Kernel, Loaded, Memory, Place, Port,
    Program, Session, Step, Store,
};
use eutectic_ir::{DType, Origin, Tensor, Type};

use crate::{
    device::Device,
    kernels::build::{body, map, push, row_major},
    suite::{Check, checks},
};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    states_outlive_runs_and_are_copied_by_forks,
    buffers_are_bound_and_runs_waited_for_later,
    outputs_that_are_not_requested_are_not_computed,
    sessions_on_many_threads_give_the_same_bits,
    a_replaced_parameter_is_used_by_sessions_that_adopt_it,
];

const ROWS: usize = 24;
const WIDTH: usize = 64;
const N: usize = ROWS * WIDTH;

const X: Port = Port::Input(0);
const Y: Port = Port::Output(0);
const Z: Port = Port::Output(1);
const SUM: Port = Port::State(0);

fn load(b: &mut Body, slot: usize, domain: &[usize]) -> usize {
    let load = eutectic_backend::Load { slot, at: row_major(domain), guards: Vec::new(), dtype: DType::F32 };
    push(b, Instr::Load(load))
}

/// Returns the kernel slot 2 = slot 0 `op` slot 1, over `count` elements.
fn pointwise(op: &str, count: usize) -> Kernel {
    let mut b = body(&[count]);
    let args = [load(&mut b, 0, &[count]), load(&mut b, 1, &[count])];
    let value = map(&mut b, op, &args, DType::F32);
    let stores = vec![Store::new(2, row_major(&[count]), value)];
    Kernel { anchor: AnchorKernel::map(), body: b, stores, slots: vec![(DType::F32, count); 3] }
}

/// Returns the kernel slot 2 = slot 0 · slot 1.
fn product() -> Kernel {
    let operand = |slot: usize, domain: &[usize]| {
        let mut b = body(domain);
        b.results = vec![load(&mut b, slot, domain)];
        b
    };
    let mut b = body(&[ROWS, WIDTH]);
    let value = push(&mut b, Instr::Anchor { dtype: DType::F32 });
    let anchor = AnchorKernel::product(operand(0, &[ROWS, WIDTH]), operand(1, &[WIDTH, WIDTH]));
    let stores = vec![Store::new(2, row_major(&[ROWS, WIDTH]), value)];
    Kernel { anchor, body: b, stores, slots: [N, WIDTH * WIDTH, N].map(|n| (DType::F32, n)).to_vec() }
}

/// Returns a program with the outputs y = x · (v + w) and z = sum · u. A run adds x to the state `sum`, and the load
/// program computes v + w.
fn program() -> Program {
    let square = WIDTH * WIDTH;
    let buffer = |count, place| Buffer { dtype: DType::F32, count, place };
    let step = |kernel, buffers: [usize; 3]| Step::new(kernel, buffers.to_vec(), Origin::default());
    let port = |name: &str, count| (name.to_string(), Type::tensor(DType::F32, &[count]));
    Program {
        kernels: vec![pointwise("add", square), product(), pointwise("mul", N), pointwise("add", N)],
        buffers: vec![
            buffer(N, Place::Input(0)),
            buffer(square, Place::Param(0)),
            buffer(square, Place::Param(1)),
            buffer(square, Place::Loaded(0)),
            buffer(N, Place::Param(2)),
            buffer(N, Place::State(0)),
            buffer(N, Place::Output(0)),
            buffer(N, Place::Output(1)),
        ],
        load: vec![step(0, [1, 2, 3])],
        run: vec![step(1, [0, 3, 6]), step(2, [5, 4, 7]), step(3, [5, 0, 5]).over(0, 2)],
        load_bytes: square * 4,
        arena_bytes: 0,
        exits: Vec::new(),
        parts: std::collections::BTreeMap::new(),
        extents: Vec::new(),
        inputs: vec![port("x", N)],
        params: vec![port("v", square), port("w", square), port("u", N)],
        outputs: vec![port("y", N), port("z", N)],
        states: vec![port("sum", N)],
    }
}

fn tensor(count: usize, seed: usize) -> Tensor {
    Tensor::from_f64(DType::F32, &[count], (0..count).map(|i| ((i * 37 + seed * 11) % 101) as f64 / 50.0 - 1.0))
}

fn params() -> [Tensor; 3] {
    [tensor(WIDTH * WIDTH, 1), tensor(WIDTH * WIDTH, 2), tensor(N, 3)]
}

fn loaded(backend: &dyn Backend) -> Arc<dyn Loaded> {
    let executable = backend.compile(&program()).unwrap_or_else(|e| panic!("{e}"));
    executable.load(&params()).unwrap_or_else(|e| panic!("{e}"))
}

fn session(device: &Device) -> Box<dyn Session> {
    loaded(&**device.backend()).session().unwrap()
}

fn run(session: &mut dyn Session, x: &Tensor) -> [Tensor; 2] {
    let mut outputs = [vec![0; N * 4], vec![0; N * 4]];
    let [y, z] = &mut outputs;
    session.run(&[x.bytes()], &mut [y, z]).unwrap();
    outputs.map(|bytes| Tensor::new(DType::F32, &[N], bytes).unwrap())
}

fn read(session: &mut dyn Session, port: Port) -> Tensor {
    let mut bytes = vec![0; N * 4];
    session.read(port, 0, &mut bytes).unwrap();
    Tensor::new(DType::F32, &[N], bytes).unwrap()
}

fn contents(buffer: &dyn DeviceBuffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.bytes()];
    buffer.read(0, &mut bytes).unwrap();
    bytes
}

/// Returns the outputs of a run with these parameters. Each of `before` earlier runs has added `x` to the state.
fn expected(x: &Tensor, params: &[Tensor; 3], before: usize) -> [Vec<f64>; 2] {
    let [v, w, u] = [0, 1, 2].map(|n| params[n].to_f64());
    let x = x.to_f64();
    let y = |i: usize| {
        (0..WIDTH)
            .map(|k| x[i / WIDTH * WIDTH + k] * (v[k * WIDTH + i % WIDTH] + w[k * WIDTH + i % WIDTH]))
            .sum::<f64>()
    };
    [(0..N).map(y).collect(), (0..N).map(|i| before as f64 * x[i] * u[i]).collect()]
}

#[track_caller]
fn check(got: &[Tensor; 2], want: &[Vec<f64>; 2]) {
    for (got, want) in got.iter().zip(want) {
        for (i, (got, want)) in got.to_f64().iter().zip(want).enumerate() {
            assert!((got - want).abs() < 1e-4, "element {i}: {got}, expected {want}");
        }
    }
}

fn states_outlive_runs_and_are_copied_by_forks(device: &Device) {
    let (x, mut session) = (tensor(N, 5), session(device));
    for before in 0..3 {
        check(&run(&mut *session, &x), &expected(&x, &params(), before));
    }
    let mut twin = session.fork().unwrap();
    check(&run(&mut *twin, &x), &expected(&x, &params(), 3));
    check(&run(&mut *twin, &x), &expected(&x, &params(), 4));
    check(&run(&mut *session, &x), &expected(&x, &params(), 3));
    // The host can read and write parts of the state.
    let mut part = [0; 8];
    session.read(SUM, 40, &mut part).unwrap();
    let sum = read(&mut *session, SUM);
    assert_eq!(part, sum.bytes()[40..48]);
    session.write(SUM, 0, &vec![0; N * 4]).unwrap();
    session.write(SUM, 4, &2.5_f32.to_le_bytes()).unwrap();
    let z = run(&mut *session, &x)[1].to_f64();
    let u = params()[2].to_f64()[1];
    assert!(z.iter().enumerate().all(|(i, z)| (z - if i == 1 { 2.5 * u } else { 0.0 }).abs() < 1e-6));
    let error = session.write(SUM, N * 4 - 3, &[0; 4]).unwrap_err().to_string();
    assert!(error.contains("state `sum`"), "{error}");
    let error = session.read(Port::State(1), 0, &mut part).unwrap_err().to_string();
    assert!(error.contains("state `1`"), "{error}");
}

fn buffers_are_bound_and_runs_waited_for_later(device: &Device) {
    let x = tensor(N, 5);
    let want = run(&mut *session(device), &x);
    let mut session = session(device);
    for memory in [Memory::Host, Memory::Device] {
        for port in [X, Y, SUM] {
            let buffer = session.buffer(N * 4, memory).unwrap();
            assert_eq!((buffer.bytes(), buffer.host().map_or(N * 4, <[u8]>::len)), (N * 4, N * 4));
            assert!(buffer.host().is_some() || memory == Memory::Device);
            session.bind(port, Some(buffer)).unwrap();
        }
        session.write(X, 0, x.bytes()).unwrap();
        session.submit(&[true, true]).unwrap();
        session.wait().unwrap();
        assert!([Y, Z].map(|port| read(&mut *session, port)) == want);
        // An unbound buffer keeps its contents, and the state keeps its value.
        let y = session.bind(Y, None).unwrap().unwrap();
        assert!(contents(&*y) == want[0].bytes());
        let sum = session.bind(SUM, None).unwrap().unwrap();
        assert!(contents(&*sum) == x.bytes() && read(&mut *session, SUM) == x);
        session.bind(X, None).unwrap().unwrap();
        session.write(SUM, 0, &vec![0; N * 4]).unwrap();
    }
    let small = session.buffer(N, Memory::Device).unwrap();
    let error = session.bind(Y, Some(small)).unwrap_err().to_string();
    assert!(error.contains("output `y`"), "{error}");
    // A session that is dropped during a run waits for the end of the run.
    session.submit(&[true, true]).unwrap();
}

fn outputs_that_are_not_requested_are_not_computed(device: &Device) {
    let (x, mut session) = (tensor(N, 5), session(device));
    session.write(X, 0, x.bytes()).unwrap();
    for before in 0..2 {
        session.submit(&[false, true]).unwrap();
        let z = read(&mut *session, Z);
        check(&[read(&mut *session, Y), z], &[vec![0.0; N], expected(&x, &params(), before)[1].clone()]);
    }
    session.submit(&[true, false]).unwrap();
    check(&[read(&mut *session, Y), read(&mut *session, Z)], &{
        let ([y, _], [_, z]) = (expected(&x, &params(), 0), expected(&x, &params(), 1));
        [y, z]
    });
    let error = session.submit(&[true]).unwrap_err().to_string();
    assert!(error.contains("output"), "{error}");
}

fn sessions_on_many_threads_give_the_same_bits(device: &Device) {
    for backend in device.forms() {
        let loaded = loaded(&**backend);
        let want = run(&mut *loaded.clone().session().unwrap(), &tensor(N, 5));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut session = loaded.clone().session().unwrap();
                    for _ in 0..50 {
                        session.write(SUM, 0, &vec![0; N * 4]).unwrap();
                        assert!(run(&mut *session, &tensor(N, 5)) == want);
                    }
                });
            }
        });
    }
}

fn a_replaced_parameter_is_used_by_sessions_that_adopt_it(device: &Device) {
    let (x, before) = (tensor(N, 5), loaded(&**device.backend()));
    let mut session = before.clone().session().unwrap();
    run(&mut *session, &x);
    // Parameter u can be replaced alone: the load program does not read u, and results that runs read are not freed.
    let mut changed = params();
    changed[2] = tensor(N, 9);
    let after = before.clone().replace(&[(2, changed[2].clone())]).unwrap();
    check(&run(&mut *session, &x), &expected(&x, &params(), 1));
    session.adopt(after.clone()).unwrap();
    check(&run(&mut *session, &x), &expected(&x, &changed, 2));
    // The backend may have freed v and w after the load program. Then v cannot be replaced without w.
    changed[0] = tensor(WIDTH * WIDTH, 7);
    let error = after.clone().replace(&[(0, changed[0].clone())]).err();
    let names = |error: &BackendError| matches!(error, BackendError::Released(names) if names[..] == ["`w`"]);
    assert!(error.as_ref().is_none_or(names), "{error:?}");
    let both = [(0, changed[0].clone()), (1, changed[1].clone())];
    session.adopt(after.replace(&both).unwrap()).unwrap();
    check(&run(&mut *session, &x), &expected(&x, &changed, 3));
    check(&run(&mut *before.clone().session().unwrap(), &x), &expected(&x, &params(), 0));
    let error = before.clone().replace(&[(2, tensor(3, 0))]).err().unwrap().to_string();
    assert!(error.contains("parameter `u`"), "{error}");
    assert!(session.adopt(loaded(&**device.backend())).is_err(), "the session adopts parameters of another program");
    // A replacement takes no memory for parameters that are kept.
    let of_u = before.bytes() + WIDTH * WIDTH * 4;
    assert!(before.clone().replace(&[(2, tensor(N, 9))]).unwrap().bytes() < of_u);
}
