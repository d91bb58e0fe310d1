//! Arguments that several commands share: options of compilation, devices, rules and output.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::Write,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{Args, ValueEnum};
use eutectic::{
    BACKENDS, Backend, Compiler, Dim, Error, Graph, Listed, Options, RuleSet, Setup, Strategy,
    engine::{
        backend::BackendError,
        ir::lang::Errors,
        rewrites::{self, glob::Glob},
    },
    packs, tuned_costs,
};
use serde::Serialize;

use crate::{
    calibration,
    fault::{Fault, input},
    files,
    format::Format,
    program::ProgramArgs,
    values::whole,
};

/// Prints a JSON value and ends the line.
///
/// # Errors
/// If stdout cannot be written.
pub fn print_json(out: &mut dyn Write, value: &impl Serialize) -> Result<(), Fault> {
    serde_json::to_writer(&mut *out, value).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}

/// The strategy of the plan search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StrategyName {
    /// A separate kernel for each op
    Unfused,
    /// One pass, which decides for each value whether it is stored
    Greedy,
    /// The greedy plan, changed as long as changes make it faster
    Local,
    /// The fastest of all plans; only for programs with few ops
    Exact,
}

impl From<StrategyName> for Strategy {
    fn from(name: StrategyName) -> Strategy {
        match name {
            StrategyName::Unfused => Strategy::Unfused,
            StrategyName::Greedy => Strategy::Greedy,
            StrategyName::Local => Strategy::Local,
            StrategyName::Exact => Strategy::Exact,
        }
    }
}

/// The rules of the user.
#[derive(Args, Clone, Debug, Default)]
pub struct OwnRules {
    /// Adds rules: a file (*.rules), a folder of such files, or a pack (*.epack); may be repeated; `none` drops all
    /// that precede it
    #[arg(long = "rules", value_name = "FILE|DIR|PACK")]
    pub paths: Vec<PathBuf>,
}

/// The choice of rules.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Rules")]
pub struct Rules {
    #[command(flatten)]
    pub own: OwnRules,
    /// Leaves out rules of this name or glob ('fuse/attention*'); may be repeated
    #[arg(long, value_name = "GLOB")]
    pub without: Vec<String>,
    /// Uses only rules of this name or glob; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub only: Vec<String>,
    /// Sets how far rewriting may change results: no bit, the order of rounding, or more
    #[arg(long, value_name = "CONTRACT", value_enum, default_value_t = Fp::Reassoc)]
    pub fp: Fp,
    /// Sets the precision to which operands of products and attention may be rounded; sums, norms and softmax stay in
    /// f32
    #[arg(long, value_name = "TYPE", value_enum, default_value_t = Precision::F32)]
    pub precision: Precision,
}

/// The precision to which operands may be rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    /// No rounding beyond that of the program.
    F32,
    /// Eleven significant bits, on devices whose matrix units take f32 in this form.
    Tf32,
    /// f16, which ends at 65504.
    F16,
    /// bf16.
    Bf16,
}

impl From<Precision> for rewrites::Precision {
    fn from(precision: Precision) -> rewrites::Precision {
        match precision {
            Precision::F32 => rewrites::Precision::F32,
            Precision::Tf32 => rewrites::Precision::Tf32,
            Precision::F16 => rewrites::Precision::F16,
            Precision::Bf16 => rewrites::Precision::Bf16,
        }
    }
}

/// The numeric contract that rules must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fp {
    /// The same bits.
    Exact,
    /// The same real function with another order of rounding.
    Reassoc,
    /// Approximations.
    Fast,
}

impl From<Fp> for rewrites::Fp {
    fn from(fp: Fp) -> rewrites::Fp {
        match fp {
            Fp::Exact => rewrites::Fp::Exact,
            Fp::Reassoc => rewrites::Fp::Reassoc,
            Fp::Fast => rewrites::Fp::Fast,
        }
    }
}

impl Rules {
    /// Returns the rules that the arguments select, for a backend.
    ///
    /// # Errors
    /// If a file cannot be read, a rule does not load, or a glob matches no rule.
    pub fn load(&self, backend: &dyn Backend) -> Result<RuleSet, Fault> {
        let (rules, faults) = self.load_partly(backend)?;
        Fault::all(faults).map(|()| rules)
    }

    /// Loads the rules that the arguments select. Returns the rules that load, and an error for each rule that does
    /// not.
    ///
    /// # Errors
    /// If a folder cannot be read, if none of the user's rules loads, or if a glob matches no rule.
    pub fn load_partly(&self, backend: &dyn Backend) -> Result<(RuleSet, Vec<Fault>), Fault> {
        let LoadedRules { rules, own, mut faults } = self.own.after(packs(backend)?)?;
        // Without a single rule of the user, the command would only be about the packs, which the user did not ask
        // about.
        if own.is_empty() && !faults.is_empty() {
            return Err(Fault::Several(faults));
        }
        let choice = rewrites::Choice {
            without: self.without.clone(),
            only: self.only.clone(),
            fp: self.fp.into(),
            precision: self.precision.into(),
        };
        match rules.choose(&choice) {
            Ok(chosen) => Ok((chosen, faults)),
            // The glob may mean a rule that did not load, so its error is reported as well.
            Err(error) => {
                faults.push(Error::from(error).into());
                Err(Fault::Several(faults))
            }
        }
    }
}

