//! The normal form for `reassoc` and `fast`: a polynomial whose atoms are elements, sums and functions of elements.
//!
//! Two terms with one normal form are equal in real arithmetic wherever each part of the left one is finite. A factor
//! that may be 0 is never cancelled. So x·(1/x) stays as it is unless x is known not to be 0, √x·√x unless x is not
//! negative, and e^(log x) unless x is positive. If the right side contains a partial function (1/x, √x, log x), the
//! left side contains it too, or the function is shown to be defined. A factor that is not defined everywhere is moved
//! out of a sum only if the extent of the sum is known not to be 0.

use std::{collections::BTreeMap, fmt, rc::Rc};

use eutectic_ir::ops::Reduction;

use crate::{
    bind::{height, index_height},
    term::{Poly, T},
};

/// A coefficient without its last bits, at least five of them. Constants that were computed in two ways then compare
/// equal.
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

/// A factor of a product.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Factor {
    /// An element, a number variable, or an index.
    Leaf(T),
    /// 1 if a truth value holds, else 0.
    Truth(T),
    /// 1 if all polynomials are at least 0, else 0.
    Holds(Vec<Poly>),
    /// The reciprocal.
    Inverse(Box<Real>),
    /// The square root.
    Root(Box<Real>),
    /// A function without known laws.
    Call(Rc<str>, Vec<Real>),
    /// A reduction. The body of a sum is a single product.
    Reduce(Reduction, Vec<(u32, Poly)>, Box<Real>),
}

/// A product of powers of factors, and of e to a power.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Product {
    /// The factors, each with its exponent.
    pub factors: BTreeMap<Factor, u32>,
    /// The exponent of e.
    pub power: Real,
}

/// A sum of products with coefficients.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Real(BTreeMap<Product, Coefficient>);

impl Real {
    /// Returns a number as a function.
    pub fn number(x: f64) -> Real {
        Real::of([(Product::default(), x)])
    }

    /// Returns the sum of products with coefficients.
    pub fn of(terms: impl IntoIterator<Item = (Product, f64)>) -> Real {
        let mut sum: BTreeMap<Product, f64> = BTreeMap::new();
        for (product, c) in terms {
            *sum.entry(product).or_insert(0.0) += c;
        }
        sum.retain(|_, c| *c != 0.0);
        Real(sum.into_iter().map(|(p, c)| (p, Coefficient::new(c))).collect())
    }

    /// Returns a factor as a function.
    pub fn factor(factor: Factor) -> Real {
        Real::of([(Product { factors: BTreeMap::from([(factor, 1)]), power: Real::default() }, 1.0)])
    }

    /// Returns an element as a function.
    pub fn leaf(term: T) -> Real {
        Real::factor(Factor::Leaf(term))
    }

    /// Returns whether the function is 0.
    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the products, with their coefficients.
    pub fn terms(&self) -> impl Iterator<Item = (&Product, f64)> {
        self.0.iter().map(|(p, c)| (p, c.0))
    }

    /// Returns the value of a constant function.
    pub fn known(&self) -> Option<f64> {
        match self.0.len() {
            0 => Some(0.0),
            1 => self.0.get(&Product::default()).map(|c| c.0),
            _ => None,
        }
    }

    /// Returns the product and its coefficient if there is only one.
    pub fn single(&self) -> Option<(&Product, f64)> {
        if self.0.len() == 1 { self.terms().next() } else { None }
    }

    /// If the function is a single product, returns those of its factors that may be 0.
    pub fn factors(&self) -> Option<Vec<Real>> {
        let (p, _) = self.single()?;
        let may = p.factors.keys().filter(|f| !matches!(f, Factor::Inverse(_)));
        Some(may.map(|f| Real::factor(f.clone())).collect())
    }

