//! Row operations in kernels: which instructions are row operations, and how long rows may be.

use eutectic_ir::{
    DType, Op,
    ops::{Reduction, RowOp},
};

use crate::body::{Instr, ValueId};

impl Instr {
    /// Returns an instruction that reduces a row.
    pub fn reduce(how: Reduction, arg: ValueId, dtype: DType) -> Instr {
        let op = how.rows();
        Instr::Row { op, attrs: op.row_attrs(&[(&[-1][..]).into(), true.into()]), args: vec![arg], dtype }
    }

    /// Returns the definition of the row operation; `None` for other instructions.
    pub fn row(&self) -> Option<&'static RowOp> {
        match self {
            Instr::Row { op, .. } => op.row(),
            _ => None,
        }
    }

    /// Returns whether the instruction is a row operation with one value for the whole row.
    pub fn is_per_row(&self) -> bool {
        self.row().is_some_and(RowOp::is_per_row)
    }

    /// Returns the operation and the operand of a reduction; `None` for other instructions.
    pub fn reduction(&self) -> Option<(Reduction, ValueId)> {
        match self {
            Instr::Row { op, args, .. } => Some((op.row()?.reduction()?, *args.first()?)),
            _ => None,
        }
    }
}

/// The maximal number of elements of a row that a device supports, for each row operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLimits {
    reductions: usize,
    others: usize,
    /// The limits of the operations of some families, which take precedence: the family's name, and the limit.
    known: &'static [(&'static str, usize)],
}

impl RowLimits {
    /// Limits that allow all operations, on rows of any length.
    pub const ANY: RowLimits = RowLimits { reductions: usize::MAX, others: usize::MAX, known: &[] };

    /// Limits that allow only reductions, of rows of any length.
    pub const REDUCTIONS: RowLimits = RowLimits { others: 0, ..RowLimits::ANY };

    /// Returns limits that allow reductions of rows of any length, and the operations of these families on rows of at
    /// most the given number of elements.
    pub const fn and(known: &'static [(&'static str, usize)]) -> RowLimits {
        RowLimits { known, ..RowLimits::REDUCTIONS }
    }

    /// Returns the maximal number of elements of a row of an operation.
    pub fn longest(&self, op: Op) -> usize {
        let row = op.row();
        let known = self.known.iter().find(|(family, _)| row.is_some_and(|row| row.family == *family));
        let other = if row.and_then(RowOp::reduction).is_some() { self.reductions } else { self.others };
        known.map_or(other, |(_, longest)| *longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_found_by_family() {
        let limits = RowLimits::and(&[("ranking", 8), ("scan", 9)]);
        let longest = |limits: RowLimits, name| limits.longest(Op::named(name).expect("an op"));
        assert_eq!([limits, RowLimits::REDUCTIONS].map(|limits| longest(limits, "ranking")), [8, 0]);
        assert_eq!(longest(limits, "reduce-sum"), usize::MAX);
        assert_eq!([longest(limits, "scan-sum"), longest(limits, "scan-linear")], [9; 2]);
        assert_eq!(longest(RowLimits::ANY, "ranking"), usize::MAX);
    }

    #[test]
    fn reductions_are_built_as_lowering_builds_them() {
        for how in Reduction::ALL {
            let instr = Instr::reduce(how, 3, DType::F32);
            assert_eq!(instr.reduction(), Some((how, 3)));
            assert!(instr.is_per_row());
        }
    }
}
