//! Tests that a run allocates no memory.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

use eutectic_backend::Backend;
use eutectic_conformance::suites::program::{N, input, parameter, program};
use eutectic_cpu::{Cpu, CpuOptions};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static THREADS: AtomicUsize = AtomicUsize::new(0);
/// The number of the test harness's thread. Its allocations do not count, because it may allocate at any time.
static HARNESS: AtomicUsize = AtomicUsize::new(usize::MAX);

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Returns the number of the current thread, in the order of first allocations. The process's first thread is 0.
fn thread() -> usize {
    THREAD.with(|t| {
        if t.get() == usize::MAX {
            t.set(THREADS.fetch_add(1, Ordering::Relaxed));
        }
        t.get()
    })
}

// SAFETY: forwards every call to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if thread() != HARNESS.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are those that `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those that `System` requires.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn runs_allocate_nothing() {
    for threads in [1, 2] {
        let cpu = Cpu::new(CpuOptions { threads, ..CpuOptions::default() });
        let executable = cpu.compile(&program(true)).unwrap();
        let mut session = executable.load(&[parameter()]).unwrap().session().unwrap();
        let input = input();
        let mut outputs = [vec![0_u8; N * 4], vec![0_u8; N * 4]];
        let [y, z] = &mut outputs;
        for _ in 0..20 {
            session.run(&[&input], &mut [y, z]).unwrap();
        }
        HARNESS.store(if thread() == 0 { usize::MAX } else { 0 }, Ordering::Relaxed);
        // A worker thread allocates when it first gets work, which may be late on a busy machine. So with several
        // threads, the best of the later batches counts.
        let batch = || {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            (0..200).for_each(|_| session.run(&[&input], &mut [y, z]).unwrap());
            ALLOCATIONS.load(Ordering::Relaxed) - before
        };
        let batches: Vec<_> = std::iter::repeat_with(batch).take(8).collect();
        let steady = if threads == 1 { batches.iter().sum() } else { batches[1..].iter().copied().min().unwrap_or(0) };
        assert!(steady == 0, "allocations in batches of 200 runs on {threads} threads: {batches:?}");
    }
}
