//! Checks of programs, and of what runs are given.

use eutectic_backend::{BackendError, Buffer, Place, Program, Step};
use eutectic_ir::{DType, Origin, Type};

/// What is not right about an input, output, state or parameter.
pub fn wrong(what: &'static str, name: &str, problem: String) -> BackendError {
    BackendError::Binding { what, name: name.into(), problem }
}

/// Whether there are as many as the program has.
pub fn expect(what: &'static str, got: usize, wanted: usize) -> Result<(), BackendError> {
    if got == wanted { Ok(()) } else { Err(wrong(what, "*", format!("{got} given, the program has {wanted}"))) }
}

/// Whether buffers lie where they can and steps bind what their kernels ask for: thunks rely on it.
pub fn check(program: &Program, problems: &mut Vec<(Origin, String)>) {
    let whole = |n: usize, of: &[(String, Type)], b: &Buffer| {
        of.get(n).is_some_and(|(_, ty)| ty.dtype() == Some(b.dtype) && ty.count() == b.count)
    };
    let within = |at: usize, size: usize, b: &Buffer| {
        at.is_multiple_of(b.dtype.size()) && at.checked_add(b.count * b.dtype.size()).is_some_and(|end| end <= size)
    };
    for (id, buffer) in program.buffers.iter().enumerate() {
        let fits = match &buffer.place {
            Place::Input(n) => whole(*n, &program.inputs, buffer),
            Place::Param(n) => whole(*n, &program.params, buffer),
            Place::Output(n) => whole(*n, &program.outputs, buffer),
            Place::State(n) => whole(*n, &program.states, buffer),
            Place::Const(t) => t.dtype() == buffer.dtype && t.count() == buffer.count,
            Place::Loaded(at) => within(*at, program.load_bytes, buffer),
            Place::Arena(at) => within(*at, program.arena_bytes, buffer),
        };
        if !fits {
            let what = format!("buffer {id} of {} {} does not fit its place", buffer.count, buffer.dtype);
            problems.push((Origin::default(), what));
        }
    }
    let mut check = |steps: &[Step], load: bool| {
        for step in steps {
            let fits = program.kernels.get(step.kernel).is_some_and(|kernel| {
                let same = |(slot, &id): (&(DType, usize), &usize)| {
                    let there = |place: &Place| match place {
                        Place::Param(_) | Place::Const(_) | Place::Loaded(_) => true,
                        Place::Input(_) | Place::Arena(_) | Place::Output(_) | Place::State(_) => !load,
                    };
                    let fits = |b: &Buffer| b.dtype == slot.0 && b.count >= slot.1 && there(&b.place);
                    program.buffers.get(id).is_some_and(fits)
                };
                let written = |slot: usize| match program.buffers[step.buffers[slot]].place {
                    Place::Loaded(_) => load,
                    Place::Arena(_) | Place::Output(_) | Place::State(_) => !load,
                    Place::Input(_) | Place::Param(_) | Place::Const(_) => false,
                };
                kernel.slots.len() == step.buffers.len()
                    && kernel.slots.iter().zip(&step.buffers).all(same)
                    && kernel.stores.iter().all(|s| s.slot < step.buffers.len() && written(s.slot))
            });
            if !fits {
                problems.push((step.origin.clone(), format!("a step binds what kernel {} cannot use", step.kernel)));
            }
        }
    };
    check(&program.load, true);
    check(&program.run, false);
}
