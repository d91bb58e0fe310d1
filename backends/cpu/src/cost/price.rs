//! Prices whole kernels: the work of one thread, the threads that share it, and the time that memory takes.

use std::borrow::Cow;

use eutectic_backend::{
    Body, Cost, Instr, Kernel, Load, Store, ValueId,
    axes::Nest,
    reach::{AxisSet, is_of_matrices, masks, of_place, points, row_mask, together},
    traffic,
    unroll::unrolled,
};
use eutectic_ir::ops::{RowOp, Writes};

use super::{
    kernels,
    lines::run,
    model::{Around, CostModel, Tally, Walk},
};
use crate::{
    kernels::lanes::form::LaneForm,
    tile::{MAX_RANK, scan_order},
};

/// Bytes of a page of memory, whose address waits for memory as well.
const PAGE: f64 = 4096.0;

/// Rows of a table that come from memory: how often memory is waited for, and how much comes.
#[derive(Clone, Copy)]
struct FarRows {
    waits: f64,
    bytes: f64,
}

impl CostModel {
    /// The cost of a kernel. What cannot be compiled costs infinitely much where that shows at a glance (an op or element type
    /// without a function); `supports` is the judge.
    pub fn cost(&self, kernel: &Kernel) -> Cost {
        self.price(kernel, None)
    }

    /// The cost of a kernel in a program where some of the slots that it reads hold constants, and the others do not.
    pub fn cost_among(&self, kernel: &Kernel, constants: &[usize]) -> Cost {
        let cost = self.price(kernel, Some(constants));
        Cost { seconds: cost.seconds + self.cold(kernel, constants), ..cost }
    }

    /// The cost of a kernel; where it is not known which slots hold constants, a right operand that would be kept packed does.
    fn price(&self, kernel: &Kernel, constants: Option<&[usize]>) -> Cost {
        let unrolled = unrolled(kernel);
        let kernel = unrolled.as_ref().unwrap_or(kernel);
        let across = scanned_across(kernel);
        let (kernel, row) = across.as_ref().map_or((kernel, row_mask(kernel)), |(kernel, row)| (kernel, *row));
        let mut work = Tally { bytes: traffic::bytes(kernel), ..Tally::default() };
        let m = &self.costs().memory;
        let passes = kernel.operands().is_empty();
        let walk = if passes { Walk::Tiles } else { Walk::Within };
        let form = LaneForm::of(kernel);
        let (taken, groups) = kernels::tiles(kernel, form.is_some());
        let around = Around { taken: &taken, stores: &kernel.stores, groups };
        self.body_within(&kernel.body, row, walk, &around, &mut work);
        // Tables that no cache holds.
        work.seconds += self.far_rows(kernel, |_, table, read| (table.bytes > m.l3_bytes).then_some(read));
        let domain = &kernel.body.domain;
        let elements = |store: &Store| points(domain, of_place(store, &kernel.body));
        work.seconds += kernel.stores.iter().map(|store| self.store(kernel, form.as_ref(), store)).sum::<f64>();
        // Guards that hold in no box of a tile are asked for each run.
        let of_stores = kernels::walk_of_stores(kernel, walk);
        let in_runs =
            |s: &&Store| s.writes == Writes::Apart && !s.guards.iter().all(|guard| of_stores.is_of_box(guard));
        for store in kernel.stores.iter().filter(in_runs) {
            work.seconds +=
                elements(store) / domain.last().map_or(1.0, |&n| n.max(1) as f64) * self.costs().element.run;
        }
        self.anchor(kernel, taken.len(), (form.as_ref(), constants), &mut work);
        let threads = self.speedup(kernel, row);
        let shared = work.seconds / threads + self.costs().wake;
        let compute = if threads > 1.0 { work.seconds.min(shared) } else { work.seconds };
        let rate = match work.bytes {
            b if b <= m.l2_bytes => m.l2 * threads,
            b if b <= m.l3_bytes => m.l3 * threads,
            _ => (m.dram * threads).min(m.dram_all.max(m.dram)),
        };
        let memory = work.bytes / rate;
        // Products wait for memory while they compute; passes over elements only in part.
        let seen = if passes { 1.0 - m.hidden } else { 0.0 };
        let seconds = self.costs().launch + compute.max(memory) + seen * compute.min(memory);
        if seconds.is_infinite() || is_refused(kernel) {
            return Cost::IMPOSSIBLE;
        }
        Cost { seconds, flops: work.flops, bytes: work.bytes }
    }

