//! Threads that share the tasks of a kernel.
//!
//! Results never depend on the number of threads. Most kernels are divided into tasks by their shape alone. Products
//! are divided by the number of threads too, but in a way that does not change results.
//!
//! The caller publishes a job (the tasks of a kernel) and works on it. The other threads, the helpers, spin for the
//! next job for a while before they sleep. So between the kernels of a run they start in a fraction of a microsecond,
//! while waking a thread takes ten microseconds.
//!
//! The helpers belong to a program, and help one of its sessions at a time. A session that finds them busy runs its
//! kernel alone, so that sessions on several threads do not wait for each other.
//!
//! Each thread starts with its own share of the tasks: an interval of task numbers. When its share is done, it takes
//! tasks from other shares. In all jobs with one number of tasks, a thread's share is equal. So a core usually finds
//! data in its caches, from the previous kernel or from the previous run.

use std::sync::{
    Arc, Condvar, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering},
};

use eutectic_backend::BackendError;

use super::memory::Pages;

/// The number of polls for work before a helper sleeps. They take about a tenth of a millisecond.
const LOOKS: usize = 4000;
/// The number of polls between two yields of the processor. Helpers yield because there may be more threads than cores.
const YIELD: usize = 500;

/// The function that executes a task, given the task's number and the thread's scratch memory.
type Task<'a> = &'a (dyn Fn(usize, *mut u8) + Sync);

/// The tasks of one kernel.
struct Job<'a> {
    task: Task<'a>,
    tasks: usize,
    /// The number of tasks that helpers have finished.
    done: AtomicUsize,
}

/// The number of tasks that were taken from a thread's share, including failed attempts on an empty share. The
/// alignment gives each counter its own cache line, so that threads do not invalidate each other's counters.
#[derive(Default)]
#[repr(align(128))]
struct Taken(AtomicUsize);

/// The state that the threads share.
#[derive(Default)]
struct SharedTeam {
    /// Whether the helpers have a job.
    taken_up: AtomicBool,
    /// The number of tasks of the current job that no thread has claimed. A thread that decrements the number has
    /// claimed one task, and then finds one in some share.
    left: AtomicUsize,
    /// One counter per thread's share.
    taken: Vec<Taken>,
    /// The current job. The pointer is valid while a claimed task is unfinished, because the owner of the job waits for
    /// all claimed tasks.
    job: AtomicPtr<Job<'static>>,
    /// The number of helpers that sleep, or are about to sleep.
    asleep: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
    quit: AtomicBool,
}

/// The threads that help the sessions of a program, each with its scratch memory.
pub struct Pool {
    /// The state that the threads share; `None` if callers work alone.
    team: Option<Arc<SharedTeam>>,
    /// The owner of the threads.
    _threads: Option<rayon::ThreadPool>,
}

impl Pool {
    /// Starts a pool of `threads` threads, one of which is the caller's own. Each of the others has `scratch` bytes of
    /// scratch memory.
    ///
    /// # Errors
    /// If there is too little memory, or threads cannot be started.
    pub fn new(threads: usize, scratch: usize) -> Result<Pool, BackendError> {
        if threads <= 1 {
            return Ok(Pool { team: None, _threads: None });
        }
        let blocks = (1..threads).map(|_| Pages::try_new(scratch)).collect::<Result<Vec<_>, _>>()?;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads - 1)
            .thread_name(|n| format!("eutectic-{}", n + 1))
            .build()
            .map_err(|e| BackendError::Device(format!("cannot start {threads} threads: {e}")))?;
        let team = Arc::new(SharedTeam::new(threads));
        let (shared, blocks) = (team.clone(), Arc::new(blocks));
        pool.spawn_broadcast(move |context| {
            let thread = context.index() + 1;
            shared.help(thread, blocks[thread - 1].at());
        });
        Ok(Pool { team: Some(team), _threads: Some(pool) })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(team) = &self.team {
            team.quit.store(true, Ordering::SeqCst);
            team.wake_all();
        }
    }
}

/// The workers of a session: the calling thread, with scratch memory of the session, and the threads that help it.
pub struct Workers {
    pool: Arc<Pool>,
    scratch: Pages,
}

impl Workers {
    /// Returns the workers of a pool, with `scratch` bytes for the caller.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new(pool: Arc<Pool>, scratch: usize) -> Result<Workers, BackendError> {
        Ok(Workers { pool, scratch: Pages::try_new(scratch)? })
    }

    /// Calls `task(n, scratch)` for each `n` below `tasks`. If `serial` is set, all calls are on the caller's thread. A
    /// task must not call `for_each`.
    pub fn for_each(&self, tasks: usize, serial: bool, task: Task<'_>) {
        let scratch = self.scratch.at();
        let shared = match &self.pool.team {
            Some(team) if !serial && tasks > 1 => team.share(tasks, task, scratch),
            _ => false,
        };
        if !shared {
            (0..tasks).for_each(|n| task(n, scratch));
        }
    }
}

impl SharedTeam {
    fn new(threads: usize) -> SharedTeam {
        SharedTeam { taken: (0..threads).map(|_| Taken::default()).collect(), ..SharedTeam::default() }
    }

    /// Claims a task of the current job, and returns whether there was one. The calling thread must then find the task
    /// by [`SharedTeam::find`] and run it.
    fn take(&self) -> bool {
        let mut left = self.left.load(Ordering::Relaxed);
        while left > 0 {
            // The job was published before `left` was set, so a thread that claims a task sees the job.
            match self.left.compare_exchange_weak(left, left - 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => left = now,
            }
        }
        false
    }

