//! The thread that executes submitted runs of a session while the caller continues.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use eutectic_backend::BackendError;

use super::work::Workspace;

/// The thread of a session that executes submitted runs. The first submitted run starts it.
pub struct Runner {
    shared: Arc<RunShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct RunShared {
    desk: Mutex<Desk>,
    changed: Condvar,
}

/// The state that the session and the thread exchange.
#[derive(Default)]
enum Desk {
    /// There is no run, or the thread is executing one.
    #[default]
    Empty,
    /// A run that the thread must execute.
    Open(Box<Workspace>),
    /// The thread has executed the run.
    Done(Box<Workspace>, Result<(), BackendError>),
    /// The session was dropped, so the thread must end.
    Closed,
}

impl RunShared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, desk: Desk) {
        *self.desk() = desk;
        self.changed.notify_all();
    }

    /// Waits for a state that `take` accepts, and takes it. `take` returns the state as an error to keep it.
    fn take<T>(&self, take: impl Fn(Desk) -> Result<T, Desk>) -> T {
        let mut desk = self.desk();
        loop {
            match take(std::mem::take(&mut *desk)) {
                Ok(taken) => return taken,
                Err(other) => *desk = other,
            }
            desk = self.changed.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Runner {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn new() -> Result<Runner, BackendError> {
        let shared = Arc::new(RunShared::default());
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("eutectic-runs".into()).spawn(move || serve(&of_thread));
        let thread =
            thread.map_err(|e| BackendError::Device(format!("cannot start the thread for submitted runs: {e}")))?;
        Ok(Runner { shared, thread: Some(thread) })
    }

    /// Gives the thread a run to execute.
    pub fn start(&self, work: Box<Workspace>) {
        self.shared.put(Desk::Open(work));
    }

    /// Waits for the run that was started last.
    pub fn wait(&self) -> (Box<Workspace>, Result<(), BackendError>) {
        self.shared.take(|desk| match desk {
            Desk::Done(work, result) => Ok((work, result)),
            other => Err(other),
        })
    }
}

fn serve(shared: &RunShared) {
    loop {
        let open = shared.take(|desk| match desk {
            Desk::Open(work) => Ok(Some(work)),
            Desk::Closed => Ok(None),
            other => Err(other),
        });
        let Some(mut work) = open else { return };
        let result = catch_unwind(AssertUnwindSafe(|| work.run())).unwrap_or_else(|_| {
            let why = "cannot finish the run because a kernel panicked: a defect of the backend; report it";
            Err(BackendError::Device(why.into()))
        });
        shared.put(Desk::Done(work, result));
    }
}

impl Drop for Runner {
    /// Ends the thread. No run may be executing.
    fn drop(&mut self) {
        self.shared.put(Desk::Closed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
