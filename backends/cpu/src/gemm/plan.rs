//! Matrix products on one thread, for each type that contractions accumulate in.

use eutectic_ir::DType;

use super::{
    blocked::Blocked,
    micro::{
        dots::Dots,
        table::{Float, Micro, Shape},
    },
    short::Short,
    source::Source,
};
use crate::{
    cache::Caches,
    kernels::operand::Matrix,
    runtime::memory::ALIGN,
    simd::{Isa, arithmetic::Number},
};

pub use super::right::Right;

/// Elements that come from afar: so many times what half of the second-level cache holds.
const FAR: usize = 16;

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
    /// Rows that are brought near part by part.
    Parts(Source<'a>),
}

impl From<Matrix> for Left<'_> {
    fn from(matrix: Matrix) -> Self {
        Left::Plain(matrix)
    }
}

/// What becomes of the sums.
#[derive(Clone, Copy)]
pub struct Finish<T> {
    /// Their factor.
    pub scale: T,
    /// Whether they are added to what the target holds.
    pub add: bool,
    /// If not null: a number for each column, which is added.
    pub bias: *const T,
    /// If not null, where neither side is a vector: a number for each element, which is added, side by side in rows. The target may
    /// be the same memory.
    pub other: *const T,
    /// From a row of it to the next.
    pub other_rows: isize,
    /// What results are at least, if anything; where neither side is a vector.
    pub least: Option<T>,
}

impl<T> Finish<T> {
    /// Sums times a factor.
    pub fn scaled(scale: T) -> Finish<T> {
        Finish { scale, add: false, bias: std::ptr::null(), other: std::ptr::null(), other_rows: 0, least: None }
    }
}

/// How products of a type are computed at an instruction-set level.
pub struct Plan<T: 'static> {
    /// Whether a product with a vector may be computed in a way of its own.
    vectors: bool,
    /// None: by plain loops.
    micro: Option<Micro<T>>,
    /// How packed right operands are read, if their elements are of 16 bits.
    pub short: Option<Short<T>>,
    /// Elements of a right operand that stay in the second-level cache beside the left operand and the result; half of them, while as
    /// many are fetched that come next.
    near: usize,
    /// Elements of half of that cache.
    half: usize,
    /// Elements of half of the first-level cache.
    first: usize,
}

/// A type that contractions accumulate in.
pub trait Product: Number + From<bool> + Send + Sync {
    /// Elements of a vector of microkernels; `None` where there are none.
    fn lanes(isa: Isa) -> Option<usize> {
        Self::micro(isa, Shape::Wide).map(|micro| micro.lanes)
    }

    /// The microkernels of a level.
    fn micro(isa: Isa, shape: Shape) -> Option<Micro<Self>>;
}

impl Product for f32 {
    fn micro(isa: Isa, shape: Shape) -> Option<Micro<f32>> {
        Some(<f32 as Float>::micro(isa, shape))
    }
}

impl Product for f64 {
    fn micro(isa: Isa, shape: Shape) -> Option<Micro<f64>> {
        Some(<f64 as Float>::micro(isa, shape))
    }
}

macro_rules! by_loops {
    ($($t:ty),*) => {$(
        impl Product for $t {
            fn micro(_: Isa, _: Shape) -> Option<Micro<$t>> {
                None
            }
        }
    )*};
}
by_loops!(i8, u8, i32, i64, u32);

impl<T: Product> Plan<T> {
    /// For a level, which the machine must have, and parts of a product of so many rows and columns, or that product: results do not
    /// depend on how it is cut.
    pub fn new(isa: Isa, [m, n]: [usize; 2]) -> Plan<T> {
        let caches = Caches::detect();
        let micro = T::lanes(isa).and_then(|lanes| T::micro(isa, Shape::of(m, n, lanes)));
        let vectors = m == 1 || n == 1;
        let elements = caches.l2 / size_of::<T>();
        let first = caches.l1 / size_of::<T>() / 2;
        Plan { vectors, micro, short: None, near: elements * 3 / 16, half: elements / 2, first }
    }

    /// Right operands are packed in this type, if it is one of 16 bits that registers hold as `T`.
    pub fn storing(self, dtype: Option<DType>, isa: Isa) -> Plan<T> {
        Plan { short: self.micro.zip(dtype).and_then(|(micro, dtype)| Short::new(&micro, dtype, isa)), ..self }
    }

