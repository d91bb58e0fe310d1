//! Proves the obligations of a contract beyond equality over the reals: range, infinities, NaN, and roundings of
//! numbers that the program contains.
//!
//! | obligation | proved by | contracts |
//! |---|---|---|
//! | no number on the right overflows or vanishes unless one on the left does | [`range`] | `reassoc`, `ulp` |
//! | pointwise rules keep infinities and NaN | [`special`] | `reassoc`, `ulp` |
//! | in rules with sums, an infinity or NaN in an element reaches both sides | [`reads`] | `reassoc`, `ulp` |
//! | a sum with a number of the program is on both sides | [`rounding`] | `reassoc`, `fast`, if both sides are pointwise |
//! | results differ by at most n units in the last place | [`ulps`] | `ulp` |
//!
//! The proof of equality over the reals also shows, for each contract, that the right side adds no divisor that may be
//! 0. A `fast` rule promises nothing about ranges, infinities and NaN.

mod bounds;
mod extended;
mod nodes;
mod range;
mod reads;
mod rounding;
mod special;
mod ulps;

use eutectic_rewrites::{
    Contract,
    rule::{AppliedOp, Root, Term as RuleTerm},
};

pub use nodes::marked;
use special::Kept;

use crate::{
    call::Case,
    facts::{Res, Stop, stop},
    lower::Lower,
    scope::Scope,
    term::{T, Term, Ty},
};

/// Proves the obligations of a contract for one element, beyond equality over the reals. Both terms have marks around
/// results of ops.
pub fn kept(scope: &Scope<'_>, case: &Case, root: &Root, left: &T, right: &T) -> Res<()> {
    let contract = scope.rule.contract;
    let (l, r) = (nodes::nodes(left), nodes::nodes(right));
    let pointwise = !has_sums(left) && !has_sums(right);
    if pointwise && !range::mixes(scope.rule) && !matches!(contract, Contract::Ulp(_)) {
        let number = |name: &str| scope.rule.tensors().any(|(v, _, constant)| v.name == name && constant && !v.varied);
        rounding::kept(case, &l, &r, &number).map_err(|s| range::because("rounding", s))?;
    }
    if contract == Contract::Fast {
        return Ok(());
    }
    range::kept(scope, case, root, [left, right], &l, &r).map_err(|s| range::because("range", s))?;
    let same = match contract {
        Contract::Ulp(n) => {
            let [left, right] = ulps::shared(case, [left, right])?;
            let digits = |ty: &Ty| scope.digits(ty);
            ulps::within(case, n, &digits, [&left, &right]).map_err(|s| range::because("ulps", s))?;
            if has_sums(&left) || has_sums(&right) {
                reads::alike(case, &left, &right)
            } else {
                special::same(case, &left, &right, Kept::Zeros)
            }
        }
        _ if pointwise && range::mixes(scope.rule) => special::same(case, left, right, Kept::Any),
        _ if pointwise => special::same(case, left, right, Kept::Poles),
        _ => reads::same(case, left, right, leaves_out(root, scope)),
    };
    same.map_err(|s| range::because("infinities and NaN", s))
}

/// Checks that the right side is infinite or NaN if the left side is a quotient by 0.
pub fn undefined_alike(case: &Case, left: &T, right: &T) -> Res<()> {
    let is_none = |t: &T| match Lower::new(case).real(t) {
        Err(Stop::Vacuous(_)) => Ok(true),
        other => other.map(|_| false),
    };
    match is_none(left)? && !is_none(right)? {
        true => stop("infinities and NaN: the left side is a quotient by 0, and the right side is a number"),
        false => Ok(()),
    }
}

/// Returns whether the right side of a root has an op that skips masked elements.
fn leaves_out(root: &Root, scope: &Scope<'_>) -> bool {
    let mut found = false;
    let mut look = |term: &RuleTerm| {
        if let RuleTerm::Call(AppliedOp { op, .. }) = term {
            found |= op.ops().iter().any(|op| op.def().leaves_out);
        }
    };
    root.right.visit(&mut look);
    scope.rule.lets.iter().for_each(|(_, term)| term.visit(&mut look));
    found
}

fn has_sums(term: &T) -> bool {
    match &**term {
        Term::Reduce(..) => true,
        Term::Apply(_, _, args) => args.iter().any(has_sums),
        Term::If(_, a, b) => has_sums(a) || has_sums(b),
        _ => false,
    }
}
