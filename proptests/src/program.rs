//! Random well-typed programs: a list of numbers decides, so that proptest's shrinking of the list shrinks the program.

use std::fmt;

use eutectic_ir::{Attr, DType, Graph, NodeId, Shape, Type, text};
use proptest::prelude::*;

/// A program, and the seed of its inputs' values.
#[derive(Clone)]
pub struct Case {
    /// The program.
    pub graph: Graph,
    /// See [`conformance::values`](crate::conformance::values).
    pub seed: u64,
}

impl fmt::Debug for Case {
    /// As text that `eutectic opt` reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}\n{}", self.seed, text::print(&self.graph, text::Style::default()))
    }
}

/// A program of at most `steps` ops, with the seed of the inputs' values.
pub fn programs(steps: usize) -> impl Strategy<Value = Case> {
    let decisions = prop::collection::vec(any::<u16>(), 8..steps * 8);
    (decisions, any::<u64>()).prop_map(|(decisions, seed)| Case { graph: generate(&decisions), seed })
}

/// Extents that straddle vector widths and tiles, the narrow ones, and none at all.
const EXTENTS: &[usize] = &[1, 2, 0, 3, 4, 5, 8, 13, 16, 17, 33, 64, 70];

/// Floating element types, the usual one more often.
const FLOATS: &[DType] = &[DType::F32, DType::F32, DType::F64];

/// Integer element types.
const WHOLES: &[DType] = &[DType::I32, DType::I64, DType::U8, DType::I8, DType::U32];

/// The largest tensor that is made, in elements.
const LARGEST: usize = 1 << 14;

/// The program that a list of decisions describes.
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
    /// The `f32` and `f64` values so far.
    floats: Vec<NodeId>,
    /// The integers, truth values and 16-bit numbers so far. On the last there are views, conversions and comparisons only: the
    /// bound of a composite does not know where its parts are rounded to 16 bits.
    others: Vec<NodeId>,
}

