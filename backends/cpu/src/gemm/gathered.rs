//! Left operands of products that are read through an index map. Examples are the windows of a convolution over a
//! padded image, attention heads that a reshape merges, and rows at a stride.
//!
//! The terms of a row are divided into lines: ranges of terms with a constant stride in the buffer. Neighbouring rows
//! whose terms are all in the buffer are read in place, line by line. Other rows are copied to scratch memory, block by
//! block as they are needed. Elements at which a guard (a bound of an index) fails get the fill value. Guards are
//! evaluated once per row and not per element. Neighbouring rows with equal guards are copied together, one line of
//! each at a time.

mod copy;
mod rows;
mod sliding;

use eutectic_backend::{
    Guard, Instr,
    axes::{Nest, normalise},
    grouped::{COLUMNS, Grouped, ROWS},
};
use eutectic_ir::{DType, index::Index};

use copy::RowCopy;
pub use rows::Alike;
use rows::{Along, GatheredAxis, GatheredBound, RowMap};
use sliding::{PATCH, Sliding};

use super::{matrix::Stretch, micro::table::Micro, product::ProductElement};
use crate::tile::{MAX_RANK, Word, number};

/// The maximal number of lines per row of an operand that is read in place.
const SEGMENTS: usize = 1 << 12;
/// The number of terms per line from which on copying is cheap compared to the products.
const LONG_LINE: usize = 8;
/// Blocks of rows end with the innermost row axis only if its extent is at least this.
const FEW_ROWS: usize = 4;
/// The number of rows per block from which on more rows gain nothing, because multiply-adds take longer than reading
/// the panel of the right operand.
const HIGH: usize = 7;

/// A left operand that is read through an index map.
pub struct Gathered {
    /// The slot of the buffer.
    pub slot: usize,
    map: RowMap,
    /// The value where a guard fails: an element in the first bytes of the word.
    fill: Word,
    /// Whether all terms of a line may be padding zeros, because a guard depends on a term axis outside of lines.
    hides: bool,
    sliding: Option<Sliding>,
}

impl Gathered {
    /// Compiles an operand over `[b.. m.. k..]`, for micro-kernels of at most `high` rows. Returns `None` unless it is
    /// a load of elements of type `acc`, guarded or not, with an affine index. Each guard must be affine as well, and
    /// depend on one term axis at most.
    pub fn compile(lhs: &Grouped, acc: DType, slots: &[(DType, usize)], high: usize) -> Option<Gathered> {
        if lhs.nest.domain.contains(&0) {
            return None;
        }
        // Axes that must stay separate in the right operand or the result may be merged here.
        let (mut nest, mut groups) = ([lhs.nest.clone()], [lhs.groups[0] + lhs.groups[ROWS], lhs.groups[COLUMNS]]);
        normalise(&mut nest, &[&[0, 1]], &mut groups);
        let ([nest], [_, terms]) = (nest, groups);
        let rank = nest.domain.len();
        if rank > MAX_RANK {
            return None;
        }
        let (load, guards, fill) = guarded(&nest)?;
        let Instr::Load(load) = load else { return None };
        let &(dtype, count) = slots.get(load.slot)?;
        if dtype != acc || load.dtype != acc || !load.guards.iter().all(|g| guards.contains(g)) {
            return None;
        }
        let strides = load.at.affine(rank)?;
        let axes: Vec<GatheredAxis> =
            nest.domain.iter().zip(strides).map(|(&extent, stride)| GatheredAxis { extent, stride }).collect();
        let (rows, terms) = axes.split_at(rank - terms);
        let first = rows.len();
        let bounds: Vec<(Vec<i64>, &Guard)> =
            guards.iter().map(|g| Some((g.0.affine(rank)?, g))).collect::<Option<_>>()?;
        let guarded = |axis: usize| bounds.iter().any(|(strides, _)| strides[first + axis] != 0);
        // A line consists of the last term axis and the axes before it that continue it in memory. It extends no
        // further than an axis on which a guard depends.
        let mut start = terms.len().saturating_sub(1);
        let mut line = terms.last().map_or(1, |t| t.extent);
        let step = terms.last().map_or(1, |t| t.stride);
        while start > 0 && !guarded(start) && terms[start - 1].stride == step * line as i64 {
            start -= 1;
            line *= terms[start].extent;
        }
        let unit = terms.get(start).map_or(1, |t| line / t.extent);
        let along = |starts: Vec<isize>, axis: &GatheredAxis| {
            let steps = |at: isize| (0..axis.extent as isize).map(move |i| at + i * axis.stride as isize);
            starts.into_iter().flat_map(steps).collect()
        };
        let segments: usize = terms[..start].iter().map(|axis| axis.extent).product();
        let starts = if segments <= SEGMENTS { terms[..start].iter().fold(vec![0], along) } else { Vec::new() };
        let end = step * (line as i64 - 1);
        let least = starts.iter().min().map_or(0, |&at| at as i64) + end.min(0);
        let most = starts.iter().max().map_or(0, |&at| at as i64) + end.max(0);
        let bound = |(strides, (index, range)): &(Vec<i64>, &Guard)| {
            let mut on = (0..terms.len()).filter(|&t| strides[first + t] != 0);
            let along = match (on.next(), on.next()) {
                (None, _) => Along::None,
                (Some(axis), None) if strides[first + axis] > 0 => match strides[first + axis] {
                    factor if axis < start => Along::Outer(axis, factor),
                    factor if axis == start => Along::Line(factor, unit),
                    _ => return None,
                },
                _ => return None,
            };
            let strides = strides[..first].to_vec();
            Some(GatheredBound { constant: index.constant, strides, along, from: range.start, to: range.end })
        };
        let map = RowMap {
            count,
            base: load.at.constant,
            rows: rows.to_vec(),
            outer: terms[..start].to_vec(),
            line,
            step,
            starts,
            reach: (least, most),
            guards: bounds.iter().map(bound).collect::<Option<_>>()?,
        };
        let fill = fill.unwrap_or(0.0);
        let hides = fill == 0.0 && map.guards.iter().any(|guard| matches!(guard.along, Along::Outer(..)));
        let sliding = Sliding::new(&map, high);
        Some(Gathered { slot: load.slot, map, fill: number(fill.into(), acc), hides, sliding })
    }

