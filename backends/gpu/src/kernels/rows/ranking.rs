//! Which rankings a body has, and how much shared memory they take.

use eutectic_backend::{Guard, Instr, ValueId, axes::Nest};
use eutectic_ir::{
    DType,
    index::{Atom, Index},
    ops::{Order, Writes},
};

use super::team_scan::Scan;
use crate::{device::DeviceShape, dialect::Dialect};

/// Elements that a thread sorts.
pub(super) const SORTED: usize = 16;
/// Bits of a digit of a selection.
pub(super) const BITS: usize = 8;
/// How many digits there are, and sums of neighbours among their counts.
pub(super) const DIGITS: usize = 1 << BITS;
pub(super) const SUMS: usize = 16;
/// Counts of a row: those of this digit, those of the next one, and how many elements are selected.
pub(super) const COUNTS: usize = 2 * (DIGITS + SUMS) + 1;
/// Banks of shared memory, each of 32 bits.
const BANKS: usize = 32;
/// Bytes that other operations of the row may have.
const OTHERS: usize = 2 << 10;
/// The table of places; those of the first ranking follow. Scans have those before.
const PLACES: usize = 8;
/// Tables of a ranking: keys, the first keys and their places, and counts of elements.
const TABLES: usize = 4;
/// How often an element is read or written when threads sort their own elements, and in a merge. Bisections and bank conflicts are included.
const OWN: f64 = 12.0;
const MERGE: f64 = 5.0;
/// The same for the first digit of a selection, where atomics on the same count are serialised, for each digit, and for each draw.
const FIRST: f64 = 36.0;
const COUNTED: f64 = 3.0;
const DRAWN: f64 = 1.0;
/// The most digits that usually distinguish the keys of a row. A selection ends after them.
const TOLD_APART: usize = 5;
/// How often the threads of a row wait for each other in any ranking: for keys, and for results.
const BASE_WAITS: f64 = 12.0;
/// The same for a sort of own elements, a merge, a digit, the elements with the last digit, and a draw.
const OWN_WAITS: f64 = 2.0;
const MERGE_WAITS: f64 = 2.0;
const DIGIT_WAITS: f64 = 1.75;
const SELECTED_WAITS: f64 = 3.0;
const DRAW_WAITS: f64 = 1.2;
/// Waits that take as long as reading or writing one byte for each element of a row.
const WAITS_OF_BYTE: f64 = 0.0375;
/// Waits for each comparison of two selected elements, times the elements of the row. Its threads share the comparisons.
const COMPARED_WAITS: f64 = 0.125;

/// A ranking of a body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ranking {
    /// Which instruction it is, and of which value.
    pub id: ValueId,
    pub arg: ValueId,
    pub order: Order,
    /// The element type of the ordered values.
    pub of: DType,
    /// Its number among the rankings of the body.
    nth: usize,
}

impl Ranking {
    /// Returns all of a body's.
    pub fn all(instrs: &[Instr]) -> Vec<Ranking> {
        let of = |(id, instr): (ValueId, &Instr)| match instr {
            Instr::Row { op, attrs, args, .. } => {
                Some((id, *args.first()?, Order::of(*op, attrs)?, instrs[*args.first()?].dtype()))
            }
            _ => None,
        };
        let found = instrs.iter().enumerate().filter_map(of).enumerate();
        found.map(|(nth, (id, arg, order, of))| Ranking { id, arg, order, of, nth }).collect()
    }

    /// Returns the ranking of a nest that stores nothing but what it computes of the first elements of one ranking, each where its rank says.
    pub(super) fn first_only(nest: &Nest) -> Option<Ranking> {
        let ranking = Ranking::all(&nest.instrs).pop()?;
        let rank = Index::atom(Atom::Value(ranking.id));
        let is_first =
            |guard: &Guard| guard.0 == rank && guard.1.start >= 0 && guard.1.end <= ranking.order.most as i64;
        let is_alone = nest.instrs.iter().filter(|instr| instr.row().is_some()).count() == 1;
        let stores = || nest.stores.iter();
        let is_only = stores().all(|store| store.writes == Writes::Apart && store.guards.iter().any(is_first));
        (is_alone && is_only && ranking.order.most > 0).then_some(ranking)
    }

    /// Returns the element type of keys, which are ordered as elements are.
    pub fn key(&self) -> DType {
        if self.of.size() > 4 { DType::I64 } else { DType::I32 }
    }

