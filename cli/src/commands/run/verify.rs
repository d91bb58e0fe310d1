//! `run --verify`: compares the results of the chosen plan with those of the program as written, on the same inputs. If
//! they differ, it names the rules or the kernel at fault.

use std::io::{Write, stdout};

use eutectic::{
    Compiler, Graph, Tensor,
    report::{Numbers, applied, origin_in},
    verify::{BlamedKernel, Cause, Checked, Comparison, Difference, Element, Judge, Verified, VerifiedResult},
};
use serde_json::{Value, json};

use super::{
    args::Args,
    results::{is_to_stdout, number, output_files},
};
use crate::{
    args::{Fp, print_json},
    fault::{Fault, input},
    format::Format,
    npy,
    table::{heading, lines, several, table, thousands},
    timing::progress,
    values::NamedTensors,
};

/// Rejects `--verify` together with texts, because it compares the results of a graph.
///
/// # Errors
/// If the option is given.
pub fn takes_no_texts(args: &Args) -> Result<(), Fault> {
    if !args.verify {
        return Ok(());
    }
    let help = "leave out --text, and give token ids as --input ids=@FILE.npy, or --random";
    Err(input("--verify does not apply to --text, because it compares the results of a graph", help))
}

/// Compares the results of the plan with those of the program as written. Writes the requested outputs, and prints the
/// comparison.
///
/// # Errors
/// If the program cannot be compiled or run, or if a result differs by more than is allowed.
pub fn run(
    args: &Args,
    compiler: &Compiler,
    graph: &Graph,
    (params, source): &(NamedTensors, String),
    inputs: &NamedTensors,
) -> Result<(), Fault> {
    let files = output_files(args, graph.outputs())?;
    let bar = progress("compiling, and running both", None);
    let rules = &args.job.compile.rules;
    let checked = Checked { precision: rules.precision.into(), exact: rules.fp == Fp::Exact };
    let value = |name: &str| -> Option<Tensor> { inputs.get(name).or_else(|| params.get(name)).cloned() };
    let verified = compiler.verify(graph, value, checked)?;
    drop(bar);
    for (at, path) in files {
        npy::write(&path, &verified.results[at].value)?;
    }
    let found = Found { compiler, verified: &verified };
    let mut out = stdout().lock();
    match args.job.format {
        // If an array is written to stdout, nothing else is.
        _ if args.outputs.iter().any(|path| is_to_stdout(path)) => {}
        Format::Json => print_json(&mut out, &found.json(source))?,
        Format::Table => found.print(args, source, &mut out)?,
    }
    drop(out);
    if verified.is_right() {
        return Ok(());
    }
    let model = args.job.program.model.display();
    Err(Fault::run(format!("{model} differs from the program as written: {}", found.culprit())))
}

/// Returns the rules or the kernel at fault, in a few words.
pub fn culprit(compiler: &Compiler, verified: &Verified) -> String {
    Found { compiler, verified }.culprit()
}

/// A comparison to print.
struct Found<'a> {
    compiler: &'a Compiler,
    verified: &'a Verified,
}

