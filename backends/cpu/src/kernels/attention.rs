//! Attention: for a block of queries and a block of keys at a time, with a running softmax.
//!
//! Keys and values of a block are packed once. Past them queries go a strip at a time, whose scores stay in the first-level cache
//! from the one product to the other.

mod bias;
mod near;

use std::ops::Range;

use eutectic_backend::EmptyRow;
use eutectic_ir::DType;

use self::bias::Bias;
use super::{operand::Operand, slots::Slots};
use crate::{
    axes::{Nest, normalise_batch},
    gemm::{
        matrix::Matrix,
        micro::call::Finish,
        plan::Plan,
        product::{Extents, Product},
        right::Right,
    },
    runtime::{
        memory::ALIGN,
        thunk::{Launch, Thunk},
    },
    simd::{
        Isa,
        convert::register,
        softmax::{Rows, Softmax},
    },
    tile::{self, Frame, Grid, MAX_RANK, Part, Tile, TileProgram},
};

/// Keys in a block; fewer are one block.
const KEYS: usize = 512;
/// Sequences of keys up to this length are one block.
const SINGLE: usize = 1024;
/// Queries in a block.
const QUERIES: usize = 256;
/// Queries in a strip; more have keys and values packed.
const STRIP: usize = 24;
/// Elements of a register of the bias and the epilogue.
const REGISTER: usize = 4096;

/// What is done to the scores.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Factor of the scores.
    pub scale: f64,
    /// Bound of the scores, if not 0.
    pub softcap: f64,
    /// What a row without a finite score gives.
    pub empty: EmptyRow,
}

/// Compiles attention. `operands` are query, key and value.
///
/// # Errors
/// Everything that stands in the way.
pub fn compile(
    operands: [Nest; 3],
    bias: Option<Nest>,
    body: &Nest,
    form: Form,
    slots: &mut Slots,
    isa: Isa,
) -> Result<Box<dyn Thunk>, Vec<String>> {
    let acc = operands[0].results.first().map(|&r| register(operands[0].instrs[r].dtype()));
    match acc {
        Some(DType::F32) => Attention::<f32>::compile(operands, bias, body, form, DType::F32, slots, isa),
        Some(DType::F64) => Attention::<f64>::compile(operands, bias, body, form, DType::F64, slots, isa),
        Some(other) => Err(vec![format!("`attention` on {other}")]),
        None => Err(vec!["an attention operand without a result".into()]),
    }
}

struct Attention<T: 'static> {
    /// Products of queries with keys, and of weights with values.
    plans: [Plan<T>; 2],
    batch: usize,
    /// Extents: queries, keys, depth of the products, columns of the value.
    queries: usize,
    keys: usize,
    depth: usize,
    columns: usize,
    /// Tasks: batch points and blocks of queries.
    grid: Grid,
    key_block: usize,
    query: Operand,
    key: Operand,
    value: Operand,
    bias: Option<Bias>,
    /// Where the result may be written at once; otherwise the epilogue stores it.
    target: Option<Operand>,
    epilogue: TileProgram,
    epilogue_rows: usize,
    layout: Layout,
    softmax: Softmax<T>,
    scale: T,
    empty: EmptyRow,
    added: Vec<usize>,
}

/// Byte offsets in a worker's scratch memory.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    keys: usize,
    values: usize,
    scores: usize,
    output: usize,
    largest: usize,
    sums: usize,
    products: usize,
    end: usize,
}

/// A block of keys at work.
struct Block<'a, T> {
    from: usize,
    keys: usize,
    key: Right<'a>,
    value: Right<'a>,
    /// What products add to each row of scores, if anything.
    row: *const T,
    /// The query block's output, its rows' largest scores and sums of weights.
    output: Matrix,
    largest: &'a mut [T],
    sums: &'a mut [T],
}

