//! Tests programs: parameters, the load program, arenas, in-place steps, misaligned buffers, and errors.

use std::sync::Arc;

use eutectic_backend::{
    AnchorKernel, AttentionAxes, Backend, Body, Buffer, EmptyRow, Executable, Instr, Kernel, Load, Place, Program,
    ScoreForm, Session, Step, Store,
};
use eutectic_ir::{DType, Origin, Tensor, Type, index::Index, ops::Reduction};

use crate::{
    device::Device,
    kernels::{
        build::{body, constant, map, map_with, push, row_major},
        expected,
    },
    suite::{Check, checks},
};

pub(super) const CHECKS: &[(&str, Check)] =
    checks![a_program_of_all_kernels_runs, a_value_stored_in_place_is_read_before, wrong_bindings_are_errors,];

const ROWS: usize = 96;
const WIDTH: usize = 64;
/// The number of elements of the program's input, and of each of its two outputs. All have the type `f32`.
pub const N: usize = ROWS * WIDTH;

fn load(b: &mut Body, slot: usize, at: Index) -> usize {
    push(b, Instr::Load(Load { slot, at, guards: Vec::new(), dtype: DType::F32 }))
}

fn kernel(anchor: AnchorKernel, b: Body, out: usize, value: usize, counts: &[usize]) -> Kernel {
    let at = row_major(&b.domain);
    let slots = counts.iter().map(|&n| (DType::F32, n)).collect();
    Kernel { anchor, body: b, stores: vec![Store::new(out, at, value)], slots }
}

/// Returns the kernel slot 1 = gelu(slot 0 − column).
fn pointwise() -> Kernel {
    let mut b = body(&[ROWS, WIDTH]);
    let x = load(&mut b, 0, row_major(&[ROWS, WIDTH]));
    let c = push(&mut b, Instr::Coordinate { index: Index::coord(1), dtype: DType::F32 });
    let y = map(&mut b, "sub", &[x, c], DType::F32);
    let y = map_with(&mut b, "act", &["gelu-erf".into()], &[y], DType::F32);
    kernel(AnchorKernel::map(), b, 1, y, &[N, N])
}

/// Returns the kernel slot 2 = softmax(slot 0 · slot 1), along rows.
fn softmax() -> Kernel {
    let mut b = body(&[ROWS, WIDTH]);
    let x = load(&mut b, 0, row_major(&[ROWS, WIDTH]));
    let g = load(&mut b, 1, Index::coord(1));
    let x = map(&mut b, "mul", &[x, g], DType::F32);
    let largest = push(&mut b, Instr::reduce(Reduction::Max, x, DType::F32));
    let x = map(&mut b, "sub", &[x, largest], DType::F32);
    let x = map(&mut b, "exp", &[x], DType::F32);
    let sum = push(&mut b, Instr::reduce(Reduction::Sum, x, DType::F32));
    let x = map(&mut b, "div", &[x, sum], DType::F32);
    kernel(AnchorKernel::rows(1), b, 2, x, &[N, WIDTH, N])
}

fn operand(slot: usize, domain: &[usize]) -> Body {
    let mut b = body(domain);
    let x = load(&mut b, slot, row_major(domain));
    b.results = vec![x];
    b
}

/// Returns the kernel slot 2 = slot 0 · slot 1 + slot 3, the product of a `[ROWS WIDTH]` and a `[WIDTH WIDTH]` matrix.
fn matmul() -> Kernel {
    let mut b = body(&[ROWS, WIDTH]);
    let y = push(&mut b, Instr::Anchor { dtype: DType::F32 });
    let r = load(&mut b, 3, row_major(&[ROWS, WIDTH]));
    let y = map(&mut b, "add", &[y, r], DType::F32);
    let anchor = AnchorKernel::product(operand(0, &[ROWS, WIDTH]), operand(1, &[WIDTH, WIDTH]));
    kernel(anchor, b, 2, y, &[N, WIDTH * WIDTH, N, N])
}

/// Returns the kernel slot 3 = attention(slot 0, slot 1, slot 2).
fn attention() -> Kernel {
    let mut b = body(&[ROWS, WIDTH]);
    let y = push(&mut b, Instr::Anchor { dtype: DType::F32 });
    let [query, key, value] = [0, 1, 2].map(|slot| operand(slot, &[ROWS, WIDTH]));
    let (scale, softcap) = (0.125, 0.0);
    let (axes, bias, empty) = (AttentionAxes::matrices(0), None, EmptyRow::Nan);
    let anchor = AnchorKernel::attention([query, key, value], bias, axes, ScoreForm { scale, softcap, empty });
    kernel(anchor, b, 3, y, &[N, N, N, N])
}

