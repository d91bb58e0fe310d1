//! Counts the reads of operands that are not strided matrices, such as windows of an image. Each read computes its
//! address, and takes a few neighbours at most.

use eutectic_backend::{Body, Instr, axes::is_load_of_matrix};
use eutectic_ir::{
    DType,
    index::{Atom, Index},
};

use crate::sectors::points;

/// The maximal number of bytes that are read at once.
const TOGETHER: usize = 16;

/// Returns the number of reads that evaluate all elements of an operand once; 0 for a strided matrix. Axes from `inner`
/// on are the operand's second group: the depth of a left operand, the columns of a right one. One read takes
/// neighbours along the last axis of either group.
pub fn reads(body: &Body, inner: usize, slots: &[(DType, usize)]) -> f64 {
    let of = |instr: &Instr| match instr {
        Instr::Load(load) if !is_load_of_matrix(load, &body.domain, slots) => {
            let most = TOGETHER / slots[load.slot].0.size();
            let last = [inner, body.domain.len()].into_iter().filter_map(|end| end.checked_sub(1));
            let lanes = last.map(|axis| neighbours(&load.at, axis, body.domain[axis], most)).max();
            points(&body.domain) / lanes.unwrap_or(1) as f64
        }
        _ => 0.0,
    };
    body.instrs.iter().map(of).sum()
}

/// Returns how many points along an axis one read can take. They are contiguous in memory, and the first address is a
/// multiple of their number.
fn neighbours(at: &Index, axis: usize, extent: usize, most: usize) -> usize {
    let is_step = |(atom, step): &&(Atom, i64)| *atom == Atom::Coord(axis) && *step == 1;
    let is_other = |term: &&(Atom, i64)| !is_step(term);
    let mentions = |(atom, _): &(Atom, i64)| Index::atom(atom.clone()).mentions(axis);
    if !at.terms.iter().any(|term| is_step(&term)) || at.terms.iter().filter(is_other).any(mentions) {
        return 1;
    }
    let divides = |lanes: &usize| {
        let by = *lanes as i64;
        let steps = at.terms.iter().filter(is_other).all(|(_, step)| step % by == 0);
        extent.is_multiple_of(*lanes) && at.constant % by == 0 && steps
    };
    let halves = std::iter::successors(Some(most.max(1)), |lanes| Some(lanes / 2));
    halves.take_while(|&lanes| lanes > 1).find(divides).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use eutectic_backend::Load;

    use super::*;

    #[test]
    fn neighbours_are_read_together_where_they_are_aligned() {
        let [row, tap, channel] = [0, 1, 2].map(Index::coord);
        // The operand is windows of two rows of an image with 16 rows, whose channels come last.
        let of = |channels: i64, before: i64| {
            let line = row.plus(&tap).plus(&Index::constant(-before)).times(channels);
            let guards = vec![(row.plus(&tap).plus(&Index::constant(-before)), 0..16)];
            let load = Load { slot: 0, at: line.plus(&channel), guards, dtype: DType::F16 };
            let domain = vec![16, 2, channels as usize];
            let body = Body { domain, instrs: vec![Instr::Load(load)], results: vec![0], ..Body::default() };
            reads(&body, 1, &[(DType::F16, 16 * channels as usize)])
        };
        assert_eq!(of(64, 1), (16 * 2 * 64 / 8) as f64);
        assert_eq!(of(12, 1), (16 * 2 * 12 / 4) as f64);
        assert_eq!(of(3, 1), (16 * 2 * 3) as f64);
        let matrix = Load { slot: 0, at: row.times(3).plus(&channel), guards: Vec::new(), dtype: DType::F16 };
        let body =
            Body { domain: vec![16, 1, 3], instrs: vec![Instr::Load(matrix)], results: vec![0], ..Body::default() };
        assert_eq!(reads(&body, 1, &[(DType::F16, 48)]), 0.0);
    }
}