impl<T: Rows + Product> Attention<T> {
    fn compile(
        operands: [Nest; 3],
        bias: Option<Nest>,
        body: &Nest,
        form: Form,
        acc: DType,
        slots: &mut Slots,
        isa: Isa,
    ) -> Result<Box<dyn Thunk>, Vec<String>> {
        let rank = body.domain.len();
        let mut nests: Vec<_> = operands.into_iter().chain(bias).chain([body.clone()]).collect();
        if rank < 2 || nests.iter().any(|n| n.domain.len() != rank) {
            return Err(vec!["attention whose operands have other axes than its result".into()]);
        }
        let batch = normalise_batch(&mut nests, rank - 2);
        let body = nests.pop().expect("the body was put last");
        let [queries, columns] = [body.domain[batch], body.domain[batch + 1]];
        let [keys, depth] = [nests[1].domain[batch], nests[1].domain[batch + 1]];
        let (query_block, key_block) = blocks(queries, keys);

        let mut problems = Vec::new();
        let mut compiled = Vec::new();
        for nest in &nests[..3] {
            match Operand::compile(nest, acc, slots, isa) {
                Ok(operand) => compiled.push(operand),
                Err(why) => problems.extend(why),
            }
        }
        let mut grid_len = [1; MAX_RANK];
        (grid_len[batch], grid_len[batch + 1]) = (query_block, columns.max(1));
        let grid = Grid::new(&body.domain, u8::MAX, &grid_len);
        grid_len = *grid.len();
        let query_block = grid.len()[batch];

        let along = |columns: usize| {
            let mut len = grid_len;
            len[batch + 1] = columns.max(1);
            len
        };
        let bias = nests.get(3).map(|nest| {
            let mut bias = Bias::compile(nest, batch, slots, isa)?;
            bias.is_row &= form.softcap == 0.0;
            let dtype = bias.dtype();
            bias.rows = if bias.is_row { 1 } else { rows(key_block) };
            bias.program.allocate(&Grid::exactly(&nest.domain, &along(key_block)).strips(batch, bias.rows));
            if dtype == acc { Ok(bias) } else { Err(vec![format!("attention in {acc} with a bias of {dtype}")]) }
        });
        let bias = bias.transpose().map_err(|p| problems.extend(p)).ok();
        let epilogue = tile::compile(&body, 0, &slots.types, isa).map_err(|p| problems.extend(p)).ok();
        problems.sort();
        problems.dedup();
        let (Some(bias), Some(mut epilogue), true) = (bias, epilogue, problems.is_empty()) else {
            return Err(problems);
        };
        let epilogue_rows = rows(columns);
        epilogue.allocate(&Grid::exactly(&body.domain, &along(columns)).strips(batch, epilogue_rows));
        let [query, key, value] = <[Operand; 3]>::try_from(compiled).unwrap_or_else(|_| unreachable!("no problem"));
        let programs = epilogue.scratch.max(bias.as_ref().map_or(0, |b| b.program.scratch));
        let mut attention = Attention {
            plans: [key_block, columns].map(|n| Plan::new(isa, [query_block.min(STRIP), n])),
            batch,
            queries,
            keys,
            depth,
            columns,
            grid,
            key_block,
            query,
            key,
            value,
            bias,
            target: Operand::target(&body, acc, slots),
            epilogue,
            epilogue_rows,
            layout: Layout::default(),
            softmax: Softmax::new(form.softcap, isa),
            scale: T::of(form.scale),
            empty: form.empty,
            added: slots.added(),
        };
        attention.layout = attention.lay_out(programs, query_block, acc.size());
        Ok(Box::new(attention))
    }

    fn lay_out(&self, programs: usize, query_block: usize, size: usize) -> Layout {
        let mut end = programs.next_multiple_of(ALIGN);
        let mut place = |elements: usize| {
            let at = end;
            end = (end + elements * size).next_multiple_of(ALIGN);
            at
        };
        let strip = query_block.min(STRIP);
        let [of_keys, of_values] = &self.plans;
        let packed = |plan: &Plan<T>, n: usize, k: usize| {
            if query_block > STRIP { plan.packed(n, k).unwrap_or(0) / size } else { 0 }
        };
        let keys = place(packed(of_keys, self.key_block, self.depth));
        let values = place(packed(of_values, self.columns, self.key_block));
        let scores = place(strip * self.key_block);
        let output = place(query_block * self.columns);
        let largest = place(query_block);
        let sums = place(query_block);
        let products = place(0);
        let scores_of = Extents { m: strip, n: self.key_block, k: self.depth };
        let output_of = Extents { m: strip, n: self.columns, k: self.key_block };
        end += of_keys.scratch(scores_of).max(of_values.scratch(output_of));
        Layout { keys, values, scores, output, largest, sums, products, end }
    }

