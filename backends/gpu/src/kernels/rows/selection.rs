//! Rankings that tell few of the first elements of a row from each other. The threads of a row halve the range of keys until as many elements as count
//! are in it, and then the range of places of those that equal the last of these. Each selected element is then compared with each.

use eutectic_ir::{DType, attr::Number, ops::Reduction};

use super::{printer::RowPrinter, ranking::Ranking};
use crate::dialect::{Dialect, Team};

/// Elements of a thread that are read at once.
const TURNS: usize = 8;

/// The text of a selection.
struct Selection<'a> {
    dialect: &'a dyn Dialect,
    ranking: &'a Ranking,
    team: Team,
    points: usize,
    lines: Vec<String>,
}

impl RowPrinter<'_> {
    /// Prints the selection: keys in shared memory become ranks.
    pub(super) fn select(&mut self, ranking: &Ranking) {
        let points = self.nest.domain[1];
        // The table has the elements of a row side by side, whichever thread has left them there.
        let team = Team { threads: self.team.threads, rows: self.table() / points, along: true, blocks: 1 };
        let mut selection = Selection { dialect: self.dialect, ranking, team, points, lines: Vec::new() };
        selection.print();
        selection.lines.iter().for_each(|line| self.emitter.line(line));
    }
}

impl Selection<'_> {
    fn print(&mut self) {
        let (dialect, index) = (self.dialect, self.dialect.index(false));
        let threads = self.team.threads as i64;
        let own = dialect.div("thread", threads, false, false);
        self.lines.extend(["{".into(), dialect.meet()]);
        for (name, value) in [
            ("worker", dialect.modulo("thread", threads, false, false)),
            ("own_keys", format!("{own} * {}", self.points)),
            ("own_first", format!("{own} * {}", self.ranking.order.most)),
        ] {
            self.lines.push(dialect.declare(index, name, &value));
        }
        self.last_key();
        self.last_place();
        self.gather();
        self.compare();
        self.lines.extend([dialect.meet(), "}".into()]);
    }

    /// Prints the search for the least key that as many elements as count are not above; `found` is how many there are.
    fn last_key(&mut self) {
        let (dialect, dtype) = (self.dialect, self.ranking.key());
        let (index, key, most) = (dialect.index(false), dialect.register(dtype), self.ranking.order.most);
        let (least, greatest) = dtype.integers();
        let number = |n: i64| dialect.number(Number::Int(n), dtype);
        self.lines.extend([
            dialect.variable(key, "low", &number(least)),
            dialect.variable(key, "high", &number(greatest)),
            dialect.variable(index, "found", &self.points.to_string()),
            dialect.each("round", "0", self.ranking.rounds(), 1),
        ]);
        self.leave_when(&format!("found == {most}"));
        self.lines.push(dialect.declare(key, "middle", "(low & high) + ((low ^ high) >> 1u)"));
        self.count("key <= middle");
        self.lines.extend([
            format!("high = {};", dialect.choose("is_enough", "middle", "high")),
            format!("found = {};", dialect.choose("is_enough", "reached", "found")),
            format!("low = {};", dialect.choose("is_enough", "low", &format!("middle + {}", number(1)))),
            "}".into(),
        ]);
    }

    /// Prints the search for the last of the places of that key which count.
    fn last_place(&mut self) {
        let (dialect, index) = (self.dialect, self.dialect.index(false));
        let rounds = self.points.next_power_of_two().trailing_zeros() as usize;
        self.lines.extend([
            dialect.variable(index, "lower", "0"),
            dialect.variable(index, "upper", &(self.points - 1).to_string()),
            dialect.each("round", "0", rounds, 1),
        ]);
        self.leave_when(&format!("(found == {}) || (lower >= upper)", self.ranking.order.most));
        self.lines.push(dialect.declare(index, "middle", &dialect.div("(lower + upper)", 2, false, false)));
        self.count(&counts("middle"));
        self.lines.extend([
            format!("upper = {};", dialect.choose("is_enough", "middle", "upper")),
            format!("lower = {};", dialect.choose("is_enough", "lower", "middle + 1")),
            "}".into(),
        ]);
    }

    /// Prints the tables of the elements that count, in no order.
    fn gather(&mut self) {
        let (dialect, index) = (self.dialect, self.dialect.index(false));
        let Team { threads, rows, .. } = self.team;
        let first = self.ranking.first(dialect, rows * self.ranking.order.most, "own_first + slot");
        let number = |at: &str| self.ranking.counts(dialect, rows * threads, at);
        let (own, before) = (number("thread"), number("thread - worker + before"));
        let is_selected = counts("upper");
        self.lines.push(dialect.variable(index, "sum", "0"));
        self.each_key(&format!("sum += {};", dialect.choose(&is_selected, "1", "0")));
        self.lines.extend([
            format!("{own} = sum;"),
            dialect.meet(),
            dialect.variable(index, "slot", "0"),
            dialect.each("before", "0", threads, 1),
            format!("if (before < worker) {{ slot += {before}; }}"),
            "}".into(),
        ]);
        let [key, place] = first;
        self.each_key(&format!("if ({is_selected}) {{ {key} = key; {place} = n; slot += 1; }}"));
        self.lines.push(dialect.meet());
    }

    /// Prints the ranks: those of the elements that count, and of all others one number.
    fn compare(&mut self) {
        let (dialect, index, key) = (self.dialect, self.dialect.index(false), self.ranking.key());
        let (ty, most, Team { threads, rows, .. }) = (dialect.register(key), self.ranking.order.most, self.team);
        let ranks = |at: &str| self.ranking.keys(dialect, rows * self.points, at);
        let first = |at: &str| self.ranking.first(dialect, rows * most, at);
        let [own, other] = [first("own_first + n"), first("own_first + m")];
        let lines = [
            dialect.each("n", "worker", self.points, threads),
            format!("{} = {};", ranks("own_keys + n"), dialect.number(Number::Int(most as i64), key)),
            "}".into(),
            dialect.meet(),
            dialect.each("n", "worker", most, threads),
            dialect.declare(ty, "a", &own[0]),
            dialect.declare(index, "p", &own[1]),
            dialect.variable(index, "rank", "0"),
            dialect.each("m", "0", most, 1),
            dialect.declare(ty, "b", &other[0]),
            format!("rank += {};", dialect.choose(&format!("(b < a) || ((b == a) && ({} < p))", other[1]), "1", "0")),
            "}".into(),
            format!("{} = {};", ranks("own_keys + p"), dialect.convert(ty, "rank")),
            "}".into(),
        ];
        self.lines.extend(lines);
    }

    /// Prints a statement for each element `n` of a row and its `key`.
    fn each_key(&mut self, statement: &str) {
        let (dialect, count) = (self.dialect, self.team.rows * self.points);
        let key = self.ranking.keys(dialect, count, "own_keys + n");
        let key = dialect.declare(dialect.register(self.ranking.key()), "key", &key);
        let body = format!("{key}\n{statement}\n");
        let text = dialect.in_turns(("n", "worker"), self.points, self.team.threads, TURNS, &body);
        self.lines.push(text);
    }

    /// Prints how many elements of the row a condition holds of, as `reached`, and whether these are as many as count.
    fn count(&mut self, when: &str) {
        let (dialect, index) = (self.dialect, self.dialect.index(false));
        self.lines.push(dialect.variable(index, "sum", "0"));
        self.each_key(&format!("sum += {};", dialect.choose(when, "1", "0")));
        let all = dialect.reduce(Reduction::Sum, ("sum", DType::I32), self.team);
        let is_enough = format!("reached >= {}", self.ranking.order.most);
        self.lines.extend([
            dialect.declare(index, "reached", &all),
            dialect.declare(dialect.register(DType::Bool), "is_enough", &is_enough),
        ]);
    }

    /// Prints the end of a loop, where the threads that add up numbers have one row: all of them end it together.
    fn leave_when(&mut self, when: &str) {
        let is_one_row = self.team.rows == 1 || self.team.threads == self.dialect.together(DType::I32);
        if is_one_row {
            self.lines.push(format!("if ({when}) {{ break; }}"));
        }
    }
}

/// Whether an element counts, where the last ones of the last key are known up to a place.
fn counts(place: &str) -> String {
    format!("(key < high) || ((key == high) && (n <= {place}))")
}
