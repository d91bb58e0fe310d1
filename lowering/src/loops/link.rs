//! Links the programs of a graph's stages and of its loops' bodies into one program.
//!
//! A loop becomes one copy of its body's steps per iteration. Iterations share kernels and buffers, except for the
//! slices of scanned and stacked tensors. A carried value has its own buffer, which the body writes like a state. So no
//! step allocates, and a carried value is copied only if the body cannot update it in place.

mod repeat;

use std::cmp::Reverse;

use eutectic_backend::{Buffer, BufferId, Kernel, Limits, Part, Place, Program, Step};
use eutectic_ir::{DType, Graph, NodeId, Origin, Type};
use rustc_hash::FxHashMap;

use super::stages::{Staged, output, value};
use crate::{
    memory,
    program::{LowerError, Lowered},
};

/// A function that returns the buffer that a port of a unit is bound to; `None` if the port gets its own buffer.
type BindPort<'a, L> = dyn FnMut(&mut L, &Place) -> Result<Option<BufferId>, LowerError> + 'a;

/// A program to link, of a stage or of a loop's body. Its steps name the block calls that they belong to.
#[derive(Clone, Debug)]
pub struct LinkUnit {
    /// The program. Its steps number block calls from 0.
    pub lowered: Lowered,
    /// The number of the unit's first block call in the whole program.
    pub calls: usize,
}

/// Links the programs of a staged graph; a stage that computes nothing has no program. The steps of the result name
/// calls of the whole program.
///
/// # Errors
/// If loops have too many steps, or if slices start at offsets where the device cannot bind a buffer.
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

/// A live range in the arena, from the first moment to the last. Stage `i` is moment `2i`, and the loop after it is
/// moment `2i + 1`.
struct ArenaSpan {
    bytes: usize,
    first: usize,
    last: usize,
}

/// A buffer in the arena.
struct PlacedBuffer {
    buffer: BufferId,
    /// The live range of the buffer, and its offset in the range's memory in bytes.
    span: usize,
    at: usize,
}

struct Linker<'a> {
    program: Program,
    steps: Vec<Option<(usize, usize)>>,
    kernels: FxHashMap<Kernel, usize>,
    lives: Vec<ArenaSpan>,
    placed: Vec<PlacedBuffer>,
    /// The buffers of inputs, and the buffers of values that pass between stages and loops, with their live ranges.
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

    /// Adds a live range that starts at a moment.
    fn live_range(&mut self, bytes: usize, moment: usize) -> usize {
        self.lives.push(ArenaSpan {
            bytes: bytes.next_multiple_of(self.limits.alignment),
            first: moment,
            last: moment,
        });
        self.lives.len() - 1
    }

    /// Adds a buffer with its own live range.
    fn cell(&mut self, ty: &Type, moment: usize) -> (BufferId, usize) {
        let (buffer, life) = (self.buffer(ty, Place::Arena(0)), self.live_range(ty.bytes(), moment));
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

    /// Returns the buffer of a value that an earlier stage computed, and extends its live range to a moment.
    fn read(&mut self, id: NodeId, moment: usize) -> Result<BufferId, LowerError> {
        let Some(&(buffer, life)) = self.values.get(&id) else {
            return Err(defect(format!("no earlier stage computes value {}", id.0)));
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

    /// Adds the load steps and buffers of a unit. `port` returns the buffer that each of its ports is bound to. Returns
    /// the new numbers of the unit's buffers and kernels.
    fn splice(
        &mut self,
        piece: &Program,
        moment: usize,
        port: &mut BindPort<'_, Self>,
    ) -> Result<(Vec<BufferId>, Vec<usize>), LowerError> {
        let region = self.live_range(piece.arena_bytes, moment);
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
        buffer.ok_or_else(|| defect(format!("the program has no {kind} `{name}`")))
    }

    /// Adds a step by which a kernel copies one buffer to another.
    fn copies(&mut self, kernel: &Kernel, [from, to]: [BufferId; 2], origin: &Origin) {
        let kernel = self.kernel(kernel);
        self.program.run.push(Step::new(kernel, vec![from, to], origin.clone()));
        self.steps.push(None);
    }

    /// Returns the distance of two slices of `count` elements, in elements. It is larger than `count` if the device can
    /// bind buffers at aligned offsets only.
    fn stride(&self, dtype: DType, count: usize) -> usize {
        let bytes = count * dtype.size();
        match self.limits.any_part {
            true => count,
            false => bytes.next_multiple_of(self.limits.alignment.max(dtype.size())) / dtype.size(),
        }
    }

    /// Gives each live range its offset in the arena.
    fn finish(mut self) -> Lowered {
        let spans = &self.lives;
        let mut order: Vec<usize> = (0..spans.len()).collect();
        order.sort_by_key(|&at| (Reverse(spans[at].bytes), at));
        let mut starts = vec![0; spans.len()];
        let mut done: Vec<usize> = Vec::new();
        for at in order {
            let span = &spans[at];
            let others = done.iter().filter(|&&o| spans[o].first <= span.last && span.first <= spans[o].last);
            let taken = others.map(|&other| starts[other]..starts[other] + spans[other].bytes).collect();
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

/// Renumbers the buffers and the kernel of a unit's step for the whole program.
fn bound(step: &Step, buffers: &[BufferId], kernels: &[usize]) -> Step {
    let to = step.buffers.iter().map(|&buffer| buffers[buffer]).collect();
    Step { kernel: kernels[step.kernel], buffers: to, ..step.clone() }
}

/// Returns the call, and the kernel of its plan, of each step of a unit, numbered for the whole program.
fn named(piece: &LinkUnit) -> impl Iterator<Item = Option<(usize, usize)>> + '_ {
    piece.lowered.steps.iter().map(|step| step.map(|(call, kernel)| (piece.calls + call, kernel)))
}

fn defect(problem: String) -> LowerError {
    LowerError { origin: Origin::default(), problem }
}
