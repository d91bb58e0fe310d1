//! Kernels whose rows are too long for a block, on their way to several launches: the workspace of their rankings, and the values that these order.

use eutectic_backend::{AnchorKernel, Guard, Instr, NO_CHECK, Store, ValueId, axes::Nest};
use eutectic_ir::{DType, index::Index};

use super::ranking::Ranking;
use crate::{
    device::DeviceShape,
    kernels::stages::{BodyWriter, Buffers, Stage},
};

/// A kernel whose rows are long.
pub(super) struct LongRows<'a> {
    pub nest: Nest,
    pub rows: usize,
    pub points: usize,
    pub buffers: Buffers,
    /// The rankings that are done, each with the slot of its ranks.
    pub replaced: Vec<(ValueId, usize)>,
    pub shape: &'a DeviceShape,
}

/// The parts of the workspace that a ranking has.
pub(super) struct Tables {
    /// The ranked values, if the kernel has to compute them.
    pub values: Option<usize>,
    pub way: Way,
    /// The ranks of all elements, unless those of the first ones are enough.
    pub ranks: Option<usize>,
}

/// How long rows are ranked.
pub(super) enum Way {
    /// Sorted parts, and where their elements are in the row: a launch reads one pair and writes the other.
    Merged([(usize, usize); 2]),
    /// The first elements of parts, and of parts of these.
    Selected(Vec<Selected>),
}

/// Candidates, and the parts of which they are the first elements.
pub(super) struct Selected {
    /// How long the parts are.
    pub part: usize,
    /// How many candidates a row has.
    pub count: usize,
    /// Where they are, and their places in the row.
    pub values: usize,
    pub places: usize,
}

impl LongRows<'_> {
    /// Returns the values that a ranking orders, if they are in memory.
    pub fn loaded(&self, ranking: &Ranking) -> Option<&Instr> {
        let instr = &self.nest.instrs[ranking.arg];
        matches!(instr, Instr::Load(load) if load.at.values().is_empty() && load.guards.is_empty()).then_some(instr)
    }

    /// Returns the place of an element of a row, in tables of all rows.
    pub fn at(&self, row: usize, point: &Index) -> Index {
        Index::coord(row).times(self.points as i64).plus(point)
    }

    /// Returns the instructions of the kernel, with rankings that are done loaded, and by how much the numbers of values are larger then.
    pub fn instrs(&self) -> (Vec<Instr>, usize) {
        let (mut body, by) = (BodyWriter::default(), self.replaced.len());
        for &(id, slot) in &self.replaced {
            body.load((slot, self.nest.instrs[id].dtype()), self.at(0, &Index::coord(1)), Vec::new());
        }
        for (id, instr) in self.nest.instrs.iter().enumerate() {
            let mut new = instr.clone();
            new.substitute(&self.coords(), &|value| value + by, &self.nest.domain);
            if let Some(arg) = self.replaced.iter().position(|(ranked, _)| *ranked == id) {
                new = self.within_row(arg, instr.dtype());
            }
            body.push(new);
        }
        (body.0, by)
    }

    /// Returns the coordinates of a row and an element.
    pub fn coords(&self) -> [Index; 2] {
        [0, 1].map(Index::coord)
    }

    /// Returns a value that is known to be the place of an element in its row.
    pub fn within_row(&self, arg: ValueId, dtype: DType) -> Instr {
        let (extent, from_end, check) = (self.points.into(), false, NO_CHECK);
        Instr::Within { arg, extent, from_end, check, guards: Vec::new(), dtype }
    }

    /// Returns a launch over all elements of the kernel's rows.
    pub fn over_rows(&self, instrs: Vec<Instr>, stores: Vec<Store>) -> Stage {
        let anchor =
            if instrs.iter().any(|instr| instr.row().is_some()) { AnchorKernel::rows(1) } else { AnchorKernel::map() };
        self.buffers.stage(anchor, vec![self.rows, self.points], instrs, stores)
    }

    /// Returns an element of a row to rank where guards hold, and elsewhere one that comes after all others.
    pub fn value_of_part(
        &self,
        body: &mut BodyWriter,
        (ranking, tables): (&Ranking, &Tables),
        (point, domain): (&Index, &[usize]),
        within: &[Guard],
    ) -> ValueId {
        let value = match (self.loaded(ranking), tables.values) {
            (Some(load), _) => {
                let mut load = load.clone();
                load.substitute(&[Index::coord(0), point.clone()], &|value| value, domain);
                if let Instr::Load(load) = &mut load {
                    load.guards = within.to_vec();
                }
                body.push(load)
            }
            (None, slot) => {
                let dtype = ranking.of.register();
                body.load((slot.unwrap_or(0), dtype), self.at(0, point), within.to_vec())
            }
        };
        self.or_last(body, ranking, value, within)
    }

    /// Returns a value where guards hold, and elsewhere one that comes after all others.
    pub fn or_last(&self, body: &mut BodyWriter, ranking: &Ranking, value: ValueId, within: &[Guard]) -> ValueId {
        let Instr::Row { op, attrs, .. } = &self.nest.instrs[ranking.id] else { unreachable!("a ranking is of rows") };
        match op.row().filter(|_| !within.is_empty()) {
            Some(row) => {
                let (fill, dtype) = (row.absent(0, ranking.of, attrs), ranking.of);
                body.push(Instr::Select { pieces: vec![(within.to_vec(), value)], fill, dtype })
            }
            None => value,
        }
    }
}
