//! Ids that follow from where they are read: where they are an affine function of that, what is looked up by them is a view.
//!
//! Exporters write out relative positions so: a table of distances is read at query − key + n − 1, by arithmetic on ranges that may go
//! through floats. Which ops that takes does not matter: the ids are evaluated once, and compared with the map through a few of them.

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

/// Most ids that are evaluated: what is larger is a table and no arithmetic.
const MOST_IDS: usize = 1 << 16;

/// Most ops that ids are computed by.
const MOST_OPS: usize = 64;

/// constant + Σ strides\[n\] · coordinate n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Affine {
    strides: Vec<i64>,
    constant: i64,
}

impl Affine {
    /// The map through the first element of a tensor and its neighbours, if all others lie on it.
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

    /// The id that is read at some place.
    pub fn at(&self, place: &[Index]) -> Index {
        let terms = place.iter().zip(&self.strides);
        terms.fold(Index::constant(self.constant), |sum, (index, &stride)| sum.plus(&index.times(stride)))
    }

    /// Whether all ids over a tensor of such extents lie in an axis.
    pub fn fits(&self, dims: &[usize], extent: i64) -> bool {
        let range = self.at(&(0..dims.len()).map(Index::coord).collect::<Vec<_>>()).range(dims);
        range.start >= 0 && range.end <= extent
    }
}

/// What is known of the ids of an e-graph so far.
#[derive(Debug, Default)]
pub struct Positions(RefCell<FxHashMap<ClassId, Option<Rc<Affine>>>>);

impl Positions {
    /// For each class, whether its elements may be known: they hang on positions and numbers alone, and are not too many.
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

    /// A class of integers as a map of the coordinates; `None` where it is none, or hangs on what is given.
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

/// Returns the value of a class that is computed from positions and numbers alone; `None` for others, and where that takes many ops.
pub fn constant_ids(classes: &EClasses, plan: &Plan, class: ClassId) -> Option<Tensor> {
    let mut graph = Graph::new("ids");
    let ids = added(classes, plan, class, &mut graph, &mut FxHashMap::default())?;
    graph.output("ids", ids).ok()?;
    interpret_rounded(&graph, &|_| None).ok()?.first().map(Value::to_tensor)
}

/// Adds what a class is computed by to a graph. `known` are the classes that were met: none where one is still on the way, as the choices
/// of a plan may lead in a circle where it computes nothing, or where it hangs on what is given.
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
                // Kernels might look up other ids.
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
