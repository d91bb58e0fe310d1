//! Dimensions: integers, or integer polynomials over named symbols that are bound before compilation.

use std::{collections::BTreeMap, fmt, ops, sync::Arc};

/// A product of symbols, sorted; the empty product is 1.
type Monomial = Vec<Arc<str>>;

/// The extent of one axis.
///
/// A dimension is kept in normal form (a [`Dim::Known`] is never stored as a polynomial), so equality
/// of values is equality of the functions that they denote.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// A number. Negative only inside arithmetic; a shape holds none.
    Known(i64),
    /// A polynomial with at least one symbol.
    Symbolic(Arc<BTreeMap<Monomial, i64>>),
}

impl Dim {
    /// The dimension named `name`.
    pub fn symbol(name: &str) -> Dim {
        Dim::Symbolic(Arc::new(BTreeMap::from([(vec![Arc::from(name)], 1)])))
    }

    /// The number, if no symbol is left.
    pub fn known(&self) -> Option<i64> {
        match self {
            Dim::Known(n) => Some(*n),
            Dim::Symbolic(_) => None,
        }
    }

    fn terms(&self) -> BTreeMap<Monomial, i64> {
        match self {
            Dim::Known(n) => BTreeMap::from([(vec![], *n)]),
            Dim::Symbolic(terms) => (**terms).clone(),
        }
    }

    fn from_terms(mut terms: BTreeMap<Monomial, i64>) -> Dim {
        terms.retain(|_, c| *c != 0);
        match terms.len() {
            0 => Dim::Known(0),
            1 if terms.contains_key(&vec![]) => Dim::Known(terms[&vec![]]),
            _ => Dim::Symbolic(Arc::new(terms)),
        }
    }

    /// The exact quotient, or `None` where the division leaves a rest (or by zero).
    ///
    /// The divisor must be a single term (`2`, `H`, `2*H`); that is all that shapes need.
    pub fn checked_div(&self, by: &Dim) -> Option<Dim> {
        if let (Dim::Known(n), Dim::Known(by)) = (self, by) {
            return (n.checked_rem(*by)? == 0).then(|| Dim::Known(n / by));
        }
        let by = by.terms();
        let (divisor, &coefficient) = by.iter().next()?;
        if by.len() != 1 || coefficient == 0 {
            return None;
        }
        let mut quotient = BTreeMap::new();
        for (monomial, c) in self.terms() {
            let mut rest = monomial;
            for symbol in divisor {
                let at = rest.iter().position(|s| s == symbol)?;
                rest.remove(at);
            }
            if c % coefficient != 0 {
                return None;
            }
            quotient.insert(rest, c / coefficient);
        }
        Some(Dim::from_terms(quotient))
    }

    /// Replaces every symbol by what `value` gives for it; symbols without a value stay.
    pub fn bind(&self, value: &dyn Fn(&str) -> Option<i64>) -> Dim {
        if let Dim::Known(n) = self {
            return Dim::Known(*n);
        }
        let mut terms = BTreeMap::new();
        for (monomial, c) in self.terms() {
            let (mut rest, mut c) = (Vec::new(), c);
            for symbol in monomial {
                match value(&symbol) {
                    Some(n) => c = c.saturating_mul(n),
                    None => rest.push(symbol),
                }
            }
            let sum = terms.entry(rest).or_insert(0_i64);
            *sum = sum.saturating_add(c);
        }
        Dim::from_terms(terms)
    }

    /// The names of the symbols in it, sorted, each once.
    pub fn symbols(&self) -> Vec<Arc<str>> {
        let mut names: Vec<_> = self.terms().into_keys().flatten().collect();
        names.sort();
        names.dedup();
        names
    }
}

impl From<i64> for Dim {
    fn from(n: i64) -> Dim {
        Dim::Known(n)
    }
}

impl From<usize> for Dim {
    fn from(n: usize) -> Dim {
        Dim::Known(i64::try_from(n).unwrap_or(i64::MAX))
    }
}

impl ops::Add for &Dim {
    type Output = Dim;

    fn add(self, other: &Dim) -> Dim {
        if let (Dim::Known(a), Dim::Known(b)) = (self, other) {
            return Dim::Known(a.saturating_add(*b));
        }
        let mut sum = self.terms();
        for (monomial, c) in other.terms() {
            let entry = sum.entry(monomial).or_insert(0);
            *entry = entry.saturating_add(c);
        }
        Dim::from_terms(sum)
    }
}

impl ops::Sub for &Dim {
    type Output = Dim;

    fn sub(self, other: &Dim) -> Dim {
        self + &(other * &Dim::Known(-1))
    }
}

impl ops::Mul for &Dim {
    type Output = Dim;

    fn mul(self, other: &Dim) -> Dim {
        if let (Dim::Known(a), Dim::Known(b)) = (self, other) {
            return Dim::Known(a.saturating_mul(*b));
        }
        let mut product: BTreeMap<Monomial, i64> = BTreeMap::new();
        for (a, x) in self.terms() {
            for (b, y) in other.terms() {
                let mut monomial = [a.clone(), b].concat();
                monomial.sort();
                let entry = product.entry(monomial).or_insert(0);
                *entry = entry.saturating_add(x.saturating_mul(y));
            }
        }
        Dim::from_terms(product)
    }
}

impl fmt::Display for Dim {
    /// As the little language writes it: `128`, `S`, `(* 2 H)`, `(+ (* 2 H) 1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms = match self {
            Dim::Known(n) => return write!(f, "{n}"),
            Dim::Symbolic(terms) => terms,
        };
        let text = |(monomial, c): (&Monomial, &i64)| match (monomial.as_slice(), c) {
            ([], c) => c.to_string(),
            ([symbol], 1) => symbol.to_string(),
            (symbols, 1) => format!("(* {})", symbols.join(" ")),
            (symbols, c) => format!("(* {c} {})", symbols.join(" ")),
        };
        // The constant term sorts first; people write it last.
        let mut parts: Vec<_> = terms.iter().map(text).collect();
        if terms.contains_key(&vec![]) {
            parts.rotate_left(1);
        }
        match parts.as_slice() {
            [one] => f.write_str(one),
            _ => write!(f, "(+ {})", parts.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Dim;

    #[test]
    fn arithmetic_normalises() {
        let (h, s) = (Dim::symbol("H"), Dim::symbol("S"));
        assert_eq!(&(&h + &s) - &s, h);
        assert_eq!((&h * &Dim::Known(0)), Dim::Known(0));
        assert_eq!((&h * &s), (&s * &h));
        assert_eq!((&(&h * &s) * &Dim::Known(6)).checked_div(&(&s * &Dim::Known(3))), Some(&h * &Dim::Known(2)));
        assert_eq!((&h + &Dim::Known(1)).checked_div(&Dim::Known(2)), None);
        assert_eq!(Dim::Known(7).checked_div(&Dim::Known(0)), None);
    }

    #[test]
    fn prints_as_the_language_reads() {
        let h = Dim::symbol("H");
        assert_eq!((&(&h * &Dim::Known(2)) + &Dim::Known(1)).to_string(), "(+ (* 2 H) 1)");
        assert_eq!(h.bind(&|_| Some(5)), Dim::Known(5));
    }
}
