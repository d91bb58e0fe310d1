//! The printed parts of tiled kernels: operands that are loaded into shared memory, and epilogues.

use eutectic_backend::{Body, Instr, axes::Nest};
use eutectic_gpu::{dialect::Dialect, emit::Emitter, lanes::SplitAxis};
use eutectic_ir::DType;

use crate::dialect::Wgsl;

/// Element types and sizes of a kernel's buffers.
pub type SlotTypes = [(DType, usize)];

/// Returns a body over three groups of axes, each as one axis.
pub fn matrix(nest: &Nest, groups: [usize; 3]) -> Nest {
    (0..3).rev().fold(nest.clone(), |nest, n| nest.flat(groups[..n].iter().sum(), groups[n]))
}

/// Returns the type that a kernel sums in: `f64` if a body has a value of this type, and otherwise `f32`.
pub fn sums(bodies: &[&Body]) -> DType {
    let mut instrs = bodies.iter().flat_map(|body| &body.instrs);
    if instrs.any(|instr| instr.dtype() == DType::F64) { DType::F64 } else { DType::F32 }
}

/// An operand. Its elements have an `outer` coordinate and a coordinate along the `depth`.
pub struct PrintedOperand {
    /// Statements that evaluate neighbours.
    pub text: String,
    /// The names of the neighbours' values.
    pub values: Vec<String>,
    /// The axis and the number of neighbours per access.
    pub lanes: SplitAxis,
    /// Whether neighbours are along the depth.
    pub along: bool,
    /// The extent of the outer axis.
    pub outer: usize,
    /// The buffer and the index, if neighbours are loaded from contiguous memory without change.
    pub raw: Option<(usize, String)>,
}

/// A tile of an operand in shared memory. Outer neighbours are contiguous, in vectors of four.
#[derive(Clone, Copy)]
pub struct OperandTile<'a> {
    /// The name of the shared array.
    pub memory: &'a str,
    /// The extent of the outer axis.
    pub outer: usize,
    /// The extent along the depth.
    pub depth: usize,
    /// Elements from one term of the depth to the next: a multiple of four.
    pub stride: usize,
    /// The outer coordinate and the term at which the tile starts.
    pub first: [&'a str; 2],
    /// The end of the operand's depth.
    pub end: &'a str,
}

impl PrintedOperand {
    /// Prints an operand over `[b o k]`, or `[b k o]` with the depth first, with at most `most` neighbours per access.
    /// `place` is an expression that replaces the outer coordinate `o`. Outer neighbours are then not contiguous.
    ///
    /// # Errors
    /// Returns the reasons why it cannot be printed.
    pub fn print(
        dialect: &Wgsl,
        (nest, result): (&Nest, usize),
        slots: &SlotTypes,
        depth_first: bool,
        most: usize,
        place: Option<&str>,
    ) -> Result<PrintedOperand, Vec<String>> {
        let o = place.unwrap_or("o");
        let (outer, depth, names) = if depth_first { (2, 1, ["b", "k", o]) } else { (1, 2, ["b", o, "k"]) };
        let of_outer = SplitAxis::best(nest, slots, outer, if place.is_some() { 1 } else { most });
        let of_depth = SplitAxis::best(nest, slots, depth, most);
        let steps = |axis: usize| {
            let mut next = [0; 3];
            next[axis] = 1;
            let is_step = |instr: &Instr| matches!(instr, Instr::Load(l) if l.at.eval(&next, &|_| 0) - l.at.eval(&[0; 3], &|_| 0) == 1);
            nest.instrs.iter().any(is_step)
        };
        let along = of_depth.count > of_outer.count || of_depth.count == of_outer.count && steps(depth);
        let lanes = if along { of_depth } else { of_outer };
        let mut emitter = Emitter::new(dialect, slots, nest, &names, lanes, "v");
        let values = emitter.value(result);
        if !emitter.problems.is_empty() {
            return Err(emitter.problems);
        }
        let stored = |slot: usize| slots[slot].0 == nest.instrs[result].dtype();
        let raw = emitter.address(result).filter(|(slot, _)| stored(*slot));
        Ok(PrintedOperand { raw, text: emitter.text, values, lanes, along, outer: nest.domain[outer] })
    }

    /// Returns statements that declare vectors of four, `{name}0`, `{name}1`, …, of neighbours at an outer coordinate
    /// and a coordinate along the depth. The coordinate along the axis of neighbours counts groups. The vectors are
    /// zeros unless a condition holds.
    pub fn vectors(&self, name: &str, [o, k]: [&str; 2], when: &str) -> String {
        let vectors = 0..self.lanes.count.div_ceil(4);
        let mut text: String = vectors.map(|n| format!("var {name}{n} = vec4<f32>();\n")).collect();
        text += &format!("if ({when}) {{\nlet o = {o};\nlet k = {k};\n{}", self.text);
        for lane in 0..self.lanes.count {
            let value = &self.values[lane % self.values.len()];
            text += &format!("{name}{}[{}] = f32({value});\n", lane / 4, lane % 4);
        }
        text + "}\n"
    }

    /// Returns statements by which `threads` threads load a tile into shared memory. Elements outside of the operand
    /// are zeros.
    pub fn fetch(&self, tile: &OperandTile<'_>, threads: usize, ty: &str) -> String {
        let mut text = format!("for (var group = thread; group < {}; group += {threads}) {{\n", self.groups(tile));
        text += &format!("{}var x = vec4<{ty}>();\n", self.place(tile));
        text += &self.evaluate("x", tile, tile.first, ty);
        text += &self.leave("x", tile);
        text + "}\n"
    }