impl Found<'_> {
    /// Returns the rules or the kernel at fault, in a few words.
    fn culprit(&self) -> String {
        let Some(blame) = &self.verified.blame else { return "neither rules nor kernels were searched".into() };
        let kernel = blame.kernel.as_ref().map(|kernel| self.name(kernel));
        let kernel = kernel.unwrap_or_else(|| "no stored value of the program as written".into());
        match &blame.cause {
            Cause::Rules(sets) => {
                let sets: Vec<_> = sets.iter().map(|set| set.join(" with ")).collect();
                let verb = if sets.len() == 1 { "is" } else { "are" };
                format!("{} {verb} at fault; {kernel} differs first", sets.join(" and "))
            }
            Cause::Kernels => format!("no rule is at fault; {kernel} differs first"),
            Cause::Unknown(why) => format!("{why}; {kernel} differs first"),
        }
    }

    /// Returns the number and the name of a kernel, in the form of `opt` and `explain`.
    fn name(&self, kernel: &BlamedKernel) -> String {
        let planned = &self.verified.planned;
        let block = planned.outlined.calls[kernel.call].block;
        let report = &self.compiler.describe(planned)[block][kernel.kernel];
        let origin = origin_in(planned, kernel.call, &report.origin);
        format!("kernel {}: {} in {origin}", self.number(kernel), report.anchor)
    }

    fn number(&self, kernel: &BlamedKernel) -> String {
        Numbers::of(&self.verified.planned).get(kernel.call, kernel.kernel).to_string()
    }

    /// Returns the rules that led to a kernel, each once, in the order of their first application.
    fn rules_of(&self, kernel: &BlamedKernel) -> Vec<String> {
        let planned = &self.verified.planned;
        let mut names: Vec<String> = Vec::new();
        for step in applied(planned, planned.outlined.calls[kernel.call].block, kernel.kernel) {
            if !names.contains(&step.rule.to_string()) {
                names.push(step.rule.to_string());
            }
        }
        names
    }

    fn print(&self, args: &Args, source: &str, out: &mut dyn Write) -> Result<(), Fault> {
        writeln!(out, "parameters  {source}")?;
        let judge = match self.verified.judge {
            Judge::Bound => "interpreted op by op, with propagated error bounds",
            Judge::Disturbed => {
                "computed op by op on the processor, and a second time on slightly changed inputs and parameters"
            }
        };
        writeln!(out, "{}", lines(format!("reference   {judge}")))?;
        let titles = ["result", "type", ">elements", ">difference", ">allowed", "at", ">plan", ">as written", "state"];
        let mut rows = table(&titles);
        for result in &self.verified.results {
            rows.add_row(row(result));
        }
        writeln!(out, "{rows}")?;
        let Some(blame) = &self.verified.blame else {
            let open: usize = self.verified.results.iter().map(|result| result.comparison.open).sum();
            let open = match open {
                0 => String::new(),
                n => format!("; rounding decides about {}, which cannot be judged", several(n, "element")),
            };
            return Ok(writeln!(out, "{}", lines(format!("all results agree up to rounding{open}")))?);
        };
        writeln!(out, "\n{}", heading("at fault"))?;
        match &blame.cause {
            Cause::Rules(sets) => {
                for set in sets {
                    let doc = |name: &String| self.compiler.rules().get(name).map(|rule| rule.doc.as_str());
                    let doc = set.first().and_then(doc).and_then(|doc| doc.lines().next()).unwrap_or("");
                    let which = if set.len() == 1 { "rule" } else { "rules, together," };
                    writeln!(out, "{}", lines(format!("  {which} {}: {doc}", set.join(", "))))?;
                }
                writeln!(out, "  without {} the result is right", if sets.len() == 1 { "it" } else { "all of these" })?;
            }
            Cause::Kernels => {
                let why = "  no rule: the program that rules made of it, computed op by op, gives the right result";
                writeln!(out, "{}", lines(why))?;
            }
            Cause::Unknown(why) => writeln!(out, "{}", lines(format!("  unknown: {why}")))?,
        }
        let Some(kernel) = &blame.kernel else {
            let none = "  no kernel stores a value of the program as written that differs: the difference arises after the last of them";
            return Ok(writeln!(out, "{}", lines(none))?);
        };
        let Difference { at, got, want, apart, allowed } = &kernel.difference;
        let time = if kernel.time > 0 { format!(", when it runs for time {}", kernel.time + 1) } else { String::new() };
        writeln!(out, "{}", lines(format!("  first to differ: {}{time}", self.name(kernel))))?;
        let stored = format!(
            "  it stores {} of {} {}: {} at {}, as written {}; difference {apart:.2e}, allowed {allowed:.2e}",
            kernel.op,
            kernel.origin,
            kernel.ty,
            shown(*got),
            place(at),
            shown(*want)
        );
        writeln!(out, "{}", lines(stored))?;
        let rules = self.rules_of(kernel);
        let by = if rules.is_empty() { "no rule: the program says so itself".into() } else { rules.join(", ") };
        writeln!(out, "{}", lines(format!("  rules that led to it: {by}")))?;
        let model = args.job.program.model.display();
        Ok(writeln!(out, "  `eutectic explain {model} {}` explains it", self.number(kernel))?)
    }

    fn json(&self, source: &str) -> Value {
        let results = self.verified.results.iter().map(|VerifiedResult { name, state, value, comparison }| {
            let Comparison { elements, bounded, open, outside, largest } = comparison;
            json!({
                "name": name, "state": state, "type": value.ty().to_string(), "elements": elements, "bounded": bounded,
                "open": open, "outside": outside, "right": comparison.is_right(),
                "largest": largest.as_ref().map(difference_json),
            })
        });
        let reference = match self.verified.judge {
            Judge::Bound => "bound",
            Judge::Disturbed => "disturbed",
        };
        let blame = self.verified.blame.as_ref().map(|blame| {
            let (cause, sets, why) = match &blame.cause {
                Cause::Rules(sets) => ("rules", sets.clone(), None),
                Cause::Kernels => ("kernels", Vec::new(), None),
                Cause::Unknown(why) => ("unknown", Vec::new(), Some(why)),
            };
            let kernel = blame.kernel.as_ref().map(|kernel| {
                json!({
                    "kernel": self.number(kernel), "name": self.name(kernel), "time": kernel.time, "op": kernel.op,
                    "origin": kernel.origin.path(), "type": kernel.ty.to_string(), "rules": self.rules_of(kernel),
                    "difference": difference_json(&kernel.difference),
                })
            });
            json!({ "cause": cause, "rules": sets, "why": why, "kernel": kernel })
        });
        json!({
            "parameters": source, "reference": reference, "right": self.verified.is_right(),
            "results": results.collect::<Vec<_>>(), "blame": blame,
        })
    }
}

