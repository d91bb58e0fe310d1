//! Proves that a rule keeps the rounding of sums with numbers of the program. For large c, (x + c) − c rounds x to an
//! integer, and no rule may remove this rounding.

use super::nodes::{Node, Value};
use crate::{
    call::Case,
    facts::{Res, stop},
    term::{T, Term},
};

/// Proves that each sum with a number of the program on the left is also on the right. `numbers` returns whether a
/// tensor may be such a number.
pub fn kept(case: &Case, left: &[Node], right: &[Node], numbers: &dyn Fn(&str) -> bool) -> Res<()> {
    let sums = |nodes: &[Node]| -> Res<Vec<[Value; 2]>> {
        let mut sums = Vec::new();
        for node in nodes {
            let Some([a, b]) = node.term.args("add").or_else(|| node.term.args("sub")) else { continue };
            if !is_number(a, numbers) && !is_number(b, numbers) {
                continue;
            }
            let sign = if node.term.args("sub").is_some() { -1.0 } else { 1.0 };
            let (a, mut b) = (node.value_of(case, a)?, node.value_of(case, b)?);
            b.real = b.real.scaled(sign);
            let mut pair = [a, b];
            pair.sort();
            sums.push(pair);
        }
        Ok(sums)
    };
    let (left, right) = (sums(left)?, sums(right)?);
    match left.iter().find(|pair| !right.contains(pair)) {
        Some([a, b]) => stop(format!(
            "a large number of the program may round in {} + {} on the left, but not on the right",
            a.real, b.real
        )),
        None => Ok(()),
    }
}

/// Returns whether a term is a number of the program, or is computed only from such numbers and constants.
fn is_number(term: &T, numbers: &dyn Fn(&str) -> bool) -> bool {
    match &**term {
        Term::Param(_) => true,
        Term::Read(name, ..) => numbers(name),
        Term::Apply(_, _, args) => {
            let constant = |t: &T| matches!(&**t, Term::Num(_)) || is_number(t, numbers);
            args.iter().all(constant) && args.iter().any(|t| is_number(t, numbers))
        }
        _ => false,
    }
}
