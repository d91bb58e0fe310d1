//! Scans in row groups. In each iteration, each thread of a row takes a group of neighbouring elements. It scans its
//! group, the threads scan their totals, and both are combined with the state of the earlier iterations.

use eutectic_backend::ValueId;
use eutectic_ir::DType;

use super::{
    printer::RowPrinter,
    team_scan::{Scan, TeamScan},
};

impl RowPrinter<'_> {
    /// Returns whether the last iteration has fewer groups than threads.
    pub(super) fn is_partial(&self) -> bool {
        let groups = self.lanes.domain(&self.nest.domain)[1];
        self.reverse.is_some() && !groups.is_multiple_of(self.team.threads)
    }

    /// Prints the index of the group of points that a thread processes in an iteration, in the direction of scans. A
    /// thread without a group gets some group of the row.
    pub(super) fn turn(&self, turn: &str) -> String {
        let (threads, groups) = (self.team.threads, self.lanes.domain(&self.nest.domain)[1]);
        let ty = self.dialect.index(false);
        let last = groups.saturating_sub(1);
        let mut text = self.dialect.declare(ty, "nth", &format!("t + {turn} * {threads}")) + "\n";
        let mut at = "nth".to_string();
        if self.is_partial() {
            let within = format!("nth < {groups}");
            text += &(self.dialect.declare(self.dialect.register(DType::Bool), "within", &within) + "\n");
            at = self.dialect.choose("within", "nth", &last.to_string());
        }
        let at = if self.reverse == Some(true) { format!("{last} - {at}") } else { at };
        text + &self.dialect.declare(ty, "c", &at) + "\n"
    }

    /// Prints variables for the states of a scan before the first element: one for a thread, or one for each of its
    /// neighbouring rows.
    pub(super) fn start(&mut self, id: ValueId) {
        let Some(scan) = Scan::of(&self.nest.instrs[id]) else { return };
        let first = scan.row.absent(scan.width() - 1, scan.dtype, &[]);
        for state in 0..if self.lanes.axis == 0 { self.lanes.count } else { 1 } {
            let (ty, first) = (self.dialect.register(scan.dtype), self.dialect.number(first, scan.dtype));
            let line = self.dialect.variable(ty, &self.state(id, state), &first);
            self.emitter.line(&line);
        }
    }

    /// Returns the name of a state of a scan. Each loop over the row has separate states.
    fn state(&self, id: ValueId, state: usize) -> String {
        format!("h{id}_{state}_{}", self.loops)
    }

    /// Prints a scan of the points of one iteration.
    pub(super) fn scan(&mut self, id: ValueId) {
        let Some(scan) = Scan::of(&self.nest.instrs[id]) else { return };
        let count = self.lanes.count;
        let mut order: Vec<usize> = (0..count).collect();
        if scan.reverse {
            order.reverse();
        }
        let of_states: Vec<Vec<usize>> = match self.lanes.axis {
            0 => order.into_iter().map(|lane| vec![lane]).collect(),
            _ => vec![order],
        };
        let mut names = vec![String::new(); count];
        for (nth, lanes) in of_states.into_iter().enumerate() {
            let state = self.state(id, if self.lanes.axis == 0 { lanes[0] } else { nth });
            for (lane, name) in lanes.iter().zip(self.scan_lanes(id, &scan, &state, &lanes)) {
                names[*lane] = name;
            }
        }
        self.emitter.set(id, names);
    }

    /// Prints a scan of the points of some lanes, in order. Returns the names of its results.
    fn scan_lanes(&mut self, id: ValueId, scan: &Scan, state: &str, lanes: &[usize]) -> Vec<String> {
        let (dialect, partial) = (self.dialect, self.is_partial());
        let args = self.nest.instrs[id].args();
        let identity = scan.identity(dialect);
        let mut sums: Vec<Vec<String>> = Vec::new();
        for &lane in lanes {
            let element = |this: &mut Self, (arg, identity): (&ValueId, &String)| {
                let value = this.emitter.lane(*arg, lane);
                if partial { this.declare(scan.dtype, &dialect.choose("within", &value, identity)) } else { value }
            };
            let operands = args.iter().zip(&identity).map(|pair| element(self, pair)).collect();
            let element = scan.element(dialect, operands);
            let sum = match sums.last() {
                Some(before) => {
                    let both = scan.combined(dialect, before, &element);
                    both.iter().map(|part| self.declare(scan.dtype, part)).collect()
                }
                None => element,
            };
            sums.push(sum);
        }
        let total = sums.last().cloned().unwrap_or(identity);
        let mut team =
            TeamScan { dialect, team: self.team, scan: *scan, name: self.emitter.name(), text: String::new() };
        let together = team.print(&total);
        self.emitter.text.push_str(&team.text);
        let start = match &together.before {
            Some(before) => scan.after(dialect, state, before),
            None => state.into(),
        };
        let start = self.declare(scan.dtype, &start);
        let after = |n: usize| scan.after(dialect, &start, &sums[n]);
        let results = (0..lanes.len()).map(|n| match (scan.exclusive, n) {
            (true, 0) => start.clone(),
            (true, n) => after(n - 1),
            (false, n) => after(n),
        });
        let results: Vec<String> =
            results.collect::<Vec<_>>().iter().map(|value| self.declare(scan.dtype, value)).collect();
        let next = scan.after(dialect, state, &together.all);
        self.emitter.line(&format!("{state} = {next};"));
        results
    }

    /// Prints the declaration of a value under a new name, and returns the name.
    fn declare(&mut self, dtype: DType, value: &str) -> String {
        let name = self.emitter.name();
        let line = self.dialect.declare(self.dialect.register(dtype), &name, value);
        self.emitter.line(&line);
        name
    }
}
