//! Proves that both sides return the same infinities, NaN and poles in rules without sums.
//!
//! Each element is NaN, an infinity, a zero, positive or negative, and all combinations are tried. For each one, the op
//! table and the rules of signs give the values of both sides. If both values are finite, they must be equal over the
//! reals.

use std::{collections::BTreeMap, fmt, rc::Rc};

use eutectic_ir::DType;

use super::extended::{Sign, Value, function};
use crate::{
    bits,
    call::Case,
    facts::{Res, Stop, stop},
    lower::{Lower, Truths},
    signs::Known,
    sums,
    term::{Kind, Poly, T, Term, Ty, apply},
};

/// The maximal number of elements whose combinations are tried.
const ELEMENTS: usize = 6;

/// The class of an element's value. `true` means negative, except in `Truth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Nan,
    Infinity(bool),
    Zero(bool),
    Finite(bool),
    Truth(bool),
}

const FLOATS: [Class; 7] = [
    Class::Finite(false),
    Class::Finite(true),
    Class::Zero(false),
    Class::Zero(true),
    Class::Infinity(false),
    Class::Infinity(true),
    Class::Nan,
];

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Nan => "NaN",
            Class::Infinity(false) => "∞",
            Class::Infinity(true) => "−∞",
            Class::Zero(false) => "0",
            Class::Zero(true) => "−0",
            Class::Finite(false) => "positive",
            Class::Finite(true) => "negative",
            Class::Truth(true) => "true",
            Class::Truth(false) => "false",
        })
    }
}

/// The special values that must be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All of them, with the signs of zeros.
    Zeros,
    /// All of them, except the signs of zeros and therefore those of infinities at poles.
    Poles,
    /// NaN and the infinities count as the same value.
    Any,
}

/// Proves that both sides have the same special values.
pub fn same(case: &Case, left: &T, right: &T, kept: Kept) -> Res<()> {
    let lower = Lower::new(case);
    let sides = [lower.strictly(left)?, lower.strictly(right)?];
    let open = sides.iter().find_map(condition);
    if let Some(p) = open {
        // Both cases of a condition on indices are proved.
        for p in [p.clone(), &Poly::int(-1) - &p] {
            if case.facts.assume([p.clone()], || case.facts.absurd()) {
                continue;
            }
            case.step(50)?;
            case.facts.assume([p], || same(case, &sides[0], &sides[1], kept))?;
        }
        return Ok(());
    }
    let sides = sides.map(|t| plain(case, &t));
    let sides = common(case, [sides[0].clone()?, sides[1].clone()?])?;
    let mut elements = Vec::new();
    sides.iter().for_each(|t| read(t, &mut elements));
    if elements.len() > ELEMENTS {
        return stop(format!("{} elements are read, which are too many to try in all combinations", elements.len()));
    }
    let mut chosen = BTreeMap::new();
    each(case, &elements, kept, &mut chosen, &mut |chosen| one(case, &sides, chosen, kept))
}

/// Returns the first condition on indices.
fn condition(term: &T) -> Option<Poly> {
    match &**term {
        Term::If(all, a, b) => all.first().cloned().or_else(|| condition(a)).or_else(|| condition(b)),
        Term::Apply(_, _, args) => args.iter().find_map(condition),
        _ => None,
    }
}

/// Normalizes the indices of the elements that a term reads.
fn plain(case: &Case, term: &T) -> Res<T> {
    Ok(match &**term {
        Term::Read(..) => bits::normal(case, term, &Truths::new())?,
        Term::Apply(op, ty, args) => {
            let args = args.iter().map(|a| plain(case, a)).collect::<Res<_>>()?;
            Rc::new(Term::Apply(op.clone(), ty.clone(), args))
        }
        _ => term.clone(),
    })
}

/// Replaces operands of partial functions by new elements. Only operands that both sides have are replaced.
fn common(case: &Case, sides: [T; 2]) -> Res<[T; 2]> {
    let mut found = [BTreeMap::new(), BTreeMap::new()];
    for (side, found) in sides.iter().zip(&mut found) {
        operands(case, side, found)?;
    }
    let both: Vec<T> = found[0].keys().filter(|key| found[1].contains_key(*key)).cloned().collect();
    let [left, right] = sides;
    Ok([with_elements(case, &left, &both)?, with_elements(case, &right, &both)?])
}

