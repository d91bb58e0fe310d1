//! Contractions: a product per tile of the result, and the epilogue on each tile while it is hot.

use std::marker::PhantomData;

use eutectic_backend::Instr;
use eutectic_ir::DType;

use super::{
    Launch, Slots, Thunk,
    gemm::{Extents, Product},
    operand::{Matrix, Operand},
};
use crate::{
    axes::{Nest, normalise_batch},
    memory::ALIGN,
    simd::{Isa, convert::register},
    tile::{self, Frame, Grid, MAX_RANK, Part, Tile, TileProgram},
};

/// Elements of a register of the epilogue.
const REGISTER: usize = 4096;
/// Below so many multiplications, waking another thread takes longer than the work.
const SERIAL: usize = 1 << 17;

/// Compiles a contraction.
///
/// # Errors
/// Everything that stands in the way.
pub fn compile(
    lhs: &Nest,
    rhs: &Nest,
    body: &Nest,
    slots: &mut Slots,
    isa: Isa,
) -> Result<Box<dyn Thunk>, Vec<String>> {
    let result = |n: &Nest| n.results.first().map(|&r| register(n.instrs[r].dtype()));
    let (Some(acc), Some(other)) = (result(lhs), result(rhs)) else {
        return Err(vec!["a matmul operand without a result".into()]);
    };
    if acc != other {
        return Err(vec![format!("`matmul` of {acc} and {other}")]);
    }
    match acc {
        DType::F32 => Matmul::<f32>::compile(lhs, rhs, body, acc, slots, isa),
        DType::F64 => Matmul::<f64>::compile(lhs, rhs, body, acc, slots, isa),
        DType::I8 => Matmul::<i8>::compile(lhs, rhs, body, acc, slots, isa),
        DType::U8 => Matmul::<u8>::compile(lhs, rhs, body, acc, slots, isa),
        DType::I32 => Matmul::<i32>::compile(lhs, rhs, body, acc, slots, isa),
        DType::I64 => Matmul::<i64>::compile(lhs, rhs, body, acc, slots, isa),
        DType::U32 => Matmul::<u32>::compile(lhs, rhs, body, acc, slots, isa),
        other => Err(vec![format!("`matmul` on {other}")]),
    }
}

struct Matmul<T> {
    extents: Extents,
    batch: usize,
    /// Over `[b.. m n]`.
    grid: Grid,
    lhs: Operand,
    rhs: Operand,
    epilogue: TileProgram,
    /// The store that the product can be written to, if that is all there is.
    direct: bool,
    size: usize,
    isa: Isa,
    added: Vec<usize>,
    accumulator: PhantomData<T>,
}

impl<T: Product + From<bool>> Matmul<T> {
    fn compile(
        lhs: &Nest,
        rhs: &Nest,
        body: &Nest,
        acc: DType,
        slots: &mut Slots,
        isa: Isa,
    ) -> Result<Box<dyn Thunk>, Vec<String>> {
        let rank = body.domain.len();
        if rank < 2 || lhs.domain.len() != rank || rhs.domain.len() != rank {
            return Err(vec!["a matmul whose operands have other axes than its result".into()]);
        }
        let mut nests = [lhs.clone(), rhs.clone(), body.clone()];
        let batch = normalise_batch(&mut nests, rank - 2);
        let batch = batch_into_rows(&mut nests, batch);
        let [lhs, rhs, body] = nests;
        let extents = Extents { m: body.domain[batch], n: body.domain[batch + 1], k: lhs.domain[batch + 1] };
        let mut problems = Vec::new();
        let mut note = |r: Result<_, Vec<String>>| r.map_err(|p| problems.extend(p)).ok();
        let operands = (note(Operand::compile(&lhs, acc, slots, isa)), note(Operand::compile(&rhs, acc, slots, isa)));
        let epilogue = tile::compile(&body, 0, &slots.types, isa);
        let ((Some(lhs), Some(rhs)), Ok(mut epilogue)) = (operands, epilogue.as_ref().cloned()) else {
            problems.extend(epilogue.err().unwrap_or_default());
            return Err(problems);
        };
        let mut len = [1; MAX_RANK];
        (len[batch], len[batch + 1]) = block(extents);
        let grid = Grid::new(&body.domain, u8::MAX, &len);
        let largest = grid.len()[batch + 1].max(1);
        let mut strip = [1; MAX_RANK];
        (strip[batch], strip[batch + 1]) = ((REGISTER / largest).clamp(1, grid.len()[batch].max(1)), largest);
        epilogue.allocate(&strip);
        let direct = matches!((body.instrs.as_slice(), body.stores.as_slice()),
            ([Instr::Anchor { .. }], [store]) if slots.types[store.slot].0 == acc);
        let added = slots.added();
        let accumulator = PhantomData;
        Ok(Box::new(Matmul::<T> {
            extents,
            batch,
            grid,
            lhs,
            rhs,
            epilogue,
            direct,
            size: acc.size(),
            isa,
            added,
            accumulator,
        }))
    }

