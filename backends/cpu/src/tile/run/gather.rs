//! Loads that are read element by element, in lines along the innermost axis: each element lies where its line begins and as far from
//! there as a table says that all lines share.

use eutectic_ir::DType;

use super::{Gather, TileRun};
use crate::tile::{
    access::all_hold,
    domain::{AxisMask, MAX_RANK},
    gather::GatherLines,
};

/// Elements of a line that are read at once.
pub(super) const CHUNK: usize = 256;

/// What all lines share: how far elements are from where a line begins, and which of them guards leave out.
struct LineTable {
    at: [i64; CHUNK],
    hidden: [bool; CHUNK],
    any_hidden: bool,
}

impl TileRun<'_> {
    /// Adds the integers that a value has from a point on along an axis, each times `factor`.
    ///
    /// # Safety
    /// The value's step must have been run, and the points lie in the tile.
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
        // SAFETY: passed on from the caller.
        unsafe {
            let register = self.at(id);
            match value.dtype {
                DType::I8 => add(register.cast::<i8>().offset(at), step, factor, to),
                DType::I32 => add(register.cast::<i32>().offset(at), step, factor, to),
                DType::U32 => add(register.cast::<u32>().offset(at), step, factor, to),
                DType::I64 => add(register.cast::<i64>().offset(at), step, factor, to),
                _ => add(register.offset(at).cast_const(), step, factor, to),
            }
        }
    }

    /// Reads a load in lines.
    ///
    /// # Safety
    /// As [`crate::tile::TileProgram::run`]; the register must be the step's, and elements of the buffer have the size of `T`.
    pub(super) unsafe fn gather<T: Copy + Default>(
        &self,
        gather: &Gather<'_>,
        lines: &GatherLines,
        mask: AxisMask,
        register: *mut T,
    ) {
        let (axis, strides) = (lines.axis, self.tile.strides(mask));
        let buffer = self.frame.slots[gather.slot].cast::<T>().cast_const();
        let mut table = LineTable { at: [0; CHUNK], hidden: [false; CHUNK], any_hidden: false };
        let mut places = [0; CHUNK];
        for first in (0..self.tile.len[axis]).step_by(CHUNK) {
            let n = CHUNK.min(self.tile.len[axis] - first);
            self.fill_table(lines, first, n, &mut table);
            self.walk_points(mask & !(1 << axis), |point, _, _| {
                let mut point = *point;
                point[axis] = self.tile.start[axis] + first;
                let read = self.reader(&point, axis);
                // SAFETY: the register is dense over the mask, and each place is compared with the buffer's extent.
                unsafe {
                    let to = std::slice::from_raw_parts_mut(register.offset(self.place(&strides, &point)), n);
                    if !all_hold(&lines.of_lines, &point, axis, &read).0 {
                        to.fill(T::default());
                        return 1;
                    }
                    let base = lines.at.outer.at(&point, axis, &read).value;
                    let places = &mut places[..n];
                    places.iter_mut().zip(&table.at).for_each(|(to, at)| *to = base.wrapping_add(*at));
                    for &(value, factor) in &lines.at.read {
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

    /// Works out what lines share from an element on.
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

    /// Reads elements of which some are left out or lie outside of the buffer, which is reported.
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
                // SAFETY: the element lies in the buffer.
                true => unsafe { buffer.offset(at as isize).read() },
                false => {
                    self.frame.fault.report(at, gather.count);
                    T::default()
                }
            };
        }
    }
}

/// # Safety
/// There must be an integer for each element of `to`.
unsafe fn add<I: Copy + Into<i64>>(from: *const I, step: isize, factor: i64, to: &mut [i64]) {
    for (j, to) in to.iter_mut().enumerate() {
        // SAFETY: passed on from the caller.
        let index: i64 = unsafe { from.offset(j as isize * step).read() }.into();
        // An index that was read may be anything; where it counts, it was checked.
        *to = to.wrapping_add(factor.wrapping_mul(index));
    }
}

/// Whether all places lie in a buffer of so many elements.
fn all_below(places: &[i64], count: usize) -> bool {
    // Without an end in between, which vectors cannot have.
    places.iter().fold(true, |all, &at| all & ((at as u64) < count as u64))
}
