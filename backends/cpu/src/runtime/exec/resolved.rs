//! Runs of other lengths than the longest: the thunks of kernels that vary, resolved once for the lengths and kept.
//!
//! A thunk has every offset, stride and trip count resolved, so each set of lengths has thunks of its own: they take some tens of
//! microseconds to make, loops are cut as those of a program for these lengths, and nothing is asked while they run. Where one length
//! changes, as that of a cache does with each token, kernels that do not depend on it keep their thunks. What is packed and loaded is that
//! of all lengths.

use std::sync::{Arc, PoisonError};

use eutectic_backend::{BackendError, Refusal};

use super::code::{BoundSteps, Code, Resolved, SlotSource, Varying, own_bytes};
use crate::{
    kernels,
    runtime::{
        memory::ALIGN,
        threads::{Pool, Workers},
        thunk::Thunk,
    },
};

/// For so many sets of lengths thunks are kept, those that were used last.
const KEPT: usize = 1024;

impl Code {
    /// The code of runs of such lengths; nothing for the longest, whose code this is.
    ///
    /// # Errors
    /// When lengths are out of bounds, or a kernel cannot be built for them.
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
        let resolved = match known.iter().position(|resolved| resolved.lengths == lengths) {
            Some(at) => known.remove(at),
            None => {
                let excess = (known.len() + 1).saturating_sub(KEPT);
                known.drain(..excess);
                Arc::new(self.resolve(lengths, known.last().map(|last| &**last))?)
            }
        };
        known.push(resolved.clone());
        Ok(Some(resolved))
    }

    /// Resolves the thunks of runs of such lengths. Of runs that came before, those of kernels whose extents are the same are the same.
    fn resolve(&self, lengths: &[usize], before: Option<&Resolved>) -> Result<Resolved, BackendError> {
        let Varying { program, depends, machine, .. } = &self.varying;
        let same = |kernel: usize, resolved: &Resolved| {
            depends[kernel].iter().all(|&extent| resolved.lengths[extent] == lengths[extent])
        };
        let mut thunks: Vec<Option<Arc<dyn Thunk>>> = vec![None; program.kernels.len()];
        let mut resolved = Resolved {
            lengths: lengths.to_vec(),
            run: BoundSteps::default(),
            own_bytes: self.own_bytes,
            passing_bytes: self.passing_bytes,
            scratch: self.scratch,
        };
        for (number, step) in self.run.steps.iter().enumerate() {
            if let Some(old) = before.filter(|before| same(step.kernel, before)).map(|b| &b.run.steps[number]) {
                thunks[step.kernel] = Some(old.thunk.clone());
            }
            let (before, from) = (&self.run.sources[step.slots.clone()], resolved.run.sources.len());
            let mut step = step.clone();
            if program.kernels[step.kernel].varies() {
                let problems = |why: Vec<String>| {
                    let (kernel, origin) = (Some(step.kernel), &step.origin);
                    let problems = why.into_iter().map(|why| Refusal { kernel, origin: origin.clone(), why }).collect();
                    BackendError::Unsupported { backend: "cpu".into(), problems }
                };
                let thunk = match &thunks[step.kernel] {
                    Some(thunk) => thunk.clone(),
                    None => {
                        let kernel = &program.kernels[step.kernel];
                        let thunk =
                            kernels::compile_at(kernel, &program.lengths(lengths), *machine).map_err(problems)?;
                        thunks[step.kernel].insert(thunk.into()).clone()
                    }
                };
                resolved.own_bytes = resolved.own_bytes.max(own_bytes(&*thunk));
                resolved.scratch = resolved.scratch.max(thunk.scratch());
                let sources = &mut resolved.run.sources;
                sources.extend(&before[..step.given]);
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
                        let what = format!("{}: an operand that was packed is not read so: a defect", step.origin);
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
        Ok(resolved)
    }

    /// Who works for a session whose runs take so many bytes of scratch memory.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn workers(&self, scratch: usize) -> Result<Workers, BackendError> {
        if scratch <= self.scratch {
            return Ok(Workers::new(self.pool.clone(), self.scratch));
        }
        let mut larger = self.varying.larger.lock().unwrap_or_else(PoisonError::into_inner);
        match &*larger {
            Some((most, pool)) if scratch <= *most => Ok(Workers::new(pool.clone(), *most)),
            _ => {
                let most = scratch.next_power_of_two();
                let pool = Arc::new(Pool::new(self.varying.machine.threads, most)?);
                *larger = Some((most, pool.clone()));
                Ok(Workers::new(pool, most))
            }
        }
    }
}
