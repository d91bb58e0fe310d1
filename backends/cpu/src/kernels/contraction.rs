//! Computes contractions: a matrix product for each tile of the result, and the epilogue on the tile while it is in the
//! cache.

pub mod epilogue;
mod form;
mod groups;
mod rows_of_group;
mod sides;
pub mod tasks;
mod tiling;

use eutectic_backend::grouped::Grouped;
use eutectic_ir::DType;

pub use self::form::Packing;
use self::{
    epilogue::InRegisters,
    form::{ChosenForm, PackedRight, ProductForm},
    groups::RowGroups,
    sides::{Lhs, Rhs},
    tiling::Tiling,
};
use super::{chosen::MatrixNumbers, coded::CodedOperand, integers::IntegerOperand, operand::Operand, slots::Slots};
use crate::{
    gemm::{
        blocking::{Blocking, FEW_ROWS},
        integers::IntegerProduct,
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
    tile::{self, Frame, MAX_RANK, RowPart, Tile, TileProgram, span},
};

/// The number of multiplications below which waking another thread takes longer than the work.
const SERIAL: usize = 1 << 15;

/// Compiles a contraction that accumulates in `acc`. `chosen` says that integers choose the matrices of the right operand
/// among constant ones, all of which are packed.
///
/// # Errors
/// Returns every reason why the contraction cannot be compiled.
pub fn compile(
    lhs: Grouped,
    rhs: Grouped,
    body: Grouped,
    acc: DType,
    slots: &mut Slots,
    (packing, chosen, machine): (Packing, bool, Machine),
) -> Result<Box<dyn Thunk>, Vec<String>> {
    let other = rhs.nest.results.first().map(|&r| rhs.nest.instrs[r].dtype().register());
    if other != Some(acc) {
        let other = other.map_or("nothing".to_string(), |other| other.to_string());
        return Err(vec![format!(
            "cannot compute `matmul` in {acc} because its right operand is {other}; cast it to {acc}"
        )]);
    }
    if acc == DType::Bool || acc.register() != acc {
        return Err(vec![format!(
            "cannot compute `matmul` in {acc} because the CPU does not multiply this type; cast its operands to f32"
        )]);
    }
    let form = ProductForm::new(lhs, rhs, body, chosen);
    with_register!(acc, Element => Matmul::<Element>::compile(form, acc, slots, (packing, machine)))
}

struct Matmul<T: 'static> {
    blocking: Blocking<T>,
    extents: Extents,
    batch: usize,
    tiling: Tiling,
    lhs: Lhs,
    rhs: Rhs,
    /// The numbers of the right operand's matrices, if these are chosen.
    numbers: Option<MatrixNumbers>,
    /// The most rows that are multiplied together with a chosen matrix; 0 if each point of the batch is a product of
    /// its own.
    together: usize,
    /// The number of matrices that are packed, along each of their axes.
    matrices: Vec<usize>,
    epilogue: TileProgram,
    /// The destination, if the product may be written directly; otherwise the epilogue stores the result.
    target: Option<Operand>,
    /// The ops of the epilogue that micro-kernels apply.
    taken: InRegisters,
    size: usize,
    /// The layout of scratch memory, as byte offsets. The registers of the tile programs, which run one at a time, end
    /// at `registers`. The product's tile ends at `lhs_room`, and the evaluated rows of the left operand end at
    /// `tile_end`.
    registers: usize,
    lhs_room: usize,
    tile_end: usize,
    /// Whether the result has no elements, and whether the work is too little for several threads.
    empty: bool,
    serial: bool,
    added: Vec<usize>,
    packed: Option<PackedRight>,
}

/// Returns the frame with which operands are evaluated.
fn frame<'a>(launch: &'a ThunkContext<'_>, scratch: *mut u8) -> Frame<'a> {
    Frame { slots: launch.slots, scratch, anchor: std::ptr::null(), direct: false, fault: launch.fault }
}

