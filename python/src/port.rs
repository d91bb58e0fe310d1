//! Inputs, outputs and states for Python.

use eutectic::{Dim, Type};
use pyo3::prelude::*;

/// An input, an output or a state of a model.
#[pyclass(frozen, get_all, eq, hash, module = "eutectic")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Port {
    /// Its name.
    name: String,
    /// The type of its elements: `f32`, `bf16`, `i64`, `bool`, …
    dtype: String,
    /// Its extents: numbers, or names of run-time extents.
    dims: Vec<Extent>,
}

/// An extent of a port.
#[derive(Clone, PartialEq, Eq, Hash, IntoPyObject, IntoPyObjectRef)]
enum Extent {
    Known(i64),
    Open(String),
}

#[pymethods]
impl Port {
    pub fn __repr__(&self) -> String {
        let dims = self.dims.iter().map(|extent| match extent {
            Extent::Known(n) => n.to_string(),
            Extent::Open(name) => name.clone(),
        });
        format!("<Port {} {}[{}]>", self.name, self.dtype, dims.collect::<Vec<_>>().join(" "))
    }
}

impl Port {
    /// Returns the ports for a list of names and types.
    pub fn all(of: &[(String, Type)]) -> Vec<Port> {
        of.iter().filter_map(|(name, ty)| Port::of(name, ty)).collect()
    }

    /// Returns the port for a name and a type, if it is a tensor type.
    pub fn of(name: &str, ty: &Type) -> Option<Port> {
        let (dtype, shape) = ty.as_tensor()?;
        let extent = |dim: &Dim| dim.known().map_or_else(|| Extent::Open(dim.to_string()), Extent::Known);
        Some(Port { name: name.into(), dtype: dtype.to_string(), dims: shape.iter().map(extent).collect() })
    }
}
