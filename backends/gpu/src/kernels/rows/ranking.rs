//! Finds the rankings of a body, and the shared memory that they need.

use eutectic_backend::{Guard, Instr, ValueId, axes::Nest};
use eutectic_ir::{
    DType,
    index::{Atom, Index},
    ops::{Order, Writes},
};

use super::team_scan::Scan;
use crate::{
    device::DeviceShape,
    dialect::Dialect,
    ranking_costs::{RankingCosts, Work},
};

/// Elements that a thread sorts in registers.
pub(super) const SORTED: usize = 16;
/// Bits of the digits by which a selection counts.
pub(super) const BITS: usize = 8;
/// The number of digit values, and the number of sums over neighbouring counts.
pub(super) const DIGITS: usize = 1 << BITS;
pub(super) const SUMS: usize = 16;
/// Counts per row: the counts of this digit and of the next one, and the number of selected elements.
pub(super) const COUNTS: usize = 2 * (DIGITS + SUMS) + 1;
/// Banks of shared memory, each of 32 bits.
const BANKS: usize = 32;
/// Bytes of shared memory that are left for other operations of the row.
const OTHERS: usize = 2 << 10;
/// The number of the table of positions. Smaller numbers are those of the tables of scans.
const PLACES: usize = 8;
/// The number of tables per ranking: keys, the first keys and their positions, and counts of elements.
const TABLES: usize = 4;

/// The algorithms by which the threads of a block rank a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RankingWay {
    /// The threads sort the whole row.
    Sorted,
    /// The threads count elements by digit until the last one of the first elements is known.
    Counted,
    /// The threads draw the first elements one by one.
    Drawn,
}

/// A ranking of a body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ranking {
    /// The ranking instruction, and the value that it ranks.
    pub id: ValueId,
    pub arg: ValueId,
    pub order: Order,
    /// The element type of the ordered values.
    pub of: DType,
    /// The ranking's number among those of the body.
    nth: usize,
}

impl Ranking {
    /// Returns all rankings of a body.
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

    /// Returns the only ranking of a nest whose stores are all guarded to its first elements; `None` for other nests.
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

    /// Returns the type of keys, which are integers in the same order as the elements.
    pub fn key(&self) -> DType {
        if self.of.size() > 4 { DType::I64 } else { DType::I32 }
    }

    /// Returns an element of the table of keys. After the ranking, it is the rank of the element at that position.
    pub fn keys(&self, dialect: &dyn Dialect, count: usize, at: &str) -> String {
        padded(dialect, (self.number(0), self.key(), count), at)
    }

    /// Returns the key and the position of a selected element, from its index in their tables in shared memory.
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

    /// Returns the number of digits of a key.
    pub fn digits(&self) -> usize {
        (8 * self.key().size()).div_ceil(BITS)
    }

    /// Returns the algorithm that takes the least time for rows of `points` elements.
    pub fn way(&self, costs: &RankingCosts, points: usize) -> RankingWay {
        let time = |way| costs.time(self.work(costs, way, points), points);
        let selection =
            if time(RankingWay::Drawn) <= time(RankingWay::Counted) { RankingWay::Drawn } else { RankingWay::Counted };
        let is_partial = (1..points).contains(&self.order.most);
        if is_partial && time(selection) < time(RankingWay::Sorted) { selection } else { RankingWay::Sorted }
    }

    /// Returns whether the first elements of rows of `points` elements are selected before they are sorted, because
    /// that costs less than sorting the row.
    pub fn selects(&self, costs: &RankingCosts, points: usize) -> bool {
        self.way(costs, points) != RankingWay::Sorted
    }

    /// Returns the shared-memory accesses and waits of one way to rank a row of `points` elements.
    pub fn work(&self, costs: &RankingCosts, way: RankingWay, points: usize) -> Work {
        let (most, count, size) = (self.order.most as f64, points as f64, self.key().size() as f64);
        let [bytes, waits] = match way {
            RankingWay::Sorted => {
                let (merges, element) = (merges(points), size + DType::I32.size() as f64);
                let accesses = costs.sort_accesses + costs.merge_accesses * merges;
                [accesses * count * element, costs.sort_waits + costs.merge_waits * merges]
            }
            RankingWay::Counted => {
                let digits = costs.digits.min(self.digits() as f64);
                let accesses = (costs.first_digit_accesses + costs.digit_accesses * digits) * count + most * most;
                let compared = costs.comparison_waits * most * most / count.max(1.0);
                [accesses * size, costs.digit_waits * digits + costs.selected_waits + compared]
            }
            RankingWay::Drawn => [costs.draw_accesses * (2.0 + most) * count * size, costs.draw_waits * most],
        };
        Work { bytes, waits: costs.ranking_waits + waits }
    }
}

