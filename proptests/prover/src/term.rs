//! Terms and index polynomials. A term is the value of one element of a tensor, as a function of indices and extents. A
//! polynomial is the integer that an index map computes, in a normal form. An index may be read from a tensor, so the
//! two definitions are mutually recursive.

use std::{collections::BTreeMap, fmt, rc::Rc};

use eutectic_ir::{DType, ops::Reduction};

/// A term, shared.
pub type T = Rc<Term>;

/// The kinds of element types that have different laws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Floats.
    Float,
    /// Integers.
    Int,
    /// Truth values.
    Bool,
    /// Storage types. No op computes with them.
    Stored,
}

impl Kind {
    /// Returns the kind of an element type.
    pub fn of(dtype: DType) -> Kind {
        match () {
            () if dtype == DType::Bool => Kind::Bool,
            () if !dtype.computes() => Kind::Stored,
            () if dtype.is_float() => Kind::Float,
            () => Kind::Int,
        }
    }
}

/// An element type: a fixed one, or any of one kind, named by its variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ty {
    /// The name of the type or of its variable.
    pub name: Rc<str>,
    /// The kind of its numbers.
    pub kind: Kind,
    /// The type, if it is fixed.
    pub dtype: Option<DType>,
    /// Whether all its numbers are at least 0.
    pub unsigned: bool,
    /// Whether ops compute with its numbers in a wider type. `None` if its members differ in this.
    pub short: Option<bool>,
}

impl Ty {
    /// Makes a fixed element type.
    pub fn fixed(dtype: DType) -> Ty {
        Ty::of_kind(dtype.name(), &[dtype])
    }

    /// Makes a type that stands for any of some element types of one kind.
    pub fn of_kind(name: &str, members: &[DType]) -> Ty {
        let unsigned = |dtype: &DType| Kind::of(*dtype) == Kind::Int && dtype.integers().0 == 0;
        let dtype = if let [one] = members { Some(*one) } else { None };
        let kind = members.first().map_or(Kind::Stored, |dtype| Kind::of(*dtype));
        let is_short = |dtype: &DType| dtype.register() != *dtype;
        let short = members.first().map(is_short).filter(|first| members.iter().all(|of| is_short(of) == *first));
        Ty { name: name.into(), kind, dtype, unsigned: members.iter().all(unsigned), short }
    }

    /// Makes a type without known properties.
    pub fn open(name: &str) -> Ty {
        Ty { name: name.into(), kind: Kind::Stored, dtype: None, unsigned: false, short: None }
    }

    /// Makes the type of truth values.
    pub fn bool() -> Ty {
        Ty::fixed(DType::Bool)
    }
}

/// The value of an element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Term {
    /// A number, by the bits of its `f64`.
    Num(u64),
    /// A number variable of the rule.
    Param(Rc<str>),
    /// An integer that is computed from indices and extents, used as an element.
    Index(Poly),
    /// An element of an operand.
    Read(Rc<str>, Ty, Vec<Poly>),
    /// A function of elements: an op of the table or of the rule language, with the element type of its result.
    Apply(Rc<str>, Ty, Vec<T>),
    /// A reduction of the body over variables, each in the range 0..extent.
    Reduce(Reduction, Ty, Vec<(u32, Poly)>, T),
    /// The first term if every polynomial is at least 0, else the second.
    If(Vec<Poly>, T, T),
}

/// Makes a number.
pub fn num(x: f64) -> T {
    Rc::new(Term::Num(if x.is_nan() { f64::NAN } else { x }.to_bits()))
}

/// Makes the application of a function to elements.
pub fn apply(op: &str, ty: &Ty, args: Vec<T>) -> T {
    Rc::new(Term::Apply(op.into(), ty.clone(), args))
}

/// Makes a choice by conditions on indices.
pub fn choose(conditions: Vec<Poly>, then: T, otherwise: T) -> T {
    if conditions.is_empty() || then == otherwise {
        return then;
    }
    Rc::new(Term::If(conditions, then, otherwise))
}

