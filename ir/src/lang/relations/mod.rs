//! The table of relations: how each checks, computes and chooses its arguments.

mod attributes;
mod axes;
mod shapes;
mod views;
mod windows;

use super::{
    relation::{Relation, RelationArg},
    sample::{Sampler, told},
    typing::{Bindings, Bound, Status, VarId},
};
use crate::{Attr, Dim, Shape};

/// The families of relations.
pub(super) const FAMILIES: &[&[Relation]] =
    &[shapes::RELATIONS, views::RELATIONS, windows::RELATIONS, axes::RELATIONS, attributes::RELATIONS];

/// Returns the NumPy broadcast of two shapes.
///
/// # Errors
/// The dimensions that do not broadcast.
pub fn broadcast(a: &Shape, b: &Shape) -> Result<Shape, String> {
    let rank = a.rank().max(b.rank());
    let one = Dim::Known(1);
    let from_end = |s: &Shape, i: usize| if i < s.rank() { s[s.rank() - 1 - i].clone() } else { Dim::Known(1) };
    (0..rank)
        .rev()
        .map(|i| match (from_end(a, i), from_end(b, i)) {
            (x, y) if x == y || y == one => Ok(x),
            (x, y) if x == one => Ok(y),
            (x, y) => Err(format!("{a} and {b} do not broadcast because {x} and {y} differ and neither is 1")),
        })
        .collect::<Result<Vec<Dim>, _>>()
        .map(|dims| dims.into_iter().collect())
}

fn bind(slot: VarId, value: Bound, bindings: &mut Bindings) -> Result<Status, String> {
    bindings.bind(slot, value).map(|()| Status::Done).map_err(told)
}

/// The maximal rank of sampled shapes whose axes a rule's text names.
const MOST_AXES: i64 = 16;

/// Returns the smallest rank, at least 1, whose axes include the given ones. Fails if a number in a rule's text is
/// not an axis.
fn axes_for(given: impl IntoIterator<Item = i64>) -> Result<usize, String> {
    given.into_iter().try_fold(1, |rank, axis| match (-MOST_AXES..0).contains(&axis) {
        true => Ok(rank.max(axis.unsigned_abs() as usize)),
        false => Err(format!("{axis} is not an axis from -{MOST_AXES} to -1, counted from the end")),
    })
}

/// Returns the axis that an attribute names. Chooses an axis of the shape if the attribute is not bound.
fn axis_of(arg: &RelationArg, shape: &Shape, sampler: &mut Sampler<'_>) -> Result<i64, String> {
    if let Some(axis) = arg.attr(&sampler.bindings).and_then(Attr::int) {
        return Ok(axis);
    }
    let axis = sampler.axis(shape.rank());
    sampler.set_int(arg, axis)?;
    Ok(axis)
}
