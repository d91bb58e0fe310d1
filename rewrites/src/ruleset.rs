//! Sets of rules: the embedded packs, those of a directory, and the choice among them.

use std::{fs, io, path::Path, path::PathBuf, sync::Arc};

use eutectic_ir::{
    lang::{
        Errors, LangError, Sexp, Source,
        sexp::{self, did_you_mean, nearest},
    },
    ops::Ops,
};
use rayon::prelude::*;

use crate::{
    check,
    declare::{DeclaredOps, declare},
    glob::{Glob, GlobError},
    parse::{self, located, ops_of},
    proof::{self, Proofs},
    recipe::Compiled,
    rule::{Contract, Rule},
};

/// The packs that are part of the library: path and text of each file.
const EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
/// The verdicts on them.
const PROOFS: &str = include_str!("../rules/proofs.txt");

/// Rules, typed and compiled, in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// Each legal form of a rule's left side is one of these.
    pub(crate) rules: Vec<Arc<Compiled>>,
    /// The ops that the files of the rules declare.
    pub(crate) ops: Ops,
    /// Whether they were chosen for `--fp exact`: then kernels round every 16-bit value to its type, even where they do not store it.
    pub(crate) rounds_all: bool,
}

/// Why rules could not be loaded or chosen.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file or directory cannot be read.
    #[error("cannot read {path}: {error}", path = .path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Rules that are wrong.
    #[error(transparent)]
    Rules(#[from] Errors),
    /// A file of verdicts that is damaged.
    #[error("cannot read {path}: {problem}; `eutectic rules prove --write` writes it again", path = .path.display())]
    Proofs {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        problem: String,
    },
    /// A pattern that is no glob.
    #[error("`{pattern}` is no pattern for rule names: {error}")]
    Glob {
        /// The pattern.
        pattern: String,
        /// Why.
        error: GlobError,
    },
    /// A pattern that no rule's name matches.
    #[error("no rule is named `{pattern}`{}", if .help.is_empty() { String::new() } else { format!("; {}", .help) })]
    NoSuchRule {
        /// The pattern.
        pattern: String,
        /// What may be meant.
        help: String,
    },
}

/// How much rounding may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fp {
    /// Only rules that keep every bit, and those that say what an op is.
    Exact,
    /// Also rules that round in another order.
    #[default]
    Reassoc,
    /// Also approximations.
    Fast,
}

impl Fp {
    /// Whether rules of that contract run.
    pub fn admits(self, contract: Contract) -> bool {
        match self {
            Fp::Exact => contract == Contract::Exact,
            Fp::Reassoc => contract != Contract::Fast,
            Fp::Fast => true,
        }
    }
}

impl std::str::FromStr for Fp {
    type Err = String;

    fn from_str(s: &str) -> Result<Fp, String> {
        match s {
            "exact" => Ok(Fp::Exact),
            "reassoc" => Ok(Fp::Reassoc),
            "fast" => Ok(Fp::Fast),
            _ => Err(format!("`{s}` is none of exact, reassoc, fast")),
        }
    }
}

/// What products and attention may round their operands to. Everything else is computed as the program says it, and kernels sum in
/// `f32` or wider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Nothing: what the program says.
    #[default]
    F32,
    /// `tf32`, by the pack of that name: eleven significant bits, and the range of `f32`.
    Tf32,
    /// `f16`, by the pack of that name.
    F16,
    /// `bf16`, by the pack of that name.
    Bf16,
}

impl Precision {
    /// All of them.
    pub const ALL: [Precision; 4] = [Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
            Precision::F16 => "f16",
            Precision::Bf16 => "bf16",
        }
    }

    /// The one whose rules are in a pack.
    pub fn of_pack(pack: &str) -> Option<Precision> {
        Precision::ALL.into_iter().find(|precision| *precision != Precision::F32 && precision.name() == pack)
    }
}

/// Which rules of a set run.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Patterns of rules to leave out.
    pub without: Vec<String>,
    /// If there are any: patterns of the rules to keep. The pack `legalize` stays: without it nothing can be built.
    pub only: Vec<String>,
    /// How much rounding may change.
    pub fp: Fp,
    /// What operands may be rounded to: the packs of other precisions are left out. Those of this one run whatever `fp` says.
    pub precision: Precision,
}

impl RuleSet {
    /// The packs that are part of the library, those of every precision among them: [`RuleSet::choose`] says which run.
    ///
    /// # Errors
    /// Every rule that is wrong; a test sees to it that there is none.
    pub fn embedded() -> Result<RuleSet, Errors> {
        let sources: Vec<_> = EMBEDDED.iter().map(|(name, text)| Source::new(*name, *text)).collect();
        // Where this file is damaged, a test says so; rules go on without verdicts.
        let proofs = PROOFS.parse().unwrap_or_default();
        let (rules, errors) = RuleSet::compiled(&sources, &Ops::default(), &proofs, check::trusted);
        if errors.is_empty() { Ok(rules) } else { Err(Errors(errors)) }
    }