impl<T: ProductElement> Matmul<T> {
    fn compile(
        mut form: ProductForm,
        acc: DType,
        slots: &mut Slots,
        (packing, machine): (Packing, Machine),
    ) -> Result<Box<dyn Thunk>, Vec<String>> {
        let (isa, batch, extents) = (machine.isa, form.batch, form.extents);
        let mut problems = Vec::new();
        let mut note = |p| problems.extend::<Vec<String>>(p);
        let vector = extents.m == 1 || extents.n == 1 || T::lanes(isa).is_none();
        let taken;
        (form.body, taken) = epilogue::take(form.body, acc, slots, batch, vector);
        let epilogue = tile::compile(&form.body, 0, &slots.types, isa).map_err(&mut note).ok();
        let blocking = form.blocking::<T>(packing, isa);
        let packs = form.packed_bytes(&blocking, packing).is_some();
        // Thunks for several lengths share one packed form, but at some lengths the left operand may not be recognized
        // as integers.
        let integers = (machine.integers && packs && packing == Packing::Best && form.chosen.is_none())
            .then(|| IntegerOperand::compile::<T>(&form.lhs, &form.rhs, slots, isa))
            .flatten();
        let (integers, coded) = match integers {
            Some((integers, coded)) => (Some(integers), Some(coded)),
            None => (None, packs.then(|| CodedOperand::compile::<T>(&form.rhs, false, &slots.types, isa)).flatten()),
        };
        let (coded, panels) = coded.unzip();
        let blocking = blocking.coding(panels);
        let target = Operand::target(&form.body, acc, slots);
        let tiling = Tiling::new(&form, &blocking, machine.threads, target.is_some());
        let lhs = match integers {
            Some(integers) => Ok(Lhs::Integers(Box::new(integers))),
            None => {
                let parts = tiling.left_parts(&form, &blocking);
                Lhs::compile::<T>(&form.lhs, acc, slots, isa, blocking.most_rows(), parts)
            }
        };
        let blocking = match &lhs {
            Ok(Lhs::Gathered(lhs)) => blocking.in_units(|most| lhs.unit(most)),
            _ => blocking,
        };
        let rhs = match coded {
            Some(coded) => Ok(Rhs::Coded(Box::new(coded))),
            None => {
                let parts = tiling.right_parts(&form, &blocking, T::lanes(isa).is_some());
                Rhs::compile(&form.rhs, acc, slots, isa, parts)
            }
        };
        let numbers = form.chosen.as_ref().map(|ChosenForm { nest, number, count }| {
            MatrixNumbers::compile(nest, batch, (*number, *count as i64), slots, isa).ok_or_else(|| {
                let why = "cannot compute `matmul` because there is no kernel for the indices that select its matrices";
                vec![why.to_string()]
            })
        });
        let numbers = numbers.transpose().map_err(&mut note).ok();
        let operands = (lhs.map_err(&mut note).ok(), rhs.map_err(&mut note).ok(), epilogue, numbers);
        let (Some(lhs), Some(rhs), Some(mut epilogue), Some(numbers)) = operands else { return Err(problems) };
        epilogue.allocate(&tiling.epilogue_shapes(batch));
        let packed = form.packed(&blocking, packing, slots.types.len());
        let size = acc.size();
        let registers = epilogue.scratch.max(lhs.registers()).max(rhs.registers()).next_multiple_of(ALIGN);
        let tiles = tiling.grids.iter().map(|grid| grid.len()[batch] * grid.len()[batch + 1] * size);
        let tiles_most = tiles.max().unwrap_or(0);
        let held = if target.is_some() && extents.m > 1 && extents.n > 1 { 0 } else { tiles_most };
        let few = blocking.coded.as_ref().map_or(FEW_ROWS, |coded| coded.rows().len().clamp(1, FEW_ROWS));
        let is_grouped =
            numbers.is_some() && extents.m == 1 && taken.matrix.is_none() && matches!(lhs, Lhs::Operand(_));
        let together = if is_grouped { few } else { 0 };
        // Groups are finished by the epilogue.
        let held = if is_grouped { few * tiles_most } else { held };
        let lhs_room = (registers + held).next_multiple_of(ALIGN);
        let rows_at_once = tiling.block[0].max(tiling.block[1]);
        let domain = &form.body.domain;
        Ok(Box::new(Matmul {
            blocking,
            extents,
            batch,
            tile_end: (lhs_room + lhs.room(rows_at_once).max(together * extents.k) * size).next_multiple_of(ALIGN),
            tiling,
            lhs,
            rhs,
            numbers,
            together,
            matrices: form.rhs.nest.domain[..form.rhs.groups[0]].to_vec(),
            epilogue,
            target,
            taken,
            size,
            registers,
            lhs_room,
            empty: domain.contains(&0),
            serial: domain.iter().fold(extents.k, |all, &n| all.saturating_mul(n)) < SERIAL,
            added: slots.added(),
            packed,
        }))
    }