    /// Rows of the epilogue's strips.
    fn strip(&self, columns: usize) -> usize {
        let largest = self.grid.len()[self.batch + 1].max(columns).max(1);
        (REGISTER / largest).max(1)
    }

    unsafe fn task(&self, launch: &Launch<'_>, n: usize, scratch: *mut u8) {
        let tile = self.grid.tile(n);
        let (row, column) = (tile.start[self.batch], tile.start[self.batch + 1]);
        let (m, n) = (tile.len[self.batch], tile.len[self.batch + 1]);
        let point = &tile.start[..self.batch];
        let lhs = self.lhs.matrix(launch.slots, point, row, 0);
        let rhs = self.rhs.matrix(launch.slots, point, 0, column);
        // A product may be written over what its epilogue alone reads, but not over its operands.
        let direct = self.direct && !launch.in_place;
        let target = if direct {
            let write = &self.epilogue.writes[0];
            let offset = (0..MAX_RANK).fold(write.base, |sum, d| sum + write.strides[d] * tile.start[d] as i64);
            Matrix {
                at: launch.slots[write.slot].wrapping_offset(offset as isize * self.size as isize),
                rows: write.strides[self.batch] as isize,
                columns: write.strides[self.batch + 1] as isize,
            }
        } else {
            // SAFETY: behind the epilogue's registers there is room for a tile.
            let at = unsafe { scratch.add(self.epilogue.scratch.next_multiple_of(ALIGN)) };
            Matrix { at, rows: n as isize, columns: 1 }
        };
        let extents = Extents { m, n, k: self.extents.k };
        // SAFETY: the operands were checked when the kernel was compiled; tiles are disjoint.
        unsafe {
            T::product(self.isa, extents, target, [lhs, rhs], T::from(true), false);
            if !direct {
                self.finish(launch, &tile, target.at, scratch);
            }
        }
    }

    unsafe fn finish(&self, launch: &Launch<'_>, tile: &Tile, product: *mut u8, scratch: *mut u8) {
        let (m, n) = (tile.len[self.batch], tile.len[self.batch + 1]);
        let strip = self.strip(n);
        let mut row = 0;
        while row < m {
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
            unsafe { self.epilogue.run(&frame, &part, Part::WHOLE) };
            row += strip;
        }
    }
}

/// Where the right operand is the same for all batches and everything else reads as one longer matrix, the innermost batch
/// axis becomes rows.
fn batch_into_rows(nests: &mut [Nest; 3], batch: usize) -> usize {
    let mut batch = batch;
    while batch > 0 {
        let axis = batch - 1;
        let [lhs, rhs, body] = &*nests;
        if rhs.depends_on(axis) {
            break;
        }
        let (Some(lhs), Some(body)) = (lhs.merged(axis), body.merged(axis)) else { break };
        let rhs = rhs.without(axis);
        *nests = [lhs, rhs, body];
        batch -= 1;
    }
    batch
}

/// Rows and columns of a tile of the result, by the extents alone: large, because each product packs its operands anew; small
/// enough for the tile to stay in the second-level cache and for several threads to share the work.
fn block(e: Extents) -> (usize, usize) {
    const ROWS: usize = 256;
    if e.m == 1 || e.n == 1 {
        return (e.m.clamp(1, 512), e.n.clamp(1, 512));
    }
    let rows = e.m.min(ROWS);
    // Few rows: columns are what can be shared.
    let columns = if e.m * e.n * e.k < SERIAL * 2 { e.n } else { (e.n / 4).next_multiple_of(64).clamp(64, 512) };
    (rows.max(1), columns.min(e.n).max(1))
}

impl<T: Product + From<bool>> Thunk for Matmul<T> {
    unsafe fn run(&self, launch: &Launch<'_>) {
        if self.epilogue.domain.contains(&0) {
            return;
        }
        // SAFETY: passed on from the caller.
        unsafe {
            self.lhs.prepare(launch);
            self.rhs.prepare(launch);
        }
        let points: usize = self.epilogue.domain.iter().product();
        let serial = points.saturating_mul(self.extents.k) < SERIAL;
        // SAFETY: passed on from the caller.
        launch.workers.for_each(self.grid.count(), serial, &|n, scratch| unsafe { self.task(launch, n, scratch) });
    }

    fn scratch(&self) -> usize {
        let tile = self.grid.len()[self.batch] * self.grid.len()[self.batch + 1] * self.size;
        let own = self.epilogue.scratch.next_multiple_of(ALIGN) + tile;
        own.max(self.lhs.scratch()).max(self.rhs.scratch())
    }

    fn buffers(&self) -> Vec<usize> {
        self.added.clone()
    }
}