    /// All `*.rules` files under a directory.
    ///
    /// # Errors
    /// When a file cannot be read, and every rule that is wrong.
    pub fn load_dir(directory: &Path) -> Result<RuleSet, LoadError> {
        RuleSet::load_dir_with(directory, &Ops::default())
    }

    /// As [`RuleSet::load_dir`]; the rules may name `known` ops, besides those that the files declare.
    ///
    /// # Errors
    /// As [`RuleSet::load_dir`].
    pub fn load_dir_with(directory: &Path, known: &Ops) -> Result<RuleSet, LoadError> {
        let (rules, mut errors) = RuleSet::load_dir_partly(directory, known)?;
        if errors.is_empty() { Ok(rules) } else { Err(errors.swap_remove(0)) }
    }

    /// What loads of the `*.rules` files under a directory, and why the rest does not: files that cannot be read, then rules. The rules
    /// may name `known` ops, besides those that the files declare.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn load_dir_partly(directory: &Path, known: &Ops) -> Result<(RuleSet, Vec<LoadError>), LoadError> {
        let mut files = Vec::new();
        collect(directory, &mut Vec::new(), &mut files)?;
        files.sort();
        let (mut sources, mut errors) = (Vec::new(), Vec::new());
        for path in files {
            match read_text(&path) {
                Ok(text) => sources.push(Source::new(path.display().to_string(), text)),
                Err(error) => errors.push(LoadError::Read { path, error }),
            }
        }
        let proofs = proofs_of(directory).unwrap_or_else(|error| {
            errors.push(error);
            Proofs::default()
        });
        let (rules, wrong) = RuleSet::compiled(&sources, known, &proofs, check::checked);
        if !wrong.is_empty() {
            errors.push(Errors(wrong).into());
        }
        Ok((rules, errors))
    }

    /// The rules of some sources.
    ///
    /// # Errors
    /// Everything that is wrong in any of them.
    pub fn read(sources: &[Source]) -> Result<RuleSet, Errors> {
        RuleSet::read_with(sources, &Ops::default())
    }

    /// As [`RuleSet::read`]; the rules may name `known` ops, besides those that the sources declare.
    ///
    /// # Errors
    /// As [`RuleSet::read`].
    pub fn read_with(sources: &[Source], known: &Ops) -> Result<RuleSet, Errors> {
        let (rules, errors) = RuleSet::compiled(sources, known, &Proofs::default(), check::checked);
        if errors.is_empty() { Ok(rules) } else { Err(Errors(errors)) }
    }

    fn compiled(
        sources: &[Source],
        known: &Ops,
        proofs: &Proofs,
        compile: fn(Rule) -> Result<Vec<Compiled>, LangError>,
    ) -> (RuleSet, Vec<LangError>) {
        let (mut files, mut unreadable): (Vec<(&Source, Vec<Sexp>)>, Vec<LangError>) = (Vec::new(), Vec::new());
        for source in sources {
            match sexp::read(source) {
                Ok(forms) => files.push((source, forms)),
                Err(errors) => unreadable.extend(errors.0),
            }
        }
        let ops: Vec<(&Source, &Sexp)> = files.iter().flat_map(|(source, forms)| ops_of(source, forms)).collect();
        let DeclaredOps { known, mut rules, errors } = declare(&ops, known, proofs);
        let mut errors = [unreadable, errors].concat();
        let mut read = Vec::new();
        for (source, forms) in &files {
            let (of_source, wrong) = parse::rules(source, forms, &known);
            read.extend(of_source.into_iter().map(|rule| Rule { proof: proofs.of(&rule).cloned(), ..rule }));
            errors.extend(wrong);
        }
        // Every rule is typed on samples, which is most of what loading takes.
        let compiled: Vec<_> = read.into_par_iter().map(compile).collect();
        for result in compiled {
            match result {
                Ok(forms) => rules.extend(forms.into_iter().map(Arc::new)),
                Err(error) => errors.push(error),
            }
        }
        errors.extend(duplicates(&mut rules));
        (RuleSet { rules, ops: known.ops, rounds_all: false }, errors)
    }

    /// This set and another.
    ///
    /// # Errors
    /// Every name that both have.
    pub fn and(self, other: RuleSet) -> Result<RuleSet, Errors> {
        let (both, errors) = self.and_partly(other);
        if errors.is_empty() { Ok(both) } else { Err(Errors(errors)) }
    }

    /// This set and another but for the names that both have, and an error for each of these.
    pub fn and_partly(mut self, other: RuleSet) -> (RuleSet, Vec<LangError>) {
        self.rules.extend(other.rules);
        let errors = duplicates(&mut self.rules);
        for op in other.ops.declared() {
            // Of two ops of a name, the rules that define them clash as well.
            let _ = self.ops.add(*op);
        }
        (self, errors)
    }

    /// The rules that are chosen.
    ///
    /// # Errors
    /// When a pattern is malformed, or no rule matches it.
    pub fn choose(&self, choice: &Choice) -> Result<RuleSet, LoadError> {
        let without = self.globs(&choice.without)?;
        let only = self.globs(&choice.only)?;
        let stays = |c: &&Arc<Compiled>| {
            let rule = &c.rule;
            let named = |globs: &[Glob]| globs.iter().any(|g| g.is_match(&rule.name));
            let admitted = match Precision::of_pack(rule.pack()) {
                Some(precision) => precision == choice.precision,
                None => choice.fp.admits(rule.contract) || rule.defines_an_op(),
            };
            admitted && !named(&without) && (only.is_empty() || named(&only) || rule.phase == crate::Phase::Legalize)
        };
        let rules = self.rules.iter().filter(stays).cloned().collect();
        Ok(RuleSet { rules, ops: self.ops.clone(), rounds_all: choice.fp == Fp::Exact })
    }

    /// What a pattern that no rule matches may mean: a pack, where it is a glob; a name, also without its pack.
    pub fn meant(&self, pattern: &str) -> Option<String> {
        let names = || self.rules.iter().map(|c| &*c.rule.name);
        if pattern.contains('*') {
            let mut packs: Vec<String> = self.rules.iter().map(|c| format!("{}/*", c.rule.pack())).collect();
            packs.dedup();
            return did_you_mean(pattern, packs.iter().map(String::as_str));
        }
        if pattern.contains('/') {
            return did_you_mean(pattern, names());
        }
        let bare = |name: &'_ str| name.split_once('/').map_or(name, |(_, bare)| bare).to_string();
        let known: Vec<String> = names().map(bare).collect();
        let near = nearest(pattern, known.iter().map(String::as_str))?;
        names().find(|name| bare(name) == near).map(|name| format!("did you mean `{name}`?"))
    }

    fn globs(&self, patterns: &[String]) -> Result<Vec<Glob>, LoadError> {
        let glob = |pattern: &String| {
            let glob = Glob::new(pattern).map_err(|error| LoadError::Glob { pattern: pattern.clone(), error })?;
            if self.rules.iter().any(|c| glob.is_match(&c.rule.name)) {
                return Ok(glob);
            }
            let help = self.meant(pattern);
            Err(LoadError::NoSuchRule { pattern: pattern.clone(), help: help.unwrap_or_default() })
        };
        patterns.iter().map(glob).collect()
    }

    /// The rules, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|c| c.variant == 0).map(|c| &*c.rule)
    }

    /// The rule of that name.
    pub fn get(&self, name: &str) -> Option<&Rule> {
        self.iter().find(|r| &*r.name == name)
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// The verdicts on the rules of a directory, where it has any.
fn proofs_of(directory: &Path) -> Result<Proofs, LoadError> {
    let path = directory.join(proof::FILE);
    if !path.exists() {
        return Ok(Proofs::default());
    }
    let text = read_text(&path).map_err(|error| LoadError::Read { path: path.clone(), error })?;
    text.parse().map_err(|problem| LoadError::Proofs { path, problem })
}

fn read_text(path: &Path) -> io::Result<String> {
    // Reading a pipe waits for whoever writes to it.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no regular file"));
    }
    String::from_utf8(fs::read(path)?).map_err(|e| {
        let place = format!("byte {} is not UTF-8 text", e.utf8_error().valid_up_to() + 1);
        io::Error::new(io::ErrorKind::InvalidData, place)
    })
}

