//! Writes to places that are known during the import. Exporters express slice assignments in many ways; all of them
//! become slices and a concatenation here.

use eutectic_ir::{DType, NodeId, Tensor};

use super::super::call::{NodeCall, NodeResult};

/// The op that combines an update with the present element. With `None`, the update replaces the element.
pub(super) type Combine = Option<&'static str>;

/// The assignment of updates to places.
pub(super) struct Placed {
    /// For each place, the index of its last update, or -1.
    numbers: Vec<i64>,
    /// The number of updates.
    updates: usize,
    /// Whether each place has at most one update.
    distinct: bool,
}

/// The places `first + step · i` of an axis, for `i` below `count`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    first: usize,
    step: usize,
    count: usize,
}

impl Placed {
    /// Assigns updates to `count` places. Each of `places` is below `count`.
    pub fn new(places: &[usize], count: usize) -> Placed {
        let (mut numbers, mut distinct) = (vec![-1; count], true);
        for (number, &place) in places.iter().enumerate() {
            distinct &= numbers[place] < 0;
            numbers[place] = number as i64;
        }
        Placed { numbers, updates: places.len(), distinct }
    }

    /// Returns whether each place has at most one update, so that no updates need to be combined.
    pub fn are_distinct(&self) -> bool {
        self.distinct
    }

    /// Returns `data` [dims.. row..] after writing `updates` [count, row..] to their places.
    pub fn written(
        &self,
        c: &mut NodeCall<'_, '_>,
        data: NodeId,
        updates: NodeId,
        dims: &[usize],
        combine: Combine,
    ) -> NodeResult {
        let whole = c.dims(data);
        let row = whole[dims.len()..].to_vec();
        if let Some((dims, runs)) = self.runs(dims).and_then(|runs| strided(dims, &runs)) {
            let counts: Vec<usize> = runs.iter().map(|run| run.count).collect();
            let data = c.reshape(data, &[dims, row.clone()].concat())?;
            let updates = c.reshape(updates, &[counts, row].concat())?;
            let result = assigned(c, data, updates, &runs, 0, combine)?;
            return c.reshape(result, &whole);
        }
        self.looked_up(c, data, updates, &row, combine)
    }

    /// Returns the range of places along each axis, if the updates fill a box in row-major order. Returns `None`
    /// otherwise.
    fn runs(&self, dims: &[usize]) -> Option<Vec<Run>> {
        if !self.distinct {
            return None;
        }
        let mut met: Vec<Vec<bool>> = dims.iter().map(|&n| vec![false; n]).collect();
        for (place, _) in self.numbers.iter().enumerate().filter(|(_, number)| **number >= 0) {
            let mut rest = place;
            for (met, &n) in met.iter_mut().zip(dims).rev() {
                met[rest % n] = true;
                rest /= n;
            }
        }
        let runs: Vec<Run> = met.iter().map(|met| run(met)).collect::<Option<_>>()?;
        if runs.iter().map(|run| run.count).product::<usize>() != self.updates {
            return None;
        }
        // Along row-major places, the numbers of updates must be 0, 1, 2 and so on.
        let numbers = self.numbers.iter().filter(|number| **number >= 0);
        numbers.zip(0..).all(|(number, wanted)| *number == wanted).then_some(runs)
    }

    /// Computes the result with a gather: reads the update of each place, and selects it where there is one.
    fn looked_up(
        &self,
        c: &mut NodeCall<'_, '_>,
        data: NodeId,
        updates: NodeId,
        row: &[usize],
        combine: Combine,
    ) -> NodeResult {
        let (whole, count, length) = (c.dims(data), self.numbers.len(), row.iter().product());
        let (data, updates) = (c.reshape(data, &[count, length])?, c.reshape(updates, &[self.updates, length])?);
        let number = self.numbers.iter().map(|&number| number.max(0));
        let number = c.constant(Tensor::from_i64(DType::I64, &[count], number))?;
        let hit = self.numbers.iter().map(|&number| i64::from(number >= 0));
        let hit = c.constant(Tensor::from_i64(DType::Bool, &[count, 1], hit))?;
        let mut picked = c.op("gather", &[updates, number], &[("axis", 0.into())])?;
        if let Some(op) = combine {
            picked = c.apply(op, [data, picked])?;
        }
        let result = c.apply("where", [hit, picked, data])?;
        c.reshape(result, &whole)
    }
}

/// Returns the range of the selected coordinates if they are equidistant, and `None` otherwise.
fn run(met: &[bool]) -> Option<Run> {
    let mut at = met.iter().enumerate().filter(|(_, met)| **met).map(|(at, _)| at);
    let first = at.next()?;
    let Some(second) = at.next() else { return Some(Run { first, step: 1, count: 1 }) };
    let step = second - first;
    let mut count = 2;
    for next in at {
        if next != first + step * count {
            return None;
        }
        count += 1;
    }
    Some(Run { first, step, count })
}

/// Splits axes so that all ranges are contiguous. An axis whose range takes every `step`-th place becomes two axes. The
/// second one has extent `step`, and the range takes one place of it. Returns `None` if `step` does not divide the
/// extent of the axis.
fn strided(dims: &[usize], runs: &[Run]) -> Option<(Vec<usize>, Vec<Run>)> {
    let (mut split, mut whole) = (Vec::new(), Vec::new());
    for (&extent, &run) in dims.iter().zip(runs) {
        if run.step == 1 {
            split.push(extent);
            whole.push(run);
        } else if extent == run.step * run.count && run.first < run.step {
            split.extend([run.count, run.step]);
            whole.extend([Run { first: 0, step: 1, count: run.count }, Run { first: run.first, step: 1, count: 1 }]);
        } else {
            return None;
        }
    }
    Some((split, whole))
}

/// Replaces the box of ranges in `data`, from axis `axis` on. The axes before `axis` are already cropped to their
/// ranges.
fn assigned(
    c: &mut NodeCall<'_, '_>,
    data: NodeId,
    updates: NodeId,
    runs: &[Run],
    axis: usize,
    combine: Combine,
) -> NodeResult {
    let Some(run) = runs.get(axis) else {
        return match combine {
            Some(op) => c.apply(op, [data, updates]),
            None => Ok(updates),
        };
    };
    let (extent, after) = (c.dims(data)[axis], run.first + run.count);
    let inside = c.slice(data, axis, run.first, run.count)?;
    let mut parts = vec![assigned(c, inside, updates, runs, axis + 1, combine)?];
    if run.first > 0 {
        parts.insert(0, c.slice(data, axis, 0, run.first)?);
    }
    if after < extent {
        parts.push(c.slice(data, axis, after, extent - after)?);
    }
    c.concat(&parts, axis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(places: &[usize], dims: &[usize]) -> Option<Vec<(usize, usize, usize)>> {
        let runs = Placed::new(places, dims.iter().product()).runs(dims)?;
        Some(runs.iter().map(|run| (run.first, run.step, run.count)).collect())
    }

    #[test]
    fn slices_are_found_and_nothing_else() {
        // Rows 1 and 2 of 3; columns 0, 2 and 4 of 6.
        assert_eq!(runs(&[6, 8, 10, 12, 14, 16], &[3, 6]), Some(vec![(1, 1, 2), (0, 2, 3)]));
        assert_eq!(runs(&[5], &[3, 6]), Some(vec![(0, 1, 1), (5, 1, 1)]));
        // Updates that are unsorted, that repeat a place, that leave a gap, and that do not form a box.
        for places in [&[8, 6][..], &[6, 6], &[0, 1, 3], &[0, 7]] {
            assert_eq!(runs(places, &[3, 6]), None, "{places:?}");
        }
    }
}
