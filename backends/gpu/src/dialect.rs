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
    /// Whether the threads of a row are neighbours; otherwise threads of neighbouring rows are.
    pub along: bool,
    /// Blocks of a cluster that share a row, each with `threads` threads. If there are several, a block has one row.
    pub blocks: usize,
}

/// A language that kernels are printed in. Expressions are C's: calls, infix operators, the conditional operator.
pub trait Dialect: Send + Sync {
    /// Returns the type of a value in a register; 16-bit floats are computed with in 32 bits.
    fn register(&self, dtype: DType) -> &'static str;

    /// Returns the type of an element in memory.
    fn memory(&self, dtype: DType) -> &'static str;

    /// Returns a number of that type.
    fn literal(&self, value: f64, dtype: DType) -> String;

    /// Returns an integer of 64 bits.
    fn integer(&self, n: i64) -> String;

    /// Returns a number of any type.
    fn number(&self, value: Number, dtype: DType) -> String {
        match value {
            Number::Int(n) if dtype == DType::I64 => self.integer(n),
            value => self.literal(value.get(), dtype),
        }
    }

    /// Returns templates for ops on 16-bit floats that take precedence over the op table: cheaper functions with enough
    /// correct bits.
    fn half_templates(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Returns the type of an index; a `wide` one takes 64 bits.
    fn index(&self, wide: bool) -> &'static str;

    /// Returns the text that converts the parenthesized value after it to a type.
    fn conversion(&self, ty: &str) -> String {
        format!("({ty})")
    }

    /// Returns the dialect's name of a function of the op table, for a type and the type of the last argument; `None`
    /// if the language lacks it.
    fn function(&self, name: &str, dtype: DType, last: DType) -> Option<String>;

    /// Returns one of two values; both may be evaluated.
    fn choose(&self, when: &str, then: &str, otherwise: &str) -> String {
        format!("({when} ? {then} : {otherwise})")
    }

    /// Returns statements that declare a name: for `value`, which is evaluated only if the condition holds, and for
    /// `otherwise` if not.
    fn declare_where(&self, (ty, name): (&str, &str), when: &str, value: &str, otherwise: &str) -> String {
        self.declare(ty, name, &format!("{when} ? {value} : {otherwise}"))
    }

    /// Returns a value under a name.
    fn declare(&self, ty: &str, name: &str, value: &str) -> String {
        format!("const {ty} {name} = {value};")
    }

    /// Returns a value that changes.
    fn variable(&self, ty: &str, name: &str, value: &str) -> String {
        format!("{ty} {name} = {value};")
    }

    /// Returns an array in registers.
    fn array(&self, ty: &str, name: &str, count: usize) -> String {
        format!("{ty} {name}[{count}];")
    }

    /// Returns the head of a loop over `from`, `from + step`, … below a number.
    fn each(&self, name: &str, from: &str, below: usize, step: usize) -> String {
        format!("for (int {name} = {from}; {name} < {below}; {name} += {step}) {{")
    }

    /// Statements for each number below a count, a constant in each of its copies.
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

    /// Statements that name the thread of a block and the block.
    fn place(&self, thread: &str, block: &str) -> String;

    /// `a · b + c`, of floats.
    fn multiply_add(&self, a: &str, b: &str, c: &str) -> String {
        format!("{a} * {b} + {c}")
    }

    /// `a` and `b`, of a type, reduced to one.
    fn combine(&self, how: Reduction, _dtype: DType, a: &str, b: &str) -> String {
        format!("{how:?}::of({a}, {b})")
    }

    /// Returns a value reduced over the threads of a row. These are `threads` neighbours of each of the `blocks`, or
    /// every `rows`th thread of a block.
    fn reduce(&self, how: Reduction, value: (&str, DType), team: Team) -> String;

    /// Returns the number of neighbouring threads that exchange values of a type in registers. It is a power of two,
    /// and 1 without such an exchange.
    fn together(&self, dtype: DType) -> usize;

    /// Returns a value of another one of these threads, given that thread's number among them.
    fn shuffle(&self, value: &str, from: &str) -> String;

    /// Returns a barrier of a block. After it, the threads see each other's writes to shared memory.
    fn meet(&self) -> String;

    /// Writes a value into a table in shared memory where a condition holds, between two barriers of the block. A table
    /// is named by its number, element type and size.
    fn leave(&self, table: (usize, DType, usize), value: &str, at: &str, when: &str) -> String;

    /// Returns an element of such a table, to read or to assign.
    fn left(&self, table: (usize, DType, usize), at: &str) -> String;

    /// Returns a statement that sets an element of a shared-memory table with atomics. Its number must differ from the
    /// tables of [`Dialect::left`] in the kernel.
    fn set_cell(&self, table: (usize, DType, usize), at: &str, value: &str) -> String {
        format!("{} = {value};", self.left(table, at))
    }

    /// Returns a statement that atomically combines a 32-bit element of such a table with a value.
    fn combine_cell(&self, how: Reduction, table: (usize, DType, usize), at: &str, value: &str) -> String;

    /// Returns an expression that adds 1 to such an element of 32-bit integers, and is the number that was there.
    fn take_cell(&self, table: (usize, DType, usize), at: &str) -> String;

    /// Returns an expression that reads such an element.
    fn cell(&self, table: (usize, DType, usize), at: &str) -> String {
        self.left(table, at)
    }

    /// Returns the source of a kernel with blocks of `block` threads and the statements `body`.
    fn kernel(&self, slots: &[(DType, usize)], block: usize, body: &str) -> String;

    /// Returns the source of a kernel with clusters of neighbouring blocks, for devices that have clusters.
    fn kernel_of_clusters(&self, slots: &[(DType, usize)], block: usize, _cluster: usize, body: &str) -> String {
        self.kernel(slots, block, body)
    }

    /// `x` as a value of a type.
    fn convert(&self, ty: &str, x: &str) -> String {
        format!("{}({x})", self.conversion(ty))
    }

    /// ⌊x / by⌋, where x may be negative or not.
    fn div(&self, x: &str, by: i64, wide: bool, negative: bool) -> String;

    /// x mod by, likewise.
    fn modulo(&self, x: &str, by: i64, wide: bool, negative: bool) -> String;

    /// Returns an element of a buffer.
    fn load(&self, slot: usize, at: &str) -> String;

    /// Returns statements that read `lanes` neighbours if a condition holds, and the names of the values. The first
    /// neighbour's index is a multiple of their number.
    fn load_lanes(&self, slot: (usize, DType), at: &str, lanes: usize, name: &str, when: &str)
    -> (String, Vec<String>);

    /// Returns a statement that writes an element.
    fn store(&self, slot: usize, at: &str, value: &str) -> String;

    /// Returns a statement that atomically combines a 32-bit element with a value.
    fn store_combined(&self, how: Reduction, slot: (usize, DType), at: &str, value: &str) -> String;

    /// Returns a statement that writes neighbours, the first at a multiple of their number.
    fn store_lanes(&self, slot: (usize, DType), at: &str, values: &[String]) -> String;

    /// Returns the position that an index names. An index out of range gives position 0, and a fault with the number of
    /// the check if `counts` holds.
    fn within(&self, index: (&str, DType), ids: Ids, check: usize, counts: &str) -> String;
}
