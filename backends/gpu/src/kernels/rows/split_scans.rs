//! Long scans of a few rows: one team would take thousands of sequential iterations, and most processors would have no
//! row.
//!
//! Rows are split into parts. A first launch reduces each part to a total, and a second one scans the totals. The last
//! launch scans the parts and combines each result with the total of the parts before. Rows are read twice, and no
//! block waits for another.

use eutectic_backend::{
    AnchorKernel, Body, Guard, Instr, Kernel, Load, Store, ValueId, axes::Nest, reductions::varying,
};
use eutectic_ir::{Attr, Attrs, DType, index::Index, ops::Reduction};

use super::{
    schedule::{RESIDENT, Rows},
    team_scan::Scan,
};

/// The minimal number of iterations of a team that makes further launches worth their time.
const TURNS: usize = 16;
/// The minimal number of iterations per part: for a team of threads, and for a single thread per part.
const OF_PART: [usize; 2] = [4, 16];
/// If parts do not divide a row, they start at multiples of this number of points: a cache line of 32-bit elements.
const LINE: usize = 32;

/// A scan that is split into parts.
struct Cut {
    id: ValueId,
    how: Reduction,
}

/// Returns the kernels of the three launches; the buffer after those of the kernel is the workspace. Returns `None` if
/// one launch is as fast. Recurrences are not split. Scans are not split either if they read results of row operations,
/// have several element types, or have a type of fewer than 32 bits.
pub(crate) fn split_scans(of: &Rows<'_>) -> Option<Vec<Kernel>> {
    let Rows { kernel, shape, nest, schedule } = of;
    let &[rows, points] = &nest.domain[..] else { return None };
    if rows == 0
        || of.groups()[1] / schedule.team.threads < TURNS
        || 4 * of.threads() > shape.processors * RESIDENT
        || !nest.lengths.is_empty()
    {
        return None;
    }
    // If neighbouring threads work on neighbouring rows, each part has one thread.
    let (of_row, least) = if schedule.team.along { (schedule.team.threads, OF_PART[0]) } else { (1, OF_PART[1]) };
    let [groups, turns] = [of.groups()[0].max(1) * of_row, of.groups()[1] / of_row];
    let wanted = (shape.processors * RESIDENT).div_ceil(groups).min(turns / least);
    let parts = (wanted..2 * wanted).find(|&parts| points.is_multiple_of(parts)).unwrap_or(wanted);
    let of_part = points.div_ceil(parts);
    let of_part = if points.is_multiple_of(of_part) { of_part } else { of_part.next_multiple_of(LINE) };
    let parts = points.div_ceil(of_part);
    let varies = varying(&nest.instrs, 1..2);
    // The axes are parts, rows and points of a part, so that neighbouring rows stay neighbours.
    let nest = nest.split(1, of_part).swapped(0, 1);
    let cut = Cuts::of(kernel, (nest, varies), [rows, points, parts])?;
    let bytes = cut.workspace().0.size() * cut.workspace().1;
    (parts > 1 && bytes <= shape.workspace).then(|| vec![cut.totals(), cut.before(), cut.scans()])
}

/// A kernel whose scans are split into parts.
struct Cuts<'a> {
    kernel: &'a Kernel,
    nest: Nest,
    /// For each value, whether it varies along a row.
    varies: Vec<bool>,
    cuts: Vec<Cut>,
    dtype: DType,
    rows: usize,
    points: usize,
    parts: usize,
}

