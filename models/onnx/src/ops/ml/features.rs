//! Preparation of features: scaling, normalization, thresholds, imputation, selection of columns.

use eutectic_ir::{DType, Dim, NodeId, Tensor, attr::Number, ops::Ids};

use super::rows::Rows;
use crate::{
    call::{NodeCall, NodeResult},
    error::NodeError,
    ops::{
        ids,
        row::{OpRow, one},
    },
};

pub(super) const OPS: &[OpRow] = &[
    one("Scaler", 1, scaler),
    one("Normalizer", 1, normalizer),
    one("Binarizer", 1, binarizer),
    one("Imputer", 1, imputer),
    one("ArrayFeatureExtractor", 1, columns),
    one("FeatureVectorizer", 1, vectorizer),
    one("ZipMap", 1, zip_map),
];

/// Adds the numbers of an attribute as a parameter. There must be one number, or one for each feature.
fn per_feature(c: &mut NodeCall<'_, '_>, label: &str, values: Vec<f64>, like: NodeId) -> NodeResult {
    let width = c.dims(like).last().copied().unwrap_or(1);
    match values.len() {
        n if n == 1 || n == width => {
            let tensor = Tensor::from_f64(c.dtype(like), &[n], values);
            c.weights(label, tensor)
        }
        n => Err(format!("its `{label}` has {n} numbers for {width} features").into()),
    }
}

/// Computes (x − offset) · scale. The result is `f32`.
fn scaler(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let rows = Rows::read(c)?;
    let dims = c.shape(c.input(0)?);
    let mut x = rows.x;
    for (name, op) in [("offset", "sub"), ("scale", "mul")] {
        if let Some(values) = c.floats(name)?.filter(|values| !values.is_empty()) {
            let values = per_feature(c, name, values, x)?;
            x = c.apply(op, [x, values])?;
        }
    }
    let x = c.cast(x, DType::F32)?;
    c.reshape(x, &dims)
}

/// Divides each row by its maximum, its L1 norm or its L2 norm. Rows whose norm is 0 are kept.
fn normalizer(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let rows = Rows::single(c)?;
    let dims = c.shape(c.input(0)?);
    let x = rows.x;
    let norm = match c.word("norm")?.unwrap_or("MAX") {
        "MAX" => {
            // The maximum ignores NaN, as in ONNX Runtime.
            let (unknown, lowest) = (c.apply("is-nan", [x])?, c.number(f64::from(f32::MIN), x)?);
            let known = c.apply("where", [unknown, lowest, x])?;
            c.reduce("reduce-max", known, &[1])?
        }
        "L1" => {
            let size = c.apply("abs", [x])?;
            c.reduce("reduce-sum", size, &[1])?
        }
        "L2" => {
            let square = c.apply("mul", [x, x])?;
            let sum = c.reduce("reduce-sum", square, &[1])?;
            c.apply("sqrt", [sum])?
        }
        other => return Err(format!("its norm is `{other}`; it must be MAX, L1 or L2").into()),
    };
    let (nothing, one) = (c.with("eq", norm, 0.0)?, c.number(1.0, norm)?);
    let norm = c.apply("where", [nothing, one, norm])?;
    let y = c.apply("div", [x, norm])?;
    c.reshape(y, &dims)
}

/// Returns 1 where x exceeds the threshold, and 0 elsewhere.
fn binarizer(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let threshold = c.float_or("threshold", 0.0)?;
    let float = if c.dtype(x).is_float() { x } else { c.cast(x, DType::F64)? };
    let greater = c.with("gt", float, threshold)?;
    c.cast(greater, c.dtype(x))
}

/// Replaces one value, which may be NaN, by a number for all features or for each feature.
fn imputer(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let width = c.dims(x).last().copied().unwrap_or(1);
    let dtype = c.dtype(x);
    let (found, values) = if dtype.is_float() {
        let replaced = c.float_or("replaced_value_float", 0.0)?;
        let found = if replaced.is_nan() { c.apply("is-nan", [x])? } else { c.with("eq", x, replaced)? };
        let values = c.floats("imputed_value_floats")?.unwrap_or_default();
        (found, Tensor::from_f64(dtype, &[values.len()], values))
    } else {
        let replaced = Number::from(c.int_or("replaced_value_int64", 0)?);
        let values = c.ints("imputed_value_int64s")?.unwrap_or_default();
        (c.with("eq", x, replaced)?, Tensor::from_i64(dtype, &[values.len()], values))
    };
    if values.count() != 1 && values.count() != width {
        return Err(format!("it has {} imputed values for {width} features of type {dtype}", values.count()).into());
    }
    let values = c.weights("imputed", values)?;
    c.apply("where", [found, values, x])
}

/// Selects columns by ids. A vector counts as one row.
fn columns(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (x, given) = (c.input(0)?, c.input(1)?);
    let dims = c.shape(x);
    let (outer, width) = match dims.split_last() {
        Some((width, [])) => (vec![Dim::Known(1)], c.fix(width)),
        Some((width, outer)) => (outer.to_vec(), c.fix(width)),
        None => return Err("its input is a scalar, which has no columns".into()),
    };
    let x = c.reshape(x, &[&outer[..], &[width.into()]].concat())?;
    let count: usize = c.dims(given).iter().product();
    let given = c.reshape(given, &[count])?;
    let given = c.cast(given, DType::I64)?;
    let given = ids::checked(c, given, Ids { extent: width as i64, from_end: false })?;
    c.op("gather", &[x, given], &[("axis", (-1).into())])
}

/// Concatenates the inputs in `f32`. Each input is cropped to its width in `inputdimensions`, or padded with zeros to
/// it.
fn vectorizer(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let inputs = c.inputs();
    let widths = c.ints("inputdimensions")?.ok_or("its attribute `inputdimensions` is missing")?;
    if widths.len() != inputs.len() {
        return Err(format!("its `inputdimensions` has {} numbers for {} inputs", widths.len(), inputs.len()).into());
    }
    let mut parts = Vec::new();
    for (x, wanted) in inputs.into_iter().zip(widths) {
        let wanted = usize::try_from(wanted)
            .map_err(|_| format!("its `inputdimensions` has the width {wanted}, which is negative"))?;
        let (rows, width) = match c.dims(x)[..] {
            [width] => (1, width),
            [rows, ref rest @ ..] => (rows, rest.iter().product()),
            [] => (1, 1),
        };
        let x = c.reshape(x, &[rows, width])?;
        let x = c.cast(x, DType::F32)?;
        let x = c.slice(x, 1, 0, width.min(wanted))?;
        parts.push(if width < wanted {
            let attrs = [("axis", 1), ("before", 0), ("after", (wanted - width) as i64)];
            c.op("pad", &[x], &attrs.map(|(name, n)| (name, n.into())))?
        } else {
            x
        });
    }
    c.concat(&parts, 1)
}

/// Imports `ZipMap` as the identity: the scores stay a matrix with a column for each class, because programs have no
/// maps.
fn zip_map(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let x = c.input(0)?;
    let classes = match (c.ints("classlabels_int64s")?, c.words("classlabels_strings")?) {
        (Some(numbers), _) if !numbers.is_empty() => format!("{numbers:?}"),
        (_, Some(strings)) if !strings.is_empty() => format!("{strings:?}"),
        _ => return Err(NodeError("its attributes name no classes".into())),
    };
    let (name, ty) = (c.output_name(0).to_string(), c.ty(x));
    c.warn(format!("`{name}` is a list of maps from classes to scores; it is given as {ty}, whose columns are the classes {classes}"));
    Ok(x)
}
