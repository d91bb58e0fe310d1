//! Radix sorts of rows that exceed a block's shared memory.
//!
//! Elements are sorted by one digit of their keys after the other, the least significant digit first. For each digit, a
//! launch counts the elements of each tile by that digit. A scan of the counts gives the start of each tile's elements,
//! and a last launch moves the elements there. No block waits for another one. To sort its tile, a block takes the low
//! half of the digit first, and then the high half. Each thread counts its own adjacent elements, so equal elements
//! keep their order without atomics (Satish, Harris and Garland, Designing efficient sorting algorithms for manycore
//! GPUs, 2009).

use eutectic_ir::{DType, attr::Number, ops::Reduction};

use super::ranking::Ranking;
use crate::{device::DeviceShape, dialect::Dialect, launch::Launch};

/// Bits of a digit, and the number of its values.
pub(super) const BITS: usize = 8;
pub(super) const DIGITS: usize = 1 << BITS;
/// Bits by which a block sorts its tile in one step, and the number of counts of a thread.
const HALF: usize = BITS / 2;
const COUNTS: usize = 1 << HALF;
/// Adjacent elements per thread.
const OWN: usize = 16;
/// The maximal and the minimal number of threads of a block.
const THREADS: [usize; 2] = [256, 64];
/// Banks of shared memory.
const BANKS: usize = 32;
/// The numbers of the tables in shared memory: counts of digits; keys; positions; counts of threads with their totals;
/// for each digit, its start in the tile and the distance by which its elements move.
const HISTOGRAM: usize = 0;
const KEYS: usize = 1;
const PLACES: usize = 2;
const OWN_COUNTS: usize = 3;
const TOTALS: usize = 4;
const BEGINS: usize = 5;
const MOVES: usize = 6;

/// Elements in some order: the slots of their keys and of their positions in the row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Keyed {
    pub keys: usize,
    pub places: usize,
}

/// The elements that a launch reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Source {
    /// The slot of the values, in the order of the row.
    Values(usize),
    /// Elements in the order of the previous digits.
    Keyed(Keyed),
}

/// The work of a launch on the elements of a tile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Deed {
    /// Counts elements by the digit, and stores the counts in a slot: by row, digit and tile.
    Count(usize),
    /// Moves elements to the positions in slot `begins`. The move by the last digit writes positions only.
    Move { begins: usize, to: Keyed, is_last: bool },
}

/// A launch of a radix sort.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DigitPass {
    pub ranking: Ranking,
    /// Rows, and elements of a row.
    pub rows: usize,
    pub points: usize,
    /// Threads of a block.
    pub threads: usize,
    /// The lowest bit of the digit.
    pub shift: usize,
    pub from: Source,
    pub deed: Deed,
}

impl DigitPass {
    /// Returns the number of threads that sort a tile of keys of a type; `None` if shared memory is too small.
    pub fn threads(key: DType, shape: &DeviceShape) -> Option<usize> {
        let bytes = |threads: usize| {
            let tile = padded_count(threads * OWN);
            let places = if key == DType::I32 { 0 } else { tile };
            tile * key.size() + (places + padded_count(threads * COUNTS) + 2 * threads + 2 * DIGITS) * DType::I32.size()
        };
        let [most, fewest] = THREADS;
        let fits = |threads: &usize| *threads <= shape.threads && bytes(*threads) <= shape.static_shared();
        std::iter::successors(Some(most), |threads| Some(threads / 2))
            .take_while(|&threads| threads >= fewest)
            .find(fits)
    }

    /// Returns how many tiles a row of `points` elements has.
    pub fn tiles(points: usize, threads: usize) -> usize {
        points.div_ceil(threads * OWN)
    }

    /// Returns the number of blocks: one for each tile.
    fn blocks(&self) -> usize {
        self.rows * DigitPass::tiles(self.points, self.threads)
    }

    /// Returns the number of elements per thread.
    pub fn own(&self) -> usize {
        OWN
    }

