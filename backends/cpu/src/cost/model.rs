//! Predicts the time of one thread for the bodies of kernels. The time is a sum over the operations of a thunk, with
//! coefficients from a file.

use eutectic_backend::{
    Body, Guard, Instr, Store, ValueId,
    axes::Nest,
    reach::{AxisSet, inside, is_of_box, is_of_matrices, known, line, masks, mentioned, points},
    reductions::RowValues,
};
use eutectic_ir::{
    Attr, DType, Op,
    index::{Atom, Index},
};
use rustc_hash::FxHashMap;

use super::{
    coefficients::{Costs, ElementCosts},
    lines::{SQUARE, box_line, run},
};
use crate::{
    gemm::product::ProductElement,
    kernels::{
        chosen::ChosenMatrix,
        lanes::{cut::Tiles, form::LaneForm},
        row_blocks,
    },
    machine::Machine,
    simd::table,
    tile::{grid::LONGEST_ROW, shape::SHORTEST_LINE},
};

/// The cost model of a machine.
pub struct CostModel {
    costs: Costs,
    pub(super) machine: Machine,
    /// Seconds per element, for each op and element type for which there is a function.
    by_op: FxHashMap<(Op, DType), f64>,
    /// Seconds per element for ops with a kind, such as the activations of `act`: for each kind and element type.
    by_kind: FxHashMap<(&'static str, DType), f64>,
}

/// The element types of a product's operands.
#[derive(Clone, Copy)]
pub(super) struct Multiplied {
    /// The element type of the left operand.
    pub dtype: DType,
    /// Bytes per element of a packed right operand, if its elements have fewer bytes in memory than in registers.
    pub kept: Option<f64>,
    /// Whether 8-bit integers are multiplied with the codes of packed weights.
    pub integers: bool,
}

/// The use of an operand that is not read in place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum OperandUse {
    /// Several tasks use each element, so the operand is evaluated as a whole before them.
    Whole,
    /// Each task uses a block of rows, and evaluates it.
    Blocks,
    /// Each task uses a block of rows, as the left operand of a product. It evaluates the block, or copies it through
    /// an index map.
    Left,
}

/// The way in which a body is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Walk {
    /// Within the tiles of the anchor.
    Within,
    /// Tile by tile. Each tile recomputes values that need no load.
    Tiles,
    /// Tile by tile, for an operand. Its tiles are small.
    Operand,
    /// Tile by tile, where a tile has one point along each outer axis.
    Blocks,
}

impl Walk {
    /// Returns whether the points of a tile at which a guard holds form a box, which is copied as a whole.
    pub(super) fn is_of_box(self, guard: &Guard) -> bool {
        let affine = || guard.0.terms.iter().all(|(atom, _)| matches!(atom, Atom::Coord(_)));
        is_of_box(guard) || self == Walk::Blocks && affine()
    }
}

/// The properties of a body that depend on its kernel.
#[derive(Default)]
pub(super) struct KernelContext<'a> {
    /// The instructions that micro-kernels apply in registers.
    pub(super) taken: &'a [ValueId],
    pub(super) stores: &'a [Store],
    /// For a product of matrices, the numbers of batch, row and column axes. The thunk treats the axes of rows as one
    /// axis, and those of columns as one axis.
    pub(super) groups: Option<[usize; 3]>,
}

impl KernelContext<'_> {
    /// Returns whether a map distinguishes axes that the kernel merges. Such a map is evaluated run by run, where a run
    /// is a sequence of points over which it is affine.
    fn splits(&self, map: &Index, body: &Body) -> bool {
        self.groups.is_some_and(|groups| map.values().is_empty() && !is_of_matrices(map, &body.domain, groups))
    }

    /// Returns the axes on which each value depends in the kernel, given those in the body. If a map distinguishes axes
    /// that the kernel merges, a value that depends on one axis of a group depends on all of them.
    fn masks(&self, body: &Body, mut masks: Vec<AxisSet>) -> Vec<AxisSet> {
        let Some([batch, rows, columns]) = self.groups else { return masks };
        if body.instrs.iter().flat_map(Instr::maps).any(|map| self.splits(map, body)) {
            let group = |from: usize, count: usize| (from..from + count).fold(0, |mask, d| mask | 1 << d);
            for group in [group(batch, rows), group(batch + rows, columns)] {
                masks.iter_mut().filter(|mask| **mask & group != 0).for_each(|mask| *mask |= group);
            }
        }
        masks
    }
}

