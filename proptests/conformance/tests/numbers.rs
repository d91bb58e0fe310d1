//! The small models of `models/golden/numbers` on the CPU.

use std::{path::Path, sync::Arc};

use eutectic::{Backend, Cpu, CpuOptions};
use eutectic_conformance::{device::Device, suites::numbers::numbers, sweep::Sweep};

#[test]
fn small_models_have_the_values_that_are_right() {
    let cpu = Arc::new(Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() })) as Arc<dyn Backend>;
    let device = Device::new(vec![cpu]).unwrap_or_else(|e| panic!("{e}"));
    numbers(&device, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/golden"));
    let (judged, refused, why) = device.take_counts();
    assert!(judged >= 64 && refused == 0, "{judged} right, {refused} refused: {why:?}");
}

#[test]
fn exact_programs_have_the_bits_of_op_by_op_execution() {
    let cpu = Arc::new(Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() })) as Arc<dyn Backend>;
    let device = Device::new(vec![cpu]).unwrap_or_else(|e| panic!("{e}"));
    Sweep::new(&device).bits(2000, 5, 0).unwrap_or_else(|failure| panic!("{failure}"));
    let (judged, ..) = device.take_counts();
    assert!(judged >= 200, "{judged} programs without composite ops");
}
