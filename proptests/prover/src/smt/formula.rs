//! Formulas of SMT-LIB 2: integers, and integers modulo 2ⁿ as bit vectors.

use std::collections::BTreeMap;

use crate::term::{Atom, Poly};

/// The sort of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    /// An integer.
    Int,
    /// A truth value.
    Bool,
    /// A bit vector of this width.
    Bits(u32),
}

/// A formula.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Formula {
    /// An integer.
    Int(i128),
    /// A bit vector, by its width and its value modulo 2^width.
    Bits(u32, i128),
    /// A free symbol.
    Symbol(String, Sort),
    /// A function of the logic, such as `+` or `(_ extract 7 0)`.
    Call(String, Vec<Formula>),
    /// An uninterpreted function of integers.
    Map(String, Vec<Formula>),
}

/// Makes the call of a function of the logic.
pub fn call(name: &str, args: impl IntoIterator<Item = Formula>) -> Formula {
    Formula::Call(name.into(), args.into_iter().collect())
}

/// Makes an integer symbol.
pub fn int(name: &str) -> Formula {
    Formula::Symbol(name.into(), Sort::Int)
}

/// Makes the formula p ≥ 0.
pub fn nonneg(p: &Poly) -> Formula {
    call(">=", [of_poly(p), Formula::Int(0)])
}

/// Writes a polynomial as a formula.
pub fn of_poly(p: &Poly) -> Formula {
    let terms: Vec<Formula> = p
        .terms()
        .map(|(m, c)| {
            let factors: Vec<Formula> = std::iter::once(Formula::Int(c)).chain(m.iter().map(of_atom)).collect();
            if factors.len() == 1 { Formula::Int(c) } else { call("*", factors) }
        })
        .collect();
    match terms.len() {
        0 => Formula::Int(0),
        1 => terms.into_iter().next().unwrap_or(Formula::Int(0)),
        _ => call("+", terms),
    }
}

/// Writes an atom of a polynomial as a formula. An integer that is read from a tensor is a symbol.
pub fn of_atom(atom: &Atom) -> Formula {
    let pair = |of: &[Poly; 2]| of.each_ref().map(of_poly);
    match atom {
        Atom::Size(name) => int(name),
        // No name of a size starts with `index `, so this name is unique.
        Atom::Var(id) => int(&format!("index {id}")),
        Atom::Div(of) => call("div", pair(of)),
        Atom::Min(of) => {
            let [a, b] = pair(of);
            call("ite", [call("<=", [a.clone(), b.clone()]), a, b])
        }
        Atom::Max(of) => {
            let [a, b] = pair(of);
            call("ite", [call("<=", [a.clone(), b.clone()]), b, a])
        }
        Atom::Map(name, of) => Formula::Map(name.to_string(), of.iter().map(of_poly).collect()),
        Atom::Value(term) => int(&format!("element {term}")),
    }
}

impl Formula {
    /// Collects the symbols, and the uninterpreted functions with their numbers of arguments.
    pub fn names(&self, symbols: &mut BTreeMap<String, Sort>, maps: &mut BTreeMap<String, usize>) {
        match self {
            Formula::Int(_) | Formula::Bits(..) => {}
            Formula::Symbol(name, sort) => {
                symbols.insert(name.clone(), *sort);
            }
            Formula::Call(_, args) => args.iter().for_each(|a| a.names(symbols, maps)),
            Formula::Map(name, args) => {
                maps.insert(format!("{name} {}", args.len()), args.len());
                args.iter().for_each(|a| a.names(symbols, maps));
            }
        }
    }
}
