//! Executes loads and scatters element by element, in lines along the innermost axis. All lines share a table of the
//! elements' offsets from the start of a line.

use super::{Gather, TileRun};
use crate::simd::{
    pick::{LANES, Pick, Window},
    register::with_integer,
};
use crate::tile::{
    access::{SplitAccess, all_hold},
    domain::{AxisMask, MAX_RANK},
    gather::{GatherLines, ScatterLines},
    program::Scatter,
};

/// The maximal number of elements of a line that are handled at a time.
pub(super) const CHUNK: usize = 256;

/// The position that marks elements which are not stored.
const NOWHERE: i64 = i64::MIN;

/// The table that all lines of a load share.
struct LineTable {
    /// The offset of each element from the start of the line.
    at: [i64; CHUNK],
    /// For each element, whether a guard excludes it.
    hidden: [bool; CHUNK],
    any_hidden: bool,
    /// The least and the greatest offset.
    ends: std::ops::RangeInclusive<i64>,
    /// The source offsets of each window, if elements are gathered by permutations.
    windows: [Window; CHUNK / LANES],
}

impl LineTable {
    /// Finds the least and the greatest of the first `n` offsets.
    fn find_ends(&mut self, n: usize) {
        let at = &self.at[..n];
        let [least, greatest] = at.iter().fold([i64::MAX, i64::MIN], |[a, b], &at| [a.min(at), b.max(at)]);
        self.ends = least..=greatest;
    }

    /// Returns whether all elements of a line that starts at `base` are in a buffer of `count` elements.
    fn is_within(&self, base: i64, count: usize) -> bool {
        let [least, greatest] = [self.ends.start(), self.ends.end()].map(|end| base.checked_add(*end));
        least.is_some_and(|at| at >= 0) && greatest.is_some_and(|at| (at as u64) < count as u64)
    }
}

