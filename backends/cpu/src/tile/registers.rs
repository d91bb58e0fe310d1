//! Places registers in scratch memory.

use super::{
    domain::{AxisMask, MAX_RANK, Tile},
    program::{TileProgram, TileStep, TileValue},
    shape::TileShape,
};
use crate::simd::stream::LINE;

impl TileProgram {
    /// Places registers for tiles of these extents. A register is free after its last use, and never shared by an
    /// argument and the result. A value that is constant along a row has a register of its own: passes over the parts
    /// of a row read it again, after they have recomputed the values before it.
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
        let keeps: Vec<_> = self.values.iter().map(|value| self.row != 0 && value.mask & self.row == 0).collect();
        // A streaming store's value is aligned like its target within a cache line: see `points`.
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

/// Determines the layout of elements in a register: the axes, and the size of an element.
type RegisterKind = (AxisMask, usize);

/// A place in scratch memory.
struct ScratchPlace {
    at: usize,
    bytes: usize,
    /// The layout of its elements, if another value may overwrite it while it is read.
    kind: Option<RegisterKind>,
    /// The last step that needs it.
    until: usize,
}

/// The places that are taken at a step.
struct ScratchPlaces {
    table: usize,
    /// The end of the last register.
    end: usize,
    taken: Vec<ScratchPlace>,
    /// Registers that pointwise steps of the same stage read for the last time. These steps may run strip by strip, so
    /// that such a register is reused only for a value with the same layout.
    read: Vec<ScratchPlace>,
}

impl ScratchPlaces {
    /// Frees the registers that only earlier steps need. `follows` says that the step and the previous step are
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

    /// Returns the first gap of `bytes` bytes.
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

    /// The variance of a row that is read in one order for its sums and in another for stores, such as a group norm
    /// with channels last. The values that the last pass loads again precede the second sum.
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
