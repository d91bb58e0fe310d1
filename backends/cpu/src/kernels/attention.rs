//! Attention: for a block of queries and a block of keys at a time, with a running softmax.
//!
//! Blocks that the bias hides, as a mask that is computed from the numbers of queries and keys does, are left out; where it is 0 it is not
//! evaluated.
//!
//! Keys and values of a block are packed once. Queries are multiplied with them a strip at a time, whose scores stay in the first-level
//! cache from the one product to the other.

mod bias;
mod epilogue;
mod operands;
mod packing;
mod poisoned;
mod runs;
mod shared_keys;

use std::ops::Range;

use eutectic_backend::{
    EmptyRow, ScoreForm,
    grouped::{COLUMNS, Grouped, ROWS},
    intervals::Visibility,
};
use eutectic_ir::{DType, bounded::hiding};

pub use self::runs::query_block;
use self::{
    bias::Bias,
    epilogue::AttentionEpilogue,
    operands::AttentionOperand,
    runs::{Runs, STRIP, StripSet, strips_of},
    shared_keys::SharedKeys,
};
use super::{operand::Operand, slots::Slots};
use crate::{
    gemm::{
        blocking::{Along, Blocking},
        matrix::{Matrix, Stretch},
        micro::call::SumFinish,
        product::{Extents, ProductElement},
        right::Right,
    },
    runtime::{
        memory::ALIGN,
        thunk::{Thunk, ThunkContext},
    },
    simd::{
        Isa,
        softmax::{AttentionElement, Softmax},
    },
    tile::{Grid, MAX_RANK, span::parts},
};

/// Keys in a block; fewer are one block.
const KEYS: usize = 512;
/// Sequences of keys up to this length are one block.
const SINGLE: usize = 1024;
/// Keys in a block where a mask hides blocks of a short sequence, and the share of them that makes this better.
const SHORT: usize = 256;
const WORTH: f64 = 0.125;
/// Elements of a register of the bias and the epilogue.
const REGISTER: usize = 4096;

/// Compiles attention that accumulates in `acc`. `operands` are query, key and value.
///
/// # Errors
/// Everything that stands in the way.
pub fn compile(
    operands: [Grouped; 3],
    bias: Option<Grouped>,
    body: Grouped,
    form: ScoreForm,
    acc: DType,
    slots: &mut Slots,
    isa: Isa,
) -> Result<Box<dyn Thunk>, Vec<String>> {
    match acc {
        DType::F32 => Attention::<f32>::compile(operands, bias, body, form, DType::F32, slots, isa),
        DType::F64 => Attention::<f64>::compile(operands, bias, body, form, DType::F64, slots, isa),
        other => Err(vec![format!("`attention` on {other}")]),
    }
}

struct Attention<T: 'static> {
    /// Products of queries with keys, and of weights with values.
    blockings: [Blocking<T>; 2],
    /// Whether there is nothing to store.
    empty_result: bool,
    /// Points of the batch axes, and how many axes these are.
    points: usize,
    batch: usize,
    /// Extents: queries, keys, depth of the products, columns of the value.
    queries: usize,
    keys: usize,
    depth: usize,
    columns: usize,
    /// Tasks: batch points and blocks of queries.
    grid: Grid,
    key_block: usize,
    query: AttentionOperand,
    key: AttentionOperand,
    value: AttentionOperand,
    shared_keys: Option<SharedKeys>,
    bias: Option<Bias>,
    /// Where the result may be written at once; otherwise the epilogue stores it.
    target: Option<Operand>,
    epilogue: AttentionEpilogue,
    layout: ScratchLayout,
    softmax: Softmax<T>,
    scale: T,
    empty: EmptyRow,
    added: Vec<usize>,
}

/// Byte offsets in a worker's scratch memory.
#[derive(Clone, Copy, Debug, Default)]
struct ScratchLayout {
    /// Of queries, keys and values that are evaluated here.
    evaluated: [usize; 3],
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
struct KeyBlock<'a, T> {
    from: usize,
    keys: usize,
    /// Those that are not the same as the rest, if there is such a rest.
    others: Option<&'a Runs>,
    key: Right<'a>,
    value: Right<'a>,
    /// The bias, where it is one row for all queries, and whether products may add it: it replaces no score.
    row: *const T,
    adds_row: bool,
    /// Which strips of queries are past keys already.
    begun: StripSet,
    /// The number of the query that the block begins with, and which of those from there on are computed.
    first: usize,
    runs: &'a Runs,
    /// The block's queries.
    queries: Matrix,
    /// Their output, its rows' largest scores and sums of weights.
    output: Matrix,
    largest: &'a mut [T],
    sums: &'a mut [T],
}

