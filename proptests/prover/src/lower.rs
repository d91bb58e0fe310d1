//! Converts terms to real functions. It ignores roundings, makes undecided choices 0-1 factors, and replaces functions
//! by their definitions.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use eutectic_ir::ops::Reduction;

use crate::{
    bind::{Bound, fresh, independent, split_ranges},
    bits,
    call::Case,
    choice::{branches, cut, is_special, special},
    facts::Res,
    functions::{self, absolute},
    logic::compares,
    real::{Factor, Real},
    signs::Known,
    sums,
    term::{Atom, Kind, Poly, T, Term, apply, choose, num, value},
};

/// The prefix of the function that marks the result of an op.
pub const MARK: &str = "op ";

/// Truth values that are known.
pub type Truths = BTreeMap<T, bool>;

/// A converter of terms to real functions.
pub struct Lower<'a> {
    case: &'a Case,
    /// Whether every operand whose NaN would reach the result is kept, such as x in x + ∞.
    strict: bool,
    /// The partial functions (inverse, root, logarithm) whose argument is not shown to be positive, with their
    /// arguments.
    pub partial: RefCell<BTreeSet<(&'static str, Real)>>,
}

impl<'a> Lower<'a> {
    /// Makes a converter for a case.
    pub fn new(case: &'a Case) -> Lower<'a> {
        Lower { case, strict: false, partial: RefCell::default() }
    }

    fn known(&self) -> Known<'a> {
        Known(self.case)
    }

    /// Returns the real function that a term denotes.
    pub fn real(&self, term: &T) -> Res<Real> {
        let resolved = self.resolve(term, &Truths::new())?;
        self.value(&resolved)
    }

    /// Simplifies decided choices in a term, but keeps every operand whose NaN would reach the result.
    pub fn strictly(&self, term: &T) -> Res<T> {
        Lower { strict: true, ..Lower::new(self.case) }.resolve(term, &Truths::new())
    }

    /// Replaces decided choices by the chosen branch. A choice with a special branch moves outwards through ops, until
    /// each branch can be evaluated.
    fn resolve(&self, term: &T, truths: &Truths) -> Res<T> {
        self.case.step(1)?;
        match &**term {
            Term::Num(_) | Term::Param(_) | Term::Index(_) | Term::Read(..) => Ok(term.clone()),
            Term::If(conditions, a, b) => {
                // An index may contain an integer read from a tensor, which may be a choice itself.
                let conditions = conditions.iter().map(|p| self.index(p)).collect::<Res<Vec<_>>>()?;
                self.resolve_if(&conditions, a, b, truths)
            }
            Term::Apply(op, ty, args) if **op == *"where" => {
                let condition = self.condition(&args[0], truths)?;
                if let Some(x) = condition.number() {
                    return self.resolve(&args[if x == 0.0 { 2 } else { 1 }], truths);
                }
                let (condition, then, otherwise) = match condition.args("not") {
                    Some([inner]) => (inner.clone(), &args[2], &args[1]),
                    _ => (condition, &args[1], &args[2]),
                };
                let under = |truth: bool| {
                    let mut truths = truths.clone();
                    truths.insert(condition.clone(), truth);
                    truths
                };
                let (a, b) = (self.resolve(then, &under(true))?, self.resolve(otherwise, &under(false))?);
                Ok(if a == b { a } else { apply("where", ty, vec![condition, a, b]) })
            }
            Term::Apply(op, _, args)
                if ["round ", "empty ", MARK].iter().any(|p| op.starts_with(p)) || **op == *"tf32" =>
            {
                self.resolve(&args[0], truths)
            }
            Term::Apply(op, ty, args) => {
                let args = args.iter().map(|a| self.resolve(a, truths)).collect::<Res<Vec<_>>>()?;
                if let Some(result) = special(op, &args).filter(|_| !self.strict) {
                    return Ok(result);
                }
                let lifts = |t: &T| {
                    let branches = branches(t);
                    branches.is_some_and(|(a, b)| **op == *"hides" || [a, b].iter().any(|t| is_special(t)))
                };
                let Some(at) = args.iter().position(lifts) else { return Ok(apply(op, ty, args)) };
                let put = |t: &T| {
                    let mut args = args.clone();
                    args[at] = t.clone();
                    self.resolve(&apply(op, ty, args), truths)
                };
                match &*args[at] {
                    Term::If(conditions, a, b) => Ok(choose(conditions.clone(), put(a)?, put(b)?)),
                    Term::Apply(where_, _, of) => {
                        let (a, b) = (put(&of[1])?, put(&of[2])?);
                        Ok(if a == b { a } else { apply(where_, ty, vec![of[0].clone(), a, b]) })
                    }
                    _ => Ok(apply(op, ty, args)),
                }
            }
            Term::Reduce(how, _, vars, _) if vars.iter().any(|(_, e)| *e == Poly::zero()) => {
                Ok(num(how.identity(eutectic_ir::DType::F64).get()))
            }
            Term::Reduce(how, ty, vars, body) => {
                let Bound { vars, body } = fresh(&self.case.facts, vars, body)?;
                let there: Vec<Poly> = vars.iter().map(|(_, e)| e - &Poly::int(1)).collect();
                let mut of =
                    Bound { body: self.case.facts.assume(there.clone(), || self.resolve(&body, truths))?, vars };
                while let Term::Reduce(inner, _, more, body) = &*Rc::clone(&of.body) {
                    if inner != how || !independent(&of.vars, more) {
                        break;
                    }
                    let inner = fresh(&self.case.facts, more, body)?;
                    of.vars.extend(inner.vars);
                    of.body = inner.body;
                }
                let of = self.case.facts.assume(there, || split_ranges(&self.case.facts, of))?;
                if let Some((before, after)) = cut(&self.case.facts, &of)? {
                    let part = |of: Bound| {
                        self.resolve(&(Rc::new(Term::Reduce(*how, ty.clone(), of.vars, of.body)) as T), truths)
                    };
                    return Ok(apply(how.def().op, ty, vec![part(before)?, part(after)?]));
                }
                Ok(Rc::new(Term::Reduce(*how, ty.clone(), of.vars, of.body)))
            }
        }
    }

