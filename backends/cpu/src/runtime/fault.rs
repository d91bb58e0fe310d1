//! What workers report when an index that was read from a tensor is out of range.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// The first index out of range, if any.
#[derive(Debug, Default)]
pub struct IndexFault {
    set: AtomicBool,
    index: AtomicI64,
    extent: AtomicUsize,
}

impl IndexFault {
    /// Reports an index; the first one stays.
    pub fn report(&self, index: i64, extent: usize) {
        if !self.set.swap(true, Ordering::AcqRel) {
            self.index.store(index, Ordering::Release);
            self.extent.store(extent, Ordering::Release);
        }
    }

    /// Takes the report. Call it when no worker runs.
    pub fn take(&self) -> Option<(i64, usize)> {
        self.set.load(Ordering::Acquire).then(|| {
            self.set.store(false, Ordering::Release);
            (self.index.load(Ordering::Acquire), self.extent.load(Ordering::Acquire))
        })
    }
}
