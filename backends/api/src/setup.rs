//! Options for opening a backend.

use std::{fs, io, num::NonZeroUsize, path::PathBuf};

use crate::{
    costs::{Provenance, provenance},
    error::BackendError,
};

/// A user's choices for a device. By default, backends detect everything.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The maximal number of host threads.
    pub threads: Option<NonZeroUsize>,
    /// The text of a file of costs, as `eutectic tune` writes it.
    pub costs: Option<String>,
    /// The folder of tuned costs. If `costs` is not given, the backend reads the file of its device in this folder, if
    /// it exists.
    pub tuned: Option<PathBuf>,
    /// Whether each kernel starts only after the previous kernel has ended, even on devices that record runs. Tools
    /// that check memory accesses while kernels run need this.
    pub serialize_launches: bool,
}

/// A file of costs.
pub struct CostFile {
    /// The text.
    pub text: String,
    /// The device on which the costs were measured, if the file names one.
    pub provenance: Option<Provenance>,
}

impl Setup {
    /// Returns the file of costs for a device: the given file, or the device's file in the folder of tuned costs;
    /// `None` if there is neither.
    ///
    /// # Errors
    /// If the file cannot be read, or names another device.
    pub fn costs_for(&self, backend: &str, device: &str) -> Result<Option<CostFile>, BackendError> {
        let tuned = self.tuned.as_ref().map(|folder| folder.join(file_name(backend, device)));
        let (text, origin) = match (&self.costs, tuned) {
            (Some(text), _) => (text.clone(), String::new()),
            (None, Some(path)) => match fs::read_to_string(&path) {
                Ok(text) => (text, format!("{}: ", path.display())),
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(wrong(format!("cannot read {}: {e}", path.display()))),
            },
            (None, None) => return Ok(None),
        };
        let provenance = provenance(&text).map_err(|why| wrong(format!("{origin}{why}")))?;
        match &provenance {
            Some(of) if of.backend != backend || of.device != device => Err(wrong(format!(
                "{origin}cannot use the costs of {}'s {} on {backend}'s {device} because prices of one device do not hold on another; \
                 measure with `eutectic tune`, or remove the table [device] from the file",
                of.backend, of.device
            ))),
            _ => Ok(Some(CostFile { text, provenance })),
        }
    }
}

fn wrong(problem: String) -> BackendError {
    BackendError::Setup { option: "costs", problem }
}

/// Returns the name of a device's file in the folder of tuned costs: `cpu-amd-epyc-9b45-avx-512-2-threads.toml`.
pub fn file_name(backend: &str, device: &str) -> String {
    let words = device.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = [backend].into_iter().chain(words).collect::<Vec<_>>().join("-").to_ascii_lowercase();
    format!("{name}.toml")
}