impl<'a> Cuts<'a> {
    fn of(
        kernel: &'a Kernel,
        (nest, varies): (Nest, Vec<bool>),
        [rows, points, parts]: [usize; 3],
    ) -> Option<Cuts<'a>> {
        let (mut cuts, mut dtypes) = (Vec::new(), Vec::new());
        // For each value, whether it depends on a row operation.
        let mut depends = vec![false; nest.instrs.len()];
        for (id, instr) in nest.instrs.iter().enumerate() {
            depends[id] = instr.args().into_iter().any(|arg| depends[arg]);
            if instr.row().is_some() {
                let scan = Scan::of(instr).filter(|_| !depends[id])?;
                cuts.push(Cut { id, how: scan.row.monoid? });
                dtypes.push(scan.dtype);
                depends[id] = true;
            }
        }
        let dtype = *dtypes.first()?;
        (dtype.size() >= 4 && dtypes.iter().all(|other| *other == dtype)).then_some(Cuts {
            kernel,
            nest,
            varies,
            cuts,
            dtype,
            rows,
            points,
            parts,
        })
    }

    /// Returns the element type and the size of the workspace. It holds, for each scan, a total of each part and the
    /// totals before each part.
    fn workspace(&self) -> (DType, usize) {
        (self.dtype, 2 * self.cuts.len() * self.rows * self.parts)
    }

    /// Returns the index of a part's total for a scan, or of the total of the parts before it.
    fn place(&self, part: &Index, cut: usize, is_before: bool) -> Index {
        let first = (2 * cut + usize::from(is_before)) * self.rows * self.parts;
        part.plus(&Index::constant(first as i64))
    }

    /// Returns the number of the part that a point belongs to, among the parts of all rows.
    fn part(&self) -> Index {
        Index::coord(1).times(self.parts as i64).plus(&Index::coord(0))
    }

    fn kernel(&self, domain: Vec<usize>, instrs: Vec<Instr>, stores: Vec<Store>) -> Kernel {
        let slots = self.kernel.slots.iter().copied().chain([self.workspace()]).collect();
        Kernel { anchor: AnchorKernel::rows(1), body: Body { domain, instrs, ..Body::default() }, stores, slots }
    }

    fn load(&self, at: Index) -> Instr {
        Instr::Load(Load { slot: self.kernel.slots.len(), at, guards: Vec::new(), dtype: self.dtype })
    }

    /// Returns the guard that a point of a part is within the row; `None` if parts divide the row.
    fn within(&self) -> Option<Guard> {
        let of_part = self.nest.domain[2];
        let point = Index::coord(0).times(of_part as i64).plus(&Index::coord(2));
        (self.parts * of_part > self.points).then_some((point, 0..self.points as i64))
    }

    /// Returns the instructions of the kernel over parts, and the new number of each value. `scanned` gives the values
    /// that replace results of scans.
    fn instrs(
        &self,
        mut scanned: impl FnMut(&mut Vec<Instr>, usize, ValueId) -> ValueId,
    ) -> (Vec<Instr>, Vec<ValueId>) {
        let at: Vec<Index> = (0..self.nest.domain.len()).map(Index::coord).collect();
        let (mut instrs, mut now): (Vec<Instr>, Vec<ValueId>) = (Vec::new(), Vec::new());
        for (id, instr) in self.nest.instrs.iter().enumerate() {
            let mut new = instr.clone();
            new.substitute(&at, &|value| now[value], &self.nest.domain);
            let cut = self.cuts.iter().position(|cut| cut.id == id);
            if let Instr::Load(Load { guards, .. }) | Instr::Within { guards, .. } = &mut new {
                guards.extend(self.within());
            }
            if let (Some(cut), Some(within), Instr::Row { args, .. }) = (cut, self.within(), &mut new) {
                // Points beyond the row get the identity, which does not change the state.
                let Cut { how, .. } = self.cuts[cut];
                let pieces = vec![(vec![within], args[0])];
                instrs.push(Instr::Select { pieces, fill: how.identity(self.dtype), dtype: self.dtype });
                args[0] = instrs.len() - 1;
            }
            instrs.push(new);
            let own = instrs.len() - 1;
            now.push(cut.map_or(own, |cut| scanned(&mut instrs, cut, own)));
        }
        (instrs, now)
    }

    /// Returns the kernel of the totals of parts.
    fn totals(&self) -> Kernel {
        let mut stores = Vec::new();
        let (instrs, _) = self.instrs(|instrs, cut, scan| {
            let arg = instrs[scan].args()[0];
            instrs.push(Instr::reduce(self.cuts[cut].how, arg, self.dtype));
            stores.push(Store::new(self.kernel.slots.len(), self.place(&self.part(), cut, false), instrs.len() - 1));
            // Only the reduction is stored. The scan keeps its number, and is not printed because nothing reads it.
            scan
        });
        self.kernel(self.nest.domain.clone(), instrs, stores)
    }

    /// Returns the kernel that scans the totals. Each result leaves out the total of its own part.
    fn before(&self) -> Kernel {
        let (mut instrs, mut stores) = (Vec::new(), Vec::new());
        let part = Index::coord(0).times(self.parts as i64).plus(&Index::coord(1));
        for (n, cut) in self.cuts.iter().enumerate() {
            instrs.push(self.load(self.place(&part, n, false)));
            let mut scan = self.nest.instrs[cut.id].clone();
            if let Instr::Row { op, attrs, args, .. } = &mut scan {
                if let Some(exclusive) = op.attr("exclusive").and_then(|at| attrs.get_mut(at)) {
                    *exclusive = Attr::Bool(true);
                }
                *args = vec![instrs.len() - 1];
            }
            instrs.push(scan);
            stores.push(Store::new(self.kernel.slots.len(), self.place(&part, n, true), instrs.len() - 1));
        }
        self.kernel(vec![self.rows, self.parts], instrs, stores)
    }

    /// Returns the kernel that scans parts, with the stores of the original kernel.
    fn scans(&self) -> Kernel {
        let (instrs, now) = self.instrs(|instrs, cut, scan| {
            instrs.push(self.load(self.place(&self.part(), cut, true)));
            let args = vec![instrs.len() - 1, scan];
            let op = self.cuts[cut].how.op();
            instrs.push(Instr::Map { op, attrs: Attrs::default(), args, dtype: self.dtype });
            instrs.len() - 1
        });
        let at: Vec<Index> = (0..self.nest.domain.len()).map(Index::coord).collect();
        let stored = |store: &Store| {
            let mut new = store.clone();
            new.substitute(&at, &|value| now[value], &self.nest.domain);
            let along = store.maps().any(|map| map.mentions(0) || map.mentions(2));
            if along || store.values().into_iter().any(|value| self.varies[value]) {
                new.guards.extend(self.within());
            } else {
                // The first part stores the values that are constant along the row.
                new.guards.push((Index::coord(0), 0..1));
            }
            new
        };
        let stores = self.nest.stores.iter().map(stored).collect();
        self.kernel(self.nest.domain.clone(), instrs, stores)
    }
}

