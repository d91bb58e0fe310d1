//! Records the first index out of range that worker threads find.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use eutectic_backend::NO_CHECK;
use eutectic_ir::ops::{Ids, OutOfRange};

/// The first reported index out of range, if any.
#[derive(Debug, Default)]
pub struct IndexFault {
    set: AtomicBool,
    index: AtomicI64,
    extent: AtomicI64,
    from_end: AtomicBool,
    check: AtomicUsize,
}

impl IndexFault {
    /// Reports an index that is out of range. `check` is the number of its check in the kernel. Only the first report is
    /// kept.
    pub fn report(&self, OutOfRange { id, ids }: OutOfRange, check: usize) {
        if !self.set.swap(true, Ordering::AcqRel) {
            self.index.store(id, Ordering::Release);
            self.extent.store(ids.extent, Ordering::Release);
            self.from_end.store(ids.from_end, Ordering::Release);
            self.check.store(check, Ordering::Release);
        }
    }

    /// Reports an access outside of a buffer of `count` elements. Accesses are checked even if an earlier check of the
    /// index passed.
    pub fn report_access(&self, at: i64, count: usize) {
        self.report(OutOfRange { id: at, ids: Ids { extent: count as i64, from_end: false } }, NO_CHECK);
    }

    /// Removes and returns the report, with the number of the check. No worker may be executing.
    pub fn take(&self) -> Option<(OutOfRange, usize)> {
        self.set.load(Ordering::Acquire).then(|| {
            self.set.store(false, Ordering::Release);
            let ids =
                Ids { extent: self.extent.load(Ordering::Acquire), from_end: self.from_end.load(Ordering::Acquire) };
            (OutOfRange { id: self.index.load(Ordering::Acquire), ids }, self.check.load(Ordering::Acquire))
        })
    }
}
