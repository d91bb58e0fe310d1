//! Finds paths of e-nodes between the kernels of a plan and a class that none of them computes.

use std::collections::VecDeque;

use eutectic_ir::{
    eclasses::{ClassId, ENode, NodeChoice},
    ops::Class,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Search;

/// The maximal number of classes that a search for a path between a new class and the plan visits.
const DETOUR: usize = 256;

impl Search<'_, '_> {
    /// Returns choices that make needed classes depend on `class`, which no kernel computes yet: the e-nodes on a path
    /// from each needed class to `class`. Stops after visiting `DETOUR` classes.
    pub(super) fn lead_from(&self, class: ClassId) -> Vec<NodeChoice> {
        let space = self.state.space;
        // For each class, the operand on the path to `class`, and the e-node that reads this operand.
        let mut from: FxHashMap<ClassId, Option<(ClassId, usize)>> = FxHashMap::from_iter([(class, None)]);
        let (mut open, mut ends) = (VecDeque::from([class]), Vec::new());
        while let Some(below) = open.pop_front() {
            for &user in self.users[below].iter().filter(|u| !space.facts.given[**u]) {
                let reads = |node: &ENode| node.operands.contains(&below);
                let node = space.classes.classes[user]
                    .nodes
                    .iter()
                    .position(reads)
                    .expect("`users` lists classes with an e-node that reads the class");
                if from.len() < DETOUR && !from.contains_key(&user) {
                    from.insert(user, Some((below, node)));
                    if self.state.is_needed(user) { ends.push(user) } else { open.push_back(user) }
                }
            }
        }
        let mut choices: Vec<NodeChoice> = Vec::new();
        for mut user in ends {
            while let Some((below, node)) = from[&user]
                && !choices.contains(&NodeChoice { class: user, node })
            {
                choices.push(NodeChoice { class: user, node });
                user = below;
            }
        }
        choices
    }

    /// Decides which classes will be stored once a move needs `class`, for classes that the plan does not need yet:
    /// `class` itself, and the operands of the anchors that `class` is computed from. If an operand is a view, the
    /// operand of the view is stored instead. The classes between them will be virtual.
    pub(super) fn wish_for(&mut self, class: ClassId) {
        // Each entry has a class, whether it is an operand of an anchor or of such a view, and whether to store it.
        let mut open = vec![(class, false, true)];
        // E-nodes of unneeded classes may form cycles, such as a reshape of a reshape.
        let mut seen = FxHashSet::default();
        while let Some((class, before, stored)) = open.pop() {
            let is_decided = self.state.space.facts.loadable[class] || self.state.is_needed(class);
            if is_decided || !self.is_free(class) || !seen.insert(class) {
                continue;
            }
            let node = self.state.plan().choice[class];
            let Some(ENode { op, operands, .. }) = self.state.space.classes.classes[class].nodes.get(node) else {
                continue;
            };
            let of_operands = match op.def().class {
                Class::View(_) if before => Some((true, true)),
                _ if before => None,
                Class::Anchor(_) => Some((true, true)),
                _ => Some((false, false)),
            };
            self.state.wish(class, stored && !(before && of_operands.is_some()));
            if let Some((before, stored)) = of_operands {
                open.extend(operands.iter().map(|&operand| (operand, before, stored)));
            }
        }
    }

    /// Replaces each choice for an unneeded operand of another choice by the plan's e-node of its class, if that e-node
    /// is cheaper. Such an e-node comes from another rule, which for example rounded the operands of a product. Returns
    /// `None` if no choice changes.
    pub(super) fn with_cheaper_forms(&self, choices: &[NodeChoice]) -> Option<Vec<NodeChoice>> {
        let classes = &self.state.space.classes.classes;
        let is_part =
            |class: &ClassId| choices.iter().any(|of| classes[of.class].nodes[of.node].operands.contains(class));
        let cheaper = |&NodeChoice { class, node }: &NodeChoice| {
            let (form, totals) = (self.state.plan().choice[class], &self.totals[class]);
            let is_cheaper = !self.state.is_needed(class) && is_part(&class) && totals[form] < totals[node];
            NodeChoice { class, node: if is_cheaper { form } else { node } }
        };
        let made: Vec<_> = choices.iter().map(cheaper).collect();
        (made != choices).then_some(made)
    }

    /// Returns the choices on a shortest path from a needed class to `class`, which no kernel computes yet. A rule may
    /// have rewritten `class` although the plan computes its users from other operands. For example, the rule rewrote a
    /// product of rows, and the plan has a product of batches.
    pub(super) fn lead_to(&self, class: ClassId) -> Vec<NodeChoice> {
        let space = self.state.space;
        let mut from: FxHashMap<ClassId, Option<ClassId>> = FxHashMap::from_iter([(class, None)]);
        let mut open = VecDeque::from([class]);
        let mut found = None;
        while let Some(below) = open.pop_front() {
            if below != class && self.state.is_needed(below) {
                found = Some(below);
                break;
            }
            for &user in self.users[below].iter().filter(|u| !space.facts.given[**u]) {
                if from.len() < DETOUR && !from.contains_key(&user) {
                    from.insert(user, Some(below));
                    open.push_back(user);
                }
            }
        }
        let mut choices = Vec::new();
        while let Some(user) = found {
            found = from[&user];
            if let Some(below) = found {
                let nodes = &space.classes.classes[user].nodes;
                let reads = nodes.iter().position(|n| n.operands.contains(&below));
                let node = reads.expect("`users` lists classes with an e-node that reads the class");
                choices.push(NodeChoice { class: user, node });
            }
        }
        choices
    }
}
