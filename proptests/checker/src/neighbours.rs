//! Replaces one number of a left side by a neighbour, which the rule must not match.

use eutectic::DType;
use eutectic_ir::{Attr, Class, Graph, ops::Leaf};
use eutectic_rewrites::{
    Contract, Probe, Sides, Unmatched,
    expr::{Expr, Number},
    rule::{AttrTerm, Rule, Term},
};

use crate::{instance::Instance, mutate::replaced};

/// The tolerance within which a rule that rounds matches a number, in eps of the element type. For 16-bit types, it is
/// in eps of `f32`, because models compute their constants in `f32` or `f64`.
const NEAR: f64 = 4.0;

/// A replacement that the rule matches by mistake: its description, and the sides.
pub type Neighbour = (String, Sides);

/// Returns the neighbours of the left side's numbers that the rule matches by mistake, and the number of neighbours
/// tried.
///
/// An `exact` or `ulp` rule must match the exact number only. A rule that rounds may match within [`NEAR`] eps.
pub fn mistaken(probe: &Probe, instance: &Instance) -> (Vec<Neighbour>, usize) {
    let rule = probe.rule();
    let Ok(own) = instance.sides(probe, 0) else { return (Vec::new(), 0) };
    let own = constants(&own.written);
    let (mut found, mut tried) = (Vec::new(), 0);
    for (from, to, what) in replacements(rule, instance) {
        let mut changed = rule.clone();
        for root in &mut changed.roots {
            root.left = replaced(&root.left, &from, &to);
        }
        tried += 1;
        match probe.sides(&changed, &instance.members) {
            // The element type rounds both numbers to the same value, so nothing changed.
            Ok(sides) if matches!(from, Term::Number { .. }) && constants(&sides.written) == own => {}
            Ok(sides) => found.push((what, sides)),
            Err(Unmatched::NoMatch | Unmatched::NoRight | Unmatched::IllTyped(_) | Unmatched::Types(_)) => {}
        }
    }
    (found, tried)
}

/// Returns the bits of all constants of a graph.
fn constants(graph: &Graph) -> Vec<Vec<u64>> {
    let of = |attr: &Attr| match attr {
        Attr::Tensor(value) => Some(value.to_f64().into_iter().map(f64::to_bits).collect()),
        _ => None,
    };
    let constants = graph.nodes().filter(|(_, node)| matches!(node.op.def().class, Class::Leaf(Leaf::Const)));
    constants.filter_map(|(_, node)| of(node.attrs.first()?)).collect()
}

/// Returns terms of the left side with their replacements, each with a description for people.
fn replacements(rule: &Rule, instance: &Instance) -> Vec<(Term, Term, String)> {
    let floats = || instance.dtypes().filter(|dtype| dtype.is_float());
    // Numbers that the coarsest type distinguishes are distinct in the other types, too.
    let eps = floats().map(|dtype| 2.0 * dtype.unit_roundoff()).fold(0.0, f64::max);
    let least = floats().map(least).fold(0.0, f64::max);
    let mut found = Vec::new();
    let mut add =
        |from: &Term, x: f64, y: f64, to: Term| found.push((from.clone(), to, format!("{y:?} stands for {x:?}")));
    for root in &rule.roots {
        root.left.visit(&mut |term| match term {
            Term::Number { id, expr } => {
                for (x, y) in expr.literal().into_iter().flat_map(|x| pairs(x, rule.contract, eps, least)) {
                    add(term, x, y, Term::Number { id: *id, expr: Expr::Number(Number::Float(y)) });
                }
            }
            Term::Call(call) => {
                for (at, attr) in call.attrs.iter().enumerate() {
                    let Some(AttrTerm::Value(Attr::Float(x))) = attr else { continue };
                    // Models store attributes in `f32`, so rules that round match them within the eps of `f32`.
                    let eps = if rounds(rule.contract) { f64::from(f32::EPSILON) } else { f64::EPSILON };
                    for (x, y) in pairs(x.get(), rule.contract, eps, f64::MIN_POSITIVE) {
                        let mut changed = call.clone();
                        changed.attrs[at] = Some(AttrTerm::Value(Attr::from(y)));
                        add(term, x, y, Term::Call(changed));
                    }
                }
            }
            _ => {}
        });
    }
    found
}

/// Returns the least positive number of a floating type; that of `f32` for other types.
fn least(dtype: DType) -> f64 {
    dtype.float().map_or(f64::from(f32::from_bits(1)), |format| format.least())
}

fn rounds(contract: Contract) -> bool {
    matches!(contract, Contract::Reassoc | Contract::Fast)
}

/// Returns pairs of a number and one of its neighbours, at a distance that the contract distinguishes. x + 1 and x − 1
/// are neighbours, too, if they are farther than that.
fn pairs(x: f64, contract: Contract, eps: f64, least: f64) -> Vec<(f64, f64)> {
    // Replacements must be well beyond the tolerance. Numbers just below a power of two are closer to each other, and
    // the element type rounds a replacement.
    let wide = eps < 2.0 * DType::Bf16.unit_roundoff().min(DType::F16.unit_roundoff());
    let steps = if rounds(contract) && wide { 4.0 * NEAR } else { 1.0 };
    let mut others = if steps * eps * x.abs() < 1.0 { vec![x + 1.0, x - 1.0] } else { Vec::new() };
    match x {
        0.0 => {
            others.extend([least, -least]);
            // `reassoc` does not distinguish the two zeros.
            if contract == Contract::Exact {
                others.push(-x);
            }
        }
        _ if eps > 0.0 => others.extend([x * (1.0 + steps * eps), x * (1.0 - steps * eps)]),
        _ => {}
    }
    others.into_iter().filter(|y| y.is_finite() && y.to_bits() != x.to_bits()).map(|y| (x, y)).collect()
}
