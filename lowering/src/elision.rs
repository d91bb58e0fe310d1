//! Elides copies: decides which values are stored in place of a state or of another tensor, and sorts the steps
//! accordingly.
//!
//! Lowering adds a copy of each new state value to its state, and a copy of the old tensor before an update of a part.
//! Plans also contain copies of tensors that only change shape. If a value can be computed after every other reader of
//! the old contents, it is stored in their place and the copy is removed.

use eutectic_backend::{Buffer, BufferId, Kernel, Place, Step};
use rustc_hash::FxHashMap;

use crate::{
    memory::can_share,
    order::{FirstStep, followers, order},
};

/// A value that could replace the contents of another buffer, with the copy that this saves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyElision {
    /// The buffer of the old contents.
    pub old: BufferId,
    /// The buffer of the value.
    pub new: BufferId,
    /// The step that copies.
    pub copy: usize,
    /// The store of the step that copies, if the step has several stores.
    pub store: Option<usize>,
}

/// A store to remove, by the number of its step and its number within the step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DroppedStore {
    pub step: usize,
    pub store: usize,
}

/// The sorted steps, each with its old number.
pub(crate) struct ElidedCopies {
    pub steps: Vec<(usize, Step)>,
    /// Stores to remove from steps that stay.
    pub dropped: Vec<DroppedStore>,
}

/// The copies elided so far, and the buffers that hold the copied values instead.
#[derive(Default)]
struct Homes {
    /// For each buffer that is no longer used, the buffer that holds its value.
    place: FxHashMap<BufferId, BufferId>,
    gone: Vec<bool>,
    dropped: Vec<DroppedStore>,
}

impl Homes {
    /// Returns the buffer that holds a buffer's contents.
    fn home(&self, mut buffer: BufferId) -> BufferId {
        while let Some(&old) = self.place.get(&buffer) {
            buffer = old;
        }
        buffer
    }

    /// Returns whether another buffer's value replaces a buffer's contents.
    fn is_replaced(&self, buffer: BufferId) -> bool {
        self.place.values().any(|old| *old == buffer)
    }

    /// Removes a copy.
    fn drop_copy(&mut self, elision: &CopyElision) {
        match elision.store {
            Some(store) => self.dropped.push(DroppedStore { step: elision.copy, store }),
            None => self.gone[elision.copy] = true,
        }
    }
}

/// The dependencies of steps.
struct Steps<'a> {
    kernels: &'a [Kernel],
    steps: &'a [Step],
    parts: &'a [CopyElision],
    /// For each buffer, the step that writes it last.
    writer: Vec<Option<usize>>,
    /// For each buffer, the steps that read it.
    readers: Vec<Vec<usize>>,
    /// For each step, the steps that must come after it.
    after: Vec<Vec<usize>>,
}

/// Sorts steps and elides copies where possible. In the result, steps use the buffer of the old contents instead of the
/// buffer of an elided copy. `updates` are the copies of new values to states. `parts` are the copies before updates of
/// a part, and copies of tensors that only change shape.
pub(crate) fn elide_copies(
    kernels: &[Kernel],
    buffers: &[Buffer],
    steps: &[Step],
    updates: &[CopyElision],
    parts: &[CopyElision],
) -> ElidedCopies {
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
        // At most one value may replace an old tensor in the arena.
        let is_free = !homes.is_replaced(part.old) && !homes.place.contains_key(&part.new);
        if is_free && is_arena(homes.home(part.old)) && all.link(std::slice::from_ref(part), part.copy) {
            homes.place.insert(part.new, part.old);
            homes.drop_copy(part);
        }
    }
    // A value that is copied to an output is computed there, if no other value replaces it.
    for part in parts.iter().filter(|part| matches!(buffers[part.new].place, Place::Output(_))) {
        let from = homes.home(part.old);
        if is_arena(from) && !homes.is_replaced(part.old) && all.writer[part.new] == Some(part.copy) {
            homes.place.insert(from, part.new);
            homes.drop_copy(part);
        }
    }
    // `link` refuses cycles, so that an order exists.
    let order = order(&all.after, FirstStep::default()).unwrap_or_else(|| (0..steps.len()).collect());
    let kept = order.into_iter().filter(|&step| !homes.gone[step]);
    let moved = |number: usize| {
        let mut step = steps[number].clone();
        step.buffers.iter_mut().for_each(|buffer| *buffer = homes.home(*buffer));
        step
    };
    let steps = kept.map(|step| (step, moved(step))).collect();
    ElidedCopies { steps, dropped: homes.dropped }
}