    /// Returns an element of the table of keys; once they are sorted, how many elements come before the one that is there.
    pub fn keys(&self, dialect: &dyn Dialect, count: usize, at: &str) -> String {
        padded(dialect, (self.number(0), self.key(), count), at)
    }

    /// Returns an element of the tables of a selection: keys that come first, and their places.
    pub(super) fn first(&self, dialect: &dyn Dialect, count: usize, at: &str) -> [String; 2] {
        [(1, self.key()), (2, DType::I32)].map(|(table, dtype)| dialect.left((self.number(table), dtype, count), at))
    }

    /// Returns the table in which the threads of a selection count elements.
    pub(super) fn counts(&self, count: usize) -> (usize, DType, usize) {
        (self.number(3), DType::I32, count)
    }

    fn number(&self, table: usize) -> usize {
        PLACES + 1 + TABLES * self.nth + table
    }

    /// Returns the number of digits of keys in which a selection counts.
    pub fn digits(&self) -> usize {
        (8 * self.key().size()).div_ceil(BITS)
    }

    /// Whether the first elements of rows of `points` elements are found before they are ordered, which costs less than sorting the row.
    pub fn selects(&self, points: usize) -> bool {
        let selected = Ranking::time(self.drawn(points), points).min(Ranking::time(self.counted(points), points));
        (1..points).contains(&self.order.most) && selected < Ranking::time(sorted(points, self.key()), points)
    }

    /// Whether a selection draws the first elements one by one, which costs less than counting digits.
    pub fn draws(&self, points: usize) -> bool {
        Ranking::time(self.drawn(points), points) <= Ranking::time(self.counted(points), points)
    }

    /// Returns the bytes of a row that draws read or write in shared memory, and how often its threads wait for each other.
    fn drawn(&self, points: usize) -> [f64; 2] {
        let most = self.order.most as f64;
        [DRAWN * (2.0 + most) * (points * self.key().size()) as f64, DRAW_WAITS * most]
    }

    /// Returns the same of a selection by digits.
    fn counted(&self, points: usize) -> [f64; 2] {
        let (digits, most) = (self.digits().min(TOLD_APART) as f64, self.order.most as f64);
        let accesses = (FIRST + COUNTED * digits) * points as f64 + most * most;
        let compared = COMPARED_WAITS * most * most / points.max(1) as f64;
        [accesses * self.key().size() as f64, DIGIT_WAITS * digits + SELECTED_WAITS + compared]
    }

    /// Returns a time, in waits.
    fn time([bytes, waits]: [f64; 2], points: usize) -> f64 {
        waits + WAITS_OF_BYTE * bytes / points.max(1) as f64
    }

    /// Returns the bytes of a row that are read or written in shared memory, and how often its threads wait for each other.
    pub fn work(&self, points: usize) -> [f64; 2] {
        let [bytes, waits] = match () {
            () if !self.selects(points) => sorted(points, self.key()),
            () if self.draws(points) => self.drawn(points),
            () => self.counted(points),
        };
        [bytes, BASE_WAITS + waits]
    }
}

/// Returns the bytes of a row that a sort reads or writes in shared memory, and how often its threads wait for each other.
fn sorted(points: usize, key: DType) -> [f64; 2] {
    let merges = merges(points);
    let element = (key.size() + DType::I32.size()) as f64;
    [(OWN + MERGE * merges) * points as f64 * element, OWN_WAITS + MERGE_WAITS * merges]
}

/// Returns an element of the table of places, which all rankings of a body share.
pub(super) fn places(dialect: &dyn Dialect, count: usize, at: &str) -> String {
    padded(dialect, (PLACES, DType::I32, count), at)
}

/// Returns an element of a table with a gap after every [`BANKS`] elements, so that threads which read neighbours of their own read from different banks.
fn padded(dialect: &dyn Dialect, (table, dtype, count): (usize, DType, usize), at: &str) -> String {
    let gaps = dialect.div(&format!("({at})"), BANKS as i64, false, false);
    dialect.left((table, dtype, count + count / BANKS), &format!("({at}) + {gaps}"))
}

/// The shared memory that rankings of one body have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RankedRows {
    /// Bytes for each element of a row, and for each row.
    element: usize,
    row: usize,
    /// Bytes of a block.
    shared: usize,
    /// The longest rows that the threads of a block sort.
    sorted: usize,
    /// Whether there are selections, and sorts.
    pub selects: bool,
    pub sorts: bool,
}

