//! Contractions: a product per tile of the result, and the epilogue on each tile while it is hot.

pub mod epilogue;
mod sides;
pub mod tasks;

use eutectic_backend::{
    Contraction, Kernel,
    axes::Nest,
    grouped::{COLUMNS, Grouped, ROWS},
};
use eutectic_ir::{DType, index::Index};

use self::{
    epilogue::{Added, InRegisters},
    sides::{Lhs, LhsParts, Rhs},
    tasks::{batch_into_rows, block, rows_into_batch},
};
use super::{
    coded::CodedOperand,
    operand::{Operand, kept},
    slots::Slots,
};
use crate::{
    gemm::{
        blocking::Blocking,
        matrix::{Matrix, PartSize, Stretch},
        micro::call::SumFinish,
        product::{Extents, ProductElement},
        right::Right,
    },
    machine::Machine,
    runtime::{
        memory::ALIGN,
        thunk::{Constant, Thunk, ThunkContext},
    },
    simd::register::with_register,
    tile::{self, Frame, Grid, MAX_RANK, RowPart, Tile, TileProgram, span},
};

/// Elements of a register of the epilogue.
const REGISTER: usize = 4096;
/// The fewest rows of a left operand that are evaluated with all terms, where there are more.
const FEWEST: usize = 64;
/// Below so many multiplications, getting another thread to work takes longer than the work.
const SERIAL: usize = 1 << 15;

/// The form in which a right operand is packed before runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Packing {
    /// The one that suits the product best.
    Best,
    /// The one that suits products of so many rows.
    OfRows(usize),
    /// None.
    Never,
}

impl Packing {
    /// That of a kernel whose runs have different lengths: each finds the operand as it was packed for all of them, unless it is another
    /// one in each run.
    pub fn of(kernel: &Kernel) -> Packing {
        let Some(Contraction { rhs, axes, .. }) = kernel.contraction() else { return Packing::Best };
        let nest = Nest::of(rhs.clone());
        if nest.lengths.iter().any(|(axis, _)| nest.depends_on(*axis)) || nest.indices().any(Index::varies) {
            return Packing::Never;
        }
        Packing::OfRows(kernel.body.domain[..axes.batch + axes.rows].iter().product())
    }
}

/// Compiles a contraction that accumulates in `acc`.
///
/// # Errors
/// Everything that stands in the way.
pub fn compile(
    lhs: Grouped,
    rhs: Grouped,
    body: Grouped,
    acc: DType,
    slots: &mut Slots,
    (packing, machine): (Packing, Machine),
) -> Result<Box<dyn Thunk>, Vec<String>> {
    let other = rhs.nest.results.first().map(|&r| rhs.nest.instrs[r].dtype().register());
    if other != Some(acc) {
        let other = other.map_or("nothing".to_string(), |other| other.to_string());
        return Err(vec![format!("`matmul` of {acc} and {other}")]);
    }
    if acc == DType::Bool || acc.register() != acc {
        return Err(vec![format!("`matmul` on {acc}")]);
    }
    with_register!(acc, Element => Matmul::<Element>::compile(lhs, rhs, body, acc, slots, (packing, machine)))
}

struct Matmul<T: 'static> {
    blocking: Blocking<T>,
    extents: Extents,
    batch: usize,
    /// Over `[b.. m n]`: where the right operand is packed, and where it is not.
    grids: [Grid; 2],
    lhs: Lhs,
    rhs: Rhs,
    epilogue: TileProgram,
    /// Rows of a tile that the epilogue takes at once.
    strips: [usize; 2],
    /// Rows of a tile that a left operand takes at once that is evaluated with all terms.
    block: [usize; 2],
    /// Where the product may be written at once.
    target: Option<Operand>,
    /// What micro-kernels do to it.
    taken: InRegisters,
    size: usize,
    /// Bytes of scratch memory of tile programs, of which one is at work at a time; where the tile of the product that lies behind them
    /// ends, and rows of the left operand begin that are evaluated with all terms; and where these end.
    registers: usize,
    lhs_room: usize,
    tile_end: usize,
    /// There is nothing to do, or too little for several threads.
    empty: bool,
    serial: bool,
    added: Vec<usize>,
    /// The right operand's packed form: its slot, the strides of its batch axes in bytes, and what it is made from.
    packed: Option<(usize, Vec<usize>, Constant)>,
}