impl<T: AttentionElement + ProductElement> Attention<T> {
    fn compile(
        operands: [Grouped; 3],
        bias: Option<Grouped>,
        body: Grouped,
        form: ScoreForm,
        acc: DType,
        slots: &mut Slots,
        isa: Isa,
    ) -> Result<Box<dyn Thunk>, Vec<String>> {
        let (operands, bias, body) = batch_into_queries(operands, bias, body);
        let (body, bias) = (body.simple(COLUMNS).simple(ROWS), bias.map(|b| b.simple(COLUMNS).simple(ROWS)));
        let [queries, columns] = [ROWS, COLUMNS].map(|group| body.points(group));
        let [keys, depth] = [ROWS, COLUMNS].map(|group| operands[1].points(group));

        let mut problems = Vec::new();
        let bias_form = bias;
        let bias = bias_form.as_ref().map(|bias| {
            let mut bias = Bias::compile(bias, slots, isa)?;
            bias.is_row &= form.softcap == 0.0;
            let dtype = bias.dtype();
            if dtype == acc { Ok(bias) } else { Err(vec![format!("attention in {acc} with a bias of {dtype}")]) }
        });
        let mut bias = bias.transpose().map_err(|p| problems.extend(p)).ok();
        let mut key_block = key_block(keys, bias.iter().flatten().map(Bias::whole).next());
        let batch = body.groups[0];
        if batch + 2 > MAX_RANK {
            return Err(vec![format!("attention over {batch} batch axes that do not merge")]);
        }
        let points = body.nest.domain[..batch].iter().product();
        let query_block = query_block(points, queries);
        let mut grid_len = [1; MAX_RANK];
        (grid_len[batch], grid_len[batch + 1]) = (query_block, columns.max(1));
        let grid = Grid::new(&[&body.nest.domain[..batch], &[queries, columns]].concat(), u8::MAX, &grid_len);
        let query_block = grid.len()[batch];
        let strips: Vec<_> = parts(0..queries, query_block).flat_map(strips_of).collect();
        let together = query_block.div_ceil(STRIP).max(1);
        if let (Some(Some(bias)), Some(of)) = (&mut bias, &bias_form) {
            // Shorter blocks of keys are worth it where that leaves out some of them.
            let short = (key_block > SHORT).then(|| parts(0..keys, SHORT).collect::<Vec<_>>());
            if short.is_some_and(|short| keys <= SINGLE && bias.look(of, &strips, together, &short) >= WORTH) {
                key_block = SHORT;
            }
            let blocks: Vec<_> = parts(0..keys, key_block).collect();
            bias.look(of, &strips, together, &blocks);
        }
        // Queries are one task's; keys and values are, where a task has all queries that are multiplied with them.
        let blocks = [parts(0..queries, query_block), parts(0..keys, key_block)].map(Iterator::collect::<Vec<_>>);
        let [of_queries, of_keys] = &blocks;
        let of_keys = (of_queries.len() == 1).then_some(of_keys.as_slice());
        let mut blockings =
            [key_block, columns].map(|n| Blocking::new(isa, [query_block.min(STRIP), n]).reading_once(query_block));
        let query = AttentionOperand::compile(&operands[0], acc, slots, isa, Some(of_queries));
        // Kernels that read a shorter type take dense rows of queries and weights.
        let dense = query.as_ref().is_ok_and(AttentionOperand::is_dense);
        let mut compiled = vec![query];
        for ((operand, blocking), along) in operands[1..].iter().zip(&mut blockings).zip([Along::Terms, Along::Columns])
        {
            let short =
                if dense { AttentionOperand::short(operand, slots, isa, query_block, along, blocking) } else { None };
            compiled.push(short.map_or_else(|| AttentionOperand::compile(operand, acc, slots, isa, of_keys), Ok));
        }
        let compiled = compiled.into_iter().filter_map(|operand| operand.map_err(|why| problems.extend(why)).ok());
        let compiled: Vec<_> = compiled.collect();
        let epilogue = AttentionEpilogue::compile(&body, slots, isa).map_err(|p| problems.extend(p)).ok();
        problems.sort();
        problems.dedup();
        let (Some(mut bias), Some(mut epilogue), true) = (bias, epilogue, problems.is_empty()) else {
            return Err(problems);
        };
        let [query, key, value] =
            <[AttentionOperand; 3]>::try_from(compiled).unwrap_or_else(|_| unreachable!("no problem"));
        let shared_keys = SharedKeys::new(&key, &value, key_block);
        if let Some(bias) = &mut bias {
            // A row is added by products, which do not have a score for each key where some share one.
            bias.is_row &= shared_keys.is_none();
            bias.allocate(rows(key_block), strips.iter().cloned(), parts(0..keys, key_block));
        }
        epilogue.allocate(rows(columns), strips.into_iter());
        let registers = [&query, &key, &value].map(AttentionOperand::registers);
        let others = [epilogue.program.scratch, bias.as_ref().map_or(0, |b| b.program.scratch)];
        let programs = registers.into_iter().chain(others).max().unwrap_or(0);
        let mut attention = Attention {
            blockings,
            empty_result: body.nest.domain.contains(&0),
            points,
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
            shared_keys,
            bias,
            target: (body.groups[1..] == [1, 1]).then(|| Operand::target(&body.nest, acc, slots)).flatten(),
            epilogue,
            layout: ScratchLayout::default(),
            softmax: Softmax::new(form.softcap, if form.empty.selects() { hiding(acc) } else { f64::NAN }, isa),
            scale: T::of(form.scale),
            empty: form.empty,
            added: slots.added(),
        };
        attention.layout = attention.lay_out(programs, query_block, acc.size());
        Ok(Box::new(attention))
    }