    fn resolve_if(&self, conditions: &[Poly], a: &T, b: &T, truths: &Truths) -> Res<T> {
        let facts = &self.case.facts;
        if conditions.iter().any(|p| facts.nonneg(&(&Poly::int(-1) - p))) {
            return self.resolve(b, truths);
        }
        let open: Vec<Poly> = conditions.iter().filter(|p| !facts.nonneg(p)).cloned().collect();
        let then = facts.assume(open.clone(), || self.resolve(a, truths))?;
        let otherwise = match open.as_slice() {
            [p] => facts.assume([&Poly::int(-1) - p], || self.resolve(b, truths))?,
            _ => self.resolve(b, truths)?,
        };
        Ok(choose(open, then, otherwise))
    }

    /// Returns the normal form of a truth value. Its comparisons are decided as far as possible.
    fn condition(&self, term: &T, truths: &Truths) -> Res<T> {
        let resolved = self.resolve(term, truths)?;
        // In strict mode numbers may be NaN, so `decided` decides only the masks of attention.
        bits::normal(self.case, &self.decided(&resolved)?, truths)
    }

    /// Decides comparisons of reals with an infinity, comparisons of reals whose difference is a constant, tests for
    /// NaN, and masks of attention.
    fn decided(&self, term: &T) -> Res<T> {
        let Term::Apply(op, ty, args) = &**term else { return Ok(term.clone()) };
        let truth = |b: bool| Ok(num(f64::from(u8::from(b))));
        let float = args.iter().all(|a| a.ty().is_none_or(|ty| ty.kind == Kind::Float));
        match (&**op, args.as_slice()) {
            _ if self.strict && **op != *"hides" => {}
            // A bias that is read from a tensor may mask its key or not.
            ("hides", [bias]) if self.strict && bias.number().is_none() && !matches!(&**bias, Term::Param(_)) => {}
            ("is-nan", [_]) => return truth(false),
            ("hides", [bias]) => match (&**bias, bias.number()) {
                (_, Some(x)) if x == f64::NEG_INFINITY => return truth(true),
                (Term::Param(name), _) if self.case.number_is(name, "hides") => return truth(true),
                // A finite bias that is read from a tensor masks nothing.
                _ => return truth(false),
            },
            ("eq" | "ne" | "lt" | "le" | "gt" | "ge", [a, b]) if float => {
                let order = match (is_special(a), is_special(b)) {
                    (false, false) => {
                        let (a, b) = (self.value(a)?, self.value(b)?);
                        a.plus(&b.scaled(-1.0)).known().and_then(|d| d.partial_cmp(&0.0))
                    }
                    // An infinity compares with each finite number by its sign.
                    (true, false) => a.number().and_then(|x| x.partial_cmp(&0.0)),
                    (false, true) => b.number().and_then(|x| 0.0.partial_cmp(&x)),
                    (true, true) => None,
                };
                if let Some(order) = order {
                    return truth(compares(op, order));
                }
            }
            _ => {}
        }
        let args = args.iter().map(|a| self.decided(a)).collect::<Res<_>>()?;
        Ok(Rc::new(Term::Apply(op.clone(), ty.clone(), args)))
    }

