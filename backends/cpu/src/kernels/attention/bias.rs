//! The bias that attention adds to scores.

use std::ops::Range;

use eutectic_backend::{
    axes::Nest,
    grouped::{COLUMNS, Grouped, ROWS},
    intervals::{Mask, Visibility},
};
use eutectic_ir::DType;

use crate::{
    kernels::slots::Slots,
    runtime::thunk::ThunkContext,
    simd::{
        Isa,
        softmax::{AttentionElement, Softmax},
    },
    tile::{
        self, Frame, MAX_RANK, RowPart, Tile, TileProgram,
        program::{TileStep, TileValue},
        span::{Span, parts},
    },
};

/// A compiled bias: a matrix of queries and keys for each point of the batch axes.
pub struct Bias {
    /// The program that computes the bias. [`Bias::allocate`] places its registers.
    pub program: TileProgram,
    /// Whether the matrix is one row, equal for all queries.
    pub is_row: bool,
    /// The number of queries that the program's registers hold.
    rows: usize,
    queries: Span,
    keys: Span,
    batch: usize,
    /// The effect of the bias on each strip of queries and block of keys, if its definition shows it; otherwise empty.
    blocks: Vec<Visibility>,
    /// The number of blocks of keys.
    across: usize,
}

impl Bias {
    /// Compiles a bias over `[b.. queries.. keys..]`.
    ///
    /// # Errors
    /// Returns every reason why the bias cannot be compiled.
    pub fn compile(bias: &Grouped, slots: &Slots, isa: Isa) -> Result<Bias, Vec<String>> {
        let Grouped { nest, groups } = bias;
        let mut program = tile::compile(nest, 0, &slots.types, isa)?;
        let [queries, keys] = [ROWS, COLUMNS].map(|g| Span::new(&nest.domain, bias.first(g), groups[g]));
        let result = program.results[0];
        let value = program.values[result].clone();
        let is_row = value.mask & queries.mask() == 0 && value.mask & keys.mask() != 0 && keys.is_axis();
        // The strides from a query to the next, and from a key to the next, must be constant. A value that depends on
        // only some axes of the queries or of the keys is therefore broadcast along the other ones.
        let whole = |mask: u8, span: &Span| if mask & span.mask() == 0 { mask } else { mask | span.mask() };
        let mask = whole(whole(value.mask, &queries), &keys);
        if mask != value.mask {
            program.steps.push(TileStep::Spread(result));
            program.values.push(TileValue { mask, constant: None, direct: None, ..value });
            program.results[0] = program.steps.len() - 1;
        }
        let (batch, blocks) = (groups[0], Vec::new());
        Ok(Bias { program, is_row, rows: 1, queries, keys, batch, blocks, across: 0 })
    }

    /// Determines the effect of the bias on each strip of queries and each block of keys. Returns the share of these
    /// pairs that it hides. Each group of `together` strips is tested first; its strips are tested only if the effect
    /// on the group is mixed.
    pub fn look(&mut self, bias: &Grouped, strips: &[Range<usize>], together: usize, blocks: &[Range<usize>]) -> f64 {
        (self.blocks, self.across) = (Vec::new(), blocks.len());
        let Nest { domain, instrs, results, .. } = &bias.nest;
        let Some(mut mask) = Mask::new(instrs, results).filter(|_| !domain.contains(&0)) else { return 0.0 };
        let mut bounds: Vec<_> = domain.iter().map(|&extent| 0..extent).collect();
        for part in strips.chunks(together) {
            let first = self.blocks.len();
            self.blocks.resize(first + part.len() * blocks.len(), Visibility::Mixed);
            for (n, keys) in blocks.iter().enumerate() {
                self.keys.hull(keys, &mut bounds);
                self.queries.hull(&(part[0].start..part[part.len() - 1].end), &mut bounds);
                let of_all = mask.of(&bounds);
                for (s, strip) in part.iter().enumerate() {
                    let mut of_strip = || {
                        self.queries.hull(strip, &mut bounds);
                        mask.of(&bounds)
                    };
                    self.blocks[first + s * blocks.len() + n] = match of_all {
                        Visibility::Mixed if part.len() > 1 => of_strip(),
                        settled => settled,
                    };
                }
            }
        }
        let hidden = self.blocks.iter().filter(|v| **v == Visibility::Hidden).count();
        hidden as f64 / self.blocks.len().max(1) as f64
    }

    /// Returns the effect of the bias on some strips of queries and a block of keys, by their numbers.
    pub fn visibility(&self, mut strips: impl Iterator<Item = usize>, block: usize) -> Visibility {
        let of = |strip: usize| self.blocks.get(strip * self.across + block).copied().unwrap_or(Visibility::Mixed);
        let first = strips.next().map_or(Visibility::Hidden, of);
        if strips.all(|strip| of(strip) == first) { first } else { Visibility::Mixed }
    }

