//! Which values take the place of a state, or of the tensor that they are a part written anew of, and in which order steps run then.
//!
//! Lowering makes a copy for each: of the value to its state at the end, and of the old tensor before a part of it is written. A value
//! that is computed when every reader of the old contents has run is stored in their place instead, and the copy goes.

use eutectic_backend::{Buffer, BufferId, Kernel, Place, Step};
use rustc_hash::FxHashMap;

use crate::{
    memory::can_share,
    order::{FirstStep, followers, order},
};

/// A value that could be stored over another buffer's contents, and the copy that this saves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heir {
    /// The buffer whose contents it follows.
    pub old: BufferId,
    /// Its own buffer.
    pub new: BufferId,
    /// The step that copies.
    pub copy: usize,
}

/// Steps on their way to an order.
struct Steps<'a> {
    kernels: &'a [Kernel],
    steps: &'a [Step],
    parts: &'a [Heir],
    /// For each buffer, the step that writes it last.
    writer: Vec<Option<usize>>,
    /// For each buffer, the steps that read it.
    readers: Vec<Vec<usize>>,
    /// For each step, those that come after it.
    after: Vec<Vec<usize>>,
}

/// Orders steps, with the copies of heirs that take a place left out; buffers of such heirs become the others'. `updates` are the
/// heirs of states, `parts` those of what a part of is written anew. Gives the numbers of the steps, and the steps.
pub(crate) fn settle(
    kernels: &[Kernel],
    buffers: &[Buffer],
    steps: &[Step],
    updates: &[Heir],
    parts: &[Heir],
) -> Vec<(usize, Step)> {
    let mut all = Steps::new(kernels, buffers.len(), steps, parts);
    let is_arena = |b: BufferId| matches!(buffers[b].place, Place::Arena(_));
    let mut place: FxHashMap<BufferId, BufferId> = FxHashMap::default();
    let mut gone = vec![false; steps.len()];
    for update in updates {
        // The parts that were written one after the other, the last one first, down to the state.
        let mut chain = Vec::new();
        let mut at = update.new;
        while let Some(part) = parts.iter().find(|part| part.new == at) {
            chain.push(*part);
            at = part.old;
        }
        if !chain.is_empty() && at != update.old {
            continue;
        }
        let links = if chain.is_empty() { std::slice::from_ref(update) } else { &chain };
        if links.iter().all(|l| is_arena(l.new) && !place.contains_key(&l.new)) && all.link(links, update.copy) {
            links.iter().for_each(|link| place.extend([(link.new, update.old)]));
            links.iter().for_each(|link| gone[link.copy] = true);
            gone[update.copy] = true;
        }
    }
    for part in parts.iter().filter(|part| is_arena(part.new) && is_arena(part.old)) {
        // In the arena the old tensor may have one heir.
        let taken =
            place.values().any(|old| *old == part.old) || [part.new, part.old].iter().any(|b| place.contains_key(b));
        if !taken && all.link(std::slice::from_ref(part), part.copy) {
            place.insert(part.new, part.old);
            gone[part.copy] = true;
        }
    }
    let home = |mut buffer: BufferId| {
        while let Some(&old) = place.get(&buffer) {
            buffer = old;
        }
        buffer
    };
    // Without its cycles, which `link` refuses, an order there is.
    let order = order(&all.after, FirstStep::default()).unwrap_or_else(|| (0..steps.len()).collect());
    let kept = order.into_iter().filter(|&step| !gone[step]);
    let moved = |number: usize| {
        let mut step = steps[number].clone();
        step.buffers.iter_mut().for_each(|buffer| *buffer = home(*buffer));
        step
    };
    kept.map(|step| (step, moved(step))).collect()
}

