//! What each kernel of a program takes, measured, beside what was predicted.

use eutectic::{Compiler, Planned, Session, Tensor, engine::backend::Cost, report::origin_in};
use serde_json::{Value, json};

use crate::{
    fault::Fault,
    table::{Table, faint, prose, seconds, table},
    timing::{Times, progress},
    values::NamedTensors,
};

/// By what factor predictions may be off before the costs should be fitted anew.
const OFF: f64 = 1.5;

/// A kernel of a run, named and numbered as everywhere; a copy has no prediction.
pub struct KernelStep {
    /// The op that it is built around.
    pub kernel: String,
    /// The model part of that op.
    pub origin: String,
    /// The call of a block and the kernel of its plan.
    pub of: Option<(usize, usize)>,
    /// What it is predicted to take, move and compute.
    pub predicted: Option<Cost>,
    /// What it took, in each run.
    pub times: Times,
}

/// The kernels of a run, in order, without times.
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

/// Measures the kernels of a run.
///
/// # Errors
/// When the program cannot be run.
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
    /// The median of what it took.
    pub fn seconds(&self) -> f64 {
        self.times.median()
    }

    /// So many of something in a billion a second; none where it does none.
    fn rate(&self, of: impl Fn(&Cost) -> f64) -> Option<f64> {
        self.predicted.as_ref().map(|cost| of(cost) / self.seconds() / 1e9).filter(|rate| *rate > 0.0)
    }

    /// For programs; `number` is from 1 on.
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

/// The table of a run's kernels.
pub fn as_table(steps: &[KernelStep]) -> Table {
    let total: f64 = steps.iter().map(KernelStep::seconds).sum();
    let titles = [
        ">#",
        "kernel",
        "where",
        ">predicted",
        ">measured",
        "?>ratio",
        "?>p90",
        "?>p99",
        ">GFLOP/s",
        ">GB/s",
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

/// What to do where predictions are off, if they are.
pub fn hint(predicted: f64, measured: f64) -> Option<String> {
    let off = (measured / predicted).max(predicted / measured);
    (off.is_finite() && off > OFF).then(|| {
        let text = format!(
            "predictions are off by a factor of {off:.1}: `eutectic tune --out costs.toml` measures this machine, and --costs costs.toml \
             plans by what it finds"
        );
        faint(prose(text))
    })
}