impl Term {
    /// Returns its value if it is a number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Term::Num(bits) => Some(f64::from_bits(*bits)),
            Term::Index(p) => p.known().filter(|n| n.abs() < 1 << 53).map(|n| n as f64),
            _ => None,
        }
    }

    /// Returns the element type, or `None` for a number or an index, which take any type.
    pub fn ty(&self) -> Option<&Ty> {
        match self {
            Term::Read(_, ty, _) | Term::Apply(_, ty, _) | Term::Reduce(_, ty, ..) => Some(ty),
            Term::If(_, a, b) => a.ty().or(b.ty()),
            Term::Num(_) | Term::Param(_) | Term::Index(_) => None,
        }
    }

    /// Returns the operands if it is an application of that function.
    pub fn args(&self, name: &str) -> Option<&[T]> {
        match self {
            Term::Apply(op, _, args) if **op == *name => Some(args),
            _ => None,
        }
    }

    /// Calls `visit` with every index in it.
    pub fn visit_indices(&self, visit: &mut dyn FnMut(&Poly)) {
        match self {
            Term::Num(_) | Term::Param(_) => {}
            Term::Index(p) => visit(p),
            Term::Read(_, _, at) => at.iter().for_each(visit),
            Term::Apply(_, _, args) => args.iter().for_each(|a| a.visit_indices(visit)),
            Term::Reduce(_, _, vars, body) => {
                vars.iter().for_each(|(_, extent)| visit(extent));
                body.visit_indices(visit);
            }
            Term::If(conditions, a, b) => {
                conditions.iter().for_each(&mut *visit);
                a.visit_indices(visit);
                b.visit_indices(visit);
            }
        }
    }

    /// Returns whether an index variable appears in it.
    pub fn mentions(&self, id: u32) -> bool {
        let mut found = false;
        self.visit_indices(&mut |p| found |= p.mentions(id));
        found
    }

    /// Returns the number of subterms, including the term itself.
    pub fn size(&self) -> usize {
        match self {
            Term::Apply(_, _, args) => 1 + args.iter().map(|a| a.size()).sum::<usize>(),
            Term::Reduce(_, _, _, body) => 1 + body.size(),
            Term::If(_, a, b) => 1 + a.size() + b.size(),
            _ => 1,
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |of: &[Poly]| of.iter().map(Poly::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Term::Num(bits) => write!(f, "{}", f64::from_bits(*bits)),
            Term::Param(name) => f.write_str(name),
            Term::Index(p) => write!(f, "{p}"),
            Term::Read(name, _, at) => write!(f, "{name}[{}]", list(at)),
            Term::Apply(op, _, args) => {
                write!(f, "({op}")?;
                args.iter().try_for_each(|a| write!(f, " {a}"))?;
                f.write_str(")")
            }
            Term::Reduce(how, _, vars, body) => {
                let vars: Vec<_> = vars.iter().map(|(v, e)| format!("i{v} < {e}")).collect();
                write!(f, "({} {{{}}} {body})", how.def().name, vars.join(", "))
            }
            Term::If(conditions, a, b) => {
                let all: Vec<_> = conditions.iter().map(|c| format!("{c} ≥ 0")).collect();
                write!(f, "(if {} then {a} else {b})", all.join(" and "))
            }
        }
    }
}

/// Returns a term of an integer type as an index.
pub fn value(term: T) -> Poly {
    match &*term {
        Term::Index(p) => p.clone(),
        Term::Num(bits) if f64::from_bits(*bits).fract() == 0.0 && f64::from_bits(*bits).abs() < 2_f64.powi(53) => {
            Poly::int(f64::from_bits(*bits) as i128)
        }
        _ => Poly::atom(Atom::Value(term)),
    }
}

/// An atom of polynomials.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// An extent, the number of elements of a sequence of axes, or an integer attribute.
    Size(Rc<str>),
    /// An index variable.
    Var(u32),
    /// ⌊a / b⌋ for b ≥ 1.
    Div(Box<[Poly; 2]>),
    /// The minimum.
    Min(Box<[Poly; 2]>),
    /// The maximum.
    Max(Box<[Poly; 2]>),
    /// An opaque index map: equal names with equal arguments are the same index.
    Map(Rc<str>, Vec<Poly>),
    /// An integer that is read from a tensor.
    Value(T),
}

