//! Computes batch-vectorised contractions: vectors of sums along an axis of the result stay in registers. They suit
//! products whose matrices are too narrow to fill vectors: depthwise convolutions, and convolutions of small groups.
//! Their windows are read from a tile of the image, which has each element once.

pub mod cut;
mod finish;
pub mod form;
mod side;

use eutectic_backend::{Instr, axes::Nest};
use eutectic_ir::DType;

use self::{
    cut::Tiles,
    form::LaneForm,
    side::{LaneOperand, LaneTile},
};
use super::{contraction::epilogue::StridedSlot, slots::Slots};
use crate::{
    machine::Machine,
    runtime::{
        memory::ALIGN,
        thunk::{Thunk, ThunkContext},
    },
    simd::lanes::{LaneElement, LaneKernels, LaneSums},
    tile::{self, Frame, Grid, MAX_RANK, RowPart, Tile, TileProgram},
};

/// The number of multiplications below which waking another thread takes longer than the work.
const SERIAL: usize = 1 << 15;
/// The number of tasks per thread, if there are enough tiles.
const SHARE: usize = 4;

/// Compiles a contraction in batch-vectorised form, which accumulates in `acc`. `body` is its epilogue, in the kernel's
/// order of axes.
///
/// # Errors
/// Returns every reason why the contraction cannot be compiled.
pub fn compile(
    form: &LaneForm,
    body: &Nest,
    acc: DType,
    slots: &Slots,
    machine: Machine,
) -> Result<Box<dyn Thunk>, Vec<String>> {
    match acc {
        DType::F32 => Lanes::<f32>::compile(form, body, acc, slots, machine),
        DType::F64 => Lanes::<f64>::compile(form, body, acc, slots, machine),
        other => Err(vec![format!(
            "cannot compute vectors of sums in {other} because the CPU has kernels for f32 and f64 only"
        )]),
    }
}

struct Lanes<T: 'static> {
    sums: LaneKernels<T>,
    rank: usize,
    terms: Vec<usize>,
    count: usize,
    moving: LaneOperand,
    fixed: LaneOperand,
    /// The division of the result into tiles, with the axes in the order `axes`. The axes on which the fixed operand
    /// depends come first, so that consecutive tiles share its elements.
    grid: Grid,
    axes: Vec<usize>,
    /// The number of consecutive tiles of a task.
    tiles: usize,
    /// The axes of the result along which a kernel call computes points, and rows of points. The fixed operand does not
    /// depend on them.
    points: Option<usize>,
    rows: Option<usize>,
    epilogue: TileProgram,
    /// The value that is added to the sums, and their bounds.
    added: Option<StridedSlot>,
    bounds: [Option<T>; 2],
    /// The destination of sums that are stored directly.
    target: Option<StridedSlot>,
    layout: Layout,
    serial: bool,
}

/// The layout of scratch memory, as byte offsets. The moving operand, and later the epilogue, comes first.
struct Layout {
    fixed: usize,
    sums: usize,
    tables: usize,
    end: usize,
}

