//! `inspect`: shows the contents of an ONNX or GGUF file, and its unsupported parts.

mod gguf;
mod list;

use std::io::{Write, stdout};

use eutectic::{
    Dim,
    engine::models::{
        gguf::Gguf,
        onnx::{Model, OnnxError, Summary, Unsupported},
    },
};
use serde_json::json;

use self::list::list;
use crate::{
    args::print_json,
    fault::{Fault, input},
    format::Format,
    program::{ProgramArgs, onnx_fault},
    table::{bytes, count, heading, plain, table, thousands},
    values::shape,
};

const EXAMPLES: &str = "\
Examples:
  # opset, inputs, weights, ops, and ops that are not known
  eutectic inspect model.onnx
  # and what is not supported at these shapes
  eutectic inspect model.onnx --shape batch=1 --shape seq=128
  # architecture, sizes and formats of a language model, and what is not supported
  eutectic inspect model.gguf
  # for programs
  eutectic inspect model.onnx --format json

As long as a dimension is open, what its number decides is not listed.";

/// Shows the contents of an ONNX model or of a language model
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The model (*.onnx, *.gguf)
    #[arg(value_name = "FILE")]
    model: std::path::PathBuf,
    /// Sets a dimension to a number, or to a range from which each run chooses (seq=1..512); may be repeated
    #[arg(long, value_name = "NAME=N|A..B", value_parser = shape)]
    shape: Vec<(String, Dim)>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs the command.
///
/// # Errors
/// If the file cannot be read, or it has no dimension of a given name.
pub fn run(args: &Args) -> Result<(), Fault> {
    if Gguf::is_named(&args.model) {
        if !args.shape.is_empty() {
            let problem = "--shape does not apply to GGUF files, because their sizes are fixed";
            return Err(input(problem, "leave it out"));
        }
        return gguf::run(&args.model, args.format);
    }
    if ProgramArgs::random(args.model.clone()).is_built_in() && !args.model.exists() {
        let name = args.model.display();
        let help = format!("`eutectic opt {name} --random --print graph` shows its graph");
        return Err(input(
            format!("cannot inspect {name} because it is a built-in model; name an .onnx or .gguf file"),
            help,
        ));
    }
    let model = Model::open(&args.model).map_err(onnx_fault)?;
    let summary = model.summary();
    let shapes = args.shape.iter().cloned().collect();
    let (unsupported, unusable) = match model.import(&shapes) {
        Ok(_) => (Vec::new(), Vec::new()),
        Err(OnnxError::Unsupported { problems, .. }) => (problems, Vec::new()),
        Err(OnnxError::Unbound { .. }) => (model.refused(&shapes), model.unusable()),
        Err(OnnxError::Tensors { problems, .. }) => (model.unknown_ops(), problems),
        Err(error) => return Err(onnx_fault(error)),
    };
    let mut out = stdout().lock();
    if args.format == Format::Json {
        return print_json(&mut out, &as_json(&model, &summary, &unsupported, &unusable));
    }
    print(&mut out, args, &model, &summary)?;
    list(&mut out, "tensors that cannot be used", &unusable)?;
    list(&mut out, "not supported", &Unsupported::grouped(&unsupported))
}

fn print(out: &mut dyn Write, args: &Args, model: &Model, summary: &Summary) -> Result<(), Fault> {
    let Summary { opset, other_opsets, ir_version, producer, inputs, outputs, tensors, elements, bytes: size, ops } =
        summary;
    let others = other_opsets.iter().map(|(domain, version)| format!("{domain} {version}"));
    let opsets: Vec<String> = opset.iter().map(i64::to_string).chain(others).collect();
    let ports = |ports: &[(String, String)]| {
        plain(&ports.iter().map(|(n, t)| format!("{n} {t}")).collect::<Vec<_>>().join(", "))
    };
    writeln!(out, "{}", heading(args.model.display()))?;
    writeln!(out, "opset       {} (IR version {ir_version})", plain(&opsets.join(", ")))?;
    writeln!(out, "producer    {}", if producer.is_empty() { "not named".into() } else { plain(producer) })?;
    writeln!(out, "inputs      {}", ports(inputs))?;
    writeln!(out, "outputs     {}", ports(outputs))?;
    writeln!(out, "open        {}", plain(&model.symbols().join(", ")))?;
    writeln!(
        out,
        "weights     {} tensors, {} numbers, {}",
        thousands(*tensors),
        count(*elements as f64),
        bytes(*size as f64)
    )?;
    let mut histogram = table(&["op", ">nodes"]);
    for (op, times) in ops {
        histogram.add_row([plain(op), thousands(*times)]);
    }
    Ok(writeln!(out, "{histogram}")?)
}

fn as_json(model: &Model, summary: &Summary, unsupported: &[Unsupported], unusable: &[String]) -> serde_json::Value {
    let ports = |ports: &[(String, String)]| -> Vec<_> {
        ports.iter().map(|(name, ty)| json!({ "name": name, "type": ty })).collect()
    };
    let problem = |p: &Unsupported| json!({ "op": p.op, "opset": p.opset, "node": p.node, "why": p.why });
    json!({
        "opset": summary.opset,
        "other_opsets": summary.other_opsets.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "ir_version": summary.ir_version,
        "producer": summary.producer,
        "inputs": ports(&summary.inputs),
        "outputs": ports(&summary.outputs),
        "open": model.symbols(),
        "tensors": summary.tensors,
        "elements": summary.elements,
        "bytes": summary.bytes,
        "ops": summary.ops.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "unusable": unusable,
        "unsupported": unsupported.iter().map(problem).collect::<Vec<_>>(),
    })
}
