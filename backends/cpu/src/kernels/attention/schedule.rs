//! Compiles attention: divides queries and keys into blocks, compiles the operands, and lays out scratch memory.

use std::ops::Range;

use eutectic_backend::{
    ScoreForm,
    grouped::{COLUMNS, Grouped, ROWS},
};
use eutectic_ir::{DType, bounded::hiding};

use super::{
    Attention, ScratchLayout,
    bias::Bias,
    epilogue::AttentionEpilogue,
    operands::AttentionOperand,
    runs::{STRIP, query_block, strips_of},
    shared_keys::SharedKeys,
};
use crate::{
    gemm::{
        blocking::Blocking,
        product::{Extents, ProductElement},
    },
    kernels::{operand::Operand, slots::Slots},
    runtime::{memory::ALIGN, thunk::Thunk},
    simd::{
        Isa,
        softmax::{AttentionElement, Softmax},
    },
    tile::{Grid, MAX_RANK, span::parts},
};

/// The maximal number of keys per block of a long sequence.
const KEYS: usize = 512;
/// The maximal length of a sequence of keys that is one block.
const SINGLE: usize = 1024;
/// The number of keys per block of a short sequence, if a mask then hides enough blocks.
const SHORT: usize = 256;
/// The share of hidden blocks from which on shorter blocks of keys pay.
const WORTH: f64 = 0.125;
/// The maximal number of elements of a register, the buffer of a value in the tile programs of the bias and the
/// epilogue.
const REGISTER: usize = 4096;

/// The parts of an attention kernel.
pub struct AttentionParts {
    /// Query, key and value.
    pub operands: [Grouped; 3],
    /// The bias of the scores.
    pub bias: Option<Grouped>,
    /// The epilogue of the result.
    pub body: Grouped,
    /// The function that makes scores from products.
    pub form: ScoreForm,
}

/// Compiles attention that accumulates in `acc`.
///
/// # Errors
/// Returns every reason why attention cannot be compiled.
pub fn compile(
    attention: AttentionParts,
    acc: DType,
    slots: &mut Slots,
    isa: Isa,
) -> Result<Box<dyn Thunk>, Vec<String>> {
    match acc {
        DType::F32 => Attention::<f32>::compile(attention, DType::F32, slots, isa),
        DType::F64 => Attention::<f64>::compile(attention, DType::F64, slots, isa),
        other => Err(vec![format!(
            "cannot compute `attention` in {other} because the CPU has kernels for f32 and f64 only; \
             cast its operands to f32"
        )]),
    }
}

/// The division of an attention into tasks, and of each task into blocks of keys and strips of queries.
struct Division {
    grid: Grid,
    query_block: usize,
    key_block: usize,
    strips: Vec<Range<usize>>,
}

impl Division {
    /// Divides an attention with this body over `keys` keys. Records in the bias which blocks it hides.
    fn new(body: &Grouped, keys: usize, bias: Option<(&mut Bias, &Grouped)>) -> Division {
        let [queries, columns] = [ROWS, COLUMNS].map(|group| body.points(group));
        let batch = body.groups[0];
        let mut key_block = key_block(keys, bias.as_ref().map(|(bias, _)| bias.whole()));
        let points = body.nest.domain[..batch].iter().product();
        let mut grid_len = [1; MAX_RANK];
        (grid_len[batch], grid_len[batch + 1]) = (query_block(points, queries), columns.max(1));
        let grid = Grid::new(&[&body.nest.domain[..batch], &[queries, columns]].concat(), u8::MAX, &grid_len);
        let query_block = grid.len()[batch];
        let strips: Vec<_> = parts(0..queries, query_block).flat_map(strips_of).collect();
        let together = query_block.div_ceil(STRIP).max(1);
        if let Some((bias, of)) = bias {
            // Shorter blocks of keys pay if some of them can then be skipped.
            let short = (key_block > SHORT).then(|| parts(0..keys, SHORT).collect::<Vec<_>>());
            if short.is_some_and(|short| keys <= SINGLE && bias.look(of, &strips, together, &short) >= WORTH) {
                key_block = SHORT;
            }
            let blocks: Vec<_> = parts(0..keys, key_block).collect();
            bias.look(of, &strips, together, &blocks);
        }
        Division { grid, query_block, key_block, strips }
    }

    /// Returns the blocks of queries and of keys.
    fn blocks(&self, queries: usize, keys: usize) -> [Vec<Range<usize>>; 2] {
        [parts(0..queries, self.query_block), parts(0..keys, self.key_block)].map(Iterator::collect)
    }
}

