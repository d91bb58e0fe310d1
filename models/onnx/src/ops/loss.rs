//! Loss functions of classifiers.

use eutectic_ir::{DType, NodeId, ops::Ids};

use super::{
    super::call::{NodeCall, NodeResult},
    ids,
    index::elements_at,
    row::{OpRow, Outputs, many, one},
};

pub(super) const OPS: &[OpRow] = &[
    one("NegativeLogLikelihoodLoss", 12, |c| {
        let x = c.input(0)?;
        negative_log_likelihood(c, x)
    }),
    many("SoftmaxCrossEntropyLoss", 12, cross_entropy),
];

/// Imports `SoftmaxCrossEntropyLoss`. Returns the loss, and the logarithms of the probabilities.
fn cross_entropy(c: &mut NodeCall<'_, '_>) -> Outputs {
    let scores = c.input(0)?;
    c.axis(1, c.rank(scores))?;
    let logarithms = c.op("log-softmax", &[scores], &[("axis", 1.into())])?;
    Ok(vec![negative_log_likelihood(c, logarithms)?, logarithms])
}

/// Computes the loss −w[t] · x[n t ..] of each place, where t is its class and x [N C ..] has logarithms of
/// probabilities. The loss is 0 at places of the ignored class. The mean over places is weighted by w.
fn negative_log_likelihood(c: &mut NodeCall<'_, '_>, x: NodeId) -> NodeResult {
    let (classes, weights) = (c.input(1)?, c.optional(2));
    let (dims, places) = (c.dims(x), c.dims(classes));
    let batch = dims.first().copied().unwrap_or(0);
    if dims.len() < 2 || places != [&[batch], &dims[2..]].concat() {
        return Err(format!(
            "its classes have extents {places:?} and its scores {dims:?}; scores must be [N C ..] and classes [N ..]"
        )
        .into());
    }
    let count = dims[1];
    let ignored = match c.int("ignore_index")? {
        Some(class) => Some(c.with("eq", classes, class)?),
        None => None,
    };
    let zero = c.number_of(0, c.dtype(classes))?;
    let counted = match ignored {
        Some(ignored) => c.apply("where", [ignored, zero, classes])?,
        None => classes,
    };
    let counted = c.cast(counted, DType::I64)?;
    let counted = ids::checked(c, counted, Ids { extent: count as i64, from_end: false })?;
    // The axis of classes moves to the end.
    let order: Vec<usize> = (0..dims.len()).filter(|&axis| axis != 1).chain([1]).collect();
    let rows = c.transpose(x, &order)?;
    let at = c.reshape(counted, &[&places[..], &[1]].concat())?;
    let picked = elements_at(c, rows, at, places.len())?;
    let picked = c.reshape(picked, &places)?;
    let mut losses = c.apply("neg", [picked])?;
    let zero = c.number(0, losses)?;
    let mut weight = None;
    if let Some(weights) = weights {
        let own = c.op("gather", &[weights, counted], &[("axis", 0.into())])?;
        losses = c.apply("mul", [losses, own])?;
        weight = Some(own);
    }
    if let Some(ignored) = ignored {
        losses = c.apply("where", [ignored, zero, losses])?;
        let own = match weight {
            Some(own) => own,
            None => c.number(1, losses)?,
        };
        weight = Some(c.apply("where", [ignored, zero, own])?);
    }
    let all: Vec<usize> = (0..places.len()).collect();
    let total = |c: &mut NodeCall<'_, '_>, op: &str, x: NodeId| {
        let total = c.reduce(op, x, &all)?;
        c.scalar(total)
    };
    match (c.word("reduction")?.unwrap_or("mean"), weight) {
        ("none", _) => Ok(losses),
        ("sum", _) => total(c, "reduce-sum", losses),
        ("mean", None) => total(c, "reduce-mean", losses),
        ("mean", Some(weight)) => {
            let (losses, weight) = (total(c, "reduce-sum", losses)?, total(c, "reduce-sum", weight)?);
            c.apply("div", [losses, weight])
        }
        (other, _) => Err(format!("its reduction is `{other}`; it must be none, sum or mean").into()),
    }
}
