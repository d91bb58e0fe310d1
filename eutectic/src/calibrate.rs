//! Calibrates a backend: measures kernels on the device for a limited time, and fits the rates of the costs to them.

use std::{
    fmt::Write as _,
    num::NonZeroUsize,
    thread,
    time::{Duration, Instant},
};

use eutectic_backend::{
    Setup,
    fit::{Fitted, Freedom, Measured},
};
use eutectic_ir::{Graph, Tensor, Type, lang::Source, text};

use crate::{
    Compiler, Error, Listed,
    noise::{BUSY, ThreadTimes},
};

/// The number of runs of each program. The first run is not counted, because its caches are cold and its pages are new.
const RUNS: usize = 5;
/// The share of the time that the fit may take.
const FIT: f64 = 0.3;
/// The time after the start from which waiting threads indicate other processes. Before this time, threads wait because
/// they have just started.
const STARTED: Duration = Duration::from_millis(150);
/// The minimal number of measured kernels for a fit.
const LEAST: usize = 10;

/// Costs that a calibration has fitted.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The costs, and the predictions for the kernels before and after the fit.
    pub fitted: Fitted,
    /// The kernels that were measured.
    pub measured: Vec<Measured>,
}

/// Measures small programs on one thread and on all threads, and fits the backend's cost rates to the measured kernels
/// ([`Freedom::Rates`]). Starts no measurement after 0.7 of `limit`. Returns `None` if the backend is not calibrated
/// ([`Backend::calibrates`](crate::Backend::calibrates)), or if the time was too short. Also returns `None` if threads
/// waited for a processor more than [`BUSY`] of the time.
///
/// # Errors
/// If the backend cannot be opened, or a kernel cannot be built or run.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use eutectic::{Listed, Setup, calibrate};
///
/// let cpu = Listed::named("cpu")?;
/// let calibration = calibrate(cpu, Duration::from_secs(1))?;
/// let costs = calibration.map(|calibration| calibration.fitted.file);
/// let backend = cpu.open(&Setup { costs, ..Setup::default() })?;
/// assert_eq!(backend.name(), "cpu");
/// # Ok::<(), eutectic::Error>(())
/// ```
pub fn calibrate(listed: &Listed, limit: Duration) -> Result<Option<Calibration>, Error> {
    calibrate_unless(listed, limit, BUSY)
}

/// Calibrates like [`calibrate`]. Returns `None` if threads waited more than the share `busy` of the time.
fn calibrate_unless(listed: &Listed, limit: Duration, busy: f64) -> Result<Option<Calibration>, Error> {
    let start = Instant::now();
    let own = listed.open(&Setup::default())?;
    if !own.calibrates() {
        return Ok(None);
    }
    let all = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut compilers = Vec::new();
    for threads in if all > 1 { vec![1, all] } else { vec![1] } {
        let backend = listed.open(&Setup { threads: NonZeroUsize::new(threads), ..Setup::default() })?;
        let rules = crate::packs(&*backend)?;
        compilers.push((threads, Compiler::from_arc(backend, rules)));
    }
    let (mut measured, before) = (Vec::new(), ThreadTimes::now());
    for program in programs() {
        let graph =
            text::parse(&Source::new("calibration", program)).expect("the text of each calibration program is valid");
        for (threads, compiler) in &compilers {
            if start.elapsed() < limit.mul_f64(1.0 - FIT) {
                measured.extend(measure(compiler, &graph, *threads)?);
            }
        }
        // A busy machine is detected as soon as possible, so that calibration costs little time there.
        if start.elapsed() > STARTED && ThreadTimes::waiting(before).is_some_and(|share| share > busy) {
            return Ok(None);
        }
    }
    if measured.len() < LEAST {
        return Ok(None);
    }
    Ok(own.fit(&measured, Freedom::Rates).map(|fitted| Calibration { fitted, measured }))
}

/// Returns the kernels of a program's plan, each with the time of its fastest run.
fn measure(compiler: &Compiler, graph: &Graph, threads: usize) -> Result<Vec<Measured>, Error> {
    let (planned, mut session) = compiler.compile_planned(graph)?;
    let filled = |ports: &[(String, Type)]| ports.iter().map(|(_, ty)| filled(ty)).collect::<Vec<Tensor>>();
    session.load(&filled(&session.program().params))?;
    let inputs = filled(&session.program().inputs);
    let runs = session.profile(&inputs, RUNS)?;
    let program = &planned.lowered.program;
    let kernels = program.run.iter().enumerate().map(|(n, step)| Measured {
        kernel: program.kernels[step.kernel].clone(),
        threads,
        seconds: runs.iter().skip(1).map(|run| run[n]).fold(f64::INFINITY, f64::min),
    });
    // Copies that the plan avoids take no time.
    Ok(kernels.filter(|kernel| kernel.seconds > 0.0).collect())
}

