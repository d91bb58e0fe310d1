//! `rules pack`: lints and checks a folder of rules, and writes it as one file with a stamp that records the results.

use std::{
    collections::BTreeMap,
    io::{Write, stdout},
    path::PathBuf,
    time::{Instant, SystemTime},
};

use eutectic::{
    BACKENDS, Error, RuleSet, Setup,
    engine::rewrites::{
        LANGUAGE_VERSION, MANIFEST, Mutants, PACK_EXTENSION, Pack, PackFile, Probe, Stamp, is_pack_file,
    },
    packs,
};
use eutectic_checker::{Options, Report};
use serde_json::json;

use super::check::{self, On};
use crate::{
    args::{OwnRules, print_json},
    fault::{Fault, input},
    findings::{finding, findings},
    format::Format,
    output,
    table::{prose, several},
    values::whole,
};

const EXAMPLES: &str = "\
Examples:
  # mine/pack.toml and mine/*.rules become mine-1.0.0.epack
  eutectic rules pack mine
  # without mutants, which take most of the time
  eutectic rules pack mine --quick
  # a pack that needs another one
  eutectic rules pack mine --rules base.epack
  # a pack is used like a folder of rules
  eutectic bench model.onnx --rules mine-1.0.0.epack
  # its rules, and what its stamp says
  eutectic rules list 'mine/*' --rules mine-1.0.0.epack

A file pack.toml names the pack. `language` is the version of the rule language; this build reads versions up to 1. `needs` may be left out:

  name = \"mine\"
  version = \"1.0.0\"
  language = 1

  [needs]
  eutectic = \">=0.1\"
  base = \"1.2\"

A rule that is wrong, or cannot be checked, is an error, and nothing is written. The stamp counts findings of `rules lint` and surviving \
mutants, and has the fingerprint of each rule: a pack whose rules were changed afterwards is refused. It is no signature.";

/// The folder to pack, and the extent of its check.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The folder with rule files (*.rules) and pack.toml
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    own: OwnRules,
    /// The file of the pack [default: NAME-VERSION.epack in the current folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Skips the mutants, which show how well the rules are tested
    #[arg(long)]
    quick: bool,
    /// The backends that run both sides, separated by commas; `none` for the interpreter only
    #[arg(long, value_name = "NAME", value_parser = check::on, value_delimiter = ',', default_value = BACKENDS[0].name)]
    backend: Vec<On>,
    /// The seed of the instances; the same seed gives the same instances
    #[arg(long, value_name = "S", default_value_t = Options::default().seed, value_parser = whole::<u64>)]
    seed: u64,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs the command.
///
/// # Errors
/// If the folder is not a pack, if a rule does not load, is wrong or cannot be checked, or if the file cannot be
/// written.
pub fn run(args: &Args) -> Result<(), Fault> {
    let start = Instant::now();
    let rules = args.rules()?;
    let Some(manifest) = rules.packs().first().map(|pack| pack.manifest.clone()) else {
        let problem = format!("{}: cannot pack this folder because it has no {MANIFEST}", args.folder.display());
        let help =
            format!("write one: name = \"mine\", version = \"1.0.0\", language = {LANGUAGE_VERSION}, each on a line");
        return Err(input(problem, help));
    };
    let name = || format!("{}-{}.{PACK_EXTENSION}", manifest.name, manifest.version).into();
    let path: PathBuf = args.out.clone().unwrap_or_else(name);
    let standard = output::is_standard(&path);
    output::one_on_stdout([("--out -".into(), standard), ("--format json".into(), args.format == Format::Json)])?;
    if !standard && !is_pack_file(&path) {
        let problem = format!(
            "cannot write a pack to --out {} because its name does not end in .{PACK_EXTENSION}",
            path.display()
        );
        return Err(input(problem, format!("name it NAME.{PACK_EXTENSION}, as --rules requires")));
    }
    let found = args.lint(&rules)?;
    let checking = args.checking();
    let probes: Vec<Probe> = checking.probes()?.0;
    let probes: Vec<Probe> = probes.into_iter().filter(|probe| rules.get(&probe.rule().name).is_some()).collect();
    let reports = checking.check(&probes)?;
    let wrong = check::unfit(&reports);
    let show = args.format == Format::Table && !standard;
    let mut out = stdout().lock();
    if show || !wrong.is_empty() {
        checking.print(&reports, start, &mut out)?;
    }
    if !wrong.is_empty() {
        return Fault::all(wrong);
    }
    let stamp = args.stamp(&rules, &reports, found.len());
    let file = PackFile::of_folder(&args.folder, stamp).map_err(Error::from)?;
    output::write(&path, &[file.to_string().as_bytes()])?;
    if args.format == Format::Json {
        let stamp = &file.stamp;
        return print_json(&mut out, &json!({ "file": path, "pack": file.pack, "stamp": stamp, "findings": found }));
    }
    if show {
        found.iter().try_for_each(|finding| writeln!(out, "{finding}"))?;
        let rules = several(rules.len(), "rule");
        let pack = Pack { manifest: file.pack, stamp: Some(file.stamp) };
        writeln!(out, "{}", prose(format!("{}: {rules}; {pack}", path.display())))?;
    }
    Ok(())
}

