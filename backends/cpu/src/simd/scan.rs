//! Scans of dense rows, a part of a row at a time.
//!
//! A block of neighbouring elements is scanned within a vector, and then combined with what comes before it. What comes before is kept in `f64` for
//! floats and in `i64` for integers, as sums of rows are. Rows whose elements of one number are neighbours are scanned at the same time.

use std::marker::PhantomData;

use eutectic_ir::{Attr, DType, Op, ops::Reduction};

use super::{
    arithmetic::Arithmetic,
    level::{Baseline, Isa, Level, per_level},
    reduce::{Combine, Max, Min, Product, Sum, Wide},
    register::{Register, with_register},
};

/// Scans rows.
pub type ScanFn = unsafe fn(&ScanRows);

/// Groups of rows behind each other, and the part of them that is there.
#[derive(Clone, Copy, Debug)]
pub struct ScanRows {
    /// The operands; both are the same where there is one.
    pub args: [*const u8; 2],
    /// The results, which lie as the elements do.
    pub out: *mut u8,
    /// The number of groups.
    pub rows: usize,
    /// The rows of a group: their elements of one number are neighbours.
    pub lanes: usize,
    /// The number of elements of each row.
    pub count: usize,
    /// The state of each row after the part before, of eight bytes.
    pub states: *mut u8,
    /// Whether this is the first part.
    pub first: bool,
    /// Where results are.
    pub order: Order,
}

/// The attributes of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Whether it goes from the last element to the first.
    pub reverse: bool,
    /// Whether a result leaves out its own element.
    pub exclusive: bool,
}

impl Order {
    /// Returns those of a row operation; none if it is no scan.
    pub fn of(op: Op, attrs: &[Attr]) -> Option<Order> {
        op.row().filter(|row| row.is_scan())?;
        let flag = |name| attrs.get(op.attr(name)?)?.bool();
        Some(Order { reverse: flag("reverse")?, exclusive: flag("exclusive")? })
    }
}

/// Elements that are scanned at once, in steps that double how many elements each has.
const BLOCK: usize = 16;

/// Moves elements behind others, which there are none of.
#[inline(always)]
fn moved<T: Copy, const BY: usize>(x: [T; BLOCK], identity: T) -> [T; BLOCK] {
    std::array::from_fn(|n| if n >= BY { x[n - BY] } else { identity })
}

/// Combines elements one by one.
#[inline(always)]
fn both<T: Arithmetic, C: Combine>(a: [T; BLOCK], b: [T; BLOCK]) -> [T; BLOCK] {
    std::array::from_fn(|n| C::combine(a[n], b[n]))
}

/// Scans the elements of a block.
#[inline(always)]
fn scan_block<T: Arithmetic, C: Combine>(mut x: [T; BLOCK], identity: T) -> [T; BLOCK] {
    x = both::<T, C>(moved::<T, 1>(x, identity), x);
    x = both::<T, C>(moved::<T, 2>(x, identity), x);
    x = both::<T, C>(moved::<T, 4>(x, identity), x);
    both::<T, C>(moved::<T, 8>(x, identity), x)
}

/// Elements of a row or of several, and their results.
struct Line<T> {
    from: *const T,
    to: *mut T,
    count: usize,
    order: Order,
}

impl<T: Wide> Line<T> {
    /// Scans a dense row after what comes before it, and returns what comes before the next part.
    ///
    /// # Safety
    /// There must be as many elements and results.
    #[inline(always)]
    unsafe fn scan<C: Combine>(&self, mut before: T::Acc) -> T::Acc {
        let &Line { from, to, count, order: Order { reverse, exclusive } } = self;
        let identity = T::narrow(T::identity(C::HOW));
        let whole = count / BLOCK * BLOCK;
        // SAFETY: blocks and single elements lie in the row; unaligned reads and writes are of arrays of elements.
        unsafe {
            for n in (0..whole).step_by(BLOCK) {
                let at = if reverse { count - n - BLOCK } else { n };
                let mut x = from.add(at).cast::<[T; BLOCK]>().read_unaligned();
                if reverse {
                    x.reverse();
                }
                let sums = scan_block::<T, C>(x, identity);
                let own = if exclusive { moved::<T, 1>(sums, identity) } else { sums };
                let mut results = both::<T, C>([T::narrow(before); BLOCK], own);
                if reverse {
                    results.reverse();
                }
                to.add(at).cast::<[T; BLOCK]>().write_unaligned(results);
                before = C::combine(before, sums[BLOCK - 1].wide());
            }
            for n in whole..count {
                let at = if reverse { count - n - 1 } else { n };
                let next = C::combine(before, from.add(at).read().wide());
                to.add(at).write(T::narrow(if exclusive { before } else { next }));
                before = next;
            }
        }
        before
    }