    /// Returns c if this function is c times the other one.
    pub fn ratio(&self, other: &Real) -> Option<f64> {
        let (_, first) = self.0.iter().next()?;
        let (_, of) = other.0.iter().next()?;
        let c = first.0 / of.0;
        let alike = self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|((p, a), (q, b))| p == q && (a.0 - c * b.0).abs() <= 1e-12 * a.0.abs());
        alike.then_some(c)
    }

    /// Returns whether the functions are equal up to the last digits of constants.
    pub fn is_close(&self, other: &Real) -> bool {
        self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|((p, a), (q, b))| {
                (a.0 - b.0).abs() <= 1e-13 * a.0.abs()
                    && p.factors.len() == q.factors.len()
                    && p.power.is_close(&q.power)
                    && p.factors.iter().zip(&q.factors).all(|((f, n), (g, m))| n == m && f.is_close(g))
            })
    }

    /// Returns whether this function is wᵃ and the other one wᵇ, with 0 < a ≤ b. Its value is then between 1 and the
    /// value of the other.
    pub fn is_root_of(&self, other: &Real) -> bool {
        let (Some((p, c)), Some((q, d))) = (self.single(), other.single()) else { return false };
        let plain = c == 1.0 && d == 1.0 && p.power.is_zero() && q.power.is_zero();
        let mut pairs = p.factors.iter().zip(&q.factors);
        let Some((f, n)) = p.factors.iter().next() else { return false };
        let Some(m) = q.factors.get(f) else { return false };
        plain && p.factors.len() == q.factors.len() && n <= m && pairs.all(|((f, a), (g, b))| f == g && a * m == b * n)
    }

    /// Returns c if the function is c times an element or a number variable.
    pub fn multiple_of_a_leaf(&self) -> Option<f64> {
        self.power_of_a_leaf().filter(|(_, n, _)| *n == 1).map(|(.., c)| c)
    }

    /// Returns x, n ≥ 1 and c if the function is c·xⁿ for an element or a number variable x.
    pub fn power_of_a_leaf(&self) -> Option<(&Factor, u32, f64)> {
        let (p, c) = self.single()?;
        let (leaf @ Factor::Leaf(_), n) = p.factors.iter().next()? else { return None };
        (p.factors.len() == 1 && p.power.is_zero()).then_some((leaf, *n, c))
    }

    /// Returns the sum.
    pub fn plus(&self, other: &Real) -> Real {
        Real::of(self.terms().chain(other.terms()).map(|(p, c)| (p.clone(), c)))
    }

    /// Returns the product with a number.
    pub fn scaled(&self, by: f64) -> Real {
        Real::of(self.terms().map(|(p, c)| (p.clone(), c * by)))
    }

    /// Returns the number of products in the function, nested ones included.
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

    /// Returns whether an index variable appears in the function.
    pub fn mentions(&self, id: u32) -> bool {
        self.0.keys().any(|p| p.power.mentions(id) || p.factors.keys().any(|f| f.mentions(id)))
    }

    /// Returns the nesting depth of reductions, also of those inside indices.
    pub fn height(&self) -> u32 {
        self.0.keys().map(|p| p.factors.keys().map(Factor::height).fold(p.power.height(), u32::max)).max().unwrap_or(0)
    }
}

impl Factor {
    fn height(&self) -> u32 {
        match self {
            Factor::Leaf(t) | Factor::Truth(t) => height(t),
            Factor::Holds(of) => of.iter().map(index_height).max().unwrap_or(0),
            Factor::Inverse(r) | Factor::Root(r) => r.height(),
            Factor::Reduce(_, vars, r) => 1 + vars.iter().map(|(_, e)| index_height(e)).fold(r.height(), u32::max),
            Factor::Call(_, args) => args.iter().map(Real::height).max().unwrap_or(0),
        }
    }

    /// Returns whether an index variable appears in the factor.
    pub fn mentions(&self, id: u32) -> bool {
        match self {
            Factor::Leaf(t) | Factor::Truth(t) => t.mentions(id),
            Factor::Holds(of) => of.iter().any(|p| p.mentions(id)),
            Factor::Inverse(r) | Factor::Root(r) => r.mentions(id),
            Factor::Call(_, args) => args.iter().any(|r| r.mentions(id)),
            Factor::Reduce(_, vars, body) => vars.iter().any(|(_, e)| e.mentions(id)) || body.mentions(id),
        }
    }

    fn is_close(&self, other: &Factor) -> bool {
        match (self, other) {
            (Factor::Inverse(a), Factor::Inverse(b)) | (Factor::Root(a), Factor::Root(b)) => a.is_close(b),
            (Factor::Call(f, a), Factor::Call(g, b)) => {
                f == g && a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_close(b))
            }
            (Factor::Reduce(h, v, a), Factor::Reduce(i, w, b)) => h == i && v == w && a.is_close(b),
            _ => self == other,
        }
    }

    /// Returns whether the factor is finite for all finite inputs.
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
    /// Returns whether the function is finite for all finite inputs.
    pub fn is_total(&self) -> bool {
        self.0.keys().all(|p| p.power.is_total() && p.factors.keys().all(Factor::is_total))
    }
}

impl Product {
    /// Returns the product.
    pub fn times(&self, other: &Product) -> Product {
        let mut factors = self.factors.clone();
        for (factor, n) in &other.factors {
            *factors.entry(factor.clone()).or_insert(0) += n;
        }
        Product { factors, power: self.power.plus(&other.power) }
    }
}

/// Lowers the exponent of a factor by n. Removes a factor whose exponent becomes 0.
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