    /// Bytes of an element of a packed right operand.
    pub fn stored(&self) -> usize {
        if self.short.is_some() { size_of::<u16>() } else { size_of::<T>() }
    }

    /// Whether left operands of so many rows may be evaluated part by part: microkernels for fewer read all terms at once.
    pub fn takes_parts(&self, rows: usize) -> bool {
        self.micro.is_some_and(|micro| rows > micro.few.len().max(micro.streams.len()))
    }

    /// Rows and terms of the parts in which left operands of `k` terms are evaluated, the most rows first.
    pub fn left_parts(&self, k: usize) -> Vec<(usize, usize)> {
        let (rows, terms) = (self.micro.map_or(1, |m| m.rows()), self.terms(k));
        let last = Some(k % terms).filter(|&last| last > 0);
        (1..=rows).rev().flat_map(|m| [(m, terms)].into_iter().chain(last.map(|last| (m, last)))).collect()
    }

    /// Columns in which right operands are packed and tiles of results are best cut; 1 if there is no such form.
    pub fn panel(&self) -> usize {
        self.micro.map_or(1, |m| m.panel())
    }

    /// Terms that are summed before the result is written: all of them, unless a panel of so many would not stay near.
    pub fn terms(&self, k: usize) -> usize {
        let rows = self.micro.map_or(1, |m| m.rows());
        let blocks = k.div_ceil((self.near / self.panel()).min(self.first / rows).max(1)).max(1);
        k.div_ceil(blocks).max(1)
    }

    /// Panels that stay near while all rows pass by, of `k` terms. A left operand that does not stay near is read once only, if
    /// the right one stays. Where panels are packed on the way nothing else is fetched, and rows pass by again for each group.
    pub fn group(&self, e: Extents, k: usize, packed: bool) -> usize {
        let panels = e.n.div_ceil(self.panel()).max(1);
        if self.stays(e.n, k) && !self.stays(e.m, k) {
            return panels;
        }
        let near = if packed { self.near / 2 } else { self.half / 2 };
        let groups = panels.div_ceil((near / (self.panel() * k).max(1)).max(1));
        panels.div_ceil(groups)
    }

    /// Whether so many lines of `k` terms take no more than half of the second-level cache.
    pub fn stays(&self, lines: usize, k: usize) -> bool {
        lines.saturating_mul(k) <= self.half
    }

    /// Whether so many elements take no more than half of the first-level cache.
    pub fn is_nearest(&self, elements: usize) -> bool {
        elements <= self.first
    }

    /// Whether an operand of so many elements comes from afar.
    pub fn is_far(&self, elements: usize) -> bool {
        elements > FAR * self.half
    }

    /// Whether a right operand that is not constant is better packed before a product than on the way, where all rows pass by each
    /// group of its panels: unless these and their results come from afar.
    pub fn packs_before(&self, e: Extents) -> bool {
        let pass = e.m.saturating_mul(self.terms(e.k) + e.n);
        !self.stays(e.n, e.k) && pass > FAR * self.half
    }

    /// Columns of the sums of so many rows that wait in half of the first-level cache: whole panels.
    pub fn waiting(&self, rows: usize) -> usize {
        (self.first / rows / self.panel()).max(1) * self.panel()
    }

    /// The most elements of the result that stay near: half of the second-level cache.
    pub fn tile(&self) -> usize {
        self.half
    }

    /// The most rows that one product with so many columns and terms should have: the tile of the result takes half of the
    /// second-level cache at most, and so does the left operand's part.
    pub fn rows(&self, columns: usize, k: usize) -> usize {
        (self.half / columns.max(self.terms(k))).max(16)
    }

    /// Bytes of a packed right operand, or `None` if there is no such form.
    pub fn packed(&self, n: usize, k: usize) -> Option<usize> {
        let panel = self.micro?.panel();
        Some((n.div_ceil(panel) * panel * k * self.stored()).next_multiple_of(ALIGN))
    }

