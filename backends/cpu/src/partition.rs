//! Threads that share the tasks of a kernel.
//!
//! How a kernel is cut into tasks depends on its shape alone, never on the number of threads: so results do not either.

use eutectic_backend::BackendError;

use crate::memory::Block;

/// The threads of a program, each with its scratch memory.
pub struct Workers {
    pool: Option<rayon::ThreadPool>,
    scratch: Vec<Block>,
}

impl Workers {
    /// `threads` threads with `scratch` bytes each. One thread is the caller's own.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn new(threads: usize, scratch: usize) -> Result<Workers, BackendError> {
        let threads = threads.max(1);
        let pool = (threads > 1)
            .then(|| rayon::ThreadPoolBuilder::new().num_threads(threads).build())
            .transpose()
            .map_err(|e| BackendError::Device(format!("cannot start {threads} threads: {e}")))?;
        Ok(Workers { pool, scratch: (0..threads).map(|_| Block::new(scratch)).collect() })
    }

    /// Runs `work` on one of the threads, from where [`Workers::for_each`] reaches the others without a detour.
    pub fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Calls `task(n, scratch)` for each `n` below `tasks`; one after the other if `serial`. Call it within
    /// [`Workers::enter`].
    pub fn for_each(&self, tasks: usize, serial: bool, task: &(dyn Fn(usize, *mut u8) + Sync)) {
        if self.pool.is_none() || serial || tasks < 2 {
            let scratch = self.own_scratch();
            (0..tasks).for_each(|n| task(n, scratch));
        } else {
            self.split(0, tasks, task);
        }
    }

    fn split(&self, from: usize, to: usize, task: &(dyn Fn(usize, *mut u8) + Sync)) {
        if to - from == 1 {
            return task(from, self.own_scratch());
        }
        let middle = from + (to - from) / 2;
        rayon::join(|| self.split(from, middle, task), || self.split(middle, to, task));
    }

    fn own_scratch(&self) -> *mut u8 {
        let me = self.pool.as_ref().and_then(|pool| pool.current_thread_index()).unwrap_or(0);
        self.scratch[me].at()
    }
}