    /// Prints the launch, for a kernel with these slots.
    ///
    /// # Errors
    /// Names the element type if it has no order.
    pub fn print(&self, dialect: &dyn Dialect, slots: &[(DType, usize)]) -> Result<Launch, Vec<String>> {
        if dialect.function("order_key", self.ranking.of, self.ranking.of).is_none() {
            return Err(vec![format!("cannot sort elements of {}, which have no order", self.ranking.of)]);
        }
        let mut printer = Printer { pass: self, dialect, lines: Vec::new() };
        printer.begin();
        match self.deed {
            Deed::Count(counts) => printer.count(counts),
            Deed::Move { begins, to, is_last } => printer.move_elements(begins, to, is_last),
        }
        let text = printer.lines.join("\n") + "\n";
        Ok(Launch::new(dialect.kernel(slots, self.threads, &text), [self.blocks(), 1, 1], self.threads))
    }
}

/// The text of a pass.
struct Printer<'a> {
    pass: &'a DigitPass,
    dialect: &'a dyn Dialect,
    lines: Vec<String>,
}

impl Printer<'_> {
    fn key_type(&self) -> DType {
        self.pass.ranking.key()
    }

    fn tile(&self) -> usize {
        self.pass.threads * OWN
    }

    fn tiles(&self) -> usize {
        DigitPass::tiles(self.pass.points, self.pass.threads)
    }

    fn line(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    fn declare(&mut self, name: &str, value: &str) {
        self.lines.push(self.dialect.declare(self.dialect.index(false), name, value));
    }

    fn meet(&mut self) {
        self.lines.push(self.dialect.meet());
    }

    /// Prints statements for each `n` below `count`, such as each element of a thread.
    fn each(&mut self, count: usize, statements: &[String]) {
        let text = statements.join("\n") + "\n";
        self.lines.push(self.dialect.unrolled("n", count, &text));
    }

    /// Prints statements for each value of a digit.
    fn each_digit(&mut self, statements: &[String]) {
        self.lines.push(self.dialect.each("n", "thread", DIGITS, self.pass.threads));
        self.lines.extend_from_slice(statements);
        self.line("}");
    }

    /// Prints the declarations of a block's tile and row, and of the indices of their first elements.
    fn begin(&mut self) {
        let (dialect, tiles) = (self.dialect, self.tiles() as i64);
        self.line(dialect.place("thread", "block"));
        // A grid of several axes may have more blocks than there are tiles.
        self.line(format!("if (block >= {}) {{ return; }}", self.pass.blocks()));
        self.declare("tile", &dialect.modulo("block", tiles, false, false));
        self.declare("row", &dialect.div("block", tiles, false, false));
        self.declare("first", &format!("tile * {}", self.tile()));
        self.declare("base", &format!("row * {}", self.pass.points));
    }

    /// Returns the key of an element.
    fn key(&self, at: &str) -> String {
        let ranking = &self.pass.ranking;
        match self.pass.from {
            Source::Keyed(Keyed { keys, .. }) => self.dialect.load(keys, at),
            Source::Values(slot) => {
                let function = self.dialect.function("order_key", ranking.of, ranking.of);
                let function = function.expect("types without an order were refused");
                let sign = if ranking.order.descending { "~" } else { "" };
                format!("{sign}{function}({})", self.dialect.load(slot, at))
            }
        }
    }

    /// Returns some bits of a key as an index. The sign bit is inverted, so that negative keys come first.
    fn bits(&self, key: &str, [shift, bits]: [usize; 2]) -> String {
        let (dialect, ty) = (self.dialect, self.key_type());
        let mask = dialect.number(Number::Int((1 << bits) - 1), ty);
        let digit = dialect.convert(dialect.index(false), &format!("(({key} >> {shift}u) & {mask})"));
        match shift + bits == 8 * ty.size() {
            true => format!("({digit} ^ {})", 1 << (bits - 1)),
            false => format!("({digit})"),
        }
    }

    fn digit(&self, key: &str) -> String {
        self.bits(key, [self.pass.shift, BITS])
    }

    fn table(&self, table: usize, dtype: DType, count: usize, at: &str) -> String {
        let gaps = self.dialect.div(&format!("({at})"), BANKS as i64, false, false);
        self.dialect.left((table, dtype, padded_count(count)), &format!("({at}) + {gaps}"))
    }

    /// Returns an element of the table of keys. It shares memory with the table of positions if both have one type.
    fn keys(&self, at: &str) -> String {
        self.table(KEYS, self.key_type(), self.tile(), at)
    }

    fn places(&self, at: &str) -> String {
        match self.shares() {
            true => self.keys(at),
            false => self.table(PLACES, DType::I32, self.tile(), at),
        }
    }

    fn shares(&self) -> bool {
        self.key_type() == DType::I32
    }

    fn own_counts(&self, at: &str) -> String {
        self.table(OWN_COUNTS, DType::I32, COUNTS * self.pass.threads, at)
    }

    fn of_digit(&self, table: usize, at: &str) -> String {
        self.dialect.left((table, DType::I32, DIGITS), at)
    }

    fn count(&mut self, counts: usize) {
        let (dialect, threads, cells) = (self.dialect, self.pass.threads, (HISTOGRAM, DType::I32, DIGITS));
        self.each_digit(&[dialect.set_cell(cells, "n", "0")]);
        self.meet();
        let (index, key) = (dialect.index(false), dialect.register(self.key_type()));
        let statements = [
            dialect.declare(index, "at", &format!("first + n * {threads} + thread")),
            format!("if (at < {}) {{", self.pass.points),
            dialect.declare(key, "key", &self.key("base + at")),
            dialect.combine_cell(Reduction::Sum, cells, &self.digit("key"), "1"),
            "}".into(),
        ];
        self.each(OWN, &statements);
        self.meet();
        let at = format!("(row * {DIGITS} + n) * {} + tile", self.tiles());
        self.each_digit(&[dialect.store(counts, &at, &dialect.cell(cells, "n"))]);
    }

    fn move_elements(&mut self, begins: usize, to: Keyed, is_last: bool) {
        self.read();
        for half in 0..2 {
            self.rank_by_half(self.pass.shift + half * HALF);
            self.exchange(half == 1);
        }
        self.store(begins, to, is_last);
    }

    /// Prints coalesced reads of the tile, and an exchange through shared memory that gives each thread adjacent
    /// elements.
    fn read(&mut self) {
        let (dialect, threads, points) = (self.dialect, self.pass.threads, self.pass.points);
        let (index, key) = (dialect.index(false), dialect.register(self.key_type()));
        for (ty, name) in [(key, "key"), (index, "place"), (index, "rank")] {
            self.line(dialect.array(ty, name, OWN));
        }
        let last = dialect.number(Number::Int(self.key_type().integers().1), self.key_type());
        let at = dialect.declare(index, "at", &format!("n * {threads} + thread"));
        // The last tile is padded with the greatest key. The sort is stable, so the padding comes last.
        self.each(
            OWN,
            &[
                at.clone(),
                dialect.variable(key, "own", &last),
                format!("if (first + at < {points}) {{ own = {}; }}", self.key("base + first + at")),
                format!("{} = own;", self.keys("at")),
            ],
        );
        self.meet();
        let own = format!("thread * {OWN} + n");
        self.each(OWN, &[format!("key[n] = {};", self.keys(&own))]);
        match self.pass.from {
            Source::Values(_) => self.each(OWN, &[format!("place[n] = first + {own};")]),
            Source::Keyed(Keyed { places, .. }) => {
                self.meet();
                self.each(
                    OWN,
                    &[
                        at,
                        dialect.variable(index, "own", "0"),
                        format!(
                            "if (first + at < {points}) {{ own = {}; }}",
                            dialect.load(places, "base + first + at")
                        ),
                        format!("{} = own;", self.places("at")),
                    ],
                );
                self.meet();
                self.each(OWN, &[format!("place[n] = {};", self.places(&own))]);
            }
        }
    }

    /// Prints the computation of the elements' ranks by some bits. Smaller values come first, and equal ones keep their
    /// order.
    fn rank_by_half(&mut self, shift: usize) {
        let (dialect, threads, index) = (self.dialect, self.pass.threads, self.dialect.index(false));
        let at = dialect.declare(index, "at", &format!("{} * {threads} + thread", self.bits("key[n]", [shift, HALF])));
        let total = |at: &str| dialect.left((TOTALS, DType::I32, 2 * threads), at);
        self.line("{");
        self.each(COUNTS, &[format!("{} = 0;", self.own_counts(&format!("n * {threads} + thread")))]);
        let statements = [
            at.clone(),
            format!("rank[n] = {};", self.own_counts("at")),
            format!("{} = rank[n] + 1;", self.own_counts("at")),
        ];
        self.each(OWN, &statements);
        self.meet();
        self.line(dialect.variable(index, "total", "0"));
        let neighbour = self.own_counts(&format!("thread * {COUNTS} + n"));
        self.each(COUNTS, &[format!("total += {neighbour};")]);
        self.declare("sum", "total");
        self.line(format!("{} = total;", total("thread")));
        self.meet();
        // Scans the totals of threads. In each round, a thread adds the sum of the thread at distance `step`, which
        // doubles every round (Hillis and Steele, 1986).
        for round in 0..threads.trailing_zeros() as usize {
            let (step, [from, to]) = (1 << round, [round % 2, (round + 1) % 2].map(|half| half * threads));
            self.line(format!("if (thread >= {step}) {{ total += {}; }}", total(&format!("{from} + thread - {step}"))));
            self.line(format!("{} = total;", total(&format!("{to} + thread"))));
            self.meet();
        }
        self.line(dialect.variable(index, "before", "total - sum"));
        let statements =
            [dialect.declare(index, "own", &neighbour), format!("{neighbour} = before;"), "before += own;".to_string()];
        self.each(COUNTS, &statements);
        self.meet();
        self.each(OWN, &[at, format!("rank[n] += {};", self.own_counts("at"))]);
        self.line("}");
    }

    /// Prints the exchange that moves each element to the thread of its rank. A thread gets elements of adjacent ranks.
    /// Before the store (`is_end`), neighbouring threads get adjacent ranks instead, so that stores are coalesced.
    fn exchange(&mut self, is_end: bool) {
        let own = if is_end { format!("n * {} + thread", self.pass.threads) } else { format!("thread * {OWN} + n") };
        self.each(OWN, &[format!("{} = key[n];", self.keys("rank[n]"))]);
        self.meet();
        self.each(OWN, &[format!("key[n] = {};", self.keys(&own))]);
        if is_end {
            self.find_begins();
        }
        if self.shares() {
            self.meet();
        }
        self.each(OWN, &[format!("{} = place[n];", self.places("rank[n]"))]);
        self.meet();
        self.each(OWN, &[format!("place[n] = {};", self.places(&own))]);
    }

    /// Prints the search for the position in the tile where each digit begins.
    fn find_begins(&mut self) {
        let (dialect, threads, index) = (self.dialect, self.pass.threads, self.dialect.index(false));
        let before = dialect.choose("at == 0", "0", "at - 1");
        let statements = [
            dialect.declare(index, "at", &format!("n * {threads} + thread")),
            dialect.declare(index, "digit", &self.digit("key[n]")),
            dialect.declare(index, "before", &before),
            dialect.declare(index, "other", &self.digit(&self.keys("before"))),
            format!("if (at == 0 || digit != other) {{ {} = at; }}", self.of_digit(BEGINS, "digit")),
        ];
        self.each(OWN, &statements);
    }

    fn store(&mut self, begins: usize, to: Keyed, is_last: bool) {
        let (dialect, threads, index) = (self.dialect, self.pass.threads, self.dialect.index(false));
        let begin = dialect.load(begins, &format!("(row * {DIGITS} + n) * {} + tile", self.tiles()));
        let [own, moves] = [BEGINS, MOVES].map(|table| self.of_digit(table, "n"));
        self.each_digit(&[format!("{moves} = {begin} - {own};")]);
        self.meet();
        let keys = if is_last { String::new() } else { dialect.store(to.keys, "to", "key[n]") };
        let statements = [
            dialect.declare(index, "at", &format!("n * {threads} + thread")),
            format!("if (first + at < {}) {{", self.pass.points),
            dialect.declare(index, "to", &format!("base + at + {}", self.of_digit(MOVES, &self.digit("key[n]")))),
            keys,
            dialect.store(to.places, "to", "place[n]"),
            "}".into(),
        ];
        self.each(OWN, &statements);
    }
}

/// Returns the size of a table with a gap after every [`BANKS`] elements.
fn padded_count(count: usize) -> usize {
    count + count / BANKS
}
