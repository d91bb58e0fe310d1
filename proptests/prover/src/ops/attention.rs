//! Defines attention, `sdpa` (attention of grouped heads with a kind of mask), rotary embedding and gated linear units.

use std::rc::Rc;

use eutectic_ir::ops::Reduction;

use super::{
    build::{Arithmetic, Semantics, one, rounded},
    reduce::matrix,
};
use crate::{
    call::{Call, Case, reduce},
    facts::{Res, stop},
    shape::{Item, Shape, Tensor, expanded, find},
    term::{Poly, T, Term, Ty, apply, choose, num},
};

pub(super) const OPS: &[(&str, Semantics)] =
    &[("attention", attention), ("attention-tf32", attention), ("sdpa", sdpa), ("rope", rope), ("glu", glu)];

/// A function of the index of a key.
type ByKey<'a> = &'a dyn Fn(&Poly) -> Res<T>;

/// The operands of attention for one element of the result, as functions of key and depth, and the parameters of its
/// scores.
pub struct Head<'a> {
    pub case: &'a Case,
    pub ty: &'a Ty,
    pub op: &'a str,
    pub depth: Poly,
    pub keys: Poly,
    pub query: &'a dyn Fn(&Poly) -> Res<T>,
    pub key: &'a dyn Fn(&Poly, &Poly) -> Res<T>,
    pub value: &'a dyn Fn(&Poly) -> Res<T>,
    /// The bias of a key, if there is one.
    pub bias: Option<ByKey<'a>>,
    pub scale: &'a T,
    pub softcap: &'a T,
    pub empty: &'a str,
}

impl Head<'_> {
    /// Returns the score of key j: cap(scale · q kᵀ) plus the bias, or only the bias if it masks the key.
    fn score(&self, j: &Poly) -> Res<T> {
        let arithmetic = Arithmetic(self.ty.clone());
        let through = |t: T| if self.op == "attention-tf32" { apply("tf32", self.ty, vec![t]) } else { t };
        let sum = reduce(self.case, Reduction::Sum, self.ty, std::slice::from_ref(&self.depth), |d| {
            Ok(arithmetic.mul(&through((self.query)(&d[0])?), &through((self.key)(j, &d[0])?)))
        })?;
        let score = arithmetic.mul(&sum, self.scale);
        let capped = match self.softcap.number() {
            Some(0.0) => score,
            _ => {
                let capped =
                    arithmetic.mul(&arithmetic.of("tanh", &[&arithmetic.div(&score, self.softcap)]), self.softcap);
                match &**self.softcap {
                    // A softcap of 0 means no cap. A symbolic softcap may be 0, so the term contains both cases.
                    Term::Param(name) if !self.case.number_is(name, "nonzero") => {
                        let zero = apply("eq", &Ty::bool(), vec![self.softcap.clone(), num(0.0)]);
                        apply("where", self.ty, vec![zero, score, capped])
                    }
                    _ => capped,
                }
            }
        };
        let Some(bias) = self.bias else { return Ok(capped) };
        let bias = bias(j)?;
        let sum = arithmetic.add(&capped, &bias);
        if self.empty == "guarded" {
            return Ok(sum);
        }
        let hides = apply("hides", &Ty::bool(), vec![bias.clone()]);
        Ok(apply("where", self.ty, vec![hides, bias, sum]))
    }

    /// Returns the element of softmax(scores) v.
    pub fn attend(&self) -> Res<T> {
        let arithmetic = Arithmetic(self.ty.clone());
        let keys = std::slice::from_ref(&self.keys);
        let through = |t: T| if self.op == "attention-tf32" { apply("tf32", self.ty, vec![t]) } else { t };
        let most = reduce(self.case, Reduction::Max, self.ty, keys, |j| self.score(&j[0]))?;
        let power = |j: &Poly| -> Res<T> { Ok(arithmetic.of("exp", &[&arithmetic.sub(&self.score(j)?, &most)])) };
        let total = reduce(self.case, Reduction::Sum, self.ty, keys, |j| power(&j[0]))?;
        let sum = reduce(self.case, Reduction::Sum, self.ty, keys, |j| {
            let weight = through(arithmetic.div(&power(&j[0])?, &total));
            // With `guarded`, a weight of NaN counts as 0.
            let weight = match self.empty {
                "guarded" => {
                    let is_nan = apply("is-nan", &Ty::bool(), vec![weight.clone()]);
                    apply("where", self.ty, vec![is_nan, num(0.0), weight])
                }
                _ => weight,
            };
            Ok(arithmetic.mul(&weight, &through((self.value)(&j[0])?)))
        })?;
        // The function `empty WORD` names the special value for a row without weights.
        let word = if self.empty == "guarded" { "nan" } else { self.empty };
        Ok(apply(&format!("empty {word}"), self.ty, vec![sum]))
    }
}