/// The work that was counted so far.
#[derive(Default)]
pub(super) struct CostAccumulator {
    /// Seconds that one thread computes.
    pub(super) seconds: f64,
    pub(super) flops: f64,
    pub(super) bytes: f64,
}

impl CostModel {
    /// Returns the machine whose times the model predicts.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Returns the coefficients.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Returns the model of a machine.
    pub fn new(costs: Costs, machine: Machine) -> CostModel {
        let e = &costs.element;
        let seconds = |name: &str, dtype: DType| {
            let is = |class: &[String]| class.iter().any(|n| n == name);
            let of_f32 = match () {
                () if is(&costs.class.division) => e.division,
                () if is(&costs.class.transcendental) => e.transcendental,
                () if is(&costs.class.special) => e.special,
                () if is(&costs.class.scalar) => e.scalar,
                () => e.cheap,
            };
            of_f32 * factor(e, dtype)
        };
        let mut by_op = FxHashMap::default();
        let mut by_kind = FxHashMap::default();
        for dtype in DType::ALL {
            for name in table::names(dtype) {
                by_kind.insert((name, dtype), seconds(name, dtype));
                by_op.extend(Op::named(name).map(|op| ((op, dtype), seconds(name, dtype))));
            }
        }
        CostModel { costs, machine, by_op, by_kind }
    }

    /// Adds the work of computing a body's values. `row` has the axes that form a row.
    pub(super) fn body(&self, body: &Body, row: u64, walk: Walk, work: &mut CostAccumulator) {
        self.body_within(body, row, walk, &KernelContext::default(), work);
    }

