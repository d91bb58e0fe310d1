//! Executes pointwise steps together, one strip of a tile after the other. Each step thus finds the results of the step
//! before in the first-level cache. The operands of a strip are prefetched during the computation of an earlier strip.

use std::mem::MaybeUninit;

use super::TileRun;
use crate::{
    simd::{
        pointwise::PointCall,
        prefetch::Prefetch,
        stream::{self, LINE},
    },
    tile::{
        domain::MAX_RANK,
        loops::Loops,
        program::TileStep,
        shape::{TOGETHER, TileLayout},
    },
};

/// The execution of a pointwise step.
struct PointJob<'a> {
    run: unsafe fn(&PointCall<'_>),
    /// The arguments of the function for the current run (the innermost loop).
    call: PointCall<'a>,
    loops: &'a Loops,
    past: Option<Past>,
}

/// A value that is copied to its buffer with streaming stores, after each strip.
struct Past {
    copy: stream::Copy,
    from: *mut u8,
    to: *mut u8,
    /// The bytes of an element.
    size: usize,
    /// The number of bytes that were computed.
    ready: usize,
    /// The number of bytes that were copied.
    done: usize,
}

impl TileRun<'_> {
    /// Executes pointwise steps together, strip by strip. If they `vary` and one of them needs other loops than
    /// planned, they are executed one after the other.
    ///
    /// # Safety
    /// As [`TileProgram::run`](crate::tile::TileProgram::run). All steps before must have been executed.
    pub(super) unsafe fn points(&self, ids: &[usize], vary: bool, prefetch: &Prefetch) {
        // SAFETY: the caller keeps this function's contract.
        unsafe {
            if vary && ids.iter().any(|&id| self.goes_otherwise(id)) {
                return ids
                    .iter()
                    .for_each(|&id| self.strips(&mut [self.job(id, &self.loops(id), prefetch)], prefetch));
            }
            let loops = |id: usize| &self.shape.steps[id].loops;
            if let [id] = ids {
                return self.strips(&mut [self.job(*id, loops(*id), prefetch)], prefetch);
            }
            let mut jobs = [const { MaybeUninit::uninit() }; TOGETHER];
            for (job, &id) in jobs.iter_mut().zip(ids) {
                job.write(self.job(id, loops(id), prefetch));
            }
            self.strips(jobs[..ids.len()].assume_init_mut(), prefetch);
        }
    }

    /// Returns whether a step needs other loops than planned for tiles of these extents. This is so if an argument is
    /// in a register because a box does not cover the tile, or if the result must be computed into a register because
    /// loads read its buffer.
    fn goes_otherwise(&self, id: usize) -> bool {
        let walk = &self.shape.steps[id];
        let TileStep::Point { args, .. } = &self.program.steps[id] else { return false };
        let copied = |&arg: &usize| self.shape.steps[arg].lines.is_some() && self.lines(arg).is_none();
        walk.place == TileLayout::Lines && self.direct(id).is_none() || walk.varies && args.iter().any(copied)
    }

    /// Returns the loops of a step for the current layouts of its arguments and its result.
    fn loops(&self, id: usize) -> Loops {
        let place = if self.direct(id).is_some() { self.shape.steps[id].place } else { TileLayout::Copied };
        self.program.loops(self.tile, id, place, &self.shape.steps, |arg| self.lines(arg).is_some())
    }

    /// Returns the address in a buffer to which the result of a step can be computed directly; `None` if it must be
    /// computed into its register.
    fn direct(&self, id: usize) -> Option<*mut u8> {
        let may =
            self.frame.direct && self.program.streams.is_none() && self.shape.steps[id].place != TileLayout::Copied;
        self.program.values[id].direct.filter(|_| may).map(|write| self.target(write))
    }

    /// Returns the job of a step. The function is inlined, so that jobs are not copied.
    ///
    /// # Safety
    /// The steps of the arguments must have been executed, or be executed before this step in each strip.
    #[inline(always)]
    unsafe fn job<'a>(&'a self, id: usize, loops: &'a Loops, prefetch: &'a Prefetch) -> PointJob<'a> {
        let TileStep::Point { function, k, args } = &self.program.steps[id] else {
            unreachable!("only pointwise steps run in strips")
        };
        let past = self.past(id).map(|(copy, write)| (copy, self.target(write)));
        // The register gets the offset of the target within a cache line. Each streaming store then loads one whole
        // line of the register; a load that spans two lines that were just written cannot be store-forwarded.
        let shift = past.map_or(0, |(_, to)| to.addr() % LINE);
        let out = self.direct(id).unwrap_or(self.register(id).wrapping_add(shift));
        let mut call =
            PointCall { out, args: [std::ptr::null(); 3], scalar: loops.scalar, n: loops.n, k: *k, prefetch };
        for (at, &arg) in call.args.iter_mut().zip(args) {
            // SAFETY: the address of an argument is set, because its step was executed or its job was created.
            *at = unsafe { self.at(arg).cast_const() };
        }
        // SAFETY: the caller keeps this function's contract.
        unsafe { self.point_to(id, out) };
        let value = &self.program.values[id];
        let size = value.dtype.size();
        debug_assert!(
            value.offset + shift + self.tile.count(value.mask) * size <= self.program.scratch,
            "the register has room for the shift"
        );
        let past = past.map(|(copy, to)| Past { copy, from: out, to, size, ready: 0, done: 0 });
        PointJob { run: function.run, call, loops, past }
    }

    /// Returns the streaming copy and the number of the write, if the value is stored strip by strip.
    pub(super) fn past(&self, id: usize) -> Option<(stream::Copy, usize)> {
        let may = self.frame.direct && self.stores() && self.shape.steps[id].place == TileLayout::Dense;
        self.program.streams.filter(|_| may).zip(self.program.values[id].direct)
    }

    /// Executes jobs with equal loops, strip by strip.
    ///
    /// # Safety
    /// As [`TileRun::points`].
    unsafe fn strips(&self, jobs: &mut [PointJob<'_>], prefetch: &Prefetch) {
        let Some(loops) = jobs.first().map(|job| job.loops) else { return };
        if loops.n == 0 || loops.outer().iter().any(|o| o.0 == 0) {
            return;
        }
        let mut point = [0_usize; MAX_RANK];
        loop {
            let mut done = 0;
            while done < loops.n {
                let n = self.shape.piece.min(loops.n - done);
                for job in jobs.iter_mut() {
                    // SAFETY: registers have room for the whole tile, and all pointers are within them.
                    unsafe { job.strip(done, n) };
                    if self.shape.between {
                        prefetch.issue();
                    }
                }
                done += n;
            }
            let mut axis = 0;
            loop {
                let Some(&(count, _)) = loops.outer().get(axis) else {
                    // SAFETY: all elements of the tile were computed.
                    return unsafe { jobs.iter_mut().filter_map(|j| j.past.as_mut()).for_each(|p| p.copy(p.ready)) };
                };
                point[axis] += 1;
                let more = point[axis] < count;
                let by = if more { 1 } else { 1 - count as isize };
                jobs.iter_mut().for_each(|job| job.go(axis, by));
                if more {
                    break;
                }
                point[axis] = 0;
                axis += 1;
            }
        }
    }
}

