//! Products of few rows. Neighbouring threads load neighbouring terms of some columns and all rows into registers, and
//! add their sums at the end of the depth. The kernel takes as long as reading the right operand.

use eutectic_backend::axes::FEW;
use eutectic_gpu::{device::DeviceShape, dialect::Dialect, launch::Launch};
use eutectic_ir::DType;

use super::{
    matrices::EIGHT,
    parts::{Epilogue, PrintedOperand},
    product::{Product, TilePoints},
};

const THREADS: usize = 128;
/// The maximal number of columns, and of sums, per thread.
const COLUMNS: usize = 4;
const SUMS: usize = 16;
/// The number of blocks per processor below which all threads of a block share its columns.
const RESIDENT: usize = 8;
/// Steps of the depth whose loads are in flight at once.
const STEPS: usize = 2;

/// Prints a product of few rows whose operands are contiguous along the depth; `None` for other products.
///
/// # Errors
/// Returns the reasons why it cannot be printed.
pub fn print(product: &Product<'_>, shape: &DeviceShape) -> Option<Result<Launch, Vec<String>>> {
    let [b, m, n, k] = product.extents;
    let size = product.dialect.subgroup?;
    let operands = product.operands(EIGHT).ok()?;
    let count = operands[1].lanes.count;
    let lies = operands.iter().all(|operand| operand.along && operand.lanes.count == count) && count.is_multiple_of(4);
    let is_block = THREADS <= shape.threads && THREADS.is_multiple_of(size);
    if product.sum != DType::F32 || !(1..=FEW).contains(&m) || b * n * k == 0 || !lies || !is_block {
        return None;
    }
    let columns = COLUMNS.min(1 << (SUMS / m).ilog2());
    let sets = n.div_ceil(columns);
    // The number of column sets per block, and of subgroups that share one.
    let subgroups = THREADS / size;
    let (sets_of_block, sharing) =
        if b * sets < subgroups * RESIDENT * shape.processors { (1, subgroups) } else { (subgroups, 1) };
    let few = FewRows { product, operands, columns, sets_of_block, sharing, size };
    Some(few.print(sets.div_ceil(sets_of_block)))
}

struct FewRows<'a> {
    product: &'a Product<'a>,
    operands: [PrintedOperand; 2],
    /// Columns per set.
    columns: usize,
    sets_of_block: usize,
    /// The number of subgroups that share a set.
    sharing: usize,
    /// Threads per subgroup.
    size: usize,
}

impl FewRows<'_> {
    /// Prints the kernel with `blocks` blocks per batch point.
    fn print(&self, blocks: usize) -> Result<Launch, Vec<String>> {
        let FewRows { product, columns, sets_of_block, sharing, size, .. } = *self;
        let Product { dialect, kernel, extents: [b, m, ..], .. } = *product;
        let epilogue = Epilogue::print(dialect, &product.own, &kernel.slots, columns, "m")?;
        let points = TilePoints { product, epilogue: &epilogue, parts: 1 };
        let lanes = points.lanes();
        let of_set = m * columns;
        let sums = || (0..m).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let mut body = dialect.place("thread", "block");
        body += &format!(
            "\nif (block >= {}) {{ return; }}\nlet b = block / {blocks};\nlet first = block % {blocks} * {};\n\
             let n0 = first + thread / {} % {sets_of_block} * {columns};\n",
            blocks * b,
            sets_of_block * columns,
            size * sharing,
        );
        sums().for_each(|(row, column)| body += &format!("var sum{row}_{column} = 0.0;\n"));
        body += &self.depth();
        for (row, column) in sums() {
            let name = format!("sum{row}_{column}");
            let halves = (0..size.ilog2()).map(|n| 1 << n);
            halves.for_each(|with| body += &format!("{name} += subgroupShuffleXor({name}, {with}u);\n"));
        }
        body += &format!("if (thread % {size} == 0) {{\n");
        for (row, column) in sums() {
            body += &format!("results[thread / {size} * {of_set} + {}] = sum{row}_{column};\n", row * columns + column);
        }
        // Each thread stores some neighbours of a row.
        let of_row = columns / lanes;
        body += &format!(
            "}}\nworkgroupBarrier();\nif (thread >= {}) {{ return; }}\nlet own = thread / {of_row} / {m};\n\
             let m = thread / {of_row} % {m};\nlet at = thread % {of_row} * {lanes};\nlet at_n = first + own * {columns} + at;\n",
            sets_of_block * m * of_row
        );
        body += &points.at(|lane| {
            let part = |n: usize| format!("results[(own * {sharing} + {n}) * {of_set} + m * {columns} + at + {lane}]");
            format!("({})", (0..sharing).map(part).collect::<Vec<_>>().join(" + "))
        });
        let before = format!("var<workgroup> results: array<f32, {}>;\n", THREADS / size * of_set);
        let text = dialect.text(&kernel.slots, THREADS, &before, &body);
        Ok(Launch::new(text, [blocks * b, 1, 1], THREADS))
    }

    /// Returns statements that add the products of a thread's terms.
    fn depth(&self) -> String {
        let FewRows { product, columns, sharing, size, ref operands, .. } = *self;
        let [_, m, n, k] = product.extents;
        let (groups, threads) = (k / operands[0].lanes.count, size * sharing);
        let steps = if groups.is_multiple_of(threads * STEPS) { STEPS } else { 1 };
        let mut text =
            format!("for (var group = thread % {threads}; group < {groups}; group += {}) {{\n", threads * steps);
        for step in 0..steps {
            let at = format!("group + {}", step * threads);
            let of = |name: &str, operand: &PrintedOperand, outer: &str| operand.vectors(name, [outer, &at], "true");
            for column in 0..columns {
                // Loads beyond the end repeat the last column.
                text += &of(&format!("right{step}_{column}_"), &operands[1], &format!("min(n0 + {column}, {})", n - 1));
            }
            (0..m).for_each(|row| text += &of(&format!("left{step}_{row}_"), &operands[0], &row.to_string()));
        }
        for (step, row, column) in
            (0..steps).flat_map(|step| (0..m).flat_map(move |row| (0..columns).map(move |column| (step, row, column))))
        {
            for v in 0..operands[0].lanes.count / 4 {
                text += &format!("sum{row}_{column} += dot(left{step}_{row}_{v}, right{step}_{column}_{v});\n");
            }
        }
        text + "}\n"
    }
}
