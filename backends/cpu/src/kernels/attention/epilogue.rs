//! The epilogue of attention, and the queries whose results are stored.

use std::ops::Range;

use eutectic_backend::grouped::{COLUMNS, Grouped, ROWS};

use super::runs::Runs;
use crate::{
    gemm::matrix::Stretch,
    kernels::slots::Slots,
    runtime::thunk::ThunkContext,
    simd::Isa,
    tile::{
        self, Frame, MAX_RANK, RowPart, Tile, TileProgram,
        domain::AxisMask,
        region::Region,
        span::{Span, parts},
    },
};

/// The epilogue of the result, for a few queries at a time.
pub struct AttentionEpilogue {
    /// The program that computes and stores the result. [`AttentionEpilogue::allocate`] places its registers.
    pub program: TileProgram,
    queries: Span,
    /// The axes of the columns.
    columns: Span,
    batch: usize,
    rows: usize,
    /// The region of stored results, if not all are stored.
    pub wanted: Option<Region>,
}

impl AttentionEpilogue {
    /// Compiles the stores of a body over `[b.. queries.. columns..]`.
    ///
    /// # Errors
    /// Returns every reason why the stores cannot be compiled.
    pub fn compile(body: &Grouped, slots: &Slots, isa: Isa) -> Result<AttentionEpilogue, Vec<String>> {
        let batch = body.groups[0];
        let points = ((1_u16 << batch) - 1) as AxisMask;
        let program = tile::compile_for(&body.nest, 0, points, &slots.types, isa)?;
        let [queries, columns] = [ROWS, COLUMNS].map(|g| Span::new(&body.nest.domain, body.first(g), body.groups[g]));
        let regions: Option<Vec<_>> = program.writes.iter().map(|write| write.region.as_ref()).collect();
        let regions = regions.filter(|_| program.scatters.is_empty());
        let wanted = regions.and_then(|regions| Region::outermost(regions.into_iter()).cloned());
        Ok(AttentionEpilogue { program, queries, columns, batch, rows: 1, wanted })
    }

    /// Returns the runs of a block's queries that are stored.
    pub fn runs(&self, batch: &[usize], block: Stretch) -> Runs {
        let queries = block.first..block.first + block.count;
        match &self.wanted {
            Some(wanted) => Runs::within(wanted, queries, &self.queries, self.tile(batch)),
            None => Runs::whole(block.count),
        }
    }

    /// Returns a tile with all columns at a batch point.
    fn tile(&self, batch: &[usize]) -> Tile {
        let mut tile = Tile { start: [0; MAX_RANK], len: [1; MAX_RANK] };
        tile.start[..self.batch].copy_from_slice(batch);
        self.columns.boxes(0..self.columns.points(), tile, &mut |_, whole| tile = whole);
        tile
    }

    /// Places the program's registers for strips of queries. The program stores `rows` queries at a time.
    pub fn allocate(&mut self, rows: usize, strips: impl Iterator<Item = Range<usize>>) {
        self.rows = rows;
        let queries = self.queries.lens(strips.flat_map(|strip| parts(strip, rows)));
        let whole = self.columns.lens(std::iter::once(0..self.columns.points()));
        let both = |q: &[usize; MAX_RANK], c: &[usize; MAX_RANK]| std::array::from_fn(|d| q[d].max(c[d]));
        let extents: Vec<_> = queries.iter().flat_map(|q| whole.iter().map(move |c| both(q, c))).collect();
        self.program.allocate(&extents);
    }

    /// Applies the epilogue to some queries, and stores the results. `output` is the address of the first query's sums,
    /// and `row` the bytes per query.
    ///
    /// # Safety
    /// The requirements of [`Thunk::run`] apply; scratch memory must have room for the program's registers.
    pub unsafe fn run(
        &self,
        launch: &ThunkContext<'_>,
        batch: &[usize],
        queries: Range<usize>,
        (output, row): (*mut u8, usize),
        scratch: *mut u8,
    ) {
        let tile = self.tile(batch);
        for some in parts(queries.clone(), self.rows) {
            self.queries.boxes(some, tile, &mut |some, part| {
                let anchor = output.wrapping_add((some.start - queries.start) * row);
                let frame =
                    Frame { slots: launch.slots, scratch, anchor, direct: !launch.in_place, fault: launch.fault };
                // SAFETY: registers were placed for strips of this size; the rest is passed on from the caller.
                unsafe { self.program.run(&frame, &part, RowPart::WHOLE) };
            });
        }
    }
}
