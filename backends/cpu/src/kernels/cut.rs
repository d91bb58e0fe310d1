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
/// Tasks of each thread, if there are several: the last one to finish is waited for. Twice as many, if each still has so many
/// multiplications: threads may be held up.
const SHARE: usize = 2;
const LONG: usize = 1 << 24;
/// Multiplications in the time that it takes to read an element of an operand from afar, beside multiplications.
const READ: f64 = 8.0;

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
    let all = if work / LONG >= 2 * SHARE * threads { 2 * SHARE * threads } else { SHARE * threads };
    let wanted = if threads == 1 { 1 } else { (work / TASK).clamp(1, all).div_ceil(points.max(1)) };
    let panel = plan.panel().max(32);
    let panels = e.n.div_ceil(panel).max(1);
    let (rows, columns) = if packed || e.m == 1 || e.n == 1 {
        let least = e.n.div_ceil(COLUMNS).max(1);
        let most = least.max(wanted.min(panels.div_ceil(PANELS)));
        let cut = |columns: usize| {
            let rows = e.m.div_ceil(plan.rows(e.n.div_ceil(columns), e.k));
            (rows.max(wanted.div_ceil(columns).min(e.m / ROWS)).max(1), columns)
        };
        // As many tasks as are wanted, if there can be; then what takes least: each column's tasks read all of the left operand, each
        // row's all of the right one, and in the end some threads may have nothing to do.
        let takes = |&(rows, columns): &(usize, usize)| {
            let tasks = rows * columns * points.max(1);
            let idle = tasks.next_multiple_of(threads) as f64 / tasks as f64;
            let read = columns as f64 / e.n as f64 + rows as f64 / e.m as f64;
            (wanted.saturating_sub(rows * columns), idle * (1.0 + READ * read))
        };
        let order = |a: &(usize, f64), b: &(usize, f64)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1));
        let cuts = (least..=most).map(cut).map(|cut| (takes(&cut), cut));
        cuts.min_by(|a, b| order(&a.0, &b.0)).map_or((1, 1), |best| best.1)
    } else {
        let tile = if direct { usize::MAX } else { plan.tile() };
        let most = (tile / e.m.max(1)).max(NARROW * panel);
        let columns = e.n.div_ceil(most).max(wanted.min(panels.div_ceil(PANELS))).max(1);
        let rows = e.m.div_ceil(tile / most.min(e.n.div_ceil(columns)).max(1));
        (rows.max(wanted.div_ceil(columns).min(e.m / ROWS)).max(1), columns)
    };
    (e.m.div_ceil(rows).max(1), (panels.div_ceil(columns) * panel).min(e.n).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Isa;

    #[test]
    fn threads_share_the_work_evenly() {
        for (m, n, k) in [(1024, 1152, 384), (1024, 1536, 384), (1024, 384, 1536), (128, 5632, 2048), (3136, 256, 64)] {
            let plan = Plan::<f32>::new(Isa::detect(), [m, n]);
            for threads in [2, 3, 4] {
                let (rows, columns) = block(Extents { m, n, k }, 1, &plan, threads, true, true);
                let tasks = m.div_ceil(rows) * n.div_ceil(columns);
                let idle = tasks.next_multiple_of(threads) - tasks;
                assert!(tasks >= threads && 8 * idle <= tasks, "{tasks} tasks of {m}x{n}x{k} for {threads} threads");
            }
        }
    }
}
