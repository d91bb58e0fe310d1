//! The normal form for `exact`: two terms with equal normal forms are equal to the last bit for every value, infinities
//! and NaN included.
//!
//! The normal form keeps every rounding, and uses a law only if it holds bit for bit. Two things are exempt, because
//! the op table leaves them open: the payload of NaN, and the sign of a zero from `max` and `min`.
//!
//! The laws of floats are: commutativity; a − b = a + (−b); signs move out of products and quotients; x + x = 2·x; 1
//! and −0 are neutral elements; `max` and `min` form a lattice; division by a power of two is a product; a conversion
//! to a type that represents every value and back is the identity. Integers are a ring modulo 2ⁿ. Each undecided truth
//! value is tried as true and as false.
//!
//! A sum, a matrix product or a composite op is a real function that is rounded once, and its terms may come in any
//! order. Equal functions of equal elements therefore round equally. Terms inside such a function are reals, for which
//! the same laws hold, so one normal form serves both.

use std::{collections::BTreeMap, rc::Rc};

use eutectic_ir::{DType, Op, ops::Reduction, ops::Trait};

use crate::{
    bind::{Bound, canonical, fresh, independent, split_ranges, substitute},
    call::Case,
    facts::{Res, Stop},
    integers,
    lattice::lattice,
    logic::logic,
    term::{Kind, Poly, T, Term, Ty, apply, choose, num, value},
};

/// Returns the normal form of a term, given some known truth values.
pub fn normal(case: &Case, term: &T, truths: &BTreeMap<T, bool>) -> Res<T> {
    Normal { case, truths }.of(term)
}

struct Normal<'a> {
    case: &'a Case,
    truths: &'a BTreeMap<T, bool>,
}