/// What operands are evaluated on.
fn frame<'a>(launch: &'a ThunkContext<'_>, scratch: *mut u8) -> Frame<'a> {
    Frame { slots: launch.slots, scratch, anchor: std::ptr::null(), direct: false, fault: launch.fault }
}

impl<T: ProductElement> Matmul<T> {
    fn compile(
        mut lhs: Grouped,
        mut rhs: Grouped,
        body: Grouped,
        acc: DType,
        slots: &mut Slots,
        (packing, machine): (Packing, Machine),
    ) -> Result<Box<dyn Thunk>, Vec<String>> {
        let isa = machine.isa;
        let mut body = body.flat(COLUMNS);
        rows_into_batch([&mut lhs, &mut rhs, &mut body]);
        batch_into_rows([&mut lhs, &mut rhs, &mut body]);
        let (lhs_form, rhs_form, batch, body) = (lhs, rhs, body.groups[0], body.nest);
        let extents = Extents { m: body.domain[batch], n: body.domain[batch + 1], k: lhs_form.points(COLUMNS) };
        let mut problems = Vec::new();
        let mut note = |p| problems.extend::<Vec<String>>(p);
        let vector = extents.m == 1 || extents.n == 1 || T::lanes(isa).is_none();
        let (body, taken) = epilogue::take(body, acc, slots, batch, vector);
        let epilogue = tile::compile(&body, 0, &slots.types, isa).map_err(&mut note).ok();
        let blocking = Blocking::<T>::new(isa, [extents.m, extents.n]);
        let blocking = match packing {
            Packing::OfRows(m) => blocking.formed_for(isa, [m, extents.n]),
            Packing::Best | Packing::Never => blocking,
        };
        let kept = rhs_form.nest.results.first().and_then(|&result| kept(&rhs_form.nest.instrs, result));
        let blocking = blocking.storing(kept.map(|load| load.dtype), isa);
        let coded = (packing != Packing::Never && extents.n > 1 && blocking.packed(extents.n, extents.k).is_some())
            .then(|| CodedOperand::compile::<T>(&rhs_form, &slots.types, isa));
        let (coded, panels) = coded.flatten().unzip();
        let blocking = blocking.coding(panels);
        let target = Operand::target(&body, acc, slots);
        let points = body.domain[..batch].iter().product();
        let grids = [true, false].map(|packed| {
            let mut len = [1; MAX_RANK];
            let size = block(extents, points, &blocking, machine.threads, packed, target.is_some());
            (len[batch], len[batch + 1]) = (size.rows, size.columns);
            Grid::exactly(&body.domain, &len)
        });
        // What several tasks read is evaluated once before.
        let whole = |grid: &Grid, axis: usize| grid.len()[axis] == body.domain[axis];
        let rows = grids.iter().all(|grid| whole(grid, batch + 1)) && extents.n > 1;
        let strips = [0, 1].map(|g| (REGISTER / grids[g].len()[batch + 1].max(1)).max(1));
        // As many rows as take a quarter of the second-level cache: whole strips of the epilogue, or whole lines of the rows' axes.
        let fits = blocking.tile() / 2 / extents.k.max(1);
        let block = grids.each_ref().map(|grid| grid.len()[batch]);
        let block = [0, 1].map(|g| match block[g] > fits {
            true if fits < FEWEST => 0,
            true if target.is_none() => fits / strips[g] * strips[g],
            true => lhs_form.extents(ROWS).iter().rev().fold(1, |n, axis| n * (fits / n).clamp(1, *axis)),
            false => block[g],
        });
        let parts = rows.then(|| {
            let parts = blocking.takes_parts(extents.m).then(|| blocking.left_parts(extents.k));
            let of_grid = |g: usize| {
                let tasks = span::parts(0..extents.m, grids[g].len()[batch]);
                tasks.flat_map(move |task| span::parts(task, block[g]))
            };
            let blocks = if block.contains(&0) { Vec::new() } else { (0..2).flat_map(of_grid).collect() };
            LhsParts { parts, blocks }
        });
        let lhs = Lhs::compile::<T>(&lhs_form, acc, slots, isa, blocking.most_rows(), parts);
        let blocking = match &lhs {
            Ok(Lhs::Gathered(lhs)) => blocking.in_units(|most| lhs.unit(most)),
            _ => blocking,
        };
        let columns = whole(&grids[1], batch) && extents.n > 1 && T::lanes(isa).is_some();
        let products = grids[1].extents().into_iter().map(|len| Extents { n: len[batch + 1], ..extents });
        let rhs = match coded {
            Some(coded) => Ok(Rhs::Coded(Box::new(coded))),
            None => Rhs::compile(&rhs_form, acc, slots, isa, columns.then(|| blocking.right_parts(products))),
        };
        let operands = (lhs.map_err(&mut note).ok(), rhs.map_err(&mut note).ok(), epilogue);
        let (Some(lhs), Some(rhs), Some(mut epilogue)) = operands else { return Err(problems) };
        epilogue.allocate(&[0, 1].map(|g| grids[g].strips(batch, strips[g])).concat());
        let each_run = blocking.packs_before(extents) || blocking.coded.is_some();
        // A matrix times a vector reads rows of the matrix at their strides.
        let packed =
            blocking.packed(extents.n, extents.k).filter(|_| extents.n > 1 && packing != Packing::Never).map(|bytes| {
                let reads = rhs_form.nest.slots();
                let others = [lhs_form.nest.slots(), body.slots()].concat();
                let only = reads.iter().copied().filter(|s| !others.contains(s)).collect();
                let mut strides = vec![0; batch];
                let mut all = bytes;
                for d in (0..batch).rev().filter(|&d| rhs_form.nest.depends_on(d)) {
                    strides[d] = all;
                    all = all.saturating_mul(body.domain[d]);
                }
                (slots.types.len(), strides, Constant { reads, only, bytes: all, each_run })
            });
        let added = slots.added();
        let size = acc.size();
        let registers = epilogue.scratch.max(lhs.registers()).max(rhs.registers()).next_multiple_of(ALIGN);
        let tiles = grids.iter().map(|grid| grid.len()[batch] * grid.len()[batch + 1] * size);
        let held = if target.is_some() && extents.m > 1 && extents.n > 1 { 0 } else { tiles.max().unwrap_or(0) };
        let lhs_room = (registers + held).next_multiple_of(ALIGN);
        let tile_end = (lhs_room + lhs.room(block[0].max(block[1])) * size).next_multiple_of(ALIGN);
        let all = body.domain.iter().fold(extents.k, |all, &n| all.saturating_mul(n));
        Ok(Box::new(Matmul {
            blocking,
            extents,
            batch,
            grids,
            lhs,
            rhs,
            epilogue,
            strips,
            block,
            target,
            taken,
            size,
            registers,
            lhs_room,
            tile_end,
            empty: body.domain.contains(&0),
            serial: all < SERIAL,
            added,
            packed,
        }))
    }

