//! Places the registers of a tile program in scratch memory.

use super::{
    domain::{AxisMask, MAX_RANK, Tile},
    program::{TileProgram, TileStep, TileValue},
    shape::TileShape,
};
use crate::simd::stream::LINE;

impl TileProgram {
    /// Places registers for tiles of these extents, and plans these tiles. The memory of a register is reused after the
    /// last use of its value. An argument and the result of a step do not share memory. A value that is constant along
    /// a row has memory of its own, because later passes over the row read it after recomputing earlier values.
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
            // A piece that covers the tile is not copied, so its register must live as long as the selection's.
            if let TileStep::Pieces { pieces, .. } = step {
                pieces.iter().for_each(|p| last_use[p.1] = last_use[p.1].max(last_use[id]));
            }
        }
        let table = (n * size_of::<*mut u8>()).next_multiple_of(64);
        let mut places = ScratchPlaces { table, end: table, taken: Vec::new(), read: Vec::new() };
        let is_point: Vec<_> = self.steps.iter().map(|step| matches!(step, TileStep::Point { .. })).collect();
        let keeps: Vec<_> = self.values.iter().map(|value| self.row != 0 && value.mask & self.row == 0).collect();
        // The value of a streaming store is at the same offset within a cache line as its target (`TileRun::job`), so
        // its register needs an additional line.
        let streams = self.streams.is_some();
        let shift = |value: &TileValue| if streams && value.direct.is_some() { LINE } else { 0 };
        let bytes = |value: &TileValue| largest.count(value.mask) * value.dtype.size() + shift(value);
        for (id, step) in self.steps.iter_mut().enumerate() {
            let value = &mut self.values[id];
            if keeps[id] {
                value.offset = places.take(None, bytes(value), n);
            }
            match step {
                TileStep::Reduce { offset, .. } => *offset = places.take(None, largest.count(value.mask) * 8, n),
                TileStep::Ranking { offset, rank, .. } => {
                    *offset = places.take(None, largest.count(value.mask & self.row) * rank.1, n);
                }
                TileStep::Scan { offset, .. } => {
                    *offset = places.take(None, largest.count(value.mask & !self.row) * 8, n);
                }
                _ => {}
            }
        }
        for (id, &last) in last_use.iter().enumerate() {
            places.release(id, id > 0 && is_point[id - 1] && is_point[id]);
            let value = &mut self.values[id];
            if !keeps[id] {
                let kind = (shift(value) == 0).then_some((value.mask, value.dtype.size()));
                value.offset = places.take(kind, bytes(value), last.max(id));
            }
        }
        self.scratch = places.end;
    }
}

/// The layout of elements in a register: the axes, and the bytes of an element.
type RegisterKind = (AxisMask, usize);

/// A range of scratch memory.
struct ScratchPlace {
    at: usize,
    bytes: usize,
    /// The layout of the elements. `None` if no value may overwrite the range while it is read.
    kind: Option<RegisterKind>,
    /// The last step that needs the range.
    until: usize,
}

/// The state of scratch memory at a step.
struct ScratchPlaces {
    table: usize,
    /// The end of all ranges so far.
    end: usize,
    taken: Vec<ScratchPlace>,
    /// The ranges that preceding pointwise steps read for the last time. Neighbouring pointwise steps may run together,
    /// strip by strip, so such a range is reused only for a value with the same layout.
    read: Vec<ScratchPlace>,
}

impl ScratchPlaces {
    /// Frees the ranges that only steps before `id` need. `follows` is set if step `id` and the step before are
    /// pointwise.
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

    /// Returns the start of the first free range of `bytes` bytes.
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

#[cfg(test)]
mod tests {
    use eutectic_backend::{Instr, Load, Store, axes::Nest};
    use eutectic_ir::{Attrs, DType, Op, index::Index, ops::Reduction};

    use super::*;
    use crate::{simd::Isa, tile};

    /// Tests the variance of rows that are read in one order for sums and in another for stores, as in a group norm
    /// with channels last. The last pass recomputes values that precede the second sum, and must not overwrite the
    /// sums.
    #[test]
    fn nothing_lies_where_passes_over_a_row_keep_something() {
        let at = |strides: [i64; 3]| {
            let along = |sum: Index, (axis, stride): (usize, &i64)| sum.plus(&Index::coord(axis).times(*stride));
            strides.iter().enumerate().fold(Index::default(), along)
        };
        let load = |strides| Instr::Load(Load { slot: 0, at: at(strides), guards: Vec::new(), dtype: DType::F32 });
        let map = |op: &str, args: [usize; 2]| Instr::Map {
            op: Op::named(op).unwrap(),
            attrs: Attrs::default(),
            args: args.to_vec(),
            dtype: DType::F32,
        };
        let sum = |arg| Instr::reduce(Reduction::Sum, arg, DType::F32);
        let instrs = vec![
            load([65536, 1, 4096]),
            load([65536, 16, 1]),
            sum(1),
            map("sub", [0, 2]),
            map("sub", [1, 2]),
            map("mul", [4, 4]),
            sum(5),
            map("mul", [3, 6]),
        ];
        let nest = Nest {
            domain: vec![2, 4096, 16],
            lengths: Vec::new(),
            instrs,
            results: Vec::new(),
            stores: vec![Store::new(1, at([16, 32, 1]), 7)],
        };
        let slots = [(DType::F32, 131_072); 2];
        let mut program = tile::compile(&nest, 2, &slots, Isa::detect()).unwrap();
        let mut len = [1; MAX_RANK];
        (len[1], len[2]) = (256, 16);
        program.allocate(&[len]);
        let tile = Tile { start: [0; MAX_RANK], len };
        let places: Vec<_> = program
            .values
            .iter()
            .map(|value| (value.mask & program.row == 0, value.offset, tile.count(value.mask) * value.dtype.size()))
            .collect();
        assert!(places.iter().filter(|place| place.0).count() >= 2, "two sums are kept");
        for (a, &(keeps, from, bytes)) in places.iter().enumerate().filter(|(_, place)| place.0) {
            for (b, &(_, other, size)) in places.iter().enumerate().filter(|(b, _)| *b != a) {
                assert!(from + bytes <= other || other + size <= from, "{b} lies over {a}: {keeps}");
            }
        }
    }
}
