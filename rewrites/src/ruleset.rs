//! Sets of rules: embedded packs, rules from sources, and the selection of rules that run.

use std::{io, path::PathBuf, sync::Arc};

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
    forms::Forms,
    glob::{Glob, GlobError},
    pack::Pack,
    parse::{self, located, ops_of, phases_of},
    phase::{Phase, Phases},
    proof::Proofs,
    recipe::Compiled,
    rule::{Contract, Rule},
    verdict::fingerprint,
};

/// The packs that are part of the library, as path and text of each file.
const EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
/// The verdicts on the embedded packs.
const PROOFS: &str = include_str!("../rules/proofs.txt");
/// The legal forms of the embedded packs' left sides.
const FORMS: &str = include_str!("../rules/forms.txt");

/// Typed and compiled rules, ordered by name.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// The rules. A rule occurs once for each legal form of its left side.
    pub(crate) rules: Vec<Arc<Compiled>>,
    /// The ops that the rule files declare.
    pub(crate) ops: Ops,
    /// The packs from which rules were loaded, in the order of loading.
    pub(crate) packs: Vec<Pack>,
    /// Whether the rules were chosen for `--fp exact`. Kernels then round every 16-bit value to its type even if they
    /// do not store it.
    pub(crate) rounds_all: bool,
}

/// The reason why rules cannot be loaded or chosen.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file or directory cannot be read.
    #[error("cannot read {path}: {error}", path = .path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Rules that are wrong.
    #[error(transparent)]
    Rules(#[from] Errors),
    /// A file of verdicts that is damaged.
    #[error("cannot read {path}: {problem}; write it again by `eutectic rules prove --write`", path = .path.display())]
    Proofs {
        /// The file.
        path: PathBuf,
        /// The error.
        problem: String,
    },
    /// A pack that cannot be used with these packs or this engine.
    #[error("cannot use {path} because {problem}", path = .path.display())]
    Pack {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// A text that is not a pattern of rule names.
    #[error("cannot use `{pattern}` as a pattern of rule names: {error}")]
    Glob {
        /// The pattern.
        pattern: String,
        /// The fault of the pattern.
        error: GlobError,
    },
    /// A pattern that matches no rule.
    #[error("no rule is named `{pattern}`{}", if .help.is_empty() { String::new() } else { format!("; {}", .help) })]
    NoSuchRule {
        /// The pattern.
        pattern: String,
        /// The help.
        help: String,
    },
}

/// The freedom of rules to change rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fp {
    /// Only rules that keep every bit, and rules that define ops.
    Exact,
    /// Also rules that may round in another order.
    #[default]
    Reassoc,
    /// Also rules that approximate.
    Fast,
}

impl Fp {
    /// Returns whether rules with this contract run.
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
            _ => Err(format!("`{s}` is not a contract; write exact, reassoc or fast")),
        }
    }
}

/// The type to which products and attention may round their operands. All other ops compute in the program's types,
/// and kernels sum in `f32` or wider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// The program's own type, without rounding.
    #[default]
    F32,
    /// `tf32`, which the rules of the pack `tf32` apply: eleven significant bits, and the range of `f32`.
    Tf32,
    /// `f16`, which the rules of the pack `f16` apply.
    F16,
    /// `bf16`, which the rules of the pack `bf16` apply.
    Bf16,
}

impl Precision {
    /// All precisions.
    pub const ALL: [Precision; 4] = [Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16];

    /// Returns the precision's name.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
            Precision::F16 => "f16",
            Precision::Bf16 => "bf16",
        }
    }

    /// Returns the precision to which a pack rounds.
    pub fn of_pack(pack: &str) -> Option<Precision> {
        Precision::ALL.into_iter().find(|precision| *precision != Precision::F32 && precision.name() == pack)
    }
}

/// Selects the rules of a set that run.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Patterns of the rules to leave out.
    pub without: Vec<String>,
    /// Patterns of the rules to keep; all rules if empty. The pack `legalize` always stays, because no program has
    /// kernels without it.
    pub only: Vec<String>,
    /// The freedom of rules to change rounding.
    pub fp: Fp,
    /// The type to which operands may be rounded. Its pack runs for any `fp`, and the packs of other precisions
    /// are left out.
    pub precision: Precision,
}

