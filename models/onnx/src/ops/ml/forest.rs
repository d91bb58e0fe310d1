//! Decision trees as tables of nodes. All rows descend all trees at the same time, one level per step.

use std::{collections::BTreeSet, iter::repeat_n};

use eutectic_ir::{DType, Dim, NodeId, Tensor, Type};

use super::rows::Rows;
use crate::{
    call::{NodeCall, NodeResult},
    error::NodeError,
    ops::index::counter,
};

/// The modes of branches, in the order of their numbers in `TreeEnsemble`. The Booleans are the value of the condition
/// if the feature is less than, equal to, or greater than the node's number.
pub(super) const MODES: [(&str, [bool; 3]); 6] = [
    ("BRANCH_LEQ", [true, true, false]),
    ("BRANCH_LT", [true, false, false]),
    ("BRANCH_GTE", [false, true, true]),
    ("BRANCH_GT", [false, false, true]),
    ("BRANCH_EQ", [false, true, false]),
    ("BRANCH_NEQ", [true, false, true]),
];

/// The number of the mode `MEMBER` in `TreeEnsemble`.
pub(super) const MEMBER: usize = MODES.len();

/// The largest depth of a descent that is unrolled, so that one kernel can contain it. Deeper trees use a loop.
const UNROLLED: usize = 64;

/// A child of a branch, by index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Child {
    Branch(usize),
    Leaf(usize),
}

/// A branch of a tree, as the file stores it.
pub(super) struct Branch {
    pub feature: usize,
    /// The value of the condition for each order of feature and number, as in [`MODES`].
    pub mode: [bool; 3],
    /// The number that the feature is compared with, or the members of a set.
    pub values: Vec<f64>,
    /// The child for a true condition, and that for a false one.
    pub children: [Child; 2],
    /// Whether the condition is true for a NaN feature.
    pub missing: bool,
}

/// A branch that compares a feature with one number. It has a child for each outcome: less, equal, greater, unordered.
struct Split {
    feature: usize,
    value: f64,
    next: [Child; 4],
}

/// Decision trees, which may share nodes.
pub(super) struct Forest {
    splits: Vec<Split>,
    /// The root of each tree.
    roots: Vec<Child>,
    /// The number of leaves.
    leaves: usize,
    depth: usize,
}

/// The comparison ops. The Booleans are their results for the outcomes of [`Split`].
const TELLING: [(&str, [bool; 4]); 5] = [
    ("le", [true, true, false, false]),
    ("lt", [true, false, false, false]),
    ("ge", [false, true, true, false]),
    ("gt", [false, false, true, false]),
    ("eq", [false, true, false, false]),
];

impl Forest {
    /// Creates a forest from branches whose children are in range.
    ///
    /// # Errors
    /// If a branch is its own descendant.
    pub fn new(branches: &[Branch], roots: Vec<Child>, leaves: usize) -> Result<Forest, NodeError> {
        let mut splits: Vec<Split> = Vec::with_capacity(branches.len());
        let mut sets = Vec::new();
        for branch in branches {
            let [yes, no] = branch.children;
            let missing = if branch.missing { yes } else { no };
            match branch.values[..] {
                [value] => splits.push(compared(branch, value)),
                [] => splits.push(Split { feature: branch.feature, value: 0.0, next: [no, no, no, missing] }),
                _ => {
                    sets.push((splits.len(), branch));
                    splits.push(Split { feature: branch.feature, value: 0.0, next: [no; 4] });
                }
            }
        }
        for (at, branch) in sets {
            let mut members = branch.values.clone();
            members.sort_by(f64::total_cmp);
            splits[at] = searched(&mut splits, branch, &members);
        }
        let mut forest = Forest { splits, roots, leaves, depth: 0 };
        forest.depth = forest.measured()?;
        Ok(forest)
    }

    /// Returns the number of branches on the longest path.
    fn measured(&self) -> Result<usize, NodeError> {
        // The state of each split: not visited, on the current path, or the number of branches to its deepest leaf.
        let mut depths: Vec<Option<Option<usize>>> = vec![None; self.splits.len()];
        let mut deepest = 0;
        for root in &self.roots {
            let Child::Branch(root) = *root else { continue };
            let mut path = vec![(root, 0)];
            while let Some((at, done)) = path.pop() {
                let next = &self.splits[at].next;
                if done == 0 && depths[at].is_some() {
                    continue;
                }
                depths[at] = Some(None);
                let waiting = (done..next.len()).find_map(|number| match next[number] {
                    Child::Branch(child) if depths[child].is_none() => Some(Ok((number, child))),
                    Child::Branch(child) if depths[child] == Some(None) => {
                        Some(Err(NodeError("a node of a tree is its own descendant".into())))
                    }
                    _ => None,
                });
                match waiting.transpose()? {
                    Some((number, child)) => path.extend([(at, number + 1), (child, 0)]),
                    None => {
                        let depth = |child: &Child| match child {
                            Child::Branch(child) => depths[*child].flatten().unwrap_or(0),
                            Child::Leaf(_) => 0,
                        };
                        depths[at] = Some(Some(1 + next.iter().map(depth).max().unwrap_or(0)));
                    }
                }
            }
            deepest = deepest.max(depths[root].flatten().unwrap_or(0));
        }
        Ok(deepest)
    }

