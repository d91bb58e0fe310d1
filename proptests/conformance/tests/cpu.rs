//! Runs the suites on the processor, on each instruction-set level, with one thread and with two.

use std::sync::Arc;

use eutectic::{Backend, Cpu, CpuOptions, engine::cpu::Isa};
use eutectic_conformance::{device::Device, suite::Suite, suites::SUITES};

fn device(isa: Isa) -> Device {
    let form = |threads| Arc::new(Cpu::new(CpuOptions { threads, isa, ..CpuOptions::default() })) as Arc<dyn Backend>;
    Device::new(vec![form(1), form(2)]).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs a suite on some levels. No check may fail or have a refusal.
fn passes(name: &str, levels: &[Isa]) {
    let suite: &Suite = SUITES.iter().find(|suite| suite.name == name).expect("there is such a suite");
    for &isa in levels {
        let device = device(isa);
        for verdict in suite.run(&device, "") {
            assert!(verdict.failure.is_none(), "{}, {isa:?}: {:?}", verdict.name, verdict.failure);
            assert_eq!((verdict.refused, &verdict.why), (0, &None), "{}, {isa:?}", verdict.name);
        }
    }
}

const ALL: &[Isa] = &[Isa::Portable, Isa::Avx2, Isa::Avx512];
const BEST: &[Isa] = &[Isa::Avx512];

macro_rules! suites {
    ($($name:ident on $levels:ident),* $(,)?) => { $(
        #[test]
        fn $name() {
            passes(stringify!($name), $levels);
        }
    )*
        /// The names of the suites that run here.
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

suites! {
    ops on ALL,
    kernels on ALL,
    masks on ALL,
    gathers on ALL,
    groups on ALL,
    products on ALL,
    codes on ALL,
    halves on ALL,
    windows on ALL,
    program on BEST,
    sessions on BEST,
    states on BEST,
    scatters on BEST,
    rankings on BEST,
    scans on BEST,
    random on BEST,
    ids on ALL,
    failures on BEST,
    extents on BEST,
    precision on BEST,
    decode on BEST,
    graphs on BEST,
    programs on BEST,
}

#[test]
fn every_suite_is_run() {
    // `proptests/checker/tests/rules.rs` checks the rules on the processor.
    let missing: Vec<_> =
        SUITES.iter().map(|suite| suite.name).filter(|name| *name != "rules" && !NAMES.contains(name)).collect();
    assert_eq!(missing, [""; 0]);
}