    unsafe fn task(&self, launch: &Launch<'_>, n: usize, scratch: *mut u8) {
        let tile = self.grid.tile(n);
        let rows = tile.len[self.batch];
        // SAFETY: the layout was made for blocks of this size; see `lay_out`.
        unsafe {
            let direct = self.target.as_ref().filter(|_| !launch.in_place);
            let output = match direct {
                Some(target) => target.matrix(launch.slots, &tile.start[..self.batch], tile.start[self.batch], 0),
                None => Matrix { at: scratch.add(self.layout.output), rows: self.columns as isize, columns: 1 },
            };
            let largest = std::slice::from_raw_parts_mut(scratch.add(self.layout.largest).cast::<T>(), rows);
            let sums = std::slice::from_raw_parts_mut(scratch.add(self.layout.sums).cast::<T>(), rows);
            largest.fill(T::of(f64::NEG_INFINITY));
            sums.fill(T::of(0.0));
            let strips = || (0..rows).step_by(STRIP).map(|first| first..rows.min(first + STRIP));
            let next = (rows > STRIP && n + 1 < self.grid.count()).then(|| self.grid.tile(n + 1));
            for from in (0..self.keys).step_by(self.key_block) {
                let keys = self.key_block.min(self.keys - from);
                let [key, value] = self.bring(launch, &tile, (from, keys), scratch);
                let row = match &self.bias {
                    Some(bias) if bias.is_row => bias.run(launch, &tile, (0..1, from..from + keys), scratch).0.cast(),
                    _ => std::ptr::null(),
                };
                let mut block = Block { from, keys, key, value, row, output, largest, sums };
                for strip in strips() {
                    if let Some(next) = next.as_ref().filter(|_| from == 0) {
                        self.ask(launch, &tile, next, &strip);
                    }
                    self.strip(launch, &tile, strip, &mut block, scratch);
                }
            }
            for strip in strips() {
                self.divide(strip.clone(), output, largest, sums);
                if direct.is_none() {
                    self.finish(launch, &tile, strip, output.at, scratch);
                }
            }
        }
    }

    /// Some of a block's queries past its keys.
    unsafe fn strip(
        &self,
        launch: &Launch<'_>,
        tile: &Tile,
        strip: Range<usize>,
        block: &mut Block<'_, T>,
        scratch: *mut u8,
    ) {
        let &mut Block { from, keys, key, value, row, output, .. } = block;
        let query = self.query.matrix(launch.slots, &tile.start[..self.batch], tile.start[self.batch] + strip.start, 0);
        // SAFETY: passed on from the caller.
        unsafe {
            let products = scratch.add(self.layout.products);
            let weights = Matrix { at: scratch.add(self.layout.scores), rows: keys as isize, columns: 1 };
            let extents = Extents { m: strip.len(), n: keys, k: self.depth };
            let scaled = Finish { bias: row, ..Finish::scaled(self.scale) };
            self.plans[0].run(extents, weights, (query.into(), key), scaled, products);
            let scores = std::slice::from_raw_parts_mut(weights.at.cast::<T>(), strip.len() * keys);
            self.softmax.cap(scores);
            if let Some(bias) = self.bias.as_ref().filter(|bias| !bias.is_row) {
                let add = |line: &mut [T], bias: &[T]| self.softmax.add(line, bias);
                bias.add(launch, tile, (strip.clone(), from..from + keys), scores, &add, scratch);
            }
            for (r, scores) in strip.clone().zip(scores.chunks_exact_mut(keys)) {
                let correction = self.softmax.step(scores, &mut block.largest[r], &mut block.sums[r]);
                if from > 0 && correction != T::of(1.0) {
                    self.softmax.scale(self.row(output, r), correction);
                }
            }
            let target = Matrix { at: self.row(output, strip.start).as_mut_ptr().cast(), ..output };
            let extents = Extents { m: strip.len(), n: self.columns, k: keys };
            let added = Finish { add: from > 0, ..Finish::scaled(T::of(1.0)) };
            self.plans[1].run(extents, target, (weights.into(), value), added, products);
        }
    }

