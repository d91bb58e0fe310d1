//! Unrolls row groups of short rows. A sum over the nine elements of a window becomes eight additions, which are
//! vectorized along the axis that is contiguous in memory.

use eutectic_ir::{Attrs, index::Index};

use crate::{
    anchors::AnchorKernel,
    body::{Body, Instr, ValueId},
    kernel::Kernel,
};

/// The maximal number of elements of an unrolled row. Unrolling windows of 5 × 5 elements divides the time by five.
const LONGEST: usize = 32;
/// The maximal number of instructions of an unrolled kernel.
const INSTRUCTIONS: usize = 256;

/// Returns a row group of short rows as a kernel without rows, in normal form. Returns `None` unless all row operations
/// are reductions, no store is per element of a row, and rows are not contiguous in memory. Vector loads along the row
/// reduce contiguous rows faster.
pub fn unrolled(kernel: &Kernel) -> Option<Kernel> {
    let axes = kernel.row_axes()?;
    let domain = &kernel.body.domain;
    let outer = domain.len().checked_sub(axes)?;
    let count: usize = domain[outer..].iter().product();
    let along_row = |map: &Index| (outer..domain.len()).any(|axis| map.mentions(axis));
    let stays = |instr: &Instr| match instr {
        Instr::Load(load) => load.at.affine(domain.len()).is_none_or(|strides| strides.last() == Some(&1)),
        // A row operation that is not a reduction is no sequence of binary ops.
        Instr::Row { .. } => instr.reduction().is_none(),
        _ => false,
    };
    if !(1..=LONGEST).contains(&count)
        || kernel.stores.iter().any(|s| s.maps().any(along_row) || s.values().len() > 1)
        || kernel.body.instrs.iter().any(stays)
    {
        return None;
    }
    let mut body = Body { domain: domain[..outer].to_vec(), ..Body::default() };
    // For each instruction, the number of its copy for each element of the row; one copy if it is constant along the
    // row.
    let mut places: Vec<Vec<ValueId>> = Vec::with_capacity(kernel.body.instrs.len());
    for instr in &kernel.body.instrs {
        let mut of_instr = Vec::new();
        if let Some((how, arg)) = instr.reduction() {
            let mut sum = places[arg][0];
            for r in 1..count {
                let args = vec![sum, at(&places[arg], r)];
                body.instrs.push(Instr::Map { op: how.op(), attrs: Attrs::default(), args, dtype: instr.dtype() });
                sum = body.instrs.len() - 1;
            }
            of_instr.push(sum);
        } else {
            let varies = instr.maps().into_iter().any(along_row) || instr.args().iter().any(|&a| places[a].len() > 1);
            for r in 0..if varies { count } else { 1 } {
                body.instrs.push(element(instr, r, &domain[outer..], &body.domain, &places));
                of_instr.push(body.instrs.len() - 1);
            }
        }
        places.push(of_instr);
    }
    let mut stores = kernel.stores.clone();
    stores.iter_mut().for_each(|s| s.value = places[s.value][0]);
    let fits = body.instrs.len() <= INSTRUCTIONS;
    fits.then(|| {
        let mut map = Kernel { anchor: AnchorKernel::map(), body, stores, slots: kernel.slots.clone() };
        map.normalise();
        map
    })
}

fn at(places: &[ValueId], r: usize) -> ValueId {
    places[r.min(places.len() - 1)]
}

/// Returns the copy of an instruction for element `r` of a row. `row` and `outer` are the extents of the row's axes and
/// of the axes before them; `places` has the copies of earlier instructions.
fn element(instr: &Instr, r: usize, row: &[usize], outer: &[usize], places: &[Vec<ValueId>]) -> Instr {
    let mut coords: Vec<Index> = (0..outer.len()).map(Index::coord).collect();
    let mut rest = r;
    for &extent in row.iter().rev() {
        coords.insert(outer.len(), Index::constant((rest % extent) as i64));
        rest /= extent;
    }
    let mut new = instr.clone();
    new.substitute(&coords, &|v| at(&places[v], r), outer);
    new
}

#[cfg(test)]
mod tests {
    use eutectic_ir::{DType, ops::Reduction};

    use super::*;
    use crate::body::{Load, Store};

    /// Returns a max pool with square windows over an image of 20 × 20 × 128.
    fn pool(window: usize) -> Kernel {
        let outer = 21 - window;
        let strides = [2560, 1, 2560, 128].into_iter().enumerate();
        let at = strides.fold(Index::default(), |at, (axis, stride)| at.plus(&Index::coord(axis).times(stride)));
        let load = Instr::Load(Load { slot: 0, at, guards: Vec::new(), dtype: DType::F32 });
        let reduce = Instr::reduce(Reduction::Max, 0, DType::F32);
        let domain = vec![outer, outer * 128, window, window];
        let at = Index::coord(0).times(outer as i64 * 128).plus(&Index::coord(1));
        Kernel {
            anchor: AnchorKernel::rows(2),
            body: Body { domain, instrs: vec![load, reduce], ..Body::default() },
            stores: vec![Store::new(1, at, 1)],
            slots: vec![(DType::F32, 20 * 20 * 128), (DType::F32, outer * outer * 128)],
        }
    }

    #[test]
    fn windows_are_written_out_if_they_are_not_large() {
        let of = |window| unrolled(&pool(window)).map(|kernel| kernel.body.instrs.len());
        assert_eq!([3, 5, 6].map(of), [Some(9 + 8), Some(25 + 24), None]);
    }
}
