//! Places the buffers of a run in one arena: buffers with disjoint live ranges share memory, and results replace
//! operands in place.

use std::ops::Range;

use eutectic_backend::{Buffer, BufferId, Instr, Kernel, Place, Program, Slot, Step, ValueId};

use crate::order::{Ready, followers, order};

/// Returns the bytes of all buffers of a session: the parameters that runs read, constants, inputs, outputs, states,
/// results of the load program, and the arena.
pub fn needed(program: &Program, alignment: usize) -> usize {
    let mut read = vec![false; program.buffers.len()];
    program.run.iter().flat_map(|step| &step.buffers).for_each(|&buffer| read[buffer] = true);
    let own = program.buffers.iter().zip(read).filter(|(buffer, read)| match buffer.place {
        Place::Param(_) | Place::Const(_) => *read,
        Place::Input(_) | Place::Output(_) | Place::State(_) => true,
        Place::Loaded(_) | Place::Arena(_) => false,
    });
    own.map(|(buffer, _)| bytes(buffer, alignment)).sum::<usize>() + program.load_bytes + program.arena_bytes
}

/// Returns the bytes that a buffer takes, rounded up to the alignment.
pub(crate) fn bytes(buffer: &Buffer, alignment: usize) -> usize {
    (buffer.count * buffer.dtype.size()).next_multiple_of(alignment)
}

/// Gives every arena buffer of `steps` an offset that is a multiple of `alignment`. Returns the bytes of the arena.
fn plan(kernels: &[Kernel], buffers: &mut [Buffer], steps: &[Step], alignment: usize) -> usize {
    let live_ranges = live_ranges(kernels, buffers, steps, alignment);
    let mut placed: Vec<(usize, &LiveRange)> = Vec::new();
    let mut order: Vec<&LiveRange> = live_ranges.iter().collect();
    order.sort_by_key(|range| (std::cmp::Reverse(range.bytes), range.first, range.buffers[0]));
    let mut peak = 0;
    for range in order {
        let taken = placed
            .iter()
            .filter(|(_, other)| other.first <= range.last && range.first <= other.last)
            .map(|(at, other)| *at..at + other.bytes)
            .collect();
        let at = gap(taken, range.bytes);
        peak = peak.max(at + range.bytes);
        placed.push((at, range));
    }
    for (at, range) in placed {
        for &buffer in &range.buffers {
            buffers[buffer].place = Place::Arena(at);
        }
    }
    peak
}

/// Returns the first offset at which `bytes` bytes are free, given the occupied ranges.
pub(crate) fn gap(mut taken: Vec<Range<usize>>, bytes: usize) -> usize {
    taken.sort_unstable_by_key(|range| range.start);
    let mut at = 0;
    for range in taken {
        if at + bytes <= range.start {
            break;
        }
        at = at.max(range.end);
    }
    at
}

/// A live range: an allocation that several buffers use one after the other. It lasts from the step that writes the
/// first buffer to the last step that reads the last buffer.
struct LiveRange {
    buffers: Vec<BufferId>,
    bytes: usize,
    first: usize,
    last: usize,
}

/// Returns the live ranges. A step stores its result in place of an operand that no later step reads.
fn live_ranges(kernels: &[Kernel], buffers: &[Buffer], steps: &[Step], alignment: usize) -> Vec<LiveRange> {
    let mut first = vec![usize::MAX; buffers.len()];
    let mut last = vec![0; buffers.len()];
    for (at, step) in steps.iter().enumerate() {
        for &buffer in &step.buffers {
            first[buffer] = first[buffer].min(at);
            last[buffer] = last[buffer].max(at);
        }
    }
    let mut range_of: Vec<Option<usize>> = vec![None; buffers.len()];
    let mut live_ranges: Vec<LiveRange> = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let kernel = &kernels[step.kernel];
        let reads = step.buffers.len() - kernel.stores.len();
        for (slot, &buffer) in step.buffers.iter().enumerate().skip(reads) {
            if !matches!(buffers[buffer].place, Place::Arena(_)) || range_of[buffer].is_some() {
                continue;
            }
            let bytes = bytes(&buffers[buffer], alignment);
            let reused = (0..reads).find_map(|read| {
                let range = range_of[step.buffers[read]]?;
                let dies = live_ranges[range].last == at && live_ranges[range].bytes == bytes;
                (dies && can_share(kernel, read, slot)).then_some(range)
            });
            match reused {
                Some(range) => {
                    live_ranges[range].buffers.push(buffer);
                    live_ranges[range].last = last[buffer];
                    range_of[buffer] = Some(range);
                }
                None => {
                    range_of[buffer] = Some(live_ranges.len());
                    live_ranges.push(LiveRange {
                        buffers: vec![buffer],
                        bytes,
                        first: first[buffer],
                        last: last[buffer],
                    });
                }
            }
        }
    }
    live_ranges
}

