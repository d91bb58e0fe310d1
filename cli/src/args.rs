//! Arguments that several commands share: how to compile, and how to print.

use std::{
    collections::BTreeSet,
    io::Write,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{Args, ValueEnum};
use eutectic::{
    BACKENDS, Backend, Compiler, Error, Listed, Options, RuleSet, Setup, Strategy,
    engine::{
        backend::BackendError,
        ir::lang::Errors,
        rewrites::{self, glob::Glob},
    },
    packs,
};
use serde::Serialize;

use crate::{
    fault::{Fault, input},
    files,
    format::Format,
    program::ProgramArgs,
    values::whole,
};

/// Prints a JSON value and ends the line.
///
/// # Errors
/// When stdout cannot be written to.
pub fn print_json(out: &mut dyn Write, value: &impl Serialize) -> Result<(), Fault> {
    serde_json::to_writer(&mut *out, value).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}

/// How the plan is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StrategyName {
    /// Every op a kernel of its own.
    Unfused,
    /// One pass that stores each value or not.
    Greedy,
    /// Greedy, then changes while they gain.
    Local,
    /// Every plan; for a few ops only.
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

/// Which rules there are.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Rules")]
pub struct Rules {
    /// Adds the rule files (*.rules) of a directory; may be repeated
    #[arg(long = "rules", value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Leaves out the rules of that name (fuse/attention*); may be repeated
    #[arg(long, value_name = "GLOB")]
    pub without: Vec<String>,
    /// Takes only the rules of that name; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub only: Vec<String>,
    /// What rewriting may change: no bit, the order of rounding, or more
    #[arg(long, value_name = "CONTRACT", value_enum, default_value_t = Fp::Reassoc)]
    pub fp: Fp,
    /// What the operands of products and attention may be rounded to; sums, norms and softmax stay in f32
    #[arg(long, value_name = "TYPE", value_enum, default_value_t = Precision::F32)]
    pub precision: Precision,
}

/// What operands may be rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    /// To nothing: what the program says.
    F32,
    /// To eleven significant bits, where the device's matrix units take f32 so.
    Tf32,
    /// To f16, whose numbers reach to 65504.
    F16,
    /// To bf16.
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
    /// Same bits.
    Exact,
    /// Same real function, rounded in another order.
    Reassoc,
    /// Approximations too.
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
    /// The rules that the arguments ask for, for a backend.
    ///
    /// # Errors
    /// When a file cannot be read, a rule does not load, or a glob matches no rule.
    pub fn load(&self, backend: &dyn Backend) -> Result<RuleSet, Fault> {
        let (rules, faults) = self.load_partly(backend)?;
        Fault::all(faults).map(|()| rules)
    }

    /// What loads of the rules that the arguments ask for, and why the rest does not.
    ///
    /// # Errors
    /// When a directory cannot be read, nothing of them loads, or a glob matches no rule.
    pub fn load_partly(&self, backend: &dyn Backend) -> Result<(RuleSet, Vec<Fault>), Fault> {
        let LoadedRules { rules, own, mut faults } = with_directories(packs(backend)?, &self.directories)?;
        // Where nothing of one's own loads, the packs are not what was asked about.
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
            // What did not load may be what was meant, so that is said as well.
            Err(error) => {
                faults.push(Error::from(error).into());
                Err(Fault::Several(faults))
            }
        }
    }
}

/// Rules, and what became of those of directories.
pub struct LoadedRules {
    /// All that load.
    pub rules: RuleSet,
    /// The names of those of the directories.
    pub own: BTreeSet<Arc<str>>,
    /// Why others do not load.
    pub faults: Vec<Fault>,
}

