//! Scans of dense rows, a part of a row at a time.
//!
//! A block of elements is cut into chains, which run at the same time since none waits for another; then each gets what comes before it.
//! What comes before is kept in `f64` for floats and in `i64` for integers, as sums of rows are.

use eutectic_ir::{Attr, DType, Op, ops::Reduction};

use super::{
    reduce::{Combine, Max, Min, Product, Sum, Wide},
    register::with_register,
};

/// Scans rows.
pub type ScanFn = unsafe fn(&ScanRows);

/// Rows that lie behind each other, and the part of them that is there.
#[derive(Clone, Copy, Debug)]
pub struct ScanRows {
    /// The operands; both are the same where there is one.
    pub args: [*const u8; 2],
    /// The results, which lie as the elements do.
    pub out: *mut u8,
    /// The number of rows.
    pub rows: usize,
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

/// Chains of a block, and the elements of each.
const CHAINS: usize = 8;
const LINKS: usize = 8;
const BLOCK: usize = CHAINS * LINKS;

/// One row: its elements by their number in the order of the scan.
struct Row<T> {
    from: *const T,
    to: *mut T,
    step: isize,
    exclusive: bool,
}

impl<T: Wide> Row<T> {
    /// # Safety
    /// The row must have the element.
    #[inline(always)]
    unsafe fn get(&self, n: usize) -> T {
        // SAFETY: passed on from the caller.
        unsafe { self.from.offset(n as isize * self.step).read() }
    }

    /// Takes an element into a state and writes its result.
    ///
    /// # Safety
    /// The row must have the element.
    #[inline(always)]
    unsafe fn link<C: Combine>(&self, n: usize, state: T) -> T {
        // SAFETY: passed on from the caller.
        unsafe {
            let next = C::combine(state, self.get(n));
            self.to.offset(n as isize * self.step).write(if self.exclusive { state } else { next });
            next
        }
    }

    /// Combines what comes before with results from one on, which lie together in either direction.
    ///
    /// # Safety
    /// The row must have the elements.
    #[inline(always)]
    unsafe fn put_before<C: Combine>(&self, n: usize, before: T) {
        let last = if self.step < 0 { LINKS - 1 } else { 0 };
        // SAFETY: passed on from the caller.
        let results = unsafe {
            let at = self.to.offset((n + last) as isize * self.step);
            std::slice::from_raw_parts_mut(at, LINKS)
        };
        results.iter_mut().for_each(|result| *result = C::combine(before, *result));
    }
}

/// # Safety
/// As [`ScanFn`], of elements of that type.
unsafe fn scan<T: Wide, C: Combine>(rows: &ScanRows) {
    let &ScanRows { args: [from, _], out, count, first, order, .. } = rows;
    for row in 0..rows.rows {
        let last = if order.reverse { count.saturating_sub(1) } else { 0 };
        let at = row * count + last;
        let step = if order.reverse { -1 } else { 1 };
        // SAFETY: the caller gives rows of so many elements and a state for each.
        unsafe {
            let state = rows.states.cast::<T::Acc>().add(row);
            let mut before = if first { T::identity(C::HOW) } else { state.read() };
            let (from, to) = (from.cast::<T>().wrapping_add(at), out.cast::<T>().wrapping_add(at));
            let row = Row { from, to, step, exclusive: order.exclusive };
            let whole = count / BLOCK * BLOCK;
            for block in (0..whole).step_by(BLOCK) {
                let mut chains = [T::narrow(T::identity(C::HOW)); CHAINS];
                for link in 0..LINKS {
                    for (n, chain) in chains.iter_mut().enumerate() {
                        *chain = row.link::<C>(block + n * LINKS + link, *chain);
                    }
                }
                for (n, chain) in chains.into_iter().enumerate() {
                    row.put_before::<C>(block + n * LINKS, T::narrow(before));
                    before = C::combine(before, chain.wide());
                }
            }
            let mut rest = T::narrow(before);
            (whole..count).for_each(|n| rest = row.link::<C>(n, rest));
            let after = (whole..count).fold(before, |sum, n| C::combine(sum, row.get(n).wide()));
            state.write(after);
        }
    }
}

/// Rows whose recurrences run at the same time.
const ROWS: usize = 8;

/// # Safety
/// As [`ScanFn`], of elements of that type.
unsafe fn recur<T: Wide>(rows: &ScanRows) {
    for from in (0..rows.rows).step_by(ROWS) {
        // SAFETY: passed on from the caller.
        unsafe {
            match rows.rows - from {
                ROWS.. => recur_rows::<T, ROWS>(rows, from),
                left => (from..from + left).for_each(|row| recur_rows::<T, 1>(rows, row)),
            }
        }
    }
}

/// # Safety
/// As [`ScanFn`]; there must be as many rows from one on.
#[inline(always)]
unsafe fn recur_rows<T: Wide, const N: usize>(rows: &ScanRows, from: usize) {
    let &ScanRows { args: [a, b], out, count, first, order, .. } = rows;
    let (a, b, out) = (a.cast::<T>(), b.cast::<T>(), out.cast::<T>());
    // SAFETY: the caller gives rows of so many elements and a state for each.
    unsafe {
        let states = rows.states.cast::<[u8; 8]>().add(from);
        let zero = T::narrow(T::identity(Reduction::Sum));
        let mut h: [T; N] = std::array::from_fn(|row| if first { zero } else { states.add(row).cast::<T>().read() });
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

/// Returns the function of a scan over what registers hold for an element type; of recurrences for no monoid.
pub fn find(how: Option<Reduction>, dtype: DType) -> ScanFn {
    fn of<T: Wide>(how: Option<Reduction>) -> ScanFn {
        match how {
            Some(Reduction::Sum) => scan::<T, Sum>,
            Some(Reduction::Product) => scan::<T, Product>,
            Some(Reduction::Max) => scan::<T, Max>,
            Some(Reduction::Min) => scan::<T, Min>,
            None => recur::<T>,
        }
    }
    with_register!(dtype, Element => of::<Element>(how))
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
                    count: to - from,
                    states: (&raw mut state).cast(),
                    first: part == 0,
                    order,
                };
                // SAFETY: there are so many elements and a state.
                unsafe { find(how, dtype)(&rows) };
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
        let scanned = ScanRows {
            args: [a.as_ptr().cast(), b.as_ptr().cast()],
            out: out.as_mut_ptr().cast(),
            rows,
            count,
            states: states.as_mut_ptr().cast(),
            first: true,
            order,
        };
        // SAFETY: there are so many elements and states.
        unsafe { find(None, DType::F64)(&scanned) };
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
