//! A naive evaluator of kernels, a builder of random ones, and a harness that compares.
#![allow(dead_code)]

pub mod build;
pub mod naive;
pub mod ops;
pub mod windows;

use eutectic_backend::{Backend, BackendError, Buffer, Kernel, Place, Program, Step};
use eutectic_cpu::{Cpu, CpuOptions, Isa};
use eutectic_ir::{Origin, Tensor, Type};

/// A small generator of random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// A program of one kernel: buffers that are stored to are outputs, others inputs.
pub fn program(kernel: &Kernel) -> Program {
    let stored = |slot: usize| kernel.stores.iter().any(|s| s.slot == slot);
    let mut program = Program { kernels: vec![kernel.clone()], ..Program::default() };
    for (slot, &(dtype, count)) in kernel.slots.iter().enumerate() {
        let ports = if stored(slot) { &mut program.outputs } else { &mut program.inputs };
        let n = ports.len();
        ports.push((format!("slot{slot}"), Type::tensor(dtype, &[count])));
        let place = if stored(slot) { Place::Output(n) } else { Place::Input(n) };
        program.buffers.push(Buffer { dtype, count, place });
    }
    let buffers = (0..kernel.slots.len()).collect();
    program.run.push(Step::new(0, buffers, Origin::new("test")));
    program
}

/// Runs a kernel; `inputs` has a tensor for each slot that is not stored to. Gives the stored buffers.
pub fn run(kernel: &Kernel, inputs: &[Tensor], threads: usize, isa: Isa) -> Result<Vec<Tensor>, BackendError> {
    run_with(kernel, inputs, 0, threads, isa)
}

/// As [`run`], with the last `params` of the tensors as parameters, which do not change between runs.
pub fn run_with(
    kernel: &Kernel,
    inputs: &[Tensor],
    params: usize,
    threads: usize,
    isa: Isa,
) -> Result<Vec<Tensor>, BackendError> {
    let mut program = program(kernel);
    let (inputs, given) = inputs.split_at(inputs.len() - params);
    program.params = program.inputs.split_off(inputs.len());
    for buffer in &mut program.buffers {
        if let Place::Input(n) = buffer.place
            && n >= inputs.len()
        {
            buffer.place = Place::Param(n - inputs.len());
        }
    }
    let cpu = Cpu::new(CpuOptions { threads, isa, ..CpuOptions::default() });
    let mut session = cpu.compile(&program)?.load(given)?.session()?;
    let inputs: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
    let types: Vec<_> = program.outputs.iter().map(|o| o.1.clone()).collect();
    let mut twice = Vec::new();
    // Where results begin within a line of memory must not matter.
    for place in [0, 40] {
        let mut outputs: Vec<Vec<u8>> = types.iter().map(|t| vec![0; t.bytes() + 128]).collect();
        let starts: Vec<_> = outputs.iter().map(|o| o.as_ptr().align_offset(64) + place).collect();
        let parts = outputs.iter_mut().zip(&starts).zip(&types);
        let mut slices: Vec<&mut [u8]> = parts.map(|((o, &start), t)| &mut o[start..][..t.bytes()]).collect();
        session.run(&inputs, &mut slices)?;
        twice.push(slices.into_iter().map(|slice| slice.to_vec()).collect::<Vec<_>>());
    }
    assert_eq!(twice[0], twice[1], "a second run gives the same bits");
    let tensor = |(bytes, ty): (Vec<u8>, &Type)| {
        Tensor::new(ty.dtype().unwrap(), &ty.dims().unwrap(), bytes).expect("as many bytes as the type asks for")
    };
    Ok(twice.swap_remove(0).into_iter().zip(&types).map(tensor).collect())
}

/// Compares a kernel, brought into normal form, with the naive evaluation of it as it is, on 1 and 2 threads and every instruction-set level. `tolerance` is relative to
/// 1 + |x|, in units of the stored type's roundoff.
#[track_caller]
pub fn check(kernel: &Kernel, inputs: &[Tensor], tolerance: f64) {
    check_with(kernel, inputs, 0, tolerance);
}

/// As [`check`], with the last `params` of the tensors as parameters.
#[track_caller]
pub fn check_with(kernel: &Kernel, inputs: &[Tensor], params: usize, tolerance: f64) {
    let expected = naive::kernel(kernel, inputs);
    let mut kernel = kernel.clone();
    kernel.normalise();
    let kernel = &kernel;
    for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
        let [one, two] =
            [1, 2].map(|n| run_with(kernel, inputs, params, n, isa).unwrap_or_else(|e| panic!("{e}\n{kernel:#?}")));
        for ((one, two), want) in one.iter().zip(&two).zip(&expected) {
            assert!(one.bytes() == two.bytes(), "1 and 2 threads differ: {kernel:#?}");
            let unit = if one.dtype().is_float() { one.dtype().unit_roundoff().max(2f64.powi(-24)) } else { 0.0 };
            let unit = if one.dtype() == eutectic_ir::DType::F64 { one.dtype().unit_roundoff() } else { unit };
            for (i, (&got, &want)) in one.to_f64().iter().zip(want).enumerate() {
                let Some(want) = want else { continue };
                let close = (got - want).abs() <= tolerance * unit * (1.0 + want.abs());
                let rounded = |x: f64| Tensor::from_f64(one.dtype(), &[], [x]).to_f64()[0];
                assert!(
                    close || got == want || rounded(want) == got || got.is_nan() && want.is_nan(),
                    "element {i}: {got:e}, expected {want:e}, {isa:?}, {kernel:#?}"
                );
            }
        }
    }
}
