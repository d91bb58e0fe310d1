//! `compare`: runs a program on several backends, and compares the results with the program as written and with
//! reference arrays.

use std::{
    io::{Write, stdout},
    path::PathBuf,
};

use eutectic::{
    Compiler, Graph, Listed, Tensor,
    verify::{Checked, Verified, VerifiedResult},
};
use serde_json::{Value, json};

use super::run::verify::culprit;
use crate::{
    args::{CommonArgs, Fp, print_json},
    difference::{LargestError, tolerance},
    fault::{Fault, input},
    files,
    format::Format,
    inputs::InputFiles,
    table::table,
    timing::progress,
    values::{NamedTensors, named_file, read_named},
};

const EXAMPLES: &str = "\
Examples:
  # each result on two backends, against the program as written
  eutectic compare model.onnx --with cpu,vulkan
  # also against arrays that another engine computed
  eutectic compare model.onnx --input x=@x.npy --reference y=@y.npy --tol 1e-4

A result fails if it is farther from the program as written than rounding may move it, or from --reference than --tol allows. The exit code is then 1, \
and the first kernel that differs is named.";

/// Compares results of backends with the program as written and with reference arrays
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    job: CommonArgs,
    #[command(flatten)]
    inputs: InputFiles,
    /// The backends, separated by commas [default: that of --backend]
    #[arg(long, value_name = "NAMES", value_parser = Listed::named, value_delimiter = ',', help_heading = "Results")]
    with: Vec<&'static Listed>,
    /// The expected value of an output; may be repeated
    #[arg(long = "reference", value_name = "NAME=@FILE.npy", value_parser = named_file, help_heading = "Results")]
    references: Vec<(String, PathBuf)>,
    /// The largest allowed difference from a reference, as a share of the reference's largest number
    #[arg(long, value_name = "SHARE", value_parser = tolerance, default_value = "1e-4", help_heading = "Results")]
    tol: f64,
}

/// The results of one backend.
struct Compared {
    backend: &'static str,
    compiler: Compiler,
    verified: Verified,
    /// The difference of each result from its reference, or `None` if it has no reference.
    errors: Vec<Option<LargestError>>,
}

impl Compared {
    /// Returns whether the result with index `at` passes all comparisons.
    fn is_right(&self, at: usize, tol: f64) -> bool {
        let near = self.errors[at].is_none_or(|error| error.relative <= tol);
        near && self.verified.results[at].comparison.is_right()
    }
}

/// Runs the command.
///
/// # Errors
/// If the program cannot be compiled or run on a backend, a file cannot be read, or a result is wrong.
pub fn run(args: &Args) -> Result<(), Fault> {
    let references = args.references.iter().map(|(name, path)| (format!("--reference {name}"), path.as_path()));
    files::read_stdin_once(args.job.reads().chain(args.inputs.reads()).chain(references))?;
    if args.job.program.is_gguf() {
        let problem = format!("cannot compare {} because it is a language model", args.job.program.model.display());
        return Err(input(
            problem,
            "`eutectic run FILE.gguf --prompt TEXT --temperature 0` prints its tokens on a backend",
        ));
    }
    let expected = read_named("--reference", &args.references)?;
    let mut with = args.with.clone();
    if with.is_empty() {
        with.push(args.job.compile.device.on.backend);
    }
    let given = args.inputs.read()?;
    let compared = with.into_iter().map(|backend| args.compared(backend, &given, &expected));
    let compared = compared.collect::<Result<Vec<_>, Fault>>()?;
    let mut out = stdout().lock();
    match args.job.format {
        Format::Json => print_json(&mut out, &compared.iter().map(|of| args.json(of)).collect::<Vec<_>>())?,
        Format::Table => args.print(&mut out, &compared)?,
    }
    drop(out);
    args.verdict(&compared)
}

