//! Matrix products on one thread, for each type that contractions accumulate in.

use super::{
    gathered::Gathered,
    matvec,
    micro::{Call, Dots, Float, Kernel, Micro, Panel},
    operand::Matrix,
};
use crate::{
    cache::Caches,
    memory::ALIGN,
    simd::{Isa, arithmetic::Number},
};

/// Up to so many rows, a right operand whose rows are dense is read in place: what it takes to read it hides behind products.
const IN_PLACE_ROWS: usize = 256;
/// From so many panels on, a left operand whose rows are not dense is packed; and one whose rows clash in the cache.
const PACKED_LEFT: usize = 3;
const PACKED_CLASH: usize = 8;

/// Rows and columns of the target, and the length of the sums.
#[derive(Clone, Copy, Debug)]
pub struct Extents {
    /// Rows.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Summed over.
    pub k: usize,
}

/// The left operand of a product.
#[derive(Clone, Copy)]
pub enum Left<'a> {
    /// A matrix as it lies.
    Plain(Matrix),
    /// Rows that are copied, from one of them on, from a buffer.
    Gathered(&'a Gathered, *const u8, usize),
}

impl From<Matrix> for Left<'_> {
    fn from(matrix: Matrix) -> Self {
        Left::Plain(matrix)
    }
}

/// The right operand of a product.
#[derive(Clone, Copy)]
pub enum Right {
    /// A matrix as it lies.
    Plain(Matrix),
    /// From the first of the product's columns on, the panels that [`Product::pack`] makes of all of it.
    Packed(*const u8),
}

/// What becomes of the sums.
#[derive(Clone, Copy)]
pub struct Finish<T> {
    /// Their factor.
    pub scale: T,
    /// Whether they are added to what the target holds.
    pub add: bool,
    /// If not null: a number for each column, which is added last.
    pub bias: *const T,
}

impl<T> Finish<T> {
    /// Sums times a factor.
    pub fn scaled(scale: T) -> Finish<T> {
        Finish { scale, add: false, bias: std::ptr::null() }
    }
}

/// How products of a type are computed at an instruction-set level.
pub struct Plan<T: 'static> {
    isa: Isa,
    /// Whether a product with a vector may be computed in a way of its own.
    vectors: bool,
    /// None: by plain loops.
    micro: Option<Micro<T>>,
    /// The longest sums whose part of a panel stays in the first-level cache.
    terms: usize,
    /// Bytes of the second-level cache.
    cache: usize,
    /// Elements of a right operand that stays in the second-level cache beside everything else.
    short: usize,
}

/// A type that contractions accumulate in.
pub trait Product: Number + Send + Sync {
    /// The microkernels of a level.
    fn micro(isa: Isa) -> Option<Micro<Self>>;

    /// A vector times a matrix whose rows are dense, if there is a special way for it; else `false`.
    ///
    /// # Safety
    /// As [`Plan::run`].
    unsafe fn vector(_: Isa, _: Extents, _: Matrix, _: [Matrix; 2], _: Self, _: bool) -> bool {
        false
    }
}

impl Product for f32 {
    fn micro(isa: Isa) -> Option<Micro<f32>> {
        Some(<f32 as Float>::micro(isa))
    }

    unsafe fn vector(isa: Isa, e: Extents, target: Matrix, operands: [Matrix; 2], scale: f32, add: bool) -> bool {
        // SAFETY: passed on from the caller.
        unsafe { matvec::try_product(isa, e, target, operands, scale, add) }
    }
}

impl Product for f64 {
    fn micro(isa: Isa) -> Option<Micro<f64>> {
        Some(<f64 as Float>::micro(isa))
    }
}

macro_rules! by_loops {
    ($($t:ty),*) => {$(
        impl Product for $t {
            fn micro(_: Isa) -> Option<Micro<$t>> {
                None
            }
        }
    )*};
}
by_loops!(i8, u8, i32, i64, u32);

impl<T: Product> Plan<T> {
    /// For a level, which the machine must have. Where parts of larger products are computed, `vectors` says whether the whole is
    /// one with a vector: so that results do not depend on how it is cut.
    pub fn new(isa: Isa, vectors: bool) -> Plan<T> {
        let caches = Caches::detect();
        let micro = T::micro(isa);
        let panel = micro.map_or(1, |m| m.panel()) * size_of::<T>();
        // The rest of the first level is for rows of the left operand and the result, which pass through.
        let terms = (caches.l1 * 2 / 3 / panel / 8 * 8).clamp(64, 512);
        Plan { isa, vectors, micro, terms, cache: caches.l2, short: caches.l2 / 8 / size_of::<T>() }
    }

