//! The e-nodes that a plan chose, as functions of an index over what is stored.

use std::{collections::BTreeSet, rc::Rc};

use eutectic_ir::{
    Attr, Class,
    eclasses::{ClassId, EClasses},
};
use eutectic_lowering::PlannedBlock;

use super::memory::{extent, room_of, shape_of, stored};
use crate::{
    call::{Call, Case, Value},
    facts::{Res, stop},
    ops,
    scope::literal,
    shape::{Item, Tensor},
    side::fitted,
    term::{Poly, T, Ty, num},
};

/// The e-nodes of a plan below a kernel's stores.
pub struct Nodes<'a> {
    case: &'a Rc<Case>,
    classes: &'a EClasses,
    choice: &'a [usize],
    reads: BTreeSet<ClassId>,
}

impl<'a> Nodes<'a> {
    /// The e-nodes above what a kernel reads.
    pub fn new(case: &'a Rc<Case>, block: &'a PlannedBlock, reads: BTreeSet<ClassId>) -> Nodes<'a> {
        Nodes { case, classes: &block.classes, choice: &block.searched.plan.choice, reads }
    }

    /// The element of a class, which its own e-node computes although it is stored.
    pub fn element(&self, class: ClassId, at: &[Poly]) -> Res<T> {
        (self.computed(class)?.at)(at)
    }

    fn tensor(&self, class: ClassId) -> Res<Tensor> {
        let of = &self.classes.classes[class];
        if self.reads.contains(&class) {
            let shape = shape_of(self.case, &of.ty)?;
            let ty = Ty::fixed(of.ty.dtype().unwrap_or(eutectic_ir::DType::F32));
            let (own, room) = (ty.clone(), room_of(&of.ty)?);
            return Ok(Tensor::new(ty, shape, move |at| {
                let flat = room.iter().zip(at).fold(Poly::zero(), |flat, (extent, i)| &(&flat * extent) + i);
                Ok(stored(class, &own, flat))
            }));
        }
        self.computed(class)
    }

    fn computed(&self, class: ClassId) -> Res<Tensor> {
        let of = &self.classes.classes[class];
        let shape = shape_of(self.case, &of.ty)?;
        let ty = Ty::fixed(of.ty.dtype().unwrap_or(eutectic_ir::DType::F32));
        if let Some(x) = of.scalar {
            return Ok(Tensor::new(ty, shape, move |_| Ok(num(x))));
        }
        let Some(node) = of.nodes.get(self.choice[class]) else { return stop("a class without a node") };
        // What is given and written to an output is a copy.
        if matches!(node.op.def().class, Class::Leaf(_)) && node.op.name() != "iota" {
            return stop("a leaf is read");
        }
        let args = node.operands.iter().map(|operand| self.tensor(*operand)).collect::<Res<Vec<_>>>()?;
        if node.op.def().ids.is_some() {
            let (inner, attrs) = (args[0].clone(), format!("{:?}", node.attrs));
            let own = ty.clone();
            return Ok(Tensor::new(ty, shape, move |at| {
                Ok(crate::term::apply(&format!("checked {attrs}"), &own, vec![(inner.at)(at)?]))
            }));
        }
        let Some(semantics) = ops::semantics(node.op) else {
            return stop(format!("op `{}` has no semantics yet", node.op));
        };
        let operand = args.first().map(|a| a.shape.clone());
        let attrs = node.attrs.iter().map(|attr| self.literal(attr)).collect::<Res<Vec<_>>>()?;
        let own = attrs.iter().find_map(|v| if let Value::Shape(s) = v { Some(s.clone()) } else { None });
        let on = operand.or(own);
        let kinds = node.op.def().attrs.iter().zip(attrs);
        let attrs = kinds.map(|(def, value)| fitted(def.kind, value, on.as_ref())).collect::<Res<_>>()?;
        let call = Call { case: Rc::clone(self.case), op: node.op.name(), attrs, args };
        let result = semantics(&call)?.remove(0);
        Ok(Tensor { ty: if result.ty == ty { result.ty } else { ty }, ..result })
    }

    fn literal(&self, attr: &Attr) -> Res<Value> {
        if let Attr::Shape(shape) = attr {
            return Ok(Value::Shape(shape.iter().map(|dim| Item::axis(extent(self.case, dim))).collect()));
        }
        literal(attr).map_or_else(|| stop("an attribute of that kind is not understood"), Ok)
    }
}
