//! The backend's options, and its implementation of [`Backend`].

use std::{fs, num::NonZeroUsize, sync::Arc};

use eutectic_backend::{
    Backend, BackendError, Candidate, Cost, Executable, Kernel, Limits, Program, Setup,
    costs::{CostSheet, Provenance},
    fit::{Fitted, Freedom, Measured},
};
use eutectic_ir::{DType, ops::Reduction};

use crate::{
    cost::{CostModel, Costs, fit},
    kernels::{self, Way},
    machine::{Caches, Machine},
    runtime::exec,
    simd::{Isa, reduce::combining},
    tile::{MAX_RANK, grid},
};

/// Options of the CPU backend.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// The number of threads. If it is 1, everything runs on the caller's thread.
    pub threads: usize,
    /// The cost coefficients.
    pub costs: Costs,
    /// The instruction-set level. The backend lowers it to the level of the machine.
    pub isa: Isa,
    /// Whether products of scaled 8-bit integers with packed weights are rounded once per block. This is off by
    /// default: `--fp exact` promises the bits of execution op by op, and no rewrite rule declares this rounding.
    pub integers: bool,
}

impl Default for CpuOptions {
    /// Returns options with all hardware threads, the embedded costs and the highest instruction-set level of the
    /// machine.
    fn default() -> CpuOptions {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        CpuOptions { threads, costs: Costs::default(), isa: Isa::detect(), integers: false }
    }
}

/// The maximal number of threads. The limit exists because each has its own scratch memory and stack.
const MOST_THREADS: usize = 1024;

/// The CPU.
pub struct Cpu {
    model: CostModel,
    /// The measurement that the costs come from.
    provenance: Option<Provenance>,
}

impl Cpu {
    /// Returns a backend with these options. The instruction-set level is lowered to that of the machine.
    pub fn new(options: CpuOptions) -> Cpu {
        let threads = options.threads.clamp(1, MOST_THREADS);
        let isa = options.isa.min(Isa::detect());
        let machine =
            Machine { isa, threads, caches: Caches::detect(), lanes: options.costs.lanes, integers: options.integers };
        Cpu { model: CostModel::new(options.costs, machine), provenance: None }
    }
}

impl Cpu {
    /// Opens the backend with a user's options.
    ///
    /// # Errors
    /// If there are too many threads, or the costs cannot be read.
    pub fn open(setup: &Setup) -> Result<Arc<dyn Backend>, BackendError> {
        let mut options = CpuOptions::default();
        options.threads = setup.threads.map_or(options.threads, NonZeroUsize::get);
        if options.threads > MOST_THREADS {
            let given = options.threads;
            let problem = format!("cannot use {given} threads because the maximum is {MOST_THREADS}; choose fewer");
            return Err(BackendError::Setup { option: "threads", problem });
        }
        let mut provenance = None;
        if let Some(file) = setup.costs_for(NAME, &processor())? {
            let wrong = |problem| BackendError::Setup { option: "costs", problem };
            options.costs = options.costs.over(&file.text).map_err(wrong)?;
            provenance = file.provenance;
        }
        Ok(Arc::new(Cpu { provenance, ..Cpu::new(options) }))
    }
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu::new(CpuOptions::default())
    }
}

/// The backend's name.
const NAME: &str = "cpu";

/// Returns a text with the processor's brand, its instruction-set level, and the number of threads that the process may
/// use. Costs of memory and of further threads depend on that number.
fn processor() -> String {
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let plural = if threads == 1 { "" } else { "s" };
    let brand = brand().unwrap_or_else(|| std::env::consts::ARCH.into());
    format!("{brand} ({}), {threads} thread{plural}", Isa::detect().name())
}

/// Returns the brand string of an x86 processor, from leaves 0x8000_0002 to 0x8000_0004 of `cpuid`; `None` for other
/// processors.
fn brand() -> Option<String> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        const FIRST: u32 = 0x8000_0002;
        const LAST: u32 = 0x8000_0004;
        let known = __cpuid(0x8000_0000).eax >= LAST;
        let leaves = (FIRST..=LAST).filter(|_| known).map(__cpuid);
        let bytes: Vec<u8> =
            leaves.flat_map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]).flat_map(u32::to_le_bytes).collect();
        let text = String::from_utf8_lossy(&bytes).replace('\0', "");
        let words: Vec<&str> = text.split_whitespace().collect();
        return (!words.is_empty()).then(|| words.join(" "));
    }
    #[allow(unreachable_code, reason = "the block for x86-64 always returns")]
    None
}

/// Returns the bytes of memory that the process may use: the machine's memory or the limit of the control group.
/// Returns the maximal integer if neither is known.
fn memory() -> usize {
    let first = |path: &str| fs::read_to_string(path).ok();
    let total = first("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
    });
    let allowed = first("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok());
    total.into_iter().chain(allowed).min().unwrap_or(usize::MAX)
}

impl Backend for Cpu {
    fn name(&self) -> &str {
        NAME
    }

    fn device(&self) -> String {
        processor()
    }

    fn costs(&self) -> Option<CostSheet> {
        Some(self.model.costs().sheet(self.provenance.clone()))
    }

    fn describe(&self) -> String {
        let Machine { isa, threads, .. } = self.model.machine();
        let plural = if threads == 1 { "" } else { "s" };
        format!("{} ({}), {threads} thread{plural}", std::env::consts::ARCH, isa.name())
    }

    fn limits(&self) -> Limits {
        let combined = DType::ALL
            .into_iter()
            .filter(|dtype| Reduction::ALL.iter().all(|how| combining(*how, *dtype).is_some()))
            .collect();
        Limits {
            any_part: true,
            rank: MAX_RANK,
            capacity: memory(),
            in_order: true,
            combined,
            rows: grid::ROWS,
            ..Limits::default()
        }
    }

    fn supports(&self, kernel: &Kernel) -> Result<(), Vec<String>> {
        let built =
            |kernel: &Kernel| kernels::compile(kernel, self.model.way(kernel, None), self.model.machine()).map(|_| ());
        built(&kernel.longest())?;
        kernel.shorter().map_or(Ok(()), |kernel| built(&kernel))
    }

    fn cost(&self, kernel: &Kernel) -> Cost {
        match kernel.shorter() {
            Some(shorter) if !self.model.cost(&shorter).seconds.is_finite() => Cost::IMPOSSIBLE,
            _ => self.model.cost(&kernel.longest()),
        }
    }

    fn cost_among(&self, kernel: &Kernel, constants: &[usize]) -> Cost {
        match kernel.shorter() {
            Some(shorter) if !self.model.cost(&shorter).seconds.is_finite() => Cost::IMPOSSIBLE,
            _ => self.model.cost_among(&kernel.longest(), constants),
        }
    }

    fn candidates(&self, kernel: &Kernel, constants: &[usize]) -> Result<Vec<Candidate>, Vec<String>> {
        self.supports(kernel)?;
        let longest = kernel.longest();
        let candidate = |(way, cost): (Way, Cost)| {
            let name = kernels::compile(&longest, way, self.model.machine())?.name().into();
            Ok(Candidate { name, cost })
        };
        self.model.ways(&longest, constants).into_iter().map(candidate).collect()
    }

    fn calibrates(&self) -> bool {
        true
    }

    fn fit(&self, measured: &[Measured], freedom: Freedom) -> Option<Fitted> {
        fit(self.model.costs(), self.model.machine(), measured, freedom)
    }

    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        let way = |kernel: &Kernel, constants: &[usize]| self.model.way(&kernel.longest(), Some(constants));
        Ok(Arc::new(exec::compile(program, &way, self.model.machine())?))
    }
}