impl<T: AttentionElement + ProductElement> Attention<T> {
    fn compile(
        attention: AttentionParts,
        acc: DType,
        slots: &mut Slots,
        isa: Isa,
    ) -> Result<Box<dyn Thunk>, Vec<String>> {
        let AttentionParts { operands, bias, body, form } = batch_into_queries(attention);
        let (body, bias_form) = (body.simple(COLUMNS).simple(ROWS), bias.map(|b| b.simple(COLUMNS).simple(ROWS)));
        let [queries, columns] = [ROWS, COLUMNS].map(|group| body.points(group));
        let [keys, depth] = [ROWS, COLUMNS].map(|group| operands[1].points(group));
        let batch = body.groups[0];
        let mut problems = Vec::new();
        let bias = bias_form.as_ref().map(|bias| compile_bias(bias, acc, form.softcap, slots, isa));
        let mut bias = bias.transpose().map_err(|p| problems.extend(p)).ok();
        if batch + 2 > MAX_RANK {
            return Err(vec![format!(
                "cannot compute `attention` because its {batch} batch axes do not merge to fewer; \
                 reshape them to one axis"
            )]);
        }
        let division = Division::new(&body, keys, bias.as_mut().and_then(Option::as_mut).zip(bias_form.as_ref()));
        // One task reads a block of queries. A block of keys and values also has only one reader if a task has all
        // queries of a batch point.
        let [of_queries, of_keys] = &division.blocks(queries, keys);
        let of_keys = (of_queries.len() == 1).then_some(of_keys.as_slice());
        let Division { grid, query_block, key_block, strips } = division;
        let mut blockings =
            [key_block, columns].map(|n| Blocking::new(isa, [query_block.min(STRIP), n]).reading_once(query_block));
        let query = AttentionOperand::compile(&operands[0], acc, slots, isa, Some(of_queries));
        let mut compiled = vec![query];
        for (operand, blocking) in operands[1..].iter().zip(&mut blockings) {
            let short = AttentionOperand::short(operand, slots, isa, blocking);
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
        let [query, key, value] = <[AttentionOperand; 3]>::try_from(compiled)
            .unwrap_or_else(|_| unreachable!("an operand that does not compile has reported a problem"));
        let shared_keys = SharedKeys::new(&key, &value, key_block);
        if let Some(bias) = &mut bias {
            // The products add a bias of one row themselves. They cannot if equal keys are merged, because a product
            // then has fewer columns than the bias.
            bias.is_row &= shared_keys.is_none();
            bias.allocate(rows(key_block), strips.iter().cloned(), parts(0..keys, key_block));
        }
        epilogue.allocate(rows(columns), strips.into_iter());
        let mut attention = Attention {
            blockings,
            empty_result: body.nest.domain.contains(&0),
            points: body.nest.domain[..batch].iter().product(),
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
        attention.layout = attention.lay_out(query_block, acc.size());
        Ok(Box::new(attention))
    }

    /// Lays out a worker's scratch memory. The registers of the tile programs, which run one at a time, come first.
    fn lay_out(&self, query_block: usize, size: usize) -> ScratchLayout {
        let registers = [&self.query, &self.key, &self.value].map(AttentionOperand::registers);
        let others = [self.epilogue.program.scratch, self.bias.as_ref().map_or(0, |b| b.program.scratch)];
        let programs = registers.into_iter().chain(others).max().unwrap_or(0);
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
            // Queries that are not contiguous are gathered.
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
}

/// Compiles a bias of scores in `acc`.
fn compile_bias(bias: &Grouped, acc: DType, softcap: f64, slots: &Slots, isa: Isa) -> Result<Bias, Vec<String>> {
    let mut bias = Bias::compile(bias, slots, isa)?;
    bias.is_row &= softcap == 0.0;
    let dtype = bias.dtype();
    if dtype == acc {
        Ok(bias)
    } else {
        Err(vec![format!("cannot compute `attention` in {acc} because its bias is {dtype}; cast the bias to {acc}")])
    }
}

/// Merges batch axes into the queries if neither keys nor values depend on them. The query, the bias and the body must
/// be readable with these axes as axes of queries.
fn batch_into_queries(attention: AttentionParts) -> AttentionParts {
    let AttentionParts { operands: [mut query, mut key, mut value], mut bias, mut body, form } = attention;
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
    AttentionParts { operands: [query, key, value], bias, body, form }
}

/// Returns the number of queries whose rows of `elements` elements fit into a program's registers. It divides strips
/// evenly.
fn rows(elements: usize) -> usize {
    let fits = |rows: &usize| STRIP.is_multiple_of(*rows) && rows * elements <= REGISTER;
    (1..=STRIP).rev().find(fits).unwrap_or(1)
}

/// Returns the number of keys per block, by the extents alone. If the keys have several axes, blocks are boxes if
/// possible: multiples of `whole`, the keys per point of the outermost axis.
fn key_block(keys: usize, whole: Option<usize>) -> usize {
    let boxes = whole.filter(|&n| n > 0 && n <= KEYS).map_or(KEYS, |n| KEYS / n * n);
    if keys <= SINGLE { keys.max(1) } else { boxes }
}