impl Normal<'_> {
    fn of(&self, term: &T) -> Res<T> {
        self.case.step(1)?;
        let result = match &**term {
            Term::Num(_) | Term::Param(_) => term.clone(),
            Term::Index(p) => {
                let index = Term::Index(self.index(p)?);
                index.number().map_or_else(|| Rc::new(index), num)
            }
            Term::Read(name, ty, at) => {
                let at = at.iter().map(|p| self.index(p)).collect::<Res<_>>()?;
                Rc::new(Term::Read(name.clone(), ty.clone(), at))
            }
            Term::Apply(op, ty, args) if **op == *"where" => return self.select(ty, args),
            Term::Apply(op, ty, args) => {
                let args = args.iter().map(|a| self.of(a)).collect::<Res<Vec<_>>>()?;
                self.function(op, ty, args)?
            }
            Term::If(conditions, a, b) => {
                let mut open = Vec::new();
                for p in conditions {
                    let p = self.index(p)?;
                    if self.case.facts.nonneg(&(&Poly::int(-1) - &p)) {
                        return self.of(b);
                    }
                    if !self.case.facts.nonneg(&p) {
                        open.push(p);
                    }
                }
                open.sort();
                let then = self.case.facts.assume(open.clone(), || self.of(a))?;
                choose(open, then, self.of(b)?)
            }
            Term::Reduce(how, ty, vars, body) => self.reduce(*how, ty, vars, body)?,
        };
        Ok(match self.truths.get(&result) {
            Some(truth) => num(f64::from(u8::from(*truth))),
            None => result,
        })
    }

    /// Normalizes the integers that an index reads from tensors.
    fn index(&self, p: &Poly) -> Res<Poly> {
        substitute(&self.case.facts, p, &|_| None, &|t| self.of(t).map(value))
    }

    fn select(&self, ty: &Ty, args: &[T]) -> Res<T> {
        let condition = self.of(&args[0])?;
        match condition.number() {
            Some(0.0) => self.of(&args[2]),
            Some(_) => self.of(&args[1]),
            None => {
                let (a, b) = (self.of(&args[1])?, self.of(&args[2])?);
                if a == b {
                    return Ok(a);
                }
                // `where(x = y, x, y)` is y, and `where(x = y, y, x)` is x.
                if let Some([x, y]) = condition.args("eq")
                    && ty.kind == Kind::Int
                    && (a == *x && b == *y || a == *y && b == *x)
                {
                    return Ok(b);
                }
                // A selection between the constants true and false is the condition or its negation.
                match (ty.kind, a.number(), b.number()) {
                    (Kind::Bool, Some(1.0), Some(0.0)) => return Ok(condition),
                    (Kind::Bool, Some(0.0), Some(1.0)) => return self.function("not", ty, vec![condition]),
                    _ => {}
                }
                if let Term::If(conditions, yes, no) = &*condition
                    && (yes.number(), no.number()) == (Some(1.0), Some(0.0))
                {
                    return Ok(choose(conditions.clone(), a, b));
                }
                Ok(match condition.args("not") {
                    Some([inner]) => apply("where", ty, vec![inner.clone(), b, a]),
                    _ => apply("where", ty, vec![condition, a, b]),
                })
            }
        }
    }

    fn function(&self, op: &str, ty: &Ty, mut args: Vec<T>) -> Res<T> {
        // The engine computes functions of a rule's numbers in `f64`, whatever the element type is.
        let own = Ty::fixed(DType::F64);
        let ty = if op != "cast" && ty.kind == Kind::Float && !args.is_empty() && args.iter().all(is_number) {
            &own
        } else {
            ty
        };
        let kind = ty.kind;
        if kind == Kind::Int
            && let Some(result) = integers::function(&self.case.facts, op, ty, &args)
        {
            return Ok(result);
        }
        let same = |op: &str, args: Vec<T>| self.function(op, ty, args);
        let negated = |t: &T| t.args("neg").map(|a| a[0].clone());
        if let Some(truth) = logic(&self.case.facts, op, &args) {
            return Ok(truth);
        }
        match (op, args.as_slice()) {
            ("round", _) => {}
            // Every type represents small integers exactly.
            (of, [x]) if (of.starts_with("round ") || of == "wrap") && is_small(x) => return Ok(x.clone()),
            // An index within the range of the type does not wrap.
            ("wrap", [x]) if self.is_held(x, ty) => return Ok(x.clone()),
            ("neg", [x]) => {
                if let Some(x) = x.number() {
                    return Ok(num(-x));
                }
                if let Some(x) = negated(x) {
                    return Ok(x);
                }
            }
            ("calc neg", [_]) => return same("neg", args),
            ("calc max", [_, _]) => return same("max", args),
            ("calc min", [_, _]) => return same("min", args),
            ("sub", [a, b]) if kind == Kind::Float => {
                return same("add", vec![a.clone(), same("neg", vec![b.clone()])?]);
            }
            ("add", [a, b]) if kind == Kind::Float => {
                // −0 is neutral. 0 is not, because −0 + 0 is 0.
                for (x, zero) in [(a, b), (b, a)] {
                    if zero.number().is_some_and(|z| z == 0.0 && z.is_sign_negative()) {
                        return Ok(x.clone());
                    }
                }
                if a == b {
                    return same("mul", vec![a.clone(), num(2.0)]);
                }
            }
            ("mul" | "div", [a, b]) if kind == Kind::Float => {
                for (n, t) in [a, b].into_iter().enumerate() {
                    let turned = match (negated(t), t.number()) {
                        (Some(x), _) => x,
                        (_, Some(x)) if x < 0.0 => num(-x),
                        _ => continue,
                    };
                    let mut args = args.clone();
                    args[n] = turned;
                    return same("neg", vec![same(op, args)?]);
                }
                if b.number() == Some(1.0) || op == "mul" && a.number() == Some(1.0) {
                    return Ok(if b.number() == Some(1.0) { a.clone() } else { b.clone() });
                }
                if op == "div"
                    && let Some(reciprocal) = self.reciprocal(b)
                {
                    return same("mul", vec![a.clone(), reciprocal]);
                }
                if op == "mul"
                    && let (Some([x]), Some([y])) = (a.args("abs"), b.args("abs"))
                    && x == y
                {
                    return same("mul", vec![x.clone(), x.clone()]);
                }
            }
            ("div", [a, b]) if b.number() == Some(1.0) => return Ok(a.clone()),
            ("reciprocal", [x]) => return same("div", vec![num(1.0), x.clone()]),
            ("pow", [x, e]) if kind == Kind::Float && e.number() == Some(1.0) => return Ok(x.clone()),
            ("pow", [_, e]) if kind == Kind::Float && e.number() == Some(0.0) => return Ok(num(1.0)),
            ("abs", [x]) if x.args("abs").is_some() => return Ok(x.clone()),
            ("max" | "min", [_, _]) => return self.extreme(op, ty, &args),
            ("act none", [x]) => return Ok(x.clone()),
            ("act relu", [x]) => return self.extreme("max", ty, &[x.clone(), num(0.0)]),
            ("act sigmoid", [_]) => return same("sigmoid", args),
            ("act tanh", [_]) => return same("tanh", args),
            ("cast", [x]) => {
                if let Some(x) = self.cast(x, ty) {
                    return Ok(x);
                }
            }
            _ => {}
        }
        // For floats only, because the least signed integer is its own negative.
        if let ([x], Kind::Float) = (args.as_slice(), kind) {
            let has = |of: Trait, mark: &str| {
                Op::named(op).is_some_and(|op| op.def().traits.contains(&of)) || op.split(' ').any(|w| w == mark)
            };
            if let Some(inner) = negated(x) {
                if has(Trait::Even, "even") {
                    return same(op, vec![inner]);
                }
                if has(Trait::Odd, "odd") && op != "neg" {
                    return same("neg", vec![same(op, vec![inner])?]);
                }
            }
        }
        if Op::named(op).is_some_and(|op| op.def().commutative) {
            args.sort();
        }
        Ok(apply(op, ty, args))
    }

    /// Returns whether an integer type represents every value that an index can have.
    fn is_held(&self, index: &T, ty: &Ty) -> bool {
        let (Term::Index(p), Some((least, most))) =
            (&**index, ty.dtype.filter(|_| ty.kind == Kind::Int).map(DType::integers))
        else {
            return false;
        };
        let [below, above] = [p - &Poly::int(i128::from(least)), &Poly::int(i128::from(most)) - p];
        self.case.facts.nonneg(&below) && self.case.facts.nonneg(&above)
    }

    /// Returns the normal form of an extremum. max(f(x), f(y)) = f(max(x, y)) for monotone f.
    fn extreme(&self, op: &str, ty: &Ty, args: &[T]) -> Res<T> {
        if let [Term::Apply(f, fty, x), Term::Apply(g, _, y)] = [&*args[0], &*args[1]]
            && f == g
            && monotone(f)
            && let ([x], [y]) = (x.as_slice(), y.as_slice())
        {
            let of = x.ty().or(y.ty()).unwrap_or(ty).clone();
            let inner = self.function(op, &of, vec![x.clone(), y.clone()])?;
            return self.function(f, fty, vec![inner]);
        }
        let result = lattice(&self.case.facts, op, ty, args);
        // An extremum of an index and integers that are read from tensors is an index.
        let by_index = ty.kind == Kind::Int && args.iter().any(|t| matches!(&**t, Term::Index(_)));
        let index = if by_index { integers::exact_integer(&self.case.facts, &result) } else { None };
        Ok(index.map_or(result, |p| Rc::new(Term::Index(p))))
    }

    /// Returns the reciprocal of a number if division by it equals multiplication with the reciprocal exactly.
    fn reciprocal(&self, b: &T) -> Option<T> {
        if let Some(c) = b.number() {
            // Every element type represents these powers of two and their reciprocals.
            let power = c.to_bits() << 12 == 0 && (2_f64.powi(-14)..=2_f64.powi(14)).contains(&c.abs());
            return power.then(|| num(1.0 / c));
        }
        match &**b {
            Term::Param(name) if self.case.number_is(name, "inverts") => {
                Some(apply("calc /", &Ty::fixed(DType::F64), vec![num(1.0), b.clone()]))
            }
            _ => None,
        }
    }

    /// Simplifies a conversion to the same type, or one that another conversion makes redundant.
    fn cast(&self, x: &T, to: &Ty) -> Option<T> {
        if x.ty() == Some(to) {
            return Some(x.clone());
        }
        // Every type that ops compute with represents these integers.
        if to.kind != Kind::Stored
            && let Some(n) =
                x.number().filter(|n| n.fract() == 0.0 && (0.0..=127.0).contains(n) && n.is_sign_positive())
        {
            return Some(num(if to.kind == Kind::Bool { f64::from(u8::from(n != 0.0)) } else { n }));
        }
        // Wrapping is a ring homomorphism, so a final wrap to fewer bits may be applied to the operands first.
        if let (Some([of]), Some(from), Some(narrow)) = (x.args("ring"), x.ty().and_then(|ty| ty.dtype), to.dtype)
            && to.kind == Kind::Int
            && narrow.bits() <= from.bits()
            && let Term::Index(p) = &**of
        {
            let read = |t: &T| Ok(value(self.cast(t, to).unwrap_or_else(|| apply("cast", to, vec![t.clone()]))));
            let p = substitute(&self.case.facts, p, &|_| None, &read).ok()?;
            return Some(apply("ring", to, vec![Rc::new(Term::Index(p))]));
        }
        let [inner] = x.args("cast")? else { return None };
        let (from, between) = (inner.ty()?, x.ty()?);
        let holds = holds(between, from);
        if holds && from == to {
            return Some(inner.clone());
        }
        // Within one kind of numbers, a conversion through a wider type changes nothing.
        (holds && from.kind == between.kind && from.kind != Kind::Stored)
            .then(|| self.cast(inner, to).unwrap_or_else(|| apply("cast", to, vec![inner.clone()])))
    }

    fn reduce(&self, how: Reduction, ty: &Ty, vars: &[(u32, Poly)], body: &T) -> Res<T> {
        let vars: Vec<(u32, Poly)> = vars.iter().map(|(v, e)| Ok((*v, self.index(e)?))).collect::<Res<_>>()?;
        let Bound { mut vars, body } = fresh(&self.case.facts, &vars, body)?;
        // The body is evaluated only if there are elements, so no extent is 0.
        let there = |vars: &[(u32, Poly)]| vars.iter().map(|(_, e)| e - &Poly::int(1)).collect::<Vec<_>>();
        let mut body = self.case.facts.assume(there(&vars), || self.of(&body))?;
        let exact = how.def().selects || ty.kind == Kind::Int;
        if !how.def().selects && vars.iter().any(|(_, e)| *e == Poly::zero()) {
            return Ok(num(how.identity(DType::F64).get()));
        }
        if exact {
            // Nested extrema of one kind are one extremum, and nested sums of integers are one sum.
            while let Term::Reduce(inner, _, more, of) = &*Rc::clone(&body) {
                if *inner != how || !independent(&vars, more) {
                    break;
                }
                let inner = fresh(&self.case.facts, more, of)?;
                vars.extend(inner.vars);
                body = inner.body;
            }
        }
        let bound = split_ranges(&self.case.facts, Bound { vars, body })?;
        let mut body = self.case.facts.assume(there(&bound.vars), || self.of(&bound.body))?;
        let mut vars = bound.vars;
        if how.def().selects {
            if vars.iter().any(|(_, e)| *e == Poly::zero()) {
                // The extremum of no elements is the type's least or greatest value.
                return Ok(apply(&format!("nothing {}", how.def().name), ty, Vec::new()));
            }
            for (v, extent) in vars.clone() {
                if !body.mentions(v) {
                    self.there(&extent)?;
                    vars.retain(|(w, _)| *w != v);
                }
            }
            // max f(x) = f(max x) if f is monotone.
            if let Term::Apply(op, fty, args) = &*Rc::clone(&body)
                && let [x] = args.as_slice()
                && monotone(op)
                && !vars.is_empty()
            {
                for (_, extent) in &vars {
                    self.there(extent)?;
                }
                let inner = Rc::new(Term::Reduce(how, ty.clone(), vars, x.clone()));
                return self.function(op, fty, vec![self.of(&(inner as T))?]);
            }
        }
        if vars.is_empty() && exact {
            return Ok(body);
        }
        if let Term::If(conditions, ..) = &*body
            && conditions.is_empty()
        {
            body = self.of(&body)?;
        }
        canonical(&self.case.facts, how, ty, Bound { vars, body })
    }

    /// Requires that an extent is not 0.
    fn there(&self, extent: &Poly) -> Res<()> {
        there(self.case, extent)
    }
}

