//! The results of `run`: writes them to files, and prints them as tables or JSON.

use std::{
    io::{Write, stdout},
    path::{Path, PathBuf},
};

use eutectic::{DType, Tensor, engine::ir::lang::sexp::suggestion};
use serde_json::{Value, json};

use super::args::Args;
use crate::{
    args::print_json,
    fault::{Fault, input},
    format::Format,
    output,
    table::{faint, table, thousands},
    values::NamedTensors,
};

/// The number of elements of a result that a table shows.
const SHOWN: usize = 6;

/// The largest number of elements that are printed as JSON. Each element takes tens of bytes of memory.
const MOST_IN_JSON: usize = 1 << 26;

pub fn print_results(
    args: &Args,
    results: &[(&str, &Tensor)],
    inputs: &NamedTensors,
    source: &str,
) -> Result<(), Fault> {
    // If an array is written to stdout, nothing else is.
    if args.outputs.iter().chain(&args.results).any(|path| is_to_stdout(path)) {
        return Ok(());
    }
    let mut out = stdout().lock();
    if args.job.format == Format::Json {
        if let Some((name, tensor)) = results.iter().find(|(_, tensor)| tensor.count() > MOST_IN_JSON) {
            let problem = format!(
                "cannot print output `{name}` as JSON because it has {} elements; at most {MOST_IN_JSON} are supported",
                tensor.count()
            );
            return Err(input(problem, "--output FILE.npy writes them, and --format table shows some"));
        }
        let values = |t: &Tensor| match t.dtype() {
            DType::F64 => t.to_f64().into_iter().map(|x| number(x, json!(x))).collect(),
            float if float.is_float() => t.to_f64().into_iter().map(|x| number(x, json!(shortest(x as f32)))).collect(),
            _ => json!(t.to_i64()),
        };
        let outputs: Vec<_> = results
            .iter()
            .map(
                |(name, t)| json!({ "name": name, "type": t.ty().to_string(), "shape": t.dims(), "values": values(t) }),
            )
            .collect();
        return print_json(&mut out, &json!({ "parameters": source, "outputs": outputs }));
    }
    let inputs: Vec<_> = inputs.iter().map(|(name, tensor)| format!("{name} {}", tensor.ty())).collect();
    writeln!(out, "inputs      {}", inputs.join(", "))?;
    writeln!(out, "parameters  {source}")?;
    let mut table = table(&["output", "type", "values", ">smallest", ">largest"]);
    for (name, tensor) in results {
        let [values, low, high] = match tensor.dtype().is_float() {
            true => overview(elements(tensor, Tensor::to_f64), tensor.count(), decimal),
            false => overview(elements(tensor, Tensor::to_i64), tensor.count(), |n| n.to_string()),
        };
        table.add_row([name.to_string(), tensor.ty().to_string(), values, low, high]);
    }
    Ok(writeln!(out, "{table}")?)
}

/// Returns the elements of a tensor. Converts a part of them at a time, so that no copy of the whole tensor is needed.
fn elements<T>(tensor: &Tensor, of: impl Fn(&Tensor) -> Vec<T>) -> impl Iterator<Item = T> {
    /// The number of elements that are converted at a time.
    const PART: usize = 1 << 16;
    let (dtype, size) = (tensor.dtype(), tensor.dtype().size());
    tensor.bytes().chunks(size * PART).flat_map(move |part| {
        let part =
            Tensor::new(dtype, &[part.len() / size], part.to_vec()).expect("each part consists of whole elements");
        of(&part)
    })
}