    fn lay_out(&self, programs: usize, query_block: usize, size: usize) -> ScratchLayout {
        let mut end = programs.next_multiple_of(ALIGN);
        let mut place = |elements: usize| {
            let at = end;
            end = (end + elements * size).next_multiple_of(ALIGN);
            at
        };
        let strip = query_block.min(STRIP);
        let [of_keys, of_values] = &self.blockings;
        let packed = |blocking: &Blocking<T>, n: usize, k: usize| {
            if query_block > STRIP { blocking.packed(n, k).unwrap_or(0) / size } else { 0 }
        };
        let operands = [(&self.query, query_block), (&self.key, self.key_block), (&self.value, self.key_block)];
        let mut room = operands.map(|(operand, rows)| operand.room(rows));
        if self.epilogue.wanted.is_some() {
            // Queries that are apart are brought together.
            room[0] = query_block * self.depth;
        }
        let evaluated = room.map(&mut place);
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
        ScratchLayout { evaluated, keys, values, scores, output, largest, sums, products, end }
    }

    /// Those of queries, keys and values that are not evaluated in tasks.
    fn operands(&self) -> impl Iterator<Item = &Operand> {
        [&self.query, &self.key, &self.value].into_iter().filter_map(AttentionOperand::whole)
    }

    /// # Safety
    /// As [`Thunk::run`]; scratch memory must have the bytes that the thunk states.
    unsafe fn task(&self, launch: &ThunkContext<'_>, n: usize, scratch: *mut u8) {
        let tile = self.grid.tile(n);
        let (point, first) = (&tile.start[..self.batch], tile.start[self.batch]);
        let block = Stretch::new(first, tile.len[self.batch]);
        let runs = self.epilogue.runs(point, block);
        let rows = runs.len();
        if rows == 0 {
            return;
        }
        // SAFETY: the layout was made for blocks of this size; see `lay_out`.
        unsafe {
            let direct = self.target.as_ref().filter(|_| !launch.in_place);
            let output = match direct {
                Some(target) => target.matrix(launch.slots, point, first, 0),
                None => Matrix { at: scratch.add(self.layout.output), rows: self.columns as isize, columns: 1 },
            };
            let largest = std::slice::from_raw_parts_mut(scratch.add(self.layout.largest).cast::<T>(), rows);
            let sums = std::slice::from_raw_parts_mut(scratch.add(self.layout.sums).cast::<T>(), rows);
            largest.fill(T::of(f64::NEG_INFINITY));
            sums.fill(T::of(0.0));
            let strips = || strips_of(0..rows);
            let place = self.layout.evaluated[0];
            let queries = self.query.runs::<T>(launch, point, (block, &runs), self.depth, scratch, place);
            let next = (rows > STRIP && n + 1 < self.grid.count()).then(|| self.grid.tile(n + 1));
            let number = first / self.grid.len()[self.batch] * self.grid.len()[self.batch].div_ceil(STRIP);
            let visibility = |strip: Range<usize>, block: usize| match &self.bias {
                Some(bias) => match bias.visibility(runs.strips(strip).map(|strip| number + strip), block) {
                    // A score that is NaN shows under a bias that hides nothing.
                    Visibility::Hidden if !self.empty.selects() => Visibility::Mixed,
                    visibility => visibility,
                },
                None => Visibility::Plain,
            };
            let mut begun = 0;
            for (n, from) in (0..self.keys).step_by(self.key_block).enumerate() {
                if strips().all(|strip| visibility(strip, n) == Visibility::Hidden) {
                    continue;
                }
                let keys = self.key_block.min(self.keys - from);
                let of_block = Stretch::new(from, keys);
                let others = self.shared_keys.as_ref().and_then(|shared| shared.others(point, of_block));
                let others = others.as_ref();
                let [key, value] = self.pack(launch, point, (rows, of_block, others), scratch);
                let row = self.bias.as_ref().and_then(|bias| bias.row(launch, point, from..from + keys, scratch));
                let row = row.map_or(std::ptr::null(), |row| row.cast::<T>());
                let adds_row = row.is_null() || {
                    let row = std::slice::from_raw_parts(row, keys);
                    !row.iter().fold(false, |any, &bias| any | self.softmax.hides(bias))
                };
                let ask = begun == 0;
                let mut block = KeyBlock {
                    from,
                    keys,
                    others,
                    key,
                    value,
                    row,
                    adds_row,
                    begun,
                    first,
                    runs: &runs,
                    queries,
                    output,
                    largest,
                    sums,
                };
                for (s, strip) in strips().enumerate() {
                    if let Some(next) = next.as_ref().filter(|_| ask) {
                        self.prefetch(launch, &tile, next, (&strip, rows));
                    }
                    match visibility(strip.clone(), n) {
                        Visibility::Hidden => {}
                        visibility => self.strip(launch, point, (s, strip, visibility), &mut block, scratch),
                    }
                }
                begun = block.begun;
            }
            for strip in strips() {
                for r in strip.clone().filter(|&r| self.divide(self.row(output, r), largest[r], sums[r])) {
                    let query = Matrix { at: queries.row::<T>(r), ..queries };
                    let place = runs.of(r..r + 1).next().map_or(0, |(_, queries)| first + queries.start);
                    self.attend_again(launch, point, (place, query), self.row(output, r), scratch);
                }
                if direct.is_none() {
                    let row = self.columns * size_of::<T>();
                    let at = output.at.add(strip.start * row);
                    for (of_strip, queries) in runs.of(strip) {
                        let queries = first + queries.start..first + queries.end;
                        self.epilogue.run(launch, point, queries, (at.add(of_strip * row), row), scratch);
                    }
                }
            }
        }
    }

