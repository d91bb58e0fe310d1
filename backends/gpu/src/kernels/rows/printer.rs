//! The state of the printer of row groups: values that vary along a row, their passes, and the values that stay in
//! registers.

use eutectic_backend::{
    Instr, Kernel, ValueId,
    axes::Nest,
    order::needed,
    reductions::{RowValues, varying},
};

use super::{
    ranking::{Ranking, needed as needed_rankings},
    schedule::{Rows, Schedule},
    team_scan::{Scan, direction},
};
use crate::{
    device::DeviceShape,
    dialect::{Dialect, Team},
    emit::Emitter,
    lanes::SplitAxis,
};

/// The maximal number of registers in which a thread keeps values of a row.
const REGISTERS: usize = 64;

/// Prints the passes over the rows of a nest.
pub(super) struct RowPrinter<'a> {
    pub dialect: &'a dyn Dialect,
    pub emitter: Emitter<'a>,
    pub kernel: &'a Kernel,
    pub shape: &'a DeviceShape,
    pub nest: &'a Nest,
    pub team: Team,
    pub lanes: SplitAxis,
    /// For each value: whether it varies along a row, the first pass that can compute it, and whether it is needed.
    pub varies: Vec<bool>,
    pub level: Vec<usize>,
    pub needed: Vec<bool>,
    /// Iterations per thread, if values stay in registers between passes; `None` otherwise.
    pub items: Option<usize>,
    /// The number of loops over the row so far.
    pub loops: usize,
    /// The direction of scans, if there are any. All threads of a block then run the same number of iterations.
    pub reverse: Option<bool>,
    /// For each value, whether it stays in registers, and whether it is in them already.
    pub keeps: Vec<bool>,
    pub kept: Vec<bool>,
    /// For each value, whether it is a ranking whose ranks are in shared memory.
    pub ranked: Vec<bool>,
    /// The only ranking, if all stores write its first elements by rank. It leaves positions in sorted order instead of
    /// ranks.
    pub in_order: Option<Ranking>,
}

impl<'a> RowPrinter<'a> {
    /// Returns a printer for rows with their schedule.
    pub fn new(dialect: &'a dyn Dialect, rows: &'a Rows<'a>) -> RowPrinter<'a> {
        let Rows { kernel, shape, ref nest, schedule: Schedule { team, lanes } } = *rows;
        let names: [&str; 2] = ["row", "c"];
        let emitter = Emitter::new(dialect, &kernel.slots, nest, &names, lanes, "v");
        let count = nest.instrs.len();
        let (level, varies) = (RowValues::of(&nest.instrs).levels(), varying(&nest.instrs, 1..2));
        let needed = needed(&nest.instrs, nest.stores.iter().flat_map(|s| s.values()));
        let mut printer = RowPrinter {
            dialect,
            emitter,
            kernel,
            shape,
            nest,
            team,
            lanes,
            varies,
            level,
            needed,
            items: None,
            loops: 0,
            reverse: None,
            keeps: vec![false; count],
            kept: vec![false; count],
            ranked: vec![false; count],
            in_order: Ranking::first_only(nest).filter(|_| lanes.axis == 1 || lanes.count == 1),
        };
        match direction(&nest.instrs, &printer.needed) {
            Ok(reverse) => printer.reverse = reverse,
            Err(why) => printer.emitter.problems.push(why),
        }
        printer.keeps = printer.computed_before();
        let groups = lanes.domain(&nest.domain)[1];
        let items = groups.div_ceil(team.threads * team.blocks);
        let keeps = (0..count).filter(|&id| printer.keeps[id]);
        let registers: usize = keeps.map(|id| items * printer.emitter.width(id)).sum();
        let is_ranked = !Ranking::all(&nest.instrs).is_empty();
        let again = is_ranked || nest.stores.iter().any(|s| printer.store_varies(s)) || printer.passes() > 1;
        printer.items = (again && registers <= REGISTERS && items <= 16).then_some(items.max(1));
        printer
    }

    /// Returns the number of passes before the pass with the stores.
    pub fn passes(&self) -> usize {
        self.level.iter().zip(&self.needed).filter(|(_, needed)| **needed).map(|(level, _)| *level).max().unwrap_or(0)
    }

    /// Returns whether a store has a separate index or value for each point of a row.
    pub fn store_varies(&self, store: &eutectic_backend::Store) -> bool {
        store.maps().any(|map| map.mentions(1)) || store.values().into_iter().any(|value| self.varies[value])
    }

    /// Returns, for each value, whether to keep it in registers. An earlier loop computes it, a later one needs it, and
    /// it is a load, a scan or the operand of a reduction.
    fn computed_before(&self) -> Vec<bool> {
        let count = self.nest.instrs.len();
        let all: Vec<ValueId> = self.nest.instrs.iter().filter_map(Instr::reduction).map(|(_, arg)| arg).collect();
        let is_worth = |id: ValueId| {
            let instr = &self.nest.instrs[id];
            matches!(instr, Instr::Load(_)) || Scan::of(instr).is_some() || all.contains(&id)
        };
        let (mut known, mut keeps) = (vec![false; count], vec![false; count]);
        for (mut asked, ranked) in self.loops_over_rows() {
            let mut seen = vec![false; count];
            while let Some(id) = asked.pop() {
                if !self.varies[id] || ranked.contains(&id) || std::mem::replace(&mut seen[id], true) {
                    continue;
                }
                if known[id] && is_worth(id) {
                    keeps[id] = true;
                } else {
                    asked.extend(self.nest.instrs[id].args());
                }
            }
            known.iter_mut().zip(seen).for_each(|(known, seen)| *known |= seen);
        }
        keeps
    }

    /// Returns the loops over a row in order. Each has the values that it computes, and the rankings that are finished
    /// before it.
    fn loops_over_rows(&self) -> Vec<(Vec<ValueId>, Vec<ValueId>)> {
        let (mut loops, mut ranked) = (Vec::new(), Vec::new());
        for pass in 0..=self.passes() {
            let roots: Vec<ValueId> = if pass < self.passes() {
                self.reductions(pass).filter_map(|id| self.nest.instrs[id].reduction()).map(|(_, arg)| arg).collect()
            } else {
                let stores = self.nest.stores.iter().filter(|store| self.store_varies(store));
                stores.flat_map(|store| store.values()).collect()
            };
            let is_known = |ranked: &[ValueId], id: ValueId| !self.varies[id] || ranked.contains(&id);
            for ranking in needed_rankings(&self.nest.instrs, &roots, |id| is_known(&ranked, id)) {
                loops.push((vec![ranking.arg], ranked.clone()));
                ranked.push(ranking.id);
            }
            loops.push((roots, ranked.clone()));
        }
        loops
    }

    /// Returns the reductions of a pass.
    pub fn reductions(&self, pass: usize) -> impl Iterator<Item = ValueId> {
        let is_of_pass = move |&id: &ValueId| {
            self.needed[id] && self.level[id] == pass + 1 && self.nest.instrs[id].reduction().is_some()
        };
        (0..self.nest.instrs.len()).filter(is_of_pass)
    }
}
