//! `bench --against`: runs settings of one model in turn, and compares their times by a ratio with a confidence
//! interval.

mod measured;
mod processes;
mod ratio;
mod setting;

use std::{
    io::{Write, stdout},
    time::Instant,
};

use eutectic::{
    DeviceBuffer, Memory, Session, Tensor,
    noise::{self, ThreadTimes},
};
use serde_json::{Value, json};

use self::{
    measured::Measured,
    ratio::Ratio,
    setting::{Runner, Setting},
};
use super::{args::Args, prepared::Prepared};
use crate::{
    args::print_json,
    difference::LargestError,
    fault::Fault,
    format::Format,
    table::{faint, heading, prose, seconds, table, thousands},
    timing::{Times, progress},
    values::NamedTensors,
};

/// The largest number of different sets of inputs. In each turn, all settings run on the next set.
const MOST_SETS: u64 = 8;
/// The limit on the bytes of all sets of inputs.
const MOST_BYTES: usize = 256 << 20;

/// Runs the command.
///
/// # Errors
/// If the options of a setting are wrong, or it cannot be compiled or run.
pub fn run(args: &Args) -> Result<(), Fault> {
    let settings = setting::settings(args)?;
    let in_processes = settings.iter().any(|setting| matches!(setting.runner, Runner::Binary(_)));
    let start = ThreadTimes::now();
    let measured = match in_processes {
        true => processes::measured(args, &settings)?,
        false => in_turns(args, &settings)?,
    };
    // The other processes do not report how long their threads waited for a processor.
    let waiting = if in_processes { None } else { ThreadTimes::waiting(start) };
    let (base, others) = measured.split_first().expect("the command is the first setting");
    let compared: Vec<(&Measured, Option<Ratio>)> =
        others.iter().map(|other| (other, Ratio::of(&other.times.0, &base.times.0))).collect();
    let mut out = stdout().lock();
    match args.job.format {
        Format::Json => print_json(&mut out, &to_json(args, &measured, base, &compared, waiting)),
        Format::Table => print(args, &mut out, &measured, base, &compared, waiting),
    }
}

/// A setting that is compiled and loaded.
struct Side {
    prepared: Prepared,
    /// Sets of input values, in the order of the program's inputs.
    sets: Vec<Vec<Tensor>>,
    outputs: Vec<Box<dyn DeviceBuffer>>,
    first: Option<Tensor>,
}

impl Side {
    fn of(setting: &Setting) -> Result<Side, Fault> {
        let mut prepared = Prepared::of(&setting.args, setting.args.job.clone())?;
        let bytes: usize = prepared.inputs.values().map(|tensor| tensor.bytes().len()).sum();
        let count = MOST_SETS.min((MOST_BYTES / bytes.max(1)) as u64).max(1);
        let sets = (0..count).map(|n| prepared.inputs_of(n)).collect::<Result<Vec<NamedTensors>, Fault>>()?;
        let results = prepared.session.run_named(|name| sets[0].get(name).cloned())?;
        let sizes: Vec<usize> = results.iter().map(|tensor| tensor.bytes().len()).collect();
        let host = |bytes: usize| prepared.session.buffer(bytes, Memory::Host);
        let outputs = sizes.into_iter().map(host).collect::<Result<_, _>>()?;
        let ordered = |set: NamedTensors| -> Vec<Tensor> {
            prepared.session.program().inputs.iter().filter_map(|(name, _)| set.get(name).cloned()).collect()
        };
        let sets = sets.into_iter().map(ordered).collect();
        Ok(Side { first: results.into_iter().next(), prepared, sets, outputs })
    }