impl RuleSet {
    /// Returns the embedded packs, including those of every precision. [`RuleSet::choose`] selects the rules that
    /// run.
    ///
    /// # Errors
    /// All wrong rules. A test ensures that there are none.
    pub fn embedded() -> Result<RuleSet, Errors> {
        let sources: Vec<_> = EMBEDDED.iter().map(|(name, text)| Source::new(*name, *text)).collect();
        // A test detects damaged files. With a damaged file, rules have no verdicts, and their forms are found on
        // samples.
        let (proofs, forms): (Proofs, Forms) = (PROOFS.parse().unwrap_or_default(), FORMS.parse().unwrap_or_default());
        let (rules, errors) = RuleSet::compiled(&sources, &Ops::default(), &proofs, Loading::Trusted(&forms));
        if errors.is_empty() { Ok(rules) } else { Err(Errors(errors)) }
    }

    /// Returns the packs from which rules of this set were loaded, in the order of loading.
    pub fn packs(&self) -> &[Pack] {
        &self.packs
    }

    /// Reads the rules of some sources.
    ///
    /// # Errors
    /// All errors in these sources.
    pub fn read(sources: &[Source]) -> Result<RuleSet, Errors> {
        RuleSet::read_with(sources, &Ops::default())
    }

    /// Reads sources like [`RuleSet::read`]. The rules may use the `known` ops and those that the sources declare.
    ///
    /// # Errors
    /// All errors in these sources.
    pub fn read_with(sources: &[Source], known: &Ops) -> Result<RuleSet, Errors> {
        let (rules, errors) = RuleSet::compiled(sources, known, &Proofs::default(), Loading::Checked);
        if errors.is_empty() { Ok(rules) } else { Err(Errors(errors)) }
    }

    /// Reads sources like [`RuleSet::read_with`]. Returns the rules that load, and the errors of the others.
    pub fn read_partly(sources: &[Source], known: &Ops) -> (RuleSet, Vec<LangError>) {
        RuleSet::compiled(sources, known, &Proofs::default(), Loading::Checked)
    }

    pub(crate) fn compiled(
        sources: &[Source],
        known: &Ops,
        proofs: &Proofs,
        loading: Loading<'_>,
    ) -> (RuleSet, Vec<LangError>) {
        let (mut files, mut unreadable): (Vec<(&Source, Vec<Sexp>)>, Vec<LangError>) = (Vec::new(), Vec::new());
        for source in sources {
            match sexp::read(source) {
                Ok(forms) => files.push((source, forms)),
                Err(errors) => unreadable.extend(errors.0),
            }
        }
        let ops: Vec<(&Source, &Sexp)> = files.iter().flat_map(|(source, forms)| ops_of(source, forms)).collect();
        let DeclaredOps { mut known, mut rules, errors } = declare(&ops, known, proofs);
        let forms: Vec<(&Source, &Sexp)> = files.iter().flat_map(|(source, forms)| phases_of(source, forms)).collect();
        let (phases, wrong) = Phases::declare(&forms);
        known.phases = phases;
        let mut errors = [unreadable, errors, wrong].concat();
        let mut read = Vec::new();
        for (source, forms) in &files {
            let (of_source, wrong) = parse::rules(source, forms, &known);
            read.extend(of_source.into_iter().map(|rule| {
                let of = fingerprint(&rule);
                (Arc::new(Rule { proof: proofs.find(&rule.name, of).cloned(), ..rule }), of)
            }));
            errors.extend(wrong);
        }
        let mut open = Vec::new();
        for (rule, of) in read {
            match loading.listed(&rule, of) {
                Some(forms) => rules.extend(forms.into_iter().map(Arc::new)),
                None => open.push(rule),
            }
        }
        // Rules whose forms are not listed are typed on samples. That takes most of the loading time, so it runs in
        // parallel.
        let compiled: Vec<_> = open.into_par_iter().map(|rule| loading.typed(rule)).collect();
        for result in compiled {
            match result {
                Ok(forms) => rules.extend(forms.into_iter().map(Arc::new)),
                Err(error) => errors.push(error),
            }
        }
        errors.extend(duplicates(&mut rules));
        (RuleSet { rules, ops: known.ops, packs: Vec::new(), rounds_all: false }, errors)
    }

