//! Replaces ids by index maps: a gather by ids that are an affine function of their coordinates is a view.
//!
//! Exporters write relative positions as ids: attention reads a table of distances at query − key + n − 1. Ops compute
//! these ids from ranges, in some models through floats. To be independent of the ops, the ids are evaluated once and
//! compared with the affine map through the first id and its neighbours.

use std::{cell::RefCell, rc::Rc};

use eutectic_ir::{
    Attr, Graph, NodeId, Tensor,
    eclasses::{ClassId, EClasses, ENode},
    index::Index,
    interp::interpret_rounded,
    ops::{
        Class, Leaf,
        eval::{Value, offsets},
    },
};
use rustc_hash::FxHashMap;

use crate::plan::Plan;

/// The maximal number of ids that are evaluated. A larger operand is taken for a table.
const MOST_IDS: usize = 1 << 16;

/// The maximal number of ops that compute the ids.
const MOST_OPS: usize = 64;

/// The ids as a function of their coordinates: constant + Σ strides\[n\] · coordinate n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Affine {
    strides: Vec<i64>,
    constant: i64,
}

impl Affine {
    /// Returns the affine map through the first element of a tensor and its neighbours, if all other elements agree
    /// with it.
    fn through(dims: &[usize], ids: &[i64]) -> Option<Affine> {
        let &constant = ids.first()?;
        let mut inner = ids.len();
        let stride = |&extent: &usize| {
            inner /= extent;
            if extent > 1 { ids[inner].wrapping_sub(constant) } else { 0 }
        };
        let strides: Vec<i64> = dims.iter().map(stride).collect();
        let far = |id: &i64| id.unsigned_abs() > 1 << 32;
        (!ids.iter().any(far) && offsets(dims, &strides, constant) == ids).then_some(Affine { strides, constant })
    }

    /// Returns the id at these coordinates.
    pub fn at(&self, place: &[Index]) -> Index {
        let terms = place.iter().zip(&self.strides);
        terms.fold(Index::constant(self.constant), |sum, (index, &stride)| sum.plus(&index.times(stride)))
    }

    /// Returns whether all ids of a tensor with the extents `dims` are in `0..extent`.
    pub fn fits(&self, dims: &[usize], extent: i64) -> bool {
        let range = self.at(&(0..dims.len()).map(Index::coord).collect::<Vec<_>>()).range(dims);
        range.start >= 0 && range.end <= extent
    }
}

/// Caches, for the classes of an e-graph, the affine map of each class of ids.
#[derive(Debug, Default)]
pub struct Positions(RefCell<FxHashMap<ClassId, Option<Rc<Affine>>>>);

impl Positions {
    /// Returns for each class whether its elements can be evaluated: they depend on ranges and constants only, and
    /// there are at most `MOST_IDS`.
    pub(crate) fn may_be_known(classes: &EClasses) -> Vec<bool> {
        let mut known = vec![false; classes.classes.len()];
        loop {
            let mut more = false;
            for (class, c) in classes.classes.iter().enumerate() {
                let follows = |node: &ENode| match node.op.def().class {
                    Class::Leaf(Leaf::Const | Leaf::Iota) => true,
                    Class::Pointwise | Class::View(_) => node.operands.iter().all(|&operand| known[operand]),
                    _ => false,
                };
                let may = c.constant && c.ty.count() <= MOST_IDS;
                if !known[class] && may && (c.scalar.is_some() || c.nodes.iter().any(follows)) {
                    known[class] = true;
                    more = true;
                }
            }
            if !more {
                return known;
            }
        }
    }

    /// Returns the affine map of a class of integers; `None` if there is none, or if the class depends on inputs or
    /// parameters.
    pub(super) fn of(&self, classes: &EClasses, plan: &Plan, class: ClassId) -> Option<Rc<Affine>> {
        if let Some(known) = self.0.borrow().get(&class) {
            return known.clone();
        }
        let affine =
            constant_ids(classes, plan, class).and_then(|ids| Affine::through(ids.dims(), &ids.to_i64()).map(Rc::new));
        self.0.borrow_mut().insert(class, affine.clone());
        affine
    }
}

