//! Dimensions: integers, or integer polynomials over named symbols. A symbol gets a number before compilation or at
//! each run.

use std::{collections::BTreeMap, fmt, ops, sync::Arc};

/// A name for an extent that is not known yet.
///
/// A symbol without bounds gets its number before compilation. One with bounds is an *extent at run time*: compiled
/// code serves every length between the bounds, and each run chooses one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol {
    /// Its name.
    pub name: Arc<str>,
    /// The least and the greatest value, both at least 0, of an extent at run time.
    pub bounds: Option<(i64, i64)>,
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The largest number of terms of a dimension, and of a shape's number of elements. The limit is needed because a
/// product of few short sums may expand to millions of terms.
pub(crate) const MOST_TERMS: usize = 256;

/// A product of symbols, sorted; the empty product is 1.
type Monomial = Vec<Symbol>;

/// The extent of one axis.
///
/// A dimension is kept in normal form (a [`Dim::Known`] is never stored as a polynomial). So two dimensions are equal
/// exactly if they are the same function of the symbols.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// A number. It is negative only inside arithmetic, never in a shape.
    Known(i64),
    /// A polynomial with at least one symbol.
    Symbolic(Arc<BTreeMap<Monomial, i64>>),
}

impl Dim {
    /// Returns a dimension that is the symbol `name`, without bounds.
    pub fn symbol(name: &str) -> Dim {
        Dim::of(Symbol { name: Arc::from(name), bounds: None })
    }

    /// Returns a dimension that is the extent at run time `name`, from `least` to `most`.
    pub fn between(name: &str, least: i64, most: i64) -> Dim {
        Dim::of(Symbol { name: Arc::from(name), bounds: Some((least.max(0), most.max(0))) })
    }

    /// Returns a symbol as a dimension.
    pub fn of(symbol: Symbol) -> Dim {
        Dim::Symbolic(Arc::new(BTreeMap::from([(vec![symbol], 1)])))
    }

    /// Returns the number of a dimension without symbols.
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

    /// Returns the exact quotient, or `None` if the division leaves a remainder or divides by zero.
    ///
    /// The divisor must be a single term (`2`, `H`, `2*H`); shapes need no other divisors.
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

    /// Replaces every symbol by the result of `value` for its name. Symbols without a result stay.
    pub fn bind(&self, value: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        let Dim::Symbolic(terms) = self else { return self.clone() };
        terms.iter().fold(Dim::Known(0), |sum, (monomial, c)| {
            let factor = |symbol: &Symbol| value(&symbol.name).unwrap_or_else(|| Dim::of(symbol.clone()));
            &sum + &monomial.iter().fold(Dim::Known(*c), |product, symbol| &product * &factor(symbol))
        })
    }

    /// Returns the number of terms, that is, of summed products of symbols.
    pub fn count_terms(&self) -> usize {
        match self {
            Dim::Known(_) => 1,
            Dim::Symbolic(terms) => terms.len(),
        }
    }

    /// Returns the symbols of the dimension, sorted, each once.
    pub fn symbols(&self) -> Vec<Symbol> {
        let Dim::Symbolic(terms) = self else { return Vec::new() };
        let mut symbols: Vec<_> = terms.keys().flatten().cloned().collect();
        symbols.sort();
        symbols.dedup();
        symbols
    }

    /// Returns the least and the greatest value while each extent at run time stays within its bounds. Returns `None`
    /// if the dimension has a symbol without bounds. The range contains all possible values, and is exact for a
    /// single term.
    pub fn range(&self) -> Option<(i64, i64)> {
        let terms = match self {
            Dim::Known(n) => return Some((*n, *n)),
            Dim::Symbolic(terms) => terms,
        };
        terms.iter().try_fold((0_i64, 0_i64), |(least, most), (monomial, c)| {
            let ends = monomial.iter().try_fold([*c; 2], |[x, y], symbol| {
                let (low, high) = symbol.bounds?;
                Some([x.saturating_mul(low), y.saturating_mul(high)])
            })?;
            Some((least.saturating_add(ends[0].min(ends[1])), most.saturating_add(ends[0].max(ends[1]))))
        })
    }

    /// Returns the greatest value, which determines the memory of an axis. Returns `None` if the dimension has a
    /// symbol without bounds.
    pub fn capacity(&self) -> Option<i64> {
        self.range().map(|(_, most)| most)
    }

    /// Returns the terms that have symbols, each as a product of symbols and its coefficient, and the constant.
    pub fn split_constant(&self) -> (Vec<(Dim, i64)>, i64) {
        let terms = match self {
            Dim::Known(n) => return (Vec::new(), *n),
            Dim::Symbolic(terms) => terms,
        };
        let product = |monomial: &Monomial| Dim::Symbolic(Arc::new(BTreeMap::from([(monomial.clone(), 1)])));
        let open = terms.iter().filter(|(monomial, _)| !monomial.is_empty());
        (open.map(|(monomial, c)| (product(monomial), *c)).collect(), terms.get(&Vec::new()).copied().unwrap_or(0))
    }

    /// Returns whether the dimension contains an extent at run time.
    pub fn varies(&self) -> bool {
        let Dim::Symbolic(terms) = self else { return false };
        terms.keys().flatten().any(|symbol| symbol.bounds.is_some())
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
    /// Writes the dimension in the syntax of rules and graph text: `128`, `S`, `(* 2 H)`, `(+ (* 2 H) 1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms = match self {
            Dim::Known(n) => return write!(f, "{n}"),
            Dim::Symbolic(terms) => terms,
        };
        let text = |(monomial, c): (&Monomial, &i64)| match (monomial.as_slice(), c) {
            ([], c) => c.to_string(),
            ([symbol], 1) => symbol.name.to_string(),
            (symbols, 1) => format!("(* {})", names(symbols)),
            (symbols, c) => format!("(* {c} {})", names(symbols)),
        };
        fn names(symbols: &[Symbol]) -> String {
            symbols.iter().map(Symbol::to_string).collect::<Vec<_>>().join(" ")
        }
        // The constant term sorts first, but is written last.
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
        assert_eq!(h.bind(&|_| Some(Dim::Known(5))), Dim::Known(5));
    }

    #[test]
    fn bounds_say_what_a_dimension_can_be() {
        let (s, t) = (Dim::between("S", 0, 8), Dim::between("T", 1, 5));
        assert_ne!(s, Dim::Known(8));
        assert_eq!((s.known(), s.capacity()), (None, Some(8)));
        assert_eq!((&(&s * &Dim::Known(3)) + &Dim::Known(2)).range(), Some((2, 26)));
        assert_eq!((&s - &t).range(), Some((-5, 7)));
        assert_eq!((&s + &Dim::symbol("N")).range(), None);
        let length = |name: &str| (name == "S").then_some(Dim::Known(4));
        assert_eq!((&s * &t).bind(&length), &t * &Dim::Known(4));
        assert!(s.varies() && !Dim::symbol("S").varies());
    }
}