impl Args {
    /// Returns the rules of the folder without any others.
    fn rules(&self) -> Result<RuleSet, Fault> {
        if !self.folder.is_dir() {
            let problem = format!("{}: cannot pack this because it is not a folder", self.folder.display());
            return Err(input(problem, format!("name a folder with {MANIFEST} and rule files (*.rules)")));
        }
        let needed = self.own.after(RuleSet::default())?;
        Fault::all(needed.faults)?;
        let (rules, errors) = RuleSet::load_partly(&self.folder, &needed.rules).map_err(Error::from)?;
        Fault::all(errors.into_iter().map(|error| Error::from(error).into()).collect())?;
        if rules.is_empty() {
            let problem = format!("{}: cannot pack this folder because no rule is in it", self.folder.display());
            return Err(input(problem, "a rule file is named NAME.rules; `eutectic rules --help` shows one"));
        }
        Ok(rules)
    }

    /// Returns the findings on the rules of the folder, which are linted together with all other rules.
    fn lint(&self, own: &RuleSet) -> Result<Vec<String>, Fault> {
        let listed = self.backend.iter().flatten().next().copied().unwrap_or(&BACKENDS[0]);
        let backend = listed.open(&Setup::default())?;
        let all = self.all().after(packs(&*backend)?)?;
        Fault::all(all.faults)?;
        let found = findings(&all.rules, backend)?;
        Ok(found.iter().filter(|lint| own.get(&lint.rule).is_some()).map(finding).collect())
    }

    /// Returns the rules that the folder needs, followed by the folder.
    fn all(&self) -> OwnRules {
        OwnRules { paths: self.own.paths().iter().chain([&self.folder]).cloned().collect() }
    }

    /// Returns the arguments that check the rules of the folder.
    fn checking(&self) -> check::Args {
        check::Args {
            globs: Vec::new(),
            own: self.all(),
            backend: self.backend.clone(),
            cases: None,
            seed: self.seed,
            mutants: !self.quick,
            format: self.format,
        }
    }

    fn stamp(&self, rules: &RuleSet, reports: &[Report], findings: usize) -> Stamp {
        let mutants = reports.iter().filter_map(|report| report.mutants.as_ref());
        let count = |all: Mutants, of: &eutectic_checker::Mutants| Mutants {
            killed: all.killed + of.killed,
            survivors: all.survivors + of.survivors.len(),
        };
        let mutants = mutants.fold(Mutants { killed: 0, survivors: 0 }, count);
        let fingerprints: BTreeMap<String, String> = Stamp::fingerprints(rules.iter());
        Stamp {
            engine: env!("CARGO_PKG_VERSION").into(),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string().chars().take(10).collect(),
            backends: self.backend.iter().flatten().map(|listed| listed.name.to_string()).collect(),
            seed: self.seed,
            cases: reports.iter().map(|report| report.cases).sum(),
            mutants: (!self.quick).then_some(mutants),
            findings,
            rules: fingerprints,
        }
    }
}
