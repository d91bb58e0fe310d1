//! Random programs through the whole engine, with every plan search, against the interpreter.

use eutectic::{Compiler, Cpu, CpuOptions, Strategy};
use eutectic_proptests::{conformance::check, program::programs};
use proptest::prelude::*;

fn agrees(strategy: Strategy, graph: &eutectic::Graph, seed: u64) -> Result<(), TestCaseError> {
    let compiler = Compiler::new(Cpu::new(CpuOptions::default())).unwrap().with_strategy(strategy);
    match check(&compiler, graph, seed) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(differences)) => Err(TestCaseError::fail(format!("{differences:#?}"))),
        Err(error) => Err(TestCaseError::fail(error.to_string())),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn unfused((graph, seed) in programs(8)) {
        agrees(Strategy::Unfused, &graph, seed)?;
    }

    #[test]
    fn greedy((graph, seed) in programs(8)) {
        agrees(Strategy::Greedy, &graph, seed)?;
    }

    #[test]
    fn local((graph, seed) in programs(10)) {
        agrees(Strategy::Local, &graph, seed)?;
    }
}
