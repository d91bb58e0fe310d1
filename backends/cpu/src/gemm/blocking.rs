//! Matrix products on one thread, for each type that contractions accumulate in.

use eutectic_ir::DType;

use super::{
    coded::CodedPanels,
    kept::KeptPanels,
    matrix::PartSize,
    micro::table::{Micro, MicroShape},
    product::{Extents, ProductElement},
};
use crate::{machine::Caches, runtime::memory::ALIGN, simd::Isa};

/// Operands of more than so many times half of the second-level cache are read from memory.
const MEMORY: usize = 16;

/// The most rows that read a right operand that is not packed again for each few of them.
pub const FEW_ROWS: usize = 12;

/// Elements of a part that is evaluated, and the fewest terms of it: lines of memory may lie along these.
const PART: usize = 4096;
const TERMS: usize = 16;

/// The axis along which elements of a right operand lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    /// That of the sums.
    Terms,
    /// That of the result's columns.
    Columns,
}

/// How products of a type are computed at an instruction-set level.
pub struct Blocking<T: 'static> {
    /// Whether a product with a vector may be computed in a way of its own.
    pub(super) vectors: bool,
    /// Whether products of few rows with a matrix whose terms lie side by side are dot products.
    pub(super) dots: bool,
    /// None: by plain loops.
    pub(super) micro: Option<Micro<T>>,
    /// How packed right operands are read, if their elements are kept in a shorter type.
    pub kept: Option<KeptPanels<T>>,
    /// The panels of right operands that are kept as codes, and their kernels.
    pub coded: Option<CodedPanels<T>>,
    /// Elements of a right operand that stay in the second-level cache beside the left operand and the result; half of them, while as
    /// many are prefetched that come next.
    panel_elements: usize,
    /// Elements of half of that cache.
    half_l2: usize,
    /// Elements of half of the first-level cache.
    half_l1: usize,
    /// Blocks of terms are whole ones of these.
    unit: usize,
}

impl<T: ProductElement> Blocking<T> {
    /// For a level, which the machine must have, and parts of a product of so many rows and columns, or that product: results do not
    /// depend on how it is cut.
    pub fn new(isa: Isa, extents: [usize; 2]) -> Blocking<T> {
        Blocking::beside(Caches::detect(), isa, extents)
    }

    /// The same for a machine with these caches.
    pub fn beside(caches: Caches, isa: Isa, [m, n]: [usize; 2]) -> Blocking<T> {
        let micro = T::lanes(isa).and_then(|lanes| T::micro(isa, MicroShape::of(m, n, lanes)));
        let vectors = m == 1 || n == 1;
        let elements = caches.l2 / size_of::<T>();
        let half_l1 = caches.l1 / size_of::<T>() / 2;
        Blocking {
            vectors,
            dots: false,
            micro,
            kept: None,
            coded: None,
            panel_elements: elements * 3 / 16,
            half_l2: elements / 2,
            half_l1,
            unit: 1,
        }
    }

    /// Rows of the highest micro-kernel.
    pub fn most_rows(&self) -> usize {
        self.micro.map_or(1, |m| m.rows())
    }

    /// With blocks of terms that are multiples of what a left operand gives as a whole: rows of it overlap, and take less of the
    /// first-level cache than as many terms do.
    pub fn in_units(self, lhs: impl Fn(usize) -> usize) -> Blocking<T> {
        Blocking { unit: lhs(self.most_rows()).max(1), ..self }
    }

    /// With the micro-kernels, and so the packed form, of a product of other extents.
    pub fn formed_for(self, isa: Isa, [m, n]: [usize; 2]) -> Blocking<T> {
        Blocking { micro: T::lanes(isa).and_then(|lanes| T::micro(isa, MicroShape::of(m, n, lanes))), ..self }
    }

    /// Right operands are packed in this type, if panels for `T` are kept in it.
    pub fn storing(self, dtype: Option<DType>, isa: Isa) -> Blocking<T> {
        Blocking { kept: self.micro.zip(dtype).and_then(|(micro, dtype)| KeptPanels::new(&micro, dtype, isa)), ..self }
    }

