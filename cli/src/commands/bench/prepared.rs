//! A program that is compiled and loaded, with values for its inputs.

use eutectic::{Compiler, Graph, Planned, Session};

use super::args::Args;
use crate::{args::CommonArgs, fault::Fault, plan_file::PlanFile, timing::progress, values::NamedTensors};

/// A program that is ready to run.
pub struct Prepared {
    pub compiler: Compiler,
    pub planned: Planned,
    pub session: Session,
    /// Values of all inputs, in memory that the device prefers.
    pub inputs: NamedTensors,
    /// A description of the source of the parameters.
    pub source: String,
    job: CommonArgs,
    graph: Graph,
    /// The inputs that the user gave.
    given: NamedTensors,
}

impl Prepared {
    /// Compiles and loads a program, and creates values for its inputs.
    ///
    /// # Errors
    /// If the program cannot be compiled or loaded, or a file cannot be read or written.
    pub fn of(args: &Args, mut job: CommonArgs) -> Result<Prepared, Fault> {
        let compiler = job.compile.compiler_for(&job.program)?;
        let given = args.given(&job)?;
        job.program.infer(&given)?;
        let graph = job.program.graph()?;
        let compiler = compiler.with_ops_of(&graph)?;
        let bar = progress("compiling", None);
        // Compilation comes before random parameters are created, so that a model that does not fit in memory is
        // refused early.
        let (planned, session) = match &args.plan {
            Some(path) => PlanFile::read(path)?.compile(&compiler, &graph)?,
            None => compiler.compile_planned(&graph)?,
        };
        if let Some(path) = &args.save_plan {
            let model = job.program.model.to_string_lossy();
            PlanFile::of(&planned, &model, compiler.backend().describe()).write(path)?;
        }
        drop(bar);
        let (params, source) = job.program.params(&graph)?;
        let inputs = NamedTensors::new();
        let mut prepared = Prepared { compiler, planned, session, inputs, source, job, graph, given };
        // Input values come before parameters are packed, so that files that do not fit their inputs are refused early.
        let inputs = prepared.made(0)?;
        let bar = progress("loading", None);
        prepared.session.load_named(|name| params.get(name).cloned())?;
        drop(bar);
        prepared.inputs = prepared.placed(inputs)?;
        Ok(prepared)
    }

    /// Returns values of all inputs: the given ones, and random ones. `number` selects the random numbers.
    ///
    /// # Errors
    /// If a given value does not fit its input.
    pub fn inputs_of(&mut self, number: u64) -> Result<NamedTensors, Fault> {
        let inputs = self.made(number)?;
        self.placed(inputs)
    }

    fn made(&self, number: u64) -> Result<NamedTensors, Fault> {
        let mut program = self.job.program.clone();
        program.seed = program.seed.wrapping_add(number);
        program.inputs(&self.graph, self.given.clone())
    }

    fn placed(&mut self, inputs: NamedTensors) -> Result<NamedTensors, Fault> {
        // The data of a file may start at any address. `placed` copies it to memory that the device prefers.
        let session = &mut self.session;
        let placed = inputs.into_iter().map(|(name, value)| Ok((name, session.placed(&value)?)));
        Ok(placed.collect::<Result<NamedTensors, eutectic::Error>>()?)
    }
}
