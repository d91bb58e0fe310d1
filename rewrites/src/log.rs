//! The application log: the rule, the matched nodes and the new nodes of each application.
//!
//! It serves explanations, provenance, statistics and bundles. Explanations come from the log and not from proofs: a
//! node is explained by the application that made it first, and by the explanations of the nodes that this application
//! matched.

use egg::Id;
use eutectic_ir::Op;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::egraph::{EGraph, Head, InternedNode};

/// One application of a rule.
#[derive(Clone, Debug)]
pub(crate) struct Application {
    /// The rule.
    pub rule: usize,
    /// The op that its variable of ops stands for, if it has one.
    pub op: Option<Op>,
    /// The classes of its roots.
    pub roots: SmallVec<[Id; 2]>,
    /// The bindings of its tensor variables.
    pub variables: SmallVec<[Id; 4]>,
    /// The nodes that it matched.
    pub matched: SmallVec<[(Head, SmallVec<[Id; 4]>); 4]>,
    /// The nodes of its right side, with their classes. Nodes that equal a root come last.
    pub made: SmallVec<[(InternedNode, Id); 4]>,
    /// Whether it united classes or made nodes.
    pub changed: bool,
}

/// The log of a run.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub applications: Vec<Application>,
}

/// The first application that made each node. Nodes are in their final form.
pub(crate) struct Makers {
    first: FxHashMap<(Head, SmallVec<[Id; 4]>), usize>,
}

pub(crate) fn canonical(egraph: &EGraph, children: &[Id]) -> SmallVec<[Id; 4]> {
    children.iter().map(|c| egraph.find(*c)).collect()
}

impl Log {
    /// Indexes the log after the e-graph is rebuilt. Nodes of the program itself have no maker.
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
    /// Returns the application that first made a node. Its children must be canonical.
    pub fn of(&self, head: Head, children: &[Id]) -> Option<usize> {
        self.first.get(&(head, SmallVec::from_slice(children))).copied()
    }
}