/// The result of loading rules.
pub struct LoadedRules {
    /// All rules that load.
    pub rules: RuleSet,
    /// The names of the user's rules.
    pub own: BTreeSet<Arc<str>>,
    /// The errors of the rules that do not load.
    pub faults: Vec<Fault>,
}

impl OwnRules {
    /// Returns the paths of `--rules` after the last `none`.
    pub fn paths(&self) -> &[PathBuf] {
        let none = self.paths.iter().rposition(|path| path.as_os_str() == "none");
        &self.paths[none.map_or(0, |at| at + 1)..]
    }

    /// Returns whether the user gave no rules.
    pub fn is_empty(&self) -> bool {
        self.paths().is_empty()
    }

    /// Loads the user's rules after `rules`, in the order of the arguments.
    ///
    /// # Errors
    /// If a file or folder has no rules or cannot be read, or if a pack cannot be used.
    pub fn after(&self, rules: RuleSet) -> Result<LoadedRules, Fault> {
        let mut loaded = LoadedRules { rules, own: BTreeSet::new(), faults: Vec::new() };
        for path in self.paths() {
            let (added, errors) = RuleSet::load_partly(path, &loaded.rules).map_err(Error::from)?;
            if added.is_empty() && errors.is_empty() {
                let help = "a rule file is named NAME.rules; `eutectic rules --help` shows one";
                return Err(input(format!("--rules {}: it contains no rules", path.display()), help));
            }
            loaded.faults.extend(errors.into_iter().map(|error| Error::from(error).into()));
            loaded.own.extend(added.iter().map(|rule| rule.name.clone()));
            let (both, taken) = loaded.rules.and_partly(added);
            loaded.rules = both;
            if !taken.is_empty() {
                loaded.faults.push(Error::from(Errors(taken)).into());
            }
        }
        Ok(loaded)
    }
}

/// Opens models and graph files, with random parameters. `shape` sets the dimensions that a file has.
///
/// # Errors
/// If a file cannot be read, or if no file has one of the dimensions in `shape`.
pub fn named_programs(
    models: &[PathBuf],
    shape: &[(String, Dim)],
    own: &OwnRules,
) -> Result<Vec<(ProgramArgs, Graph)>, Fault> {
    let LoadedRules { rules, .. } = own.after(RuleSet::default())?;
    let mut unknown: Vec<&str> = shape.iter().map(|(name, _)| name.as_str()).collect();
    let mut programs = Vec::new();
    for model in models {
        let mut program = ProgramArgs::random(model.clone());
        program.ops.get_or_init(|| rules.ops().clone());
        if !shape.is_empty() && !program.is_built_in() {
            let known = program.symbols()?;
            program.shape = shape.iter().filter(|(name, _)| known.contains(name)).cloned().collect();
            unknown.retain(|name| !known.iter().any(|known| known == name));
        }
        let graph = program.graph()?;
        programs.push((program, graph));
    }
    match unknown.first() {
        Some(name) => Err(input(format!("--shape {name}: no file has a dimension of that name"), "leave it out")),
        None => Ok(programs),
    }
}

/// Returns the error for a name or glob that matches no rule.
pub fn no_rule(glob: &str, rules: &RuleSet) -> Fault {
    let guess = rules.meant(glob);
    let help = "`eutectic rules list` lists all of them; quote globs: 'fuse/*'";
    input(format!("no rule is named `{glob}`"), guess.map_or(help.into(), |guess| format!("{guess} {help}")))
}

/// Parses a glob for names. `*` matches any text, including slashes and dots.
///
/// # Errors
/// If it is not a valid glob.
pub fn pattern(glob: &str) -> Result<Glob, Fault> {
    Glob::new(glob).map_err(|e| input(format!("`{glob}` is not a pattern: {e}"), "write one like 'fuse/*'"))
}

/// The arguments of every command that takes a program: the program, the options of compilation and the output format.
#[derive(Args, Clone)]
pub struct CommonArgs {
    #[command(flatten)]
    pub program: ProgramArgs,
    #[command(flatten)]
    pub compile: Compile,
    /// How to print
    #[arg(help_heading = None, long, value_enum, default_value_t)]
    pub format: Format,
}

impl CommonArgs {
    /// Returns the files that the command reads, each with the argument that names it.
    pub fn reads(&self) -> impl Iterator<Item = (String, &Path)> {
        self.program.reads().chain(self.compile.device.reads())
    }

    /// Returns whether stdout receives JSON, and the option that selects it.
    pub fn json(&self) -> (String, bool) {
        ("--format json".into(), self.format == Format::Json)
    }
}