    /// Adds the work of computing a body's values like [`CostModel::body`], for a body in the context of its kernel.
    pub(super) fn body_within(
        &self,
        body: &Body,
        row: u64,
        walk: Walk,
        around: &KernelContext<'_>,
        work: &mut CostAccumulator,
    ) {
        let e = &self.costs.element;
        let least = if walk == Walk::Within { 0.0 } else { points(&body.domain, u64::MAX) * e.step };
        let masks = around.masks(body, masks(body, row));
        let known = known(body);
        let times = passes(body, row, around.stores);
        for (id, ((instr, &mask), &known)) in body.instrs.iter().zip(&masks).zip(&known).enumerate() {
            let least = if known { least } else { 0.0 };
            let n = points(&body.domain, mask) * times.get(id).map_or(1.0, |&times| times as f64);
            match instr {
                Instr::Map { .. } if around.taken.contains(&id) => work.flops += n,
                Instr::Anchor { .. } | Instr::Constant { .. } => {}
                Instr::Load(load) if around.splits(&load.at, body) => {
                    work.seconds += n / run(&load.at, body, &masks) * e.run + n * e.cheap;
                }
                Instr::Load(load) => {
                    work.seconds += self.load(load, body, &masks, (walk, row), n);
                    work.seconds += if load.dtype.register() != load.dtype { n * e.cheap } else { 0.0 };
                }
                Instr::Coordinate { .. } | Instr::Within { .. } => work.seconds += n * e.cheap * 2.0,
                Instr::Map { op, attrs, dtype, args } => {
                    let from = args.last().map_or(*dtype, |&a| body.instrs[a].dtype());
                    work.seconds += (n.max(1.0) * self.of_op(*op, attrs, from)).max(least);
                    work.flops += n;
                }
                Instr::Row { op, attrs, args, dtype } => {
                    let of_args = args.iter().fold(0, |mask, &arg| mask | masks[arg]);
                    let [rows, all] = [!row, AxisSet::MAX].map(|axes| points(&body.domain, of_args & axes));
                    work.seconds += match op.row() {
                        Some(facts) if facts.is_scan() => {
                            4.0 * (facts.steps)(all, attrs) * e.reduce * self.factor(*dtype)
                        }
                        Some(facts) if facts.reduction().is_none() => {
                            rows * e.gather * (facts.steps)(all / rows.max(1.0), attrs)
                        }
                        _ => n * e.row + all * e.reduce * self.factor(*dtype),
                    };
                    work.flops += all;
                }
                // If boxes have whole lines, tiles are cut at their borders, so each tile is inside of a box or outside
                // of it, and nothing is copied.
                Instr::Select { pieces, .. }
                    if pieces.iter().flat_map(|p| &p.0).all(|g| walk.is_of_box(g) && !around.splits(&g.0, body)) =>
                {
                    let guards = || pieces.iter().flat_map(|p| &p.0);
                    let least_of = |of: fn(&Guard, &[usize]) -> usize| guards().map(|g| of(g, &body.domain)).min();
                    let cut = pieces.len() == 1 && least_of(inside).is_none_or(|n| n >= SHORTEST_LINE);
                    let short = least_of(box_line).is_some_and(|n| n < SQUARE);
                    // A tile that a border crosses is copied, or is split into smaller ones. A border along the
                    // outermost axis crosses few tiles, and does not count.
                    let outermost = body.domain.iter().position(|&n| n > 1).unwrap_or(0);
                    let borders = match walk {
                        Walk::Tiles => guards().filter(|g| !g.0.mentions(outermost)).count(),
                        Walk::Within | Walk::Operand | Walk::Blocks => 0,
                    };
                    work.seconds += match cut {
                        true => least.max(n * e.cheap * borders as f64),
                        // Other pieces are copied into the register and out of it, element by element if they are
                        // short.
                        false => 2.0 * n * if short { e.strided } else { e.cheap },
                    };
                }
                Instr::Select { pieces, .. } => {
                    let guards = pieces.iter().flat_map(|piece| &piece.0).map(|guard| run(&guard.0, body, &masks));
                    let inner = body.domain.last().copied().unwrap_or(1).max(1) as f64;
                    work.seconds += n * e.cheap + n / guards.fold(inner, f64::min) * e.run * pieces.len() as f64;
                }
            }
        }
    }

    /// Adds the work of an operand, unless it is read in place. A left operand that only copies elements through index
    /// maps is copied when it is used. Any other operand is evaluated. If each task evaluates its own block of rows,
    /// the block stays in the caches; otherwise the operand is written to memory and read back.
    pub(super) fn operand(&self, body: &Body, groups: [usize; 3], used: OperandUse, work: &mut CostAccumulator) {
        let in_place = body.results.first().is_some_and(|&r| match &body.instrs[r] {
            Instr::Load(load) => {
                load.guards.is_empty() && load.dtype.size() >= 4 && is_of_matrices(&load.at, &body.domain, groups)
            }
            _ => false,
        });
        if in_place {
            work.seconds += self.strided_in_matrices(body, groups[0]);
        }
        let in_place = in_place || Self::is_chosen(body, groups);
        // Such instructions only copy elements of a buffer.
        let moved = |i: &Instr| match i {
            Instr::Load(load) => load.at.affine(body.domain.len()).is_some(),
            Instr::Select { pieces, .. } => pieces.len() == 1,
            _ => false,
        };
        let loads = body.instrs.iter().filter_map(|i| if let Instr::Load(load) = i { Some(load) } else { None });
        if used == OperandUse::Left && !in_place && body.instrs.iter().all(moved) && dtype(body).size() >= 4 {
            let e = &self.costs.element;
            let n: f64 = body.domain.iter().map(|&n| n as f64).product();
            for load in loads {
                work.seconds += match line(&load.at, &body.domain) {
                    Some(line) => n / line * e.line + n * e.copy,
                    None => n * e.strided,
                };
            }
        } else if !in_place {
            // For strided left operands, blocks of rows gain almost nothing: micro-kernels need only few rows at a
            // time.
            let blocks = match used {
                OperandUse::Whole => false,
                OperandUse::Blocks => true,
                OperandUse::Left => {
                    let mut maps = body.instrs.iter().flat_map(Instr::maps);
                    !maps.all(|map| is_of_matrices(map, &body.domain, groups))
                        && row_blocks::is_view(&body.instrs, &body.domain, groups[0], groups[1])
                }
            };
            if blocks && are_matrices_disjoint(body, groups[0]) {
                self.body(body, 0, Walk::Blocks, work);
                work.seconds += points(&body.domain, AxisSet::MAX) * self.costs.element.copy;
                return;
            }
            self.body(body, 0, Walk::Operand, work);
            let bytes = body.domain.iter().map(|&n| n as f64).product::<f64>() * dtype(body).size().max(4) as f64;
            let m = &self.costs.memory;
            work.seconds += 2.0 * bytes / if bytes < m.l3_bytes { m.l3 } else { m.dram };
        }
    }

