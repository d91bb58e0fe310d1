//! Checks of indices that were read from tensors (ids). A valid id is converted to a position in its axis. An id out of
//! range is reported with its original value.

use eutectic_ir::ops::{Ids, OutOfRange};

use super::{IdCheck, TileRun};
use crate::simd::register::{integer_types, with_integer};
use crate::tile::{
    access::all_hold,
    domain::{AxisMask, MAX_RANK},
};

/// An integer register type.
trait Id: Copy + Default {
    fn wide(self) -> i64;
    /// Converts the position of a valid id to the type.
    fn narrow(wide: i64) -> Self;
}

macro_rules! ids {
    ($($ty:ty),*) => {
        $(impl Id for $ty {
            fn wide(self) -> i64 {
                self.into()
            }

            fn narrow(wide: i64) -> $ty {
                wide as $ty
            }
        })*
    };
}

integer_types!(ids);

impl TileRun<'_> {
    /// Executes a step that checks ids.
    ///
    /// # Safety
    /// As [`crate::tile::TileProgram::run`]. The argument's step must have been executed, and the register must be the
    /// step's own.
    pub(super) unsafe fn check(&self, check: &IdCheck<'_>, mask: AxisMask, register: *mut u8) {
        // SAFETY: the caller keeps this function's contract; registers hold elements of the value's type.
        unsafe {
            with_integer!(self.program.values[check.arg].dtype, Int => self.check_as::<Int>(check, mask, register.cast()));
        }
    }

    unsafe fn check_as<I: Id>(&self, check: &IdCheck<'_>, mask: AxisMask, register: *mut I) {
        let strides = self.tile.strides(self.program.values[check.arg].mask);
        let mut to = register;
        self.walk_points(mask, |point: &[usize; MAX_RANK], axis, left| {
            let (holds, ahead) = all_hold(check.guards, point, axis, &self.reader(point, axis));
            let n = left.min(ahead);
            // SAFETY: the argument's register has the tile's elements, and this register is contiguous over the mask.
            unsafe {
                let from = self.at(check.arg).cast::<I>().cast_const().offset(self.place(&strides, point));
                let line = std::slice::from_raw_parts_mut(to, n);
                match (holds, strides[axis]) {
                    (false, _) => line.fill(I::default()),
                    (true, 1) => self.places(check, line, std::slice::from_raw_parts(from, n).iter().copied()),
                    (true, stride) => self.places(check, line, (0..n).map(|j| from.offset(j as isize * stride).read())),
                }
                to = to.add(n);
            }
            n
        });
    }

    /// Computes the positions of ids. An id out of range is reported, and has the position 0.
    fn places<I: Id>(&self, check: &IdCheck<'_>, to: &mut [I], given: impl Iterator<Item = I> + Clone) {
        let Ids { extent, from_end } = check.ids;
        let back = if from_end { extent } else { 0 };
        // The loop does not stop at the first id out of range, so that the compiler vectorises it.
        let all = to.iter_mut().zip(given.clone()).fold(true, |all, (to, given)| {
            let id = given.wide();
            let at = id.wrapping_add((id >> 63) & back);
            let inside = (at as u64) < extent as u64;
            *to = I::narrow(if inside { at } else { 0 });
            all & inside
        });
        if !all && let Some(id) = given.map(I::wide).find(|id| check.ids.place(*id).is_none()) {
            self.frame.fault.report(OutOfRange { id, ids: check.ids }, check.check);
        }
    }
}