/// Returns whether a kernel may write a slot in the memory of a slot that it reads. Each point must read only the
/// element that it writes, and no other point may write this element. So a row with one result is excluded: its points
/// read at different times. A kernel's stores run one after the other. So no other store may store an unchanged element
/// of the read slot, which could already be overwritten.
pub(crate) fn can_share(kernel: &Kernel, read: usize, write: usize) -> bool {
    let Some(store) = kernel.stores.iter().find(|s| s.slot == write) else { return false };
    let reads_elsewhere = |body: &eutectic_backend::Body, allowed: bool| {
        body.instrs.iter().any(|i| match i {
            Instr::Load(l) if l.slot == read => !allowed || l.at != store.at || !l.guards.is_empty(),
            _ => false,
        })
    };
    let same =
        kernel.slots[read].0.size() == kernel.slots[write].0.size() && kernel.slots[read].1 == kernel.slots[write].1;
    let domain = &kernel.body.domain;
    let stored_once = (0..domain.len()).all(|axis| domain[axis] <= 1 || store.at.mentions(axis));
    let others = kernel.stores.iter().flat_map(|s| s.values().into_iter().skip(usize::from(s.slot == write)));
    same && stored_once
        && !others.into_iter().any(|value| is_read_from(&kernel.body.instrs, value, read))
        && !reads_elsewhere(&kernel.body, true)
        && !kernel.operands().iter().any(|b| reads_elsewhere(b, false))
}

/// Returns whether a value is an unchanged element of a slot.
fn is_read_from(instrs: &[Instr], value: ValueId, slot: Slot) -> bool {
    match &instrs[value] {
        Instr::Load(load) => load.slot == slot,
        Instr::Select { pieces, .. } => pieces.iter().any(|piece| is_read_from(instrs, piece.1, slot)),
        _ => false,
    }
}

/// Reorders steps if that lowers the peak of the arena, and places each arena buffer. Returns the numbers of the steps
/// in their new order, and the bytes of the arena.
pub(crate) fn schedule(
    kernels: &[Kernel],
    buffers: &mut [Buffer],
    steps: &[Step],
    alignment: usize,
) -> (Vec<usize>, usize) {
    let before = plan(kernels, buffers, steps, alignment);
    if let Some(order) = order(&followers(kernels, steps), LeastGrowth::new(kernels, buffers, steps)) {
        let sorted: Vec<_> = order.iter().map(|&at| steps[at].clone()).collect();
        let after = plan(kernels, buffers, &sorted, alignment);
        if after < before {
            return (order, after);
        }
    }
    let bytes = plan(kernels, buffers, steps, alignment);
    ((0..steps.len()).collect(), bytes)
}

/// Selects the ready step that frees most bytes of the arena or allocates least. The given order breaks ties.
struct LeastGrowth<'a> {
    kernels: &'a [Kernel],
    steps: &'a [Step],
    /// For each buffer, its bytes in the arena.
    bytes: Vec<i64>,
    /// For each buffer, the number of remaining reads.
    readers: Vec<usize>,
    /// Whether a buffer was written.
    alive: Vec<bool>,
    ready: Vec<usize>,
}

