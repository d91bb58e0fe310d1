//! Predicts the time of whole kernels from the work of one thread, the number of threads that share the work, and the
//! time of memory.

use std::{borrow::Cow, iter};

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
    model::{CostAccumulator, CostModel, KernelContext, Walk},
};
use crate::{
    kernels::{Way, chosen::AllMatrices, lanes::form::LaneForm},
    tile::{MAX_RANK, scan_order},
};

/// Bytes of a page of memory. The first access to a page waits for its page-table entry as well.
const PAGE: f64 = 4096.0;

/// Rows of a table that are read from memory: the number of times that the kernel waits for memory, and the bytes.
#[derive(Clone, Copy)]
struct FarRows {
    waits: f64,
    bytes: f64,
}

impl CostModel {
    /// Returns the cost of a kernel. It is infinite if an op has no function for the element type. For other kernels
    /// that cannot be compiled, [`Backend::supports`](eutectic_backend::Backend::supports) gives the reasons.
    pub fn cost(&self, kernel: &Kernel) -> Cost {
        self.best(kernel, None).1
    }

    /// Returns the cost of a kernel in a program in which exactly the slots `constants` of those that it reads are
    /// constant.
    pub fn cost_among(&self, kernel: &Kernel, constants: &[usize]) -> Cost {
        let cost = self.best(kernel, Some(constants)).1;
        Cost { seconds: cost.seconds + self.cold(kernel, constants), ..cost }
    }

    /// Returns the cheapest way to compute a kernel, given the constant slots if they are known.
    pub fn way(&self, kernel: &Kernel, constants: Option<&[usize]>) -> Way {
        self.best(kernel, constants).0
    }

    /// Returns all ways to compute a kernel with these constant slots, with their costs, the cheapest first.
    pub fn ways(&self, kernel: &Kernel, constants: &[usize]) -> Vec<(Way, Cost)> {
        let (cold, plain) = (self.cold(kernel, constants), product_way(kernel, Some(constants)));
        let priced = |form: Option<&LaneForm>| {
            let cost = self.price(kernel, form, Some(constants));
            (form.map_or(plain, |form| Way::Lanes(form.axis())), Cost { seconds: cost.seconds + cold, ..cost })
        };
        let forms = if LaneForm::is_possible(kernel) { LaneForm::all(kernel) } else { Vec::new() };
        let mut ways: Vec<_> = iter::once(priced(None)).chain(forms.iter().map(|form| priced(Some(form)))).collect();
        ways.sort_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
        ways
    }

    /// Returns the cheapest way to compute a kernel, and its cost. Of equally cheap ways, it is the first.
    fn best(&self, kernel: &Kernel, constants: Option<&[usize]>) -> (Way, Cost) {
        let plain = (product_way(kernel, constants), self.price(kernel, None, constants));
        if !LaneForm::is_possible(kernel) {
            return plain;
        }
        // For most products, a lower bound shows that no batch-vectorised form is cheaper.
        let threads = self.speedup(kernel, 0);
        let least = (self.least_of_lanes(kernel) / threads).max(self.streaming(plain.1.bytes, threads));
        if self.costs().launch + least >= plain.1.seconds {
            return plain;
        }
        let forms = LaneForm::all(kernel);
        let others = forms.iter().map(|form| (Way::Lanes(form.axis()), self.price(kernel, Some(form), constants)));
        others.fold(plain, |best, other| if other.1.seconds < best.1.seconds { other } else { best })
    }

    /// Returns the seconds in which threads read and write a number of bytes.
    fn streaming(&self, bytes: f64, threads: f64) -> f64 {
        let m = &self.costs().memory;
        let rate = match bytes {
            b if b <= m.l2_bytes => m.l2 * threads,
            b if b <= m.l3_bytes => m.l3 * threads,
            _ => (m.dram * threads).min(m.dram_all.max(m.dram)),
        };
        bytes / rate
    }

    /// Returns the cost of a kernel, computed in batch-vectorised form if `form` is given. If `constants` is `None`,
    /// all slots count as constant.
    fn price(&self, kernel: &Kernel, form: Option<&LaneForm>, constants: Option<&[usize]>) -> Cost {
        let unrolled = unrolled(kernel);
        let kernel = unrolled.as_ref().unwrap_or(kernel);
        let across = scanned_across(kernel);
        let (kernel, row) = across.as_ref().map_or((kernel, row_mask(kernel)), |(kernel, row)| (kernel, *row));
        let mut work = CostAccumulator { bytes: traffic::bytes(kernel), ..CostAccumulator::default() };
        let m = &self.costs().memory;
        let passes = kernel.operands().is_empty();
        let walk = if passes { Walk::Tiles } else { Walk::Within };
        let (taken, groups) = kernels::tiles(kernel, form.is_some());
        let around = KernelContext { taken: &taken, stores: &kernel.stores, groups };
        self.body_within(&kernel.body, row, walk, &around, &mut work);
        // Rows of tables that no cache holds wait for memory.
        work.seconds += self.far_rows(kernel, |_, table, read| (table.bytes > m.l3_bytes).then_some(read));
        let domain = &kernel.body.domain;
        let elements = |store: &Store| points(domain, of_place(store, &kernel.body));
        work.seconds += kernel.stores.iter().map(|store| self.store(kernel, form, store)).sum::<f64>();
        // If the guards of a store do not hold in a box of the tile, they are evaluated for each run of elements.
        let of_stores = kernels::walk_of_stores(kernel, walk);
        let in_runs =
            |s: &&Store| s.writes == Writes::Apart && !s.guards.iter().all(|guard| of_stores.is_of_box(guard));
        for store in kernel.stores.iter().filter(in_runs) {
            work.seconds +=
                elements(store) / domain.last().map_or(1.0, |&n| n.max(1) as f64) * self.costs().element.run;
        }
        self.anchor(kernel, taken.len(), (form, constants), &mut work);
        let threads = self.speedup(kernel, row);
        let shared = work.seconds / threads + self.costs().wake;
        let compute = if threads > 1.0 { work.seconds.min(shared) } else { work.seconds };
        let memory = self.streaming(work.bytes, threads);
        // In products, memory time overlaps with computing; in passes over elements, only a share of it does.
        let seen = if passes { 1.0 - m.hidden } else { 0.0 };
        let seconds = self.costs().launch + compute.max(memory) + seen * compute.min(memory);
        if seconds.is_infinite() || is_refused(kernel) {
            return Cost::IMPOSSIBLE;
        }
        Cost { seconds, flops: work.flops, bytes: work.bytes }
    }