impl RankedRows {
    /// Returns that of a body's rankings of rows of `points` elements, if it has any.
    pub fn of(instrs: &[Instr], shape: &DeviceShape, points: usize) -> Option<RankedRows> {
        let all = Ranking::all(instrs);
        let (selections, sorts): (Vec<&Ranking>, Vec<&Ranking>) = all.iter().partition(|r| r.selects(points));
        let first = |ranking: &&Ranking| {
            ranking.order.most * (ranking.key().size() + DType::I32.size()) + COUNTS * DType::I32.size()
        };
        // Threads of a selection exchange sums, and keys where they draw; threads of reductions and scans exchange parts of their types.
        let exchanged =
            |ranking: &&Ranking| DType::I32.size() + if ranking.draws(points) { ranking.key().size() } else { 0 };
        let counts = if selections.is_empty() { 0 } else { DType::I32.size() };
        let exchange = |instr: &&Instr| instr.reduction().is_some() || Scan::of(instr).is_some();
        let mut parts: Vec<DType> = instrs.iter().filter(exchange).map(Instr::dtype).collect();
        parts.sort_unstable();
        parts.dedup();
        let of_thread = counts
            + selections.iter().map(exchanged).sum::<usize>()
            + parts.iter().map(|dtype| dtype.register().size()).sum::<usize>();
        let others = OTHERS + of_thread * shape.threads;
        let keys: usize = all.iter().map(|ranking| ranking.key().size()).sum();
        (!all.is_empty()).then(|| RankedRows {
            element: keys + if sorts.is_empty() { 0 } else { DType::I32.size() },
            row: selections.iter().map(first).sum(),
            shared: shape.static_shared().saturating_sub(others),
            sorted: if sorts.is_empty() { usize::MAX } else { SORTED * shape.threads },
            selects: !selections.is_empty(),
            sorts: !sorts.is_empty(),
        })
    }

    /// Returns the number of rows of `points` elements that a block can have at once.
    pub fn rows(&self, points: usize) -> usize {
        self.shared / (self.element * (points + points.div_ceil(BANKS)).max(1) + self.row)
    }

    /// Returns how long the rows can be.
    pub fn longest(&self) -> usize {
        let elements = self.shared.saturating_sub(self.row) / self.element;
        (elements - elements / BANKS).min(self.sorted)
    }
}

/// Returns how many merges follow each other in a sort of rows of `points` elements.
fn merges(points: usize) -> f64 {
    f64::from(points.div_ceil(SORTED).max(1).next_power_of_two().trailing_zeros())
}

/// Returns the rankings that `roots` depend on, in order, other than through `known` values.
pub(super) fn needed(instrs: &[Instr], roots: &[ValueId], known: impl Fn(ValueId) -> bool) -> Vec<Ranking> {
    let (mut asked, mut seen) = (roots.to_vec(), vec![false; instrs.len()]);
    while let Some(id) = asked.pop() {
        if !known(id) && !std::mem::replace(&mut seen[id], true) {
            asked.extend(instrs[id].args());
        }
    }
    Ranking::all(instrs).into_iter().filter(|ranking| seen[ranking.id]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_first_elements_are_drawn_some_are_counted_and_most_are_sorted() {
        let way = |most: usize, points: usize, of: DType| {
            let order = Order { most, descending: true };
            let ranking = Ranking { id: 1, arg: 0, order, of, nth: 0 };
            match (ranking.selects(points), ranking.draws(points)) {
                (true, true) => "drawn",
                (true, false) => "counted",
                (false, _) => "sorted",
            }
        };
        for (most, points, of, expected) in [
            (1, 8, DType::F32, "drawn"),
            (2, 64, DType::F32, "drawn"),
            (8, 128, DType::F16, "drawn"),
            (50, 2048, DType::F32, "counted"),
            (14, 2048, DType::F64, "drawn"),
            (50, 2048, DType::I64, "counted"),
            (1000, 2048, DType::F32, "sorted"),
            (64, 64, DType::F32, "sorted"),
            (0, 64, DType::F32, "sorted"),
        ] {
            assert_eq!(way(most, points, of), expected, "{most} of {points} {of}");
        }
    }
}
