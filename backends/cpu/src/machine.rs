//! What kernels are compiled for: the instruction-set level, threads, and the sizes of the caches, read from the processor.

use crate::simd::Isa;

/// What kernels are compiled for.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The instruction-set level.
    pub isa: Isa,
    /// How many threads share the work. Results do not depend on it.
    pub threads: usize,
}

/// Bytes of the data caches that one core has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// First level.
    pub l1: usize,
    /// Second level.
    pub l2: usize,
}

impl Default for Caches {
    /// What small cores of today have.
    fn default() -> Caches {
        Caches { l1: 32 << 10, l2: 512 << 10 }
    }
}

impl Caches {
    /// Of the machine that runs this; the default where it does not tell.
    pub fn detect() -> Caches {
        let mut caches = Caches::default();
        #[cfg(target_arch = "x86_64")]
        for (level, bytes) in x86() {
            match level {
                1 => caches.l1 = bytes,
                2 => caches.l2 = bytes,
                _ => {}
            }
        }
        caches
    }
}

/// Level and size of each data cache, from "deterministic cache parameters" (Intel SDM vol. 2A, CPUID leaf 4) or AMD's leaf of
/// the same form (APM vol. 3, CPUID Fn8000_001D).
#[cfg(target_arch = "x86_64")]
fn x86() -> Vec<(u32, usize)> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    if cfg!(miri) {
        // It has no `cpuid`.
        return Vec::new();
    }
    for (largest, leaf) in [(0, 4), (0x8000_0000, 0x8000_001d)] {
        if __cpuid(largest).eax < leaf {
            continue;
        }
        let of = |n: u32| {
            let c = __cpuid_count(leaf, n);
            let (kind, level) = (c.eax & 31, c.eax >> 5 & 7);
            let field = |x: u32, from: u32, bits: u32| (x >> from & ((1 << bits) - 1)) as usize + 1;
            let lines = field(c.ebx, 22, 10) * field(c.ebx, 12, 10) * (c.ecx as usize + 1);
            (kind, level, lines * field(c.ebx, 0, 12))
        };
        let all = (0..16).map(of).take_while(|c| c.0 != 0);
        // Kinds: 1 is data, 2 instructions, 3 both.
        let data: Vec<_> = all.filter(|c| c.0 != 2).map(|c| (c.1, c.2)).collect();
        if !data.is_empty() {
            return data;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_caches() {
        let Caches { l1, l2 } = Caches::detect();
        assert!((8 << 10..=1 << 20).contains(&l1) && (l1..=64 << 20).contains(&l2), "{l1} {l2}");
    }
}
