//! The checker of rules: tests each rule on instances generated from its own `forall`, without tests written by hand.
//!
//! It makes these checks for each rule ([`Check`]):
//!
//! - Both sides have one type.
//! - Both sides have equal values by the rule's contract, in the reference interpreter.
//! - The rule fires on its own left side, in the tried orders of commutative operands.
//! - The rule does not fire, or is right, if a guard is broken.
//! - The engine does not apply a rule that may change bits if a discontinuous op reads the result.
//! - A backend computes both sides.
//!
//! Failures are shrunk, and shown with the command that repeats them. Mutants measure the quality of the cases.

mod array;
mod backend;
mod boundary;
mod cases;
mod equivalent;
mod evaluate;
mod fire;
mod fitting;
pub mod instance;
mod judge;
mod literals;
mod mutants;
pub mod mutate;
mod neighbours;
mod observed;
mod pair;
pub mod palette;
mod progress;
mod promise;
mod report;
mod rows;
pub mod run;
mod shrink;
mod special;
mod values;
mod wild;
pub mod worth;

use std::time::Instant;

use eutectic::{Compiler, DType};
use eutectic_rewrites::{Contract, LoadError, Phase, Probe, RuleSet};
use rayon::prelude::*;

use cases::{Case, Corpus};
pub use eutectic::verify::Element;
use instance::Instance;
pub use judge::Difference;
use judge::Verdict;
use progress::Clock;
pub use progress::Progress;
pub use report::{Check, Failure, Mutants, Outcome, Report};

/// The options of the checker.
#[derive(Clone)]
pub struct Options {
    /// The number of instances of each rule. `None` means one for each row of its covering array.
    pub cases: Option<usize>,
    /// The seed of the cases. The same seed gives the same cases, independently of the other rules that are checked.
    pub seed: u64,
    /// The compilers whose backends run both sides. The checker replaces their rules by those that make a program
    /// computable.
    pub backends: Vec<Compiler>,
    /// The number of instances that run on each backend.
    pub backend_cases: usize,
    /// Whether mutants are tried.
    pub mutants: bool,
    /// A function that is called every ten seconds with the current step of a rule that takes long.
    pub progress: Option<fn(&Progress<'_>)>,
}

impl Default for Options {
    fn default() -> Options {
        Options { cases: None, seed: 1, backends: Vec::new(), backend_cases: 6, mutants: false, progress: None }
    }
}

/// The number of cases on which the engine itself must apply the rule.
const ENGINE_CASES: usize = 2;
/// The maximal number of smaller cases that are run on a backend. Each case takes several compilations.
const BACKEND_SHRINKS: usize = 40;

/// Checks rules.
pub struct Checker {
    options: Options,
    embedded: RuleSet,
}

impl Checker {
    /// Returns a checker.
    ///
    /// # Errors
    /// If the embedded rules do not load: a defect of this build.
    pub fn new(options: Options) -> Result<Checker, LoadError> {
        Ok(Checker { options, embedded: RuleSet::embedded()? })
    }

    /// Checks rules on all cores, and returns the reports in the rules' order.
    ///
    /// # Errors
    /// See [`Checker::check`].
    pub fn check_all(&self, probes: &[Probe]) -> Result<Vec<Report>, LoadError> {
        probes.par_iter().map(|probe| self.check(probe)).collect()
    }

    /// Checks one rule.
    ///
    /// # Errors
    /// If the rules that make a program computable are not among the embedded ones: a defect of this build.
    pub fn check(&self, probe: &Probe) -> Result<Report, LoadError> {
        let start = Instant::now();
        let rule = probe.rule();
        let clock = Clock::new(&rule.name, self.options.progress);
        let mut report = Report {
            rule: rule.name.to_string(),
            place: rule.place(),
            contract: rule.contract,
            cases: 0,
            elements: 0,
            judged: 0,
            fired: 0,
            guarded: 0,
            neighbours: 0,
            ran: 0,
            refused: None,
            mutants: None,
            failures: Vec::new(),
            notes: Vec::new(),
            time: Default::default(),
        };
        let corpus = cases::corpus(probe, self.options.seed, self.options.cases);
        self.types(&corpus, &mut report);
        if report.holds() {
            self.values(probe, &corpus, &clock, &mut report);
        }
        if report.holds() {
            let base = fire::base(&self.embedded, &rule.name)?;
            self.firing(probe, &corpus, &base, &clock, &mut report);
            let whole = if rule.pack() == "decompose" || rule.pack() == "legalize" {
                fire::base(&self.embedded, "")?
            } else {
                base
            };
            self.backends(probe, &corpus, &whole, &clock, &mut report);
        }
        if report.holds() && self.options.mutants {
            report.mutants = Some(mutants::mutants(probe, &corpus.cases, &clock));
        }
        report.time = start.elapsed();
        Ok(report)
    }

    fn types(&self, corpus: &Corpus, report: &mut Report) {
        if let Some((instance, how)) = &corpus.ill_typed {
            report.failures.push(Failure {
                check: Check::Types,
                what: how.clone(),
                variables: instance.values(),
                tensors: Vec::new(),
                difference: None,
            });
        } else if corpus.cases.is_empty() && corpus.unmatched.is_empty() && corpus.too_large {
            report.notes.push(
                "cannot compare the sides because every instance of the left side is too large to be computed".into(),
            );
        } else if corpus.cases.is_empty() {
            let what = "the rule matches no instance of its own left side";
            let unmatched = corpus.unmatched.first();
            report.failures.push(Failure {
                check: Check::Fires,
                what: what.into(),
                variables: unmatched.map(|i| i.values()).unwrap_or_default(),
                tensors: Vec::new(),
                difference: None,
            });
        }
    }