    /// Returns the element type in which the bias is computed.
    pub fn dtype(&self) -> DType {
        self.program.values[self.program.results[0]].dtype
    }

    /// Returns the number of keys per point of their outermost axis.
    pub fn whole(&self) -> usize {
        self.keys.whole()
    }

    /// Places the program's registers for strips of queries and blocks of keys. The program computes `rows` queries at
    /// a time.
    pub fn allocate(
        &mut self,
        rows: usize,
        strips: impl Iterator<Item = Range<usize>>,
        blocks: impl Iterator<Item = Range<usize>>,
    ) {
        self.rows = if self.is_row { 1 } else { rows };
        let rows = self.rows;
        let queries = match self.is_row {
            true => vec![[1; MAX_RANK]],
            false => self.queries.lens(strips.flat_map(|strip| parts(strip, rows))),
        };
        let keys = self.keys.lens(blocks);
        let both = |q: &[usize; MAX_RANK], k: &[usize; MAX_RANK]| std::array::from_fn(|d| q[d].max(k[d]));
        let extents: Vec<_> = queries.iter().flat_map(|q| keys.iter().map(move |k| both(q, k))).collect();
        self.program.allocate(&extents);
    }

    /// Evaluates a box of queries and keys. Returns the address of the first element, and the strides from query to
    /// query and from key to key, in elements.
    ///
    /// # Safety
    /// The requirements of [`crate::runtime::thunk::Thunk::run`] apply; scratch memory must have room for the program's
    /// registers.
    unsafe fn run(&self, launch: &ThunkContext<'_>, part: &Tile, scratch: *mut u8) -> (*const u8, [isize; 2]) {
        let frame =
            Frame { slots: launch.slots, scratch, anchor: std::ptr::null(), direct: false, fault: launch.fault };
        // SAFETY: passed on from the caller; the program's result is one of its values.
        unsafe {
            self.program.run(&frame, part, RowPart::WHOLE);
            let (at, strides) = self.program.result(&frame, part, self.program.results[0]);
            (at, [strides[self.queries.inner()], strides[self.keys.inner()]])
        }
    }

    /// Returns a tile of one element at a point of the batch axes.
    fn point(&self, batch: &[usize]) -> Tile {
        let mut tile = Tile { start: [0; MAX_RANK], len: [1; MAX_RANK] };
        tile.start[..self.batch].copy_from_slice(batch);
        tile
    }

    /// Returns the biases of some keys, if the bias is one row for all queries.
    ///
    /// # Safety
    /// The requirements of [`crate::runtime::thunk::Thunk::run`] apply; scratch memory must have room for the program's
    /// registers. The row is valid until the next evaluation.
    pub unsafe fn row(
        &self,
        launch: &ThunkContext<'_>,
        batch: &[usize],
        keys: Range<usize>,
        scratch: *mut u8,
    ) -> Option<*const u8> {
        let mut row = None;
        if self.is_row {
            self.keys.boxes(keys, self.point(batch), &mut |_, part| {
                // SAFETY: passed on from the caller.
                row = Some(unsafe { self.run(launch, &part, scratch) }.0);
            });
        }
        row
    }

    /// Adds the bias to the scores of some queries and keys.
    ///
    /// # Safety
    /// The requirements of [`Bias::row`] apply; the bias must have elements of type `T`.
    pub unsafe fn add<T: AttentionElement>(
        &self,
        launch: &ThunkContext<'_>,
        batch: &[usize],
        (queries, keys): (Range<usize>, Range<usize>),
        scores: &mut [T],
        softmax: &Softmax<T>,
        scratch: *mut u8,
    ) {
        let mut add_box = |rows: Range<usize>, columns: Range<usize>, part: Tile| {
            // SAFETY: passed on from the caller; the program's result has a row for each query, or one for all of them.
            let (at, [row_stride, step]) = unsafe { self.run(launch, &part, scratch) };
            for (r, row) in rows.enumerate() {
                let first = (row - queries.start) * keys.len() + columns.start - keys.start;
                let line = &mut scores[first..first + columns.len()];
                let at = at.cast::<T>().wrapping_offset(r as isize * row_stride);
                // SAFETY: the result has an element for each key of the box, or one for all of them.
                match step {
                    0 => softmax.add_same(line, unsafe { *at }),
                    _ => softmax.add(line, unsafe { std::slice::from_raw_parts(at, columns.len()) }),
                }
            }
        };
        for some in parts(queries.clone(), self.rows) {
            self.queries.boxes(some, self.point(batch), &mut |rows, part| {
                self.keys.boxes(keys.clone(), part, &mut |columns, part| add_box(rows.clone(), columns, part));
            });
        }
    }
}
