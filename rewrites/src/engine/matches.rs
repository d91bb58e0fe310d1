//! Searches for the matches of a round in classes near changed ones, and collects the members of group rules.

use std::{rc::Rc, time::Instant};

use egg::Id;
use eutectic_ir::{
    Op,
    lang::{
        Bindings,
        typing::{Bound, SlotKind, VarId},
    },
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Engine, Found, Withheld};
use crate::{
    apply::is_exempt,
    egraph::classes_of,
    guard::{Sight, guard},
    pattern::Match,
    recipe::Compiled,
    rule::{Phase, VariableKind},
};

/// For each op, the classes with a node of this op, each with its distance to the nearest changed class among its
/// operands.
type Changed = FxHashMap<Op, Vec<(Id, usize)>>;

/// The values in which the members of a group must agree: classes, and the bindings of attributes, numbers, ops, dims
/// and element types.
type Agreement = (Vec<Id>, Vec<Option<Bound>>);

impl Engine<'_> {
    /// Returns for each op the classes within `depth` levels above a class that changed since `round`, with their
    /// distance to it. They are in ascending order.
    fn changed(&self, round: u32, depth: usize) -> Changed {
        let mut distance: FxHashMap<Id, usize> = FxHashMap::default();
        let mut level: Vec<Id> = self.egraph.classes().filter(|c| c.data.stamp >= round).map(|c| c.id).collect();
        for steps in 0..depth {
            level.retain(|c| match distance.entry(*c) {
                std::collections::hash_map::Entry::Vacant(entry) => {
                    entry.insert(steps);
                    true
                }
                std::collections::hash_map::Entry::Occupied(_) => false,
            });
            let parents = level.iter().flat_map(|c| self.egraph[*c].parents()).map(|p| self.egraph.find(p));
            level = parents.filter(|p| !distance.contains_key(p)).collect();
            level.sort_unstable();
            level.dedup();
        }
        let mut classes: Vec<_> = distance.into_iter().collect();
        classes.sort_unstable();
        let mut by_op = Changed::default();
        for (class, distance) in classes {
            for node in &self.egraph[class].nodes {
                let list = by_op.entry(node.op).or_default();
                if list.last().is_none_or(|(last, _)| *last != class) {
                    list.push((class, distance));
                }
            }
        }
        by_op
    }

    pub(super) fn search(&mut self, rules: &[usize]) -> Vec<Found> {
        let mut found = Vec::new();
        let now = self.egraph.analysis.now;
        // A rule with an op that the e-graph lacks has no match, and counts as searched.
        let (rules, idle): (Vec<usize>, Vec<usize>) =
            rules.iter().partition(|r| self.rules[**r].may_match(&self.egraph));
        idle.into_iter().for_each(|rule| self.seen[rule] = now + 1);
        let depth = rules.iter().map(|r| self.rules[*r].pattern().depth).max().unwrap_or(0);
        // Only at the start of a phase do rules differ in the round of their last search. A rule with several roots
        // is searched in the whole e-graph each time. A change below one of its roots may be far from the other root,
        // where the search starts.
        let mut changed: Vec<(u32, Changed)> = Vec::new();
        for rule in rules {
            let start = Instant::now();
            let compiled = &self.rules[rule];
            let since = if compiled.pattern().roots.len() > 1 { 0 } else { self.seen[rule] };
            if since > 0 && !changed.iter().any(|(round, _)| *round == since) {
                changed.push((since, self.changed(since, depth)));
            }
            let ops = compiled.pattern().entry().1.ops();
            let classes: Vec<Id> = match changed.iter().find(|(round, _)| *round == since) {
                None => classes_of(&self.egraph, ops),
                Some((_, by_op)) => {
                    let near = ops.iter().filter_map(|op| by_op.get(op)).flatten();
                    let near = near.filter(|(_, distance)| *distance < compiled.pattern().depth);
                    let mut classes: Vec<Id> = near.map(|(class, _)| *class).collect();
                    if ops.len() > 1 {
                        classes.sort_unstable();
                        classes.dedup();
                    }
                    classes
                }
            };
            let mut seen = Vec::new();
            for class in classes.into_iter().filter(|c| !is_exempt(compiled, &self.egraph, *c)) {
                // Applications are counted at the first root. With several roots, the search may start at another
                // one.
                if compiled.pattern().roots.len() == 1 && self.is_held(rule, class) {
                    continue;
                }
                compiled.pattern().search(&self.egraph, class, &mut |m: &Match| {
                    seen.push(m.clone());
                    seen.len() < self.limits.matches
                });
            }
            let root = compiled.pattern().roots[0];
            for one in seen {
                // A guard costs more than a match, and a class may have many more matches than allowed applications.
                if !self.is_held(rule, one.classes[root])
                    && !self.applied[rule].contains(std::slice::from_ref(&one))
                    && self.admit(rule, &one).is_some()
                    && self.afford(rule, &one)
                {
                    self.statistics[rule].matches += 1;
                    self.applied[rule].insert(vec![one.clone()]);
                    found.push(Found { rule, members: vec![one] });
                }
            }
            self.seen[rule] = now + 1;
            self.statistics[rule].time += start.elapsed();
        }
        found
    }

    /// Returns whether a rule has reached its limit of applications at the program node from which a class stems.
    fn is_held(&self, rule: usize, class: Id) -> bool {
        self.spent.get(&(rule, self.egraph[class].data.rank)).is_some_and(|spent| spent.held)
    }

    /// Counts an application of a rule at the program node of a match. Returns `false` if the limit is reached.
    fn afford(&mut self, rule: usize, found: &Match) -> bool {
        let compiled = &self.rules[rule];
        if compiled.rule.phase == Phase::Legalize {
            return true;
        }
        let node = self.egraph[found.classes[compiled.pattern().roots[0]]].data.rank;
        let (spent, shared) = (self.spent.entry((rule, node)).or_default(), &mut self.shared[rule]);
        if spent.applications < self.limits.applications {
            spent.applications += 1;
            return true;
        }
        if *shared > 0 {
            *shared -= 1;
            return true;
        }
        self.statistics[rule].held += usize::from(!spent.held);
        spent.held = true;
        false
    }

    /// Returns the bindings of a match if the guard admits the match.
    pub(super) fn admit(&mut self, rule: usize, found: &Match) -> Option<Rc<Bindings>> {
        let compiled = &self.rules[rule];
        let sight = Sight::of(compiled.pattern(), &self.egraph, found);
        let key = (rule as u32, sight);
        let admitted = match self.guards.get(&key) {
            Some(known) => known.clone(),
            None => {
                let admitted = guard(&compiled.rule, compiled.pattern(), &mut self.egraph.analysis, &key.1);
                let admitted = admitted.map(Rc::new).map_err(|no_match| no_match.observer());
                self.guards.insert(key, admitted.clone());
                admitted
            }
        };
        if let Err(Some(observer)) = admitted {
            let root = found.classes[compiled.pattern().roots[0]];
            self.withheld.push(Withheld { rule, root, observer });
        }
        admitted.ok()
    }

    /// Returns the maximal sets of matches that are members of one group. Members may differ only in the variables
    /// that the right side splats (`Rule::splatted`), and in the dims and element types that it names.
    pub(super) fn search_groups(&mut self, rules: &[usize]) -> Vec<Found> {
        let mut found = Vec::new();
        for &rule in rules {
            if !self.rules[rule].may_match(&self.egraph) {
                continue;
            }
            let start = Instant::now();
            let compiled = self.rules[rule].clone();
            let products: FxHashSet<Id> =
                self.products.iter().filter(|(r, _)| *r == rule).map(|(_, c)| self.egraph.find(*c)).collect();
            let mut classes = classes_of(&self.egraph, compiled.pattern().entry().1.ops());
            classes.retain(|c| !products.contains(&self.egraph.find(*c)));
            let mut seen = Vec::new();
            for class in classes {
                compiled.pattern().search(&self.egraph, class, &mut |m: &Match| {
                    seen.push(m.clone());
                    seen.len() < self.limits.matches
                });
            }
            let mut sets: FxHashMap<Agreement, Vec<Match>> = FxHashMap::default();
            for one in seen {
                if let Some(bindings) = self.admit(rule, &one) {
                    self.statistics[rule].matches += 1;
                    sets.entry(shared(&compiled, &one, &bindings)).or_default().push(one);
                }
            }
            let mut sets: Vec<_> = sets.into_values().map(|set| self.in_order(&compiled, set)).collect();
            sets.retain(|set| set.len() > 1);
            sets.sort_by_key(|set| self.rank(&compiled, &set[0]));
            for members in sets {
                if self.applied[rule].insert(members.clone()) {
                    found.push(Found { rule, members });
                }
            }
            self.statistics[rule].time += start.elapsed();
        }
        found
    }

    fn rank(&self, compiled: &Compiled, member: &Match) -> (u32, Id) {
        let class = member.classes[compiled.pattern().roots[0]];
        (self.egraph[class].data.rank, class)
    }

    /// Sorts the members of a group in program order, and keeps one for each class.
    fn in_order(&self, compiled: &Compiled, mut set: Vec<Match>) -> Vec<Match> {
        let root = compiled.pattern().roots[0];
        set.sort_by(|a, b| {
            let key = |m: &Match| (self.rank(compiled, m), m.heads.clone(), m.classes.clone());
            key(a).cmp(&key(b))
        });
        set.dedup_by_key(|m| m.classes[root]);
        set
    }
}

