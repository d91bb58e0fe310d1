//! Ensembles of decision trees with weights at their leaves: reads them from attributes, and computes the scores of
//! rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::repeat,
};

use eutectic_ir::{DType, NodeId, Tensor};

use super::{
    forest::{Branch, Child, Forest, MEMBER, MODES},
    rows::Rows,
};
use crate::{call::NodeCall, error::NodeError};

/// The aggregation of leaf weights into a score for each target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Aggregate {
    Average,
    Sum,
    Min,
    Max,
}

/// The aggregations and their names, in the order of their numbers in `TreeEnsemble`.
pub(super) const AGGREGATES: [(&str, Aggregate); 4] =
    [("AVERAGE", Aggregate::Average), ("SUM", Aggregate::Sum), ("MIN", Aggregate::Min), ("MAX", Aggregate::Max)];

impl Aggregate {
    /// Returns the reduction over trees, and its neutral element.
    fn reduction(self) -> (&'static str, f64) {
        match self {
            Aggregate::Average | Aggregate::Sum => ("reduce-sum", 0.0),
            Aggregate::Min => ("reduce-min", f64::INFINITY),
            Aggregate::Max => ("reduce-max", f64::NEG_INFINITY),
        }
    }
}

/// Whether rows receive a weight for a target from at least one tree.
pub(super) enum Scored {
    Always,
    Never,
    /// Only the rows for which these Booleans [rows 1] are true.
    Where(NodeId),
}

/// Trees with weights.
pub(super) struct Ensemble {
    forest: Forest,
    /// The weights of each leaf by target. A leaf may lack weights for some targets.
    weights: Vec<BTreeMap<usize, f64>>,
    targets: usize,
}

/// The largest number of leaves times the number of targets, which is the size of a table of weights.
const MOST_WEIGHTS: usize = 1 << 28;

impl Ensemble {
    /// Creates an ensemble without weights.
    fn new(forest: Forest, leaves: usize, targets: usize) -> Result<Ensemble, NodeError> {
        if leaves.saturating_add(1).saturating_mul(targets) > MOST_WEIGHTS {
            return Err(format!(
                "it has {targets} targets and {leaves} leaves; their product must be at most {MOST_WEIGHTS}"
            )
            .into());
        }
        Ok(Ensemble { forest, weights: vec![BTreeMap::new(); leaves], targets })
    }

    /// Adds a weight of a leaf for a target. Several weights of the same leaf and target are aggregated.
    fn weigh(&mut self, leaf: usize, target: i64, weight: f64, aggregate: Aggregate) -> Result<(), NodeError> {
        let known = usize::try_from(target).ok().filter(|target| *target < self.targets);
        let target = known.ok_or_else(|| {
            NodeError(format!(
                "it has a weight for target {target}, which is out of range for {} targets",
                self.targets
            ))
        })?;
        let combine = |old: f64| match aggregate {
            Aggregate::Average | Aggregate::Sum => old + weight,
            Aggregate::Min => old.min(weight),
            Aggregate::Max => old.max(weight),
        };
        self.weights[leaf].entry(target).and_modify(|old| *old = combine(*old)).or_insert(weight);
        Ok(())
    }

    /// Returns the target of each tree. Returns `None` if the leaves of a tree have weights for different targets.
    fn single_targets(&self) -> Option<Vec<usize>> {
        let of_tree = |root: &Child| {
            let mut target = None;
            for leaf in self.forest.leaves_of(*root) {
                let mut targets = self.weights[leaf].keys();
                let (Some(own), None) = (targets.next(), targets.next()) else { return None };
                if target.replace(*own).is_some_and(|other| other != *own) {
                    return None;
                }
            }
            target
        };
        self.forest.roots().iter().map(of_tree).collect()
    }

    /// Returns the scores [rows targets], and for each target which rows receive a weight.
    pub fn scores(
        self,
        c: &mut NodeCall<'_, '_>,
        rows: Rows,
        aggregate: Aggregate,
    ) -> Result<(NodeId, Vec<Scored>), NodeError> {
        let trees = self.forest.roots().len();
        let (mut scores, scored) = match self.single_targets() {
            Some(targets) => self.grouped(c, rows, aggregate, &targets)?,
            None => self.spread(c, rows, aggregate)?,
        };
        if aggregate == Aggregate::Average {
            scores = c.with("div", scores, trees as i64)?;
        }
        Ok((scores, scored))
    }