#[cfg(test)]
mod tests {
    use eutectic_ir::{Op, index::flatten};

    use super::*;
    use crate::device::DeviceShape;

    /// Returns the scan of some rows. The points of a row are contiguous, or they are a column of a matrix.
    fn scan(op: &str, [rows, points]: [usize; 2], is_column: bool) -> Kernel {
        let [row, point] = [0, 1].map(Index::coord);
        let at =
            if is_column { flatten(&[point, row], &[points, rows]) } else { flatten(&[row, point], &[rows, points]) };
        let load = Instr::Load(Load { slot: 0, at: at.clone(), guards: Vec::new(), dtype: DType::F32 });
        let op = Op::named(op).expect("an op");
        let attrs: Attrs = op.def().attrs.iter().map(|_| Attr::Bool(false)).collect();
        let args = vec![0; if op.row().is_some_and(|row| row.monoid.is_some()) { 1 } else { 2 }];
        Kernel {
            anchor: AnchorKernel::rows(1),
            body: Body {
                domain: vec![rows, points],
                instrs: vec![load, Instr::Row { op, attrs, args, dtype: DType::F32 }],
                ..Body::default()
            },
            stores: vec![Store::new(1, at, 1)],
            slots: vec![(DType::F32, rows * points); 2],
        }
    }

    fn cut(kernel: &Kernel) -> Option<Vec<Kernel>> {
        split_scans(&Rows::of(kernel, &DeviceShape::OF_TESTS, |_| 32)?)
    }

    #[test]
    fn long_scans_of_few_rows_are_cut() {
        let stages = cut(&scan("scan-sum", [2, 1 << 16], false)).expect("parts");
        let [totals, before, scans] = &stages[..] else { panic!("{} launches", stages.len()) };
        // A row has 64 iterations of 1,024 points, and a part has four of them.
        assert_eq!(totals.body.domain, [16, 2, 1 << 12]);
        assert_eq!(before.body.domain, [2, 16]);
        assert_eq!(scans.body.domain, totals.body.domain);
        assert_eq!(scans.slots[2], (DType::F32, 2 * 2 * 16));
        assert!(scans.stores[0].guards.is_empty());
        // The number of points is prime, so the last part is shorter.
        let stages = cut(&scan("scan-sum", [1, 65_537], false)).expect("parts");
        assert_eq!(stages[2].stores[0].guards.len(), 1);
        // Each part of the neighbouring columns has one thread.
        let columns = cut(&scan("scan-max", [64, 1 << 12], true)).expect("parts");
        assert_eq!(columns[0].body.domain, [256, 64, 16]);
    }

    #[test]
    fn scans_that_a_launch_does_as_well_are_left() {
        for (op, rows, why) in [
            ("scan-sum", [4096, 4096], "rows keep processors busy"),
            ("scan-sum", [2, 1000], "a short row"),
            ("scan-linear", [2, 1 << 16], "a recurrence"),
        ] {
            assert_eq!(cut(&scan(op, rows, false)), None, "{why}");
        }
    }
}
