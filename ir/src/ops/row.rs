//! Row operations: ops over the elements of rows, which kernels of row groups compute.
//!
//! Analyses, lowering and backends read these facts. So a new row operation needs only a declaration and a function
//! in the kernels of backends.

use super::{Anchor, AttrKind, Class, Op, Reduction};
use crate::{Attr, Attrs, DType, attr::Number};

/// The facts of a row operation.
#[derive(Clone, Copy, Debug)]
pub struct RowOp {
    /// The name of the family in printed plans, where the name of the monoid follows.
    pub family: &'static str,
    /// Whether the operation has one result for a row, or one for each element.
    pub result: RowResult,
    /// The elements of the row that a result depends on.
    pub needs: RowNeeds,
    /// The monoid that combines elements. A scan without one is the linear recurrence of its two operands.
    pub monoid: Option<Reduction>,
    /// Returns the padding element of an operand, for an operation without a monoid. Kernels may append any number of
    /// padding elements to a row, because they change no other element's result.
    pub neutral: fn(usize, DType, &[Attr]) -> Number,
    /// Returns the number of elementary steps for a row of this many elements.
    pub steps: fn(f64, &[Attr]) -> f64,
    /// Returns the attributes as text, for printed plans.
    pub details: fn(&[Attr]) -> String,
}

/// The number of results per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowResult {
    /// One result for each row. It is the value at every element of the row.
    PerRow,
    /// One result for each element.
    PerElement,
}

/// The elements of a row that a result depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowNeeds {
    /// All elements, in any order: kernels combine parts of a row by the monoid.
    AnyOrder,
    /// The elements up to the result's element, in order.
    Prefix,
    /// All elements, in several passes: kernels must keep the row where they can read it again.
    Whole,
}

impl RowOp {
    /// Returns whether a row has one result.
    pub fn is_per_row(&self) -> bool {
        self.result == RowResult::PerRow
    }

    /// Returns the monoid that reduces a row to one result, if elements may be combined in any order.
    pub fn reduction(&self) -> Option<Reduction> {
        self.monoid.filter(|_| self.is_per_row() && self.needs == RowNeeds::AnyOrder)
    }

    /// Returns whether each element has a result that is computed from the elements up to it.
    pub fn is_scan(&self) -> bool {
        !self.is_per_row() && self.needs == RowNeeds::Prefix
    }

    /// Returns the element of an operand that changes no result. Kernels use it for missing elements at the end of a
    /// row.
    pub fn absent(&self, operand: usize, dtype: DType, attrs: &[Attr]) -> Number {
        self.monoid.map_or_else(|| (self.neutral)(operand, dtype, attrs), |how| how.identity(dtype))
    }

    /// Returns the operation's name in printed plans.
    pub fn name(&self) -> String {
        match self.monoid {
            Some(monoid) => format!("{}-{}", self.family, monoid.def().name),
            None if self.is_scan() => format!("{}-linear", self.family),
            None => self.family.into(),
        }
    }
}

impl Op {
    /// Returns the facts of a row operation; `None` for other ops.
    pub fn row(self) -> Option<&'static RowOp> {
        match &self.def().class {
            Class::Anchor(Anchor::Row(row)) => Some(row),
            _ => None,
        }
    }

    /// Returns the attributes for rows along the last axis. A kernel merges all axes of a row into one.
    pub fn row_attrs(self, attrs: &[Attr]) -> Attrs {
        let of_row = |(at, attr): (usize, &Attr)| match self.def().attrs[at].kind {
            AttrKind::Axes => Attr::from(&[-1][..]),
            AttrKind::Axis => (-1).into(),
            AttrKind::Bool if self.attr("keep") == Some(at) => true.into(),
            _ => attr.clone(),
        };
        attrs.iter().enumerate().map(of_row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Type;

    fn rows() -> impl Iterator<Item = (Op, &'static RowOp)> {
        Op::all().filter_map(|op| Some((op, op.row()?)))
    }

    #[test]
    fn results_have_the_extents_that_the_facts_say() {
        assert!(rows().count() > Reduction::ALL.len());
        for (op, row) in rows() {
            let given = op.def().attrs.iter().map(|def| match def.kind {
                AttrKind::Axes => Attr::from(&[-2, -1][..]),
                AttrKind::Bool => false.into(),
                _ => 2.into(),
            });
            let attrs = op.row_attrs(&given.collect::<Attrs>());
            let operands = vec![Type::tensor(DType::F32, &[3, 5]); op.signature().operands.len()];
            let result = op.infer(&attrs, &operands.iter().collect::<Vec<_>>()).unwrap();
            assert_eq!(result.dims().unwrap(), [3, if row.is_per_row() { 1 } else { 5 }], "{op}");
        }
    }

    #[test]
    fn what_combines_in_any_order_says_how() {
        for (op, row) in rows() {
            assert!(row.needs != RowNeeds::AnyOrder || row.monoid.is_some(), "{op} combines nothing");
            assert!((row.steps)(64.0, &[8.into(), true.into()]) >= 64.0, "{op}");
        }
    }
}