    /// Returns the additional seconds if `slots` are in memory although they would fit into the caches. Only rows that
    /// are gathered at indices count: they wait for memory, at most once per page of the table.
    fn cold(&self, kernel: &Kernel, slots: &[usize]) -> f64 {
        let read = |slot: usize, table: FarRows, read: FarRows| {
            let once = FarRows { waits: read.waits.min(table.waits), bytes: read.bytes.min(table.bytes) };
            (slots.contains(&slot) && table.bytes <= self.costs().memory.l3_bytes).then_some(once)
        };
        self.far_rows(kernel, read) / self.speedup(kernel, row_mask(kernel))
    }

    /// Returns the speed of all threads relative to one thread.
    fn speedup(&self, kernel: &Kernel, row: AxisSet) -> f64 {
        1.0 + (parallelism(kernel, row).min(self.machine.threads as f64).max(1.0) - 1.0) * self.costs().thread
    }

    /// Returns the seconds that rows of tables, gathered at indices, wait for memory. The waits do not overlap. `far`
    /// gets a slot, the whole buffer and the rows that are read. It returns the rows that come from memory, if any.
    fn far_rows(&self, kernel: &Kernel, far: impl Fn(usize, FarRows, FarRows) -> Option<FarRows>) -> f64 {
        let of_body = |body: &Body| -> f64 {
            let mut loads = indirect(body).peekable();
            // Most kernels have no such loads.
            if loads.peek().is_none() {
                return 0.0;
            }
            let masks = masks(body, 0);
            let number = kernels::number_of_matrices(kernel, body, &masks);
            let seconds = |(id, load): (usize, &Load)| {
                let (dtype, count) = kernel.slots[load.slot];
                let n = points(&body.domain, masks[id]);
                let [bytes, all] = [n, count as f64].map(|n| n * dtype.size() as f64);
                // A matrix is read from its beginning to its end.
                let waits = match number {
                    Some(number) => points(&body.domain, masks[number]),
                    None => n / run(&load.at, body, &masks),
                };
                let read = FarRows { waits, bytes };
                let far = far(load.slot, FarRows { waits: (all / PAGE).ceil(), bytes: all }, read);
                far.map_or(0.0, |far| far.waits * self.costs().element.far + far.bytes / self.costs().memory.dram)
            };
            loads.map(seconds).sum()
        };
        kernel.bodies().into_iter().map(of_body).sum()
    }
}

/// Returns the way in which a contraction is computed as products of matrices.
fn product_way(kernel: &Kernel, constants: Option<&[usize]>) -> Way {
    if AllMatrices::of_kernel(kernel, constants).is_some() { Way::Chosen } else { Way::Plain }
}

/// Returns a kernel with its axes in the order in which its thunk scans rows, and the axes that form a row. Returns
/// `None` if the kernel has no scan, or the order does not change.
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

/// Returns the number of threads that a kernel can occupy. One thread computes a row, or the smallest block of rows and
/// columns into which a product is divided.
fn parallelism(kernel: &Kernel, row: AxisSet) -> f64 {
    let domain = &kernel.body.domain;
    if let Some(tasks) = kernels::tasks(kernel) {
        return tasks;
    }
    if kernel.row_axes().is_some() {
        return points(domain, !row);
    }
    // One thread computes all points that may write one element.
    let meet = kernel.stores.iter().map(|store| together(store, domain)).fold(0, |all, axes| all | axes);
    if meet == 0 { f64::INFINITY } else { points(domain, !meet) }
}

/// Returns whether the backend refuses a kernel, so that its price must be infinite. It refuses a domain with too many
/// axes, and a store that is not strided (a product's columns count as one axis), has no guards, and has no integers of
/// the body in its index.
fn is_refused(kernel: &Kernel) -> bool {
    let rank = kernel.body.domain.len();
    let columns = kernels::columns(kernel);
    let groups = [rank - columns, 0, columns];
    let scattered = |s: &Store| !s.guards.is_empty() || !s.at.values().is_empty();
    let placed = |s: &Store| is_of_matrices(&s.at, &kernel.body.domain, groups) || scattered(s);
    kernel.bodies().iter().any(|body| body.domain.len() > MAX_RANK) || !kernel.stores.iter().all(placed)
}

/// Returns the loads of a body whose index has integers of the body, such as the rows of a table.
fn indirect(body: &Body) -> impl Iterator<Item = (ValueId, &Load)> {
    body.instrs.iter().enumerate().filter_map(|(id, instr)| match instr {
        Instr::Load(load) if !load.at.values().is_empty() => Some((id, load)),
        _ => None,
    })
}
