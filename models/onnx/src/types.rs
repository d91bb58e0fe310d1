//! Element types and shapes of ONNX, and the numbers of open dimensions.

use std::collections::BTreeMap;

use eutectic_ir::{DType, Dim, Shape, Type};

use super::proto::{
    ValueInfoProto, tensor_proto::DataType, tensor_shape_proto::dimension::Value as Extent, type_proto::Value,
};

/// The declaration of an input or an output of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelPort {
    /// The element type.
    pub dtype: DType,
    /// The extents. `None` if the file does not state the number of axes. An open extent without a name gets the name
    /// `INPUT.AXIS`.
    pub shape: Option<Shape>,
}

/// Returns the element type with this ONNX number.
///
/// # Errors
/// If programs do not have this element type. The error is the reason.
pub(super) fn dtype(code: i32) -> Result<DType, String> {
    DType::of_format(code, |names| names.onnx).ok_or_else(|| match DataType::try_from(code) {
        Ok(other) => format!("programs have no elements of type {}", other.as_str_name().to_lowercase()),
        Err(_) => format!("the element type number {code} is unknown"),
    })
}

impl ModelPort {
    /// Reads the declaration of an input or an output.
    ///
    /// # Errors
    /// If the value is not a tensor, or if programs do not have its element type.
    pub(super) fn read(info: &ValueInfoProto) -> Result<ModelPort, String> {
        let value = info.r#type.as_ref().and_then(|t| t.value.as_ref());
        let Some(Value::TensorType(tensor)) = value else {
            return Err("it is not a tensor, or its type is not declared".into());
        };
        let extent = |axis: usize, extent: &Option<Extent>| match extent {
            Some(Extent::DimValue(n)) if *n >= 0 => Dim::Known(*n),
            // Some exporters write −1 or `?` for every open extent. These extents need not be equal.
            Some(Extent::DimParam(name)) if !matches!(name.as_str(), "" | "?" | "-1") => Dim::symbol(name),
            _ => Dim::symbol(&format!("{}.{axis}", info.name())),
        };
        let shape = tensor.shape.as_ref().map(|s| s.dim.iter().enumerate().map(|(i, d)| extent(i, &d.value)).collect());
        Ok(ModelPort { dtype: dtype(tensor.elem_type())?, shape })
    }

    /// Returns the names of the open dimensions.
    pub fn symbols(&self) -> impl Iterator<Item = String> {
        self.shape.iter().flat_map(|shape| shape.iter()).flat_map(|d| d.symbols()).map(|name| name.to_string())
    }

    /// Returns the type with a number or a run-time extent for each open dimension.
    ///
    /// # Errors
    /// If the number of axes is unknown, if a dimension has no number, or if an extent is negative.
    pub(super) fn bind(&self, values: &BTreeMap<String, Dim>) -> Result<Type, String> {
        let shape = self.shape.as_ref().ok_or("the file does not state its number of axes")?;
        let ty = Type::Tensor(self.dtype, shape.clone()).bind(&|name| values.get(name).cloned());
        let is_usable =
            ty.as_tensor().is_some_and(|(_, shape)| shape.iter().all(|d| d.range().is_some_and(|r| r.0 >= 0)));
        if is_usable { Ok(ty) } else { Err(format!("its type {ty} has an extent that is open or negative")) }
    }
}

impl ModelPort {
    /// Returns the type, like [`ModelPort::bind`]. A dimension without a number gets the extent of the default value,
    /// whose type is `like`.
    ///
    /// # Errors
    /// In the cases of [`ModelPort::bind`].
    pub(super) fn bind_like(&self, values: &BTreeMap<String, Dim>, like: &Type) -> Result<Type, String> {
        let extents = like.dims().unwrap_or_default();
        let Some(shape) = self.shape.as_ref().filter(|shape| shape.rank() == extents.len()) else {
            return Ok(like.clone());
        };
        let mut values = values.clone();
        for (dim, extent) in shape.iter().zip(extents) {
            let [symbol] = &dim.symbols()[..] else { continue };
            values.entry(symbol.name.to_string()).or_insert(Dim::from(extent));
        }
        self.bind(&values)
    }
}

impl std::fmt::Display for ModelPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.shape {
            Some(shape) => write!(f, "{}{shape}", self.dtype),
            None => write!(f, "{}[..]", self.dtype),
        }
    }
}
