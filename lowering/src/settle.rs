//! Decides which values take the place of a state or of another tensor, and in which order steps run then.
//!
//! Lowering makes a copy for each: of the value to its state at the end, and of the old tensor before a part of it is written. Plans have
//! copies too: of a tensor to one of another shape. A value that is computed when every reader of the old contents has run is stored in their
//! place instead, and the copy goes.

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
    /// Which store of the step copies, where it has several.
    pub store: Option<usize>,
}

/// Steps in their order, each with its number before.
pub(crate) struct Settled {
    pub steps: Vec<(usize, Step)>,
    /// Stores that go although their step stays: the number of the step, and that of the store.
    pub dropped: Vec<(usize, usize)>,
}

/// What became of copies.
#[derive(Default)]
struct Homes {
    /// The buffer whose place a buffer takes.
    place: FxHashMap<BufferId, BufferId>,
    gone: Vec<bool>,
    dropped: Vec<(usize, usize)>,
}

impl Homes {
    /// Returns where a buffer's contents are.
    fn home(&self, mut buffer: BufferId) -> BufferId {
        while let Some(&old) = self.place.get(&buffer) {
            buffer = old;
        }
        buffer
    }

    /// Returns whether a buffer's contents are stored over.
    fn has_heir(&self, buffer: BufferId) -> bool {
        self.place.values().any(|old| *old == buffer)
    }

