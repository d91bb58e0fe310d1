//! Defines the differences between the languages in which kernels are printed: types, literals and memory accesses.

use eutectic_ir::{
    DType,
    attr::Number,
    ops::{Ids, Reduction},
};

/// The threads of a block that work on one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Team {
    /// Threads per row.
    pub threads: usize,
    /// Rows per block.
    pub rows: usize,
    /// Whether neighbouring threads work on the same row; otherwise they work on neighbouring rows.
    pub along: bool,
    /// Blocks of a cluster that share a row, each with `threads` threads. If there are several, a block has one row.
    pub blocks: usize,
}

/// A language that kernels are printed in. Its expressions have the syntax of C: calls, infix operators, the
/// conditional operator.
pub trait Dialect: Send + Sync {
    /// Returns the type of a value in a register. 16-bit floats are computed in 32 bits.
    fn register(&self, dtype: DType) -> &'static str;

    /// Returns the type of an element in memory.
    fn memory(&self, dtype: DType) -> &'static str;

    /// Returns a literal of a type.
    fn literal(&self, value: f64, dtype: DType) -> String;

    /// Returns a literal of a 64-bit integer.
    fn integer(&self, n: i64) -> String;

    /// Returns a literal of any type. 64-bit integers are exact.
    fn number(&self, value: Number, dtype: DType) -> String {
        match value {
            Number::Int(n) if dtype == DType::I64 => self.integer(n),
            value => self.literal(value.get(), dtype),
        }
    }

