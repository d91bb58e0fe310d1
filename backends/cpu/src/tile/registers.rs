//! Where registers lie in scratch memory.

use super::{
    domain::{AxisMask, MAX_RANK, Tile},
    program::{TileProgram, TileStep},
    shape::TileShape,
};
use crate::simd::stream::LINE;

impl TileProgram {
    /// Places registers for tiles of these extents: a register is free again after its last use; none is an argument's and the
    /// result's at once. What is the same for a row stays, because passes over a row meet it again.
    pub fn allocate(&mut self, extents: &[[usize; MAX_RANK]]) {
        let mut largest = Tile { start: [0; MAX_RANK], len: [1; MAX_RANK] };
        for len in extents {
            largest.len = std::array::from_fn(|d| largest.len[d].max(len[d]));
            if self.shapes.iter().all(|s| s.len != *len) {
                self.shapes.push(TileShape::new(self, len));
            }
        }
        let n = self.steps.len();
        let mut last_use = vec![0; n];
        for (id, step) in self.steps.iter().enumerate() {
            step.args().into_iter().for_each(|a| last_use[a] = id);
        }
        self.stored().into_iter().chain(self.results.iter().copied()).for_each(|v| last_use[v] = n);
        for (id, step) in self.steps.iter().enumerate().rev() {
            // A piece that covers a tile is not copied.
            if let TileStep::Pieces { pieces, .. } = step {
                pieces.iter().for_each(|p| last_use[p.1] = last_use[p.1].max(last_use[id]));
            }
        }
        let table = (n * size_of::<*mut u8>()).next_multiple_of(64);
        let mut places = ScratchPlaces { table, end: table, taken: Vec::new(), read: Vec::new() };
        let is_point: Vec<_> = self.steps.iter().map(|step| matches!(step, TileStep::Point { .. })).collect();
        for (id, &last) in last_use.iter().enumerate() {
            places.release(id, id > 0 && is_point[id - 1] && is_point[id]);
            // What is written by streaming stores has the alignment of its target within a line: see `points`.
            let shift = if self.streams.is_some() && self.values[id].direct.is_some() { LINE } else { 0 };
            let value = &mut self.values[id];
            let keeps = self.row != 0 && value.mask & self.row == 0;
            let (elements, size) = (largest.count(value.mask), value.dtype.size());
            let kind = (shift == 0).then_some((value.mask, size));
            value.offset = places.take(kind, elements * size + shift, if keeps { n } else { last.max(id) });
            if let TileStep::Reduce { offset, .. } = &mut self.steps[id] {
                *offset = places.take(None, elements * 8, n);
            }
        }
        self.scratch = places.end;
    }
}

/// What tells how elements lie in a register: the axes, and the size of an element.
type RegisterKind = (AxisMask, usize);

/// A place in scratch memory.
struct ScratchPlace {
    at: usize,
    bytes: usize,
    /// How elements lie in it, if another value may have it while it is read.
    kind: Option<RegisterKind>,
    /// The last step that needs it.
    until: usize,
}

/// The places that are taken at a step.
struct ScratchPlaces {
    table: usize,
    /// Where the last of all ends.
    end: usize,
    taken: Vec<ScratchPlace>,
    /// Those that pointwise steps of the same stretch read for the last time. These steps may run strip by strip, so that such a place
    /// can only be had for a value that lies there element by element as the one before.
    read: Vec<ScratchPlace>,
}

impl ScratchPlaces {
    /// Frees what was needed before a step only; `follows` if it and the step before are pointwise.
    fn release(&mut self, id: usize, follows: bool) {
        let free: Vec<_> = self.taken.extract_if(.., |p| p.until < id).collect();
        if follows {
            self.read.extend(free);
        } else {
            self.read.clear();
        }
    }

    fn take(&mut self, kind: Option<RegisterKind>, bytes: usize, until: usize) -> usize {
        let bytes = bytes.next_multiple_of(64);
        let at = match self.read.iter().position(|p| kind.is_some() && p.kind == kind) {
            Some(n) => self.read.swap_remove(n).at,
            None => self.gap(bytes),
        };
        self.taken.push(ScratchPlace { at, bytes, kind, until });
        self.end = self.end.max(at + bytes);
        at
    }

    /// The first gap of so many bytes.
    fn gap(&self, bytes: usize) -> usize {
        let mut others: Vec<_> = self.taken.iter().chain(&self.read).map(|p| (p.at, p.bytes)).collect();
        others.sort_unstable();
        let mut at = self.table;
        for (from, size) in others {
            if from >= at + bytes {
                break;
            }
            at = at.max(from + size);
        }
        at
    }
}
