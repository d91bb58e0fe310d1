//! Random numbers as functions of a key and the row-major position of an element.

use std::{f64::consts::PI, rc::Rc};

use eutectic_ir::DType;

use super::build::{Arithmetic, Semantics, one};
use crate::{
    call::{Call, Value},
    facts::{Facts, Res, stop},
    shape::{Item, Shape, Tensor},
    term::{Poly, T, Term, Ty, apply, choose, num},
};

pub(super) const OPS: &[(&str, Semantics)] = &[
    ("random-bits", |call| {
        let shape = call.shape(0)?;
        by_position(call, Ty::fixed(DType::U32), shape, |words, f, _| Ok(words.at(f)))
    }),
    ("random-uniform", |call| of_shape(call, uniform)),
    ("random-normal", |call| of_shape(call, normal)),
    ("bernoulli", bernoulli),
    ("dropout", dropout),
];

/// The function that returns a random word. Its arguments are the two words of the key and a position.
pub const WORD: &str = "random-bits";

/// The multipliers of Philox4x32, and the increments of the key words from round to round (Salmon et al., 2011).
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const GROWTH: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

/// Expands each random word in a term to the definition of Philox4x32-10.
pub fn defined(facts: &Facts, term: &T) -> T {
    let of = |t: &T| defined(facts, t);
    match &**term {
        Term::Apply(op, ty, args) => {
            let args: Vec<T> = args.iter().map(of).collect();
            match args.as_slice() {
                [a, b, at]
                    if **op == *WORD
                        && let Term::Index(at) = &**at =>
                {
                    philox(facts, [a, b], at)
                }
                _ => Rc::new(Term::Apply(op.clone(), ty.clone(), args)),
            }
        }
        Term::Reduce(how, ty, vars, body) => Rc::new(Term::Reduce(*how, ty.clone(), vars.clone(), of(body))),
        Term::If(conditions, a, b) => Rc::new(Term::If(conditions.clone(), of(a), of(b))),
        _ => term.clone(),
    }
}

/// Returns word f mod 4 of block ⌊f/4⌋. Two words of the counter hold the block number, and the other two are 0.
fn philox(facts: &Facts, key: [&T; 2], f: &Poly) -> T {
    let ops = Arithmetic(Ty::fixed(DType::U32));
    let xor = |a: &T, b: &T| ops.of("bit-xor", &[a, b]);
    let whole = |x: u32| num(f64::from(x));
    let (block, word) = facts.divided(f, &Poly::int(4));
    let (high, low) = facts.divided(&block, &Poly::int(1 << 32));
    let index = |p: Poly| ops.of("wrap", &[&Rc::new(Term::Index(p))]);
    let mut counter = [index(low), index(high), num(0.0), num(0.0)];
    for round in 0..ROUNDS {
        let [a, b] = [0, 1].map(|n| ops.add(key[n], &whole(GROWTH[n].wrapping_mul(round))));
        let [c0, c1, c2, c3] = &counter;
        let ([high, low], [other_high, other_low]) = (halves(c0, MULTIPLIERS[0]), halves(c2, MULTIPLIERS[1]));
        counter = [xor(&xor(&other_high, c1), &a), other_low, xor(&xor(&high, c3), &b), low];
    }
    let [a, b, c, d] = counter;
    let up_to = |n: i128| vec![&Poly::int(n) - &word];
    choose(up_to(0), a, choose(up_to(1), b, choose(up_to(2), c, d)))
}

/// Returns the upper and the lower word of the 64-bit product of two words.
fn halves(word: &T, by: u32) -> [T; 2] {
    let (u32, long) = (Ty::fixed(DType::U32), Arithmetic(Ty::fixed(DType::I64)));
    let product = long.mul(&apply("cast", &long.0, vec![word.clone()]), &num(f64::from(by)));
    [long.of("shift-right", &[&product, &num(32.0)]), product].map(|half| apply("cast", &u32, vec![half]))
}

/// The source of a key's random words.
struct Words([T; 2]);

impl Words {
    fn at(&self, position: &Poly) -> T {
        let [a, b] = self.0.clone();
        apply(WORD, &Ty::fixed(DType::U32), vec![a, b, Rc::new(Term::Index(position.clone()))])
    }

    /// Returns the most significant bits of a word as a float.
    fn first(&self, bits: u32, position: &Poly, ty: &Ty) -> T {
        let u32 = Ty::fixed(DType::U32);
        let shifted = apply("shift-right", &u32, vec![self.at(position), num(f64::from(32 - bits))]);
        apply("cast", ty, vec![shifted])
    }
}

/// A function that returns the element at a position, in an element type.
type Element = fn(&Facts, &Words, &Poly, &Ty) -> Res<T>;

/// Makes a tensor whose elements depend on their positions and on the key, which is the last operand.
fn by_position(
    call: &Call,
    ty: Ty,
    shape: Shape,
    element: impl Fn(&Words, &Poly, &[Poly]) -> Res<T> + 'static,
) -> Res<Vec<Tensor>> {
    let Some(key) = call.args.last().cloned() else { return stop("the key of random numbers is missing") };
    let own = shape.clone();
    one(Tensor::new(ty, shape, move |at| {
        let word = |n: i128| (key.at)(&[Poly::int(n)]);
        element(&Words([word(0)?, word(1)?]), &position(&own, at), at)
    }))
}

