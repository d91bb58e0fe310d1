//! Which rankings a body has, and how much shared memory they take.

use eutectic_backend::{Instr, ValueId};
use eutectic_ir::{DType, ops::Order};

use crate::{device::DeviceShape, dialect::Dialect};

/// Bytes of shared memory whose size is in a text, at most, on devices that have more.
const STATIC: usize = 48 << 10;
/// Bytes that other operations of the row may have.
const OTHERS: usize = 2 << 10;
/// The table of places; that of the keys of the first ranking follows. Scans have those before.
const PLACES: usize = 8;

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
        dialect.left((PLACES + 1 + self.nth, self.key(), count), at)
    }
}

/// Returns an element of the table of places, which all rankings of a body share.
pub(super) fn places(dialect: &dyn Dialect, count: usize, at: &str) -> String {
    dialect.left((PLACES, DType::I32, count), at)
}

/// The shared memory that rankings of one body have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RankedRows {
    /// Bytes for each element of a row.
    pub element: usize,
    /// Bytes of a block.
    pub shared: usize,
}

impl RankedRows {
    /// Returns that of a body's rankings, if it has any.
    pub fn of(instrs: &[Instr], shape: &DeviceShape) -> Option<RankedRows> {
        let keys: usize = Ranking::all(instrs).iter().map(|ranking| ranking.key().size()).sum();
        let shared = shape.shared.min(STATIC).saturating_sub(OTHERS);
        (keys > 0).then_some(RankedRows { element: keys + DType::I32.size(), shared })
    }

    /// Returns the number of rows of `points` elements that a block can have at once.
    pub fn rows(&self, points: usize) -> usize {
        self.shared / (self.element * points.max(1))
    }

    /// Returns how long the rows can be.
    pub fn longest(&self) -> usize {
        self.shared / self.element
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
