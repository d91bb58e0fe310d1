//! Detects interference by other processes: the time that the threads of this process waited for a CPU during a
//! measurement.

use std::fs;

/// The time of all threads of this process in nanoseconds: running, and waiting for a CPU.
#[derive(Clone, Copy, Debug)]
pub struct ThreadTimes {
    ran: u64,
    waited: u64,
}

/// The share of waiting above which a measurement is unreliable.
pub const BUSY: f64 = 0.05;

impl ThreadTimes {
    /// Reads `/proc/self/task/*/schedstat`. `None` if the system does not provide it.
    pub fn now() -> Option<ThreadTimes> {
        let mut all = ThreadTimes { ran: 0, waited: 0 };
        for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
            // A thread may end between listing and reading.
            let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let mut numbers = text.split_whitespace().map(str::parse::<u64>);
            all.ran += numbers.next()?.ok()?;
            all.waited += numbers.next()?.ok()?;
        }
        (all.ran > 0).then_some(all)
    }

    /// Returns the share of time that the threads have waited for a CPU since `start`. `None` if the system does not
    /// provide it.
    pub fn waiting(start: Option<ThreadTimes>) -> Option<f64> {
        let (start, now) = (start?, ThreadTimes::now()?);
        let (ran, waited) = (now.ran.saturating_sub(start.ran), now.waited.saturating_sub(start.waited));
        Some(waited as f64 / (ran + waited).max(1) as f64)
    }
}

/// Returns a warning about a large share of waiting, or `None` for a small one.
pub fn remark(waiting: Option<f64>) -> Option<String> {
    let waiting = waiting.filter(|share| *share > BUSY)?;
    Some(format!("other processes disturbed this: threads waited for a processor {:.0} % of the time", 100.0 * waiting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_a_share() {
        let start = ThreadTimes::now();
        let sum: u64 = (0..5_000_000_u64).map(std::hint::black_box).sum();
        assert!(sum > 0);
        assert!(ThreadTimes::waiting(start).is_none_or(|share| (0.0..=1.0).contains(&share)));
        assert_eq!(ThreadTimes::waiting(None), None);
        assert_eq!((remark(Some(0.04)), remark(None)), (None, None));
        assert!(remark(Some(0.61)).is_some_and(|text| text.contains("61 %")));
    }
}
