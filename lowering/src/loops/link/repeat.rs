//! Repeats the steps of a loop's body, once per iteration.

use eutectic_backend::{Buffer, BufferId, Exit, Part, Place, Program, Step};
use eutectic_ir::{DType, Graph, Type};

use super::{LinkUnit, Linker, PlacedBuffer, bound, defect, named};
use crate::{
    copy::{copy, copy_rows},
    loops::stages::{StagedLoop, carried, given, output},
    program::LowerError,
};

/// The maximal number of steps of a program.
const MOST_STEPS: usize = 1 << 18;

/// A port of a body that is bound to another slice of a value in each iteration.
struct MovingPort {
    /// The body's number for the buffer.
    buffer: usize,
    /// The whole value, and its live range.
    whole: BufferId,
    span: usize,
    /// Elements per slice, and the distance of two slices in elements.
    count: usize,
    stride: usize,
}

/// The buffers that the ports of a loop's body are bound to, in the order of the ports' names.
struct LoopPorts {
    states: Vec<BufferId>,
    scanned: Vec<BufferId>,
    captured: Vec<BufferId>,
    stacked: Vec<BufferId>,
}

/// For each input, output and state of a body, the number in its name; `None` for a name that the loop does not know.
struct PortNumbers {
    inputs: Vec<Option<usize>>,
    outputs: Vec<Option<usize>>,
    states: Vec<Option<usize>>,
}

impl PortNumbers {
    fn of(program: &Program, ports: &LoopPorts) -> PortNumbers {
        let number = |name: &str, names: &dyn Fn(usize) -> String, most: usize| (0..most).find(|at| names(*at) == name);
        let inputs = ports.scanned.len() + ports.captured.len();
        PortNumbers {
            inputs: program.inputs.iter().map(|(name, _)| number(name, &given, inputs)).collect(),
            outputs: program.outputs.iter().map(|(name, _)| number(name, &output, ports.stacked.len())).collect(),
            states: program.states.iter().map(|(name, _)| number(name, &carried, ports.states.len())).collect(),
        }
    }

    /// Returns the buffer that a port is bound to; `None` for a name that the loop does not know.
    fn bound(&self, place: &Place, ports: &LoopPorts) -> Option<BufferId> {
        let found = |of: &[BufferId], at: Option<usize>| at.and_then(|at| of.get(at)).copied();
        match place {
            Place::Input(n) => match self.inputs[*n] {
                Some(at) if at >= ports.scanned.len() => found(&ports.captured, Some(at - ports.scanned.len())),
                at => found(&ports.scanned, at),
            },
            Place::Output(n) => found(&ports.stacked, self.outputs[*n]),
            Place::State(n) => found(&ports.states, self.states[*n]),
            _ => None,
        }
    }
}

/// The copy of a stacked value from a buffer with padded slices to a contiguous buffer.
struct PaddedOutput {
    buffers: [BufferId; 2],
    dtype: DType,
    extents: [usize; 2],
    strides: [usize; 2],
}

/// A state that a body copies from an output in each iteration.
struct KeptState {
    /// The body's numbers for the buffer of the state and the buffer of the output.
    state: BufferId,
    part: BufferId,
    /// The step that copies.
    copy: usize,
}

