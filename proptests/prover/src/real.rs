//! The normal form for `reassoc` and `fast`: polynomials over a commutative ring, of elements, sums and functions of elements.
//!
//! Two terms with one normal form are equal in real arithmetic wherever each part of the left one is a finite number. Nothing is
//! cancelled that may be 0: x·(1/x) stays as it is unless x is known to be positive, √x·√x unless x is not negative, e^(log x) unless x is positive. A part of the right
//! side that is not defined everywhere (1/x, √x, log x) is on the left too, or shown to be defined. A sum over an extent that may be 0 is told apart from others
//! before a factor that is not defined everywhere is taken out of it.

use std::{collections::BTreeMap, fmt, rc::Rc};

use eutectic_ir::ops::Reduction;

use crate::{
    bind::{index_with, with},
    call::Case,
    facts::{Facts, Res, Stop},
    term::{Poly, T, Term},
};

/// A coefficient, compared by all but its last four bits: constants that were computed in two ways are one.
#[derive(Clone, Copy, Debug)]
pub struct Coefficient(f64);

impl Coefficient {
    fn new(x: f64) -> Coefficient {
        // Integers are exact.
        if x.fract() == 0.0 && x.abs() < 2_f64.powi(53) {
            return Coefficient(x + 0.0);
        }
        let big = x * 32.0;
        let rounded = x + big - big;
        Coefficient(if rounded.is_finite() && rounded != 0.0 { rounded } else { x })
    }
}

impl PartialEq for Coefficient {
    fn eq(&self, other: &Coefficient) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Coefficient {}

impl PartialOrd for Coefficient {
    fn partial_cmp(&self, other: &Coefficient) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Coefficient {
    fn cmp(&self, other: &Coefficient) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// What products are made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Factor {
    /// An element, a number variable, an index.
    Leaf(T),
    /// 1 where a truth value holds, else 0.
    Truth(T),
    /// 1 where all are at least 0, else 0.
    Holds(Vec<Poly>),
    /// The reciprocal.
    Inverse(Box<Real>),
    /// The square root.
    Root(Box<Real>),
    /// A function of which no law is known.
    Call(Rc<str>, Vec<Real>),
    /// A reduction, of one product for a sum.
    Reduce(Reduction, Vec<(u32, Poly)>, Box<Real>),
}

/// A product of powers of factors, and of e to a power.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Product {
    /// The factors, each with its exponent.
    pub factors: BTreeMap<Factor, u32>,
    /// What e is raised to.
    pub power: Real,
}

/// A sum of products with coefficients.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Real(BTreeMap<Product, Coefficient>);

impl Real {
    /// A number.
    pub fn number(x: f64) -> Real {
        Real::of([(Product::default(), x)])
    }

    /// The sum of products.
    pub fn of(terms: impl IntoIterator<Item = (Product, f64)>) -> Real {
        let mut sum: BTreeMap<Product, f64> = BTreeMap::new();
        for (product, c) in terms {
            *sum.entry(product).or_insert(0.0) += c;
        }
        sum.retain(|_, c| *c != 0.0);
        Real(sum.into_iter().map(|(p, c)| (p, Coefficient::new(c))).collect())
    }

    /// One factor.
    pub fn factor(factor: Factor) -> Real {
        Real::of([(Product { factors: BTreeMap::from([(factor, 1)]), power: Real::default() }, 1.0)])
    }

    /// One element.
    pub fn leaf(term: T) -> Real {
        Real::factor(Factor::Leaf(term))
    }

    /// Whether it is 0.
    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// The products, with their coefficients.
    pub fn terms(&self) -> impl Iterator<Item = (&Product, f64)> {
        self.0.iter().map(|(p, c)| (p, c.0))
    }

    /// The number that it is, if it is one.
    pub fn known(&self) -> Option<f64> {
        match self.0.len() {
            0 => Some(0.0),
            1 => self.0.get(&Product::default()).map(|c| c.0),
            _ => None,
        }
    }

    /// The only product.
    pub fn single(&self) -> Option<(&Product, f64)> {
        if self.0.len() == 1 { self.terms().next() } else { None }
    }

    /// The factors of a product that may be 0.
    pub fn factors(&self) -> Option<Vec<Real>> {
        let (p, _) = self.single()?;
        let may = p.factors.keys().filter(|f| !matches!(f, Factor::Inverse(_)));
        Some(may.map(|f| Real::factor(f.clone())).collect())
    }

