//! Divides contractions into tasks.

use eutectic_backend::grouped::{self, Grouped};

use crate::gemm::{
    blocking::Blocking,
    matrix::PartSize,
    product::{Extents, ProductElement},
};

/// The minimal number of multiplications per task if there are several tasks. They take about a microsecond, in which
/// another thread can start.
const TASK: usize = 1 << 17;
/// The number of rows from which on separate products are better than one product whose epilogue divides row numbers to
/// find coordinates.
const TALL: usize = 128;
/// The maximal number of columns of a task with a packed right operand.
const COLUMNS: usize = 2048;
/// The minimal number of rows of a task, if a product is divided for several threads.
pub const ROWS: usize = 24;
/// The minimal number of panels of columns of a task, if a product is divided for several threads.
const PANELS: usize = 3;
/// The minimal number of columns that count as a panel.
const PANEL: usize = 32;
/// The minimal number of columns of a task, if a product is divided for several threads.
pub const FEW_COLUMNS: usize = PANELS * PANEL;
/// The minimal number of panels of a tile that has all rows of a product whose right operand is not packed up front.
const NARROW: usize = 4;
/// The maximal number of tasks per thread if tasks are short.
const SHARE: usize = 2;
/// The number of multiplications from which on a task is long.
const LONG: usize = 1 << 24;
/// The number of tasks per thread if tasks are long. A thread may be delayed, and the others then wait for a smaller
/// share of the work.
const LONG_SHARE: usize = 4;
/// Expected imbalance: the last thread finishes this fraction of a task late.
const LATE: f64 = 0.1;
/// The time of reading an operand's element from memory, in multiplications.
const READ: f64 = 8.0;
/// The time of reading and packing an operand's element, in multiplications.
const PACK: f64 = 16.0;

/// Merges batch axes into the rows, the innermost one first. The right operand must not depend on such an axis, and the
/// left operand and the result must be readable as one longer matrix.
pub fn batch_into_rows([lhs, rhs, body]: [&mut Grouped; 3]) {
    while body.groups[0] > 0 && !rhs.nest.depends_on(body.groups[0] - 1) {
        let (Some(longer), Some(body_longer)) = (lhs.batch_into_rows(), body.batch_into_rows()) else { return };
        (*lhs, *rhs, *body) = (longer, rhs.without_batch(), body_longer);
    }
}

/// Merges the axes of the rows of the result into one. If the epilogue needs them as several axes, the outer ones
/// become batch axes. This happens if the matrices stay tall, or stores would otherwise not be strided.
pub fn rows_into_batch([lhs, rhs, body]: [&mut Grouped; 3]) {
    while body.merged(grouped::ROWS).is_none() {
        let extents = body.extents(grouped::ROWS);
        let (outer, inner) = (extents[0], extents[1..].iter().product::<usize>());
        if inner < TALL && body.flat(grouped::ROWS).is_strided() {
            break;
        }
        *rhs = rhs.repeated(outer);
        lhs.rows_into_batch();
        body.rows_into_batch();
    }
    *body = body.flat(grouped::ROWS);
}

/// Returns the rows and columns of a task. Columns are complete panels. The operands' blocks and the tile must fit into
/// the second-level cache, and all threads must share the work. A right operand that is not `packed` up front is packed
/// in each task, and such tasks are as high as possible. A tile that is written to its destination directly (`direct`)
/// need not stay in the cache, and does not limit the height.
pub fn block<T: ProductElement>(
    e: Extents,
    points: usize,
    blocking: &Blocking<T>,
    threads: usize,
    packed: bool,
    direct: bool,
) -> PartSize {
    // Products with few rows or columns are memory-bound, and count as having 8 of them.
    let work = points.saturating_mul(e.m.max(8)).saturating_mul(e.n.max(8)).saturating_mul(e.k);
    let share = match work / threads {
        _ if threads == 1 => 0,
        each if each / LONG >= LONG_SHARE => LONG_SHARE,
        each => (each / TASK).min(SHARE),
    };
    let points = points.max(1);
    let wanted = |share: usize| (threads * share).div_ceil(points).max(1);
    let panel = blocking.panel().max(PANEL);
    let panels = e.n.div_ceil(panel).max(1);
    let packed = packed || e.m == 1 || e.n == 1;
    let tile = if direct { usize::MAX } else { blocking.tile() };
    let widest = if packed { COLUMNS } else { (tile / e.m.max(1)).max(NARROW * panel) };
    let highest = |columns: usize| {
        let width = e.n.div_ceil(columns).min(widest);
        if packed { blocking.rows(width, e.k) } else { tile / width.max(1) }
    };
    // Divides the columns into `columns` ranges, and the rows so that a thread gets about `share` tasks. If `even`, the
    // number of ranges of rows is a multiple of the number of threads.
    let cut = |columns: usize, share: usize, even: bool| {
        let least = e.m.div_ceil(highest(columns));
        let rows = least.max(wanted(share).div_ceil(columns).min(e.m / ROWS)).max(1);
        let rows = if even { rows.next_multiple_of(threads).min((e.m / ROWS).max(rows)) } else { rows };
        PartSize { rows: e.m.div_ceil(rows).max(1), columns: (panels.div_ceil(columns) * panel).min(e.n).max(1) }
    };
    // Predicts the time of a division. The tasks of a range of columns together read the left operand once. Those of a
    // range of rows read the right operand once, and pack it if necessary. At the end, threads wait for the last task.
    let takes = |&PartSize { rows: height, columns: width }: &PartSize| {
        let tasks = e.m.div_ceil(height) * e.n.div_ceil(width) * points;
        let rounds = tasks.div_ceil(threads) as f64;
        let time = rounds * (height * width) as f64;
        time * (1.0 + LATE / rounds) * (1.0 + READ / width as f64 + if packed { READ } else { PACK } / height as f64)
    };
    let least = e.n.div_ceil(widest).max(1);
    let most = least.max(wanted(share).min(panels.div_ceil(PANELS)));
    let shares = || (share.min(1)..=share).flat_map(|share| [(share, false), (share, true)]);
    let cuts = (least..=most).flat_map(|columns| shares().map(move |(share, even)| cut(columns, share, even)));
    cuts.min_by(|a, b| takes(a).total_cmp(&takes(b))).unwrap_or(PartSize { rows: 1, columns: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{machine::Caches, simd::Isa};

    #[test]
    fn threads_share_the_work_evenly() {
        for (m, n, k) in [
            (1024, 1152, 384),
            (1024, 1536, 384),
            (1024, 384, 1536),
            (128, 5632, 2048),
            (3136, 256, 64),
            (127, 131, 137),
            (33, 1000, 65),
        ] {
            for (l2, threads) in
                [256, 512, 1024, 2048].into_iter().flat_map(|l2| [2, 3, 4].map(|threads| (l2, threads)))
            {
                let caches = Caches { l2: l2 << 10, ..Caches::default() };
                let blocking = Blocking::<f32>::beside(caches, Isa::detect(), [m, n]);
                let PartSize { rows, columns } = block(Extents { m, n, k }, 1, &blocking, threads, true, true);
                let tasks = m.div_ceil(rows) * n.div_ceil(columns);
                let idle = tasks.next_multiple_of(threads) - tasks;
                let what = format!("{tasks} tasks of {m}x{n}x{k} for {threads} threads, {l2} KiB");
                assert!(tasks >= threads && 8 * idle <= tasks, "{what}");
            }
        }
    }
}
