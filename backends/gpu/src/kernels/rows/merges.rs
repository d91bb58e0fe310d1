//! Sorts rows within a block: each thread sorts neighbouring elements in registers, and then the block merges sorted
//! runs in pairs.
//!
//! In a merge, each thread writes as many neighbouring results as it has sorted elements. It finds by bisection how
//! many of them come from each run (Green, McColl and Bader, GPU merge path, 2012). Among equal elements, those of the
//! first run come first, so sorts are stable.

use eutectic_ir::{DType, attr::Number};

use super::{
    printer::RowPrinter,
    ranking::{Ranking, SORTED, places},
};
use crate::dialect::Dialect;

/// The text of a sort.
struct Merges<'a> {
    dialect: &'a dyn Dialect,
    ranking: &'a Ranking,
    /// Rows per block, and elements per row.
    rows: usize,
    points: usize,
    /// Whether the sort leaves the elements' positions in sorted order instead of ranks.
    in_order: bool,
    lines: Vec<String>,
}

impl RowPrinter<'_> {
    /// Prints the sort, which replaces the keys in shared memory by ranks.
    pub(super) fn sort(&mut self, ranking: &Ranking) {
        let points = self.nest.domain[1].max(1);
        let rows = self.table() / points;
        let threads = self.team.threads * self.team.rows;
        if rows * points.div_ceil(SORTED) > threads {
            let why = format!("cannot sort {rows} rows of {points} elements in a block of {threads} threads");
            return self.emitter.problems.push(why);
        }
        let in_order = self.in_order.is_some();
        let mut merges = Merges { dialect: self.dialect, ranking, rows, points, in_order, lines: Vec::new() };
        merges.print();
        merges.lines.iter().for_each(|line| self.emitter.line(line));
    }
}