/// Returns the elements of a class that depends on ranges and constants only. Returns `None` for other classes, and if
/// more than `MOST_OPS` ops compute the elements.
pub fn constant_ids(classes: &EClasses, plan: &Plan, class: ClassId) -> Option<Tensor> {
    let mut graph = Graph::new("ids");
    let ids = added(classes, plan, class, &mut graph, &mut FxHashMap::default())?;
    graph.output("ids", ids).ok()?;
    interpret_rounded(&graph, &|_| None).ok()?.first().map(Value::to_tensor)
}

/// Adds the expression of a class to a graph. Returns `None` if the class depends on inputs or parameters. `known` maps
/// the visited classes to nodes. A class under construction maps to `None`, which ends the recursion if the plan's
/// choices are cyclic. They may be cyclic for classes that no kernel computes.
fn added(
    classes: &EClasses,
    plan: &Plan,
    class: ClassId,
    graph: &mut Graph,
    known: &mut FxHashMap<ClassId, Option<NodeId>>,
) -> Option<NodeId> {
    if let Some(&id) = known.get(&class) {
        return id;
    }
    known.insert(class, None);
    let c = &classes.classes[class];
    let dims = c.ty.as_tensor()?.1.known()?;
    if !c.constant || c.ty.count() > MOST_IDS || known.len() > MOST_OPS {
        return None;
    }
    let id = if let Some(number) = c.scalar {
        graph.constant(Tensor::from_f64(c.ty.dtype()?, &dims, (0..c.ty.count()).map(|_| number))).ok()?
    } else {
        let node = c.nodes.get(plan.choice[class])?;
        let def = node.op.def();
        match (def.class, node.attrs.first()) {
            (Class::Leaf(Leaf::Const), Some(Attr::Tensor(tensor))) => graph.constant(tensor.clone()).ok()?,
            (Class::Leaf(Leaf::Iota) | Class::Pointwise | Class::View(_), _) => {
                let add = |&operand: &ClassId| added(classes, plan, operand, graph, known);
                let operands = node.operands.iter().map(add).collect::<Option<Vec<_>>>()?;
                // Kernels may compute ids of these types differently.
                let dtypes = node.operands.iter().filter_map(|&operand| classes.classes[operand].ty.dtype());
                if !node.op.is_settled(dtypes, c.ty.dtype()?, || true) {
                    return None;
                }
                let names = def.attrs.iter().map(|attr| attr.name);
                let attrs: Vec<(&str, Attr)> = names.zip(node.attrs.iter().cloned()).collect();
                graph.apply(def.name, &operands, &attrs).ok()?
            }
            _ => return None,
        }
    };
    known.insert(class, Some(id));
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_a_map_and_other_tables_are_none() {
        let ids = |f: fn(i64, i64) -> i64| (0..15).map(|n| f(n / 5, n % 5)).collect::<Vec<_>>();
        let apart = Affine::through(&[3, 5], &ids(|i, j| i - j + 4)).unwrap();
        assert_eq!(apart, Affine { strides: vec![1, -1], constant: 4 });
        assert!(apart.fits(&[3, 5], 7) && !apart.fits(&[3, 5], 6));
        assert_eq!(Affine::through(&[3, 5], &ids(|i, j| i * j)), None);
        assert_eq!(Affine::through(&[3, 5], &ids(|i, j| if (i, j) == (2, 4) { 3 } else { i - j + 4 })), None);
        assert_eq!(Affine::through(&[1, 5], &[0, 2, 4, 6, 8]).unwrap().strides, [0, 2]);
        assert_eq!(Affine::through(&[0], &[]), None);
    }
}
