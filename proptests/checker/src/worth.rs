//! Predicts whether a rule can make a program faster: compares the predicted times of both sides at dims of realistic
//! size.

use eutectic::{Compiler, Graph, RuleSet};
use eutectic_ir::lang::Bindings;
use eutectic_rewrites::{Lint, LoadError, Probe};

use crate::{
    cases, fire,
    instance::Instance,
    palette::{Drawn, Palette},
    rows::Dims,
};

/// The number of instances that are compared.
const INSTANCES: usize = 12;
/// The maximal number of draws.
const DRAWS: usize = 400;
/// If [`DRAWS`] draws find fewer instances than this, ten times as many are drawn.
const FEW: usize = 4;
/// The maximal size of an instance, in elements of all tensors.
const LARGEST: usize = 1 << 24;
/// The minimal size of an instance, in elements. For smaller ones, launching a kernel takes most of the time.
const SMALLEST: usize = 1 << 14;

/// The ratio below which two predictions count as equal. Costs are fitted to measurements, which vary by more and
/// differ between machines.
const MARGIN: f64 = 1.1;

/// The predicted times of a rule's sides.
#[derive(Clone, Debug)]
pub struct Worth {
    /// The minimum of the right side's time divided by the left's, over all instances and backends.
    pub ratio: f64,
    /// The number of instances for which both sides have a plan.
    pub instances: usize,
}

/// Plans both sides of instances with large dims on each backend, without the rule. Stops at the first instance whose
/// right side takes at most `enough` times as long as its left side. Returns `None` if no instance has a plan.
///
/// # Errors
/// If the rules that make a program computable are not among the embedded ones: a defect of this build.
pub fn worth(
    probe: &Probe,
    embedded: &RuleSet,
    backends: &[Compiler],
    enough: f64,
) -> Result<Option<Worth>, LoadError> {
    let base = fire::base(embedded, &probe.rule().name)?;
    let compilers: Vec<Compiler> = backends.iter().map(|c| c.clone().with_rules(base.clone())).collect();
    let mut worth: Option<Worth> = None;
    for n in 0..10 * DRAWS {
        if n >= DRAWS && worth.as_ref().is_none_or(|w| w.instances >= FEW) {
            break;
        }
        let palette = Palette {
            extents: vec![64, 96, 128, 192, 256, 384, 8, 12],
            relations_first: n % 2 == 1,
            ops: vec![n; 2],
            ..Dims::Wide.palette(&[])
        };
        let mut random = cases::random(1, &probe.rule().name, n);
        let instance = Instance::draw(probe.rule(), &mut Drawn::from(&palette, &mut random), Bindings::default());
        let Some(instance) = instance.filter(|i| (SMALLEST..=LARGEST).contains(&i.size())) else { continue };
        let Ok(sides) = instance.sides(probe, 0) else { continue };
        // A left side that is computable only with the rule has an infinite time without it.
        let left = |compiler| seconds(compiler, &sides.left).unwrap_or(f64::INFINITY);
        let ratios = compilers.iter().filter_map(|c| Some(seconds(c, &sides.right)? / left(c)));
        let Some(least) = ratios.min_by(f64::total_cmp) else { continue };
        let known = worth.get_or_insert(Worth { ratio: f64::INFINITY, instances: 0 });
        (known.ratio, known.instances) = (known.ratio.min(least), known.instances + 1);
        if known.ratio <= enough || known.instances == INSTANCES {
            break;
        }
    }
    Ok(worth)
}

fn seconds(compiler: &Compiler, side: &Graph) -> Option<f64> {
    compiler.plan(side).ok().map(|planned| planned.seconds())
}

/// Reports rules whose right side is slower on every backend in every instance, unless they are declared `(canonical)`.
/// Also reports canonical rules whose right side is not slower.
///
/// # Errors
/// See [`worth`].
pub fn lint(rules: &RuleSet, backends: &[Compiler]) -> Result<Vec<Lint>, LoadError> {
    let embedded = RuleSet::embedded()?;
    let mut lints = Vec::new();
    for probe in rules.probes().filter(|probe| !probe.rule().is_definition()) {
        let rule = probe.rule();
        let enough = if rule.canonical { MARGIN.recip() } else { MARGIN };
        let Some(Worth { ratio, instances }) = worth(&probe, &embedded, backends, enough)? else { continue };
        let message = match (ratio > enough, rule.canonical) {
            (true, false) => format!(
                "in {instances} instances the right side takes at least {ratio:.2} times as long as the left; remove the \
                 rule, or declare it \
                 (canonical) if other rules start from its result"
            ),
            (false, true) => "the right side is not slower in every instance; remove (canonical)".into(),
            _ => continue,
        };
        lints.push(Lint::of(rule, message));
    }
    Ok(lints)
}
