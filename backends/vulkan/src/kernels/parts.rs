//! The printed parts of tiled kernels: operands that are brought into shared memory, and epilogues.

use eutectic_backend::{Body, Instr, axes::Nest};
use eutectic_gpu::{dialect::Dialect, emit::Emitter, lanes::SplitAxis};
use eutectic_ir::DType;

use crate::dialect::Wgsl;

/// Element types and sizes of a kernel's buffers.
pub type SlotTypes = [(DType, usize)];

/// A body over three groups of axes, each as one axis.
pub fn matrix(nest: &Nest, groups: [usize; 3]) -> Nest {
    (0..3).rev().fold(nest.clone(), |nest, n| nest.flat(groups[..n].iter().sum(), groups[n]))
}

/// The type that a kernel sums in: 64 bits where anything is of 64 bits.
pub fn sums(bodies: &[&Body]) -> DType {
    let mut instrs = bodies.iter().flat_map(|body| &body.instrs);
    if instrs.any(|instr| instr.dtype() == DType::F64) { DType::F64 } else { DType::F32 }
}

/// An operand, whose elements have an `outer` coordinate and one along the `depth`.
pub struct PrintedOperand {
    text: String,
    values: Vec<String>,
    lanes: SplitAxis,
    along: bool,
    outer: usize,
}

/// A tile of an operand in shared memory: outer neighbours side by side, in vectors of four.
pub struct OperandTile<'a> {
    /// The shared array.
    pub memory: &'a str,
    /// Extents.
    pub outer: usize,
    /// See `outer`.
    pub depth: usize,
    /// Where it begins.
    pub first: [&'a str; 2],
    /// Where the operand's depth ends.
    pub end: &'a str,
}

impl PrintedOperand {
    /// Of a body over `[b o k]`, or `[b k o]` where the depth comes first.
    ///
    /// # Errors
    /// What cannot be printed.
    pub fn print(
        dialect: &Wgsl,
        nest: &Nest,
        result: usize,
        slots: &SlotTypes,
        depth_first: bool,
    ) -> Result<PrintedOperand, Vec<String>> {
        let (outer, depth, names) = if depth_first { (2, 1, ["b", "k", "o"]) } else { (1, 2, ["b", "o", "k"]) };
        let most = 4;
        let of_outer = SplitAxis::best(nest, slots, outer, most);
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
        Ok(PrintedOperand { text: emitter.text, values, lanes, along, outer: nest.domain[outer] })
    }

    /// Statements by which so many threads leave a tile in shared memory; what of it is outside of the operand is zeros.
    pub fn fetch(&self, tile: &OperandTile<'_>, threads: usize, ty: &str) -> String {
        let OperandTile { memory, outer, depth, first: [o0, k0], end } = *tile;
        let count = self.lanes.count;
        let groups = outer * depth / count;
        let (o, k) = match self.along {
            true => (format!("group / {}", depth / count), format!("group % {} * {count}", depth / count)),
            false => (format!("group % {} * {count}", outer / count), format!("group / {}", outer / count)),
        };
        let by = |split: bool| if split && count > 1 { format!(" / {count}") } else { String::new() };
        let mut text = format!(
            "for (var group = thread; group < {groups}; group += {threads}) {{\nlet at_o = {o};\nlet at_k = {k};\n"
        );
        (0..count).for_each(|lane| text += &format!("var x{lane} = {ty}(0);\n"));
        text += &format!("if ({o0} + at_o < {} && {k0} + at_k < {end}) {{\n", self.outer);
        text += &format!("let o = ({o0} + at_o){};\nlet k = ({k0} + at_k){};\n", by(!self.along), by(self.along));
        text += &self.text;
        for lane in 0..count {
            text += &format!("x{lane} = {ty}({});\n", self.values[lane % self.values.len()]);
        }
        text += "}\n";
        if !self.along && count == 4 {
            text += &format!("{memory}[(at_k * {outer} + at_o) / 4] = vec4<{ty}>(x0, x1, x2, x3);\n");
        } else {
            for lane in 0..count {
                let (o, k) = if self.along {
                    ("at_o".into(), format!("(at_k + {lane})"))
                } else {
                    (format!("(at_o + {lane})"), "at_k".into())
                };
                text += &format!("{memory}[({k} * {outer} + {o}) / 4][{o} % 4] = x{lane};\n");
            }
        }
        text + "}\n"
    }
}

/// An epilogue over `[b m n]`.
pub struct Epilogue {
    text: String,
    lanes: usize,
}

impl Epilogue {
    /// Of a kernel's own body, at most so many columns at once.
    ///
    /// # Errors
    /// What cannot be printed.
    pub fn print(dialect: &Wgsl, nest: &Nest, slots: &SlotTypes, most: usize) -> Result<Epilogue, Vec<String>> {
        let lanes = SplitAxis::best(nest, slots, 2, most);
        let mut emitter = Emitter::new(dialect, slots, nest, &["b", "m", "n"], lanes, "v");
        for (id, instr) in nest.instrs.iter().enumerate() {
            if matches!(instr, Instr::Anchor { .. }) {
                let ty = dialect.register(instr.dtype());
                emitter.set(id, (0..lanes.count).map(|lane| dialect.convert(ty, &format!("sum{lane}"))).collect());
            }
        }
        // A point reads what it writes before it writes.
        nest.stores.iter().flat_map(|store| store.values()).for_each(|value| _ = emitter.value(value));
        (0..nest.stores.len()).for_each(|n| emitter.store(n));
        if emitter.problems.is_empty() {
            Ok(Epilogue { text: emitter.text, lanes: lanes.count })
        } else {
            Err(emitter.problems)
        }
    }

    /// How many columns it takes at once.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Statements for the points from column `at_n` of row `m` on, whose sums are given.
    pub fn at(&self, sum: impl Fn(usize) -> String) -> String {
        let mut text = String::new();
        (0..self.lanes).for_each(|lane| text += &format!("let sum{lane} = {};\n", sum(lane)));
        let by = if self.lanes > 1 { format!(" / {}", self.lanes) } else { String::new() };
        text + &format!("let n = at_n{by};\n") + &self.text
    }
}
