//! Matrices that are chosen by numbers which are known only when a kernel runs, such as the weights of a token's experts: read in place.

use eutectic_backend::{Instr, Load, ValueId, reach::AxisSet};
use eutectic_ir::index::{Atom, Index};

/// A load from one of several matrices: which one, a number says that is the same for all of the matrix.
#[derive(Clone, Debug)]
pub struct ChosenMatrix<'a> {
    /// The load.
    pub load: &'a Load,
    /// Where elements of the first matrix lie: by strides.
    pub at: Index,
    /// The number, below `count`.
    pub number: ValueId,
    /// How many matrices there are.
    pub count: i64,
    /// Elements from a matrix to the next.
    pub apart: i64,
}

impl<'a> ChosenMatrix<'a> {
    /// Of instructions that give such a load; `masks` are the axes on which each depends, and the first `batch` axes are those along
    /// which there are separate matrices.
    pub fn of(instrs: &'a [Instr], result: ValueId, masks: &[AxisSet], batch: usize) -> Option<ChosenMatrix<'a>> {
        let Instr::Load(load) = instrs.get(result)? else { return None };
        let mut numbers = load.at.terms.iter().filter_map(|(atom, factor)| match atom {
            Atom::Value(number) => Some((*number, *factor)),
            _ => None,
        });
        let (Some((number, apart)), None) = (numbers.next(), numbers.next()) else { return None };
        let Instr::Within { extent, guards, .. } = instrs.get(number)? else { return None };
        let count = extent.known().filter(|&count| count > 0)?;
        let mut at = load.at.clone();
        at.terms.retain(|(atom, _)| !matches!(atom, Atom::Value(_)));
        let affine = at.terms.iter().all(|(atom, _)| matches!(atom, Atom::Coord(_)));
        let of_batch = masks.get(number)? >> batch == 0;
        (affine && of_batch && apart > 0 && guards.is_empty() && load.guards.is_empty()).then_some(ChosenMatrix {
            load,
            at,
            number,
            count,
            apart,
        })
    }
}
