//! Kernels whose rows are too long for a block, before they are split into launches: the workspace of their rankings,
//! and the ranked values.

use eutectic_backend::{AnchorKernel, Guard, Instr, NO_CHECK, Store, ValueId, axes::Nest};
use eutectic_ir::{DType, index::Index};

use super::{radix::Keyed, ranking::Ranking};
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

/// A ranking's tables in the workspace.
pub(super) struct Tables {
    /// The ranked values, if the kernel has to compute them.
    pub values: Option<usize>,
    pub way: Way,
    /// The ranks of all elements, unless the ranks of the first ones suffice.
    pub ranks: Option<usize>,
}

/// The ways to rank long rows.
pub(super) enum Way {
    /// Sorted parts. A launch reads them from one pair of tables, and writes the other.
    Merged([SortedParts; 2]),
    /// Repeated selection: the first elements of parts, then those of parts of these.
    Selected(Vec<Selected>),
    /// Elements in the order of digits of their keys.
    Digits(Digits),
}

/// The tables of sorted parts: of their values, and of the positions of these in the row.
#[derive(Clone, Copy)]
pub(super) struct SortedParts {
    pub values: usize,
    pub places: usize,
}

/// Candidates: the first elements of each part.
pub(super) struct Selected {
    /// Elements per part.
    pub part: usize,
    /// Candidates per row.
    pub count: usize,
    /// The tables of the candidates' values and of their positions in the row.
    pub values: usize,
    pub places: usize,
}

/// A radix sort's tables in the workspace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Digits {
    /// Threads of a block.
    pub threads: usize,
    /// The table of digit counts per tile, and the table of the positions where the elements of each digit start.
    pub counts: usize,
    pub begins: usize,
    /// A launch reads the elements of one and leaves them in the other.
    pub keyed: [Keyed; 2],
}

impl LongRows<'_> {
    /// Returns the values that a ranking orders, if they are in memory.
    pub fn loaded(&self, ranking: &Ranking) -> Option<&Instr> {
        let instr = &self.nest.instrs[ranking.arg];
        matches!(instr, Instr::Load(load) if load.at.values().is_empty() && load.guards.is_empty()).then_some(instr)
    }

    /// Returns the index of a row's element in tables of all rows.
    pub fn at(&self, row: usize, point: &Index) -> Index {
        Index::coord(row).times(self.points as i64).plus(point)
    }

    /// Returns the slot of the values that a ranking orders, if it has them row by row.
    pub fn flat(&self, ranking: &Ranking) -> Option<usize> {
        // For a single row, index maps do not mention the row's number.
        let point = Index::coord(1);
        let at = if self.rows == 1 { point } else { self.at(0, &point) };
        match self.loaded(ranking)? {
            Instr::Load(load) if load.at == at => Some(load.slot),
            _ => None,
        }
    }

    /// Returns the kernel's instructions, with loads in place of finished rankings, and the offset that this adds to
    /// the numbers of values.
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

    /// Returns a value that is known to be a position in the row.
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

    /// Returns an element of a row where guards hold, and elsewhere a value that ranks after all elements.
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
                let slot = slot.expect("values that no instruction loads are in the workspace");
                body.load((slot, dtype), self.at(0, point), within.to_vec())
            }
        };
        self.or_last(body, ranking, value, within)
    }

    /// Returns a value where guards hold, and elsewhere a value that ranks after all elements.
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
