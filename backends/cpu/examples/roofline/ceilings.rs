//! Measures the ceilings of a roofline: the rate of multiply-adds in registers, and the time of reading and writing
//! memory.

#[macro_use]
#[path = "reading.rs"]
mod reading;

use std::{hint::black_box, sync::Barrier, time::Instant};

use eutectic_cpu::Isa;
use reading::read;

/// The minimal seconds of a measurement. It is shorter than the scheduler's time slice, so that some measurements are
/// not interrupted.
const TURN: f64 = 0.001;

/// The minimal number of calls per measurement. All calls after the first one find the data in the last-level cache if
/// it fits.
pub const CALLS: u32 = 4;

/// The number of independent chains of multiply-adds. It is large enough to hide their latency, and small enough for
/// the 16 vector registers of AVX2.
const CHAINS: usize = 12;

/// Declares a function that executes steps of multiply-adds with vectors of a width, and returns the number of
/// operations of each step.
macro_rules! multiply {
    ($name:ident, $feature:literal, $lanes:literal, $splat:ident $fma:ident $store:ident) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        fn $name(steps: usize) -> usize {
            use std::arch::x86_64::{$fma, $splat, $store};
            let (x, y) = ($splat(black_box(0.999)), $splat(black_box(0.001)));
            let mut sums = [x; CHAINS];
            for _ in 0..steps {
                for sum in &mut sums {
                    *sum = $fma(*sum, x, y);
                }
            }
            let mut all = [0.0_f32; CHAINS * $lanes];
            for (i, sum) in sums.into_iter().enumerate() {
                // SAFETY: the array has `$lanes` elements for each vector.
                unsafe { $store(all.as_mut_ptr().add(i * $lanes), sum) };
            }
            black_box(&all);
            2 * all.len()
        }
    };
}
multiply!(multiply_avx512, "avx512f", 16, _mm512_set1_ps _mm512_fmadd_ps _mm512_storeu_ps);
multiply!(multiply_avx2, "avx2,fma", 8, _mm256_set1_ps _mm256_fmadd_ps _mm256_storeu_ps);

/// Executes `steps` steps of multiply-adds, and returns the number of operations of each.
fn multiply(steps: usize) -> usize {
    match Isa::detect() {
        // SAFETY: the machine has the instructions.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { multiply_avx512(steps) },
        // SAFETY: the machine has the instructions.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { multiply_avx2(steps) },
        _ => {
            let mut sums = [1.0_f32; 4 * CHAINS];
            for _ in 0..steps {
                sums.iter_mut().for_each(|sum| *sum = *sum * 0.999 + 0.001);
            }
            2 * black_box(sums).len()
        }
    }
}

widest! {
    fn copy(to: &mut [f32], from: &[f32]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = from * 0.5;
        }
    }
}

/// Copies like `copy`, but with streaming stores.
fn copy_streaming(to: &mut [f32], from: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instructions, and `align_to_mut` aligns the stores.
    unsafe {
        use std::arch::x86_64::{_mm_loadu_ps, _mm_sfence, _mm_stream_ps};
        let (_, to, _) = to.align_to_mut::<std::arch::x86_64::__m128>();
        for (to, from) in to.iter_mut().zip(from.chunks_exact(4)) {
            _mm_stream_ps(std::ptr::from_mut(to).cast(), _mm_loadu_ps(from.as_ptr()));
        }
        _mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    copy(to, from);
}

/// Returns the seconds of one call, as the mean of many calls on each of several threads; the slowest thread counts.
/// Each thread has its own part of the data. All start together, because a thread that runs alone has the full memory
/// bandwidth.
fn timed<P: Send>(parts: &mut [P], call: impl Fn(&mut P) + Sync) -> f64 {
    let together = Barrier::new(parts.len());
    let worker = |part: &mut P| {
        together.wait();
        let (start, mut calls) = (Instant::now(), 0);
        while calls < CALLS || start.elapsed().as_secs_f64() < TURN {
            call(part);
            calls += 1;
        }
        start.elapsed().as_secs_f64() / f64::from(calls)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts.iter_mut().map(|p| scope.spawn(|| worker(p))).collect();
        threads.into_iter().map(|t| t.join().expect("the worker does not panic")).fold(0.0, f64::max)
    })
}

/// Returns the operations per second of `threads` threads together. A multiply-add counts as two operations.
pub fn flops_per_second(threads: usize) -> f64 {
    const STEPS: usize = 4096;
    let mut operations = vec![0; threads];
    let seconds = timed(&mut operations, |n| *n = multiply(STEPS));
    (STEPS * operations.iter().sum::<usize>()) as f64 / seconds
}

/// The memory that one thread reads and writes.
pub struct Memory {
    from: Vec<f32>,
    to: Vec<f32>,
}

impl Memory {
    /// Allocates `read` bytes to read and `written` bytes to write, divided evenly among the threads.
    pub fn new(threads: usize, read: usize, written: usize) -> Vec<Memory> {
        let numbers = |bytes: usize| vec![1.0; bytes / size_of::<f32>() / threads];
        (0..threads).map(|_| Memory { from: numbers(read), to: numbers(written) }).collect()
    }

    /// Returns the seconds that reading and writing all of the memory takes, the minimum of normal and streaming
    /// stores.
    pub fn seconds(all: &mut [Memory]) -> f64 {
        // If more is written than read, the rest is copied from an array in the first-level cache.
        let near = [1.0_f32; 4096];
        let [cached, streamed] = [copy, copy_streaming].map(|put: fn(&mut [f32], &[f32])| {
            timed(all, |memory| {
                let both = memory.from.len().min(memory.to.len());
                put(&mut memory.to[..both], &memory.from[..both]);
                memory.to[both..].chunks_mut(near.len()).for_each(|to| put(to, &near[..to.len()]));
                read(&memory.from[both..]);
            })
        });
        cached.min(streamed)
    }
}
