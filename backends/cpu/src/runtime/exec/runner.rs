//! The thread that executes submitted runs while the caller continues.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use eutectic_backend::BackendError;

use super::work::Workspace;

/// A session's thread. It is started by the first run that is submitted.
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
    /// No run; or the thread is executing one.
    #[default]
    Empty,
    /// A run to execute.
    Open(Box<Workspace>),
    /// Done.
    Done(Box<Workspace>, Result<(), BackendError>),
    /// The session is gone.
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

    /// Waits until `take` takes something.
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
    /// When there can be none.
    pub fn new() -> Result<Runner, BackendError> {
        let shared = Arc::new(RunShared::default());
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("eutectic-runs".into()).spawn(move || serve(&of_thread));
        let thread = thread.map_err(|e| BackendError::Device(format!("cannot start a thread: {e}")))?;
        Ok(Runner { shared, thread: Some(thread) })
    }

    /// Has a run done.
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
        let result = catch_unwind(AssertUnwindSafe(|| work.run()))
            .unwrap_or_else(|_| Err(BackendError::Device("a kernel panicked: a defect of the backend".into())));
        shared.put(Desk::Done(work, result));
    }
}

impl Drop for Runner {
    /// No run may be under way.
    fn drop(&mut self) {
        self.shared.put(Desk::Closed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
