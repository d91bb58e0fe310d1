//! Tests small models of `models/golden`, exact programs and a large tensor on the CPU.

use std::{path::Path, sync::Arc};

use eutectic::{Backend, Compiler, Cpu, CpuOptions, DType, Tensor};
use eutectic_conformance::{
    device::Device,
    suites::numbers::{classical, microsoft, numbers},
    sweep::Sweep,
};
use eutectic_ir::{lang::Source, text::parse};

/// Runs the cases of a folder on one thread. At least `least` cases must be right, and none refused.
fn all_are_right(cases: fn(&Device, &Path), least: usize) {
    let cpu = Arc::new(Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() })) as Arc<dyn Backend>;
    let device = Device::new(vec![cpu]).unwrap_or_else(|e| panic!("{e}"));
    cases(&device, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/golden"));
    let (judged, refused, why) = device.take_counts();
    assert!(judged >= least && refused == 0, "{judged} right, {refused} refused: {why:?}");
}

#[test]
fn small_models_give_the_right_values() {
    all_are_right(numbers, 64);
}

#[test]
fn classical_models_compute_what_onnx_runtime_computes() {
    all_are_right(classical, 64);
}

#[test]
fn quantised_ops_compute_what_onnx_runtime_computes() {
    all_are_right(microsoft, 29);
}

#[test]
fn exact_programs_have_the_bits_of_op_by_op_execution() {
    let cpu = Arc::new(Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() })) as Arc<dyn Backend>;
    let device = Device::new(vec![cpu]).unwrap_or_else(|e| panic!("{e}"));
    Sweep::new(&device).bits(2000, 5, 0).unwrap_or_else(|failure| panic!("{failure}"));
    let (judged, ..) = device.take_counts();
    assert!(judged >= 200, "{judged} programs without composite ops");
}

/// Gathers rows from a table whose last rows start after more than 2³¹ elements (onnxruntime#28107).
#[test]
#[ignore = "takes 5 GB of memory"]
fn elements_beyond_31_bits_are_found() {
    const ROWS: usize = 262_144;
    const COLUMNS: usize = 8960;
    let text = format!(
        "(graph \"large\" (input x u8[{ROWS} {COLUMNS}]) (input ids i64[4]) (output y (gather x ids :axis 0)))"
    );
    let graph = parse(&Source::new("large", text.as_str())).unwrap_or_else(|e| panic!("{e}"));
    let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() });
    let mut session =
        Compiler::new(cpu).and_then(|compiler| compiler.compile(&graph)).unwrap_or_else(|e| panic!("{e}"));
    let rows = (0..ROWS).flat_map(|row| std::iter::repeat_n((row % 251) as u8, COLUMNS)).collect::<Vec<_>>();
    let table = Tensor::new(DType::U8, &[ROWS, COLUMNS], rows).unwrap_or_else(|e| panic!("{e}"));
    let ids = Tensor::from_i64(DType::I64, &[4], [0, 239_673, 239_674, 262_143]);
    session.load_named(|_| None).unwrap_or_else(|e| panic!("{e}"));
    let given = |name: &str| Some(if name == "x" { table.clone() } else { ids.clone() });
    let results = session.run_named(given).unwrap_or_else(|e| panic!("{e}"));
    let want: Vec<u8> = [0, 219, 220, 99].iter().flat_map(|&n| std::iter::repeat_n(n, COLUMNS)).collect();
    assert_eq!(results[0].bytes(), want);
}