/// Returns a kernel that doubles a vector, for the load program.
fn double() -> Kernel {
    let mut b = body(&[WIDTH]);
    let x = load(&mut b, 0, Index::coord(0));
    let two = constant(&mut b, 2.0, DType::F32);
    let y = map(&mut b, "mul", &[x, two], DType::F32);
    kernel(AnchorKernel::map(), b, 1, y, &[WIDTH, WIDTH])
}

fn step(kernel: usize, buffers: &[usize]) -> Step {
    Step::new(kernel, buffers.to_vec(), Origin::new(format!("step{kernel}")))
}

fn port(name: &str, dims: &[usize]) -> (String, Type) {
    (name.into(), Type::tensor(DType::F32, dims))
}

fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 50.0 - 1.0).collect()
}

/// Returns a program of all kinds of kernels, with a load program and steps in place. Without products, each step is a
/// pass over elements.
pub fn program(with_products: bool) -> Program {
    let buffer = |count, place| Buffer { dtype: DType::F32, count, place };
    let weights = Tensor::from_f32(&[WIDTH, WIDTH], &numbers(WIDTH * WIDTH, 5)).unwrap();
    let buffers = vec![
        buffer(N, Place::Input(0)),
        buffer(WIDTH, Place::Param(0)),
        buffer(WIDTH, Place::Loaded(64)),
        buffer(N, Place::Arena(0)),
        // This buffer shares memory with the one before, for a step in place.
        buffer(N, Place::Arena(0)),
        buffer(N, Place::Output(0)),
        buffer(N, Place::Output(1)),
        buffer(WIDTH * WIDTH, Place::Const(weights)),
    ];
    let mut run = vec![step(0, &[0, 3]), step(1, &[3, 2, 4]).over(0, 2)];
    if with_products {
        run.push(step(3, &[0, 7, 5, 4]));
        run.push(step(4, &[5, 5, 4, 6]));
    } else {
        run.push(step(0, &[4, 5]));
        run.push(step(0, &[5, 6]));
    }
    Program {
        kernels: vec![pointwise(), softmax(), double(), matmul(), attention()],
        buffers,
        load: vec![step(2, &[1, 2])],
        run,
        load_bytes: 64 + WIDTH * 4,
        arena_bytes: N * 4,
        exits: Vec::new(),
        parts: std::collections::BTreeMap::new(),
        extents: Vec::new(),
        inputs: vec![port("x", &[ROWS, WIDTH])],
        params: vec![port("g", &[WIDTH])],
        outputs: vec![port("y", &[ROWS, WIDTH]), port("z", &[ROWS, WIDTH])],
        states: Vec::new(),
    }
}

fn executable(program: &Program, backend: &dyn Backend) -> Arc<dyn Executable> {
    backend.compile(program).unwrap_or_else(|e| panic!("{e}"))
}

fn session(program: &Program, backend: &dyn Backend) -> Box<dyn Session> {
    executable(program, backend).load(&[parameter()]).unwrap().session().unwrap()
}

/// Returns the value of the program's parameter.
pub fn parameter() -> Tensor {
    Tensor::from_f32(&[WIDTH], &numbers(WIDTH, 3)).unwrap()
}

/// Returns bytes for the program's input.
pub fn input() -> Vec<u8> {
    bytes(&numbers(N, 1))
}

