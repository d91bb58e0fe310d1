//! The backends that there are: adding one is its folder, and a line here.

use std::sync::Arc;

use eutectic_backend::{Backend, BackendError, Setup};

use crate::{Cpu, Error};

type Open = fn(&Setup) -> Result<Arc<dyn Backend>, BackendError>;

/// A backend that programs can be compiled for, if this build has it and this machine has what it needs.
pub struct Listed {
    /// Its name, as [`Backend::name`] gives it.
    pub name: &'static str,
    /// What it runs programs on.
    pub about: &'static str,
    /// None where the feature of its name is off.
    open: Option<Open>,
}

/// All that there are, in this build or not; the first is the one that runs everywhere.
pub const BACKENDS: &[Listed] = &[
    Listed { name: "cpu", about: "the processor: threads over cache-sized tiles", open: Some(Cpu::open) },
    Listed { name: "cuda", about: "an NVIDIA GPU: kernels compiled when they are needed", open: CUDA },
    Listed { name: "vulkan", about: "any GPU with Vulkan 1.3, or lavapipe", open: VULKAN },
];

#[cfg(feature = "cuda")]
const CUDA: Option<Open> = Some(eutectic_cuda::open);
#[cfg(not(feature = "cuda"))]
const CUDA: Option<Open> = None;

#[cfg(feature = "vulkan")]
const VULKAN: Option<Open> = Some(eutectic_vulkan::open);
#[cfg(not(feature = "vulkan"))]
const VULKAN: Option<Open> = None;

impl Listed {
    /// The backend of a name.
    ///
    /// # Errors
    /// When there is none, with the names that there are.
    pub fn named(name: &str) -> Result<&'static Listed, Error> {
        let found = BACKENDS.iter().find(|backend| backend.name == name);
        found.ok_or_else(|| Error::NoBackend { name: name.into() })
    }

    /// The backend, if it runs here.
    ///
    /// # Errors
    /// The feature that this build lacks; or what this machine lacks, with where it was looked for; or what is wrong with the setup.
    pub fn open(&self, setup: &Setup) -> Result<Arc<dyn Backend>, Error> {
        let open = self.open.ok_or(Error::NotBuilt { name: self.name })?;
        open(setup).map_err(|why| Error::Open { name: self.name, why })
    }
}

#[cfg(test)]
mod tests {
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
