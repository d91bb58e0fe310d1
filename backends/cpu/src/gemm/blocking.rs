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

/// An operand is read from memory if it exceeds half of the second-level cache by this factor.
const MEMORY: usize = 16;

/// The maximal number of rows that read a right operand without packing it for every few rows.
pub const FEW_ROWS: usize = 12;

/// Elements of an evaluated part, and its minimal number of terms, because cache lines may be along the terms.
const PART: usize = 4096;
const TERMS: usize = 16;

/// The parameters of products of a type at an instruction-set level.
pub struct Blocking<T: 'static> {
    /// Whether a product with a vector may be computed in a way of its own.
    pub(super) vectors: bool,
    /// Whether products of few rows with a matrix that is contiguous along its terms are dot products.
    pub(super) dots: bool,
    /// The micro-kernels; `None` for plain loops.
    pub(super) micro: Option<Micro<T>>,
    /// The kernels that read packed right operands whose elements are kept in a narrower type.
    pub kept: Option<KeptPanels<T>>,
    /// The kernels that read unpacked right operands whose elements have a narrower type.
    pub short: Option<KeptPanels<T>>,
    /// The panels of right operands that are kept as codes, and their kernels.
    pub coded: Option<CodedPanels<T>>,
    /// Elements of a right operand that stay in the second-level cache together with the left operand and the result;
    /// half of them while as many are prefetched.
    panel_elements: usize,
    /// Elements of half of that cache.
    half_l2: usize,
    /// Elements of half of the first-level cache.
    half_l1: usize,
    /// Blocks of terms are multiples of this number.
    unit: usize,
}

impl<T: ProductElement> Blocking<T> {
    /// Returns the blocking for a level, which the machine must have, and for the rows and columns of a product or of
    /// its parts. Results do not depend on the division into parts.
    pub fn new(isa: Isa, extents: [usize; 2]) -> Blocking<T> {
        Blocking::beside(Caches::detect(), isa, extents)
    }

    /// Returns the same for a machine with these caches.
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

    /// Returns rows of the highest micro-kernel.
    pub fn most_rows(&self) -> usize {
        self.micro.map_or(1, |m| m.rows())
    }

    /// Rounds blocks of terms to units of a left operand. Rows of such an operand overlap, and take less of the
    /// first-level cache than separate rows.
    pub fn in_units(self, lhs: impl Fn(usize) -> usize) -> Blocking<T> {
        Blocking { unit: lhs(self.most_rows()).max(1), ..self }
    }

    /// Takes the micro-kernels, and so the packed form, of a product of other extents.
    pub fn formed_for(self, isa: Isa, [m, n]: [usize; 2]) -> Blocking<T> {
        Blocking { micro: T::lanes(isa).and_then(|lanes| T::micro(isa, MicroShape::of(m, n, lanes))), ..self }
    }

    /// Right operands are packed in this type, if panels for `T` are kept in it.
    pub fn storing(self, dtype: Option<DType>, isa: Isa) -> Blocking<T> {
        Blocking { kept: self.micro.zip(dtype).and_then(|(micro, dtype)| KeptPanels::new(&micro, dtype, isa)), ..self }
    }

    /// Returns the blocking for products of few rows with right operands that are read once. These are not packed if
    /// they are contiguous along their terms.
    pub fn reading_once(self, rows: usize) -> Blocking<T> {
        Blocking { dots: rows <= FEW_ROWS, ..self }
    }

