//! Compiles the code for runs whose lengths (extents at run time) are not maximal.
//!
//! In a thunk, every offset, stride and trip count is resolved. So each set of lengths has thunks of its own, which are
//! compiled once and cached. Compiling a thunk takes some tens of microseconds, and its loops are as fast as those of a
//! program with fixed extents. If one length changes (as with each token that a cache of keys takes in), kernels that
//! do not depend on that length keep their thunks. All lengths share packed operands and results of the load program.

use std::sync::{Arc, PoisonError};

use eutectic_backend::{BackendError, Refusal};

use super::{
    code::{Code, Varying, own_bytes},
    known_lengths::Resolved,
    steps::{BoundSteps, SlotSource},
};
use crate::{
    kernels,
    runtime::{
        memory::ALIGN,
        threads::{Pool, Workers},
        thunk::Thunk,
    },
};

impl Code {
    /// Returns the code for runs of these lengths; `None` for the maximal lengths, for which `self` is the code.
    ///
    /// # Errors
    /// If lengths are out of bounds, or a kernel cannot be built for these lengths.
    pub fn resolved(&self, lengths: &[usize]) -> Result<Option<Arc<Resolved>>, BackendError> {
        let program = &self.varying.program;
        program.check_lengths(lengths)?;
        let longest = |(symbol, &length): (&eutectic_ir::Symbol, &usize)| {
            symbol.bounds.is_some_and(|(_, most)| usize::try_from(most) == Ok(length))
        };
        if program.extents.iter().zip(lengths).all(longest) {
            return Ok(None);
        }
        let mut known = self.varying.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(lengths, |last| self.resolve(lengths, last)).map(Some)
    }

    /// Compiles the thunks for runs of these lengths. A kernel shares its thunk with `before`, the code that was used
    /// last, if all lengths on which the kernel depends are equal.
    fn resolve(&self, lengths: &[usize], before: Option<&Resolved>) -> Result<Resolved, BackendError> {
        let Varying { program, depends, ways, machine, .. } = &self.varying;
        let same = |kernel: usize, resolved: &Resolved| {
            depends[kernel].iter().all(|&extent| resolved.lengths[extent] == lengths[extent])
        };
        let mut thunks: Vec<Option<Arc<dyn Thunk>>> = vec![None; program.kernels.len()];
        let mut resolved = Resolved {
            lengths: lengths.to_vec(),
            run: BoundSteps {
                steps: Vec::with_capacity(self.run.steps.len()),
                sources: Vec::with_capacity(self.run.sources.len()),
                exits: Vec::with_capacity(self.run.exits.len()),
            },
            own_bytes: self.own_bytes,
            passing_bytes: self.passing_bytes,
            scratch: self.scratch,
        };
        for (number, step) in self.run.steps.iter().enumerate() {
            let kernel = step.facts.kernel;
            if let Some(old) = before.filter(|before| same(kernel, before)).map(|b| &b.run.steps[number]) {
                thunks[kernel] = Some(old.thunk.clone());
            }
            let (before, from) = (&self.run.sources[step.slots.clone()], resolved.run.sources.len());
            let mut step = step.clone();
            if !depends[kernel].is_empty() {
                let problems = |why: Vec<String>| {
                    let (kernel, origin) = (Some(kernel), &step.facts.origin);
                    let problems = why.into_iter().map(|why| Refusal { kernel, origin: origin.clone(), why }).collect();
                    BackendError::Unsupported { backend: "cpu".into(), problems }
                };
                let thunk = match &thunks[kernel] {
                    Some(thunk) => thunk.clone(),
                    None => {
                        let (varying, way) = (&program.kernels[kernel], ways[kernel]);
                        let thunk =
                            kernels::compile_at(varying, &program.lengths(lengths), way, *machine).map_err(problems)?;
                        thunks[kernel].insert(thunk.into()).clone()
                    }
                };
                resolved.own_bytes = resolved.own_bytes.max(own_bytes(&*thunk));
                resolved.scratch = resolved.scratch.max(thunk.scratch());
                let sources = &mut resolved.run.sources;
                sources.extend(&before[..step.facts.given]);
                let mut own = 0;
                for bytes in thunk.buffers() {
                    sources.push(SlotSource::Own(own));
                    own += bytes.next_multiple_of(ALIGN);
                }
                let packed = before.last().copied().filter(|source| matches!(source, SlotSource::Packed(_)));
                step.packs = false;
                match (thunk.constant(), packed) {
                    (Some(_), Some(packed)) => sources.push(packed),
                    (Some(constant), None) if constant.each_run => {
                        resolved.passing_bytes = resolved.passing_bytes.max(constant.bytes);
                        step.packs = true;
                        sources.push(SlotSource::Passing);
                    }
                    (Some(_), None) => sources.push(SlotSource::Nowhere),
                    (None, None) => {}
                    (None, Some(_)) => {
                        let what = format!(
                            "{}: cannot run with these lengths because the recompiled kernel reads no packed operand; \
                             this is a defect of the backend",
                            step.facts.origin
                        );
                        return Err(BackendError::Device(what));
                    }
                }
                step.thunk = thunk;
            } else {
                resolved.run.sources.extend(before);
            }
            step.slots = from..resolved.run.sources.len();
            resolved.run.steps.push(step);
        }
        resolved.run.exit_as(&self.run);
        Ok(resolved)
    }

    /// Returns the workers of a session whose runs take `scratch` bytes of scratch memory.
    ///
    /// # Errors
    /// If there is too little memory, or threads cannot be started.
    pub fn workers(&self, scratch: usize) -> Result<Workers, BackendError> {
        if scratch <= self.scratch {
            return Workers::new(self.pool.clone(), self.scratch);
        }
        let mut larger = self.varying.larger.lock().unwrap_or_else(PoisonError::into_inner);
        match &*larger {
            Some((most, pool)) if scratch <= *most => Workers::new(pool.clone(), *most),
            _ => {
                let most = scratch.next_power_of_two();
                let pool = Arc::new(Pool::new(self.varying.machine.threads, most)?);
                *larger = Some((most, pool.clone()));
                Workers::new(pool, most)
            }
        }
    }
}
