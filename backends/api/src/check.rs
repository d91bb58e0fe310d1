//! Checks that the steps of a program access only memory that they may access. Backends rely on this for memory safety.

use eutectic_ir::{DType, Origin, Type};

use crate::{
    body::Slot,
    program::{Buffer, BufferId, Exit, InPlace, Part, Place, Program, Step},
};

impl Program {
    /// Returns the faults of a program, each with the model part of its step. Examples are buffers outside of their
    /// memory, steps whose buffers do not fit their kernels, and invalid exits. A step is also at fault if it
    /// overwrites memory that it reads without an entry in [`Step::in_place`]. Faults of buffers and exits have the
    /// default origin.
    pub fn problems(&self) -> Vec<(Origin, String)> {
        let mut problems = Vec::new();
        for (id, buffer) in self.buffers.iter().enumerate().filter(|(_, buffer)| !self.has_place(buffer)) {
            let what = format!(
                "cannot place buffer {id} because its {} {} do not fit its memory or are not aligned there",
                buffer.count, buffer.dtype
            );
            problems.push((Origin::default(), what));
        }
        for (&id, part) in self.parts.iter().filter(|(id, part)| !self.is_part(**id, **part)) {
            let what = format!(
                "cannot use buffer {id} as a part of buffer {} because it is not a range of its memory",
                part.of
            );
            problems.push((Origin::default(), what));
        }
        for (steps, load) in [(&self.load, true), (&self.run, false)] {
            for step in steps {
                if !self.binds(step, load) {
                    let what = format!("cannot bind the step's buffers because they do not fit kernel {}", step.kernel);
                    problems.push((step.origin.clone(), what));
                } else if let Some(what) = self.misplaced(step) {
                    problems.push((step.origin.clone(), what));
                }
            }
        }
        problems.extend(self.exits.iter().filter_map(|exit| {
            let why = self.exit_fault(exit)?;
            Some((Origin::default(), format!("cannot exit before step {} because {why}", exit.before)))
        }));
        if !self.exits.is_sorted_by_key(|exit| exit.before) {
            problems.push((Origin::default(), "cannot run the exits because they are not sorted by step".into()));
        }
        problems
    }