/// A product of atoms, sorted.
pub type Monomial = Vec<Atom>;

/// A polynomial: the nonzero coefficient of each monomial. Equal polynomials are equal functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Poly(BTreeMap<Monomial, i128>);

impl Poly {
    /// Makes the number 0.
    pub fn zero() -> Poly {
        Poly::default()
    }

    /// Makes a number.
    pub fn int(n: i128) -> Poly {
        Poly::from_terms([(Vec::new(), n)])
    }

    /// Makes the polynomial that consists of one atom.
    pub fn atom(atom: Atom) -> Poly {
        Poly::from_terms([(vec![atom], 1)])
    }

    /// Makes a named size.
    pub fn size(name: &str) -> Poly {
        Poly::atom(Atom::Size(name.into()))
    }

    /// Makes an index variable.
    pub fn var(id: u32) -> Poly {
        Poly::atom(Atom::Var(id))
    }

    /// Makes the sum of terms.
    pub fn from_terms(terms: impl IntoIterator<Item = (Monomial, i128)>) -> Poly {
        let mut sum = BTreeMap::new();
        for (mut monomial, c) in terms {
            monomial.sort();
            *sum.entry(monomial).or_insert(0) += c;
        }
        sum.retain(|_, c| *c != 0);
        Poly(sum)
    }

    /// Returns the terms: monomials with their coefficients.
    pub fn terms(&self) -> impl DoubleEndedIterator<Item = (&Monomial, i128)> {
        self.0.iter().map(|(m, c)| (m, *c))
    }

    /// Returns its value if it is a number.
    pub fn known(&self) -> Option<i128> {
        match self.0.len() {
            0 => Some(0),
            1 => self.0.get(&Vec::new()).copied(),
            _ => None,
        }
    }

    /// Returns its term if there is only one.
    pub fn single(&self) -> Option<(&[Atom], i128)> {
        if self.0.len() == 1 { self.terms().next().map(|(m, c)| (m.as_slice(), c)) } else { None }
    }

    /// Returns the atoms that are in every term.
    pub fn common(&self) -> Monomial {
        let mut terms = self.terms().map(|(m, _)| m);
        let mut common = terms.next().cloned().unwrap_or_default();
        for m in terms {
            let mut left = m.clone();
            common.retain(|a| match left.iter().position(|b| a == b) {
                Some(at) => {
                    left.remove(at);
                    true
                }
                None => false,
            });
        }
        common
    }

    /// Returns self + factor·other.
    pub fn plus_times(&self, other: &Poly, factor: i128) -> Poly {
        let more = other.terms().map(|(m, c)| (m.clone(), c * factor));
        Poly::from_terms(self.terms().map(|(m, c)| (m.clone(), c)).chain(more))
    }

    /// Calls `visit` with every atom in it, nested ones included.
    pub fn visit(&self, visit: &mut dyn FnMut(&Atom)) {
        for atom in self.0.keys().flatten() {
            visit(atom);
            match atom {
                Atom::Size(_) | Atom::Var(_) => {}
                Atom::Div(pair) | Atom::Min(pair) | Atom::Max(pair) => {
                    pair.iter().for_each(|p| p.visit(visit));
                }
                Atom::Map(_, of) => of.iter().for_each(|p| p.visit(visit)),
                Atom::Value(term) => term.visit_indices(&mut |p| p.visit(visit)),
            }
        }
    }

    /// Returns whether a variable appears in it.
    pub fn mentions(&self, id: u32) -> bool {
        let mut found = false;
        self.visit(&mut |atom| found |= *atom == Atom::Var(id));
        found
    }