    fn values(&self, probe: &Probe, corpus: &Corpus, clock: &Clock<'_>, report: &mut Report) {
        let contract = promise::promise(probe.rule());
        let mut all = Verdict::default();
        for case in &corpus.cases {
            clock.tick("comparing the sides of case", report.cases, corpus.cases.len());
            report.cases += 1;
            if let Some(node) = case.illegal(probe.rule()) {
                let what = format!("the right side is not in legal form: {node}");
                return report.failures.push(Failure::of(Check::Types, what, case, None));
            }
            match case.judge(contract) {
                // The cases of a `fast` rule are judged together, because such a rule may differ in some of them.
                Ok(verdict) if contract == Contract::Fast => all = all.and(verdict),
                Ok(verdict) if !verdict.refutes(contract) => all = all.and(verdict),
                _ => return report.failures.push(self.refutation(probe, case)),
            }
        }
        (report.elements, report.judged) = (all.elements, all.judged);
        if all.elements == 0 && !corpus.cases.is_empty() {
            report.notes.push(
                "the left side has no value in any case, for example because it reads a table without rows".into(),
            );
        }
        if all.refutes(contract) {
            let worst = corpus.cases.iter().find(|c| c.judge(contract).is_ok_and(|v| v.refutes(contract)));
            return report.failures.extend(worst.map(|case| self.refutation(probe, case)));
        }
        // Misses of two kinds are expected: a 16-bit type may round a number of the left side, and a legalization rule
        // does not match a program that is legal already.
        let wide = |i: &&Instance| i.dtypes().all(|d| d.register() == d);
        let missed: Vec<&Instance> = corpus.unmatched.iter().filter(wide).collect();
        if missed.len() > corpus.cases.len() / 4 && probe.rule().phase != Phase::Legalize {
            let values: Vec<_> =
                missed[0].values().into_iter().map(|(name, value)| format!("{name} = {value}")).collect();
            let what = "instances of the left side are not matched, for example with";
            report.notes.push(format!("{} {what} {}", missed.len(), values.join(", ")));
        }
    }

    /// Returns the failure of a case whose sides differ, after shrinking the case.
    fn refutation(&self, probe: &Probe, case: &Case) -> Failure {
        let contract = promise::promise(probe.rule());
        let rule = probe.rule();
        let refuted = |c: &Case| {
            values::lie_in_the_domain(rule, &c.values) && c.judge(contract).is_ok_and(|v| v.refutes(contract))
        };
        let small = match refuted(case) {
            true => shrink::shrink(probe, case, self.options.seed, usize::MAX, &refuted),
            false => case.clone(),
        };
        let (what, difference) = match small.judge(contract) {
            Ok(verdict) => ("the sides differ".to_string(), verdict.first),
            Err(error) => (error, None),
        };
        Failure::of(Check::Values, what, &small, difference)
    }

    fn firing(&self, probe: &Probe, corpus: &Corpus, base: &RuleSet, clock: &Clock<'_>, report: &mut Report) {
        // A 16-bit type may round a number of the left side, so that the rule does not match. So the engine is tested
        // on other types, unless the rule is about 16-bit types only.
        let short = |c: &Case| c.instance.dtypes().any(|d| d.register() != d);
        let all_short = corpus.cases.iter().all(short);
        for case in corpus.cases.iter().filter(|c| all_short || !short(c)).take(ENGINE_CASES) {
            match fire::fires(probe, case, base) {
                Ok(fired) => report.fired += fired,
                Err(failure) => return report.failures.push(*failure),
            }
            if let Err(failure) = observed::left_alone(probe, case, base) {
                return report.failures.push(*failure);
            }
        }
        let mut seen: Vec<Vec<DType>> = Vec::new();
        for case in &corpus.cases {
            // The numbers that match a literal depend on the element types only, so one case for each combination of
            // types is enough.
            let dtypes: Vec<DType> = case.instance.dtypes().collect();
            if seen.contains(&dtypes) {
                continue;
            }
            seen.push(dtypes);
            match fire::literals_kept(probe, case) {
                Ok(tried) => report.neighbours += tried,
                Err(failure) => return report.failures.push(*failure),
            }
        }
        for (n, case) in corpus.cases.iter().enumerate() {
            clock.tick("breaking the guards of case", n, corpus.cases.len());
            let mut random = cases::random(self.options.seed, &report.rule, 2_000_000 + n);
            match fire::guarded(probe, case, &mut random) {
                Ok(tried) => report.guarded += usize::from(tried),
                Err(failure) => return report.failures.push(*failure),
            }
        }
    }

    fn backends(&self, probe: &Probe, corpus: &Corpus, base: &RuleSet, clock: &Clock<'_>, report: &mut Report) {
        for compiler in &self.options.backends {
            for (n, case) in corpus.mixed().take(self.options.backend_cases).enumerate() {
                clock.tick("compiling case", n, self.options.backend_cases);
                match backend::run(compiler, base, case) {
                    backend::Outcome::Right(ran) => report.ran += ran,
                    backend::Outcome::Refused(why) => report.refused.get_or_insert((0, why)).0 += 1,
                    backend::Outcome::Wrong(failure) => {
                        let wrong = |c: &Case| matches!(backend::run(compiler, base, c), backend::Outcome::Wrong(_));
                        let small = shrink::shrink(probe, case, self.options.seed, BACKEND_SHRINKS, &wrong);
                        let shown = match backend::run(compiler, base, &small) {
                            backend::Outcome::Wrong(failure) => failure,
                            _ => failure,
                        };
                        return report.failures.push(*shown);
                    }
                }
            }
        }
    }
}
