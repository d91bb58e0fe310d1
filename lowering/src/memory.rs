//! Where the buffers of a run live: one arena, shared over time, with results taking the place of operands where they can.

use eutectic_backend::{Buffer, BufferId, Instr, Kernel, Place, Program, Slot, Step, ValueId};

use crate::order::{Ready, followers, order};

/// Bytes of all buffers of a session: the parameters that runs read, constants, inputs, outputs, states, what the load program keeps,
/// and the arena.
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

/// Bytes that a buffer takes.
pub(crate) fn bytes(buffer: &Buffer, alignment: usize) -> usize {
    (buffer.count * buffer.dtype.size()).next_multiple_of(alignment)
}

/// Gives every arena buffer of `steps` an offset that is a multiple of `alignment`. Returns the bytes of the arena.
fn plan(kernels: &[Kernel], buffers: &mut [Buffer], steps: &[Step], alignment: usize) -> usize {
    let lives = lives(kernels, buffers, steps, alignment);
    let mut placed: Vec<(usize, &Life)> = Vec::new();
    let mut order: Vec<&Life> = lives.iter().collect();
    order.sort_by_key(|life| (std::cmp::Reverse(life.bytes), life.first, life.buffers[0]));
    let mut peak = 0;
    for life in order {
        let taken = placed
            .iter()
            .filter(|(_, other)| other.first <= life.last && life.first <= other.last)
            .map(|(at, other)| (*at, at + other.bytes))
            .collect();
        let at = gap(taken, life.bytes);
        peak = peak.max(at + life.bytes);
        placed.push((at, life));
    }
    for (at, life) in placed {
        for &buffer in &life.buffers {
            buffers[buffer].place = Place::Arena(at);
        }
    }
    peak
}

/// The first place of so many bytes between those that are taken.
pub(crate) fn gap(mut taken: Vec<(usize, usize)>, bytes: usize) -> usize {
    taken.sort_unstable();
    let mut at = 0;
    for (start, end) in taken {
        if at + bytes <= start {
            break;
        }
        at = at.max(end);
    }
    at
}

/// A stretch of the arena: the buffers that take turns in it, from the step that first writes to the one that last reads.
struct Life {
    buffers: Vec<BufferId>,
    bytes: usize,
    first: usize,
    last: usize,
}

/// Returns the stretches. A step writes over what it reads where these contents are not read again.
fn lives(kernels: &[Kernel], buffers: &[Buffer], steps: &[Step], alignment: usize) -> Vec<Life> {
    let mut first = vec![usize::MAX; buffers.len()];
    let mut last = vec![0; buffers.len()];
    for (at, step) in steps.iter().enumerate() {
        for &buffer in &step.buffers {
            first[buffer] = first[buffer].min(at);
            last[buffer] = last[buffer].max(at);
        }
    }
    let mut life_of: Vec<Option<usize>> = vec![None; buffers.len()];
    let mut lives: Vec<Life> = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let kernel = &kernels[step.kernel];
        let reads = step.buffers.len() - kernel.stores.len();
        for (slot, &buffer) in step.buffers.iter().enumerate().skip(reads) {
            if !matches!(buffers[buffer].place, Place::Arena(_)) || life_of[buffer].is_some() {
                continue;
            }
            let bytes = bytes(&buffers[buffer], alignment);
            let heir = (0..reads).find_map(|read| {
                let life = life_of[step.buffers[read]]?;
                let dies = lives[life].last == at && lives[life].bytes == bytes;
                (dies && can_share(kernel, read, slot)).then_some(life)
            });
            match heir {
                Some(life) => {
                    lives[life].buffers.push(buffer);
                    lives[life].last = last[buffer];
                    life_of[buffer] = Some(life);
                }
                None => {
                    life_of[buffer] = Some(lives.len());
                    lives.push(Life { buffers: vec![buffer], bytes, first: first[buffer], last: last[buffer] });
                }
            }
        }
    }
    lives
}

/// Whether a kernel may write a slot over one that it reads: each point reads only what the same point writes, and no other one does. Points
/// that store the same element, as those of a row what the row has one of, read at times of their own. Stores follow each other: none but
/// that one may take what is read as it lies there.
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

/// Whether a value is an element of a slot as it lies there.
fn is_read_from(instrs: &[Instr], value: ValueId, slot: Slot) -> bool {
    match &instrs[value] {
        Instr::Load(load) => load.slot == slot,
        Instr::Select { pieces, .. } => pieces.iter().any(|piece| is_read_from(instrs, piece.1, slot)),
        _ => false,
    }
}

/// Reorders steps so that less is alive at once, where that helps. Returns the numbers of the steps in their new order and the bytes of
/// the arena, in which each buffer gets its place.
///
/// The given order stays if the other one makes nothing better.
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

/// Takes the step that frees most of the arena, or allocates least; the given order breaks ties.
struct LeastGrowth<'a> {
    kernels: &'a [Kernel],
    steps: &'a [Step],
    /// For each buffer, its bytes in the arena.
    bytes: Vec<i64>,
    /// For each buffer, how many reads of it are to come.
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

    /// The buffers that a step reads, and those that it writes.
    fn split(&self, step: &'a Step) -> (&'a [BufferId], &'a [BufferId]) {
        step.buffers.split_at(step.buffers.len() - self.kernels[step.kernel].stores.len())
    }

    /// The bytes that a step adds to those that are alive.
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
