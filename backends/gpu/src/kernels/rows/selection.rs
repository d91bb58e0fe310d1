//! Rankings that need few of the first elements of a row.
//!
//! The threads of a row find the last selected key digit by digit, the most significant one first. To find a digit,
//! they count the elements with each digit in shared memory. Among the elements with the last key, those at the first
//! positions are selected. Each selected element is then compared with all other selected ones (radix selection; Alabi
//! et al., Fast k-selection algorithms for graphics processing units, 2012).

use eutectic_ir::{DType, attr::Number, ops::Reduction};

use super::{
    printer::RowPrinter,
    ranking::{BITS, COUNTS, DIGITS, Ranking, RankingWay, SUMS},
};
use crate::dialect::{Dialect, Team};

/// The number of elements that a thread reads at once.
const READ_AT_ONCE: usize = 8;

/// The text of a selection.
pub(super) struct Selection<'a> {
    pub dialect: &'a dyn Dialect,
    pub ranking: &'a Ranking,
    pub team: Team,
    pub points: usize,
    /// Whether the selection leaves positions in sorted order instead of ranks.
    pub in_order: bool,
    pub lines: Vec<String>,
}

impl RowPrinter<'_> {
    /// Prints a selection. It replaces the keys in shared memory by ranks.
    pub(super) fn select(&mut self, ranking: &Ranking, way: RankingWay) {
        let points = self.nest.domain[1];
        // The elements of a row are contiguous in the table, so any thread of the block can read them.
        let team = Team { threads: self.team.threads, rows: self.table() / points, along: true, blocks: 1 };
        let in_order = self.in_order.is_some();
        let mut selection = Selection { dialect: self.dialect, ranking, team, points, in_order, lines: Vec::new() };
        selection.begin();
        if way == RankingWay::Drawn {
            selection.draw()
        } else {
            selection.count_digits()
        }
        selection.lines.iter().for_each(|line| self.emitter.line(line));
    }
}