/// Returns whether a function is undefined for some operands, or has a pole.
fn is_partial(op: &str) -> bool {
    matches!(op, "sqrt" | "rsqrt" | "log" | "reciprocal")
}

/// Returns the normal form of an operand without conversions between floats.
fn key(case: &Case, term: &T) -> Res<T> {
    bits::normal(case, &super::reads::unconverted(term), &Truths::new())
}

fn operands(case: &Case, term: &T, found: &mut BTreeMap<T, ()>) -> Res<()> {
    let Term::Apply(op, _, args) = &**term else { return Ok(()) };
    if is_partial(op) && matches!(&*args[0], Term::Apply(..)) {
        found.insert(key(case, &args[0])?, ());
    }
    args.iter().try_for_each(|a| operands(case, a, found))
}

fn with_elements(case: &Case, term: &T, both: &[T]) -> Res<T> {
    let Term::Apply(op, ty, args) = &**term else { return Ok(term.clone()) };
    if is_partial(op)
        && matches!(&*args[0], Term::Apply(..))
        && let Some(n) = both.iter().position(|own| key(case, &args[0]).as_ref() == Ok(own))
    {
        let own = Term::Read(format!("operand {n}").into(), Ty::fixed(DType::F64), Vec::new());
        return Ok(apply(op, ty, vec![Rc::new(own)]));
    }
    let args = args.iter().map(|a| with_elements(case, a, both)).collect::<Res<_>>()?;
    Ok(Rc::new(Term::Apply(op.clone(), ty.clone(), args)))
}

/// Collects the elements and number variables in a term.
fn read(term: &T, found: &mut Vec<T>) {
    match &**term {
        Term::Read(_, ty, _) if matches!(ty.kind, Kind::Float | Kind::Bool) && !found.contains(term) => {
            found.push(term.clone());
        }
        Term::Param(_) if !found.contains(term) => found.push(term.clone()),
        Term::Apply(_, _, args) => args.iter().for_each(|a| read(a, found)),
        _ => {}
    }
}

type Chosen = BTreeMap<T, Class>;

fn each(case: &Case, of: &[T], kept: Kept, chosen: &mut Chosen, then: &mut dyn FnMut(&Chosen) -> Res<()>) -> Res<()> {
    let Some((first, rest)) = of.split_first() else { return then(chosen) };
    for class in classes(case, first, kept) {
        chosen.insert(first.clone(), class);
        each(case, rest, kept, chosen, then)?;
    }
    chosen.remove(first);
    Ok(())
}

/// Returns the classes of values that an element may have.
fn classes(case: &Case, of: &T, kept: Kept) -> Vec<Class> {
    let mut all = all_classes(case, of);
    all.retain(|class| kept == Kept::Zeros || *class != Class::Zero(true));
    all
}

fn all_classes(case: &Case, of: &T) -> Vec<Class> {
    match &**of {
        Term::Read(name, ..) if case.positive.borrow().contains(name) => {
            vec![Class::Finite(false), Class::Infinity(false), Class::Nan]
        }
        Term::Read(_, ty, _) if ty.kind == Kind::Bool => vec![Class::Truth(true), Class::Truth(false)],
        Term::Read(..) => FLOATS.to_vec(),
        // Numbers of the program are finite.
        Term::Param(name) => {
            let mut all = vec![Class::Finite(false)];
            let positive = case.number_is(name, "positive");
            if !positive {
                all.push(Class::Finite(true));
            }
            if !positive && !case.number_is(name, "nonzero") && !case.number_is(name, "inverts") {
                all.extend([Class::Zero(false), Class::Zero(true)]);
            }
            all
        }
        _ => Vec::new(),
    }
}

