//! Bounds the distance, in units in the last place, of two sides that are the same real function.
//!
//! Each op rounds its result by at most half a unit. A product adds the relative errors of its factors. A sum of
//! numbers of one sign has the larger error of its terms, and a root half of its operand's error. A few other functions
//! have a bound, and all others of a rounded number are refused. A result that both sides compute in the same way
//! counts as an exact element.

use std::{collections::BTreeSet, rc::Rc};

use eutectic_ir::ops::Reduction;

use crate::{
    bits,
    call::Case,
    facts::{Res, stop},
    lower::{Lower, MARK, Truths},
    signs::Known,
    sums,
    term::{T, Term, Ty},
};

/// A bound on the sum of the second-order terms, in units.
const SECOND: f64 = 0.01;

/// A function that returns the fewest and the most significant bits among the float types that a type stands for.
type Digits<'a> = &'a dyn Fn(&Ty) -> Option<[u32; 2]>;

/// Replaces each result that both sides compute in the same way by an element.
pub fn shared(case: &Case, sides: [&T; 2]) -> Res<[T; 2]> {
    let (mut l, mut r) = (BTreeSet::new(), BTreeSet::new());
    results(case, sides[0], &mut l)?;
    results(case, sides[1], &mut r)?;
    let common: Vec<T> = l.intersection(&r).cloned().collect();
    Ok([with_shared(case, sides[0], &common, true)?, with_shared(case, sides[1], &common, true)?])
}

/// Proves that the results differ by at most n units.
pub fn within(case: &Case, n: u32, digits: Digits<'_>, [left, right]: [&T; 2]) -> Res<()> {
    let real = |t: &T| Lower::new(case).real(t);
    let (a, b) = (real(left)?, real(right)?);
    if a != b && !sums::equal(&a, &b, &Known(case)) {
        return stop("the sides differ as functions of the results that both compute");
    }
    let Some([_, most]) = left.ty().and_then(digits) else { return stop("the element type of the result is unknown") };
    let errors = Errors { case, digits, own: left.ty().cloned(), most };
    // The last rounding adds half a unit on each side. An earlier relative error of one unit of roundoff adds up to a
    // whole unit, because the result may be just below a power of two.
    let before = |t: &T| -> Res<f64> {
        match &**t {
            Term::Apply(op, _, args) if op.starts_with(MARK) => errors.of(&args[0]),
            _ => errors.of(t),
        }
    };
    let distance = (1.0 + before(left)? + before(right)? + SECOND).floor();
    if distance <= f64::from(n) { Ok(()) } else { stop(format!("the sides may be {distance} ulps apart")) }
}

/// Collects the results of ops, in normal form.
fn results(case: &Case, term: &T, found: &mut BTreeSet<T>) -> Res<()> {
    match &**term {
        Term::Apply(op, _, args) => {
            if op.starts_with(MARK) {
                found.insert(bits::normal(case, term, &Truths::new())?);
            }
            args.iter().try_for_each(|a| results(case, a, found))
        }
        _ => Ok(()),
    }
}

fn with_shared(case: &Case, term: &T, common: &[T], whole: bool) -> Res<T> {
    let Term::Apply(op, ty, args) = &**term else { return Ok(term.clone()) };
    if op.starts_with(MARK) && !whole {
        let normal = bits::normal(case, term, &Truths::new())?;
        if let Some(at) = common.iter().position(|own| *own == normal) {
            let name = format!("result {at}");
            if Known(case).positive(&Lower::new(case).real(term)?) {
                case.positive.borrow_mut().push(name.as_str().into());
            }
            return Ok(Rc::new(Term::Read(name.into(), ty.clone(), Vec::new())));
        }
    }
    let args = args.iter().map(|a| with_shared(case, a, common, false)).collect::<Res<_>>()?;
    Ok(Rc::new(Term::Apply(op.clone(), ty.clone(), args)))
}

/// The bounds on the rounding errors of one side's numbers.
struct Errors<'a> {
    case: &'a Case,
    digits: Digits<'a>,
    /// The element type of the side.
    own: Option<Ty>,
    /// The largest number of significant bits of that type.
    most: u32,
}

