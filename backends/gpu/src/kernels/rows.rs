//! Row groups: a team of threads shares a row. It passes over the row once for each level of reductions, and once more
//! for elementwise stores.
//!
//! A few long rows are shared by the blocks of a cluster, if the device has clusters, and otherwise by several launches
//! (`split_rows`). Values of short rows that later passes need stay in registers. If neighbouring rows are contiguous
//! in memory and the points of a row are not, neighbouring threads work on neighbouring rows.

mod digits;
mod draws;
mod first_stores;
mod long_rows;
mod merges;
mod printer;
pub(crate) mod radix;
pub(crate) mod ranking;
mod ranks;
mod scans;
mod schedule;
mod selected;
mod selection;
mod split_rankings;
mod split_scans;
mod team_scan;

use eutectic_backend::{Kernel, ValueId};
use eutectic_ir::DType;

use crate::{
    device::DeviceShape,
    dialect::{Dialect, Team},
    kernels::{map, split_rows::split, stages::Stage},
    launch::Launch,
};
use printer::RowPrinter;
pub(crate) use schedule::{RESIDENT, Rows, flat, order};
pub(crate) use split_rankings::split_rankings;
pub(crate) use split_scans::split_scans;
use team_scan::needed_scans;

/// The unroll factor of a loop over a row.
const TURNS: usize = 4;

/// Prints a kernel with row groups.
///
/// # Errors
/// Names the parts of the kernel that cannot be printed.
pub fn print(dialect: &dyn Dialect, shape: &DeviceShape, kernel: &Kernel) -> Result<Vec<Launch>, Vec<String>> {
    let stages = match split_rankings(kernel, shape)? {
        Some(stages) => stages.into_iter().flat_map(|stage| cut(dialect, shape, stage)).collect(),
        None => cut(dialect, shape, Stage { kernel: kernel.clone(), pass: None, parts: Vec::new() }),
    };
    let workspace = stages.iter().map(Stage::workspace).max().unwrap_or(0);
    let launch = |Stage { kernel, pass, parts }: Stage| {
        let printed = match pass {
            Some(pass) => pass.print(dialect, &kernel.slots)?,
            None if kernel.is_map() => map::print_stage(dialect, shape, &kernel)?,
            None => print_stage(dialect, shape, &kernel)?,
        };
        Ok(Launch { workspace, parts, ..printed })
    };
    stages.into_iter().map(launch).collect()
}

/// Splits a launch into several if several blocks share each of its rows.
fn cut(dialect: &dyn Dialect, shape: &DeviceShape, stage: Stage) -> Vec<Stage> {
    if stage.pass.is_some() {
        return vec![stage];
    }
    let together = |dtype| dialect.together(dtype);
    let kernels = split(&stage.kernel, shape).or_else(|| split_scans(&Rows::of(&stage.kernel, shape, together)?));
    kernels.map_or_else(|| vec![stage.clone()], |kernels| stage.cut(kernels))
}

fn print_stage(dialect: &dyn Dialect, shape: &DeviceShape, kernel: &Kernel) -> Result<Launch, Vec<String>> {
    let rows = Rows::of(kernel, shape, |dtype| dialect.together(dtype));
    let Some(rows) = rows else { return Err(vec!["cannot print rows, because the kernel has no row group".into()]) };
    let Rows { nest, schedule, .. } = &rows;
    let mut printer = RowPrinter::new(dialect, &rows);
    printer.print();
    if !printer.emitter.problems.is_empty() {
        return Err(printer.emitter.problems);
    }
    let block = schedule.team.threads * schedule.team.rows;
    let together = schedule.team.blocks;
    let blocks = schedule.lanes.domain(&nest.domain)[0].div_ceil(schedule.team.rows) * together;
    let text = match together {
        1 => dialect.kernel(&kernel.slots, block, &printer.emitter.text),
        _ => dialect.kernel_of_clusters(&kernel.slots, block, together, &printer.emitter.text),
    };
    Ok(Launch::new(text, [blocks, 1, 1], block))
}

