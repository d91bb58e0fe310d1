//! Applies a recipe to an e-graph. Only this module makes nodes for a match and unites classes.

use egg::Id;
use smallvec::SmallVec;

use crate::{
    egraph::{EGraph, InternedNode},
    instantiate::Ref,
    pattern::Match,
    recipe::{Compiled, Recipe},
    rule::Phase,
};

/// The effect of applying a recipe.
pub(crate) struct Made {
    /// The node of each instruction, and its class.
    pub nodes: SmallVec<[(InternedNode, Id); 4]>,
    /// Whether classes were united or nodes made.
    pub changed: bool,
}

/// Returns the classes that a match replaces, one for each root.
pub(crate) fn roots<'m>(compiled: &'m Compiled, found: &'m Match) -> impl Iterator<Item = Id> + 'm {
    compiled.pattern().roots.iter().map(|root| found.classes[*root])
}

/// Returns the classes that the tensor variables of a match stand for.
pub(crate) fn variables<'m>(compiled: &'m Compiled, found: &'m Match) -> impl Iterator<Item = Id> + 'm {
    compiled.pattern().tensors.iter().map(|tensor| found.classes[*tensor])
}

/// Returns whether a rule skips a class that it could match. A class with one known number needs no other form, because
/// rules would only express it as sums and products. A rule that gathers constants also skips values that are computed
/// when the program is loaded: a sum of ten constants has too many orders to search.
pub(crate) fn is_exempt(compiled: &Compiled, egraph: &EGraph, class: Id) -> bool {
    let one_root = compiled.pattern().roots.len() == 1 && compiled.rule.phase != Phase::Legalize;
    let data = &egraph[class].data;
    one_root && (data.scalar.is_some() || data.constant && compiled.pattern().gathers_constants())
}

/// Makes the nodes of a recipe and unites its top nodes with the roots. Returns `None` if a value would be computed
/// from itself. Such a form is never the cheapest, and rules would rewrite the cycle endlessly (0 = 0·2 = 0·4 …).
/// TENSAT calls this cycle filtering.
pub(crate) fn make(egraph: &mut EGraph, roots: &[Id], variables: &[Id], recipe: &Recipe) -> Option<Made> {
    let root = egraph.find(roots[0]);
    egraph.analysis.rank = egraph[root].data.rank;
    let mut changed = false;
    let mut nodes: SmallVec<[(InternedNode, Id); 4]> = SmallVec::new();
    for instr in &recipe.instrs {
        let children = instr.args.iter().map(|arg| match arg {
            Ref::Class(n) => egraph.find(variables[*n]),
            Ref::Instr(n) => egraph.find(nodes[*n].1),
            Ref::Number(_) => unreachable!("a right side has no number without an element type"),
        });
        let node = InternedNode { head: instr.head, op: egraph.analysis.op(instr.head), children: children.collect() };
        let node = known_order(egraph, node);
        if roots.len() == 1 && node.children.contains(&root) {
            return None;
        }
        let before = egraph.nodes().len();
        let id = egraph.add(node.clone());
        changed |= egraph.nodes().len() > before;
        nodes.push((node, id));
    }
    for (root, top) in roots.iter().zip(&recipe.tops) {
        let top = match top {
            Ref::Class(n) if hides_rounding(egraph, *root, variables[*n]) => continue,
            Ref::Class(n) => variables[*n],
            Ref::Instr(n) => nodes[*n].1,
            Ref::Number(_) => unreachable!("a right side has no number without an element type"),
        };
        changed |= egraph.union(*root, top);
    }
    Some(Made { nodes, changed })
}

/// Returns whether an observed class would be united with a class that rules other than `exact` ones may have
/// changed. For example, a sum of one element would be united with this element.
fn hides_rounding(egraph: &EGraph, root: Id, top: Id) -> bool {
    let top = &egraph[top];
    egraph[root].data.observer.is_some()
        && top.data.observer.is_none()
        && top.data.scalar.is_none()
        && top.nodes.iter().all(|node| node.op.hands_on())
}

/// Returns a node with its first two operands swapped, if the op is commutative and only the swapped node exists.
/// Otherwise both nodes would be in separate classes, and each op above them would exist twice.
fn known_order(egraph: &EGraph, node: InternedNode) -> InternedNode {
    if !node.op.def().commutative || egraph.lookup(node.clone()).is_some() {
        return node;
    }
    let mut swapped = node.clone();
    swapped.children.swap(0, 1);
    if egraph.lookup(swapped.clone()).is_some() { swapped } else { node }
}
