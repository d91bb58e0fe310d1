//! Makes a compiler of the options of `eutectic.load`.

use std::{num::NonZeroUsize, path::PathBuf};

use eutectic::{
    Compiler, Listed, RuleSet, Setup,
    engine::{
        ir::lang::Source,
        rewrites::{Choice, Fp, Precision},
    },
    packs,
};
use pyo3::prelude::*;

use crate::error::{Result, told};

/// How a model is compiled.
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
    /// Returns the compiler that the options ask for.
    ///
    /// # Errors
    /// When the backend does not run here, or costs or rules cannot be read or are wrong.
    pub fn compiler(&self) -> Result<Compiler> {
        let text = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|e| told(format_args!("cannot read {}: {e}", path.display())))
        };
        let setup =
            Setup { threads: self.threads, costs: self.costs.as_ref().map(text).transpose()?, ..Setup::default() };
        let backend = Listed::named(&self.backend)?.open(&setup)?;
        let mut rules = packs(&*backend)?;
        for path in &self.rules {
            let added = match path.is_dir() {
                true => RuleSet::load_dir_with(path, rules.ops()).map_err(eutectic::Error::from)?,
                false => RuleSet::read_with(&[Source::new(path.display().to_string(), text(path)?)], rules.ops())?,
            };
            if added.is_empty() {
                return Err(told(format_args!("no rule is in {}; a rule file is named NAME.rules", path.display())));
            }
            rules = rules.and(added)?;
        }
        let choice = Choice {
            without: self.without.clone(),
            only: self.only.clone(),
            fp: chosen("fp", &self.fp, &FP)?,
            precision: chosen("precision", &self.precision, &PRECISION)?,
        };
        Ok(Compiler::on(backend, rules.choose(&choice).map_err(eutectic::Error::from)?))
    }
}

const FP: [(&str, Fp); 3] = [("exact", Fp::Exact), ("reassoc", Fp::Reassoc), ("fast", Fp::Fast)];
const PRECISION: [(&str, Precision); 4] =
    [("f32", Precision::F32), ("tf32", Precision::Tf32), ("f16", Precision::F16), ("bf16", Precision::Bf16)];

/// Returns the value that a word stands for.
fn chosen<T: Copy>(option: &str, word: &str, known: &[(&str, T)]) -> Result<T> {
    let words = || known.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    let found = known.iter().find(|(known, _)| *known == word).map(|(_, value)| *value);
    found.ok_or_else(|| told(format_args!("there is no {option} {word:?}; there are {}", words())))
}
