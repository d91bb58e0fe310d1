//! Rankings of rows that exceed a block's shared memory, if all elements need ranks.
//!
//! Very long rows are sorted by digits (`radix`). For other rows, a first launch writes the ranked values to the
//! workspace, a second one sorts parts of rows, and each later one merges neighbouring parts. In a merge, each thread
//! finds by bisection how many elements of the other part come before its element. The last merge writes ranks, and the
//! kernel then loads them.

use eutectic_backend::{AnchorKernel, Guard, Instr, Kernel, Store, ValueId};
use eutectic_ir::{
    DType,
    index::{Atom, Index},
};

use super::{
    long_rows::{LongRows, SortedParts, Tables, Way},
    ranking::{RankedRows, Ranking},
    schedule::flat,
};
use crate::{
    device::DeviceShape,
    kernels::stages::{BodyWriter, Buffers, Stage},
};

/// Returns the launches of a kernel; `None` if its rows fit into a block's shared memory, or if it has no ranking.
///
/// # Errors
/// Returns an error if the launches need more workspace than a kernel may have.
pub(crate) fn split_rankings(kernel: &Kernel, shape: &DeviceShape) -> Result<Option<Vec<Stage>>, Vec<String>> {
    if Ranking::all(&kernel.body.instrs).is_empty() {
        return Ok(None);
    }
    let Some(nest) = flat(kernel) else { return Ok(None) };
    let &[rows, points] = &nest.domain[..] else { return Ok(None) };
    if RankedRows::of(&nest.instrs, shape, points).is_none_or(|rows| points <= rows.longest()) {
        return Ok(None);
    }
    let mut long = LongRows { nest, rows, points, buffers: Buffers::of(kernel), replaced: Vec::new(), shape };
    let mut plan = long.plan(true);
    if long.buffers.workspace() > shape.workspace {
        // Digits take more memory than merges.
        long.buffers = Buffers::of(kernel);
        plan = long.plan(false);
    }
    if long.buffers.workspace() > shape.workspace {
        let (bytes, most) = (long.buffers.workspace(), shape.workspace);
        return Err(vec![format!(
            "cannot rank rows of {points} elements because this needs {bytes} bytes, and a kernel has at most {most} bytes of scratch memory"
        )]);
    }
    let mut stages = Vec::new();
    for (ranking, tables) in plan {
        stages.extend(long.values(&ranking, &tables));
        match &tables.way {
            Way::Merged(sorted) => stages.extend(long.merged(&ranking, &tables, sorted)),
            Way::Digits(digits) => {
                stages.extend(long.passes(&ranking, &tables, digits));
                let Some(ranks) = tables.ranks else {
                    stages.push(long.last_of_sorted(&ranking, digits));
                    return Ok(Some(stages));
                };
                stages.push(long.ranks_of_sorted(&ranking, digits, ranks));
            }
            Way::Selected(parts) => {
                stages.extend(long.candidates(&ranking, &tables, parts));
                let Some(ranks) = tables.ranks else {
                    stages.push(long.last_of_selected(&ranking, parts));
                    return Ok(Some(stages));
                };
                stages.extend(long.ranks_of_selected(&ranking, parts, ranks));
            }
        }
        long.replaced.extend(tables.ranks.map(|ranks| (ranking.id, ranks)));
    }
    stages.push(long.last());
    Ok(Some(stages))
}

