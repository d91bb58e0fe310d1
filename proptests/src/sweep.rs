//! Many random programs, each planned in several ways, in one run that a seed repeats.

use std::sync::OnceLock;

use eutectic::{
    Compiler, Cpu, Graph, RuleSet, Strategy,
    engine::rewrites::{Choice, LoadError, Phase},
};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed, TestRunner},
};

use crate::{conformance::check, program::programs};

/// How a program is compiled.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// With all rules, and that plan search.
    Search(Strategy),
    /// With about half of the rules that only make programs faster, chosen by the case's seed.
    SomeRules,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 4] =
        [Way::Search(Strategy::Unfused), Way::Search(Strategy::Greedy), Way::Search(Strategy::Local), Way::SomeRules];
}

/// Checks so many programs of at most `steps` ops; the first that fails is shrunk and reported as text that
/// `eutectic opt` reads.
///
/// # Errors
/// The failure, for people.
pub fn sweep(way: Way, count: u32, steps: usize, seed: u64) -> Result<(), String> {
    let config = Config {
        cases: count,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..Config::default()
    };
    let fail = |e: String| TestCaseError::fail(e);
    TestRunner::new(config)
        .run(&programs(steps), |case| agrees(way, &case.graph, case.seed).map_err(fail))
        .map_err(|e| format!("{way:?}: {e}"))
}

/// Compiles a program in one way and checks what it computes.
///
/// # Errors
/// What differs, or the engine's error, for people.
pub fn agrees(way: Way, graph: &Graph, seed: u64) -> Result<(), String> {
    let compiler = match way {
        Way::Search(strategy) => Compiler::of(Cpu::default(), embedded()?).with_strategy(strategy),
        Way::SomeRules => Compiler::of(Cpu::default(), some_rules(&embedded()?, seed).map_err(|e| e.to_string())?),
    };
    match check(&compiler, graph, seed) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(differences)) => Err(format!("{differences:#?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// The embedded rules, read once: reading them takes longer than a small program does.
fn embedded() -> Result<RuleSet, String> {
    static RULES: OnceLock<Result<RuleSet, String>> = OnceLock::new();
    let read = || {
        let rules = RuleSet::embedded().map_err(|e| e.to_string())?;
        rules.choose(&Choice::default()).map_err(|e| e.to_string())
    };
    RULES.get_or_init(read).clone()
}

/// Drops rules by the bits of a seed, but for those that programs need to have kernels at all.
fn some_rules(rules: &RuleSet, seed: u64) -> Result<RuleSet, LoadError> {
    let mut bits = seed;
    let dropped = rules.iter().filter(|rule| {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let needed = rule.phase == Phase::Legalize || rule.name.starts_with("decompose/");
        !needed && bits >> 63 == 0
    });
    rules.choose(&Choice { without: dropped.map(|rule| rule.name.to_string()).collect(), ..Choice::default() })
}
