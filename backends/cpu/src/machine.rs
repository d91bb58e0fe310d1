//! The machine for which kernels are compiled: its instruction-set level, threads, cache sizes (read from the
//! processor), and the costs that tile sizes depend on.

use std::sync::OnceLock;

use crate::{schedule::LaneCosts, simd::Isa};

/// The target of compilation.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The instruction-set level.
    pub isa: Isa,
    /// The number of threads that share the work. Results do not depend on the number.
    pub threads: usize,
    /// The caches of a core.
    pub caches: Caches,
    /// The costs that determine the tiles of batch-vectorised contractions.
    pub lanes: LaneCosts,
    /// Whether products of scaled 8-bit integers are rounded once per block. Results then differ in their bits from
    /// execution op by op.
    pub integers: bool,
}

#[cfg(test)]
impl Default for Machine {
    /// Returns this machine with one thread, and with the default cache sizes and costs.
    fn default() -> Machine {
        let lanes = crate::cost::Costs::default().lanes;
        Machine { isa: Isa::detect(), threads: 1, caches: Caches::default(), lanes, integers: false }
    }
}

/// The sizes in bytes of the data caches that a core can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// The first-level cache.
    pub l1: usize,
    /// The second-level cache.
    pub l2: usize,
}

impl Default for Caches {
    /// Returns the cache sizes of small cores of 2020 and later.
    fn default() -> Caches {
        Caches { l1: 32 << 10, l2: 512 << 10 }
    }
}

impl Caches {
    /// Returns the cache sizes of this machine, or the default if it does not report them. The first call reads them
    /// for all later calls, because in a virtual machine every `cpuid` traps to the hypervisor.
    pub fn detect() -> Caches {
        static DETECTED: OnceLock<Caches> = OnceLock::new();
        *DETECTED.get_or_init(Caches::read)
    }

    fn read() -> Caches {
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

/// Returns the level and the size in bytes of each data cache. The source is "deterministic cache parameters" (Intel
/// SDM vol. 2A, CPUID leaf 4), or AMD's leaf of the same form (APM vol. 3, CPUID Fn8000_001D).
#[cfg(target_arch = "x86_64")]
fn x86() -> Vec<(u32, usize)> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    if cfg!(miri) {
        // Miri does not support `cpuid`.
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
        // Kind 1 is a data cache, 2 an instruction cache, and 3 a cache for both.
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