/// Brings rules into the order of their names and reports names that are taken.
pub(crate) fn duplicates(rules: &mut Vec<Arc<Compiled>>) -> Vec<LangError> {
    // Stable: of two rules of a name, the later one is reported.
    rules.sort_by(|a, b| (&a.rule.name, a.variant).cmp(&(&b.rule.name, b.variant)));
    let mut errors = Vec::new();
    rules.dedup_by(|later, first| {
        let taken = later.rule.name == first.rule.name && later.variant == first.variant;
        if taken && later.variant == 0 {
            let rule = &later.rule;
            let help = format!("{} has it; give this one another name", first.rule.place());
            let span = rule.span.start..rule.span.start + 1;
            errors.push(located(&rule.source, &rule.name, span, "there is a rule of this name already", help));
        }
        taken
    });
    errors
}

fn collect(directory: &Path, seen: &mut Vec<PathBuf>, files: &mut Vec<PathBuf>) -> Result<(), LoadError> {
    let wrong = |error| LoadError::Read { path: directory.to_path_buf(), error };
    // Links may lead in a circle.
    let itself = fs::canonicalize(directory).map_err(wrong)?;
    if seen.contains(&itself) {
        return Ok(());
    }
    seen.push(itself);
    for entry in fs::read_dir(directory).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.is_dir() {
            collect(&path, seen, files)?;
        } else if path.extension().is_some_and(|e| e == "rules") {
            files.push(path);
        }
    }
    Ok(())
}
