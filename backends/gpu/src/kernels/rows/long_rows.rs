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
    /// The rankings whose launches are planned already, each with the slot of its ranks.
    pub replaced: Vec<(ValueId, usize)>,
    pub shape: &'a DeviceShape,
}

/// A ranking's tables in the workspace.
pub(super) struct Tables {
    /// The slot of the ranked values, if a launch has to compute them.
    pub values: Option<usize>,
    pub way: Way,
    /// The slot of the ranks of all elements; `None` if the ranks of the first ones suffice.
    pub ranks: Option<usize>,
}

/// The ways to rank long rows.
pub(super) enum Way {
    /// Sorted parts, which are merged in pairs. Each launch reads one pair of tables and writes the other.
    Merged([SortedParts; 2]),
    /// Repeated selection. The first elements of each part of a row are candidates, from which the next round selects.
    Selected(Vec<Selected>),
    /// A radix sort by the digits of keys.
    Digits(Digits),
}

/// The slots of a table of sorted parts: their values, and the positions of the values in the row.
#[derive(Clone, Copy)]
pub(super) struct SortedParts {
    pub values: usize,
    pub places: usize,
}

/// The candidates of one round: the first elements of each part.
pub(super) struct Selected {
    /// Elements per part.
    pub part: usize,
    /// Candidates per row.
    pub count: usize,
    /// The slots of the candidates' values and of their positions in the row.
    pub values: usize,
    pub places: usize,
}

/// A radix sort's tables in the workspace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Digits {
    /// Threads of a block.
    pub threads: usize,
    /// The slot of digit counts per tile, and the slot of the positions where the elements of each digit start.
    pub counts: usize,
    pub begins: usize,
    /// Two tables of elements. Each pass reads one and writes the other.
    pub keyed: [Keyed; 2],
}

impl LongRows<'_> {
    /// Returns the load of the values that a ranking orders; `None` if they are computed.
    pub fn loaded(&self, ranking: &Ranking) -> Option<&Instr> {
        let instr = &self.nest.instrs[ranking.arg];
        matches!(instr, Instr::Load(load) if load.at.values().is_empty() && load.guards.is_empty()).then_some(instr)
    }

    /// Returns the index of a row's element in tables of all rows.
    pub fn at(&self, row: usize, point: &Index) -> Index {
        Index::coord(row).times(self.points as i64).plus(point)
    }

    /// Returns the slot of the values that a ranking orders, if they are stored row by row.
    pub fn flat(&self, ranking: &Ranking) -> Option<usize> {
        // For a single row, index maps do not mention the row's number.
        let point = Index::coord(1);
        let at = if self.rows == 1 { point } else { self.at(0, &point) };
        match self.loaded(ranking)? {
            Instr::Load(load) if load.at == at => Some(load.slot),
            _ => None,
        }
    }

    /// Returns the kernel's instructions, in which loads of ranks replace finished rankings. Also returns by how much
    /// the numbers of values increase.
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

    /// Returns the coordinates of a row and of an element in it.
    pub fn coords(&self) -> [Index; 2] {
        [0, 1].map(Index::coord)
    }

    /// Returns an instruction that declares a value to be a position in the row.
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

    /// Adds an element of a row where guards hold, and elsewhere a value that ranks after all elements.
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

    /// Adds a value that is unchanged where guards hold, and that elsewhere ranks after all elements.
    pub fn or_last(&self, body: &mut BodyWriter, ranking: &Ranking, value: ValueId, within: &[Guard]) -> ValueId {
        let Instr::Row { op, attrs, .. } = &self.nest.instrs[ranking.id] else {
            unreachable!("rankings are row operations")
        };
        match op.row().filter(|_| !within.is_empty()) {
            Some(row) => {
                let (fill, dtype) = (row.absent(0, ranking.of, attrs), ranking.of);
                body.push(Instr::Select { pieces: vec![(within.to_vec(), value)], fill, dtype })
            }
            None => value,
        }
    }
}
