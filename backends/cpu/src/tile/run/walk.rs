//! Executes steps point by point, in runs of points along the innermost axis: gathered loads, scatters, indices and
//! selections.

use super::{Gather, TileRun, line};
use crate::simd::register::with_integer;
use crate::tile::{
    access::{CompiledAccess, TileGuard, all_hold},
    copy::BoxCopy,
    domain::{AxisMask, MAX_RANK},
    program::{Scatter, TileValue, Word},
};

impl TileRun<'_> {
    /// Visits the tile's points along the axes of a mask in order. `visit(point, axis, left)` handles at most `left`
    /// points along the innermost axis, from `point` on, and returns their number.
    pub(super) fn walk_points(&self, mask: AxisMask, mut visit: impl FnMut(&[usize; MAX_RANK], usize, usize) -> usize) {
        if self.tile.count(mask) == 0 {
            return;
        }
        let axis = (0..MAX_RANK).rev().find(|d| mask >> d & 1 == 1).unwrap_or(MAX_RANK - 1);
        let inner = if mask == 0 { 1 } else { self.tile.len[axis] };
        let mut point = self.tile.start;
        loop {
            let mut done = 0;
            while done < inner {
                point[axis] = self.tile.start[axis] + done;
                done += visit(&point, axis, inner - done).clamp(1, inner - done);
            }
            point[axis] = self.tile.start[axis];
            let mut d = axis;
            loop {
                if d == 0 {
                    return;
                }
                d -= 1;
                if mask >> d & 1 == 0 {
                    continue;
                }
                point[d] += 1;
                if point[d] < self.tile.start[d] + self.tile.len[d] {
                    break;
                }
                point[d] = self.tile.start[d];
            }
        }
    }

    /// Returns the integer that a value has at a point.
    ///
    /// # Safety
    /// The value's step must have been executed, and the point must be within the tile.
    unsafe fn integer(&self, id: usize, point: &[usize; MAX_RANK]) -> i64 {
        let value = &self.program.values[id];
        let at = self.place(&self.tile.strides(value.mask), point);
        // SAFETY: the caller promises the value and the point.
        unsafe {
            let register = self.at(id);
            with_integer!(value.dtype, Int => i64::from(register.cast::<Int>().offset(at).read()))
        }
    }

    /// Returns a function for evaluating maps at a point. For an integer that a map mentions, it returns the integer at
    /// the point, and whether it may differ along the axis.
    pub(super) fn reader<'r>(
        &'r self,
        point: &'r [usize; MAX_RANK],
        axis: usize,
    ) -> impl Fn(usize) -> (i64, bool) + 'r {
        move |v| {
            // SAFETY: the value was computed before, and the point is within the tile.
            (unsafe { self.integer(v, point) }, self.program.values[v].mask >> axis & 1 == 1)
        }
    }

    /// Executes a load in runs of points over which its map is affine and its guards are constant.
    ///
    /// # Safety
    /// As [`TileProgram::run`](crate::tile::TileProgram::run). The register must be the step's own.
    pub(super) unsafe fn walk(&self, gather: &Gather<'_>, mask: AxisMask, size: usize, register: *mut u8) {
        let mut to = register;
        self.walk_points(mask, |point, axis, left| {
            let read = self.reader(point, axis);
            let (holds, ahead) = all_hold(gather.guards, point, axis, &read);
            let mut n = left.min(ahead);
            let mut from = None;
            if holds {
                let run = gather.access.at(point, axis, &read);
                n = n.min(run.len);
                // The integers in the map were checked. The resulting positions are checked too, for memory safety.
                let last = run.value.wrapping_add(run.slope.wrapping_mul(n as i64 - 1));
                let range = 0..gather.count as i64;
                let inside = range.contains(&run.value) && range.contains(&last);
                if !inside {
                    let at = if range.contains(&run.value) { last } else { run.value };
                    self.frame.fault.report_access(at, gather.count);
                }
                from = inside.then_some((run.value, run.slope));
            }
            // SAFETY: the run was checked against the buffer.
            unsafe {
                match from {
                    Some((first, slope)) => {
                        let at = self.frame.slots[gather.slot].wrapping_offset(first as isize * size as isize);
                        line(to, at, slope as isize, n, size);
                    }
                    None => to.write_bytes(0, n * size),
                }
                to = to.add(n * size);
            }
            n
        });
    }

    /// Executes a load in boxes in which its map is affine and its guards are constant. There is one box for each point
    /// along `axes`.
    ///
    /// # Safety
    /// As [`TileProgram::run`](crate::tile::TileProgram::run). The register must be the value's own.
    pub(super) unsafe fn boxes(&self, gather: &Gather<'_>, axes: AxisMask, value: &TileValue, register: *mut u8) {
        let (size, strides) = (value.dtype.size(), gather.access.strides());
        let of_register = self.tile.strides(value.mask);
        let mut len = self.tile.len;
        (0..MAX_RANK).filter(|d| axes >> d & 1 == 1 || value.mask >> d & 1 == 0).for_each(|d| len[d] = 1);
        let from_strides = strides.map(|s| s as isize);
        let Some(box_copy) = BoxCopy::new(&of_register, &from_strides, &len, size, self.program.isa) else { return };
        // The distances of the minimal and of the maximal position in a box from its first position.
        let steps = |d: usize| strides[d] * (len[d] - 1) as i64;
        let [least, greatest] = [i64::min, i64::max].map(|end| (0..MAX_RANK).map(|d| end(steps(d), 0)).sum::<i64>());
        if !gather.guards.is_empty() {
            // SAFETY: the register has room for the tile.
            unsafe { register.write_bytes(0, self.tile.count(value.mask) * size) };
        }
        self.walk_points(value.mask & axes, |point, axis, _| {
            let read = self.reader(point, axis);
            if !all_hold(gather.guards, point, axis, &read).0 {
                return 1;
            }
            let first = gather.access.at(point, axis, &read).value;
            // The integers in the map were checked. The resulting positions are checked too, for memory safety.
            let ends = [first.wrapping_add(least), first.wrapping_add(greatest)];
            if let Some(outside) = ends.into_iter().find(|end| !(0..gather.count as i64).contains(end)) {
                self.frame.fault.report_access(outside, gather.count);
                return 1;
            }
            let from = self.frame.slots[gather.slot].wrapping_offset(first as isize * size as isize);
            let to = register.wrapping_offset(self.place(&of_register, point) * size as isize);
            // SAFETY: the box was checked against the buffer.
            unsafe { box_copy.run(to, from) };
            1
        });
    }

    /// Executes a scatter, in lines or in runs of points over which its map is affine.
    ///
    /// # Safety
    /// As [`TileProgram::run`](crate::tile::TileProgram::run). All steps must have been executed.
    pub(super) unsafe fn scatter(&self, scatter: &Scatter) {
        if let Some(lines) = &scatter.lines {
            // SAFETY: the caller keeps this function's contract.
            return unsafe { self.scatter_lines(scatter, lines) };
        }
        let value = &self.program.values[scatter.value];
        let (size, strides) = (value.dtype.size(), self.tile.strides(value.mask));
        self.walk_points(scatter.mask, |point, axis, left| {
            let read = self.reader(point, axis);
            let (holds, ahead) = all_hold(&scatter.guards, point, axis, &read);
            let n = left.min(ahead);
            if !holds {
                return n;
            }
            let run = scatter.access.at(point, axis, &read);
            let n = n.min(run.len);
            let last = run.value.wrapping_add(run.slope.wrapping_mul(n as i64 - 1));
            let range = 0..scatter.count as i64;
            if !range.contains(&run.value) || !range.contains(&last) {
                let at = if range.contains(&run.value) { last } else { run.value };
                self.frame.fault.report_access(at, scatter.count);
                return n;
            }
            // SAFETY: the run was checked against the buffer, and the value's register has the tile's elements.
            unsafe {
                let mut from = self.at(scatter.value).offset(self.place(&strides, point) * size as isize);
                let mut to = self.frame.slots[scatter.slot].offset(run.value as isize * size as isize);
                if let Some(combine) = scatter.combine {
                    (combine.line)(to, run.slope as isize, from, strides[axis], n);
                    return n;
                }
                if run.slope == 1 {
                    line(to, from, strides[axis], n, size);
                    return n;
                }
                for _ in 0..n {
                    line(to, from, 1, 1, size);
                    to = to.wrapping_offset(run.slope as isize * size as isize);
                    from = from.wrapping_offset(strides[axis] * size as isize);
                }
            }
            n
        });
    }

    /// Computes the integers of a map of coordinates, for the points along the axes of a mask.
    ///
    /// # Safety
    /// There must be room for an integer for each of these points.
    pub(super) unsafe fn coordinate(&self, access: &CompiledAccess, mask: AxisMask, mut to: *mut i64) {
        self.walk_points(mask, |point, axis, left| {
            let run = access.at(point, axis, &self.reader(point, axis));
            let n = left.min(run.len);
            // SAFETY: the register is contiguous over the mask.
            unsafe {
                (0..n).for_each(|j| to.add(j).write(run.value + run.slope * j as i64));
                to = to.add(n);
            }
            n
        });
    }

    /// Executes a selection in runs of points over which its guards are constant.
    ///
    /// # Safety
    /// As [`TileProgram::run`](crate::tile::TileProgram::run). The pieces' steps must have been executed, and the
    /// register must be the step's own.
    pub(super) unsafe fn select(
        &self,
        pieces: &[(Vec<TileGuard>, usize)],
        fill: &Word,
        mask: AxisMask,
        size: usize,
        register: *mut u8,
    ) {
        let mut to = register;
        self.walk_points(mask, |point, axis, left| {
            let read = self.reader(point, axis);
            let mut n = left;
            let mut chosen = None;
            for (guards, value) in pieces {
                let (holds, ahead) = all_hold(guards, point, axis, &read);
                n = n.min(ahead);
                if holds {
                    chosen = Some(*value);
                    break;
                }
            }
            // SAFETY: the values' registers have the tile's elements.
            unsafe {
                match chosen {
                    Some(id) => {
                        let strides = self.tile.strides(self.program.values[id].mask);
                        let at = self.at(id).offset(self.place(&strides, point) * size as isize);
                        line(to, at, strides[axis], n, size);
                    }
                    None => line(to, fill.at(), 0, n, size),
                }
                to = to.add(n * size);
            }
            n
        });
    }
}
