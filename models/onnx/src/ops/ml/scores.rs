//! Transforms of scores, and the choice of the class with the largest score.

use eutectic_ir::{DType, NodeId, Tensor};

use crate::{
    call::{NodeCall, NodeResult},
    error::NodeError,
    ops::index::place_of,
};

/// The transform of a row's scores, `post_transform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Transform {
    None,
    Softmax,
    Logistic,
    SoftmaxZero,
    Probit,
}

/// The names of transforms, in the order of their numbers in `TreeEnsemble`.
const TRANSFORMS: [(&str, Transform); 5] = [
    ("NONE", Transform::None),
    ("SOFTMAX", Transform::Softmax),
    ("LOGISTIC", Transform::Logistic),
    ("SOFTMAX_ZERO", Transform::SoftmaxZero),
    ("PROBIT", Transform::Probit),
];

impl Transform {
    /// Reads the attribute `post_transform` as a string.
    pub fn read(c: &NodeCall<'_, '_>) -> Result<Transform, NodeError> {
        let name = c.word("post_transform")?.unwrap_or("NONE");
        let found = TRANSFORMS.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, transform)| *transform)
            .ok_or_else(|| NodeError(format!("its post_transform `{name}` is unknown")))
    }

    /// Reads the attribute `post_transform` as a number.
    pub fn numbered(c: &NodeCall<'_, '_>) -> Result<Transform, NodeError> {
        let number = c.int_or("post_transform", 0)?;
        let found = usize::try_from(number).ok().and_then(|number| TRANSFORMS.get(number));
        found
            .map(|(_, transform)| *transform)
            .ok_or_else(|| NodeError(format!("its post_transform {number} is unknown")))
    }

    /// Transforms scores [rows n]. A single score is changed by `PROBIT` only, as in ONNX Runtime.
    pub fn of(self, c: &mut NodeCall<'_, '_>, scores: NodeId) -> NodeResult {
        match self {
            Transform::Probit => probit(c, scores),
            _ if c.dims(scores)[1] == 1 => Ok(scores),
            Transform::None => Ok(scores),
            Transform::Softmax => c.op("softmax", &[scores], &[("axis", (-1).into())]),
            Transform::Logistic => c.apply("sigmoid", [scores]),
            Transform::SoftmaxZero => softmax_zero(c, scores),
        }
    }
}

/// Computes √2 · erf⁻¹(2x − 1) by Winitzki's approximation with the constants of ONNX Runtime.
fn probit(c: &mut NodeCall<'_, '_>, x: NodeId) -> NodeResult {
    const A: f64 = 0.147;
    // The term 2 / (π · A) of the approximation. Like ONNX Runtime, it uses 3.14159 for π.
    const SHIFT: f64 = 4.330_751;
    let twice = c.with("mul", x, 2.0)?;
    let y = c.with("sub", twice, 1.0)?;
    let one = c.number(1.0, y)?;
    let (below, above) = (c.apply("sub", [one, y])?, c.apply("add", [one, y])?);
    let product = c.apply("mul", [below, above])?;
    let log = c.apply("log", [product])?;
    let half = c.with("mul", log, 0.5)?;
    let v = c.with("add", half, SHIFT)?;
    let (square, scaled) = (c.apply("mul", [v, v])?, c.with("mul", log, 1.0 / A)?);
    let inner = c.apply("sub", [square, scaled])?;
    let root = c.apply("sqrt", [inner])?;
    let rest = c.apply("sub", [root, v])?;
    let size = c.apply("sqrt", [rest])?;
    let negative = c.with("lt", y, 0.0)?;
    let opposite = c.apply("neg", [size])?;
    let inverse = c.apply("where", [negative, opposite, size])?;
    c.with("mul", inverse, std::f64::consts::SQRT_2)
}

/// Scores of at most this magnitude count as zero in `SOFTMAX_ZERO`.
const COUNTS: f64 = 0.000_000_1;

