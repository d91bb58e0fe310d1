//! Measures the time of each kernel of a program, and compares it with the prediction.

use eutectic::{
    Backend, Compiler, Planned, Session, Tensor,
    engine::backend::{Cost, costs::MeasuredBy},
    report::origin_in,
};
use serde_json::{Value, json};

use crate::{
    fault::Fault,
    table::{Table, seconds, table},
    timing::{Times, progress},
    values::NamedTensors,
};

/// The ratio of measured to predicted time, or its inverse, above which the user is told to measure costs.
const OFF: f64 = 1.5;

/// A kernel of a run, with the name and number that other reports use. A step that copies has no prediction.
pub struct KernelStep {
    /// The name of the kernel's anchor, or `copy`.
    pub kernel: String,
    /// The module of the anchor.
    pub origin: String,
    /// The index of the call of a block (a part of the program that may occur several times), and the index of the
    /// kernel in the block. `None` for a copy.
    pub of: Option<(usize, usize)>,
    /// The predicted time, bytes and operations. `None` for a copy.
    pub predicted: Option<Cost>,
    /// The measured times, one for each run.
    pub times: Times,
}

/// Returns the kernels of a run in their order, without measured times.
pub fn steps(compiler: &Compiler, planned: &Planned) -> Vec<KernelStep> {
    let (blocks, costs) = (compiler.describe(planned), planned.step_costs());
    let steps = planned.lowered.program.run.iter().zip(&planned.lowered.steps).zip(costs);
    let step = |((step, &of), predicted): ((&eutectic::engine::backend::Step, &Option<(usize, usize)>), _)| {
        let (kernel, origin) = match of {
            Some((call, kernel)) => {
                let report = &blocks[planned.outlined.calls[call].block][kernel];
                (report.anchor.to_string(), origin_in(planned, call, &report.origin))
            }
            None => ("copy".into(), step.origin.clone()),
        };
        KernelStep { kernel, origin: origin.to_string(), of, predicted, times: Times::default() }
    };
    steps.map(step).collect()
}

/// Measures each kernel in several runs.
///
/// # Errors
/// If the program cannot be run.
pub fn measured(
    compiler: &Compiler,
    planned: &Planned,
    session: &mut Session,
    inputs: &NamedTensors,
    [warmup, iters]: [usize; 2],
) -> Result<Vec<KernelStep>, Fault> {
    let _bar = progress("measuring kernels", None);
    let mut steps = steps(compiler, planned);
    let names = session.program().inputs.iter();
    let inputs: Vec<Tensor> = names.filter_map(|(name, _)| inputs.get(name).cloned()).collect();
    for run in session.profile(&inputs, warmup + iters)?.iter().skip(warmup) {
        steps.iter_mut().zip(run).for_each(|(step, &seconds)| step.times.0.push(seconds));
    }
    Ok(steps)
}

impl KernelStep {
    /// Returns the median of the measured times in seconds.
    pub fn seconds(&self) -> f64 {
        self.times.median()
    }

    /// Returns a rate in units of 10⁹ per second. Returns `None` if the kernel has no work of that kind.
    fn rate(&self, of: impl Fn(&Cost) -> f64) -> Option<f64> {
        self.predicted.as_ref().map(|cost| of(cost) / self.seconds() / 1e9).filter(|rate| *rate > 0.0)
    }

    /// Returns the kernel as JSON. `number` counts from 1.
    pub fn json(&self, number: usize) -> Value {
        let us = |share| self.times.quantile(share) * 1e6;
        json!({
            "number": number, "kernel": self.kernel, "origin": self.origin,
            "predicted_us": self.predicted.map(|p| p.seconds * 1e6), "measured_us": us(0.5),
            "p90_us": us(0.9), "p99_us": us(0.99),
            "bytes": self.predicted.map(|p| p.bytes), "flops": self.predicted.map(|p| p.flops),
            "gbyte_s": self.rate(|c| c.bytes), "gflop_s": self.rate(|c| c.flops),
        })
    }
}

/// Returns a table of the kernels of a run.
pub fn as_table(steps: &[KernelStep]) -> Table {
    let total: f64 = steps.iter().map(KernelStep::seconds).sum();
    let titles = [
        ">#",
        "kernel",
        "where",
        ">predicted",
        ">measured",
        ">ratio",
        "?>p90",
        "?>p99",
        "?>GFLOP/s",
        "?>GB/s",
        ">share",
    ];
    let mut rows = table(&titles);
    let rate = |rate: Option<f64>| rate.map_or("–".into(), |rate| format!("{rate:.1}"));
    for (at, step) in steps.iter().enumerate() {
        rows.add_row([
            (at + 1).to_string(),
            step.kernel.clone(),
            step.origin.clone(),
            step.predicted.map_or("–".into(), |p| seconds(p.seconds)),
            seconds(step.seconds()),
            step.predicted.map_or("–".into(), |p| format!("{:.2}", step.seconds() / p.seconds)),
            seconds(step.times.quantile(0.9)),
            seconds(step.times.quantile(0.99)),
            rate(step.rate(|c| c.flops)),
            rate(step.rate(|c| c.bytes)),
            format!("{:.1} %", 100.0 * step.seconds() / total),
        ]);
    }
    let predicted: f64 = steps.iter().filter_map(|s| s.predicted).map(|p| p.seconds).sum();
    let ratio = format!("{:.2}", total / predicted);
    rows.add_row(["", "all", "", &seconds(predicted), &seconds(total), &ratio]);
    rows
}

/// Returns a hint if predictions are far off. It tells the user to measure costs, unless this has been done.
pub fn hint(backend: &dyn Backend, predicted: f64, measured: f64) -> Option<String> {
    let off = (measured / predicted).max(predicted / measured);
    let provenance = backend.costs().and_then(|sheet| sheet.provenance);
    let is_tuned = provenance.is_some_and(|from| from.by == MeasuredBy::Tune);
    let advice =
        if is_tuned { "" } else { "; `eutectic tune` measures this machine, and commands plan by that from then on" };
    (off.is_finite() && off > OFF).then(|| format!("predictions are off by a factor of {off:.1}{advice}"))
}
