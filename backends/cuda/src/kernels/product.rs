//! A product with the properties that all of its schedules need.

use eutectic_backend::{Body, Contraction, Instr, Kernel, axes::Nest};
use eutectic_gpu::{device::DeviceShape, gathered::reads, launch::Launch, sectors::touched};

use super::parts::{PrintedOperand, UnitElement, flat, multiplied, wide};
use crate::dialect::{arguments_of, short_entry};

/// Bytes per second from memory, and from the cache if all data fits; then the bytes of the cache that a kernel can
/// use.
const MEMORY: [f64; 2] = [3.9e12, 5.5e12];
const CACHE: f64 = 3.0e7;
/// Seconds per element and op of an epilogue. The kernel multiplies nothing while it evaluates the epilogue.
const EPILOGUE: f64 = 1.5e-13;
/// Seconds of a launch in a recorded run.
pub const LAUNCH: f64 = 1.1e-6;
/// The maximal bytes of partial sums if the depth is split.
const WORKSPACE: usize = 64 << 20;
const SPLITS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Threads of a block that adds splits of the depth.
const COMBINE: usize = 256;

/// The launches, or the reasons why they cannot be printed.
pub type Printed = Result<Vec<Launch>, Vec<String>>;

/// A schedule of a product.
pub struct ProductWay<'a> {
    /// The name, for reports.
    pub name: String,
    /// The predicted seconds.
    pub seconds: f64,
    /// Prints the schedule.
    pub print: Box<dyn Fn() -> Printed + 'a>,
}

/// A product: `out[b m n] = Σ_k lhs[b m k] · rhs[b k n]`, where each letter stands for one axis.
pub struct ProductProblem<'a> {
    pub shape: &'a DeviceShape,
    pub kernel: &'a Kernel,
    /// Extents of batch, rows, columns and depth.
    pub extents: [usize; 4],
    /// The operands.
    pub left: Nest,
    pub right: Nest,
    /// The epilogue.
    pub own: Nest,
    pub lhs: &'a Body,
    pub rhs: &'a Body,
    /// The type of sums, and its bytes.
    pub sum: &'static str,
    pub bytes: usize,
    /// The type in which matrix units take the operands.
    pub unit: Option<UnitElement>,
}

