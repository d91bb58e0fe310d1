//! Draws instances of a rule: values for all its variables, for each member if the rule is a group.

use std::sync::Arc;

use eutectic::{DType, Type};
use eutectic_ir::{
    Attr,
    lang::{
        Bindings,
        typing::{Bound, SlotKind},
    },
};
use eutectic_rewrites::{
    Choices, Probe, Sample, Sides, Unmatched, draw,
    rule::{Rule, Term, VariableKind},
};

/// The number of members of a group's instance.
const MEMBERS: usize = 3;

/// Values for all variables of a rule.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The values for each member of a group, or one set of values for any other rule.
    pub members: Vec<Sample>,
    /// The names of dims, attributes and element types, by slot.
    names: Vec<Arc<str>>,
}

impl Instance {
    /// Draws values for all variables that are not bound. Returns `None` if the drawn values contradict each other. The
    /// caller then draws again.
    pub fn draw(rule: &Rule, choices: &mut dyn Choices, bound: Bindings) -> Option<Instance> {
        let mut members = vec![draw(rule, choices, bound)?];
        for _ in 1..if rule.group { MEMBERS } else { 1 } {
            let agreed = agreed(rule, &members[0])?;
            members.push(draw(rule, choices, agreed)?);
        }
        Some(Instance::of(rule, members))
    }

    /// Returns an instance with these samples.
    pub fn of(rule: &Rule, members: Vec<Sample>) -> Instance {
        Instance { members, names: rule.scope.variables.iter().map(|(name, _)| name.clone()).collect() }
    }

    /// Returns both sides. The operands of the `n`th commutative op of the left side are swapped if bit `n` of `swaps`
    /// is set.
    ///
    /// # Errors
    /// The reason why the instance has no sides.
    pub fn sides(&self, probe: &Probe, swaps: u64) -> Result<Sides, Unmatched> {
        if swaps == 0 {
            return probe.sides(probe.rule(), &self.members);
        }
        let mut rule = probe.rule().clone();
        let mut seen = Vec::new();
        for root in &mut rule.roots {
            root.left = commuted(&root.left, &self.members[0].bindings, swaps, &mut seen);
        }
        probe.sides(&rule, &self.members)
    }

    /// Returns the number of ops of the left side whose operands can be swapped.
    pub fn commutable(&self, rule: &Rule) -> usize {
        let mut seen = Vec::new();
        rule.roots.iter().for_each(|root| {
            commuted(&root.left, &self.members[0].bindings, 0, &mut seen);
        });
        seen.len()
    }

    /// Returns the name and the value of every variable that is not a tensor, member by member. Equal values are listed
    /// once.
    pub fn values(&self) -> Vec<(String, String)> {
        let mut values: Vec<(String, String)> = Vec::new();
        for member in &self.members {
            for (slot, name) in self.names.iter().enumerate() {
                let value = member.bindings.get(slot).map_or("?".to_string(), Bound::to_string);
                let value = (name.to_string(), value);
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
        values
    }

    /// Returns the values of the number variables of the instance.
    pub fn numbers(&self) -> Vec<f64> {
        let bound = |(member, slot): (&Sample, usize)| match member.bindings.get(slot) {
            Some(Bound::Attr(Attr::Float(x))) => Some(x.get()),
            _ => None,
        };
        let all = self.members.iter().flat_map(|m| (0..self.names.len()).map(move |slot| (m, slot)));
        all.filter_map(bound).collect()
    }

    /// Returns the number of elements of all tensors together.
    pub fn size(&self) -> usize {
        self.members.iter().flat_map(|m| &m.types).map(Type::count).sum()
    }

    /// Returns the element types of the tensors of the instance.
    pub fn dtypes(&self) -> impl Iterator<Item = DType> {
        self.members.iter().flat_map(|m| &m.types).filter_map(Type::dtype)
    }
}

/// Returns the bindings that all members of a group share: attributes, ops, element types, and the types of tensors
/// that the right side does not splat.
fn agreed(rule: &Rule, first: &Sample) -> Option<Bindings> {
    let mut bindings = Bindings::default();
    for (slot, (_, kind)) in rule.scope.variables.iter().enumerate() {
        if let (SlotKind::Attr | SlotKind::Op | SlotKind::DType(_), Some(bound)) = (kind, first.bindings.get(slot)) {
            bindings.bind(slot, bound.clone()).ok()?;
        }
    }
    let splatted = rule.splatted();
    for (at, variable) in rule.variables.iter().enumerate() {
        if let (VariableKind::Tensor { ty, .. }, false) = (&variable.kind, splatted[at]) {
            ty.unify(&first.types[rule.tensor(at)], &mut bindings).ok()?;
        }
    }
    Some(bindings)
}

/// Returns a term with the operands of its commutative ops swapped according to the bits of `swaps`. Equal subterms
/// share one bit.
fn commuted(term: &Term, bindings: &Bindings, swaps: u64, seen: &mut Vec<Term>) -> Term {
    let Term::Call(call) = term else { return term.clone() };
    let mut swapped = call.clone();
    swapped.args = call.args.iter().map(|a| commuted(a, bindings, swaps, seen)).collect();
    let commutes = call.op.resolve(bindings).is_some_and(|(op, _)| op.def().commutative);
    if commutes && call.args.len() == 2 && call.args[0] != call.args[1] {
        let at = seen.iter().position(|t| t == term).unwrap_or_else(|| {
            seen.push(term.clone());
            seen.len() - 1
        });
        if at < 64 && swaps >> at & 1 == 1 {
            swapped.args.swap(0, 1);
        }
    }
    Term::Call(swapped)
}