    /// Packs a panel of one of the right operand's matrices, of which there are `counts` along each batch axis.
    ///
    /// # Safety
    /// As [`Thunk::pack`].
    unsafe fn pack_panel(
        &self,
        launch: &ThunkContext<'_>,
        matrix: usize,
        panel: usize,
        counts: &[usize; MAX_RANK],
        scratch: *mut u8,
    ) {
        let Some((slot, strides, _)) = &self.packed else { return };
        let (mut left, mut point, mut offset) = (matrix, [0; MAX_RANK], 0);
        for d in (0..self.batch).rev() {
            point[d] = left % counts[d];
            left /= counts[d];
            offset += strides[d] * point[d];
        }
        let frame = frame(launch, scratch);
        let to = launch.slots[*slot].wrapping_add(offset);
        // SAFETY: the operand was checked when the kernel was compiled; panels have places of their own.
        unsafe {
            if let Rhs::Coded(coded) = &self.rhs {
                coded.pack(&frame, &point[..self.batch], panel, to);
                return;
            }
            let from = self.rhs.at(&frame, &point[..self.batch], 0);
            let whole = PartSize { rows: self.extents.k, columns: self.extents.n };
            self.blocking.pack(from, whole, panel, to, scratch.add(self.tile_end));
        }
    }