    /// Packs a panel of one of the right operand's matrices. There are `counts` matrices along each batch axis.
    ///
    /// # Safety
    /// The requirements of [`Thunk::pack`] apply.
    unsafe fn pack_panel(
        &self,
        launch: &ThunkContext<'_>,
        matrix: usize,
        panel: usize,
        counts: &[usize; MAX_RANK],
        scratch: *mut u8,
    ) {
        let Some(PackedRight { slot, strides, .. }) = &self.packed else { return };
        let (mut left, mut point, mut offset) = (matrix, [0; MAX_RANK], 0);
        let batch = strides.len();
        for d in (0..batch).rev() {
            point[d] = left % counts[d];
            left /= counts[d];
            offset += strides[d] * point[d];
        }
        let frame = frame(launch, scratch);
        let to = launch.slots[*slot].wrapping_add(offset);
        // SAFETY: the operand was checked when the kernel was compiled; panels do not overlap.
        unsafe {
            if let Rhs::Coded(coded) = &self.rhs {
                coded.pack(&frame, &point[..batch], panel, to);
                return;
            }
            let from = self.rhs.at(&frame, &point[..batch], 0);
            let whole = PartSize { rows: self.extents.k, columns: self.extents.n };
            self.blocking.pack(from, whole, panel, to, scratch.add(self.tile_end));
        }
    }

    /// Returns the address of the packed right operand, and the strides of its batch axes in bytes. Returns `None` if
    /// it is not packed.
    fn constant(&self, launch: &ThunkContext<'_>) -> Option<(*const u8, &[usize])> {
        let PackedRight { slot, strides, .. } = self.packed.as_ref()?;
        let at = launch.slots[*slot];
        (!at.is_null()).then_some((at.cast_const(), strides))
    }

    /// Returns whether the product has several rows and several columns.
    fn several(&self) -> bool {
        self.extents.m > 1 && self.extents.n > 1
    }

    /// Returns the number of the grid that divides the product into tiles: 0 for a packed right operand, otherwise 1.
    fn cut(&self, launch: &ThunkContext<'_>) -> usize {
        usize::from(self.constant(launch).is_none())
    }

    /// Computes the tile of task number `n`.
    ///
    /// # Safety
    /// The requirements of [`Thunk::run`] apply; scratch memory must have the bytes that the thunk states.
    unsafe fn task(&self, launch: &ThunkContext<'_>, n: usize, scratch: *mut u8) {
        let cut = self.cut(launch);
        let whole = self.tiling.grids[cut].tile(n);
        let rows = whole.len[self.batch];
        let block = if self.lhs.room(1) > 0 { self.tiling.block[cut] } else { rows };
        for rows in span::parts(0..rows, block) {
            let mut tile = whole;
            tile.start[self.batch] += rows.start;
            tile.len[self.batch] = rows.len();
            // SAFETY: passed on from the caller.
            unsafe { self.rows(launch, &tile, scratch) };
        }
    }

