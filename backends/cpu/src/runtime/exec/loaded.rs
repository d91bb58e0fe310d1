//! Parameters and the results of the load program, which sessions share.
//!
//! Loading keeps few intermediate results in memory. An operand is packed as soon as its source is computed. A result
//! that runs do not read is freed after the last load step or packing that reads it. If parameters are replaced, the
//! new program shares all unchanged memory with the old one.

use std::sync::Arc;

use eutectic_backend::BackendError;
use eutectic_ir::Tensor;

use super::{
    check::{expect, wrong},
    code::Code,
    pointer::{Aligned, NOWHERE, Pointer},
    steps::{BoundSteps, SlotSource},
};
use crate::runtime::{
    fault::IndexFault,
    memory::{ALIGN, Pages},
    threads::Workers,
};

/// A range of a block of memory, from byte `from` on. Programs with replaced parameters share the block.
#[derive(Clone)]
struct SharedPart {
    block: Arc<Pages>,
    from: usize,
}

impl SharedPart {
    fn at(&self) -> *mut u8 {
        self.block.at().wrapping_add(self.from)
    }
}

/// A program with its parameters.
pub struct CpuLoaded {
    pub code: Arc<Code>,
    values: Values,
}

/// The parameters, results of the load program and packed operands, by number; `None` for memory that was freed.
#[derive(Clone)]
struct Values {
    params: Vec<Option<Arc<Aligned>>>,
    loaded: Vec<Option<SharedPart>>,
    packed: Vec<Option<SharedPart>>,
}

/// A load step, or the packing of an operand, when parameters are loaded.
struct LoadAction {
    what: What,
    /// The parameters and results of earlier actions that the action reads.
    reads: Vec<SlotSource>,
    /// The results of the action.
    writes: Vec<SlotSource>,
}

#[derive(Clone, Copy)]
enum What {
    /// The step of the load program with this number.
    Step(usize),
    /// The packing of the constant operand with this number.
    Pack(usize),
}

/// Loads the parameters of a program, and runs the load program.
///
/// # Errors
/// If a parameter's type is not the program's, or an index is out of range.
pub fn load(code: Arc<Code>, params: &[Tensor]) -> Result<CpuLoaded, BackendError> {
    expect("parameter", params.len(), code.params.len())?;
    for (n, param) in params.iter().enumerate() {
        fits(&code, n, param)?;
    }
    let actions = actions(&code);
    let values = Values {
        params: vec![None; params.len()],
        loaded: vec![None; code.loaded_bytes.len()],
        packed: vec![None; code.packed.len()],
    };
    let given = params.iter().cloned().map(Some).collect();
    let todo = vec![true; actions.len()];
    Loading::new(&code, &actions, &todo, values, given).run().map(|values| CpuLoaded { code, values })
}

fn fits(code: &Code, n: usize, param: &Tensor) -> Result<(), BackendError> {
    let Some((name, ty)) = code.params.get(n) else {
        let count = code.params.len();
        let problem = format!("cannot replace it because the program has only {count} parameters, counted from 0");
        return Err(wrong("parameter", &n.to_string(), problem));
    };
    match param.ty() == *ty {
        true => Ok(()),
        false => Err(wrong("parameter", name, format!("cannot take {} because the program takes {ty}", param.ty()))),
    }
}

