//! What the languages that kernels are printed in differ in: types, literals, accesses to memory.

use eutectic_ir::{
    DType,
    attr::Number,
    ops::{Ids, Reduction},
};

/// Which threads of a block work on one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Team {
    /// How many.
    pub threads: usize,
    /// How many rows a block has.
    pub rows: usize,
    /// Whether the threads of a row are neighbours; otherwise threads of neighbouring rows are.
    pub along: bool,
    /// How many blocks of a cluster, each with so many threads, share a row; then a block has one row.
    pub blocks: usize,
}

/// A language that kernels are printed in. Expressions are C's: calls, infix operators, the conditional operator.
pub trait Dialect: Send + Sync {
    /// The type of a value in a register; 16-bit floats are computed with in 32 bits.
    fn register(&self, dtype: DType) -> &'static str;

    /// The type of an element in memory.
    fn memory(&self, dtype: DType) -> &'static str;

    /// A number of that type.
    fn literal(&self, value: f64, dtype: DType) -> String;

    /// An integer of 64 bits.
    fn integer(&self, n: i64) -> String;

    /// A number of any type.
    fn number(&self, value: Number, dtype: DType) -> String {
        match value {
            Number::Int(n) if dtype == DType::I64 => self.integer(n),
            value => self.literal(value.get(), dtype),
        }
    }

    /// Templates for ops on 16-bit floats, before those of the table: by functions that are right to as many bits and cheaper.
    fn short(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The type of an index; a `wide` one takes 64 bits.
    fn index(&self, wide: bool) -> &'static str;

    /// What stands before a value in parentheses to convert it to a type.
    fn conversion(&self, ty: &str) -> String {
        format!("({ty})")
    }

    /// What a function of the op table is called for a type, where the last argument is of another; none where the language has none.
    fn function(&self, name: &str, dtype: DType, last: DType) -> Option<String>;

    /// One of two values; both may be evaluated.
    fn choose(&self, when: &str, then: &str, otherwise: &str) -> String {
        format!("({when} ? {then} : {otherwise})")
    }

    /// A value that may be evaluated only where a condition holds, and another one elsewhere, under a name.
    fn declare_where(&self, (ty, name): (&str, &str), when: &str, value: &str, otherwise: &str) -> String {
        self.declare(ty, name, &format!("{when} ? {value} : {otherwise}"))
    }

    /// A value under a name.
    fn declare(&self, ty: &str, name: &str, value: &str) -> String {
        format!("const {ty} {name} = {value};")
    }

    /// A value that changes.
    fn variable(&self, ty: &str, name: &str, value: &str) -> String {
        format!("{ty} {name} = {value};")
    }

    /// An array in registers.
    fn array(&self, ty: &str, name: &str, count: usize) -> String {
        format!("{ty} {name}[{count}];")
    }

    /// The head of a loop over `from`, `from + step`, … below a number.
    fn each(&self, name: &str, from: &str, below: usize, step: usize) -> String {
        format!("for (int {name} = {from}; {name} < {below}; {name} += {step}) {{")
    }

    /// Statements for each number below a count, a constant in each of its copies.
    fn unrolled(&self, name: &str, count: usize, body: &str) -> String {
        format!("#pragma unroll\n{}\n{body}}}\n", self.each(name, "0", count, 1))
    }

    /// Statements for a number from `from` on, in steps, below another; so many turns, a power of two, or fewer are written out where they divide it, so
    /// that what they read is on its way together.
    fn in_turns(&self, (name, from): (&str, &str), below: usize, step: usize, most: usize, body: &str) -> String {
        let turns = most.min(1 << (below / step).trailing_zeros().min(16));
        let turns = if below.is_multiple_of(turns * step) { turns } else { 1 };
        let at = self.declare(self.index(false), name, &format!("turn + nth * {step}"));
        let copies = self.unrolled("nth", turns, &format!("{at}\n{body}"));
        format!("{}\n{copies}}}\n", self.each("turn", from, below, turns * step))
    }

    /// The head of a loop over all points below a number that are a thread's of a grid of blocks of so many.
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

    /// A value of a type reduced over the threads of a row: `threads` neighbours each, of all `blocks`, or each `rows`th thread of a block.
    fn reduce(&self, how: Reduction, value: (&str, DType), team: Team) -> String;

    /// Returns how many neighbouring threads exchange values of a type in registers, a power of two; 1 where they do not.
    fn together(&self, dtype: DType) -> usize;

    /// Returns the value that a thread of those has, by its number among them.
    fn shuffle(&self, value: &str, from: &str) -> String;

    /// A statement with which the threads of a block wait for each other, and see each other's writes to shared memory.
    fn meet(&self) -> String;

    /// Writes a value into a table in shared memory where a condition holds, between two barriers of the block. A table is named by its number, element
    /// type and size.
    fn leave(&self, table: (usize, DType, usize), value: &str, at: &str, when: &str) -> String;

    /// An element of such a table, to read or to assign.
    fn left(&self, table: (usize, DType, usize), at: &str) -> String;

    /// Returns a statement that sets an element of a table on which threads use atomics. No table of [`Dialect::left`] in the same kernel has its
    /// number.
    fn set_cell(&self, table: (usize, DType, usize), at: &str, value: &str) -> String {
        format!("{} = {value};", self.left(table, at))
    }

    /// A statement that combines such an element of 32 bits with a value, whatever other threads of the block do meanwhile.
    fn combine_cell(&self, how: Reduction, table: (usize, DType, usize), at: &str, value: &str) -> String;

    /// An expression that adds 1 to such an element of 32-bit integers, and is the number that was there.
    fn take_cell(&self, table: (usize, DType, usize), at: &str) -> String;

    /// Returns an expression that reads such an element.
    fn cell(&self, table: (usize, DType, usize), at: &str) -> String {
        self.left(table, at)
    }

    /// A kernel of blocks of so many threads, by the statements of its body.
    fn kernel(&self, slots: &[(DType, usize)], block: usize, body: &str) -> String;

    /// The same, of clusters of so many neighbouring blocks, for devices that have them.
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

    /// An element of a buffer.
    fn load(&self, slot: usize, at: &str) -> String;

    /// Statements that read neighbours, the first at a multiple of their number, where a condition holds; and the names of what was read.
    fn load_lanes(&self, slot: (usize, DType), at: &str, lanes: usize, name: &str, when: &str)
    -> (String, Vec<String>);

    /// A statement that writes an element.
    fn store(&self, slot: usize, at: &str, value: &str) -> String;

    /// A statement that combines an element of 32 bits with a value, whatever other threads do meanwhile.
    fn store_combined(&self, how: Reduction, slot: (usize, DType), at: &str, value: &str) -> String;

    /// A statement that writes neighbours, the first at a multiple of their number.
    fn store_lanes(&self, slot: (usize, DType), at: &str, values: &[String]) -> String;

    /// The place that an index of a type names. If it is out of range where it counts, the place is 0 and the fault is reported with the
    /// number of the check.
    fn within(&self, index: (&str, DType), ids: Ids, check: usize, counts: &str) -> String;
}
