//! A program that is compiled and loaded, with values of its inputs.

use eutectic::{Compiler, Graph, Planned, Session};

use super::args::Args;
use crate::{args::CommonArgs, fault::Fault, plan_file::PlanFile, timing::progress, values::NamedTensors};

/// A program that is ready to run.
pub struct Prepared {
    pub compiler: Compiler,
    pub planned: Planned,
    pub session: Session,
    /// Values of all inputs, in memory of the device's choice.
    pub inputs: NamedTensors,
    /// The source of its parameters.
    pub source: String,
    job: CommonArgs,
    graph: Graph,
    /// The inputs that the user gave.
    given: NamedTensors,
}

impl Prepared {
    /// Compiles and loads a program, and makes values of its inputs.
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
        // A model without room is refused before random parameters are made for it.
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
        // Input files that do not fit are refused before parameters are packed.
        let inputs = prepared.made(0)?;
        let bar = progress("loading", None);
        prepared.session.load_named(|name| params.get(name).cloned())?;
        drop(bar);
        prepared.inputs = prepared.placed(inputs)?;
        Ok(prepared)
    }

    /// Returns values of all inputs: the given ones, and random numbers that depend on a number.
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
        // In a file, numbers begin anywhere.
        let session = &mut self.session;
        let placed = inputs.into_iter().map(|(name, value)| Ok((name, session.placed(&value)?)));
        Ok(placed.collect::<Result<NamedTensors, eutectic::Error>>()?)
    }
}