impl Linker<'_> {
    /// Adds a loop: the steps of its body for each iteration, with copies before and after.
    pub(super) fn repeat(
        &mut self,
        graph: &Graph,
        moment: usize,
        of: &StagedLoop,
        piece: &LinkUnit,
    ) -> Result<(), LowerError> {
        let program = &piece.lowered.program;
        let count = of.times.saturating_mul(program.run.len()).saturating_add(self.program.run.len());
        if count > MOST_STEPS {
            let problem = format!(
                "cannot unroll {} iterations of {} steps because a program has at most {MOST_STEPS} steps, one for each kernel and iteration; use fewer iterations",
                of.times,
                program.run.len()
            );
            return Err(LowerError { origin: of.origin.clone(), problem });
        }
        let states = self.carry(graph, moment, of)?;
        let scanned = self.scan(graph, moment, of)?;
        let captured = of.captured.iter().map(|id| self.read(*id, moment)).collect::<Result<Vec<_>, _>>()?;
        let (stacked, padded) = self.stack(program, moment, of);
        let ports = LoopPorts { states, scanned, captured, stacked };
        let numbers = PortNumbers::of(program, &ports);
        let (buffers, kernels) = self.splice(program, moment, &mut |linker, place| match place {
            Place::Param(n) => linker.known("param", &program.params[*n].0).map(Some),
            Place::Const(_) | Place::Loaded(_) | Place::Arena(_) => Ok(None),
            place => numbers.bound(place, &ports).map(Some).ok_or_else(|| {
                defect("cannot bind a port of a loop's body because the loop has no value for it".into())
            }),
        })?;
        let moving = self.moving(program, &buffers, &numbers, ports.scanned.len())?;
        self.iterate((of, piece), (buffers, &kernels), &moving, &ports.states);
        for PaddedOutput { buffers, dtype, extents, strides } in padded {
            self.copies(&copy_rows(dtype, extents, strides), buffers, &of.origin);
        }
        Ok(())
    }

    /// Gives each carried value a buffer of its own, and copies its initial value there.
    fn carry(&mut self, graph: &Graph, moment: usize, of: &StagedLoop) -> Result<Vec<BufferId>, LowerError> {
        let mut states = Vec::new();
        for (at, start) in of.starts.iter().enumerate() {
            let ty = graph.ty(*start);
            let from = self.read(*start, moment)?;
            let (cell, span) = self.cell(ty, moment);
            self.copies(&copy(ty), [from, cell], &of.origin);
            self.values.extend(of.results[at].iter().map(|id| (*id, (cell, Some(span)))));
            states.push(cell);
        }
        Ok(states)
    }

    /// Places scanned values in the arena, with slices at the distance that the device's alignment requires.
    fn scan(&mut self, graph: &Graph, moment: usize, of: &StagedLoop) -> Result<Vec<BufferId>, LowerError> {
        let mut scanned = Vec::new();
        for id in &of.scanned {
            let buffer = self.read(*id, moment)?;
            let Buffer { dtype, count, ref place } = self.program.buffers[buffer];
            let count = count / of.times.max(1);
            let stride = self.stride(dtype, count);
            let whole = match place {
                _ if stride != count => {
                    let (cell, _) = self.cell(&Type::tensor(dtype, &[of.times, stride]), moment);
                    let rows = copy_rows(dtype, [of.times, count], [count, stride]);
                    self.copies(&rows, [buffer, cell], &of.origin);
                    cell
                }
                Place::Arena(_) => buffer,
                _ => {
                    let (cell, _) = self.cell(graph.ty(*id), moment);
                    self.copies(&copy(graph.ty(*id)), [buffer, cell], &of.origin);
                    cell
                }
            };
            scanned.push(whole);
        }
        Ok(scanned)
    }

    /// Allocates stacked values. Returns the buffers that the body writes. If their slices are padded, also returns the
    /// copies to contiguous buffers.
    fn stack(&mut self, program: &Program, moment: usize, of: &StagedLoop) -> (Vec<BufferId>, Vec<PaddedOutput>) {
        let (mut stacked, mut padded) = (Vec::new(), Vec::new());
        for ((_, ty), results) in program.outputs.iter().zip(&of.results[of.starts.len()..]) {
            let (dtype, count) = (ty.dtype().unwrap_or(DType::F32), ty.count());
            let (cell, span) = self.cell(&Type::tensor(dtype, &[of.times, count]), moment);
            self.values.extend(results.iter().map(|id| (*id, (cell, Some(span)))));
            let stride = self.stride(dtype, count);
            if stride == count {
                stacked.push(cell);
            } else {
                let (slices, _) = self.cell(&Type::tensor(dtype, &[of.times, stride]), moment);
                let (extents, strides) = ([of.times, count], [stride, count]);
                padded.push(PaddedOutput { buffers: [slices, cell], dtype, extents, strides });
                stacked.push(slices);
            }
        }
        (stacked, padded)
    }

    /// Returns the ports of a body that are bound to another slice in each iteration.
    fn moving(
        &self,
        program: &Program,
        buffers: &[BufferId],
        numbers: &PortNumbers,
        scanned: usize,
    ) -> Result<Vec<MovingPort>, LowerError> {
        let mut moving: Vec<MovingPort> = Vec::new();
        for (at, buffer) in program.buffers.iter().enumerate() {
            let moves = match buffer.place {
                Place::Input(n) => numbers.inputs[n].is_some_and(|at| at < scanned),
                Place::Output(_) => true,
                _ => false,
            };
            if !moves || buffer.count == 0 {
                continue;
            }
            let whole = buffers[at];
            let span = self.placed.iter().find(|placed| placed.buffer == whole).map(|placed| placed.span);
            let span = span.ok_or_else(|| defect("cannot bind slices of a buffer outside the arena".into()))?;
            let stride = self.stride(buffer.dtype, buffer.count);
            moving.push(MovingPort { buffer: at, whole, span, count: buffer.count, stride });
        }
        Ok(moving)
    }

    /// Adds the steps of a body for each iteration. `buffers` and `kernels` map the body's numbers to those of the
    /// program.
    fn iterate(
        &mut self,
        (of, piece): (&StagedLoop, &LinkUnit),
        (mut buffers, kernels): (Vec<BufferId>, &[usize]),
        moving: &[MovingPort],
        states: &[BufferId],
    ) {
        let program = &piece.lowered.program;
        // The buffers that hold the states after the last iteration.
        let cells = buffers.clone();
        let kept = kept_in_outputs(program, |at| moving.iter().any(|port| port.buffer == at));
        let exits = self.program.exits.len();
        for time in 0..of.times {
            if let Some(condition) = of.condition.filter(|_| !program.run.is_empty()) {
                let (before, unless) = (self.program.run.len(), states[condition]);
                self.program.exits.push(Exit { before, unless, to: before });
            }
            // Bind kept states before the slices advance: the value carried into this iteration is in the slice that
            // the last iteration wrote.
            for KeptState { state, part, .. } in kept.iter().filter(|_| time > 0) {
                buffers[*state] = buffers[*part];
            }
            for port in moving {
                let (dtype, at) = (program.buffers[port.buffer].dtype, time * port.stride);
                let part = self.buffer(&Type::tensor(dtype, &[port.count]), Place::Arena(0));
                self.placed.push(PlacedBuffer { buffer: part, span: port.span, at: at * dtype.size() });
                self.program.parts.insert(part, Part { of: port.whole, at });
                buffers[port.buffer] = part;
            }
            let last = time + 1 == of.times;
            for ((at, step), name) in program.run.iter().enumerate().zip(named(piece)) {
                let copied = kept.iter().find(|kept| kept.copy == at);
                if copied.is_some() && !last {
                    continue;
                }
                let mut step = bound(step, &buffers, kernels);
                if let Some(kept) = copied {
                    step.buffers[1] = cells[kept.state];
                }
                self.program.run.push(step);
                self.steps.push(name);
            }
        }
        let end = self.program.run.len();
        self.program.exits[exits..].iter_mut().for_each(|exit| exit.to = end);
    }
}

