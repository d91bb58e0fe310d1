//! Pointwise functions: loops over contiguous elements, made from functions of single elements. An argument is an
//! array, or one element for all results (a scalar).

use std::marker::PhantomData;

use super::{
    level::{Baseline, Isa, Level, per_level},
    prefetch::Prefetch,
};

/// The arguments of one call of a pointwise function.
#[derive(Clone, Copy)]
pub struct PointCall<'a> {
    /// The destination of `n` elements. It overlaps no argument.
    pub out: *mut u8,
    /// The arguments. An argument has `n` elements, or one if its bit in `scalar` is set.
    pub args: [*const u8; 3],
    /// The set of arguments with one element for all results: bit `n` for argument `n`.
    pub scalar: u8,
    /// The number of results.
    pub n: usize,
    /// The numeric attributes of the op.
    pub k: [f64; 2],
    /// Memory to prefetch during the call.
    pub prefetch: &'a Prefetch,
}

/// The number of elements between two prefetches of a long function. Prefetching more lines at once than a core has
/// line-fill buffers would stall the core.
pub const BLOCK: usize = 32;

/// A pointwise function over contiguous elements.
#[derive(Clone, Copy, Debug)]
pub struct PointFn {
    /// The loop over the elements.
    pub run: unsafe fn(&PointCall<'_>),
    /// Whether the function takes long, so that it prefetches after every [`BLOCK`] elements.
    pub asks: bool,
}

impl PointFn {
    /// Returns a function that does not prefetch.
    pub fn plain(run: unsafe fn(&PointCall<'_>)) -> PointFn {
        PointFn { run, asks: false }
    }
}

/// A function of one element.
pub trait Unary {
    /// The type of the argument.
    type In: Copy;
    /// The type of the result.
    type Out: Copy;
    /// Whether the function takes long enough that prefetching memory during its evaluation pays off.
    const LONG: bool = false;
    /// Whether there are arguments for which `eval` is not valid.
    const PARTIAL: bool = false;
    /// Computes the result for one element. `k` has the numeric attributes of the op.
    fn eval<L: Level>(x: Self::In, k: [f64; 2]) -> Self::Out;
    /// Returns whether `eval` is valid for an element.
    #[inline(always)]
    fn holds(_: Self::In) -> bool {
        true
    }
    /// Computes the result for any element. If `eval` is valid for the element, the bits are equal to those of `eval`.
    #[inline(always)]
    fn eval_any<L: Level>(x: Self::In, k: [f64; 2]) -> Self::Out {
        Self::eval::<L>(x, k)
    }
}

/// A function of two elements.
pub trait Binary {
    /// The type of the arguments.
    type In: Copy;
    /// The type of the result.
    type Out: Copy;
    /// Whether the function takes long, as [`Unary::LONG`].
    const LONG: bool = false;
    /// Whether there are arguments for which `eval` is not valid.
    const PARTIAL: bool = false;
    /// Computes the result for one pair of elements.
    fn eval<L: Level>(a: Self::In, b: Self::In) -> Self::Out;
    /// Returns whether [`Binary::eval`] is valid for a pair of elements.
    #[inline(always)]
    fn holds<L: Level>(_: Self::In, _: Self::In) -> bool {
        true
    }
    /// Computes the result for any pair of elements, with the bits of `eval` if `eval` is valid for the pair.
    #[inline(always)]
    fn eval_any<L: Level>(a: Self::In, b: Self::In) -> Self::Out {
        Self::eval::<L>(a, b)
    }
}

/// Computes all elements in ranges, where `$body` computes one range. If `$long` is set, it prefetches after each
/// block. This is a macro, because a closure that is too long to be inlined would be compiled for the portable level.
macro_rules! in_blocks {
    ($long:expr, $n:expr, $prefetch:expr, |$range:ident| $body:block) => {
        let whole = if $long { $n / BLOCK * BLOCK } else { 0 };
        for from in (0..whole).step_by(BLOCK) {
            let $range = from..from + BLOCK;
            $body
            $prefetch.issue();
        }
        let $range = whole..$n;
        $body
    };
}

/// Computes a function of one argument for all elements.
///
/// # Safety
/// The arguments must be as [`PointCall`] states, and the machine must have the instruction set.
#[inline(always)]
unsafe fn unary_run<O: Unary, L: Level>(c: &PointCall<'_>) {
    // SAFETY: `PointCall` has pointers to `n` elements each, which do not overlap.
    let (out, x) = unsafe {
        (std::slice::from_raw_parts_mut(c.out.cast::<O::Out>(), c.n), std::slice::from_raw_parts(c.args[0].cast(), c.n))
    };
    let k = c.k;
    in_blocks!(O::LONG, c.n, c.prefetch, |range| {
        let (out, x) = (&mut out[range.clone()], &x[range]);
        // One check for the block decides, because a vectorised loop cannot branch for each element. The longer loop of
        // `eval_any` is rarely needed.
        if !O::PARTIAL || x.iter().fold(true, |all, &x| all & O::holds(x)) {
            for (o, &x) in out.iter_mut().zip(x) {
                *o = O::eval::<L>(x, k);
            }
        } else {
            for (o, &x) in out.iter_mut().zip(x) {
                *o = O::eval_any::<L>(x, k);
            }
        }
    });
}

/// Computes a function of two arguments for all elements.
///
/// # Safety
/// The arguments must be as [`PointCall`] states, and the machine must have the instruction set.
#[inline(always)]
unsafe fn binary_run<O: Binary, L: Level>(c: &PointCall<'_>) {
    // SAFETY: `PointCall` has pointers to `n` elements each, or to one for a scalar argument, which do not overlap.
    unsafe {
        let out = std::slice::from_raw_parts_mut(c.out.cast::<O::Out>(), c.n);
        let [a, b] = [c.args[0].cast::<O::In>(), c.args[1].cast::<O::In>()];
        match c.scalar & 3 {
            0 => {
                let (a, b) = (std::slice::from_raw_parts(a, c.n), std::slice::from_raw_parts(b, c.n));
                in_blocks!(O::LONG, c.n, c.prefetch, |range| {
                    let (out, a, b) = (&mut out[range.clone()], &a[range.clone()], &b[range]);
                    if !O::PARTIAL || a.iter().zip(b).fold(true, |all, (&a, &b)| all & O::holds::<L>(a, b)) {
                        for ((o, &a), &b) in out.iter_mut().zip(a).zip(b) {
                            *o = O::eval::<L>(a, b);
                        }
                    } else {
                        for ((o, &a), &b) in out.iter_mut().zip(a).zip(b) {
                            *o = O::eval_any::<L>(a, b);
                        }
                    }
                });
            }
            1 => {
                let (a, b) = (a.read(), std::slice::from_raw_parts(b, c.n));
                in_blocks!(O::LONG, c.n, c.prefetch, |range| {
                    let (out, b) = (&mut out[range.clone()], &b[range]);
                    if !O::PARTIAL || b.iter().fold(true, |all, &b| all & O::holds::<L>(a, b)) {
                        for (o, &b) in out.iter_mut().zip(b) {
                            *o = O::eval::<L>(a, b);
                        }
                    } else {
                        for (o, &b) in out.iter_mut().zip(b) {
                            *o = O::eval_any::<L>(a, b);
                        }
                    }
                });
            }
            2 => {
                let (a, b) = (std::slice::from_raw_parts(a, c.n), b.read());
                in_blocks!(O::LONG, c.n, c.prefetch, |range| {
                    let (out, a) = (&mut out[range.clone()], &a[range]);
                    if !O::PARTIAL || a.iter().fold(true, |all, &a| all & O::holds::<L>(a, b)) {
                        for (o, &a) in out.iter_mut().zip(a) {
                            *o = O::eval::<L>(a, b);
                        }
                    } else {
                        for (o, &a) in out.iter_mut().zip(a) {
                            *o = O::eval_any::<L>(a, b);
                        }
                    }
                });
            }
            _ => out.fill(O::eval_any::<L>(a.read(), b.read())),
        }
    }
}

/// Composes two functions: `G(F(a, b), c)`.
pub struct Pair<F, G>(PhantomData<(F, G)>);

/// A function of three elements.
pub trait Ternary {
    /// The type of the arguments and of the result.
    type Of: Copy;
    /// Computes the result for three elements.
    fn eval<L: Level>(args: [Self::Of; 3]) -> Self::Of;
}

impl<T: Copy, F: Binary<In = T, Out = T>, G: Binary<In = T, Out = T>> Ternary for Pair<F, G> {
    type Of = T;
    #[inline(always)]
    fn eval<L: Level>([a, b, c]: [T; 3]) -> T {
        G::eval_any::<L>(F::eval_any::<L>(a, b), c)
    }
}

/// Composes a function of two arguments and a function of one: `G(F(a, b))`.
pub struct Then<F, G>(PhantomData<(F, G)>);

impl<T: Copy, F: Binary<In = T, Out = T>, G: Unary<In = T, Out = T>> Binary for Then<F, G> {
    type In = T;
    type Out = T;
    const LONG: bool = F::LONG || G::LONG;
    const PARTIAL: bool = F::PARTIAL || G::PARTIAL;
    #[inline(always)]
    fn eval<L: Level>(a: T, b: T) -> T {
        G::eval::<L>(F::eval::<L>(a, b), [0.0; 2])
    }
    #[inline(always)]
    fn holds<L: Level>(a: T, b: T) -> bool {
        F::holds::<L>(a, b) && G::holds(F::eval_any::<L>(a, b))
    }
    #[inline(always)]
    fn eval_any<L: Level>(a: T, b: T) -> T {
        G::eval_any::<L>(F::eval_any::<L>(a, b), [0.0; 2])
    }
}

/// Computes a function of three arguments for all elements.
///
/// # Safety
/// The arguments must be as [`PointCall`] states, and the machine must have the instruction set.
#[inline(always)]
unsafe fn ternary_run<O: Ternary, L: Level>(c: &PointCall<'_>) {
    /// Computes all elements for one set of scalar arguments, so that the compiler keeps these in registers.
    #[inline(always)]
    unsafe fn run<O: Ternary, L: Level, const SCALAR: u8>(c: &PointCall<'_>) {
        let args = c.args.map(|a| a.cast::<O::Of>());
        // SAFETY: `PointCall` has pointers to `n` elements each, or to one for a scalar argument, which do not overlap.
        unsafe {
            let out = std::slice::from_raw_parts_mut(c.out.cast::<O::Of>(), c.n);
            if out.is_empty() {
                return;
            }
            let first = args.map(|a| a.read());
            for (i, o) in out.iter_mut().enumerate() {
                *o = O::eval::<L>(std::array::from_fn(|n| {
                    if SCALAR >> n & 1 == 1 { first[n] } else { args[n].add(i).read() }
                }));
            }
        }
    }
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        match c.scalar & 7 {
            0 => run::<O, L, 0>(c),
            1 => run::<O, L, 1>(c),
            2 => run::<O, L, 2>(c),
            3 => run::<O, L, 3>(c),
            4 => run::<O, L, 4>(c),
            5 => run::<O, L, 5>(c),
            6 => run::<O, L, 6>(c),
            _ => run::<O, L, 7>(c),
        }
    }
}

per_level! {
    /// Returns the loop of a function of three arguments.
    ternary_loop<O: Ternary>(call: &PointCall<'_>) = ternary_run
}
per_level! {
    /// Returns the loop of a function of one argument.
    unary_loop<O: Unary>(call: &PointCall<'_>) = unary_run
}
per_level! {
    /// Returns the loop of a function of two arguments.
    binary_loop<O: Binary>(call: &PointCall<'_>) = binary_run
}

/// Returns a function of three arguments, compiled for a level.
pub fn ternary<O: Ternary>(isa: Isa) -> PointFn {
    PointFn::plain(ternary_loop::<O>(isa))
}

/// Returns a function of one argument, compiled for a level.
pub fn unary<O: Unary>(isa: Isa) -> PointFn {
    PointFn { run: unary_loop::<O>(isa), asks: O::LONG }
}

/// Returns a function of two arguments, compiled for a level.
pub fn binary<O: Binary>(isa: Isa) -> PointFn {
    PointFn { run: binary_loop::<O>(isa), asks: O::LONG }
}

/// Returns a function of one argument, compiled only for the portable level. It is for types and functions that are
/// rare in hot loops, and saves compile time.
pub fn unary_baseline<O: Unary>(_: Isa) -> PointFn {
    unsafe fn run<O: Unary>(call: &PointCall<'_>) {
        // SAFETY: the caller keeps the contract.
        unsafe { unary_run::<O, Baseline>(call) }
    }
    PointFn { run: run::<O>, asks: O::LONG }
}

/// Returns a function of two arguments, compiled only for the portable level.
pub fn binary_baseline<O: Binary>(_: Isa) -> PointFn {
    unsafe fn run<O: Binary>(call: &PointCall<'_>) {
        // SAFETY: the caller keeps the contract.
        unsafe { binary_run::<O, Baseline>(call) }
    }
    PointFn { run: run::<O>, asks: O::LONG }
}

/// Returns a function of two arguments, compiled only for the portable level and with one loop for arrays and scalars.
/// The loop is not vectorised.
pub fn binary_scalar<O: Binary>(_: Isa) -> PointFn {
    unsafe fn run<O: Binary>(c: &PointCall<'_>) {
        let [a, b] = [c.args[0].cast::<O::In>(), c.args[1].cast::<O::In>()];
        let [sa, sb] = [0, 1].map(|i| usize::from(c.scalar >> i & 1 == 0));
        for i in 0..c.n {
            // SAFETY: `PointCall` has pointers to `n` elements each, or to one for a scalar argument.
            unsafe {
                c.out.cast::<O::Out>().add(i).write(O::eval_any::<Baseline>(a.add(i * sa).read(), b.add(i * sb).read()))
            };
        }
    }
    PointFn::plain(run::<O>)
}
