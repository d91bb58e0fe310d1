//! Merges elementwise kernels of one block into kernels of another block.
//!
//! Blocks are planned one by one. A block that needs an input in another form, such as a cast of it, computes that form
//! by its own kernel. The kernel that stores the input stores the other form too, if this costs less than a second
//! kernel.

use eutectic_backend::{Backend, Buffer, BufferId, Instr, Kernel, Place, Step, Store, ValueId};
use rustc_hash::FxHashMap;

/// A kernel that computes each element of a buffer from the element at the same index of another buffer.
struct ElementWise<'a> {
    kernel: &'a Kernel,
    /// The only load of the kernel.
    load: ValueId,
}

impl<'a> ElementWise<'a> {
    fn of(kernel: &'a Kernel) -> Option<ElementWise<'a>> {
        let ([store], true) = (&kernel.stores[..], kernel.is_map()) else { return None };
        let instrs = &kernel.body.instrs;
        let load = instrs.iter().position(|instr| matches!(instr, Instr::Load(_)))?;
        let Instr::Load(of) = &instrs[load] else { return None };
        let is_own =
            |(id, instr): (ValueId, &Instr)| id == load || matches!(instr, Instr::Map { .. } | Instr::Constant { .. });
        let points: usize = kernel.body.domain.iter().product();
        let is_whole = kernel.slots.len() == 2 && kernel.slots.iter().all(|(_, count)| *count == points);
        let fits = is_whole
            && kernel.body.lengths.is_empty()
            && of.at == store.at
            && of.guards.is_empty()
            && store.guards.is_empty()
            && instrs.iter().enumerate().all(is_own);
        fits.then_some(ElementWise { kernel, load })
    }

    /// Returns the kernel `first` with one more store: this kernel's result, computed from the value of store `stored`.
    fn beside(&self, first: &Kernel, stored: usize) -> Option<Kernel> {
        let Store { slot, at, guards, value, .. } = &first.stores[stored];
        let is_whole = guards.is_empty() && at.values().is_empty() && first.slots[*slot].1 == self.kernel.slots[0].1;
        if !is_whole || !first.body.lengths.is_empty() {
            return None;
        }
        let mut joined = first.clone();
        let before = joined.body.instrs.len();
        // The stored value replaces the load. The other instructions follow in their order.
        let place = |id: ValueId| if id == self.load { *value } else { before + id - usize::from(id > self.load) };
        for (_, instr) in self.kernel.body.instrs.iter().enumerate().filter(|(id, _)| *id != self.load) {
            let mut instr = instr.clone();
            if let Instr::Map { args, .. } = &mut instr {
                args.iter_mut().for_each(|arg| *arg = place(*arg));
            }
            joined.body.instrs.push(instr);
        }
        let own = &self.kernel.stores[0];
        joined.slots.push(self.kernel.slots[own.slot]);
        let store = Store::new(joined.slots.len() - 1, at.clone(), place(own.value));
        joined.stores.push(store);
        Some(joined)
    }
}

/// The steps that write a buffer.
#[derive(Clone, Copy, PartialEq)]
enum Writer {
    /// A store of a step.
    One {
        step: usize,
        store: usize,
    },
    Several,
}

/// Uses of buffers by steps, from which mergeable steps are found.
struct Joins<'a> {
    kernels: &'a mut Vec<Kernel>,
    buffers: &'a [Buffer],
    backend: &'a dyn Backend,
    writers: FxHashMap<BufferId, Writer>,
    /// For each buffer, the first step that uses it.
    first: FxHashMap<BufferId, usize>,
    /// The kernel that merges two, by the numbers of the first kernel, its store and the second kernel; `None` if the
    /// merged kernel is not cheaper.
    known: FxHashMap<[usize; 3], Option<usize>>,
}

/// Merges elementwise steps into the steps of other blocks that compute their operands, if the merged kernel is
/// cheaper. Steps of one block stay as they are, because the plan search has compared their merged forms. `calls` gives
/// the block call of each step. Returns the numbers of the remaining steps.
pub(crate) fn join(
    kernels: &mut Vec<Kernel>,
    buffers: &[Buffer],
    steps: &mut [Step],
    calls: &[Option<usize>],
    backend: &dyn Backend,
) -> Vec<usize> {
    let mut joins = Joins {
        kernels,
        buffers,
        backend,
        writers: FxHashMap::default(),
        first: FxHashMap::default(),
        known: FxHashMap::default(),
    };
    for (at, step) in steps.iter().enumerate() {
        for (store, of) in joins.kernels[step.kernel].stores.iter().enumerate() {
            let once = Writer::One { step: at, store };
            joins.writers.entry(step.buffers[of.slot]).and_modify(|writer| *writer = Writer::Several).or_insert(once);
        }
        step.buffers.iter().for_each(|&buffer| _ = joins.first.entry(buffer).or_insert(at));
    }
    (0..steps.len()).filter(|&at| !joins.goes(steps, calls, at)).collect()
}