    /// Returns c₁ and c₀ if it is c₁·atom + c₀ and the atom appears in neither.
    pub fn linear_in(&self, atom: &Atom) -> Option<(Poly, Poly)> {
        let (mut slope, mut rest) = (Vec::new(), Vec::new());
        for (m, c) in self.terms() {
            match m.iter().filter(|a| *a == atom).count() {
                0 => rest.push((m.clone(), c)),
                1 => slope.push((m.iter().filter(|a| *a != atom).cloned().collect(), c)),
                _ => return None,
            }
        }
        let (slope, rest) = (Poly::from_terms(slope), Poly::from_terms(rest));
        let inside = |p: &Poly| {
            let mut found = false;
            p.visit(&mut |a| found |= a == atom);
            found
        };
        (!inside(&slope) && !inside(&rest)).then_some((slope, rest))
    }

    /// Divides by the leading term of the divisor. self = quotient·divisor + remainder always holds.
    pub fn divide(&self, divisor: &Poly) -> (Poly, Poly) {
        // A longer monomial leads a shorter one, so the degree decreases in each step.
        let lead = divisor.terms().max_by_key(|(m, _)| (m.len(), (*m).clone()));
        let Some((lead, of)) = lead.map(|(m, c)| (m.clone(), c)) else { return (Poly::zero(), self.clone()) };
        let (mut quotient, mut rest) = (Poly::zero(), self.clone());
        for _ in 0..64 {
            let divisible = |(m, c): (&Monomial, i128)| Some((without(m, &lead)?, c.div_euclid(of)));
            let terms = rest.terms().filter_map(divisible).filter(|(_, c)| *c != 0);
            let Some(term) = terms.max_by_key(|(m, _)| (m.len(), m.clone())) else { break };
            let part = Poly::from_terms([term]);
            quotient = &quotient + &part;
            rest = &rest - &(&part * divisor);
        }
        (quotient, rest)
    }
}

/// Divides a monomial by another one. Returns `None` if a factor is missing.
pub fn without(m: &[Atom], factors: &[Atom]) -> Option<Monomial> {
    let mut rest = m.to_vec();
    for factor in factors {
        rest.remove(rest.iter().position(|a| a == factor)?);
    }
    Some(rest)
}

impl std::ops::Add for &Poly {
    type Output = Poly;

    fn add(self, other: &Poly) -> Poly {
        self.plus_times(other, 1)
    }
}

impl std::ops::Sub for &Poly {
    type Output = Poly;

    fn sub(self, other: &Poly) -> Poly {
        self.plus_times(other, -1)
    }
}

impl std::ops::Mul for &Poly {
    type Output = Poly;

    fn mul(self, other: &Poly) -> Poly {
        let product = |(m, c): (&Monomial, i128)| {
            let m = m.clone();
            other.terms().map(move |(n, d)| ([&m[..], n].concat(), c * d)).collect::<Vec<_>>()
        };
        Poly::from_terms(self.terms().flat_map(product))
    }
}

/// Returns the product of polynomials.
pub fn product<'p>(of: impl IntoIterator<Item = &'p Poly>) -> Poly {
    of.into_iter().fold(Poly::int(1), |n, p| &n * p)
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Size(name) => f.write_str(name),
            Atom::Var(id) => write!(f, "i{id}"),
            Atom::Div(of) => write!(f, "⌊({})/({})⌋", of[0], of[1]),
            Atom::Min(of) => write!(f, "min({}, {})", of[0], of[1]),
            Atom::Max(of) => write!(f, "max({}, {})", of[0], of[1]),
            Atom::Map(name, of) => {
                let of: Vec<_> = of.iter().map(Poly::to_string).collect();
                write!(f, "{name}({})", of.join(", "))
            }
            Atom::Value(term) => write!(f, "{term}"),
        }
    }
}

impl fmt::Display for Poly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("0");
        }
        for (n, (m, c)) in self.terms().enumerate() {
            let sign = match (n, c < 0) {
                (0, false) => "",
                (0, true) => "−",
                (_, false) => " + ",
                (_, true) => " − ",
            };
            f.write_str(sign)?;
            let mut factors: Vec<String> = m.iter().map(Atom::to_string).collect();
            if c.abs() != 1 || m.is_empty() {
                factors.insert(0, c.abs().to_string());
            }
            f.write_str(&factors.join("·"))?;
        }
        Ok(())
    }
}