    /// Computes a tile, which may be a block of rows of a task's tile.
    ///
    /// # Safety
    /// The requirements of [`Matmul::task`] apply.
    unsafe fn rows(&self, launch: &ThunkContext<'_>, tile: &Tile, scratch: *mut u8) {
        let (row, column) = (tile.start[self.batch], tile.start[self.batch + 1]);
        let (m, n) = (tile.len[self.batch], tile.len[self.batch + 1]);
        let point = &tile.start[..self.batch];
        let frame = frame(launch, scratch);
        let number = point.iter().zip(&self.epilogue.domain).fold(0, |flat, (i, extent)| flat * extent + i);
        let packed = self.constant(launch).map(|(at, strides)| {
            let matrix = match &self.numbers {
                Some(numbers) => numbers.at(launch.slots, point) as usize * strides[0],
                None => strides.iter().zip(point).map(|(s, i)| s * i).sum::<usize>(),
            };
            at.wrapping_add(matrix + self.blocking.packed_at(column, self.extents.k))
        });
        // A product may overwrite the matrix that is added to it, but not its operands. If `in_place`, the kernel
        // overwrites a slot that it reads. With several rows and columns, this slot is no operand, because several
        // points read each element of an operand.
        let direct = self.target.as_ref().filter(|_| self.several() || !launch.in_place);
        let target = match direct {
            Some(target) => target.matrix(launch.slots, point, row, column),
            // SAFETY: scratch memory has room for a tile after the registers.
            None => Matrix { at: unsafe { scratch.add(self.registers) }, rows: n as isize, columns: 1 },
        };
        let extents = Extents { m, n, k: self.extents.k };
        let mut finish = SumFinish::scaled(T::from(true));
        if let Some((slot, base)) = self.taken.row {
            finish.bias = launch.slots[slot].cast::<T>().wrapping_offset(base as isize + column as isize);
        }
        if let Some(matrix) = &self.taken.matrix {
            finish.other = matrix.at::<T>(launch.slots, tile);
            finish.other_rows = matrix.strides[self.batch] as isize;
        }
        finish.least = self.taken.relu.then(T::default);
        let before = number * self.extents.m;
        // SAFETY: the operands were checked when the kernel was compiled, and tiles are disjoint. `Matmul::scratch` has
        // room for the rows of the left operand after the tile, and for the product after these.
        unsafe {
            match (&self.lhs, &self.blocking.coded, packed) {
                (Lhs::Integers(lhs), Some(panels), Some(at)) => {
                    let lhs = lhs.rows(launch.slots, before + row);
                    IntegerProduct { panels, at, lhs, target, finish }.run(m, n);
                }
                _ => {
                    let room = scratch.add(self.lhs_room);
                    let lhs = self.lhs.at::<T>(&frame, point, before, Stretch::new(row, m), room);
                    let rhs = packed.map_or_else(|| self.rhs.at(&frame, point, column), Right::Packed);
                    self.blocking.run(extents, target, (lhs, rhs), finish, scratch.add(self.tile_end));
                }
            }
            if direct.is_none() {
                self.finish(launch, tile, target.at, scratch);
            }
        }
    }

    /// Applies the epilogue to a tile, some rows (a strip) at a time.
    ///
    /// # Safety
    /// The requirements of [`Matmul::task`] apply; the product must be dense over the tile.
    unsafe fn finish(&self, launch: &ThunkContext<'_>, tile: &Tile, product: *mut u8, scratch: *mut u8) {
        let (m, n) = (tile.len[self.batch], tile.len[self.batch + 1]);
        let strip = self.tiling.strips[self.cut(launch)];
        for row in (0..m).step_by(strip) {
            let mut part = *tile;
            part.start[self.batch] += row;
            part.len[self.batch] = strip.min(m - row);
            let frame = Frame {
                slots: launch.slots,
                scratch,
                // SAFETY: the row is one of the product's tile.
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
            if let Some(numbers) = &self.numbers {
                numbers.prepare(launch);
            }
            if self.constant(launch).is_none() {
                self.rhs.prepare(launch);
            }
        }
        if let Some(numbers) = self.numbers.as_ref().filter(|_| self.together > 0 && self.constant(launch).is_some()) {
            let groups = RowGroups::new(numbers, launch.slots, self.batch_extents(), self.together);
            let task = |n, scratch| {
                // SAFETY: passed on from the caller.
                unsafe { self.group_task(launch, &groups, n, scratch) }
            };
            return launch.workers.for_each(self.group_tasks(&groups), self.serial, &task);
        }
        let tasks = self.tiling.grids[self.cut(launch)].count();
        // SAFETY: passed on from the caller.
        launch.workers.for_each(tasks, self.serial, &|n, scratch| unsafe { self.task(launch, n, scratch) });
    }

    fn scratch(&self) -> usize {
        let products = self.tiling.grids.iter().map(|grid| {
            let (m, n) = (grid.len()[self.batch], grid.len()[self.batch + 1]);
            self.blocking.scratch(Extents { m: m.max(self.together), n, k: self.extents.k })
        });
        let own = self.tile_end + products.max().unwrap_or(0);
        let numbers = self.numbers.as_ref().map_or(0, MatrixNumbers::scratch);
        own.max(self.lhs.scratch()).max(self.rhs.scratch()).max(numbers)
    }

    fn buffers(&self) -> Vec<usize> {
        self.added.clone()
    }

    fn constant(&self) -> Option<Constant> {
        self.packed.as_ref().map(|packed| packed.constant.clone())
    }

    unsafe fn pack(&self, launch: &ThunkContext<'_>) {
        let Some(PackedRight { strides, .. }) = &self.packed else { return };
        // SAFETY: passed on from the caller.
        unsafe { self.rhs.prepare(launch) };
        let mut counts = [1; MAX_RANK];
        for (d, _) in strides.iter().enumerate().filter(|(_, stride)| **stride > 0) {
            counts[d] = self.matrices[d];
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