    /// Whether it is one factor that is not 0.
    pub fn is_nonzero(&self, facts: &Known<'_>) -> bool {
        self.single().is_some_and(|(p, _)| p.factors.keys().all(|f| facts.nonzero_factor(f)))
    }

    /// The sum.
    pub fn plus(&self, other: &Real) -> Real {
        Real::of(self.terms().chain(other.terms()).map(|(p, c)| (p.clone(), c)))
    }

    /// The product with a number.
    pub fn scaled(&self, by: f64) -> Real {
        Real::of(self.terms().map(|(p, c)| (p.clone(), c * by)))
    }

    /// The product.
    pub fn times(&self, other: &Real, facts: &Known<'_>) -> Real {
        let each = |(p, c): (&Product, f64)| {
            let p = p.clone();
            other.terms().map(move |(q, d)| (p.times(q), c * d)).collect::<Vec<_>>()
        };
        let all = self.terms().flat_map(each);
        all.fold(Vec::new(), |mut sums: Vec<Real>, (p, c)| {
            sums.push(p.simplified(facts).scaled(c));
            sums
        })
        .iter()
        .fold(Real::default(), |sum, r| sum.plus(r))
    }

    /// How many products it is made of, all in all.
    pub fn size(&self) -> usize {
        self.0
            .keys()
            .map(|p| {
                1 + p.power.size()
                    + p.factors
                        .keys()
                        .map(|f| match f {
                            Factor::Inverse(r) | Factor::Root(r) | Factor::Reduce(_, _, r) => r.size(),
                            Factor::Call(_, args) => args.iter().map(Real::size).sum(),
                            _ => 1,
                        })
                        .sum::<usize>()
            })
            .sum()
    }

    /// Every term and index in it rewritten.
    pub fn rename(&self, facts: &Known<'_>, vars: &BTreeMap<u32, Poly>) -> Res<Real> {
        let mut sum = Real::default();
        for (p, c) in self.terms() {
            let mut part = exp(&p.power.rename(facts, vars)?, facts);
            for (factor, n) in &p.factors {
                let factor = factor.rename(facts, vars)?;
                for _ in 0..*n {
                    part = part.times(&Real::factor(factor.clone()), facts);
                }
            }
            sum = sum.plus(&part.scaled(c));
        }
        Ok(sum)
    }

    /// Whether an index variable is in it.
    pub fn mentions(&self, id: u32) -> bool {
        self.0.keys().any(|p| p.power.mentions(id) || p.factors.keys().any(|f| f.mentions(id)))
    }

    /// How deep binders lie in it.
    pub fn height(&self) -> u32 {
        let of = |f: &Factor| match f {
            Factor::Inverse(r) | Factor::Root(r) => r.height(),
            Factor::Reduce(_, _, r) => 1 + r.height(),
            Factor::Call(_, args) => args.iter().map(Real::height).max().unwrap_or(0),
            _ => 0,
        };
        self.0.keys().map(|p| p.power.height().max(p.factors.keys().map(of).max().unwrap_or(0))).max().unwrap_or(0)
    }
}

impl Factor {
    fn rename(&self, facts: &Known<'_>, vars: &BTreeMap<u32, Poly>) -> Res<Factor> {
        let all = |of: &[Real]| of.iter().map(|r| r.rename(facts, vars)).collect::<Res<Vec<_>>>();
        let indices = |of: &[Poly]| of.iter().map(|p| index_with(facts.facts(), p, vars)).collect::<Res<Vec<_>>>();
        Ok(match self {
            Factor::Leaf(t) => Factor::Leaf(with(facts.facts(), t, vars)?),
            Factor::Truth(t) => Factor::Truth(with(facts.facts(), t, vars)?),
            Factor::Holds(of) => {
                let mut of = indices(of)?;
                of.sort();
                Factor::Holds(of)
            }
            Factor::Inverse(r) => Factor::Inverse(Box::new(r.rename(facts, vars)?)),
            Factor::Root(r) => Factor::Root(Box::new(r.rename(facts, vars)?)),
            Factor::Call(name, args) => {
                let mut args = all(args)?;
                if matches!(&**name, "max" | "min") {
                    args.sort();
                }
                Factor::Call(Rc::clone(name), args)
            }
            Factor::Reduce(how, bound, body) => {
                let bound =
                    bound.iter().map(|(v, e)| Ok((*v, index_with(facts.facts(), e, vars)?))).collect::<Res<_>>()?;
                Factor::Reduce(*how, bound, Box::new(body.rename(facts, vars)?))
            }
        })
    }

