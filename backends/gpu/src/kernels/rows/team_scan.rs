//! Scans the totals of the threads of a row: each thread gets the combination of the totals before its own.

use eutectic_backend::{Instr, ValueId};
use eutectic_ir::{
    Attr, DType,
    ops::{Reduction, RowOp},
};

use crate::dialect::{Dialect, Team};

/// The maximal number of groups of threads that exchange values in registers. Each thread reads the totals of all
/// groups.
pub(super) const GROUPS: usize = 8;

/// A scan of a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan {
    /// The properties of the row operation.
    pub row: &'static RowOp,
    /// The element type.
    pub dtype: DType,
    /// Whether the scan goes from the last element to the first.
    pub reverse: bool,
    /// Whether a result leaves out its own element.
    pub exclusive: bool,
}

impl Scan {
    /// Returns the scan of an instruction; `None` if it is not a scan.
    pub fn of(instr: &Instr) -> Option<Scan> {
        let Instr::Row { op, attrs, dtype, .. } = instr else { return None };
        let row = op.row().filter(|row| row.is_scan())?;
        let flag = |name| op.attr(name).and_then(|at| attrs.get(at)).and_then(Attr::bool).unwrap_or(false);
        Some(Scan { row, dtype: *dtype, reverse: flag("reverse"), exclusive: flag("exclusive") })
    }

    /// Returns the number of values that represent a run of elements: one for a monoid. A recurrence h ← a·h + b has
    /// two: the product of its factors a, and its last state if it starts at 0. Floats have a third one. It is NaN if a
    /// state of 0 is multiplied by a factor that is not finite, and otherwise 0. The product of the factors cannot tell
    /// this, because finite factors may overflow to infinity.
    pub fn width(&self) -> usize {
        match self.row.monoid {
            Some(_) => 1,
            None if self.dtype.is_float() => 3,
            None => 2,
        }
    }

    /// Returns the values that represent one element, given its operands.
    pub fn element(&self, dialect: &dyn Dialect, mut operands: Vec<String>) -> Vec<String> {
        if self.width() == 3 {
            // Compilers replace a product with 0 by 0, so a condition chooses the value instead.
            let number = |value: f64| dialect.literal(value, self.dtype);
            let (_, most) = if self.dtype == DType::F64 { DType::F64 } else { DType::F32 }.normal_range();
            let is_finite = format!("({0} >= {1} && {0} <= {2})", operands[0], number(-most), number(most));
            operands.push(dialect.choose(&is_finite, &number(0.0), &number(f64::NAN)));
        }
        operands
    }

    /// Returns the values that represent an empty run of elements.
    pub fn identity(&self, dialect: &dyn Dialect) -> Vec<String> {
        let of = |operand| dialect.number(self.row.absent(operand, self.dtype, &[]), self.dtype);
        (0..self.width()).map(of).collect()
    }

    /// Returns the state after a run of elements, given the state before it. It is their combination, or a step of the
    /// recurrence.
    pub fn after(&self, dialect: &dyn Dialect, state: &str, elements: &[String]) -> String {
        match (self.row.monoid, elements) {
            (Some(how), [x, ..]) => dialect.combine(how, self.dtype, state, x),
            (_, [a, b]) => self.step(dialect, a, state, b),
            (_, [a, b, of_zero]) => {
                let sum = dialect.combine(Reduction::Sum, self.dtype, of_zero, b);
                dialect.choose(&self.is_zero(dialect, state), &sum, &self.step(dialect, a, state, b))
            }
            _ => state.into(),
        }
    }

    /// Returns the values that represent two consecutive runs together.
    pub fn combined(&self, dialect: &dyn Dialect, first: &[String], then: &[String]) -> Vec<String> {
        let both = |how, a: &str, b: &str| dialect.combine(how, self.dtype, a, b);
        match (first, then) {
            ([x], _) => vec![self.after(dialect, x, then)],
            ([a, h], [b, g]) => vec![both(Reduction::Product, a, b), self.step(dialect, b, h, g)],
            ([a, h, of_zero], [b, g, of_next]) => {
                let is_zero = self.is_zero(dialect, h);
                vec![
                    both(Reduction::Product, a, b),
                    // The NaN of the second run is kept separate, because an earlier state other than 0 may avoid it.
                    dialect.choose(&is_zero, g, &self.step(dialect, b, h, g)),
                    both(Reduction::Sum, of_zero, &dialect.choose(&is_zero, of_next, of_zero)),
                ]
            }
            _ => first.to_vec(),
        }
    }

    /// Returns a · h + b.
    fn step(&self, dialect: &dyn Dialect, a: &str, h: &str, b: &str) -> String {
        let product = dialect.combine(Reduction::Product, self.dtype, a, h);
        dialect.combine(Reduction::Sum, self.dtype, &product, b)
    }

    fn is_zero(&self, dialect: &dyn Dialect, state: &str) -> String {
        format!("{state} == {}", dialect.literal(0.0, self.dtype))
    }
}

/// The result of scanning the totals of a row's threads.
pub(super) struct Together {
    /// The combined elements of all earlier threads of the row; `None` for a single thread.
    pub before: Option<Vec<String>>,
    /// The combined elements of all threads of the row.
    pub all: Vec<String>,
}

