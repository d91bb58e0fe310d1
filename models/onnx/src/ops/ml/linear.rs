//! Linear models: matrix products with coefficients, intercepts, and transforms of the scores.

use eutectic_ir::{DType, NodeId, Tensor};

use super::{
    rows::{Rows, numbers},
    scores::{Classes, Transform, complement, opposites, winner},
};
use crate::{
    call::{NodeCall, NodeResult},
    ops::row::{OpRow, Outputs, many, one},
};

pub(super) const OPS: &[OpRow] = &[one("LinearRegressor", 1, regressor), many("LinearClassifier", 1, classifier)];

/// Computes x · wᵀ + b. The attribute `coefficients` has a row of w for each target.
fn products(c: &mut NodeCall<'_, '_>, targets: usize) -> NodeResult {
    let rows = Rows::single(c)?;
    let (weights, bias) = (numbers(c, "coefficients")?, c.floats("intercepts")?.unwrap_or_default());
    rows.wanted(weights.len() / targets.max(1))?;
    let scores = weighted(c, rows.x, &weights, targets)?;
    match bias.len() {
        0 => Ok(scores),
        n if n == targets => {
            let bias = c.weights("intercepts", Tensor::from_f64(DType::F32, &[targets], bias))?;
            c.apply("add", [scores, bias])
        }
        n => Err(format!("it has {n} intercepts for {targets} targets").into()),
    }
}

/// Computes x · wᵀ. `weights` has a row for each result.
pub(super) fn weighted(c: &mut NodeCall<'_, '_>, x: NodeId, weights: &[f64], results: usize) -> NodeResult {
    let width = c.dims(x)[1];
    if weights.len() != width * results {
        return Err(format!("it has {} coefficients, but must have {results} rows of {width}", weights.len()).into());
    }
    let columns = (0..width).flat_map(|column| (0..results).map(move |row| weights[row * width + column]));
    let weights = c.weights("coefficients", Tensor::from_f64(DType::F32, &[width, results], columns))?;
    c.apply("matmul", [x, weights])
}

fn regressor(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let targets = usize::try_from(c.int_or("targets", 1)?).map_err(|_| "its number of targets is negative")?;
    let scores = products(c, targets)?;
    Transform::read(c)?.of(c, scores)
}

/// Imports `LinearClassifier`. Returns the class of each row, chosen by the scores before the transform, and the
/// transformed scores.
fn classifier(c: &mut NodeCall<'_, '_>) -> Outputs {
    let classes = Classes::read(c, "classlabels_ints")?;
    let targets = c.floats("intercepts")?.map_or(classes.count(), |intercepts| intercepts.len());
    let (scores, transform) = (products(c, targets)?, Transform::read(c)?);
    if targets != 1 {
        if targets > classes.count() {
            return Err(format!("it has {targets} targets, but only {} classes", classes.count()).into());
        }
        let place = winner(c, scores)?;
        return Ok(vec![classes.label(c, place)?, transform.of(c, scores)?]);
    }
    if classes.count() != 2 {
        return Err(format!("it has one target, which needs two classes, but has {} classes", classes.count()).into());
    }
    if transform == Transform::Probit {
        return Err(
            "PROBIT with one score for two classes is not supported, because ONNX Runtime returns a single score"
                .into(),
        );
    }
    let rows = c.shape(scores)[0].clone();
    let wins = c.with("gt", scores, 0.0)?;
    let place = c.cast(wins, DType::I64)?;
    let place = c.reshape(place, &[rows])?;
    let both = if transform == Transform::Logistic { opposites(c, scores, transform)? } else { complement(c, scores)? };
    Ok(vec![classes.label(c, place)?, both])
}