    /// Whether an index variable is in it.
    pub fn mentions(&self, id: u32) -> bool {
        match self {
            Factor::Leaf(t) | Factor::Truth(t) => t.mentions(id),
            Factor::Holds(of) => of.iter().any(|p| p.mentions(id)),
            Factor::Inverse(r) | Factor::Root(r) => r.mentions(id),
            Factor::Call(_, args) => args.iter().any(|r| r.mentions(id)),
            Factor::Reduce(_, vars, body) => vars.iter().any(|(_, e)| e.mentions(id)) || body.mentions(id),
        }
    }

    /// Whether it is a number for every finite value.
    fn is_total(&self) -> bool {
        match self {
            Factor::Leaf(t) => t.number().is_none_or(f64::is_finite),
            Factor::Truth(_) | Factor::Holds(_) => true,
            Factor::Inverse(_) | Factor::Root(_) => false,
            Factor::Call(name, args) => {
                matches!(&**name, "max" | "min" | "abs" | "erf" | "sin" | "cos" | "atan")
                    && args.iter().all(Real::is_total)
            }
            Factor::Reduce(how, _, body) => *how == Reduction::Sum && body.is_total(),
        }
    }
}

impl Real {
    /// Whether it is a number for every finite value.
    pub fn is_total(&self) -> bool {
        self.0.keys().all(|p| p.power.is_total() && p.factors.keys().all(Factor::is_total))
    }
}

impl Product {
    fn times(&self, other: &Product) -> Product {
        let mut factors = self.factors.clone();
        for (factor, n) in &other.factors {
            *factors.entry(factor.clone()).or_insert(0) += n;
        }
        Product { factors, power: self.power.plus(&other.power) }
    }

    /// What cancels or combines.
    fn simplified(mut self, facts: &Known<'_>) -> Real {
        // A truth value is its own square.
        for (factor, n) in &mut self.factors {
            if matches!(factor, Factor::Truth(_) | Factor::Holds(_)) {
                *n = 1;
            }
        }
        if !self.join_conditions(facts) {
            return Real::default();
        }
        let roots: Vec<Factor> = self
            .factors
            .iter()
            .filter(|(f, n)| matches!(f, Factor::Root(r) if **n > 1 && facts.nonneg(r)))
            .map(|(f, _)| f.clone())
            .collect();
        let inverses: Vec<Factor> = self.factors.keys().filter(|f| matches!(f, Factor::Inverse(_))).cloned().collect();
        for inverse in inverses {
            let Factor::Inverse(of) = &inverse else { continue };
            let Some((p, _)) = of.single() else { continue };
            let Some((factor, 1)) = p.factors.iter().next() else { continue };
            let Some(n) = self.factors.get(factor).copied() else { continue };
            if p.factors.len() == 1 && facts.nonzero_factor(factor) {
                let both = n.min(self.factors[&inverse]);
                take(&mut self.factors, factor, both);
                take(&mut self.factors, &inverse, both);
            }
        }
        let mut result = Real::number(1.0);
        for root in roots {
            let Factor::Root(of) = &root else { continue };
            let n = self.factors.get(&root).copied().unwrap_or(0);
            take(&mut self.factors, &root, n - n % 2);
            for _ in 0..n / 2 {
                result = result.times(of, facts);
            }
        }
        let own = Real::of([(self, 1.0)]);
        if result.known() == Some(1.0) { own } else { own.times(&result, facts) }
    }

