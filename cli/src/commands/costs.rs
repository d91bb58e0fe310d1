//! `costs`: prints the coefficients that price plans, and compares two files of them.

use std::{
    io::{Write, stdout},
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Subcommand;
use eutectic::{
    Backend, Compiler, Dim, Error, Graph, Planned, Setup,
    engine::backend::{
        BackendError, Kernel, Step,
        costs::{Coefficient, CostSheet, print, without_device},
    },
};
use serde_json::json;

use crate::{
    args::{BackendArg, DeviceArgs, Rules, named_programs, print_json},
    fault::{Fault, input},
    files,
    format::Format,
    program::ProgramArgs,
    table::{prose, seconds, table},
    values::shape,
};

const EXAMPLES: &str = "\
Examples:
  # the costs that commands use on this machine, as a file
  eutectic costs
  # the backend's own, whatever was tuned
  eutectic costs --costs default
  # which coefficients two files state otherwise
  eutectic costs diff old.toml new.toml
  # and which plans that changes
  eutectic costs diff default new.toml demo model.onnx

A file states the coefficients that differ from the backend's own; others keep their values. Numbers have units: dram = \"20 GB/s\", \
launch = \"180 ns\". `eutectic tune` measures a machine and writes such a file.";

/// Prints the costs that decide between plans, as a file for --costs
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    device: DeviceArgs,
    /// How to print
    #[arg(help_heading = None, long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Subcommand)]
enum Command {
    Diff(Diff),
}

/// Compares two files of costs: coefficients, and plans of models
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
struct Diff {
    /// A file of costs, or `default` for the backend's own
    #[arg(value_name = "FILE")]
    old: PathBuf,
    /// A second file of costs, or `default`
    #[arg(value_name = "FILE")]
    new: PathBuf,
    /// Models and graph files whose plans are compared
    #[arg(value_name = "MODEL|FILE")]
    models: Vec<PathBuf>,
    /// Binds a symbolic dimension of the models to a number; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = shape)]
    shape: Vec<(String, Dim)>,
    #[command(flatten)]
    on: BackendArg,
    #[command(flatten)]
    rules: Rules,
    /// How to print
    #[arg(help_heading = None, long, value_enum, default_value_t)]
    format: Format,
}

/// The plans of a model with both files of costs.
struct Plans {
    model: String,
    /// The predicted seconds of the old plan by the old and the new costs, and of the new plan by the new costs.
    seconds: [f64; 3],
    /// The number of kernels in the old plan, in the new plan, and in the old plan but not in the new one.
    kernels: [usize; 3],
}

/// Runs the command.
///
/// # Errors
/// If the backend cannot be opened, or a file or a model cannot be read.
pub fn run(args: &Args) -> Result<(), Fault> {
    match &args.command {
        Some(Command::Diff(diff)) => diff.run(),
        None => {
            let backend = args.device.open()?;
            let sheet = sheet(&*backend)?;
            let mut out = stdout().lock();
            if args.format == Format::Json {
                return print_json(&mut out, &as_json(&sheet));
            }
            Ok(write!(out, "{}", print(&sheet))?)
        }
    }
}

fn sheet(backend: &dyn Backend) -> Result<CostSheet, Fault> {
    let none = || {
        input(
            format!("--backend {}: this backend has no file of costs", backend.name()),
            "`eutectic devices` lists the backends",
        )
    };
    backend.costs().ok_or_else(none)
}

fn as_json(sheet: &CostSheet) -> serde_json::Value {
    let coefficients: Vec<_> = sheet
        .coefficients
        .iter()
        .map(|c| json!({ "name": c.path(), "value": c.value, "unit": c.quantity.units().first(), "about": c.doc.trim() }))
        .collect();
    json!({ "device": sheet.provenance, "coefficients": coefficients })
}

impl Diff {
    fn run(&self) -> Result<(), Fault> {
        let [old, new] = [self.open(&self.old)?, self.open(&self.new)?];
        let [of_old, of_new] = [sheet(&*old)?, sheet(&*new)?];
        let lists = of_old.lists.iter().zip(&of_new.lists).filter(|(old, new)| old.2 != new.2);
        let lists: Vec<_> = lists.map(|(old, new)| (format!("{}.{}", old.0, old.1), &old.2, &new.2)).collect();
        let pairs: Vec<_> = of_old.coefficients.iter().zip(&of_new.coefficients).collect();
        let changed: Vec<_> = pairs.iter().filter(|(old, new)| old.value != new.value).collect();
        let programs = named_programs(&self.models, &self.shape, &self.rules.own)?;
        let plans = programs.iter().map(|program| self.plans(&old, &new, program)).collect::<Result<Vec<_>, _>>()?;
        let mut out = stdout().lock();
        if self.format == Format::Json {
            let changed: Vec<_> = changed
                .iter()
                .map(|(old, new)| json!({ "name": old.path(), "old": old.value, "new": new.value }))
                .collect();
            let plans: Vec<_> = plans
                .iter()
                .map(|p| {
                    json!({ "model": p.model, "old_plan_by_old": p.seconds[0], "old_plan_by_new": p.seconds[1],
                            "new_plan_by_new": p.seconds[2], "old_kernels": p.kernels[0], "new_kernels": p.kernels[1],
                            "old_kernels_gone": p.kernels[2] })
                })
                .collect();
            let lists: Vec<_> =
                lists.iter().map(|(name, old, new)| json!({ "name": name, "old": old, "new": new })).collect();
            return print_json(&mut out, &json!({ "coefficients": changed, "lists": lists, "plans": plans }));
        }
        let mut rows = table(&["coefficient", ">old", ">new", ">ratio"]);
        for (old, new) in &changed {
            let text = |c: &Coefficient| c.quantity.print(c.value).replace('"', "");
            rows.add_row([old.path(), text(old), text(new), format!("{:.2}", new.value / old.value)]);
        }
        if changed.is_empty() {
            writeln!(out, "all {} coefficients are equal", pairs.len())?;
        } else {
            writeln!(out, "{rows}\n{} of {} coefficients differ", changed.len(), pairs.len())?;
        }
        for (name, old, new) in &lists {
            writeln!(out, "{}", prose(format!("{name} differs: {} → {}", old.join(", "), new.join(", "))))?;
        }
        if !plans.is_empty() {
            let titles = [
                "model",
                ">old plan, old costs",
                ">old plan, new costs",
                ">new plan, new costs",
                ">kernels",
                ">changed",
            ];
            let mut rows = table(&titles);
            for Plans { model, seconds: [a, b, c], kernels: [old, new, gone] } in &plans {
                let kernels = if old == new { old.to_string() } else { format!("{old} → {new}") };
                rows.add_row([model.clone(), seconds(*a), seconds(*b), seconds(*c), kernels, gone.to_string()]);
            }
            writeln!(out, "\n{rows}")?;
        }
        Ok(())
    }

    /// Opens the backend with the costs of a file, even if the file is for another device.
    fn open(&self, costs: &Path) -> Result<Arc<dyn Backend>, Fault> {
        let wrong = |why: String| input(format!("{}: {why}", costs.display()), "`eutectic costs` prints such a file");
        let text = match costs.as_os_str() == "default" {
            true => None,
            false => Some(files::read_text(costs).map_err(|e| wrong(e.to_string()))?),
        };
        let costs = text.map(|text| without_device(&text)).transpose().map_err(wrong)?;
        self.on.backend.open(&Setup { costs, ..Setup::default() }).map_err(|error| match error {
            Error::Open { why: BackendError::Setup { option: "costs", problem }, .. } => wrong(problem),
            error => error.into(),
        })
    }

    fn plans(
        &self,
        old: &Arc<dyn Backend>,
        new: &Arc<dyn Backend>,
        (program, graph): &(ProgramArgs, Graph),
    ) -> Result<Plans, Fault> {
        let plan = |backend: &Arc<dyn Backend>| -> Result<_, Fault> {
            Ok(Compiler::from_arc(backend.clone(), self.rules.load(&**backend)?).plan(graph)?)
        };
        let (by_old, by_new) = (plan(old)?, plan(new)?);
        let kernels = |planned: &Planned| -> Vec<Kernel> {
            let program = &planned.lowered.program;
            program.run.iter().map(|step| program.kernels[step.kernel].clone()).collect()
        };
        let (of_old, mut of_new) = (kernels(&by_old), kernels(&by_new));
        let constants = by_old.lowered.program.constants();
        let steps = &by_old.lowered.program.run;
        let priced = |(kernel, step): (&Kernel, &Step)| new.cost_among(kernel, &constants[step.kernel]).seconds;
        let repriced = of_old.iter().zip(steps).map(priced).sum();
        let counts = [of_old.len(), of_new.len()];
        let mut gone = 0;
        for kernel in &of_old {
            match of_new.iter().position(|other| other == kernel) {
                Some(at) => drop(of_new.swap_remove(at)),
                None => gone += 1,
            }
        }
        let model = program.model.display().to_string();
        let kernels = [counts[0], counts[1], gone];
        Ok(Plans { model, seconds: [by_old.seconds(), repriced, by_new.seconds()], kernels })
    }
}
