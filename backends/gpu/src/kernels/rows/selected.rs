//! Selects the first elements of rows that exceed a block's shared memory.
//!
//! A launch selects the first elements of parts of rows as candidates, and stores them and their positions in the
//! workspace. Further launches select from the candidates until the rest fits into a block. If all stores use the first
//! elements only, the last launch makes the stores. Otherwise it stores the ranks of the first elements.

use eutectic_backend::{AnchorKernel, Guard, Instr, Store, ValueId};
use eutectic_ir::{
    DType,
    index::{Atom, Index},
};

use super::{
    long_rows::{LongRows, Selected, Tables},
    ranking::{RankedRows, Ranking},
};
use crate::kernels::stages::{BodyWriter, Stage};

/// The approximate number of candidates of a row after one round.
const CANDIDATES: usize = 4096;
/// The minimal number of elements per part.
const PART: usize = 1024;

impl LongRows<'_> {
    /// Reserves the workspace of a selection, if each round leaves fewer candidates than the previous one.
    pub fn selected(&mut self, ranking: &Ranking) -> Option<Vec<Selected>> {
        let most = ranking.order.most;
        let longest = RankedRows::of(&self.nest.instrs[..=ranking.id], self.shape, self.points)?.longest();
        let longest = 1 << longest.checked_ilog2()?;
        let least = PART.max((4 * most).next_power_of_two());
        if [self.points, least].iter().any(|&points| !ranking.selects(&self.shape.rankings, points)) || least > longest
        {
            return None;
        }
        let (mut parts, mut count) = (Vec::new(), self.points);
        while count > longest {
            let part = (count.saturating_mul(most) / CANDIDATES).next_power_of_two().clamp(least, longest);
            count = count.div_ceil(part) * most;
            let all = self.rows * count;
            let (values, places) = (self.buffers.part(ranking.of.register(), all), self.buffers.part(DType::I32, all));
            parts.push(Selected { part, count, values, places });
        }
        Some(parts)
    }

    /// Returns the launches that select candidates, one per round.
    pub fn candidates(&self, ranking: &Ranking, tables: &Tables, parts: &[Selected]) -> Vec<Stage> {
        let before = std::iter::once(None).chain(parts.iter().map(Some));
        parts.iter().zip(before).map(|(to, from)| self.first_of_parts(ranking, tables, (from, to))).collect()
    }

    fn first_of_parts(&self, ranking: &Ranking, tables: &Tables, (from, to): (Option<&Selected>, &Selected)) -> Stage {
        let count = from.map_or(self.points, |from| from.count);
        let [of_part, within_part] = [1, 2].map(Index::coord);
        let point = of_part.times(to.part as i64).plus(&within_part);
        let partial = !count.is_multiple_of(to.part);
        let within: Vec<Guard> = if partial { vec![(point.clone(), 0..count as i64)] } else { Vec::new() };
        let domain = vec![self.rows, count.div_ceil(to.part), to.part];
        let mut body = BodyWriter::default();
        let (value, place) = match from {
            None => {
                let value = self.value_of_part(&mut body, (ranking, tables), (&point, &domain), &within);
                let place = body.coordinate(point, DType::I32);
                // Padding ranks last. Its position would be beyond the row, so it is limited to the row.
                let last = body.constant(self.points as i64 - 1, DType::I32);
                (value, if partial { body.op("min", &[place, last], DType::I32) } else { place })
            }
            Some(from) => {
                let (value, place) = self.candidate(&mut body, ranking, (from, &point), &within);
                (self.or_last(&mut body, ranking, value, &within), place)
            }
        };
        let rank = body.push(self.ranked(ranking, value));
        let first = of_part.times(ranking.order.most as i64).plus(&Index::atom(Atom::Value(rank)));
        let at = row_of(to.count).plus(&first);
        let store = |slot, value| Store { guards: first_of(rank, ranking), ..Store::new(slot, at.clone(), value) };
        let stores = vec![store(to.values, value), store(to.places, place)];
        self.buffers.stage(AnchorKernel::rows(1), domain, body.0, stores)
    }

    /// Returns the value of a candidate and its position in the row.
    fn candidate(
        &self,
        body: &mut BodyWriter,
        ranking: &Ranking,
        (from, point): (&Selected, &Index),
        within: &[Guard],
    ) -> (ValueId, ValueId) {
        let at = row_of(from.count).plus(point);
        let value = body.load((from.values, ranking.of.register()), at.clone(), within.to_vec());
        (value, body.load((from.places, DType::I32), at, within.to_vec()))
    }

    /// Returns the ranking instruction for another value.
    fn ranked(&self, ranking: &Ranking, value: ValueId) -> Instr {
        let mut instr = self.nest.instrs[ranking.id].clone();
        if let Instr::Row { args, .. } = &mut instr {
            *args = vec![value];
        }
        instr
    }

    /// Returns a body that ranks the last candidates, with their ranks and their positions in the row.
    fn last_candidates(&self, ranking: &Ranking, last: &Selected) -> (BodyWriter, ValueId, ValueId) {
        let mut body = BodyWriter::default();
        let (value, place) = self.candidate(&mut body, ranking, (last, &Index::coord(1)), &[]);
        let rank = body.push(self.ranked(ranking, value));
        let place = body.push(self.within_row(place, DType::I32));
        (body, rank, place)
    }

    /// Returns the launch with the stores of a kernel that uses the first elements only.
    pub fn last_of_selected(&self, ranking: &Ranking, parts: &[Selected]) -> Stage {
        let last = parts.last().expect("rows that exceed a block have parts");
        self.last_of_first(ranking, last.count, self.last_candidates(ranking, last))
    }

    /// Returns the launch over `count` elements per row that makes the kernel's stores, given a body with the elements'
    /// ranks and positions.
    pub fn last_of_first(
        &self,
        ranking: &Ranking,
        count: usize,
        (mut body, rank, place): (BodyWriter, ValueId, ValueId),
    ) -> Stage {
        let domain = vec![self.rows, count];
        let anchor =
            if body.0.iter().any(|instr| instr.row().is_some()) { AnchorKernel::rows(1) } else { AnchorKernel::map() };
        let (by, at) = (body.0.len(), [Index::coord(0), Index::atom(Atom::Value(place))]);
        let value = |value: ValueId| if value == ranking.id { rank } else { by + value };
        for (id, instr) in self.nest.instrs.iter().enumerate() {
            let mut new = instr.clone();
            new.substitute(&at, &value, &domain);
            // Uses of the ranking refer to `rank`, so a constant replaces the ranking instruction.
            body.push(if id == ranking.id { Instr::Constant { value: 0.into(), dtype: DType::I32 } } else { new });
        }
        let mut stores = self.nest.stores.clone();
        stores.iter_mut().for_each(|store| store.substitute(&at, &value, &domain));
        self.buffers.stage(anchor, domain, body.0, stores)
    }

    /// Returns the launches that store the ranks of all elements. The first fills in the common rank of elements that
    /// are not selected. The second stores the ranks of the selected ones.
    pub fn ranks_of_selected(&self, ranking: &Ranking, parts: &[Selected], ranks: usize) -> [Stage; 2] {
        let last = parts.last().expect("rows that exceed a block have parts");
        let mut body = BodyWriter::default();
        let most = body.constant(ranking.order.most as i64, DType::I32);
        let all = Store::new(ranks, self.at(0, &Index::coord(1)), most);
        let fill = self.buffers.stage(AnchorKernel::map(), vec![self.rows, self.points], body.0, vec![all]);
        let (body, rank, place) = self.last_candidates(ranking, last);
        let at = self.at(0, &Index::atom(Atom::Value(place)));
        let first = Store { guards: first_of(rank, ranking), ..Store::new(ranks, at, rank) };
        [fill, self.buffers.stage(AnchorKernel::rows(1), vec![self.rows, last.count], body.0, vec![first])]
    }
}

/// Returns the index of a row's first candidate.
fn row_of(count: usize) -> Index {
    Index::coord(0).times(count as i64)
}

/// Returns the guard that holds for the first elements, whose ranks are distinct.
fn first_of(rank: ValueId, ranking: &Ranking) -> Vec<Guard> {
    vec![(Index::atom(Atom::Value(rank)), 0..ranking.order.most as i64)]
}