    /// One set of conditions, without those that follow from others; `false` where they contradict each other.
    fn join_conditions(&mut self, facts: &Known<'_>) -> bool {
        let held: Vec<Factor> = self.factors.keys().filter(|f| matches!(f, Factor::Holds(_))).cloned().collect();
        let mut all: Vec<Poly> = Vec::new();
        for factor in held {
            self.factors.remove(&factor);
            if let Factor::Holds(of) = factor {
                all.extend(of);
            }
        }
        all.sort();
        all.dedup();
        match facts.conditions(all) {
            Some(all) if all.is_empty() => true,
            Some(all) => {
                self.factors.insert(Factor::Holds(all), 1);
                true
            }
            None => false,
        }
    }
}

/// Takes so many of a factor away.
pub fn take(factors: &mut BTreeMap<Factor, u32>, factor: &Factor, n: u32) {
    if let Some(has) = factors.get_mut(factor) {
        *has -= n;
        if *has == 0 {
            factors.remove(factor);
        }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |of: &[Poly]| of.iter().map(|p| format!("{p} ≥ 0")).collect::<Vec<_>>().join(", ");
        match self {
            Factor::Leaf(t) => write!(f, "{t}"),
            Factor::Truth(t) => write!(f, "[{t}]"),
            Factor::Holds(of) => write!(f, "[{}]", list(of)),
            Factor::Inverse(r) => write!(f, "1/({r})"),
            Factor::Root(r) => write!(f, "√({r})"),
            Factor::Call(name, args) => {
                let args: Vec<_> = args.iter().map(Real::to_string).collect();
                write!(f, "{name}({})", args.join(", "))
            }
            Factor::Reduce(how, vars, body) => {
                let vars: Vec<_> = vars.iter().map(|(v, e)| format!("i{v} < {e}")).collect();
                write!(f, "{} over {} of ({body})", how.def().name, vars.join(", "))
            }
        }
    }
}

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        for (n, (p, c)) in self.terms().enumerate() {
            f.write_str(if n == 0 { "" } else { " + " })?;
            let mut parts: Vec<String> =
                if c == 1.0 && *p != Product::default() { Vec::new() } else { vec![c.to_string()] };
            for (factor, n) in &p.factors {
                parts.push(if *n == 1 { factor.to_string() } else { format!("{factor}^{n}") });
            }
            if !p.power.is_zero() {
                parts.push(format!("e^({})", p.power));
            }
            f.write_str(&parts.join("·"))?;
        }
        Ok(())
    }
}

/// What is known of signs.
pub struct Known<'a>(pub &'a Case);

impl Known<'_> {
    /// Those of indices.
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// Conditions without those that follow from the others; `None` where they contradict each other.
    pub fn conditions(&self, mut all: Vec<Poly>) -> Option<Vec<Poly>> {
        let facts = self.facts();
        let contradicts = (0..all.len()).any(|n| {
            let others: Vec<Poly> = all.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, p)| p.clone()).collect();
            facts.assume(others, || facts.nonneg(&(&Poly::int(-1) - &all[n])))
        });
        if contradicts {
            return None;
        }
        let mut n = 0;
        while n < all.len() {
            let others: Vec<Poly> = all.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, p)| p.clone()).collect();
            if facts.assume(others, || facts.nonneg(&all[n])) {
                all.remove(n);
            } else {
                n += 1;
            }
        }
        Some(all)
    }

    fn nonzero_factor(&self, factor: &Factor) -> bool {
        let nonzero = |t: &T| matches!(&**t, Term::Param(name) if self.0.number_is(name, "nonzero"));
        self.positive_factor(factor) || matches!(factor, Factor::Leaf(t) if nonzero(t))
    }

    fn positive_factor(&self, factor: &Factor) -> bool {
        match factor {
            Factor::Leaf(t) => match &**t {
                Term::Param(name) => self.0.number_is(name, "positive"),
                Term::Read(name, ..) => self.0.positive.borrow().iter().any(|n| n == name),
                Term::Index(p) => self.facts().positive(p),
                _ => false,
            },
            Factor::Inverse(r) | Factor::Root(r) => self.positive(r),
            Factor::Reduce(Reduction::Sum, vars, body) => {
                vars.iter().all(|(_, e)| self.facts().positive(e)) && self.positive(body)
            }
            _ => false,
        }
    }

    fn nonneg_factor(&self, factor: &Factor, n: u32) -> bool {
        n.is_multiple_of(2)
            || self.positive_factor(factor)
            || match factor {
                Factor::Truth(_) | Factor::Holds(_) | Factor::Root(_) => true,
                Factor::Inverse(r) => self.nonneg(r),
                Factor::Reduce(Reduction::Sum, _, body) => self.nonneg(body),
                Factor::Leaf(t) => matches!(&**t, Term::Index(p) if self.facts().nonneg(p)),
                Factor::Call(name, _) => **name == *"abs",
                Factor::Reduce(..) => false,
            }
    }

    /// Whether it is not negative.
    pub fn nonneg(&self, real: &Real) -> bool {
        real.terms().all(|(p, c)| c > 0.0 && p.factors.iter().all(|(f, n)| self.nonneg_factor(f, *n)))
    }

    /// Whether it is greater than 0.
    pub fn positive(&self, real: &Real) -> bool {
        let one = |p: &Product| p.factors.keys().all(|f| self.positive_factor(f));
        self.nonneg(real) && real.terms().any(|(p, _)| one(p))
    }
}