/// Returns the load steps and packings in an order that keeps live ranges of intermediate results short.
fn actions(code: &Code) -> Vec<LoadAction> {
    let mut actions = Vec::new();
    let mut there = vec![false; code.loaded_bytes.len()];
    let mut packed = vec![false; code.packed.len()];
    let mut pack = |there: &[bool], actions: &mut Vec<LoadAction>| {
        for (n, constant) in code.packed.iter().enumerate().filter(|(n, _)| !packed[*n]).collect::<Vec<_>>() {
            let from = code.run.steps[constant.step].slots.start;
            let reads: Vec<_> = constant.reads.iter().map(|&slot| code.run.sources[from + slot]).collect();
            if reads.iter().all(|read| !matches!(read, SlotSource::Loaded(n) if !there[*n])) {
                packed[n] = true;
                actions.push(LoadAction { what: What::Pack(n), reads, writes: vec![SlotSource::Packed(n)] });
            }
        }
    };
    pack(&there, &mut actions);
    for (n, step) in code.load.steps.iter().enumerate() {
        let sources = || code.load.sources[step.slots.clone()].iter().copied().enumerate();
        let writes: Vec<_> = sources().filter(|(slot, _)| step.facts.stores.contains(slot)).map(|s| s.1).collect();
        let given = |source: &SlotSource| {
            matches!(source, SlotSource::Param(_) | SlotSource::Loaded(_)) && !writes.contains(source)
        };
        let reads = sources().map(|s| s.1).filter(given).collect();
        for write in &writes {
            if let SlotSource::Loaded(n) = write {
                there[*n] = true;
            }
        }
        actions.push(LoadAction { what: What::Step(n), reads, writes });
        pack(&there, &mut actions);
    }
    actions
}

impl Code {
    /// Returns whether a step of a run reads a source of memory itself, instead of a packed operand.
    fn reads(&self, source: SlotSource) -> bool {
        self.run.sources.iter().zip(&self.read).any(|(s, read)| *read && *s == source)
    }
}

/// The state while parameters are loaded.
struct Loading<'a> {
    code: &'a Code,
    actions: &'a [LoadAction],
    todo: &'a [bool],
    values: Values,
    given: Vec<Option<Tensor>>,
    /// For each parameter, and for each result of a load step, the number of remaining actions that read it.
    uses: (Vec<usize>, Vec<usize>),
}

