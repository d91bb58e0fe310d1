//! Where the buffers of a run live: one arena, shared over time, with results taking the place of operands where they can.

use eutectic_backend::{
    Buffer, BufferId, InPlace, Instr, Kernel, Place, Program, Slot, Step, ValueId,
    hazards::{MemoryRange, MemorySpace, Touched, hazards},
};

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

/// The memory of a run.
#[derive(Clone, Debug)]
pub struct Arena {
    /// Its bytes: the most that is alive at once.
    pub bytes: usize,
    /// For each step, which slots it writes over others, because their contents are not read again.
    pub in_place: Vec<Vec<InPlace>>,
}

/// Gives every arena buffer of `steps` an offset that is a multiple of `alignment`.
fn plan(kernels: &[Kernel], buffers: &mut [Buffer], steps: &[Step], alignment: usize) -> Arena {
    let (lives, in_place) = lives(kernels, buffers, steps, alignment);
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
    Arena { bytes: peak, in_place }
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

/// Who takes turns in which stretch, and for each step, where that is over what it reads.
fn lives(kernels: &[Kernel], buffers: &[Buffer], steps: &[Step], alignment: usize) -> (Vec<Life>, Vec<Vec<InPlace>>) {
    let mut over = vec![Vec::new(); steps.len()];
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
                (dies && can_share(kernel, read, slot)).then_some((read, life))
            });
            match heir {
                Some((read, life)) => {
                    over[at].push(InPlace { read, written: slot });
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
    (lives, over)
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

/// Reorders steps so that less is alive at once, where that helps; what reads a buffer stays between what writes it. Gives the
/// numbers of the steps in their new order, and the arena for that.
///
/// Among the steps that can run, the one that frees most (or allocates least) goes first; the given order breaks ties and
/// stays if this makes nothing better.
pub(crate) fn schedule(
    kernels: &[Kernel],
    buffers: &mut [Buffer],
    steps: &[Step],
    alignment: usize,
) -> (Vec<usize>, Arena) {
    let before = plan(kernels, buffers, steps, alignment);
    let order = list_schedule(kernels, buffers, steps);
    let sorted: Vec<_> = order.iter().map(|&at| steps[at].clone()).collect();
    let after = plan(kernels, buffers, &sorted, alignment);
    if after.bytes < before.bytes {
        return (order, after);
    }
    let arena = plan(kernels, buffers, steps, alignment);
    ((0..steps.len()).collect(), arena)
}

/// For each step, those that must come after it, where no two buffers share memory yet.
fn followers(kernels: &[Kernel], steps: &[Step]) -> Vec<Vec<usize>> {
    let whole = |&buffer: &BufferId| MemoryRange { space: MemorySpace::Buffer(buffer), bytes: 0..1 };
    let touched = |step: &Step| {
        let (reads, writes) = step.buffers.split_at(step.buffers.len() - kernels[step.kernel].stores.len());
        Touched { reads: reads.iter().map(whole).collect(), writes: writes.iter().map(whole).collect() }
    };
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    for (at, waits) in hazards(steps.iter().map(touched)).into_iter().enumerate() {
        waits.into_iter().for_each(|earlier| after[earlier].push(at));
    }
    after
}

fn list_schedule(kernels: &[Kernel], buffers: &[Buffer], steps: &[Step]) -> Vec<usize> {
    let split = |s: &Step| s.buffers.len() - kernels[s.kernel].stores.len();
    let mut readers = vec![0_usize; buffers.len()];
    steps.iter().flat_map(|s| &s.buffers[..split(s)]).for_each(|&b| readers[b] += 1);
    let size = |b: BufferId| match buffers[b].place {
        Place::Arena(_) => (buffers[b].count * buffers[b].dtype.size()) as i64,
        _ => 0,
    };
    let after = followers(kernels, steps);
    let mut waiting = vec![0_usize; steps.len()];
    after.iter().flatten().for_each(|&at| waiting[at] += 1);
    let mut alive = vec![false; buffers.len()];
    let mut ready: Vec<usize> = (0..steps.len()).filter(|&at| waiting[at] == 0).collect();
    let mut order = Vec::with_capacity(steps.len());
    while !ready.is_empty() {
        let growth = |at: usize| {
            let (operands, stores) = steps[at].buffers.split_at(split(&steps[at]));
            let freed: i64 = operands.iter().filter(|&&b| readers[b] == 1).map(|&b| size(b)).sum();
            stores.iter().filter(|&&b| !alive[b]).map(|&b| size(b)).sum::<i64>() - freed
        };
        let least = (0..ready.len()).min_by_key(|&i| (growth(ready[i]), ready[i])).unwrap_or(0);
        let next = ready.swap_remove(least);
        let (operands, stores) = steps[next].buffers.split_at(split(&steps[next]));
        operands.iter().for_each(|&b| readers[b] -= 1);
        stores.iter().for_each(|&b| alive[b] = true);
        for &at in &after[next] {
            waiting[at] -= 1;
            if waiting[at] == 0 {
                ready.push(at);
            }
        }
        order.push(next);
    }
    order
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
                anchor: AnchorKernel::Map,
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
            anchor: AnchorKernel::Map,
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