/// Prints the scan of totals over the threads of a row.
pub(super) struct TeamScan<'a> {
    pub dialect: &'a dyn Dialect,
    pub team: Team,
    pub scan: Scan,
    /// A unique prefix of names.
    pub name: String,
    pub text: String,
}

impl TeamScan<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Prints declarations of values, and returns their names.
    fn declare(&mut self, name: &str, values: &[String]) -> Vec<String> {
        let ty = self.dialect.register(self.scan.dtype);
        let names = (0..values.len()).map(|n| format!("{}_{name}{n}", self.name)).collect::<Vec<_>>();
        for (name, value) in names.iter().zip(values) {
            let line = self.dialect.declare(ty, name, value);
            self.line(&line);
        }
        names
    }

    /// Returns the values that a condition chooses.
    fn choose(&self, when: &str, then: &[String], otherwise: &[String]) -> Vec<String> {
        then.iter().zip(otherwise).map(|(then, otherwise)| self.dialect.choose(when, then, otherwise)).collect()
    }

    /// Scans the totals of the threads of each row.
    pub fn print(&mut self, total: &[String]) -> Together {
        let Team { threads, rows, along, .. } = self.team;
        if threads == 1 {
            return Together { before: None, all: total.to_vec() };
        }
        let size = self.dialect.together(self.scan.dtype);
        let apart = if along { 1 } else { rows };
        let group = (size / apart).clamp(1, threads);
        // Reads the values of an earlier thread. The first threads of a row read values of another row, and ignore
        // them.
        let dialect = self.dialect;
        let earlier = |values: &[String], by: usize| -> Vec<String> {
            let from = format!("(thread + {}) % {size}", size - by * apart % size);
            values.iter().map(|value| dialect.shuffle(value, &from)).collect()
        };
        let mut sum = total.to_vec();
        let mut by = 1;
        while by < group {
            let other = self.declare(&format!("o{by}_"), &earlier(&sum, by));
            let both = self.scan.combined(self.dialect, &other, &sum);
            let next = self.choose(&format!("t % {group} >= {by}"), &both, &sum);
            sum = self.declare(&format!("s{by}_"), &next);
            by *= 2;
        }
        let identity = self.scan.identity(self.dialect);
        let groups = threads / group;
        let mut before = match group {
            1 => None,
            _ => {
                let other = self.declare("e", &earlier(&sum, 1));
                let own = self.choose(&format!("t % {group} >= 1"), &other, &identity);
                Some(self.declare("b", &own))
            }
        };
        if groups == 1 {
            let last = format!("(thread + {} - t % {group} * {apart}) % {size}", size + (group - 1) * apart);
            let all: Vec<String> = sum.iter().map(|value| self.dialect.shuffle(value, &last)).collect();
            return Together { before, all: self.declare("a", &all) };
        }
        let count = groups * rows;
        // The totals of one row's groups are contiguous, or the totals of neighbouring rows are.
        let (row, place) = match along {
            true => (format!("thread / {threads} * {groups}"), 1),
            false => (format!("thread % {rows}"), rows),
        };
        for (n, sum) in sum.iter().enumerate() {
            let at = format!("{row} + t / {group} * {place}");
            let when = format!("t % {group} == {}", group - 1);
            let line = self.dialect.leave((n, self.scan.dtype, count), sum, &at, &when);
            self.line(&line);
        }
        let mut all = identity.clone();
        let mut of_groups = identity;
        for g in 0..groups {
            let at = format!("{row} + {}", g * place);
            let left: Vec<String> =
                (0..sum.len()).map(|n| self.dialect.left((n, self.scan.dtype, count), &at)).collect();
            let left = self.declare(&format!("l{g}_"), &left);
            let both = self.scan.combined(self.dialect, &all, &left);
            all = self.declare(&format!("a{g}_"), &both);
            let next = self.choose(&format!("t / {group} > {g}"), &all, &of_groups);
            of_groups = self.declare(&format!("g{g}_"), &next);
        }
        before = Some(match before {
            Some(own) => {
                let both = self.scan.combined(self.dialect, &of_groups, &own);
                self.declare("h", &both)
            }
            None => of_groups,
        });
        Together { before, all }
    }
}

/// Returns the direction of a body's scans, if it has any.
///
/// # Errors
/// Returns an error if scans run in both directions.
pub(super) fn direction(instrs: &[Instr], needed: &[bool]) -> Result<Option<bool>, String> {
    let wanted = instrs.iter().zip(needed).filter(|(_, needed)| **needed);
    let mut all = wanted.filter_map(|(instr, _)| Some(Scan::of(instr)?.reverse));
    let first = all.next();
    match all.all(|other| Some(other) == first) {
        true => Ok(first),
        false => Err("cannot scan a row in both directions in one kernel".into()),
    }
}

/// Returns the scans that `roots` depend on, in order. Dependencies through `known` values do not count.
pub(super) fn needed_scans(instrs: &[Instr], roots: Vec<ValueId>, known: impl Fn(ValueId) -> bool) -> Vec<ValueId> {
    let (mut asked, mut seen) = (roots, vec![false; instrs.len()]);
    while let Some(id) = asked.pop() {
        if !known(id) && !std::mem::replace(&mut seen[id], true) {
            asked.extend(instrs[id].args());
        }
    }
    (0..instrs.len()).filter(|&id| seen[id] && Scan::of(&instrs[id]).is_some()).collect()
}