    /// Columns in which right operands are packed and tiles of results are best cut; 1 if there is no such form.
    pub fn panel(&self) -> usize {
        self.micro.map_or(1, |m| m.panel())
    }

    /// The most rows that one product with so many columns should have: the tile of the result takes half of the second-level
    /// cache at most, and so does the left operand's part.
    pub fn rows(&self, columns: usize) -> usize {
        (self.cache / 2 / size_of::<T>() / columns.max(self.terms)).max(16)
    }

    /// Bytes of a packed right operand, or `None` if there is no such form.
    pub fn packed(&self, n: usize, k: usize) -> Option<usize> {
        let panel = self.micro?.panel();
        Some((n.div_ceil(panel) * panel * k * size_of::<T>()).next_multiple_of(ALIGN))
    }

    /// Packs panel `number` of a right operand of `n` columns into its place.
    ///
    /// # Safety
    /// The matrix must be valid for these extents; there must be room for [`Plan::packed`] bytes.
    pub unsafe fn pack(&self, matrix: Matrix, (n, k): (usize, usize), number: usize, to: *mut u8) {
        let Some(micro) = &self.micro else { return };
        let first = number * micro.panel();
        let panel = Panel {
            k,
            columns: micro.panel().min(n - first),
            from: matrix.at.cast::<T>().wrapping_offset(first as isize * matrix.columns),
            rows: matrix.rows,
            line: matrix.columns,
            to: to.cast::<T>().wrapping_add(first * k),
            width: micro.panel(),
        };
        // SAFETY: passed on from the caller.
        unsafe { (micro.pack)(&panel) }
    }

    /// Whether a right operand stays in the second-level cache beside everything else.
    fn is_short(&self, n: usize, k: usize) -> bool {
        n.saturating_mul(k) <= self.short
    }

    /// Elements that packing a right operand takes: all of a short one, a panel of another one.
    fn right_room(&self, n: usize, k: usize) -> usize {
        (n.next_multiple_of(self.panel()) * k).min(self.short).max(self.panel() * k)
    }

    /// Bytes of scratch memory that products of at most these extents take.
    pub fn scratch(&self, e: Extents) -> usize {
        let Some(micro) = &self.micro else { return 0 };
        let terms = self.terms.min(e.k);
        let left = (e.m.div_ceil(micro.rows()) * micro.column() * terms).max(e.m * pitch::<T>(terms));
        ((self.right_room(e.n, terms) + left) * size_of::<T>()).next_multiple_of(ALIGN) + ALIGN
    }

    /// Where one side is a vector: dot products with dense lines of the other side, or none if those are not dense.
    unsafe fn vector(&self, e: Extents, target: Matrix, lhs: Left, rhs: Right, finish: Finish<T>) -> Option<()> {
        let (Left::Plain(lhs), Right::Plain(rhs), Some(micro), true) = (lhs, rhs, &self.micro, self.vectors) else {
            return None;
        };
        let Finish { scale, add, .. } = finish;
        let (n, x, w, line, step) = match e {
            Extents { n: 1, m, .. } if lhs.columns == 1 && rhs.rows == 1 => (m, rhs.at, lhs.at, lhs.rows, target.rows),
            Extents { m: 1, n, .. } if lhs.columns == 1 && rhs.rows == 1 => {
                (n, lhs.at, rhs.at, rhs.columns, target.columns)
            }
            _ => {
                // SAFETY: passed on from the caller.
                let done = e.k > 0 && unsafe { T::vector(self.isa, e, target, [lhs, rhs], scale, add) };
                return done.then_some(());
            }
        };
        let (x, w, out) = (x.cast::<T>().cast_const(), w.cast::<T>().cast_const(), target.at.cast::<T>());
        // SAFETY: passed on from the caller.
        unsafe { (micro.dots)(&Dots { n, k: e.k, x, w, line, out, step, scale, add }) };
        Some(())
    }

