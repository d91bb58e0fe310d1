//! Draws values on which the left side of a rule can be evaluated.

use std::collections::BTreeMap;

use eutectic::Tensor;
use eutectic_ir::InterpError;
use eutectic_rewrites::Sides;

use crate::{
    evaluate::evaluated,
    values::{self, Extents, Manner, Values},
};

/// Draws values on which the left side can be evaluated: indices are within the extent that they index.
pub fn fitting(sides: &Sides, manner: Manner<'_>, random: &mut fastrand::Rng) -> Values {
    let any = values::draw(&sides.written, manner, &Extents::default(), random);
    let mut extents = Extents { of: ids(sides, &any), all: None };
    let mut values = if extents.of.is_empty() { any } else { values::draw(&sides.written, manner, &extents, random) };
    while let Some(extent) = exceeded(sides, &values) {
        if extents.all.is_some_and(|most| most <= extent) {
            break;
        }
        extents.all = Some(extent);
        values = values::draw(&sides.written, manner, &extents, random);
    }
    values
}

/// Returns the extent that an index of the left side exceeds.
fn exceeded(sides: &Sides, values: &Values) -> Option<usize> {
    match evaluated(&sides.written, values) {
        Err(InterpError::IndexOutOfRange { problem, .. }) => Some(usize::try_from(problem.ids.extent).unwrap_or(0)),
        _ => None,
    }
}

/// Returns the tensors that hold ids, with the extent that each indexes. Without these extents, ids would be small
/// integers, and select only the first few elements.
fn ids(sides: &Sides, values: &Values) -> BTreeMap<String, usize> {
    let is_int = |tensor: &Tensor| tensor.dtype().is_int() && tensor.count() > 0;
    let full = |tensor: &Tensor, n: i64| Tensor::from_i64(tensor.dtype(), tensor.dims(), vec![n; tensor.count()]);
    let integers: Vec<(&String, &Tensor)> = values.iter().filter(|(_, tensor)| is_int(tensor)).collect();
    let mut within = values.clone();
    within.extend(integers.iter().map(|(name, tensor)| ((*name).clone(), full(tensor, 0))));
    let extent = |(name, tensor): (&String, &Tensor)| {
        let mut beyond = within.clone();
        beyond.insert(name.clone(), full(tensor, tensor.dtype().integers().1));
        Some((name.clone(), exceeded(sides, &beyond)?))
    };
    integers.into_iter().filter_map(extent).collect()
}