/// Compares both sides for one combination of classes.
fn one(case: &Case, sides: &[T; 2], chosen: &Chosen, kept: Kept) -> Res<()> {
    let zeros = kept == Kept::Zeros;
    case.step(1)?;
    let place = || {
        let all: Vec<String> = chosen.iter().map(|(t, class)| format!("{t} is {class}")).collect();
        format!("where {}", all.join(" and "))
    };
    let of =
        |n: usize| value(case, &sides[n], chosen).map_or_else(|| stop(format!("a side is undecided {}", place())), Ok);
    let (l, r) = (of(0)?, of(1)?);
    let alike = match (&l, &r) {
        (Value::Nan, Value::Nan) => true,
        (Value::Nan | Value::Infinity(_), Value::Nan | Value::Infinity(_)) if kept == Kept::Any => true,
        (Value::Infinity(a), Value::Infinity(b)) => a == b || !zeros && (a.is_none() || b.is_none()),
        (Value::Finite(_, Sign::Zero(a)), Value::Finite(_, Sign::Zero(b))) => !zeros || a.is_some() && a == b,
        (Value::Finite(a, s), Value::Finite(b, t)) => {
            let never_zero = matches!((s, t), (Sign::Of(_), Sign::Of(_)));
            (!zeros || never_zero || a == b) && equal(case, a, b)?
        }
        _ => false,
    };
    if alike { Ok(()) } else { stop(format!("{}, the left side is {l} and the right side {r}", place())) }
}

/// Returns whether two numbers are equal over the reals. A number that contains a division by 0 equals only itself.
fn equal(case: &Case, a: &T, b: &T) -> Res<bool> {
    if a == b {
        return Ok(true);
    }
    let known = Known(case);
    let real = |t: &T| match Lower::new(case).real(t) {
        Err(Stop::Vacuous(_)) => Ok(None),
        other => other.map(Some),
    };
    match (real(a)?, real(b)?) {
        (Some(a), Some(b)) => Ok(a == b || a.is_close(&b) || sums::equal(&a, &b, &known)),
        _ => Ok(false),
    }
}

/// Replaces an element of known sign by a new positive element, or by the negative of one.
fn signed(case: &Case, term: &T, below: bool) -> T {
    let sign = if below { "−" } else { "+" };
    let positive = |name: &Rc<str>| -> Rc<str> {
        let name: Rc<str> = format!("{sign}{name}").into();
        if !case.positive.borrow().contains(&name) {
            case.positive.borrow_mut().push(name.clone());
            case.numbers.borrow_mut().entry(name.clone()).or_default().push("positive".into());
        }
        name
    };
    let own = match &**term {
        Term::Read(name, ty, at) => Rc::new(Term::Read(positive(name), ty.clone(), at.clone())),
        Term::Param(name) => Rc::new(Term::Param(positive(name))),
        _ => return term.clone(),
    };
    let ty = term.ty().cloned().unwrap_or(Ty::fixed(DType::F64));
    if below { apply("neg", &ty, vec![own]) } else { own }
}

fn value(case: &Case, term: &T, chosen: &Chosen) -> Option<Value> {
    Some(match &**term {
        Term::Num(bits) => Value::of(f64::from_bits(*bits)),
        Term::Index(p) => {
            let sign = if case.facts.positive(p) { Sign::Of(false) } else { Sign::Open };
            p.known().map_or_else(|| Value::Finite(term.clone(), sign), |n| Value::of(n as f64))
        }
        Term::Read(..) | Term::Param(_) => match chosen.get(term) {
            None => Value::Finite(term.clone(), Sign::Open),
            Some(Class::Nan) => Value::Nan,
            Some(Class::Infinity(below)) => Value::Infinity(Some(*below)),
            Some(Class::Zero(below)) => Value::of(if *below { -0.0 } else { 0.0 }),
            Some(Class::Finite(below)) => Value::Finite(signed(case, term, *below), Sign::Of(*below)),
            Some(Class::Truth(truth)) => Value::of(f64::from(u8::from(*truth))),
        },
        Term::If(..) | Term::Reduce(..) => return None,
        Term::Apply(op, _, args) if **op == *"where" => {
            let condition = value(case, &args[0], chosen)?.number()?;
            value(case, &args[if condition == 0.0 { 2 } else { 1 }], chosen)?
        }
        Term::Apply(op, ty, args) => {
            let of = args.iter().map(|a| value(case, a, chosen)).collect::<Option<Vec<_>>>()?;
            function(op.strip_prefix("calc ").unwrap_or(op), ty, of)?
        }
    })
}