    fn note(&self, what: &'static str, of: &Real) {
        // A product is 0 if one of its factors is.
        let factors = if what == "1/" { of.factors() } else { None };
        if let Some(factors) = factors.filter(|f| f.len() != 1 || *of != f[0]) {
            return factors.iter().for_each(|f| self.note(what, f));
        }
        if !self.known().positive(of) && !of.is_nonzero(&self.known()) {
            self.partial.borrow_mut().insert((what, of.clone()));
        }
    }

    fn inverse(&self, of: &Real) -> Res<Real> {
        self.note("1/", of);
        functions::inverse(of, &self.known())
    }

    fn root(&self, of: &Real) -> Real {
        if !self.known().nonneg(of) {
            self.note("√", of);
        }
        functions::root(of, &self.known())
    }

    fn log(&self, of: &Real) -> Real {
        // log √x = ½·log x and log 1/x = −log x wherever the left sides are finite.
        if let Some((p, c)) = of.single()
            && let (Some((factor, 1)), 1, true) =
                (p.factors.iter().next(), p.factors.len(), c == 1.0 && p.power.is_zero())
        {
            match factor {
                Factor::Root(r) => return self.log(r).scaled(0.5),
                Factor::Inverse(r) => return self.log(r).scaled(-1.0),
                _ => {}
            }
        }
        self.note("log ", of);
        functions::log(of, &self.known())
    }

    fn value(&self, term: &T) -> Res<Real> {
        self.case.step(1)?;
        let known = self.known();
        Ok(match &**term {
            Term::Num(bits) if f64::from_bits(*bits).is_finite() => Real::number(f64::from_bits(*bits)),
            Term::Num(_) | Term::Param(_) => Real::factor(Factor::Leaf(term.clone())),
            Term::Index(p) => sums::of_index(&self.index(p)?, &known),
            Term::Read(name, ty, at) => {
                let at = at.iter().map(|p| self.index(p)).collect::<Res<_>>()?;
                Real::factor(Factor::Leaf(Rc::new(Term::Read(name.clone(), ty.clone(), at))))
            }
            Term::If(conditions, a, b) => {
                let holds = sums::holds(conditions, &known);
                let (a, b) = (self.value(a)?, self.value(b)?);
                let not = match conditions.as_slice() {
                    [p] => sums::holds(&[&Poly::int(-1) - p], &known),
                    _ => Real::number(1.0).plus(&holds.scaled(-1.0)),
                };
                holds.times(&a, &known).plus(&not.times(&b, &known))
            }
            Term::Reduce(how, _, vars, body) => {
                let Bound { vars, body } = fresh(&self.case.facts, vars, body)?;
                let there: Vec<Poly> = vars.iter().map(|(_, e)| e - &Poly::int(1)).collect();
                let body = self.case.facts.assume(there, || self.value(&body))?;
                match how {
                    Reduction::Sum => sums::sum(&vars, &body, &known)?,
                    _ => sums::extremum(*how, &vars, &body, &known)?,
                }
            }
            Term::Apply(op, ty, args) => match ty.kind {
                Kind::Bool => self.truth(term)?,
                Kind::Int => Real::factor(Factor::Leaf(bits::normal(self.case, term, &Truths::new())?)),
                _ => self.function(op.strip_prefix("calc ").unwrap_or(op), term, args)?,
            },
        })
    }

    fn truth(&self, term: &T) -> Res<Real> {
        let normal = self.condition(term, &Truths::new())?;
        Ok(match (normal.number(), normal.args("not")) {
            (Some(x), _) => Real::number(x),
            (_, Some([inner])) => Real::number(1.0).plus(&Real::factor(Factor::Truth(inner.clone())).scaled(-1.0)),
            _ => Real::factor(Factor::Truth(normal)),
        })
    }

    /// Normalizes the integers that an index reads from tensors.
    fn index(&self, p: &Poly) -> Res<Poly> {
        let read = |t: &T| bits::normal(self.case, t, &Truths::new()).map(value);
        crate::bind::substitute(&self.case.facts, p, &|_: &Atom| None, &read)
    }