    /// Computes scores if every tree has a single target. Trees are sorted by target, so that each leaf has one weight.
    fn grouped(
        mut self,
        c: &mut NodeCall<'_, '_>,
        rows: Rows,
        aggregate: Aggregate,
        targets: &[usize],
    ) -> Result<(NodeId, Vec<Scored>), NodeError> {
        let (how, neutral) = aggregate.reduction();
        let mut groups: Vec<Vec<Child>> = vec![Vec::new(); self.targets];
        for (root, target) in self.forest.roots().iter().zip(targets) {
            groups[*target].push(*root);
        }
        let scored = groups.iter().map(|group| if group.is_empty() { Scored::Never } else { Scored::Always }).collect();
        let longest = groups.iter().map(Vec::len).max().unwrap_or(0);
        // The groups of trees for each target get the same number of trees. For sums, the added trees are a leaf of
        // weight 0. For other aggregations, they repeat the first tree of the group, which does not change a minimum or
        // maximum.
        let nothing = Child::Leaf(self.weights.len());
        let filler = |group: &[Child]| group.first().copied().filter(|_| neutral != 0.0).unwrap_or(nothing);
        let padded = groups.iter().flat_map(|group| {
            let filler = filler(group);
            group.iter().copied().chain(repeat(filler)).take(longest)
        });
        let roots: Vec<Child> = padded.collect();
        self.weights.push(BTreeMap::new());
        self.forest = self.forest.with_trees(roots, self.weights.len());
        let at = self.forest.descended(c, rows)?;
        let weight = self.weights.iter().map(|of_leaf| of_leaf.values().next().copied().unwrap_or(0.0));
        let weights = Tensor::from_f64(c.dtype(rows.x), &[self.weights.len()], weight);
        let weights = c.weights("weights", weights)?;
        let picked = c.op("gather", &[weights, at], &[("axis", 0.into())])?;
        let count = rows.count(c);
        let picked = c.reshape(picked, &[self.targets.into(), longest.into(), count.clone()])?;
        let scores = c.reduce(how, picked, &[1])?;
        let scores = c.reshape(scores, &[self.targets.into(), count])?;
        Ok((c.transpose(scores, &[1, 0])?, scored))
    }

    /// Computes scores if leaves have weights for several targets. Gathers the weights from a table with a row for each
    /// leaf, and reduces them over the trees.
    fn spread(
        self,
        c: &mut NodeCall<'_, '_>,
        rows: Rows,
        aggregate: Aggregate,
    ) -> Result<(NodeId, Vec<Scored>), NodeError> {
        let (how, neutral) = aggregate.reduction();
        let (dims, count) = ([self.weights.len(), self.targets], rows.count(c));
        let at = self.forest.descended(c, rows)?;
        let picked = |c: &mut NodeCall<'_, '_>, label: &str, table: Tensor, how: &str| {
            let table = c.weights(label, table)?;
            let picked = c.op("gather", &[table, at], &[("axis", 0.into())])?;
            let scores = c.reduce(how, picked, &[0])?;
            c.reshape(scores, &[count.clone(), dims[1].into()])
        };
        let cells = || self.weights.iter().flat_map(|of_leaf| (0..self.targets).map(|target| of_leaf.get(&target)));
        let weights = cells().map(|weight| weight.copied().unwrap_or(neutral));
        let mut scores = picked(c, "weights", Tensor::from_f64(c.dtype(rows.x), &dims, weights), how)?;
        let leaves: Vec<BTreeSet<usize>> =
            self.forest.roots().iter().map(|root| self.forest.leaves_of(*root)).collect();
        let has = |leaf: &usize, target: usize| self.weights[*leaf].contains_key(&target);
        let always = |target: usize| leaves.iter().any(|leaves| leaves.iter().all(|leaf| has(leaf, target)));
        let never = |target: usize| !leaves.iter().flatten().any(|leaf| has(leaf, target));
        let mut scored: Vec<Scored> = (0..self.targets)
            .map(|target| if always(target) || self.targets == 0 { Scored::Always } else { Scored::Never })
            .collect();
        if (0..self.targets).any(|target| !always(target)) {
            let table = Tensor::from_i64(DType::I32, &dims, cells().map(|weight| i64::from(weight.is_some())));
            let count = picked(c, "weighted", table, "reduce-max")?;
            let there = c.with("gt", count, 0)?;
            if neutral != 0.0 {
                let zero = c.number(0.0, scores)?;
                scores = c.apply("where", [there, scores, zero])?;
            }
            for target in (0..self.targets).filter(|target| !always(*target) && !never(*target)) {
                scored[target] = Scored::Where(c.slice(there, 1, target, 1)?);
            }
        }
        Ok((scores, scored))
    }
}