    /// Returns the positions of a block of rows and terms that can be read in place. Returns `None` unless all elements
    /// are in the buffer, the rows have one stride, and the terms are complete lines.
    pub fn alike(&self, rows: Stretch, terms: Stretch) -> Option<Alike<'_>> {
        let (Stretch { first, count }, Stretch { first: from, count: k }) = (rows, terms);
        let inner = self.map.rows.last()?;
        let here = first % inner.extent + count <= inner.extent;
        if !here || !from.is_multiple_of(self.map.line) || !k.is_multiple_of(self.map.line) {
            return None;
        }
        // Guards are affine: one that holds for the first and the last row holds for the rows between them.
        let point = self.map.point(first);
        let beyond = count as i64 - 1;
        let there = self.map.guards.iter().all(|guard| self.map.is_whole(guard, &point, beyond));
        let at = self.map.rows.iter().zip(&point).fold(self.map.base, |sum, (axis, &i)| sum + axis.stride * i as i64);
        let last = at + inner.stride * beyond;
        let inside =
            there && at.min(last) + self.map.reach.0 >= 0 && at.max(last) + self.map.reach.1 < self.map.count as i64;
        let starts = self
            .map
            .starts
            .get(from / self.map.line..(from + k) / self.map.line)
            .filter(|starts| !starts.is_empty())?;
        let [at, stride, step] = [at, inner.stride, self.map.step].map(|n| n as isize);
        inside.then_some(Alike { at, stride, step, starts })
    }

    /// Returns the extent of the innermost row axis if blocks of rows should not cross its end, so that they can be
    /// read in place. This pays if copying terms is slow, because lines are short or strided. It also pays if rows
    /// overlap, and such blocks are almost as high as blocks of `most` rows.
    pub fn lines_of_rows(&self, most: usize) -> Option<usize> {
        let line = self.map.rows.last()?.extent;
        let slow = self.map.line < LONG_LINE || self.map.step != 1;
        let blocks = line.div_ceil(most.max(1));
        let high = || line >= HIGH * blocks || 4 * line >= 3 * most * blocks;
        let gains = slow || self.sliding.is_some() && high();
        (gains && !self.map.starts.is_empty() && line >= FEW_ROWS).then_some(line)
    }

    /// Returns the granularity of blocks of terms: their sizes should be multiples of it. If rows are read in place, it
    /// is the length of a line, because only complete lines can be.
    pub fn segment(&self, most: usize) -> usize {
        self.lines_of_rows(most).map_or(1, |_| self.map.line)
    }

    /// Returns the number of terms that a block of `most` rows should read together. If rows overlap, it is the number
    /// of terms of a patch (see `gathered/sliding.rs`). If all terms of a line may be padding, it is an even fraction
    /// of a line: a block of rows then takes at most `PATCH` elements.
    pub fn unit(&self, most: usize) -> usize {
        let sliding = self.sliding.as_ref().filter(|_| self.lines_of_rows(most).is_some());
        match sliding {
            Some(sliding) => sliding.unit,
            None if self.hides => {
                let parts = self.map.line.div_ceil(PATCH / most.max(1));
                if self.map.line.is_multiple_of(parts) { self.map.line / parts } else { 1 }
            }
            None => 1,
        }
    }

    /// Returns whether a block of rows and terms consists of padding zeros, as at the border of a convolution. Such
    /// blocks are not multiplied, whatever the right operand holds (NaN, for example).
    pub fn is_hidden(&self, rows: Stretch, terms: Stretch) -> bool {
        let lines = terms.first / self.map.line..(terms.first + terms.count).div_ceil(self.map.line);
        let mut point = self.map.point(rows.first);
        self.hides
            && (0..rows.count).all(|_| {
                let row = self.map.row(&point);
                self.map.advance(&mut point);
                row.is_none_or(|row| lines.clone().all(|line| !self.map.has(&row, line)))
            })
    }

    /// Copies a block of overlapping rows to `to`, each shared element once and the fill value where guards fail.
    /// Returns the positions there, or `None` if there is no patch for the block.
    ///
    /// # Safety
    /// The requirements of [`Gathered::copy`] apply, and `to` must have room for the packed terms.
    pub unsafe fn patch<T: ProductElement>(
        &self,
        micro: &Micro<T>,
        buffer: *const T,
        rows: Stretch,
        terms: Stretch,
        to: *mut T,
    ) -> Option<Alike<'_>> {
        // SAFETY: `fill` holds an element of this type; the other requirements are passed on from the caller.
        unsafe {
            self.sliding.as_ref()?.patch(&self.map, self.fill.at().cast::<T>().read(), micro, buffer, [rows, terms], to)
        }
    }

    /// Copies a block of rows and terms to rows that are `pitch` elements apart. Rows are counted over all matrices of
    /// the batch.
    ///
    /// # Safety
    /// `buffer` must be the slot's buffer, of the size that the kernel states, and `to` must have room for the rows.
    pub unsafe fn copy<T: ProductElement>(
        &self,
        micro: &Micro<T>,
        buffer: *const T,
        rows: Stretch,
        terms: Stretch,
        to: *mut T,
        pitch: usize,
    ) {
        // SAFETY: `fill` holds an element of this type; the other requirements are passed on from the caller.
        unsafe {
            let fill = self.fill.at().cast::<T>().read();
            RowCopy { map: &self.map, micro, buffer, fill }.rows(rows, terms, to, pitch);
        }
    }
}

