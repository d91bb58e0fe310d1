//! Sweeps: values of threads, batch, or dimensions for which a program is measured.

use std::{fmt, num::NonZeroUsize, str::FromStr};

use eutectic::{Dim, engine::ir::lang::sexp::suggestion};
use serde_json::Value;

use crate::{
    args::CommonArgs,
    fault::{Fault, input},
    program::ProgramArgs,
};

/// A quantity and its values, as in `threads=1,2,4`.
#[derive(Clone, Debug)]
pub struct Sweep {
    name: String,
    values: Vec<usize>,
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Sweep, String> {
        let wrong = || "expected NAME=N,N,…, as in threads=1,2,4".to_string();
        let (name, values) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
        let values: Vec<usize> =
            values.split(',').map(|n| n.trim().parse()).collect::<Result<_, _>>().map_err(|_| wrong())?;
        if name == "threads" && values.contains(&0) {
            return Err("a run takes at least one thread".into());
        }
        Ok(Sweep { name: name.into(), values })
    }
}

/// Checks that a program has the quantities of the sweeps.
///
/// # Errors
/// If it lacks one of them, or if a file cannot be read.
pub fn check(sweeps: &[Sweep], program: &ProgramArgs) -> Result<(), Fault> {
    let of_program = match program.is_built_in() {
        true => vec!["batch".into(), "seq".into()],
        false if sweeps.iter().all(|sweep| sweep.name == "threads") => Vec::new(),
        false => program.symbols()?,
    };
    let known: Vec<&str> = std::iter::once("threads").chain(of_program.iter().map(String::as_str)).collect();
    match sweeps.iter().find(|sweep| !known.contains(&&*sweep.name)) {
        None => Ok(()),
        Some(Sweep { name, .. }) => {
            let problem = format!("--sweep {name}: {} has no such dimension", program.model.display());
            Err(input(problem, suggestion(name, "a sweep can be over", known)))
        }
    }
}

/// A value for the quantity of each sweep.
#[derive(Clone, Debug, Default)]
pub struct Point(Vec<(String, usize)>);

/// Returns all combinations of values. The values of the last sweep vary fastest. Without sweeps, there is one empty
/// point.
pub fn points(sweeps: &[Sweep]) -> Vec<Point> {
    sweeps.iter().fold(vec![Point::default()], |points, sweep| {
        let with = |point: &Point, &value: &usize| Point([&point.0[..], &[(sweep.name.clone(), value)]].concat());
        points.iter().flat_map(|point| sweep.values.iter().map(move |value| with(point, value))).collect()
    })
}

impl Point {
    /// Sets the arguments of the command to the values of the point.
    pub fn set(&self, job: &mut CommonArgs) {
        for (name, value) in &self.0 {
            match name.as_str() {
                "threads" => job.compile.device.threads = NonZeroUsize::new(*value),
                "batch" if job.program.is_built_in() => job.program.batch = Some(*value),
                "seq" if job.program.is_built_in() => job.program.seq = Some(*value),
                _ => {
                    job.program.shape.retain(|(known, _)| known != name);
                    job.program.shape.push((name.clone(), Dim::from(*value)));
                }
            }
        }
    }

    /// Returns the names of the swept quantities: threads, batch or dimensions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the values of the swept quantities, in the order of [`Point::names`].
    pub fn values(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().map(|(_, value)| *value)
    }

    /// Returns the point as a JSON object.
    pub fn json(&self) -> Value {
        self.0.iter().map(|(name, value)| (name.clone(), (*value).into())).collect::<serde_json::Map<_, _>>().into()
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_all_combinations() {
        let sweeps: Vec<Sweep> = ["threads=1,2", "B=8,16"].map(|text| text.parse().unwrap()).into();
        let points: Vec<String> = points(&sweeps).iter().map(ToString::to_string).collect();
        assert_eq!(points, ["threads = 1, B = 8", "threads = 1, B = 16", "threads = 2, B = 8", "threads = 2, B = 16"]);
        assert!("threads".parse::<Sweep>().is_err() && "threads=0".parse::<Sweep>().is_err());
        assert!("B=x".parse::<Sweep>().is_err() && "=1".parse::<Sweep>().is_err());
    }
}