/// e to a power: e^(log x) is x for positive x.
pub fn exp(power: &Real, facts: &Known<'_>) -> Real {
    let mut rest = Real::default();
    let mut result = Real::number(1.0);
    for (p, c) in power.terms() {
        if p.factors.is_empty() && p.power.is_zero() {
            result = result.scaled(c.exp());
            continue;
        }
        let log = p.factors.iter().next().filter(|(_, n)| p.factors.len() == 1 && **n == 1 && p.power.is_zero());
        match log {
            Some((Factor::Call(name, args), _))
                if **name == *"log" && c.fract() == 0.0 && c.abs() <= 8.0 && facts.positive(&args[0]) =>
            {
                let of = if c < 0.0 { inverse(&args[0], facts) } else { Ok(args[0].clone()) };
                let Ok(of) = of else { continue };
                for _ in 0..c.abs() as usize {
                    result = result.times(&of, facts);
                }
            }
            _ => rest = rest.plus(&Real::of([(p.clone(), c)])),
        }
    }
    let own = Real::of([(Product { factors: BTreeMap::new(), power: rest }, 1.0)]);
    result.times(&own, facts)
}

/// The reciprocal: that of a product is one of reciprocals.
pub fn inverse(of: &Real, facts: &Known<'_>) -> Res<Real> {
    if let Some(x) = of.known() {
        return if x == 0.0 { Err(Stop::Vacuous("a quotient by 0".into())) } else { Ok(Real::number(1.0 / x)) };
    }
    let Some((p, c)) = of.single() else {
        // The first coefficient is 1.
        let lead = of.terms().next().map_or(1.0, |(_, c)| c);
        let monic = of.scaled(1.0 / lead);
        return Ok(Real::factor(Factor::Inverse(Box::new(monic))).scaled(1.0 / lead));
    };
    let mut result = exp(&p.power.scaled(-1.0), facts).scaled(1.0 / c);
    for (factor, n) in &p.factors {
        let part = match factor {
            Factor::Inverse(r) => (**r).clone(),
            other => Real::factor(Factor::Inverse(Box::new(Real::factor(other.clone())))),
        };
        for _ in 0..*n {
            result = result.times(&part, facts);
        }
    }
    Ok(result)
}

/// The square root: that of a product of positive factors is one of roots.
pub fn root(of: &Real, facts: &Known<'_>) -> Real {
    if let Some(x) = of.known().filter(|x| *x >= 0.0) {
        return Real::number(x.sqrt());
    }
    let whole = || Real::factor(Factor::Root(Box::new(of.clone())));
    let Some((p, c)) = of.single() else { return whole() };
    let lone = p.factors.len() == 1 && c == 1.0 && p.power.is_zero() && p.factors.values().all(|n| *n == 1);
    if let (true, Some(Factor::Inverse(r))) = (lone, p.factors.keys().next())
        && facts.positive(r)
        && let Ok(result) = inverse(&root(r, facts), facts)
    {
        return result;
    }
    if c < 0.0 || lone {
        return whole();
    }
    if !p.factors.keys().all(|f| facts.positive_factor(f)) {
        return whole();
    }
    let mut result = exp(&p.power.scaled(0.5), facts).scaled(c.sqrt());
    for (factor, n) in &p.factors {
        let one = Real::factor(factor.clone());
        for _ in 0..n / 2 {
            result = result.times(&one, facts);
        }
        if n % 2 == 1 {
            result = result.times(&Real::factor(Factor::Root(Box::new(one))), facts);
        }
    }
    result
}

/// The logarithm: that of a product of positive factors is a sum.
pub fn log(of: &Real, facts: &Known<'_>) -> Real {
    let call = |of: &Real| Real::factor(Factor::Call("log".into(), vec![of.clone()]));
    if let Some(x) = of.known().filter(|x| *x > 0.0) {
        return Real::number(x.ln());
    }
    let Some((p, c)) = of.single() else { return call(of) };
    if c <= 0.0 || !p.factors.keys().all(|f| facts.positive_factor(f)) {
        return call(of);
    }
    let mut sum = p.power.plus(&Real::number(c.ln()));
    for (factor, n) in &p.factors {
        let part = match factor {
            Factor::Inverse(r) => log(r, facts).scaled(-1.0),
            Factor::Root(r) => log(r, facts).scaled(0.5),
            other => call(&Real::factor(other.clone())),
        };
        sum = sum.plus(&part.scaled(f64::from(*n)));
    }
    sum
}
