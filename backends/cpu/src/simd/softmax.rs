//! The online softmax of attention. It processes a block of a row of scores at a time, with a running maximum and sum.

use eutectic_ir::ops::Reduction;

use super::{
    arithmetic::Arithmetic,
    elementary,
    level::{Isa, Level, per_level},
    reduce::{Combine, Sum, Wide},
    vector::Vector,
};

/// An element type in which attention is computed.
pub trait AttentionElement: Arithmetic + Wide + Send + Sync {
    /// Rounds a number to the type.
    fn of(x: f64) -> Self;
    /// Returns eˣ for x ≤ 0. Subnormal results may be 0.
    fn weight<L: Level>(self) -> Self;
    /// Returns tanh x.
    fn tanh<L: Level>(self) -> Self;
}

impl AttentionElement for f32 {
    #[inline(always)]
    fn of(x: f64) -> f32 {
        x as f32
    }
    #[inline(always)]
    fn weight<L: Level>(self) -> f32 {
        elementary::exp_normal_moderate::<L>(self)
    }
    #[inline(always)]
    fn tanh<L: Level>(self) -> f32 {
        elementary::tanh::<L>(self)
    }
}

impl AttentionElement for f64 {
    #[inline(always)]
    fn of(x: f64) -> f64 {
        x
    }
    #[inline(always)]
    fn weight<L: Level>(self) -> f64 {
        f64::exp(self)
    }
    #[inline(always)]
    fn tanh<L: Level>(self) -> f64 {
        f64::tanh(self)
    }
}

/// Implements [`Softmax::step`].
///
/// # Safety
/// The machine must have the level's instruction set.
#[inline(always)]
unsafe fn step_run<T: AttentionElement, L: Level>(row: &mut [T], largest: &mut T, sum: &mut T) -> T {
    let infinite = T::of(f64::NEG_INFINITY);
    let before = *largest;
    let block = T::narrow(T::reduce::<Largest, L>(row));
    let now = if block > before { block } else { before };
    *largest = now;
    // If every score so far is −∞, the shift is 0, so that weights are e^−∞ = 0 and not NaN.
    let shift = if now == infinite { T::of(0.0) } else { now };
    for x in row.iter_mut() {
        *x = x.minus(shift).weight::<L>();
    }
    let correction = if before == now { T::of(1.0) } else { before.minus(shift).weight::<L>() };
    *sum = sum.times(correction).plus(T::narrow(T::reduce::<Sum, L>(row)));
    correction
}

/// The maximum of scores, which skips NaN. A NaN score makes the sum of weights NaN anyway.
struct Largest;

impl Combine for Largest {
    const HOW: Reduction = Reduction::Max;
    const COMPARES: bool = false;
    #[inline(always)]
    fn lane<T: Arithmetic>(a: T, b: T) -> T {
        if b > a { b } else { a }
    }
    #[inline(always)]
    unsafe fn vector<V: Vector>(a: V, b: V) -> V {
        // SAFETY: the caller keeps this function's contract.
        unsafe { a.at_least(b) }
    }
}

/// Implements [`Softmax::cap`].
///
/// # Safety
/// The machine must have the level's instruction set.
#[inline(always)]
unsafe fn cap_run<T: AttentionElement, L: Level>(row: &mut [T], cap: T) {
    for x in row {
        *x = x.over(cap).tanh::<L>().times(cap);
    }
}

/// Implements [`Softmax::scale`].
///
/// # Safety
/// The machine must have the level's instruction set.
#[inline(always)]
unsafe fn scale_run<T: AttentionElement, L: Level>(row: &mut [T], by: T) {
    for x in row {
        *x = x.times(by);
    }
}

/// Implements [`Softmax::add`].
///
/// # Safety
/// The machine must have the level's instruction set.
#[inline(always)]
unsafe fn add_run<T: AttentionElement, L: Level>(row: &mut [T], bias: &[T], hiding: T) {
    for (x, &y) in row.iter_mut().zip(bias) {
        *x = if y <= hiding { y } else { x.plus(y) };
    }
}

