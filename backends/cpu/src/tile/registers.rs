//! Where registers lie in scratch memory.

use super::{MAX_RANK, Shape, Step, Tile, TileProgram};

impl TileProgram {
    /// Places registers for tiles of these extents: a register is free again after its last use; none is an argument's and the
    /// result's at once. What is the same for a row stays, because passes over a row meet it again.
    pub fn allocate(&mut self, extents: &[[usize; MAX_RANK]]) {
        let mut largest = Tile { start: [0; MAX_RANK], len: [1; MAX_RANK] };
        for len in extents {
            largest.len = std::array::from_fn(|d| largest.len[d].max(len[d]));
            if self.shapes.iter().all(|s| s.len != *len) {
                self.shapes.push(Shape::new(self, len));
            }
        }
        let n = self.steps.len();
        let mut last_use = vec![0; n];
        for (id, step) in self.steps.iter().enumerate() {
            step.args().into_iter().for_each(|a| last_use[a] = id);
        }
        self.writes.iter().map(|w| w.value).chain(self.results.iter().copied()).for_each(|v| last_use[v] = n);
        for (id, step) in self.steps.iter().enumerate().rev() {
            // A piece that covers a tile is not copied.
            if let Step::Pieces { pieces, .. } = step {
                pieces.iter().for_each(|p| last_use[p.1] = last_use[p.1].max(last_use[id]));
            }
        }
        let table = (n * size_of::<*mut u8>()).next_multiple_of(64);
        let mut taken: Vec<(usize, usize, usize)> = Vec::new();
        self.scratch = table;
        for (id, &last) in last_use.iter().enumerate() {
            taken.retain(|t| t.2 >= id);
            let mut place = |bytes: usize, until: usize| {
                let bytes = bytes.next_multiple_of(64);
                taken.sort_unstable();
                let mut at = table;
                for &(from, size, _) in &taken {
                    if from >= at + bytes {
                        break;
                    }
                    at = at.max(from + size);
                }
                taken.push((at, bytes, until));
                self.scratch = self.scratch.max(at + bytes);
                at
            };
            let value = &mut self.values[id];
            let keeps = self.row != 0 && value.mask & self.row == 0;
            let elements = largest.count(value.mask);
            value.offset = place(elements * value.dtype.size(), if keeps { n } else { last.max(id) });
            if let Step::Reduce { offset, .. } = &mut self.steps[id] {
                *offset = place(elements * 8, n);
            }
        }
    }
}
