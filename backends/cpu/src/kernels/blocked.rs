//! A product at work on one thread: blocks of terms, in them groups of panels of the right operand that stay in the second-level
//! cache, and past these the rows, a part at a time.
//!
//! While rows pass by a group, the next one is fetched: constant operands come from afar, once in a run.

use super::{
    gathered::Alike,
    gemm::{Extents, Finish, Left, Plan, Product, Right, pitch},
    micro::{Ahead, Call, Kernel, Micro},
    operand::Matrix,
    pack::{Lines, Panel},
};

/// Up to so many rows, a right operand whose rows are dense is read in place: what it takes to read it hides behind products.
const IN_PLACE_ROWS: usize = 256;
/// From so many panels on, a left operand whose rows are not dense is packed, and rows that clash in the cache are copied.
const COPIED: usize = 3;

/// A product at work.
pub struct Blocked<'a, T: 'static> {
    /// How.
    pub plan: &'a Plan<T>,
    /// Its microkernels.
    pub micro: &'a Micro<T>,
    /// The product.
    pub e: Extents,
    /// Where it goes.
    pub target: Matrix,
    /// The left operand.
    pub lhs: Left<'a>,
    /// The right operand.
    pub rhs: Right,
    /// What becomes of the sums.
    pub finish: Finish<T>,
    /// [`Plan::scratch`].
    pub scratch: *mut T,
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

/// A left operand's part, whose terms lie in segments of one length.
#[derive(Clone, Copy)]
struct Segments<'a, T> {
    part: Part<T>,
    /// Where they begin.
    starts: &'a [isize],
}

impl<T> From<Part<T>> for Segments<'_, T> {
    fn from(part: Part<T>) -> Self {
        Segments { part, starts: &[0] }
    }
}

impl<T> Part<T> {
    /// Of so many blocks, all and the last one.
    fn and_last(self, blocks: usize) -> [Part<T>; 2] {
        let at = self.at.wrapping_offset((blocks as isize - 1) * self.block);
        [Part { ..self }, Part { at, ..self }]
    }
}

/// Terms `from..from + k` times the panels of a group.
#[derive(Clone, Copy)]
struct Group {
    from: usize,
    k: usize,
    /// The first panel, and how many there are.
    first: usize,
    panels: usize,
    /// From a panel to the one in its place in the next group.
    next: usize,
}

/// A part of the rows.
#[derive(Clone, Copy)]
struct Rows {
    part: usize,
    parts: usize,
    first: usize,
    count: usize,
}

impl Rows {
    /// Part number `part` of `m` rows; parts are even.
    fn new(part: usize, parts: usize, m: usize) -> Rows {
        let (rows, rest) = (m / parts, m % parts);
        Rows { part, parts, first: part * rows + part.min(rest), count: rows + usize::from(part < rest) }
    }
}