/// Returns the first numbers, the minimum and the maximum as text. Without numbers, the extremes are dashes. With a
/// NaN, both are NaN.
pub fn overview<T: PartialOrd + Copy>(
    numbers: impl Iterator<Item = T>,
    count: usize,
    show: fn(T) -> String,
) -> [String; 3] {
    let (mut first, mut ends): (Vec<String>, Option<(T, T)>) = (Vec::new(), None);
    let is_number = |x: T| x.partial_cmp(&x).is_some();
    for x in numbers {
        if first.len() < SHOWN {
            first.push(format!("{:>8}", show(x)));
        }
        ends = Some(match ends {
            Some((low, high)) if is_number(low) && is_number(x) => {
                (if x < low { x } else { low }, if x > high { x } else { high })
            }
            Some((low, _)) if !is_number(low) => (low, low),
            _ => (x, x),
        });
    }
    let rest = if count > SHOWN { faint(format!(" … {} in all", thousands(count))) } else { String::new() };
    let [low, high] = ends.map_or(["–".into(), "–".into()], |(low, high)| [show(low), show(high)]);
    [first.join(" ") + &rest, low, high]
}

/// Formats a number with five decimals if it is of ordinary size, and otherwise with an exponent.
pub fn decimal(x: f64) -> String {
    match x.abs() {
        size if size == 0.0 || (1e-4..1e7).contains(&size) || !x.is_finite() => format!("{x:.5}"),
        _ => format!("{x:.4e}"),
    }
}

/// Returns a number in the fewest digits that distinguish it from its neighbours in `f32`.
pub fn shortest(x: f32) -> f64 {
    x.to_string().parse().unwrap_or_else(|_| x.into())
}

/// Converts a number to JSON. NaN and infinities become the strings `"NaN"`, `"Infinity"` and `"-Infinity"`, as in
/// Protocol Buffers.
pub fn number(x: f64, finite: Value) -> Value {
    match x {
        _ if x.is_finite() => finite,
        _ if x.is_nan() => json!("NaN"),
        _ if x > 0.0 => json!("Infinity"),
        _ => json!("-Infinity"),
    }
}

/// Returns whether an output goes to stdout: its path is `-` or `NAME=-`.
pub fn is_to_stdout(path: &Path) -> bool {
    output::is_standard(path) || path.to_str().is_some_and(|text| text.ends_with("=-"))
}

/// Returns the index of each requested output, and its file.
pub fn output_files(args: &Args, outputs: &[(String, eutectic::NodeId)]) -> Result<Vec<(usize, PathBuf)>, Fault> {
    let file = |path: &PathBuf| {
        let named = path.to_str().and_then(|text| text.split_once('='));
        match named.map(|(name, file)| (outputs.iter().position(|(n, _)| n == name), file)) {
            Some((Some(at), file)) => Ok((at, file.into())),
            None if !outputs.is_empty() => Ok((0, path.clone())),
            _ => {
                let problem = format!("--output {}: the program has no output of that name", path.display());
                let name = named.map_or("", |(name, _)| name);
                Err(input(problem, suggestion(name, "the outputs are", outputs.iter().map(|(name, _)| name.as_str()))))
            }
        }
    };
    args.outputs.iter().map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_what_they_are() {
        assert_eq!(
            [0.5, 0.0, -1e-5, 9e29, 1234.5].map(decimal),
            ["0.50000", "0.00000", "-1.0000e-5", "9.0000e29", "1234.50000"]
        );
        let show = |numbers: &[f64]| overview(numbers.iter().copied(), numbers.len(), decimal);
        assert_eq!(show(&[2.0, -1.0])[1..], ["-1.00000", "2.00000"]);
        for nan in [[f64::NAN, 1.0, 2.0], [1.0, f64::NAN, 2.0], [1.0, 2.0, f64::NAN]] {
            assert_eq!(show(&nan)[1..], ["NaN", "NaN"]);
        }
        assert_eq!(show(&[]), ["", "–", "–"]);
        let whole = overview([i64::MAX, 3].into_iter(), 2, |n| n.to_string());
        assert_eq!(whole, ["9223372036854775807        3", "3", "9223372036854775807"]);
        assert_eq!(json!(shortest(0.1)).to_string(), "0.1");
    }
}