/// Computes softmax over the scores that are not zero. A score x that counts as zero becomes e⁻ᵐ x / Σ, where m is the
/// largest score and Σ the sum of the powers.
fn softmax_zero(c: &mut NodeCall<'_, '_>, scores: NodeId) -> NodeResult {
    let most = c.reduce("reduce-max", scores, &[1])?;
    let below = c.apply("sub", [scores, most])?;
    let power = c.apply("exp", [below])?;
    let size = c.apply("abs", [scores])?;
    let counts = c.with("gt", size, COUNTS)?;
    let zero = c.number(0.0, scores)?;
    let counted = c.apply("where", [counts, power, zero])?;
    let sum = c.reduce("reduce-sum", counted, &[1])?;
    let opposite = c.apply("neg", [most])?;
    let factor = c.apply("exp", [opposite])?;
    let rest = c.apply("mul", [scores, factor])?;
    let numerator = c.apply("where", [counts, power, rest])?;
    c.apply("div", [numerator, sum])
}

/// The labels of a classifier.
pub(super) enum Classes {
    /// Integers.
    Numbers(Vec<i64>),
    /// The number of labels that are strings. Programs do not have strings.
    Strings(usize),
}

impl Classes {
    /// Reads the labels: integers from the attribute `numbers`, whose name depends on the op, or strings from
    /// `classlabels_strings`.
    pub fn read(c: &NodeCall<'_, '_>, numbers: &str) -> Result<Classes, NodeError> {
        let strings = c.words("classlabels_strings")?.map_or(0, |names| names.len());
        match c.ints(numbers)?.filter(|numbers| !numbers.is_empty()) {
            Some(numbers) => Ok(Classes::Numbers(numbers)),
            None if strings > 0 => Ok(Classes::Strings(strings)),
            None => Err(format!("it has neither `{numbers}` nor `classlabels_strings`").into()),
        }
    }

    /// Returns the number of classes.
    pub fn count(&self) -> usize {
        match self {
            Classes::Numbers(numbers) => numbers.len(),
            Classes::Strings(count) => *count,
        }
    }

    /// Returns the label of each row from the index of its class. If labels are strings, the output is marked as one
    /// that programs cannot represent.
    pub fn label(&self, c: &mut NodeCall<'_, '_>, place: NodeId) -> NodeResult {
        let Classes::Numbers(numbers) = self else {
            let name = c.output_name(0).to_string();
            c.withhold(0, format!("`{name}` has {STRINGS}"));
            return Ok(place);
        };
        let table = Tensor::from_i64(DType::I64, &[numbers.len()], numbers.iter().copied());
        let table = c.weights("labels", table)?;
        c.op("gather", &[table, place], &[("axis", 0.into())])
    }
}

/// The end of the message for labels that are strings, which starts with the output's name.
const STRINGS: &str = "labels that are strings, which programs do not have; leave it out of the outputs, as \
                       onnx.utils.extract_model does, or train the model on numbers";

/// Returns the index of the largest score of each row [rows n]. The first one wins among equal scores.
pub(super) fn winner(c: &mut NodeCall<'_, '_>, scores: NodeId) -> NodeResult {
    let rows = c.shape(scores)[0].clone();
    let place = place_of(c, scores, "reduce-max", 1, false)?;
    c.reshape(place, &[rows])
}

/// Returns the scores 1 − s and s of two classes for a single score s [rows 1].
pub(super) fn complement(c: &mut NodeCall<'_, '_>, score: NodeId) -> NodeResult {
    let one = c.number(1.0, score)?;
    let rest = c.apply("sub", [one, score])?;
    c.concat(&[rest, score], 1)
}

/// Returns the scores −s and s of two classes for a single score s [rows 1], or the logistic function of both.
pub(super) fn opposites(c: &mut NodeCall<'_, '_>, score: NodeId, transform: Transform) -> NodeResult {
    let opposite = c.apply("neg", [score])?;
    let both = c.concat(&[opposite, score], 1)?;
    if transform == Transform::Logistic { c.apply("sigmoid", [both]) } else { Ok(both) }
}