    /// Some of a block's queries past its keys.
    ///
    /// # Safety
    /// As [`Attention::task`].
    unsafe fn strip(
        &self,
        launch: &ThunkContext<'_>,
        point: &[usize],
        (number, strip, visibility): (usize, Range<usize>, Visibility),
        block: &mut KeyBlock<'_, T>,
        scratch: *mut u8,
    ) {
        let &mut KeyBlock { from, keys, others, key, value, first: block_first, runs, queries, output, .. } = block;
        let different = others.map_or(keys, |others| others.len() + 1);
        let begun = block.begun >> number & 1 == 1;
        block.begun |= 1 << number;
        let bias = self.bias.as_ref().filter(|_| visibility == Visibility::Mixed);
        let row = if bias.is_some() { block.row } else { std::ptr::null() };
        let by_products = if block.adds_row { row } else { std::ptr::null() };
        let first = queries.rows * (strip.start * size_of::<T>()) as isize;
        let query = Matrix { at: queries.at.wrapping_offset(first), ..queries };
        // SAFETY: passed on from the caller.
        unsafe {
            let products = scratch.add(self.layout.products);
            let weights = Matrix { at: scratch.add(self.layout.scores), rows: keys as isize, columns: 1 };
            let extents = Extents { m: strip.len(), n: different, k: self.depth };
            let scaled = SumFinish { bias: by_products, ..SumFinish::scaled(self.scale) };
            self.blockings[0].run(extents, weights, (query.into(), key), scaled, products);
            let scores = std::slice::from_raw_parts_mut(weights.at.cast::<T>(), strip.len() * keys);
            if let Some(others) = others {
                scores.chunks_exact_mut(keys).for_each(|scores| shared_keys::spread(scores, others));
            }
            self.softmax.cap(scores);
            if !row.is_null() && by_products.is_null() {
                let row = std::slice::from_raw_parts(row, keys);
                scores.chunks_exact_mut(keys).for_each(|scores| self.softmax.add(scores, row));
            }
            if let Some(bias) = bias.filter(|bias| !bias.is_row) {
                for (of_strip, queries) in runs.of(strip.clone()) {
                    let scores = &mut scores[of_strip * keys..];
                    let queries = block_first + queries.start..block_first + queries.end;
                    bias.add(launch, point, (queries, from..from + keys), scores, &self.softmax, scratch);
                }
            }
            for (r, scores) in strip.clone().zip(scores.chunks_exact_mut(keys)) {
                let correction = self.softmax.step(scores, &mut block.largest[r], &mut block.sums[r]);
                if begun && correction != T::of(1.0) {
                    self.softmax.scale(self.row(output, r), correction);
                }
                if let Some(others) = others {
                    shared_keys::gather(scores, others);
                }
            }
            let target = Matrix { at: self.row(output, strip.start).as_mut_ptr().cast(), ..output };
            let extents = Extents { m: strip.len(), n: self.columns, k: different };
            let added = SumFinish { add: begun, ..SumFinish::scaled(T::of(1.0)) };
            self.blockings[1].run(extents, target, (weights.into(), value), added, products);
        }
    }