/// Returns a tensor of varied numbers. Floats are 0 or normal, and integers are valid ids for the tables of
/// [`programs`].
fn filled(ty: &Type) -> Tensor {
    let (dtype, dims) = (ty.dtype().expect("ports are tensors"), ty.dims().expect("dims are bound"));
    let values = (0..dims.iter().product::<usize>()).map(|n| (n % 61) as f64 / 64.0);
    if dtype.is_float() {
        Tensor::from_f64(dtype, &dims, values)
    } else {
        Tensor::from_i64(dtype, &dims, (0..dims.iter().product()).map(|n: usize| (n * 37 % 128) as i64))
    }
}

/// Returns programs whose kernels depend on all rates. The programs that determine the most rates come first, because
/// the time may run out.
fn programs() -> Vec<String> {
    let (mut programs, f32s) = (Vec::new(), |dims: &str| format!("f32[{dims}]"));
    let mut add = |inputs: &[(&str, String)], result: &str| {
        let mut program = format!("(graph \"{result}\"\n");
        for (name, ty) in inputs {
            let (kind, name) = name.strip_prefix('%').map_or(("input", *name), |name| ("param", name));
            let _ = writeln!(program, "  ({kind} {name} {ty})");
        }
        let _ = writeln!(program, "  (output y {result}))");
        programs.push(program);
    };
    // A product, whose time is mostly arithmetic.
    add(&[("x", f32s("256 384")), ("%w", f32s("384 384"))], "(matmul x w)");
    // Passes over working sets of different sizes, for memory and for each level of the caches, and then other ops.
    add(&[("x", f32s("1048576 3")), ("z", f32s("1048576 3"))], "(add x z)");
    add(&[("x", f32s("4096"))], "(exp x)");
    add(&[("x", f32s("65536"))], "(add (mul x x) (abs x))");
    add(&[("x", f32s("1 2048")), ("%w", f32s("2048 1024"))], "(matmul x w)");
    add(&[("x", f32s("131072"))], "(tanh (div x (add (abs x) (const f32[] { 1.5 }))))");
    add(&[("x", f32s("384 768"))], "(softmax x :axis -1)");
    add(&[("x", f32s("384 768"))], "(transpose x :perm [1 0])");
    add(&[("x", f32s("384 768")), ("g", f32s("768")), ("b", f32s("768"))], "(layernorm x g b :eps 1e-5)");
    add(&[("x", f32s("1 96 28 28")), ("%w", f32s("96 1 3 3"))], "(conv x w :before [1 1] :after [1 1] :groups 96)");
    add(&[("x", f32s("1 64 28 28")), ("%w", f32s("64 64 3 3"))], "(conv x w :before [1 1] :after [1 1])");
    let rows = || f32s("12 128 32");
    add(&[("q", rows()), ("k", rows()), ("v", rows())], "(sdpa q k v :scale 0.125 :mask none)");
    add(&[("%t", f32s("128 384")), ("i", "i64[256]".into())], "(abs (gather t i :axis 0))");
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_fitted_and_a_backend_takes_them() {
        for program in programs() {
            text::parse(&Source::new("calibration", program.clone())).unwrap_or_else(|e| panic!("{program}: {e}"));
        }
        let cpu = Listed::named("cpu").unwrap();
        // Tests may run on a busy machine, so any share of waiting is accepted.
        let Calibration { fitted, measured } = calibrate_unless(cpu, Duration::from_secs(300), 1.0).unwrap().unwrap();
        assert!(measured.len() >= LEAST && measured.iter().all(|m| m.seconds.is_finite()));
        cpu.open(&Setup { costs: Some(fitted.file), ..Setup::default() }).unwrap();
        assert_eq!((fitted.before.len(), fitted.after.len()), (measured.len(), measured.len()));
    }

    #[test]
    fn without_time_nothing_is_fitted() {
        assert!(calibrate(Listed::named("cpu").unwrap(), Duration::ZERO).unwrap().is_none());
    }
}