    /// Returns declarations of the registers that [`PrintedOperand::read`] fills.
    pub fn declare(&self, tile: &OperandTile<'_>, threads: usize, ty: &str) -> String {
        let rounds = self.groups(tile).div_ceil(threads);
        (0..rounds).map(|round| format!("var {}{round}: vec4<{ty}>;\n", tile.memory)).collect()
    }

    /// Returns statements by which a thread loads its part of the tile at `first` into registers.
    pub fn read(&self, tile: &OperandTile<'_>, first: [&str; 2], threads: usize, ty: &str) -> String {
        self.each(tile, threads, |x| format!("{x} = vec4<{ty}>();\n{}", self.evaluate(x, tile, first, ty)))
    }

    /// Returns statements that store the registers of [`PrintedOperand::read`] in shared memory.
    pub fn write(&self, tile: &OperandTile<'_>, threads: usize) -> String {
        self.each(tile, threads, |x| self.leave(x, tile))
    }

    /// Returns the number of groups of neighbours in a tile.
    fn groups(&self, tile: &OperandTile<'_>) -> usize {
        tile.outer * tile.depth / self.lanes.count
    }

    /// Returns statements for each group of neighbours that a thread loads, given the register of the group.
    fn each(&self, tile: &OperandTile<'_>, threads: usize, text: impl Fn(&str) -> String) -> String {
        let groups = self.groups(tile);
        let of_round = |round: usize| {
            let body = format!("{}{}", self.place(tile), text(&format!("{}{round}", tile.memory)));
            let when = if (round + 1) * threads > groups { format!("if (group < {groups}) ") } else { String::new() };
            format!("{{\nlet group = thread + {};\n{when}{{\n{body}}}\n}}\n", round * threads)
        };
        (0..groups.div_ceil(threads)).map(of_round).collect()
    }

    /// Returns statements that declare the position of a group of neighbours in its tile.
    fn place(&self, tile: &OperandTile<'_>) -> String {
        let (count, OperandTile { outer, depth, .. }) = (self.lanes.count, *tile);
        let (o, k) = match self.along {
            true => (format!("group / {}", depth / count), format!("group % {} * {count}", depth / count)),
            false => (format!("group % {} * {count}", outer / count), format!("group / {}", outer / count)),
        };
        format!("let at_o = {o};\nlet at_k = {k};\n")
    }

    /// Returns statements that evaluate a group of neighbours of the tile at `[o0, k0]`, if it is inside the operand.
    fn evaluate(&self, x: &str, tile: &OperandTile<'_>, [o0, k0]: [&str; 2], ty: &str) -> String {
        let count = self.lanes.count;
        let by = |split: bool| if split && count > 1 { format!(" / {count}") } else { String::new() };
        let mut text = format!("if ({o0} + at_o < {} && {k0} + at_k < {}) {{\n", self.outer, tile.end);
        text += &format!("let o = ({o0} + at_o){};\nlet k = ({k0} + at_k){};\n", by(!self.along), by(self.along));
        text += &self.text;
        for lane in 0..count {
            text += &format!("{x}[{lane}] = {ty}({});\n", self.values[lane % self.values.len()]);
        }
        text + "}\n"
    }

    /// Returns statements that store a group of neighbours in the tile's shared memory.
    fn leave(&self, x: &str, tile: &OperandTile<'_>) -> String {
        let (count, OperandTile { memory, stride, .. }) = (self.lanes.count, *tile);
        if !self.along && count == 4 {
            return format!("{memory}[(at_k * {stride} + at_o) / 4] = {x};\n");
        }
        let leave = |lane: usize| {
            let (o, k) = if self.along {
                ("at_o".into(), format!("(at_k + {lane})"))
            } else {
                (format!("(at_o + {lane})"), "at_k".into())
            };
            format!("{memory}[({k} * {stride} + {o}) / 4][{o} % 4] = {x}[{lane}];\n")
        };
        (0..count).map(leave).collect()
    }
}

/// An epilogue over `[b m n]`.
pub struct Epilogue {
    text: String,
    lanes: usize,
}

impl Epilogue {
    /// Prints the epilogue of a kernel, with at most `most` columns at once. `row` is the expression of its row.
    ///
    /// # Errors
    /// Returns the reasons why it cannot be printed.
    pub fn print(
        dialect: &Wgsl,
        nest: &Nest,
        slots: &SlotTypes,
        most: usize,
        row: &str,
    ) -> Result<Epilogue, Vec<String>> {
        let lanes = SplitAxis::best(nest, slots, 2, most);
        let mut emitter = Emitter::new(dialect, slots, nest, &["b", row, "n"], lanes, "v");
        for (id, instr) in nest.instrs.iter().enumerate() {
            if matches!(instr, Instr::Anchor { .. }) {
                let ty = dialect.register(instr.dtype());
                emitter.set(id, (0..lanes.count).map(|lane| dialect.convert(ty, &format!("sum{lane}"))).collect());
            }
        }
        // A point may store over an element that it loads, so all loads are printed first.
        nest.stores.iter().flat_map(|store| store.values()).for_each(|value| _ = emitter.value(value));
        (0..nest.stores.len()).for_each(|n| emitter.store(n));
        if emitter.problems.is_empty() {
            Ok(Epilogue { text: emitter.text, lanes: lanes.count })
        } else {
            Err(emitter.problems)
        }
    }

    /// Returns how many columns the epilogue takes at once.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns statements for the points from column `at_n` of row `m` on, given their sums.
    pub fn at(&self, sum: impl Fn(usize) -> String) -> String {
        let mut text = String::new();
        (0..self.lanes).for_each(|lane| text += &format!("let sum{lane} = {};\n", sum(lane)));
        let by = if self.lanes > 1 { format!(" / {}", self.lanes) } else { String::new() };
        text + &format!("let n = at_n{by};\n") + &self.text
    }
}
