//! Puts the programs of a graph's stages and of its loops' bodies together.
//!
//! A loop is the steps of its body, once for each time: kernels and buffers are the same, but for the parts of what is scanned and
//! stacked. What is carried has a place of its own, which the body writes as a program writes its states, so that no step allocates,
//! and copies are made only where the body could not do without.

use std::cmp::Reverse;

use eutectic_backend::{Buffer, BufferId, Exit, Kernel, Limits, Part, Place, Program, Step};
use eutectic_ir::{DType, Graph, NodeId, Origin, Type};
use rustc_hash::FxHashMap;

use super::stages::{Staged, StagedLoop, carried, given, output, value};
use crate::{
    copy::{copy, copy_rows},
    memory,
    program::{LowerError, Lowered},
};

/// The most steps of a program.
const MOST_STEPS: usize = 1 << 18;

/// Says which buffer a port of a piece is; none where it has one of its own.
type BindPort<'a, L> = dyn FnMut(&mut L, &Place) -> Result<Option<BufferId>, LowerError> + 'a;

/// A program of a stage or a body. Its steps name calls of blocks; these are the first of them, in the whole program.
#[derive(Clone, Debug)]
pub struct LinkUnit {
    /// The program, and the steps' calls counted from the piece's first one.
    pub lowered: Lowered,
    /// The number of that call.
    pub calls: usize,
}

/// Links the programs of a staged graph, a stage's being nothing where it computes nothing; steps name calls of the whole.
///
/// # Errors
/// When loops have too many steps, or parts that the device cannot start a buffer at.
pub fn link(
    graph: &Graph,
    staged: &Staged,
    stages: &[Option<LinkUnit>],
    bodies: &[LinkUnit],
    limits: &Limits,
) -> Result<Lowered, LowerError> {
    let mut linker = Linker {
        program: Program { extents: graph.extents(), ..Program::default() },
        steps: Vec::new(),
        kernels: FxHashMap::default(),
        lives: Vec::new(),
        placed: Vec::new(),
        values: FxHashMap::default(),
        interface: FxHashMap::default(),
        limits,
    };
    linker.ports(graph);
    for (at, stage) in stages.iter().enumerate() {
        if let Some(stage) = stage {
            linker.stage(graph, at, stage)?;
        }
        if let (Some(of), Some(body)) = (staged.loops.get(at), bodies.get(at)) {
            linker.repeat(graph, 2 * at + 1, of, body)?;
        }
    }
    Ok(linker.finish())
}

/// A stretch of the arena, from the first moment to the last; stage `i` is moment `2i`, the loop behind it the next one.
struct ArenaSpan {
    bytes: usize,
    first: usize,
    last: usize,
}

/// A buffer of the arena.
struct PlacedBuffer {
    buffer: BufferId,
    /// The stretch that it lies in, and from which of its bytes on.
    span: usize,
    at: usize,
}

/// A port of a body that is another part of a value each time.
struct MovingPort {
    /// The body's number of the buffer.
    buffer: usize,
    /// The value, and its stretch.
    whole: BufferId,
    span: usize,
    /// Elements of a part, and from the start of one to that of the next.
    count: usize,
    stride: usize,
}

struct Linker<'a> {
    program: Program,
    steps: Vec<Option<(usize, usize)>>,
    kernels: FxHashMap<Kernel, usize>,
    lives: Vec<ArenaSpan>,
    placed: Vec<PlacedBuffer>,
    /// The buffers of inputs and of what stages and loops hand on, the latter with their stretch.
    values: FxHashMap<NodeId, (BufferId, Option<usize>)>,
    /// The buffers of parameters, states and outputs, by kind and name.
    interface: FxHashMap<(&'static str, String), BufferId>,
    limits: &'a Limits,
}