    /// Seconds beyond the cost where caches do not hold some of the slots, though they could: rows that lie wherever an index says wait for
    /// memory once for each page that has some.
    fn cold(&self, kernel: &Kernel, slots: &[usize]) -> f64 {
        let read = |slot: usize, table: FarRows, read: FarRows| {
            let once = FarRows { waits: read.waits.min(table.waits), bytes: read.bytes.min(table.bytes) };
            (slots.contains(&slot) && table.bytes <= self.costs().memory.l3_bytes).then_some(once)
        };
        self.far_rows(kernel, read) / self.speedup(kernel, row_mask(kernel))
    }

    /// How many times as fast threads are.
    fn speedup(&self, kernel: &Kernel, row: AxisSet) -> f64 {
        1.0 + (parallelism(kernel, row).min(self.threads as f64).max(1.0) - 1.0) * self.costs().thread
    }

    /// What rows take that lie wherever an index says: they wait for memory one by one, however few they are. Of a slot, all of it and what is
    /// read, `far` says what comes from memory, if anything does.
    fn far_rows(&self, kernel: &Kernel, far: impl Fn(usize, FarRows, FarRows) -> Option<FarRows>) -> f64 {
        let of_body = |body: &Body| -> f64 {
            let mut loads = indirect(body).peekable();
            // Few kernels have any.
            if loads.peek().is_none() {
                return 0.0;
            }
            let masks = masks(body, 0);
            let seconds = |(id, load): (usize, &Load)| {
                let (dtype, count) = kernel.slots[load.slot];
                let n = points(&body.domain, masks[id]);
                let [bytes, all] = [n, count as f64].map(|n| n * dtype.size() as f64);
                let read = FarRows { waits: n / run(&load.at, body, &masks), bytes };
                let far = far(load.slot, FarRows { waits: (all / PAGE).ceil(), bytes: all }, read);
                far.map_or(0.0, |far| far.waits * self.costs().element.far + far.bytes / self.costs().memory.dram)
            };
            loads.map(seconds).sum()
        };
        kernel.bodies().into_iter().map(of_body).sum()
    }
}

/// Returns a kernel with the axes in the order in which rows are scanned, and the axes that form a row, if that is another order.
fn scanned_across(kernel: &Kernel) -> Option<(Kernel, AxisSet)> {
    let rows = kernel.row_axes()?;
    if !kernel.body.instrs.iter().any(|instr| instr.row().is_some_and(RowOp::is_scan)) {
        return None;
    }
    let nest = Nest::new(&kernel.body, &kernel.stores);
    let (Cow::Owned(nest), row) = scan_order(&nest, rows, &kernel.slots) else { return None };
    let Nest { domain, lengths, instrs, results, stores } = nest;
    let (body, anchor) = (Body { domain, lengths, instrs, results }, kernel.anchor.clone());
    Some((Kernel { anchor, body, stores, slots: kernel.slots.clone() }, AxisSet::from(row)))
}

/// How many threads a kernel can occupy: a row is one thread's, and so are the fewest rows and columns of a product that it is cut into.
fn parallelism(kernel: &Kernel, row: AxisSet) -> f64 {
    let domain = &kernel.body.domain;
    if let Some(tasks) = kernels::tasks(kernel) {
        return tasks;
    }
    if kernel.row_axes().is_some() {
        return points(domain, !row);
    }
    // One thread goes through the points that may write one element.
    let meet = kernel.stores.iter().map(|store| together(store, domain)).fold(0, |all, axes| all | axes);
    if meet == 0 { f64::INFINITY } else { points(domain, !meet) }
}

/// What `supports` refuses must not look cheap: domains of many axes, and results that are stored neither by strides, the columns of
/// products as one axis, nor where guards or integers of the body say.
fn is_refused(kernel: &Kernel) -> bool {
    let rank = kernel.body.domain.len();
    let columns = kernels::columns(kernel);
    let groups = [rank - columns, 0, columns];
    let scattered = |s: &Store| !s.guards.is_empty() || !s.at.values().is_empty();
    let placed = |s: &Store| is_of_matrices(&s.at, &kernel.body.domain, groups) || scattered(s);
    kernel.bodies().iter().any(|body| body.domain.len() > MAX_RANK) || !kernel.stores.iter().all(placed)
}

/// The loads of a body that go wherever an index says.
fn indirect(body: &Body) -> impl Iterator<Item = (ValueId, &Load)> {
    body.instrs.iter().enumerate().filter_map(|(id, instr)| match instr {
        Instr::Load(load) if !load.at.values().is_empty() => Some((id, load)),
        _ => None,
    })
}