/// Returns the instruction whose value an operand has where all guards hold, the guards, and the value elsewhere.
/// Returns `None` if the operand is not of this form.
fn guarded(nest: &Nest) -> Option<(&Instr, Vec<Guard>, Option<f64>)> {
    let (mut guards, mut fill) = (Vec::new(), None);
    let mut instr = &nest.instrs[*nest.results.first()?];
    while let Instr::Select { pieces, fill: other, .. } = instr {
        let [(of_piece, value)] = pieces.as_slice() else { return None };
        if fill.replace(other.get()).is_some_and(|fill| fill.to_bits() != other.get().to_bits()) {
            return None;
        }
        guards.extend(of_piece.iter().cloned());
        instr = &nest.instrs[*value];
    }
    let plain = |index: &Index| index.values().is_empty();
    (guards.iter().all(|g| plain(&g.0)) && instr.maps().into_iter().all(plain)).then_some((instr, guards, fill))
}

#[cfg(test)]
mod tests {
    use eutectic_backend::{Body, Load};

    use super::*;
    use crate::{
        gemm::micro::table::{Float, MicroShape},
        simd::Isa,
    };

    /// Returns the 3 × 3 windows of a padded image whose innermost axis has `groups` groups of `channels` channels
    /// each. There is a matrix for each group. Blocks have at most `most` rows.
    fn windows(groups: usize, size: usize, channels: usize, most: usize) -> Gathered {
        let at = |axes: &[(usize, usize)], constant: i64| {
            axes.iter().fold(Index::constant(constant), |sum, &(d, n)| sum.plus(&Index::coord(d).times(n as i64)))
        };
        let (all, line) = (groups * channels, size * groups * channels);
        let inside = 1..size as i64 + 1;
        let guards = vec![(at(&[(1, 1), (3, 1)], 0), inside.clone()), (at(&[(2, 1), (4, 1)], 0), inside)];
        let image = at(&[(0, channels), (1, line), (2, all), (3, line), (4, all), (5, 1)], -((line + all) as i64));
        let dtype = DType::F32;
        let load = Instr::Load(Load { slot: 0, at: image, guards: guards.clone(), dtype });
        let body = Body {
            domain: vec![groups, size, size, 3, 3, channels],
            instrs: vec![load, Instr::Select { pieces: vec![(guards, 0)], fill: 0.0.into(), dtype }],
            results: vec![1],
            ..Body::default()
        };
        Gathered::compile(&Grouped::operand(&body, [1, 2, 3]), dtype, &[(dtype, size * line)], most)
            .expect("the index map of windows is affine")
    }