    /// Returns the additional seconds of an operand that is read in place, if no axis of its matrices has stride 1.
    /// Neighbours in memory then belong to different matrices of the batch.
    fn strided_in_matrices(&self, body: &Body, batch: usize) -> f64 {
        let load =
            body.results.first().and_then(|&r| if let Instr::Load(load) = &body.instrs[r] { Some(load) } else { None });
        let Some((load, strides)) = load.and_then(|load| Some((load, load.at.affine(body.domain.len())?))) else {
            return 0.0;
        };
        let mut moves =
            strides.iter().zip(&body.domain).skip(batch).filter(|(stride, n)| **stride != 0 && **n > 1).peekable();
        if moves.peek().is_none() || moves.any(|(stride, _)| stride.abs() == 1) {
            return 0.0;
        }
        let n = points(&body.domain, mentioned(&load.at));
        n * if n * 4.0 > self.costs.memory.l2_bytes { self.costs.element.scattered } else { self.costs.element.strided }
    }

    /// Returns whether an operand is read in place, and integers of the body select its matrices. Selecting a matrix
    /// costs almost nothing.
    fn is_chosen(body: &Body, groups: [usize; 3]) -> bool {
        let chosen = body.results.first().and_then(|&r| match &body.instrs[r] {
            Instr::Load(load) if !load.at.values().is_empty() => {
                ChosenMatrix::of(&body.instrs, r, &masks(body, 0), groups[0])
            }
            _ => None,
        });
        chosen.is_some_and(|chosen| chosen.load.dtype.size() >= 4 && is_of_matrices(&chosen.at, &body.domain, groups))
    }

    /// Adds the work of a batch-vectorised contraction. Operands that are not read in place are evaluated tile by tile.
    /// Elements that several tiles need are evaluated by each of them.
    pub(super) fn lanes(&self, form: &LaneForm, work: &mut CostAccumulator) {
        let tiles = Tiles::of(form, &self.machine);
        for (side, again) in form.sides.iter().zip(tiles.again).filter(|(side, _)| !side.in_place()) {
            let Nest { domain, lengths, instrs, results, .. } = side.nest.clone();
            let mut once = CostAccumulator::default();
            self.body(&Body { domain, lengths, instrs, results }, 0, Walk::Operand, &mut once);
            work.seconds += once.seconds * again;
            work.flops += once.flops * again;
            // The time of memory is added, because no computation overlaps with evaluating the operand.
            let bytes = 4.0 * side.nest.domain.iter().map(|&n| n as f64).product::<f64>();
            work.seconds += if bytes > self.costs.memory.l3_bytes { bytes / self.costs.memory.dram } else { 0.0 };
        }
        let count = |extents: &[usize]| extents.iter().map(|&n| n as f64).product::<f64>();
        let sums = count(&form.domain);
        work.flops += 2.0 * sums * count(&form.terms);
        let [moving, _] = &form.sides;
        let dtype = moving.nest.results.first().map_or(DType::F32, |&r| moving.nest.instrs[r].dtype());
        work.seconds += match dtype {
            DType::F64 => 2.0,
            d if d.is_float() => 1.0,
            _ => f64::INFINITY,
        } * tiles.seconds;
    }

