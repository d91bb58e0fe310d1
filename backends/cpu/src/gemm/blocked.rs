//! Computes a product on one thread. The outer loop is over blocks of terms, and the middle one over groups of panels
//! of the right operand. A group stays in the second-level cache while the inner loop multiplies all blocks of rows
//! with it.
//!
//! While rows are multiplied with a group, the next group is prefetched. Constant operands are thus read from memory
//! once per run.

mod left;
mod rows;
mod streams;

use self::rows::{RowBlock, RowCut};
use super::{
    blocking::Blocking,
    left::Left,
    matrix::{Matrix, Stretch},
    micro::{
        call::{MicroCall, PrefetchRows, SumFinish},
        table::Micro,
    },
    product::{Extents, ProductElement},
    right::Right,
    segments::{LeftPart, Segments},
};

/// A product with its operands, on one thread.
pub struct Blocked<'a, T: 'static> {
    /// The blocking parameters.
    pub blocking: &'a Blocking<T>,
    /// The micro-kernels of the blocking.
    pub micro: &'a Micro<T>,
    /// The extents of the product.
    pub e: Extents,
    /// The destination of the result.
    pub target: Matrix,
    /// The left operand.
    pub lhs: Left<'a>,
    /// The right operand.
    pub rhs: Right<'a>,
    /// The epilogue of the sums.
    pub finish: SumFinish<T>,
    /// Scratch memory, of the size that [`Blocking::scratch`] returns.
    pub scratch: *mut T,
}

/// The panels of a group. Kernels read the first `in_place` panels at their strides, and the others in packed form.
#[derive(Clone, Copy)]
struct GroupPanels<T> {
    /// The number of strided panels.
    in_place: usize,
    /// The first element of the strided panels, the distance of two panels in bytes, and the distance of two rows
    /// (terms) in elements.
    at: *const u8,
    panel_stride: usize,
    terms: isize,
    /// Whether the elements of the strided panels have a narrower type than `T`.
    kept: bool,
    /// The address at which the packed form of the group's first panel begins, or would begin, and the elements of a
    /// packed panel.
    packed: *const T,
    size: usize,
    /// Whether kernels that read a strided panel also pack it, for later rows.
    packs: bool,
}

impl<T> GroupPanels<T> {
    /// Returns a group whose panels are all packed.
    fn packed(packed: *const T, size: usize) -> GroupPanels<T> {
        let at = std::ptr::null();
        GroupPanels { in_place: 0, at, panel_stride: 0, terms: 0, kept: false, packed, size, packs: false }
    }

    /// Returns the group for a block of rows that reads no panel, and so packs none.
    fn unread(self) -> GroupPanels<T> {
        GroupPanels { packs: false, ..self }
    }

    /// Returns the group after a block of rows has read it. Panels that were packed meanwhile are no longer read at
    /// their strides.
    fn read(self) -> GroupPanels<T> {
        GroupPanels { in_place: if self.packs { 0 } else { self.in_place }, packs: false, ..self }
    }
}

/// The terms `from..from + k` of a group of panels.
#[derive(Clone, Copy)]
struct PanelGroup {
    from: usize,
    k: usize,
    /// The number of the first panel, and the number of panels.
    first: usize,
    panels: usize,
    /// The number of panels from a panel to the panel at the same position in the next group.
    next: usize,
}