    /// A query's output.
    unsafe fn row<'a>(&self, output: Matrix, row: usize) -> &'a mut [T] {
        let at = output.at.cast::<T>().wrapping_offset(row as isize * output.rows);
        // SAFETY: the caller promises the output of so many queries, whose columns lie side by side.
        unsafe { std::slice::from_raw_parts_mut(at, self.columns) }
    }

    /// Divides some queries' output by their sums of weights.
    unsafe fn divide(&self, strip: Range<usize>, output: Matrix, largest: &[T], sums: &[T]) {
        for r in strip {
            // SAFETY: passed on from the caller.
            let out = unsafe { self.row(output, r) };
            // Beside a NaN, whose sum is one too, a row is not empty.
            if largest[r] == T::of(f64::NEG_INFINITY) && sums[r] == T::of(0.0) {
                let zeros = self.empty == EmptyRow::Zeros || self.keys == 0;
                out.fill(T::of(if zeros { 0.0 } else { f64::NAN }));
            } else {
                self.softmax.scale(out, T::of(1.0).over(sums[r]));
            }
        }
    }

    /// The epilogue of some queries.
    unsafe fn finish(&self, launch: &Launch<'_>, tile: &Tile, strip: Range<usize>, output: *mut u8, scratch: *mut u8) {
        for first in strip.clone().step_by(self.epilogue_rows) {
            let mut part = *tile;
            part.start[self.batch] += first;
            part.len[self.batch] = self.epilogue_rows.min(strip.end - first);
            // SAFETY: within the output block.
            let anchor = unsafe { output.add(first * self.columns * size_of::<T>()) };
            let frame = Frame { slots: launch.slots, scratch, anchor, direct: !launch.in_place, fault: launch.fault };
            // SAFETY: registers were placed for strips of this size.
            unsafe { self.epilogue.run(&frame, &part, Part::WHOLE) };
        }
    }
}

/// Queries of which a program's registers hold rows of so many elements: strips are cut evenly.
fn rows(elements: usize) -> usize {
    let fits = |rows: &usize| STRIP.is_multiple_of(*rows) && rows * elements <= REGISTER;
    (1..=STRIP).rev().find(fits).unwrap_or(1)
}

/// Queries and keys of a block, by the extents alone.
fn blocks(queries: usize, keys: usize) -> (usize, usize) {
    let key_block = if keys <= SINGLE { keys.max(1) } else { KEYS };
    (queries.clamp(1, QUERIES), key_block)
}

impl<T: Rows + Product> Thunk for Attention<T> {
    unsafe fn run(&self, launch: &Launch<'_>) {
        if self.epilogue.domain.contains(&0) {
            return;
        }
        // SAFETY: passed on from the caller.
        unsafe {
            [&self.query, &self.key, &self.value].into_iter().for_each(|o| o.prepare(launch));
        }
        let products: usize = self.epilogue.domain[..self.batch].iter().product::<usize>() * self.queries * self.keys;
        let serial = products.saturating_mul(self.depth + self.columns) < 1 << 17;
        // SAFETY: passed on from the caller.
        launch.workers.for_each(self.grid.count(), serial, &|n, scratch| unsafe { self.task(launch, n, scratch) });
    }

    fn scratch(&self) -> usize {
        [&self.query, &self.key, &self.value].into_iter().map(Operand::scratch).fold(self.layout.end, usize::max)
    }

    fn buffers(&self) -> Vec<usize> {
        self.added.clone()
    }
}