impl TileRun<'_> {
    /// Adds the integers of a value, each times `factor`, to `to`. The integers are those from a point on along an
    /// axis.
    ///
    /// # Safety
    /// The value's step must have been executed, and the points must be within the tile.
    pub(super) unsafe fn add_integers(
        &self,
        id: usize,
        point: &[usize; MAX_RANK],
        axis: usize,
        factor: i64,
        to: &mut [i64],
    ) {
        let value = &self.program.values[id];
        let strides = self.tile.strides(value.mask);
        let (at, step) = (self.place(&strides, point), strides[axis]);
        // SAFETY: the caller keeps this function's contract.
        unsafe {
            let register = self.at(id);
            with_integer!(value.dtype, Int => add(register.cast::<Int>().offset(at), step, factor, to));
        }
    }

    /// Executes a load in lines.
    ///
    /// # Safety
    /// As [`crate::tile::TileProgram::run`]. The register must be the step's own, and elements of the buffer must have
    /// the size of `T`.
    pub(super) unsafe fn gather<T: Copy + Default>(
        &self,
        gather: &Gather<'_>,
        lines: &GatherLines,
        mask: AxisMask,
        register: *mut T,
    ) {
        // SAFETY: the caller keeps this function's contract. `lines.picked` is set only for elements of the size of
        // `u32`.
        if unsafe { self.picked(gather, lines, mask, register.cast()) } {
            return;
        }
        let (axis, strides) = (lines.axis, self.tile.strides(mask));
        let buffer = self.frame.slots[gather.slot].cast::<T>().cast_const();
        let mut table = LineTable {
            at: [0; CHUNK],
            hidden: [false; CHUNK],
            any_hidden: false,
            ends: 0..=0,
            windows: [Window::default(); _],
        };
        let of_table = |&(value, _): &(usize, i64)| self.program.values[value].mask == 1 << axis;
        let (of_all, of_each): (Vec<_>, Vec<_>) = lines.at.read.iter().copied().partition(of_table);
        let mut places = [0; CHUNK];
        for first in (0..self.tile.len[axis]).step_by(CHUNK) {
            let n = CHUNK.min(self.tile.len[axis] - first);
            self.fill_table(lines, first, n, &mut table);
            let mut start = self.tile.start;
            start[axis] += first;
            for &(value, factor) in &of_all {
                // SAFETY: the value's step has been executed, and the points are within the tile.
                unsafe { self.add_integers(value, &start, axis, factor, &mut table.at[..n]) };
            }
            table.find_ends(n);
            let near = lines.permute.filter(|_| of_each.is_empty() && !table.any_hidden).filter(|permute| {
                // SAFETY: the machine has the function's level. The windows are used only for lines within a buffer,
                // and the offsets of such lines differ by less than 2³¹.
                unsafe { (permute.divide)(&table.at[..n], &mut table.windows) }
            });
            self.walk_points(mask & !(1 << axis), |point, _, _| {
                let mut point = *point;
                point[axis] = start[axis];
                let read = self.reader(&point, axis);
                // SAFETY: the register is contiguous over the mask, and each position is compared with the buffer's
                // size. Windows cover the line, and `divide` returned that each fits into two registers.
                unsafe {
                    let to = std::slice::from_raw_parts_mut(register.offset(self.place(&strides, &point)), n);
                    if !all_hold(&lines.of_lines, &point, axis, &read).0 {
                        to.fill(T::default());
                        return 1;
                    }
                    let base = lines.at.outer.at(&point, axis, &read).value;
                    if of_each.is_empty() && !table.any_hidden && table.is_within(base, gather.count) {
                        let line = buffer.wrapping_offset(base as isize);
                        if let Some(permute) = &near {
                            (permute.read)(to.as_mut_ptr().cast(), line.cast(), &table.windows[..n.div_ceil(LANES)], n);
                            return 1;
                        }
                        to.iter_mut()
                            .zip(&table.at)
                            .for_each(|(to, &at)| *to = line.wrapping_offset(at as isize).read());
                        return 1;
                    }
                    let places = &mut places[..n];
                    places.iter_mut().zip(&table.at).for_each(|(to, at)| *to = base.wrapping_add(*at));
                    for &(value, factor) in &of_each {
                        self.add_integers(value, &point, axis, factor, places);
                    }
                    if table.any_hidden || !all_below(places, gather.count) {
                        self.read_checked(gather, buffer, &table, places, to);
                    } else {
                        to.iter_mut().zip(&*places).for_each(|(to, &at)| *to = buffer.offset(at as isize).read());
                    }
                }
                1
            });
        }
    }

    /// Executes a load in lines in which one integer gives the position of each element. Returns `false` if there is no
    /// function for it, or if an element is not in the buffer; the register is then incomplete.
    ///
    /// # Safety
    /// As [`TileRun::gather`].
    unsafe fn picked(&self, gather: &Gather<'_>, lines: &GatherLines, mask: AxisMask, register: *mut u32) -> bool {
        let Some((value, pick)) = lines.picked else { return false };
        let (axis, strides) = (lines.axis, self.tile.strides(mask));
        let of_value = self.tile.strides(self.program.values[value].mask);
        if of_value[axis] != 1 {
            return false;
        }
        let (from, count, len) = (self.frame.slots[gather.slot].cast_const().cast(), gather.count, self.tile.len[axis]);
        let mut all = true;
        self.walk_points(mask & !(1 << axis), |point, _, _| {
            let mut point = *point;
            point[axis] = self.tile.start[axis];
            let read = self.reader(&point, axis);
            // SAFETY: registers are contiguous over their masks, and each position is compared with the buffer's size.
            unsafe {
                let to = register.offset(self.place(&strides, &point));
                if !all_hold(&lines.of_lines, &point, axis, &read).0 {
                    to.write_bytes(0, len);
                    return 1;
                }
                let base = lines.at.outer.at(&point, axis, &read).value;
                let Some(base) = u32::try_from(base).ok().filter(|base| *base as usize <= count) else {
                    all = false;
                    return 1;
                };
                let ids = self.at(value).cast::<i32>().cast_const().offset(self.place(&of_value, &point));
                all &= pick(&Pick { to, from, count: count as u32, base, ids, len });
            }
            1
        });
        all
    }

    /// Executes a scatter in lines.
    ///
    /// # Safety
    /// As [`TileRun::scatter`].
    pub(super) unsafe fn scatter_lines(&self, scatter: &Scatter, lines: &ScatterLines) {
        let value = &self.program.values[scatter.value];
        let (axis, size, strides) = (lines.axis, value.dtype.size(), self.tile.strides(value.mask));
        let each = match (scatter.combine, size) {
            (Some(combine), _) => combine.each,
            (None, 1) => put_each::<u8>,
            (None, 2) => put_each::<u16>,
            (None, 4) => put_each::<u32>,
            (None, _) => put_each::<u64>,
        };
        let (mut places, mut guarded) = ([0; CHUNK], [0; CHUNK]);
        self.walk_points(scatter.mask & !(1 << axis), |point, _, _| {
            if !all_hold(&lines.of_lines, point, axis, &self.reader(point, axis)).0 {
                return 1;
            }
            for first in (0..self.tile.len[axis]).step_by(CHUNK) {
                let n = CHUNK.min(self.tile.len[axis] - first);
                let mut point = *point;
                point[axis] += first;
                // SAFETY: the values' registers have the tile's elements, and each position is compared with the
                // buffer's size.
                unsafe {
                    let (places, guarded) = (&mut places[..n], &mut guarded[..n]);
                    self.line_of(&lines.at, point, axis, places);
                    for (at, range) in &lines.of_elements {
                        self.line_of(at, point, axis, guarded);
                        for (place, at) in places.iter_mut().zip(&*guarded) {
                            *place = if range.contains(at) { *place } else { NOWHERE };
                        }
                    }
                    let outside = |place: i64| place as u64 >= scatter.count as u64 && place != NOWHERE;
                    if places.iter().fold(false, |any, &place| any | outside(place)) {
                        for place in places.iter_mut().filter(|place| outside(**place)) {
                            self.frame.fault.report_access(*place, scatter.count);
                            *place = NOWHERE;
                        }
                    }
                    let from = self.at(scatter.value).offset(self.place(&strides, &point) * size as isize);
                    each(self.frame.slots[scatter.slot], places, from, strides[axis]);
                }
            }
            1
        });
    }

    /// Evaluates a map at the points from a given point on along an axis.
    ///
    /// # Safety
    /// The steps of the values that the map mentions must have been executed, and the points must be within the tile.
    unsafe fn line_of(&self, at: &SplitAccess, mut point: [usize; MAX_RANK], axis: usize, to: &mut [i64]) {
        let base = at.outer.at(&point, axis, &self.reader(&point, axis)).value;
        let mut done = 0;
        while done < to.len() {
            let run = at.inner.at(&point, axis, &self.reader(&point, axis));
            let n = run.len.min(to.len() - done);
            for (j, to) in to[done..done + n].iter_mut().enumerate() {
                *to = base.wrapping_add(run.value).wrapping_add(run.slope.wrapping_mul(j as i64));
            }
            (done, point[axis]) = (done + n, point[axis] + n);
        }
        point[axis] -= done;
        for &(value, factor) in &at.read {
            // SAFETY: the caller keeps this function's contract.
            unsafe { self.add_integers(value, &point, axis, factor, to) };
        }
    }

    /// Fills the table that all lines share with `n` elements, from element `first` of a line on.
    fn fill_table(&self, lines: &GatherLines, first: usize, n: usize, table: &mut LineTable) {
        let (axis, mut point, mut done) = (lines.axis, self.tile.start, 0);
        table.any_hidden = false;
        while done < n {
            point[axis] = self.tile.start[axis] + first + done;
            let read = self.reader(&point, axis);
            let (holds, ahead) = all_hold(&lines.of_elements, &point, axis, &read);
            let run = lines.at.inner.at(&point, axis, &read);
            let len = run.len.min(ahead).min(n - done);
            for j in 0..len {
                table.at[done + j] = run.value.wrapping_add(run.slope.wrapping_mul(j as i64));
                table.hidden[done + j] = !holds;
            }
            table.any_hidden |= !holds;
            done += len;
        }
    }

    /// Reads elements at the given positions, one by one. Elements that guards exclude are zero. Elements outside of
    /// the buffer are reported, and are zero too.
    ///
    /// # Safety
    /// As [`TileRun::gather`].
    unsafe fn read_checked<T: Copy + Default>(
        &self,
        gather: &Gather<'_>,
        buffer: *const T,
        table: &LineTable,
        places: &[i64],
        to: &mut [T],
    ) {
        for ((to, &at), hidden) in to.iter_mut().zip(places).zip(table.hidden) {
            *to = match (0..gather.count as i64).contains(&at) {
                _ if hidden => T::default(),
                // SAFETY: the element is in the buffer.
                true => unsafe { buffer.offset(at as isize).read() },
                false => {
                    self.frame.fault.report_access(at, gather.count);
                    T::default()
                }
            };
        }
    }
}