fn row(result: &VerifiedResult) -> [String; 9] {
    let Comparison { elements, open, outside, largest, .. } = &result.comparison;
    let [apart, allowed, at, got, want] = match largest {
        None => ["0".into(), "–".into(), "–".into(), "–".into(), "–".into()],
        Some(Difference { at, got, want, apart, allowed }) => {
            [format!("{apart:.2e}"), format!("{allowed:.2e}"), place(at), shown(*got), shown(*want)]
        }
    };
    let state = match (*outside, *open) {
        (0, 0) => "right".into(),
        (0, open) if open == *elements => "cannot be judged".into(),
        (0, open) => format!("right, {} open", thousands(open)),
        (outside, _) => format!("{} wrong", thousands(outside)),
    };
    let name = if result.state { format!("state {}", result.name) } else { result.name.clone() };
    [name, result.value.ty().to_string(), thousands(*elements), apart, allowed, at, got, want, state]
}

/// Formats an element with the fewest digits that distinguish it in `f32`.
fn shown(element: Element) -> String {
    match element {
        Element::Real(x) if x.is_finite() && x.abs() < f64::from(f32::MAX) => format!("{:?}", x as f32),
        other => other.to_string(),
    }
}

/// Formats an index as `[0 3]`.
fn place(at: &[usize]) -> String {
    format!("[{}]", at.iter().map(usize::to_string).collect::<Vec<_>>().join(" "))
}

fn difference_json(of: &Difference) -> Value {
    let element = |element: Element| match element {
        Element::Real(x) => number(x, json!(x)),
        Element::Whole(n) => json!(n),
    };
    let real = |x: f64| number(x, json!(x));
    json!({
        "at": of.at, "plan": element(of.got), "as_written": element(of.want), "apart": real(of.apart), "allowed": real(of.allowed),
    })
}
