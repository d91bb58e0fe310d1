//! Reports the current step in the check of a rule, so that a long check does not look like one that hangs.

use std::{
    cell::Cell,
    fmt,
    time::{Duration, Instant},
};

/// The time between two reports on a rule.
const SILENCE: Duration = Duration::from_secs(10);

/// The state of the check of a rule.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// The rule.
    pub rule: &'a str,
    /// The running part of the check.
    pub part: &'static str,
    /// The number of finished steps of the part.
    pub done: usize,
    /// The total number of steps of the part.
    pub of: usize,
    /// The time that the rule has taken so far.
    pub time: Duration,
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { rule, part, done, of, time } = self;
        write!(f, "{rule}: {part} {} of {of} after {:.0} s", done + 1, time.as_secs_f64())
    }
}

/// The time that a rule has taken, and the function that reports it.
pub struct Clock<'a> {
    rule: &'a str,
    tell: Option<fn(&Progress<'_>)>,
    start: Instant,
    last: Cell<Instant>,
}

impl<'a> Clock<'a> {
    /// Starts the clock of a rule.
    pub fn new(rule: &'a str, tell: Option<fn(&Progress<'_>)>) -> Clock<'a> {
        let start = Instant::now();
        Clock { rule, tell, start, last: Cell::new(start) }
    }

    /// Reports the current step if nothing was reported for [`SILENCE`].
    pub fn tick(&self, part: &'static str, done: usize, of: usize) {
        if let Some(tell) = self.tell
            && self.last.get().elapsed() >= SILENCE
        {
            self.last.set(Instant::now());
            tell(&Progress { rule: self.rule, part, done, of, time: self.start.elapsed() });
        }
    }
}