    /// Returns the union of this set and another.
    ///
    /// # Errors
    /// An error for each name that both sets have.
    pub fn and(self, other: RuleSet) -> Result<RuleSet, Errors> {
        let (both, errors) = self.and_partly(other);
        if errors.is_empty() { Ok(both) } else { Err(Errors(errors)) }
    }

    /// Returns the union of this set and another. If both have a rule with the same name, only this set's rule is
    /// kept, and an error is returned.
    pub fn and_partly(mut self, other: RuleSet) -> (RuleSet, Vec<LangError>) {
        self.rules.extend(other.rules);
        self.packs.extend(other.packs);
        let errors = duplicates(&mut self.rules);
        for op in other.ops.declared() {
            // If two ops have the same name, their defining rules have the same name too, which is reported.
            let _ = self.ops.add(*op);
        }
        (self, errors)
    }

    /// Returns the chosen rules.
    ///
    /// # Errors
    /// If a pattern is malformed or matches no rule.
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
            admitted && !named(&without) && (only.is_empty() || named(&only) || rule.phase == Phase::Legalize)
        };
        let rules = self.rules.iter().filter(stays).cloned().collect();
        let rounds_all = choice.fp == Fp::Exact;
        Ok(RuleSet { rules, ops: self.ops.clone(), packs: self.packs.clone(), rounds_all })
    }

    /// Returns the rule set with only the rules for which `keep` holds. Ops and packs stay.
    pub fn filtered(&self, keep: impl Fn(&Rule) -> bool) -> RuleSet {
        RuleSet { rules: self.rules.iter().filter(|c| keep(&c.rule)).cloned().collect(), ..self.clone() }
    }

    /// Returns a suggestion for a pattern that matches no rule: a pack for a glob, or else a name, which may lack its
    /// pack.
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

    /// Returns the built-in phases and the phases of this set's rules, in order.
    pub fn phases(&self) -> Vec<Phase> {
        let mut phases: Vec<Phase> = self.iter().map(|rule| rule.phase.clone()).chain(Phase::ALL).collect();
        phases.sort();
        phases.dedup();
        phases
    }

    /// Returns the rules, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|c| c.variant == 0).map(|c| &*c.rule)
    }

    /// Returns the rule with this name.
    pub fn get(&self, name: &str) -> Option<&Rule> {
        self.iter().find(|r| &*r.name == name)
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// The way in which loaded rules are prepared for the engine.
#[derive(Clone, Copy)]
pub(crate) enum Loading<'f> {
    /// Each rule is checked on samples.
    Checked,
    /// The rules are known to work, and the forms of some of them are listed.
    Trusted(&'f Forms),
}

impl Loading<'_> {
    fn listed(self, rule: &Arc<Rule>, fingerprint: u64) -> Option<Vec<Compiled>> {
        match self {
            Loading::Checked => None,
            Loading::Trusted(forms) => forms.of(rule, fingerprint),
        }
    }

    fn typed(self, rule: Arc<Rule>) -> Result<Vec<Compiled>, LangError> {
        match self {
            Loading::Checked => check::checked(rule),
            Loading::Trusted(_) => check::trusted(rule),
        }
    }
}

/// Sorts rules by name, and removes and reports rules whose name is taken.
pub(crate) fn duplicates(rules: &mut Vec<Arc<Compiled>>) -> Vec<LangError> {
    // The sort is stable, so that the later of two rules with the same name is reported.
    rules.sort_by(|a, b| (&a.rule.name, a.variant).cmp(&(&b.rule.name, b.variant)));
    let mut errors = Vec::new();
    rules.dedup_by(|later, first| {
        let taken = later.rule.name == first.rule.name && later.variant == first.variant;
        if taken && later.variant == 0 {
            let rule = &later.rule;
            let help = format!("{} has the same name; give this rule another name", first.rule.place());
            let span = rule.span.start..rule.span.start + 1;
            errors.push(located(&rule.source, &rule.name, span, "a rule with this name exists already", help));
        }
        taken
    });
    errors
}