    /// Returns the root of each tree.
    pub fn roots(&self) -> &[Child] {
        &self.roots
    }

    /// Returns the same branches with other trees. `leaves` is the new number of leaves.
    pub fn with_trees(self, roots: Vec<Child>, leaves: usize) -> Forest {
        Forest { roots, leaves, ..self }
    }

    /// Returns the leaves that are reachable from a root.
    pub fn leaves_of(&self, root: Child) -> BTreeSet<usize> {
        let (mut waiting, mut leaves, mut met) = (vec![root], BTreeSet::new(), BTreeSet::new());
        while let Some(child) = waiting.pop() {
            match child {
                Child::Leaf(leaf) => {
                    leaves.insert(leaf);
                }
                Child::Branch(branch) if met.insert(branch) => waiting.extend(self.splits[branch].next),
                Child::Branch(_) => {}
            }
        }
        leaves
    }

    /// Returns the row of a node in the tables. Leaves follow branches.
    fn place(&self, child: Child) -> i64 {
        (match child {
            Child::Branch(branch) => branch,
            Child::Leaf(leaf) => self.splits.len() + leaf,
        }) as i64
    }

    /// Returns the leaf [trees rows] that each row reaches in each tree. Trees are the outer axis, so that the nodes of
    /// one tree stay in the L1 cache while all rows descend it.
    pub fn descended(&self, c: &mut NodeCall<'_, '_>, rows: Rows) -> NodeResult {
        if let Some(split) = self.splits.iter().find(|split| split.feature >= rows.width) {
            return Err(format!("a tree reads feature {}, but rows have {} features", split.feature, rows.width).into());
        }
        let outcomes = Outcomes::of(&self.splits);
        let places = self.splits.len() + self.leaves;
        let count = rows.count(c);
        let most = count.capacity().and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
        let ids = counter((places * outcomes.count()).max(most.saturating_mul(rows.width)));
        let roots = Tensor::from_i64(ids, &[self.roots.len(), 1], self.roots.iter().map(|root| self.place(*root)));
        let mut at = c.constant(roots)?;
        if self.depth > 0 {
            let tables = self.tables(c, &outcomes, rows, ids)?;
            if self.depth <= UNROLLED {
                for _ in 0..self.depth {
                    at = step(c, at, &tables, &outcomes)?;
                }
            } else {
                let start = c.expand(at, &[self.roots.len().into(), count.clone()])?;
                at = looped(c, start, &tables, &outcomes, self.depth)?;
            }
        }
        let at = c.expand(at, &[self.roots.len().into(), count])?;
        c.with("sub", at, self.splits.len() as i64)
    }

    /// Creates the tables of the descent. A leaf is its own child, so that further steps do not leave it.
    fn tables(
        &self,
        c: &mut NodeCall<'_, '_>,
        outcomes: &Outcomes,
        rows: Rows,
        ids: DType,
    ) -> Result<Tables, NodeError> {
        let count = self.splits.len() + self.leaves;
        let features = self.splits.iter().map(|split| split.feature as i64).chain(repeat_n(0, self.leaves));
        let features = c.weights("features", Tensor::from_i64(ids, &[count], features))?;
        let values = self.splits.iter().map(|split| split.value).chain(repeat_n(0.0, self.leaves));
        let values = c.weights("values", Tensor::from_f64(c.dtype(rows.x), &[count], values))?;
        let width = outcomes.count();
        let of_split = |split: &Split| outcomes.children(split).into_iter().map(|child| self.place(child));
        let next = self.splits.iter().flat_map(of_split);
        let next = next.chain((self.splits.len()..count).flat_map(|leaf| repeat_n(leaf as i64, width)));
        let next = c.weights("children", Tensor::from_i64(ids, &[count * width], next))?;
        let count = rows.count(c);
        let flat = c.reshape(rows.x, &[&count * &Dim::from(rows.width)])?;
        let row = c.iota(&[Dim::Known(1), count], 1, ids)?;
        let row = c.with("mul", row, rows.width as i64)?;
        Ok(Tables { features, values, next, flat, row })
    }
}

/// Returns the split that compares a feature with `value`. If either is NaN, only `BRANCH_NEQ` holds. For a NaN
/// feature, `missing` also makes the condition true.
fn compared(branch: &Branch, value: f64) -> Split {
    let [yes, no] = branch.children;
    let pick = |holds: bool| if holds { yes } else { no };
    let differs = branch.mode == [true, false, true];
    let [less, equal, greater] = if value.is_nan() { [differs; 3] } else { branch.mode };
    let unordered = pick(differs || branch.missing);
    let value = if value.is_nan() { 0.0 } else { value };
    Split { feature: branch.feature, value, next: [pick(less), pick(equal), pick(greater), unordered] }
}

