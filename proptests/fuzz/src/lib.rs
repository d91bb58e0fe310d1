//! Damaged files for every reader: whatever is in a file, reading it ends soon, with a value or an error, and never with a panic.
//!
//! Files that are valid ([`corpus`]) are damaged with regard to their structure ([`damage`]): tokens and bracketed parts of texts, fields of
//! protocol buffers, headers and archives that stay well-formed around what is wrong inside. What reads back is held to more than
//! that ([`readers`]).

pub mod corpus;
pub mod damage;
pub mod readers;

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use damage::damaged;
use readers::{Outcome, Place, Reader};

/// An execution that takes longer hangs: most take less than a millisecond.
pub const LIMIT: Duration = Duration::from_secs(20);

/// A file that a reader did not take as it should.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which execution, of which seed: these give the same file again.
    pub execution: u64,
    /// The file.
    pub bytes: Vec<u8>,
    /// What happened.
    pub what: String,
}

/// What became of many executions.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How many files were read.
    pub executions: u64,
    /// Of these, files that were accepted: damage that leaves too few of them tests the first check only.
    pub accepted: u64,
    /// Files that were not taken as they should.
    pub findings: Vec<Finding>,
}

/// Reads damaged files; those of a seed and a number are always the same. `progress` is told how many have been read.
///
/// # Panics
/// When the temporary folder cannot be written.
pub fn fuzz(reader: &Reader, seed: u64, executions: std::ops::Range<u64>, progress: &mut dyn FnMut(u64)) -> Summary {
    let corpus = corpus::of(reader);
    let place = Place::new().expect("a temporary folder can be made");
    let mut summary = Summary::default();
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    for execution in executions {
        let mut random = fastrand::Rng::with_seed(seed ^ execution.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let bytes = damaged(reader.form, &corpus, &mut random);
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| (reader.read)(&place, &bytes)));
        let what = match outcome {
            Err(panic) => Some(format!("a panic: {}", message(&*panic))),
            Ok(Outcome::Wrong(what)) => Some(what),
            Ok(_) if start.elapsed() > LIMIT => Some(format!("it took {:.1?}", start.elapsed())),
            Ok(outcome) => {
                summary.accepted += u64::from(outcome == Outcome::Accepted);
                None
            }
        };
        summary.executions += 1;
        if let Some(what) = what {
            summary.findings.push(Finding { execution, bytes, what });
        }
        progress(summary.executions);
    }
    std::panic::set_hook(loud);
    summary
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}
