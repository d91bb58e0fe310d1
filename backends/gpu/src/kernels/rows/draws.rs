//! Rankings of short rows that need very few of the first elements: the threads of a row draw these one by one.
//!
//! Each thread tracks the first of its own elements that is not drawn yet. A reduction over the row draws the first of
//! these, and its thread then searches for its own next one.

use eutectic_ir::{DType, attr::Number, ops::Reduction};

use super::selection::Selection;

impl Selection<'_> {
    /// Prints the draws, which replace the keys in shared memory by ranks.
    pub(super) fn draw(&mut self) {
        let (dialect, dtype) = (self.dialect, self.ranking.key());
        let (index, key) = (dialect.index(false), dialect.register(dtype));
        let (most, greatest) = (self.ranking.order.most, dialect.number(Number::Int(dtype.integers().1), dtype));
        let (bool, none) = (dialect.register(DType::Bool), self.points.to_string());
        self.lines.extend([
            dialect.meet(),
            dialect.variable(key, "best", &greatest),
            dialect.variable(index, "at", &none),
        ]);
        // Finds the first element of each thread.
        self.each_key(&better("true"));
        self.lines.push(dialect.each("nth", "0", most, 1));
        let least = dialect.reduce(Reduction::Min, ("best", dtype), self.team);
        self.lines.push(dialect.declare(key, "drawn", &least));
        let place = dialect.choose("best == drawn", "at", &none);
        self.lines.push(dialect.declare(index, "offered", &place));
        let place = dialect.reduce(Reduction::Min, ("offered", DType::I32), self.team);
        self.lines.push(dialect.declare(index, "place", &place));
        let [_, first] = self.first("own_first + nth");
        self.lines.extend([
            format!("if (worker == 0) {{ {first} = place; }}"),
            dialect.declare(bool, "is_own", "(best == drawn) && (at == place)"),
            "if (is_own) {".into(),
            format!("best = {greatest};"),
            format!("at = {none};"),
        ]);
        self.each_key(&better("(key > drawn) || ((key == drawn) && (n > place))"));
        self.lines.extend(["}".into(), "}".into(), dialect.meet()]);
        self.reset_ranks();
        let [_, place] = self.first("own_first + n");
        self.lines.extend([
            dialect.each("n", "worker", most, self.team.threads),
            dialect.declare(index, "place", &place),
            self.leave("n", "place"),
            "}".into(),
            dialect.meet(),
            "}".into(),
        ]);
    }
}

/// Returns the statement that makes an element the best one if it comes first among the elements that `may` admits.
fn better(may: &str) -> String {
    format!("if (({may}) && ((key < best) || ((key == best) && (n < at)))) {{ best = key; at = n; }}")
}
