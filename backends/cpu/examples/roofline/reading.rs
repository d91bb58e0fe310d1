//! Reads memory as fast as the machine can, as a ceiling for the bandwidth of kernels.

use std::hint::black_box;

use eutectic_cpu::Isa;

/// The number of streams that are read at once. One stream is slower, because the hardware prefetcher then has fewer
/// lines in flight.
const STREAMS: usize = 8;
/// The number of `f32` in a cache line.
const LINE: usize = 16;
/// Declares a function that is compiled for each instruction set, and calls the version for the machine.
macro_rules! widest {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),*) $body:block) => {
        $(#[$doc])*
        $vis fn $name($($arg: $ty),*) {
            #[inline(always)]
            fn body($($arg: $ty),*) $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx2,fma")]
            fn avx512($($arg: $ty),*) {
                body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $ty),*) {
                body($($arg),*)
            }
            match Isa::detect() {
                // SAFETY: the machine has the instructions.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: the machine has the instructions.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => unsafe { avx2($($arg),*) },
                _ => body($($arg),*),
            }
        }
    };
}

widest! {
    /// Reads a slice once (except for a remainder at its end).
    pub fn read(from: &[f32]) {
        let part = from.len() / STREAMS / LINE * LINE;
        let mut sums = [[0.0_f32; LINE]; STREAMS];
        for at in (0..part).step_by(LINE) {
            for (s, sum) in sums.iter_mut().enumerate() {
                let line = &from[s * part + at..][..LINE];
                *sum = std::array::from_fn(|i| sum[i] + line[i]);
            }
        }
        black_box(&sums);
    }
}
