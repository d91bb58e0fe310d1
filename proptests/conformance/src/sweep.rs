//! Checks many random programs, each compiled in several ways. The same seed repeats a run.

use anyhow::{Context, anyhow};
use eutectic::{
    Compiler, Error, Graph, RuleSet, Strategy, Tensor,
    engine::rewrites::{Choice, Fp, LoadError, Options, Phase, Stop, optimize},
    packs,
};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed, TestRunner},
};

use eutectic_checker::run::{check, values};
use eutectic_ir::{Class, Op};

use crate::{
    device::Device,
    program::{Case, programs},
};

/// A way to compile a program.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// With all rules, and this strategy of the plan search.
    Search(Strategy),
    /// With the rules that programs need, and about half of the others, which the case's seed selects.
    SomeRules,
}

impl Way {
    /// All ways.
    pub const ALL: [Way; 4] =
        [Way::Search(Strategy::Unfused), Way::Search(Strategy::Greedy), Way::Search(Strategy::Local), Way::SomeRules];
}

/// A checker of random programs on a device.
pub struct Sweep<'a> {
    device: &'a Device,
    compiler: Compiler,
}

impl Sweep<'_> {
    /// Returns a sweep on a device.
    pub fn new(device: &Device) -> Sweep<'_> {
        Sweep { device, compiler: device.compiler() }
    }

    /// Checks `count` programs of up to about `steps` ops, compiled in one way. Shrinks the first program that fails,
    /// and reports it as text that `eutectic opt` reads.
    ///
    /// # Errors
    /// If a program fails: the shrunk program and its failure, as text.
    pub fn programs(&self, way: Way, count: u32, steps: usize, seed: u64) -> anyhow::Result<()> {
        let agrees = |case: Case| self.agrees(way, &case.graph, case.seed);
        each(count, steps, seed, agrees).map_err(|e| anyhow!("{way:?}: {e}"))
    }

    /// Checks that `--fp exact` gives the results of op-by-op execution, without a difference in rounding. Shrinks the
    /// first program that fails.
    ///
    /// # Errors
    /// If a program fails: the shrunk program and its failure, as text.
    pub fn bits(&self, count: u32, steps: usize, seed: u64) -> anyhow::Result<()> {
        let rules = packs(self.compiler.backend())?.choose(&Choice { fp: Fp::Exact, ..Choice::default() })?;
        let exact = self.compiler.clone().with_rules(rules);
        each(count, steps, seed, |case: Case| {
            // Skips programs with ops whose result is not unique. A kernel chooses the order of a sum or product, and a
            // composite op has several definitions.
            let has_one_result = |op: Op| match &op.def().class {
                class if class.leaves_order_open() => op.hands_on(),
                Class::Anchor(_) => op.row().is_some_and(|row| row.monoid.is_none_or(|how| how.def().selects)),
                _ => true,
            };
            if !case.graph.nodes().all(|(_, node)| has_one_result(node.op)) {
                return Ok(());
            }
            let given = values(&case.graph, case.seed);
            let run = |strategy| -> Result<Vec<Tensor>, Error> {
                let mut session = exact.clone().with_strategy(strategy).compile(&case.graph)?;
                session.load_named(&given)?;
                session.run_named(&given)
            };
            let (fused, apart) = (run(Strategy::Local)?, run(Strategy::Unfused)?);
            for ((name, _), (a, b)) in case.graph.outputs().iter().zip(fused.iter().zip(&apart)) {
                let (x, y) = (a.to_f64(), b.to_f64());
                let differs =
                    |at: &usize| x[*at].to_bits() != y[*at].to_bits() && !(x[*at].is_nan() && y[*at].is_nan());
                if let Some(at) = (0..x.len()).find(differs) {
                    return Err(anyhow!("{name}: element {at} is {} fused, and {} op by op", x[at], y[at]));
                }
            }
            self.device.judge();
            Ok(())
        })
    }

    /// Checks on `count` programs that every phase of the rules saturates within the limits.
    ///
    /// # Errors
    /// If a phase does not saturate: the shrunk program and the busiest rules, as text.
    pub fn rest(&self, count: u32, steps: usize, seed: u64) -> anyhow::Result<()> {
        each(count, steps, seed, |case: Case| {
            let rewritten = optimize(&case.graph, self.compiler.rules(), &Options::default())?;
            match rewritten.phases.iter().find(|p| p.stop != Stop::Saturated) {
                None => Ok(()),
                Some(phase) => {
                    let mut rules: Vec<_> = rewritten.statistics.iter().map(|r| (r.changes, &r.name)).collect();
                    rules.sort_unstable_by(|a, b| b.cmp(a));
                    rules.truncate(8);
                    Err(anyhow!("phase {} does not saturate: {:?}; busiest: {rules:?}", phase.phase, phase.stop))
                }
            }
        })
    }

    /// Compiles a program in one way, and compares its results with the interpreter's. Counts a refusal if the device
    /// does not support the program.
    ///
    /// # Errors
    /// If results differ, or if the engine fails for another reason than a refusal.
    pub fn agrees(&self, way: Way, graph: &Graph, seed: u64) -> anyhow::Result<()> {
        let compiler = self.compiler.clone();
        let compiler = match way {
            Way::Search(strategy) => compiler.with_strategy(strategy),
            Way::SomeRules => {
                let rules = some_rules(compiler.rules(), seed).context("cannot leave out rules")?;
                compiler.with_rules(rules)
            }
        };
        match check(&compiler, graph, seed) {
            Err(Error::Unsupported { problems, .. }) => self.device.refuse(|| problems.join(", ")),
            checked => {
                checked?.map_err(|differences| anyhow!("{differences:#?}"))?;
                self.device.judge();
            }
        }
        Ok(())
    }
}

/// Runs a check on `count` programs, and shrinks the first program that fails.
fn each(count: u32, steps: usize, seed: u64, check: impl Fn(Case) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let config = Config {
        cases: count,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..Config::default()
    };
    let check = |case: Case| check(case).map_err(|e| TestCaseError::fail(format!("{e:#}")));
    TestRunner::new(config).run(&programs(steps), check).map_err(|e| anyhow!("{e}"))
}

/// Returns the rules without about half of them, which the seed selects. Keeps the rules without which some programs
/// have no kernels.
fn some_rules(rules: &RuleSet, seed: u64) -> Result<RuleSet, LoadError> {
    let mut random = fastrand::Rng::with_seed(seed);
    let dropped = rules.iter().filter(|rule| {
        let stays = random.bool();
        let needed = rule.phase == Phase::Legalize || rule.name.starts_with("decompose/");
        !needed && !stays
    });
    rules.choose(&Choice { without: dropped.map(|rule| rule.name.to_string()).collect(), ..Choice::default() })
}