impl Selection<'_> {
    fn begin(&mut self) {
        let (dialect, index) = (self.dialect, self.dialect.index(false));
        let threads = self.team.threads as i64;
        let own = dialect.div("thread", threads, false, false);
        self.lines.push("{".into());
        for (name, value) in [
            ("worker", dialect.modulo("thread", threads, false, false)),
            ("own_keys", format!("{own} * {}", self.points)),
            ("own_first", format!("{own} * {}", self.ranking.order.most)),
            ("own_counts", format!("{own} * {COUNTS}")),
        ] {
            self.lines.push(dialect.declare(index, name, &value));
        }
    }

    fn count_digits(&mut self) {
        self.last_key();
        self.last_place();
        self.gather();
        self.compare();
        self.lines.extend([self.dialect.meet(), "}".into()]);
    }

    /// Returns the table of counts.
    fn counts(&self) -> (usize, DType, usize) {
        self.ranking.counts(self.team.rows * COUNTS)
    }

    /// Prints the search for the least key `high` such that at least `most` elements have that key or a smaller one.
    /// `found` counts these elements.
    fn last_key(&mut self) {
        let (dialect, dtype) = (self.dialect, self.ranking.key());
        let (index, key, most) = (dialect.index(false), dialect.register(dtype), self.ranking.order.most);
        let number = |n: i64| dialect.number(Number::Int(n), dtype);
        self.lines.extend([
            dialect.variable(key, "prefix", &number(0)),
            dialect.variable(key, "high", &number(0)),
            dialect.variable(index, "wanted", &most.to_string()),
            dialect.variable(index, "found", &self.points.to_string()),
        ]);
        self.reset("own_counts");
        self.lines.extend([
            format!("if (worker == 0) {{ {} }}", dialect.set_cell(self.counts(), &selected(), "0")),
            dialect.meet(),
            dialect.each("round", "0", self.ranking.digits(), 1),
        ]);
        self.leave_when(&format!("found == {most}"), false);
        let digits = dialect.convert(dialect.register(DType::U32), "below");
        for (ty, name, value) in [
            (index, "below", format!("{} - {BITS} * round", BITS * (self.ranking.digits() - 1))),
            (dialect.register(DType::U32), "shift", digits),
            // The highest bit of the first digit is the sign.
            (index, "least", dialect.choose("round == 0", &(DIGITS / 2).to_string(), "0")),
            (index, "own_digits", format!("own_counts + (round & 1) * {}", DIGITS + SUMS)),
            (index, "next_digits", format!("own_counts + {} - (round & 1) * {}", DIGITS + SUMS, DIGITS + SUMS)),
        ] {
            self.lines.push(dialect.declare(ty, name, &value));
        }
        let digit = dialect.convert(index, &format!("((key >> shift) & {})", number(DIGITS as i64 - 1)));
        let count =
            dialect.combine_cell(Reduction::Sum, self.counts(), &format!("own_digits + ({digit} ^ least)"), "1");
        self.each_key(&format!("if ((round == 0) || (((key >> shift) >> {BITS}u) == prefix)) {{ {count} }}"));
        self.lines.push(dialect.meet());
        self.digit();
        self.lines.extend([
            format!("prefix = (prefix << {BITS}u) + {};", dialect.convert(key, "(digit - least)")),
            format!("high = (prefix << shift) + (({} << shift) - {});", number(1), number(1)),
            "wanted -= before;".into(),
            format!("found = {most} - wanted + {};", dialect.cell(self.counts(), "own_digits + digit")),
            "}".into(),
        ]);
    }

    /// Prints statements that set the counts of a digit to 0.
    fn reset(&mut self, first: &str) {
        let dialect = self.dialect;
        self.lines.extend([
            dialect.each("n", "worker", DIGITS, self.team.threads),
            dialect.set_cell(self.counts(), &format!("{first} + n"), "0"),
            "}".into(),
        ]);
    }

    /// Prints the search for the digit of the last selected element, as `digit`. `before` counts the elements with
    /// smaller digits.
    fn digit(&mut self) {
        let (dialect, index, counts) = (self.dialect, self.dialect.index(false), self.counts());
        let neighbours = DIGITS / SUMS;
        self.lines.extend([
            dialect.each("group", "worker", SUMS, self.team.threads),
            dialect.variable(index, "sum", "0"),
            dialect.each("n", "0", neighbours, 1),
            format!("sum += {};", dialect.cell(counts, &format!("own_digits + group * {neighbours} + n"))),
            "}".into(),
            dialect.set_cell(counts, &format!("own_digits + {DIGITS} + group"), "sum"),
            "}".into(),
        ]);
        self.reset("next_digits");
        self.lines.extend([
            dialect.meet(),
            dialect.variable(index, "digit", "0"),
            dialect.variable(index, "before", "0"),
            dialect.variable(index, "sum", "0"),
        ]);
        for (step, count, first) in
            [(neighbours, SUMS, format!("own_digits + {DIGITS}")), (1, neighbours, "own_digits + first".into())]
        {
            self.lines.push("{".into());
            self.lines.push(dialect.declare(index, "first", "digit"));
            self.lines.push("sum = before;".into());
            self.lines.push(dialect.each("n", "0", count, 1));
            self.lines.extend([
                format!("sum += {};", dialect.cell(counts, &format!("{first} + n"))),
                format!("digit = {};", dialect.choose("sum < wanted", &format!("first + (n + 1) * {step}"), "digit")),
                format!("before = {};", dialect.choose("sum < wanted", "sum", "before")),
            ]);
            self.lines.extend(["}".into(), "}".into()]);
        }
    }

    /// Prints the bisection for the last selected position among the elements whose key is `high`.
    fn last_place(&mut self) {
        let (dialect, index) = (self.dialect, self.dialect.index(false));
        let rounds = self.points.next_power_of_two().trailing_zeros() as usize;
        self.lines.extend([
            dialect.variable(index, "lower", "0"),
            dialect.variable(index, "upper", &(self.points - 1).to_string()),
            dialect.each("round", "0", rounds, 1),
        ]);
        let only_row_waits = self.team.threads == dialect.together(DType::I32);
        self.leave_when(&format!("(found == {}) || (lower >= upper)", self.ranking.order.most), only_row_waits);
        self.lines.push(dialect.declare(index, "middle", &dialect.div("(lower + upper)", 2, false, false)));
        self.lines.push(dialect.variable(index, "sum", "0"));
        self.each_key(&format!("sum += {};", dialect.choose(&counts("middle"), "1", "0")));
        let reached = dialect.reduce(Reduction::Sum, ("sum", DType::I32), self.team);
        let is_enough = format!("reached >= {}", self.ranking.order.most);
        self.lines.extend([
            dialect.declare(index, "reached", &reached),
            dialect.declare(dialect.register(DType::Bool), "is_enough", &is_enough),
            format!("upper = {};", dialect.choose("is_enough", "middle", "upper")),
            format!("lower = {};", dialect.choose("is_enough", "lower", "middle + 1")),
            "}".into(),
        ]);
    }

    /// Prints the copy of selected keys and positions to their tables, in no particular order.
    fn gather(&mut self) {
        let (dialect, index) = (self.dialect, self.dialect.index(false));
        let [key, place] = self.first("own_first + slot");
        let slot = dialect.declare(index, "slot", &dialect.take_cell(self.counts(), &selected()));
        let is_selected = counts("upper");
        self.each_key(&format!("if ({is_selected}) {{\n{slot}\n{key} = key;\n{place} = n;\n}}"));
        self.lines.push(dialect.meet());
    }

    /// Returns the key and the position of a selected element, from its index in their tables in shared memory.
    pub(super) fn first(&self, at: &str) -> [String; 2] {
        self.ranking.first(self.dialect, self.team.rows * self.ranking.order.most, at)
    }

    /// Returns the rank of an element.
    pub(super) fn rank(&self, at: &str) -> String {
        self.ranking.keys(self.dialect, self.team.rows * self.points, at)
    }

    /// Returns the statement that stores the rank of an element at its position, or its position at its rank.
    pub(super) fn leave(&self, rank: &str, place: &str) -> String {
        let (at, value) = if self.in_order { (rank, place) } else { (place, rank) };
        let value = self.dialect.convert(self.dialect.register(self.ranking.key()), value);
        format!("{} = {value};", self.rank(&format!("own_keys + {at}")))
    }

    /// Prints statements that set the rank of every element to `most`, the common rank of unselected elements. Prints
    /// nothing if positions are stored in sorted order.
    pub(super) fn reset_ranks(&mut self) {
        if self.in_order {
            return;
        }
        let (dialect, most) = (self.dialect, self.ranking.order.most as i64);
        self.lines.extend([
            dialect.each("n", "worker", self.points, self.team.threads),
            format!("{} = {};", self.rank("own_keys + n"), dialect.number(Number::Int(most), self.ranking.key())),
            "}".into(),
            dialect.meet(),
        ]);
    }

    /// Prints the ranks of the selected elements. Every other element gets the same rank, `most`.
    fn compare(&mut self) {
        let (dialect, index) = (self.dialect, self.dialect.index(false));
        let (ty, most) = (dialect.register(self.ranking.key()), self.ranking.order.most);
        let [own, other] = [self.first("own_first + n"), self.first("own_first + m")];
        self.reset_ranks();
        let lines = [
            dialect.each("n", "worker", most, self.team.threads),
            dialect.declare(ty, "a", &own[0]),
            dialect.declare(index, "p", &own[1]),
            dialect.variable(index, "rank", "0"),
            dialect.each("m", "0", most, 1),
            dialect.declare(ty, "b", &other[0]),
            format!("rank += {};", dialect.choose(&format!("(b < a) || ((b == a) && ({} < p))", other[1]), "1", "0")),
            "}".into(),
            self.leave("rank", "p"),
            "}".into(),
        ];
        self.lines.extend(lines);
    }

    /// Prints a statement for each element `n` of a row and its `key`.
    pub(super) fn each_key(&mut self, statement: &str) {
        let dialect = self.dialect;
        let key = dialect.declare(dialect.register(self.ranking.key()), "key", &self.rank("own_keys + n"));
        let body = format!("{key}\n{statement}\n");
        let text = dialect.in_turns(("n", "worker"), self.points, self.team.threads, READ_AT_ONCE, &body);
        self.lines.push(text);
    }

    /// Prints a break if `when` holds. A loop with a barrier may be left early only if all threads that wait at the
    /// barrier work on one row.
    fn leave_when(&mut self, when: &str, only_row_waits: bool) {
        if only_row_waits || self.team.rows == 1 {
            self.lines.push(format!("if ({when}) {{ break; }}"));
        }
    }
}

/// Returns the condition that an element is selected: its key is below `high`, or equals it at a position up to
/// `place`.
fn counts(place: &str) -> String {
    format!("(key < high) || ((key == high) && (n <= {place}))")
}

/// Returns the index of the number of selected elements in the table of counts.
fn selected() -> String {
    format!("own_counts + {}", COUNTS - 1)
}