/// Adds the rules of directories.
///
/// # Errors
/// When there are none in a directory, or it cannot be read.
pub fn with_directories(rules: RuleSet, directories: &[PathBuf]) -> Result<LoadedRules, Fault> {
    let mut loaded = LoadedRules { rules, own: BTreeSet::new(), faults: Vec::new() };
    for directory in directories {
        let (added, errors) = RuleSet::load_dir_partly(directory, loaded.rules.ops()).map_err(Error::from)?;
        if added.is_empty() && errors.is_empty() {
            let help = "a rule file is named NAME.rules; `eutectic rules --help` shows one";
            return Err(input(format!("--rules {}: no rule is in there", directory.display()), help));
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

/// No rule is of that name.
pub fn no_rule(glob: &str, rules: &RuleSet) -> Fault {
    let guess = rules.meant(glob);
    let help = "`eutectic rules list` lists all of them; quote globs: 'fuse/*'";
    input(format!("no rule is named `{glob}`"), guess.map_or(help.into(), |guess| format!("{guess} {help}")))
}

/// A pattern of names: `*` stands for anything, a slash or a dot too.
///
/// # Errors
/// When it is no glob.
pub fn pattern(glob: &str) -> Result<Glob, Fault> {
    Glob::new(glob).map_err(|e| input(format!("`{glob}` is no pattern: {e}"), "as in 'fuse/*'"))
}

/// What every command about a program takes: the program, how it is compiled, and how results are printed.
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
    /// The files that are read, by what names them.
    pub fn reads(&self) -> impl Iterator<Item = (String, &Path)> {
        self.program.reads().chain(self.compile.device.reads())
    }

    /// Whether stdout gets JSON, by the option that says so.
    pub fn json(&self) -> (String, bool) {
        ("--format json".into(), self.format == Format::Json)
    }
}

/// Which backend.
#[derive(Args, Clone)]
#[command(next_help_heading = "Device")]
pub struct BackendArg {
    /// What programs run on; `eutectic devices` lists what there is
    #[arg(long, value_name = "NAME", value_parser = Listed::named, default_value = BACKENDS[0].name)]
    pub backend: &'static Listed,
}

impl BackendArg {
    /// The backend, with all that the machine has.
    ///
    /// # Errors
    /// When this machine lacks what it needs.
    pub fn open(&self) -> Result<Arc<dyn Backend>, Fault> {
        Ok(self.backend.open(&Setup::default())?)
    }
}

/// Which backend, and with what.
#[derive(Args, Clone)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    #[command(flatten)]
    pub on: BackendArg,
    /// Threads that a run uses [default: all that the process may use]
    #[arg(help_heading = "Device", long, value_name = "N", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,
    /// What things cost on this machine, as `eutectic tune` writes it [default: the backend's own]
    #[arg(help_heading = "Device", long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    if text.contains(',') {
        return Err(
            "expected one number of threads, as in 2; `eutectic bench` takes several as --sweep threads=1,2".into()
        );
    }
    NonZeroUsize::new(whole(text)?).ok_or("a run takes at least one thread".into())
}

impl DeviceArgs {
    /// The files that are read, by what names them.
    pub fn reads(&self) -> impl Iterator<Item = (String, &Path)> {
        self.costs.as_deref().map(|path| ("--costs".into(), path)).into_iter()
    }

    /// The backend.
    ///
    /// # Errors
    /// When this machine lacks what it needs, or the costs cannot be read.
    pub fn open(&self) -> Result<Arc<dyn Backend>, Fault> {
        let wrong = |path: &Path, e: &dyn std::fmt::Display| {
            input(format!("--costs {}: {e}", path.display()), "`eutectic tune` writes such a file")
        };
        let read = |path: &PathBuf| files::read_text(path).map_err(|e| wrong(path, &e));
        let costs = self.costs.as_ref().map(read).transpose()?;
        self.on.backend.open(&Setup { threads: self.threads, costs, ..Setup::default() }).map_err(|error| {
            match (&error, &self.costs) {
                (Error::Open { why: BackendError::Setup { option: "costs", problem }, .. }, Some(path)) => {
                    wrong(path, problem)
                }
                _ => error.into(),
            }
        })
    }
}

/// How to compile.
#[derive(Args, Clone)]
#[command(next_help_heading = "Compilation")]
pub struct Compile {
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Optimizes repeated layers each for itself
    #[arg(help_heading = "Compilation", long)]
    pub no_outline: bool,
    /// How the plan is searched
    #[arg(help_heading = "Compilation", long, value_name = "STRATEGY", value_enum, default_value_t = StrategyName::Local)]
    pub strategy: StrategyName,
    #[command(flatten)]
    pub rules: Rules,
}

impl Compile {
    /// The compiler that the arguments ask for; the program may name the ops that its rules declare.
    ///
    /// # Errors
    /// As [`Compile::compiler`].
    pub fn compiler_for(&self, program: &ProgramArgs) -> Result<Compiler, Fault> {
        let compiler = self.compiler()?;
        program.ops.get_or_init(|| compiler.rules().ops().clone());
        Ok(compiler)
    }

    /// The compiler that the arguments ask for.
    ///
    /// # Errors
    /// When there is no such device here, a rule file does not load, a glob matches no rule, or the costs cannot be read.
    pub fn compiler(&self) -> Result<Compiler, Fault> {
        let mut options = Options { outline: !self.no_outline, ..Options::default() };
        options.search.strategy = self.strategy.into();
        let backend = self.device.open()?;
        let rules = self.rules.load(&*backend)?;
        Ok(Compiler::on(backend, rules).with_options(options))
    }
}
