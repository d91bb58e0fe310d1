//! The parameters of matrix products on one thread: sizes of blocks that fit into the caches, and the kernels to use.

use eutectic_ir::DType;

use super::{
    coded::CodedPanels,
    kept::KeptPanels,
    matrix::PartSize,
    micro::table::{Micro, MicroShape},
    product::{Extents, ProductElement},
};
use crate::{machine::Caches, runtime::memory::ALIGN, simd::Isa};

/// An operand counts as read from memory, not from a cache, if it exceeds half of the second-level cache by this
/// factor.
const MEMORY: usize = 16;

/// The maximal number of rows for which a right operand is read in place although every few rows read it again.
pub const FEW_ROWS: usize = 12;

/// The maximal number of elements of a block of a right operand that is evaluated at once.
const PART: usize = 4096;
/// The minimal number of terms of a block of a right operand that is evaluated at once. If cache lines are along the
/// terms, blocks of fewer terms would read each line several times.
const TERMS: usize = 16;

/// The parameters of products that accumulate in `T` at an instruction-set level.
pub struct Blocking<T: 'static> {
    /// Whether the product has one row or one column, and may use kernels for a matrix times a vector.
    pub(super) vectors: bool,
    /// Whether products of at most [`FEW_ROWS`] rows are computed as dot products, if both operands are contiguous
    /// along the terms.
    pub(super) dots: bool,
    /// The micro-kernels; `None` if plain loops compute products.
    pub(super) micro: Option<Micro<T>>,
    /// The kernels that read packed right operands whose elements are kept in a narrower type.
    pub kept: Option<KeptPanels<T>>,
    /// The kernels that read unpacked right operands whose elements have a narrower type.
    pub short: Option<KeptPanels<T>>,
    /// The layout of right operands that are packed as quantized codes, and its kernels.
    pub coded: Option<CodedPanels<T>>,
    /// The number of elements of a right operand that stay in the second-level cache next to the left operand and the
    /// result. If the product prefetches the next group of panels, each group gets half of them.
    panel_elements: usize,
    /// Half of the second-level cache, in elements.
    half_l2: usize,
    /// Half of the first-level cache, in elements.
    half_l1: usize,
    /// The granularity of blocks of terms: their sizes are multiples of it.
    unit: usize,
}

impl<T: ProductElement> Blocking<T> {
    /// Returns the blocking at an instruction-set level, which the machine must have. `extents` are the rows and
    /// columns of a product or of its tiles. The bits of a result do not depend on the division into tiles.
    pub fn new(isa: Isa, extents: [usize; 2]) -> Blocking<T> {
        Blocking::beside(Caches::detect(), isa, extents)
    }

