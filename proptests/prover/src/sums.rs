//! Sums and extrema of real functions, and the test whether two functions are equal.

use std::rc::Rc;

use eutectic_ir::ops::Reduction;

use crate::{
    bind::{independent, named},
    bits::there,
    facts::Res,
    functions::exp,
    real::{Factor, Product, Real, take},
    signs::Known,
    term::{Atom, Poly, Term},
};

/// Returns an index as a real number: a polynomial of extents and indices.
pub fn of_index(p: &Poly, facts: &Known<'_>) -> Real {
    let mut sum = Real::default();
    for (m, c) in p.terms() {
        let mut part = Real::number(c as f64);
        for atom in m {
            let leaf = match atom {
                Atom::Value(t) => t.clone(),
                _ => Rc::new(Term::Index(Poly::atom(atom.clone()))),
            };
            part = part.times(&Real::leaf(leaf), facts);
        }
        sum = sum.plus(&part);
    }
    sum
}

/// Returns a set of conditions on indices as a 0-1 factor.
pub fn holds(conditions: &[Poly], facts: &Known<'_>) -> Real {
    match facts.conditions(conditions.to_vec()) {
        None => Real::default(),
        Some(all) if all.is_empty() => Real::number(1.0),
        Some(all) => Real::factor(Factor::Holds(all)),
    }
}

/// Returns a reduction other than a sum.
pub fn extremum(how: Reduction, vars: &[(u32, Poly)], body: &Real, facts: &Known<'_>) -> Res<Real> {
    if vars.is_empty() {
        return Ok(body.clone());
    }
    if !vars.iter().any(|(v, _)| body.mentions(*v)) && how.def().selects {
        for (_, extent) in vars {
            there(facts.0, extent)?;
        }
        return Ok(body.clone());
    }
    let (vars, body) = named(vars, |map| body.rename(facts, map), body.height())?;
    Ok(Real::factor(Factor::Reduce(how, vars, Box::new(body))))
}

/// Returns Σ of a function over variables. Σ distributes over sums, moves factors out that do not depend on the
/// variables, and merges with sums inside products.
pub fn sum(vars: &[(u32, Poly)], body: &Real, facts: &Known<'_>) -> Res<Real> {
    let mut result = Real::default();
    if vars.iter().any(|(_, e)| *e == Poly::zero()) {
        return Ok(result);
    }
    for (p, c) in body.terms() {
        facts.0.step(1)?;
        result = result.plus(&sum_of_product(vars, p, facts)?.scaled(c));
    }
    Ok(result)
}

/// A group of factors that share variables of the sum, with these variables.
struct Part {
    vars: Vec<(u32, Poly)>,
    factors: Vec<Real>,
}

fn sum_of_product(vars: &[(u32, Poly)], p: &Product, facts: &Known<'_>) -> Res<Real> {
    let mut vars = vars.to_vec();
    let mut open: Vec<Real> = p.power.terms().map(|(q, c)| exp(&Real::of([(q.clone(), c)]), facts)).collect();
    let mut factors: Vec<Factor> = p.factors.iter().flat_map(|(f, n)| vec![f.clone(); *n as usize]).collect();
    // A sum inside the product is merged with the outer one.
    while let Some(factor) = factors.pop() {
        let Factor::Reduce(Reduction::Sum, bound, body) = &factor else {
            open.push(Real::factor(factor));
            continue;
        };
        if !vars.iter().any(|(v, _)| factor.mentions(*v)) || !independent(&vars, bound) {
            open.push(Real::factor(factor));
            continue;
        }
        let new: Vec<(u32, Poly)> = bound.iter().map(|(_, e)| (facts.facts().index(e), e.clone())).collect();
        let map = bound.iter().zip(&new).map(|((v, _), (w, _))| (*v, Poly::var(*w))).collect();
        let body = body.rename(facts, &map)?;
        vars.extend(new);
        match body.single() {
            Some((q, c)) => {
                open.push(Real::number(c));
                open.extend(q.power.terms().map(|(q, c)| exp(&Real::of([(q.clone(), c)]), facts)));
                factors.extend(q.factors.iter().flat_map(|(f, n)| vec![f.clone(); *n as usize]));
            }
            None => open.push(body),
        }
    }
    let mut parts: Vec<Part> = vars.iter().map(|v| Part { vars: vec![v.clone()], factors: Vec::new() }).collect();
    let mut result = Real::number(1.0);
    for factor in open {
        let of: Vec<usize> =
            (0..parts.len()).filter(|n| parts[*n].vars.iter().any(|(v, _)| factor.mentions(*v))).collect();
        let Some((first, others)) = of.split_first() else {
            // A factor that may be infinite or NaN is moved out only if the sum has terms.
            if !factor.is_total() {
                for (_, extent) in &vars {
                    there(facts.0, extent)?;
                }
            }
            result = result.times(&factor, facts);
            continue;
        };
        for n in others.iter().rev() {
            let part = parts.remove(*n);
            parts[*first].vars.extend(part.vars);
            parts[*first].factors.extend(part.factors);
        }
        parts[*first].factors.push(factor);
    }
    for part in parts {
        if part.factors.is_empty() {
            for (_, extent) in &part.vars {
                result = result.times(&of_index(extent, facts), facts);
            }
            continue;
        }
        let body = part.factors.iter().fold(Real::number(1.0), |p, f| p.times(f, facts));
        if body.single().is_none() {
            // The product became a sum of products, or 0.
            result = result.times(&sum(&part.vars, &body, facts)?, facts);
            continue;
        }
        let (names, body) = named(&part.vars, |map| body.rename(facts, map), body.height())?;
        result = result.times(&Real::factor(Factor::Reduce(Reduction::Sum, names, Box::new(body))), facts);
    }
    Ok(result)
}

/// Returns whether two functions are equal after multiplication by denominators that are positive.
pub fn equal(a: &Real, b: &Real, facts: &Known<'_>) -> bool {
    let mut difference = a.plus(&b.scaled(-1.0));
    for _ in 0..8 {
        if difference.is_zero() {
            return true;
        }
        let denominators = difference.terms().map(|(p, _)| p).flat_map(|p| p.factors.keys());
        let found = denominators.into_iter().find_map(|f| match f {
            Factor::Inverse(of) if facts.positive(of) => Some((f.clone(), (**of).clone())),
            _ => None,
        });
        let Some((inverse, of)) = found else { return false };
        let most =
            difference.terms().map(|(p, _)| p).filter_map(|p| p.factors.get(&inverse)).max().copied().unwrap_or(0);
        if difference.size() > 2_000 {
            return false;
        }
        let mut sum = Real::default();
        for (p, c) in difference.terms() {
            let has = p.factors.get(&inverse).copied().unwrap_or(0);
            let mut p = p.clone();
            take(&mut p.factors, &inverse, has);
            let mut part = Real::of([(p, c)]);
            for _ in 0..most - has {
                part = part.times(&of, facts);
            }
            sum = sum.plus(&part);
        }
        difference = sum;
    }
    difference.is_zero()
}
