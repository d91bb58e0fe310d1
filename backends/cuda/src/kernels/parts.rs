//! The printed parts of tiled kernels: operands in any layout, and epilogues.

use eutectic_backend::{Body, Instr, ValueId, axes::Nest};
use eutectic_gpu::{dialect::Dialect, emit::Emitter, lanes::SplitAxis};
use eutectic_ir::{DType, index::Index};

use crate::dialect::{CudaC, method};

/// Returns a body over three groups of axes, each as one axis.
pub fn flat(nest: &Nest, [first, second, third]: [usize; 3]) -> Nest {
    nest.flat(first + second, third).flat(first, second).flat(0, first)
}

/// Returns whether a kernel sums in 64 bits, which it does if a body has a value of `f64`.
pub fn wide(bodies: &[&Body]) -> bool {
    let is_wide = |body: &&Body| body.instrs.iter().any(|i| i.dtype() == DType::F64);
    bodies.iter().any(is_wide)
}

/// The type in which matrix units take operands.
#[derive(Clone, Copy, Debug)]
pub struct UnitElement {
    /// The type's name in CUDA C++.
    pub name: &'static str,
    /// The type's size in bytes.
    pub size: usize,
}

impl UnitElement {
    /// Returns the type in which matrix units take operands: a 16-bit float type that all share, or TF32 if all are
    /// `f32` and eleven significant bits suffice. Returns `None` for others.
    pub fn of(bodies: &[&Body]) -> Option<UnitElement> {
        if bodies.iter().all(|body| body.before_tf32().is_some()) {
            return Some(UnitElement { name: "tf32", size: 4 });
        }
        let of = |body: &Body| body.instrs[body.results[0]].dtype();
        let first = of(bodies.first()?);
        let fits = first.is_half() && bodies.iter().all(|body| of(body) == first);
        fits.then(|| UnitElement { name: CudaC.memory(first), size: 2 })
    }

    /// Returns the maximal bytes of a tile in shared memory over both layouts.
    pub fn tile(&self, outer: usize, depth: usize) -> usize {
        self.size * (outer * (depth + 16 / self.size)).max(depth * (outer + 8))
    }
}

/// Returns the value of an operand that is multiplied.
pub fn multiplied(body: &Body) -> ValueId {
    body.before_tf32().unwrap_or(body.results[0])
}

/// A printed operand of a product.
pub struct PrintedOperand {
    /// The operand's specialisation of the template `Operand`.
    pub properties: String,
    /// The method that evaluates elements of the operand.
    pub method: String,
    /// Whether contiguous elements are along the depth.
    pub is_along: bool,
    /// The number of elements per access.
    pub lanes: usize,
    /// The number of the operand.
    which: usize,
}

impl PrintedOperand {
    /// Prints an operand over `[b o k]`, or `[b k o]` with the depth first. `place` is an expression that replaces the
    /// outer coordinate `o`. Outer neighbours are then not contiguous.
    pub fn print(
        n: usize,
        nest: &Nest,
        result: usize,
        slots: &[(DType, usize)],
        (depth_first, sum): (bool, &str),
        place: Option<&str>,
    ) -> Result<PrintedOperand, Vec<String>> {
        let (outer, depth) = if depth_first { (2, 1) } else { (1, 2) };
        let o = place.unwrap_or("o");
        let names: [&str; 3] = if depth_first { ["b", "k", o] } else { ["b", o, "k"] };
        let most = if nest.instrs[result].dtype().size() == 2 { 8 } else { 4 };
        let of_outer = if place.is_some() { 1 } else { most };
        let [along, across] =
            [(depth, most), (outer, of_outer)].map(|(axis, most)| SplitAxis::best(nest, slots, axis, most));
        let is_along = match along.count.cmp(&across.count) {
            std::cmp::Ordering::Equal => steps_by_one(nest, depth),
            order => order.is_gt(),
        };
        let lanes = if is_along { along } else { across };
        let mut emitter = Emitter::new(&CudaC, slots, nest, &names, lanes, "v");
        let values = emitter.value(result);
        let lines = emitter.text.clone();
        for lane in 0..lanes.count {
            emitter.line(&format!("out[{lane}] = ({sum}){};", values[lane % values.len()]));
        }
        if !emitter.problems.is_empty() {
            return Err(emitter.problems);
        }
        let (o, k, count) = (nest.domain[outer], nest.domain[depth], lanes.count);
        // An operand that is loaded without change is copied to shared memory in units of 16 bytes.
        let size = nest.instrs[result].dtype().size();
        let at = emitter.address(result).filter(|(slot, _)| count * size == 16 && slots[*slot].0.size() == size);
        let is_plain = at.is_some();
        let address = at.map_or("return (const char*)0;\n".into(), |(slot, at)| format!("return s{slot} + {at};\n"));
        // If one load reads all neighbours without change, they need no conversion to 32 bits and back.
        let pack = values[0].strip_suffix(".get(0)").filter(|_| values.len() == count);
        let raw =
            pack.filter(|_| matches!(&nest.instrs[result], Instr::Load(load) if slots[load.slot].0 == load.dtype));
        let is_raw = raw.is_some();
        let raw = raw.map_or(String::new(), |pack| format!("{lines}pack = {pack};\n"));
        Ok(PrintedOperand {
            properties: format!(
                "template <> struct Operand<{n}> {{ using T = {sum}; static constexpr int OUTER = {o}, DEPTH = {k}, LANES = {count}; \
                 static constexpr bool ALONG = {is_along}, PLAIN = {is_plain}, RAW = {is_raw}, BOXED = false, BATCHED = true; }};\n"
            ),
            is_along,
            lanes: count,
            which: n,
            method: method(&format!("void operand{n}(int b, int o, int k, {sum}* out)"), &emitter.text)
                + &method(&format!("auto address{n}(int b, int o, int k)"), &address)
                + &format!("template <class P> METHOD void raw{n}(int b, int o, int k, P& pack) const {{\n{raw}}}\n"),
        })
    }
}