impl LongRows<'_> {
    /// Plans all rankings and reserves their workspace. Radix sorts are considered only if `by_digits` holds.
    fn plan(&mut self, by_digits: bool) -> Vec<(Ranking, Tables)> {
        let count = self.rows * self.points;
        let rankings = Ranking::all(&self.nest.instrs);
        let plan = rankings.into_iter().map(|ranking| {
            let dtype = ranking.of.register();
            let way = self.selected(&ranking).map(Way::Selected);
            let way = match way {
                None if by_digits => self.digits(&ranking, self.part(&ranking)).map(Way::Digits),
                way => way,
            };
            let is_there = match way {
                Some(Way::Digits(_)) => self.flat(&ranking).is_some(),
                _ => self.loaded(&ranking).is_some(),
            };
            let values = (!is_there).then(|| self.buffers.part(dtype, count));
            let way = way.unwrap_or_else(|| {
                Way::Merged([0, 1].map(|_| SortedParts {
                    values: self.buffers.part(dtype, count),
                    places: self.buffers.part(DType::I32, count),
                }))
            });
            let first_only = !matches!(way, Way::Merged(_)) && Ranking::first_only(&self.nest).is_some();
            let ranks = (!first_only).then(|| self.buffers.part(self.nest.instrs[ranking.id].dtype(), count));
            (ranking, Tables { values, way, ranks })
        });
        plan.collect()
    }

    /// Returns the launch with the stores of the kernel.
    fn last(&self) -> Stage {
        let (instrs, by) = self.instrs();
        let mut stores = self.nest.stores.clone();
        stores.iter_mut().for_each(|store| store.substitute(&self.coords(), &|value| value + by, &self.nest.domain));
        self.over_rows(instrs, stores)
    }

    /// Returns the launch that computes the ranked values; `None` if they are in memory already.
    fn values(&self, ranking: &Ranking, tables: &Tables) -> Option<Stage> {
        tables.values.map(|slot| {
            let (mut instrs, by) = self.instrs();
            instrs.truncate(by + ranking.arg + 1);
            let store = Store::new(slot, self.at(0, &Index::coord(1)), by + ranking.arg);
            self.over_rows(instrs, vec![store])
        })
    }

    /// Returns the launches that sort parts of rows and merge them.
    fn merged(&self, ranking: &Ranking, tables: &Tables, sorted: &[SortedParts; 2]) -> Vec<Stage> {
        let part = self.part(ranking);
        let mut stages = vec![self.parts(ranking, (tables, sorted[0]), part)];
        let (mut run, mut from) = (part, 0);
        while run < self.points {
            stages.push(self.merge(ranking, (tables, sorted), run, from));
            (run, from) = (2 * run, 1 - from);
        }
        stages
    }

    /// Returns the number of elements that a block sorts, a power of two.
    fn part(&self, ranking: &Ranking) -> usize {
        // Parts are sorted, so the limit of sorts counts. Rankings of rows with one element are always sorts.
        let one = RankedRows::of(&self.nest.instrs[..=ranking.id], self.shape, 1).map_or(1, |rows| rows.longest());
        1 << one.min(self.points - 1).max(1).ilog2()
    }

    /// Returns the launch that sorts parts of `part` elements.
    fn parts(&self, ranking: &Ranking, (tables, sorted): (&Tables, SortedParts), part: usize) -> Stage {
        let [of_part, within_part] = [1, 2].map(Index::coord);
        let point = of_part.times(part as i64).plus(&within_part);
        let partial = !self.points.is_multiple_of(part);
        let within: Vec<Guard> = if partial { vec![(point.clone(), 0..self.points as i64)] } else { Vec::new() };
        let domain = vec![self.rows, self.points.div_ceil(part), part];
        let Instr::Row { op, attrs, .. } = &self.nest.instrs[ranking.id] else { unreachable!("a ranking is of rows") };
        let mut body = BodyWriter::default();
        let value = self.value_of_part(&mut body, (ranking, tables), (&point, &domain), &within);
        let mut attrs = attrs.clone();
        attrs[op.attr("most").expect("rankings have the attribute `most`")] = (part as i64).into();
        let rank = body.push(Instr::Row { op: *op, attrs, args: vec![value], dtype: DType::I32 });
        let place = body.coordinate(point, DType::I32);
        let to = self.at(0, &of_part.times(part as i64).plus(&Index::atom(Atom::Value(rank))));
        let SortedParts { values, places } = sorted;
        let store = |slot, value| Store { guards: within.clone(), ..Store::new(slot, to.clone(), value) };
        self.buffers.stage(AnchorKernel::rows(1), domain, body.0, vec![store(values, value), store(places, place)])
    }

    /// Returns the launch that merges neighbouring parts of `run` elements from table `from`.
    fn merge(
        &self,
        ranking: &Ranking,
        (tables, sorted): (&Tables, &[SortedParts; 2]),
        run: usize,
        from: usize,
    ) -> Stage {
        let (domain, step) = (vec![self.rows, self.points], run as i64);
        let point = Index::coord(1);
        // Both parts begin at `both`. `is_second` is 1 if the element's own part is the second one.
        let both = point.div(2 * step, &domain).times(2 * step);
        let is_second = point.div(step, &domain).modulo(2, &domain);
        let other = both.plus(&Index::constant(step)).plus(&is_second.times(-step));
        let SortedParts { values, places } = sorted[from];
        let dtype = ranking.of.register();
        let mut body = BodyWriter::default();
        let own = body.load((values, dtype), self.at(0, &point), Vec::new());
        let place = body.load((places, DType::I32), self.at(0, &point), Vec::new());
        let order = Comparison::new(&mut body, own, dtype, ranking.order.descending);
        // The number of elements of the other part that are known to come before the thread's element.
        let mut before = body.constant(0, DType::I32);
        let halves = std::iter::successors(Some(step), |by| Some(by / 2)).take_while(|&by| by > 0);
        for by in halves {
            let next = Index::atom(Atom::Value(before)).plus(&Index::constant(by));
            let at = other.plus(&next).plus(&Index::constant(-1));
            let there = vec![(next, 0..step + 1), (at.clone(), 0..self.points as i64)];
            let element = body.load((values, dtype), self.at(0, &at), there.clone());
            let [earlier, later] = order.before(&mut body, element);
            let of_first = there.iter().cloned().chain([(is_second.clone(), 1..2)]).collect();
            let pieces = vec![(of_first, earlier), (there, later)];
            let is_before = body.push(Instr::Select { pieces, fill: 0.into(), dtype: DType::Bool });
            let more = body.constant(by, DType::I32);
            let more = body.op("add", &[before, more], DType::I32);
            before = body.op("where", &[is_before, more, before], DType::I32);
        }
        let to = both.plus(&point.modulo(step, &domain)).plus(&Index::atom(Atom::Value(before)));
        let stores = if 2 * run < self.points {
            let SortedParts { values, places } = sorted[1 - from];
            let at = self.at(0, &to);
            vec![Store::new(values, at.clone(), own), Store::new(places, at, place)]
        } else {
            self.ranks(&mut body, ranking, (tables.ranks.expect("a sort by merges has a table of ranks"), place), to)
        };
        self.buffers.stage(AnchorKernel::map(), domain, body.0, stores)
    }

    /// Returns the store of an element's rank at its position in the row.
    fn ranks(
        &self,
        body: &mut BodyWriter,
        ranking: &Ranking,
        (slot, place): (usize, ValueId),
        rank: Index,
    ) -> Vec<Store> {
        let dtype = self.nest.instrs[ranking.id].dtype();
        let mut rank = body.coordinate(rank, dtype);
        if ranking.order.most < self.points {
            let most = body.constant(ranking.order.most as i64, dtype);
            rank = body.op("min", &[rank, most], dtype);
        }
        let place = body.push(self.within_row(place, DType::I32));
        vec![Store::new(slot, self.at(0, &Index::atom(Atom::Value(place))), rank)]
    }
}