impl<T: Product> Blocked<'_, T> {
    /// Computes it.
    ///
    /// # Safety
    /// As [`Plan::run`].
    pub unsafe fn run(&self) {
        let (e, width) = (self.e, self.micro.panel());
        let terms = self.plan.terms(e.k);
        let few = self.micro.streams.get(e.m.wrapping_sub(1));
        if let (Left::Plain(lhs), Right::Packed(at), Some(kernels)) = (self.lhs, self.rhs, few) {
            // SAFETY: passed on from the caller.
            return unsafe { self.streams((lhs, at.cast()), kernels, terms) };
        }
        let (parts, panels) = (e.m.div_ceil(self.micro.rows()), e.n.div_ceil(width));
        let group = self.plan.group(e, terms);
        for from in (0..e.k.max(1)).step_by(terms) {
            let k = terms.min(e.k - from);
            // SAFETY: passed on from the caller.
            unsafe {
                let whole = match self.lhs {
                    Left::Plain(lhs) if !self.clash(lhs) => Some(self.left(lhs, from, k)),
                    // Beside panels that all stay near, rows are copied right before they are used.
                    _ if group >= panels => None,
                    _ => Some(self.copy((0, e.m), (from, k))),
                };
                for first in (0..panels).step_by(group) {
                    let group = Group { from, k, first, panels: group.min(panels - first), next: group };
                    let rhs = self.right(group);
                    for part in 0..parts {
                        let rows = Rows::new(part, parts, e.m);
                        let lhs = match whole.map(Segments::from).or_else(|| self.in_place(rows, (from, k))) {
                            Some(lhs) => lhs,
                            None => self.copy((rows.first, rows.count), (from, k)).into(),
                        };
                        self.blocks(rows, lhs, rhs, group);
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
            for from in (0..e.k.max(1)).step_by(terms) {
                let k = terms.min(e.k - from);
                let finish = self.part_of_terms(from, k);
                let b = packed.wrapping_add(first * e.k + from * width);
                let call = Call {
                    k,
                    segments: 1,
                    starts: &0,
                    a: lhs.at.cast::<T>().wrapping_offset(from as isize * lhs.columns),
                    a_rows: lhs.rows,
                    a_columns: lhs.columns,
                    b,
                    b_rows: width as isize,
                    b_panels: width * e.k,
                    ahead: Ahead::rows(b, width as isize),
                    c: self.target.at.cast::<T>().wrapping_add(first),
                    c_rows: self.target.rows,
                    columns,
                    scale: finish.scale,
                    add: finish.add,
                    bias: at(finish.bias, first as isize),
                    other: at(finish.other, first as isize),
                    other_rows: finish.other_rows,
                    least: finish.least,
                };
                // SAFETY: passed on from the caller.
                unsafe { kernel(&call) };
            }
            first += columns;
        }
    }

    /// What becomes of the sums of `k` terms from one on.
    fn part_of_terms(&self, from: usize, k: usize) -> Finish<T> {
        let null = std::ptr::null();
        // What is added is read before anything is written over it.
        let (bias, other) = if from == 0 { (self.finish.bias, self.finish.other) } else { (null, null) };
        let least = self.finish.least.filter(|_| from + k == self.e.k);
        Finish { add: self.finish.add || from > 0, bias, other, least, ..self.finish }
    }

    /// Whether the left operand is read again and again, and has its lines a page apart: they fall into the same few sets of the
    /// first-level cache, where they push each other out.
    fn clash(&self, lhs: Matrix) -> bool {
        let again = self.e.n.div_ceil(self.micro.panel()) >= COPIED && self.e.m >= self.micro.rows();
        again && lhs.columns == 1 && is_multiple::<T>(lhs.rows, 4096)
    }

    /// The left operand: as it lies, or packed in parts where it would be read with bad strides again and again.
    unsafe fn left(&self, Matrix { at, rows, columns }: Matrix, from: usize, k: usize) -> Part<T> {
        let at = at.cast::<T>().wrapping_offset(from as isize * columns).cast_const();
        if columns == 1 || self.e.n.div_ceil(self.micro.panel()) < COPIED {
            return Part { at, terms: columns, step: rows, block: 0 };
        }
        let to = self.left_room(k);
        let width = self.micro.column();
        let parts = self.e.m.div_ceil(self.micro.rows());
        for part in 0..parts {
            let Rows { first, count, .. } = Rows::new(part, parts, self.e.m);
            let panel = Panel {
                k,
                columns: count,
                from: at.wrapping_offset(first as isize * rows),
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

    /// A part of the rows of a left operand that is read through an index map, where they lie.
    fn in_place(&self, rows: Rows, terms: (usize, usize)) -> Option<Segments<'_, T>> {
        let Left::Gathered(gathered, buffer, first) = self.lhs else { return None };
        let Alike { at, stride, step, starts } = gathered.alike((first + rows.first, rows.count), terms)?;
        if is_multiple::<T>(stride, 4096) {
            return None;
        }
        let at = buffer.cast::<T>().wrapping_offset(at - rows.first as isize * stride);
        Some(Segments { part: Part { at, terms: step, step: stride, block: 0 }, starts })
    }

    /// Copies of some rows of a left operand, of terms `from..from + k`.
    unsafe fn copy(&self, (row, count): (usize, usize), (from, k): (usize, usize)) -> Part<T> {
        let to = self.left_room(k);
        let pitch = pitch::<T>(k);
        // SAFETY: the caller promises the operand and room for all rows.
        unsafe {
            match self.lhs {
                Left::Gathered(rows, buffer, first) => {
                    rows.copy(self.micro, buffer.cast::<T>(), (first + row, count), (from, k), to, pitch);
                }
                Left::Plain(Matrix { at, rows, .. }) => {
                    let from = at.cast::<T>().wrapping_offset(row as isize * rows).wrapping_add(from);
                    (self.micro.lines)(&Lines { count, len: k, from, apart: rows, to, pitch });
                }
            }
        }
        Part { at: to.wrapping_sub(row * pitch).cast_const(), terms: 1, step: pitch as isize, block: 0 }
    }

    /// Scratch memory of the left operand: behind the packed right one.
    fn left_room(&self, k: usize) -> *mut T {
        self.scratch.wrapping_add(self.plan.right_room(self.e.n, k))
    }

    /// The panels of a group, and the last of them, as they lie or packed into the scratch memory.
    unsafe fn right(&self, Group { from, k, first, panels, .. }: Group) -> [Part<T>; 2] {
        let width = self.micro.panel();
        match self.rhs {
            Right::Packed(at) => {
                let at = at.cast::<T>().wrapping_add(first * width * self.e.k + from * width);
                Part { at, terms: width as isize, step: 1, block: (width * self.e.k) as isize }.and_last(panels)
            }
            Right::Plain(Matrix { at, rows, columns: line }) => {
                let at = |panel: usize| {
                    let offset = ((first + panel) * width) as isize * line + from as isize * rows;
                    at.cast::<T>().wrapping_offset(offset).cast_const()
                };
                // Rows that clash in the cache do not stay there for the next part; a short operand, which is probably near, is
                // packed sooner than one that comes from afar.
                let apart = if self.plan.is_short(self.e.n * k) { 512 } else { 4096 };
                let clash = is_multiple::<T>(rows, apart) && self.e.m > 2 * self.micro.rows();
                let in_place = line == 1 && self.e.m <= IN_PLACE_ROWS && !clash;
                let pack = |p: usize, to: *mut T| {
                    let columns = width.min(self.e.n - (first + p) * width);
                    // SAFETY: passed on from the caller.
                    unsafe { (self.micro.pack)(&Panel { k, columns, from: at(p), rows, line, to, width }) };
                };
                if in_place {
                    let all = Part { at: at(0), terms: rows, step: 1, block: width as isize };
                    // Kernels read whole vectors.
                    if (self.e.n - (first + panels - 1) * width).min(width).is_multiple_of(self.micro.lanes) {
                        return all.and_last(panels);
                    }
                    pack(panels - 1, self.scratch);
                    return [all, Part { at: self.scratch, terms: width as isize, step: 1, block: 0 }];
                }
                (0..panels).for_each(|p| pack(p, self.scratch.wrapping_add(p * width * k)));
                Part { at: self.scratch.cast_const(), terms: width as isize, step: 1, block: (width * k) as isize }
                    .and_last(panels)
            }
        }
    }

    /// What is fetched while a part of the rows passes by panel `p` of a group, which is at `b`: a part of the panel that has its
    /// place in the next group, or of the next rows if there is one group; in the first one, which nothing fetched, all of the next
    /// panel.
    fn ahead(&self, rows: Rows, lhs: Part<T>, (p, b): (usize, *const T), terms: isize, group: Group) -> Ahead<T> {
        let Right::Packed(at) = self.rhs else { return Ahead::rows(b, terms) };
        let Group { from, k, first, panels, next } = group;
        let (width, all) = (self.micro.panel(), self.e.n.div_ceil(self.micro.panel()));
        let row = width * size_of::<T>();
        let panel = |number: usize, from: usize| at.cast::<T>().wrapping_add(number * width * self.e.k + from * width);
        let next = first + p + next;
        if from == 0 && first == 0 && rows.part == 0 && p + 1 < panels {
            return Ahead { at: panel(p + 1, 0), step: row as isize };
        }
        let next = if next < all {
            panel(next, from)
        } else if panels == all
            && let Some(ahead) = self.next_rows(rows, lhs, p, group)
        {
            return ahead;
        } else if from + k < self.e.k {
            panel(next - all, from + k)
        } else {
            // Behind this constant is the one that the next product reads.
            panel(all, 0).wrapping_add((next - all) * width * k)
        };
        Ahead {
            at: next.wrapping_byte_add(rows.part * (k * row / rows.parts)),
            step: row.div_ceil(rows.parts) as isize,
        }
    }

    /// Panel number `p`'s share of the rows of the next part, if they are read as they lie, with little between them.
    fn next_rows(&self, rows: Rows, lhs: Part<T>, p: usize, group: Group) -> Option<Ahead<T>> {
        let as_it_lies = matches!(self.lhs, Left::Plain(lhs) if !self.clash(lhs)) && lhs.block == 0 && lhs.terms == 1;
        let apart = usize::try_from(lhs.step).ok().filter(|&apart| as_it_lies && apart <= 2 * group.k)?;
        let rows = (rows.part + 1 < rows.parts).then(|| Rows::new(rows.part + 1, rows.parts, self.e.m))?;
        let share = rows.count * apart * size_of::<T>() / group.panels;
        let at = lhs.at.wrapping_add(rows.first * apart).wrapping_byte_add(p * share);
        Some(Ahead { at, step: share.div_ceil(group.k.max(1)) as isize })
    }

    /// A part of the rows of each panel of a group.
    unsafe fn blocks(&self, rows: Rows, lhs: Segments<'_, T>, [all, last]: [Part<T>; 2], group: Group) {
        let Segments { part: lhs, starts } = lhs;
        let (width, lanes) = (self.micro.panel(), self.micro.lanes);
        let finish = self.part_of_terms(group.from, group.k);
        let kernels = self.micro.kernels[rows.count - 1];
        // Packed parts follow each other, others are where their rows are.
        let a = if lhs.block == 0 { rows.first as isize * lhs.step } else { rows.part as isize * lhs.block };
        let c = self.target.at.cast::<T>().wrapping_offset(rows.first as isize * self.target.rows);
        let other = at(finish.other, rows.first as isize * finish.other_rows);
        for p in 0..group.panels {
            let first = (group.first + p) * width;
            let columns = width.min(self.e.n - first);
            let (b, terms) = match group.panels - p {
                1 => (last.at, last.terms),
                _ => (all.at.wrapping_offset(p as isize * all.block), all.terms),
            };
            let call = Call {
                k: group.k / starts.len(),
                segments: starts.len(),
                starts: starts.as_ptr(),
                a: lhs.at.wrapping_offset(a),
                a_rows: lhs.step,
                a_columns: lhs.terms,
                b,
                b_rows: terms,
                b_panels: 0,
                ahead: self.ahead(rows, lhs, (p, b), terms, group),
                c: c.wrapping_add(first),
                c_rows: self.target.rows,
                columns,
                scale: finish.scale,
                add: finish.add,
                bias: at(finish.bias, first as isize),
                other: at(other, first as isize),
                other_rows: finish.other_rows,
                least: finish.least,
            };
            // SAFETY: passed on from the caller.
            unsafe { kernels[usize::from(columns > lanes)](&call) }
        }
    }
}

/// So many elements further, unless it is null.
fn at<T>(from: *const T, offset: isize) -> *const T {
    if from.is_null() { from } else { from.wrapping_offset(offset) }
}

/// Whether a stride in elements is a multiple of so many bytes.
fn is_multiple<T>(stride: isize, bytes: usize) -> bool {
    (stride.unsigned_abs() * size_of::<T>()).is_multiple_of(bytes)
}
