//! Opens a backend by its name.

use std::{env, path::PathBuf, sync::Arc};

use eutectic_backend::{Backend, Setup};

use crate::{BACKENDS, Error, Listed};

/// Returns the folder of tuned costs, [`Setup::tuned`]: `~/.config/eutectic/costs`. `None` if the user has no home
/// folder.
pub fn tuned_costs() -> Option<PathBuf> {
    env::home_dir().map(|home| home.join(".config").join("eutectic").join("costs"))
}

impl Listed {
    /// Returns the backend with this name.
    ///
    /// # Errors
    /// If there is none. The error lists the names.
    pub fn named(name: &str) -> Result<&'static Listed, Error> {
        let found = BACKENDS.iter().find(|backend| backend.name == name);
        found.ok_or_else(|| Error::NoBackend { name: name.into() })
    }

    /// Opens the backend on this machine.
    ///
    /// # Errors
    /// The feature that this build lacks; the requirement that this machine lacks, with the searched places; or the
    /// error in the setup.
    pub fn open(&self, setup: &Setup) -> Result<Arc<dyn Backend>, Error> {
        let open = self.open.ok_or(Error::NotBuilt { name: self.name })?;
        open(setup).map_err(|why| Error::Open { name: self.name, why })
    }
}

#[cfg(test)]
mod tests {
    use eutectic_backend::BackendError;

    use super::*;

    #[test]
    fn names_are_those_of_the_backends() {
        for listed in BACKENDS {
            match listed.open(&Setup::default()) {
                Ok(backend) => assert_eq!(backend.name(), listed.name),
                Err(Error::Open { name, why: BackendError::Missing { places, .. } }) => {
                    assert_eq!(name, listed.name);
                    assert!(!places.is_empty(), "`{name}` says where it looked");
                }
                Err(Error::NotBuilt { name }) => assert!(listed.open.is_none() && name == listed.name),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn a_name_that_is_none_is_answered_with_those_that_there_are() {
        let error = Listed::named("cqu").err().expect("there is none of that name").to_string();
        let known: Vec<_> = BACKENDS.iter().map(|backend| backend.name).collect();
        assert_eq!(
            error,
            format!(
                "no backend is named `cqu`, did you mean `cpu`?; `eutectic devices` lists them: {}",
                known.join(", ")
            )
        );
    }
}
