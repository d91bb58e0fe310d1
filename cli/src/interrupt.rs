//! Ctrl-C in commands that end with what they have.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use signal_hook::{consts::SIGINT, flag};

/// The exit code of a process that a second Ctrl-C ends.
const ENDED: i32 = 130;

/// A request to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Waits for Ctrl-C from here on. The first one asks to stop, and a second one ends the process. Where the system
    /// refuses, Ctrl-C ends the process as before.
    pub fn listen() -> Interrupt {
        let interrupt = Interrupt::default();
        // In this order: the first Ctrl-C finds the flag unset.
        let ended = flag::register_conditional_shutdown(SIGINT, ENDED, interrupt.0.clone());
        if ended.and_then(|_| flag::register(SIGINT, interrupt.0.clone())).is_err() {
            return Interrupt::default();
        }
        anstream::eprintln!(
            "Ctrl-C stops after the kernel at work, with what is measured by then; a second one ends at once"
        );
        interrupt
    }

    /// Returns whether it came.
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
