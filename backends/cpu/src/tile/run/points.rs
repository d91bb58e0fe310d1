//! Pointwise steps, strip by strip of a tile: each step finds the results of the last one in the cache, and the
//! operands of a strip are prefetched while another is computed.

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

/// A pointwise step that runs.
struct PointJob<'a> {
    run: unsafe fn(&PointCall<'_>),
    /// The call for a whole run; it is updated for the next run.
    call: PointCall<'a>,
    loops: &'a Loops,
    past: Option<Past>,
}

/// A value that goes to memory by streaming stores once its strips are computed.
struct Past {
    copy: stream::Copy,
    from: *mut u8,
    to: *mut u8,
    /// Bytes of an element.
    size: usize,
    /// Bytes that are computed, and how many of them are there.
    ready: usize,
    done: usize,
}

impl TileRun<'_> {
    /// Runs pointwise steps that go through the tile in the same runs, unless they `vary` and have to go otherwise.
    ///
    /// # Safety
    /// As [`TileProgram::run`]; the steps before must have been run.
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

    /// Returns whether a step cannot run as planned for tiles of these extents. An argument is in a register if a box
    /// does not cover the tile. A result must not be stored directly if loads read the same memory.
    fn goes_otherwise(&self, id: usize) -> bool {
        let walk = &self.shape.steps[id];
        let TileStep::Point { args, .. } = &self.program.steps[id] else { return false };
        let copied = |&arg: &usize| self.shape.steps[arg].lines.is_some() && self.lines(arg).is_none();
        walk.place == TileLayout::Lines && self.direct(id).is_none() || walk.varies && args.iter().any(copied)
    }

    /// Returns the loops of a step for the current positions of its arguments and its result.
    fn loops(&self, id: usize) -> Loops {
        let place = if self.direct(id).is_some() { self.shape.steps[id].place } else { TileLayout::Copied };
        self.program.loops(self.tile, id, place, &self.shape.steps, |arg| self.lines(arg).is_some())
    }

    /// Returns where the result of a step may be computed to, if it is not its register.
    fn direct(&self, id: usize) -> Option<*mut u8> {
        let may =
            self.frame.direct && self.program.streams.is_none() && self.shape.steps[id].place != TileLayout::Copied;
        self.program.values[id].direct.filter(|_| may).map(|write| self.target(write))
    }

    /// Returns the job of a step. It is inlined, so that jobs are created in place.
    ///
    /// # Safety
    /// The steps of its arguments must have been run, or be run before it strip by strip.
    #[inline(always)]
    unsafe fn job<'a>(&'a self, id: usize, loops: &'a Loops, prefetch: &'a Prefetch) -> PointJob<'a> {
        let TileStep::Point { function, k, args } = &self.program.steps[id] else {
            unreachable!("only pointwise steps run in strips")
        };
        let past = self.past(id).map(|(copy, write)| (copy, self.target(write)));
        // Streaming stores copy whole lines: a load that spans two lines which were just written cannot be
        // store-forwarded.
        let shift = past.map_or(0, |(_, to)| to.addr() % LINE);
        let out = self.direct(id).unwrap_or(self.register(id).wrapping_add(shift));
        let mut call =
            PointCall { out, args: [std::ptr::null(); 3], scalar: loops.scalar, n: loops.n, k: *k, prefetch };
        for (at, &arg) in call.args.iter_mut().zip(args) {
            // SAFETY: arguments were computed before, or are by a job before this one.
            *at = unsafe { self.at(arg).cast_const() };
        }
        // SAFETY: the caller keeps this function's contract.
        unsafe { self.point_to(id, out) };
        let value = &self.program.values[id];
        let size = value.dtype.size();
        debug_assert!(
            value.offset + shift + self.tile.count(value.mask) * size <= self.program.scratch,
            "room for a shift"
        );
        let past = past.map(|(copy, to)| Past { copy, from: out, to, size, ready: 0, done: 0 });
        PointJob { run: function.run, call, loops, past }
    }

    /// Returns the streaming store, and the write, by which a value is stored in strips; `None` for other values.
    pub(super) fn past(&self, id: usize) -> Option<(stream::Copy, usize)> {
        let may = self.frame.direct && self.stores() && self.shape.steps[id].place == TileLayout::Dense;
        self.program.streams.filter(|_| may).zip(self.program.values[id].direct)
    }

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
                    // SAFETY: registers hold the whole tile, and pointers stay within them.
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
                    // SAFETY: registers hold the whole tile, and pointers stay within them.
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
    /// `n` elements of a run, after `done` others.
    ///
    /// # Safety
    /// The arguments must have been computed up to `done + n`.
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
                // The rest of a line waits for the next strip.
                past.copy(past.ready.saturating_sub((past.to.addr() + past.ready) % LINE));
            }
        }
    }

    /// Moves to another run.
    fn go(&mut self, axis: usize, by: isize) {
        let steps = &self.loops.outer()[axis].1;
        (0..3).for_each(|i| self.call.args[i] = self.call.args[i].wrapping_offset(by * steps[i]));
        self.call.out = self.call.out.wrapping_offset(by * steps[3]);
    }
}

impl Past {
    /// Copies the first `until` bytes, except those that were copied before.
    ///
    /// # Safety The value must have been computed up to there.
    unsafe fn copy(&mut self, until: usize) {
        if until > self.done {
            let (to, from) = (self.to.wrapping_add(self.done), self.from.wrapping_add(self.done));
            // SAFETY: the value is computed that far; strips follow each other in its register and in the buffer.
            unsafe { (self.copy)(to, from, until - self.done) };
            self.done = until;
        }
    }
}