impl Merges<'_> {
    fn print(&mut self) {
        let (dialect, index) = (self.dialect, self.dialect.index(false));
        let threads = self.points.div_ceil(SORTED);
        self.lines.extend(["{".into(), dialect.meet()]);
        for (ty, name, value) in [
            (index, "begin", format!("{} * {SORTED}", dialect.modulo("thread", threads as i64, false, false))),
            (index, "own_row", format!("{} * {}", dialect.div("thread", threads as i64, false, false), self.points)),
            (dialect.register(DType::Bool), "is_active", format!("thread < {}", self.rows * threads)),
        ] {
            self.lines.push(dialect.declare(ty, name, &value));
        }
        self.load();
        self.sort_registers();
        // Merges runs of SORTED elements, then runs twice as long, and so on.
        let levels = threads.next_power_of_two().trailing_zeros() as usize;
        self.lines.push(dialect.each("level", "0", levels, 1));
        self.exchange();
        self.lines.push("if (is_active) {".into());
        self.find();
        self.merge();
        self.lines.extend(["}".into(), "}".into(), dialect.meet()]);
        self.leave_ranks();
        self.lines.extend([dialect.meet(), "}".into()]);
    }

    fn key(&self, at: &str) -> String {
        self.ranking.keys(self.dialect, self.rows * self.points, at)
    }

    fn place(&self, at: &str) -> String {
        places(self.dialect, self.rows * self.points, at)
    }

    /// Prints a statement for each of a thread's elements that is within the row.
    fn each(&mut self, statement: impl Fn(&Self, usize) -> String) {
        let is_whole = self.points.is_multiple_of(SORTED);
        for n in 0..SORTED {
            let statement = statement(self, n);
            self.lines.push(match is_whole {
                true => statement,
                false => format!("if (begin + {n} < {}) {{ {statement} }}", self.points),
            });
        }
    }

    /// Prints the loads of each thread's keys into registers. Registers beyond the row get the greatest key.
    fn load(&mut self) {
        let (dialect, key) = (self.dialect, self.ranking.key());
        let last = dialect.number(Number::Int(key.integers().1), key);
        for n in 0..SORTED {
            self.lines.push(dialect.variable(dialect.register(key), &format!("key{n}"), &last));
            self.lines.push(dialect.variable(dialect.index(false), &format!("place{n}"), &format!("begin + {n}")));
        }
        self.lines.push("if (is_active) {".into());
        self.each(|this, n| format!("key{n} = {};", this.key(&format!("own_row + begin + {n}"))));
        self.lines.push("}".into());
    }

    /// Prints a sorting network that swaps only neighbours (odd-even transposition), so that equal elements keep their
    /// order.
    fn sort_registers(&mut self) {
        let (dialect, key, index) =
            (self.dialect, self.dialect.register(self.ranking.key()), self.dialect.index(false));
        for turn in 0..SORTED {
            for n in (turn % 2..SORTED - 1).step_by(2) {
                let next = n + 1;
                self.lines.push("{".into());
                for (ty, name, value) in [
                    (dialect.register(DType::Bool), "swap", format!("key{next} < key{n}")),
                    (key, "a", format!("key{n}")),
                    (index, "p", format!("place{n}")),
                ] {
                    self.lines.push(dialect.declare(ty, name, &value));
                }
                for (name, value) in [("key", "a"), ("place", "p")] {
                    let [own, other] = [n, next].map(|n| format!("{name}{n}"));
                    self.lines.push(format!("{own} = {};", dialect.choose("swap", &other, value)));
                    self.lines.push(format!("{other} = {};", dialect.choose("swap", value, &other)));
                }
                self.lines.push("}".into());
            }
        }
    }

    /// Prints the stores of each thread's keys and positions to shared memory, between two barriers.
    fn exchange(&mut self) {
        let meet = self.dialect.meet();
        self.lines.extend([meet.clone(), "if (is_active) {".into()]);
        self.each(|this, n| format!("{} = key{n};", this.key(&format!("own_row + begin + {n}"))));
        self.each(|this, n| format!("{} = place{n};", this.place(&format!("own_row + begin + {n}"))));
        self.lines.extend(["}".into(), meet]);
    }

    /// Prints the search for the first element that a thread takes from each run, as `i` and `j`.
    fn find(&mut self) {
        let (dialect, index, points) = (self.dialect, self.dialect.index(false), self.points);
        let level = dialect.convert(dialect.register(DType::U32), "level");
        let run = format!("{} << {level}", dialect.convert(index, &SORTED.to_string()));
        for (name, value) in [
            ("run", run),
            ("both", "begin & (0 - 2 * run)".into()),
            ("middle", dialect.choose(&format!("both + run < {points}"), "both + run", &points.to_string())),
            ("end", dialect.choose(&format!("both + 2 * run < {points}"), "both + 2 * run", &points.to_string())),
            ("before", "begin - both".into()),
        ] {
            self.lines.push(dialect.declare(index, name, &value));
        }
        let low = dialect.choose("before > end - middle", "before - (end - middle)", "0");
        let high = dialect.choose("before < middle - both", "before", "middle - both");
        let rounds = points.next_power_of_two().trailing_zeros() as usize + 1;
        let [first, second] = ["own_row + both + half", "own_row + middle + before - 1 - half"].map(|at| self.key(at));
        self.lines.extend([
            dialect.variable(index, "low", &low),
            dialect.variable(index, "high", &high),
            dialect.each("round", "0", rounds, 1),
            "if (low >= high) { break; }".into(),
            dialect.declare(index, "half", &dialect.div("(low + high)", 2, false, false)),
            dialect.declare(dialect.register(DType::Bool), "is_less", &format!("{second} < {first}")),
            format!("high = {};", dialect.choose("is_less", "half", "high")),
            format!("low = {};", dialect.choose("is_less", "low", "half + 1")),
            "}".into(),
            dialect.variable(index, "i", "both + low"),
            dialect.variable(index, "j", "middle + before - low"),
        ]);
    }

    /// Prints the merge of the elements that a thread takes from both runs.
    fn merge(&mut self) {
        let (dialect, index, points) = (self.dialect, self.dialect.index(false), self.points);
        let (key, bool) = (dialect.register(self.ranking.key()), dialect.register(DType::Bool));
        let within = |at: &str| dialect.choose(&format!("{at} < {points}"), at, &(points - 1).to_string());
        let element = |this: &Self, at: &str| this.key(&format!("own_row + {}", within(at)));
        for (name, at) in [("a", "i"), ("b", "j")] {
            let line = dialect.variable(key, name, &element(self, at));
            self.lines.push(line);
        }
        for n in 0..SORTED {
            let next = element(self, "next");
            let place = self.place(&format!("own_row + {}", within("taken")));
            self.lines.extend([
                "{".into(),
                dialect.declare(bool, "is_first", "(j >= end) || ((i < middle) && !(b < a))"),
                dialect.declare(index, "taken", &dialect.choose("is_first", "i", "j")),
                format!("key{n} = {};", dialect.choose("is_first", "a", "b")),
                format!("place{n} = {place};"),
                dialect.declare(index, "next", "taken + 1"),
                dialect.declare(key, "element", &next),
                format!("a = {};", dialect.choose("is_first", "element", "a")),
                format!("b = {};", dialect.choose("is_first", "b", "element")),
                format!("i = {};", dialect.choose("is_first", "next", "i")),
                format!("j = {};", dialect.choose("is_first", "j", "next")),
                "}".into(),
            ]);
        }
    }

    /// Prints the stores that replace keys: by the ranks of elements or, with `in_order`, by positions in sorted order.
    fn leave_ranks(&mut self) {
        let (dialect, key) = (self.dialect, self.dialect.register(self.ranking.key()));
        let most = i32::try_from(self.ranking.order.most).unwrap_or(i32::MAX).to_string();
        let is_cut = self.ranking.order.most < self.points;
        self.lines.push("if (is_active) {".into());
        self.each(|this, n| {
            let rank = format!("begin + {n}");
            if this.in_order {
                let place = dialect.convert(key, &format!("place{n}"));
                return format!("{} = {place};", this.key(&format!("own_row + {rank}")));
            }
            let rank = match is_cut {
                true => dialect.choose(&format!("{rank} < {most}"), &rank, &most),
                false => rank,
            };
            format!("{} = {};", this.key(&format!("own_row + place{n}")), dialect.convert(key, &rank))
        });
        self.lines.push("}".into());
    }
}
