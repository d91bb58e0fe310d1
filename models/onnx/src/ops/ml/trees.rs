//! Ensembles of trees: classifiers, regressors, and what became of both in version 5 of the domain.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::repeat,
};

use eutectic_ir::{DType, NodeId, Tensor};

use super::{
    Rows,
    forest::{Branch, Child, Forest, MEMBER, MODES},
    scores::{Classes, Transform, complement, opposites, winner},
};
use crate::{
    call::{NodeCall, NodeResult},
    error::NodeError,
    ops::{OpRow, Outputs, many, one},
};

pub(super) const OPS: &[OpRow] = &[
    many("TreeEnsembleClassifier", 1, classifier),
    one("TreeEnsembleRegressor", 1, regressor),
    one("TreeEnsemble", 5, ensemble),
];

/// How the leaves at which a row ends become one score for each target.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Aggregate {
    Average,
    Sum,
    Min,
    Max,
}

/// Their names, in the order of their numbers in `TreeEnsemble`.
const AGGREGATES: [(&str, Aggregate); 4] =
    [("AVERAGE", Aggregate::Average), ("SUM", Aggregate::Sum), ("MIN", Aggregate::Min), ("MAX", Aggregate::Max)];

impl Aggregate {
    /// The reduction over trees, and what a tree without a weight for a target gives it.
    fn reduction(self) -> (&'static str, f64) {
        match self {
            Aggregate::Average | Aggregate::Sum => ("reduce-sum", 0.0),
            Aggregate::Min => ("reduce-min", f64::INFINITY),
            Aggregate::Max => ("reduce-max", f64::NEG_INFINITY),
        }
    }
}

/// Whether a target gets a weight from some tree.
enum Scored {
    Always,
    Never,
    /// Where these truth values [rows 1] hold.
    Where(NodeId),
}

/// Trees with weights.
struct Ensemble {
    forest: Forest,
    /// For each leaf, weights by target.
    weights: Vec<BTreeMap<usize, f64>>,
    targets: usize,
}

impl Ensemble {
    /// Sets a weight. Of several for a target, all count.
    fn weigh(&mut self, leaf: usize, target: i64, weight: f64, aggregate: Aggregate) -> Result<(), NodeError> {
        let known = usize::try_from(target).ok().filter(|target| *target < self.targets);
        let target = known.ok_or_else(|| NodeError(format!("a weight for target {target} of {}", self.targets)))?;
        let combine = |old: f64| match aggregate {
            Aggregate::Average | Aggregate::Sum => old + weight,
            Aggregate::Min => old.min(weight),
            Aggregate::Max => old.max(weight),
        };
        self.weights[leaf].entry(target).and_modify(|old| *old = combine(*old)).or_insert(weight);
        Ok(())
    }

    /// The one target of each tree, where all trees have one.
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

    /// The scores [rows targets], and which targets have one.
    fn scores(
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

    /// Where each tree has one target: trees side by side by target, so that each leaf has one weight.
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
        // A leaf more, of weight 0, makes groups equally long. It changes sums by nothing, and no other result of a group with trees.
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
        let picked = c.reshape(picked, &[rows.count, self.targets, longest])?;
        let scores = c.reduce(how, picked, &[2])?;
        Ok((c.reshape(scores, &[rows.count, self.targets])?, scored))
    }

