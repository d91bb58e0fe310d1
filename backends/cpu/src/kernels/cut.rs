//! How contractions are cut into tasks.

use super::gemm::{Extents, Plan, Product};
use crate::axes::Nest;

/// Multiplications of a task, where there are so many: some microseconds.
const TASK: usize = 1 << 19;
/// Columns of a task: whole rows, where rows are not longer, because then epilogues read and write in place.
const COLUMNS: usize = 2048;
/// The fewest rows, and panels of columns, into which products are cut for several threads.
const ROWS: usize = 32;
const PANELS: usize = 3;
/// Panels of the narrowest tile that is as high as the product.
const NARROW: usize = 4;
/// Tasks of each thread, if there are several: the last one to finish is waited for.
const SHARE: usize = 2;

/// Where the right operand is the same for all batches and everything else reads as one longer matrix, the innermost batch
/// axis becomes rows.
pub fn batch_into_rows(nests: &mut [Nest; 3], batch: usize) -> usize {
    let mut batch = batch;
    while batch > 0 {
        let axis = batch - 1;
        let [lhs, rhs, body] = &*nests;
        if rhs.depends_on(axis) {
            break;
        }
        let (Some(lhs), Some(body)) = (lhs.merged(axis), body.merged(axis)) else { break };
        let rhs = rhs.without(axis);
        *nests = [lhs, rhs, body];
        batch -= 1;
    }
    batch
}

/// Rows and columns of a task: whole panels of columns; small enough for the operands' parts and the tile to stay in the
/// second-level cache, and for all threads to share the work. A right operand that is not `packed` before is packed in each task:
/// these are as high as may be, and if results are written directly, where they do not have to stay near, no more than needed.
pub fn block<T: Product>(
    e: Extents,
    points: usize,
    plan: &Plan<T>,
    threads: usize,
    packed: bool,
    direct: bool,
) -> (usize, usize) {
    // Of vectors, memory is what limits: as if there were more rows or columns.
    let work = points.saturating_mul(e.m.max(8)).saturating_mul(e.n.max(8)).saturating_mul(e.k);
    let wanted = if threads == 1 { 1 } else { (work / TASK).clamp(1, SHARE * threads).div_ceil(points.max(1)) };
    let panel = plan.panel().max(32);
    let panels = e.n.div_ceil(panel).max(1);
    let (rows, columns) = if packed || e.m == 1 || e.n == 1 {
        let columns = e.n.div_ceil(COLUMNS).max(1);
        let most = plan.rows(e.n.div_ceil(columns), e.k);
        let rows = e.m.div_ceil(most).max(wanted.div_ceil(columns).min(e.m / ROWS)).max(1);
        (rows, columns.max(wanted.div_ceil(rows).min(panels.div_ceil(PANELS))))
    } else {
        let tile = if direct { usize::MAX } else { plan.tile() };
        let most = (tile / e.m.max(1)).max(NARROW * panel);
        let columns = e.n.div_ceil(most).max(wanted.min(panels.div_ceil(PANELS))).max(1);
        let rows = e.m.div_ceil(tile / most.min(e.n.div_ceil(columns)).max(1));
        (rows.max(wanted.div_ceil(columns).min(e.m / ROWS)).max(1), columns)
    };
    (e.m.div_ceil(rows).max(1), (panels.div_ceil(columns) * panel).min(e.n).max(1))
}