    /// Returns the blocking that [`Blocking::new`] describes, for a machine with the given caches.
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
            short: None,
            coded: None,
            panel_elements: elements * 3 / 16,
            half_l2: elements / 2,
            half_l1,
            unit: 1,
        }
    }

    /// Returns the number of rows of the highest micro-kernel (MR); 1 without micro-kernels.
    pub fn most_rows(&self) -> usize {
        self.micro.map_or(1, |m| m.rows())
    }

    /// Makes blocks of terms multiples of the number that `lhs` returns for blocks of [`Blocking::most_rows`] rows of a
    /// left operand. A block may have one such unit even if separate rows would exceed the first-level cache, because
    /// the operand's rows overlap and share elements.
    pub fn in_units(self, lhs: impl Fn(usize) -> usize) -> Blocking<T> {
        Blocking { unit: lhs(self.most_rows()).max(1), ..self }
    }

    /// Replaces the micro-kernels, and with them the packed form, by those for products of `m` rows and `n` columns.
    pub fn formed_for(self, isa: Isa, [m, n]: [usize; 2]) -> Blocking<T> {
        Blocking { micro: T::lanes(isa).and_then(|lanes| T::micro(isa, MicroShape::of(m, n, lanes))), ..self }
    }

    /// Packs right operands with elements of type `dtype` if there are kernels for such panels, otherwise with elements
    /// of type `T`.
    pub fn storing(self, dtype: Option<DType>, isa: Isa) -> Blocking<T> {
        Blocking { kept: self.micro.zip(dtype).and_then(|(micro, dtype)| KeptPanels::new(&micro, dtype, isa)), ..self }
    }

    /// Returns the blocking for products of `rows` rows whose right operand is read only once. If it is contiguous
    /// along its terms, few rows read it in place, because packing it would not pay.
    pub fn reading_once(self, rows: usize) -> Blocking<T> {
        Blocking { dots: rows <= FEW_ROWS, ..self }
    }

    /// Makes products accept right operands with elements of type `dtype`, as [`super::right::Right::Short`], in
    /// addition to `T`. Few rows read them in place; for more rows, packing widens them. Returns whether there are
    /// kernels for the type.
    pub fn takes_short(&mut self, dtype: DType, isa: Isa) -> bool {
        self.short = self.micro.and_then(|micro| KeptPanels::new(&micro, dtype, isa));
        self.short.is_some()
    }

    /// Returns the blocking for right operands that are packed as codes in these panels. `None` stands for panels of
    /// elements.
    pub fn coding(self, coded: Option<CodedPanels<T>>) -> Blocking<T> {
        Blocking { coded, ..self }
    }

    /// Returns the byte offset of column `column` in a packed matrix of `k` terms. The column must be the first one of
    /// a panel.
    pub fn packed_at(&self, column: usize, k: usize) -> usize {
        match &self.coded {
            Some(CodedPanels { form, .. }) => column / form.width * form.bytes(),
            None => column * k * self.stored(),
        }
    }

    /// Returns the bytes of an element of a right operand that is packed as elements, not as codes.
    pub fn stored(&self) -> usize {
        self.kept.as_ref().map_or(size_of::<T>(), |kept| kept.dtype().size())
    }

    /// Returns whether left operands of `rows` rows may be evaluated in blocks of terms. Kernels for fewer rows read
    /// all terms at once.
    pub fn takes_parts(&self, rows: usize) -> bool {
        self.micro.is_some_and(|micro| rows > micro.few.len().max(micro.streams.len()))
    }

    /// Returns the sizes (rows and terms) of the blocks in which left operands of `k` terms are evaluated, most rows
    /// first.
    pub fn left_parts(&self, k: usize) -> Vec<PartSize> {
        let (rows, terms) = (self.micro.map_or(1, |m| m.rows()), self.terms(k));
        let last = Some(k % terms).filter(|&last| last > 0);
        let size = |rows: usize, columns: usize| PartSize { rows, columns };
        (1..=rows).rev().flat_map(|m| [size(m, terms)].into_iter().chain(last.map(|last| size(m, last)))).collect()
    }

    /// Returns the sizes (terms and columns) of the blocks in which right operands of `products` are evaluated before
    /// they are packed, most terms first.
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

    /// Returns the number of columns per packed panel; 1 without packing. The width of tiles of the result should be a
    /// multiple of it.
    pub fn panel(&self) -> usize {
        self.micro.map_or(1, |m| m.panel())
    }

    /// Returns KC, the number of terms that are summed before the result is written. It is `k` unless a panel would
    /// exceed its share of the second-level cache, or a block of rows half of the first-level cache.
    pub fn terms(&self, k: usize) -> usize {
        let rows = self.micro.map_or(1, |m| m.rows());
        let blocks = k.div_ceil((self.panel_elements / self.panel()).min(self.half_l1 / rows).max(1)).max(1);
        let even = k.div_ceil(blocks).max(1);
        (even / self.unit * self.unit).max(self.unit.min(k)).max(1)
    }

    /// Returns the number of panels of `k` terms in a group. A group stays in the second-level cache while all rows are
    /// multiplied with it, and NC is its number of columns. If only the right operand fits into that cache, all panels
    /// are one group, so that the left operand is read only once. Panels that are `packed` up front share the cache
    /// with the next group, which is prefetched; panels that the product packs do not.
    pub fn group(&self, e: Extents, k: usize, packed: bool) -> usize {
        let panels = e.n.div_ceil(self.panel()).max(1);
        if self.fits_l2(e.n, k) && !self.fits_l2(e.m, k) {
            return panels;
        }
        let elements = if packed { self.panel_elements / 2 } else { self.half_l2 / 2 };
        let groups = panels.div_ceil((elements / (self.panel() * k).max(1)).max(1));
        panels.div_ceil(groups)
    }

    /// Returns whether `lines` rows or columns of `k` terms take at most half of the second-level cache.
    pub fn fits_l2(&self, lines: usize, k: usize) -> bool {
        lines.saturating_mul(k) <= self.half_l2
    }

    /// Returns whether `elements` elements take at most half of the first-level cache.
    pub fn fits_l1(&self, elements: usize) -> bool {
        elements <= self.half_l1
    }

    /// Returns whether an operand of `elements` elements is so large that it is read from memory, not from a cache.
    pub fn exceeds_caches(&self, elements: usize) -> bool {
        elements > MEMORY * self.half_l2
    }

    /// Returns whether a right operand that changes between runs is better packed before the product than during it. A
    /// product that packs reads all rows again for each group of panels. That is slow if there are several groups, and
    /// the rows and their results exceed the caches.
    pub fn packs_before(&self, e: Extents) -> bool {
        let pass = e.m.saturating_mul(self.terms(e.k) + e.n);
        !self.fits_l2(e.n, e.k) && pass > MEMORY * self.half_l2
    }

    /// Returns the number of columns, in complete panels, whose partial sums for `rows` rows take half of the
    /// first-level cache.
    pub fn partial_sums(&self, rows: usize) -> usize {
        (self.half_l1 / rows / self.panel()).max(1) * self.panel()
    }

    /// Returns the most elements of a tile of the result: half of the second-level cache.
    pub fn tile(&self) -> usize {
        self.half_l2
    }

    /// Returns the maximal number of rows of one product with `columns` columns and `k` terms, at least 16. The tile of
    /// the result and the block of the left operand then each take at most half of the second-level cache.
    pub fn rows(&self, columns: usize, k: usize) -> usize {
        (self.half_l2 / columns.max(self.terms(k))).max(16)
    }

    /// Returns the bytes of a packed right operand; `None` if there is no packed form.
    pub fn packed(&self, n: usize, k: usize) -> Option<usize> {
        let panel = self.micro?.panel();
        if let Some(coded) = &self.coded {
            return Some(coded.matrix_bytes(n));
        }
        Some((n.div_ceil(panel) * panel * k * self.stored()).next_multiple_of(ALIGN))
    }

    /// Returns the elements of scratch memory that a packed group of panels of `k` terms takes.
    pub fn right_room(&self, n: usize, k: usize) -> usize {
        let all = n.next_multiple_of(self.panel()) * k;
        if self.fits_l2(n, k) { all } else { all.min(self.half_l2 / 2).max(self.panel() * k) }
    }

    /// Returns the bytes of scratch memory that suffice for all products of at most these extents. A narrower product
    /// may pack a larger group than the widest one.
    pub fn scratch(&self, e: Extents) -> usize {
        let Some(micro) = &self.micro else { return 0 };
        let terms = self.terms(e.k);
        // The rows of the left operand are packed, or copied with a pitch.
        let left = (e.m.div_ceil(micro.rows()) * micro.column() * terms).max(e.m * pitch::<T>(terms));
        let few = (1..=micro.few.len()).map(|m| m * self.partial_sums(m)).max().unwrap_or(0);
        let right = (e.n.next_multiple_of(self.panel()) * terms).min(self.half_l2 + self.panel() * terms);
        ((right.max(few) + left) * size_of::<T>()).next_multiple_of(ALIGN) + ALIGN
    }
}

/// Returns the elements from a copied row of `terms` terms to the next. This distance is an odd number of cache lines,
/// so that rows spread over all sets of the cache.
pub fn pitch<T>(terms: usize) -> usize {
    let line = 64 / size_of::<T>();
    (terms.div_ceil(line) | 1) * line
}