impl Args {
    fn compared(
        &self,
        backend: &'static Listed,
        given: &NamedTensors,
        expected: &NamedTensors,
    ) -> Result<Compared, Fault> {
        let mut job = self.job.clone();
        job.compile.device.on.backend = backend;
        let compiler = job.compile.compiler_for(&job.program)?;
        job.program.infer(given)?;
        let graph = job.program.graph()?;
        let compiler = compiler.with_ops_of(&graph)?;
        known(&graph, expected)?;
        let (params, _) = job.program.params(&graph)?;
        let inputs = job.program.inputs(&graph, given.clone())?;
        let rules = &job.compile.rules;
        let checked = Checked { precision: rules.precision.into(), exact: rules.fp == Fp::Exact };
        let value = |name: &str| -> Option<Tensor> { inputs.get(name).or_else(|| params.get(name)).cloned() };
        let bar = progress("compiling, and running as written", None);
        let verified = compiler.verify(&graph, value, checked)?;
        drop(bar);
        let error = |result: &VerifiedResult| {
            let reference = expected.get(&result.name).filter(|_| !result.state);
            reference.map(|reference| LargestError::of(&result.name, &result.value, reference)).transpose()
        };
        let errors = verified.results.iter().map(error).collect::<Result<_, _>>()?;
        Ok(Compared { backend: backend.name, compiler, verified, errors })
    }

    fn json(&self, of: &Compared) -> Value {
        let result = |(at, result): (usize, &VerifiedResult)| {
            let comparison = &result.comparison;
            let largest = comparison.largest.as_ref();
            let error = of.errors[at];
            json!({ "name": result.name, "state": result.state, "type": result.value.ty().to_string(),
                    "elements": comparison.elements, "outside": comparison.outside,
                    "difference": largest.map(|d| number(d.apart)), "allowed": largest.map(|d| number(d.allowed)),
                    "reference": error.map(|e| json!({ "absolute": number(e.absolute), "relative": number(e.relative) })),
                    "right": of.is_right(at, self.tol) })
        };
        let results: Vec<Value> = of.verified.results.iter().enumerate().map(result).collect();
        let fault = of.verified.blame.as_ref().map(|_| culprit(&of.compiler, &of.verified));
        json!({ "backend": of.backend, "device": of.compiler.backend().describe(), "results": results, "fault": fault })
    }

    fn print(&self, out: &mut impl Write, compared: &[Compared]) -> Result<(), Fault> {
        let titles = ["backend", "result", "type", ">difference", ">allowed", ">from reference", "verdict"];
        let mut rows = table(&titles);
        for of in compared {
            for (at, result) in of.verified.results.iter().enumerate() {
                let number = |x: Option<f64>| x.map_or("–".into(), |x| format!("{x:.1e}"));
                let largest = result.comparison.largest.as_ref();
                rows.add_row([
                    of.backend.into(),
                    result.name.clone(),
                    result.value.ty().to_string(),
                    number(Some(largest.map_or(0.0, |d| d.apart))),
                    number(largest.map(|d| d.allowed)),
                    number(of.errors[at].map(|error| error.relative)),
                    if of.is_right(at, self.tol) { "right" } else { "wrong" }.to_string(),
                ]);
            }
        }
        Ok(writeln!(out, "{rows}")?)
    }

    /// Reports wrong results as an error.
    ///
    /// # Errors
    /// If a result is wrong.
    fn verdict(&self, compared: &[Compared]) -> Result<(), Fault> {
        let mut problems = Vec::new();
        for of in compared {
            if of.verified.blame.is_some() {
                problems.push(format!("{}: {}", of.backend, culprit(&of.compiler, &of.verified)));
            }
            for (result, error) in of.verified.results.iter().zip(&of.errors) {
                if let Some(error) = error.filter(|error| error.relative > self.tol) {
                    let (name, share, tol) = (&result.name, error.relative, self.tol);
                    problems.push(format!(
                        "{}: {name} differs from its reference by {share:.1e} of the reference's largest number, and --tol is {tol:.1e}",
                        of.backend
                    ));
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Fault::run(problems.join("\n"))) }
    }
}

/// Converts a number to JSON. An infinity or NaN becomes a string, such as `"inf"`.
fn number(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { json!(x.to_string()) }
}

/// Checks that the program has an output for each reference.
fn known(graph: &Graph, expected: &NamedTensors) -> Result<(), Fault> {
    let names: Vec<&str> = graph.outputs().iter().map(|(name, _)| name.as_str()).collect();
    match expected.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => {
            let problem = format!("--reference {name}: the program has no output of that name");
            Err(input(problem, format!("its outputs are {}", names.join(", "))))
        }
        None => Ok(()),
    }
}