/// Implements [`Softmax::finish`].
///
/// # Safety
/// The machine must have the level's instruction set.
#[inline(always)]
unsafe fn finish_run<T: AttentionElement, L: Level>(row: &mut [T], by: T) -> bool {
    let mut is_nan = false;
    for x in row {
        *x = x.times(by);
        is_nan |= x.is_nan();
    }
    is_nan
}

per_level! {
    /// Returns the function of [`Softmax::step`].
    step<T: AttentionElement>(row: &mut [T], largest: &mut T, sum: &mut T) -> T = step_run
}
per_level! {
    /// Returns the function of [`Softmax::cap`].
    cap<T: AttentionElement>(row: &mut [T], cap: T) = cap_run
}
per_level! {
    /// Returns the function of [`Softmax::scale`].
    scale<T: AttentionElement>(row: &mut [T], by: T) = scale_run
}
per_level! {
    /// Returns the function of [`Softmax::add`].
    add<T: AttentionElement>(row: &mut [T], bias: &[T], hiding: T) = add_run
}
per_level! {
    /// Returns the function of [`Softmax::finish`].
    finish<T: AttentionElement>(row: &mut [T], by: T) -> bool = finish_run
}

/// The operations of an online softmax, compiled for an instruction-set level.
#[derive(Clone, Copy)]
pub struct Softmax<T> {
    bound: T,
    capped: bool,
    /// A bias up to this number replaces the score. If this number is NaN, no bias does.
    hiding: T,
    step: unsafe fn(&mut [T], &mut T, &mut T) -> T,
    cap: unsafe fn(&mut [T], T),
    scale: unsafe fn(&mut [T], T),
    add: unsafe fn(&mut [T], &[T], T),
    finish: unsafe fn(&mut [T], T) -> bool,
}

impl<T: AttentionElement> Softmax<T> {
    /// Returns the softmax of scores x that are capped as softcap·tanh(x/softcap), unless `softcap` is 0. A bias up to
    /// `hiding` replaces the score. The machine must have the level `isa`.
    pub fn new(softcap: f64, hiding: f64, isa: Isa) -> Softmax<T> {
        Softmax {
            bound: T::of(softcap),
            capped: softcap != 0.0,
            hiding: T::of(hiding),
            step: step::<T>(isa),
            cap: cap::<T>(isa),
            scale: scale::<T>(isa),
            add: add::<T>(isa),
            finish: finish::<T>(isa),
        }
    }

    /// Replaces a block of scores x by the unnormalised weights e^(x − largest), and updates the running maximum and
    /// sum. Returns the factor by which the results of earlier blocks must be multiplied.
    pub fn step(&self, row: &mut [T], largest: &mut T, sum: &mut T) -> T {
        // SAFETY: the machine has the level; the function takes safe arguments.
        unsafe { (self.step)(row, largest, sum) }
    }

    /// Replaces scores x by cap·tanh(x/cap), if there is a cap.
    pub fn cap(&self, scores: &mut [T]) {
        if self.capped {
            // SAFETY: the machine has the level; the function takes safe arguments.
            unsafe { (self.cap)(scores, self.bound) }
        }
    }

    /// Multiplies a row by a number.
    pub fn scale(&self, row: &mut [T], by: T) {
        // SAFETY: the machine has the level; the function takes safe arguments.
        unsafe { (self.scale)(row, by) }
    }

    /// Multiplies a row by a number. Returns whether one of the products is NaN.
    pub fn finish(&self, row: &mut [T], by: T) -> bool {
        // SAFETY: the machine has the level; the function takes safe arguments.
        unsafe { (self.finish)(row, by) }
    }

    /// Adds biases to a row of scores, one to each. A bias up to the hiding number replaces the score.
    pub fn add(&self, scores: &mut [T], bias: &[T]) {
        // SAFETY: the machine has the level; the function takes safe arguments.
        unsafe { (self.add)(scores, bias, self.hiding) }
    }

    /// Adds one bias to all scores of a row. A bias up to the hiding number replaces the scores.
    pub fn add_same(&self, scores: &mut [T], bias: T) {
        for score in scores {
            *score = if self.hides(bias) { bias } else { score.plus(bias) };
        }
    }

    /// Returns whether a bias replaces the score instead of being added.
    pub fn hides(&self, bias: T) -> bool {
        bias <= self.hiding
    }
}
