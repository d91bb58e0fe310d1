//! The backend's options, and its answers to the planner.

use std::{fs, num::NonZeroUsize, sync::Arc};

use eutectic_backend::{
    Backend, BackendError, Candidate, Cost, Executable, Kernel, Limits, Program, Setup,
    fit::{Fitted, Measured},
};
use eutectic_ir::{DType, ops::Reduction};

use crate::{
    cost::{CostModel, Costs, fit},
    kernels,
    machine::Machine,
    runtime::exec,
    simd::{Isa, reduce::combining},
    tile::{MAX_RANK, grid},
};

/// How to run on the CPU.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// Number of threads; one runs everything on the caller's thread.
    pub threads: usize,
    /// What things cost.
    pub costs: Costs,
    /// The instruction-set level, which the machine must have.
    pub isa: Isa,
}

impl Default for CpuOptions {
    /// All hardware threads, the embedded costs and the best level of the machine.
    fn default() -> CpuOptions {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        CpuOptions { threads, costs: Costs::default(), isa: Isa::detect() }
    }
}

/// The most threads of a program: each has scratch memory and a stack of its own.
const MOST_THREADS: usize = 1024;

/// The CPU.
pub struct Cpu {
    machine: Machine,
    model: CostModel,
}

impl Cpu {
    /// A backend with these options; the level is lowered to what the machine has.
    pub fn new(options: CpuOptions) -> Cpu {
        let threads = options.threads.clamp(1, MOST_THREADS);
        let machine = Machine { isa: options.isa.min(Isa::detect()), threads };
        Cpu { machine, model: CostModel::new(options.costs, threads) }
    }
}

impl Cpu {
    /// The backend as a user wants it.
    ///
    /// # Errors
    /// When the costs cannot be read.
    pub fn open(setup: &Setup) -> Result<Arc<dyn Backend>, BackendError> {
        let mut options = CpuOptions::default();
        options.threads = setup.threads.map_or(options.threads, NonZeroUsize::get);
        if options.threads > MOST_THREADS {
            let problem = format!("{} are more than the {MOST_THREADS} that a program is cut for", options.threads);
            return Err(BackendError::Setup { option: "threads", problem });
        }
        if let Some(costs) = &setup.costs {
            let wrong = |e: String| BackendError::Setup { option: "costs", problem: e };
            options.costs = Costs::parse(costs).map_err(|e| wrong(e.to_string()))?;
        }
        Ok(Arc::new(Cpu::new(options)))
    }
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu::new(CpuOptions::default())
    }
}

/// Bytes of memory that the machine has, or that the process's group may use; any number where neither is said.
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
        "cpu"
    }

    fn describe(&self) -> String {
        let Machine { isa, threads } = self.machine;
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
        let built = |kernel: &Kernel| kernels::compile(kernel, self.machine).map(|_| ());
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
        let name = kernels::compile(&kernel.longest(), self.machine)?.name().into();
        Ok(vec![Candidate { name, cost: self.cost_among(kernel, constants) }])
    }

    fn fit(&self, measured: &[Measured]) -> Option<Fitted> {
        fit(self.model.costs(), measured)
    }

    fn compile(&self, program: &Program) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(exec::compile(program, self.machine)?))
    }
}