fn bytes(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Returns the outputs of the program, from a point-by-point evaluation of one kernel after the other.
fn expected() -> [Vec<f64>; 2] {
    let tensor = |x: &[f64]| Tensor::from_f64(DType::F32, &[x.len()], x.iter().copied());
    let naive = |k: &Kernel, inputs: &[&[f64]]| -> Vec<f64> {
        let inputs: Vec<_> = inputs.iter().map(|x| tensor(x)).collect();
        expected::kernel(k, &inputs).swap_remove(0).into_iter().map(|x| x.unwrap()).collect()
    };
    let wide = |x: Vec<f32>| x.into_iter().map(f64::from).collect::<Vec<_>>();
    let (x, g, w) = (wide(numbers(N, 1)), wide(numbers(WIDTH, 3)), wide(numbers(WIDTH * WIDTH, 5)));
    let a = naive(&pointwise(), &[&x]);
    let g2: Vec<f64> = g.iter().map(|x| 2.0 * x).collect();
    let s = naive(&softmax(), &[&a, &g2]);
    let y = naive(&matmul(), &[&x, &w, &s]);
    let z = naive(&attention(), &[&y, &y, &s]);
    [y, z]
}

fn a_program_of_all_kernels_runs(device: &Device) {
    let want = expected();
    let mut results: Vec<[Vec<u8>; 2]> = Vec::new();
    for backend in device.forms() {
        let mut session = session(&program(true), &**backend);
        // Buffers are aligned or not.
        for offset in [0, 1] {
            let mut input = vec![0; offset];
            input.extend(bytes(&numbers(N, 1)));
            let mut outputs = [vec![0_u8; N * 4 + offset], vec![0_u8; N * 4 + offset]];
            let [y, z] = &mut outputs;
            session.run(&[&input[offset..]], &mut [&mut y[offset..], &mut z[offset..]]).unwrap();
            results.push([y[offset..].to_vec(), z[offset..].to_vec()]);
        }
        let input = bytes(&numbers(N, 1));
        let mut outputs = [vec![0_u8; N * 4], vec![0_u8; N * 4]];
        let [y, z] = &mut outputs;
        assert_eq!(session.profile(&[&input], &mut [y, z]).unwrap().len(), 4);
    }
    assert!(results.iter().all(|r| *r == results[0]), "threads or alignment change results");
    for (got, want) in results[0].iter().zip(&want) {
        for (i, (got, want)) in got.chunks(4).zip(want).enumerate() {
            let got = f64::from(f32::from_le_bytes(got.try_into().unwrap()));
            assert!((got - want).abs() < 1e-4, "{i}: {got} {want}");
        }
    }
}

/// Tests a kernel of two stores. One overwrites the memory from which the value of the other is loaded.
fn a_value_stored_in_place_is_read_before(device: &Device) {
    let mut b = body(&[ROWS, WIDTH]);
    let at = row_major(&[ROWS, WIDTH]);
    let x = load(&mut b, 0, at.clone());
    let one = constant(&mut b, 1.0, DType::F32);
    let y = map(&mut b, "add", &[x, one], DType::F32);
    let z = map(&mut b, "mul", &[x, x], DType::F32);
    let mut both = kernel(AnchorKernel::map(), b, 1, y, &[N, N, N]);
    both.stores.push(Store::new(2, at, z));
    let mut program = program(false);
    program.kernels.push(both);
    program.buffers.push(Buffer { dtype: DType::F32, count: N, place: Place::Arena(N * 4) });
    program.arena_bytes = N * 8;
    let other = program.buffers.len() - 1;
    program.run = vec![step(5, &[0, 3, 5]), step(5, &[3, 4, 5]).over(0, 1), step(5, &[3, other, 6])];
    for backend in device.forms() {
        let mut session = session(&program, &**backend);
        let input = numbers(N, 1);
        let mut outputs = [vec![0_u8; N * 4], vec![0_u8; N * 4]];
        let [y, z] = &mut outputs;
        session.run(&[&bytes(&input)], &mut [y, z]).unwrap();
        let squares =
            |add: &[f32]| bytes(&input.iter().map(|x| add.iter().fold(*x, |x, a| x + a).powi(2)).collect::<Vec<_>>());
        assert!(outputs[0] == squares(&[1.0]) && outputs[1] == squares(&[1.0, 1.0]));
    }
}

fn wrong_bindings_are_errors(device: &Device) {
    let backend = &**device.backend();
    let executable = executable(&program(true), backend);
    let input = bytes(&numbers(N, 1));
    let mut outputs = [vec![0_u8; N * 4], vec![0_u8; N * 4]];
    let [y, z] = &mut outputs;
    let short = Tensor::from_f32(&[2], &[1.0, 2.0]).unwrap();
    let error = executable.clone().load(&[short]).err().unwrap().to_string();
    assert!(error.contains("parameter `g`"), "{error}");
    let mut session = executable.load(&[parameter()]).unwrap().session().unwrap();
    let error = session.run(&[&input[4..]], &mut [y, z]).unwrap_err().to_string();
    assert!(error.contains("input `x`"), "{error}");
    assert!(session.run(&[&input], &mut [y]).is_err());

    let mut bad = program(true);
    bad.run[0].buffers[0] = 1;
    bad.buffers[3].place = Place::Arena(8);
    let error = backend.compile(&bad).err().unwrap().to_string();
    assert!(error.contains("step0") && error.contains("buffer 3"), "{error}");
}