/// Returns the states of a body that need no copy: the next iteration reads the output's slice of the last iteration,
/// which no step writes again. The body must read such a state before it writes the output, and must not write the
/// state elsewhere.
fn kept_in_outputs(body: &Program, moves: impl Fn(BufferId) -> bool) -> Vec<KeptState> {
    let kept = |(at, step): (usize, &Step)| {
        let &[part, state] = step.buffers.as_slice() else { return None };
        let of = &body.buffers[part];
        let is_copy = body.kernels[step.kernel] == copy(&Type::tensor(of.dtype, &[of.count]));
        let is_output = matches!(of.place, Place::Output(_)) && moves(part);
        let is_state = matches!(body.buffers[state].place, Place::State(_));
        let others =
            || body.run.iter().enumerate().filter(|(other, step)| *other != at && step.buffers.contains(&state));
        let writes =
            |step: &Step| body.kernels[step.kernel].stores.iter().any(|store| step.buffers[store.slot] == state);
        let whole = || body.parts.values().all(|of| of.of != state && of.of != part);
        let only = || whole() && others().all(|(other, step)| other < at && !writes(step));
        (is_copy && is_output && is_state && only()).then_some(KeptState { state, part, copy: at })
    };
    body.run.iter().enumerate().filter_map(kept).collect()
}