impl<T: LaneElement> Lanes<T> {
    fn compile(
        form: &LaneForm,
        body: &Nest,
        acc: DType,
        slots: &Slots,
        machine: Machine,
    ) -> Result<Box<dyn Thunk>, Vec<String>> {
        let isa = machine.isa;
        let body = body.permuted(&form.order);
        let rank = body.domain.len();
        let len = Tiles::of(form, &machine).len;
        let [moving, fixed] = &form.sides;
        let (mut axes, others): (Vec<usize>, Vec<usize>) =
            (0..rank).partition(|&d| fixed.depends_on(d) || d + 1 == rank);
        axes.extend(others);
        let reorder = |of: &[usize]| {
            let mut to = [1; MAX_RANK];
            to.iter_mut().zip(&axes).for_each(|(to, &d)| *to = of[d]);
            to
        };
        let grid = Grid::exactly(&reorder(&body.domain)[..rank], &reorder(&len));
        let lens: Vec<_> = grid.extents().iter().map(|len| in_order(&axes, len, 1)).collect();
        let compiled = [moving, fixed].map(|side| LaneOperand::compile(side, &form.terms, &lens, acc, slots, isa));
        let (body, finish) = finish::take(body, acc, slots);
        let epilogue = tile::compile(&body, 0, &slots.types, isa);
        let [moving, fixed] = compiled;
        let (moving, fixed, mut epilogue) = (moving?, fixed?, epilogue?);
        epilogue.allocate(&lens);
        let count: usize = form.terms.iter().product();
        let align = |bytes: usize| bytes.next_multiple_of(ALIGN);
        let most = lens.iter().map(|len| len.iter().product::<usize>()).max().unwrap_or(0);
        let at_fixed = align(moving.scratch().max(epilogue.scratch));
        let at_sums = at_fixed + align(fixed.scratch());
        let tables = at_sums + align(most * acc.size());
        let layout =
            Layout { fixed: at_fixed, sums: at_sums, tables, end: tables + align(2 * count * size_of::<isize>()) };
        let target = target(&body, acc, slots);
        // Points and rows are the longest of the axes on which the fixed operand does not depend, so that many sums
        // share its elements.
        let free = || (0..rank - 1).filter(|&d| !fixed.depends_on(d) && len[d] > 1);
        let points = free().max_by_key(|&d| len[d]);
        let rows = free().filter(|&d| Some(d) != points).max_by_key(|&d| len[d]);
        let work = form.domain.iter().fold(count, |all, &n| all.saturating_mul(n));
        let tiles = grid.count().div_ceil(machine.threads * SHARE).max(1);
        let sums = LaneKernels::new(isa);
        let (terms, serial) = (form.terms.clone(), work < SERIAL);
        Ok(Box::new(Lanes {
            sums,
            rank,
            terms,
            count,
            moving,
            fixed,
            grid,
            axes,
            tiles,
            points,
            rows,
            epilogue,
            added: finish.added,
            bounds: [finish.least, finish.most].map(|bound| bound.map(T::nearest)),
            target,
            layout,
            serial,
        }))
    }

    /// Computes the tiles of task number `n`.
    ///
    /// # Safety
    /// The requirements of [`Thunk::run`] apply; scratch memory must have the bytes that the thunk states.
    unsafe fn task(&self, launch: &ThunkContext<'_>, n: usize, scratch: *mut u8) {
        let frame = |at: usize| Frame {
            slots: launch.slots,
            scratch: scratch.wrapping_add(at),
            anchor: std::ptr::null(),
            direct: false,
            fault: launch.fault,
        };
        let tables = scratch.wrapping_add(self.layout.tables).cast::<isize>();
        // SAFETY: there is room for two tables; each worker has scratch memory of its own.
        let (of_moving, of_fixed) =
            unsafe { std::slice::from_raw_parts_mut(tables, 2 * self.count).split_at_mut(self.count) };
        let mut had: Option<(Tile, LaneTile)> = None;
        let mut steps = None;
        for n in n * self.tiles..((n + 1) * self.tiles).min(self.grid.count()) {
            let cut = self.grid.tile(n);
            let tile = Tile { start: in_order(&self.axes, &cut.start, 0), len: in_order(&self.axes, &cut.len, 1) };
            let part = self.fixed.part(&tile, &self.terms);
            // SAFETY: the operands were compiled for these tiles, and have scratch memory of their own.
            let (moving, fixed) = unsafe {
                let fixed = match had {
                    Some((of, fixed)) if of == part => fixed,
                    _ => {
                        let fixed = self.fixed.have(&frame(self.layout.fixed), &part);
                        self.fixed.find(&fixed, &self.terms, of_fixed);
                        fixed
                    }
                };
                (self.moving.have(&frame(0), &self.moving.part(&tile, &self.terms)), fixed)
            };
            had = Some((part, fixed));
            if steps.replace((moving.strides, moving.plane)) != Some((moving.strides, moving.plane)) {
                self.moving.find(&moving, &self.terms, of_moving);
            }
            let terms = [self.moving.terms(of_moving), self.fixed.terms(of_fixed)];
            // SAFETY: the operands are those of this tile, and tiles are disjoint.
            unsafe { self.tile(launch, &tile, (&moving, &fixed), terms, scratch) };
        }
    }

