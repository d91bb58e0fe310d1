//! Scans of dense rows, a part of a row at a time.
//!
//! Neighbouring elements are scanned within a vector, and then combined with what comes before them. What comes before is kept in `f64` for
//! floats and in `i64` for integers, as sums of rows are. Rows whose elements of one number are neighbours are scanned at the same time.

use std::marker::PhantomData;

use eutectic_ir::{Attr, DType, Op, ops::Reduction};

use super::{
    level::{Baseline, Isa, Level, per_level},
    reduce::{Combine, Max, Min, Product, Sum, Wide},
    register::{Register, integer_types, with_register},
    vector::Vector,
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

/// Elements and results, in which direction they are gone through.
#[derive(Clone, Copy)]
pub struct Line<T> {
    from: *const T,
    to: *mut T,
    count: usize,
    order: Order,
}

impl<T> Line<T> {
    /// The number of the first of `width` neighbours that are number `n` on in the order of the scan.
    #[inline(always)]
    fn place(&self, n: usize, width: usize) -> usize {
        if self.order.reverse { self.count - n - width } else { n }
    }
}

impl<T: Wide> Line<T> {
    /// Scans a dense row from element `from` on after what comes before it, and returns what comes after it.
    ///
    /// # Safety
    /// There must be as many elements and results.
    #[inline(always)]
    unsafe fn scan<C: Combine>(&self, from: usize, mut before: T::Acc) -> T::Acc {
        for n in from..self.count {
            let at = self.place(n, 1);
            // SAFETY: passed on from the caller.
            unsafe {
                let next = C::combine(before, self.from.add(at).read().wide());
                self.to.add(at).write(T::narrow(if self.order.exclusive { before } else { next }));
                before = next;
            }
        }
        before
    }

    /// As [`Line::scan`], of all elements, by vectors of a level that the machine has. Lanes are combined in steps, each of which doubles how many
    /// elements a lane has (Hillis and Steele, 1986).
    ///
    /// # Safety
    /// As [`Line::scan`].
    #[inline(always)]
    unsafe fn scan_vectors<C: Combine, V: Vector<Element = T>>(&self, mut before: T::Acc) -> T::Acc {
        let Order { reverse, exclusive } = self.order;
        let whole = self.count / V::LANES * V::LANES;
        // SAFETY: vectors lie in the row.
        unsafe {
            let identity = V::splat(T::narrow(T::identity(C::HOW)));
            for n in (0..whole).step_by(V::LANES) {
                let at = self.place(n, V::LANES);
                let x = V::load(self.from.add(at));
                let mut sums = if reverse { x.turned() } else { x };
                sums = both::<C, V>(sums.behind::<1>(identity), sums);
                if V::LANES > 2 {
                    sums = both::<C, V>(sums.behind::<2>(identity), sums);
                }
                if V::LANES > 4 {
                    sums = both::<C, V>(sums.behind::<4>(identity), sums);
                }
                if V::LANES > 8 {
                    sums = both::<C, V>(sums.behind::<8>(identity), sums);
                }
                let own = if exclusive { sums.behind::<1>(identity) } else { sums };
                let results = both::<C, V>(V::splat(T::narrow(before)), own);
                if reverse { results.turned() } else { results }.store(self.to.add(at));
                before = C::combine(before, sums.turned().first().wide());
            }
            self.scan::<C>(whole, before)
        }
    }

    /// Scans neighbouring rows, a vector of them, whose elements of one number are in lines of `lanes`. What comes before is combined with each
    /// result, so that it is rounded once.
    ///
    /// # Safety
    /// There must be as many elements, results and states.
    #[inline(always)]
    unsafe fn scan_across<C: Combine, V: Vector<Element = T>>(&self, lanes: usize, states: *mut T::Acc) {
        // SAFETY: passed on from the caller.
        unsafe {
            let mut before = [T::narrow(T::identity(C::HOW)); WIDEST];
            before.iter_mut().take(V::LANES).enumerate().for_each(|(n, x)| *x = T::narrow(states.add(n).read()));
            let before = V::load(before.as_ptr());
            let mut sums = V::splat(T::narrow(T::identity(C::HOW)));
            for n in 0..self.count {
                let at = self.place(n, 1) * lanes;
                let next = both::<C, V>(sums, V::load(self.from.add(at)));
                let own = if self.order.exclusive { sums } else { next };
                both::<C, V>(before, own).store(self.to.add(at));
                sums = next;
            }
            let mut after = [T::narrow(T::identity(C::HOW)); WIDEST];
            sums.store(after.as_mut_ptr());
            for (n, x) in after.into_iter().take(V::LANES).enumerate() {
                states.add(n).write(C::combine(states.add(n).read(), x.wide()));
            }
        }
    }
}

/// The most lanes of a vector.
const WIDEST: usize = 16;

/// Two vectors combined; NaN where one is NaN, if they are compared.
///
/// # Safety
/// As the functions of [`Vector`].
#[inline(always)]
unsafe fn both<C: Combine, V: Vector>(a: V, b: V) -> V {
    // SAFETY: passed on from the caller.
    unsafe {
        let both = C::vector(a, b);
        if C::COMPARES { both.or_nan(b) } else { both }
    }
}

/// How elements of a type are scanned at a level.
trait ScanElement: Wide {
    /// As [`Line::scan`], of all elements.
    ///
    /// # Safety
    /// As [`Line::scan`].
    unsafe fn scan<C: Combine, L: Level>(line: &Line<Self>, before: Self::Acc) -> Self::Acc;

    /// Scans as many neighbouring rows as there may be, of which there are `lanes`, and returns how many.
    ///
    /// # Safety
    /// As [`Line::scan_across`].
    unsafe fn scan_across<C: Combine, L: Level>(
        line: &Line<Self>,
        lanes: usize,
        left: usize,
        states: *mut Self::Acc,
    ) -> usize;

    /// Runs a recurrence with these factors over all elements of a dense row, from a state on.
    ///
    /// # Safety
    /// As [`Line::scan`].
    unsafe fn recur<L: Level>(line: &Line<Self>, factors: *const Self, state: *mut Self);

    /// As [`ScanElement::scan_across`], of recurrences with these factors.
    ///
    /// # Safety
    /// As [`Line::scan_across`].
    unsafe fn recur_across<L: Level>(
        line: &Line<Self>,
        factors: *const Self,
        lanes: usize,
        left: usize,
        states: *mut Self::Acc,
    ) -> usize;
}

/// As [`Line::scan_across`], of one row.
///
/// # Safety
/// As [`Line::scan_across`].
#[inline(always)]
unsafe fn scan_alone<T: Wide, C: Combine>(line: &Line<T>, lanes: usize, state: *mut T::Acc) {
    // SAFETY: passed on from the caller.
    unsafe {
        let mut before = state.read();
        for n in 0..line.count {
            let at = line.place(n, 1) * lanes;
            let next = C::combine(before, line.from.add(at).read().wide());
            line.to.add(at).write(T::narrow(if line.order.exclusive { before } else { next }));
            before = next;
        }
        state.write(before);
    }
}

/// Runs a recurrence over elements of a row from one number to another, which are `apart` from each other, from a state on.
///
/// # Safety
/// There must be as many factors, elements and results.
#[inline(always)]
unsafe fn recur_part<T: Wide>(
    line: &Line<T>,
    factors: *const T,
    (from, to, apart): (usize, usize, usize),
    state: *mut T,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        let mut h = state.read();
        for n in from..to {
            let at = line.place(n, 1) * apart;
            let next = factors.add(at).read().times(h).plus(line.from.add(at).read());
            line.to.add(at).write(if line.order.exclusive { h } else { next });
            h = next;
        }
        state.write(h);
    }
}