impl<T: ProductElement> Blocked<'_, T> {
    /// Computes the product.
    ///
    /// # Safety
    /// The requirements of [`Blocking::run`] apply.
    pub unsafe fn run(&self) {
        // SAFETY: passed on from the caller.
        unsafe {
            if !self.streams() {
                self.panels();
            }
        }
    }

    /// Computes the product one panel at a time.
    ///
    /// # Safety
    /// The requirements of [`Blocking::run`] apply.
    unsafe fn panels(&self) {
        let (e, width) = (self.e, self.micro.panel());
        let terms = self.whole_lines(self.blocking.terms(e.k));
        let (cut, panels) = (self.cut(), e.n.div_ceil(width));
        let as_elements = self.blocking.kept.is_none() && self.blocking.coded.is_none();
        let packed = matches!(self.rhs, Right::Packed(_)) && as_elements;
        let group = self.blocking.group(e, terms, packed);
        for from in (0..e.k.max(1)).step_by(terms) {
            let k = terms.min(e.k - from);
            // SAFETY: passed on from the caller.
            unsafe {
                let whole = self.whole(Stretch::new(from, k), group < panels);
                for first in (0..panels).step_by(group) {
                    let group = PanelGroup { from, k, first, panels: group.min(panels - first), next: group };
                    let mut rhs = self.right(group);
                    for part in 0..cut.parts() {
                        let rows = cut.block(part);
                        if self.is_hidden(rows, Stretch::new(from, k)) {
                            self.blocks(rows, Segments::NONE, &rhs.unread(), group);
                            continue;
                        }
                        let lhs = whole.map_or_else(|| self.block_of_rows(rows, Stretch::new(from, k)), Segments::from);
                        self.blocks(rows, lhs, &rhs, group);
                        rhs = rhs.read();
                    }
                }
            }
        }
    }

    /// Returns whether a block of rows and terms consists of padding zeros.
    fn is_hidden(&self, rows: RowBlock, terms: Stretch) -> bool {
        matches!(&self.lhs, Left::Blocks(source) if source.is_hidden(rows.stretch(), terms))
    }

    /// Returns the division of the rows into blocks.
    fn cut(&self) -> RowCut {
        let most = self.micro.rows();
        match self.lhs {
            Left::Blocks(source) => match source.lines_of_rows(most) {
                Some(lines) => RowCut::lines(self.e.m, most, lines.len, lines.lacking),
                None => RowCut::even(self.e.m, most),
            },
            Left::Strided(_) => RowCut::even(self.e.m, most),
        }
    }

    /// Rounds `terms` down to complete segments, if the left operand is read in place in shorter segments.
    fn whole_lines(&self, terms: usize) -> usize {
        let line = if let Left::Blocks(source) = self.lhs { source.segment(self.micro.rows()) } else { 1 };
        if line < terms { terms / line * line } else { terms }
    }

    /// Returns the epilogue for the block of `k` terms from `from` on. The first block adds the bias and the other
    /// operand, later blocks add to the result, and the last block applies the lower bound.
    pub(super) fn part_of_terms(&self, from: usize, k: usize) -> SumFinish<T> {
        let null = std::ptr::null();
        // The result may overwrite `other`, so that the first block reads the added operands.
        let (bias, other) = if from == 0 { (self.finish.bias, self.finish.other) } else { (null, null) };
        let least = self.finish.least.filter(|_| from + k == self.e.k);
        SumFinish { add: self.finish.add || from > 0, bias, other, least, ..self.finish }
    }

    /// Returns the address of term `from` of packed panel `number`.
    fn packed_panel(&self, operand: *const u8, number: usize, from: usize) -> *const u8 {
        operand.wrapping_add((number * self.e.k + from) * self.micro.panel() * self.blocking.stored())
    }

    /// Returns whether one block has all rows.
    fn once(&self) -> bool {
        self.e.m <= self.micro.rows()
    }

    /// Returns the panels of a group. Panels are strided if the right operand has contiguous columns, or is packed in a
    /// narrower type; others are packed into scratch memory. The first block of rows reads strided panels in place and
    /// packs them for later rows. A matrix with contiguous columns is not packed if there are no later rows.
    ///
    /// # Safety
    /// The requirements of [`Blocking::run`] apply.
    unsafe fn right(&self, PanelGroup { from, k, first, panels, .. }: PanelGroup) -> GroupPanels<T> {
        let width = self.micro.panel();
        let columns = (panels * width).min(self.e.n - first * width);
        let packed = GroupPanels::packed(self.scratch, width * k);
        // SAFETY: passed on from the caller.
        unsafe {
            match (self.rhs, &self.blocking.coded) {
                (Right::Packed(at), Some(coded)) => {
                    for p in 0..panels {
                        let to = self.scratch.wrapping_add(p * width * k);
                        let columns = Stretch::new((first + p) * width, width.min(columns - p * width));
                        coded.decode(at, Stretch::new(from, k), columns, to, width);
                    }
                    packed
                }
                (Right::Packed(at), None) => {
                    let (at, size) = (self.packed_panel(at, first, from), width * self.e.k);
                    let Some(kept) = &self.blocking.kept else { return GroupPanels::packed(at.cast(), size) };
                    let panel_stride = size * self.blocking.stored();
                    // Packing kernels write complete vectors: the last vector of the last panel must have a column.
                    let whole = panels * width - columns < self.micro.lanes;
                    let packs = kept.packing(self.e.m.min(self.micro.rows())).is_some();
                    let in_place = if packs { panels - usize::from(!whole) } else { 0 };
                    for p in in_place..panels {
                        let to = self.scratch.wrapping_add(p * width * k);
                        kept.widen(at.wrapping_add(p * panel_stride), to, width * k);
                    }
                    GroupPanels { in_place, at, panel_stride, terms: width as isize, kept: true, packs, ..packed }
                }
                (Right::Strided(Matrix { at, rows, columns: 1 }), _) => {
                    // Packing kernels write complete panels. A product that has fewer vectors of columns than a panel
                    // is not packed if kernels can load partial vectors.
                    let (last, lanes) = (columns - (panels - 1) * width, self.micro.lanes);
                    let packs = !self.once() && (self.e.n + lanes > width || !self.micro.cut);
                    let vectors = self.micro.cut || last.is_multiple_of(lanes);
                    let whole = vectors && (!packs || last + lanes > width);
                    if !whole {
                        let before = (panels - 1) * width;
                        let to = self.scratch.wrapping_add(before * k);
                        let columns = Stretch::new(first * width + before, last);
                        self.rhs.pack(self.blocking, Stretch::new(from, k), columns, to);
                    }
                    let at = at.cast::<T>().wrapping_offset((first * width) as isize + from as isize * rows);
                    let (in_place, panel_stride) = (panels - usize::from(!whole), width * size_of::<T>());
                    GroupPanels { in_place, at: at.cast(), panel_stride, terms: rows, packs, ..packed }
                }
                _ => {
                    let columns = Stretch::new(first * width, columns);
                    self.rhs.pack(self.blocking, Stretch::new(from, k), columns, self.scratch);
                    packed
                }
            }
        }
    }

    /// Returns the addresses to prefetch during a block of rows: those for the first panel, and the bytes from these to
    /// the addresses for the next panel. A block prefetches its share of the panel at the same position in the next
    /// group. If there is one group only, it prefetches the next rows. Nothing has prefetched the first group, so that
    /// its first block of rows prefetches the next panel of the group.
    fn prefetch(&self, rows: RowBlock, lhs: LeftPart<T>, group: PanelGroup) -> Option<(PrefetchRows<T>, usize)> {
        let PanelGroup { from, k, first, panels, next } = group;
        let (Right::Packed(at), None) = (self.rhs, &self.blocking.coded) else {
            return self.next_rows(rows, lhs, group).filter(|_| rows.part > 0);
        };
        let all = self.e.n.div_ceil(self.micro.panel());
        let row = self.micro.panel() * self.blocking.stored();
        let panel = |number: usize, from: usize| self.packed_panel(at, number, from);
        if from == 0 && first == 0 && rows.part == 0 {
            return Some((PrefetchRows { at: panel(1, 0).cast(), step: row as isize }, row * self.e.k));
        }
        let next = first + next;
        let (next, panel_stride) = if next < all {
            (panel(next, from), row * self.e.k)
        } else if panels == all
            && let Some(prefetch) = self.next_rows(rows, lhs, group)
        {
            return Some(prefetch);
        } else if from + k < self.e.k {
            (panel(next - all, from + k), row * self.e.k)
        } else {
            // After the last group, the next product probably reads the packed constant that follows in memory.
            (panel(all, 0).wrapping_add((next - all) * row * k), row * k)
        };
        let at = next.wrapping_add(rows.part * (k * row / rows.parts)).cast();
        Some((PrefetchRows { at, step: row.div_ceil(rows.parts) as isize }, panel_stride))
    }

    /// Returns the addresses to prefetch of the next block of rows, of which each panel gets an equal share. Returns
    /// `None` unless the rows are strided, and the gaps between them are at most as long as their terms.
    fn next_rows(&self, rows: RowBlock, lhs: LeftPart<T>, group: PanelGroup) -> Option<(PrefetchRows<T>, usize)> {
        let strided = matches!(self.lhs, Left::Strided(lhs) if !self.clash(lhs)) && lhs.block == 0 && lhs.terms == 1;
        let row_stride = usize::try_from(lhs.step).ok().filter(|&row_stride| strided && row_stride <= 2 * group.k)?;
        let rows = (rows.part + 1 < rows.parts).then(|| self.cut().block(rows.part + 1))?;
        let share = rows.count * row_stride / group.panels * size_of::<T>();
        let step = share.div_ceil(group.k.max(1)) as isize;
        Some((PrefetchRows { at: lhs.at.wrapping_add(rows.first * row_stride), step }, share))
    }

    /// Multiplies a block of rows with each panel of a group.
    ///
    /// # Safety
    /// The requirements of [`Blocking::run`] apply. `lhs` must be the position of these rows, and `rhs` the panels of
    /// this group.
    unsafe fn blocks(&self, rows: RowBlock, lhs: Segments<'_, T>, rhs: &GroupPanels<T>, group: PanelGroup) {
        debug_assert!(rows.first + rows.count <= self.e.m && group.from + group.k <= self.e.k);
        debug_assert!((group.first + group.panels - 1) * self.micro.panel() < self.e.n);
        let Segments { part: lhs, starts } = lhs;
        let (width, lanes) = (self.micro.panel(), self.micro.lanes);
        let finish = self.part_of_terms(group.from, group.k);
        let dense = lhs.terms == 1;
        let kernels = if dense && !self.micro.dense.is_empty() { self.micro.dense } else { self.micro.kernels };
        let kernels = &kernels[rows.count - 1];
        let kept = self.blocking.kept.as_ref().filter(|_| rhs.kept);
        let packing = kept.and_then(|kept| kept.packing(rows.count)).map_or(kernels.packing, |k| k[usize::from(dense)]);
        // Packed blocks of rows follow each other; other rows are at their strides.
        let a = if lhs.block == 0 { rows.first as isize * lhs.step } else { rows.part as isize * lhs.block };
        let prefetch = self.prefetch(rows, lhs, group);
        let first = (group.first * width) as isize;
        let mut call = MicroCall {
            k: group.k / starts.len().max(1),
            segments: starts.len(),
            starts: starts.as_ptr(),
            a: lhs.at.wrapping_offset(a),
            a_rows: lhs.step,
            a_columns: lhs.terms,
            b_panels: 0,
            c: self.target.at.cast::<T>().wrapping_offset(rows.first as isize * self.target.rows + first),
            c_rows: self.target.rows,
            bias: at(finish.bias, first),
            other: at(finish.other, rows.first as isize * finish.other_rows + first),
            ..MicroCall::new(finish)
        };
        for p in 0..group.panels {
            call.columns = width.min(self.e.n - (group.first + p) * width);
            let packed = rhs.packed.wrapping_add(p * rhs.size);
            let in_place = p < rhs.in_place;
            (call.b, call.b_rows) = if in_place {
                (rhs.at.wrapping_add(p * rhs.panel_stride).cast(), rhs.terms)
            } else {
                (packed, width as isize)
            };
            call.prefetch = match prefetch {
                Some((prefetch, panel_stride)) => {
                    PrefetchRows { at: prefetch.at.wrapping_byte_add(p * panel_stride), ..prefetch }
                }
                None => PrefetchRows::rows(call.b, call.b_rows * size_of::<T>() as isize),
            };
            call.packed = packed.cast_mut();
            let kernel = match () {
                _ if in_place && rhs.packs => packing,
                _ => kernels.widths[call.columns.div_ceil(lanes) - 1],
            };
            // SAFETY: passed on from the caller.
            unsafe { kernel(&call) };
            call.c = call.c.wrapping_add(width);
            call.bias = at(call.bias, width as isize);
            call.other = at(call.other, width as isize);
        }
    }
}

/// Returns the pointer moved by `offset` elements. A null pointer stays null.
pub(super) fn at<T>(from: *const T, offset: isize) -> *const T {
    if from.is_null() { from } else { from.wrapping_offset(offset) }
}
