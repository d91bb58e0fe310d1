//! Writing to places that are known while the model is read: the assignment of a slice is one, however an exporter spells it.

use eutectic_ir::{DType, NodeId, Tensor};

use super::super::call::{NodeCall, NodeResult};

/// What an update does to what is there: it replaces it, or is combined with it by an op of ours.
pub(super) type Combine = Option<&'static str>;

/// Which update each place gets.
pub(super) struct Placed {
    /// For each place the number of the last update that goes there, or -1.
    numbers: Vec<i64>,
    /// How many updates there are.
    updates: usize,
    /// Whether each of them has a place of its own.
    apart: bool,
}

/// The places `first + step · i` of an axis, for `i` below `count`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    first: usize,
    step: usize,
    count: usize,
}

impl Placed {
    /// Of `count` places, each of which is less than that.
    pub fn new(places: &[usize], count: usize) -> Placed {
        let (mut numbers, mut apart) = (vec![-1; count], true);
        for (number, &place) in places.iter().enumerate() {
            apart &= numbers[place] < 0;
            numbers[place] = number as i64;
        }
        Placed { numbers, updates: places.len(), apart }
    }

    /// Whether a reduction over the updates of a place is the one update that it has.
    pub fn is_apart(&self) -> bool {
        self.apart
    }

    /// `data` [dims.. row..] after updates [number of them, row..]; `dims` are the places.
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

    /// The box that the updates fill in order, if there is one.
    fn runs(&self, dims: &[usize]) -> Option<Vec<Run>> {
        if !self.apart {
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
        // The numbers of the places that have one count up, in the order of places: so they do within the box.
        let numbers = self.numbers.iter().filter(|number| **number >= 0);
        numbers.zip(0..).all(|(number, wanted)| *number == wanted).then_some(runs)
    }

    /// Each place looks its update up.
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

/// Coordinates that lie evenly apart.
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

/// Axes of which runs are without gaps: every `step`-th place of an axis is one place of each of its groups of `step`.
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

/// `data` with its part within the runs of the axes from `axis` on replaced; it has been cut to the runs of those before.
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
        // Rows 1 and 2 of 3, columns 0, 2 and 4 of 6.
        assert_eq!(runs(&[6, 8, 10, 12, 14, 16], &[3, 6]), Some(vec![(1, 1, 2), (0, 2, 3)]));
        assert_eq!(runs(&[5], &[3, 6]), Some(vec![(0, 1, 1), (5, 1, 1)]));
        // In another order, twice, with a gap, no box.
        for places in [&[8, 6][..], &[6, 6], &[0, 1, 3], &[0, 7]] {
            assert_eq!(runs(places, &[3, 6]), None, "{places:?}");
        }
    }
}