    /// Scans `N` neighbouring rows, whose elements of one number are neighbours in lines of `lanes` elements.
    ///
    /// # Safety
    /// There must be as many elements and results, and states.
    #[inline(always)]
    unsafe fn across<S: Clone, const N: usize>(
        &self,
        lanes: usize,
        mut states: [S; N],
        step: impl Fn(&mut S, usize),
        value: impl Fn(&S) -> T,
    ) -> [S; N] {
        let Order { reverse, exclusive } = self.order;
        for n in 0..self.count {
            let at = if reverse { self.count - n - 1 } else { n } * lanes;
            let before: [T; N] = std::array::from_fn(|lane| value(&states[lane]));
            states.iter_mut().enumerate().for_each(|(lane, state)| step(state, at + lane));
            let after: [T; N] = std::array::from_fn(|lane| value(&states[lane]));
            // SAFETY: passed on from the caller.
            unsafe { self.to.add(at).cast::<[T; N]>().write_unaligned(if exclusive { before } else { after }) };
        }
        states
    }
}

/// A scan of elements of a type.
pub trait Scan {
    /// Scans a row whose elements are neighbours.
    ///
    /// # Safety
    /// As [`ScanFn`], of a row that there is.
    unsafe fn rows(rows: &ScanRows);

    /// Scans `N` neighbouring rows whose elements of one number are neighbours.
    ///
    /// # Safety
    /// As [`ScanFn`], of rows that there are.
    unsafe fn lanes<const N: usize>(rows: &ScanRows, row: usize, lane: usize);
}

struct Of<T, C>(PhantomData<(T, C)>);

impl<T: Wide, C: Combine> Of<T, C> {
    /// What comes before a row, and its elements.
    #[inline(always)]
    fn of(rows: &ScanRows, row: usize, lane: usize) -> (*mut T::Acc, Line<T>) {
        let &ScanRows { args: [from, _], out, count, lanes, order, .. } = rows;
        let (state, at) = (row * lanes + lane, row * count * lanes + lane);
        let line = Line { from: from.cast::<T>().wrapping_add(at), to: out.cast::<T>().wrapping_add(at), count, order };
        (rows.states.cast::<T::Acc>().wrapping_add(state), line)
    }
}

impl<T: Wide, C: Combine> Scan for Of<T, C> {
    #[inline(always)]
    unsafe fn rows(rows: &ScanRows) {
        for row in 0..rows.rows {
            let (state, line) = Self::of(rows, row, 0);
            // SAFETY: passed on from the caller.
            unsafe {
                let before = if rows.first { T::identity(C::HOW) } else { state.read() };
                state.write(line.scan::<C>(before));
            }
        }
    }

    #[inline(always)]
    unsafe fn lanes<const N: usize>(rows: &ScanRows, row: usize, lane: usize) {
        let (state, line) = Self::of(rows, row, lane);
        let state = state.cast::<[T::Acc; N]>();
        // SAFETY: passed on from the caller.
        unsafe {
            let before = if rows.first { [T::identity(C::HOW); N] } else { state.read_unaligned() };
            let step = |state: &mut T::Acc, at: usize| *state = C::combine(*state, line.from.add(at).read().wide());
            state.write_unaligned(line.across(rows.lanes, before, step, |state| T::narrow(*state)));
        }
    }
}

struct Recurrence<T>(PhantomData<T>);

/// Rows whose recurrences run at the same time, so that none waits for its own last step.
const ROWS: usize = 8;

impl<T: Wide> Recurrence<T> {
    /// # Safety
    /// As [`ScanFn`]; there must be as many rows from one on.
    #[inline(always)]
    unsafe fn side_by_side<const N: usize>(rows: &ScanRows, from: usize) {
        let &ScanRows { args: [a, b], out, count, order, .. } = rows;
        let (a, b, out) = (a.cast::<T>(), b.cast::<T>(), out.cast::<T>());
        // SAFETY: the caller gives rows of so many elements and a state for each.
        unsafe {
            let states = rows.states.cast::<[u8; 8]>().add(from);
            let zero = T::narrow(T::identity(Reduction::Sum));
            let mut h: [T; N] =
                std::array::from_fn(|row| if rows.first { zero } else { states.add(row).cast::<T>().read() });
            for n in 0..count {
                let n = if order.reverse { count - 1 - n } else { n };
                for (row, h) in h.iter_mut().enumerate() {
                    let at = (from + row) * count + n;
                    let next = a.add(at).read().times(*h).plus(b.add(at).read());
                    out.add(at).write(if order.exclusive { *h } else { next });
                    *h = next;
                }
            }
            h.into_iter().enumerate().for_each(|(row, h)| states.add(row).cast::<T>().write(h));
        }
    }
}

