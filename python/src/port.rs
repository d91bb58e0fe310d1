//! Inputs, outputs and states of models, for Python.

use eutectic::{Dim, Type};
use pyo3::prelude::*;

/// An input, an output or a state of a model.
#[pyclass(frozen, get_all, eq, hash, module = "eutectic")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Port {
    /// The name.
    name: String,
    /// The element type: `f32`, `bf16`, `i64`, `bool`, …
    dtype: String,
    /// The extents: numbers, or names of run-time extents.
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
    /// Returns the ports with these names and types. Values that are not tensors are left out.
    pub fn all(of: &[(String, Type)]) -> Vec<Port> {
        of.iter().filter_map(|(name, ty)| Port::of(name, ty)).collect()
    }

    /// Returns the port with a name and a type. Returns `None` if the type is not that of a tensor.
    pub fn of(name: &str, ty: &Type) -> Option<Port> {
        let (dtype, shape) = ty.as_tensor()?;
        let extent = |dim: &Dim| dim.known().map_or_else(|| Extent::Open(dim.to_string()), Extent::Known);
        Some(Port { name: name.into(), dtype: dtype.to_string(), dims: shape.iter().map(extent).collect() })
    }
}