/// Reads the numbers of an attribute. Newer versions of the domain store them in a tensor attribute.
pub(super) fn either(c: &NodeCall<'_, '_>, name: &str) -> Result<Vec<f64>, NodeError> {
    match c.tensor_value(&format!("{name}_as_tensor"))? {
        Some(tensor) => Ok(tensor.to_f64()),
        None => Ok(c.floats(name)?.unwrap_or_default()),
    }
}

/// Reads trees as versions of the domain before 5 store them: nodes have a tree id and a node id, and weights refer to
/// both. `of` is the prefix of the attributes with weights.
pub(super) fn listed(
    c: &NodeCall<'_, '_>,
    of: &str,
    targets: usize,
    aggregate: Aggregate,
) -> Result<Ensemble, NodeError> {
    let ints = |name: &str| Ok::<_, NodeError>(c.ints(name)?.unwrap_or_default());
    let (trees, ids) = (ints("nodes_treeids")?, ints("nodes_nodeids")?);
    let (features, yes, no) = (ints("nodes_featureids")?, ints("nodes_truenodeids")?, ints("nodes_falsenodeids")?);
    let (values, modes) = (either(c, "nodes_values")?, c.words("nodes_modes")?.unwrap_or_default());
    let missing = ints("nodes_missing_value_tracks_true")?;
    let count = trees.len();
    if [ids.len(), features.len(), yes.len(), no.len(), values.len(), modes.len()].iter().any(|n| *n != count)
        || ![0, count].contains(&missing.len())
    {
        return Err("its attributes nodes_* have different lengths".into());
    }
    // The index of each node among all branches or all leaves, by tree id and node id.
    let mut places: BTreeMap<(i64, i64), Child> = BTreeMap::new();
    let (mut branches, mut leaves) = (0, 0);
    for at in 0..count {
        let counter = if modes[at] == "LEAF" { &mut leaves } else { &mut branches };
        let place = if modes[at] == "LEAF" { Child::Leaf(*counter) } else { Child::Branch(*counter) };
        *counter += 1;
        if places.insert((trees[at], ids[at]), place).is_some() {
            return Err(format!("it defines node {} of tree {} twice", ids[at], trees[at]).into());
        }
    }
    let find = |tree: i64, id: i64| {
        places.get(&(tree, id)).copied().ok_or_else(|| NodeError(format!("tree {tree} has no node {id}")))
    };
    let (mut made, mut below) = (Vec::with_capacity(branches), BTreeSet::new());
    for at in (0..count).filter(|at| modes[*at] != "LEAF") {
        let (_, mode) = MODES
            .iter()
            .find(|(name, _)| *name == modes[at])
            .ok_or_else(|| NodeError(format!("a node has the unknown mode `{}`", modes[at])))?;
        let feature = usize::try_from(features[at])
            .map_err(|_| format!("a node reads the feature {}, which is negative", features[at]))?;
        let children = [find(trees[at], yes[at])?, find(trees[at], no[at])?];
        below.extend([(trees[at], yes[at]), (trees[at], no[at])]);
        let missing = missing.get(at).is_some_and(|tracks| *tracks != 0);
        made.push(Branch { feature, mode: *mode, values: vec![values[at]], children, missing });
    }
    // The root of a tree is its first node that is not the child of another node.
    let (mut roots, mut rooted) = (Vec::new(), BTreeSet::new());
    for at in (0..count).filter(|at| !below.contains(&(trees[*at], ids[*at]))) {
        if rooted.insert(trees[at]) {
            roots.push(find(trees[at], ids[at])?);
        }
    }
    if rooted.len() != trees.iter().collect::<BTreeSet<_>>().len() {
        return Err("a tree has no root because each of its nodes is the child of another one".into());
    }
    let forest = Forest::new(&made, roots, leaves)?;
    let mut ensemble = Ensemble::new(forest, leaves, targets)?;
    let name = |part: &str| format!("{of}_{part}");
    let (of_trees, of_nodes, targets) = (ints(&name("treeids"))?, ints(&name("nodeids"))?, ints(&name("ids"))?);
    let weights = either(c, &name("weights"))?;
    if [of_nodes.len(), targets.len(), weights.len()].iter().any(|n| *n != of_trees.len()) {
        return Err("its attributes with weights have different lengths".into());
    }
    for at in 0..weights.len() {
        // Weights of branches are ignored, as in ONNX Runtime.
        if let Child::Leaf(leaf) = find(of_trees[at], of_nodes[at])? {
            ensemble.weigh(leaf, targets[at], weights[at], aggregate)?;
        }
    }
    Ok(ensemble)
}