/// Compares an element with elements of the other part in a merge.
struct Comparison {
    own: ValueId,
    descending: bool,
    /// Whether the element is NaN, and whether it is not, for types that have NaN.
    nan: Option<[ValueId; 2]>,
}

impl Comparison {
    fn new(body: &mut BodyWriter, own: ValueId, dtype: DType, descending: bool) -> Comparison {
        let nan = dtype.is_float().then(|| {
            let is_nan = body.op("is-nan", &[own], DType::Bool);
            [is_nan, body.op("not", &[is_nan], DType::Bool)]
        });
        Comparison { own, descending, nan }
    }

    /// Returns whether an element of the other part comes before the own element. The first result applies if the other
    /// part is the first of the two, the second result if it is the second.
    fn before(&self, body: &mut BodyWriter, other: ValueId) -> [ValueId; 2] {
        let names = if self.descending { ["ge", "gt"] } else { ["le", "lt"] };
        let [or_equal, strictly] = names.map(|name| body.op(name, &[other, self.own], DType::Bool));
        let Some([is_nan, is_number]) = self.nan else { return [or_equal, strictly] };
        let other_is_nan = body.op("is-nan", &[other], DType::Bool);
        // NaN is larger than all numbers, and all NaN are equal.
        if self.descending {
            let first = body.op("and", &[other_is_nan, is_number], DType::Bool);
            return [
                body.op("or", &[or_equal, other_is_nan], DType::Bool),
                body.op("or", &[strictly, first], DType::Bool),
            ];
        }
        let is_number = body.op("not", &[other_is_nan], DType::Bool);
        let last = body.op("and", &[is_nan, is_number], DType::Bool);
        [body.op("or", &[or_equal, is_nan], DType::Bool), body.op("or", &[strictly, last], DType::Bool)]
    }
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{Body, Load};
    use eutectic_ir::{Attrs, Op, index::flatten};

