//! The loops of scans, with vectors and without. A vector has consecutive elements of one row, or elements of several
//! interleaved rows at one position.

use eutectic_ir::{Attr, Op, ops::Reduction};

use crate::simd::{
    level::Level,
    reduce::{Combine, Wide},
    register::integer_types,
    vector::Vector,
};

/// The attributes of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Whether the scan goes from the last element to the first.
    pub reverse: bool,
    /// Whether the result at an element excludes that element.
    pub exclusive: bool,
}

impl Order {
    /// Returns the attributes of a row operation; `None` if it is not a scan.
    pub fn of(op: Op, attrs: &[Attr]) -> Option<Order> {
        op.row().filter(|row| row.is_scan())?;
        let flag = |name| attrs.get(op.attr(name)?)?.bool();
        Some(Order { reverse: flag("reverse")?, exclusive: flag("exclusive")? })
    }
}

/// The elements and results of a row (or of interleaved rows), with the attributes of the scan.
#[derive(Clone, Copy)]
pub struct Line<T> {
    /// The elements.
    pub from: *const T,
    /// The results.
    pub to: *mut T,
    /// The number of elements per row.
    pub count: usize,
    /// The attributes of the scan.
    pub order: Order,
}

impl<T> Line<T> {
    /// Returns the position of the first of `width` contiguous elements that the scan visits from step `n` on. In a
    /// reverse scan, these are counted from the end of the row.
    #[inline(always)]
    fn place(&self, n: usize, width: usize) -> usize {
        if self.order.reverse { self.count - n - width } else { n }
    }
}

impl<T: Wide> Line<T> {
    /// Scans a contiguous row from step `from` on, given the state before this step. Returns the state after the row.
    ///
    /// # Safety
    /// The row must have `count` elements and results.
    #[inline(always)]
    unsafe fn scan<C: Combine>(&self, from: usize, mut before: T::Acc) -> T::Acc {
        for n in from..self.count {
            let at = self.place(n, 1);
            // SAFETY: the caller keeps this function's contract.
            unsafe {
                let next = C::combine(before, self.from.add(at).read().wide());
                self.to.add(at).write(T::narrow(if self.order.exclusive { before } else { next }));
                before = next;
            }
        }
        before
    }