impl<'a> Steps<'a> {
    fn new(kernels: &'a [Kernel], buffers: usize, steps: &'a [Step], parts: &'a [CopyElision]) -> Steps<'a> {
        let (mut writer, mut readers) = (vec![None; buffers], vec![Vec::new(); buffers]);
        for (at, step) in steps.iter().enumerate() {
            let (reads, writes) = step.buffers.split_at(step.buffers.len() - kernels[step.kernel].stores.len());
            writes.iter().for_each(|&b| writer[b] = Some(at));
            reads.iter().for_each(|&b| readers[b].push(at));
        }
        Steps { kernels, steps, parts, writer, readers, after: followers(kernels, steps) }
    }

    /// Returns the copies to elide so that the new value of a state is stored in the state's buffer: the chain of
    /// partial updates, if it starts at the state, or the update alone if there is no chain. Returns `None` if the
    /// chain starts at another tensor.
    fn chain(&self, update: &CopyElision) -> Option<Vec<CopyElision>> {
        let mut chain = Vec::new();
        let mut at = update.new;
        while let Some(part) = self.parts.iter().find(|part| part.new == at && part.old != at) {
            chain.push(*part);
            at = part.old;
        }
        let is_copy = |part: &CopyElision| self.writer[part.new] == Some(part.copy);
        match chain.first() {
            Some(_) if at == update.old => Some(chain),
            None => Some(vec![*update]),
            Some(part) if is_copy(part) => Some(vec![*update]),
            Some(_) => None,
        }
    }

    /// Makes the writer of each value come after all other readers of the old contents, and returns whether that is
    /// possible. `copy` is the step that becomes unnecessary.
    fn link(&mut self, links: &[CopyElision], copy: usize) -> bool {
        let before = self.after.clone();
        if links.iter().all(|link| self.follow(link, copy)) && order(&self.after, FirstStep::default()).is_some() {
            return true;
        }
        self.after = before;
        false
    }

    fn follow(&mut self, link: &CopyElision, copy: usize) -> bool {
        let Some(write) = self.writer[link.new] else { return false };
        let step = &self.steps[write];
        let kernel = &self.kernels[step.kernel];
        let slots = |buffer: BufferId| (0..step.buffers.len()).filter(move |&slot| step.buffers[slot] == buffer);
        let is_part = self.parts.iter().any(|part| part.new == link.new && part.old == link.old);
        // An update of a part would overwrite elements that other points still read. A plain copy reads and writes the
        // same element.
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

    fn elision(old: BufferId, new: BufferId, copy: usize) -> CopyElision {
        CopyElision { old, new, copy, store: None }
    }

    fn buffers() -> Vec<Buffer> {
        let places =
            [Place::Input(0), Place::Arena(0), Place::Arena(0), Place::State(0), Place::Output(0), Place::Arena(0)];
        places.into_iter().map(|place| Buffer { dtype: DType::F32, count: 8, place }).collect()
    }

    /// Returns a kernel that reads `reads` buffers in reverse order and writes one.
    fn kernel(reads: usize) -> Kernel {
        let back = Index::coord(0).times(-1).plus(&Index::constant(7));
        let load = |slot| Instr::Load(Load { slot, at: back.clone(), guards: Vec::new(), dtype: DType::F32 });
        let body = Body { domain: vec![8], instrs: (0..reads).map(load).collect(), ..Body::default() };
        let store = Store::new(reads, Index::coord(0), 0);
        Kernel { anchor: AnchorKernel::map(), body, stores: vec![store], slots: vec![(DType::F32, 8); reads + 1] }
    }

    /// Sorts steps and returns them. A step reads all its buffers except the last.
    fn elided(steps: &[&[BufferId]], updates: &[CopyElision], parts: &[CopyElision]) -> Vec<(usize, Vec<BufferId>)> {
        let kernels = [kernel(0), kernel(1), kernel(2)];
        let step = |buffers: &&[BufferId]| Step::new(buffers.len() - 1, buffers.to_vec(), Origin::default());
        let steps: Vec<_> = steps.iter().map(step).collect();
        let elided_copies = elide_copies(&kernels, &buffers(), &steps, updates, parts);
        elided_copies.steps.into_iter().map(|(number, step)| (number, step.buffers)).collect()
    }

    #[test]
    fn a_part_is_written_where_the_rest_is_once_that_is_read() {
        let part = [elision(OLD, NEW, 1)];
        let steps: [&[BufferId]; 4] = [&[INPUT, OLD], &[OLD, NEW], &[INPUT, NEW], &[OLD, OUTPUT]];
        let want = [(0, vec![INPUT, OLD]), (3, vec![OLD, OUTPUT]), (2, vec![INPUT, OLD])];
        assert_eq!(elided(&steps, &[], &part), want);
        // The last step reads both buffers, so that both must exist.
        let steps: [&[BufferId]; 4] = [&[INPUT, OLD], &[OLD, NEW], &[INPUT, NEW], &[OLD, NEW, OUTPUT]];
        let want: Vec<_> = steps.iter().map(|step| step.to_vec()).enumerate().collect();
        assert_eq!(elided(&steps, &[], &part), want);
    }

    #[test]
    fn a_part_of_a_state_is_written_in_it() {
        let (part, update) = ([elision(STATE, NEW, 0)], [elision(STATE, NEW, 3)]);
        let steps: [&[BufferId]; 4] = [&[STATE, NEW], &[INPUT, NEW], &[STATE, OUTPUT], &[NEW, STATE]];
        let want = [(2, vec![STATE, OUTPUT]), (1, vec![INPUT, STATE])];
        assert_eq!(elided(&steps, &update, &part), want);
        // The last step reads both buffers, so that the state is copied at the end.
        let steps: [&[BufferId]; 4] = [&[STATE, NEW], &[INPUT, NEW], &[STATE, NEW, OUTPUT], &[NEW, STATE]];
        let want: Vec<_> = steps.iter().map(|step| step.to_vec()).enumerate().collect();
        assert_eq!(elided(&steps, &update, &part), want);
    }

    #[test]
    fn a_kernel_that_reads_a_state_elsewhere_does_not_write_it() {
        let update = [elision(STATE, NEW, 1)];
        assert_eq!(elided(&[&[STATE, NEW], &[NEW, STATE]], &update, &[]).len(), 2);
        assert_eq!(elided(&[&[INPUT, NEW], &[NEW, STATE]], &update, &[]), [(0, vec![INPUT, STATE])]);
    }

    #[test]
    fn a_copy_of_another_shape_goes() {
        // The state is copied, a part of the copy is updated, and the result is copied to the state's new value.
        const LAST: BufferId = 5;
        let parts = [elision(STATE, OLD, 0), elision(OLD, NEW, 1), elision(NEW, LAST, 3)];
        let update = [elision(STATE, LAST, 4)];
        let steps: [&[BufferId]; 5] = [&[STATE, OLD], &[OLD, NEW], &[INPUT, NEW], &[NEW, LAST], &[LAST, STATE]];
        assert_eq!(elided(&steps, &update, &parts), [(2, vec![INPUT, STATE])]);
        // The result is an output, and the input stays unchanged.
        let parts = [elision(INPUT, OLD, 0), elision(OLD, NEW, 1), elision(NEW, OUTPUT, 3)];
        let steps: [&[BufferId]; 4] = [&[INPUT, OLD], &[OLD, NEW], &[INPUT, NEW], &[NEW, OUTPUT]];
        assert_eq!(elided(&steps, &[], &parts), [(0, vec![INPUT, OUTPUT]), (2, vec![INPUT, OUTPUT])]);
        // A value that is copied and then updated needs the copy.
        let parts = [elision(OLD, OUTPUT, 1), elision(OLD, NEW, 2)];
        let steps: [&[BufferId]; 4] = [&[INPUT, OLD], &[OLD, OUTPUT], &[OLD, NEW], &[INPUT, NEW]];
        let want = [(0, vec![INPUT, OLD]), (1, vec![OLD, OUTPUT]), (3, vec![INPUT, OLD])];
        assert_eq!(elided(&steps, &[], &parts), want);
    }

    #[test]
    fn a_state_that_becomes_a_copy_of_something_else_is_stored_at_once() {
        let (parts, update) = ([elision(OLD, NEW, 1)], [elision(STATE, NEW, 2)]);
        let steps: [&[BufferId]; 3] = [&[INPUT, OLD], &[OLD, NEW], &[NEW, STATE]];
        assert_eq!(elided(&steps, &update, &parts), [(0, vec![INPUT, OLD]), (1, vec![OLD, STATE])]);
    }
}