    /// Adds the work of `count` products `[m k] · [k n]`.
    pub(super) fn product(&self, [count, m, n, k]: [f64; 4], multiplied: Multiplied, work: &mut CostAccumulator) {
        let Multiplied { dtype, kept, integers } = multiplied;
        let p = &self.costs.product;
        let flops = 2.0 * count * m * n * k;
        let isa = self.machine.isa;
        let (most, lanes) = match dtype {
            DType::F64 => (p.f64, f64::lanes(isa)),
            DType::Bool => (0.0, None),
            _ if integers => (p.int8, f32::lanes(isa)),
            d if d.is_float() => (p.f32, f32::lanes(isa)),
            _ => (p.other, None),
        };
        let rate = if m == 1.0 || n == 1.0 {
            // The product of a vector and a matrix is bound by reading the matrix. A type with half the bytes takes
            // half the time.
            most.min(p.vector * kept.map_or(1.0, |bytes| dtype.register().size() as f64 / bytes))
        } else {
            // Micro-kernels compute whole vectors of columns, so the number of columns is rounded up.
            let lanes = lanes.unwrap_or(1) as f64;
            let held = (n / lanes).ceil() * lanes;
            most * m / (m + p.m_half) * n / (held + p.n_half) * k / (k + p.k_half)
        };
        work.flops += flops;
        work.seconds += match () {
            () if most == 0.0 => f64::INFINITY,
            () if flops == 0.0 => 0.0,
            () => flops / rate,
        };
    }

    /// Returns the seconds per element of an op; infinite if there is no function for it.
    fn of_op(&self, op: Op, attrs: &[Attr], dtype: DType) -> f64 {
        let known = match attrs.first() {
            Some(Attr::Word(kind)) => self.by_kind.get(&(&**kind, dtype)),
            _ => self.by_op.get(&(op, dtype)),
        };
        known.copied().unwrap_or(f64::INFINITY)
    }

    pub(super) fn factor(&self, dtype: DType) -> f64 {
        factor(&self.costs.element, dtype)
    }
}

/// Returns how often each instruction of a row group is computed. If rows are too long for a tile program's registers,
/// there is a pass for each level of reductions, and one for elementwise stores. The list is empty if each instruction
/// is computed once.
fn passes(body: &Body, row: AxisSet, stored: &[Store]) -> Vec<usize> {
    if row == 0 || points(&body.domain, row) <= LONGEST_ROW as f64 {
        return Vec::new();
    }
    let mut times = vec![0; body.instrs.len()];
    let all = RowValues::of(&body.instrs).passes(stored.iter().map(|store| store.value));
    all.iter().flatten().for_each(|&id| times[id] += 1);
    times
}

/// Returns whether the matrices of an operand, one for each point of the first `batch` axes, are evaluated one by one
/// ([`crate::kernels::row_blocks::RowBlocks`]).
fn are_matrices_disjoint(body: &Body, batch: usize) -> bool {
    let maps = || body.instrs.iter().flat_map(Instr::maps);
    let simple = |map: &Index| map.terms.iter().all(|(atom, _)| !matches!(atom, Atom::Div(..) | Atom::Mod(..)));
    maps().all(simple) && (0..batch).all(|axis| body.domain[axis] <= 1 || maps().any(|map| map.mentions(axis)))
}

fn factor(element: &ElementCosts, dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1.0,
        DType::F64 => element.f64,
        DType::I64 => element.i64,
        _ => element.other,
    }
}

/// Returns the number of points of each of three groups of axes. `groups` has their numbers of axes.
pub(super) fn extents(body: &Body, groups: [usize; 3]) -> [f64; 3] {
    let (first, rest) = body.domain.split_at(groups[0]);
    let (second, third) = rest.split_at(groups[1]);
    [first, second, third].map(|group| group.iter().map(|&n| n as f64).product())
}

pub(super) fn dtype(body: &Body) -> DType {
    body.results.first().map_or(DType::F32, |&r| body.instrs[r].dtype())
}