    /// Returns templates for ops on 16-bit floats, which take precedence over the op table. Their functions are cheaper
    /// and still have enough correct bits.
    fn half_templates(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Returns the type of an index: 64 bits if `wide`, otherwise 32.
    fn index(&self, wide: bool) -> &'static str;

    /// Returns a prefix that converts the parenthesized value after it to a type.
    fn conversion(&self, ty: &str) -> String {
        format!("({ty})")
    }

    /// Returns the dialect's name of a function of the op table, for a type and the type of the last argument; `None`
    /// if the language lacks it.
    fn function(&self, name: &str, dtype: DType, last: DType) -> Option<String>;

    /// Returns an expression that selects one of two values. Both may be evaluated.
    fn choose(&self, when: &str, then: &str, otherwise: &str) -> String {
        format!("({when} ? {then} : {otherwise})")
    }

    /// Returns statements that declare a name. Its value is `value` if the condition holds, and otherwise `otherwise`.
    /// `value` is evaluated only if the condition holds.
    fn declare_where(&self, (ty, name): (&str, &str), when: &str, value: &str, otherwise: &str) -> String {
        self.declare(ty, name, &format!("{when} ? {value} : {otherwise}"))
    }

    /// Returns the declaration of a constant.
    fn declare(&self, ty: &str, name: &str, value: &str) -> String {
        format!("const {ty} {name} = {value};")
    }

    /// Returns the declaration of a variable.
    fn variable(&self, ty: &str, name: &str, value: &str) -> String {
        format!("{ty} {name} = {value};")
    }

    /// Returns the declaration of an array in registers.
    fn array(&self, ty: &str, name: &str, count: usize) -> String {
        format!("{ty} {name}[{count}];")
    }

    /// Returns the head of a loop over `from`, `from + step`, … below a number.
    fn each(&self, name: &str, from: &str, below: usize, step: usize) -> String {
        format!("for (int {name} = {from}; {name} < {below}; {name} += {step}) {{")
    }

    /// Returns an unrolled loop over the numbers below `count`. The number is a constant in each copy of the body.
    fn unrolled(&self, name: &str, count: usize, body: &str) -> String {
        format!("#pragma unroll\n{}\n{body}}}\n", self.each(name, "0", count, 1))
    }

    /// Returns a strided loop from `from` below `below`, unrolled to overlap its loads. The unroll factor is the
    /// largest power of two up to `most` that divides the trip count.
    fn in_turns(&self, (name, from): (&str, &str), below: usize, step: usize, most: usize, body: &str) -> String {
        let turns = most.min(1 << (below / step).trailing_zeros().min(16));
        let turns = if below.is_multiple_of(turns * step) { turns } else { 1 };
        let at = self.declare(self.index(false), name, &format!("turn + nth * {step}"));
        let copies = self.unrolled("nth", turns, &format!("{at}\n{body}"));
        format!("{}\n{copies}}}\n", self.each("turn", from, below, turns * step))
    }

    /// Returns the head of a grid-stride loop over the points below a number, for blocks of `block` threads.
    fn each_point(&self, name: &str, below: usize, block: usize) -> String;

    /// Returns statements that declare the thread's number within its block, and the block's number.
    fn place(&self, thread: &str, block: &str) -> String;

    /// Returns `a · b + c` for floats.
    fn multiply_add(&self, a: &str, b: &str, c: &str) -> String {
        format!("{a} * {b} + {c}")
    }

    /// Returns the combination of `a` and `b` by a reduction.
    fn combine(&self, how: Reduction, _dtype: DType, a: &str, b: &str) -> String {
        format!("{how:?}::of({a}, {b})")
    }

    /// Returns a value reduced over the threads of a row. These are `team.threads` neighbours in each of `team.blocks`
    /// blocks, or every `team.rows`th thread of a block.
    fn reduce(&self, how: Reduction, value: (&str, DType), team: Team) -> String;

    /// Returns the number of neighbouring threads that can exchange values of a type in registers. It is a power of
    /// two, or 1 if the device has no such exchange.
    fn together(&self, dtype: DType) -> usize;

    /// Returns the value of another thread among the neighbours of [`Dialect::together`], given its number among them.
    fn shuffle(&self, value: &str, from: &str) -> String;

    /// Returns a barrier of a block. After it, the threads see each other's writes to shared memory.
    fn meet(&self) -> String;

    /// Returns statements that write a value into a table in shared memory where a condition holds, between two
    /// barriers of the block. A table is identified by its number, element type and size.
    fn leave(&self, table: (usize, DType, usize), value: &str, at: &str, when: &str) -> String;

    /// Returns an element of a table of [`Dialect::leave`], to read or to assign.
    fn left(&self, table: (usize, DType, usize), at: &str) -> String;

    /// Returns a statement that sets an element of a shared-memory table on which atomics work. The table's number must
    /// differ from those of the kernel's [`Dialect::left`] tables.
    fn set_cell(&self, table: (usize, DType, usize), at: &str, value: &str) -> String {
        format!("{} = {value};", self.left(table, at))
    }

    /// Returns a statement that atomically combines a value with a 32-bit element of a table of [`Dialect::set_cell`].
    fn combine_cell(&self, how: Reduction, table: (usize, DType, usize), at: &str, value: &str) -> String;

    /// Returns an expression that atomically adds 1 to a 32-bit integer of a table of [`Dialect::set_cell`]. Its value
    /// is the integer before the addition.
    fn take_cell(&self, table: (usize, DType, usize), at: &str) -> String;

    /// Returns an expression that reads an element of a table of [`Dialect::set_cell`].
    fn cell(&self, table: (usize, DType, usize), at: &str) -> String {
        self.left(table, at)
    }

    /// Returns the source of a kernel with blocks of `block` threads and the statements `body`.
    fn kernel(&self, slots: &[(DType, usize)], block: usize, body: &str) -> String;

    /// Returns the source of a kernel with clusters of neighbouring blocks, for devices that have clusters.
    fn kernel_of_clusters(&self, slots: &[(DType, usize)], block: usize, _cluster: usize, body: &str) -> String {
        self.kernel(slots, block, body)
    }

    /// Returns `x` converted to a type.
    fn convert(&self, ty: &str, x: &str) -> String {
        format!("{}({x})", self.conversion(ty))
    }

    /// Returns ⌊x / by⌋. `negative` says whether x may be negative.
    fn div(&self, x: &str, by: i64, wide: bool, negative: bool) -> String;

    /// Returns x mod by, which is never negative. `negative` says whether x may be.
    fn modulo(&self, x: &str, by: i64, wide: bool, negative: bool) -> String;

    /// Returns an element of a buffer.
    fn load(&self, slot: usize, at: &str) -> String;

    /// Returns statements that read `lanes` neighbours if a condition holds, and the names of their values. The index
    /// of the first neighbour is a multiple of `lanes`.
    fn load_lanes(&self, slot: (usize, DType), at: &str, lanes: usize, name: &str, when: &str)
    -> (String, Vec<String>);

    /// Returns a statement that writes an element.
    fn store(&self, slot: usize, at: &str, value: &str) -> String;

    /// Returns a statement that atomically combines a 32-bit element with a value.
    fn store_combined(&self, how: Reduction, slot: (usize, DType), at: &str, value: &str) -> String;

    /// Returns a statement that writes neighbours. The index of the first one is a multiple of their number.
    fn store_lanes(&self, slot: (usize, DType), at: &str, values: &[String]) -> String;

    /// Returns the position that an id names. An id out of range gives position 0, and reports a fault with the check's
    /// number if `counts` holds.
    fn within(&self, index: (&str, DType), ids: Ids, check: usize, counts: &str) -> String;
}
