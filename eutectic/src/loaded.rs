//! A program with its parameters, which sessions on many threads share.

use std::sync::Arc;

use eutectic_backend::{Executable, Program};
use eutectic_ir::{Tensor, lang::sexp::did_you_mean};

use crate::Error;

/// A compiled program with its parameters. They are in memory once, for any number of sessions. Clones are cheap.
#[derive(Clone)]
pub struct Loaded {
    pub(crate) program: Arc<Program>,
    pub(crate) executable: Arc<dyn Executable>,
    pub(crate) parameters: Arc<dyn eutectic_backend::Loaded>,
}

impl Loaded {
    /// Returns the program, for reports.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the program with some parameters replaced, by name. Only results that depend on them are recomputed. The
    /// rest is shared with this program, which stays unchanged.
    ///
    /// # Errors
    /// If there is no such parameter or its type differs. If further parameters must be given again because recomputed
    /// results depend on them and loading freed them, the error names them.
    pub fn replace(&self, parameters: &[(&str, Tensor)]) -> Result<Loaded, Error> {
        let number = |(name, tensor): &(&str, Tensor)| {
            let at = position("parameter", self.program.params.iter().map(|(name, _)| name.as_str()), name)?;
            Ok((at, tensor.clone()))
        };
        let numbered = parameters.iter().map(number).collect::<Result<Vec<_>, Error>>()?;
        let parameters = self.parameters.clone().replace(&numbered)?;
        Ok(Loaded { parameters, ..self.clone() })
    }

    /// Returns the number of bytes on the device that all sessions share.
    pub fn bytes(&self) -> usize {
        self.parameters.bytes()
    }
}

/// Returns the index of the item with that name.
pub(crate) fn position<'a>(
    what: &str,
    names: impl Iterator<Item = &'a str> + Clone,
    wanted: &str,
) -> Result<usize, Error> {
    names.clone().position(|name| name == wanted).ok_or_else(|| {
        let names: Vec<_> = names.collect();
        let known = if names.is_empty() { "none".into() } else { names.join(", ") };
        let guess = did_you_mean(wanted, names.into_iter()).map_or(String::new(), |guess| format!("; {guess}"));
        Error::Arguments(vec![format!("the program has no {what} `{wanted}`; it has {known}{guess}")])
    })
}