impl Errors<'_> {
    /// Returns whether the result of an op is exact in its type.
    fn is_exact(&self, op: &str, ty: &Ty, args: &[T]) -> bool {
        let zero = |t: &T| t.number() == Some(0.0);
        let one = |t: &T| t.number().is_some_and(|x| x.abs() == 1.0);
        match op {
            "neg" | "abs" | "max" | "min" | "where" | "act none" | "act relu" => true,
            "add" | "sub" => args.iter().any(zero),
            "mul" => args.iter().any(one),
            "div" => one(&args[1]),
            "cast" => {
                let of = |ty: Option<&Ty>| ty.and_then(|ty| (self.digits)(ty));
                matches!((of(args[0].ty()), of(Some(ty))), (Some([_, from]), Some([to, _])) if from <= to)
            }
            _ => false,
        }
    }

    /// Returns a bound on the relative error of a term, in units of roundoff: half the distance from 1 to the next
    /// number. The bound of a marked term includes its own rounding.
    fn of(&self, term: &T) -> Res<f64> {
        let case = self.case;
        let both = |args: &[T]| -> Res<f64> { args.iter().map(|a| self.of(a)).sum() };
        let most = |args: &[T]| -> Res<f64> { args.iter().try_fold(0.0_f64, |most, a| Ok(most.max(self.of(a)?))) };
        match &**term {
            Term::Num(bits) => {
                let x = f64::from_bits(*bits);
                // Every float type represents numbers with few significant bits.
                let held = !x.is_finite() || f64::from(x as f32) == x && (x as f32).to_bits() << 15 == 0;
                Ok(if held { 0.0 } else { 1.0 })
            }
            Term::Param(_) | Term::Index(_) | Term::Read(..) => Ok(0.0),
            Term::If(_, a, b) => Ok(self.of(a)?.max(self.of(b)?)),
            Term::Reduce(how, _, _, body) => match (how, self.of(body)?) {
                (_, 0.0) => Ok(0.0),
                (Reduction::Max | Reduction::Min, e) => Ok(e),
                (Reduction::Sum, e) if Known(case).nonneg(&Lower::new(case).real(body)?) => Ok(e),
                _ => stop(format!("the error of a sum of rounded numbers has no bound: {term}")),
            },
            Term::Apply(op, ty, args) => {
                if let Some(name) = op.strip_prefix(MARK) {
                    let inner: &[T] = match &*args[0] {
                        Term::Apply(_, _, inner) => inner,
                        _ => &[],
                    };
                    let exact = !inner.is_empty() && self.is_exact(name, ty, inner);
                    return Ok(self.of(&args[0])? + if exact { 0.0 } else { self.unit(ty)? });
                }
                if op.starts_with("round ") || op.starts_with("empty ") {
                    return self.of(&args[0]);
                }
                match (&**op, args.as_slice()) {
                    ("neg" | "abs" | "reciprocal" | "cast" | "act none" | "tanh" | "erf", [a]) => self.of(a),
                    ("mul" | "div", _) => both(args),
                    ("max" | "min", _) => most(args),
                    ("where", [_, a, b]) => Ok(self.of(a)?.max(self.of(b)?)),
                    ("sqrt" | "rsqrt", [a]) => Ok(self.of(a)? / 2.0),
                    ("pow", [_, e]) if self.of(e)? > 0.0 => {
                        stop("the error of a power with a rounded exponent has no bound")
                    }
                    ("pow", [a, e]) => match (self.of(a)?, e.number()) {
                        (0.0, _) => Ok(0.0),
                        (of, Some(n)) => Ok(of * n.abs()),
                        _ => stop("the error of a power has no bound"),
                    },
                    _ if most(args)? == 0.0 => Ok(0.0),
                    ("add", [a, b]) => {
                        let nonneg = |t: &T| -> Res<bool> {
                            Ok(Known(case).nonneg(&Lower::new(case).real(t)?) || is_exponential(t))
                        };
                        if nonneg(a)? && nonneg(b)? {
                            most(args)
                        } else {
                            stop(format!("the error of a sum has no bound: {term}"))
                        }
                    }
                    _ => stop(format!("the error of a function of a rounded number has no bound: {term}")),
                }
            }
        }
    }

    /// Returns the rounding error of an op with a result of this type, in units of the side's type.
    fn unit(&self, ty: &Ty) -> Res<f64> {
        if self.own.as_ref() == Some(ty) {
            return Ok(1.0);
        }
        match (self.digits)(ty) {
            Some([fewest, _]) => Ok((f64::from(self.most) - f64::from(fewest)).exp2()),
            None => stop(format!("the precision of {} is unknown", ty.name)),
        }
    }
}

fn is_exponential(t: &T) -> bool {
    match &**t {
        Term::Apply(op, _, args) if op.starts_with(MARK) => is_exponential(&args[0]),
        Term::Apply(op, ..) => matches!(&**op, "exp" | "sigmoid"),
        _ => false,
    }
}
