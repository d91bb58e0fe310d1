//! `ops`: lists the ops of graphs and rules.

use std::io::{Write, stdout};

use eutectic::{
    RuleSet,
    engine::ir::{Attr, Class, Op, lang::sexp::did_you_mean, ops::Default as AttrDefault},
};
use serde_json::json;

use crate::{
    args::{LoadedRules, OwnRules, pattern, print_json},
    fault::{Fault, input},
    format::Format,
    table::{heading, table},
};

const EXAMPLES: &str = "\
Examples:
  # all ops
  eutectic ops
  # some of them
  eutectic ops 'reduce-*'
  # those that rule files of one's own declare
  eutectic ops 'mine/*' --rules mine
  # for programs
  eutectic ops --format json

Reading a signature: F is an element type, B.. any number of dimensions, upper-case names are dimensions; \
`F[B.. M K] F[K N] → F[B.. M N]` takes two tensors and gives one. `legal` is the form that kernels take; \
the rules of the pack `legalize` bring every other form into it.";

/// Lists the ops of graphs and rules
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Shows only ops of this name or glob
    #[arg(default_value = "*")]
    glob: String,
    #[command(flatten)]
    own: OwnRules,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs the command.
///
/// # Errors
/// If no op matches the glob.
pub fn run(args: &Args) -> Result<(), Fault> {
    let wanted = pattern(&args.glob)?;
    let LoadedRules { rules, faults, .. } = args.own.after(RuleSet::default())?;
    Fault::all(faults)?;
    let known = rules.ops();
    let ops: Vec<Op> = known.all().filter(|op| wanted.is_match(op.name())).collect();
    if ops.is_empty() {
        let guess =
            did_you_mean(&args.glob, known.all().map(|op| op.name())).map_or(String::new(), |guess| guess + " ");
        let help = format!("{guess}`eutectic ops` lists all of them");
        return Err(input(format!("no op is named `{}`", args.glob), help));
    }
    let mut out = stdout().lock();
    if args.format == Format::Json {
        return print_json(&mut out, &ops.iter().map(|op| describe(*op)).collect::<Vec<_>>());
    }
    for class in CLASSES {
        let members: Vec<_> = ops.iter().filter(|op| class_of(**op) == *class).collect();
        if members.is_empty() {
            continue;
        }
        writeln!(out, "{}", heading(class))?;
        let mut table = table(&["op", "attributes", "signature", "computes"]);
        for op in members {
            let def = op.def();
            let legal = if def.legal.is_empty() { String::new() } else { format!("\nlegal: {}", def.legal) };
            let commutative = if def.commutative { " (commutative)" } else { "" };
            table.add_row([
                op.name().into(),
                attributes(*op),
                format!("{}{legal}", def.signature),
                format!("{}{commutative}{}", def.doc, made_of(*op)),
            ]);
        }
        writeln!(out, "{table}\n")?;
    }
    Ok(())
}

const CLASSES: &[&str] = &["leaf", "pointwise", "view", "update", "anchor", "composite", "project", "loop"];

fn class_of(op: Op) -> &'static str {
    match op.def().class {
        Class::Leaf(_) => "leaf",
        Class::Pointwise => "pointwise",
        Class::View(_) => "view",
        Class::Update(..) => "update",
        Class::Anchor(_) => "anchor",
        Class::Composite => "composite",
        Class::Project => "project",
        Class::Loop => "loop",
    }
}

/// Returns the definition of a declared op, its place in a file and its ONNX names, a line for each.
pub fn made_of(op: Op) -> String {
    let Some(declared) = op.declared() else { return String::new() };
    let line = if op.def().doc.is_empty() { "" } else { "\n" };
    let onnx: Vec<_> = declared.onnx.iter().map(|(domain, name)| format!("\nonnx: {domain} {name}")).collect();
    format!("{line}is: {}\nin: {}{}", declared.is, declared.place, onnx.concat())
}

/// Returns the attributes of an op with their kinds and defaults, as lines.
pub fn attributes(op: Op) -> String {
    let attrs = op.def().attrs.iter().map(|a| format!(":{} {}{}", a.name, a.kind, default(a.default)));
    attrs.collect::<Vec<_>>().join("\n")
}

fn default(value: AttrDefault) -> String {
    match value {
        AttrDefault::None => String::new(),
        AttrDefault::Int(n) => format!(" = {n}"),
        AttrDefault::Float(x) => format!(" = {x:?}"),
        AttrDefault::Bool(b) => format!(" = {b}"),
        AttrDefault::Word(w) => format!(" = {w}"),
        AttrDefault::Shape(dims) => format!(" = {}", Attr::from(dims)),
    }
}

fn describe(op: Op) -> serde_json::Value {
    let def = op.def();
    let attrs: Vec<_> = def
        .attrs
        .iter()
        .map(|a| json!({ "name": a.name, "kind": a.kind.to_string(), "default": default(a.default).trim_start_matches(" = ") }))
        .collect();
    json!({
        "name": def.name, "class": class_of(op), "doc": def.doc, "attributes": attrs,
        "signature": def.signature, "legal": def.legal, "commutative": def.commutative,
        "declared": op.declared().map(|declared| json!({
            "is": declared.is, "place": declared.place, "text": declared.text, "onnx": declared.onnx,
        })),
    })
}
