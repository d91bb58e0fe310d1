//! Finds the passes over a row that the operations of a row group need. A value that depends on the result of a
//! reduction of the row needs another pass, unless the row stays in fast memory. Operations with a result per element
//! need no further pass.

use std::ops::Range;

use eutectic_ir::index::Index;

use crate::body::Instr;

/// The dependencies of a row group's values, in single-assignment order. Backends build them from a body or from their
/// own form of one.
#[derive(Clone, Debug, Default)]
pub struct RowValues {
    /// For each value, the values that it is computed from.
    pub args: Vec<Vec<usize>>,
    /// For each value, whether it is the result of a row operation with one result per row. It is known only after a
    /// pass over the row.
    pub ends_pass: Vec<bool>,
}

impl RowValues {
    /// Returns the row values of a body's instructions.
    pub fn of(instrs: &[Instr]) -> RowValues {
        RowValues {
            args: instrs.iter().map(Instr::args).collect(),
            ends_pass: instrs.iter().map(Instr::is_per_row).collect(),
        }
    }

    /// Returns, for each value, its level: the length of the longest chain of reductions up to it, itself included.
    pub fn levels(&self) -> Vec<usize> {
        let mut levels = Vec::with_capacity(self.args.len());
        for (args, &ends) in self.args.iter().zip(&self.ends_pass) {
            let below = args.iter().map(|&arg| levels[arg]).max().unwrap_or(0);
            levels.push(below + usize::from(ends));
        }
        levels
    }

    /// Returns the values that each pass over a row computes, in order, if rows do not stay in fast memory. There is
    /// one pass per level of reductions. It recomputes the values that the reductions of the level need. The last pass
    /// computes the values that are `stored` per element.
    pub fn passes(&self, stored: impl Iterator<Item = usize>) -> Vec<Vec<usize>> {
        let levels = self.levels();
        let count = levels.len();
        let last = (0..count).filter(|&id| self.ends_pass[id]).map(|id| levels[id]).max().unwrap_or(0);
        let closure = |roots: Vec<usize>| {
            let mut wanted = vec![false; count];
            roots.iter().for_each(|&root| wanted[root] = true);
            for id in (0..count).rev() {
                if wanted[id] && (!self.ends_pass[id] || roots.contains(&id)) {
                    // Results of earlier reductions are known and not recomputed.
                    self.args[id].iter().filter(|&&arg| !self.ends_pass[arg]).for_each(|&arg| wanted[arg] = true);
                }
            }
            (0..count).filter(|&id| wanted[id]).collect::<Vec<_>>()
        };
        let of_level = |level: usize| (0..count).filter(|&id| self.ends_pass[id] && levels[id] == level).collect();
        let stored = stored.filter(|&value| !self.ends_pass[value]).collect();
        (1..=last).map(|level| closure(of_level(level))).chain([closure(stored)]).collect()
    }
}

/// Returns, for each value, whether it differs along a row. `row` has the axes of a row.
pub fn varying(instrs: &[Instr], row: Range<usize>) -> Vec<bool> {
    instrs.iter().fold(Vec::with_capacity(instrs.len()), |mut varying, instr| {
        let is_along = |map: &Index| row.clone().any(|axis| map.mentions(axis));
        let own = instr.maps().into_iter().any(is_along)
            || instr.args().into_iter().any(|arg| varying[arg])
            || instr.row().is_some();
        varying.push(own && !instr.is_per_row());
        varying
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_softmax_takes_three_passes_and_loads_in_each() {
        // The values of a softmax: x, max, x − max, exp, sum and quotient.
        let args = vec![vec![], vec![0], vec![0, 1], vec![2], vec![3], vec![3, 4]];
        let ends_pass = [false, true, false, false, true, false].to_vec();
        let values = RowValues { args, ends_pass };
        assert_eq!(values.levels(), [0, 1, 1, 1, 2, 2]);
        assert_eq!(values.passes([5].into_iter()), [vec![0, 1], vec![0, 2, 3, 4], vec![0, 2, 3, 5]]);
    }

    #[test]
    fn independent_reductions_share_a_pass_and_a_stored_one_needs_none() {
        // The values x, its sum, and its product along the row. The sum is stored.
        let values = RowValues { args: vec![vec![], vec![0], vec![0]], ends_pass: vec![false, true, true] };
        assert_eq!(values.passes([1].into_iter()), [vec![0, 1, 2], vec![]]);
    }
}