    /// target = scale·(lhs·rhs) + bias, or target + that. Sums of an element have the same terms in the same order, whatever part
    /// of a larger product this is.
    ///
    /// # Safety
    /// The matrices must be valid for these extents; the target overlaps neither operand, and its columns lie side by side
    /// unless there is one. Scratch memory must be [`Plan::scratch`] bytes, aligned to [`ALIGN`].
    pub unsafe fn run(
        &self,
        e: Extents,
        target: Matrix,
        (lhs, rhs): (Left, Right),
        finish: Finish<T>,
        scratch: *mut u8,
    ) {
        // SAFETY: passed on from the caller.
        unsafe {
            if self.vector(e, target, lhs, rhs, finish).is_some() {
                return add_bias(e, target, finish.bias);
            }
            match (&self.micro, lhs, rhs) {
                (Some(micro), ..) => {
                    Blocked { plan: self, micro, e, target, lhs, rhs, finish, scratch: scratch.cast() }.run();
                }
                (None, Left::Plain(lhs), Right::Plain(rhs)) => {
                    plain(e, target, [lhs, rhs], finish);
                    add_bias(e, target, finish.bias);
                }
                (None, ..) => unreachable!("only microkernels have packed operands"),
            }
        }
    }
}

/// A product at work.
struct Blocked<'a, T: 'static> {
    plan: &'a Plan<T>,
    micro: &'a Micro<T>,
    e: Extents,
    target: Matrix,
    lhs: Left<'a>,
    rhs: Right,
    finish: Finish<T>,
    scratch: *mut T,
}

/// An operand's part of some terms.
#[derive(Clone, Copy)]
struct Part<T> {
    at: *const T,
    /// Along the terms.
    terms: isize,
    /// Along the target's rows or columns, within a block.
    step: isize,
    /// From a packed block to the next.
    block: isize,
}