    use super::*;

    /// Returns a ranking of rows, whose elements are loaded or computed.
    fn ranking(rows: usize, points: usize, is_computed: bool) -> Kernel {
        let at = flatten(&[Index::coord(0), Index::coord(1)], &[rows, points]);
        let op = |name| Op::named(name).expect("an op");
        let load = Instr::Load(Load { slot: 0, at: at.clone(), guards: Vec::new(), dtype: DType::F32 });
        let neg = Instr::Map { op: op("neg"), attrs: Attrs::default(), args: vec![0], dtype: DType::F32 };
        let attrs: Attrs = [(points as i64).into(), true.into()].into_iter().collect();
        let arg = usize::from(is_computed);
        let rank = Instr::Row { op: op("ranking"), attrs, args: vec![arg], dtype: DType::I32 };
        Kernel {
            anchor: AnchorKernel::rows(1),
            body: Body { domain: vec![rows, points], instrs: vec![load, neg, rank], ..Body::default() },
            stores: vec![Store::new(1, at, 2)],
            slots: vec![(DType::F32, rows * points), (DType::I32, rows * points)],
        }
    }

    #[test]
    fn rows_for_which_a_block_has_no_memory_are_merged() {
        let shape = DeviceShape { workspace: usize::MAX, ..DeviceShape::OF_TESTS };
        let stages = |kernel: &Kernel| split_rankings(kernel, &shape).expect("there is memory");
        assert_eq!(stages(&ranking(2, 4000, true)), None);
        // There are three parts of 4,096 elements. Two are merged, and their result is merged with the third.
        let long = stages(&ranking(2, 9000, false)).expect("launches");
        assert_eq!(long.len(), 1 + 2 + 1);
        assert_eq!(long[0].kernel.body.domain, [2, 3, 4096]);
        assert!(long[1..].iter().all(|stage| stage.kernel.is_map()));
        assert_eq!(long[3].kernel.stores[0].slot, 1);
        // Computed values are stored in the workspace by a further launch.
        assert_eq!(stages(&ranking(2, 9000, true)).expect("launches").len(), 5);
        // 147 parts would take eight merges; four digits take twelve launches. Two more launches write ranks and
        // stores.
        let digits = stages(&ranking(2, 600_000, false)).expect("launches");
        assert_eq!(digits.len(), 4 * 3 + 2);
        assert_eq!(digits.iter().filter(|stage| stage.pass.is_some()).count(), 8);
        assert_eq!(stages(&ranking(2, 600_000, true)).expect("launches").len(), 1 + 4 * 3 + 2);
        // Merges take 20 bytes for each of the 1,200,000 elements: two tables of values and positions, and ranks.
        // Digits also need counts.
        let less = DeviceShape { workspace: 20 * 1_200_000 + 4096, ..shape };
        let merged = split_rankings(&ranking(2, 600_000, false), &less).expect("there is memory").expect("launches");
        assert!(merged.iter().all(|stage| stage.pass.is_none()));
        assert_eq!(merged.len(), 1 + 8 + 1);
        let small = DeviceShape { workspace: 1 << 10, ..shape };
        let why = split_rankings(&ranking(2, 9000, true), &small).unwrap_err();
        assert!(why[0].ends_with("a kernel has at most 1024 bytes of scratch memory"), "{why:?}");
    }
}