/// The choice of the backend.
#[derive(Args, Clone)]
#[command(next_help_heading = "Device")]
pub struct BackendArg {
    /// The backend; `eutectic devices` lists those of this machine
    #[arg(long, value_name = "NAME", value_parser = Listed::named, default_value = BACKENDS[0].name)]
    pub backend: &'static Listed,
}

impl BackendArg {
    /// Opens the backend with all resources of the machine.
    ///
    /// # Errors
    /// If this machine lacks a requirement.
    pub fn open(&self) -> Result<Arc<dyn Backend>, Fault> {
        Ok(self.backend.open(&Setup::default())?)
    }
}

/// The choice of the backend, its resources and its costs.
#[derive(Args, Clone)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    #[command(flatten)]
    pub on: BackendArg,
    /// The number of threads of a run [default: all that the process may use]
    #[arg(help_heading = "Device", long, value_name = "N", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,
    /// A file of costs, or `default` for the backend's own [default: the costs that `eutectic tune` or the first use measured on this device]
    #[arg(help_heading = "Device", long, value_name = "FILE")]
    pub costs: Option<CostsArg>,
}

/// The source of a backend's costs.
#[derive(Clone, Debug, PartialEq)]
pub enum CostsArg {
    /// The built-in costs of the backend.
    Default,
    /// A file.
    File(PathBuf),
}

impl From<OsString> for CostsArg {
    fn from(text: OsString) -> CostsArg {
        if text == "default" { CostsArg::Default } else { CostsArg::File(text.into()) }
    }
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    if text.contains(',') {
        return Err(
            "expected one number of threads, as in 2; `eutectic bench` accepts several as --sweep threads=1,2".into()
        );
    }
    NonZeroUsize::new(whole(text)?).ok_or("a run needs at least one thread".into())
}

impl DeviceArgs {
    /// Returns the files that the command reads, each with the argument that names it.
    pub fn reads(&self) -> impl Iterator<Item = (String, &Path)> {
        self.file().map(|path| ("--costs".into(), path)).into_iter()
    }

    fn file(&self) -> Option<&Path> {
        match &self.costs {
            Some(CostsArg::File(path)) => Some(path),
            Some(CostsArg::Default) | None => None,
        }
    }

    /// Opens the backend. Its costs are those of the arguments, or those measured on this device.
    ///
    /// # Errors
    /// If this machine lacks a requirement, or the costs cannot be read.
    pub fn open(&self) -> Result<Arc<dyn Backend>, Fault> {
        let wrong = |path: &Path, e: &dyn std::fmt::Display| {
            input(format!("--costs {}: {e}", path.display()), "`eutectic tune` writes such a file")
        };
        let read = |path: &Path| files::read_text(path).map_err(|e| wrong(path, &e));
        let costs = self.file().map(read).transpose()?;
        let tuned = if self.costs.is_none() { tuned_costs() } else { None };
        let setup = Setup { threads: self.threads, costs, tuned, ..Setup::default() };
        calibration::open(self.on.backend, &setup).map_err(|error| match (&error, self.file()) {
            (Error::Open { why: BackendError::Setup { option: "costs", problem }, .. }, Some(path)) => {
                wrong(path, problem)
            }
            (Error::Open { why: BackendError::Setup { option: "costs", problem }, .. }, None) => {
                input(problem, "`--costs default` uses the backend's own; `eutectic tune` measures this device")
            }
            _ => error.into(),
        })
    }
}

/// The options of compilation.
#[derive(Args, Clone)]
#[command(next_help_heading = "Compilation")]
pub struct Compile {
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Optimizes repeated layers separately
    #[arg(help_heading = "Compilation", long)]
    pub no_outline: bool,
    /// The strategy of the plan search
    #[arg(help_heading = "Compilation", long, value_name = "STRATEGY", value_enum, default_value_t = StrategyName::Local)]
    pub strategy: StrategyName,
    #[command(flatten)]
    pub rules: Rules,
}

impl Compile {
    /// Returns the compiler that the arguments select. Makes the ops that its rules declare available to the program.
    ///
    /// # Errors
    /// See [`Compile::compiler`].
    pub fn compiler_for(&self, program: &ProgramArgs) -> Result<Compiler, Fault> {
        let compiler = self.compiler()?;
        program.ops.get_or_init(|| compiler.rules().ops().clone());
        Ok(compiler)
    }

    /// Returns the compiler that the arguments select.
    ///
    /// # Errors
    /// If there is no such device, a rule file does not load, a glob matches no rule, or the costs cannot be read.
    pub fn compiler(&self) -> Result<Compiler, Fault> {
        let mut options = Options { outline: !self.no_outline, ..Options::default() };
        options.search.strategy = self.strategy.into();
        let backend = self.device.open()?;
        let rules = self.rules.load(&*backend)?;
        Ok(Compiler::from_arc(backend, rules).with_options(options))
    }
}
