//! Which rankings a body has, and how much shared memory they take.

use eutectic_backend::{Instr, ValueId};
use eutectic_ir::{DType, ops::Order};

use crate::{device::DeviceShape, dialect::Dialect};

/// Bytes of shared memory whose size is in a text, at most, on devices that have more.
const STATIC: usize = 48 << 10;
/// Bytes that other operations of the row may have.
const OTHERS: usize = 2 << 10;
/// The table of places; those of the first ranking follow. Scans have those before.
const PLACES: usize = 8;
/// Tables of a ranking: keys, the first keys and their places, and how many of these each thread has.
const TABLES: usize = 4;
/// How often an element is read or written in a step of a sort, and in a round of a selection; rounds end early where the keys are told apart.
const STEP: f64 = 2.4;
const ROUND: f64 = 0.7;
/// The time of a round, in steps.
const ROUND_OF_STEP: f64 = 0.35;

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

    /// Returns the element type of keys, which are ordered as elements are.
    pub fn key(&self) -> DType {
        if self.of.size() > 4 { DType::I64 } else { DType::I32 }
    }

    /// Returns an element of the table of keys; once they are sorted, how many elements come before the one that is there.
    pub fn keys(&self, dialect: &dyn Dialect, count: usize, at: &str) -> String {
        dialect.left((self.number(0), self.key(), count), at)
    }

    /// Returns an element of the tables of a selection: keys that come first and their places, in no order, and how many each thread has.
    pub(super) fn first(&self, dialect: &dyn Dialect, count: usize, at: &str) -> [String; 2] {
        [(1, self.key()), (2, DType::I32)].map(|(table, dtype)| dialect.left((self.number(table), dtype, count), at))
    }

    /// See [`Ranking::first`].
    pub(super) fn counts(&self, dialect: &dyn Dialect, count: usize, at: &str) -> String {
        dialect.left((self.number(3), DType::I32, count), at)
    }

    fn number(&self, table: usize) -> usize {
        PLACES + 1 + TABLES * self.nth + table
    }

    /// Returns the most rounds in which a selection finds the last key that counts.
    pub fn rounds(&self) -> usize {
        8 * self.key().size()
    }

    /// Whether the first elements of rows of `points` elements are found before they are ordered, which costs less than sorting the row.
    pub fn selects(&self, points: usize) -> bool {
        let most = self.order.most;
        let selected = ROUND * self.rounds() as f64 + (most * most) as f64 / points.max(1) as f64;
        (1..points).contains(&most) && selected < STEP * steps(points) as f64
    }

    /// Returns how often elements of a row are read or written in shared memory, and in how many steps of a sort's length.
    pub fn accesses(&self, points: usize) -> [f64; 2] {
        if self.selects(points) {
            let rounds = ROUND * self.rounds() as f64;
            let order = (self.order.most * self.order.most) as f64;
            return [rounds * points as f64 + order, rounds * ROUND_OF_STEP];
        }
        let steps = steps(points) as f64;
        [STEP * steps * points.next_power_of_two() as f64, steps]
    }
}

/// Returns an element of the table of places, which all rankings of a body share.
pub(super) fn places(dialect: &dyn Dialect, count: usize, at: &str) -> String {
    dialect.left((PLACES, DType::I32, count), at)
}

/// The shared memory that rankings of one body have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RankedRows {
    /// Bytes for each element of a row, and for each row.
    element: usize,
    row: usize,
    /// Bytes of a block.
    shared: usize,
    /// Whether there are selections, and sorts.
    pub selects: bool,
    pub sorts: bool,
}

impl RankedRows {
    /// Returns that of a body's rankings of rows of `points` elements, if it has any.
    pub fn of(instrs: &[Instr], shape: &DeviceShape, points: usize) -> Option<RankedRows> {
        let all = Ranking::all(instrs);
        let (selections, sorts): (Vec<&Ranking>, Vec<&Ranking>) = all.iter().partition(|r| r.selects(points));
        let first = |ranking: &&Ranking| ranking.order.most * (ranking.key().size() + DType::I32.size());
        // Threads of a selection leave a count each, and exchange sums.
        let counts = (selections.len() + 1) * shape.threads * DType::I32.size();
        let others = OTHERS + if selections.is_empty() { 0 } else { counts };
        let keys: usize = all.iter().map(|ranking| ranking.key().size()).sum();
        (!all.is_empty()).then(|| RankedRows {
            element: keys + if sorts.is_empty() { 0 } else { DType::I32.size() },
            row: selections.iter().map(first).sum(),
            shared: shape.shared.min(STATIC).saturating_sub(others),
            selects: !selections.is_empty(),
            sorts: !sorts.is_empty(),
        })
    }

    /// Returns the number of rows of `points` elements that a block can have at once.
    pub fn rows(&self, points: usize) -> usize {
        self.shared / (self.element * points.max(1) + self.row)
    }

    /// Returns how long the rows can be.
    pub fn longest(&self) -> usize {
        self.shared.saturating_sub(self.row) / self.element
    }
}

/// Returns the number of steps of the network that sorts rows of `points` elements. In each step, half of as many pairs as the next power of two are compared.
pub(crate) fn steps(points: usize) -> usize {
    let levels = points.max(1).next_power_of_two().trailing_zeros() as usize;
    levels * (levels + 1) / 2
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
