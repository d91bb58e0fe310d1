//! Operands whose matrices integers select at run time, such as the weights of a token's experts. The matrices are read
//! in place.

use eutectic_backend::{Instr, Load, ValueId, reach::AxisSet};
use eutectic_ir::index::{Atom, Index};

/// A load from one of several matrices. An integer, which is constant over the matrix, selects it.
#[derive(Clone, Debug)]
pub struct ChosenMatrix<'a> {
    /// The load of an element of the selected matrix.
    pub load: &'a Load,
    /// The affine index of an element in the first matrix.
    pub at: Index,
    /// The value that selects a matrix: an integer below `count`.
    pub number: ValueId,
    /// The number of matrices.
    pub count: i64,
    /// Elements from a matrix to the next.
    pub matrix_stride: i64,
}

impl<'a> ChosenMatrix<'a> {
    /// Returns the load of a selected matrix that computes `result`; `None` if another instruction does. `masks` are
    /// the axes on which each instruction depends. Each point of the first `batch` axes selects one matrix.
    pub fn of(instrs: &'a [Instr], result: ValueId, masks: &[AxisSet], batch: usize) -> Option<ChosenMatrix<'a>> {
        let Instr::Load(load) = instrs.get(result)? else { return None };
        let mut numbers = load.at.terms.iter().filter_map(|(atom, factor)| match atom {
            Atom::Value(number) => Some((*number, *factor)),
            _ => None,
        });
        let (Some((number, matrix_stride)), None) = (numbers.next(), numbers.next()) else { return None };
        let Instr::Within { extent, guards, .. } = instrs.get(number)? else { return None };
        let count = extent.known().filter(|&count| count > 0)?;
        let mut at = load.at.clone();
        at.terms.retain(|(atom, _)| !matches!(atom, Atom::Value(_)));
        let affine = at.terms.iter().all(|(atom, _)| matches!(atom, Atom::Coord(_)));
        let of_batch = masks.get(number)? >> batch == 0;
        (affine && of_batch && matrix_stride > 0 && guards.is_empty() && load.guards.is_empty())
            .then_some(ChosenMatrix { load, at, number, count, matrix_stride })
    }
}