/// Returns an element of the table of positions, which all rankings of a body share.
pub(super) fn places(dialect: &dyn Dialect, count: usize, at: &str) -> String {
    padded(dialect, (PLACES, DType::I32, count), at)
}

/// Returns an element of a table with a gap after every [`BANKS`] elements. Threads that read consecutive runs then
/// access different banks.
fn padded(dialect: &dyn Dialect, (table, dtype, count): (usize, DType, usize), at: &str) -> String {
    let gaps = dialect.div(&format!("({at})"), BANKS as i64, false, false);
    dialect.left((table, dtype, count + count / BANKS), &format!("({at}) + {gaps}"))
}

/// The shared memory that the rankings of one body need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RankedRows {
    /// Bytes for each element of a row, and for each row.
    element: usize,
    row: usize,
    /// Bytes of shared memory that a block has for rankings.
    shared: usize,
    /// The length of the longest rows that the threads of a block sort.
    sorted: usize,
    /// Whether there are selections, and sorts.
    pub selects: bool,
    pub sorts: bool,
}

impl RankedRows {
    /// Returns the rankings of a body over rows of `points` elements, if it has any.
    pub fn of(instrs: &[Instr], shape: &DeviceShape, points: usize) -> Option<RankedRows> {
        let all = Ranking::all(instrs);
        let way = |ranking: &Ranking| ranking.way(&shape.rankings, points);
        let (sorts, selections): (Vec<&Ranking>, Vec<&Ranking>) =
            all.iter().partition(|r| way(r) == RankingWay::Sorted);
        let draws = |ranking: &Ranking| way(ranking) == RankingWay::Drawn;
        // A drawn element has only its position in shared memory. Its key is in registers.
        let first = |ranking: &&Ranking| match draws(ranking) {
            true => ranking.order.most * DType::I32.size(),
            false => ranking.order.most * (ranking.key().size() + DType::I32.size()) + COUNTS * DType::I32.size(),
        };
        // Threads of a selection exchange sums, and keys if they draw. Threads of a reduction or scan exchange values of
        // its type.
        let exchanged = |ranking: &&Ranking| DType::I32.size() + if draws(ranking) { ranking.key().size() } else { 0 };
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

    /// Returns how many rows of `points` elements fit into a block.
    pub fn rows(&self, points: usize) -> usize {
        self.shared / (self.element * (points + points.div_ceil(BANKS)).max(1) + self.row)
    }

    /// Returns the length of the longest rows that fit into a block.
    pub fn longest(&self) -> usize {
        let elements = self.shared.saturating_sub(self.row) / self.element;
        (elements - elements / BANKS).min(self.sorted)
    }
}

/// Returns the number of successive merges in a sort of a row of `points` elements.
fn merges(points: usize) -> f64 {
    f64::from(points.div_ceil(SORTED).max(1).next_power_of_two().trailing_zeros())
}

/// Returns the rankings that `roots` depend on, in order. Dependencies through `known` values do not count.
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
            ranking.way(&RankingCosts::OF_TESTS, points)
        };
        for (most, points, of, expected) in [
            (1, 8, DType::F32, RankingWay::Drawn),
            (2, 64, DType::F32, RankingWay::Drawn),
            (8, 128, DType::F16, RankingWay::Drawn),
            (50, 2048, DType::F32, RankingWay::Counted),
            (14, 2048, DType::F64, RankingWay::Drawn),
            (50, 2048, DType::I64, RankingWay::Counted),
            (1000, 2048, DType::F32, RankingWay::Sorted),
            (64, 64, DType::F32, RankingWay::Sorted),
            (0, 64, DType::F32, RankingWay::Sorted),
        ] {
            assert_eq!(way(most, points, of), expected, "{most} of {points} {of}");
        }
    }
}