fn attention(call: &Call) -> Res<Vec<Tensor>> {
    let (args, case, op) = (call.args.clone(), Rc::clone(&call.case), call.op);
    let (scale, softcap, empty) = (call.number(0)?, call.number(1)?, call.word(2)?.to_string());
    let ((s, d), (t, d2), (t2, e)) = (matrix(&args[0])?, matrix(&args[1])?, matrix(&args[2])?);
    let outer: Shape = args[0].shape[..args[0].shape.len() - 2].to_vec();
    let fits = args[1..3].iter().all(|x| x.shape[..x.shape.len() - 2] == outer) && d == d2 && t == t2;
    if !fits {
        return stop("the shapes of attention do not fit");
    }
    let scores: Shape = outer.iter().cloned().chain([Item::axis(s.clone()), Item::axis(t.clone())]).collect();
    let shape: Shape = outer.iter().cloned().chain([Item::axis(s), Item::axis(e)]).collect();
    let (ty, left) = (args[0].ty.clone(), case.left.get());
    one(Tensor::new(ty.clone(), shape, move |at| {
        let [batch @ .., row, column] = at else { return stop("a matrix must have two axes") };
        let at = |a: &Poly, b: &Poly| [batch, &[a.clone(), b.clone()]].concat();
        let bias = |j: &Poly| {
            let bias = &args[3];
            let from = expanded(&case.facts, &case.broadcasts, &bias.shape, &scores, &at(row, j), left)?;
            (bias.at)(&from)
        };
        let head = Head {
            case: &case,
            ty: &ty,
            op,
            depth: d.clone(),
            keys: t.clone(),
            query: &|d| (args[0].at)(&at(row, d)),
            key: &|j, d| (args[1].at)(&at(j, d)),
            value: &|j| (args[2].at)(&at(j, column)),
            bias: if args.len() > 3 { Some(&bias) } else { None },
            scale: &scale,
            softcap: &softcap,
            empty: &empty,
        };
        Ok(rounded(op, &ty, head.attend()?))
    }))
}

/// Returns the mask of `sdpa` as a bias, and the word for the value of a row without weights.
pub(super) fn masked(
    ty: &Ty,
    word: &str,
    window: &Poly,
    (s, t): (&Poly, &Poly),
    (i, j): (&Poly, &Poly),
    mask: Option<T>,
) -> Res<(Option<T>, &'static str)> {
    // Query i sees keys j ≤ i + (T − S). With a window, it sees only the last `window` ones of these.
    let last = &(i + &(t - s)) - j;
    let hidden = |conditions: Vec<Poly>| choose(conditions, num(0.0), num(f64::NEG_INFINITY));
    Ok(match (word, mask) {
        ("none", None) => (None, "nan"),
        ("additive", Some(bias)) => (Some(bias), "nan"),
        ("keep", Some(keep)) => (Some(apply("where", ty, vec![keep, num(0.0), num(f64::NEG_INFINITY)])), "zeros"),
        ("causal", None) => (Some(hidden(vec![last])), "zeros"),
        ("window", None) => {
            let first = &(window - &Poly::int(1)) - &last;
            (Some(hidden(vec![last, first])), "zeros")
        }
        _ => return stop("the kind of a mask and its operand do not fit"),
    })
}

pub(super) fn sdpa(call: &Call) -> Res<Vec<Tensor>> {
    let (args, case) = (call.args.clone(), Rc::clone(&call.case));
    let (scale, softcap) = (call.number(0)?, call.number(1)?);
    let (word, window) = (call.word(2)?.to_string(), call.int(3)?);
    let ((s, d), (t, d2), (t2, e)) = (matrix(&args[0])?, matrix(&args[1])?, matrix(&args[2])?);
    let heads = |x: &Tensor| Ok::<_, crate::facts::Stop>(x.shape[find(&x.shape, &Poly::int(3))?].extent.clone());
    let (h, g, g2) = (heads(&args[0])?, heads(&args[1])?, heads(&args[2])?);
    let outer: Shape = args[0].shape[..args[0].shape.len() - 3].to_vec();
    let (share, rest) = h.divide(&g);
    let fits = args[1..3].iter().all(|x| x.shape[..x.shape.len() - 3] == outer) && d == d2 && t == t2 && g == g2;
    if !fits || rest != Poly::zero() {
        return stop("the shapes of attention with grouped heads do not fit");
    }
    let with = |a: &Poly, b: &Poly| -> Shape {
        outer.iter().cloned().chain([h.clone(), a.clone(), b.clone()].map(Item::axis)).collect()
    };
    let (scores, shape) = (with(&s, &t), with(&s, &e));
    let (ty, left) = (args[0].ty.clone(), case.left.get());
    one(Tensor::new(ty.clone(), shape, move |at| {
        let [batch @ .., head, row, column] = at else { return stop("the heads of attention must be matrices") };
        let (group, _) = case.facts.divided(head, &share);
        let at = |h: &Poly, a: &Poly, b: &Poly| [batch, &[h.clone(), a.clone(), b.clone()]].concat();
        let mask = |j: &Poly| -> Res<(Option<T>, &'static str)> {
            let operand = match args.get(3) {
                Some(mask) => {
                    let index = at(head, row, j);
                    let from = expanded(&case.facts, &case.broadcasts, &mask.shape, &scores, &index, left)?;
                    Some((mask.at)(&from)?)
                }
                None => None,
            };
            masked(&ty, &word, &window, (&s, &t), (row, j), operand)
        };
        let bias = |j: &Poly| match mask(j)? {
            (Some(bias), _) => Ok(bias),
            (None, _) => stop("attention with a mask needs a bias"),
        };
        let has = word != "none";
        let empty = if matches!(&*word, "none" | "additive") { "nan" } else { "zeros" };
        let head = Head {
            case: &case,
            ty: &ty,
            op: "attention",
            depth: d.clone(),
            keys: t.clone(),
            query: &|d| (args[0].at)(&at(head, row, d)),
            key: &|j, d| (args[1].at)(&at(&group, j, d)),
            value: &|j| (args[2].at)(&at(&group, j, column)),
            bias: if has { Some(&bias) } else { None },
            scale: &scale,
            softcap: &softcap,
            empty,
        };
        Ok(rounded("sdpa", &ty, head.attend()?))
    }))
}

