//! Computes a matrix product with our kernels, with the crate `gemm` and with the crate `faer`, for comparison.

use std::time::Instant;

use eutectic_backend::{AnchorKernel, Backend, Body, Instr, Kernel, Load, Place, Session, Store};
use eutectic_conformance::{
    device::program,
    kernels::{
        Random,
        build::{body, push, row_major},
    },
};
use eutectic_cpu::{Cpu, CpuOptions};
use eutectic_ir::{DType, Tensor};
use faer::{Accum, MatMut, MatRef, Par, linalg::matmul::matmul, traits::ComplexField};
use half::{bf16, f16};

/// The extents of a product: batch, rows, columns, and terms per sum.
pub type Shape = (usize, usize, usize, usize);

/// Returns a name such as `12x128x128x32`; a batch of one is left out.
pub fn name((b, m, n, k): Shape) -> String {
    if b == 1 { format!("{m}x{n}x{k}") } else { format!("{b}x{m}x{n}x{k}") }
}

/// Returns the number of floating-point operations of a product.
pub fn flops((b, m, n, k): Shape) -> f64 {
    2.0 * (b * m * n * k) as f64
}

/// The element types of matrices.
pub trait Element: Copy + 'static {
    /// The element type in memory.
    const DTYPE: DType;
    /// The accumulator type.
    const SUMS: DType;
    /// The tolerated absolute error per term of a sum.
    const CLOSE: f64;
    /// Rounds a number to the type.
    fn of(x: f64) -> Self;
    /// Converts the element to `f64`.
    fn to(self) -> f64;
}

macro_rules! element {
    ($t:ty, $dtype:expr, $sums:expr, $close:literal, $x:ident $of:expr) => {
        impl Element for $t {
            const DTYPE: DType = $dtype;
            const SUMS: DType = $sums;
            const CLOSE: f64 = $close;
            fn of($x: f64) -> $t {
                $of
            }
            fn to(self) -> f64 {
                f64::from(self)
            }
        }
    };
}
element!(f32, DType::F32, DType::F32, 1e-4, x x as f32);
element!(f64, DType::F64, DType::F64, 1e-12, x x);
element!(f16, DType::F16, DType::F32, 1e-1, x f16::from_f64(x));
element!(bf16, DType::Bf16, DType::F32, 1e-1, x bf16::from_f64(x));

/// The operands of a product.
pub struct Operands<T> {
    /// The shape of the product.
    pub shape: Shape,
    lhs: Vec<T>,
    rhs: Vec<T>,
}

impl<T: Element> Operands<T> {
    /// Returns operands with random elements.
    pub fn new(shape: Shape) -> Operands<T> {
        let (b, m, n, k) = shape;
        let mut random = Random(7);
        let mut numbers = |n: usize| (0..n).map(|_| T::of(random.between(-1.0, 1.0))).collect::<Vec<_>>();
        Operands { shape, lhs: numbers(b * m * k), rhs: numbers(b * k * n) }
    }
}

/// A product that our kernels compute.
pub struct Ours<T> {
    session: Box<dyn Session>,
    constant: bool,
    /// The result.
    pub out: Vec<T>,
}

impl<T: Element> Ours<T> {
    /// Compiles the product of two operands. If `constant` is set, the right operand is a parameter instead of an
    /// input.
    pub fn new(of: &Operands<T>, threads: usize, constant: bool) -> Ours<T> {
        let (b, m, n, k) = of.shape;
        let mut result = body(&[b, m, n]);
        let value = push(&mut result, Instr::Anchor { dtype: T::SUMS });
        let operand = |slot: usize, domain: &[usize]| -> Body {
            let mut b = body(domain);
            let load = Load { slot, at: row_major(domain), guards: Vec::new(), dtype: T::DTYPE };
            b.results = vec![push(&mut b, Instr::Load(load))];
            b
        };
        let anchor = AnchorKernel::product(operand(0, &[b, m, k]), operand(1, &[b, k, n]));
        let stores = vec![Store::new(2, row_major(&[b, m, n]), value)];
        let counts = [b * m * k, b * k * n, b * m * n];
        let kernel = Kernel { anchor, body: result, stores, slots: counts.map(|n| (T::DTYPE, n)).to_vec() };
        let mut program = program(&kernel);
        let mut params = Vec::new();
        if constant {
            program.params.push(program.inputs.remove(1));
            program.buffers[1].place = Place::Param(0);
            params.push(Tensor::from_f64(T::DTYPE, &[of.rhs.len()], of.rhs.iter().map(|x| x.to())));
        }
        let cpu = Cpu::new(CpuOptions { threads, ..CpuOptions::default() });
        let loaded = cpu.compile(&program).expect("a product compiles").load(&params).expect("the parameter fits");
        let session = loaded.session().expect("memory suffices");
        Ours { session, constant, out: vec![T::of(0.0); counts[2]] }
    }

