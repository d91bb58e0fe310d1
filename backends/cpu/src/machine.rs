//! The machine for which kernels are compiled: its instruction-set level, threads, cache sizes read from the processor,
//! and the costs by which schedules are chosen.

use std::sync::OnceLock;

use crate::{schedule::LaneCosts, simd::Isa};

/// The target of compilation.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The instruction-set level.
    pub isa: Isa,
    /// The number of threads that share the work. Results do not depend on it.
    pub threads: usize,
    /// The caches of a core.
    pub caches: Caches,
    /// The costs by which sums along an axis of the result are cut into tiles.
    pub lanes: LaneCosts,
    /// Whether products of scaled integers are rounded once per block: these are not the bits of execution op by op.
    pub integers: bool,
}

#[cfg(test)]
impl Default for Machine {
    /// Returns one thread of this machine, with the default caches and costs.
    fn default() -> Machine {
        let lanes = crate::cost::Costs::default().lanes;
        Machine { isa: Isa::detect(), threads: 1, caches: Caches::default(), lanes, integers: false }
    }
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
    /// Returns the caches of today's small cores.
    fn default() -> Caches {
        Caches { l1: 32 << 10, l2: 512 << 10 }
    }
}

impl Caches {
    /// Returns the caches of this machine, or the default if it does not report them. It is asked once, because `cpuid`
    /// is a trap in a virtual machine.
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

/// Level and size of each data cache, from "deterministic cache parameters" (Intel SDM vol. 2A, CPUID leaf 4) or AMD's
/// leaf of the same form (APM vol. 3, CPUID Fn8000_001D).
#[cfg(target_arch = "x86_64")]
fn x86() -> Vec<(u32, usize)> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    if cfg!(miri) {
        // The processor has no `cpuid`.
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