impl<T: Product> Blocked<'_, T> {
    unsafe fn run(&self) {
        let (e, panel) = (self.e, self.micro.panel());
        let blocks = e.k.div_ceil(self.plan.terms).max(1);
        let terms = e.k.div_ceil(blocks);
        let panels = e.n.div_ceil(panel);
        let parts = e.m.div_ceil(self.micro.rows());
        let few = self.micro.streams.get(e.m.wrapping_sub(1));
        if let (Left::Plain(lhs), Right::Packed(at), Some(kernels)) = (self.lhs, self.rhs, few) {
            // SAFETY: passed on from the caller.
            return unsafe { self.streams((lhs, at.cast()), kernels, terms) };
        }
        for from in (0..e.k.max(1)).step_by(terms.max(1)) {
            let k = terms.min(e.k - from);
            let finish = self.part_of_terms(from, k);
            // SAFETY: passed on from the caller.
            unsafe {
                // Beside a short right operand, rows are copied right before they are used.
                let short = self.plan.is_short(panels * panel, k);
                let whole = match self.lhs {
                    Left::Plain(lhs) => Some(self.left(lhs, from, k)),
                    Left::Gathered(..) if short => None,
                    Left::Gathered(..) => Some(self.gather((0, e.m), (from, k))),
                };
                let lhs = |part| whole.unwrap_or_else(|| self.gather(self.part(part, parts), (from, k)));
                if short {
                    // All of the right operand stays near: the target is written row by row.
                    for p in 0..panels {
                        self.right(p, from, k, p * panel * k, true);
                    }
                    for part in 0..parts {
                        let lhs = lhs(part);
                        for p in 0..panels {
                            let rhs = self.right(p, from, k, p * panel * k, false);
                            self.block((part, parts), lhs, p, rhs, k, finish);
                        }
                    }
                } else {
                    for p in 0..panels {
                        let rhs = self.right(p, from, k, 0, true);
                        (0..parts).for_each(|part| self.block((part, parts), lhs(part), p, rhs, k, finish));
                    }
                }
            }
        }
    }

    /// Few rows: as many packed panels at once as there is a kernel for, from their first to their last term.
    unsafe fn streams(&self, (lhs, packed): (Matrix, *const T), kernels: &[(usize, Kernel<T>)], terms: usize) {
        let (e, width) = (self.e, self.micro.panel());
        let mut first = 0;
        while first < e.n {
            let whole = (e.n - first) / width;
            let several = kernels.iter().find(|(panels, _)| *panels <= whole);
            let columns = several.map_or((e.n - first).min(width), |(panels, _)| panels * width);
            let kernel = several.map_or(self.micro.kernels[e.m - 1][usize::from(columns > self.micro.lanes)], |s| s.1);
            for from in (0..e.k.max(1)).step_by(terms.max(1)) {
                let k = terms.min(e.k - from);
                let finish = self.part_of_terms(from, k);
                let call = Call {
                    k,
                    a: lhs.at.cast::<T>().wrapping_offset(from as isize * lhs.columns),
                    a_rows: lhs.rows,
                    a_columns: lhs.columns,
                    b: packed.wrapping_add(first * e.k + from * width),
                    b_rows: width as isize,
                    b_panels: width * e.k,
                    c: self.target.at.cast::<T>().wrapping_add(first),
                    c_rows: self.target.rows,
                    columns,
                    scale: finish.scale,
                    add: finish.add,
                    bias: if finish.bias.is_null() { finish.bias } else { finish.bias.wrapping_add(first) },
                };
                // SAFETY: passed on from the caller.
                unsafe { kernel(&call) };
            }
            first += columns;
        }
    }

    /// What becomes of the sums of `k` terms from one on.
    fn part_of_terms(&self, from: usize, k: usize) -> Finish<T> {
        let bias = if from + k == self.e.k { self.finish.bias } else { std::ptr::null() };
        Finish { add: self.finish.add || from > 0, bias, ..self.finish }
    }

    /// The first row and the number of rows of a part: even ones.
    fn part(&self, part: usize, parts: usize) -> (usize, usize) {
        let (rows, rest) = (self.e.m / parts, self.e.m % parts);
        (part * rows + part.min(rest), rows + usize::from(part < rest))
    }

    /// The left operand: as it lies, or packed in parts where it would be read with bad strides again and again.
    unsafe fn left(&self, Matrix { at, rows, columns }: Matrix, from: usize, k: usize) -> Part<T> {
        let at = at.cast::<T>().wrapping_offset(from as isize * columns).cast_const();
        let panels = self.e.n.div_ceil(self.micro.panel());
        // Lines a page apart fall into the same few sets of the first-level cache, where they push each other out.
        let clash = is_multiple::<T>(rows, 4096) && self.e.m >= self.micro.rows();
        let wanted = if columns == 1 { clash && panels >= PACKED_CLASH } else { panels >= PACKED_LEFT };
        if !wanted {
            return Part { at, terms: columns, step: rows, block: 0 };
        }
        // Behind the packed right operand.
        let to = self.scratch.wrapping_add(self.plan.right_room(self.e.n, k));
        let width = self.micro.column();
        let parts = self.e.m.div_ceil(self.micro.rows());
        for part in 0..parts {
            let (row, count) = self.part(part, parts);
            let panel = Panel {
                k,
                columns: count,
                from: at.wrapping_offset(row as isize * rows),
                rows: columns,
                line: rows,
                to: to.wrapping_add(part * width * k),
                width,
            };
            // SAFETY: the caller promises the operand and room for all parts.
            unsafe { (self.micro.pack)(&panel) };
        }
        Part { at: to, terms: width as isize, step: 1, block: (width * k) as isize }
    }

    /// Some rows of a left operand that is copied, of terms `from..from + k`.
    unsafe fn gather(&self, (row, count): (usize, usize), (from, k): (usize, usize)) -> Part<T> {
        // Behind the packed right operand.
        let to = self.scratch.wrapping_add(self.plan.right_room(self.e.n, k));
        let pitch = pitch::<T>(k);
        if let Left::Gathered(rows, buffer, first) = self.lhs {
            // SAFETY: the caller promises the operand and room for all rows.
            unsafe { rows.copy(buffer.cast::<T>(), (first + row, count), (from, k), to, pitch) };
        }
        Part { at: to.wrapping_sub(row * pitch).cast_const(), terms: 1, step: pitch as isize, block: 0 }
    }

    /// A panel of the right operand: as it lies, or packed (if `now`; else it has been) into the scratch memory at an offset.
    unsafe fn right(&self, number: usize, from: usize, k: usize, offset: usize, now: bool) -> Part<T> {
        let width = self.micro.panel();
        match self.rhs {
            Right::Packed(at) => {
                let at = at.cast::<T>().wrapping_add(number * width * self.e.k + from * width);
                Part { at, terms: width as isize, step: 1, block: 0 }
            }
            Right::Plain(Matrix { at, rows, columns: line }) => {
                let first = (number * width) as isize * line + from as isize * rows;
                let at = at.cast::<T>().wrapping_offset(first).cast_const();
                let columns = width.min(self.e.n - number * width);
                // Kernels read whole vectors. Rows that clash in the cache do not stay there for the next part; a short operand,
                // which is probably near, is packed sooner than one that comes from afar.
                let apart = if self.plan.is_short(self.e.n, k) { 512 } else { 4096 };
                let clash = is_multiple::<T>(rows, apart) && self.e.m > 2 * self.micro.rows();
                if line == 1 && columns.is_multiple_of(self.micro.lanes) && self.e.m <= IN_PLACE_ROWS && !clash {
                    return Part { at, terms: rows, step: 1, block: 0 };
                }
                let to = self.scratch.wrapping_add(offset);
                if now {
                    // SAFETY: passed on from the caller.
                    unsafe { (self.micro.pack)(&Panel { k, columns, from: at, rows, line, to, width }) };
                }
                Part { at: to, terms: width as isize, step: 1, block: 0 }
            }
        }
    }

    /// A part of the rows of a panel.
    unsafe fn block(
        &self,
        (part, parts): (usize, usize),
        lhs: Part<T>,
        panel: usize,
        rhs: Part<T>,
        k: usize,
        finish: Finish<T>,
    ) {
        let (row, rows) = self.part(part, parts);
        let first = panel * self.micro.panel();
        let columns = self.micro.panel().min(self.e.n - first);
        // Packed parts follow each other, others are where their rows are.
        let at = if lhs.block == 0 { row as isize * lhs.step } else { part as isize * lhs.block };
        let call = Call {
            k,
            a: lhs.at.wrapping_offset(at),
            a_rows: lhs.step,
            a_columns: lhs.terms,
            b: rhs.at,
            b_rows: rhs.terms,
            b_panels: 0,
            c: self.target.at.cast::<T>().wrapping_offset(row as isize * self.target.rows + first as isize),
            c_rows: self.target.rows,
            columns,
            scale: finish.scale,
            add: finish.add,
            bias: if finish.bias.is_null() { finish.bias } else { finish.bias.wrapping_add(first) },
        };
        // SAFETY: passed on from the caller.
        unsafe { self.micro.kernels[rows - 1][usize::from(columns > self.micro.lanes)](&call) }
    }
}