    /// Computes the sums of a tile, and its epilogue unless the sums are stored directly.
    ///
    /// # Safety
    /// The requirements of [`Lanes::task`] apply; the operands must be those of the tile.
    unsafe fn tile(
        &self,
        launch: &ThunkContext<'_>,
        tile: &Tile,
        (moving, fixed): (&LaneTile, &LaneTile),
        [of_moving, of_fixed]: [&[isize]; 2],
        scratch: *mut u8,
    ) {
        let lane = self.rank - 1;
        let every = (0..self.rank).fold(0, |mask, d| mask | 1 << d);
        let target = self.target.as_ref().filter(|_| !launch.in_place);
        let (sums, strides) = match target {
            Some(target) => {
                let mut strides = [0; MAX_RANK];
                strides.iter_mut().zip(&target.strides).for_each(|(to, &s)| *to = s as isize);
                (target.at::<T>(launch.slots, tile), strides)
            }
            None => (scratch.wrapping_add(self.layout.sums).cast::<T>(), tile.strides(every)),
        };
        let (added, along) = match &self.added {
            Some(added) => (added.at::<T>(launch.slots, tile).cast_const(), &added.strides[..]),
            None => (std::ptr::null(), [0; MAX_RANK].as_slice()),
        };
        let step = |d: Option<usize>, of: &dyn Fn(usize) -> isize| d.map_or(0, of);
        let steps: [[isize; 4]; MAX_RANK] = std::array::from_fn(|d| match d < lane {
            true => [self.moving.step(moving, d), self.fixed.step(fixed, d), strides[d], along[d] as isize],
            false => [0; 4],
        });
        let mut call = LaneSums {
            lanes: tile.len[lane],
            points: self.points.map_or(1, |d| tile.len[d]),
            rows: self.rows.map_or(1, |d| tile.len[d]),
            terms: self.count,
            moving: moving.at.cast::<T>(),
            moving_terms: of_moving.as_ptr(),
            moving_points: step(self.points, &|d| steps[d][0]),
            moving_rows: step(self.rows, &|d| steps[d][0]),
            fixed: fixed.at.cast::<T>(),
            fixed_terms: of_fixed.as_ptr(),
            fixed_lanes: self.fixed.depends_on(lane),
            added,
            added_points: step(self.points, &|d| steps[d][3]),
            added_rows: step(self.rows, &|d| steps[d][3]),
            added_lanes: along[lane] == 1,
            bounds: self.bounds,
            sums,
            sums_points: step(self.points, &|d| strides[d]),
            sums_rows: step(self.rows, &|d| strides[d]),
        };
        let (moving, fixed) = (call.moving, call.fixed);
        let outer = || (0..lane).filter(|&d| Some(d) != self.points && Some(d) != self.rows);
        let mut at = [0; MAX_RANK];
        loop {
            let offset = |n: usize| outer().map(|d| steps[d][n] * at[d] as isize).sum::<isize>();
            call.moving = moving.wrapping_offset(offset(0));
            call.fixed = fixed.wrapping_offset(offset(1));
            call.sums = sums.wrapping_offset(offset(2));
            // A null pointer, which stands for no addition, has strides of 0 and stays null.
            call.added = added.wrapping_offset(offset(3));
            // SAFETY: all of the tile is within the operands and the destination of the sums.
            unsafe { self.sums.run(&call) };
            let Some(d) = outer().rev().find(|&d| at[d] + 1 < tile.len[d]) else { break };
            at[d] += 1;
            at[d + 1..].fill(0);
        }
        if target.is_none() {
            let frame = Frame {
                slots: launch.slots,
                scratch,
                anchor: sums.cast::<u8>().cast_const(),
                direct: !launch.in_place,
                fault: launch.fault,
            };
            // SAFETY: the memory of the moving operand is free now, and the sums are dense over the tile.
            unsafe { self.epilogue.run(&frame, tile, RowPart::WHOLE) };
        }
    }
}

/// Reorders numbers of axes, which are in the order `axes`, by the numbers of the axes in the result. Axes that are not
/// listed get `beyond`.
fn in_order(axes: &[usize], of: &[usize; MAX_RANK], beyond: usize) -> [usize; MAX_RANK] {
    let mut to = [beyond; MAX_RANK];
    axes.iter().zip(of).for_each(|(&d, &n)| to[d] = n);
    to
}

