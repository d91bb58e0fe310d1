//! Element types and shapes as ONNX has them; the dimensions of inputs are bound here.

use std::collections::BTreeMap;

use eutectic_ir::{DType, Dim, Shape, Type};

use super::proto::{
    ValueInfoProto, tensor_proto::DataType, tensor_shape_proto::dimension::Value as Extent, type_proto::Value,
};

/// An input or an output of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelPort {
    /// Its element type.
    pub dtype: DType,
    /// Its extents; `None` where the file leaves even their number open. One that is open without a name is called `INPUT.AXIS`.
    pub shape: Option<Shape>,
}

/// The element type of that number in ONNX.
///
/// # Errors
/// When there is none of ours, in words.
pub(super) fn dtype(code: i32) -> Result<DType, String> {
    DType::of_format(code, |names| names.onnx).ok_or_else(|| match DataType::try_from(code) {
        Ok(other) => format!("elements of type {}", other.as_str_name().to_lowercase()),
        Err(_) => format!("elements of an unknown type, number {code}"),
    })
}

impl ModelPort {
    /// What the file says of an input or an output.
    ///
    /// # Errors
    /// When it is no tensor, or of an element type that programs do not have.
    pub(super) fn read(info: &ValueInfoProto) -> Result<ModelPort, String> {
        let value = info.r#type.as_ref().and_then(|t| t.value.as_ref());
        let Some(Value::TensorType(tensor)) = value else {
            return Err("it is no tensor, or its type is not given".into());
        };
        let extent = |axis: usize, extent: &Option<Extent>| match extent {
            Some(Extent::DimValue(n)) if *n >= 0 => Dim::Known(*n),
            // Some exporters write −1 or `?` for each extent that is open, which are not equal for that.
            Some(Extent::DimParam(name)) if !matches!(name.as_str(), "" | "?" | "-1") => Dim::symbol(name),
            _ => Dim::symbol(&format!("{}.{axis}", info.name())),
        };
        let shape = tensor.shape.as_ref().map(|s| s.dim.iter().enumerate().map(|(i, d)| extent(i, &d.value)).collect());
        Ok(ModelPort { dtype: dtype(tensor.elem_type())?, shape })
    }

    /// The names of the dimensions that are open.
    pub fn symbols(&self) -> impl Iterator<Item = String> {
        self.shape.iter().flat_map(|shape| shape.iter()).flat_map(|d| d.symbols()).map(|name| name.to_string())
    }

    /// The type, with a number for each open dimension.
    ///
    /// # Errors
    /// When the number of axes is not known, a dimension has no number, or an extent is negative.
    pub(super) fn bind(&self, values: &BTreeMap<String, Dim>) -> Result<Type, String> {
        let shape = self.shape.as_ref().ok_or("the file does not say how many axes it has")?;
        let ty = Type::Tensor(self.dtype, shape.clone()).bind(&|name| values.get(name).cloned());
        let is_usable =
            ty.as_tensor().is_some_and(|(_, shape)| shape.iter().all(|d| d.range().is_some_and(|r| r.0 >= 0)));
        if is_usable { Ok(ty) } else { Err(format!("{ty} has extents that are open or negative")) }
    }
}

impl ModelPort {
    /// As [`ModelPort::bind`]; a dim without a number is taken from a type whose value the file has.
    ///
    /// # Errors
    /// As [`ModelPort::bind`].
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
