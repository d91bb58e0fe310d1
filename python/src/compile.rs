//! Creates a compiler from the options of `eutectic.load`.

use std::{num::NonZeroUsize, path::PathBuf};

use eutectic::{
    Compiler, Listed, RuleSet, Setup,
    engine::rewrites::{Choice, Fp, Precision},
    packs, tuned_costs,
};
use pyo3::prelude::*;

use crate::error::{Result, told};

/// The options of compilation, which `eutectic.load` passes as a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct CompileOptions {
    backend: String,
    threads: Option<NonZeroUsize>,
    costs: Option<PathBuf>,
    rules: Vec<PathBuf>,
    without: Vec<String>,
    only: Vec<String>,
    fp: String,
    precision: String,
}

impl CompileOptions {
    /// Returns the compiler that the options select.
    ///
    /// # Errors
    /// If the backend cannot be opened, or if costs or rules cannot be used.
    pub fn compiler(&self) -> Result<Compiler> {
        let text = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|e| told(format_args!("cannot read {}: {e}", path.display())))
        };
        let file = self.costs.as_ref().filter(|costs| costs.as_os_str() != "default");
        let tuned = if self.costs.is_none() { tuned_costs() } else { None };
        let setup = Setup { threads: self.threads, costs: file.map(text).transpose()?, tuned, ..Setup::default() };
        let backend = Listed::named(&self.backend)?.open(&setup)?;
        let mut rules = packs(&*backend)?;
        for path in &self.rules {
            let added = RuleSet::load_after(path, &rules).map_err(eutectic::Error::from)?;
            if added.is_empty() {
                return Err(told(format_args!(
                    "cannot add rules from {} because it contains none; a rule file is named NAME.rules",
                    path.display()
                )));
            }
            rules = rules.and(added)?;
        }
        let choice = Choice {
            without: self.without.clone(),
            only: self.only.clone(),
            fp: chosen("fp", &self.fp, &FP)?,
            precision: chosen("precision", &self.precision, &PRECISION)?,
        };
        Ok(Compiler::from_arc(backend, rules.choose(&choice).map_err(eutectic::Error::from)?))
    }
}

const FP: [(&str, Fp); 3] = [("exact", Fp::Exact), ("reassoc", Fp::Reassoc), ("fast", Fp::Fast)];
const PRECISION: [(&str, Precision); 4] =
    [("f32", Precision::F32), ("tf32", Precision::Tf32), ("f16", Precision::F16), ("bf16", Precision::Bf16)];

/// Returns the value of an option from its word. The error lists the known words.
fn chosen<T: Copy>(option: &str, word: &str, known: &[(&str, T)]) -> Result<T> {
    let words = || known.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    let found = known.iter().find(|(known, _)| *known == word).map(|(_, value)| *value);
    found.ok_or_else(|| {
        told(format_args!("the option {option} has the unknown value {word:?}; it must be one of {}", words()))
    })
}
