//! The semantics of the e-nodes that a plan chose: functions of an index over the tensors in memory.

use std::{collections::BTreeSet, rc::Rc};

use eutectic_ir::{
    Attr, Class,
    eclasses::{ClassId, ENode},
};

use super::memory::{Memory, extent, shape_of};
use crate::{
    call::{Call, Case, Value},
    facts::{Res, stop},
    ops,
    scope::literal,
    shape::{Item, Tensor},
    side::fitted,
    term::{Poly, T, Ty, num},
};

/// The e-nodes that a kernel's stores compute.
pub struct Nodes<'a> {
    case: &'a Rc<Case>,
    memory: &'a Memory<'a>,
    reads: BTreeSet<ClassId>,
}

impl<'a> Nodes<'a> {
    /// Makes the e-nodes between the tensors that a kernel reads and those that it stores.
    pub fn new(case: &'a Rc<Case>, memory: &'a Memory<'a>, reads: BTreeSet<ClassId>) -> Nodes<'a> {
        Nodes { case, memory, reads }
    }

    /// Returns an element of an e-class as its e-node computes it, even if the kernel reads the e-class from memory.
    pub fn element(&self, class: ClassId, at: &[Poly]) -> Res<T> {
        (self.computed(class)?.at)(at)
    }

    fn tensor(&self, class: ClassId) -> Res<Tensor> {
        if self.reads.contains(&class) { self.memory.tensor(class) } else { self.computed(class) }
    }

    fn computed(&self, class: ClassId) -> Res<Tensor> {
        let of = self.memory.class(class);
        let shape = shape_of(self.case, &of.ty)?;
        let ty = Ty::fixed(of.ty.dtype().unwrap_or(eutectic_ir::DType::F32));
        if let Some(x) = of.scalar {
            return Ok(Tensor::new(ty, shape, move |_| Ok(num(x))));
        }
        if let Some(ids) = self.memory.ids(class) {
            return Ok(Tensor::new(ty, shape, move |at| Ok(ids.at(at))));
        }
        let node = self.memory.chosen(class)?;
        // A kernel that writes an input to an output copies it.
        if matches!(node.op.def().class, Class::Leaf(_)) && ops::semantics(node.op).is_none() {
            return self.memory.tensor(class);
        }
        if node.op.def().ids.is_some() {
            let (inner, attrs) = (self.tensor(node.operands[0])?, format!("{:?}", node.attrs));
            let own = ty.clone();
            return Ok(Tensor::new(ty, shape, move |at| {
                Ok(crate::term::apply(&format!("checked {attrs}"), &own, vec![(inner.at)(at)?]))
            }));
        }
        let Some(semantics) = ops::semantics(node.op) else {
            return stop(format!("op `{}` has no semantics yet", node.op));
        };
        let call = self.call(node)?;
        let result = semantics(&call)?.remove(0);
        Ok(Tensor { ty: if result.ty == ty { result.ty } else { ty }, ..result })
    }

    /// Makes the call of an e-node's op on its operands.
    pub fn call(&self, node: &ENode) -> Res<Call> {
        let args = node.operands.iter().map(|operand| self.tensor(*operand)).collect::<Res<Vec<_>>>()?;
        let attrs = node.attrs.iter().map(|attr| self.literal(attr)).collect::<Res<Vec<_>>>()?;
        let own = attrs.iter().find_map(|v| if let Value::Shape(s) = v { Some(s.clone()) } else { None });
        let on = args.first().map(|a| a.shape.clone()).or(own);
        let kinds = node.op.def().attrs.iter().zip(attrs);
        let attrs = kinds.map(|(def, value)| fitted(def.kind, value, on.as_ref())).collect::<Res<_>>()?;
        Ok(Call { case: Rc::clone(self.case), op: node.op.name(), attrs, args })
    }

    fn literal(&self, attr: &Attr) -> Res<Value> {
        match attr {
            Attr::Shape(shape) => {
                Ok(Value::Shape(shape.iter().map(|dim| Item::axis(extent(self.case, dim))).collect()))
            }
            Attr::Int(n) => Ok(Value::Int(Poly::int(i128::from(*n)))),
            attr => literal(attr).map_or_else(|| stop(format!("the attribute value {attr} is unsupported")), Ok),
        }
    }
}
