//! Real functions with known laws: products, powers of e, reciprocals, square roots, logarithms and magnitudes.

use std::{collections::BTreeMap, rc::Rc};

use crate::{
    bind::{index_with, no_capture, with},
    facts::{Res, Stop},
    real::{Factor, Product, Real, take},
    signs::Known,
    term::Poly,
};

impl Real {
    /// Returns whether the function is a single product of factors that are known not to be 0.
    pub fn is_nonzero(&self, facts: &Known<'_>) -> bool {
        self.single().is_some_and(|(p, _)| p.factors.keys().all(|f| facts.nonzero_factor(f)))
    }

    /// Returns the product of two functions.
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

    /// Renames variables in every term and index, and simplifies the result.
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
                no_capture(bound, vars, |v| body.mentions(v))?;
                let bound =
                    bound.iter().map(|(v, e)| Ok((*v, index_with(facts.facts(), e, vars)?))).collect::<Res<_>>()?;
                Factor::Reduce(*how, bound, Box::new(body.rename(facts, vars)?))
            }
        })
    }
}

impl Product {
    /// Cancels and combines the factors of the product.
    fn simplified(mut self, facts: &Known<'_>) -> Real {
        // A truth value equals its square.
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

    /// Merges all conditions into one set, without those that follow from others. Returns `false` if they contradict
    /// each other.
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

/// The largest exponent of e that is evaluated. The power and its reciprocal are far inside the range of `f64`.
const LARGEST_EXPONENT: f64 = 300.0;

/// Returns e to a power. e^(log x) is x for positive x.
pub fn exp(power: &Real, facts: &Known<'_>) -> Real {
    let mut rest = Real::default();
    let mut result = Real::number(1.0);
    for (p, c) in power.terms() {
        // A power that overflows or underflows `f64` stays symbolic: as a real number it is neither infinite nor 0.
        if p.factors.is_empty() && p.power.is_zero() && c.abs() < LARGEST_EXPONENT {
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

/// Returns the reciprocal. The reciprocal of a product is the product of the reciprocals.
pub fn inverse(of: &Real, facts: &Known<'_>) -> Res<Real> {
    if let Some(x) = of.known() {
        return if x == 0.0 { Err(Stop::Vacuous("a division by 0".into())) } else { Ok(Real::number(1.0 / x)) };
    }
    let Some((p, c)) = of.single() else {
        // The sum is scaled so that its first coefficient is 1. Proportional sums then have one normal form.
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

/// Returns the square root. The root of a product of positive factors is the product of the roots.
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
    // √(x²·y²) = |x·y|
    if c > 0.0 && p.factors.values().all(|n| n % 2 == 0) {
        let half = p.factors.iter().flat_map(|(f, n)| vec![f.clone(); *n as usize / 2]);
        let product = half.fold(exp(&p.power.scaled(0.5), facts), |p, f| p.times(&Real::factor(f), facts));
        return absolute(&product, facts).scaled(c.sqrt());
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

/// Returns the logarithm. The logarithm of a product of positive factors is a sum.
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

/// Returns the magnitude.
pub fn absolute(x: &Real, known: &Known<'_>) -> Real {
    if known.nonneg(x) {
        return x.clone();
    }
    // |−x| = |x|
    let other = x.scaled(-1.0);
    if known.nonneg(&other) {
        return other;
    }
    let of = if *x <= other { x.clone() } else { other };
    Real::factor(Factor::Call("abs".into(), vec![of]))
}
