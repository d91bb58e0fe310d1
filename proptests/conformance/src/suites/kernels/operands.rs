//! Builds operands of products and of attention, in several forms.

use eutectic_backend::Body;
use eutectic_ir::{DType, index::Index};

use crate::kernels::build::{Build, body, constant, map};

/// Returns an operand of one of five kinds: contiguous, transposed, one matrix for all batches, a random layout, or a
/// random layout with scaled elements.
pub(super) fn operand(build: &mut Build, domain: &[usize], dtype: DType, kind: usize) -> Body {
    let mut b = body(domain);
    let mut x = match kind {
        0 => build.dense(&mut b, dtype),
        1 => {
            let rank = domain.len();
            let mut dims = domain.to_vec();
            dims.swap(rank - 1, rank - 2);
            let mut at: Vec<_> = (0..rank).map(Index::coord).collect();
            at.swap(rank - 1, rank - 2);
            let slot = build.input(dtype, domain.iter().product());
            build.load(&mut b, slot, eutectic_ir::index::flatten(&at, &dims))
        }
        2 => {
            // All batches share one matrix.
            let last = &domain[domain.len() - 2..];
            let slot = build.input(dtype, last.iter().product());
            let at = Index::coord(domain.len() - 2).times(last[1] as i64).plus(&Index::coord(domain.len() - 1));
            build.load(&mut b, slot, at)
        }
        _ => build.any(&mut b, dtype),
    };
    if kind > 3 {
        let half = constant(&mut b, 0.5, dtype);
        x = map(&mut b, "mul", &[x, half], dtype);
    }
    b.results = vec![x];
    b
}
