//! Phases: the order in which rules run. Five are built in, and a rule file may declare further ones.

use std::{cmp::Ordering, fmt, sync::Arc};

use eutectic_ir::lang::{LangError, Sexp, Source, sexp::did_you_mean};

/// A phase of rewriting. Rules of earlier phases stay active in later ones, except in the last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Rewrites programs to the forms that kernels compute.
    Legalize,
    /// Simplifies, decomposes and recognises ops.
    Main,
    /// Applies associativity and distribution, within limits.
    Algebra,
    /// Splits computations for a backend's kernels.
    Templates,
    /// Moves computations into constant weights. It is last, so that no other rule rewrites its results.
    Fold,
    /// A phase that a rule file declares.
    Own(OwnPhase),
}

/// A phase that a rule file declares: `(phase PACK/NAME (after PHASE))`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnPhase {
    /// The name, with a slash.
    name: Arc<str>,
    /// The index in [`Phase::ALL`] of the built-in phase before it.
    base: usize,
    /// The number of declared phases from the built-in phase to this one: 1 if it comes directly after the built-in
    /// phase.
    rank: usize,
}

impl Phase {
    /// All built-in phases, in order.
    pub const ALL: [Phase; 5] = [Phase::Legalize, Phase::Main, Phase::Algebra, Phase::Templates, Phase::Fold];

    /// Returns the phase in which the rules of a pack run, unless a rule states another phase.
    pub fn of_pack(pack: &str) -> Phase {
        match pack {
            "legalize" => Phase::Legalize,
            "algebra" => Phase::Algebra,
            // These rules round the operands of ops that earlier phases made.
            "unfuse" | "templates" | "tf32" | "f16" | "bf16" => Phase::Templates,
            "fold" => Phase::Fold,
            _ => Phase::Main,
        }
    }

    /// Returns whether rules of the phase `of` run in this one.
    pub(crate) fn runs(&self, of: &Phase) -> bool {
        of == self || of < self && *self != Phase::Fold
    }

    /// Returns the key by which phases are ordered. Phases with equal numbers are ordered by name.
    fn place(&self) -> (usize, usize, &str) {
        match self {
            Phase::Legalize => (0, 0, ""),
            Phase::Main => (1, 0, ""),
            Phase::Algebra => (2, 0, ""),
            Phase::Templates => (3, 0, ""),
            Phase::Fold => (4, 0, ""),
            Phase::Own(OwnPhase { name, base, rank }) => (*base, *rank, name),
        }
    }

    /// Returns the phase `name` that a rule file declares after this one. Returns `None` after the last phase,
    /// because no rule may rewrite its results, and after the first, because its results may not have kernels yet.
    fn then(&self, name: &str) -> Option<Phase> {
        let (base, rank, _) = self.place();
        let fits = !matches!(self, Phase::Fold | Phase::Legalize);
        fits.then(|| Phase::Own(OwnPhase { name: name.into(), base, rank: rank + 1 }))
    }
}

impl PartialOrd for Phase {
    fn partial_cmp(&self, other: &Phase) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Phase {
    fn cmp(&self, other: &Phase) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Legalize => "legalize",
            Phase::Main => "main",
            Phase::Algebra => "algebra",
            Phase::Templates => "templates",
            Phase::Fold => "fold",
            Phase::Own(own) => &own.name,
        })
    }
}

/// The phases that rules may name.
#[derive(Clone, Debug)]
pub(crate) struct Phases(Vec<Phase>);

impl Default for Phases {
    fn default() -> Phases {
        Phases(Phase::ALL.to_vec())
    }
}

/// Returns whether a form declares a phase.
pub(crate) fn is_phase(form: &Sexp) -> bool {
    form.call().is_some_and(|(head, _)| head == "phase")
}

const SHAPE: &str =
    "write (phase pack/name (after main)): after main, algebra, templates or another phase of these files";

impl Phases {
    /// Reads the declarations of phases in some files, in any order.
    pub fn declare(forms: &[(&Source, &Sexp)]) -> (Phases, Vec<LangError>) {
        let (mut phases, mut errors, mut open) = (Phases::default(), Vec::new(), Vec::new());
        for (source, form) in forms {
            match declaration(form) {
                Some((name, after)) if name.contains('/') => open.push((*source, *form, name, after)),
                _ => errors.push(source.error(form.span.clone(), "this does not declare a phase", SHAPE)),
            }
        }
        let names: Vec<&str> = open.iter().map(|(_, _, name, _)| *name).collect();
        loop {
            let before = open.len();
            open.retain(|(source, form, name, after)| {
                let Some(known) = phases.named(after) else { return true };
                match (phases.named(name), known.then(name)) {
                    (None, Some(phase)) => phases.0.push(phase),
                    // Repeated equal declarations are accepted.
                    (Some(there), new) if Some(there) == new.as_ref() => {}
                    (Some(_), _) => {
                        let message = format!("the phase `{name}` is declared already after another phase");
                        errors.push(source.error(form.span.clone(), message, "give one of the two another name"));
                    }
                    (None, None) => {
                        let message = format!("no phase can come after `{after}`");
                        errors.push(source.error(form.span.clone(), message, SHAPE));
                    }
                }
                false
            });
            if open.len() == before {
                break;
            }
        }
        for (source, form, name, after) in open {
            let message = match names.contains(&after) {
                true => format!("cannot order the phase `{name}` because `{after}` comes after it or is wrong"),
                false => format!("there is no phase `{after}`"),
            };
            errors.push(source.error(form.span.clone(), message, phases.help(after)));
        }
        (phases, errors)
    }

    /// Returns the phase with this name.
    pub fn named(&self, name: &str) -> Option<&Phase> {
        self.0.iter().find(|phase| phase.to_string() == name)
    }

    /// Returns the help for an unknown name of a phase.
    pub fn help(&self, name: &str) -> String {
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        let guess = did_you_mean(name, names.iter().map(String::as_str));
        guess.unwrap_or_else(|| {
            format!("the phases are {}; declare another one by (phase pack/name (after main))", names.join(", "))
        })
    }
}

/// Returns the name and the predecessor of a declared phase.
fn declaration(form: &Sexp) -> Option<(&str, &str)> {
    let ("phase", [name, after]) = form.call()? else { return None };
    let ("after", [after]) = after.call()? else { return None };
    Some((name.atom()?, after.atom()?))
}