impl PrintedOperand {
    /// Returns an operand whose boxes the copy engine loads. Threads do not evaluate it.
    pub fn boxed(n: usize, [outer, depth]: [usize; 2], is_along: bool, is_batched: bool) -> PrintedOperand {
        PrintedOperand {
            properties: format!(
                "template <> struct Operand<{n}> {{ using T = float; static constexpr int OUTER = {outer}, DEPTH = {depth}, LANES = 8; \
                 static constexpr bool ALONG = {is_along}, PLAIN = false, RAW = false, BOXED = true, BATCHED = {is_batched}; }};\n"
            ),
            is_along,
            lanes: 8,
            which: n,
            method: method(&format!("void operand{n}(int, int, int, float*)"), "")
                + &method(&format!("auto address{n}(int, int, int)"), "return (const char*)0;\n")
                + &format!("template <class P> METHOD void raw{n}(int, int, int, P&) const {{}}\n"),
        }
    }

    /// Returns the bytes of a tile in shared memory, with rows padded as in `text/halves.cu`.
    pub fn shared(&self, element: UnitElement, outer: usize, depth: usize) -> usize {
        let across = if element.size == 4 && self.which == 2 { 4 } else { 8 };
        element.size * if self.is_along { outer * (depth + 16 / element.size) } else { depth * (outer + across) }
    }
}

/// Returns whether the loads of a nest are contiguous along an axis.
fn steps_by_one(nest: &Nest, axis: usize) -> bool {
    let origin = [0; 3];
    let mut next = origin;
    next[axis] = 1;
    let step = |map: &Index| map.eval(&next, &|_| 0) - map.eval(&origin, &|_| 0);
    nest.instrs.iter().any(|i| matches!(i, Instr::Load(load) if step(&load.at) == 1))
}

/// Returns the epilogue over `[b m n]` as a method, and the number of columns that it processes at once. `row` is the
/// expression of its row.
pub fn epilogue(
    nest: &Nest,
    slots: &[(DType, usize)],
    most: usize,
    sum: &str,
    row: &str,
) -> Result<(String, usize), Vec<String>> {
    let lanes = SplitAxis::best(nest, slots, 2, most);
    let mut emitter = Emitter::new(&CudaC, slots, nest, &["b", row, "n"], lanes, "v");
    for (id, instr) in nest.instrs.iter().enumerate() {
        if let Instr::Anchor { dtype } = instr {
            let ty = CudaC.register(*dtype);
            emitter.set(id, (0..lanes.count).map(|lane| format!("({ty})sums[{lane}]")).collect());
        }
    }
    // A point may store over an element that it loads, so all loads are printed first.
    nest.stores.iter().flat_map(|store| store.values()).for_each(|value| _ = emitter.value(value));
    (0..nest.stores.len()).for_each(|n| emitter.store(n));
    let head = format!("void epilogue(int b, int m, int n, const {sum}* sums)");
    if emitter.problems.is_empty() { Ok((method(&head, &emitter.text), lanes.count)) } else { Err(emitter.problems) }
}