    /// Returns the reason why an exit is invalid; `None` if it is valid.
    fn exit_fault(&self, exit: &Exit) -> Option<&'static str> {
        let decides = |buffer: &Buffer| {
            buffer.dtype == DType::Bool && buffer.count == 1 && matches!(buffer.place, Place::Arena(_))
        };
        if exit.before >= exit.to || exit.to > self.run.len() {
            return Some("the exit leads to no later step");
        }
        let is_decided = self.buffers.get(exit.unless).is_some_and(decides);
        (!is_decided).then_some("its condition is not a single bool in the run arena")
    }

    fn has_place(&self, buffer: &Buffer) -> bool {
        let whole = |n: usize, of: &[(String, Type)]| {
            of.get(n).is_some_and(|(_, ty)| ty.dtype() == Some(buffer.dtype) && ty.count() == buffer.count)
        };
        let within = |at: usize, size: usize| {
            let end = at.checked_add(buffer.count * buffer.dtype.size());
            at.is_multiple_of(buffer.dtype.size()) && end.is_some_and(|end| end <= size)
        };
        match &buffer.place {
            Place::Input(n) => whole(*n, &self.inputs),
            Place::Param(n) => whole(*n, &self.params),
            Place::Output(n) => whole(*n, &self.outputs),
            Place::State(n) => whole(*n, &self.states),
            Place::Const(t) => t.dtype() == buffer.dtype && t.count() == buffer.count,
            Place::Loaded(at) => within(*at, self.load_bytes),
            Place::Arena(at) => within(*at, self.arena_bytes),
        }
    }

    /// Returns whether a part is a valid range of its containing buffer. Both must have one element type and be in the
    /// run arena, and the containing buffer must not be a part.
    fn is_part(&self, id: BufferId, part: Part) -> bool {
        let (Some(buffer), Some(whole)) = (self.buffers.get(id), self.buffers.get(part.of)) else { return false };
        let (Place::Arena(at), Place::Arena(from)) = (&buffer.place, &whole.place) else { return false };
        buffer.dtype == whole.dtype
            && !self.parts.contains_key(&part.of)
            && part.at.checked_add(buffer.count).is_some_and(|end| end <= whole.count)
            && *at == from + part.at * buffer.dtype.size()
    }

    /// Returns whether a step binds existing buffers with the types and sizes that its kernel requires, and whether it
    /// may write the buffers that it writes. `load` is set for a step of the load program.
    fn binds(&self, step: &Step, load: bool) -> bool {
        let Some(kernel) = self.kernels.get(step.kernel) else { return false };
        let fits = |((dtype, count), &id): (&(DType, usize), &usize)| {
            let fits = |b: &Buffer| b.dtype == *dtype && b.count >= *count && (!load || b.place.is_constant());
            self.buffers.get(id).is_some_and(fits)
        };
        let is_written = |slot: Slot| match self.buffers[step.buffers[slot]].place {
            Place::Loaded(_) => load,
            Place::Arena(_) | Place::Output(_) | Place::State(_) => !load,
            Place::Input(_) | Place::Param(_) | Place::Const(_) => false,
        };
        kernel.slots.len() == step.buffers.len()
            && kernel.slots.iter().zip(&step.buffers).all(fits)
            && kernel.stores.iter().all(|s| s.slot < step.buffers.len() && is_written(s.slot))
    }

    /// Returns the pairs of a slot that a step reads and a slot that it writes whose memory overlaps.
    pub fn shared_slots(&self, step: &Step) -> impl Iterator<Item = InPlace> + use<> {
        let accesses = self.kernels[step.kernel].accesses();
        let memory: Vec<_> = step.buffers.iter().map(|&buffer| self.memory(buffer)).collect();
        let count = memory.len();
        let pairs = (0..count).flat_map(move |written| (0..count).map(move |read| InPlace { read, written }));
        pairs.filter(move |pair| {
            let (read, written) = (pair.read, pair.written);
            accesses[written].written && accesses[read].read && memory[read].overlaps(&memory[written])
        })
    }

    /// Returns a fault of a step whose slots share memory; `None` if there is none. A shared pair must be declared in
    /// [`Step::in_place`] and begin at the same byte. A declared pair must share memory, unless the read slot is empty.
    fn misplaced(&self, step: &Step) -> Option<String> {
        let memory: Vec<_> = step.buffers.iter().map(|&buffer| self.memory(buffer)).collect();
        let shared = |pair: &InPlace| memory[pair.read].overlaps(&memory[pair.written]);
        for pair in self.shared_slots(step) {
            let InPlace { read, written } = pair;
            if memory[read].bytes.start != memory[written].bytes.start {
                return Some(format!("cannot write slot {written} over slot {read} because it is at another offset"));
            }
            if !step.in_place.contains(&pair) {
                return Some(format!(
                    "cannot write slot {written} over slot {read} because the step does not declare it"
                ));
            }
        }
        let there = |slot: Slot| slot < memory.len();
        let wrong = step.in_place.iter().find(|pair| {
            let there = there(pair.read) && there(pair.written);
            !there || (!shared(pair) && !memory[pair.read].bytes.is_empty())
        });
        wrong.map(|pair| {
            format!(
                "cannot write slot {} in place over slot {} because they do not share memory",
                pair.written, pair.read
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use eutectic_ir::index::Index;

    use super::*;
    use crate::{
        anchors::AnchorKernel,
        body::{Body, Instr, Load, Store},
        kernel::Kernel,
    };

    /// Returns a program of one step. It copies slot 0, at byte 0 of the arena, to slot 1, at byte `at`.
    fn program(at: usize, in_place: &[InPlace]) -> Program {
        let load = Load { slot: 0, at: Index::coord(0), guards: Vec::new(), dtype: DType::F32 };
        let kernel = Kernel {
            anchor: AnchorKernel::map(),
            body: Body { domain: vec![4], instrs: vec![Instr::Load(load)], ..Body::default() },
            stores: vec![Store::new(1, Index::coord(0), 0)],
            slots: vec![(DType::F32, 4); 2],
        };
        let buffer = |place| Buffer { dtype: DType::F32, count: 4, place };
        let mut step = Step::new(0, vec![0, 1], Origin::new("copy"));
        step.in_place = in_place.to_vec();
        Program {
            kernels: vec![kernel],
            buffers: vec![buffer(Place::Arena(0)), buffer(Place::Arena(at))],
            run: vec![step],
            arena_bytes: 32,
            ..Program::default()
        }
    }

    #[test]
    fn what_a_step_says_of_its_memory_is_true() {
        let over = [InPlace { read: 0, written: 1 }];
        assert_eq!(program(16, &[]).problems(), []);
        assert_eq!(program(0, &over).problems(), []);
        for (at, in_place, what) in [
            (0, &[][..], "does not declare"),
            (16, &over, "do not share memory"),
            (8, &over, "at another offset"),
            (16, &[InPlace { read: 0, written: 2 }], "do not share memory"),
            (18, &[], "do not fit its memory or are not aligned there"),
            (20, &[], "do not fit its memory or are not aligned there"),
        ] {
            let problems = program(at, in_place).problems();
            assert!(problems.iter().any(|(_, problem)| problem.contains(what)), "{at}: {problems:?}");
        }
    }

    #[test]
    fn parts_lie_in_their_wholes() {
        let mut program = program(16, &[]);
        program.buffers.push(Buffer { dtype: DType::F32, count: 2, place: Place::Arena(8) });
        program.parts.insert(2, Part { of: 0, at: 2 });
        assert_eq!(program.problems(), []);
        for part in [Part { of: 1, at: 2 }, Part { of: 0, at: 3 }, Part { of: 2, at: 0 }, Part { of: 9, at: 0 }] {
            program.parts.insert(2, part);
            assert!(program.problems()[0].1.contains("is not a range of its memory"), "{part:?}");
        }
    }

    #[test]
    fn who_reads_the_whole_needs_who_writes_a_part() {
        let mut program = program(16, &[]);
        program.outputs = vec![("y".into(), Type::tensor(DType::F32, &[4]))];
        program.buffers.push(Buffer { dtype: DType::F32, count: 4, place: Place::Output(0) });
        program.buffers.push(Buffer { dtype: DType::F32, count: 4, place: Place::Arena(16) });
        program.run = vec![Step::new(0, vec![0, 3], Origin::default()), Step::new(0, vec![1, 2], Origin::default())];
        assert_eq!(program.needed_for(), [[false, false], [true, false]]);
        program.parts.insert(3, Part { of: 1, at: 0 });
        assert_eq!(program.needed_for(), [[true, false], [true, false]]);
    }

    #[test]
    fn steps_bind_what_their_kernels_can_use() {
        let mut program = program(16, &[]);
        program.load = program.run.clone();
        assert!(program.problems()[0].1.contains("do not fit kernel"));
        program.load.clear();
        program.buffers[1].place = Place::Input(0);
        program.inputs = vec![("x".into(), Type::tensor(DType::F32, &[4]))];
        assert_eq!(
            program.problems(),
            [(Origin::new("copy"), "cannot bind the step's buffers because they do not fit kernel 0".to_string())]
        );
        program.run[0].kernel = 1;
        assert_eq!(program.problems().len(), 1);
    }
}