    /// Makes products accept right operands of a type, as [`super::right::Right::Short`], in addition to `T`. Few rows
    /// read them in place; for more rows they are widened as they are packed. Returns whether there are kernels for
    /// that.
    pub fn takes_short(&mut self, dtype: DType, isa: Isa) -> bool {
        self.short = self.micro.and_then(|micro| KeptPanels::new(&micro, dtype, isa));
        self.short.is_some()
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

    /// Returns bytes of an element of a packed right operand, unless it is kept as codes.
    pub fn stored(&self) -> usize {
        self.kept.as_ref().map_or(size_of::<T>(), |kept| kept.dtype().size())
    }

    /// Returns whether left operands of `rows` rows may be evaluated part by part. Micro-kernels for fewer rows read
    /// all terms at once.
    pub fn takes_parts(&self, rows: usize) -> bool {
        self.micro.is_some_and(|micro| rows > micro.few.len().max(micro.streams.len()))
    }

    /// Returns the rows and terms of the parts in which left operands of `k` terms are evaluated, most rows first.
    pub fn left_parts(&self, k: usize) -> Vec<PartSize> {
        let (rows, terms) = (self.micro.map_or(1, |m| m.rows()), self.terms(k));
        let last = Some(k % terms).filter(|&last| last > 0);
        let size = |rows: usize, columns: usize| PartSize { rows, columns };
        (1..=rows).rev().flat_map(|m| [size(m, terms)].into_iter().chain(last.map(|last| size(m, last)))).collect()
    }

    /// Returns the terms and columns of the parts in which right operands are evaluated for `products` before they are
    /// packed, most terms first.
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

    /// Returns the number of columns per packed panel, at which tiles of results are best divided; 1 without packing.
    pub fn panel(&self) -> usize {
        self.micro.map_or(1, |m| m.panel())
    }

    /// KC: the number of terms that are summed before the result is written. These are all terms, unless a panel would
    /// exceed the second-level cache, or a block of rows the first-level cache.
    pub fn terms(&self, k: usize) -> usize {
        let rows = self.micro.map_or(1, |m| m.rows());
        let blocks = k.div_ceil((self.panel_elements / self.panel()).min(self.half_l1 / rows).max(1)).max(1);
        let even = k.div_ceil(blocks).max(1);
        (even / self.unit * self.unit).max(self.unit.min(k)).max(1)
    }

    /// Returns the number of panels of `k` terms that stay in the second-level cache while all rows are multiplied with them;
    /// NC is their number of columns. A left operand that exceeds the cache is read only once if the right one fits.
    /// Panels that are `packed` before share the cache with prefetched ones; panels that are packed on the way do not.
    pub fn group(&self, e: Extents, k: usize, packed: bool) -> usize {
        let panels = e.n.div_ceil(self.panel()).max(1);
        if self.fits_l2(e.n, k) && !self.fits_l2(e.m, k) {
            return panels;
        }
        let elements = if packed { self.panel_elements / 2 } else { self.half_l2 / 2 };
        let groups = panels.div_ceil((elements / (self.panel() * k).max(1)).max(1));
        panels.div_ceil(groups)
    }

    /// Returns whether `lines` lines of `k` terms take at most half of the second-level cache.
    pub fn fits_l2(&self, lines: usize, k: usize) -> bool {
        lines.saturating_mul(k) <= self.half_l2
    }

    /// Returns whether `elements` elements take at most half of the first-level cache.
    pub fn fits_l1(&self, elements: usize) -> bool {
        elements <= self.half_l1
    }

    /// Returns whether an operand of `elements` elements is read from memory.
    pub fn exceeds_caches(&self, elements: usize) -> bool {
        elements > MEMORY * self.half_l2
    }

    /// Returns whether a right operand that is not constant is better packed before a product than on the way. In the
    /// latter case all rows are read again for each group of panels. It is not, if these rows and their results are
    /// read from memory.
    pub fn packs_before(&self, e: Extents) -> bool {
        let pass = e.m.saturating_mul(self.terms(e.k) + e.n);
        !self.fits_l2(e.n, e.k) && pass > MEMORY * self.half_l2
    }

    /// Returns the number of columns, in whole panels, whose partial sums for `rows` rows take half of the first-level
    /// cache.
    pub fn partial_sums(&self, rows: usize) -> usize {
        (self.half_l1 / rows / self.panel()).max(1) * self.panel()
    }

    /// Returns the most elements of a tile of the result: half of the second-level cache.
    pub fn tile(&self) -> usize {
        self.half_l2
    }

    /// Returns the maximal rows of one product with `columns` columns and `k` terms: the tile of the result takes at
    /// most half of the second-level cache, and so does the left operand's part.
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

    /// Returns elements that packing a group of panels of `k` terms takes.
    pub fn right_room(&self, n: usize, k: usize) -> usize {
        let all = n.next_multiple_of(self.panel()) * k;
        if self.fits_l2(n, k) { all } else { all.min(self.half_l2 / 2).max(self.panel() * k) }
    }

    /// Returns bytes of scratch memory that products of at most these extents take. Narrower ones may pack more of the
    /// right operand at once.
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

/// Returns the distance of two copied rows of `terms` terms, in elements. It is an odd number of cache lines, which
/// avoids conflicts in the cache.
pub fn pitch<T>(terms: usize) -> usize {
    let line = 64 / size_of::<T>();
    (terms.div_ceil(line) | 1) * line
}