    /// Computes the product.
    pub fn run(&mut self, of: &Operands<T>) {
        let inputs = [bytes(&of.lhs), bytes(&of.rhs)];
        let inputs = &inputs[..if self.constant { 1 } else { 2 }];
        self.session.run(inputs, &mut [bytes_mut(&mut self.out)]).expect("the run succeeds");
    }

    /// Panics unless the result is close to another result.
    pub fn check<U: Element>(&self, other: &[U], shape: Shape) {
        let close = |(a, b): (&T, &U)| (a.to() - b.to()).abs() <= T::CLOSE * shape.3 as f64;
        assert!(self.out.iter().zip(other).all(close), "{}: results differ", name(shape));
    }
}

/// Computes a product with the crate `gemm`, on one thread.
pub fn gemm<T: Element>(of: &Operands<T>, out: &mut [T]) {
    let (b, m, n, k) = of.shape;
    for i in 0..b {
        let to = out[i * m * n..][..m * n].as_mut_ptr();
        let (lhs, rhs) = (&of.lhs[i * m * k..][..m * k], &of.rhs[i * k * n..][..k * n]);
        let [rows, terms] = [n, k].map(|n| n as isize);
        let none = gemm::Parallelism::None;
        let (zero, one) = (T::of(0.0), T::of(1.0));
        // SAFETY: the slices have the sizes of the matrices.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                to,
                1,
                rows,
                false,
                lhs.as_ptr(),
                1,
                terms,
                rhs.as_ptr(),
                1,
                rows,
                zero,
                one,
                false,
                false,
                false,
                none,
            );
        }
    }
}

/// Computes a product with the crate `faer`, on one thread.
pub fn faer<T: Element + ComplexField>(of: &Operands<T>, out: &mut [T]) {
    let (b, m, n, k) = of.shape;
    for i in 0..b {
        let to = MatMut::from_row_major_slice_mut(&mut out[i * m * n..][..m * n], m, n);
        let lhs = MatRef::from_row_major_slice(&of.lhs[i * m * k..][..m * k], m, k);
        let rhs = MatRef::from_row_major_slice(&of.rhs[i * k * n..][..k * n], k, n);
        matmul(to, Accum::Replace, lhs, rhs, T::of(1.0), Par::Seq);
    }
}

/// Measures several functions in alternation, and returns the minimal seconds of a call of each.
pub fn least<const N: usize>(mut calls: [&mut dyn FnMut(); N], seconds: f64) -> [f64; N] {
    let mut least = [f64::INFINITY; N];
    let (start, mut rounds) = (Instant::now(), 0);
    while rounds < 4 || start.elapsed().as_secs_f64() < seconds {
        for (call, least) in calls.iter_mut().zip(&mut least) {
            // Each is called twice in a row, because the first call loads its data into the caches.
            for _ in 0..2 {
                let t = Instant::now();
                call();
                *least = least.min(t.elapsed().as_secs_f64());
            }
        }
        rounds += 1;
    }
    least
}

fn bytes<T: Element>(x: &[T]) -> &[u8] {
    // SAFETY: a float consists of initialised bytes, and the slice has `size_of_val(x)` of them.
    unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), size_of_val(x)) }
}

fn bytes_mut<T: Element>(x: &mut [T]) -> &mut [u8] {
    // SAFETY: a float consists of initialised bytes, the slice has `size_of_val(x)` of them, and any bytes are a float.
    unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast(), size_of_val(x)) }
}