impl<'a> Loading<'a> {
    fn new(
        code: &'a Code,
        actions: &'a [LoadAction],
        todo: &'a [bool],
        values: Values,
        given: Vec<Option<Tensor>>,
    ) -> Loading<'a> {
        let mut uses = (vec![0; values.params.len()], vec![0; values.loaded.len()]);
        for action in actions.iter().zip(todo).filter(|(_, todo)| **todo).map(|(action, _)| action) {
            for read in &action.reads {
                match *read {
                    SlotSource::Param(n) => uses.0[n] += 1,
                    SlotSource::Loaded(n) => uses.1[n] += 1,
                    _ => {}
                }
            }
        }
        Loading { code, actions, todo, values, given, uses }
    }

    fn run(mut self) -> Result<Values, BackendError> {
        let code = self.code;
        let kept_params: Vec<_> = (0..self.given.len()).map(|n| code.reads(SlotSource::Param(n))).collect();
        let kept: Vec<_> =
            code.loaded_bytes.iter().enumerate().map(|(n, _)| code.reads(SlotSource::Loaded(n))).collect();
        self.place(&kept);
        for (n, given) in self.given.iter().enumerate().filter(|(n, _)| kept_params[*n]) {
            if let Some(tensor) = given {
                self.values.params[n] = Some(Arc::new(Aligned::new(tensor)));
            }
        }
        let workers = Workers::new(code.pool.clone(), code.scratch)?;
        let (own, fault) = (Pages::new(code.own_bytes), IndexFault::default());
        let packs = code.load.sources.iter().any(|source| matches!(source, SlotSource::Passing));
        let passing = Pages::new(if packs { code.passing_bytes } else { 0 });
        for (action, _) in self.actions.iter().zip(self.todo).filter(|(_, todo)| **todo) {
            for source in action.reads.iter().chain(&action.writes) {
                match *source {
                    // Runs do not read this parameter. If it is misaligned, a copy exists until the last action has
                    // read it.
                    SlotSource::Param(n) if self.values.params[n].is_none() => {
                        self.values.params[n] = self.given[n].as_ref().map(|t| Arc::new(Aligned::new(t)));
                    }
                    SlotSource::Loaded(n) if self.values.loaded[n].is_none() => {
                        let block = Arc::new(Pages::new(code.loaded_bytes[n]));
                        self.values.loaded[n] = Some(SharedPart { block, from: 0 });
                    }
                    _ => {}
                }
            }
            let steps = if let What::Step(_) = action.what { &code.load } else { &code.run };
            let slots = self.slots(steps, self.step(action), &own, &passing);
            // SAFETY: slots of the step point to memory of their size, and no session uses the results yet.
            unsafe {
                match action.what {
                    What::Step(n) => steps.run_one(n, &slots, &workers, &fault)?,
                    What::Pack(_) => steps.steps[self.step(action)].pack(&slots, &workers, &fault)?,
                }
            }
            for read in &action.reads {
                match *read {
                    SlotSource::Param(n) => {
                        self.uses.0[n] -= 1;
                        if self.uses.0[n] == 0 && !kept_params[n] {
                            (self.values.params[n], self.given[n]) = (None, None);
                        }
                    }
                    SlotSource::Loaded(n) => {
                        self.uses.1[n] -= 1;
                        if self.uses.1[n] == 0 && !kept[n] {
                            self.values.loaded[n] = None;
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(self.values)
    }

    /// Returns the number of the step whose slots an action uses: of the load program for a step, and of the run
    /// program for a packing.
    fn step(&self, action: &LoadAction) -> usize {
        match action.what {
            What::Step(n) => n,
            What::Pack(n) => self.code.packed[n].step,
        }
    }

    /// Allocates one block for all results that stay in memory after loading. `kept` says which results of the load
    /// program do.
    fn place(&mut self, kept: &[bool]) {
        let mut bytes = 0;
        let mut places = Vec::new();
        let todo = self.actions.iter().zip(self.todo).filter(|(_, todo)| **todo);
        for write in todo.flat_map(|(action, _)| &action.writes) {
            let size = match *write {
                SlotSource::Loaded(n) => {
                    // The old result belongs to the program whose parameters are replaced.
                    self.values.loaded[n] = None;
                    if !kept[n] {
                        continue;
                    }
                    self.code.loaded_bytes[n]
                }
                SlotSource::Packed(n) => self.code.packed[n].bytes,
                _ => continue,
            };
            places.push((*write, bytes));
            bytes += size.next_multiple_of(ALIGN);
        }
        let block = Arc::new(Pages::new(bytes));
        for (write, from) in places {
            let piece = Some(SharedPart { block: block.clone(), from });
            match write {
                SlotSource::Loaded(n) => self.values.loaded[n] = piece,
                SlotSource::Packed(n) => self.values.packed[n] = piece,
                _ => unreachable!("only loaded and packed values are in the block"),
            }
        }
    }

    /// Returns a table of slots in which the slots of one step have addresses.
    fn slots(&self, steps: &BoundSteps, step: usize, own: &Pages, passing: &Pages) -> Vec<Pointer> {
        let mut slots = vec![NOWHERE; steps.sources.len()];
        for slot in steps.steps[step].slots.clone() {
            slots[slot] = match steps.sources[slot] {
                SlotSource::Passing => Pointer(passing.at()),
                source => self.values.at(self.code, source, own),
            };
        }
        slots
    }
}

impl Values {
    /// Returns the address of a source that all sessions share; null for memory of a session. `own` is the additional
    /// memory of thunks.
    fn at(&self, code: &Code, source: SlotSource, own: &Pages) -> Pointer {
        let piece = |piece: &Option<SharedPart>| piece.as_ref().map_or(NOWHERE, |p| Pointer(p.at()));
        match source {
            SlotSource::Const(n) => Pointer(code.constants[n].at()),
            SlotSource::Param(n) => self.params[n].as_ref().map_or(NOWHERE, |p| Pointer(p.at())),
            SlotSource::Loaded(n) => piece(&self.loaded[n]),
            SlotSource::Packed(n) => piece(&self.packed[n]),
            SlotSource::Own(at) => Pointer(own.at().wrapping_add(at)),
            SlotSource::Arena(_) | SlotSource::Port(_) | SlotSource::Passing | SlotSource::Nowhere => NOWHERE,
        }
    }
}

impl CpuLoaded {
    /// Returns the address of a source that all sessions share; null for memory of a session. `own` is the additional
    /// memory of thunks.
    pub fn at(&self, source: SlotSource, own: &Pages) -> Pointer {
        self.values.at(&self.code, source, own)
    }

    /// Returns, for each action, whether a replacement of parameters repeats it. This is so if the action depends on
    /// the parameters, or if its result was freed and a repeated action reads it.
    fn dependents(&self, actions: &[LoadAction], replaced: &[Option<Tensor>]) -> Vec<bool> {
        let mut changed = vec![false; self.values.loaded.len()];
        let mut todo = vec![false; actions.len()];
        for (action, todo) in actions.iter().zip(&mut todo) {
            let depends = |read: &SlotSource| match *read {
                SlotSource::Param(n) => replaced[n].is_some(),
                SlotSource::Loaded(n) => changed[n],
                _ => false,
            };
            *todo = action.reads.iter().any(depends);
            for write in action.writes.iter().filter(|_| *todo) {
                if let SlotSource::Loaded(n) = write {
                    changed[*n] = true;
                }
            }
        }
        let mut wanted = vec![false; self.values.loaded.len()];
        for (action, todo) in actions.iter().zip(&mut todo).rev() {
            *todo |= action.writes.iter().any(|write| matches!(write, SlotSource::Loaded(n) if wanted[*n]));
            for read in action.reads.iter().filter(|_| *todo) {
                if let SlotSource::Loaded(n) = read {
                    wanted[*n] |= self.values.loaded[*n].is_none();
                }
            }
        }
        todo
    }

    /// Returns the program with some parameters replaced, by number. It shares all values that depend on none of them.
    ///
    /// # Errors
    /// If a parameter's type is not the program's, a needed parameter was freed, or an index is out of range.
    pub fn replace(&self, params: &[(usize, Tensor)]) -> Result<CpuLoaded, BackendError> {
        let code = &self.code;
        let mut given: Vec<Option<Tensor>> = vec![None; code.params.len()];
        for (n, param) in params {
            fits(code, *n, param)?;
            given[*n] = Some(param.clone());
        }
        let actions = actions(code);
        let todo = self.dependents(&actions, &given);
        let mut released: Vec<usize> = Vec::new();
        for read in actions.iter().zip(&todo).filter(|(_, todo)| **todo).flat_map(|(action, _)| &action.reads) {
            if let SlotSource::Param(n) = *read
                && given[n].is_none()
                && self.values.params[n].is_none()
                && !released.contains(&n)
            {
                released.push(n);
            }
        }
        if !released.is_empty() {
            let names = released.into_iter().map(|n| format!("`{}`", code.params[n].0)).collect();
            return Err(BackendError::Released(names));
        }
        let mut values = self.values.clone();
        values.params.iter_mut().zip(&given).filter(|(_, given)| given.is_some()).for_each(|(value, _)| *value = None);
        let values = Loading::new(code, &actions, &todo, values, given).run()?;
        Ok(CpuLoaded { code: code.clone(), values })
    }

    /// Returns the bytes of parameters, constants, results of the load program and packed operands.
    pub fn bytes(&self) -> usize {
        let params = self.values.params.iter().zip(&self.code.params).filter(|(value, _)| value.is_some());
        let params: usize = params.map(|(_, (_, ty))| ty.bytes()).sum();
        let constants: usize = self.code.constants.iter().map(Aligned::bytes).sum();
        let mut blocks: Vec<&Arc<Pages>> =
            self.values.loaded.iter().chain(&self.values.packed).flatten().map(|piece| &piece.block).collect();
        blocks.sort_unstable_by_key(|block| Arc::as_ptr(block));
        blocks.dedup_by(|a, b| Arc::ptr_eq(a, b));
        params + constants + blocks.into_iter().map(|block| block.bytes()).sum::<usize>()
    }
}