/// Reads trees as version 5 of the domain stores them: branches and leaves are numbered.
pub(super) fn numbered(c: &NodeCall<'_, '_>) -> Result<(Ensemble, Aggregate), NodeError> {
    let number = c.int_or("aggregate_function", 1)?;
    let aggregate = usize::try_from(number).ok().and_then(|number| AGGREGATES.get(number));
    let (_, aggregate) = *aggregate.ok_or_else(|| NodeError(format!("its aggregate_function {number} is unknown")))?;
    let targets =
        c.int("n_targets")?.and_then(|n| usize::try_from(n).ok()).ok_or("its attribute `n_targets` is missing")?;
    let list = |name: &str| c.ints(name)?.ok_or_else(|| NodeError(format!("its attribute `{name}` is missing")));
    let tensor =
        |name: &str| c.tensor_value(name)?.ok_or_else(|| NodeError(format!("its attribute `{name}` is missing")));
    let (features, modes) = (list("nodes_featureids")?, tensor("nodes_modes")?.to_i64());
    let values = tensor("nodes_splits")?.to_f64();
    let (yes, no) = (list("nodes_truenodeids")?, list("nodes_falsenodeids")?);
    let (yes_leaf, no_leaf) = (list("nodes_trueleafs")?, list("nodes_falseleafs")?);
    let missing = c.ints("nodes_missing_value_tracks_true")?.unwrap_or_default();
    let (of_leaf, weights) = (list("leaf_targetids")?, tensor("leaf_weights")?.to_f64());
    let (count, leaves) = (features.len(), of_leaf.len());
    let lengths = [modes.len(), values.len(), yes.len(), no.len(), yes_leaf.len(), no_leaf.len()];
    if lengths.iter().any(|n| *n != count) || weights.len() != leaves || ![0, count].contains(&missing.len()) {
        return Err("its attributes nodes_* or leaf_* have different lengths".into());
    }
    let child = |id: i64, leaf: i64| {
        let (what, most) = if leaf != 0 { ("leaf", leaves) } else { ("node", count) };
        let id = usize::try_from(id)
            .ok()
            .filter(|id| *id < most)
            .ok_or_else(|| NodeError(format!("a node refers to {what} {id}, which does not exist")))?;
        Ok::<_, NodeError>(if leaf != 0 { Child::Leaf(id) } else { Child::Branch(id) })
    };
    // One list has the members of all sets, in the order of the nodes. NaN ends each set.
    let members = c.tensor_value("membership_values")?.map(|members| members.to_f64()).unwrap_or_default();
    let mut sets = members.split(|member| member.is_nan());
    let mut branches = Vec::with_capacity(count);
    for at in 0..count {
        let mode = usize::try_from(modes[at]).unwrap_or(usize::MAX);
        let set = (mode == MEMBER).then(|| sets.next().unwrap_or_default().to_vec());
        let mode = if mode == MEMBER { Some([false, true, false]) } else { MODES.get(mode).map(|(_, mode)| *mode) };
        branches.push(Branch {
            feature: usize::try_from(features[at])
                .map_err(|_| format!("a node reads the feature {}, which is negative", features[at]))?,
            mode: mode.ok_or_else(|| NodeError(format!("a node has the unknown mode {}", modes[at])))?,
            values: set.unwrap_or_else(|| vec![values[at]]),
            children: [child(yes[at], yes_leaf[at])?, child(no[at], no_leaf[at])?],
            missing: missing.get(at).is_some_and(|tracks| *tracks != 0),
        });
    }
    let roots = list("tree_roots")?.into_iter().map(|root| child(root, 0)).collect::<Result<_, _>>()?;
    let forest = Forest::new(&branches, roots, leaves)?;
    let mut ensemble = Ensemble::new(forest, leaves, targets)?;
    for (leaf, (target, weight)) in of_leaf.into_iter().zip(weights).enumerate() {
        ensemble.weigh(leaf, target, weight, aggregate)?;
    }
    Ok((ensemble, aggregate))
}