    /// A query's output.
    ///
    /// # Safety
    /// The output must have the row, which nothing else refers to.
    unsafe fn row<'a>(&self, output: Matrix, row: usize) -> &'a mut [T] {
        let at = output.at.cast::<T>().wrapping_offset(row as isize * output.rows);
        // SAFETY: the caller promises the output of so many queries, whose columns lie side by side.
        unsafe { std::slice::from_raw_parts_mut(at, self.columns) }
    }

    /// Divides a query's output by its sum of weights. Returns whether a value that the bias hides may have made it NaN.
    fn divide(&self, out: &mut [T], largest: T, sum: T) -> bool {
        // A row whose sum is NaN has a score that is NaN, and is not empty.
        let empty = largest == T::of(f64::NEG_INFINITY) && sum == T::of(0.0);
        let zeros = match self.empty {
            _ if self.keys == 0 => true,
            EmptyRow::Nan => false,
            EmptyRow::Zeros => empty,
            EmptyRow::Guarded => empty || sum.is_nan(),
        };
        if zeros || empty {
            out.fill(T::of(if zeros { 0.0 } else { f64::NAN }));
            return false;
        }
        let is_nan = self.softmax.finish(out, T::of(1.0).over(sum));
        is_nan && self.bias.is_some() && self.empty.selects() && !sum.is_nan()
    }
}

/// Batch axes on which neither keys nor values depend as queries, where everything else reads as more of these.
fn batch_into_queries(
    operands: [Grouped; 3],
    bias: Option<Grouped>,
    body: Grouped,
) -> ([Grouped; 3], Option<Grouped>, Grouped) {
    let ([mut query, mut key, mut value], mut bias, mut body) = (operands, bias, body);
    while let Some(axis) = body.groups[0].checked_sub(1) {
        if key.nest.depends_on(axis) || value.nest.depends_on(axis) {
            break;
        }
        let of_bias = bias.as_ref().map(Grouped::batch_into_rows);
        let (Some(q), Some(b), None | Some(Some(_))) = (query.batch_into_rows(), body.batch_into_rows(), &of_bias)
        else {
            break;
        };
        (query, key, value, body) = (q, key.without_batch(), value.without_batch(), b);
        bias = of_bias.flatten();
    }
    ([query, key, value], bias, body)
}

/// Queries of which a program's registers hold rows of so many elements: strips are cut evenly.
fn rows(elements: usize) -> usize {
    let fits = |rows: &usize| STRIP.is_multiple_of(*rows) && rows * elements <= REGISTER;
    (1..=STRIP).rev().find(fits).unwrap_or(1)
}

/// Keys of a block, by the extents alone; of keys in several axes, boxes if that can be: multiples of what is inside of the outermost one.
fn key_block(keys: usize, whole: Option<usize>) -> usize {
    let boxes = whole.filter(|&n| n > 0 && n <= KEYS).map_or(KEYS, |n| KEYS / n * n);
    if keys <= SINGLE { keys.max(1) } else { boxes }
}

impl<T: AttentionElement + ProductElement> Thunk for Attention<T> {
    fn name(&self) -> &'static str {
        "blocks of queries"
    }

    unsafe fn run(&self, launch: &ThunkContext<'_>) {
        if self.empty_result {
            return;
        }
        // SAFETY: passed on from the caller.
        unsafe {
            self.operands().for_each(|operand| operand.prepare(launch));
        }
        let products = self.points * self.queries * self.keys;
        let serial = products.saturating_mul(self.depth + self.columns) < 1 << 17;
        // SAFETY: passed on from the caller.
        launch.workers.for_each(self.grid.count(), serial, &|n, scratch| unsafe { self.task(launch, n, scratch) });
    }

    fn scratch(&self) -> usize {
        self.operands().map(Operand::scratch).fold(self.layout.end, usize::max)
    }

    fn buffers(&self) -> Vec<usize> {
        self.added.clone()
    }
}
