//! Tests that rules terminate, that new values replace states in place, and that each program that once failed is tried
//! again.

use eutectic::{Compiler, Cpu};
use eutectic_conformance::{
    device::Device,
    suites::{
        programs::ONCE_FAILED,
        states::{PROGRAMS, graph},
    },
    sweep::Sweep,
};

#[test]
fn rules_saturate() {
    let device = Device::new(vec![std::sync::Arc::new(Cpu::default())]).unwrap();
    Sweep::new(&device).rest(500, 12, 0).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn values_take_the_place_of_states_where_no_reader_comes_after() {
    let made = |text: &str| {
        let planned = Compiler::new(Cpu::default()).unwrap().plan(&graph(text)).unwrap();
        planned.lowered.steps.iter().filter(|step| step.is_none()).count()
    };
    let made: Vec<_> = PROGRAMS.iter().map(|(name, _, text)| (*name, made(text))).collect();
    let wanted: Vec<_> = PROGRAMS.iter().map(|(name, copies, _)| (*name, *copies)).collect();
    assert_eq!(made, wanted);
}

#[test]
fn every_program_that_once_failed_is_tried_again() {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/once_failed")).unwrap();
    let mut files: Vec<_> = folder.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    assert_eq!(files, ONCE_FAILED.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>());
}