/// Elements from a copied row of so many terms to the next: an odd number of cache lines, so that rows do not clash in the cache.
fn pitch<T>(terms: usize) -> usize {
    let line = 64 / size_of::<T>();
    (terms.div_ceil(line) | 1) * line
}

/// Whether a stride in elements is a multiple of so many bytes.
fn is_multiple<T>(stride: isize, bytes: usize) -> bool {
    (stride.unsigned_abs() * size_of::<T>()).is_multiple_of(bytes)
}

unsafe fn plain<T: Number>(e: Extents, target: Matrix, [lhs, rhs]: [Matrix; 2], finish: Finish<T>) {
    // SAFETY: passed on from the caller.
    unsafe {
        for i in 0..e.m as isize {
            for j in 0..e.n as isize {
                let mut sum = T::default();
                for l in 0..e.k as isize {
                    let a = lhs.at.cast::<T>().offset(i * lhs.rows + l * lhs.columns).read();
                    let b = rhs.at.cast::<T>().offset(l * rhs.rows + j * rhs.columns).read();
                    sum = sum.plus(a.times(b));
                }
                let to = target.at.cast::<T>().offset(i * target.rows + j * target.columns);
                let sum = sum.times(finish.scale);
                to.write(if finish.add { to.read().plus(sum) } else { sum });
            }
        }
    }
}

unsafe fn add_bias<T: Number>(e: Extents, target: Matrix, bias: *const T) {
    if bias.is_null() {
        return;
    }
    for i in 0..e.m as isize {
        for j in 0..e.n {
            // SAFETY: passed on from the caller of `Plan::run`.
            unsafe {
                let to = target.at.cast::<T>().offset(i * target.rows + j as isize * target.columns);
                to.write(to.read().plus(*bias.add(j)));
            }
        }
    }
}