impl PointJob<'_> {
    /// Computes `n` elements of the current run, from element `done` on.
    ///
    /// # Safety
    /// The arguments must have been computed up to element `done + n`.
    unsafe fn strip(&mut self, done: usize, n: usize) {
        // SAFETY: the caller keeps this function's contract.
        unsafe {
            if n == self.call.n {
                (self.run)(&self.call);
            } else {
                let by = self.loops.unit.map(|unit| done as isize * unit);
                let args = std::array::from_fn(|i| self.call.args[i].wrapping_offset(by[i]));
                (self.run)(&PointCall { out: self.call.out.wrapping_offset(by[3]), args, n, ..self.call });
            }
            if let Some(past) = &mut self.past {
                past.ready += n * past.size;
                // Only whole cache lines are copied; the rest of the last line waits for the next strip.
                past.copy(past.ready.saturating_sub((past.to.addr() + past.ready) % LINE));
            }
        }
    }

    /// Moves the pointers to another run: by `by` iterations of a loop.
    fn go(&mut self, axis: usize, by: isize) {
        let steps = &self.loops.outer()[axis].1;
        (0..3).for_each(|i| self.call.args[i] = self.call.args[i].wrapping_offset(by * steps[i]));
        self.call.out = self.call.out.wrapping_offset(by * steps[3]);
    }
}

impl Past {
    /// Copies the value up to byte `until`, except for bytes that were copied before.
    ///
    /// # Safety
    /// The value must have been computed up to byte `until`.
    unsafe fn copy(&mut self, until: usize) {
        if until > self.done {
            let (to, from) = (self.to.wrapping_add(self.done), self.from.wrapping_add(self.done));
            // SAFETY: the caller promises the computed bytes, and strips are contiguous in the register and in the
            // buffer.
            unsafe { (self.copy)(to, from, until - self.done) };
            self.done = until;
        }
    }
}