    /// Returns the number of a task after the thread has claimed one: the next task of the thread's own share, or of
    /// the shares that follow it.
    fn find(&self, thread: usize, tasks: usize) -> usize {
        let threads = self.taken.len();
        let (least, more) = (tasks / threads, tasks % threads);
        let mut share = thread;
        loop {
            let first = share * least + share.min(more);
            let n = self.taken[share].0.fetch_add(1, Ordering::Relaxed);
            if n < least + usize::from(share < more) {
                return first + n;
            }
            // The share is empty. Another one has a task, because no more tasks are claimed than exist.
            share = (share + 1) % threads;
        }
    }

    /// Publishes a job, works on it, and waits for the helpers. Returns `false` without any work if the helpers are
    /// busy with another job.
    fn share(&self, tasks: usize, task: Task<'_>, scratch: *mut u8) -> bool {
        if self.taken_up.swap(true, Ordering::Acquire) {
            return false;
        }
        let job = Job { task, tasks, done: AtomicUsize::new(0) };
        self.taken.iter().for_each(|taken| taken.0.store(0, Ordering::Relaxed));
        self.job.store((&raw const job).cast_mut().cast(), Ordering::Relaxed);
        self.left.store(tasks, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) > 0 {
            self.wake_all();
        }
        let mut help = Help { team: self, job: &job, own: 0 };
        while self.take() {
            help.own += 1;
            task(self.find(0, tasks), scratch);
        }
        true
    }

    /// Works on jobs as a helper until the pool is dropped.
    fn help(&self, thread: usize, scratch: *mut u8) {
        let mut looks = 0;
        while !self.quit.load(Ordering::Relaxed) {
            if self.take() {
                // SAFETY: the job is valid until the claimed task is done.
                let job = unsafe { &*self.job.load(Ordering::Relaxed) };
                (job.task)(self.find(thread, job.tasks), scratch);
                job.done.fetch_add(1, Ordering::Release);
                looks = 0;
            } else if looks < LOOKS {
                wait(&mut looks);
            } else {
                self.sleep();
                looks = 0;
            }
        }
    }

    fn sleep(&self) {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.fetch_add(1, Ordering::SeqCst);
        // If a job was published before `asleep` was incremented, `idle` sees it. If it is published afterwards, its
        // owner wakes this thread.
        let idle = |_: &mut ()| self.left.load(Ordering::SeqCst) == 0 && !self.quit.load(Ordering::SeqCst);
        drop(self.wake.wait_while(guard, idle).unwrap_or_else(PoisonError::into_inner));
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake_all(&self) {
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.notify_all();
    }
}

/// A guard of a published job. When it is dropped, even by a panic of a task, it waits until helpers have finished all
/// tasks that they claimed.
struct Help<'a> {
    team: &'a SharedTeam,
    job: &'a Job<'a>,
    /// The number of tasks that the owner of the job claimed.
    own: usize,
}

impl Drop for Help<'_> {
    fn drop(&mut self) {
        let taken = self.job.tasks - self.team.left.swap(0, Ordering::Relaxed);
        let mut looks = 0;
        while self.own + self.job.done.load(Ordering::Acquire) < taken {
            wait(&mut looks);
        }
        self.team.taken_up.store(false, Ordering::Release);
    }
}

fn wait(looks: &mut usize) {
    *looks += 1;
    if looks.is_multiple_of(YIELD) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of jobs of a test. It is small under Miri, which takes seconds for each.
    const JOBS: usize = if cfg!(miri) { 40 } else { 2000 };

    fn workers(threads: usize) -> Workers {
        Workers::new(Arc::new(Pool::new(threads, 64).unwrap()), 64).unwrap()
    }

    #[test]
    fn every_task_of_every_job_runs_once_on_a_scratch_of_its_own() {
        let workers = workers(3);
        for job in 0..JOBS {
            let tasks = job % 37;
            let runs: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            workers.for_each(tasks, job % 11 == 0, &|n, scratch| {
                // SAFETY: no other thread uses this scratch memory while the task runs; the test detects it if one
                // does.
                unsafe {
                    scratch.cast::<usize>().write_volatile(n);
                    std::hint::spin_loop();
                    assert_eq!(scratch.cast::<usize>().read_volatile(), n);
                }
                runs[n].fetch_add(1, Ordering::Relaxed);
            });
            assert!(runs.iter().all(|r| r.load(Ordering::Relaxed) == 1), "job {job}");
            if job % (JOBS / 4) == 0 {
                // Helpers fall asleep in this time.
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn a_task_that_panics_leaves_the_team_usable() {
        let workers = workers(1);
        let team = SharedTeam::new(1);
        let scratch = workers.scratch.at();
        let job = || team.share(4, &|n, _| assert!(n != 2, "on purpose"), scratch);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err());
        let done = AtomicUsize::new(0);
        team.share(
            4,
            &|_, _| {
                done.fetch_add(1, Ordering::Relaxed);
            },
            scratch,
        );
        assert_eq!(done.into_inner(), 4, "the second job runs no task of the first one");
    }

    #[test]
    fn sessions_on_several_threads_share_the_helpers() {
        let pool = Arc::new(Pool::new(2, 64).unwrap());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let workers = Workers::new(pool.clone(), 64).unwrap();
                    for job in 0..JOBS / 4 {
                        let runs: Vec<AtomicUsize> = (0..job % 37).map(|_| AtomicUsize::new(0)).collect();
                        workers.for_each(runs.len(), false, &|n, _| {
                            runs[n].fetch_add(1, Ordering::Relaxed);
                        });
                        assert!(runs.iter().all(|r| r.load(Ordering::Relaxed) == 1), "job {job}");
                    }
                });
            }
        });
    }
}
