//! Finds the memory hazards between steps, and where barriers are needed. A step waits for an earlier one if both
//! access the same memory and at least one of them writes it.

use std::ops::Range;

use crate::{
    program::{BufferId, Place, Program, Step},
    run::Port,
};

/// A memory region. Different regions do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySpace {
    /// The arena of a run, which buffers share over time.
    Arena,
    /// The arena for results of the load program.
    Loaded,
    /// The memory of an input, output or state.
    Port(Port),
    /// The memory of the `n`th parameter.
    Param(usize),
    /// The memory of one buffer: of a constant, or of any buffer before memory is planned.
    Buffer(BufferId),
}

/// A range of bytes in a memory region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// The region.
    pub space: MemorySpace,
    /// The range of bytes in the region.
    pub bytes: Range<usize>,
}

impl MemoryRange {
    /// Returns whether the two ranges have a byte in common.
    pub fn overlaps(&self, other: &MemoryRange) -> bool {
        let common = self.bytes.start.max(other.bytes.start)..self.bytes.end.min(other.bytes.end);
        self.space == other.space && !common.is_empty()
    }

    /// Returns whether this range contains all bytes of `other`.
    pub fn covers(&self, other: &MemoryRange) -> bool {
        self.space == other.space && self.bytes.start <= other.bytes.start && other.bytes.end <= self.bytes.end
    }
}

/// The memory that a step reads and writes.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// The ranges that the step reads.
    pub reads: Vec<MemoryRange>,
    /// The ranges in which the step writes all bytes or some.
    pub writes: Vec<MemoryRange>,
}

/// Returns, for each step of a sequence, the earlier steps that it must wait for, ascending. The earlier step writes a
/// range that the later one reads or writes, or reads a range that the later one writes. An earlier step is left out if
/// a listed step waits for it and overwrites the common range.
pub fn hazards(steps: impl Iterator<Item = Touched>) -> Vec<Vec<usize>> {
    struct Touch {
        step: usize,
        range: MemoryRange,
        written: bool,
    }
    let mut pasts: Vec<Touch> = Vec::new();
    let wait = |(step, touched): (usize, Touched)| {
        let conflict = |past: &&Touch| {
            past.written && touched.reads.iter().any(|read| read.overlaps(&past.range))
                || touched.writes.iter().any(|write| write.overlaps(&past.range))
        };
        let mut waits: Vec<usize> = pasts.iter().filter(conflict).map(|past| past.step).collect();
        waits.sort_unstable();
        waits.dedup();
        // This step waits for all earlier accesses to the range that it overwrites. So later steps need to wait only
        // for this step.
        pasts.retain(|past| !touched.writes.iter().any(|write| write.covers(&past.range)));
        let past = |written: bool| move |range: MemoryRange| Touch { step, range, written };
        pasts.extend(touched.reads.into_iter().map(past(false)));
        pasts.extend(touched.writes.into_iter().map(past(true)));
        waits
    };
    steps.enumerate().map(wait).collect()
}

/// Returns, for each step of a sequence, whether it needs a barrier before it, with as few barriers as possible. All
/// steps after a barrier wait for all steps before the barrier. `waits` is the result of [`hazards`].
pub fn barriers(waits: &[Vec<usize>]) -> Vec<bool> {
    let mut last = 0;
    let stands = |(step, waits): (usize, &Vec<usize>)| {
        let stands = waits.iter().any(|&earlier| earlier >= last);
        last = if stands { step } else { last };
        stands
    };
    waits.iter().enumerate().map(stands).collect()
}

impl Program {
    /// Returns the memory of a buffer.
    pub fn memory(&self, buffer: BufferId) -> MemoryRange {
        let size = self.buffers[buffer].count * self.buffers[buffer].dtype.size();
        let (space, at) = match &self.buffers[buffer].place {
            Place::Arena(at) => (MemorySpace::Arena, *at),
            Place::Loaded(at) => (MemorySpace::Loaded, *at),
            Place::Input(n) => (MemorySpace::Port(Port::Input(*n)), 0),
            Place::Output(n) => (MemorySpace::Port(Port::Output(*n)), 0),
            Place::State(n) => (MemorySpace::Port(Port::State(*n)), 0),
            Place::Param(n) => (MemorySpace::Param(*n), 0),
            Place::Const(_) => (MemorySpace::Buffer(buffer), 0),
        };
        MemoryRange { space, bytes: at..at.saturating_add(size) }
    }

