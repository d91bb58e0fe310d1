//! Compares settings that other binaries run. In each turn, each setting has a process that plans, warms up and runs a
//! few times.

use std::{env, ffi::OsString, path::PathBuf, process::Command};

use serde_json::Value;

use super::super::args::Args;
use super::{
    measured::Measured,
    setting::{Runner, Setting, without},
};
use crate::{
    fault::{Fault, input},
    timing::{Times, progress},
};

/// The number of turns. In each turn, each setting runs in a new process.
const TURNS: usize = 10;
/// The least number of runs in each process.
const LEAST: usize = 3;

/// Measures all settings in processes. The time of a turn is the median of the runs of its process.
///
/// # Errors
/// If a process fails, or if it prints no times.
pub fn measured(args: &Args, settings: &[Setting]) -> Result<Vec<Measured>, Fault> {
    let runs = args.runs();
    if runs.limit.is_some() {
        let help = "say how often: --iters N";
        return Err(input("cannot take --duration with a binary in --against because its turns are processes", help));
    }
    let iters = runs.iters.div_ceil(TURNS).max(LEAST);
    let bar = progress("measuring", Some(TURNS as u64));
    let mut measured: Vec<Measured> = settings
        .iter()
        .map(|setting| Measured {
            options: setting.options.clone(),
            times: Times::default(),
            kernels: None,
            predicted: None,
            first: None,
        })
        .collect();
    for turn in 0..TURNS {
        let mut order: Vec<usize> = (0..settings.len()).collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let report = report(args, &settings[at], turn, iters)?;
            let one = &mut measured[at];
            one.times.0.push(median(&report, &settings[at])?);
            one.kernels = report["kernels"].as_u64().map(|n| n as usize);
            one.predicted = report["predicted_ms"].as_f64().map(|ms| ms / 1e3);
        }
        bar.inc(1);
    }
    Ok(measured)
}

/// Runs a setting in a process and returns the JSON that it prints.
fn report(args: &Args, setting: &Setting, turn: usize, iters: usize) -> Result<Value, Fault> {
    let binary = match &setting.runner {
        Runner::Binary(path) => path.clone(),
        Runner::This => env::current_exe().map_err(|e| Fault::run(format!("cannot find the running binary: {e}")))?,
    };
    let mut arguments = setting.arguments.clone();
    for flag in ["--seed", "--iters", "--warmup", "--format"] {
        arguments = without(arguments, flag);
    }
    let seed = args.job.program.seed.wrapping_add(turn as u64);
    let more = [
        "--seed",
        &seed.to_string(),
        "--iters",
        &iters.to_string(),
        "--warmup",
        &args.runs().warmup.to_string(),
        "--format",
        "json",
    ];
    let more = more.map(OsString::from);
    let failed = |why: String| {
        let shown = PathBuf::from(&binary);
        input(
            format!("cannot run `{} bench`: {why}", shown.display()),
            "the binary must be a build of eutectic, and take these options",
        )
    };
    let output = Command::new(&binary).arg("bench").args(arguments).args(more).output();
    let output = output.map_err(|e| failed(e.to_string()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if !output.status.success() {
        return Err(failed(text(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| failed(format!("it printed no JSON: {e}")))
}

/// Returns the median of the times in a report, in seconds.
fn median(report: &Value, setting: &Setting) -> Result<f64, Fault> {
    let times: Option<Vec<f64>> =
        report["times_ms"].as_array().map(|all| all.iter().filter_map(Value::as_f64).collect());
    let times = times.filter(|times| !times.is_empty()).ok_or_else(|| {
        let problem = format!("cannot compare with {} because it reports no times", setting.options);
        input(problem, "the binary must be a build of eutectic with `bench --format json`")
    })?;
    Ok(Times(times).median() / 1e3)
}