impl<'a> LeastGrowth<'a> {
    fn new(kernels: &'a [Kernel], buffers: &[Buffer], steps: &'a [Step]) -> LeastGrowth<'a> {
        let bytes = |buffer: &Buffer| match buffer.place {
            Place::Arena(_) => (buffer.count * buffer.dtype.size()) as i64,
            _ => 0,
        };
        let bytes = buffers.iter().map(bytes).collect();
        let (readers, alive) = (vec![0; buffers.len()], vec![false; buffers.len()]);
        let mut growth = LeastGrowth { kernels, steps, bytes, readers, alive, ready: Vec::new() };
        for step in steps {
            let (operands, _) = growth.split(step);
            operands.iter().for_each(|&buffer| growth.readers[buffer] += 1);
        }
        growth
    }

    /// Returns the buffers that a step reads and those that it writes.
    fn split(&self, step: &'a Step) -> (&'a [BufferId], &'a [BufferId]) {
        step.buffers.split_at(step.buffers.len() - self.kernels[step.kernel].stores.len())
    }

    /// Returns the growth of the live bytes by a step.
    fn growth(&self, step: usize) -> i64 {
        let (operands, stores) = self.split(&self.steps[step]);
        let freed: i64 = operands.iter().filter(|&&b| self.readers[b] == 1).map(|&b| self.bytes[b]).sum();
        stores.iter().filter(|&&b| !self.alive[b]).map(|&b| self.bytes[b]).sum::<i64>() - freed
    }
}

impl Ready for LeastGrowth<'_> {
    fn add(&mut self, step: usize) {
        self.ready.push(step);
    }

    fn take(&mut self) -> Option<usize> {
        let least = (0..self.ready.len()).min_by_key(|&at| (self.growth(self.ready[at]), self.ready[at]))?;
        let next = self.ready.swap_remove(least);
        let (operands, stores) = self.split(&self.steps[next]);
        operands.iter().for_each(|&b| self.readers[b] -= 1);
        stores.iter().for_each(|&b| self.alive[b] = true);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{AnchorKernel, Body, Load, Store};
    use eutectic_ir::{
        DType,
        index::{Atom, Index},
    };

    use super::*;

    #[test]
    fn what_several_points_store_is_written_over_nothing() {
        let kernel = |domain: &[usize]| {
            let at = Index::coord(0);
            let load = Load { slot: 0, at: at.clone(), guards: Vec::new(), dtype: DType::F32 };
            Kernel {
                anchor: AnchorKernel::map(),
                body: Body { domain: domain.to_vec(), instrs: vec![Instr::Load(load)], ..Body::default() },
                stores: vec![Store::new(1, at, 0)],
                slots: vec![(DType::F32, 8); 2],
            }
        };
        assert!(can_share(&kernel(&[8]), 0, 1) && can_share(&kernel(&[8, 1]), 0, 1));
        assert!(!can_share(&kernel(&[8, 9]), 0, 1));
    }

    #[test]
    fn nothing_is_written_over_what_another_store_takes_as_it_is() {
        let at = Index::coord(0);
        let load = |slot| Instr::Load(Load { slot, at: at.clone(), guards: Vec::new(), dtype: DType::I32 });
        let number = Instr::Coordinate { index: at.clone(), dtype: DType::I32 };
        let kernel = |last: Store| Kernel {
            anchor: AnchorKernel::map(),
            body: Body { domain: vec![8], instrs: vec![load(0), number.clone()], ..Body::default() },
            stores: vec![Store::new(1, at.clone(), 1), last],
            slots: vec![(DType::I32, 8); 3],
        };
        let copied = kernel(Store::new(2, at.clone(), 0));
        assert!(!can_share(&copied, 0, 1) && can_share(&copied, 0, 2));
        assert!(!can_share(&kernel(Store::new(2, Index::atom(Atom::Value(0)), 1)), 0, 1));
        assert!(can_share(&kernel(Store::new(2, at.clone(), 1)), 0, 1));
    }
}