    /// Returns the memory that a step reads and writes.
    pub fn touched(&self, step: &Step) -> Touched {
        let mut touched = Touched::default();
        for (access, &buffer) in self.kernels[step.kernel].accesses().into_iter().zip(&step.buffers) {
            if access.read {
                touched.reads.push(self.memory(buffer));
            }
            if access.written {
                touched.writes.push(self.memory(buffer));
            }
        }
        touched
    }

    /// Returns, for each step of the load program or of the run program, the earlier steps that it must wait for (see
    /// [`hazards`]).
    pub fn hazards(&self, steps: &[Step]) -> Vec<Vec<usize>> {
        hazards(steps.iter().map(|step| self.touched(step)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(bytes: Range<usize>) -> MemoryRange {
        MemoryRange { space: MemorySpace::Arena, bytes }
    }

    /// Ranges of bytes of the arena: start, and end (exclusive).
    type Bytes = &'static [(usize, usize)];

    /// Returns steps, given the ranges that each of them reads and writes.
    fn steps(touched: &[(Bytes, Bytes)]) -> Vec<Touched> {
        let ranges = |of: Bytes| of.iter().map(|&(from, to)| arena(from..to)).collect();
        touched.iter().map(|(reads, writes)| Touched { reads: ranges(reads), writes: ranges(writes) }).collect()
    }

    #[test]
    fn readers_wait_for_writers_and_writers_for_both() {
        let waits = hazards(
            steps(&[
                (&[], &[(0, 4)]),
                (&[(0, 4)], &[(4, 8)]),
                // A step reads a range that two steps wrote in parts.
                (&[(2, 6)], &[(8, 9)]),
                // Readers of one range do not wait for each other, and neither do steps on other ranges.
                (&[(0, 2)], &[(12, 16)]),
                // A step overwrites a part of ranges that were written and read.
                (&[], &[(3, 5)]),
                (&[(0, 1)], &[(16, 20)]),
            ])
            .into_iter(),
        );
        assert_eq!(waits, [vec![], vec![0], vec![0, 1], vec![0], vec![0, 1, 2], vec![0]]);
        assert_eq!(barriers(&waits), [false, true, true, false, true, false]);
    }

    #[test]
    fn who_wrote_over_everything_is_waited_for_alone() {
        let touched: [(Bytes, Bytes); 4] =
            [(&[], &[(0, 4)]), (&[(0, 4)], &[(8, 12)]), (&[], &[(0, 4)]), (&[(0, 4)], &[])];
        assert_eq!(hazards(steps(&touched).into_iter()), [vec![], vec![0], vec![0, 1], vec![2]]);
        // Ranges of different regions, and empty ranges, do not overlap.
        let other = MemoryRange { space: MemorySpace::Loaded, bytes: 0..4 };
        assert!(!other.overlaps(&arena(0..4)) && !arena(2..2).overlaps(&arena(0..4)));
    }

    /// Checks that the waits order all conflicting steps, directly or through other steps, and that barriers separate
    /// conflicting steps.
    #[test]
    fn all_conflicts_are_ordered_in_random_sequences() {
        let mut state = 1_u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for _ in 0..200 {
            let mut ranges = |most: u64| -> Vec<MemoryRange> {
                let count = below(most);
                let range = |from: usize, len: usize| arena(from..from + len);
                (0..count).map(|_| range(below(24) as usize, below(9) as usize)).collect()
            };
            let touched: Vec<_> = (0..24).map(|_| Touched { reads: ranges(4), writes: ranges(3) }).collect();
            let waits = hazards(touched.iter().cloned());
            let barriers = barriers(&waits);
            let mut before: Vec<Vec<bool>> = Vec::new();
            for (step, waits) in waits.iter().enumerate() {
                let mut all = vec![false; touched.len()];
                for &earlier in waits {
                    all[earlier] = true;
                    all.iter_mut().zip(&before[earlier]).for_each(|(all, before)| *all |= before);
                }
                for earlier in 0..step {
                    let (a, b) = (&touched[earlier], &touched[step]);
                    let meet = |x: &[MemoryRange], y: &[MemoryRange]| x.iter().any(|x| y.iter().any(|y| x.overlaps(y)));
                    let conflict = meet(&a.writes, &b.reads) || meet(&a.writes, &b.writes) || meet(&a.reads, &b.writes);
                    assert!(!conflict || all[earlier], "{step} does not wait for {earlier}");
                    assert!(!conflict || barriers[earlier + 1..=step].contains(&true), "no barrier {earlier}..{step}");
                }
                before.push(all);
            }
        }
    }
}