/// Returns the destination of a body's store of the sums, if the body does nothing else and lanes are contiguous there.
fn target(body: &Nest, acc: DType, slots: &Slots) -> Option<StridedSlot> {
    let [store] = body.stores.as_slice() else { return None };
    let is_sum = store.guards.is_empty() && matches!(body.instrs[store.value], Instr::Anchor { .. });
    let strides = store.at.affine(body.domain.len()).filter(|_| is_sum && slots.types[store.slot].0 == acc)?;
    (strides.last() == Some(&1)).then_some(StridedSlot { slot: store.slot, base: store.at.constant, strides })
}

impl<T: LaneElement> Thunk for Lanes<T> {
    fn name(&self) -> &'static str {
        "lanes"
    }

    unsafe fn run(&self, launch: &ThunkContext<'_>) {
        let tasks = self.grid.count().div_ceil(self.tiles);
        // SAFETY: passed on from the caller.
        launch.workers.for_each(tasks, self.serial, &|n, scratch| unsafe { self.task(launch, n, scratch) });
    }

    fn scratch(&self) -> usize {
        self.layout.end
    }

    fn buffers(&self) -> Vec<usize> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{AnchorKernel, Body, ContractionAxes, Kernel, Load, Store};
    use eutectic_ir::index::Index;

    use super::*;
    use crate::simd::Isa;

    /// Returns a depthwise convolution: three by three windows of padded images with channels first.
    fn depthwise(channels: usize, size: usize, stride: usize) -> Kernel {
        let at = |axes: &[(usize, usize)], constant: i64| {
            let along = |sum: Index, &(axis, c): &(usize, usize)| sum.plus(&Index::coord(axis).times(c as i64));
            axes.iter().fold(Index::constant(constant), along)
        };
        let dtype = DType::F32;
        let body = |domain: &[usize], instrs: Vec<Instr>, results: Vec<usize>| Body {
            domain: domain.to_vec(),
            instrs,
            results,
            ..Body::default()
        };
        let count = (size - 1) / stride + 1;
        let guards: Vec<_> =
            [(1, 3), (2, 4)].map(|(d, k)| (at(&[(d, stride), (k, 1)], 0), 1..size as i64 + 1)).to_vec();
        let image = at(&[(0, size * size), (1, stride * size), (2, stride), (3, size), (4, 1)], -(size as i64) - 1);
        let load = Instr::Load(Load { slot: 0, at: image, guards: guards.clone(), dtype });
        let padded = Instr::Select { pieces: vec![(guards, 0)], fill: 0.0.into(), dtype };
        let lhs = body(&[channels, count, count, 3, 3], vec![load, padded], vec![1]);
        let weights = Instr::Load(Load { slot: 1, at: at(&[(0, 9), (1, 3), (2, 1)], 0), guards: Vec::new(), dtype });
        let rhs = body(&[channels, 3, 3], vec![weights], vec![0]);
        let axes = ContractionAxes { batch: 1, rows: 2, columns: 0, depth: 2 };
        let domain = [channels, count, count];
        let stores = at(&[(0, count * count), (1, count), (2, 1)], 0);
        Kernel {
            anchor: AnchorKernel::contraction(lhs, rhs, axes),
            body: body(&domain, vec![Instr::Anchor { dtype }], Vec::new()),
            stores: vec![Store::new(2, stores, 0)],
            slots: vec![(dtype, channels * size * size), (dtype, channels * 9), (dtype, domain.iter().product())],
        }
    }

    #[test]
    fn depthwise_convolutions_have_lanes_and_compile() {
        for (channels, size, stride) in [(96, 112, 2), (384, 14, 1), (32, 112, 1), (5, 9, 2)] {
            let kernel = depthwise(channels, size, stride);
            let form = LaneForm::along(&kernel, 2).unwrap_or_else(|| panic!("{channels} {size} {stride}: no lanes"));
            assert_eq!(form.sides[0].axes.len(), 3, "an axis for channels, rows and columns: {form:?}");
            let body = Nest::new(&kernel.body, &kernel.stores);
            let slots = Slots { types: kernel.slots.clone(), given: kernel.slots.len() };
            let machine = Machine { isa: Isa::detect(), ..Machine::default() };
            compile(&form, &body, DType::F32, &slots, machine).map(|_| ()).unwrap();
        }
    }
}
