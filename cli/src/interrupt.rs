//! Handles Ctrl-C in commands that then finish with partial results.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use signal_hook::{consts::SIGINT, flag};

/// The exit code after a second Ctrl-C: 128 plus the number of SIGINT.
const ENDED: i32 = 130;

/// A request to stop, which clones share.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts to handle Ctrl-C. The first one requests a stop, and a second one ends the process. If the system does
    /// not allow a handler, Ctrl-C ends the process as usual.
    pub fn listen() -> Interrupt {
        let interrupt = Interrupt::default();
        // This handler runs first, so the first Ctrl-C finds the flag unset and does not end the process.
        let ended = flag::register_conditional_shutdown(SIGINT, ENDED, interrupt.0.clone());
        if ended.and_then(|_| flag::register(SIGINT, interrupt.0.clone())).is_err() {
            return Interrupt::default();
        }
        anstream::eprintln!(
            "Ctrl-C stops after the current kernel and keeps what has been measured; a second Ctrl-C ends at once"
        );
        interrupt
    }

    /// Returns whether Ctrl-C was pressed.
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