    /// Returns the blocking for products of few rows with right operands that are read once: those whose terms lie side by side are not
    /// packed.
    pub fn reading_once(self, rows: usize) -> Blocking<T> {
        Blocking { dots: rows <= FEW_ROWS, ..self }
    }

    /// Makes products of `rows` rows read right operands of a type in place, as [`super::right::Right::Short`]. `length` elements are contiguous
    /// along an axis. Returns whether there are kernels for that.
    pub fn takes_short(&mut self, dtype: DType, isa: Isa, (rows, along, length): (usize, Along, usize)) -> bool {
        let kept = self.micro.and_then(|micro| KeptPanels::new(&micro, dtype, isa));
        let has_kernels = kept.as_ref().is_some_and(|kept| match along {
            Along::Terms => !kept.dots().is_empty(),
            Along::Columns => !kept.streams().is_empty(),
        });
        // They read whole vectors.
        let takes = has_kernels && rows <= FEW_ROWS && self.micro.is_some_and(|m| length.is_multiple_of(m.lanes));
        if takes {
            self.kept = kept;
        }
        takes
    }

    /// Returns the blocking for right operands in these panels, if there are any.
    pub fn coding(self, coded: Option<CodedPanels<T>>) -> Blocking<T> {
        Blocking { coded, ..self }
    }

    /// Returns where column `column` of a packed matrix of `k` terms begins, the first one of a panel.
    pub fn packed_at(&self, column: usize, k: usize) -> usize {
        match &self.coded {
            Some(CodedPanels { form, .. }) => column / form.width * form.bytes(),
            None => column * k * self.stored(),
        }
    }

    /// Bytes of an element of a packed right operand, unless it is kept as codes.
    pub fn stored(&self) -> usize {
        self.kept.as_ref().map_or(size_of::<T>(), |kept| kept.dtype().size())
    }

    /// Whether left operands of so many rows may be evaluated part by part: micro-kernels for fewer read all terms at once.
    pub fn takes_parts(&self, rows: usize) -> bool {
        self.micro.is_some_and(|micro| rows > micro.few.len().max(micro.streams.len()))
    }

    /// Rows and terms of the parts in which left operands of `k` terms are evaluated, the most rows first.
    pub fn left_parts(&self, k: usize) -> Vec<PartSize> {
        let (rows, terms) = (self.micro.map_or(1, |m| m.rows()), self.terms(k));
        let last = Some(k % terms).filter(|&last| last > 0);
        let size = |rows: usize, columns: usize| PartSize { rows, columns };
        (1..=rows).rev().flat_map(|m| [size(m, terms)].into_iter().chain(last.map(|last| size(m, last)))).collect()
    }

    /// Terms and columns of the parts in which right operands are evaluated for `products`, and packed before, the most terms first.
    pub fn right_parts(&self, products: impl Iterator<Item = Extents>) -> Vec<PartSize> {
        let width = self.panel();
        let (mut columns, mut lens) = (Vec::new(), (1, 1));
        for e in products {
            let group = self.group(e, self.terms(e.k), false) * width;
            columns.extend([group.min(e.n), e.n % group, width.min(e.n), e.n % width]);
            lens = (self.terms(e.k), e.k % self.terms(e.k));
        }
        let widest = columns.iter().max().map_or(1, |&n| n.max(1));
        let most = (PART / widest).max(TERMS).min(lens.0);
        let terms = [most, lens.0 % most, lens.1 % most];
        let mut parts: Vec<_> = columns.iter().flat_map(|&n| terms.map(|k| PartSize { rows: k, columns: n })).collect();
        parts.retain(|part| part.rows > 0 && part.columns > 0);
        parts.sort_unstable_by(|a, b| b.cmp(a));
        parts.dedup();
        parts
    }

    /// Columns in which right operands are packed and tiles of results are best cut; 1 if there is no such form.
    pub fn panel(&self) -> usize {
        self.micro.map_or(1, |m| m.panel())
    }

    /// KC: terms that are summed before the result is written. All of them, unless a panel of so many would not stay in the
    /// second-level cache, or a block of rows in the first-level one.
    pub fn terms(&self, k: usize) -> usize {
        let rows = self.micro.map_or(1, |m| m.rows());
        let blocks = k.div_ceil((self.panel_elements / self.panel()).min(self.half_l1 / rows).max(1)).max(1);
        let even = k.div_ceil(blocks).max(1);
        (even / self.unit * self.unit).max(self.unit.min(k)).max(1)
    }