impl<T: Wide> Scan for Recurrence<T> {
    #[inline(always)]
    unsafe fn rows(rows: &ScanRows) {
        for from in (0..rows.rows).step_by(ROWS) {
            // SAFETY: passed on from the caller.
            unsafe {
                match rows.rows - from {
                    ROWS.. => Self::side_by_side::<ROWS>(rows, from),
                    left => (from..from + left).for_each(|row| Self::side_by_side::<1>(rows, row)),
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn lanes<const N: usize>(rows: &ScanRows, row: usize, lane: usize) {
        let &ScanRows { args, out, count, lanes, order, .. } = rows;
        let (state, at) = (row * lanes + lane, row * count * lanes + lane);
        let [a, b] = args.map(|arg| arg.cast::<T>().wrapping_add(at));
        let line = Line { from: b, to: out.cast::<T>().wrapping_add(at), count, order };
        // SAFETY: passed on from the caller.
        unsafe {
            let states = rows.states.cast::<[u8; 8]>().add(state);
            let zero = T::narrow(T::identity(Reduction::Sum));
            let h: [T; N] =
                std::array::from_fn(|lane| if rows.first { zero } else { states.add(lane).cast::<T>().read() });
            let step = |h: &mut T, at: usize| *h = a.add(at).read().times(*h).plus(b.add(at).read());
            let h = line.across(lanes, h, step, |h| *h);
            h.into_iter().enumerate().for_each(|(lane, h)| states.add(lane).cast::<T>().write(h));
        }
    }
}

/// # Safety
/// As [`ScanFn`]; the machine must have the instruction set.
#[inline(always)]
unsafe fn run<S: Scan, L: Level>(rows: &ScanRows) {
    // SAFETY: passed on from the caller.
    unsafe {
        if rows.lanes == 1 {
            return S::rows(rows);
        }
        for row in 0..rows.rows {
            let whole = rows.lanes / BLOCK * BLOCK;
            (0..whole).step_by(BLOCK).for_each(|lane| S::lanes::<BLOCK>(rows, row, lane));
            (whole..rows.lanes).for_each(|lane| S::lanes::<1>(rows, row, lane));
        }
    }
}

per_level! {
    /// The loop of a scan.
    scan<S: Scan>(rows: &ScanRows) = run
}

/// Returns the function of a scan over what registers hold for an element type; of recurrences for no monoid.
pub fn find(how: Option<Reduction>, dtype: DType, isa: Isa) -> ScanFn {
    fn of<T: Wide>(how: Option<Reduction>) -> ScanFn {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans rows of `count` elements in parts.
    fn scanned<T: Copy + Default>(
        how: Option<Reduction>,
        dtype: DType,
        args: [&[T]; 2],
        count: usize,
        parts: usize,
        order: Order,
    ) -> Vec<T> {
        let mut results = args[0].to_vec();
        for (row, results) in results.chunks_mut(count).enumerate() {
            let mut state = 0_u64;
            let lengths = (0..parts).map(|part| (part * count / parts, (part + 1) * count / parts));
            let lengths: Vec<_> = if order.reverse { lengths.rev().collect() } else { lengths.collect() };
            for (part, (from, to)) in lengths.into_iter().enumerate() {
                let rows = ScanRows {
                    args: args.map(|arg| arg[row * count + from..].as_ptr().cast()),
                    out: results[from..].as_mut_ptr().cast(),
                    rows: 1,
                    lanes: 1,
                    count: to - from,
                    states: (&raw mut state).cast(),
                    first: part == 0,
                    order,
                };
                // SAFETY: there are so many elements and a state.
                unsafe { find(how, dtype, Isa::detect())(&rows) };
            }
        }
        results
    }

    #[test]
    fn scans_in_parts_are_those_of_whole_rows() {
        for (reverse, exclusive) in [(false, false), (false, true), (true, false), (true, true)] {
            let order = Order { reverse, exclusive };
            for count in [1, 2, 7, 63, 64, 65, 128, 200, 515] {
                let x: Vec<i32> = (0..2 * count as i32).map(|n| n * 37 % 101 - 50).collect();
                for how in Reduction::ALL {
                    let mut wanted = x.clone();
                    for row in 0..2 {
                        let mut state = how.identity(DType::I32).int();
                        for n in 0..count {
                            let at = row * count + if reverse { count - 1 - n } else { n };
                            let next = i64::from((how.def().integers)(state, i64::from(x[at])) as i32);
                            wanted[at] = if exclusive { state } else { next } as i32;
                            state = next;
                        }
                    }
                    for parts in [1, 3] {
                        let given = scanned(Some(how), DType::I32, [&x, &x], count, parts, order);
                        assert_eq!(given, wanted, "{how:?} of {count} in {parts} parts, {order:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_that_lie_side_by_side_are_scanned_as_those_that_do_not() {
        let (lanes, count) = (37, 21);
        let x: Vec<f32> = (0..lanes * count).map(|n| (n * 37 % 101) as f32 / 64.0).collect();
        let a: Vec<f32> = x.iter().map(|x| x / 2.0).collect();
        let turned = |x: &[f32]| -> Vec<f32> { (0..lanes * count).map(|n| x[n % count * lanes + n / count]).collect() };
        for how in Reduction::ALL.map(Some).into_iter().chain([None]) {
            for (reverse, exclusive) in [(false, false), (true, true)] {
                let order = Order { reverse, exclusive };
                let wanted = scanned(
                    how,
                    DType::F32,
                    [&turned(if how.is_none() { &a } else { &x }), &turned(&x)],
                    count,
                    1,
                    order,
                );
                let (mut out, mut states) = (vec![0.0_f32; lanes * count], vec![0_u64; lanes]);
                let rows = ScanRows {
                    args: [if how.is_none() { &a } else { &x }, &x].map(|x| x.as_ptr().cast()),
                    out: out.as_mut_ptr().cast(),
                    rows: 1,
                    lanes,
                    count,
                    states: states.as_mut_ptr().cast(),
                    first: true,
                    order,
                };
                // SAFETY: there are so many elements and states.
                unsafe { find(how, DType::F32, Isa::detect())(&rows) };
                let near = |(a, b): (&f32, &f32)| a == b || (a - b).abs() <= 1e-5 * a.abs().max(b.abs());
                assert!(turned(&out).iter().zip(&wanted).all(near), "{how:?}, {order:?}");
            }
        }
    }

    #[test]
    fn results_are_nan_from_the_first_nan_on() {
        let mut x: Vec<f32> = (0..200).map(|n| (n * 37 % 101) as f32).collect();
        x[70] = f32::NAN;
        for how in Reduction::ALL {
            let order = Order { reverse: false, exclusive: false };
            let given = scanned(Some(how), DType::F32, [&x, &x], 200, 2, order);
            assert!((0..200).all(|n| given[n].is_nan() == (n >= 70) || given[n].is_infinite()), "{how:?}");
        }
    }

    #[test]
    fn recurrences_of_several_rows_go_on_from_part_to_part() {
        let (rows, count) = (19, 33);
        let a: Vec<f64> = (0..rows * count).map(|n| (n % 7) as f64 / 4.0 - 0.75).collect();
        let b: Vec<f64> = (0..rows * count).map(|n| (n % 11) as f64 - 5.0).collect();
        let (mut out, mut states) = (vec![0.0; rows * count], vec![0_u64; rows]);
        let order = Order { reverse: true, exclusive: false };
        let given = ScanRows {
            args: [a.as_ptr().cast(), b.as_ptr().cast()],
            out: out.as_mut_ptr().cast(),
            rows,
            lanes: 1,
            count,
            states: states.as_mut_ptr().cast(),
            first: true,
            order,
        };
        // SAFETY: there are so many elements and states.
        unsafe { find(None, DType::F64, Isa::detect())(&given) };
        for row in 0..rows {
            let mut h = 0.0;
            for at in (row * count..(row + 1) * count).rev() {
                h = a[at] * h + b[at];
                assert_eq!(out[at], h, "row {row}");
            }
            assert_eq!(f64::from_bits(states[row]), h);
            assert_eq!(scanned(None, DType::F64, [&a, &b], count, 3, order)[row * count], h);
        }
    }
}
