//! Writes to places that are known during the import. A slice assignment, however an exporter expresses it, becomes
//! slices and a concatenation.

use eutectic_ir::{DType, NodeId, Tensor};

use super::super::call::{NodeCall, NodeResult};

/// The op that combines an update with the present element. `None` replaces it.
pub(super) type Combine = Option<&'static str>;

/// For each place, the update that it receives.
pub(super) struct Placed {
    /// For each place, the index of its last update, or -1.
    numbers: Vec<i64>,
    /// The number of updates.
    updates: usize,
    /// Whether no two updates share a place.
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

    /// Returns whether no two updates share a place, so that no reduction over updates is needed.
    pub fn are_distinct(&self) -> bool {
        self.distinct
    }

    /// Returns `data` [dims.. row..] after updates [count, row..]. `dims` are the extents of the places.
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

    /// Returns the box that the updates fill in row-major order, if there is one.
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
        // The updates must be in row-major order of their places.
        let numbers = self.numbers.iter().filter(|number| **number >= 0);
        numbers.zip(0..).all(|(number, wanted)| *number == wanted).then_some(runs)
    }

    /// Gathers the update of each place, and selects it where there is one.
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

/// Returns the run of the selected coordinates, if they are equidistant.
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

/// Splits axes so that all runs are contiguous. A run over every `step`-th place becomes one place of an axis of extent
/// `step`. `None` if an axis does not divide evenly.
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

/// Replaces the box of runs in `data`, from axis `axis` on. The axes before are already cropped to their runs.
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
        // Unsorted, repeated, with a gap, and not a box.
        for places in [&[8, 6][..], &[6, 6], &[0, 1, 3], &[0, 7]] {
            assert_eq!(runs(places, &[3, 6]), None, "{places:?}");
        }
    }
}