    #[test]
    fn patches_hold_the_channels_of_their_group_alone() {
        let shapes = [(1, 16, 32), (2, 32, 32), (4, 16, 32), (6, 8, 32), (16, 14, 16)];
        for ((groups, size, channels), most) in shapes.into_iter().flat_map(|shape| [(shape, 14), (shape, 6)]) {
            let windows = windows(groups, size, channels, most);
            let lines = windows.lines_of_rows(14);
            assert_eq!(lines, Some(size), "lines of {size} in {groups} groups are blocks of rows");
            assert_eq!(windows.unit(14), 3 * channels, "a line of the image is a stretch, in {groups} groups");
            let span = windows.sliding.as_ref().map(|sliding| sliding.span);
            assert_eq!(span, Some((size.min(most) + 2) * channels), "{groups} groups of {channels}");
        }
    }

    #[test]
    fn what_no_window_of_a_line_has_is_hidden() {
        // On the first line of the image, the first line of taps is above the image. On the last line, the last line of
        // taps is below it.
        let (size, channels) = (14, 300);
        let windows = windows(1, size, channels, 14);
        let hidden = |line: usize, tap: usize| {
            let terms = Stretch::new(tap * 3 * channels, 3 * channels);
            windows.is_hidden(Stretch::new(line * size, size), terms)
        };
        let found: Vec<_> = (0..size).flat_map(|line| (0..3).map(move |tap| (line, tap))).collect();
        let found: Vec<_> = found.into_iter().filter(|&(line, tap)| hidden(line, tap)).collect();
        assert_eq!(found, [(0, 0), (size - 1, 2)]);
        // A block is not hidden if some of its rows, or some of its terms, have elements in the image.
        assert!(!windows.is_hidden(Stretch::new(1, size), Stretch::new(0, 3 * channels)));
        assert!(!windows.is_hidden(Stretch::new(0, size), Stretch::new(0, 3 * channels + 1)));
        assert_eq!(3 * channels % windows.unit(14), 0, "blocks of terms end where lines do");
    }