impl<'a> Steps<'a> {
    fn new(kernels: &'a [Kernel], buffers: usize, steps: &'a [Step], parts: &'a [Heir]) -> Steps<'a> {
        let (mut writer, mut readers) = (vec![None; buffers], vec![Vec::new(); buffers]);
        for (at, step) in steps.iter().enumerate() {
            let (reads, writes) = step.buffers.split_at(step.buffers.len() - kernels[step.kernel].stores.len());
            writes.iter().for_each(|&b| writer[b] = Some(at));
            reads.iter().for_each(|&b| readers[b].push(at));
        }
        Steps { kernels, steps, parts, writer, readers, after: followers(kernels, steps) }
    }

    /// Has the writer of each heir come after whoever else reads the old contents, if that is possible. `copy` is the step that is
    /// saved with them.
    fn link(&mut self, links: &[Heir], copy: usize) -> bool {
        let before = self.after.clone();
        if links.iter().all(|link| self.follow(link, copy)) && order(&self.after, FirstStep::default()).is_some() {
            return true;
        }
        self.after = before;
        false
    }

    fn follow(&mut self, link: &Heir, copy: usize) -> bool {
        let Some(write) = self.writer[link.new] else { return false };
        let step = &self.steps[write];
        let kernel = &self.kernels[step.kernel];
        let slots = |buffer: BufferId| (0..step.buffers.len()).filter(move |&slot| step.buffers[slot] == buffer);
        let is_part = self.parts.iter().any(|part| part.new == link.new && part.old == link.old);
        // A kernel that writes a part would read elsewhere what another point of it writes.
        let in_place = |read: usize| !is_part && slots(link.new).all(|write| can_share(kernel, read, write));
        if !slots(link.old).all(in_place) {
            return false;
        }
        let others = self.readers[link.old].iter().filter(|&&r| r != write && r != link.copy && r != copy);
        others.for_each(|&reader| self.after[reader].push(write));
        let made = self.writer[link.old].filter(|&from| from != copy);
        made.into_iter().for_each(|from| self.after[from].push(write));
        true
    }
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{AnchorKernel, Body, Instr, Load, Store};
    use eutectic_ir::{DType, Origin, index::Index};

    use super::*;

    const INPUT: BufferId = 0;
    const OLD: BufferId = 1;
    const NEW: BufferId = 2;
    const STATE: BufferId = 3;
    const OUTPUT: BufferId = 4;

    fn buffers() -> Vec<Buffer> {
        let places = [Place::Input(0), Place::Arena(0), Place::Arena(0), Place::State(0), Place::Output(0)];
        places.into_iter().map(|place| Buffer { dtype: DType::F32, count: 8, place }).collect()
    }

    /// A kernel that reads so many buffers, back to front, and writes one.
    fn kernel(reads: usize) -> Kernel {
        let back = Index::coord(0).times(-1).plus(&Index::constant(7));
        let load = |slot| Instr::Load(Load { slot, at: back.clone(), guards: Vec::new(), dtype: DType::F32 });
        let body = Body { domain: vec![8], instrs: (0..reads).map(load).collect(), ..Body::default() };
        let store = Store::new(reads, Index::coord(0), 0);
        Kernel { anchor: AnchorKernel::map(), body, stores: vec![store], slots: vec![(DType::F32, 8); reads + 1] }
    }

    /// What becomes of steps, each of which reads all of its buffers but the last.
    fn settled(steps: &[&[BufferId]], updates: &[Heir], parts: &[Heir]) -> Vec<(usize, Vec<BufferId>)> {
        let kernels = [kernel(0), kernel(1), kernel(2)];
        let step = |buffers: &&[BufferId]| Step::new(buffers.len() - 1, buffers.to_vec(), Origin::default());
        let steps: Vec<_> = steps.iter().map(step).collect();
        let settled = settle(&kernels, &buffers(), &steps, updates, parts);
        settled.into_iter().map(|(number, step)| (number, step.buffers)).collect()
    }

    #[test]
    fn a_part_is_written_where_the_rest_is_once_that_is_read() {
        let part = [Heir { old: OLD, new: NEW, copy: 1 }];
        let steps: [&[BufferId]; 4] = [&[INPUT, OLD], &[OLD, NEW], &[INPUT, NEW], &[OLD, OUTPUT]];
        let want = [(0, vec![INPUT, OLD]), (3, vec![OLD, OUTPUT]), (2, vec![INPUT, OLD])];
        assert_eq!(settled(&steps, &[], &part), want);
        // Whoever reads both needs both.
        let steps: [&[BufferId]; 4] = [&[INPUT, OLD], &[OLD, NEW], &[INPUT, NEW], &[OLD, NEW, OUTPUT]];
        let want: Vec<_> = steps.iter().map(|step| step.to_vec()).enumerate().collect();
        assert_eq!(settled(&steps, &[], &part), want);
    }

    #[test]
    fn a_part_of_a_state_is_written_in_it() {
        let (part, update) = ([Heir { old: STATE, new: NEW, copy: 0 }], [Heir { old: STATE, new: NEW, copy: 3 }]);
        let steps: [&[BufferId]; 4] = [&[STATE, NEW], &[INPUT, NEW], &[STATE, OUTPUT], &[NEW, STATE]];
        let want = [(2, vec![STATE, OUTPUT]), (1, vec![INPUT, STATE])];
        assert_eq!(settled(&steps, &update, &part), want);
        // Whoever reads both needs both: the state is copied to at the end.
        let steps: [&[BufferId]; 4] = [&[STATE, NEW], &[INPUT, NEW], &[STATE, NEW, OUTPUT], &[NEW, STATE]];
        let want: Vec<_> = steps.iter().map(|step| step.to_vec()).enumerate().collect();
        assert_eq!(settled(&steps, &update, &part), want);
    }

    #[test]
    fn a_kernel_that_reads_a_state_elsewhere_does_not_write_it() {
        let update = [Heir { old: STATE, new: NEW, copy: 1 }];
        assert_eq!(settled(&[&[STATE, NEW], &[NEW, STATE]], &update, &[]).len(), 2);
        assert_eq!(settled(&[&[INPUT, NEW], &[NEW, STATE]], &update, &[]), [(0, vec![INPUT, STATE])]);
    }
}
