//! Ids: integers that select elements of an axis, and the error for an integer out of range.

use std::{fmt, ops::Range};

use super::{
    AttrKind::*,
    Class, Default, OpDef, attr, attr_or,
    eval::{Element, elements},
    op,
};
use crate::Attr;

pub(super) const OPS: &[OpDef] = &[OpDef {
    attrs: &[attr("extent", Int), attr_or("from-end", Bool, Default::Bool(true))],
    ids: Some(of_attrs),
    ..op(
        "checked-id",
        "x, which must be an index of an axis of `extent`: 0 ≤ x < extent. With `from-end`, x + extent if −extent ≤ x < 0. \
         Any other element is an error that names it, so the ids of several axes can be combined into one number after this op.",
        Class::Pointwise,
        "(I int) I[A..] -> I[A..] (at-most 0 extent)",
        elements!(|x, attrs, _| Element::Int(x[0].int().map(|id| of_attrs(attrs).place(id).unwrap_or(id)))),
    )
}];

/// The integers that select elements of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ids {
    /// The extent of the axis.
    pub extent: i64,
    /// Whether negative ids count from the end.
    pub from_end: bool,
}

impl Ids {
    /// Returns the legal ids.
    pub fn range(self) -> Range<i64> {
        (if self.from_end { -self.extent } else { 0 })..self.extent
    }

    /// Returns the index of the element that an id selects; `None` if the id is out of range.
    pub fn place(self, id: i64) -> Option<i64> {
        let at = if self.from_end && id < 0 { id.wrapping_add(self.extent) } else { id };
        (0..self.extent).contains(&at).then_some(at)
    }
}

fn of_attrs(attrs: &[Attr]) -> Ids {
    let extent = attrs[0].int().expect("the op table declares an integer").max(0);
    Ids { extent, from_end: attrs[1].bool().expect("the op table declares a truth value") }
}

/// An id that is out of range, before any conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// The id.
    pub id: i64,
    /// The legal ids.
    pub ids: Ids,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutOfRange { id, ids } = self;
        write!(f, "id {id} is out of range for an axis of {}", ids.extent)?;
        match ids.range() {
            none if none.is_empty() => write!(f, ", which has no ids"),
            Range { start, end } => write!(f, "; ids must be in {start}..{end}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_in_range_or_it_is_reported_as_given() {
        let ids = Ids { extent: 3, from_end: true };
        let places: Vec<_> = [0, 2, -1, -3].into_iter().map(|id| ids.place(id)).collect();
        assert_eq!(places, [Some(0), Some(2), Some(2), Some(0)]);
        for id in [3, -4, i64::MAX, i64::MIN, 1 << 32] {
            assert_eq!(ids.place(id), None, "{id}");
        }
        assert_eq!(Ids { extent: 3, from_end: false }.place(-1), None);
        assert_eq!(Ids { extent: 0, from_end: true }.place(0), None);
        let said = OutOfRange { id: -5, ids }.to_string();
        assert_eq!(said, "id -5 is out of range for an axis of 3; ids must be in -3..3");
        let said = OutOfRange { id: 0, ids: Ids { extent: 0, from_end: false } }.to_string();
        assert_eq!(said, "id 0 is out of range for an axis of 0, which has no ids");
    }
}