    #[test]
    fn blocks_of_any_number_of_rows_have_patches() {
        let (groups, size, channels) = (4, 14, 16);
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| isa <= Isa::detect()) {
            let micro = <f32 as Float>::micro(isa, MicroShape::Narrow);
            let (windows, k) = (windows(groups, size, channels, micro.rows()), 9 * channels);
            let image: Vec<f32> = (0..groups * size * size * channels).map(|i| i as f32).collect();
            for (first, count) in (1..=micro.rows().min(size))
                .flat_map(|n| [0, size - n, size + (size - n) / 2, size * size].map(|at| (at, n)))
            {
                let (rows, terms) = (Stretch::new(first, count), Stretch::new(0, k));
                let (mut room, mut copied) = (vec![77.0_f32; micro.column() * k], vec![0.0_f32; count * k]);
                // SAFETY: the image is the slot's buffer, and there is room for the packed and the copied terms.
                let alike = unsafe {
                    windows.copy(&micro, image.as_ptr(), rows, terms, copied.as_mut_ptr(), k);
                    windows.patch(&micro, image.as_ptr(), rows, terms, room.as_mut_ptr())
                };
                let alike = alike.expect("each block of rows of a line has a patch");
                for (row, term) in (0..count).flat_map(|row| (0..k).map(move |term| (row, term))) {
                    let of_row = alike.at + row as isize * alike.stride;
                    let at = of_row + alike.starts[term / channels] + (term % channels) as isize;
                    assert_eq!(
                        room[at as usize],
                        copied[row * k + term],
                        "term {term} of row {row} of {count} at {first}"
                    );
                }
            }
        }
    }

    #[test]
    fn windows_beyond_an_image_of_few_positions_are_zeros() {
        // Neighbouring positions are one element apart, and so are neighbouring channels, so that positions share
        // elements.
        let micro = <f32 as Float>::micro(Isa::Portable, MicroShape::Narrow);
        for (channels, taps, size) in [(2, 2, 1), (3, 2, 1), (4, 3, 1), (8, 2, 1), (3, 3, 2)] {
            let (rows, before) = (size + taps - 1, taps as i64 - 1);
            let coords = |axes: &[usize]| axes.iter().fold(Index::default(), |sum, &d| sum.plus(&Index::coord(d)));
            let guards = vec![(coords(&[0, 1]), before..before + size as i64)];
            let at = coords(&[0, 1, 2]).plus(&Index::constant(-before));
            let (dtype, count) = (DType::F32, channels + size - 1);
            let load = Instr::Load(Load { slot: 0, at, guards: guards.clone(), dtype });
            let body = Body {
                domain: vec![rows, taps, channels],
                instrs: vec![load, Instr::Select { pieces: vec![(guards, 0)], fill: 0.0.into(), dtype }],
                results: vec![1],
                ..Body::default()
            };
            let operand = Grouped::operand(&body, [0, 1, 2]);
            let windows =
                Gathered::compile(&operand, dtype, &[(dtype, count)], micro.rows()).expect("the index map is affine");
            let image: Vec<f32> = (0..count).map(|i| 1.0 + i as f32).collect();
            let k = taps * channels;
            for (first, rows) in
                (0..rows).flat_map(|first| (1..=(rows - first).min(micro.rows())).map(move |n| (first, n)))
            {
                let (mut room, mut copied) = (vec![77.0_f32; micro.column() * k], vec![77.0_f32; rows * k]);
                let (of_rows, terms) = (Stretch::new(first, rows), Stretch::new(0, k));
                // SAFETY: the image is the slot's buffer, and there is room for the packed and the copied terms.
                let alike = unsafe {
                    windows.copy(&micro, image.as_ptr(), of_rows, terms, copied.as_mut_ptr(), k);
                    windows.patch(&micro, image.as_ptr(), of_rows, terms, room.as_mut_ptr())
                };
                for (row, term) in (0..rows).flat_map(|row| (0..k).map(move |term| (row, term))) {
                    let (position, channel) = ((first + row + term / channels) as i64 - before, term % channels);
                    let there = (0..size as i64).contains(&position);
                    let expected = if there { image[position as usize + channel] } else { 0.0 };
                    assert_eq!(copied[row * k + term], expected, "copied term {term} of row {row} at {first}");
                    if let Some(alike) = &alike {
                        let of_row = alike.at + row as isize * alike.stride;
                        let at = of_row + alike.starts[term / channels] + (term % channels) as isize;
                        assert_eq!(
                            room[at as usize], expected,
                            "term {term} of row {row} of {rows} at {first}, {channels} channels"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn rows_lie_as_a_whole_where_no_guard_cuts_them() {
        let windows = windows(2, 9, 8, 14);
        for (first, count) in (0..2 * 81).flat_map(|first| (1..=9 - first % 9).map(move |count| (first, count))) {
            let (y, x) = (first / 9 % 9, first % 9);
            let inside = (1..8).contains(&y) && x >= 1 && x + count <= 8;
            let there = windows.alike(Stretch::new(first, count), Stretch::new(0, 72));
            assert_eq!(there.is_some(), inside, "{count} rows from ({y}, {x}) on");
            let row = (y * 9 + x) * 16 + first / 81 * 8;
            assert!(there.is_none_or(|a| a.at == row as isize - 160 && a.stride == 16), "row {row} begins elsewhere");
        }
    }
}