    /// Where leaves have weights for several targets: each leaf has a row of weights.
    fn spread(
        self,
        c: &mut NodeCall<'_, '_>,
        rows: Rows,
        aggregate: Aggregate,
    ) -> Result<(NodeId, Vec<Scored>), NodeError> {
        let (how, neutral) = aggregate.reduction();
        let dims = [self.weights.len(), self.targets];
        let at = self.forest.descended(c, rows)?;
        let picked = |c: &mut NodeCall<'_, '_>, label: &str, table: Tensor, how: &str| {
            let table = c.weights(label, table)?;
            let picked = c.op("gather", &[table, at], &[("axis", 0.into())])?;
            let scores = c.reduce(how, picked, &[1])?;
            c.reshape(scores, &[rows.count, dims[1]])
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

/// The numbers of an attribute, which newer versions have as a tensor, too.
fn either(c: &NodeCall<'_, '_>, name: &str) -> Result<Vec<f64>, NodeError> {
    match c.tensor_value(&format!("{name}_as_tensor"))? {
        Some(tensor) => Ok(tensor.to_f64()),
        None => Ok(c.floats(name)?.unwrap_or_default()),
    }
}

/// Trees as versions before 5 have them: nodes with the numbers of their trees and of their own, and weights by both. `of` names the targets.
fn listed(c: &NodeCall<'_, '_>, of: &str, targets: usize, aggregate: Aggregate) -> Result<Ensemble, NodeError> {
    let ints = |name: &str| Ok::<_, NodeError>(c.ints(name)?.unwrap_or_default());
    let (trees, ids) = (ints("nodes_treeids")?, ints("nodes_nodeids")?);
    let (features, yes, no) = (ints("nodes_featureids")?, ints("nodes_truenodeids")?, ints("nodes_falsenodeids")?);
    let (values, modes) = (either(c, "nodes_values")?, c.words("nodes_modes")?.unwrap_or_default());
    let missing = ints("nodes_missing_value_tracks_true")?;
    let count = trees.len();
    if [ids.len(), features.len(), yes.len(), no.len(), values.len(), modes.len()].iter().any(|n| *n != count)
        || !matches!(missing.len(), 0) && missing.len() != count
    {
        return Err("the lists of its nodes are not equally long".into());
    }
    // Where each node is among the branches or the leaves.
    let mut places: BTreeMap<(i64, i64), Child> = BTreeMap::new();
    let (mut branches, mut leaves) = (0, 0);
    for at in 0..count {
        let counter = if modes[at] == "LEAF" { &mut leaves } else { &mut branches };
        let place = if modes[at] == "LEAF" { Child::Leaf(*counter) } else { Child::Branch(*counter) };
        *counter += 1;
        if places.insert((trees[at], ids[at]), place).is_some() {
            return Err(format!("node {} of tree {} is there twice", ids[at], trees[at]).into());
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
            .ok_or_else(|| NodeError(format!("a node of mode `{}`", modes[at])))?;
        let feature = usize::try_from(features[at]).map_err(|_| format!("a feature {}", features[at]))?;
        let children = [find(trees[at], yes[at])?, find(trees[at], no[at])?];
        below.extend([(trees[at], yes[at]), (trees[at], no[at])]);
        let missing = missing.get(at).is_some_and(|tracks| *tracks != 0);
        made.push(Branch { feature, mode: *mode, values: vec![values[at]], children, missing });
    }
    // The first node of a tree that is below none.
    let (mut roots, mut rooted) = (Vec::new(), BTreeSet::new());
    for at in (0..count).filter(|at| !below.contains(&(trees[*at], ids[*at]))) {
        if rooted.insert(trees[at]) {
            roots.push(find(trees[at], ids[at])?);
        }
    }
    if rooted.len() != trees.iter().collect::<BTreeSet<_>>().len() {
        return Err("a tree has no root: each of its nodes is below another one".into());
    }
    let forest = Forest::new(&made, roots, leaves)?;
    let mut ensemble = Ensemble { forest, weights: vec![BTreeMap::new(); leaves], targets };
    let name = |part: &str| format!("{of}_{part}");
    let (of_trees, of_nodes, targets) = (ints(&name("treeids"))?, ints(&name("nodeids"))?, ints(&name("ids"))?);
    let weights = either(c, &name("weights"))?;
    if [of_nodes.len(), targets.len(), weights.len()].iter().any(|n| *n != of_trees.len()) {
        return Err("the lists of its weights are not equally long".into());
    }
    for at in 0..weights.len() {
        // ONNX Runtime ignores weights of branches, too.
        if let Child::Leaf(leaf) = find(of_trees[at], of_nodes[at])? {
            ensemble.weigh(leaf, targets[at], weights[at], aggregate)?;
        }
    }
    Ok(ensemble)
}

/// A score for each target.
fn regressor(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let name = c.word("aggregate_function")?.unwrap_or("SUM");
    let aggregate = AGGREGATES.iter().find(|(known, _)| *known == name).map(|(_, aggregate)| *aggregate);
    let aggregate = aggregate.ok_or_else(|| NodeError(format!("its aggregate_function is `{name}`")))?;
    let targets = usize::try_from(c.int_or("n_targets", 1)?).map_err(|_| "a negative number of targets")?;
    let base = either(c, "base_values")?;
    let ensemble = listed(c, "target", targets, aggregate)?;
    let rows = Rows::read(c)?;
    let (mut scores, _) = ensemble.scores(c, rows, aggregate)?;
    if base.len() == targets {
        let base = Tensor::from_f64(c.dtype(scores), &[targets], base);
        let base = c.weights("base", base)?;
        scores = c.apply("add", [scores, base])?;
    }
    let scores = Transform::read(c)?.of(c, scores)?;
    c.cast(scores, DType::F32)
}

/// A score for each target, of trees in the form of version 5.
fn ensemble(c: &mut NodeCall<'_, '_>) -> NodeResult {
    let number = c.int_or("aggregate_function", 1)?;
    let aggregate = usize::try_from(number).ok().and_then(|number| AGGREGATES.get(number));
    let (_, aggregate) = *aggregate.ok_or_else(|| NodeError(format!("its aggregate_function is {number}")))?;
    let targets = c.int("n_targets")?.and_then(|n| usize::try_from(n).ok()).ok_or("it has no `n_targets`")?;
    let list = |name: &str| c.ints(name)?.ok_or_else(|| NodeError(format!("it has no `{name}`")));
    let tensor = |name: &str| c.tensor_value(name)?.ok_or_else(|| NodeError(format!("it has no `{name}`")));
    let (features, modes) = (list("nodes_featureids")?, tensor("nodes_modes")?.to_i64());
    let values = tensor("nodes_splits")?.to_f64();
    let (yes, no) = (list("nodes_truenodeids")?, list("nodes_falsenodeids")?);
    let (yes_leaf, no_leaf) = (list("nodes_trueleafs")?, list("nodes_falseleafs")?);
    let missing = c.ints("nodes_missing_value_tracks_true")?.unwrap_or_default();
    let (of_leaf, weights) = (list("leaf_targetids")?, tensor("leaf_weights")?.to_f64());
    let (count, leaves) = (features.len(), of_leaf.len());
    let lengths = [modes.len(), values.len(), yes.len(), no.len(), yes_leaf.len(), no_leaf.len()];
    if lengths.iter().any(|n| *n != count) || weights.len() != leaves || ![0, count].contains(&missing.len()) {
        return Err("the lists of its nodes or leaves are not equally long".into());
    }
    let child = |id: i64, leaf: i64| {
        let (what, most) = if leaf != 0 { ("leaf", leaves) } else { ("node", count) };
        let id = usize::try_from(id)
            .ok()
            .filter(|id| *id < most)
            .ok_or_else(|| NodeError(format!("there is no {what} {id}")))?;
        Ok::<_, NodeError>(if leaf != 0 { Child::Leaf(id) } else { Child::Branch(id) })
    };
    // The members of sets follow each other in the order of nodes, each set with a NaN at its end.
    let members = c.tensor_value("membership_values")?.map(|members| members.to_f64()).unwrap_or_default();
    let mut sets = members.split(|member| member.is_nan());
    let mut branches = Vec::with_capacity(count);
    for at in 0..count {
        let mode = usize::try_from(modes[at]).unwrap_or(usize::MAX);
        let set = (mode == MEMBER).then(|| sets.next().unwrap_or_default().to_vec());
        let mode = if mode == MEMBER { Some([false, true, false]) } else { MODES.get(mode).map(|(_, mode)| *mode) };
        branches.push(Branch {
            feature: usize::try_from(features[at]).map_err(|_| format!("a feature {}", features[at]))?,
            mode: mode.ok_or_else(|| NodeError(format!("a node of mode {}", modes[at])))?,
            values: set.unwrap_or_else(|| vec![values[at]]),
            children: [child(yes[at], yes_leaf[at])?, child(no[at], no_leaf[at])?],
            missing: missing.get(at).is_some_and(|tracks| *tracks != 0),
        });
    }
    let roots = list("tree_roots")?.into_iter().map(|root| child(root, 0)).collect::<Result<_, _>>()?;
    let forest = Forest::new(&branches, roots, leaves)?;
    let mut ensemble = Ensemble { forest, weights: vec![BTreeMap::new(); leaves], targets };
    for (leaf, (target, weight)) in of_leaf.into_iter().zip(weights).enumerate() {
        ensemble.weigh(leaf, target, weight, aggregate)?;
    }
    let rows = Rows::read(c)?;
    let (scores, _) = ensemble.scores(c, rows, aggregate)?;
    Transform::numbered(c)?.of(c, scores)
}

/// The class of each row, and the scores of all classes.
fn classifier(c: &mut NodeCall<'_, '_>) -> Outputs {
    let classes = Classes::read(c, "classlabels_int64s")?;
    let (base, transform) = (either(c, "base_values")?, Transform::read(c)?);
    let ensemble = listed(c, "class", classes.count(), Aggregate::Sum)?;
    let votes = Votes {
        alone: c.ints("class_ids")?.unwrap_or_default().into_iter().collect::<BTreeSet<_>>().len() == 1,
        positive: either(c, "class_weights")?.iter().all(|weight| *weight >= 0.0),
        transform,
    };
    let rows = Rows::read(c)?;
    let (scores, scored) = ensemble.scores(c, rows, Aggregate::Sum)?;
    let (place, scores) = match classes.count() {
        0 | 1 => return Err("a classifier of one class".into()),
        2 => votes.of_two(c, scores, &scored, &base)?,
        _ => of_many(c, scores, &scored, &base, transform)?,
    };
    // ONNX Runtime gives places instead of numbers where both of two classes have weights.
    let label = match &classes {
        Classes::Numbers(_) if classes.count() == 2 && !votes.alone => place,
        _ => classes.label(c, place)?,
    };
    Ok(vec![label, c.cast(scores, DType::F32)?])
}

/// The place of the class and the scores of three and more classes. A class without a score wins nowhere.
fn of_many(
    c: &mut NodeCall<'_, '_>,
    scores: NodeId,
    scored: &[Scored],
    base: &[f64],
    transform: Transform,
) -> Result<(NodeId, NodeId), NodeError> {
    let mut scores = scores;
    let count = c.dims(scores)[1];
    if !base.is_empty() {
        if base.len() > count {
            return Err(format!("{} base values for {count} classes", base.len()).into());
        }
        let base = base.iter().copied().chain(repeat(0.0)).take(count);
        let base = Tensor::from_f64(c.dtype(scores), &[count], base);
        let base = c.weights("base", base)?;
        scores = c.apply("add", [scores, base])?;
    }
    let lowest = c.number(f64::NEG_INFINITY, scores)?;
    let mut candidates = Vec::new();
    for (at, scored) in scored.iter().enumerate() {
        let own = c.slice(scores, 1, at, 1)?;
        candidates.push(match scored {
            _ if at < base.len() => own,
            Scored::Always => own,
            Scored::Never => c.expand(lowest, &[c.dims(scores)[0], 1])?,
            Scored::Where(there) => c.apply("where", [*there, own, lowest])?,
        });
    }
    let all = scored.iter().enumerate().all(|(at, scored)| at < base.len() || matches!(scored, Scored::Always));
    let compared = if all { scores } else { c.concat(&candidates, 1)? };
    Ok((winner(c, compared)?, transform.of(c, scores)?))
}

/// What decides between two classes.
struct Votes {
    /// Whether all weights are for one class.
    alone: bool,
    /// Whether no weight is negative.
    positive: bool,
    transform: Transform,
}

impl Votes {
    /// The place of the class and both scores, by the rules of ONNX Runtime.
    fn of_two(
        &self,
        c: &mut NodeCall<'_, '_>,
        scores: NodeId,
        scored: &[Scored],
        base: &[f64],
    ) -> Result<(NodeId, NodeId), NodeError> {
        let (first, second) = (c.slice(scores, 1, 0, 1)?, c.slice(scores, 1, 1, 1)?);
        let [of_first, of_second] = scored else { return Err("scores of two classes that are not two".into()) };
        let both = match of_second {
            Scored::Always => true,
            Scored::Never => false,
            Scored::Where(_) => return Err("two classes, the second of which has weights for some rows only".into()),
        };
        // ONNX Runtime adds the second base value to the first score.
        let (first, second) = match *base {
            [_, b] if both => {
                let score = c.with("add", first, b)?;
                (c.apply("neg", [score])?, score)
            }
            [a] | [a, _] => (c.with("add", first, a)?, second),
            _ => (first, second),
        };
        // A class without weights keeps a score of 0.
        let zero = c.number(0.0, first)?;
        let written = match of_first {
            Scored::Always => first,
            Scored::Never => c.expand(zero, &c.dims(first))?,
            Scored::Where(there) => c.apply("where", [*there, first, zero])?,
        };
        let decides = if both { second } else { written };
        let alone = !both && base.len() < 2;
        let limit = if self.alone && self.positive { 0.5 } else { 0.0 };
        let wins = c.with("gt", decides, limit)?;
        let rows = c.dims(wins)[0];
        let place = c.cast(wins, DType::I64)?;
        let place = c.reshape(place, &[rows])?;
        let scores = if alone {
            self.completed(c, written)?
        } else {
            let both = c.concat(&[written, second], 1)?;
            self.transform.of(c, both)?
        };
        Ok((place, scores))
    }

    /// Both scores, of the one that there is.
    fn completed(&self, c: &mut NodeCall<'_, '_>, score: NodeId) -> NodeResult {
        match self.transform {
            Transform::Probit => Err("PROBIT of one score of two classes, of which ONNX Runtime writes one".into()),
            Transform::Logistic => opposites(c, score, Transform::Logistic),
            _ if self.positive => complement(c, score),
            transform => opposites(c, score, transform),
        }
    }
}
