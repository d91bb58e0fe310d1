//! Attention: scores for a block of queries and a block of keys at a time, with a running softmax.

use eutectic_backend::EmptyRow;
use eutectic_ir::DType;

use super::{
    Launch, Slots, Thunk,
    gemm::{Extents, Finish, Plan, Product, Right},
    operand::{Matrix, Operand},
};
use crate::{
    axes::{Nest, normalise_batch},
    memory::ALIGN,
    simd::{
        Isa,
        convert::register,
        softmax::{Rows, Softmax},
    },
    tile::{self, Frame, Grid, MAX_RANK, Part, TileProgram},
};

/// Keys in a block; fewer are one block.
const KEYS: usize = 512;
/// Sequences of keys up to this length are one block.
const SINGLE: usize = 1024;
/// Scores in a block.
const SCORES: usize = 1 << 17;
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
    plan: Plan<T>,
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
    /// The bias, its result, and how many rows of a block of scores its registers hold.
    bias: Option<(TileProgram, usize, usize)>,
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
    scores: usize,
    output: usize,
    largest: usize,
    sums: usize,
    products: usize,
    end: usize,
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
        let query_block = grid.len()[batch];

        let mut program = |nest: &Nest, row: usize| {
            tile::compile(nest, 0, &slots.types, isa).map_err(|p| problems.extend(p)).ok().map(|mut program| {
                let rows = (REGISTER / row.max(1)).clamp(1, query_block.max(1));
                let mut len = [1; MAX_RANK];
                (len[batch], len[batch + 1]) = (rows, row.max(1));
                program.allocate(&len);
                (program, rows)
            })
        };
        let bias = match nests.get(3) {
            None => Some(None),
            Some(nest) => program(nest, key_block).map(|(p, rows)| {
                let result = p.results[0];
                Some((p, result, rows))
            }),
        };
        let epilogue = program(&body, columns);
        if let Some(Some((p, result, _))) = &bias
            && p.values[*result].dtype != acc
        {
            problems.push(format!("attention in {acc} with a bias of {}", p.values[*result].dtype));
        }
        problems.sort();
        problems.dedup();
        let (Some(bias), Some((epilogue, epilogue_rows)), true) = (bias, epilogue, problems.is_empty()) else {
            return Err(problems);
        };
        let [query, key, value] = <[Operand; 3]>::try_from(compiled).unwrap_or_else(|_| unreachable!("no problem"));
        let programs = epilogue.scratch.max(bias.as_ref().map_or(0, |b| b.0.scratch));
        let mut attention = Attention {
            plan: Plan::new(isa, true),
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
        let scores = place(query_block * self.key_block);
        let output = place(query_block * self.columns);
        let largest = place(query_block);
        let sums = place(query_block);
        let products = place(0);
        let scores_of = Extents { m: query_block, n: self.key_block, k: self.depth };
        let output_of = Extents { m: query_block, n: self.columns, k: self.key_block };
        end += self.plan.scratch(scores_of).max(self.plan.scratch(output_of));
        Layout { scores, output, largest, sums, products, end }
    }

    unsafe fn task(&self, launch: &Launch<'_>, n: usize, scratch: *mut u8) {
        let tile = self.grid.tile(n);
        let point = &tile.start[..self.batch];
        let (first, rows) = (tile.start[self.batch], tile.len[self.batch]);
        let query = self.query.matrix(launch.slots, point, first, 0);
        // SAFETY: the layout was made for blocks of this size; see `lay_out`.
        unsafe {
            let scores = scratch.add(self.layout.scores);
            let output = scratch.add(self.layout.output);
            let products = scratch.add(self.layout.products);
            let largest = std::slice::from_raw_parts_mut(scratch.add(self.layout.largest).cast::<T>(), rows);
            let sums = std::slice::from_raw_parts_mut(scratch.add(self.layout.sums).cast::<T>(), rows);
            largest.fill(T::of(f64::NEG_INFINITY));
            sums.fill(T::of(0.0));
            let target = Matrix { at: output, rows: self.columns as isize, columns: 1 };
            if self.keys == 0 {
                std::slice::from_raw_parts_mut(output.cast::<T>(), rows * self.columns).fill(T::of(0.0));
            }
            let mut from = 0;
            while from < self.keys {
                let keys = self.key_block.min(self.keys - from);
                let key = self.key.matrix(launch.slots, point, from, 0);
                let key = Matrix { rows: key.columns, columns: key.rows, ..key };
                let block = Matrix { at: scores, rows: keys as isize, columns: 1 };
                let extents = Extents { m: rows, n: keys, k: self.depth };
                self.plan.run(extents, block, (query.into(), Right::Plain(key)), Finish::scaled(self.scale), products);
                let scores = std::slice::from_raw_parts_mut(scores.cast::<T>(), rows * keys);
                self.softmax.cap(scores);
                self.add_bias(launch, &tile, from, keys, scores, scratch);
                for r in 0..rows {
                    let row = &mut scores[r * keys..][..keys];
                    let correction = self.softmax.step(row, &mut largest[r], &mut sums[r]);
                    if from > 0 && correction != T::of(1.0) {
                        let out = output.cast::<T>().add(r * self.columns);
                        self.softmax.scale(std::slice::from_raw_parts_mut(out, self.columns), correction);
                    }
                }
                let value = self.value.matrix(launch.slots, point, from, 0);
                let extents = Extents { m: rows, n: self.columns, k: keys };
                let sums = Finish { add: from > 0, ..Finish::scaled(T::of(1.0)) };
                self.plan.run(extents, target, (block.into(), Right::Plain(value)), sums, products);
                from += keys;
            }
            for r in 0..rows {
                let out = std::slice::from_raw_parts_mut(output.cast::<T>().add(r * self.columns), self.columns);
                if largest[r] == T::of(f64::NEG_INFINITY) {
                    let zeros = self.empty == EmptyRow::Zeros || self.keys == 0;
                    out.fill(T::of(if zeros { 0.0 } else { f64::NAN }));
                } else {
                    self.softmax.scale(out, T::of(1.0).over(sums[r]));
                }
            }
            self.finish(launch, &tile, output, scratch, size_of::<T>());
        }
    }

    unsafe fn add_bias(
        &self,
        launch: &Launch<'_>,
        tile: &tile::Tile,
        from: usize,
        keys: usize,
        scores: &mut [T],
        scratch: *mut u8,
    ) {
        let Some((program, result, strip)) = &self.bias else { return };
        let frame =
            Frame { slots: launch.slots, scratch, anchor: std::ptr::null(), direct: false, fault: launch.fault };
        let rows = tile.len[self.batch];
        for row in (0..rows).step_by(*strip) {
            let mut part = *tile;
            part.start[self.batch] += row;
            part.len[self.batch] = (*strip).min(rows - row);
            (part.start[self.batch + 1], part.len[self.batch + 1]) = (from, keys);
            // SAFETY: registers were placed for strips of this size; the result is one of them.
            unsafe {
                program.run(&frame, &part, Part::WHOLE);
                let (at, strides) = program.result(&frame, &part, *result);
                for r in 0..part.len[self.batch] {
                    let line = &mut scores[(row + r) * keys..][..keys];
                    let bias = at.cast::<T>().offset(r as isize * strides[self.batch]);
                    match strides[self.batch + 1] {
                        0 => line.iter_mut().for_each(|s| *s = s.plus(*bias)),
                        _ => self.softmax.add(line, std::slice::from_raw_parts(bias, keys)),
                    }
                }
            }
        }
    }

    unsafe fn finish(&self, launch: &Launch<'_>, tile: &tile::Tile, output: *mut u8, scratch: *mut u8, size: usize) {
        let rows = tile.len[self.batch];
        for row in (0..rows).step_by(self.epilogue_rows) {
            let mut part = *tile;
            part.start[self.batch] += row;
            part.len[self.batch] = self.epilogue_rows.min(rows - row);
            let frame = Frame {
                slots: launch.slots,
                scratch,
                // SAFETY: within the output block.
                anchor: unsafe { output.add(row * self.columns * size) },
                direct: !launch.in_place,
                fault: launch.fault,
            };
            // SAFETY: registers were placed for strips of this size.
            unsafe { self.epilogue.run(&frame, &part, Part::WHOLE) };
        }
    }
}

/// Queries and keys of a block, by the extents alone.
fn blocks(queries: usize, keys: usize) -> (usize, usize) {
    let key_block = if keys <= SINGLE { keys.max(1) } else { KEYS };
    (queries.min((SCORES / key_block).clamp(32, 256)).max(1), key_block)
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
