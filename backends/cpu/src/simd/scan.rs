//! Scans (prefix reductions) of contiguous rows, one part of a row after the other.
//!
//! The elements of a vector are scanned within the vector, and then combined with the state: the result of all elements
//! before the vector. States are `f64` for floats and `i64` for integers, as in reductions. In interleaved rows,
//! elements of different rows at one position are contiguous. Such rows are scanned at the same time, one in each lane.

mod line;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;

use eutectic_ir::{DType, ops::Reduction};

pub use line::Order;
use line::{Line, ScanElement};

use super::{
    level::{Baseline, Isa, Level, per_level},
    reduce::{Combine, Max, Min, Product, Sum, Wide},
    register::{Register, with_register},
};

/// A function that scans a part of rows.
pub type ScanFn = unsafe fn(&ScanRows);

/// A part of several rows. Rows form contiguous groups of interleaved rows.
#[derive(Clone, Copy, Debug)]
pub struct ScanRows {
    /// The operands: for a recurrence, the factors and the elements; otherwise the elements twice.
    pub args: [*const u8; 2],
    /// The results, in the layout of the elements.
    pub out: *mut u8,
    /// The number of groups of interleaved rows.
    pub rows: usize,
    /// The number of interleaved rows of a group.
    pub lanes: usize,
    /// The number of elements of each row.
    pub count: usize,
    /// The state of each row after the previous part, eight bytes each.
    pub states: *mut u8,
    /// Whether this is the first part, so that states are reset before.
    pub first: bool,
    /// The direction of the scan, and whether it is exclusive.
    pub order: Order,
}

/// A scan of elements of one type.
pub trait Scan {
    /// Scans a part of rows.
    ///
    /// # Safety
    /// The rows must be as [`ScanRows`] states, and the machine must have the level.
    unsafe fn run<L: Level>(rows: &ScanRows);
}

/// Returns the line of the rows of group `row` from row `lane` on, and the pointer to their states.
#[inline(always)]
fn line<T: Wide>(rows: &ScanRows, row: usize, lane: usize) -> (Line<T>, *mut T::Acc) {
    let &ScanRows { args: [_, from], out, count, lanes, order, .. } = rows;
    let at = row * count * lanes + lane;
    let line = Line { from: from.cast::<T>().wrapping_add(at), to: out.cast::<T>().wrapping_add(at), count, order };
    (line, rows.states.cast::<T::Acc>().wrapping_add(row * lanes + lane))
}

struct Of<T, C>(PhantomData<(T, C)>);

impl<T: ScanElement, C: Combine> Scan for Of<T, C> {
    #[inline(always)]
    unsafe fn run<L: Level>(rows: &ScanRows) {
        // SAFETY: the caller promises `rows · lanes` rows of `count` elements, and a state for each row.
        unsafe {
            if rows.first {
                let (_, states) = line::<T>(rows, 0, 0);
                (0..rows.rows * rows.lanes).for_each(|n| states.add(n).write(T::identity(C::HOW)));
            }
            for row in 0..rows.rows {
                if rows.lanes == 1 {
                    let (line, state) = line::<T>(rows, row, 0);
                    state.write(T::scan::<C, L>(&line, state.read()));
                    continue;
                }
                let mut lane = 0;
                while lane < rows.lanes {
                    let (line, states) = line::<T>(rows, row, lane);
                    lane += T::scan_across::<C, L>(&line, rows.lanes, rows.lanes - lane, states);
                }
            }
        }
    }
}

struct Recurrence<T>(PhantomData<T>);

impl<T: ScanElement> Scan for Recurrence<T> {
    #[inline(always)]
    unsafe fn run<L: Level>(rows: &ScanRows) {
        let factors = rows.args[0].cast::<T>();
        // SAFETY: the caller promises `rows · lanes` rows of `count` elements, and eight bytes of state for each row.
        unsafe {
            if rows.first {
                rows.states.write_bytes(0, rows.rows * rows.lanes * 8);
            }
            if rows.lanes == 1 {
                for row in 0..rows.rows {
                    let (line, state) = line::<T>(rows, row, 0);
                    T::recur::<L>(&line, factors.wrapping_add(row * rows.count), state.cast());
                }
                return;
            }
            for row in 0..rows.rows {
                let mut lane = 0;
                while lane < rows.lanes {
                    let (line, states) = line::<T>(rows, row, lane);
                    let factors = factors.wrapping_add(row * rows.count * rows.lanes + lane);
                    lane += T::recur_across::<L>(&line, factors, rows.lanes, rows.lanes - lane, states);
                }
            }
        }
    }
}

/// Scans a part of rows.
///
/// # Safety
/// The rows must be as [`ScanRows`] states, and the machine must have the instruction set.
#[inline(always)]
unsafe fn run<S: Scan, L: Level>(rows: &ScanRows) {
    // SAFETY: the caller keeps this function's contract.
    unsafe { S::run::<L>(rows) }
}

per_level! {
    /// Returns the function that scans a part of rows.
    scan<S: Scan>(rows: &ScanRows) = run
}

/// Returns the function that scans elements of an element type with a reduction; for `None`, the function of the linear
/// recurrence h ← a·h + b.
pub fn find(how: Option<Reduction>, dtype: DType, isa: Isa) -> ScanFn {
    fn of<T: ScanElement>(how: Option<Reduction>) -> ScanFn {
        match how {
            Some(Reduction::Sum) => run::<Of<T, Sum>, Baseline>,
            Some(Reduction::Product) => run::<Of<T, Product>, Baseline>,
            Some(Reduction::Max) => run::<Of<T, Max>, Baseline>,
            Some(Reduction::Min) => run::<Of<T, Min>, Baseline>,
            None => run::<Recurrence<T>, Baseline>,
        }
    }
    match (Register::of(dtype), how) {
        (Register::F32, Some(Reduction::Sum)) => scan::<Of<f32, Sum>>(isa),
        (Register::F32, Some(Reduction::Product)) => scan::<Of<f32, Product>>(isa),
        (Register::F32, Some(Reduction::Max)) => scan::<Of<f32, Max>>(isa),
        (Register::F32, Some(Reduction::Min)) => scan::<Of<f32, Min>>(isa),
        (Register::F32, None) => scan::<Recurrence<f32>>(isa),
        _ => with_register!(dtype, Element => of::<Element>(how)),
    }
}
