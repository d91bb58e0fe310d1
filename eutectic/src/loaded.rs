//! A program with its parameters: what sessions on many threads share.

use std::sync::Arc;

use eutectic_backend::{Executable, Program};
use eutectic_ir::{Tensor, lang::sexp::did_you_mean};

use crate::Error;

/// A compiled program with its parameters, which are in memory once however many sessions there are. Cheap to clone.
#[derive(Clone)]
pub struct Loaded {
    pub(crate) program: Arc<Program>,
    pub(crate) executable: Arc<dyn Executable>,
    pub(crate) parameters: Arc<dyn eutectic_backend::Loaded>,
}

impl Loaded {
    /// The program, for reports.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The program with some parameters replaced, by name. Only what depends on them is computed anew; the rest is shared with
    /// this one, which stays as it is.
    ///
    /// # Errors
    /// When there is no such parameter or its type is another; or every parameter that must be given again, because what is
    /// computed anew depends on it and it was let go after loading.
    pub fn replace(&self, parameters: &[(&str, Tensor)]) -> Result<Loaded, Error> {
        let number = |(name, tensor): &(&str, Tensor)| {
            let at = position("parameter", self.program.params.iter().map(|(name, _)| name.as_str()), name)?;
            Ok((at, tensor.clone()))
        };
        let numbered = parameters.iter().map(number).collect::<Result<Vec<_>, Error>>()?;
        let parameters = self.parameters.clone().replace(&numbered)?;
        Ok(Loaded { parameters, ..self.clone() })
    }

    /// Bytes on the device that all sessions share.
    pub fn bytes(&self) -> usize {
        self.parameters.bytes()
    }
}

/// The number of what is of that name.
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
