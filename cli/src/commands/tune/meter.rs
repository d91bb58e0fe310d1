//! Measures the times of kernels, each kernel once.

use std::collections::HashMap;

use eutectic::{Compiler, Graph, Planned, engine::backend::Kernel};

use crate::{fault::Fault, interrupt::Interrupt, program::ProgramArgs};

/// A kernel of a plan's run, and its measured time.
pub struct Timed {
    pub kernel: Kernel,
    pub seconds: f64,
}

/// Measures kernels. A kernel is measured once for each number of threads, if the backend can measure kernels
/// separately.
pub struct Meter {
    pub iters: u32,
    pub known: HashMap<(usize, Kernel), f64>,
    /// Ends the measurement. Kernels that were not measured before have no times.
    pub interrupt: Interrupt,
}

impl Meter {
    /// Plans a program. Returns the plan, and the kernels of its run with the time of their fastest run. Copies are
    /// left out.
    pub fn run(
        &mut self,
        compiler: &Compiler,
        program: &ProgramArgs,
        graph: &Graph,
        threads: usize,
    ) -> Result<(Planned, Vec<Timed>), Fault> {
        let planned = compiler.plan(graph)?;
        let lowered = &planned.lowered.program;
        let steps = lowered.run.iter().map(|step| &lowered.kernels[step.kernel]);
        let mut timed = Vec::new();
        let mut by_itself = true;
        for kernel in steps.clone() {
            if self.interrupt.came() {
                return Ok((planned, timed));
            }
            let known = self.known.get(&(threads, kernel.clone())).copied();
            let seconds = match known {
                Some(seconds) => Some(seconds),
                None => compiler.backend().measure(kernel, self.iters as usize).map_err(eutectic::Error::from)?,
            };
            let Some(seconds) = seconds else {
                by_itself = false;
                break;
            };
            self.known.insert((threads, kernel.clone()), seconds);
            timed.push(Timed { kernel: kernel.clone(), seconds });
        }
        if !by_itself {
            let least = self.profile(compiler, &planned, program, graph)?;
            timed = steps.zip(least).map(|(kernel, seconds)| Timed { kernel: kernel.clone(), seconds }).collect();
        }
        timed.retain(|timed| timed.seconds > 0.0);
        Ok((planned, timed))
    }

    /// Returns the seconds of each step: the minimum over several runs.
    pub fn profile(
        &self,
        compiler: &Compiler,
        planned: &Planned,
        program: &ProgramArgs,
        graph: &Graph,
    ) -> Result<Vec<f64>, Fault> {
        let mut session = compiler.build(planned)?;
        let (params, _) = program.params(graph)?;
        session.load_named(|name| params.get(name).cloned())?;
        let given = program.inputs(graph, Default::default())?;
        let inputs: Vec<_> = session.program().inputs.iter().filter_map(|(name, _)| given.get(name).cloned()).collect();
        let mut least = vec![f64::INFINITY; planned.lowered.program.run.len()];
        // The first run is not counted, because caches are cold and pages are not mapped.
        for run in session.profile(&inputs, 1 + self.iters as usize)?.iter().skip(1) {
            least.iter_mut().zip(run).for_each(|(least, &seconds)| *least = least.min(seconds));
        }
        Ok(least)
    }
}
