//! Tree ensembles: classifiers, regressors, and the op `TreeEnsemble` that replaces both in version 5 of the domain.

use std::{collections::BTreeSet, iter::repeat};

use eutectic_ir::{DType, NodeId, Tensor};

use super::{
    ensemble::{AGGREGATES, Aggregate, Scored, either, listed, numbered},
    rows::Rows,
    scores::{Classes, Transform, complement, opposites, winner},
};
use crate::{
    call::{NodeCall, NodeResult},
    error::NodeError,
    ops::row::{OpRow, Outputs, many, one},
};

pub(super) const OPS: &[OpRow] = &[
    many("TreeEnsembleClassifier", 1, classifier),
    one("TreeEnsembleRegressor", 1, regressor),
    one("TreeEnsemble", 5, ensemble),
];

/// Imports `TreeEnsembleRegressor`, which returns a score for each target.
fn regressor(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let name = c.word("aggregate_function")?.unwrap_or("SUM");
    let aggregate = AGGREGATES.iter().find(|(known, _)| *known == name).map(|(_, aggregate)| *aggregate);
    let aggregate = aggregate.ok_or_else(|| NodeError(format!("its aggregate_function `{name}` is unknown")))?;
    let targets = usize::try_from(c.int_or("n_targets", 1)?).map_err(|_| "its number of targets is negative")?;
    let base = either(c, "base_values")?;
    let ensemble = listed(c, "target", targets, aggregate)?;
    let rows = Rows::read(c)?;
    let (mut scores, _) = ensemble.scores(c, rows, aggregate)?;
    if base.len() == targets {
        let base = Tensor::from_f64(c.dtype(scores), &[targets], base);
        let base = c.weights("base", base)?;
        scores = c.apply("add", [scores, base])?;
    }
    let scores = Transform::read(c)?.of(c, scores)?;
    c.cast(scores, DType::F32)
}

/// Imports `TreeEnsemble`, which returns a score for each target.
fn ensemble(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let (ensemble, aggregate) = numbered(c)?;
    let rows = Rows::read(c)?;
    let (scores, _) = ensemble.scores(c, rows, aggregate)?;
    Transform::numbered(c)?.of(c, scores)
}

/// Imports `TreeEnsembleClassifier`, which returns the class of each row and the scores of all classes.
fn classifier(c: &mut NodeCall<'_, '_>) -> Outputs {
    let classes = Classes::read(c, "classlabels_int64s")?;
    let (base, transform) = (either(c, "base_values")?, Transform::read(c)?);
    let ensemble = listed(c, "class", classes.count(), Aggregate::Sum)?;
    let votes = Votes {
        alone: c.ints("class_ids")?.unwrap_or_default().into_iter().collect::<BTreeSet<_>>().len() == 1,
        positive: either(c, "class_weights")?.iter().all(|weight| *weight >= 0.0),
        transform,
    };
    let rows = Rows::read(c)?;
    let (scores, scored) = ensemble.scores(c, rows, Aggregate::Sum)?;
    let (place, scores) = match classes.count() {
        0 | 1 => return Err("it has fewer than two classes".into()),
        2 => votes.of_two(c, scores, &scored, &base)?,
        _ => of_many(c, scores, &scored, &base, transform)?,
    };
    // With two classes that both have weights, the label is the index of the class, as in ONNX Runtime.
    let label = match &classes {
        Classes::Numbers(_) if classes.count() == 2 && !votes.alone => place,
        _ => classes.label(c, place)?,
    };
    Ok(vec![label, c.cast(scores, DType::F32)?])
}

/// Returns the index of the winning class, and the scores of three or more classes. A class without a weight cannot
/// win.
fn of_many(
    c: &mut NodeCall<'_, '_>,
    scores: NodeId,
    scored: &[Scored],
    base: &[f64],
    transform: Transform,
) -> Result<(NodeId, NodeId), NodeError> {
    let mut scores = scores;
    let count = c.extent(scores, 1);
    if !base.is_empty() {
        if base.len() > count {
            return Err(format!("it has {} base values for {count} classes", base.len()).into());
        }
        let base = base.iter().copied().chain(repeat(0.0)).take(count);
        let base = Tensor::from_f64(c.dtype(scores), &[count], base);
        let base = c.weights("base", base)?;
        scores = c.apply("add", [scores, base])?;
    }
    let lowest = c.number(f64::NEG_INFINITY, scores)?;
    let mut candidates = Vec::new();
    for (at, scored) in scored.iter().enumerate() {
        let own = c.slice(scores, 1, at, 1)?;
        candidates.push(match scored {
            _ if at < base.len() => own,
            Scored::Always => own,
            Scored::Never => c.expand(lowest, &c.shape(own))?,
            Scored::Where(there) => c.apply("where", [*there, own, lowest])?,
        });
    }
    let all = scored.iter().enumerate().all(|(at, scored)| at < base.len() || matches!(scored, Scored::Always));
    let compared = if all { scores } else { c.concat(&candidates, 1)? };
    Ok((winner(c, compared)?, transform.of(c, scores)?))
}

/// The facts that decide between two classes, by ONNX Runtime's rules.
struct Votes {
    /// Whether all weights belong to one class.
    alone: bool,
    /// Whether no weight is negative.
    positive: bool,
    transform: Transform,
}

impl Votes {
    /// Returns the index of the winning class, and the scores of both classes.
    fn of_two(
        &self,
        c: &mut NodeCall<'_, '_>,
        scores: NodeId,
        scored: &[Scored],
        base: &[f64],
    ) -> Result<(NodeId, NodeId), NodeError> {
        let (first, second) = (c.slice(scores, 1, 0, 1)?, c.slice(scores, 1, 1, 1)?);
        let [of_first, of_second] = scored else {
            return Err("it does not have a score for each of its two classes".into());
        };
        let both = match of_second {
            Scored::Always => true,
            Scored::Never => false,
            Scored::Where(_) => {
                return Err(
                    "its second class has weights for some rows only, which is not supported with two classes".into()
                );
            }
        };
        // The second base value is added to the first score, as in ONNX Runtime.
        let (first, second) = match *base {
            [_, b] if both => {
                let score = c.with("add", first, b)?;
                (c.apply("neg", [score])?, score)
            }
            [a] | [a, _] => (c.with("add", first, a)?, second),
            _ => (first, second),
        };
        // A class without weights has a score of 0.
        let zero = c.number(0.0, first)?;
        let written = match of_first {
            Scored::Always => first,
            Scored::Never => c.expand(zero, &c.shape(first))?,
            Scored::Where(there) => c.apply("where", [*there, first, zero])?,
        };
        let decides = if both { second } else { written };
        let alone = !both && base.len() < 2;
        let limit = if self.alone && self.positive { 0.5 } else { 0.0 };
        let wins = c.with("gt", decides, limit)?;
        let rows = c.shape(wins)[0].clone();
        let place = c.cast(wins, DType::I64)?;
        let place = c.reshape(place, &[rows])?;
        let scores = if alone {
            self.completed(c, written)?
        } else {
            let both = c.concat(&[written, second], 1)?;
            self.transform.of(c, both)?
        };
        Ok((place, scores))
    }

    /// Computes the scores of both classes from a single score.
    fn completed(&self, c: &mut NodeCall<'_, '_>, score: NodeId) -> NodeResult {
        match self.transform {
            Transform::Probit => Err(
                "PROBIT with one score for two classes is not supported, because ONNX Runtime returns a single score"
                    .into(),
            ),
            Transform::Logistic => opposites(c, score, Transform::Logistic),
            _ if self.positive => complement(c, score),
            transform => opposites(c, score, transform),
        }
    }
}