    /// Packs panel `number` of a right operand of `n` columns into its place.
    ///
    /// # Safety
    /// The operand must be valid for these extents; there must be room for [`Plan::packed`] bytes. Scratch memory is as for
    /// [`Plan::run`].
    pub unsafe fn pack(&self, rhs: Right, (n, k): (usize, usize), number: usize, to: *mut u8, scratch: *mut u8) {
        let Some(micro) = &self.micro else { return };
        let (width, terms) = (micro.panel(), self.terms(k));
        let (size, scratch) = (width * self.stored(), scratch.cast::<T>());
        let first = number * width;
        for from in (0..k).step_by(terms) {
            let k_part = terms.min(k - from);
            let to = to.wrapping_add(number * k * size + from * size);
            let place = if self.short.is_some() { scratch } else { to.cast() };
            // SAFETY: passed on from the caller; scratch memory has room for a panel of so many terms.
            unsafe {
                rhs.pack(micro, (from, k_part), (first, width.min(n - first)), place);
                if let Some(short) = &self.short {
                    short.narrow(place, to, k_part * width);
                }
            }
        }
    }

    /// Elements that packing a group of panels of `k` terms takes.
    pub fn right_room(&self, n: usize, k: usize) -> usize {
        let all = n.next_multiple_of(self.panel()) * k;
        if self.stays(n, k) { all } else { all.min(self.half / 2).max(self.panel() * k) }
    }

    /// Bytes of scratch memory that products of at most these extents take. Narrower ones may pack more of the right operand at once.
    pub fn scratch(&self, e: Extents) -> usize {
        let Some(micro) = &self.micro else { return 0 };
        let terms = self.terms(e.k);
        // Rows that are packed, or copied.
        let left = (e.m.div_ceil(micro.rows()) * micro.column() * terms).max(e.m * pitch::<T>(terms));
        let few = (1..=micro.few.len()).map(|m| m * self.waiting(m)).max().unwrap_or(0);
        let right = (e.n.next_multiple_of(self.panel()) * terms).min(self.half + self.panel() * terms);
        ((right.max(few) + left) * size_of::<T>()).next_multiple_of(ALIGN) + ALIGN
    }

    /// Where one side is a vector: dot products with dense lines of the other side, or none if those are not dense.
    unsafe fn vector(
        &self,
        e: Extents,
        target: Matrix,
        (lhs, rhs): (Left, Right),
        finish: Finish<T>,
        scratch: *mut T,
    ) -> Option<()> {
        let (Left::Plain(lhs), Right::Plain(rhs), Some(micro), true) = (lhs, rhs, &self.micro, self.vectors) else {
            return None;
        };
        let Finish { scale, add, .. } = finish;
        let (n, x, w, line, step) = match e {
            Extents { n: 1, m, .. } if lhs.columns == 1 && rhs.rows == 1 => (m, rhs.at, lhs.at, lhs.rows, target.rows),
            Extents { m: 1, n, .. } if lhs.columns == 1 && rhs.rows == 1 => {
                (n, lhs.at, rhs.at, rhs.columns, target.columns)
            }
            // A column on the right is a row on the left of the transposed product.
            Extents { n: 1, m, k } if lhs.rows == 1 && target.rows == 1 => {
                let [target, lhs, rhs] = [target, rhs, lhs].map(|m| Matrix { rows: m.columns, columns: m.rows, ..m });
                let finish = Finish { bias: std::ptr::null(), ..finish };
                let (e, rhs) = (Extents { m: 1, n: m, k }, Right::Plain(rhs));
                // SAFETY: passed on from the caller.
                unsafe { Blocked { plan: self, micro, e, target, lhs: lhs.into(), rhs, finish, scratch }.run() };
                return Some(());
            }
            _ => return None,
        };
        let (x, w, out) = (x.cast::<T>().cast_const(), w.cast::<T>().cast_const(), target.at.cast::<T>());
        // SAFETY: passed on from the caller.
        unsafe { (micro.dots)(&Dots { n, k: e.k, x, w, line, out, step, scale, add }) };
        Some(())
    }

    /// target = scale·(lhs·rhs) + bias + other, or target + that; at least `least`. Sums of an element have the same terms in the
    /// same order, whatever part of a larger product this is.
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
            if self.vector(e, target, (lhs, rhs), finish, scratch.cast()).is_some() {
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

/// Elements from a copied row of so many terms to the next: an odd number of cache lines, so that rows do not clash in the cache.
pub fn pitch<T>(terms: usize) -> usize {
    let line = 64 / size_of::<T>();
    (terms.div_ceil(line) | 1) * line
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