    /// Runs once on the inputs of a turn. Returns the seconds that the run took.
    fn turn(&mut self, turn: usize) -> Result<f64, Fault> {
        let Side { prepared, sets, outputs, .. } = self;
        let session: &mut Session = &mut prepared.session;
        let bytes: Vec<&[u8]> = sets[turn % sets.len()].iter().map(Tensor::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().filter_map(|buffer| buffer.host_mut()).collect();
        let start = Instant::now();
        session.run_into(&bytes, &mut outputs)?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Measures all settings in this process. In each turn, each setting runs once on the same inputs. The inputs change
/// from turn to turn, and the order of the settings is reversed, so that neither caches nor drift favour one setting.
fn in_turns(args: &Args, settings: &[Setting]) -> Result<Vec<Measured>, Fault> {
    let mut sides = settings.iter().map(Side::of).collect::<Result<Vec<Side>, Fault>>()?;
    let runs = args.runs();
    let bar = progress("measuring", runs.shown());
    let warm = sides.iter().map(|side| side.prepared.compiler.backend().warm_up()).max().unwrap_or_default();
    let cold = Instant::now();
    let mut turn = 0;
    while turn < runs.warmup || runs.warmup > 0 && cold.elapsed() < warm {
        sides.iter_mut().try_for_each(|side| side.turn(turn).map(drop))?;
        turn += 1;
    }
    let begin = Instant::now();
    let mut times = vec![Times::default(); sides.len()];
    for counted in 0..runs.iters {
        if runs.limit.is_some_and(|limit| counted >= 3 && begin.elapsed() > limit) {
            break;
        }
        let mut order: Vec<usize> = (0..sides.len()).collect();
        if counted % 2 == 1 {
            order.reverse();
        }
        for side in order {
            times[side].0.push(sides[side].turn(counted)?);
        }
        bar.inc(1);
    }
    let measured = sides.into_iter().zip(times).zip(settings).map(|((side, times), setting)| Measured {
        options: setting.options.clone(),
        times,
        kernels: Some(side.prepared.planned.lowered.program.run.len()),
        predicted: Some(side.prepared.planned.seconds()),
        first: side.first,
    });
    Ok(measured.collect())
}

fn print(
    args: &Args,
    out: &mut impl Write,
    measured: &[Measured],
    base: &Measured,
    compared: &[(&Measured, Option<Ratio>)],
    waiting: Option<f64>,
) -> Result<(), Fault> {
    writeln!(out, "{}", heading(args.job.program.model.display()))?;
    let mut rows = table(&["setting", ">kernels", ">turns", ">predicted", ">p50", ">p90", "?>fastest"]);
    for one in measured {
        let name = if one.options.is_empty() { "as given" } else { &one.options };
        let time = |share| seconds(one.times.quantile(share));
        rows.add_row([
            name.to_string(),
            one.kernels.map_or("–".into(), thousands),
            thousands(one.times.0.len()),
            one.predicted.map_or("–".into(), seconds),
            time(0.5),
            time(0.9),
            time(0.0),
        ]);
    }
    writeln!(out, "{rows}")?;
    for (other, ratio) in compared {
        let said = match ratio {
            Some(ratio) => ratio.to_string(),
            None => format!("{} turns are too few for an interval; run 6 or more", other.times.0.len()),
        };
        writeln!(out, "{}", prose(format!("{}: {said}", other.options)))?;
        if let Some(LargestError { relative, .. }) = other.difference(base) {
            let text = format!("  its first output differs by at most {relative:.1e} of the largest number");
            writeln!(out, "{}", faint(prose(text)))?;
        }
    }
    if let Some(remark) = noise::remark(waiting) {
        writeln!(out, "{}", faint(prose(format!("{remark}; repeat it when the machine is idle"))))?;
    }
    Ok(())
}

fn to_json(
    args: &Args,
    measured: &[Measured],
    base: &Measured,
    compared: &[(&Measured, Option<Ratio>)],
    waiting: Option<f64>,
) -> Value {
    let setting = |one: &Measured| {
        let times: Vec<f64> = one.times.0.iter().map(|s| s * 1e3).collect();
        json!({
            "options": one.options, "kernels": one.kernels, "predicted_ms": one.predicted.map(|s| s * 1e3),
            "times_ms": times, "p50_ms": one.times.median() * 1e3,
        })
    };
    let against = |(other, ratio): &(&Measured, Option<Ratio>)| {
        json!({
            "options": other.options, "ratio": ratio.as_ref().map(|r| r.median), "interval": ratio.as_ref().map(|r| [r.least, r.most]),
            "confidence": ratio.as_ref().map(|r| r.confidence), "turns": other.times.0.len(),
            "largest_difference": other.difference(base).map(|d| d.relative),
        })
    };
    json!({
        "model": args.job.program.model.to_string_lossy(),
        "settings": measured.iter().map(setting).collect::<Vec<_>>(),
        "against": compared.iter().map(against).collect::<Vec<_>>(),
        "waiting": waiting,
    })
}
