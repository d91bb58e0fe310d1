//! The native part of the package `eutectic`.

mod array;
mod compile;
mod dlpack;
mod error;
mod kernels;
mod model;
mod open;
mod port;

use pyo3::prelude::*;

/// The native part of the package `eutectic`.
#[pymodule(gil_used = true)]
mod _native {
    use eutectic::{BACKENDS, Setup};
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::{error::Error, model::Model, open::declared, port::Port};

    /// Returns each backend: its name, its kind of device, and `None` or the reason why it cannot be opened.
    #[pyfunction]
    fn devices(py: Python<'_>) -> Vec<(&'static str, &'static str, Option<String>)> {
        let opened = |listed: &eutectic::Listed| listed.open(&Setup::default()).err().map(|why| why.to_string());
        py.detach(|| BACKENDS.iter().map(|listed| (listed.name, listed.about, opened(listed))).collect())
    }
}