    /// Panels of `k` terms that stay in the second-level cache while all rows are multiplied with them: NC is so many panels. A left
    /// operand that does not stay there is read once only, if the right one does. Panels that are `packed` before share the cache
    /// with what is prefetched; beside those that are packed on the way, nothing is.
    pub fn group(&self, e: Extents, k: usize, packed: bool) -> usize {
        let panels = e.n.div_ceil(self.panel()).max(1);
        if self.fits_l2(e.n, k) && !self.fits_l2(e.m, k) {
            return panels;
        }
        let elements = if packed { self.panel_elements / 2 } else { self.half_l2 / 2 };
        let groups = panels.div_ceil((elements / (self.panel() * k).max(1)).max(1));
        panels.div_ceil(groups)
    }

    /// Whether so many lines of `k` terms take no more than half of the second-level cache.
    pub fn fits_l2(&self, lines: usize, k: usize) -> bool {
        lines.saturating_mul(k) <= self.half_l2
    }

    /// Whether so many elements take no more than half of the first-level cache.
    pub fn fits_l1(&self, elements: usize) -> bool {
        elements <= self.half_l1
    }

    /// Whether an operand of so many elements is read from memory.
    pub fn exceeds_caches(&self, elements: usize) -> bool {
        elements > MEMORY * self.half_l2
    }

    /// Whether a right operand that is not constant is better packed before a product than on the way, where all rows are read again
    /// for each group of its panels: unless these and their results are read from memory.
    pub fn packs_before(&self, e: Extents) -> bool {
        let pass = e.m.saturating_mul(self.terms(e.k) + e.n);
        !self.fits_l2(e.n, e.k) && pass > MEMORY * self.half_l2
    }

    /// Columns of so many rows whose partial sums take half of the first-level cache: whole panels.
    pub fn partial_sums(&self, rows: usize) -> usize {
        (self.half_l1 / rows / self.panel()).max(1) * self.panel()
    }

    /// The most elements of a tile of the result: half of the second-level cache.
    pub fn tile(&self) -> usize {
        self.half_l2
    }

    /// The most rows that one product with so many columns and terms should have: the tile of the result takes half of the
    /// second-level cache at most, and so does the left operand's part.
    pub fn rows(&self, columns: usize, k: usize) -> usize {
        (self.half_l2 / columns.max(self.terms(k))).max(16)
    }

    /// Bytes of a packed right operand, or `None` if there is no such form.
    pub fn packed(&self, n: usize, k: usize) -> Option<usize> {
        let panel = self.micro?.panel();
        if let Some(coded) = &self.coded {
            return Some(coded.matrix_bytes(n));
        }
        Some((n.div_ceil(panel) * panel * k * self.stored()).next_multiple_of(ALIGN))
    }

    /// Elements that packing a group of panels of `k` terms takes.
    pub fn right_room(&self, n: usize, k: usize) -> usize {
        let all = n.next_multiple_of(self.panel()) * k;
        if self.fits_l2(n, k) { all } else { all.min(self.half_l2 / 2).max(self.panel() * k) }
    }

    /// Bytes of scratch memory that products of at most these extents take. Narrower ones may pack more of the right operand at once.
    pub fn scratch(&self, e: Extents) -> usize {
        let Some(micro) = &self.micro else { return 0 };
        let terms = self.terms(e.k);
        // Rows that are packed, or copied.
        let left = (e.m.div_ceil(micro.rows()) * micro.column() * terms).max(e.m * pitch::<T>(terms));
        let few = (1..=micro.few.len()).map(|m| m * self.partial_sums(m)).max().unwrap_or(0);
        let right = (e.n.next_multiple_of(self.panel()) * terms).min(self.half_l2 + self.panel() * terms);
        ((right.max(few) + left) * size_of::<T>()).next_multiple_of(ALIGN) + ALIGN
    }
}

/// Elements from a copied row of so many terms to the next: an odd number of cache lines, so that rows do not clash in the cache.
pub fn pitch<T>(terms: usize) -> usize {
    let line = 64 / size_of::<T>();
    (terms.div_ceil(line) | 1) * line
}