impl RowPrinter<'_> {
    fn print(&mut self) {
        let Team { threads, rows, along, blocks } = self.team;
        let groups = self.lanes.domain(&self.nest.domain)[0];
        self.emitter.line(&self.dialect.place("thread", "block"));
        let (row, t) = match along {
            true if blocks > 1 => (format!("block / {blocks}"), format!("thread + block % {blocks} * {threads}")),
            true => (format!("block * {rows} + thread / {threads}"), format!("thread % {threads}")),
            false => (format!("block * {rows} + thread % {rows}"), format!("thread / {rows}")),
        };
        let index = self.dialect.index(false);
        for (ty, name, value) in [
            (index, "own", row),
            (self.dialect.register(DType::Bool), "live", format!("own < {groups}")),
            // Threads without a row take part as well, because all threads of a block must reach its barriers.
            (index, "row", self.dialect.choose("live", "own", &groups.saturating_sub(1).to_string())),
            (index, "t", t),
        ] {
            let line = self.dialect.declare(ty, name, &value);
            self.emitter.line(&line);
        }
        for id in (0..self.nest.instrs.len()).filter(|&id| self.keeps[id]) {
            if let Some(items) = self.items {
                let ty = self.dialect.register(self.nest.instrs[id].dtype());
                let line = self.dialect.array(ty, &format!("k{id}"), items * self.emitter.width(id));
                self.emitter.line(&line);
            }
        }
        let passes = self.passes();
        for pass in 0..passes {
            self.invariants(pass);
            self.pass(pass);
        }
        self.invariants(passes);
        match self.in_order {
            Some(ranking) => self.store_in_order(&ranking),
            None => self.stores(),
        }
    }

    /// Prints the values that are constant along a row, as far as they are known before a pass.
    fn invariants(&mut self, pass: usize) {
        for id in 0..self.nest.instrs.len() {
            if self.needed[id] && !self.varies[id] && self.level[id] <= pass {
                self.emitter.value(id);
            }
        }
    }

    /// Prints a loop over the groups of points of a thread, with the scans that `roots` need. `visit` prints the loop's
    /// body.
    fn for_groups(&mut self, roots: Vec<ValueId>, visit: impl FnOnce(&mut Self)) {
        let known = |id: ValueId| !self.varies[id] || self.kept[id] || self.ranked[id];
        let scans = needed_scans(&self.nest.instrs, roots, known);
        scans.iter().for_each(|&id| self.start(id));
        let before = std::mem::take(&mut self.emitter.text);
        for id in (0..self.kept.len()).filter(|&id| self.kept[id]) {
            let width = self.emitter.width(id);
            let names = (0..width).map(|lane| format!("k{id}[i * {width} + {lane}]")).collect();
            self.emitter.set(id, names);
        }
        self.name_ranks();
        scans.into_iter().for_each(|id| self.scan(id));
        visit(self);
        if self.items.is_some() {
            for id in (0..self.kept.len()).filter(|&id| self.keeps[id] && !self.kept[id]).collect::<Vec<_>>() {
                if self.emitter.is_known(id) {
                    self.kept[id] = true;
                    let names = self.emitter.value(id);
                    for (lane, name) in names.iter().enumerate() {
                        self.emitter.line(&format!("k{id}[i * {} + {lane}] = {name};", names.len()));
                    }
                }
            }
        }
        let body = std::mem::replace(&mut self.emitter.text, before);
        let groups = self.lanes.domain(&self.nest.domain)[1];
        let threads = self.team.threads * self.team.blocks;
        let text = match (self.reverse, self.items) {
            (Some(_), Some(items)) => {
                let turn = self.turn("i");
                self.dialect.unrolled("i", items, &format!("{turn}{body}"))
            }
            (Some(_), None) => {
                let turns = groups.div_ceil(threads);
                format!("{}\n{}{body}}}\n", self.dialect.each("turn", "0", turns, 1), self.turn("turn"))
            }
            (None, Some(items)) => {
                let at = self.dialect.declare(self.dialect.index(false), "c", &format!("t + i * {threads}"));
                let body = if items * threads == groups { body } else { format!("if (c < {groups}) {{\n{body}}}\n") };
                self.dialect.unrolled("i", items, &format!("{at}\n{body}"))
            }
            (None, None) => self.dialect.in_turns(("c", "t"), groups, threads, TURNS, &body),
        };
        self.emitter.text.push_str(&text);
        let varies = &self.varies;
        self.emitter.forget(|id| varies[id]);
        self.loops += 1;
    }

    fn pass(&mut self, pass: usize) {
        let of = |id: ValueId| {
            let (how, arg) = self.nest.instrs[id].reduction()?;
            Some((id, how, arg, self.nest.instrs[id].dtype()))
        };
        let reductions: Vec<_> = self.reductions(pass).filter_map(of).collect();
        self.rank_for(&reductions.iter().map(|(_, _, arg, _)| *arg).collect::<Vec<_>>());
        // Each lane has its own accumulator. Lanes are neighbouring rows, or points of one row.
        let lanes = self.lanes.count;
        for (id, how, _, dtype) in &reductions {
            for lane in 0..lanes {
                let start = self.dialect.number(how.identity(*dtype), *dtype);
                let line = self.dialect.variable(self.dialect.register(*dtype), &format!("a{id}_{lane}"), &start);
                self.emitter.line(&line);
            }
        }
        let roots = reductions.iter().map(|(_, _, arg, _)| *arg).collect();
        self.for_groups(roots, |this| {
            let partial = this.is_partial();
            for (id, how, arg, dtype) in &reductions {
                for lane in 0..lanes {
                    let value = this.emitter.lane(*arg, lane);
                    let sum = format!("a{id}_{lane}");
                    let both = this.dialect.combine(*how, *dtype, &sum, &value);
                    let both = if partial { this.dialect.choose("within", &both, &sum) } else { both };
                    this.emitter.line(&format!("{sum} = {both};"));
                }
            }
        });
        for (id, how, _, dtype) in &reductions {
            let sums = (0..lanes).map(|lane| format!("a{id}_{lane}"));
            let sums: Vec<String> = match self.team.along {
                true => sums.reduce(|a, b| self.dialect.combine(*how, *dtype, &a, &b)).into_iter().collect(),
                false => sums.collect(),
            };
            let width = self.emitter.width(*id);
            let names: Vec<String> = sums
                .into_iter()
                .take(width)
                .map(|sum| {
                    let name = self.emitter.name();
                    let whole = self.dialect.reduce(*how, (&sum, *dtype), self.team);
                    let line = self.dialect.declare(self.dialect.register(*dtype), &name, &whole);
                    self.emitter.line(&line);
                    name
                })
                .collect();
            self.emitter.set(*id, names);
        }
    }

    fn stores(&mut self) {
        let (each, once): (Vec<usize>, Vec<usize>) =
            (0..self.nest.stores.len()).partition(|&n| self.store_varies(&self.nest.stores[n]));
        if !each.is_empty() {
            let values: Vec<_> = each.iter().flat_map(|&n| self.nest.stores[n].values()).collect();
            self.rank_for(&values);
            let store = |this: &mut Self| each.into_iter().for_each(|n| this.emitter.store(n));
            // A point may store over an element that it loads, so all loads are printed first.
            let read = |this: &mut Self| values.iter().for_each(|&value| _ = this.emitter.value(value));
            match self.reverse {
                // Threads without stores also take part in scans, which exchange values between threads.
                Some(_) => self.for_groups(values.clone(), |this| {
                    read(this);
                    this.emitter.line(if this.is_partial() { "if (live && within) {" } else { "if (live) {" });
                    store(this);
                    this.emitter.line("}");
                }),
                None => {
                    self.emitter.line("if (live) {");
                    self.for_groups(values.clone(), |this| {
                        read(this);
                        store(this);
                    });
                    self.emitter.line("}");
                }
            }
        }
        if !once.is_empty() {
            self.emitter.line("if (live && t == 0) {");
            once.into_iter().for_each(|n| self.emitter.store(n));
            self.emitter.line("}");
        }
    }
}