/// As [`recur_part`], of all elements of a dense row: the steps of a vector become one step in as many parts as double how many of them a lane
/// has. Where a product of factors leaves the range, steps are taken one by one, since the state may be 0 all along.
///
/// # Safety
/// As [`recur_part`].
#[inline(always)]
unsafe fn recur_vectors<T: Wide + PartialEq, V: Vector<Element = T>>(line: &Line<T>, factors: *const T, state: *mut T) {
    let Order { reverse, exclusive } = line.order;
    let whole = line.count / V::LANES * V::LANES;
    // SAFETY: vectors lie in the row.
    unsafe {
        let zero = T::narrow(T::identity(Reduction::Sum));
        let (none, one) = (V::zero(), V::splat(T::narrow(T::identity(Reduction::Product))));
        for n in (0..whole).step_by(V::LANES) {
            let at = line.place(n, V::LANES);
            let [a, b] = [factors.add(at), line.from.add(at)].map(|at| V::load(at));
            let (mut a, mut b) = if reverse { (a.turned(), b.turned()) } else { (a, b) };
            (a, b) = (a.mul(a.behind::<1>(one)), a.mul_add(b.behind::<1>(none), b));
            if V::LANES > 2 {
                (a, b) = (a.mul(a.behind::<2>(one)), a.mul_add(b.behind::<2>(none), b));
            }
            if V::LANES > 4 {
                (a, b) = (a.mul(a.behind::<4>(one)), a.mul_add(b.behind::<4>(none), b));
            }
            if V::LANES > 8 {
                (a, b) = (a.mul(a.behind::<8>(one)), a.mul_add(b.behind::<8>(none), b));
            }
            // What is not finite makes a NaN.
            if a.turned().first().times(zero) != zero {
                recur_part(line, factors, (n, n + V::LANES, 1), state);
                continue;
            }
            let before = V::splat(state.read());
            let all = a.mul_add(before, b);
            let results = if exclusive { all.behind::<1>(before) } else { all };
            if reverse { results.turned() } else { results }.store(line.to.add(at));
            state.write(all.turned().first());
        }
        recur_part(line, factors, (whole, line.count, 1), state);
    }
}

