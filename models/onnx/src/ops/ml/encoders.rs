//! Encoders of categories: table lookup (`LabelEncoder`) and one-hot vectors.

use eutectic_ir::{DType, Dim, NodeId, Tensor};

use crate::{
    call::{NodeCall, NodeResult},
    error::NodeError,
    ops::{
        index::counter,
        row::{OpRow, one},
    },
};

pub(super) const OPS: &[OpRow] = &[
    one("LabelEncoder", 1, |_| Err(NodeError(STRINGS.into()))),
    one("LabelEncoder", 2, |c| label(c, false)),
    one("LabelEncoder", 4, |c| label(c, true)),
    one("OneHotEncoder", 1, one_hot),
];

/// The message for a table of strings.
const STRINGS: &str = "it maps strings, which programs do not have; map them to numbers before the model runs, and make its input \
                       those numbers";

/// Returns the index of each element in a list of keys: that of the first equal key, or the length of the list if there
/// is none. With `nan`, a NaN element matches a NaN key.
fn place(c: &mut NodeCall<'_, '_>, x: NodeId, keys: Tensor, nan: bool) -> NodeResult {
    let (count, dims) = (keys.count(), c.shape(x));
    let has_nan = nan && keys.dtype().is_float() && keys.to_f64().iter().any(|key| key.is_nan());
    let keys = c.weights("keys", keys)?;
    let x = c.reshape(x, &[&dims[..], &[Dim::Known(1)]].concat())?;
    let mut found = c.apply("eq", [x, keys])?;
    if has_nan {
        let (unknown, of_keys) = (c.apply("is-nan", [x])?, c.apply("is-nan", [keys])?);
        let both = c.apply("and", [unknown, of_keys])?;
        found = c.apply("or", [found, both])?;
    }
    let ids = counter(count);
    let number = c.iota(&[count], 0, ids)?;
    let nowhere = c.number_of(count as i64, ids)?;
    let candidate = c.apply("where", [found, number, nowhere])?;
    let first = c.reduce("reduce-min", candidate, &[dims.len()])?;
    c.reshape(first, &dims)
}

/// Reads a list from whichever of the attributes `WHAT_floats`, `WHAT_int64s` and `WHAT_tensor` the node has.
fn list(c: &NodeCall<'_, '_>, what: &str) -> Result<Tensor, NodeError> {
    if c.has(&format!("{what}_strings")) {
        return Err(NodeError(STRINGS.into()));
    }
    if let Some(tensor) = c.tensor_value(&format!("{what}_tensor"))? {
        return Ok(tensor);
    }
    if let Some(values) = c.floats(&format!("{what}_floats"))? {
        return Ok(Tensor::from_f64(DType::F32, &[values.len()], values));
    }
    let values = c.ints(&format!("{what}_int64s"))?;
    let values = values.ok_or_else(|| {
        NodeError(format!("its attribute `{what}_int64s`, `{what}_floats` or `{what}_tensor` is missing"))
    })?;
    Ok(Tensor::from_i64(DType::I64, &[values.len()], values))
}

/// Imports `LabelEncoder`, which maps keys to values. NaN cannot be a key before version 4 of the domain.
fn label(c: &mut NodeCall<'_, '_>, nan: bool) -> NodeResult {
    let x = c.input(0)?;
    let (keys, values) = (list(c, "keys")?, list(c, "values")?);
    if keys.count() != values.count() {
        return Err(format!("it has {} keys for {} values", keys.count(), values.count()).into());
    }
    if keys.dtype() != c.dtype(x) {
        return Err(format!("its keys are {}, but its elements are {}", keys.dtype(), c.dtype(x)).into());
    }
    let to = values.dtype();
    let default = match c.tensor_value("default_tensor")? {
        Some(tensor) if tensor.count() == 1 && tensor.dtype() == to => tensor,
        Some(tensor) => return Err(format!("its default value has type {}, but must be one {to}", tensor.ty()).into()),
        None if to.is_float() => Tensor::from_f64(to, &[1], [c.float_or("default_float", -0.0)?]),
        None => Tensor::from_i64(to, &[1], [c.int_or("default_int64", -1)?]),
    };
    let place = place(c, x, keys, nan)?;
    let count = values.count();
    let (values, default) = (c.weights("values", values)?, c.constant(default)?);
    let values = c.reshape(values, &[count])?;
    let default = c.reshape(default, &[1_usize])?;
    let table = c.concat(&[values, default], 0)?;
    c.op("gather", &[table, place], &[("axis", 0.into())])
}

/// Imports `OneHotEncoder`. Along a new last axis, the result is 1 at the element's category. The attribute `zeros`
/// says whether an unknown category gives zeros or is an error.
fn one_hot(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let Some(categories) = c.ints("cats_int64s")?.filter(|categories| !categories.is_empty()) else {
        return Err(NodeError(STRINGS.into()));
    };
    let x = c.input(0)?;
    let x = c.cast(x, DType::I64)?;
    let (count, dims) = (categories.len(), c.shape(x));
    let place = place(c, x, Tensor::from_i64(DType::I64, &[count], categories), false)?;
    let column = c.reshape(place, &[&dims[..], &[Dim::Known(1)]].concat())?;
    let number = c.iota(&[count], 0, c.dtype(place))?;
    let hit = c.apply("eq", [column, number])?;
    let encoded = c.cast(hit, DType::F32)?;
    if c.int_or("zeros", 1)? != 0 {
        return Ok(encoded);
    }
    let unknown = c.with("eq", place, count as i64)?;
    let unknown = c.cast(unknown, DType::I32)?;
    let axes: Vec<usize> = (0..dims.len()).collect();
    let any = c.reduce("reduce-max", unknown, &axes)?;
    let any = c.scalar(any)?;
    let any = c.cast(any, DType::Bool)?;
    c.fail_if(
        any,
        encoded,
        "its input has an element of no category; set `zeros` to 1 to encode such elements as zeros",
    )
}
