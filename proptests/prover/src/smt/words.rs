//! Elements of integer types and truth values as bit vectors.

use std::collections::BTreeMap;

use eutectic_ir::DType;

use super::formula::{Formula, Sort, call};
use crate::term::{Kind, T, Term, Ty};

/// The element types of type variables, by name.
pub type Types = BTreeMap<String, DType>;

/// Returns the condition that two elements differ, or `None` if an op has no semantics on bit vectors.
pub fn differ(types: &Types, a: &T, b: &T) -> Option<Formula> {
    let ty = a.ty().or(b.ty())?;
    let words = Words { types };
    let (a, b) = (words.of(a, words.dtype(ty)?)?, words.of(b, words.dtype(ty)?)?);
    Some(call("not", [call("=", [a, b])]))
}

struct Words<'a> {
    types: &'a Types,
}

impl Words<'_> {
    fn dtype(&self, ty: &Ty) -> Option<DType> {
        let dtype = ty.dtype.or_else(|| self.types.get(&*ty.name).copied())?;
        matches!(Kind::of(dtype), Kind::Int | Kind::Bool).then_some(dtype)
    }

    /// Writes a term as a bit vector or truth value of an element type. A number has no type of its own, and gets this
    /// one.
    fn of(&self, term: &T, wanted: DType) -> Option<Formula> {
        match &**term {
            Term::Num(_) | Term::Index(_) => {
                let n = term.number().filter(|n| n.fract() == 0.0 && n.abs() < 9e18)? as i128;
                Some(match Kind::of(wanted) {
                    Kind::Bool => call(if n == 0 { "false" } else { "true" }, []),
                    _ => Formula::Bits(wanted.bits(), n),
                })
            }
            Term::Read(_, ty, _) => {
                let dtype = self.dtype(ty)?;
                let sort = if Kind::of(dtype) == Kind::Bool { Sort::Bool } else { Sort::Bits(dtype.bits()) };
                Some(Formula::Symbol(term.to_string(), sort))
            }
            Term::Apply(op, ty, args) => self.function(op, self.dtype(ty)?, args),
            _ => None,
        }
    }

    /// Returns the element type of the operands of a comparison.
    fn operand(&self, args: &[T]) -> Option<DType> {
        args.iter().find_map(|a| a.ty()).and_then(|ty| self.dtype(ty))
    }

    fn function(&self, op: &str, to: DType, args: &[T]) -> Option<Formula> {
        let both = |of: DType| args.iter().map(|a| self.of(a, of)).collect::<Option<Vec<_>>>();
        let zero = |of: DType| Formula::Bits(of.bits(), 0);
        let signed = |of: DType| of.integers().0 < 0;
        let pick = |of: DType, s: &'static str, u: &'static str| if signed(of) { s } else { u };
        if Kind::of(to) == Kind::Bool {
            return match (op, args) {
                ("not" | "and" | "or" | "xor", _) => Some(call(op, both(DType::Bool)?)),
                ("eq" | "ne" | "lt" | "le" | "gt" | "ge", [_, _]) => {
                    let of = self.operand(args)?;
                    let args = both(of)?;
                    let same = || call("=", args.clone());
                    Some(match op {
                        "eq" => same(),
                        "ne" => call("not", [same()]),
                        _ if Kind::of(of) == Kind::Bool => return None,
                        "lt" => call(pick(of, "bvslt", "bvult"), args),
                        "le" => call(pick(of, "bvsle", "bvule"), args),
                        "gt" => call(pick(of, "bvsgt", "bvugt"), args),
                        _ => call(pick(of, "bvsge", "bvuge"), args),
                    })
                }
                ("cast", [a]) => {
                    let of = self.operand(args)?;
                    let a = self.of(a, of)?;
                    Some(if Kind::of(of) == Kind::Bool { a } else { call("not", [call("=", [a, zero(of)])]) })
                }
                ("where", [c, a, b]) => Some(call("ite", [self.of(c, DType::Bool)?, self.of(a, to)?, self.of(b, to)?])),
                _ => None,
            };
        }
        let bits = to.bits();
        let arithmetic = |name: &str| both(to).map(|args| call(name, args));
        match (op, args) {
            ("add", _) => arithmetic("bvadd"),
            ("sub", _) => arithmetic("bvsub"),
            ("mul", _) => arithmetic("bvmul"),
            ("neg", _) => arithmetic("bvneg"),
            ("bit-and", _) => arithmetic("bvand"),
            ("bit-or", _) => arithmetic("bvor"),
            ("bit-xor", _) => arithmetic("bvxor"),
            ("bit-not", _) => arithmetic("bvnot"),
            ("max" | "min", [_, _]) => {
                let args = both(to)?;
                let below = call(pick(to, "bvsle", "bvule"), args.clone());
                let [a, b] = args.try_into().ok()?;
                Some(if op == "max" { call("ite", [below, b, a]) } else { call("ite", [below, a, b]) })
            }
            ("abs", [a]) if signed(to) => {
                let a = self.of(a, to)?;
                Some(call("ite", [call("bvslt", [a.clone(), zero(to)]), call("bvneg", [a.clone()]), a]))
            }
            ("abs", [a]) => self.of(a, to),
            ("sign", [a]) => {
                let a = self.of(a, to)?;
                let below = call(pick(to, "bvslt", "bvult"), [a.clone(), zero(to)]);
                let of = |n| Formula::Bits(bits, n);
                Some(call("ite", [below, of(-1), call("ite", [call("=", [a, zero(to)]), of(0), of(1)])]))
            }
            // The engine defines a quotient and a remainder by 0 as 0.
            ("div" | "mod", [_, _]) => {
                let args = both(to)?;
                let name = if op == "div" { pick(to, "bvsdiv", "bvudiv") } else { pick(to, "bvsmod", "bvurem") };
                let none = call("=", [args[1].clone(), zero(to)]);
                Some(call("ite", [none, zero(to), call(name, args)]))
            }
            ("shift-left" | "shift-right", [_, _]) => {
                let args = both(to)?;
                let inside = call("bvult", [args[1].clone(), Formula::Bits(bits, i128::from(bits))]);
                let negative = call(pick(to, "bvslt", "bvult"), [args[0].clone(), zero(to)]);
                let beyond = match op {
                    "shift-right" => call("ite", [negative, Formula::Bits(bits, -1), zero(to)]),
                    _ => zero(to),
                };
                let name = if op == "shift-left" { "bvshl" } else { pick(to, "bvashr", "bvlshr") };
                Some(call("ite", [inside, call(name, args), beyond]))
            }
            ("where", [c, a, b]) => Some(call("ite", [self.of(c, DType::Bool)?, self.of(a, to)?, self.of(b, to)?])),
            ("cast", [a]) => {
                let of = self.operand(args)?;
                let a = self.of(a, of)?;
                let more = i64::from(bits) - i64::from(of.bits());
                Some(match Kind::of(of) {
                    Kind::Bool => call("ite", [a, Formula::Bits(bits, 1), zero(to)]),
                    _ if more == 0 => a,
                    _ if more < 0 => call(&format!("(_ extract {} 0)", bits - 1), [a]),
                    _ => call(&format!("(_ {} {more})", if signed(of) { "sign_extend" } else { "zero_extend" }), [a]),
                })
            }
            _ => None,
        }
    }
}
