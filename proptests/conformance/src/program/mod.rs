//! Builds random well-typed programs from lists of numbers. When proptest shrinks a list, the program shrinks too.

mod layers;
mod numbers;
mod views;

use std::fmt;

use eutectic_ir::{Attr, DType, Graph, NodeId, Type, text};
use proptest::prelude::*;

/// A random program, and the seed for the values of its inputs.
#[derive(Clone)]
pub struct Case {
    /// The program.
    pub graph: Graph,
    /// The seed from which the values of inputs and parameters are drawn.
    pub seed: u64,
}

impl fmt::Debug for Case {
    /// Writes the seed, and the program as text that `eutectic opt` reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}\n{}", self.seed, text::print(&self.graph, text::Style::default()))
    }
}

/// Returns random programs of up to about `steps` ops, with the seeds for their inputs. Most ops take about eight
/// decisions.
pub fn programs(steps: usize) -> impl Strategy<Value = Case> {
    let decisions = prop::collection::vec(any::<u16>(), 8..steps * 8);
    (decisions, any::<u64>()).prop_map(|(decisions, seed)| Case { graph: generate(&decisions), seed })
}

/// Extents of axes: 0, small ones, and ones near the sizes of vectors and tiles.
const EXTENTS: &[usize] = &[1, 2, 0, 3, 4, 5, 8, 13, 16, 17, 33, 64, 70];

/// Floating-point element types. `f32` is listed several times, so that it is drawn more often.
const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::Bf16, DType::F64, DType::F32, DType::F32];

/// The element types that every backend supports: random programs run on all backends.
const EVERYWHERE: &[DType] = &[
    DType::F32,
    DType::F64,
    DType::F16,
    DType::Bf16,
    DType::I8,
    DType::U8,
    DType::I32,
    DType::I64,
    DType::U32,
    DType::Bool,
];

/// Integer element types.
const INTEGERS: &[DType] = &[DType::I32, DType::I64, DType::U8, DType::I8, DType::U32];

/// The maximal number of elements of a tensor.
const LARGEST: usize = 1 << 14;

/// Returns the program that a list of decisions describes.
pub fn generate(decisions: &[u16]) -> Graph {
    let (graph, decisions) = (Graph::new("random"), decisions.iter());
    let mut generator = Generator { graph, decisions, floats: Vec::new(), others: Vec::new() };
    generator.inputs();
    while generator.decisions.len() > 0 {
        generator.step();
    }
    generator.outputs();
    generator.graph
}

struct Generator<'a> {
    graph: Graph,
    decisions: std::slice::Iter<'a, u16>,
    /// The floating-point values so far.
    floats: Vec<NodeId>,
    /// The integers and truth values so far.
    others: Vec<NodeId>,
}

impl Generator<'_> {
    /// Returns the next decision modulo `n`, or 0 at the end of the list.
    fn below(&mut self, n: usize) -> usize {
        self.decisions.next().map_or(0, |d| usize::from(*d) % n.max(1))
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    fn extent(&mut self) -> usize {
        self.pick(EXTENTS)
    }

    /// Returns a random number below `count`. Larger numbers are likelier, so that ops mostly use recent values and
    /// programs are deep.
    fn late(&mut self, count: usize) -> usize {
        let back = self.below(count).min(self.below(count));
        count - 1 - back
    }

    fn value(&mut self) -> NodeId {
        let at = self.late(self.floats.len());
        self.floats[at]
    }

    /// Returns an integer or a truth value.
    fn other(&mut self) -> NodeId {
        let at = self.late(self.others.len());
        self.others[at]
    }

    /// Returns a value of any type, mostly of a floating-point type.
    fn any(&mut self) -> NodeId {
        if self.below(4) == 0 { self.other() } else { self.value() }
    }

    fn dtype(&self, id: NodeId) -> DType {
        self.graph.ty(id).dtype().expect("results of tuple type are unpacked when they are made")
    }

    fn is_float(&self, id: NodeId) -> bool {
        self.dtype(id).is_float()
    }

    /// Adds a value to the list of its kind.
    fn keep(&mut self, id: NodeId) {
        if self.is_float(id) { self.floats.push(id) } else { self.others.push(id) }
    }

    fn dims(&self, id: NodeId) -> Vec<usize> {
        self.graph.ty(id).dims().expect("every extent is a number")
    }

    fn inputs(&mut self) {
        let rank = self.below(3) + 1;
        let mut dims: Vec<usize> = (0..rank).map(|_| self.extent()).collect();
        while dims.iter().product::<usize>() > LARGEST {
            dims.pop();
        }
        let float = self.pick(FLOATS);
        let other = if self.below(4) == 0 { self.pick(FLOATS) } else { float };
        let whole = self.pick(INTEGERS);
        for (name, dtype) in [("x", float), ("y", other), ("n", whole), ("m", whole), ("b", DType::Bool)] {
            let id = self.graph.input(name, Type::tensor(dtype, &dims)).expect("the names differ");
            self.keep(id);
        }
        let weight = self.param(self.floats[0], &dims);
        self.keep(weight);
    }

    /// Returns a parameter of the element type of `like`.
    fn param(&mut self, like: NodeId, dims: &[usize]) -> NodeId {
        let name = format!("p{}", self.graph.named("param").count());
        self.graph.param(&name, Type::tensor(self.dtype(like), dims)).expect("the name is new")
    }

    /// Adds an op. Returns `None` if the op does not type-check, or if its result would be too large.
    fn apply(&mut self, op: &str, operands: &[NodeId], attrs: &[(&str, Attr)]) -> Option<NodeId> {
        let before = self.graph.clone();
        match self.graph.apply(op, operands, attrs) {
            Ok(id) if self.graph.ty(id).count() <= LARGEST => Some(id),
            _ => {
                self.graph = before;
                None
            }
        }
    }

    fn step(&mut self) {
        let x = self.value();
        let made = match self.below(20) {
            0 | 1 => self.unary(x),
            2 | 3 => self.binary(x),
            4 => self.selection(x),
            5 | 6 => {
                let any = self.any();
                self.shape_view(any)
            }
            7 => {
                let any = self.any();
                self.part_view(any)
            }
            8 => self.reduction(x),
            9 => self.product(x),
            10 => self.norm(x),
            11 => self.attention(x),
            12 => self.heads(x),
            13 => self.gated(x),
            14 => self.conversion(),
            15 => self.whole(),
            16 => self.truth(),
            17 | 18 => self.image(x),
            _ => {
                let any = self.any();
                self.gather(any)
            }
        };
        if let Some(made) = made {
            self.keep(made);
        }
    }

    fn outputs(&mut self) {
        let last = *self.floats.last().expect("some inputs are floats");
        self.graph.output("last", last).expect("no output has this name yet");
        let other = self.value();
        if other != last {
            self.graph.output("other", other).expect("no output has this name yet");
        }
        let whole = self.other();
        self.graph.output("whole", whole).expect("no output has this name yet");
    }
}
