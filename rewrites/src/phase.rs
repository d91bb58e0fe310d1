//! Phases: when rules run. Five are built in; a rule file may declare phases of its own after them.

use std::{cmp::Ordering, fmt, sync::Arc};

use eutectic_ir::lang::{LangError, Sexp, Source, sexp::did_you_mean};

/// When a rule runs. Rules of earlier phases stay active in later ones, but for the last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Surface forms become the forms that kernels take.
    Legalize,
    /// Simplify, decompose and recognise.
    Main,
    /// Associativity and distribution: bounded.
    Algebra,
    /// Rules that split computations for a backend's kernels.
    Templates,
    /// Rules that move computations into constant weights. They run last, so that no other rule rewrites their results.
    Fold,
    /// A phase that a rule file declares.
    Own(OwnPhase),
}

/// A phase that a rule file declares: `(phase PACK/NAME (after PHASE))`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnPhase {
    /// Its name, with a slash.
    name: Arc<str>,
    /// The place of the built-in phase before it, among [`Phase::ALL`].
    base: usize,
    /// The length of the chain of declared phases that it ends: 1 if it comes right after a built-in phase.
    rank: usize,
}

impl Phase {
    /// All built-in phases, in order.
    pub const ALL: [Phase; 5] = [Phase::Legalize, Phase::Main, Phase::Algebra, Phase::Templates, Phase::Fold];

    /// Returns the phase in which the rules of a pack run, unless they state another.
    pub fn of_pack(pack: &str) -> Phase {
        match pack {
            "legalize" => Phase::Legalize,
            "algebra" => Phase::Algebra,
            // The rules round the results of the earlier phases.
            "unfuse" | "templates" | "tf32" | "f16" | "bf16" => Phase::Templates,
            "fold" => Phase::Fold,
            _ => Phase::Main,
        }
    }

    /// Returns whether rules of a phase run in this one.
    pub(crate) fn runs(&self, of: &Phase) -> bool {
        of == self || of < self && *self != Phase::Fold
    }

    /// Returns the place in the order of phases; those of one place are in the order of their names.
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

    /// Returns the phase after this one, by the name that a rule file gives it; `None` after the last phase, whose results
    /// no rule rewrites, and after the first, whose results have no kernels yet.
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
    /// Reads the declarations of some files. They may stand in any order.
    pub fn declare(forms: &[(&Source, &Sexp)]) -> (Phases, Vec<LangError>) {
        let (mut phases, mut errors, mut open) = (Phases::default(), Vec::new(), Vec::new());
        for (source, form) in forms {
            match declaration(form) {
                Some((name, after)) if name.contains('/') => open.push((*source, *form, name, after)),
                _ => errors.push(source.error(form.span.clone(), "this declares no phase", SHAPE)),
            }
        }
        let names: Vec<&str> = open.iter().map(|(_, _, name, _)| *name).collect();
        loop {
            let before = open.len();
            open.retain(|(source, form, name, after)| {
                let Some(known) = phases.named(after) else { return true };
                match (phases.named(name), known.then(name)) {
                    (None, Some(phase)) => phases.0.push(phase),
                    // The same declaration may be read again.
                    (Some(there), new) if Some(there) == new.as_ref() => {}
                    (Some(_), _) => {
                        let message = format!("there is a phase `{name}` already, at another place in the order");
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
                true => format!("the phase `{name}` waits for `{after}`, which waits for it or is wrong itself"),
                false => format!("there is no phase `{after}`"),
            };
            errors.push(source.error(form.span.clone(), message, phases.help(after)));
        }
        (phases, errors)
    }

    /// Returns the phase of that name.
    pub fn named(&self, name: &str) -> Option<&Phase> {
        self.0.iter().find(|phase| phase.to_string() == name)
    }

    /// Returns the help for a name that no phase has.
    pub fn help(&self, name: &str) -> String {
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        let guess = did_you_mean(name, names.iter().map(String::as_str));
        guess.unwrap_or_else(|| {
            format!("the phases are {}; (phase pack/name (after main)) declares one", names.join(", "))
        })
    }
}

/// Returns the name and the predecessor of a declared phase.
fn declaration(form: &Sexp) -> Option<(&str, &str)> {
    let ("phase", [name, after]) = form.call()? else { return None };
    let ("after", [after]) = after.call()? else { return None };
    Some((name.atom()?, after.atom()?))
}