macro_rules! by_vectors {
    ($t:ty, $vector:ident) => {
        impl ScanElement for $t {
            #[inline(always)]
            unsafe fn scan<C: Combine, L: Level>(line: &Line<$t>, before: f64) -> f64 {
                // SAFETY: passed on from the caller.
                unsafe { line.scan_vectors::<C, L::$vector>(before) }
            }
            #[inline(always)]
            unsafe fn scan_across<C: Combine, L: Level>(
                line: &Line<$t>,
                lanes: usize,
                left: usize,
                states: *mut f64,
            ) -> usize {
                // SAFETY: passed on from the caller.
                unsafe {
                    if left < L::$vector::LANES {
                        scan_alone::<$t, C>(line, lanes, states);
                        return 1;
                    }
                    line.scan_across::<C, L::$vector>(lanes, states);
                }
                L::$vector::LANES
            }
            #[inline(always)]
            unsafe fn recur<L: Level>(line: &Line<$t>, factors: *const $t, state: *mut $t) {
                // SAFETY: passed on from the caller.
                unsafe { recur_vectors::<$t, L::$vector>(line, factors, state) }
            }
            #[inline(always)]
            unsafe fn recur_across<L: Level>(
                line: &Line<$t>,
                factors: *const $t,
                lanes: usize,
                left: usize,
                states: *mut f64,
            ) -> usize {
                // SAFETY: passed on from the caller; states have eight bytes each.
                unsafe {
                    if left < L::$vector::LANES {
                        recur_part(line, factors, (0, line.count, lanes), states.cast());
                        return 1;
                    }
                    let mut held: [$t; WIDEST] = [0.0; WIDEST];
                    held.iter_mut()
                        .take(L::$vector::LANES)
                        .enumerate()
                        .for_each(|(n, h)| *h = states.add(n).cast::<$t>().read());
                    let mut h = L::$vector::load(held.as_ptr());
                    for n in 0..line.count {
                        let at = line.place(n, 1) * lanes;
                        let next = L::$vector::load(factors.add(at)).mul_add(h, L::$vector::load(line.from.add(at)));
                        if line.order.exclusive { h } else { next }.store(line.to.add(at));
                        h = next;
                    }
                    h.store(held.as_mut_ptr());
                    held.into_iter()
                        .take(L::$vector::LANES)
                        .enumerate()
                        .for_each(|(n, h)| states.add(n).cast::<$t>().write(h));
                }
                L::$vector::LANES
            }
        }
    };
}
by_vectors!(f32, Floats);
by_vectors!(f64, Doubles);

macro_rules! one_by_one {
    ($($t:ty),*) => {$(
        impl ScanElement for $t {
            #[inline(always)]
            unsafe fn scan<C: Combine, L: Level>(line: &Line<$t>, before: i64) -> i64 {
                // SAFETY: passed on from the caller.
                unsafe { line.scan::<C>(0, before) }
            }
            #[inline(always)]
            unsafe fn scan_across<C: Combine, L: Level>(line: &Line<$t>, lanes: usize, _: usize, states: *mut i64) -> usize {
                // SAFETY: passed on from the caller.
                unsafe { scan_alone::<$t, C>(line, lanes, states) };
                1
            }
            #[inline(always)]
            unsafe fn recur<L: Level>(line: &Line<$t>, factors: *const $t, state: *mut $t) {
                // SAFETY: passed on from the caller.
                unsafe { recur_part(line, factors, (0, line.count, 1), state) }
            }
            #[inline(always)]
            unsafe fn recur_across<L: Level>(line: &Line<$t>, factors: *const $t, lanes: usize, _: usize, states: *mut i64) -> usize {
                // SAFETY: passed on from the caller; states have eight bytes each.
                unsafe { recur_part(line, factors, (0, line.count, lanes), states.cast()) };
                1
            }
        }
    )*};
}
integer_types!(one_by_one);

/// A scan of elements of a type.
pub trait Scan {
    /// Scans rows.
    ///
    /// # Safety
    /// As [`ScanFn`]; the machine must have the level.
    unsafe fn run<L: Level>(rows: &ScanRows);
}

/// The lines of rows of a type: those of group `row` from row `lane` on, and their states.
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
        // SAFETY: the caller gives rows of so many elements and a state for each.
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
        // SAFETY: the caller gives rows of so many elements and a state for each, of eight bytes.
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

/// # Safety
/// As [`ScanFn`]; the machine must have the instruction set.
#[inline(always)]
unsafe fn run<S: Scan, L: Level>(rows: &ScanRows) {
    // SAFETY: passed on from the caller.
    unsafe { S::run::<L>(rows) }
}

per_level! {
    /// The loop of a scan.
    scan<S: Scan>(rows: &ScanRows) = run
}

/// Returns the function of a scan over what registers hold for an element type; of recurrences for no monoid.
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