/// Returns the row-major position of an element.
fn position(shape: &[Item], at: &[Poly]) -> Poly {
    shape.iter().zip(at).fold(Poly::zero(), |n, (item, index)| &(&n * &item.extent) + index)
}

/// Makes a random tensor whose shape and element type are attributes.
fn of_shape(call: &Call, element: Element) -> Res<Vec<Tensor>> {
    let (shape, Value::Type(ty)) = (call.shape(0)?, call.attrs[1].clone()) else {
        return stop("the element type of a result is unknown");
    };
    let (own, case) = (ty.clone(), Rc::clone(&call.case));
    by_position(call, ty, shape, move |words, f, _| element(&case.facts, words, f, &own))
}

/// Returns a uniform number in [0, 1): as many random bits as the significand has, scaled by a power of two.
fn uniform(_: &Facts, words: &Words, f: &Poly, ty: &Ty) -> Res<T> {
    let Some(dtype) = ty.dtype else { return stop("uniform numbers of a symbolic element type are unsupported") };
    let (ops, bits) = (Arithmetic(ty.clone()), dtype.significand_bits());
    let whole = if bits <= 32 {
        words.first(bits, f, ty)
    } else {
        // The number combines the first 27 bits of one word with the first bits of the next word.
        let [high, low] = [0, 1].map(|n| &(f * &Poly::int(2)) + &Poly::int(n));
        let high = ops.mul(&words.first(27, &high, ty), &num(f64::from(1 << (bits - 27))));
        ops.add(&high, &words.first(bits - 27, &low, ty))
    };
    Ok(ops.mul(&whole, &num(0.5_f64.powi(bits as i32))))
}

/// Returns a normal number by the method of Box and Muller: √(−2·ln u)·cos a at an even position, √(−2·ln u)·sin a at
/// the odd position after it. Both use the same two words. 16-bit types round the numbers of `f32`.
fn normal(facts: &Facts, words: &Words, f: &Poly, ty: &Ty) -> Res<T> {
    match ty.short {
        Some(false) => {}
        Some(true) => {
            return Ok(apply("cast", ty, vec![normal(facts, words, f, &Ty::fixed(DType::F32))?]));
        }
        None => return stop("normal numbers of a symbolic element type are unsupported"),
    }
    let (_, parity) = facts.divided(f, &Poly::int(2));
    let (ops, first, step) = (Arithmetic(ty.clone()), f - &parity, 0.5_f64.powi(32));
    let [b, c] = [0, 1].map(|n| apply("cast", ty, vec![words.at(&(&first + &Poly::int(n)))]));
    let u = ops.add(&ops.mul(&b, &num(step)), &num(step / 2.0));
    let radius = ops.of("sqrt", &[&ops.mul(&ops.of("log", &[&u]), &num(-2.0))]);
    let angle = ops.mul(&c, &num(2.0 * PI * step));
    let part = choose(vec![&Poly::zero() - &parity], ops.of("cos", &[&angle]), ops.of("sin", &[&angle]));
    Ok(ops.mul(&radius, &part))
}

/// Evaluates `bernoulli`: an element is true if the uniform number of `f32` is less than p.
fn bernoulli(call: &Call) -> Res<Vec<Tensor>> {
    let (p, case) = (call.args[0].clone(), Rc::clone(&call.case));
    let (bool, f32) = (Ty::bool(), Ty::fixed(DType::F32));
    by_position(call, bool.clone(), p.shape.clone(), move |words, f, at| {
        let least = apply("cast", &f32, vec![(p.at)(at)?]);
        Ok(apply("lt", &bool, vec![uniform(&case.facts, words, f, &f32)?, least]))
    })
}

/// Evaluates `dropout`: an element is x/(1 − ratio) if the uniform number of `f32` is at least the ratio, else 0.
fn dropout(call: &Call) -> Res<Vec<Tensor>> {
    let (x, ratio, case) = (call.args[0].clone(), call.number(0)?, Rc::clone(&call.case));
    let (ty, bool, f32) = (x.ty.clone(), Ty::bool(), Ty::fixed(DType::F32));
    let calc = |op: &str, a: &T, b: &T| apply(op, &Ty::fixed(DType::F64), vec![a.clone(), b.clone()]);
    let scale = calc("calc /", &num(1.0), &calc("calc -", &num(1.0), &ratio));
    by_position(call, ty.clone(), x.shape.clone(), move |words, f, at| {
        let kept = apply("ge", &bool, vec![uniform(&case.facts, words, f, &f32)?, ratio.clone()]);
        let scaled = apply("mul", &ty, vec![(x.at)(at)?, scale.clone()]);
        Ok(apply("where", &ty, vec![kept, scaled, num(0.0)]))
    })
}