    fn function(&self, op: &str, term: &T, args: &[T]) -> Res<Real> {
        let known = self.known();
        let one = Real::number(1.0);
        if op == "where" {
            let (c, a, b) = (self.truth(&args[0])?, self.value(&args[1])?, self.value(&args[2])?);
            let not = one.plus(&c.scaled(-1.0));
            return Ok(c.times(&a, &known).plus(&not.times(&b, &known)));
        }
        if op == "cast" {
            return match args[0].ty().map(|ty| ty.kind) {
                Some(Kind::Bool) => self.truth(&args[0]),
                _ => self.value(&args[0]),
            };
        }
        if op == "pow" {
            return self.power(&args[0], &args[1]);
        }
        let values = args.iter().map(|a| self.value(a)).collect::<Res<Vec<_>>>()?;
        let call = |name: &str, args: Vec<Real>| Real::factor(Factor::Call(name.into(), args));
        let times = |a: &Real, b: &Real| a.times(b, &known);
        let logistic =
            |x: &Real| -> Res<Real> { functions::inverse(&one.plus(&functions::exp(&x.scaled(-1.0), &known)), &known) };
        Ok(match (op, values.as_slice()) {
            ("wrap" | "store", [x]) => x.clone(),
            ("add" | "+", [a, b]) => a.plus(b),
            ("sub" | "-", [a, b]) => a.plus(&b.scaled(-1.0)),
            ("mul" | "*", [a, b]) => times(a, b),
            ("div" | "/", [a, b]) => times(a, &self.inverse(b)?),
            ("neg", [a]) => a.scaled(-1.0),
            ("reciprocal", [a]) => self.inverse(a)?,
            ("sqrt", [a]) => self.root(a),
            ("rsqrt", [a]) => self.inverse(&self.root(a))?,
            ("exp" | "exp-normal", [a]) => functions::exp(a, &known),
            ("expm1", [a]) => functions::exp(a, &known).plus(&one.scaled(-1.0)),
            ("log", [a]) => self.log(a),
            ("log1p", [a]) => self.log(&one.plus(a)),
            ("sigmoid" | "act sigmoid", [x]) => logistic(x)?,
            // 2·σ(2x) − 1
            ("tanh" | "act tanh", [x]) => logistic(&x.scaled(2.0))?.scaled(2.0).plus(&one.scaled(-1.0)),
            ("act none", [x]) => x.clone(),
            ("act relu", [x]) => extreme("max", &[x.clone(), Real::default()], &known),
            ("act silu", [x]) => times(x, &logistic(x)?),
            ("act gelu-erf", [x]) => {
                let erf = call("erf", vec![x.scaled(std::f64::consts::FRAC_1_SQRT_2)]);
                times(x, &one.plus(&erf)).scaled(0.5)
            }
            ("act gelu-tanh", [x]) => {
                // (1 + tanh y)/2 = σ(2y) with y = √(2/π)·(x + 0.044715 x³).
                let cube = times(&times(x, x), x);
                let y = x.plus(&cube.scaled(0.044715)).scaled((2.0 / std::f64::consts::PI).sqrt());
                times(x, &logistic(&y.scaled(2.0))?)
            }
            ("softplus", [x]) => {
                // max(x, 0) + log(1 + e^−|x|)
                let small = functions::exp(&absolute(x, &known).scaled(-1.0), &known);
                extreme("max", &[x.clone(), Real::default()], &known).plus(&self.log(&one.plus(&small)))
            }
            ("abs", [x]) => absolute(x, &known),
            ("max" | "min", all) => extreme(op, all, &known),
            ("floor" | "ceil" | "round" | "mod" | "sign", _) => {
                let bits = bits::normal(self.case, term, &Truths::new())?;
                Real::factor(Factor::Leaf(bits))
            }
            (name, all) => call(name, all.to_vec()),
        })
    }

    /// Returns a power: a repeated product or a root for some constant exponents, else a function of base and exponent.
    fn power(&self, base: &T, exponent: &T) -> Res<Real> {
        let known = self.known();
        let (x, e) = (self.value(base)?, self.value(exponent)?);
        let call = || Real::factor(Factor::Call("pow".into(), vec![x.clone(), e.clone()]));
        let positive = known.positive(&x);
        match e.known() {
            Some(0.5) => Ok(self.root(&x)),
            Some(-0.5) => self.inverse(&self.root(&x)),
            Some(n) if n.fract() == 0.0 && n.abs() <= 8.0 => {
                let of = if n < 0.0 { self.inverse(&x)? } else { x.clone() };
                Ok((0..n.abs() as usize).fold(Real::number(1.0), |p, _| p.times(&of, &known)))
            }
            // xᶜ = e^(c·log x)
            _ if positive => Ok(functions::exp(&functions::log(&x, &known).times(&e, &known), &known)),
            _ => Ok(call()),
        }
    }
}

/// Returns the maximum or minimum of several values, without duplicates.
fn extreme(op: &str, all: &[Real], known: &Known<'_>) -> Real {
    let mut all = all.to_vec();
    all.sort();
    all.dedup();
    match all.as_slice() {
        [one] => one.clone(),
        [a, b] if known.nonneg(&a.plus(&b.scaled(-1.0))) => {
            if op == "max" {
                a.clone()
            } else {
                b.clone()
            }
        }
        [a, b] if known.nonneg(&b.plus(&a.scaled(-1.0))) => {
            if op == "max" {
                b.clone()
            } else {
                a.clone()
            }
        }
        [a, b] if *a == b.scaled(-1.0) => absolute(a, known).scaled(if op == "max" { 1.0 } else { -1.0 }),
        _ => Real::factor(Factor::Call(op.into(), all)),
    }
}
