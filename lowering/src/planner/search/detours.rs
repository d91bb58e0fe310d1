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
    /// Switches needed users to e-nodes that lead to `class`, which no kernel computes yet. Returns the
    /// choices on these paths.
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

    /// Sets tentative choices for a class that the plan does not need yet, so that later moves can use it. The class
    /// will be stored by the kernel of the anchor that it depends on, and the operands of this anchor will be stored
    /// too.
    pub(super) fn wish_for(&mut self, class: ClassId) {
        // Each entry: a class, whether it is a prologue of the anchor, and whether it should be stored.
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

    /// Replaces choices for operands of other choices by cheaper e-nodes of their classes. Other rules may have
    /// rewritten these classes, for example a product into one of rounded operands. Returns `None` if no choice
    /// changes.
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

    /// Returns the choices on the shortest path from a needed class to `class`, which no kernel computes
    /// yet. The rule may have rewritten another form of the plan's class, such as a product of rows where the plan has
    /// a product of batches.
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