/// Stores elements at positions, as a [`ScatterFn`](crate::simd::reduce::ScatterFn).
///
/// # Safety
/// The buffer must have elements of the size of `T` at all positions, and the source an element for each.
unsafe fn put_each<T: Copy>(buffer: *mut u8, places: &[i64], from: *const u8, from_stride: isize) {
    let (buffer, from) = (buffer.cast::<T>(), from.cast::<T>());
    for (j, &place) in (0..).zip(places).filter(|(_, place)| **place >= 0) {
        // SAFETY: the caller keeps this function's contract.
        unsafe { buffer.offset(place as isize).write(from.offset(j * from_stride).read()) };
    }
}

/// Adds strided integers, each times `factor`, to `to`.
///
/// # Safety
/// There must be an integer for each element of `to`.
unsafe fn add<I: Copy + Into<i64>>(from: *const I, step: isize, factor: i64, to: &mut [i64]) {
    // An integer of the body may have any value at points where its check does not count, so sums wrap.
    let add = |(to, index): (&mut i64, I)| *to = to.wrapping_add(factor.wrapping_mul(index.into()));
    if step == 1 {
        // SAFETY: the caller keeps this function's contract.
        let from = unsafe { std::slice::from_raw_parts(from, to.len()) };
        return to.iter_mut().zip(from.iter().copied()).for_each(add);
    }
    for (j, to) in to.iter_mut().enumerate() {
        // SAFETY: the caller keeps this function's contract.
        add((to, unsafe { from.offset(j as isize * step).read() }));
    }
}

/// Returns whether all positions are in a buffer of `count` elements.
fn all_below(places: &[i64], count: usize) -> bool {
    // The loop does not stop at the first position outside, so that the compiler vectorises it.
    places.iter().fold(true, |all, &at| all & ((at as u64) < count as u64))
}