/// Builds a binary search among sorted members. Returns its root, and adds its other splits to `splits`.
fn searched(splits: &mut Vec<Split>, branch: &Branch, members: &[f64]) -> Split {
    let [yes, no] = branch.children;
    let middle = members.len() / 2;
    let mut side = |part: &[f64]| {
        if part.is_empty() {
            return no;
        }
        let split = searched(splits, branch, part);
        splits.push(split);
        Child::Branch(splits.len() - 1)
    };
    let (less, greater) = (side(&members[..middle]), side(&members[middle + 1..]));
    let missing = if branch.missing { yes } else { no };
    Split { feature: branch.feature, value: members[middle], next: [less, yes, greater, missing] }
}

/// The outcomes of a comparison that the splits of a forest distinguish.
enum Outcomes {
    /// Two cases: a comparison op is true, or it is false. The fields are the name of the op, and its result for each
    /// outcome: less, equal, greater, unordered.
    Two(&'static str, [bool; 4]),
    /// Four cases: each outcome has its own child.
    Four,
}

impl Outcomes {
    fn of(splits: &[Split]) -> Outcomes {
        let tells = |holds: &[bool; 4]| {
            splits.iter().all(|split| {
                let of =
                    |which: bool| (0..4).filter(|at| holds[*at] == which).map(|at| split.next[at]).collect::<Vec<_>>();
                [of(true), of(false)].iter().all(|children| children.windows(2).all(|pair| pair[0] == pair[1]))
            })
        };
        let one = TELLING.iter().find(|(_, holds)| tells(holds));
        one.map_or(Outcomes::Four, |(op, holds)| Outcomes::Two(op, *holds))
    }

    fn count(&self) -> usize {
        match self {
            Outcomes::Two(..) => 2,
            Outcomes::Four => 4,
        }
    }

    /// Returns the child of a split for each distinguished case.
    fn children(&self, split: &Split) -> Vec<Child> {
        match self {
            Outcomes::Two(_, holds) => {
                let of = |which: bool| holds.iter().zip(split.next).find(|(holds, _)| **holds == which);
                [of(false), of(true)].into_iter().flatten().map(|(_, child)| child).collect()
            }
            Outcomes::Four => split.next.to_vec(),
        }
    }

    /// Compares the features with the numbers. Returns the index of the case, in the element type `ids`.
    fn number(&self, c: &mut NodeCall<'_, '_>, x: NodeId, value: NodeId, ids: DType) -> NodeResult {
        if let Outcomes::Two(op, _) = self {
            let holds = c.apply(op, [x, value])?;
            return c.cast(holds, ids);
        }
        let mut number = c.number_of(3, ids)?;
        for (at, op) in [(2, "gt"), (1, "eq"), (0, "lt")] {
            let holds = c.apply(op, [x, value])?;
            let at = c.number_of(at, ids)?;
            number = c.apply("where", [holds, at, number])?;
        }
        Ok(number)
    }
}

/// The operands of a step of the descent.
#[derive(Clone, Copy)]
struct Tables {
    /// For each node: the feature, the number to compare it with, and the children for all cases.
    features: NodeId,
    values: NodeId,
    next: NodeId,
    /// All features of all rows as a vector, and the index in it of the first feature of each row.
    flat: NodeId,
    row: NodeId,
}

/// Moves all rows from a node to one of its children.
fn step(c: &mut NodeCall<'_, '_>, at: NodeId, tables: &Tables, outcomes: &Outcomes) -> NodeResult {
    let read =
        |c: &mut NodeCall<'_, '_>, table: NodeId, ids: NodeId| c.op("gather", &[table, ids], &[("axis", 0.into())]);
    let feature = read(c, tables.features, at)?;
    let place = c.apply("add", [tables.row, feature])?;
    let (x, value) = (read(c, tables.flat, place)?, read(c, tables.values, at)?);
    let outcome = outcomes.number(c, x, value, c.dtype(at))?;
    let first = c.with("mul", at, outcomes.count() as i64)?;
    let next = c.apply("add", [first, outcome])?;
    read(c, tables.next, next)
}

/// Descends all levels by a loop with a fixed trip count.
fn looped(c: &mut NodeCall<'_, '_>, start: NodeId, tables: &Tables, outcomes: &Outcomes, depth: usize) -> NodeResult {
    let ty: Type = c.ty(start);
    let body = c.body("descend", |c| {
        let at = c.body_input(ty)?;
        let Tables { features, values, next, flat, row } = *tables;
        let [features, values, next, flat, row] = [features, values, next, flat, row].map(|table| c.capture(table));
        let tables = Tables { features: features?, values: values?, next: next?, flat: flat?, row: row? };
        Ok(vec![step(c, at, &tables, outcomes)?])
    })?;
    let results = c.looped(body, depth, &[start], &[], None)?;
    results.first().copied().ok_or_else(|| NodeError("the loop of the descent has no results".into()))
}