impl Joins<'_> {
    /// Merges a step into the step that computes its operand, and returns whether it did.
    fn goes(&mut self, steps: &mut [Step], calls: &[Option<usize>], at: usize) -> bool {
        let [from, to] = steps[at].buffers[..] else { return false };
        let is_own = |buffer: BufferId| matches!(self.buffers[buffer].place, Place::Arena(_) | Place::Output(_));
        let Some(&Writer::One { step, store }) = self.writers.get(&from) else { return false };
        // The earlier step may write the result only if no step before this one uses the result's buffer.
        let is_new = self.first[&to] == at && self.writers.get(&to) != Some(&Writer::Several);
        let are_apart = calls[step].zip(calls[at]).is_some_and(|(one, other)| one != other);
        if step >= at || !are_apart || !is_new || !is_own(from) || !is_own(to) {
            return false;
        }
        let Some(kernel) = self.joined([steps[step].kernel, store, steps[at].kernel]) else { return false };
        steps[step].kernel = kernel;
        steps[step].buffers.push(to);
        self.writers.insert(to, Writer::One { step, store: self.kernels[kernel].stores.len() - 1 });
        true
    }

    /// Returns the number of the merged kernel, if it costs less than the two kernels.
    fn joined(&mut self, of: [usize; 3]) -> Option<usize> {
        if let Some(&known) = self.known.get(&of) {
            return known;
        }
        let [first, store, second] = of;
        let [first, second] = [first, second].map(|n| &self.kernels[n]);
        let seconds = |kernel: &Kernel| self.backend.cost(kernel).seconds;
        let both = ElementWise::of(second)
            .and_then(|second| second.beside(first, store))
            .filter(|both| seconds(both) < seconds(first) + seconds(second));
        let number = both.map(|both| {
            self.kernels.push(both);
            self.kernels.len() - 1
        });
        self.known.insert(of, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{AnchorKernel, Body, Load};
    use eutectic_ir::{DType, Op, Origin, index::Index};

    use super::*;
    use crate::tests::Roofline;

    const COUNT: usize = 64;

    /// Returns a kernel that stores `op` of the element that is `distance` elements further.
    fn kernel(op: &str, distance: i64) -> Kernel {
        let at = Index::coord(0);
        let load =
            Load { slot: 0, at: at.clone().plus(&Index::constant(distance)), guards: Vec::new(), dtype: DType::F32 };
        let op = Op::named(op).unwrap();
        let map = Instr::Map { op, attrs: Default::default(), args: vec![0], dtype: DType::F32 };
        Kernel {
            anchor: AnchorKernel::map(),
            body: Body { domain: vec![COUNT], instrs: vec![Instr::Load(load), map], ..Body::default() },
            stores: vec![Store::new(1, at, 1)],
            slots: vec![(DType::F32, COUNT); 2],
        }
    }

    fn buffers(count: usize) -> Vec<Buffer> {
        let place = |n| if n == 0 { Place::Input(0) } else { Place::Arena(0) };
        (0..count).map(|n| Buffer { dtype: DType::F32, count: COUNT, place: place(n) }).collect()
    }

    /// Joins steps over buffers, each given as `[kernel, from, to]`. Returns the numbers of the remaining steps, all
    /// steps and all kernels.
    fn left(mut kernels: Vec<Kernel>, of: &[[usize; 3]]) -> (Vec<usize>, Vec<Step>, Vec<Kernel>) {
        let step = |&[kernel, from, to]: &[usize; 3]| Step::new(kernel, vec![from, to], Origin::default());
        let mut steps: Vec<_> = of.iter().map(step).collect();
        let calls: Vec<_> = (0..of.len()).map(Some).collect();
        let left = join(&mut kernels, &buffers(8), &mut steps, &calls, &Roofline);
        (left, steps, kernels)
    }

    #[test]
    fn what_is_made_of_each_element_is_stored_besides() {
        let (left, steps, kernels) = left(vec![kernel("exp", 0), kernel("neg", 0)], &[[0, 0, 1], [1, 1, 2], [1, 2, 3]]);
        assert_eq!(left, [0]);
        assert_eq!(steps[0].buffers, [0, 1, 2, 3]);
        let joined = &kernels[steps[0].kernel];
        let names = |instr: &Instr| match instr {
            Instr::Map { op, args, .. } => format!("{} {args:?}", op.name()),
            _ => "load".into(),
        };
        assert_eq!(joined.body.instrs.iter().map(names).collect::<Vec<_>>(), ["load", "exp [0]", "neg [1]", "neg [2]"]);
        assert_eq!(joined.stores.iter().map(|s| (s.slot, s.value)).collect::<Vec<_>>(), [(1, 1), (2, 2), (3, 3)]);
    }

    #[test]
    fn what_reads_elsewhere_or_writes_a_used_place_stays() {
        let kernels = || vec![kernel("exp", 0), kernel("neg", 1), kernel("neg", 0)];
        assert_eq!(left(kernels(), &[[0, 0, 1], [1, 1, 2]]).0, [0, 1], "its neighbour");
        assert_eq!(left(kernels(), &[[0, 0, 1], [1, 3, 4], [2, 1, 3]]).0, [0, 1, 2], "read before");
        assert_eq!(left(kernels(), &[[0, 0, 1], [0, 4, 1], [2, 1, 3]]).0, [0, 1, 2], "written twice");
        assert_eq!(left(kernels(), &[[2, 0, 3]]).0, [0], "an input");
    }
}
