//! Computes attention, one block of queries and one block of keys at a time, with a running softmax.
//!
//! A block of queries and keys is skipped if all of its biases are −∞, as above the diagonal of a causal mask. If they
//! are known to be 0, the bias is not evaluated. Keys and values of a block are packed once. Queries are multiplied
//! with them one strip (a few queries) at a time. The scores of a strip stay in the first-level cache between the
//! products with keys and with values.

mod bias;
mod epilogue;
mod operands;
mod packing;
mod poisoned;
mod runs;
mod schedule;
mod shared_keys;

use std::ops::Range;

use eutectic_backend::{EmptyRow, intervals::Visibility};

use self::{
    bias::Bias,
    epilogue::AttentionEpilogue,
    operands::AttentionOperand,
    runs::{Runs, STRIP, StripSet, strips_of},
    shared_keys::SharedKeys,
};
pub use self::{
    runs::query_block,
    schedule::{AttentionParts, compile},
};
use super::operand::Operand;
use crate::{
    gemm::{
        blocking::Blocking,
        matrix::{Matrix, Stretch},
        micro::call::SumFinish,
        product::{Extents, ProductElement},
        right::Right,
    },
    runtime::thunk::{Thunk, ThunkContext},
    simd::softmax::{AttentionElement, Softmax},
    tile::Grid,
};

struct Attention<T: 'static> {
    /// The blockings of products of queries with keys, and of weights with values.
    blockings: [Blocking<T>; 2],
    /// Whether the result has no elements.
    empty_result: bool,
    /// The number of points of the batch axes, and the number of these axes.
    points: usize,
    batch: usize,
    /// The extents: queries, keys, terms of a score, and columns of the values.
    queries: usize,
    keys: usize,
    depth: usize,
    columns: usize,
    /// The division into tasks. Each task has a batch point and a block of queries.
    grid: Grid,
    key_block: usize,
    query: AttentionOperand,
    key: AttentionOperand,
    value: AttentionOperand,
    shared_keys: Option<SharedKeys>,
    bias: Option<Bias>,
    /// The destination, if the result may be written directly; otherwise the epilogue stores it.
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
    /// The room for queries, keys and values that a task evaluates.
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

/// The state of a block of queries.
struct QueryBlock<'a, T> {
    /// Its coordinates along the batch axes.
    point: &'a [usize],
    /// The number of its first query, and the runs of queries that are computed, counted from that query.
    first: usize,
    runs: &'a Runs,
    /// The number of its first strip, counted over all queries of the batch point.
    first_strip: usize,
    queries: Matrix,
    /// The output of the queries, which may be the destination.
    output: Matrix,
    is_direct: bool,
    /// The largest score and the sum of weights of each query, over the keys that were processed.
    largest: &'a mut [T],
    sums: &'a mut [T],
    /// The strips of queries that have already processed keys.
    begun: StripSet,
}

/// A block of keys, prepared for a block of queries.
struct KeyBlock<T> {
    /// The number of its first key, and its number of keys.
    from: usize,
    keys: usize,
    /// The keys that differ from the equal ones, if equal keys are merged (`shared_keys`).
    others: Option<Runs>,
    key: Right<'static>,
    value: Right<'static>,
    /// The row of the bias if all queries have the same row, otherwise null. If `adds_row` is set, the row has no −∞,
    /// and products may add it. An element of −∞ must replace the score.
    row: *const T,
    adds_row: bool,
}

impl<T> QueryBlock<'_, T> {
    /// Returns the strips of queries that are computed.
    fn strips(&self) -> impl Iterator<Item = Range<usize>> + use<T> {
        strips_of(0..self.largest.len())
    }
}

impl<T: AttentionElement + ProductElement> Attention<T> {
    /// Returns the queries, keys and values that are not evaluated in tasks.
    fn operands(&self) -> impl Iterator<Item = &Operand> {
        [&self.query, &self.key, &self.value].into_iter().filter_map(AttentionOperand::whole)
    }