impl<'a> ProductProblem<'a> {
    /// Returns the product of a kernel; `None` for other kernels.
    pub fn new(shape: &'a DeviceShape, kernel: &'a Kernel) -> Option<ProductProblem<'a>> {
        let Contraction { lhs, rhs, axes } = kernel.contraction()?;
        let sum = if wide(&kernel.bodies()) { "double" } else { "float" };
        let left = flat(&Nest::of(lhs.clone()), [axes.batch, axes.rows, axes.depth]);
        let right = flat(&Nest::of(rhs.clone()), [axes.batch, axes.depth, axes.columns]);
        let own = flat(&Nest::new(&kernel.body, &kernel.stores), [axes.batch, axes.rows, axes.columns]);
        let extents = [left.domain[0], left.domain[1], right.domain[2], left.domain[2]];
        let unit = UnitElement::of(&[lhs, rhs]).filter(|_| sum == "float");
        let bytes = if sum == "double" { 8 } else { 4 };
        Some(ProductProblem { shape, kernel, extents, left, right, own, lhs, rhs, sum, bytes, unit })
    }

    /// Returns the number of reads per element of each operand; 0 for a strided matrix.
    pub fn gathered(&self) -> [f64; 2] {
        let axes =
            self.kernel.contraction().map_or([0; 2], |of| [of.axes.rows, of.axes.depth].map(|n| of.axes.batch + n));
        let of = |body: &Body, inner: usize| {
            let elements: usize = body.domain.iter().product();
            reads(body, inner, &self.kernel.slots) / elements.max(1) as f64
        };
        [of(self.lhs, axes[0]), of(self.rhs, axes[1])]
    }

    /// Returns the bytes of an operand's element.
    pub fn size(&self) -> usize {
        self.unit.map_or(self.bytes, |element| element.size)
    }

    /// Prints both operands.
    pub fn operands(&self) -> Result<[PrintedOperand; 2], Vec<String>> {
        let slots = &self.kernel.slots;
        Ok([
            PrintedOperand::print(0, &self.left, multiplied(self.lhs), slots, (false, self.sum), None)?,
            PrintedOperand::print(1, &self.right, multiplied(self.rhs), slots, (true, self.sum), None)?,
        ])
    }

    /// Returns the bytes per element of the right operand in memory. If it is computed from several matrices of its
    /// extents, the widest element type counts.
    pub fn right_width(&self) -> usize {
        let width = |instr: &Instr| match instr {
            Instr::Load(load) if load.at.mentions(1) && load.at.mentions(2) => {
                Some(self.kernel.slots[load.slot].0.size())
            }
            _ => None,
        };
        self.right.instrs.iter().filter_map(width).max().unwrap_or(self.size())
    }

    /// Returns the text before the kernel itself.
    pub fn head(&self, operands: &[PrintedOperand; 2], epilogue: &str, texts: &[&str]) -> String {
        let [b, m, n, k] = self.extents;
        let constants = format!(
            "#define OPERANDS 2\nconstexpr int B = {b}, M = {m}, N = {n}, K = {k};\ntemplate <int WHICH> struct Operand;\n"
        );
        let before = constants + &operands[0].properties + &operands[1].properties;
        let methods = epilogue.to_string() + &operands[0].method + &operands[1].method;
        let shared = [include_str!("../text/tiles.cu"), include_str!("../text/contraction.cu")];
        let is_written = |slot: usize| self.kernel.stores.iter().any(|store| store.slot == slot);
        arguments_of(&self.kernel.slots, &is_written, &before, &methods) + &shared.concat() + &texts.concat()
    }

    /// Returns the bytes of partial sums if the depth is split.
    pub fn workspace(&self, splits: usize) -> usize {
        let [b, m, n, _] = self.extents;
        if splits > 1 { splits * b * m * n * self.bytes } else { 0 }
    }

    /// Returns the launch of a product, and the launch that adds its partial sums if the depth is split.
    pub fn launches(&self, product: Launch, head: &str, splits: usize, lanes: usize) -> Vec<Launch> {
        let [b, m, n, _] = self.extents;
        let workspace = self.workspace(splits);
        let combine = (splits > 1).then(|| {
            let call = format!("combine<{}, {splits}, {lanes}, {COMBINE}>(slots);", self.sum);
            let blocks = (b * m * n / lanes).div_ceil(COMBINE).min(self.shape.processors * 16);
            let text = head.to_string() + &short_entry(COMBINE, &call);
            Launch { workspace, ..Launch::new(text, [blocks, 1, 1], COMBINE) }
        });
        [Launch { workspace, ..product }].into_iter().chain(combine).collect()
    }

    /// Returns the possible numbers of splits of the depth: 1, and those with at least `least` terms per split whose
    /// sums fit into the workspace.
    pub fn splits(&self, least: usize) -> impl Iterator<Item = usize> {
        let fits = move |splits: &usize| {
            *splits == 1 || self.extents[3] >= splits * least && self.workspace(*splits) <= WORKSPACE
        };
        SPLITS.into_iter().filter(fits)
    }

    /// Returns the minimal seconds of reading the operands and writing the result.
    pub fn memory(&self) -> f64 {
        let [b, m, n, k] = self.extents.map(|n| n as f64);
        let size = self.size() as f64;
        // Windows have more elements than their image, so the bytes of the image count.
        let read = |nest: &Nest, elements: f64| (elements * size).min(self.read(nest));
        let bytes = read(&self.left, b * m * k) + read(&self.right, b * k * n) + b * m * n * size;
        bytes / MEMORY[usize::from(bytes < CACHE)]
    }

    /// Returns the bytes that an operand reads, which are at most those of its buffers.
    fn read(&self, nest: &Nest) -> f64 {
        let of = |instr: &Instr| match instr {
            Instr::Load(load) => {
                let (dtype, count) = self.kernel.slots[load.slot];
                touched(&load.at, &nest.domain).min(count as f64) * dtype.size() as f64
            }
            _ => 0.0,
        };
        nest.instrs.iter().map(of).sum()
    }

    /// Returns the seconds of a product whose processors are busy for `busy` seconds, including launches, memory, and
    /// the sum of the splits.
    pub fn seconds(&self, busy: f64, splits: usize) -> f64 {
        LAUNCH + 1.0e-6 + busy.max(self.memory()) + self.adding(splits)
    }

    /// Returns the seconds of evaluating the epilogue.
    pub fn epilogue(&self) -> f64 {
        let ops = self.own.instrs.iter().filter(|instr| matches!(instr, Instr::Map { .. })).count();
        self.extents[..3].iter().map(|&n| n as f64).product::<f64>() * ops as f64 * EPILOGUE
    }

    /// Returns the seconds of adding the splits of the depth.
    pub fn adding(&self, splits: usize) -> f64 {
        if splits > 1 { 2.5e-6 + 2.0 * self.workspace(splits) as f64 / MEMORY[1] } else { 0.0 }
    }
}