/// Returns the values in which members of a group must agree: tensors that the right side does not splat, attributes
/// and numbers, and dims and element types that the right side does not name. A dim or element type that it names may
/// differ between members.
fn shared(compiled: &Compiled, found: &Match, bindings: &Bindings) -> Agreement {
    let rule = &compiled.rule;
    let splatted = rule.splatted();
    let (mut tensors, mut agreed) = (Vec::new(), Vec::new());
    for (at, variable) in rule.variables.iter().enumerate() {
        match &variable.kind {
            VariableKind::Tensor { .. } if !splatted[at] => {
                tensors.push(found.classes[compiled.pattern().tensors[rule.tensor(at)]]);
            }
            VariableKind::Tensor { .. } => {}
            VariableKind::Number(slot) | VariableKind::Attr(slot, _) | VariableKind::Op(slot, _) => {
                agreed.push(bindings.get(*slot).cloned());
            }
        }
    }
    let named = |slot: VarId| rule.uses.iter().any(|(used, _)| *used == slot);
    let of_types = |kind: &SlotKind| matches!(kind, SlotKind::Dim | SlotKind::Dims | SlotKind::DType(_));
    let unnamed =
        (0..rule.scope.variables.len()).filter(|slot| of_types(&rule.scope.variables[*slot].1) && !named(*slot));
    agreed.extend(unnamed.map(|slot| bindings.get(slot).cloned()));
    (tensors, agreed)
}