pub(super) fn rope(call: &Call) -> Res<Vec<Tensor>> {
    let (args, case, style) = (call.args.clone(), Rc::clone(&call.case), call.word(0)?.to_string());
    let (x, ty) = (args[0].clone(), args[0].ty.clone());
    let (_, width) = matrix(&x)?;
    let (_, pairs) = matrix(&args[1])?;
    let two = Poly::int(2);
    case.require(&width - &(&two * &pairs), "two coordinates per angle")?;
    one(Tensor::new(ty.clone(), x.shape.clone(), move |at| {
        let [outer @ .., position, own] = at else { return stop("a matrix must have two axes") };
        let arithmetic = Arithmetic(ty.clone());
        let element = |c: &Poly| (x.at)(&[outer, &[position.clone(), c.clone()]].concat());
        let angle = |n: usize, p: &Poly| (args[n].at)(&[position.clone(), p.clone()]);
        // A pair (x, y) turns into (x·cos − y·sin, y·cos + x·sin).
        let first = |p: &Poly, a: &Poly, b: &Poly| -> Res<T> {
            let (x, y) = (element(a)?, element(b)?);
            let turned = arithmetic.sub(&arithmetic.mul(&x, &angle(1, p)?), &arithmetic.mul(&y, &angle(2, p)?));
            Ok(rounded("rope", &ty, turned))
        };
        let second = |p: &Poly, a: &Poly, b: &Poly| -> Res<T> {
            let (x, y) = (element(a)?, element(b)?);
            let turned = arithmetic.add(&arithmetic.mul(&y, &angle(1, p)?), &arithmetic.mul(&x, &angle(2, p)?));
            Ok(rounded("rope", &ty, turned))
        };
        let one = Poly::int(1);
        let below = |p: &Poly, end: &Poly| &(end - p) - &one;
        let facts = &case.facts;
        let pick = |condition: Poly, then: &dyn Fn() -> Res<T>, otherwise: &dyn Fn() -> Res<T>| -> Res<T> {
            let not = &Poly::int(-1) - &condition;
            if facts.nonneg(&condition) {
                return then();
            }
            if facts.nonneg(&not) {
                return otherwise();
            }
            Ok(choose(vec![condition.clone()], facts.assume([condition], then)?, facts.assume([not], otherwise)?))
        };
        let turned = || -> Res<T> {
            if style == "half" {
                let then = || first(own, own, &(own + &pairs));
                let behind = own - &pairs;
                return pick(below(own, &pairs), &then, &|| second(&behind, &behind, own));
            }
            let (p, odd) = facts.divided(own, &two);
            let (even, next) = (&two * &p, &(&two * &p) + &one);
            pick(&Poly::zero() - &odd, &|| first(&p, &even, &next), &|| second(&p, &even, &next))
        };
        pick(below(own, &(&two * &pairs)), &turned, &|| element(own))
    }))
}

fn glu(call: &Call) -> Res<Vec<Tensor>> {
    let (x, gate, act) = (call.args[0].clone(), call.word(0)?.to_string(), format!("act {}", call.word(1)?));
    let place = find(&x.shape, &Poly::int(1))?;
    let (half, rest) = x.shape[place].extent.divide(&Poly::int(2));
    if rest != Poly::zero() {
        return stop("it is undecided whether an extent is even");
    }
    let (ty, mut shape) = (x.ty.clone(), x.shape.clone());
    shape[place].extent = half.clone();
    one(Tensor::new(ty.clone(), shape, move |at| {
        let part = |second: bool| {
            let mut at = at.to_vec();
            at[place] = if second { &at[place] + &half } else { at[place].clone() };
            (x.at)(&at)
        };
        let (gate, up) = (part(gate == "second")?, part(gate == "first")?);
        Ok(rounded("glu", &ty, Arithmetic(ty.clone()).mul(&up, &apply(&act, &ty, vec![gate]))))
    }))
}