impl Generator<'_> {
    /// The next decision, below `n`; zero when the list has run out.
    fn below(&mut self, n: usize) -> usize {
        self.decisions.next().map_or(0, |d| usize::from(*d) % n.max(1))
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    fn extent(&mut self) -> usize {
        self.pick(EXTENTS)
    }

    /// A place among so many; later ones are likelier: programs get deep, not only wide.
    fn late(&mut self, count: usize) -> usize {
        let back = self.below(count).min(self.below(count));
        count - 1 - back
    }

    fn value(&mut self) -> NodeId {
        let at = self.late(self.floats.len());
        self.floats[at]
    }

    /// Of the other types.
    fn other(&mut self) -> NodeId {
        let at = self.late(self.others.len());
        self.others[at]
    }

    /// Of any type; floating ones are likelier.
    fn any(&mut self) -> NodeId {
        if self.below(4) == 0 { self.other() } else { self.value() }
    }

    fn dtype(&self, id: NodeId) -> DType {
        self.graph.ty(id).dtype().expect("tuples are taken apart at once")
    }

    fn is_wide(&self, id: NodeId) -> bool {
        matches!(self.dtype(id), DType::F32 | DType::F64)
    }

    /// Files a value with those of its kind.
    fn keep(&mut self, id: NodeId) {
        if self.is_wide(id) { self.floats.push(id) } else { self.others.push(id) }
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
        let whole = self.pick(WHOLES);
        for (name, dtype) in [("x", float), ("y", float), ("n", whole), ("m", whole), ("b", DType::Bool)] {
            let id = self.graph.input(name, Type::tensor(dtype, &dims)).expect("the names differ");
            self.keep(id);
        }
        let weight = self.param(self.floats[0], &dims);
        self.keep(weight);
    }

    /// A parameter of the element type of `like`.
    fn param(&mut self, like: NodeId, dims: &[usize]) -> NodeId {
        let name = format!("p{}", self.graph.named("param").count());
        self.graph.param(&name, Type::tensor(self.dtype(like), dims)).expect("the name is new")
    }

    /// Adds an op; one that does not fit, or whose result would be too large, is left out.
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

    /// To another element type.
    fn conversion(&mut self) -> Option<NodeId> {
        let from = self.any();
        let to = self.pick(&DType::ALL);
        self.apply("cast", &[from], &[("to", to.into())])
    }

    /// Arithmetic on integers.
    fn whole(&mut self) -> Option<NodeId> {
        let n = self.other();
        if !self.dtype(n).is_int() {
            let to = if self.dtype(n) == DType::Bool { DType::I32 } else { DType::F32 };
            return self.apply("cast", &[n], &[("to", to.into())]);
        }
        match self.below(4) {
            0 => self.apply("neg", &[n], &[]),
            1 => {
                let op = self.pick(&["reduce-sum", "reduce-max", "reduce-min"]);
                let (axis, keep) = (self.below(self.dims(n).len()) as i64, self.below(2) == 0);
                self.apply(op, &[n], &[("axes", [axis].as_slice().into()), ("keep", keep.into())])
            }
            _ => {
                let op = self.pick(&["add", "sub", "mul", "max", "min", "div", "mod"]);
                let other = self.partner(n)?;
                self.apply(op, &[n, other], &[])
            }
        }
    }

    /// Truth values: of comparisons, or of others.
    fn truth(&mut self) -> Option<NodeId> {
        let n = self.any();
        if self.dtype(n) != DType::Bool {
            let op = self.pick(&["eq", "ne", "lt", "le", "gt", "ge"]);
            let other = self.partner(n)?;
            return self.apply(op, &[n, other], &[]);
        }
        match self.below(3) {
            0 => self.apply("not", &[n], &[]),
            1 => {
                let (a, b) = (self.partner(n)?, self.partner(n)?);
                self.apply("where", &[n, a, b], &[])
            }
            _ => {
                let op = self.pick(&["and", "or", "xor"]);
                let other = self.partner(n)?;
                self.apply(op, &[n, other], &[])
            }
        }
    }

    /// Heads side by side: attention of a value with itself, with its halves turned or not.
    fn heads(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        let [.., rows, depth] = dims.as_slice() else { return None };
        let (rows, depth) = (*rows, *depth);
        if self.below(2) == 0 {
            let pairs = self.below(depth / 2 + 1);
            let (cos, sin) = (self.param(x, &[rows, pairs]), self.param(x, &[rows, pairs]));
            let style = self.pick(&["half", "adjacent"]);
            return self.apply("rope", &[x, cos, sin], &[("style", style.into())]);
        }
        let heads = [3, 2].into_iter().find(|n| depth.is_multiple_of(*n)).unwrap_or(1) as i64;
        let mask = self.pick(&["none", "causal", "window"]);
        let attrs = [
            ("heads", heads.into()),
            ("kv-heads", heads.into()),
            ("scale", 0.4.into()),
            ("mask", mask.into()),
            ("window", Attr::Int(if mask == "window" { 2 } else { 0 })),
        ];
        self.apply("mha", &[x, x, x], &attrs)
    }

    /// Gates, and adapters of low rank.
    fn gated(&mut self, x: NodeId) -> Option<NodeId> {
        let depth = *self.dims(x).last()?;
        if depth.is_multiple_of(2) && self.below(2) == 0 {
            let (gate, act) = (self.pick(&["first", "second"]), self.pick(&["silu", "gelu-erf", "sigmoid"]));
            return self.apply("glu", &[x], &[("gate", gate.into()), ("act", act.into())]);
        }
        let (columns, rank) = (self.extent(), self.pick(&[1, 2, 5]));
        let (w, a, b) =
            (self.param(x, &[depth, columns]), self.param(x, &[depth, rank]), self.param(x, &[rank, columns]));
        self.apply("lora", &[x, w, a, b], &[("scale", 0.5.into())])
    }

    fn unary(&mut self, x: NodeId) -> Option<NodeId> {
        let op = self.pick(&["neg", "abs", "tanh", "sigmoid", "erf", "exp", "sqrt", "sin", "act", "log", "rsqrt"]);
        match op {
            "act" => {
                let kind = self.pick(&["relu", "gelu-erf", "gelu-tanh", "silu"]);
                self.apply("act", &[x], &[("kind", kind.into())])
            }
            // Bounded below or above first, so that values stay where errors can be judged.
            "exp" => {
                let small = self.apply("tanh", &[x], &[])?;
                self.apply("exp", &[small], &[])
            }
            "sqrt" | "log" | "rsqrt" => {
                let size = self.apply("abs", &[x], &[])?;
                let half = self.graph.scalar(0.5, x).ok()?;
                let away = self.apply("add", &[size, half], &[])?;
                self.apply(op, &[away], &[])
            }
            op => self.apply(op, &[x], &[]),
        }
    }

    fn binary(&mut self, x: NodeId) -> Option<NodeId> {
        let op = self.pick(&["add", "sub", "mul", "max", "min", "div"]);
        let other = self.partner(x)?;
        if op == "div" {
            let size = self.apply("abs", &[other], &[])?;
            let one = self.graph.scalar(1.0, x).ok()?;
            let away = self.apply("add", &[size, one], &[])?;
            return self.apply("div", &[x, away], &[]);
        }
        if self.below(2) == 0 { self.apply(op, &[x, other], &[]) } else { self.apply(op, &[other, x], &[]) }
    }

    /// Something that broadcasts against `x`: a value that happens to, a scalar, a row of parameters.
    fn partner(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        match self.below(4) {
            0 => {
                let number = self.pick(&[0.0, 1.0, -1.0, 0.5, 2.0]);
                self.graph.scalar(number, x).ok()
            }
            1 => Some(self.param(x, &dims[dims.len().saturating_sub(1)..])),
            2 => {
                let mut dims = dims;
                let axis = self.below(dims.len());
                *dims.get_mut(axis)? = 1;
                Some(self.param(x, &dims))
            }
            _ => {
                let other = if self.is_wide(x) { self.value() } else { self.other() };
                (self.graph.ty(other) == self.graph.ty(x)).then_some(other).or(Some(x))
            }
        }
    }

    fn selection(&mut self, x: NodeId) -> Option<NodeId> {
        let other = self.partner(x)?;
        let op = self.pick(&["lt", "le", "gt", "ge"]);
        let condition = self.apply(op, &[x, other], &[])?;
        let a = self.partner(x)?;
        self.apply("where", &[condition, a, x], &[])
    }

    fn shape_view(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        match self.below(3) {
            0 => {
                let mut perm: Vec<i64> = (0..dims.len() as i64).collect();
                for i in (1..perm.len()).rev() {
                    let j = self.below(i + 1);
                    perm.swap(i, j);
                }
                self.apply("transpose", &[x], &[("perm", perm.as_slice().into())])
            }
            1 => {
                // Merge two axes, or split one.
                let mut shape = dims.clone();
                let axis = self.below(dims.len());
                let by = self.pick(&[2, 3, 5]);
                if axis + 1 < shape.len() {
                    let merged = shape[axis] * shape[axis + 1];
                    shape.splice(axis..axis + 2, [merged]);
                } else if shape.get(axis)?.is_multiple_of(by) {
                    shape.splice(axis..=axis, [by, dims[axis] / by]);
                } else {
                    shape.insert(axis, 1);
                }
                self.apply("reshape", &[x], &[("shape", shape.into_iter().collect::<Shape>().into())])
            }
            _ => {
                let mut shape = dims;
                shape.insert(0, 2);
                self.apply("expand", &[x], &[("shape", shape.into_iter().collect::<Shape>().into())])
            }
        }
    }

    fn part_view(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        let axis = self.below(dims.len());
        let extent = *dims.get(axis)?;
        let axis = ("axis", Attr::Int(axis as i64));
        match self.below(4) {
            3 => {
                let (size, stride, dilation) = (1 + self.below(3), 1 + self.below(3), 1 + self.below(2));
                let number = |n: usize| Attr::Int(n as i64);
                let attrs = [axis, ("size", number(size)), ("stride", number(stride)), ("dilation", number(dilation))];
                self.apply("window", &[x], &attrs)
            }
            0 => {
                let at = self.below(extent);
                let len = 1 + self.below(extent - at);
                self.apply("slice", &[x], &[axis, ("at", (at as i64).into()), ("len", (len as i64).into())])
            }
            1 => {
                let (before, after) = (self.below(3) as i64, self.below(3) as i64);
                let value = if self.dtype(x).is_float() { 0.5 } else { 1.0 };
                self.apply(
                    "pad",
                    &[x],
                    &[axis, ("before", before.into()), ("after", after.into()), ("value", value.into())],
                )
            }
            _ => {
                let other = if self.is_wide(x) { self.value() } else { self.other() };
                self.apply("concat", &[x, other], std::slice::from_ref(&axis))
                    .or_else(|| self.apply("concat", &[x, x], &[axis]))
            }
        }
    }

    fn reduction(&mut self, x: NodeId) -> Option<NodeId> {
        let op = self.pick(&["reduce-sum", "reduce-max", "reduce-min", "reduce-mean"]);
        let rank = self.dims(x).len();
        let first = self.below(rank);
        let count = 1 + self.below(rank - first);
        let axes: Vec<i64> = (first..first + count).map(|a| a as i64).collect();
        let keep = self.below(2) == 0;
        self.apply(op, &[x], &[("axes", axes.as_slice().into()), ("keep", keep.into())])
    }

    fn product(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        let columns = self.extent();
        let depth = *dims.last()?;
        match self.below(3) {
            0 => {
                let w = self.param(x, &[depth, columns]);
                self.apply("matmul", &[x, w], &[])
            }
            1 => {
                let (w, b) = (self.param(x, &[depth, columns]), self.param(x, &[columns]));
                let act = self.pick(&["none", "relu", "gelu-erf"]);
                self.apply("linear", &[x, w, b], &[("act", act.into())])
            }
            _ => {
                let mut perm: Vec<i64> = (0..dims.len() as i64).collect();
                let last = perm.len();
                perm.get(last.checked_sub(2)?)?;
                perm.swap(last - 2, last - 1);
                let turned = self.apply("transpose", &[x], &[("perm", perm.as_slice().into())])?;
                self.apply("matmul", &[x, turned], &[])
            }
        }
    }

    fn norm(&mut self, x: NodeId) -> Option<NodeId> {
        let depth = *self.dims(x).last()?;
        let eps = ("eps", Attr::from(0.01));
        match self.below(4) {
            0 => self.apply("softmax", &[x], &[("axis", (-1_i64).into())]),
            1 => {
                let (g, b) = (self.param(x, &[depth]), self.param(x, &[depth]));
                let given = 2 + self.below(2);
                self.apply("layernorm", &[x, g, b][..given], &[eps])
            }
            2 => {
                let g = self.param(x, &[depth]);
                self.apply("rmsnorm", &[x, g], &[eps])
            }
            _ => {
                let (g, b) = (self.param(x, &[depth]), self.param(x, &[depth]));
                let r = self.partner(x).filter(|r| self.dims(*r) == self.dims(x)).unwrap_or(x);
                let both = self.apply("add-layernorm", &[x, r, g, b], &[eps])?;
                let at = self.below(2) as i64;
                self.apply("get", &[both], &[("index", at.into())])
            }
        }
    }

    fn attention(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        let [.., rows, depth] = dims.as_slice() else { return None };
        let (rows, depth) = (*rows, *depth);
        if rows * depth == 0 {
            return None;
        }
        let keys = self.extent();
        let width = self.extent();
        let heads = 1 + self.below(2);
        let q = self.apply(
            "reshape",
            &[x],
            &[(
                "shape",
                [dims.iter().product::<usize>() / rows / depth, rows, depth].into_iter().collect::<Shape>().into(),
            )],
        )?;
        let batch = self.dims(q)[0];
        if !batch.is_multiple_of(heads) {
            return None;
        }
        let k = self.param(x, &[batch / heads, keys, depth]);
        let v = self.param(x, &[batch / heads, keys, width]);
        let kind = self.pick(&["none", "causal", "window", "keep", "additive"]);
        let mut operands = vec![q, k, v];
        if kind == "additive" {
            operands.push(self.param(x, &[1, keys]));
        } else if kind == "keep" {
            let weights = self.param(x, &[rows, keys]);
            let zero = self.graph.scalar(0.0, x).ok()?;
            operands.push(self.apply("lt", &[weights, zero], &[])?);
        }
        let window = if kind == "window" { 3 } else { 0 };
        let softcap = self.pick(&[0.0, 2.0]);
        self.apply(
            "sdpa",
            &operands,
            &[("scale", 0.3.into()), ("mask", kind.into()), ("window", Attr::Int(window)), ("softcap", softcap.into())],
        )
    }

    /// Convolution, pooling, and norms of channels, of a value as images.
    fn image(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        let [outer @ .., rows, columns] = dims.as_slice() else { return None };
        let channels: usize = outer.iter().product();
        let (rows, columns) = (*rows, *columns);
        let batch = if channels.is_multiple_of(2) { 1 + self.below(2) } else { 1 };
        let channels = channels / batch;
        let shape = [batch, channels, rows, columns].into_iter().collect::<Shape>();
        let x = self.apply("reshape", &[x], &[("shape", shape.into())])?;
        let mut pair = |from: &[i64]| Attr::from([self.pick(from), self.pick(from)].as_slice());
        let size = pair(&[1, 2, 3]);
        let stride = ("stride", pair(&[1, 1, 2, 3]));
        let dilation = ("dilation", pair(&[1, 1, 2]));
        let edges = [("before", pair(&[0, 0, 1, 2])), ("after", pair(&[0, 0, 1]))];
        let [before, after] = edges;
        let taps: Vec<usize> = size.ints()?.iter().map(|&n| n as usize).collect();
        let eps = ("eps", Attr::from(0.01));
        match self.below(6) {
            0 | 1 => {
                let groups =
                    if channels.is_multiple_of(2) && channels > 0 { self.pick(&[1, 1, 2, channels]) } else { 1 };
                let results = groups * (1 + self.below(3)) * self.pick(&[1, 1, 8]);
                let w = self.param(x, &[results, channels / groups, taps[0], taps[1]]);
                let mut operands = vec![x, w];
                if self.below(2) == 0 {
                    operands.push(self.param(x, &[results]));
                }
                let groups = ("groups", Attr::Int(groups as i64));
                self.apply("conv", &operands, &[stride, dilation, before, after, groups])
            }
            2 => {
                let w = self.param(x, &[channels, 2, taps[0], taps[1]]);
                self.apply("conv-transpose", &[x, w], &[stride, dilation])
            }
            3 => {
                let size = ("size", size);
                if self.below(2) == 0 {
                    // Where a window lies outside altogether, the largest is −∞.
                    return self.apply("max-pool", &[x], &[size, stride, dilation]);
                }
                let over = ("over", self.pick(&["window", "inside"]).into());
                self.apply("average-pool", &[x], &[size, stride, before, after, over])
            }
            4 => {
                let operands = [x, self.param(x, &[channels]), self.param(x, &[channels]), self.param(x, &[channels])];
                let variance = self.param(x, &[channels]);
                let variance = self.apply("abs", &[variance], &[])?;
                self.apply("batch-norm", &[operands.as_slice(), &[variance]].concat(), &[eps])
            }
            _ => {
                let (g, b) = (self.param(x, &[channels]), self.param(x, &[channels]));
                let groups = if channels.is_multiple_of(2) { 1 + self.below(2) } else { 1 };
                self.apply("group-norm", &[x, g, b], &[("groups", Attr::Int(groups as i64)), eps])
            }
        }
    }

    fn gather(&mut self, x: NodeId) -> Option<NodeId> {
        let dims = self.dims(x);
        let axis = self.below(dims.len());
        let extent = *dims.get(axis).filter(|&&n| n > 0)? as i64;
        let count = self.extent();
        let ids: Vec<i64> = (0..count).map(|_| self.below(extent as usize) as i64).collect();
        let ids = self.graph.constant(eutectic_ir::Tensor::from_i64(DType::I64, &[count], ids)).ok()?;
        self.apply("gather", &[x, ids], &[("axis", (axis as i64).into())])
    }

    fn outputs(&mut self) {
        let last = *self.floats.last().expect("inputs are values");
        self.graph.output("last", last).expect("the first output");
        let other = self.value();
        if other != last {
            self.graph.output("other", other).expect("the second output");
        }
        let whole = self.other();
        self.graph.output("whole", whole).expect("the third output");
    }
}