    /// Where the packed constant is, if it is, and the strides of its batch axes in bytes.
    fn constant(&self, launch: &ThunkContext<'_>) -> Option<(*const u8, &[usize])> {
        let (slot, strides, _) = self.packed.as_ref()?;
        let at = launch.slots[*slot];
        (!at.is_null()).then_some((at.cast_const(), strides))
    }

    /// Whether neither side is a vector.
    fn several(&self) -> bool {
        self.extents.m > 1 && self.extents.n > 1
    }

    /// How the product is cut into tiles: the number of the grid.
    fn cut(&self, launch: &ThunkContext<'_>) -> usize {
        usize::from(self.constant(launch).is_none())
    }

    /// # Safety
    /// As [`Thunk::run`]; scratch memory must have the bytes that the thunk states.
    unsafe fn task(&self, launch: &ThunkContext<'_>, n: usize, scratch: *mut u8) {
        let cut = self.cut(launch);
        let whole = self.grids[cut].tile(n);
        let rows = whole.len[self.batch];
        let block = if self.lhs.room(1) > 0 { self.block[cut] } else { rows };
        for rows in span::parts(0..rows, block) {
            let mut tile = whole;
            tile.start[self.batch] += rows.start;
            tile.len[self.batch] = rows.len();
            // SAFETY: passed on from the caller.
            unsafe { self.rows(launch, &tile, scratch) };
        }
    }

    /// Some rows of a tile, or all.
    ///
    /// # Safety
    /// As [`Matmul::task`].
    unsafe fn rows(&self, launch: &ThunkContext<'_>, tile: &Tile, scratch: *mut u8) {
        let (row, column) = (tile.start[self.batch], tile.start[self.batch + 1]);
        let (m, n) = (tile.len[self.batch], tile.len[self.batch + 1]);
        let point = &tile.start[..self.batch];
        let frame = frame(launch, scratch);
        let number = point.iter().zip(&self.epilogue.domain).fold(0, |flat, (i, extent)| flat * extent + i);
        // SAFETY: behind the tile there is room for the rows of one.
        let lhs = unsafe {
            let room = scratch.add(self.lhs_room);
            self.lhs.at::<T>(&frame, point, number * self.extents.m, Stretch::new(row, m), room)
        };
        let rhs = match self.constant(launch) {
            Some((at, strides)) => {
                let matrix = strides.iter().zip(point).map(|(s, i)| s * i).sum::<usize>();
                Right::Packed(at.wrapping_add(matrix + self.blocking.packed_at(column, self.extents.k)))
            }
            None => self.rhs.at(&frame, point, column),
        };
        // A product may be written over what is added to it, but not over its operands; where there are several rows and
        // columns, no operand is read by one point alone, so that it can be none of these that is in place.
        let direct = self.target.as_ref().filter(|_| self.several() || !launch.in_place);
        let target = match direct {
            Some(target) => target.matrix(launch.slots, point, row, column),
            // SAFETY: behind the registers there is room for a tile.
            None => Matrix { at: unsafe { scratch.add(self.registers) }, rows: n as isize, columns: 1 },
        };
        let extents = Extents { m, n, k: self.extents.k };
        let mut finish = SumFinish::scaled(T::from(true));
        if let Some((slot, base)) = self.taken.row {
            finish.bias = launch.slots[slot].cast::<T>().wrapping_offset(base as isize + column as isize);
        }
        if let Some(Added { slot, base, strides }) = &self.taken.matrix {
            let offset = strides.iter().zip(&tile.start).fold(*base, |sum, (s, &i)| sum + s * i as i64);
            finish.other = launch.slots[*slot].cast::<T>().wrapping_offset(offset as isize);
            finish.other_rows = strides[self.batch] as isize;
        }
        finish.least = self.taken.relu.then(T::default);
        // SAFETY: the operands were checked when the kernel was compiled; tiles are disjoint; see `scratch` for the room.
        unsafe {
            self.blocking.run(extents, target, (lhs, rhs), finish, scratch.add(self.tile_end));
            if direct.is_none() {
                self.finish(launch, tile, target.at, scratch);
            }
        }
    }

