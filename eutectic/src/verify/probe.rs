//! Runs a plan and copies each value that a kernel stores.
//!
//! The program keeps its steps, its memory and their order. After each step, the values that it stored are copied to
//! additional outputs. So an error that occurs only where memory is shared also occurs here.

use eutectic_backend::{Buffer, Place, Program, Step};
use eutectic_ir::{Tensor, eclasses::ClassId};
use eutectic_lowering::{
    build::{self, Positions},
    copy::copy,
};
use rustc_hash::FxHashMap;

use crate::{Compiler, Error, Planned, Session};

/// A value that a step of a run stores.
#[derive(Clone, Debug)]
pub(crate) struct StoredValue {
    /// The step.
    pub step: usize,
    /// The call of a block that it belongs to, and the kernel of the block's plan.
    pub call: usize,
    pub kernel: usize,
    /// The number of earlier runs of this kernel of this call, in a loop.
    pub time: usize,
    /// The stored value.
    pub class: ClassId,
    slot: usize,
}

/// Returns the values that the steps of a plan store, in order.
///
/// # Errors
/// If a kernel of the plan cannot be built again, which is a defect.
pub(crate) fn stored_values(planned: &Planned) -> Result<Vec<StoredValue>, Error> {
    let classes = planned.blocks.iter().map(|block| {
        let positions = Positions::default();
        let kernels = block.searched.priced.kernels.iter().map(|(parts, _)| {
            let built = build::kernel(&block.classes, &block.searched.plan, parts, &positions, usize::MAX);
            built.map(|built| (built.classes, built.reads)).map_err(Error::Plan)
        });
        kernels.collect::<Result<Vec<_>, Error>>()
    });
    let classes: Vec<Vec<(Vec<ClassId>, usize)>> = classes.collect::<Result<_, _>>()?;
    let (mut all, mut times) = (Vec::new(), FxHashMap::<(usize, usize), usize>::default());
    for (step, of) in planned.lowered.steps.iter().enumerate() {
        let Some((call, kernel)) = *of else { continue };
        let time = times.entry((call, kernel)).or_default();
        let (classes, reads) = &classes[planned.outlined.calls[call].block][kernel];
        let written = classes.iter().copied().enumerate().skip(*reads);
        all.extend(written.map(|(slot, class)| StoredValue { step, call, kernel, time: *time, class, slot }));
        *time += 1;
    }
    Ok(all)
}

/// Runs a plan once and returns the selected results of its steps.
///
/// # Errors
/// See [`Session::run`]. In addition, if the backend cannot build the copies.
pub(crate) fn run(
    compiler: &Compiler,
    planned: &Planned,
    wanted: &[StoredValue],
    value: &dyn Fn(&str) -> Option<Tensor>,
) -> Result<Vec<Tensor>, Error> {
    let program = with_copies(planned, wanted);
    let executable = compiler.backend().compile(&program)?;
    let own = planned.lowered.program.outputs.len();
    let mut session = Session::new(program, executable);
    session.load_named(value)?;
    Ok(session.run_named(value)?.split_off(own))
}

/// Returns the program of a plan with an additional output for each of the values.
fn with_copies(planned: &Planned, wanted: &[StoredValue]) -> Program {
    let mut program = planned.lowered.program.clone();
    let mut run = Vec::with_capacity(program.run.len() + wanted.len());
    let mut left = wanted.iter().peekable();
    for (at, step) in std::mem::take(&mut program.run).into_iter().enumerate() {
        let (buffers, origin) = (step.buffers.clone(), step.origin.clone());
        run.push(step);
        while let Some(stored) = left.next_if(|stored| stored.step == at) {
            let block = &planned.blocks[planned.outlined.calls[stored.call].block];
            let ty = &block.classes.classes[stored.class].ty;
            let (from, to) = (buffers[stored.slot], program.buffers.len());
            let (dtype, count) = (program.buffers[from].dtype, ty.count());
            let place = Place::Output(program.outputs.len());
            program.buffers.push(Buffer { dtype, count, place });
            program.outputs.push((format!("stored {}", program.outputs.len()), ty.clone()));
            let kernel = copy(ty);
            let known = program.kernels.iter().position(|other| *other == kernel);
            let kernel = known.unwrap_or_else(|| {
                program.kernels.push(kernel);
                program.kernels.len() - 1
            });
            run.push(Step::new(kernel, vec![from, to], origin.clone()));
        }
    }
    program.run = run;
    program
}