    /// Computes a task: a block of queries, with all keys.
    ///
    /// # Safety
    /// The requirements of [`Thunk::run`] apply; scratch memory must have the bytes that the thunk states.
    unsafe fn task(&self, launch: &ThunkContext<'_>, n: usize, scratch: *mut u8) {
        let tile = self.grid.tile(n);
        let (point, first) = (&tile.start[..self.batch], tile.start[self.batch]);
        let block = Stretch::new(first, tile.len[self.batch]);
        let runs = self.epilogue.runs(point, block);
        let rows = runs.len();
        if rows == 0 {
            return;
        }
        // SAFETY: passed on from the caller; `lay_out` made room for blocks of this size.
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
            let place = self.layout.evaluated[0];
            let mut block = QueryBlock {
                point,
                first,
                runs: &runs,
                first_strip: first / self.grid.len()[self.batch] * self.grid.len()[self.batch].div_ceil(STRIP),
                queries: self.query.runs::<T>(launch, point, (block, &runs), self.depth, scratch, place),
                output,
                is_direct: direct.is_some(),
                largest,
                sums,
                begun: 0,
            };
            let next = (rows > STRIP && n + 1 < self.grid.count()).then(|| self.grid.tile(n + 1));
            for number in 0..self.keys.div_ceil(self.key_block) {
                if block.strips().all(|strip| self.visibility(&block, strip, number) == Visibility::Hidden) {
                    continue;
                }
                let keys = self.prepare_keys(launch, &block, number, scratch);
                let next = next.as_ref().filter(|_| block.begun == 0);
                for (s, strip) in block.strips().enumerate() {
                    if let Some(next) = next {
                        self.prefetch(launch, &tile, next, (&strip, rows));
                    }
                    match self.visibility(&block, strip.clone(), number) {
                        Visibility::Hidden => {}
                        visibility => self.strip(launch, &mut block, &keys, (s, strip, visibility), scratch),
                    }
                }
            }
            self.finish(launch, &block, scratch);
        }
    }

    /// Returns the effect of the bias on the scores of a strip and a block of keys.
    fn visibility(&self, block: &QueryBlock<'_, T>, strip: Range<usize>, keys: usize) -> Visibility {
        let Some(bias) = &self.bias else { return Visibility::Plain };
        match bias.visibility(block.runs.strips(strip).map(|strip| block.first_strip + strip), keys) {
            // If the bias is added to scores and does not select them, a score of NaN must stay visible under a bias of
            // −∞.
            Visibility::Hidden if !self.empty.selects() => Visibility::Mixed,
            visibility => visibility,
        }
    }

    /// Prepares block `number` of keys and values for a block of queries.
    ///
    /// # Safety
    /// The requirements of [`Attention::task`] apply.
    unsafe fn prepare_keys(
        &self,
        launch: &ThunkContext<'_>,
        block: &QueryBlock<'_, T>,
        number: usize,
        scratch: *mut u8,
    ) -> KeyBlock<T> {
        let from = number * self.key_block;
        let keys = self.key_block.min(self.keys - from);
        let of_block = Stretch::new(from, keys);
        let others = self.shared_keys.as_ref().and_then(|shared| shared.others(block.point, of_block));
        // SAFETY: passed on from the caller.
        unsafe {
            let packed = (block.largest.len(), of_block, others.as_ref());
            let [key, value] = self.pack(launch, block.point, packed, scratch);
            let row = self.bias.as_ref().and_then(|bias| bias.row(launch, block.point, from..from + keys, scratch));
            let row = row.map_or(std::ptr::null(), |row| row.cast::<T>());
            let adds_row = row.is_null() || {
                let row = std::slice::from_raw_parts(row, keys);
                !row.iter().fold(false, |any, &bias| any | self.softmax.hides(bias))
            };
            KeyBlock { from, keys, others, key, value, row, adds_row }
        }
    }

    /// Divides the output of a block's queries by their sums of weights, and stores it by the epilogue if it is not
    /// written directly.
    ///
    /// # Safety
    /// The requirements of [`Attention::task`] apply; all keys must have been processed.
    unsafe fn finish(&self, launch: &ThunkContext<'_>, block: &QueryBlock<'_, T>, scratch: *mut u8) {
        let &QueryBlock { point, first, runs, queries, output, is_direct, .. } = block;
        for strip in block.strips() {
            // SAFETY: passed on from the caller; the rows belong to the block.
            unsafe {
                for r in strip.clone() {
                    if self.divide(self.row(output, r), block.largest[r], block.sums[r]) {
                        let query = Matrix { at: queries.row::<T>(r), ..queries };
                        let place = runs.of(r..r + 1).next().map_or(0, |(_, queries)| first + queries.start);
                        self.attend_again(launch, point, (place, query), self.row(output, r), scratch);
                    }
                }
                if !is_direct {
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

    /// Processes a block of keys for strip `number` of a block of queries: computes scores, updates the running
    /// softmax, and adds weighted values to the output.
    ///
    /// # Safety
    /// The requirements of [`Attention::task`] apply.
    unsafe fn strip(
        &self,
        launch: &ThunkContext<'_>,
        block: &mut QueryBlock<'_, T>,
        of_keys: &KeyBlock<T>,
        (number, strip, visibility): (usize, Range<usize>, Visibility),
        scratch: *mut u8,
    ) {
        let &mut QueryBlock { point, first: block_first, runs, queries, output, .. } = block;
        let KeyBlock { from, keys, key, value, .. } = *of_keys;
        let others = of_keys.others.as_ref();
        let different = others.map_or(keys, |others| others.len() + 1);
        let begun = block.begun >> number & 1 == 1;
        block.begun |= 1 << number;
        let bias = self.bias.as_ref().filter(|_| visibility == Visibility::Mixed);
        let row = if bias.is_some() { of_keys.row } else { std::ptr::null() };
        let by_products = if of_keys.adds_row { row } else { std::ptr::null() };
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

    /// Returns a query's output.
    ///
    /// # Safety
    /// The output must have the row, which nothing else refers to.
    unsafe fn row<'a>(&self, output: Matrix, row: usize) -> &'a mut [T] {
        let at = output.at.cast::<T>().wrapping_offset(row as isize * output.rows);
        // SAFETY: the caller promises the output of these queries, with contiguous columns.
        unsafe { std::slice::from_raw_parts_mut(at, self.columns) }
    }

    /// Divides a query's output by its sum of weights. Returns whether a value that the bias hides may have made the
    /// output NaN.
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