    /// # Safety
    /// As [`Matmul::task`]; the product must be dense over the tile.
    unsafe fn finish(&self, launch: &ThunkContext<'_>, tile: &Tile, product: *mut u8, scratch: *mut u8) {
        let (m, n) = (tile.len[self.batch], tile.len[self.batch + 1]);
        let strip = self.strips[self.cut(launch)];
        for row in (0..m).step_by(strip) {
            let mut part = *tile;
            part.start[self.batch] += row;
            part.len[self.batch] = strip.min(m - row);
            let frame = Frame {
                slots: launch.slots,
                scratch,
                // SAFETY: within the product.
                anchor: unsafe { product.add(row * n * self.size) },
                direct: !launch.in_place,
                fault: launch.fault,
            };
            // SAFETY: registers were placed for strips of this size.
            unsafe { self.epilogue.run(&frame, &part, RowPart::WHOLE) };
        }
    }
}

impl<T: ProductElement> Thunk for Matmul<T> {
    fn name(&self) -> &'static str {
        "packed panels"
    }

    unsafe fn run(&self, launch: &ThunkContext<'_>) {
        if self.empty {
            return;
        }
        // SAFETY: passed on from the caller.
        unsafe {
            self.lhs.prepare(launch);
            if self.constant(launch).is_none() {
                self.rhs.prepare(launch);
            }
        }
        let tasks = self.grids[self.cut(launch)].count();
        // SAFETY: passed on from the caller.
        launch.workers.for_each(tasks, self.serial, &|n, scratch| unsafe { self.task(launch, n, scratch) });
    }

    fn scratch(&self) -> usize {
        let products = self.grids.iter().map(|grid| {
            let (m, n) = (grid.len()[self.batch], grid.len()[self.batch + 1]);
            self.blocking.scratch(Extents { m, n, k: self.extents.k })
        });
        let own = self.tile_end + products.max().unwrap_or(0);
        own.max(self.lhs.scratch()).max(self.rhs.scratch())
    }

    fn buffers(&self) -> Vec<usize> {
        self.added.clone()
    }

    fn constant(&self) -> Option<Constant> {
        self.packed.as_ref().map(|p| p.2.clone())
    }

    unsafe fn pack(&self, launch: &ThunkContext<'_>) {
        let Some((_, strides, _)) = &self.packed else { return };
        // SAFETY: passed on from the caller.
        unsafe { self.rhs.prepare(launch) };
        let mut counts = [1; MAX_RANK];
        for (d, _) in strides.iter().enumerate().filter(|(_, stride)| **stride > 0) {
            counts[d] = self.epilogue.domain[d];
        }
        let width = self.blocking.coded.as_ref().map_or(self.blocking.panel(), |coded| coded.form.width);
        let panels = self.extents.n.div_ceil(width);
        let tasks = counts.iter().product::<usize>() * panels;
        // SAFETY: passed on from the caller.
        launch.workers.for_each(tasks, false, &|n, scratch| unsafe {
            self.pack_panel(launch, n / panels, n % panels, &counts, scratch);
        });
    }
}
