//! Threads that share the tasks of a kernel.
//!
//! Results never depend on the number of threads: kernels are divided into tasks by their shape alone, or (products) in
//! a way that does not affect the results.
//!
//! The caller publishes a job and works on it itself. The other threads spin for the next job for a while before they
//! sleep. Between the kernels of a run they thus start in a fraction of a microsecond, while waking a thread takes ten.
//!
//! The threads belong to a program, and its sessions share them: one session at a time has their help. A session that
//! finds them busy runs a kernel alone, so that sessions on several threads do not wait for each other.
//!
//! Each thread starts with a share of the tasks that is equal in all jobs with as many tasks. When its own share is
//! done, it takes tasks from other shares. A core therefore usually finds its data in its caches, from the kernel
//! before or from the last run.

use std::sync::{
    Arc, Condvar, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering},
};

use eutectic_backend::BackendError;

use super::memory::Pages;

/// The number of polls for work before a thread sleeps, about a tenth of a millisecond. Then the number of polls
/// between two yields of the processor, because there may be more threads than cores.
const LOOKS: usize = 4000;
const YIELD: usize = 500;

/// A task, by its number, on scratch memory.
type Task<'a> = &'a (dyn Fn(usize, *mut u8) + Sync);

/// The work of one kernel.
struct Job<'a> {
    task: Task<'a>,
    tasks: usize,
    /// Tasks that others have finished.
    done: AtomicUsize,
}

/// The number of tasks taken from a thread's share, counting failed attempts when none is left. It has a cache line of
/// its own.
#[derive(Default)]
#[repr(align(128))]
struct Taken(AtomicUsize);

/// The state that the threads share.
#[derive(Default)]
struct SharedTeam {
    /// Whether the threads help some job.
    taken_up: AtomicBool,
    /// Tasks of the current job that no thread has taken yet. A thread that decrements it may take one, and finds it in
    /// some share.
    left: AtomicUsize,
    /// One counter per thread's share.
    taken: Vec<Taken>,
    /// The current job: valid while one of its tasks is taken and not done, because its owner waits for that.
    job: AtomicPtr<Job<'static>>,
    /// Threads that sleep, or are about to.
    asleep: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
    quit: AtomicBool,
}

/// The threads that help the sessions of a program, each with its scratch memory.
pub struct Pool {
    /// `None` if callers work alone.
    team: Option<Arc<SharedTeam>>,
    /// Lends the threads; ends when it is dropped and they have quit.
    _threads: Option<rayon::ThreadPool>,
}

impl Pool {
    /// Starts `threads` threads, including the caller's own. The others have `scratch` bytes each.
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

    /// Calls `task(n, scratch)` for each `n` below `tasks`; on the caller's thread only if `serial`. No task may call
    /// it again.
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

    /// Returns whether the current job has a task for the calling thread, which must then [`SharedTeam::find`] and run
    /// it.
    fn take(&self) -> bool {
        let mut left = self.left.load(Ordering::Relaxed);
        while left > 0 {
            // The job was published before the tasks, so a thread that takes a task sees its job.
            match self.left.compare_exchange_weak(left, left - 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => left = now,
            }
        }
        false
    }

    /// Returns the number of a task that was taken of a job: the next one of the thread's own share, or of the shares
    /// that follow it.
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
            // As many tasks as were promised remain, so that one of the shares has one.
            share = (share + 1) % threads;
        }
    }

    /// Publishes a job, works on it, and waits for the helpers. Returns `false` if the helpers are busy with another
    /// job.
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

    /// Works on jobs until the team is dissolved.
    fn help(&self, thread: usize, scratch: *mut u8) {
        let mut looks = 0;
        while !self.quit.load(Ordering::Relaxed) {
            if self.take() {
                // SAFETY: the job is valid until the task that was taken from it is done.
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
        // A job that was published before `asleep` was raised is seen here; one after that wakes.
        let idle = |_: &mut ()| self.left.load(Ordering::SeqCst) == 0 && !self.quit.load(Ordering::SeqCst);
        drop(self.wake.wait_while(guard, idle).unwrap_or_else(PoisonError::into_inner));
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake_all(&self) {
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.notify_all();
    }
}

/// A job that others work on: it does not go before they are done, not even when a task panics.
struct Help<'a> {
    team: &'a SharedTeam,
    job: &'a Job<'a>,
    /// Tasks that the owner took.
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

    /// Jobs of a test; Miri takes seconds for each.
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
                // Long enough to fall asleep.
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
        assert_eq!(done.into_inner(), 4, "none of the tasks that the panic left over");
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