/// Returns whether a term is an integer that every element type represents.
fn is_small(t: &T) -> bool {
    t.number().is_some_and(|x| x.fract() == 0.0 && (0.0..=127.0).contains(&x) && x.is_sign_positive())
}

/// Returns whether a term consists only of numbers of the rule.
fn is_number(t: &T) -> bool {
    match &**t {
        Term::Num(_) | Term::Param(_) => true,
        Term::Apply(op, _, args) => !op.starts_with("round ") && !args.is_empty() && args.iter().all(is_number),
        _ => false,
    }
}

/// Requires that an extent is not 0. If a size in it may be 0, the proof is split into two cases.
pub fn there(case: &Case, extent: &Poly) -> Res<()> {
    if case.facts.positive(extent) {
        return Ok(());
    }
    let mut sizes = Vec::new();
    extent.visit(&mut |atom| {
        if let crate::term::Atom::Size(name) = atom {
            sizes.push(name.clone());
        }
    });
    let open = sizes.into_iter().find(|name| !case.facts.positive(&Poly::size(name)));
    match open {
        Some(name) => Err(Stop::Split(name)),
        None => Err(Stop::Because(format!("it is undecided whether {extent} is 0"))),
    }
}

fn monotone(op: &str) -> bool {
    op.split(' ').any(|w| w == "monotone") || Op::named(op).is_some_and(|op| op.def().traits.contains(&Trait::Monotone))
}

/// Returns whether the type `wide` represents every value of the type `narrow`.
fn holds(wide: &Ty, narrow: &Ty) -> bool {
    if wide.dtype == Some(DType::I64) && narrow.kind == Kind::Int {
        return true;
    }
    let (Some(wide), Some(narrow)) = (wide.dtype, narrow.dtype) else {
        // Truth values are 0 and 1.
        return narrow.kind == Kind::Bool && matches!(wide.kind, Kind::Int | Kind::Float);
    };
    match (Kind::of(narrow), Kind::of(wide)) {
        (Kind::Bool, Kind::Int | Kind::Float) => true,
        (Kind::Int, Kind::Int) => {
            let ((a, b), (c, d)) = (narrow.integers(), wide.integers());
            c <= a && b <= d
        }
        (Kind::Float, Kind::Float) => {
            let ((a, b), (c, d)) = (narrow.normal_range(), wide.normal_range());
            // The wide type must also represent the subnormal numbers of the narrow one.
            wide.unit_roundoff() <= narrow.unit_roundoff() && c <= a * narrow.unit_roundoff() && b <= d
                || wide.unit_roundoff() <= narrow.unit_roundoff() && c == a && b <= d && wide != narrow
        }
        _ => false,
    }
}