impl Linker<'_> {
    fn buffer(&mut self, ty: &Type, place: Place) -> BufferId {
        let (dtype, count) = (ty.dtype().unwrap_or(DType::F32), ty.count());
        self.program.buffers.push(Buffer { dtype, count, place });
        self.program.buffers.len() - 1
    }

    /// A stretch of the arena.
    fn life(&mut self, bytes: usize, moment: usize) -> usize {
        self.lives.push(ArenaSpan {
            bytes: bytes.next_multiple_of(self.limits.alignment),
            first: moment,
            last: moment,
        });
        self.lives.len() - 1
    }

    /// A buffer with a stretch of its own.
    fn cell(&mut self, ty: &Type, moment: usize) -> (BufferId, usize) {
        let (buffer, life) = (self.buffer(ty, Place::Arena(0)), self.life(ty.bytes(), moment));
        self.placed.push(PlacedBuffer { buffer, span: life, at: 0 });
        (buffer, life)
    }

    fn ports(&mut self, graph: &Graph) {
        for kind in ["input", "param", "state"] {
            for (at, (name, id)) in graph.named(kind).enumerate() {
                let ty = graph.ty(id);
                let (list, place) = match kind {
                    "input" => (&mut self.program.inputs, Place::Input(at)),
                    "param" => (&mut self.program.params, Place::Param(at)),
                    _ => (&mut self.program.states, Place::State(at)),
                };
                list.push((name.to_string(), ty.clone()));
                let buffer = self.buffer(ty, place);
                if kind != "param" {
                    self.values.insert(id, (buffer, None));
                }
                if kind != "input" {
                    self.interface.insert((kind, name.to_string()), buffer);
                }
            }
        }
        for (at, (name, id)) in graph.outputs().iter().enumerate() {
            self.program.outputs.push((name.clone(), graph.ty(*id).clone()));
            let buffer = self.buffer(graph.ty(*id), Place::Output(at));
            self.interface.insert(("output", output(at)), buffer);
        }
    }

    /// The buffer of a value that was handed on, which is read at a moment.
    fn read(&mut self, id: NodeId, moment: usize) -> Result<BufferId, LowerError> {
        let Some(&(buffer, life)) = self.values.get(&id) else {
            return Err(defect(format!("nobody hands on value {}", id.0)));
        };
        if let Some(life) = life {
            self.lives[life].last = moment;
        }
        Ok(buffer)
    }

    fn kernel(&mut self, kernel: &Kernel) -> usize {
        if let Some(&at) = self.kernels.get(kernel) {
            return at;
        }
        self.program.kernels.push(kernel.clone());
        self.kernels.insert(kernel.clone(), self.program.kernels.len() - 1);
        self.program.kernels.len() - 1
    }

    /// Adds what a piece loads, and its buffers but for ports; ports are bound to what `port` says. Gives the buffers by the piece's
    /// numbers, and its kernels.
    fn splice(
        &mut self,
        piece: &Program,
        moment: usize,
        port: &mut BindPort<'_, Self>,
    ) -> Result<(Vec<BufferId>, Vec<usize>), LowerError> {
        let region = self.life(piece.arena_bytes, moment);
        let loaded = self.program.load_bytes;
        self.program.load_bytes += piece.load_bytes;
        let mut buffers = Vec::with_capacity(piece.buffers.len());
        for buffer in &piece.buffers {
            let bound = port(self, &buffer.place)?;
            let id = match (bound, &buffer.place) {
                (Some(bound), _) => bound,
                (None, place) => {
                    let place = match place {
                        Place::Loaded(at) => Place::Loaded(loaded + at),
                        other => other.clone(),
                    };
                    self.program.buffers.push(Buffer { place, ..buffer.clone() });
                    self.program.buffers.len() - 1
                }
            };
            if let Place::Arena(at) = buffer.place {
                self.placed.push(PlacedBuffer { buffer: id, span: region, at });
            }
            buffers.push(id);
        }
        for (part, Part { of, at }) in &piece.parts {
            self.program.parts.insert(buffers[*part], Part { of: buffers[*of], at: *at });
        }
        let kernels: Vec<usize> = piece.kernels.iter().map(|kernel| self.kernel(kernel)).collect();
        let load = piece.load.iter().map(|step| bound(step, &buffers, &kernels));
        self.program.load.extend(load.collect::<Vec<_>>());
        Ok((buffers, kernels))
    }

    fn stage(&mut self, graph: &Graph, at: usize, piece: &LinkUnit) -> Result<(), LowerError> {
        let (program, moment) = (&piece.lowered.program, 2 * at);
        let by_name: FxHashMap<String, NodeId> = graph.nodes().map(|(id, _)| (value(id), id)).collect();
        let (buffers, kernels) = self.splice(program, moment, &mut |linker, place| {
            Ok(Some(match place {
                Place::Input(n) => linker.read(by_name[&program.inputs[*n].0], moment)?,
                Place::Param(n) => linker.known("param", &program.params[*n].0)?,
                Place::State(n) => linker.known("state", &program.states[*n].0)?,
                Place::Output(n) => match by_name.get(&program.outputs[*n].0) {
                    Some(&id) => {
                        let (buffer, life) = linker.cell(&program.outputs[*n].1, moment);
                        linker.values.insert(id, (buffer, Some(life)));
                        buffer
                    }
                    None => linker.known("output", &program.outputs[*n].0)?,
                },
                Place::Const(_) | Place::Loaded(_) | Place::Arena(_) => return Ok(None),
            }))
        })?;
        self.program.run.extend(program.run.iter().map(|step| bound(step, &buffers, &kernels)));
        self.steps.extend(named(piece));
        Ok(())
    }

    fn known(&self, kind: &'static str, name: &str) -> Result<BufferId, LowerError> {
        let buffer = self.interface.get(&(kind, name.to_string())).copied();
        buffer.ok_or_else(|| defect(format!("there is no {kind} {name}")))
    }

    /// A step by which a kernel copies one buffer to another.
    fn copies(&mut self, kernel: &Kernel, [from, to]: [BufferId; 2], origin: &Origin) {
        let kernel = self.kernel(kernel);
        self.program.run.push(Step::new(kernel, vec![from, to], origin.clone()));
        self.steps.push(None);
    }

    /// Elements from the start of a part of so many to that of the next: more than these where the device's buffers may not start
    /// anywhere.
    fn stride(&self, dtype: DType, count: usize) -> usize {
        let bytes = count * dtype.size();
        match self.limits.any_part {
            true => count,
            false => bytes.next_multiple_of(self.limits.alignment.max(dtype.size())) / dtype.size(),
        }
    }

    fn repeat(&mut self, graph: &Graph, moment: usize, of: &StagedLoop, piece: &LinkUnit) -> Result<(), LowerError> {
        let program = &piece.lowered.program;
        let count = of.times.saturating_mul(program.run.len()).saturating_add(self.program.run.len());
        if count > MOST_STEPS {
            let problem = format!(
                "{} times {} steps: a program has at most {MOST_STEPS} steps, one for each kernel of each time; take fewer times",
                of.times,
                program.run.len()
            );
            return Err(LowerError { origin: of.origin.clone(), problem });
        }
        // What is carried, in a place of its own.
        let mut states = Vec::new();
        for (at, start) in of.starts.iter().enumerate() {
            let ty = graph.ty(*start);
            let from = self.read(*start, moment)?;
            let (cell, life) = self.cell(ty, moment);
            self.copies(&copy(ty), [from, cell], &of.origin);
            self.values.extend(of.results[at].iter().map(|id| (*id, (cell, Some(life)))));
            states.push(cell);
        }
        // What is scanned lies in the arena, so that its parts can be named, and far enough apart that they can be bound.
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
        let mut captured = Vec::new();
        for id in &of.captured {
            captured.push(self.read(*id, moment)?);
        }
        let (mut stacked, mut apart) = (Vec::new(), Vec::new());
        for ((_, ty), results) in program.outputs.iter().zip(&of.results[of.starts.len()..]) {
            let (dtype, count) = (ty.dtype().unwrap_or(DType::F32), ty.count());
            let (cell, life) = self.cell(&Type::tensor(dtype, &[of.times, count]), moment);
            self.values.extend(results.iter().map(|id| (*id, (cell, Some(life)))));
            let stride = self.stride(dtype, count);
            if stride == count {
                stacked.push(cell);
            } else {
                let (parts, _) = self.cell(&Type::tensor(dtype, &[of.times, stride]), moment);
                apart.push(([parts, cell], dtype, [of.times, count], [stride, count]));
                stacked.push(parts);
            }
        }
        let number = |name: &str, names: &dyn Fn(usize) -> String, most: usize| (0..most).find(|at| names(*at) == name);
        let inputs: Vec<_> =
            program.inputs.iter().map(|(name, _)| number(name, &given, scanned.len() + captured.len())).collect();
        let outputs: Vec<_> = program.outputs.iter().map(|(name, _)| number(name, &output, stacked.len())).collect();
        let state_numbers: Vec<_> =
            program.states.iter().map(|(name, _)| number(name, &carried, states.len())).collect();
        let (mut buffers, kernels) = self.splice(program, moment, &mut |linker, place| {
            let found = |of: &[BufferId], at: Option<usize>| at.and_then(|at| of.get(at)).copied();
            let bound = match place {
                Place::Input(n) => match inputs[*n] {
                    Some(at) if at >= scanned.len() => found(&captured, Some(at - scanned.len())),
                    at => found(&scanned, at),
                },
                Place::Output(n) => found(&stacked, outputs[*n]),
                Place::State(n) => found(&states, state_numbers[*n]),
                Place::Param(n) => Some(linker.known("param", &program.params[*n].0)?),
                Place::Const(_) | Place::Loaded(_) | Place::Arena(_) => return Ok(None),
            };
            bound.map(Some).ok_or_else(|| defect("a body has a port that its loop does not know".into()))
        })?;
        let mut moving: Vec<MovingPort> = Vec::new();
        for (at, buffer) in program.buffers.iter().enumerate() {
            let moves = match buffer.place {
                Place::Input(n) => inputs[n].is_some_and(|at| at < scanned.len()),
                Place::Output(_) => true,
                _ => false,
            };
            if !moves || buffer.count == 0 {
                continue;
            }
            let whole = buffers[at];
            let span = self.placed.iter().find(|placed| placed.buffer == whole).map(|placed| placed.span);
            let span = span.ok_or_else(|| defect("a part is of what is not in the arena".into()))?;
            let stride = self.stride(buffer.dtype, buffer.count);
            moving.push(MovingPort { buffer: at, whole, span, count: buffer.count, stride });
        }
        // Where states are at last, whatever their buffers are until then.
        let cells = buffers.clone();
        let kept = kept_in_outputs(program, |at| moving.iter().any(|port| port.buffer == at));
        let exits = self.program.exits.len();
        for time in 0..of.times {
            if let Some(condition) = of.condition.filter(|_| !program.run.is_empty()) {
                let (before, unless) = (self.program.run.len(), states[condition]);
                self.program.exits.push(Exit { before, unless, to: before });
            }
            // Before the parts move on: what was carried into this time is the part that the last time left.
            for KeptState { state, part, .. } in kept.iter().filter(|_| time > 0) {
                buffers[*state] = buffers[*part];
            }
            for port in &moving {
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
                let mut step = bound(step, &buffers, &kernels);
                if let Some(kept) = copied {
                    step.buffers[1] = cells[kept.state];
                }
                self.program.run.push(step);
                self.steps.push(name);
            }
        }
        let end = self.program.run.len();
        self.program.exits[exits..].iter_mut().for_each(|exit| exit.to = end);
        for (buffers, dtype, extents, strides) in apart {
            self.copies(&copy_rows(dtype, extents, strides), buffers, &of.origin);
        }
        Ok(())
    }

    /// Gives each stretch of the arena its place.
    fn finish(mut self) -> Lowered {
        let spans = &self.lives;
        let mut order: Vec<usize> = (0..spans.len()).collect();
        order.sort_by_key(|&at| (Reverse(spans[at].bytes), at));
        let mut starts = vec![0; spans.len()];
        let mut done: Vec<usize> = Vec::new();
        for at in order {
            let span = &spans[at];
            let others = done.iter().filter(|&&o| spans[o].first <= span.last && span.first <= spans[o].last);
            let taken = others.map(|&other| (starts[other], starts[other] + spans[other].bytes)).collect();
            starts[at] = memory::gap(taken, span.bytes);
            self.program.arena_bytes = self.program.arena_bytes.max(starts[at] + span.bytes);
            done.push(at);
        }
        for PlacedBuffer { buffer, span, at } in self.placed {
            self.program.buffers[buffer].place = Place::Arena(starts[span] + at);
        }
        Lowered { program: self.program, steps: self.steps }
    }
}

/// A state that a body copies from what it hands out each time.
struct KeptState {
    /// The body's numbers of the two buffers.
    state: BufferId,
    part: BufferId,
    /// The step that copies.
    copy: usize,
}

/// The states of a body that need no copy: the next time reads them where the output is, of which each time has a part of its own that
/// nothing writes again. The body must read a state before that, and write it nowhere else.
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

/// A step of a piece in the whole program.
fn bound(step: &Step, buffers: &[BufferId], kernels: &[usize]) -> Step {
    let to = step.buffers.iter().map(|&buffer| buffers[buffer]).collect();
    Step { kernel: kernels[step.kernel], buffers: to, ..step.clone() }
}

/// Which call each step of a piece is of, in the whole program.
fn named(piece: &LinkUnit) -> impl Iterator<Item = Option<(usize, usize)>> + '_ {
    piece.lowered.steps.iter().map(|step| step.map(|(call, kernel)| (piece.calls + call, kernel)))
}

fn defect(problem: String) -> LowerError {
    LowerError { origin: Origin::default(), problem }
}