    /// Scans a contiguous row with vectors. Within a vector, each step doubles the number of elements that a lane has
    /// combined (Hillis and Steele, 1986).
    ///
    /// # Safety
    /// As [`Line::scan`].
    #[inline(always)]
    unsafe fn scan_vectors<C: Combine, V: Vector<Element = T>>(&self, mut before: T::Acc) -> T::Acc {
        let Order { reverse, exclusive } = self.order;
        let whole = self.count / V::LANES * V::LANES;
        // SAFETY: each vector is within the row.
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

    /// Scans as many interleaved rows as a vector has lanes. `lanes` is the distance of neighbouring elements of a row.
    /// The scan starts at the identity, and each result is combined with the row's state. The state in `f64` is
    /// combined only once per part, so rounding errors of parts do not add up in the element type.
    ///
    /// # Safety
    /// Each row must have `count` elements and results, and a state.
    #[inline(always)]
    unsafe fn scan_across<C: Combine, V: Vector<Element = T>>(&self, lanes: usize, states: *mut T::Acc) {
        // SAFETY: the caller keeps this function's contract.
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

/// The maximal number of lanes of a vector.
const WIDEST: usize = 16;

/// Combines two vectors lane by lane. A comparison gives NaN if an element is NaN.
///
/// # Safety
/// As the functions of [`Vector`].
#[inline(always)]
unsafe fn both<C: Combine, V: Vector>(a: V, b: V) -> V {
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        let both = C::vector(a, b);
        if C::COMPARES { both.or_nan(b) } else { both }
    }
}

/// An element type of scans.
pub trait ScanElement: Wide {
    /// Scans a contiguous row, given the state before it. Returns the state after it.
    ///
    /// # Safety
    /// As [`Line::scan`].
    unsafe fn scan<C: Combine, L: Level>(line: &Line<Self>, before: Self::Acc) -> Self::Acc;

    /// Scans the first rows of `left` interleaved rows: as many as a vector has lanes, or one. Returns their number.
    ///
    /// # Safety
    /// As [`Line::scan_across`].
    unsafe fn scan_across<C: Combine, L: Level>(
        line: &Line<Self>,
        lanes: usize,
        left: usize,
        states: *mut Self::Acc,
    ) -> usize;

    /// Computes the recurrence h ← a·h + b over a contiguous row with these factors a, from a state on. Updates the
    /// state.
    ///
    /// # Safety
    /// As [`Line::scan`].
    unsafe fn recur<L: Level>(line: &Line<Self>, factors: *const Self, state: *mut Self);

    /// Computes the recurrence h ← a·h + b of the first rows of `left` interleaved rows: as many as a vector has lanes,
    /// or one. Returns their number.
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

/// Scans one of several interleaved rows. `lanes` is the distance of neighbouring elements of the row.
///
/// # Safety
/// As [`Line::scan_across`].
#[inline(always)]
unsafe fn scan_alone<T: Wide, C: Combine>(line: &Line<T>, lanes: usize, state: *mut T::Acc) {
    // SAFETY: the caller keeps this function's contract.
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

/// Computes the recurrence h ← a·h + b for a range of a row's steps, and updates the state. `apart` is the distance of
/// neighbouring elements of the row.
///
/// # Safety
/// The row must have factors, elements and results for these steps.
#[inline(always)]
unsafe fn recur_part<T: Wide>(
    line: &Line<T>,
    factors: *const T,
    (from, to, apart): (usize, usize, usize),
    state: *mut T,
) {
    // SAFETY: the caller keeps this function's contract.
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

/// Computes the recurrence h ← a·h + b over a contiguous row with vectors, and updates the state. Within a vector, each
/// step doubles the number of elements that a lane has combined. If the product of a vector's factors overflows, its
/// elements are computed one by one: the state may be 0, and ∞·0 would be NaN.
///
/// # Safety
/// As [`recur_part`].
#[inline(always)]
unsafe fn recur_vectors<T: Wide + PartialEq, V: Vector<Element = T>>(line: &Line<T>, factors: *const T, state: *mut T) {
    let Order { reverse, exclusive } = line.order;
    let whole = line.count / V::LANES * V::LANES;
    // SAFETY: each vector is within the row.
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
            // The product of all factors times zero is zero only if the product is finite.
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
                // SAFETY: the caller keeps this function's contract.
                unsafe { line.scan_vectors::<C, L::$vector>(before) }
            }
            #[inline(always)]
            unsafe fn scan_across<C: Combine, L: Level>(
                line: &Line<$t>,
                lanes: usize,
                left: usize,
                states: *mut f64,
            ) -> usize {
                // SAFETY: the caller keeps this function's contract.
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
                // SAFETY: the caller keeps this function's contract.
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
                // SAFETY: the caller keeps this function's contract; states have eight bytes each.
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
                // SAFETY: the caller keeps this function's contract.
                unsafe { line.scan::<C>(0, before) }
            }
            #[inline(always)]
            unsafe fn scan_across<C: Combine, L: Level>(line: &Line<$t>, lanes: usize, _: usize, states: *mut i64) -> usize {
                // SAFETY: the caller keeps this function's contract.
                unsafe { scan_alone::<$t, C>(line, lanes, states) };
                1
            }
            #[inline(always)]
            unsafe fn recur<L: Level>(line: &Line<$t>, factors: *const $t, state: *mut $t) {
                // SAFETY: the caller keeps this function's contract.
                unsafe { recur_part(line, factors, (0, line.count, 1), state) }
            }
            #[inline(always)]
            unsafe fn recur_across<L: Level>(line: &Line<$t>, factors: *const $t, lanes: usize, _: usize, states: *mut i64) -> usize {
                // SAFETY: the caller keeps this function's contract; states have eight bytes each.
                unsafe { recur_part(line, factors, (0, line.count, lanes), states.cast()) };
                1
            }
        }
    )*};
}
integer_types!(one_by_one);
