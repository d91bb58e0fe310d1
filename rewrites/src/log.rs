//! The application log. For each application of a rule, it has the rule, the matched nodes and the new nodes.
//!
//! The log serves explanations, provenance, statistics and bundles. Explanations follow from the log, not from egg's
//! proofs. A node is explained by the application that made it first, and by the explanations of the nodes that this
//! application matched.

use egg::Id;
use eutectic_ir::Op;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::egraph::{EGraph, Head, InternedNode};

/// One application of a rule.
#[derive(Clone, Debug)]
pub(crate) struct Application {
    /// The index of the rule.
    pub rule: usize,
    /// The op to which the rule's variable of ops is bound, if it has one.
    pub op: Option<Op>,
    /// The classes of the roots.
    pub roots: SmallVec<[Id; 2]>,
    /// The bindings of the tensor variables.
    pub variables: SmallVec<[Id; 4]>,
    /// The matched nodes.
    pub matched: SmallVec<[(Head, SmallVec<[Id; 4]>); 4]>,
    /// The nodes of the right side, with their classes. The nodes that are united with roots come last.
    pub made: SmallVec<[(InternedNode, Id); 4]>,
    /// Whether the application united classes or made nodes.
    pub changed: bool,
}

/// The log of a run.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub applications: Vec<Application>,
}

/// The first application that made each node. Nodes are in canonical form.
pub(crate) struct Makers {
    first: FxHashMap<(Head, SmallVec<[Id; 4]>), usize>,
}

pub(crate) fn canonical(egraph: &EGraph, children: &[Id]) -> SmallVec<[Id; 4]> {
    children.iter().map(|c| egraph.find(*c)).collect()
}

impl Log {
    /// Returns the first application that made each node, after the e-graph is rebuilt. Nodes of the program itself
    /// have none.
    pub fn makers(&self, egraph: &EGraph, program: impl Iterator<Item = InternedNode>) -> Makers {
        let given: FxHashSet<_> = program.map(|n| (n.head, canonical(egraph, &n.children))).collect();
        let mut first = FxHashMap::default();
        for (at, application) in self.applications.iter().enumerate() {
            for (node, _) in &application.made {
                let key = (node.head, canonical(egraph, &node.children));
                if !given.contains(&key) {
                    first.entry(key).or_insert(at);
                }
            }
        }
        Makers { first }
    }
}

impl Makers {
    /// Returns the application that made a node first. The node's children must be canonical.
    pub fn of(&self, head: Head, children: &[Id]) -> Option<usize> {
        self.first.get(&(head, SmallVec::from_slice(children))).copied()
    }
}