    /// Leaves a copy out.
    fn drop_copy(&mut self, heir: &Heir) {
        match heir.store {
            Some(store) => self.dropped.push((heir.copy, store)),
            None => self.gone[heir.copy] = true,
        }
    }
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

/// Orders steps and leaves out the copies of heirs that take a place; their buffers become those of the old tensors. `updates` are the heirs of
/// states. `parts` are the heirs of tensors of which a part is written, and plain copies.
pub(crate) fn settle(
    kernels: &[Kernel],
    buffers: &[Buffer],
    steps: &[Step],
    updates: &[Heir],
    parts: &[Heir],
) -> Settled {
    let mut all = Steps::new(kernels, buffers.len(), steps, parts);
    let is_arena = |b: BufferId| matches!(buffers[b].place, Place::Arena(_));
    let mut homes = Homes { gone: vec![false; steps.len()], ..Homes::default() };
    for update in updates {
        let Some(links) = all.chain(update) else { continue };
        if links.iter().all(|l| is_arena(l.new) && !homes.place.contains_key(&l.new)) && all.link(&links, update.copy) {
            for link in &links {
                homes.place.insert(link.new, update.old);
                homes.drop_copy(link);
            }
            homes.gone[update.copy] = true;
        }
    }
    for part in parts.iter().filter(|part| is_arena(part.new)) {
        // In the arena the old tensor may have one heir.
        let is_free = !homes.has_heir(part.old) && !homes.place.contains_key(&part.new);
        if is_free && is_arena(homes.home(part.old)) && all.link(std::slice::from_ref(part), part.copy) {
            homes.place.insert(part.new, part.old);
            homes.drop_copy(part);
        }
    }
    // What is copied to an output is computed there, if nothing is stored over it.
    for part in parts.iter().filter(|part| matches!(buffers[part.new].place, Place::Output(_))) {
        let from = homes.home(part.old);
        if is_arena(from) && !homes.has_heir(part.old) && all.writer[part.new] == Some(part.copy) {
            homes.place.insert(from, part.new);
            homes.drop_copy(part);
        }
    }
    // Without its cycles, which `link` refuses, an order there is.
    let order = order(&all.after, FirstStep::default()).unwrap_or_else(|| (0..steps.len()).collect());
    let kept = order.into_iter().filter(|&step| !homes.gone[step]);
    let moved = |number: usize| {
        let mut step = steps[number].clone();
        step.buffers.iter_mut().for_each(|buffer| *buffer = homes.home(*buffer));
        step
    };
    let steps = kept.map(|step| (step, moved(step))).collect();
    Settled { steps, dropped: homes.dropped }
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

    /// Returns the heirs by which what a state becomes is stored in its place: those that follow each other from the state on, or the update itself.
    /// `None` if it is a part of another tensor.
    fn chain(&self, update: &Heir) -> Option<Vec<Heir>> {
        let mut chain = Vec::new();
        let mut at = update.new;
        while let Some(part) = self.parts.iter().find(|part| part.new == at && part.old != at) {
            chain.push(*part);
            at = part.old;
        }
        let is_copy = |part: &Heir| self.writer[part.new] == Some(part.copy);
        match chain.first() {
            Some(_) if at == update.old => Some(chain),
            None => Some(vec![*update]),
            Some(part) if is_copy(part) => Some(vec![*update]),
            Some(_) => None,
        }
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
        // A kernel that writes a part would read elsewhere what another point of it writes. A copy writes what it reads.
        let in_place = |read: usize| !is_part && slots(link.new).all(|write| can_share(kernel, read, write));
        if write != link.copy && !slots(link.old).all(in_place) {
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

    fn heir(old: BufferId, new: BufferId, copy: usize) -> Heir {
        Heir { old, new, copy, store: None }
    }

    fn buffers() -> Vec<Buffer> {
        let places =
            [Place::Input(0), Place::Arena(0), Place::Arena(0), Place::State(0), Place::Output(0), Place::Arena(0)];
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
        settled.steps.into_iter().map(|(number, step)| (number, step.buffers)).collect()
    }

    #[test]
    fn a_part_is_written_where_the_rest_is_once_that_is_read() {
        let part = [heir(OLD, NEW, 1)];
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
        let (part, update) = ([heir(STATE, NEW, 0)], [heir(STATE, NEW, 3)]);
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
        let update = [heir(STATE, NEW, 1)];
        assert_eq!(settled(&[&[STATE, NEW], &[NEW, STATE]], &update, &[]).len(), 2);
        assert_eq!(settled(&[&[INPUT, NEW], &[NEW, STATE]], &update, &[]), [(0, vec![INPUT, STATE])]);
    }

    #[test]
    fn a_copy_of_another_shape_goes() {
        // The state is copied, a part of the copy is written, the result is copied to what the state becomes.
        const LAST: BufferId = 5;
        let parts = [heir(STATE, OLD, 0), heir(OLD, NEW, 1), heir(NEW, LAST, 3)];
        let update = [heir(STATE, LAST, 4)];
        let steps: [&[BufferId]; 5] = [&[STATE, OLD], &[OLD, NEW], &[INPUT, NEW], &[NEW, LAST], &[LAST, STATE]];
        assert_eq!(settled(&steps, &update, &parts), [(2, vec![INPUT, STATE])]);
        // An output: the input stays as it is.
        let parts = [heir(INPUT, OLD, 0), heir(OLD, NEW, 1), heir(NEW, OUTPUT, 3)];
        let steps: [&[BufferId]; 4] = [&[INPUT, OLD], &[OLD, NEW], &[INPUT, NEW], &[NEW, OUTPUT]];
        assert_eq!(settled(&steps, &[], &parts), [(0, vec![INPUT, OUTPUT]), (2, vec![INPUT, OUTPUT])]);
        // What is copied and then stored over is copied.
        let parts = [heir(OLD, OUTPUT, 1), heir(OLD, NEW, 2)];
        let steps: [&[BufferId]; 4] = [&[INPUT, OLD], &[OLD, OUTPUT], &[OLD, NEW], &[INPUT, NEW]];
        let want = [(0, vec![INPUT, OLD]), (1, vec![OLD, OUTPUT]), (3, vec![INPUT, OLD])];
        assert_eq!(settled(&steps, &[], &parts), want);
    }

    #[test]
    fn a_state_that_becomes_a_copy_of_something_else_is_stored_at_once() {
        let (parts, update) = ([heir(OLD, NEW, 1)], [heir(STATE, NEW, 2)]);
        let steps: [&[BufferId]; 3] = [&[INPUT, OLD], &[OLD, NEW], &[NEW, STATE]];
        assert_eq!(settled(&steps, &update, &parts), [(0, vec![INPUT, OLD]), (1, vec![OLD, STATE])]);
    }
}
