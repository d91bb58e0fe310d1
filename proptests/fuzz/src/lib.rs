//! Reads damaged files with every reader. Reading any file must end soon, with a value or an error, and never with a
//! panic.
//!
//! Valid files ([`corpus`]) are damaged within their structure ([`damage`]): tokens and bracketed parts of texts,
//! fields of protocol buffers, headers and archives. The structure around the damage stays well-formed. Some readers
//! make further promises about files that they accept ([`readers`]).

mod checkpoint;
pub mod corpus;
pub mod damage;
pub mod readers;

use std::{
    any::Any,
    num::NonZeroUsize,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use cpu_time::ThreadTime;
use damage::damaged;
use readers::{Outcome, Place, Reader};

/// The time after which an execution counts as hanging. Most take less than a millisecond. It is processor time, so a
/// busy machine causes no findings.
pub const LIMIT: Duration = Duration::from_secs(20);

/// The number of executions that a thread takes at once.
const TAKEN: u64 = 64;

/// A file that a reader handled wrongly.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The number of the execution. With the seed, it determines the file.
    pub execution: u64,
    /// The file.
    pub bytes: Vec<u8>,
    /// A description of the failure.
    pub what: String,
}

/// The results of many executions.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The number of files that were read.
    pub executions: u64,
    /// The number of files that were accepted. If there are too few, the fuzzer tests only the first checks of a
    /// reader.
    pub accepted: u64,
    /// The files that a reader handled wrongly.
    pub findings: Vec<Finding>,
}

impl Summary {
    fn and(mut self, other: Summary) -> Summary {
        self.executions += other.executions;
        self.accepted += other.accepted;
        self.findings.extend(other.findings);
        self
    }
}

/// Reads damaged files on several threads. The seed and the number of an execution determine its file. `checkout` is
/// the checkout with the valid files. `progress` is called with the number of files read.
///
/// # Panics
/// If the temporary folder cannot be written.
pub fn fuzz(
    reader: &Reader,
    checkout: &Path,
    seed: u64,
    executions: Range<u64>,
    threads: NonZeroUsize,
    progress: &(dyn Fn(u64) + Sync),
) -> Summary {
    let corpus = corpus::of(reader, checkout);
    let (next, done) = (AtomicU64::new(executions.start), AtomicU64::new(0));
    let some = || {
        let place = Place::new().expect("a temporary folder can be made");
        let mut summary = Summary::default();
        loop {
            let from = next.fetch_add(TAKEN, Relaxed);
            if from >= executions.end {
                return summary;
            }
            let taken = from..executions.end.min(from + TAKEN);
            let count = taken.end - taken.start;
            summary = taken.fold(summary, |summary, at| summary.and(execute(reader, &place, &corpus, seed, at)));
            progress(done.fetch_add(count, Relaxed) + count);
        }
    };
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut summary = thread::scope(|scope| {
        let running: Vec<_> = (0..threads.get()).map(|_| scope.spawn(some)).collect();
        let summaries = running.into_iter().map(|thread| thread.join().expect("panics of readers are caught"));
        summaries.fold(Summary::default(), Summary::and)
    });
    std::panic::set_hook(loud);
    summary.findings.sort_by_key(|finding| finding.execution);
    summary
}

/// Reads one damaged file.
fn execute(reader: &Reader, place: &Place, corpus: &[Vec<u8>], seed: u64, execution: u64) -> Summary {
    let mut random = fastrand::Rng::with_seed(seed ^ execution.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let bytes = damaged(reader.form, corpus, &mut random);
    let start = ThreadTime::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| (reader.read)(place, &bytes)));
    let took = start.elapsed();
    let wrong = match &outcome {
        Err(panic) => Some(format!("a panic: {}", message(&**panic))),
        Ok(Outcome::Wrong(what)) => Some(what.clone()),
        Ok(_) => (took > LIMIT).then(|| format!("reading took {took:.1?} of processor time")),
    };
    Summary {
        executions: 1,
        accepted: u64::from(matches!(outcome, Ok(Outcome::Accepted))),
        findings: wrong.map(|what| Finding { execution, bytes, what }).into_iter().collect(),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}
